// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: compile: the callable must return a value
// expect: constant<float>(x, {}, number)
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

constexpr auto program = [](auto x) {
#ifdef FIXED
  return std::tuple{x, x};
#else
  return std::tuple{x, 2.0};
#endif
};
using step = compile<program, pod, input<float, shape<64, 32>, split<"data", _>>>;

int main() {
  array<float> x({64, 32});
  auto y = run<step>(simulated{}, x);  // <- here
  static_cast<void>(y);
}
