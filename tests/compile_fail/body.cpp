// SPDX-License-Identifier: Apache-2.0
// A mistake in the callable that has nothing to do with gspmd is not followed by one that has.
// expect: no member named 'size'
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

constexpr auto program = [](auto x) {
#ifdef FIXED
  return x * 2.0;
#else
  return x.size() * 2.0;  // <- here
#endif
};
using step = compile<program, pod, in<float, dims<64, 32>, split<"data", _>>>;

int main() {
  array<float> x({64, 32});
  auto y = run<step>(simulated{}, x);
  return y[0] > 0;
}
