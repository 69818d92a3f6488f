// SPDX-License-Identifier: Apache-2.0
// mistakes: 3
// expect: gspmd: local_op: the function does not keep the law of its rule
// expect: local_op: the function of `bt->bt`
// expect: mark `t` as whole: [t]
// expect: local_op: the function of `rj->r`
// expect: is: [k=j], or correct the function
#include <gspmd/gspmd.hpp>

using namespace gspmd;

#ifdef FIXED
constexpr auto running_sum = local_op<"b[t]->b[t]">(
#else
constexpr auto running_sum = local_op<"bt->bt">(        // <- here
#endif
    [](auto x, auto y) {
      for (std::int64_t i = 0; i < x.extent(0); ++i)
        for (std::int64_t j = 0; j < x.extent(1); ++j) y(i, j) = j == 0 ? x(i, j) : y(i, j - 1) + x(i, j);
    });

/// Sums the elements while the sum is below a million. After that, returns the last element.
struct bounded_sum {
  template <class X, class Y>
  constexpr void operator()(X x, Y y) const {
    for (std::int64_t r = 0; r < x.extent(0); ++r) {
      y(r) = 0;
      for (std::int64_t j = 0; j < x.extent(1); ++j) y(r) = y(r) + x(r, j) < 1'000'000 ? y(r) + x(r, j) : x(r, j);
    }
  }
#ifndef FIXED
  static constexpr std::array<double, 3> samples() { return {1, 600'000, 900'000}; }
#endif
};
constexpr auto bounded = local_op<"rj->r">(  // <- here
    bounded_sum{});

/// Computes x in L x = b for each row b.
#ifdef FIXED
constexpr auto solved = local_op<"r[j],[k=j][j]->r[k]">(
#else
constexpr auto solved = local_op<"r[j],[k][j]->r[k]">(  // <- here
#endif
    [](auto b, auto l, auto x) {
      for (std::int64_t r = 0; r < x.extent(0); ++r)
        for (std::int64_t k = 0; k < x.extent(1); ++k) {
          x(r, k) = b(r, k);
          for (std::int64_t j = 0; j < k; ++j) x(r, k) = x(r, k) - l(k, j) * x(r, j);
        }
    });

constexpr auto sums = [](auto x, auto l) { return bounded(solved(running_sum(x) * 2.0, l)); };
using step = compile<sums, mesh<axis<"data", 2>>, input<float, shape<8, 8>, split<"data", _>>, input<float, shape<8, 8>>>;

int main() {
  array<float> x({8, 8}), l({8, 8});
  auto y = run<step>(simulated{}, x, l);
  return y[0] > 0;
}
