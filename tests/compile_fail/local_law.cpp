// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: local_op: the function does not keep the law of its rule
// expect: local_op: the function of `bt->bt`
// expect: mark `t` as whole: [t]
#include <gspmd/gspmd.hpp>

using namespace gspmd;

#ifdef FIXED
constexpr auto running_sum = local_op<"b[t]->b[t]">(
#else
constexpr auto running_sum = local_op<"bt->bt">(  // <- here
#endif
    [](auto x, auto y) {
      for (std::int64_t i = 0; i < x.extent(0); ++i)
        for (std::int64_t j = 0; j < x.extent(1); ++j) y(i, j) = j == 0 ? x(i, j) : y(i, j - 1) + x(i, j);
    });

constexpr auto sums = [](auto x) { return running_sum(x) * 2.0; };
using step = compile<sums, mesh<axis<"data", 2>>, in<float, dims<8, 8>, split<"data", _>>>;

int main() {
  array<float> x({8, 8});
  auto y = run<step>(simulated{}, x);
  return y[0] > 0;
}
