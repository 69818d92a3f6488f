// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/index.hpp>
#include <gspmd/index/random.hpp>
#include <gspmd/nn/cross_entropy.hpp>
#include <gspmd/ops.hpp>
#include <gspmd/transform/grad.hpp>
#include <gspmd/windows.hpp>

/// The mixture of experts of GShard (Lepikhin et al. 2020), written for one device. The letters are those of the paper:
/// G groups of S tokens, E experts with capacity for C tokens of each group, M numbers for a token, H in the hidden
/// layer of an expert.
namespace moe {

using namespace gspmd;

struct sizes {
  std::int64_t groups, tokens, experts, capacity, model, hidden;
};

/// The routing of the tokens, each member [G,S]: their first and second expert, the position in the expert's buffer,
/// and the weight of the expert's result. The weight is 0 if the token is not sent, whatever the position.
struct routing {
  std::array<value, 2> expert, place, weight;
  value auxiliary_loss;  // the mean over the groups
};

/// Algorithm 1. Groups are independent, so nothing is sent if groups are split.
constexpr routing top2_gating(value gates, std::int64_t capacity, value key) {
  const auto tokens = gates.shape()[1], experts = gates.shape()[2];
  const auto chosen = top_k(gates, 2);  // (5) and (15)
  const auto gate = split_into<2>(chosen.first, 2), number = split_into<2>(chosen.second, 2);
  const value both = gate[0] + gate[1];
  routing r;
  value before;  // [G,E]: the decisions of the previous loop
  for (const std::size_t k : {0U, 1U}) {
    const value expert = squeeze(number[k], 2);
    const value decisions = one_hot<std::int32_t>(expert, experts);  // [G,S,E]
    value counters = cumsum(decisions, 1, {.exclusive = true});      // c as token s finds it
    if (k == 1) counters += expand_dims(before, 1);
    const value place = sum(counters * decisions, 2);  // (7) and (18)
    value is_sent = place < capacity;                  // (8)
    if (k == 0) {
      before = sum(decisions, 1);
      const value share = cast<float>(before) / static_cast<double>(tokens);
      r.auxiliary_loss = mean(sum(share * mean(gates, 1), 1)) / static_cast<double>(experts);  // (13)
    }
    const value weight = squeeze(gate[k] / both, 2);  // (6) and (16)
    if (k == 1) {
      const value drawn = random::uniform<float>(key, place.shape());       // (17)
      is_sent = bitwise_and(is_sent, 2.0 * stop_gradient(weight) > drawn);  // (19)
    }
    r.expert[k] = expert;
    r.place[k] = place;
    r.weight[k] = where(is_sent, weight, 0.0);
  }
  return r;
}

/// Returns [G,S,E,C]: the weight of expert e's result at position c of its buffer for token s. Positions from C on are
/// ignored.
constexpr value combine_weights(const routing& r, const sizes& n) {
  value weights;
  for (const std::size_t k : {0U, 1U}) {
    const value one = einsum<"GSE,GSC->GSEC">(one_hot<float>(r.expert[k], n.experts) * expand_dims(r.weight[k], 2),
                                              one_hot<float>(r.place[k], n.capacity));
    weights = k == 0 ? one : weights + one;
  }
  return reshard(weights, split<"d", _, _, _>{});  // the products with the weights are split by groups
}

/// Applies the experts to their buffers, [E,G,C,M] -> [G,E,C,M]. The split of the experts is the third of the paper's
/// three annotations.
constexpr value experts(value buffers, value wi, value wo) {
  const value h = relu(einsum<"EGCM,EMH->EGCH">(reshard(buffers, split<"d", _, _, _>{}), wi));
  return einsum<"EGCH,EHM->GECM">(h, wo);
}

/// Algorithm 2: products with one-hot tensors send tokens to the experts and back.
constexpr value layer_by_products(value inputs, const routing& r, value wi, value wo, const sizes& n) {
  const value weights = combine_weights(r, n);
  const value mask = cast<float>(weights > 0.0);
  const value outputs = experts(einsum<"GSEC,GSM->EGCM">(mask, inputs), wi, wo);
  return einsum<"GSEC,GECM->GSM">(weights, outputs);
}

/// The same by indices: a token is copied to its position in the buffers of its group, and read from there.
constexpr value layer_by_indices(value inputs, const routing& r, value wi, value wo, const sizes& n) {
  const auto room = n.experts * n.capacity;
  std::array<value, 2> at;  // a token that is not sent gets an index out of range
  for (const std::size_t k : {0U, 1U})
    at[k] = where(r.weight[k] > 0.0, r.expert[k] * n.capacity + r.place[k], static_cast<double>(room));
  value buffers = constant<float>(inputs, {n.groups, room, n.model}, 0);
  for (const value places : at)
    buffers = scatter(buffers, places, inputs,
                      {.update_window_dims = {2},
                       .inserted_window_dims = {1},
                       .input_batching_dims = {0},
                       .scatter_indices_batching_dims = {0},
                       .scatter_dims_to_operand_dims = {1},
                       .index_vector_dim = 2},
                      monoid::add);
  const value sent = transpose(reshape(buffers, {n.groups, n.experts, n.capacity, n.model}), {1, 0, 2, 3});
  const value outputs = reshape(experts(sent, wi, wo), {n.groups, room, n.model});
  value result;
  for (const std::size_t k : {0U, 1U}) {
    const value answers = gather(outputs, at[k],
                                 {.offset_dims = {2},
                                  .collapsed_slice_dims = {1},
                                  .operand_batching_dims = {0},
                                  .start_indices_batching_dims = {0},
                                  .start_index_map = {1},
                                  .index_vector_dim = 2},
                                 {1, 1, n.model}, out_of_range::fill, 0);
    const value part = answers * expand_dims(r.weight[k], 2);
    result = k == 0 ? part : result + part;
  }
  return result;
}

enum class dispatch { products, indices };

/// The layer with its gating: its result for `inputs` [G,S,M], which are split by groups, and the routing.
struct layer_result {
  value outputs;
  routing sent;
};
constexpr layer_result layer(value inputs, value wg, value wi, value wo, value key, const sizes& n, dispatch how) {
  const value tokens = reshard(inputs, split<"d", _, _>{});
  const value gates = softmax(einsum<"GSM,ME->GSE">(tokens, replicate(wg)), 2);
  const routing r = top2_gating(gates, n.capacity, key);
  return {how == dispatch::products ? layer_by_products(tokens, r, wi, wo, n) : layer_by_indices(tokens, r, wi, wo, n), r};
}

// The model predicts a character from the preceding characters. Their concatenated embeddings are a token. Next are an
// expert layer with a residual connection and a softmax over all characters.

constexpr std::int64_t characters = 96, context = 4;  // newline and printable ASCII

/// Returns the shapes of the parameters: embeddings, gate, experts, and output layer.
inline std::vector<std::vector<std::int64_t>> parameter_shapes(const sizes& n) {
  return {{characters, n.model / context}, {n.model, n.experts},  {n.experts, n.model, n.hidden},
          {n.experts, n.hidden, n.model},  {n.model, characters}, {characters}};
}
/// Returns the splits of the parameters: the devices split the experts, and no other parameter.
inline std::vector<std::vector<std::string>> parameter_splits() {
  return {{"", ""}, {"", ""}, {"d", "", ""}, {"d", "", ""}, {"", ""}, {""}};
}

struct guess {
  value loss;  // the mean of -log p of the characters, and the cost of the experts' balance
  value nats;  // the mean of -log p alone
  routing sent;
};
constexpr guess guess_characters(value before, value next, const std::vector<value>& p, value key, const sizes& n, dispatch how) {
  const value x = reshape(embedding(p[0], before), {n.groups, n.tokens, n.model});
  const auto [y, sent] = layer(x, p[1], p[2], p[3], key, n, how);
  const value logits = einsum<"GSM,MV->GSV">(x + y, p[4]) + p[5];
  const value nats = mean(cross_entropy(logits, next));
  // l_aux is 1/E^2 if all experts get the same number of tokens.
  const double balance = 0.01 * static_cast<double>(n.experts * n.experts);
  return {nats + balance * sent.auxiliary_loss, nats, sent};
}

}  // namespace moe
