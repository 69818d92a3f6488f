// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: placements have one entry for each mesh axis, in the order of the mesh
// expect: placements_of: axis `model`
// expect: dim 0 before axis `data`
// expect: would be lost; give the mesh the
#include <gspmd/layouts/placements.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 4>>;
#ifdef FIXED
using list = split_as_placements<pod, split<"data,model", _>>;
#else
using list = split_as_placements<pod, split<"model,data", _>>;  // <- here
#endif

int main() { return list::count; }
