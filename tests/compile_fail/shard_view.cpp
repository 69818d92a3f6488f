// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: this names an axis that the mesh does not have
// expect: shard_view: `row` is not an axis of
// expect: data,model
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;

int main() {
  std::vector<float> x(32 * 512);
#ifdef FIXED
  shard_view<float, pod, shape<64, 512>, split<"data", _>> shard(x);
#else
  shard_view<float, pod, shape<64, 512>, split<"row", _>> shard(x);  // <- here
#endif
  return shard[0] > 0;
}
