// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: plans
// A Transformer layer with the common layouts, forward, backward and update, with annotations of inputs and activations
// only: the bytes equal the closed form, or are fewer. Also gradients that a loop sums, which are scattered once after
// the loop.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

#include "support/golden_plans.hpp"

namespace {

using namespace gspmd;
using golden::collectives_of;
using names = std::vector<std::string>;
dynamic::input_spec f32(std::vector<std::int64_t> shape, names sharding) {
  return dynamic::input<float>(std::move(shape), std::move(sharding));
}

struct layer_sizes {
  std::int64_t batch, sequence, width, heads;
};
const layer_sizes small{4, 64, 128, 8}, large{4, 2048, 4096, 32};

value normalised(value x) {
  const auto wide = [&](value v) { return broadcast_in_dim(v, x.shape(), {0, 1}); };
  const value centred = x - wide(mean(x, 2));
  return centred * wide(rsqrt(mean(centred * centred, 2) + 1e-5));
}

/// A layer whose heads and hidden units are split over `model`. Its products are of matrices (tokens by features), with
/// x and the heads as views. Or they are of tensors with the dims of x and of heads. `rest` splits the other dims of a
/// weight.
dynamic::program layer(const dynamic::mesh& m, const layer_sizes& s, const names& x_sharding, bool is_of_matrices,
                       const std::string& rest = "") {
  dynamic::builder b(m);
  const auto [B, T, D, N] = s;
  const std::int64_t K = D / N, F = 4 * D, tokens = B * T;
  std::vector<value> weights;
  const auto weight = [&](std::vector<std::int64_t> shape, names sharding) {
    weights.push_back(b.input(f32(std::move(shape), std::move(sharding))));
    return weights.back();
  };
  const auto linear = [&](value v, value w) {
    const value product = einsum<"td,df->tf">(reshape(v, {tokens, w.shape()[0]}), w);
    return reshape(product, {B, T, w.shape()[1]});
  };
  const value x = b.input(f32({B, T, D}, x_sharding)), target = b.input(f32({B, T, D}, x_sharding));
  const value in = normalised(x);
  value heads[3];
  for (auto& h : heads)
    h = is_of_matrices ? reshape(linear(in, weight({D, D}, {rest, "model"})), {B, T, N, K})
                       : einsum<"bsm,mnd->bsnd">(in, weight({D, N, K}, {rest, "model", ""}));
  const value mixed = einsum<"bnst,btnd->bsnd">(softmax(einsum<"bsnd,btnd->bnst">(heads[0], heads[1]), 3), heads[2]);
  value y = x + (is_of_matrices ? linear(reshape(mixed, {B, T, D}), weight({D, D}, {"model", rest}))
                                : einsum<"bsnd,ndm->bsm">(mixed, weight({N, K, D}, {"model", "", rest})));
  y = b.reshard(y, x_sharding);
  const value hidden = relu(linear(normalised(y), weight({D, F}, {rest, "model"})));
  y = b.reshard(y + linear(hidden, weight({F, D}, {"model", rest})), x_sharding);
  const value difference = y - target;
  std::vector<value> sources = weights;
  sources.push_back(x);
  const auto gradients = grad(mean(difference * difference), sources);
  for (std::size_t k = 0; k < weights.size(); ++k) b.output(weights[k] - 0.1 * gradients[k]);
  b.output(b.reshard(gradients.back(), x_sharding));
  return b.compile();
}

/// A step with gradients over eight sequential batches, and its update. `tokens` has the axes that split a batch.
dynamic::program accumulated(const dynamic::mesh& m, std::int64_t T, std::int64_t D, const names& weights, const names& state,
                             const std::string& tokens, bool is_scaled) {
  dynamic::builder b(m);
  const value xs = b.input(f32({8, T, D}, {"", tokens, ""})), ts = b.input(f32({8, T, D}, {"", tokens, ""}));
  const value w1 = b.input(f32({D, 4 * D}, weights)), w2 = b.input(f32({4 * D, D}, weights));
  const value s1 = b.input(f32({D, 4 * D}, state)), s2 = b.input(f32({4 * D, D}, state));
  const auto sums = scan(
      [&](auto carried, auto batch) {
        const auto [x, t] = batch;
        const value d = einsum<"tf,fd->td">(relu(einsum<"td,df->tf">(x, w1)), w2) - t;
        const value loss = mean(d * d);
        const auto g = grad(loss, std::vector<value>{w1, w2});
        const double part = is_scaled ? 0.125 : 1;
        const auto [a, c] = carried;
        return std::tuple{is_scaled ? std::tuple{a + part * g[0], c + part * g[1]} : std::tuple{a + g[0], c + g[1]}, loss};
      },
      std::tuple{zeros_like(w1), zeros_like(w2)}, std::tuple{xs, ts});
  const auto [g1, g2] = std::get<0>(sums);
  const value n1 = 0.9 * s1 + g1, n2 = 0.9 * s2 + g2;
  for (const value& n : {n1, n2}) b.output(n);
  b.output(b.reshard(w1 - 0.1 * n1, weights));
  b.output(b.reshard(w2 - 0.1 * n2, weights));
  return b.compile();
}

/// Batches in a scan, layers in a nested scan: the gradients of a weight that all layers share, and of each layer's
/// weights.
dynamic::program nested(const dynamic::mesh& m, std::int64_t T, std::int64_t D) {
  dynamic::builder b(m);
  const value xs = b.input(f32({8, T, D}, {"", "data", ""}));
  const value w = b.input(f32({D, D}, {"", ""})), ws = b.input(f32({4, D, D}, {"", "", ""}));
  const auto all = scan(
      [&](value state, value x) {
        const auto layers = scan(
            [&](value h, value own) {
              const value next = relu(einsum<"td,df->tf">(relu(einsum<"td,df->tf">(h, own)), w) + einsum<"td,df->tf">(h, w));
              return std::tuple{next, sum(next)};
            },
            x + state, ws);
        return std::tuple{std::get<0>(layers), std::get<0>(layers)};
      },
      zeros_like(reshape(slice(xs, {0, 0, 0}, {1, T, D}), {T, D})), xs);
  const value ys = std::get<1>(all);
  const auto g = grad(mean(ys * ys), std::vector<value>{w, ws});
  b.output(b.reshard(w - 0.1 * g[0], {"", ""}));
  b.output(b.reshard(ws - 0.1 * g[1], {"", "", ""}));
  return b.compile();
}

/// Compares the results of two programs for small numbers.
void check_alike(const dynamic::program& p, const dynamic::program& whole, const std::vector<std::int64_t>& input_elems) {
  std::vector<std::vector<float>> inputs;
  std::vector<const void*> pointers;
  for (const auto count : input_elems) {
    inputs.emplace_back();
    for (std::int64_t i = 0; i < count; ++i)
      inputs.back().push_back(0.125F * static_cast<float>((i * 7 + static_cast<std::int64_t>(inputs.size()) * 5) % 11 - 5));
  }
  for (const auto& v : inputs) pointers.push_back(v.data());
  const auto found = p.run(simulated{}, pointers), expected = whole.run(simulated{}, pointers);
  REQUIRE(found.size() == expected.size());
  for (std::size_t k = 0; k < found.size(); ++k) {
    const auto* a = reinterpret_cast<const float*>(found[k].bytes.data());
    const auto* b = reinterpret_cast<const float*>(expected[k].bytes.data());
    bool alike = true;
    for (std::size_t i = 0; i < found[k].bytes.size() / sizeof(float); ++i)
      alike = alike && std::abs(a[i] - b[i]) <= 1e-4F * (1 + std::abs(b[i]));
    CHECK(alike);
  }
}

}  // namespace

