// SPDX-License-Identifier: Apache-2.0
// alone: yes
// The README's claims about names: a namespace alias is enough; and these names of std clash with names of the library.
#include <array>
#include <functional>
#include <future>
#include <list>
#include <map>
#include <numeric>
#include <ranges>

#include <gspmd/gspmd.hpp>

double where(double base, double exponent) { return base * exponent; }
struct array {};

namespace by_alias {

namespace g = gspmd;
constexpr auto program = [](auto x, auto w) {
  auto y = relu(einsum<"ab,bc->ac">(x, w) + matmul(x, w));
  return sum(pow(y, 2.0) + map([](float e) { return e + 1; }, y) + cast<float>(y < 0.5), -1);
};
using step = g::compile<program, g::mesh<g::axis<"x", 2>>, g::input<float, g::shape<8, 6>, g::split<"x", g::_>>,
                        g::input<float, g::shape<6, 4>>>;
static_assert(step::traffic.bytes == 0);
inline const ::array mine{};

}  // namespace by_alias

namespace by_directives {

using namespace std;
using namespace gspmd;
constexpr auto program = [](auto x, auto w) {
  auto y = abs(x) + sqrt(w) - log(x) * tanh(w) / exp(x) + sin(w) * cos(w);
  y = where(equal(x, y), pow(x, 2.0), floor(w)) + max(x, w) + min(x, 0.5) + max(2, w) + pow(x, w) + iota<float>(x, {8, 6}, 1) +
      softmax(x, 1);
  y = where(bitwise_and(x < y, w < y), y, negative(x));
  return mean(reduce(y, monoid::max, -1)) + sum(gspmd::map([](float e) { return e + 1; }, y));
};
using step =
    compile<program, mesh<axis<"x", 2>>, input<float, shape<8, 6>, split<"x", _>>, input<float, shape<8, 6>, split<"x", _>>>;
static_assert(step::collectives == gspmd::collectives{all_reduce<"x">});
inline double used(const gspmd::array<float>& a) { return where(a[0], 2.0); }

}  // namespace by_directives
