// SPDX-License-Identifier: Apache-2.0
// Programs that are too long for one evaluation in Clang, in every mode. Their passes run in several evaluations.
#include <gspmd/gspmd.hpp>
#include <gspmd/modes/manual.hpp>
#include <gspmd/modes/tensor.hpp>

using namespace gspmd;

namespace {

constexpr value long_chain(value x, int count) {
  for (int k = 0; k < count; ++k) x = tanh(x) + x;
  return x;
}
using pod = mesh<axis<"data", 2>, axis<"model", 4>>;
using rows = input<float, shape<8, 16>, split<"data", _>>;
using weight = input<float, shape<16, 32>, split<_, "model">>;

constexpr auto by_hand = [](auto x, auto w) {
  return manual<"data">(
      [](auto own, auto up) {  // [4,16], [16,32]
        auto y = long_chain(einsum<"bd,df->bf">(own, up), 110);
        return local::all_reduce<"data", state::replica>(local::to_partial<"data">(einsum<"bd->">(y * y)));
      },
      takes<split<"data", _>, replica<"data">>{}, gives<replica<"data">>{})(x, w);
};
using manual_step = compile<by_hand, pod, rows, weight>;
static_assert(manual_step::view.nodes.size() > 220);
static_assert(manual_step::traffic.over("data").bytes == 4);

constexpr auto found = [](auto x, auto w) { return sum(long_chain(einsum<"bd,df->bf">(x, w), 300)); };
using found_step = compile<found, pod, rows, weight>;
static_assert(found_step::collectives == collectives{all_reduce<"data,model">});

// The regions use the arguments without conversion, so each value is typed once.
using tokens = tensor<float, shape<8, 16>, place<pod, split<"data", _>, replica<"model">>>;
using square = tensor<float, shape<16, 16>, place<pod, replica<"data,model">>>;
constexpr auto regions = [](auto x, auto w) {
  const auto layer = [](auto own, auto u) { return tanh(einsum<"bd,df->bf">(own, u)); };
  for (int k = 0; k < 40; ++k) x = manual<"data">(layer, takes<>{}, gives<split<"data", _>>{})(x, w);
  return x;
};
using typed_step = compile<regions, pod, tokens, square>;
static_assert(typed_step::traffic.bytes == 0);
}  // namespace
