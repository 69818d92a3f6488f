// SPDX-License-Identifier: Apache-2.0
#include "gspmd/gspmd.hpp"

// Loops and conditionals at compile time: all decisions are constants.

namespace {

using namespace gspmd;

constexpr auto train = [](auto x, auto target, auto start) {
  return fori_loop(
      100,
      [x, target](value, value w) {
        const auto d = einsum<"bi,io->bo">(x, w) - target;
        return w - grad(mean(d * d), w) * 0.5;
      },
      start);
};
using training = compile<train, mesh<axis<"data", 2>>, input<float, shape<6, 3>, split<"data", _>>, input<float, shape<6, 2>>,
                         input<float, shape<3, 2>>>;
static_assert(training::collectives == collectives{all_reduce<"data">});
static_assert(training::traffic.bytes == 100 * 3 * 2 * 4);

constexpr auto batches = [](auto x, auto w) {  // gradients of four batches, summed before the reduction over devices
  return fori_loop(
      4, [x, w](value i, value g) { return g + grad(sum(tanh(einsum<"bi,io->bo">(x, w) * cast<float>(i))), w); }, zeros_like(w));
};
using added = compile<batches, mesh<axis<"data", 2>>, input<float, shape<6, 3>, split<"data", _>>, input<float, shape<3, 2>>>;
static_assert(added::collectives == collectives{all_reduce<"data">});
static_assert(added::traffic.bytes == 3 * 2 * 4);  // once, not in every iteration

constexpr auto layers = [](auto x, auto weights) {  // one layer after another, each with its row of the weights
  const auto [h, norms] = scan(
      [](value a, value w) {
        const value b = tanh(einsum<"bd,de->be">(a, w));
        return std::tuple{b, sum(b * b, {1})};
      },
      x, weights);
  const auto loss = sum(h * h) + sum(norms);
  return std::tuple{loss, grad(loss, weights)};
};
using stack = compile<layers, mesh<axis<"data", 2>>, input<float, shape<8, 4>, split<"data", _>>, input<float, shape<20, 4, 4>>>;
static_assert(stack::output_shard<1>::local_extents == shape<20, 4, 4>::value);
static_assert(stack::traffic.bytes > 0);

constexpr auto choose = [](auto x, auto p) {
  return cond(
      sum(p) > 0.0F, [](value a) { return einsum<"ij,jk->ik">(a, a); }, [](value a) { return a * sum(a); }, x);
};
using chosen = compile<choose, mesh<axis<"x", 4>>, input<float, shape<16, 16>, split<"x", _>>, input<float, shape<1>>>;
static_assert(chosen::traffic.bytes == 3 * 4 * 16 * 4);  // of the branch that sends more

constexpr auto walk = [](auto h, auto xs) {  // rows of one number; each row is on one device
  return scan(
      [](value c, value x) {
        const value next = c * 0.5 + x;
        return std::tuple{next, next};
      },
      h, xs);
};
using rows = compile<walk, mesh<axis<"x", 4>>, input<double, shape<1>>, input<double, shape<7, 1>, split<"x", _>>>;
static_assert(rows::collectives == collectives{all_reduce<"x">});
static_assert(rows::traffic.bytes == 7 * 2 * 3 * 8 / 4);

}  // namespace
