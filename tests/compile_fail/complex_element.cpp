// SPDX-License-Identifier: Apache-2.0
// expect: max at complex_element.cpp:
// expect: not defined for c64; take
#include <complex>
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;
constexpr auto larger = [](auto x, auto y) {
#ifdef FIXED
  return max(abs(x), abs(y));
#else
  return max(x, y);
#endif
};
using number = std::complex<float>;
using step = compile<larger, pod, input<number, shape<64, 32>, split<"data", _>>, input<number, shape<64, 32>, split<"data", _>>>;

int main() {
  array<number> x({64, 32});
  auto y = run<step>(simulated{}, x, x);  // <- here
  return y.size() == 0;
}
