// SPDX-License-Identifier: Apache-2.0
// alone: yes
// expect: include gspmd/mpi.hpp
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;
constexpr auto twice = [](auto x) { return x * 2.0; };
using step = compile<twice, pod, input<float, shape<64, 32>, split<"data", _>>>;

int main() {
  array<float> x({64, 32});
#ifdef FIXED
  auto y = run<step>(simulated{}, x);
#else
  auto y = run<step>(mpi{}, x);  // <- here
#endif
  return y[0] > 0;
}
