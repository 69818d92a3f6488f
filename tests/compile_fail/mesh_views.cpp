// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: mesh_views: these meshes are not views of one mesh
// expect: no mesh has both
// expect: a=3, b=2
// expect: to_step
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using rows = mesh<axis<"x", 2>, axis<"y", 3>>;
#ifdef FIXED
using columns = mesh<axis<"a", 3>, axis<"b", 2>, device_order<0, 3, 1, 4, 2, 5>>;
#else
using columns = mesh<axis<"a", 3>, axis<"b", 2>>;
#endif

constexpr auto turned = [](auto x) { return reshard(x, split<"a", "b">{}); };
using step = compile<turned, mesh_views<rows, columns>, input<float, shape<6, 6>, split<"x", "y">>>;

int main() { return step::traffic.bytes > 0 ? 1 : 0; }  // <- here
