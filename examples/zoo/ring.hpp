// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <tuple>
#include <utility>

#include <gspmd/index.hpp>
#include <gspmd/modes/manual.hpp>
#include <gspmd/ops.hpp>
#include <gspmd/windows.hpp>

namespace zoo {

using namespace gspmd;

/// Returns softmax(q k^T) v, [B,N,T,K], for rows that the axis `context` splits. Keys and values rotate around the
/// devices. Each device adds the arriving part to the result of its queries, with a running maximum and sum (Liu et al.
/// 2023, "Ring attention", 3). The next keys are sent while the current keys are used. In the forward pass, a device
/// holds two parts of the keys: the current and the next.
///
/// Each device sends its part of k and v to n - 1 devices, and the same bytes for their gradients.
inline value ring_attention(value all_q, value all_k, value all_v) {
  const auto on_device = [](value q, value k, value v) {
    const double scale = 1 / std::sqrt(static_cast<double>(q.shape()[3]));
    const auto along = [](value row, value like) { return broadcast_in_dim(row, like.shape(), {0, 1, 2}); };
    const auto read = [&](value keys, value values, value most, value weight, value mixed) {
      const value scores = scale * einsum<"bntk,bnsk->bnts">(q, keys);
      const value next = stop_gradient(max(most, reduce(scores, monoid::max, 3)));
      const value weights = exp(scores - along(next, scores)), kept = exp(most - next);
      return std::tuple{next, kept * weight + sum(weights, 3),
                        along(kept, mixed) * mixed + einsum<"bnts,bnsk->bntk">(weights, values)};
    };
    const value none = sum(zeros_like(q), 3);
    const auto turn = [&](value, value keys, value values, value most, value weight, value mixed) {
      auto next_keys = local::start(local::rotate<"context">(keys)), next_values = local::start(local::rotate<"context">(values));
      const auto [m, w, o] = read(keys, values, most, weight, mixed);
      return std::tuple{local::finish(std::move(next_keys)), local::finish(std::move(next_values)), m, w, o};
    };
    const auto seen = fori_loop(local::axis_size<"context">(q) - 1, turn, k, v, none - 1e30, none, zeros_like(q));
    const auto [m, weight, mixed] =
        read(std::get<0>(seen), std::get<1>(seen), std::get<2>(seen), std::get<3>(seen), std::get<4>(seen));
    return mixed / along(weight, mixed);
  };
  using rows = split<_, _, "context", _>;
  return manual<"context">(on_device, takes<rows, rows, rows>{}, gives<rows>{})(all_q, all_k, all_v);
}

}  // namespace zoo