TEST_CASE("products of matrices, viewed with the dims of tokens and heads, are added up before one reduction") {
  constexpr std::int64_t B = 4, T = 2048, D = 4096;
  dynamic::builder b(dynamic::mesh({{"model", 8}}));
  value sum;
  for (int k = 0; k < 3; ++k) {
    const value d = b.input(f32({B, T, 32, D / 32}, {"", "", "model", ""})), w = b.input(f32({D, D}, {"", "model"}));
    const value term = reshape(einsum<"tf,df->td">(reshape(d, {B * T, D}), w), {B, T, D});
    sum = k == 0 ? term : sum + term;
  }
  b.output(b.reshard(sum, {"", "", ""}));
  const auto p = b.compile();
  CHECK(collectives_of(p) == "all_reduce model");
  CHECK(p.traffic().bytes == 2 * 4 * B * T * D * 7 / 8);
}

TEST_CASE("tensor parallel, with products of matrices as with dims of heads: two reductions forward, two backward, or less") {
  for (const auto& s : {small, large})
    for (const bool is_of_matrices : {false, true}) {
      CAPTURE(s.width);
      CAPTURE(is_of_matrices);
      const auto p = layer(dynamic::mesh({{"model", 8}}), s, {"", "", ""}, is_of_matrices);
      CHECK(p.traffic().bytes <= 4 * 2 * 4 * s.batch * s.sequence * s.width * 7 / 8);
    }
}

TEST_CASE("sequence parallel: the tokens are gathered for all heads at once, and a reduction scatters them, or less") {
  for (const auto& s : {small, large})
    for (const auto& [data, model] : {std::pair{1, 8}, {2, 4}})
      for (const bool is_of_matrices : {false, true}) {
        CAPTURE(s.width);
        CAPTURE(data);
        CAPTURE(is_of_matrices);
        const auto p = layer(dynamic::mesh({{"data", data}, {"model", model}}), {s.batch * data, s.sequence, s.width, s.heads},
                             {"data", "model", ""}, is_of_matrices);
        const auto tokens = 4 * s.batch * s.sequence * s.width, weights = 4 * 12 * s.width * s.width;
        const auto closed_form = 8 * tokens * (model - 1) / model + 2 * (weights / model) * (data - 1) / data;
        // A view of batches and tokens that are both split cannot keep the tokens. They are gathered for their users in
        // any case.
        CHECK(p.traffic().bytes <= closed_form);
      }
  const layer_sizes tiny{2, 16, 16, 4};
  const auto sizes = std::vector<std::int64_t>{512, 512, 256, 256, 256, 256, 1024, 1024};
  check_alike(layer(dynamic::mesh({{"data", 2}, {"model", 2}}), tiny, {"data", "model", ""}, false),
              layer(dynamic::mesh({{"data", 1}, {"model", 1}}), tiny, {"data", "model", ""}, false), sizes);
}

