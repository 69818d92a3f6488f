// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: step: the axes that split a dim of this shard have more than 63 characters; name them shorter
#include <gspmd/gspmd.hpp>

using namespace gspmd;

#ifdef FIXED
using pod = mesh<axis<"first", 2>, axis<"second", 2>, axis<"third", 2>>;
using tiles = split<"first", "second", "third">;
#else
using pod =
    mesh<axis<"first_axis_of_the_machine", 2>, axis<"second_axis_of_the_machine", 2>, axis<"third_axis_of_the_machine", 2>>;
using tiles = split<"first_axis_of_the_machine", "second_axis_of_the_machine", "third_axis_of_the_machine">;
#endif

constexpr auto flat = [](auto x) { return reshape(x, {8}); };
using step = compile<flat, pod, input<float, shape<2, 2, 2>, tiles>>;

int main() {
  float y[1] = {};
  step::output_shard<0> shard(y);  // <- here
  return shard[0] > 0;
}
