// SPDX-License-Identifier: Apache-2.0
// If the callable has a mistake that is unrelated to gspmd, no gspmd error follows, whichever results the program uses.
// expect: no member named 'size'
#include <gspmd/gspmd.hpp>

#include <cmath>
#include <span>
#include <vector>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

constexpr auto program = [](auto x) {
#ifdef FIXED
  return std::tuple{x * 2.0, sum(x)};
#else
  return std::tuple{x.size() * 2.0, sum(x)};  // <- here
#endif
};
using step = compile<program, pod, input<double, shape<64, 32>, split<"data", _>>>;
static_assert(step::collectives == collectives{all_reduce<"data">});

int main() {
  array<double> x({64, 32});
  auto [y, total] = run<step>(simulated{}, x);
  const double* data = y.data();
  const std::span<const double> view = y;
  const std::vector<double> copy(y.begin(), y.end());
  double most = std::abs(y[0] - total[0]);
  for (const double e : y) most = std::max(most, e);
  const auto both = run<step>(simulated{}, x);
  const array<double> again = std::get<0>(both);
  return most > data[1] + view[2] + copy[3] + again[4] && y.shape()[0] == 64;
}
