// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: step: this is not the shard that the step takes here
// expect: output 0 is written
// expect: argument is const
#include <gspmd/gspmd.hpp>

using namespace gspmd;

constexpr auto twice = [](auto x) { return x * 2.0F; };
using step = compile<twice, mesh<axis<"data", 2>>, input<float, shape<8>, split<"data">>>;

void run(simulated_communicator& comm, const sharded_array<float>& x, sharded_array<float>& y) {
  step s;
#ifdef FIXED
  s(comm, x, y);
#else
  const sharded_array<float>& result = y;
  s(comm, x, result);  // <- here
#endif
}

int main() {}
