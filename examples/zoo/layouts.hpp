// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "closed_forms.hpp"
#include "ring.hpp"
#include "transformer.hpp"

/// The common layouts of a Transformer layer. For each, one function writes the layout, and one returns the bytes that a device sends
/// according to the paper that introduced it. W: the bytes of all weights. A: the bytes of a tensor of all tokens.
namespace zoo {

/// Every device has all weights and a part of the batch. Gradients are summed.
inline dynamic::program data_parallel(const dynamic::mesh& m, const layer_sizes& n) {
  return train(m, n, {.tokens = {"data", "", ""}});
}
/// Li et al. 2020, "PyTorch Distributed", 3.2: an all_reduce of each gradient.
inline double data_parallel_bytes(const layer_sizes& n, int data) {
  return all_reduce_bytes(weight_bytes(n), data) + loss_bytes(data);
}

/// Weights, and tensors of their shapes, with the dim of D split over these axes.
inline weight_names by_width(const std::string& axes) { return {{axes, "", ""}, {"", "", axes}, {axes, ""}, {"", axes}}; }

/// ZeRO-1: the devices that split the batch also split the momenta. Each device updates a part of the weights and gathers the
/// other parts.
inline dynamic::program zero_1(const dynamic::mesh& m, const layer_sizes& n) {
  return train(m, n, {.tokens = {"data", "", ""}, .momenta = by_width("data")});
}
/// ZeRO-2: gradients are split too.
inline dynamic::program zero_2(const dynamic::mesh& m, const layer_sizes& n) {
  return train(m, n, {.tokens = {"data", "", ""}, .gradients = by_width("data"), .momenta = by_width("data")});
}
/// Rajbhandari et al. 2020, "ZeRO", 7.1: a reduce_scatter of the gradients, an all_gather of the weights; the same bytes as data
/// parallelism.
inline double zero_2_bytes(const layer_sizes& n, int data) {
  return reduce_scatter_bytes(weight_bytes(n), data) + all_gather_bytes(weight_bytes(n), data) + loss_bytes(data);
}

/// ZeRO-3, fully sharded: weights are split too, and gathered before use.
inline dynamic::program fully_sharded(const dynamic::mesh& m, const layer_sizes& n) {
  return train(m, n, {.tokens = {"data", "", ""}, .weights = by_width("data")});
}
/// ZeRO, 7.2.2, has 3 W: the weights are freed after the forward pass, and gathered again for the backward pass. A single layer, as here,
/// keeps the weights, so they are gathered once (Zhao et al. 2023, "PyTorch FSDP", 5.4: no reshard after forward).
inline double fully_sharded_bytes(const layer_sizes& n, int data) {
  return all_gather_bytes(weight_bytes(n), data) + reduce_scatter_bytes(weight_bytes(n), data) + loss_bytes(data);
}

/// Hybrid sharding: weights are split within a group of devices, and each group has all weights.
inline dynamic::program hybrid_sharded(const dynamic::mesh& m, const layer_sizes& n) {
  return train(m, n, {.tokens = {"replica,shard", "", ""}, .weights = by_width("shard")});
}
/// Zhao et al. 2023, 3.2.2: all_gather and reduce_scatter within a group, and an all_reduce of a part of the gradients between groups.
inline double hybrid_sharded_bytes(const layer_sizes& n, int replica, int shard) {
  const double w = weight_bytes(n);
  return all_gather_bytes(w, shard) + reduce_scatter_bytes(w, shard) + all_reduce_bytes(w / shard, replica) +
         loss_bytes(replica * shard);
}

/// Heads and hidden units are split over `model`, and another dim of each weight over `rest`.
inline weight_names by_heads(const std::string& rest) {
  return {{rest, "model", ""}, {"model", "", rest}, {rest, "model"}, {"model", rest}};
}

/// Megatron's tensor parallelism: heads and hidden units are split; tokens are whole between the halves of the layer.
inline dynamic::program tensor_parallel(const dynamic::mesh& m, const layer_sizes& n) {
  return train(m, n, {.tokens = {"data", "", ""}, .weights = by_heads("")});
}
/// Shoeybi et al. 2019, "Megatron-LM", 3: two all_reduces of the tokens forward and two backward. Also the all_reduces of the
/// gradients over `data`.
inline double tensor_parallel_bytes(const layer_sizes& n, int data, int model) {
  return 4 * all_reduce_bytes(token_bytes(n) / data, model) + all_reduce_bytes(weight_bytes(n) / model, data) + loss_bytes(data);
}

/// With sequence parallelism: between the halves, `model` splits tokens too.
inline dynamic::program sequence_parallel(const dynamic::mesh& m, const layer_sizes& n) {
  return train(m, n, {.tokens = {"data", "model", ""}, .weights = by_heads("")});
}
/// Korthikanti et al. 2022, "Reducing activation recomputation", 4.2.2: each all_reduce is an all_gather and a reduce_scatter.
inline double sequence_parallel_bytes(const layer_sizes& n, int data, int model) {
  const double a = token_bytes(n) / data;
  return 4 * (all_gather_bytes(a, model) + reduce_scatter_bytes(a, model)) + all_reduce_bytes(weight_bytes(n) / model, data) +
         loss_bytes(data * model);
}

/// Hybrid sharding that contains tensor parallelism.
inline dynamic::program hybrid_with_tensor_parallel(const dynamic::mesh& m, const layer_sizes& n) {
  return train(m, n, {.tokens = {"replica,shard", "", ""}, .weights = by_heads("shard")});
}
/// Returns the sum of both.
inline double hybrid_with_tensor_parallel_bytes(const layer_sizes& n, int replica, int shard, int model) {
  const double w = weight_bytes(n) / model;
  return 4 * all_reduce_bytes(token_bytes(n) / (replica * shard), model) + all_gather_bytes(w, shard) +
         reduce_scatter_bytes(w, shard) + all_reduce_bytes(w / shard, replica) + loss_bytes(replica * shard);
}

/// Ulysses: `sequence` splits the sequence; during the attention, it splits the heads instead.
inline dynamic::program ulysses(const dynamic::mesh& m, const layer_sizes& n) {
  const names by_head{"data", "sequence", "", ""}, by_token{"data", "", "sequence", ""};
  return train(m, n, {.tokens = {"data", "sequence", ""}, .queries = by_head, .keys = by_head, .mixed = by_token});
}
/// Jacobs et al. 2023, "DeepSpeed Ulysses", 3.2: an all_to_all for each of q, k, v and the results, and the same number backward.
/// Weights are replicated, and their gradients are summed.
inline double ulysses_bytes(const layer_sizes& n, int data, int sequence) {
  return 8 * all_to_all_bytes(token_bytes(n) / data, sequence) + all_reduce_bytes(weight_bytes(n), data * sequence) +
         loss_bytes(data * sequence);
}

/// Context parallelism: queries stay with their tokens; keys and values are gathered along the sequence.
inline placement by_context(const std::string& data, const std::string& context) {
  return {.tokens = {data, context, ""},
          .queries = {data, "", context, ""},
          .keys = {data, "", "", ""},
          .mixed = {data, "", context, ""}};
}
inline dynamic::program context_parallel(const dynamic::mesh& m, const layer_sizes& n) {
  return train(m, n, by_context("data", "context"));
}
/// Grattafiori et al. 2024, "The Llama 3 herd of models", 3.3.2: an all_gather of keys and values; their gradients are scattered.
inline double context_parallel_bytes(const layer_sizes& n, int data, int context) {
  const double a = token_bytes(n) / data;
  return 2 * all_gather_bytes(a, context) + 2 * reduce_scatter_bytes(a, context) +
         all_reduce_bytes(weight_bytes(n), data * context) + loss_bytes(data * context);
}

/// Ring attention: keys and values stay with their tokens too, and rotate around the devices of `context`.
inline placement by_ring(const std::string& data, const std::string& context) {
  const names by_row{data, "", context, ""};
  return {.tokens = {data, context, ""}, .queries = by_row, .keys = by_row, .mixed = by_row, .attend = ring_attention};
}
inline dynamic::program ring_context_parallel(const dynamic::mesh& m, const layer_sizes& n) {
  return train(m, n, by_ring("data", "context"));
}
/// Liu et al. 2023, "Ring attention", 3: each part of the keys and values, and its gradient, visits all other devices. The bytes
/// are those of an all_gather and a reduce_scatter.
inline double ring_bytes(const layer_sizes& n, int data, int context) {
  return 4 * (context - 1) * token_bytes(n) / (data * context);
}
inline double ring_context_parallel_bytes(const layer_sizes& n, int data, int context) {
  return ring_bytes(n, data, context) + all_reduce_bytes(weight_bytes(n), data * context) + loss_bytes(data * context);
}

/// With weights that are split over all devices: for the weights, both axes are one axis.
inline dynamic::program context_parallel_fully_sharded(const dynamic::mesh& m, const layer_sizes& n) {
  placement where = by_context("data", "context");
  where.weights = by_width("data,context");
  return train(m, n, where);
}
inline dynamic::program ring_fully_sharded(const dynamic::mesh& m, const layer_sizes& n) {
  placement where = by_ring("data", "context");
  where.weights = by_width("data,context");
  return train(m, n, where);
}
inline double context_parallel_fully_sharded_bytes(const layer_sizes& n, int data, int context) {
  const double a = token_bytes(n) / data, w = weight_bytes(n);
  return 2 * all_gather_bytes(a, context) + 2 * reduce_scatter_bytes(a, context) + all_gather_bytes(w, data * context) +
         reduce_scatter_bytes(w, data * context) + loss_bytes(data * context);
}

}  // namespace zoo
