// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: a tensor has at most 2^60 bytes and no negative extent; correct its shape
// expect: broadcast_in_dim at
// expect: [4294967296,4294967296,2] has more
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;

constexpr auto total = [](auto x) {
#ifdef FIXED
  return sum(broadcast_in_dim(x, {1 << 10, 1 << 10, 2}, {2}));
#else
  return sum(broadcast_in_dim(x, {std::int64_t{1} << 32, std::int64_t{1} << 32, 2}, {2}));
#endif
};
using step = compile<total, pod, input<float, shape<2>>>;

int main() {
  auto y = run<step>(simulated{}, array<float>({2}));  // <- here
  return y[0] > 0;
}
