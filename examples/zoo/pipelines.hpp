// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gspmd/nn/pipeline.hpp>

#include "layouts.hpp"

/// Layers of a Transformer, one on each stage of a pipeline, with the layouts of layouts.hpp inside of the stages.
/// Inputs: the microbatches and their targets, [microbatches,B,T,D]; six weights of all stages, [stages, ...]. Outputs:
/// the loss and the weights after a step of gradient descent.
namespace zoo {

/// `layer` has the sizes of one stage and one microbatch.
struct pipeline_sizes {
  layer_sizes layer;
  std::int64_t stages, microbatches;
};

inline names behind(const std::string& axis, names sharding) {
  sharding.insert(sharding.begin(), axis);
  return sharding;
}
inline value mean_of_squares(value y, value target) { return mean((y - target) * (y - target)); }

struct stage_inputs {
  value xs, targets;
  std::vector<value> weights;
};
inline stage_inputs inputs_of_stages(dynamic::builder& b, const pipeline_sizes& n, const placement& where,
                                     const std::string& stages = "stage") {
  const auto [B, T, D, N, F] = n.layer;
  const auto batch = dynamic::input<float>({n.microbatches, B, T, D}, behind("", where.tokens));
  const value xs = b.input(batch), targets = b.input(batch);
  return {xs, targets, inputs(b, n.layer, where.weights, [&](dynamic::input_spec one) {
            one.shape.insert(one.shape.begin(), n.stages);
            one.sharding = behind(stages, one.sharding);
            return one;
          })};
}
inline dynamic::program descend_by(dynamic::builder& b, value loss, const std::vector<value>& w,
                                   const std::vector<value>& gradients) {
  b.output(loss);
  for (std::size_t k = 0; k < w.size(); ++k) b.output(update(w[k], w[k] - 0.1 * gradients[k]));
  return b.compile();
}

/// 1F1B: a stage starts the backward pass of a microbatch as soon as possible. The weights that a stage reads, and the
/// sums of their gradients, have the sharding `read`. If it differs from the sharding of the stored weights, each is
/// gathered and scattered once in a step, not in every tick.
inline dynamic::program train_by_1f1b(const dynamic::mesh& m, const pipeline_sizes& n, const placement& where,
                                      const weight_names& read) {
  dynamic::builder b(m);
  const auto [xs, targets, w] = inputs_of_stages(b, n, where);
  std::vector<value> gathered;
  for (std::size_t k = 0; k < w.size(); ++k) gathered.push_back(b.reshard(w[k], behind("stage", of_weight(read, k))));
  const auto stage = [&](const std::vector<value>& own, value x) { return layer(b, own, x, where); };
  const one_forward_one_backward schedule{n.stages, n.microbatches};
  auto [loss, gradients, by_x] = pipeline_step<"stage">(stage, mean_of_squares, schedule)(gathered, xs, targets);
  for (std::size_t k = 0; k < w.size(); ++k) gradients[k] = b.reshard(gradients[k], behind("stage", of_weight(read, k)));
  return descend_by(b, loss, w, gradients);
}
/// GPipe: all microbatches run forward, then all backward. All stages compute the loss.
inline dynamic::program train_by_gpipe(const dynamic::mesh& m, const pipeline_sizes& n, const placement& where) {
  dynamic::builder b(m);
  const auto [xs, targets, w] = inputs_of_stages(b, n, where);
  const auto stage = [&](const std::vector<value>& own, value x) { return layer(b, own, x, where); };
  const value ys = pipeline<"stage">(stage, gpipe{n.stages, n.microbatches})(w, xs);
  const value loss = mean_of_squares(b.reshard(ys, behind("stage", where.tokens)), targets);
  return descend_by(b, loss, w, grad(loss, w));
}

/// The result of `pipeline`, computed without a pipeline: stage after stage, each on all microbatches together.
template <class Stage>
value one_by_one(Stage stage, const std::vector<value>& w, value xs) {
  const auto M = xs.shape()[0], B = xs.shape()[1], T = xs.shape()[2], D = xs.shape()[3];
  value x = reshape(xs, {M * B, T, D});
  for (std::int64_t s = 0; s < w[0].shape()[0]; ++s) {
    std::vector<value> own;
    for (const value& all : w) {
      const auto shape = all.shape();
      std::vector<std::int64_t> first(static_cast<std::size_t>(all.rank()), 0), last(shape.begin(), shape.end());
      first[0] = s;
      last[0] = s + 1;
      own.push_back(reshape(slice(all, first, last), std::vector<std::int64_t>(last.begin() + 1, last.end())));
    }
    x = stage(own, x);
  }
  return reshape(x, {M, B, T, D});
}
inline dynamic::program train_one_by_one(const dynamic::mesh& m, const pipeline_sizes& n) {
  const placement anywhere{.tokens = {"", "", ""}};
  dynamic::builder b(m);
  const auto [xs, targets, w] = inputs_of_stages(b, n, anywhere, "");
  const auto stage = [&](const std::vector<value>& own, value x) { return layer(b, own, x, anywhere); };
  const value loss = mean_of_squares(one_by_one(stage, w, xs), targets);
  return descend_by(b, loss, w, grad(loss, w));
}

/// The tokens that stages send to the next stage and back: one microbatch per tick in each direction. A stage uses one
/// for each microbatch. In the other stages - 1 ticks, the sent data is unused.
inline double between_stages_bytes(const pipeline_sizes& n, int split) {
  return 2 * static_cast<double>(n.microbatches + n.stages - 1) * token_bytes(n.layer) / split;
}

inline dynamic::program pipeline_data_parallel(const dynamic::mesh& m, const pipeline_sizes& n) {
  return train_by_1f1b(m, n, {.tokens = {"data", "", ""}}, {});
}
/// Narayanan et al. 2021, "Efficient large-scale language model training", 2.2 and 3.2: tokens between stages, and one
/// all_reduce of the gradients of a stage. The loss is summed along one axis after another.
inline double pipeline_data_parallel_bytes(const pipeline_sizes& n, int data) {
  return between_stages_bytes(n, data) + all_reduce_bytes(weight_bytes(n.layer), data) + loss_bytes(data) +
         loss_bytes(static_cast<double>(n.stages));
}

/// Each device of a stage stores a part of the stage's weights. The weights are gathered once in a step, so the step
/// holds whole weights.
inline dynamic::program pipeline_gathered_once(const dynamic::mesh& m, const pipeline_sizes& n) {
  return train_by_1f1b(m, n, {.tokens = {"data", "", ""}, .weights = by_width("data")}, {});
}
/// Grattafiori et al. 2024, "The Llama 3 herd of models", 3.3.2: weights stay gathered between microbatches. One
/// all_gather and one reduce_scatter in a step.
inline double pipeline_gathered_once_bytes(const pipeline_sizes& n, int data) {
  const double w = weight_bytes(n.layer);
  return between_stages_bytes(n, data) + all_gather_bytes(w, data) + reduce_scatter_bytes(w, data) + loss_bytes(data) +
         loss_bytes(static_cast<double>(n.stages));
}

/// FSDP: the weights, and the sums of their gradients, stay sharded. Each tick gathers the weights and scatters the
/// gradients.
inline dynamic::program pipeline_fully_sharded(const dynamic::mesh& m, const pipeline_sizes& n) {
  return train_by_1f1b(m, n, {.tokens = {"data", "", ""}, .weights = by_width("data")}, by_width("data"));
}
/// Zhao et al. 2023, "PyTorch FSDP": an all_gather forward, one backward, and a reduce_scatter. One program runs on all
/// stages, and in a tick some stages run forward and others backward. So each of the 2 (M + S - 1) ticks has all three.
inline double pipeline_fully_sharded_bytes(const pipeline_sizes& n, int data) {
  const double w = weight_bytes(n.layer), ticks = 2 * static_cast<double>(n.microbatches + n.stages - 1);
  return between_stages_bytes(n, data) + ticks * (2 * all_gather_bytes(w, data) + reduce_scatter_bytes(w, data)) +
         loss_bytes(data) + loss_bytes(static_cast<double>(n.stages));
}

/// Heads and hidden units of a stage are split.
inline dynamic::program pipeline_tensor_parallel(const dynamic::mesh& m, const pipeline_sizes& n) {
  return train_by_gpipe(m, n, {.tokens = {"", "", ""}, .weights = by_heads("")});
}
/// Two all_reduces of the tokens in a forward tick, and four in a backward tick, which recomputes the stage. The last
/// stage has the results. All devices read a part of the results for the loss, and the last stage gets their gradients.
inline double pipeline_tensor_parallel_bytes(const pipeline_sizes& n, int model) {
  const auto stages = static_cast<double>(n.stages), microbatches = static_cast<double>(n.microbatches);
  const double a = token_bytes(n.layer), ticks = microbatches + stages - 1;
  return between_stages_bytes(n, 1) + 6 * ticks * all_reduce_bytes(a, model) + reduce_scatter_bytes(microbatches * a, stages) +
         all_gather_bytes(microbatches * a, stages) + loss_bytes(stages);
}

/// With sequence parallelism: between stages, and between the halves of a layer, `model` splits tokens too.
inline dynamic::program pipeline_sequence_parallel(const dynamic::mesh& m, const pipeline_sizes& n) {
  return train_by_gpipe(
      m, n, {.tokens = {"", "model", ""}, .weights = by_heads(""), .read = {"", "", ""}, .hidden = {"", "", "model"}});
}
/// Each all_reduce becomes an all_gather and a reduce_scatter, and each device of a stage sends a part (Narayanan et
/// al. 2021, 4.1).
inline double pipeline_sequence_parallel_bytes(const pipeline_sizes& n, int model) {
  const auto stages = static_cast<double>(n.stages), microbatches = static_cast<double>(n.microbatches);
  const double a = token_bytes(n.layer), ticks = microbatches + stages - 1;
  return between_stages_bytes(n, model) + 6 * ticks * (all_gather_bytes(a, model) + reduce_scatter_bytes(a, model)) +
         2 * reduce_scatter_bytes(microbatches * a / model, stages) + loss_bytes(stages * model);
}

}  // namespace zoo
