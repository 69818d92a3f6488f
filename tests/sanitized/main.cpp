// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdio>
#include <gspmd/gspmd.hpp>
#include <gspmd/modes/manual.hpp>
#include <tuple>

// A partly manual program. It is here because it is not among the other static tests.
namespace by_hand {
#include "../static/manual_some_axes.cpp"
}

using namespace gspmd;

// With -fsanitize=undefined, GCC accepts fewer constants: a comparison of an address with null is not a constant. All
// data of a compiled program are constants. These operators have one constant of each kind.
using four = mesh<axis<"x", 4>>;
constexpr auto program = [](auto u, auto w, auto rows) {
  auto d = shift(u, 1, along(0)) - u;
  auto inner = pad(slice(u, {1}, {17}), {1}, {1});
  auto product = einsum<"rk,ck->rc">(take(w, rows, 0), w);
  return std::tuple(d / sum(d * d), max(inner, d), sum(product, {1}), transpose(w, {1, 0}), cumsum(u, 0));
};
using step = compile<program, four, input<double, shape<18>, split<"x">>, input<float, shape<6, 8>, split<"x", _>>,
                     input<std::int32_t, shape<5>>>;

int main() {
  array<double> u({18});
  for (int i = 0; i < 18; ++i) u[i] = i;
  array<float> w({6, 8});
  for (int i = 0; i < 48; ++i) w[i] = static_cast<float>(i % 5);
  array<std::int32_t> rows({5});
  for (int i = 0; i < 5; ++i) rows[i] = i;
  const auto threaded = run<step>(threads{}, u, w, rows);
  const auto alone = run<step>(simulated{}, u, w, rows);
  const auto& [differences, inner, product, turned, sums] = threaded;
  bool is_right = differences[3] == std::get<0>(alone)[3] && sums[17] == 153;
  for (int i = 0; i < 48; ++i) is_right = is_right && turned[i % 8 * 6 + i / 8] == w[i];
  if (!is_right) std::puts("the compiled program is wrong");
  return is_right ? 0 : 1;
}
