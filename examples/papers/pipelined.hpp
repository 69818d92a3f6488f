// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gspmd/nn/pipeline.hpp>

#include "dense.hpp"

/// The pipelined model of GSPMD 5.2: l splits the stages, x the examples, and x and y shard the inside of a stage (2D
/// sharding). Only y splits the weights: weights split over x would be gathered for each microbatch.
namespace papers {

/// A column of Table 4.
struct pipelined_model {
  std::int64_t stages, x, y, microbatches, rows;
  static constexpr std::int64_t layers = 64, model = 4096, hidden = 16384, heads = 64, width = 128;

  [[nodiscard]] dynamic::mesh mesh() const { return dynamic::mesh({{"l", stages}, {"x", x}, {"y", y}}); }
};

/// The finalized annotations of Table 1, on a mesh of l, x and y.
inline constexpr table_1 in_a_stage = {"in a stage", {}, {}, {1, -1, 2}, {1, -1, 2}, {1, -1, 2, -1}};

/// A training step by GPipe and gradient descent. Stages are loops over their layers. They store the values between
/// layers; the backward pass recomputes all other values.
inline dynamic::program pipelined_step(const pipelined_model& n) {
  using size = pipelined_model;
  constexpr auto M = size::model, H = size::hidden, N = size::heads, D = size::width;
  dynamic::builder b(n.mesh());
  const auto weight = [&](std::vector<std::int64_t> shape, std::vector<std::string> sharding) {
    shape.insert(shape.begin(), {n.stages, size::layers / n.stages});
    sharding.insert(sharding.begin(), {"l", ""});
    return b.input(dynamic::input<float>(std::move(shape), std::move(sharding)));
  };
  const std::array<value, 6> w{weight({M, N, D}, {"", "y", ""}), weight({M, N, D}, {"", "y", ""}),
                               weight({M, N, D}, {"", "y", ""}), weight({N, D, M}, {"y", "", ""}),
                               weight({M, H}, {"", "y"}),        weight({H, M}, {"y", ""})};
  const value words = b.input(dynamic::input<float>({M, dense_model::vocabulary}, {"x", "y"}));
  const value xs = b.input(dynamic::input<bf16>({n.microbatches, n.rows, dense_model::length, M}, {"", "x", "", "y"}));
  const auto layer = [](const std::array<value, 6>& of, value h) {
    const auto half = [&](std::size_t k) { return cast<bf16>(of[k]); };
    h = h + self_attention(in_a_stage, h, {half(0), half(1), half(2)}, half(3));
    return h + feed_forward(in_a_stage, h, half(4), half(5));
  };
  const value ys = pipeline<"l">(stage_of(layer), gpipe{n.stages, n.microbatches})(w, xs);
  const value y = split_as(whole_batch(ys), in_a_stage.bsm_axes);
  const value loss = sum(log_softmax(einsum<"bsm,mv->bsv">(y, cast<bf16>(words)), 2));
  std::vector<value> all(w.begin(), w.end());
  all.push_back(words);
  const auto gradients = grad(loss, all);
  for (std::size_t k = 0; k < all.size(); ++k) b.output(update(all[k], all[k] - 0.01 * gradients[k]));
  return b.compile();
}

}  // namespace papers
