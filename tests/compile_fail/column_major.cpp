// SPDX-License-Identifier: Apache-2.0
// alone: yes
// expect: gspmd: a container of several dims must say that it is row-major
// expect: specialise gspmd::is_row_major for it
#include <vector>

#include <gspmd/gspmd.hpp>

using namespace gspmd;

/// A user's matrix. The order of its elements is unknown.
struct grid {
  std::vector<float> elements = std::vector<float>(12);
  [[nodiscard]] const float* data() const { return elements.data(); }
  [[nodiscard]] std::size_t size() const { return elements.size(); }
  [[nodiscard]] int rows() const { return 3; }
  [[nodiscard]] int cols() const { return 4; }
};
#ifdef FIXED
template <>
inline constexpr bool gspmd::is_row_major<grid> = true;
#endif

constexpr auto twice = [](auto x) { return x * 2; };
using step = compile<twice, mesh<axis<"data", 1>>, input<float, shape<3, 4>>>;

int main() {
  auto y = run<step>(serial{}, grid{});  // <- here
  return y[0] > 0;
}
