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

// Argument-dependent lookup finds a function if an argument is a value, or an array or tuple of values. A list in
// braces has no type, so `concatenate({x, y}, 0)` needs the alias. A function in an inner namespace needs it, too.
constexpr auto wide = [](auto x, auto w, auto i) {
  auto y = g::concatenate({x, w}, 0) + concatenate(std::array{x, w}, 0);
  y = y + reshape(g::stack({x, w}, 0), {16, 6}) + pad(slice(y, {1, 0}, {15, 6}), {1, 0}, {1, 0});
  auto [low, high] = split_into<2>(y, 0);
  auto [first, second] = g::sort_together({low, high}, 1, g::along(0));
  low = shift(first, 1, g::along(0)) + roll(second, 1, g::along(-1)) + transpose(transpose(low, {1, 0}), {1, 0}) + flip(low, {1});
  low = low + stencil<1, 1>([](auto at) { return at(0, 1) + at(1, 0); }, low) + zeros_like(low) +
        broadcast_to(mean(low, 0), {8, 6});
  low = low + iota<float>(low, {8, 6}, 0) + constant(low, {8, 6}, 1.0F) + broadcast_in_dim(sum(low, 1), {8, 6}, {0});
  low = fori_loop(
            3, [](auto, auto v) { return v * 0.5F; }, low) +
        tril(low) + cumsum(low, 0) + softmax(low, 1);
  low = low + take(low, i, 0) + sort(low, 0) + clip(low, 0.0F, 1.0F) + where(low < high, low, high) +
        where(not_equal(low, 0.0F), low, 1.0F);
  low = low + cond(
                  sum(low) < 1.0F, [](auto v) { return v; }, [](auto v) { return -v; }, low);
  const auto noise = g::random::uniform<float>(g::random::key(x, 1), {8, 6});
  return std::tuple{norm(low, 1, {0, 1}), reshard(low, g::split<"x", g::_>{}) + noise,
                    squeeze(expand_dims(argmax(low, 1), 0), 0)};
};
using wide_step = g::compile<wide, g::mesh<g::axis<"x", 2>>, g::input<float, g::shape<8, 6>, g::split<"x", g::_>>,
                             g::input<float, g::shape<8, 6>, g::split<"x", g::_>>, g::input<std::int32_t, g::shape<8>>>;
static_assert(wide_step::output_count == 3);
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
