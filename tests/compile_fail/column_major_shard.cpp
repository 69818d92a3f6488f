// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: a container of several dims must say that it is row-major
#include <vector>

#include <gspmd/gspmd.hpp>

using namespace gspmd;

/// States its order in the same way as Eigen::Matrix.
template <bool RowMajor>
struct matrix {
  static constexpr bool IsRowMajor = RowMajor, IsVectorAtCompileTime = false;
  std::vector<float> elements = std::vector<float>(12);
  [[nodiscard]] float* data() { return elements.data(); }
  [[nodiscard]] std::size_t size() const { return elements.size(); }
};
#ifdef FIXED
using given = matrix<true>;
#else
using given = matrix<false>;
#endif

constexpr auto twice = [](auto x) { return x * 2; };
using step = compile<twice, mesh<axis<"data", 1>>, input<float, shape<3, 4>>>;

int main() {
  launch(serial{}, step::device_count, [](auto& comm) {
    step s;
    given x, y;
    s(comm, x, y.elements);  // <- here
  });
}
