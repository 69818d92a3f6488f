// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/index.hpp>
#include <gspmd/layouts.hpp>
#include <gspmd/ops.hpp>
#include <gspmd/transform/grad.hpp>
#include <gspmd/transform/update.hpp>
#include <gspmd/windows.hpp>

#include "../moe/model.hpp"

/// The layers of experts of GSPMD 5.4 and 5.5, in the letters of Fig. 8: E experts with capacity for C tokens of each
/// of B sequences.
namespace papers {

using namespace gspmd;

/// x [B,S,M], mask [B,S,E,C], w_in [E,M,H], w_out [E,H,M] give [B,S,M]. `inside` has the mesh positions of the tensors
/// to and from the experts, [E,B,C,M], and `hidden` those of [E,B,C,H].
inline value experts_layer(value x, value mask, value w_in, value w_out, std::array<int, 4> inside, std::array<int, 4> hidden) {
  const auto sent = mesh_split(einsum<"bsm,bsec->ebcm">(x, mask), {inside[0], inside[1], inside[2], inside[3]});
  const auto h = relu(mesh_split(einsum<"ebcm,emh->ebch">(sent, w_in), {hidden[0], hidden[1], hidden[2], hidden[3]}));
  const auto back = mesh_split(einsum<"ebch,ehm->ebcm">(h, w_out), {inside[0], inside[1], inside[2], inside[3]});
  return einsum<"ebcm,bsec->bsm">(back, mask);
}
/// Fig. 8a: one axis splits sequences and experts.
inline value sparse_layer(value x, value mask, value w_in, value w_out) {
  return mesh_split(experts_layer(x, mask, w_in, w_out, {0, -1, -1, -1}, {0, -1, -1, -1}), {0, -1, -1});
}
/// Fig. 8b: a second axis splits M, and H in the experts.
inline value hybrid_layer(value x, value mask, value w_in, value w_out) {
  return mesh_split(experts_layer(x, mask, w_in, w_out, {0, -1, -1, 1}, {0, -1, -1, 1}), {0, -1, 1});
}

/// A layer of experts of Table 6, as measured in GShard's Fig. 8: an expert for each device of a torus of x * y, 4
/// sequences of 1024 tokens.
inline dynamic::program sparse_layer_on_torus(int x, int y, const dynamic::mesh& m) {
  const std::int64_t experts = x * y, batch = 4 * experts, length = 1024, model = 1024, hidden = 8192;
  dynamic::builder b(m);
  const auto in = [&](std::vector<std::int64_t> shape) {
    std::vector<std::string> sharding(shape.size());
    sharding[0] = "x,y";
    return b.input(dynamic::input<float>(std::move(shape), std::move(sharding)));
  };
  const auto tokens = in({batch, length, model}), mask = in({batch, length, experts, 4096 / experts});
  const auto w_in = in({experts, model, hidden}), w_out = in({experts, hidden, model});
  const auto sent = b.reshard(einsum<"bsm,bsec->ebcm">(tokens, mask), {"x,y", "", "", ""});
  const auto back = einsum<"ebch,ehm->ebcm">(relu(einsum<"ebcm,emh->ebch">(sent, w_in)), w_out);
  b.output(b.reshard(einsum<"ebcm,bsec->bsm">(back, mask), {"x,y", "", ""}));
  return b.compile();
}

/// The dims of GShard's models (in its appendix), which are trained in Table 6.
struct gshard_dims {
  static constexpr std::int64_t layers = 36, model = 1024, hidden = 8192, heads = 16, width = 128, length = 1024,
                                vocabulary = 32000;
};
/// Returns the number of parameters: attention in each layer, and in alternate layers a feed-forward layer or experts.
inline double gshard_parameters(double experts) {
  using d = gshard_dims;
  return d::layers * 4.0 * (d::model * d::heads * d::width) + d::layers / 2 * 2.0 * (d::model * d::hidden) * (1 + experts);
}

/// A training step of Table 6 with an expert for each device of a torus of x * y, by gradient descent; or only its
/// forward pass. All layers except the experts are data parallel.
inline dynamic::program gshard_step(int x, int y, const dynamic::mesh& m, bool is_training) {
  using d = gshard_dims;
  const std::int64_t experts = x * y, batch = 4 * experts, capacity = 2 * d::length / experts;
  dynamic::builder b(m);
  std::vector<value> weights;
  const auto weight = [&](std::vector<std::int64_t> shape, const std::string& first = "") {
    std::vector<std::string> sharding(shape.size());
    sharding[0] = first;
    return cast<bf16>(weights.emplace_back(b.input(dynamic::input<float>(std::move(shape), std::move(sharding)))));
  };
  const auto by_batch = [&](value v) { return b.reshard(v, {"x,y", "", ""}); };
  const auto attend = [&](value v) {
    value q[3];
    for (auto& one : q) one = einsum<"bsm,mnd->bsnd">(v, weight({d::model, d::heads, d::width}));
    const value scores = softmax(einsum<"bsnd,btnd->bnst">(q[0], q[1]), 3);
    return einsum<"bsnd,ndm->bsm">(einsum<"bnst,btnd->bsnd">(scores, q[2]), weight({d::heads, d::width, d::model}));
  };
  const value key = b.input(dynamic::input<std::uint64_t>({}));
  value loss;
  const auto ask_experts = [&](value v) {
    const value gates = softmax(cast<float>(einsum<"bsm,me->bse">(v, weight({d::model, experts}))), 2);
    const auto sent = moe::top2_gating(gates, capacity, key);
    loss = loss.is_valid() ? loss + 0.01 * sent.auxiliary_loss : 0.01 * sent.auxiliary_loss;
    value shares;  // [B,S,E,C]
    for (const std::size_t k : {0U, 1U}) {
      const value one =
          einsum<"bse,bsc->bsec">(cast<bf16>(one_hot<float>(sent.expert[k], experts) * expand_dims(sent.weight[k], 2)),
                                  one_hot<bf16>(sent.place[k], capacity));
      shares = k == 0 ? one : shares + one;
    }
    const value there = b.reshard(einsum<"bsm,bsec->ebcm">(v, cast<bf16>(shares > 0.0)), {"x,y", "", "", ""});
    const value h = relu(einsum<"ebcm,emh->ebch">(there, weight({experts, d::model, d::hidden}, "x,y")));
    return einsum<"ebcm,bsec->bsm">(einsum<"ebch,ehm->ebcm">(h, weight({experts, d::hidden, d::model}, "x,y")), shares);
  };
  value v = b.input(dynamic::input<bf16>({batch, d::length, d::model}, {"x,y", "", ""}));
  for (std::int64_t l = 0; l < d::layers; ++l) {
    v = by_batch(v + attend(v));
    if (l % 2 == 1) v = by_batch(v + ask_experts(v));
    else
      v = by_batch(v + einsum<"bsh,hm->bsm">(relu(einsum<"bsm,mh->bsh">(v, weight({d::model, d::hidden}))),
                                             weight({d::hidden, d::model})));
  }
  loss = loss + cast<float>(sum(log_softmax(einsum<"bsm,mv->bsv">(v, weight({d::model, d::vocabulary})), 2)));
  if (!is_training) b.output(loss);
  const auto gradients = is_training ? grad(loss, weights) : std::vector<value>{};
  for (std::size_t k = 0; k < gradients.size(); ++k) b.output(update(weights[k], weights[k] - 0.01 * gradients[k]));
  return b.compile();
}

}  // namespace papers
