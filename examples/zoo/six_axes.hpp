// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gspmd/index.hpp>
#include <gspmd/nn/norms.hpp>

#include "pipelines.hpp"

/// All axes in one program, in torchtitan's layout for models with experts: stages of a pipeline, replicas, full
/// sharding over three axes (two axes split the experts), parts of the sequence, heads and hidden units.
namespace zoo {

/// Stages of attention and `experts`. Each expert has capacity for `capacity` tokens of a group. A sequence has
/// `chunks` groups.
struct six_axes_sizes {
  pipeline_sizes layers;
  std::int64_t experts, capacity, chunks;
};
inline const std::string every_batch = "replica,shard_of_experts,shard_in_experts", of_expert = "shard_in_experts,context",
                         all_shards = "shard_of_experts,shard_in_experts,context";

/// Returns the routing of the tokens, [G,S,E,C]: the gate's weight if token s of a group is at position c of expert e
/// (Fedus et al. 2021, "Switch Transformers", 2.1). A token that exceeds the capacity is not sent.
inline value sent_to(value tokens, value gate, const six_axes_sizes& n) {
  const value gates = softmax(einsum<"gsm,me->gse">(tokens, gate), 2);
  const value chosen = one_hot<float>(argmax(gates, 2), n.experts);
  const value place = sum(cumsum(chosen, 1, {.exclusive = true}) * chosen, 2);
  return einsum<"gse,gsc->gsec">(gates * chosen, one_hot<float>(cast<std::int32_t>(place), n.capacity));
}

/// Returns the result of a stage for x, [B,T,D]. The weights are those of a layer, with experts [E,D,F] and [E,F,D]
/// instead of the hidden units, and the gate [D,E].
inline value layer_of_experts(dynamic::builder& b, const std::vector<value>& w, value x, const six_axes_sizes& n) {
  const auto B = x.shape()[0], T = x.shape()[1], D = x.shape()[2];
  const names tokens{every_batch, "context", ""}, by_row{every_batch, "model", "context", ""},
      whole{every_batch, "model", "", ""};
  const value in = layer_norm(x);
  const value q = b.reshard(einsum<"btd,dnk->bntk">(in, w[0]), by_row);
  const value k = b.reshard(b.reshard(einsum<"btd,dnk->bntk">(in, w[1]), by_row), whole);
  const value v = b.reshard(b.reshard(einsum<"btd,dnk->bntk">(in, w[2]), by_row), whole);
  const value attended = b.reshard(x + einsum<"bntk,nkd->btd">(attention(q, k, v), w[3]), tokens);

  const value groups = reshape(layer_norm(attended), {B * n.chunks, T / n.chunks, D});
  const value weights = sent_to(groups, w[6], n);
  const value buffers = einsum<"gsm,gsec->egcm">(groups, cast<float>(weights > 0.0));
  const names by_expert{of_expert, "replica,shard_of_experts", "", ""};
  const value hidden = relu(einsum<"egcm,emh->egch">(b.reshard(buffers, by_expert), w[4]));
  const value answers = b.reshard(einsum<"egch,ehm->egcm">(hidden, w[5]), {"", every_batch + ",context", "", ""});
  return b.reshard(attended + reshape(einsum<"egcm,gsec->gsm">(answers, weights), {B, T, D}), tokens);
}

/// Inputs and outputs as in pipelines.hpp, with seven weights.
inline dynamic::program six_axes(const dynamic::mesh& m, const six_axes_sizes& n, bool by_pipeline = true) {
  dynamic::builder b(m);
  const auto [B, T, D, N, F] = n.layers.layer;
  const auto S = n.layers.stages, M = n.layers.microbatches, E = n.experts;
  const auto batch = dynamic::input<float>({M, B, T, D}, {"", every_batch, "context", ""});
  const value xs = b.input(batch), targets = b.input(batch);
  std::vector<value> w;
  for (int k = 0; k < 3; ++k) w.push_back(b.input(dynamic::input<float>({S, D, N, D / N}, {"stage", all_shards, "model", ""})));
  w.push_back(b.input(dynamic::input<float>({S, N, D / N, D}, {"stage", "model", "", all_shards})));
  w.push_back(b.input(dynamic::input<float>({S, E, D, F}, {"stage", of_expert, "shard_of_experts", "model"})));
  w.push_back(b.input(dynamic::input<float>({S, E, F, D}, {"stage", of_expert, "model", "shard_of_experts"})));
  w.push_back(b.input(dynamic::input<float>({S, D, E}, {"stage", "", ""})));
  const auto stage = [&](const std::vector<value>& own, value x) { return layer_of_experts(b, own, x, n); };
  const value ys = by_pipeline ? pipeline<"stage">(stage, gpipe{S, M})(w, xs) : one_by_one(stage, w, xs);
  const value loss = mean_of_squares(b.reshard(ys, {"stage", every_batch, "context", ""}), targets);
  return descend_by(b, loss, w, grad(loss, w));
}
/// Returns the sum of the bytes of all axes. In each tick, for a microbatch forward, again for the recomputed backward
/// pass, and once more for the gradients: an all_gather (or a reduce_scatter) of keys and values, two all_reduces, and
/// two all_to_alls. The all_reduces are of the tokens and of the experts' results; the all_to_alls to the experts and
/// back. Once per step: an all_gather and a reduce_scatter of the weights over their shards, and an all_reduce over
/// their replicas.
inline double six_axes_bytes(const six_axes_sizes& n, int replica, int of_experts, int in_experts, int context, int model) {
  const layer_sizes& one = n.layers.layer;
  const double tokens = token_bytes(one), M = static_cast<double>(n.layers.microbatches),
               S = static_cast<double>(n.layers.stages);
  const int data = replica * of_experts * in_experts, of_one_expert = in_experts * context;
  const double own = tokens / (data * context);
  const double buffers =
      4.0 * static_cast<double>(one.batch * n.chunks * n.experts * n.capacity * one.width) / (replica * of_experts);
  const double forward = 2 * all_gather_bytes(tokens / (data * model), context) + all_reduce_bytes(own, model) +
                         2 * all_to_all_bytes(buffers, of_one_expert) + all_reduce_bytes(buffers / of_one_expert, model);
  const auto of_weights = [&](double bytes, int shards) {
    return all_gather_bytes(bytes, shards) + reduce_scatter_bytes(bytes, shards) + all_reduce_bytes(bytes / shards, replica);
  };
  const double attention = 16.0 * static_cast<double>(one.width * one.width) / model;
  const double experts = 8.0 * static_cast<double>(n.experts * one.width * one.hidden) / (of_one_expert * model);
  const double gate = 4.0 * static_cast<double>(one.width * n.experts);
  return 3 * (M + S - 1) * forward + 2 * (M + S - 1) * own + 2 * reduce_scatter_bytes(M * own, S) +
         of_weights(attention, of_experts * of_one_expert) + of_weights(experts, of_experts) +
         all_reduce_bytes(gate, data * context) + loss_bytes(S * data * context);
}

}  // namespace zoo
