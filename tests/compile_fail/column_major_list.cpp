// SPDX-License-Identifier: Apache-2.0
// mistakes: 2
// expect: gspmd: a container of several dims must say that it is row-major
#include <cstddef>
#include <vector>

#include <gspmd/gspmd.hpp>

using namespace gspmd;

/// States its order in the same way as Eigen::Matrix.
template <bool RowMajor>
struct listed_matrix {
  static constexpr bool IsRowMajor = RowMajor, IsVectorAtCompileTime = false;
  std::vector<float> elements = std::vector<float>(16);
  [[nodiscard]] const float* data() const { return elements.data(); }
  [[nodiscard]] std::size_t size() const { return elements.size(); }
};
/// States its order in the same way as Kokkos::View, by its rank alone.
template <std::size_t Rank>
struct listed_grid {
  static constexpr std::size_t rank = Rank;
  std::vector<float> elements = std::vector<float>(16);
  [[nodiscard]] const float* data() const { return elements.data(); }
  [[nodiscard]] std::size_t size() const { return elements.size(); }
};
#ifdef FIXED
using matrix_in_list = listed_matrix<true>;
using grid_in_list = listed_grid<1>;
#else
using matrix_in_list = listed_matrix<false>;
using grid_in_list = listed_grid<2>;
#endif

constexpr auto twice = [](auto x) { return x * 2; };
using step = compile<twice, mesh<axis<"data", 1>>, input<float, shape<4, 4>>>;

int main() {
  auto y = run<step>(serial{}, std::vector<matrix_in_list>(1));             // <- here
  auto z = run<step>(serial{}, std::vector<std::vector<grid_in_list>>(1));  // <- here
  return y[0] + z[0] > 0;
}
