// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gspmd/gspmd.hpp>

/// A training step whose plan is in mlp.txt. Batch and layer sizes do not divide evenly.
namespace golden::mlp {

using namespace gspmd;

template <class T>
struct weights {
  T w1, b1, w2;
};
constexpr auto train = [](auto x, auto target, auto w) {
  auto h = relu(einsum<"bd,df->bf">(x, w.w1) + w.b1);
  auto difference = einsum<"bf,fd->bd">(h, w.w2) - target;
  auto loss = mean(difference * difference);
  auto g = grad(loss, w);
  w.w1 = w.w1 - 0.1 * g.w1;
  w.b1 = w.b1 - 0.1 * g.b1;
  w.w2 = w.w2 - 0.1 * g.w2;
  return std::tuple{loss, w};
};
using step = compile<train, mesh<axis<"data", 2>, axis<"model", 4>>, input<float, shape<15, 64>, split<"data", _>>,
                     input<float, shape<15, 10>>,
                     record<weights, input<float, shape<64, 30>, split<_, "model">>, input<float, shape<30>>,
                            input<float, shape<30, 10>, split<"model", _>>>>;

}  // namespace golden::mlp
