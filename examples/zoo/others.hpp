// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/index.hpp>
#include <gspmd/ops.hpp>
#include <gspmd/transform/grad.hpp>
#include <gspmd/transform/update.hpp>
#include <gspmd/windows.hpp>

#include "../moe/model.hpp"
#include "closed_forms.hpp"

/// Training steps of models with other splits than a Transformer layer: experts, tables, images. Each has inputs and
/// outputs as in `train`, with gradient descent without momenta.
namespace zoo {

using namespace gspmd;

/// Outputs the loss, and w - rate * gradient as the next value of each weight.
inline dynamic::program descend(dynamic::builder& b, value loss, const std::vector<value>& weights) {
  const auto gradients = grad(loss, weights);
  b.output(loss);
  for (std::size_t k = 0; k < weights.size(); ++k) b.output(update(weights[k], weights[k] - 0.1 * gradients[k]));
  return b.compile();
}

/// Expert parallelism: tokens are split by groups, and the layer of examples/moe by experts.
inline dynamic::program expert_parallel(const dynamic::mesh& m, const moe::sizes& n) {
  dynamic::builder b(m);
  const value x = b.input(dynamic::input<float>({n.groups, n.tokens, n.model}, {"d", "", ""}));
  const value target = b.input(dynamic::input<float>({n.groups, n.tokens, n.model}, {"d", "", ""}));
  const std::vector<value> w{b.input(dynamic::input<float>({n.model, n.experts}, {"", ""})),
                             b.input(dynamic::input<float>({n.experts, n.model, n.hidden}, {"d", "", ""})),
                             b.input(dynamic::input<float>({n.experts, n.hidden, n.model}, {"d", "", ""}))};
  const value key = b.input(dynamic::input<std::uint64_t>({}));
  const auto y = moe::layer(x, w[0], w[1], w[2], key, n, moe::dispatch::indices);
  const value difference = x + y.outputs - target;
  return descend(b, mean(difference * difference) + y.sent.auxiliary_loss, w);
}
/// Lepikhin et al. 2020, "GShard", 3.2: an all_to_all of the experts' buffers to the experts and one back. Backward,
/// one more for the gradient of the results (x is an input, so its gradient is not sent). The gate's weights are
/// replicated and get an all_reduce.
inline double expert_parallel_bytes(const moe::sizes& n, int devices) {
  const double buffers = 4.0 * static_cast<double>(n.groups * n.experts * n.capacity * n.model);
  return 3 * all_to_all_bytes(buffers, devices) + all_reduce_bytes(4.0 * static_cast<double>(n.model * n.experts), devices) +
         loss_bytes(devices);
}

/// Expert parallelism with full sharding: one mesh for both kinds of layers, whose axes together split the batch. One
/// axis splits the experts. The other axis splits their weights along the hidden units. The routing, [G,S,E,C], is an
/// input.
inline dynamic::program expert_parallel_fully_sharded(const dynamic::mesh& m, const moe::sizes& n) {
  dynamic::builder b(m);
  const auto in = [&](std::vector<std::int64_t> shape, std::vector<std::string> sharding) {
    return b.input(dynamic::input<float>(std::move(shape), std::move(sharding)));
  };
  const std::int64_t G = n.groups, S = n.tokens, E = n.experts, C = n.capacity, M = n.model, H = n.hidden;
  const value x = in({G, S, M}, {"data,expert", "", ""}), target = in({G, S, M}, {"data,expert", "", ""});
  const value sent_to = in({G, S, E, C}, {"data,expert", "", "", ""});
  const std::vector<value> w{in({E, M, H}, {"expert", "", "data"}), in({E, H, M}, {"expert", "data", ""})};
  const value buffers = b.reshard(einsum<"gsm,gsec->egcm">(x, sent_to), {"expert", "data", "", ""});
  const value h = relu(b.reshard(einsum<"egcm,emh->egch">(buffers, w[0]), {"expert", "data", "", ""}));
  const value answers = b.reshard(einsum<"egch,ehm->gecm">(h, w[1]), {"data,expert", "", "", ""});
  const value difference = einsum<"gecm,gsec->gsm">(answers, sent_to) - target;
  return descend(b, mean(difference * difference), w);
}
/// The all_to_alls of the devices along `expert`, and an all_gather and a reduce_scatter of their experts along `data`
/// (torchtitan's ep with dp_shard_mod_ep).
inline double expert_parallel_fully_sharded_bytes(const moe::sizes& n, int data, int expert) {
  const double buffers = 4.0 * static_cast<double>(n.groups / data * n.experts * n.capacity * n.model);
  const double weights = 2 * 4.0 * static_cast<double>(n.experts / expert * n.model * n.hidden);
  return 3 * all_to_all_bytes(buffers, expert) + all_gather_bytes(weights, data) + reduce_scatter_bytes(weights, data) +
         loss_bytes(data * expert);
}

/// A recommender: embedding tables with one row for each example, and a network over the products of these rows.
struct table_sizes {
  std::int64_t examples, tables, rows, width, numbers;
};
/// DLRM: each device has some whole tables, and looks up the rows of all examples in them. The network is data
/// parallel.
inline dynamic::program embedding_tables(const dynamic::mesh& m, const table_sizes& n) {
  dynamic::builder b(m);
  const auto [B, tables, rows, E, numbers] = n;
  const value dense = b.input(dynamic::input<float>({B, numbers}, {"d", ""}));
  const value clicked = b.input(dynamic::input<float>({B, 1}, {"d", ""}));
  const auto products = (tables + 1) * (tables + 1);
  const std::vector<value> w{b.input(dynamic::input<float>({tables, rows, E}, {"d", "", ""})),
                             b.input(dynamic::input<float>({numbers, E}, {"", ""})),
                             b.input(dynamic::input<float>({products + E, 1}, {"", ""}))};
  const value ids = b.input(dynamic::input<std::int32_t>({tables, B}, {"d", ""}));
  const value found = gather(w[0], ids,
                             {.offset_dims = {2},
                              .collapsed_slice_dims = {1},
                              .operand_batching_dims = {0},
                              .start_indices_batching_dims = {0},
                              .start_index_map = {1},
                              .index_vector_dim = 2},
                             {1, 1, E});  // [tables,B,E]
  const value looked_up = b.reshard(found, {"", "d", ""});
  const value bottom = relu(einsum<"bn,ne->be">(dense, w[1]));
  const value all = concatenate({expand_dims(bottom, 0), looked_up}, 0);
  const value pairs = reshape(einsum<"sbe,tbe->bst">(all, all), {B, products});
  const value logit = einsum<"bp,po->bo">(concatenate({bottom, pairs}, 1), w[2]);
  return descend(b, mean(log(1.0 + exp(logit)) - clicked * logit), w);
}
/// Naumov et al. 2019, "Deep learning recommendation model", 4: an all_to_all of the looked-up rows, and one of their
/// gradients.
inline double embedding_tables_bytes(const table_sizes& n, int devices) {
  const double found = 4.0 * static_cast<double>(n.tables * n.examples * n.width);
  const double network = 4.0 * static_cast<double>(n.numbers * n.width + (n.tables + 1) * (n.tables + 1) + n.width);
  return 2 * all_to_all_bytes(found, devices) + all_reduce_bytes(network, devices) + loss_bytes(devices);
}

/// Images and two convolutions of 3 x 3.
struct image_sizes {
  std::int64_t images, side, channels, features;
};
/// Spatial parallelism: `space` splits the rows of the images, `data` the images. Neighbours exchange a row.
inline dynamic::program spatial(const dynamic::mesh& m, const image_sizes& n) {
  dynamic::builder b(m);
  const value x = b.input(dynamic::input<float>({n.images, n.side, n.side, n.channels}, {"data", "space", "", ""}));
  const value target = b.input(dynamic::input<float>({n.images, n.side, n.side, n.channels}, {"data", "space", "", ""}));
  const std::vector<value> w{b.input(dynamic::input<float>({3, 3, n.channels, n.features}, {"", "", "", ""})),
                             b.input(dynamic::input<float>({3, 3, n.features, n.channels}, {"", "", "", ""}))};
  const value hidden = relu(convolution(x, w[0], "NHWC,HWIO->NHWC", {.padding = "same"}));
  const value y = convolution(hidden, w[1], "NHWC,HWIO->NHWC", {.padding = "same"});
  const value difference = y - target;
  return descend(b, mean(difference * difference), w);
}
/// Dryden et al. 2019, "Improving strong-scaling of CNN training", III-A: a row to either side for each convolution.
/// Forward, a row of its input. Backward, a row of its output's gradient (except for the first convolution, which has
/// no previous layer). An all_reduce of the gradients.
inline double spatial_bytes(const image_sizes& n, int data, int space) {
  const auto halo = [&](std::int64_t channels) { return 2 * 4.0 * static_cast<double>(n.images / data * n.side * channels); };
  const double weights = 2 * 9 * 4.0 * static_cast<double>(n.channels * n.features);
  return 2 * halo(n.channels) + halo(n.features) + all_reduce_bytes(weights, data * space) + loss_bytes(data * space);
}

}  // namespace zoo
