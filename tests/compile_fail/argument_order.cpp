// SPDX-License-Identifier: Apache-2.0
// Arguments of `compile` and `in` that are missing or misplaced.
// mistakes: 6
// expect: gspmd: compile: the second argument is an input; write the mesh before the inputs
// expect: gspmd: compile: the second argument is no mesh
// expect: gspmd: input: the second argument is no shape<...>
// expect: gspmd: input: the third argument is no split<...>
// expect: gspmd: input: the fourth argument is no partial<...>
// expect: gspmd: compile: each input is an
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;
using rows = input<double, shape<64>, split<"data">>;
constexpr auto twice = [](auto x) { return 2.0 * x; };

#ifdef FIXED
using no_mesh = compile<twice, pod, rows>;
using axis_as_mesh = compile<twice, pod, rows>;
using no_dims = compile<twice, pod, rows>;
using no_split = compile<twice, pod, rows>;
using no_partial = compile<twice, pod, rows>;
using mesh_as_input = compile<twice, pod, rows>;
#else
using no_mesh = compile<twice, rows>;
using axis_as_mesh = compile<twice, axis<"data", 2>, rows>;
using no_dims = compile<twice, pod, input<double, split<"data">>>;
using no_split = compile<twice, pod, input<double, shape<64>, partial<"data">>>;
using no_partial = compile<twice, pod, input<double, shape<64>, split<_>, split<"data">>>;
using mesh_as_input = compile<twice, pod, pod>;
#endif

int main() {
  array<double> x({64});
  double most = run<no_mesh>(simulated{}, x)[0];  // <- here
  most += run<axis_as_mesh>(simulated{}, x)[0];   // <- here
  most += run<no_dims>(simulated{}, x)[0];        // <- here
  most += run<no_split>(simulated{}, x)[0];       // <- here
  most += run<no_partial>(simulated{}, x)[0];     // <- here
  most += run<mesh_as_input>(simulated{}, x)[0];  // <- here
  return most > 1;
}