TEST_CASE("fully sharded and tensor parallel, 8 by 8: weights are gathered once, their gradients scattered, or less") {
  for (const auto& s : {small, large})
    for (const bool by_sequence : {false, true})
      for (const bool is_of_matrices : {false, true}) {
        CAPTURE(s.width);
        CAPTURE(by_sequence);
        CAPTURE(is_of_matrices);
        const auto p = layer(dynamic::mesh({{"data", 8}, {"model", 8}}), {8 * s.batch, s.sequence, s.width, s.heads},
                             {"data", by_sequence ? "model" : "", ""}, is_of_matrices, "data");
        const auto tokens = 4 * s.batch * s.sequence * s.width, weights = 4 * 12 * s.width * s.width;
        const auto closed_form = 8 * tokens * 7 / 8 + 2 * (weights / 8) * 7 / 8;
        CHECK(p.traffic().bytes <= closed_form);
      }
  const layer_sizes tiny{4, 16, 16, 4};
  for (const char* const along : {"", "model"})
    check_alike(layer(dynamic::mesh({{"data", 2}, {"model", 2}}), tiny, {"data", along, ""}, true, "data"),
                layer(dynamic::mesh({{"data", 1}, {"model", 1}}), tiny, {"data", along, ""}, true, "data"),
                {1024, 1024, 256, 256, 256, 256, 1024, 1024});
}

TEST_CASE("gradients of batches in a loop are added up where they are made, and scattered once") {
  const dynamic::mesh m({{"data", 8}}), replicas({{"replica", 4}, {"data", 8}});
  for (const auto& [T, D] : {std::pair<std::int64_t, std::int64_t>{512, 128}, {8192, 4096}})
    for (const bool is_scaled : {false, true}) {
      CAPTURE(D);
      CAPTURE(is_scaled);
      const auto weights = 4 * 8 * D * D;
      const auto replicated = accumulated(m, T, D, {"", ""}, {"", ""}, "data", is_scaled);
      CHECK(replicated.traffic().bytes == 2 * weights * 7 / 8);
      const auto zero_1 = accumulated(m, T, D, {"", ""}, {"data", ""}, "data", is_scaled);
      CHECK(collectives_of(zero_1) == "reduce_scatter data, reduce_scatter data, all_gather data, all_gather data");
      CHECK(zero_1.traffic().bytes == 2 * weights * 7 / 8);
      const auto fully_sharded = accumulated(m, T, D, {"data", ""}, {"data", ""}, "data", is_scaled);
      CHECK(fully_sharded.traffic().bytes == 2 * weights * 7 / 8);
      const auto hybrid = accumulated(replicas, T, D, {"data", ""}, {"data", ""}, "replica,data", is_scaled);
      CHECK(hybrid.traffic().bytes == 2 * weights * 7 / 8 + 2 * (weights / 8) * 3 / 4);
    }
  for (const auto& state : {names{"", ""}, names{"data", ""}})
    check_alike(accumulated(dynamic::mesh({{"data", 4}}), 8, 8, {"", ""}, state, "data", true),
                accumulated(dynamic::mesh({{"data", 1}}), 8, 8, {"", ""}, state, "data", true), {512, 512, 256, 256, 256, 256});
}

TEST_CASE("where a device may hold less, what a loop adds up is scattered in each trip") {
  const dynamic::mesh m({{"data", 8}});
  const auto plain = accumulated(m, 512, 128, {"", ""}, {"data", ""}, "data", false);
  const auto held = plain.peak_bytes_per_device();
  const auto saving = accumulated(m.with({.memory = held - 1}), 512, 128, {"", ""}, {"data", ""}, "data", false);
  CHECK(saving.peak_bytes_per_device() < held);
  CHECK(saving.traffic().in(collective_kind::reduce_scatter).bytes >= 8 * 4 * 8 * 128 * 128 * 7 / 8 / 2);
}

TEST_CASE("gradients of weights in a scan inside of a scan are reduced once, those of a row too") {
  const dynamic::mesh m({{"data", 8}});
  for (const auto& [T, D] : {std::pair<std::int64_t, std::int64_t>{512, 128}, {8192, 4096}}) {
    const auto p = nested(m, T, D);
    CHECK(collectives_of(p) == "all_reduce data, all_reduce data");
    CHECK(p.traffic().bytes == 2 * 4 * 5 * D * D * 7 / 8);
  }
  check_alike(nested(dynamic::mesh({{"data", 4}}), 8, 4), nested(dynamic::mesh({{"data", 1}}), 8, 4), {256, 16, 64});
}
