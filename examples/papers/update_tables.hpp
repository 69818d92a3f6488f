// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/groups.hpp>
#include <gspmd/nn/optimizer.hpp>
#include <gspmd/report/network.hpp>
#include <gspmd/transform/grad.hpp>
#include <gspmd/transform/weight_update.hpp>

#include "gspmd_tables.hpp"
#include "report.hpp"

/// The figures of "Automatic Cross-Replica Sharding of Weight Update in Data-Parallel Training" (Xu et al. 2020), as
/// models.
namespace papers {

/// With adam_by_parts, each row of y in a torus of x * y replicas shares its updates: groups as in 5.2.
enum class updater { descent, adam, adam_by_parts };

/// The weights of the Transformer of MLPerf 0.6, the big model of Vaswani et al. 2017: 6 + 6 layers, 1024 wide, 4096
/// hidden, 33708 words. Each weight is used in a product with 256 tokens of each replica of the torus. The model's
/// computation does not matter for the update.
inline dynamic::builder transformer_update(std::int64_t x, std::int64_t y, updater by) {
  const auto net = torus_of();
  dynamic::builder b(dynamic::mesh({{"x", x}, {"y", y}}).with({.network = net}));
  std::vector<std::vector<std::int64_t>> shapes{{33708, 1024}};
  for (int layer = 0; layer < 12; ++layer) {
    for (int k = 0; k < (layer < 6 ? 4 : 8); ++k)
      shapes.push_back({1024, 1024});  // the second half also has attention to the encoder
    shapes.push_back({1024, 4096});
    shapes.push_back({4096, 1024});
  }
  const auto inputs = [&] {
    std::vector<value> all;
    for (const auto& s : shapes) all.push_back(b.input(dynamic::input<float>(s, {"", ""})));
    return all;
  };
  const auto moments = [&] {  // completion finds their sharding: that of their weights, or in parts
    std::vector<value> all;
    for (const auto& s : shapes)
      all.push_back(b.input(by == updater::adam_by_parts ? dynamic::input<float>(s) : dynamic::input<float>(s, {"", ""})));
    return all;
  };
  const auto w = inputs();
  value loss;
  for (const value& v : w) {
    const value tokens = b.input(dynamic::input<bf16>({256 * x * y, v.shape()[0]}, {"x,y", ""}));
    const value y_of = einsum<"bd,df->bf">(tokens, cast<bf16>(v));
    const value lost = sum(y_of * y_of);
    loss = loss.is_valid() ? loss + lost : lost;
  }
  const auto gradients = grad(loss, w);
  if (by == updater::descent) {
    dynamic::outputs(
        b, optimizer::sgd{}.update(w, gradients, optimizer::sgd_state<>{b.input(dynamic::input<std::int32_t>({}))}).params);
    return b;
  }
  optimizer::adam_state<std::vector<value>> state{moments(), moments(), b.input(dynamic::input<std::int32_t>({}))};
  const auto next = optimizer::adam{}.update(w, gradients, state);
  dynamic::outputs(b, next.params);
  dynamic::outputs(b, next.state);
  if (by == updater::adam_by_parts) shard_weight_update(b, {"y"});
  return b;
}

/// The bytes of the weights and of both moments that a device holds after the step.
struct held_state {
  double weights = 0, moments = 0;
};
inline held_state state_of(const dynamic::program& p) {
  const std::size_t count = (p.output_count() - 1) / 3;
  held_state s;
  for (std::size_t k = 0; k < 3 * count; ++k) (k < count ? s.weights : s.moments) += 4 * elements_held(p.output(k));
  return s;
}

inline void print_weight_updates(report& r) {
  r.table("Weight-update sharding, Fig. 11 and 6.1",
          "The Transformer of MLPerf 0.6 on 2048 cores, whose step took 46.5 ms with all updates whole, 25.6 ms in parts. As a "
          "model: Adam reads gradient, weight "
          "and two moments and writes three of them; a TPU v3 core has half of its chip's 900 GB/s. Rows of 64 cores share their "
          "updates, as 5.2 has it. Gradients go in 16 bits and new weights are gathered in 32, which the paper gathers in "
          "16 (Fig. 7): half as much again is sent.");
  const auto whole = transformer_update(32, 64, updater::adam).compile(),
             parts = transformer_update(32, 64, updater::adam_by_parts).compile();
  const auto in_all = state_of(whole), in_parts = state_of(parts);
  const double memory = 450e9, of_all = 7 * in_all.moments / 2 / memory, of_parts = 7 * in_parts.moments / 2 / memory;
  r.row("2048 cores", "ms saved", 1e3 * (of_all - of_parts), 46.5 - 25.6);
  r.row("2048 cores", "step time, whole by parts", 46.5e-3 / (46.5e-3 - of_all + of_parts), 46.5 / 25.6);
  r.row("2048 cores", "bytes sent, parts by whole",
        static_cast<double>(parts.traffic().bytes) / static_cast<double>(whole.traffic().bytes), 1);
  r.note(
      "Not had: the bars of ResNet-50 and NCF, and of 32 cores, whose step times are not given; Table 1 has batches and "
      "optimizers, which is input.");

  r.table(
      "Weight-update sharding, 4.2 and Fig. 8",
      "Memory in the loop: W + V + P becomes W + V/N + P with N shards, so that Adam holds as much as gradient descent does.");
  for (const auto& [x, y] : {std::pair<int, int>{1, 32}, {32, 64}}) {
    const auto all = transformer_update(x, y, updater::adam).compile(),
               split = transformer_update(x, y, updater::adam_by_parts).compile();
    const auto descent = transformer_update(x, y, updater::descent).compile();
    const auto of = std::to_string(x * y) + " cores";
    r.row(of, "moments, parts by whole", state_of(split).moments / state_of(all).moments, 1.0 / y);
    r.row(of, "memory saved, by V (1 - 1/N)",
          static_cast<double>(all.peak_bytes_per_device() - split.peak_bytes_per_device()) /
              (state_of(all).moments * (1 - 1.0 / y)),
          1);
    r.row(of, "memory of Adam in parts by descent's",
          static_cast<double>(split.peak_bytes_per_device()) / static_cast<double>(descent.peak_bytes_per_device()), 1);
  }
  r.note("Not had: Fig. 12, whose bars' numbers are not in the text.");
}

}  // namespace papers
