// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/report/network.hpp>

#include "../moe/model.hpp"
#include "gspmd_tables.hpp"
#include "operators.hpp"
#include "report.hpp"
#include "sparse.hpp"

/// The tables and figures of "GShard: Scaling Giant Models with Conditional Computation and Automatic Sharding"
/// (Lepikhin et al. 2020).
namespace papers {

/// The layer of experts with M = 1024 and H = 8192, with its gradients and update. The number of experts and groups is
/// the number of devices, and C = 2S/E (3.1).
inline dynamic::program gshard_layer(std::int64_t devices) {
  const moe::sizes n{devices, 1024, devices, 2048 / devices, 1024, 8192};
  dynamic::builder b(dynamic::mesh({{"d", devices}}));
  const value x = b.input(dynamic::input<float>({n.groups, n.tokens, n.model}, {"d", "", ""}));
  const value key = b.input(dynamic::input<std::uint64_t>({}));
  const std::vector<value> w{b.input(dynamic::input<float>({n.model, n.experts}, {"", ""})),
                             b.input(dynamic::input<float>({n.experts, n.model, n.hidden}, {"d", "", ""})),
                             b.input(dynamic::input<float>({n.experts, n.hidden, n.model}, {"d", "", ""}))};
  const auto result = moe::layer(x, w[0], w[1], w[2], key, n, moe::dispatch::products);
  const auto gradient = grad(mean(result.outputs * result.outputs) + result.sent.auxiliary_loss, w);
  for (std::size_t k = 0; k < w.size(); ++k) b.output(w[k] - 0.1 * gradient[k]);
  return b.compile();
}

inline void print_weights_and_memory(report& r) {
  struct model {
    std::int64_t experts, layers;
    double total, billions;
  };
  r.table(
      "GShard Table 1",
      "Every other layer has experts. The number of experts is a formula: experts times half the layers. The paper prints 36684 "
      "and "
      "12228, which are no multiples of 2048; meant are 36864 and 12288. Weights: of all layers, counted in billions of 2^30, as "
      "GSPMD's Table 6 counts the same models. GShard prints round numbers.");
  for (const model& m : {model{2048, 36, 36684, 600},
                         {2048, 12, 12228, 200},
                         {512, 36, 9216, 150},
                         {512, 12, 3072, 50},
                         {128, 36, 2304, 37},
                         {128, 12, 768, 12.5},
                         {2048, 60, 61440, 1000}}) {
    const auto of = "MoE(" + std::to_string(m.experts) + "E, " + std::to_string(m.layers) + "L)";
    r.row(of, "experts", static_cast<double>(m.experts * m.layers / 2), m.total);
    r.row(of, "weights, billions of 2^30",
          gshard_parameters(static_cast<double>(m.experts)) * static_cast<double>(m.layers) / gshard_dims::layers / (1 << 30),
          m.billions);
  }
  r.table("GShard Fig. 7 and 5.1",
          "\"Roughly constant\" memory of a device: that of a layer with gradients and update by that with 128 experts. The "
          "bars' numbers are not in the text.");
  const double first = static_cast<double>(gshard_layer(128).peak_bytes_per_device());
  for (const int experts : {512, 2048})
    r.row(std::to_string(experts) + " experts", "memory by 128 experts",
          static_cast<double>(gshard_layer(experts).peak_bytes_per_device()) / first, 1);
}

/// Prints the exponents of the operations of each term, in total and per device.
inline void print_operations_by_term(report& r) {
  r.table(
      "GShard 3.1, operations by term",
      "How the operations of Algorithm 2 grow with the devices D, 32 to 1024 of them: the exponent of D, in all and for each "
      "device. "
      "Top2Gating, O(GSEC) in the paper, counts the E decisions of each token too, which 5.2 calls O(D) with a small constant.");
  const std::vector<std::pair<const char*, std::array<double, 2>>> terms{
      {"softmax of the gates", {2, 1}}, {"Top2Gating", {1, 0}}, {"dispatch and combine", {1, 0}}, {"FFN of the experts", {1, 0}}};
  for (std::size_t term = 0; term < terms.size(); ++term) {
    std::vector<double> devices, total, each;
    for (const std::int64_t d : {32, 128, 512, 1024}) {
      const moe::sizes n{d, 1024, d, 2048 / d, 1024, 8192};
      const auto plan = [&](std::int64_t on) {
        dynamic::builder b(dynamic::mesh({{"d", on}}));
        const auto in = [&](std::vector<std::int64_t> shape, std::vector<std::string> sharding) {
          return b.input(dynamic::input<float>(std::move(shape), std::move(sharding)));
        };
        const std::int64_t G = n.groups, S = n.tokens, E = n.experts, C = n.capacity, M = n.model, H = n.hidden;
        if (term == 0) {
          const value x = in({G, S, M}, {"d", "", ""});
          b.output(softmax(einsum<"GSM,ME->GSE">(x, in({M, E}, {"", ""})), 2));
        } else if (term == 1) {
          const value key = b.input(dynamic::input<std::uint64_t>({}));
          b.output(moe::combine_weights(moe::top2_gating(in({G, S, E}, {"d", "", ""}), C, key), n));
        } else if (term == 2) {
          const value mask = in({G, S, E, C}, {"d", "", "", ""});
          const value sent = b.reshard(einsum<"GSEC,GSM->EGCM">(mask, in({G, S, M}, {"d", "", ""})), {"d", "", "", ""});
          b.output(sent);
          b.output(einsum<"GSEC,GECM->GSM">(mask, in({G, E, C, M}, {"d", "", "", ""})));
        } else {
          const value buffers = in({E, G, C, M}, {"d", "", "", ""});
          b.output(moe::experts(buffers, in({E, M, H}, {"d", "", ""}), in({E, H, M}, {"d", "", ""})));
        }
        return static_cast<double>(b.compile().flops_per_device());
      };
      devices.push_back(static_cast<double>(d));
      total.push_back(plan(1));
      each.push_back(plan(d));
    }
    r.exponent(terms[term].first, "exponent, in all", exponent(devices, total), terms[term].second[0]);
    r.exponent(terms[term].first, "exponent, for a device", exponent(devices, each), terms[term].second[1]);
  }
}

inline void print_table_4(report& r) {
  r.table(
      "GShard Table 4",
      "How operators grow with the devices, 2 to 2048 on a torus: exponents of D, of time for communication from 64 on, where "
      "(D - 1) / D is 1.");
  const network net(tpu_v3, {{"x", topology::torus, 70e9, 0}, {"y", topology::torus, 70e9, 0}});
  for (const auto& row : table_4()) {
    std::vector<double> devices, total, each, seconds;
    std::string collectives;
    for (int log = 1; log <= 11; ++log) {
      const auto plan = [&](int x, int y) {
        dynamic::builder b(dynamic::mesh({{"x", x}, {"y", y}}));
        row.program(b, std::int64_t{1} << log);
        return b.compile();
      };
      const auto p = plan(1 << (log + 1) / 2, 1 << log / 2);
      devices.push_back(std::exp2(log));
      total.push_back(static_cast<double>(plan(1, 1).flops_per_device()));
      each.push_back(static_cast<double>(p.flops_per_device()));
      seconds.push_back(estimate(p, net).communication);
      collectives = collectives_of(p);
    }
    r.words(row.name, "collectives", collectives, row.collective);
    r.exponent(row.name, "operations", exponent(devices, total), row.total);
    r.exponent(row.name, "operations of a device", exponent(devices, each), row.per_device);
    if (*row.collective != 0)
      r.exponent(row.name, "time of communication",
                 exponent({devices.begin() + 5, devices.end()}, {seconds.begin() + 5, seconds.end()}), row.communication);
  }
}

/// Returns the time of an exchange, or a sum, of this number of MiB per device on a torus of x * y.
inline double torus_seconds(int x, int y, std::int64_t mebibytes, bool is_exchange) {
  const std::int64_t elems = mebibytes << 18;
  dynamic::builder b(dynamic::mesh({{"x", x}, {"y", y}}));
  if (is_exchange) {
    b.output(b.reshard(b.input(dynamic::input<float>({x * y, elems}, {"x,y", ""})), {"", "x,y"}));
  } else {
    auto terms = dynamic::input<float>({elems}, {""});
    terms.partial_axes = "x,y";
    b.output(b.reshard(b.input(terms), {""}));
  }
  return estimate(b.compile(), torus_of()).communication;
}
inline void print_communication(report& r) {
  r.table("GShard Fig. 9 and 5.3",
          "From 16 to 2048 partitions: how many times the time, where a link adds 1 us to a message. The points of the figure "
          "are not in the text. The torus is that of the whole machine for all numbers of devices, with its ends joined.");
  for (const int mebibytes : {8, 32})
    for (const bool is_exchange : {true, false})
      r.row(std::to_string(mebibytes) + " MiB", is_exchange ? "AllToAll, times" : "AllReduce, times",
            torus_seconds(32, 64, mebibytes, is_exchange) / torus_seconds(4, 4, mebibytes, is_exchange), is_exchange ? 9 : 1);
  r.table("GShard Fig. 8 and 5.2",
          "From 128 to 2048 experts: how many times the time of dispatch and combine. The bars' numbers are not in the text. "
          "The torus is that of the whole machine for all numbers of devices, with its ends joined.");
  const auto seconds = [](int x, int y) {
    return estimate(sparse_layer_on_torus(x, y, dynamic::mesh({{"x", x}, {"y", y}})), torus_of()).communication;
  };
  r.row("2048 experts", "times", seconds(32, 64) / seconds(8, 16), 3.75);
}

}  // namespace papers
