// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: plans
// Compares plans with the plans of an expert: the bytes equal the closed form, or are fewer.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/groups.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/index/random.hpp>
#include <gspmd/nn/optimizer/adam.hpp>
#include <gspmd/nn/optimizer/sgd.hpp>
#include <gspmd/nn/optimizer/state_of.hpp>
#include <gspmd/report/memory.hpp>
#include <gspmd/transform/update.hpp>

#include "support/error_of.hpp"
#include "support/golden_plans.hpp"

namespace {

using namespace gspmd;
using caught::error_of;
using golden::collectives_of;
using names = std::vector<std::string>;
dynamic::input_spec f32(std::vector<std::int64_t> shape, names sharding) {
  return dynamic::input<float>(std::move(shape), std::move(sharding));
}

/// The mesh of a training step, and the shardings of tokens and weights: by the batch, by heads and by hidden units. If
/// fully sharded, replicated dims of each weight are split over the batch axis too.
struct parallelism {
  std::int64_t data, model;
  bool is_fully_sharded;
};
struct gpt_sizes {
  std::int64_t batch, sequence, width;
};

value normalised(value x) {
  const auto wide = [&](value v) { return broadcast_in_dim(v, x.shape(), {0, 1}); };
  const value centred = x - wide(mean(x, 2));
  return centred * wide(rsqrt(mean(centred * centred, 2) + 1e-5));
}

/// Two Transformer blocks with their loss, gradients and update.
dynamic::program gpt(const parallelism& p, const gpt_sizes& s) {
  const auto [B, S, M] = s;
  const std::int64_t N = 4, D = M / N, F = 4 * M;
  dynamic::builder b(dynamic::mesh({{"data", p.data}, {"model", p.model}}));
  const std::string data = "data", model = "model", rest = p.is_fully_sharded ? "data" : "";
  std::vector<value> weights;
  const auto weight = [&](std::vector<std::int64_t> shape, names sharding) {
    weights.push_back(b.input(f32(std::move(shape), std::move(sharding))));
    return weights.back();
  };
  const value x = b.input(f32({B, S, M}, {data, "", ""})), target = b.input(f32({B, S, M}, {data, "", ""}));
  value y = x * weight({M}, {""});
  for (int layer = 0; layer < 2; ++layer) {
    const value in = normalised(y) * weight({M}, {""});
    value heads[3];
    for (auto& h : heads) h = einsum<"bsm,mnd->bsnd">(in, weight({M, N, D}, {rest, model, ""}));
    const value mixed = einsum<"bnst,btnd->bsnd">(softmax(einsum<"bsnd,btnd->bnst">(heads[0], heads[1]), 3), heads[2]);
    y = y + einsum<"bsnd,ndm->bsm">(mixed, weight({N, D, M}, {model, "", rest}));
    const value hidden = relu(einsum<"bsm,mf->bsf">(normalised(y) * weight({M}, {""}), weight({M, F}, {rest, model})));
    y = y + einsum<"bsf,fm->bsm">(hidden, weight({F, M}, {model, rest}));
  }
  const value difference = y - target;
  const auto gradients = grad(mean(difference * difference), weights);
  for (std::size_t k = 0; k < weights.size(); ++k) b.output(weights[k] - 0.1 * gradients[k]);
  return b.compile();
}

/// The textbook's bytes. Tensor parallelism: all_reduce of the activations after both halves of a block, forward and
/// backward. Data parallelism: all_reduce of each gradient. Fully sharded: all_gather of each weight and reduce_scatter
/// of its gradient, which are the same bytes.
std::int64_t textbook(const parallelism& p, const gpt_sizes& s) {
  const auto activations = 4 * s.batch * s.sequence * s.width / p.data, weights = 4 * 12 * s.width * s.width / p.model;
  return 2 * (4 * 2 * activations * (p.model - 1) / p.model + 2 * weights * (p.data - 1) / p.data);
}

}  // namespace

TEST_CASE("a training step of two blocks of GPT sends no more than Megatron's, data parallel and fully sharded ones") {
  const gpt_sizes megatron{4, 128, 256};
  const auto by_heads = gpt({1, 2, false}, megatron);
  CHECK(by_heads.traffic().in(collective_kind::all_reduce).collectives == 8);
  CHECK(by_heads.traffic().collectives == 8);  // no weight is gathered
  CHECK(by_heads.traffic().bytes == 4'194'304);

  const auto by_batch = gpt({4, 1, false}, megatron), sharded = gpt({4, 1, true}, {16, 128, 256});
  CHECK(by_batch.traffic().in(collective_kind::all_reduce).collectives == by_batch.traffic().collectives);
  CHECK(sharded.traffic().in(collective_kind::all_gather).collectives == 12);
  CHECK(sharded.traffic().in(collective_kind::reduce_scatter).collectives == 12);

  for (const gpt_sizes& s : {megatron, gpt_sizes{8, 64, 128}, gpt_sizes{8, 256, 512}})
    for (const parallelism& p :
         {parallelism{1, 2, false}, {1, 4, false}, {4, 1, false}, {4, 1, true}, {2, 2, false}, {2, 2, true}}) {
      CAPTURE(s.width);
      CAPTURE(p.data);
      CAPTURE(p.model);
      CAPTURE(p.is_fully_sharded);
      const auto gains = p.data * p.model * 5 * 2 * 4 * s.width;  // at most the bytes of the gradients of the layers' gains
      CHECK(gpt(p, s).traffic().bytes <= textbook(p, s) + gains);
    }
}

TEST_CASE("three gradients of one input are added up before one all_reduce, whatever each would take alone") {
  dynamic::builder b(dynamic::mesh({{"x", 4}}));
  const std::int64_t T = 2048, M = 256;
  value sum;
  for (int k = 0; k < 3; ++k) {
    const value term = einsum<"tf,df->td">(b.input(f32({T, M}, {"", "x"})), b.input(f32({M, M}, {"", "x"})));
    sum = k == 0 ? term : sum + term;
  }
  b.output(b.reshard(sum, {"", ""}));
  const auto p = b.compile();
  CHECK(collectives_of(p) == "all_reduce x");
  CHECK(p.traffic().bytes == 2 * T * M * 4 * 3 / 4);
}

TEST_CASE("GPipe on stage = 4, data = 2: the gradient is reduced once, after all ticks") {
  constexpr std::int64_t stages = 4, batches = 8, batch = 64, width = 256;
  dynamic::builder b(dynamic::mesh({{"stage", stages}, {"data", 2}}));
  const value x = b.input(f32({batches, batch, width}, {"", "data", ""}));
  const value w = b.input(f32({stages, width, width}, {"stage", "", ""}));
  const value empty = zeros_like(broadcast_in_dim(slice(x, {0, 0, 0}, {1, batch, width}), {stages, batch, width}, {0, 1, 2}));
  const auto [last, results] = scan(
      [&](value state, value in) {
        const value first = pad(reshape(in, {1, batch, width}), {0, 0, 0}, {stages - 1, 0, 0});
        const value out = relu(einsum<"pbd,pdf->pbf">(shift(state, -1, gspmd::along(0)) + first, w));
        return std::tuple{out, reshape(slice(out, {stages - 1, 0, 0}, {stages, batch, width}), {batch, width})};
      },
      empty, pad(x, {0, 0, 0}, {stages - 1, 0, 0}));
  b.output(w - 0.1 * grad(mean(results * results), w));
  const auto p = b.compile();
  CHECK(p.traffic().over("data").bytes == width * width * 4);
  CHECK(p.traffic().over("data").collectives == 1);
}

TEST_CASE("an FFT in three dims by local operators trades one split for another, twice") {
  const auto along_x = local_op<"[x]yz->[x]yz">([](auto x, auto y) {
    for (std::int64_t a = 0; a < x.extent(0); ++a)
      for (std::int64_t b = 0; b < x.extent(1); ++b)
        for (std::int64_t c = 0; c < x.extent(2); ++c) y(a, b, c) = a == 0 ? x(a, b, c) : y(a - 1, b, c) + x(a, b, c);
  });
  for (const bool is_slab : {false, true}) {
    CAPTURE(is_slab);
    dynamic::builder b(dynamic::mesh({{"x", 2}, {"y", 4}}));
    const value field = b.input(f32({64, 64, 64}, {"x", is_slab ? "" : "y", ""}));
    const auto along = [&](value v, int dim) {  // the transform along the first dim, for each dim in sequence
      const std::vector<std::int64_t> turned = dim == 0   ? std::vector<std::int64_t>{0, 1, 2}
                                               : dim == 1 ? std::vector<std::int64_t>{1, 0, 2}
                                                          : std::vector<std::int64_t>{2, 1, 0};
      return transpose(along_x(transpose(v, turned)), turned);
    };
    b.output(along(along(along(field, 2), 1), 0));
    const auto p = b.compile();
    CHECK(p.traffic().collectives == (is_slab ? 1 : 2));
    CHECK(p.traffic().in(collective_kind::all_to_all).collectives == p.traffic().collectives);
    const std::int64_t shard = 4 * 64 * 64 * 64 / (is_slab ? 2 : 8);
    CHECK(p.traffic().bytes == (is_slab ? shard / 2 : shard * 3 / 4 + shard / 2));
  }
}

TEST_CASE("what a loop carries lies in it as its body wants it, and as the user wants it before and after") {
  const auto along_x = local_op<"[x]y->[x]y">([](auto x, auto y) {
    for (std::int64_t a = 0; a < x.extent(0); ++a)
      for (std::int64_t b = 0; b < x.extent(1); ++b) y(a, b) = a == 0 ? x(a, b) : y(a - 1, b) + x(a, b);
  });
  const auto sweeps = [&](const dynamic::mesh& m) {
    dynamic::builder b(m);
    const value field = b.input(f32({512, 256}, {"x", ""}));
    const value swept = fori_loop(
        40, [&](value, value h) { return 0.001 * along_x(h) + h * 0.5; }, field);
    b.output(b.reshard(swept, {"x", ""}));
    return b.compile();
  };
  const dynamic::mesh mesh({{"x", 4}});
  const auto plain = sweeps(mesh);  // gathers once and repeats the loop
  CHECK(plain.traffic().bytes == 512 * 256 * 4 * 3 / 4);
  const auto p = sweeps(mesh.with({.search = true}));
  CHECK(collectives_of(p) == "all_to_all x, all_to_all x");  // before and after the loop, not in each iteration
  CHECK(p.traffic().bytes == 2 * 512 * 256 * 4 / 4 * 3 / 4);
  CHECK(p.flops_per_device() <= 4 * 40 * 512 * 256 / 4);
  std::vector<float> field(512 * 256);
  for (std::size_t i = 0; i < field.size(); ++i) field[i] = static_cast<float>(i % 13) - 6;
  const auto whole = sweeps(dynamic::mesh({{"x", 1}})).run(simulated{}, {field.data()});
  CHECK(p.run(simulated{}, {field.data()})[0].bytes == whole[0].bytes);
}

TEST_CASE("what a conditional gives, and what a loop carries first, lies as those want it who read it") {
  const auto down = local_op<"[x]y->[x]y">([](auto x, auto y) {
    for (std::int64_t a = 0; a < x.extent(0); ++a)
      for (std::int64_t b = 0; b < x.extent(1); ++b) y(a, b) = a == 0 ? x(a, b) : y(a - 1, b) + x(a, b);
  });
  const std::int64_t shard = 1024 * 256 * 4 / 4, exchange = shard * 3 / 4;
  std::vector<float> field(1024 * 256), weights(1024 * 64);
  for (std::size_t i = 0; i < field.size(); ++i) field[i] = static_cast<float>(i % 13) - 6;
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 7) - 3;

  const auto either = [&](const dynamic::mesh& m) {
    dynamic::builder b(m);
    const value x = b.input(f32({1024, 256}, {"x", ""})), first = b.input(f32({8}, {""}));
    const value y = cond(
        sum(first) > 0.0, [&](value v) { return down(v); }, [](value v) { return 0.5 * v; }, x);
    b.output(b.reshard(down(y) * 2.0, {"x", ""}));
    return b.compile();
  };
  const dynamic::mesh mesh({{"x", 4}});
  CHECK(either(mesh).traffic().bytes == 4 * exchange);  // gathered, and computed by all devices
  const auto p = either(mesh.with({.search = true}));
  CHECK(p.traffic().bytes == 2 * exchange);  // in the body that runs, and at the end: the result is never split by rows
  const auto whole = either(dynamic::mesh({{"x", 1}}));
  for (const float sign : {1.0F, -1.0F}) {
    const std::vector<float> first(8, sign);
    CHECK(p.run(simulated{}, {field.data(), first.data()})[0].bytes ==
          whole.run(simulated{}, {field.data(), first.data()})[0].bytes);
  }

  const auto sweeps = [&](const dynamic::mesh& m) {
    dynamic::builder b(m);
    const value w = b.input(f32({1024, 64}, {"", ""})), x = b.input(f32({64, 256}, {"", "x"}));
    const value swept = fori_loop(
        4, [&](value, value h) { return 0.001 * down(h) + h * 0.5; }, einsum<"ab,bc->ac">(w, x));
    b.output(b.reshard(swept, {"x", ""}));
    return b.compile();
  };
  CHECK(sweeps(mesh).traffic().bytes == exchange);  // all shardings follow the last operand of each operator
  const auto q = sweeps(mesh.with({.search = true}));
  CHECK(collectives_of(q) == "all_to_all x");  // after the loop
  CHECK(q.traffic().bytes == exchange);
  const auto on_one = sweeps(dynamic::mesh({{"x", 1}})).run(simulated{}, {weights.data(), field.data()});
  CHECK(q.run(simulated{}, {weights.data(), field.data()})[0].bytes == on_one[0].bytes);
}

TEST_CASE("each device draws its part of random numbers, and computes with it") {
  dynamic::builder b(dynamic::mesh({{"x", 2}, {"y", 2}}).with({.search = true}));
  const value key = b.input(dynamic::input<std::uint64_t>({}));
  const std::vector<std::int64_t> shape{1 << 22};
  const value u = random::uniform<float>(random::fold_in(key, 1), shape),
              v = random::uniform<float>(random::fold_in(key, 2), shape);
  b.output(mean(where(u * u + v * v < 1.0, zeros_like(u) + 1.0, 0.0)));
  const auto p = b.compile();
  CHECK(collectives_of(p) == "all_reduce x,y");
  CHECK(p.traffic().bytes <= 8);
  for (const auto& drawn : p.view().values)
    if (drawn.global.count == 1) CHECK(drawn.local[0] == (1 << 20));

  dynamic::builder with_product(dynamic::mesh({{"x", 4}}));
  const value x = with_product.input(f32({1024, 1024}, {"", ""}));
  const value w = random::normal<float>(random::key(x, 5), {1024, 1024});
  with_product.output(sum(einsum<"ab,bc->ac">(x, w)));
  const auto q = with_product.compile();
  CHECK(q.traffic().bytes <= 8);
  CHECK(q.flops_per_device() < 600'000'000);  // of 2.2e9
}

namespace {
/// Layers whose weights are split over the batch axis, with their gradients and update.
dynamic::builder layers_of(const dynamic::mesh& m, bool is_annotated, int layers = 6) {
  constexpr std::int64_t batch = 4096, width = 128;
  dynamic::builder b(m);
  value y = b.input(f32({batch, width}, {"data", ""}));
  std::vector<value> weights;
  for (int layer = 0; layer < layers; ++layer) {
    weights.push_back(b.input(is_annotated ? f32({width, width}, {"data", ""}) : dynamic::input<float>({width, width})));
    y = relu(einsum<"bd,df->bf">(y, weights.back()));
  }
  const auto gradients = grad(mean(y * y), weights);
  for (std::size_t k = 0; k < weights.size(); ++k) b.output(weights[k] - 0.1 * gradients[k]);
  return b;
}
dynamic::program layers_on(const dynamic::mesh& m, bool is_annotated = true) { return layers_of(m, is_annotated).compile(); }
}  // namespace

TEST_CASE("a plan within a device's memory gathers weights twice and keeps none") {
  const dynamic::mesh m({{"data", 4}});
  const auto plain = layers_on(m);
  const auto gathered = plain.traffic().in(collective_kind::all_gather);
  CHECK(gathered.collectives == 6);  // each has 64 KiB, so they are not joined
  CHECK(gathered.bytes == 6 * 3 * 16384);
  const auto held = plain.peak_bytes_per_device();
  CHECK(layers_on(m.with({.memory = held})).peak_bytes_per_device() == held);
  const auto one_byte = layers_on(m.with({.memory = held - 1}));
  CHECK(one_byte.peak_bytes_per_device() < held);
  CHECK(one_byte.traffic().in(collective_kind::all_gather).collectives == 6 + 1);
  const auto refused = error_of([&] { layers_on(m.with({.memory = 1 << 20})); });
  const auto saving =
      layers_on(m.with({.memory = std::stoll(refused.substr(refused.find("holds ") + 6))}));  // the smallest possible peak
  CHECK(saving.traffic().in(collective_kind::all_gather).collectives == 6 + 5);  // the first layer's input has no gradient
  CHECK(saving.traffic().in(collective_kind::reduce_scatter).collectives == 6);
  CHECK(refused.find("are allowed: split more of the inputs, or use more devices") != std::string::npos);
  CHECK(error_of([&] { static_cast<void>(m.with({.memory = 0})); }) ==
        "gspmd: options: memory is 0; write a positive number, or leave it out");
}

TEST_CASE("a plan within a device's memory keeps weights split that nobody annotated, and says the least that it could hold") {
  const dynamic::mesh m({{"data", 4}});
  const auto plain = layers_on(m, false);
  const auto held = plain.peak_bytes_per_device();
  CHECK(plain.input(1).local_shape() == std::vector<std::int64_t>{128, 128});  // no other sharding is annotated
  CHECK(plain.traffic().in(collective_kind::all_gather).bytes == 0);
  const auto limit = held - 6 * 2 * 3 * 16384;  // without three quarters of each of six weights, old and new
  const auto saving = layers_on(m.with({.memory = limit}), false);
  CHECK(saving.peak_bytes_per_device() <= limit);
  for (std::size_t k = 1; k <= 6; ++k) {
    const auto shape = saving.input(k).local_shape();
    CHECK(shape[0] * shape[1] == 128 * 128 / 4);
    CHECK(saving.output(k - 1).local_shape() == shape);
  }
  // Each weight is gathered before each use, forward and backward, and not held.
  CHECK(saving.traffic().in(collective_kind::all_gather).bytes == (6 + 5) * 3 * 16384);
  CHECK(saving.traffic().in(collective_kind::reduce_scatter).bytes == 6 * 3 * 16384);

  const auto text = error_of([&] { layers_on(m.with({.memory = 1 << 20}), false); });
  CHECK_MESSAGE(text.find("1048576 are allowed") != std::string::npos, text);
  const auto least = std::stoll(text.substr(text.find("holds ") + 6));
  CHECK(least < saving.peak_bytes_per_device() + 1);
  CHECK(layers_on(m.with({.memory = least}), false).peak_bytes_per_device() <= least);
}

TEST_CASE("a plan within a device's memory gives up no more than it must") {
  const dynamic::mesh m({{"data", 4}});
  for (const bool is_annotated : {true, false}) {
    const auto plain = layers_on(m, is_annotated);
    const auto held = plain.peak_bytes_per_device();
    const auto all =
        layers_on(m.with({.memory = held - (is_annotated ? 5 : 11) * 49152}), is_annotated);  // the most that it can save
    std::int64_t before = plain.traffic().bytes;
    int split = 0;
    for (const std::int64_t k : {1, 2, 3, 4}) {
      const auto limit = held - k * 49152;  // three quarters of a weight
      const auto some = layers_on(m.with({.memory = limit}), is_annotated);
      CHECK(some.peak_bytes_per_device() <= limit);
      CHECK(some.peak_bytes_per_device() > limit - 3 * 49152);
      CHECK(some.traffic().bytes >= before);
      CHECK(some.traffic().bytes < all.traffic().bytes);
      before = some.traffic().bytes;
      int now = 0;
      for (std::size_t w = 1; w <= 6; ++w) now += some.input(w).local_shape()[0] == 128 ? 0 : 1;
      CHECK((is_annotated || (now >= split && now < 6)));
      split = now;
    }
  }
}

namespace {
bool has(const std::string& text, std::string_view part) {
  if (text.find(part) == std::string::npos) MESSAGE("not `", part, "` but: ", text);
  return text.find(part) != std::string::npos;
}
}  // namespace

TEST_CASE("of many weights one is split where that is enough") {
  const dynamic::mesh m({{"data", 4}});
  const auto held = layers_of(m, false, 40).compile().peak_bytes_per_device();
  for (const int enough : {1, 2}) {
    const auto p = layers_of(m.with({.memory = held - (enough - 1) * 2 * 49152 - 1}), false, 40).compile();  // old and new
    int split = 0;
    for (std::size_t w = 1; w <= 40; ++w) split += p.input(w).local_shape()[0] == 128 ? 0 : 1;
    CHECK(split == enough);
  }
}

TEST_CASE("what a limit of memory cost is told") {
  const auto told = [](bool is_annotated, std::int64_t below) {
    const dynamic::mesh m({{"data", 4}});
    const auto held = layers_on(m, is_annotated).peak_bytes_per_device();
    const auto communication =
        network(1e12, 31.25e9, 0).with_memory(1e15);  // the update of split weights takes less time, which would outweigh
                                                      // the communication
    return explain_memory(dynamic::inspection(layers_of(below < 0 ? m : m.with({.memory = held - below}), is_annotated)),
                          communication);
  };
  CHECK(told(true, -1) == "no limit of memory is given: write options{.memory = bytes}\n");
  CHECK(has(told(true, 0), ", as without a limit\n"));
  const auto split = told(false, 3 * 49152);
  CHECK(has(split, " fewer than without a limit, for "));
  CHECK(has(split, " a byte\n"));
  CHECK(has(split, "inputs that are split, 2 of 6:\n  input 1: "));
  CHECK(has(told(true, 49152), "inputs that are gathered again where they are gathered, "));
}

namespace {
template <class T>
struct affine {
  T weight, bias;
};

/// A step of Adam on layers with biases: x, weights, moments, counter -> weights, moments, counter. No sharding is
/// annotated. If `is_first_written`, the first weight is annotated as replicated.
dynamic::builder adam_step(const dynamic::mesh& m, std::int64_t width, bool is_first_written = false) {
  constexpr int layers = 3;
  constexpr std::int64_t batch = 240;
  dynamic::builder b(m);
  const value x = b.input(f32({batch, width}, {"data", ""}));
  std::vector<affine<value>> w;
  for (int k = 0; k < layers; ++k) {
    const bool is_written = k == 0 && is_first_written;
    const value weight = b.input(is_written ? f32({width, width}, {"", ""}) : dynamic::input<float>({width, width}));
    w.push_back({weight, b.input(dynamic::input<float>({width}))});
  }
  constexpr optimizer::adam opt{.rate = 0.01};
  const auto state = optimizer::state_inputs(b, opt, w);
  value y = x;
  for (const auto& [weight, bias] : w) y = tanh(einsum<"bd,df->bf">(y, weight) + bias);
  dynamic::outputs(b, opt.update(w, grad(mean(y * y), w), state));
  return b;
}
/// Returns the states after some steps.
std::vector<std::vector<float>> after_steps(const dynamic::program& p, int steps) {
  std::vector<std::vector<float>> held;
  for (std::size_t k = 0; k < p.input_count(); ++k) {
    std::size_t count = 1;
    for (const auto e : p.input(k).global_shape()) count *= static_cast<std::size_t>(e);
    held.emplace_back(count);  // moments and the counter begin with 0
    for (std::size_t i = 0; i < count && k < 7; ++i) held[k][i] = 0.3F * static_cast<float>((i * 37 + k * 11) % 19) / 19 - 0.1F;
  }
  for (int t = 0; t < steps; ++t) {
    std::vector<const void*> given;
    for (const auto& h : held) given.push_back(h.data());
    std::size_t k = 1;
    for (const auto& result : p.run(simulated{}, given)) {
      std::memcpy(held[k].data(), result.bytes.data(), result.bytes.size());
      ++k;
    }
  }
  return held;
}
std::int64_t bytes_held(const dynamic::program& p, std::size_t input) {
  std::int64_t elems = 1;
  for (const auto e : p.input(input).local_shape()) elems *= e;
  return 4 * elems;
}
}  // namespace

TEST_CASE("states of a step give way to a limit of memory, moments first, and lie after the step as before it") {
  for (const auto& m : {dynamic::mesh({{"data", 4}}), dynamic::mesh({{"data", 2}, {"one", 1}, {"model", 3}})})
    for (const std::int64_t width : {48, 47}) {
      CAPTURE(width);
      const auto plain = adam_step(m, width).compile();
      const auto held = plain.peak_bytes_per_device(), matrix = width * width * 4;
      const auto expected = after_steps(adam_step(dynamic::mesh({{"data", 1}}), width).compile(), 3);
      for (const std::int64_t most : {held - 1, held - 5 * matrix, held - 8 * matrix, held / 5 * 3}) {
        const auto p = adam_step(m.with({.memory = most}), width).compile();
        CHECK(p.peak_bytes_per_device() <= most);
        int split_weights = 0, split_moments = 0;
        for (std::size_t k = 1; k < p.input_count(); ++k) {
          CHECK(p.output(k - 1).sharding() == p.input(k).sharding());
          const bool is_split = bytes_held(p, k) < bytes_held(plain, k);
          (k < 7 ? split_weights : split_moments) += is_split && p.input(k).rank() == 2 ? 1 : 0;
        }
        CHECK((split_weights == 0 || split_moments == 6));
        CHECK(split_moments > 0);
        CHECK((split_weights > 0 || m.device_count() > 4 ||
               p.traffic().bytes <= plain.traffic().bytes / 20 * 21));  // scattered, and the new weight gathered, with padding
        const auto found = after_steps(p, 3);
        double worst = 0;
        for (std::size_t k = 1; k + 1 < found.size(); ++k)
          for (std::size_t i = 0; i < found[k].size(); ++i)
            worst = std::max(worst, std::abs(static_cast<double>(found[k][i]) - static_cast<double>(expected[k][i])));
        CHECK(worst < 2e-5);
      }
      const auto written = adam_step(m.with({.memory = held / 4 * 3}), width, true).compile();
      CHECK(bytes_held(written, 1) == matrix);  // annotated by its user, unlike all other weights
      CHECK(bytes_held(written, 9) < matrix);
    }
}

TEST_CASE("each thing that is given up for a limit of memory has a line with its bytes and its time, and states are called so") {
  const dynamic::mesh m({{"data", 2}, {"one", 1}, {"model", 3}});
  const auto plain = adam_step(m, 48).compile();
  const auto held = plain.peak_bytes_per_device();
  const auto number = [](const std::string& text, const char* behind) {
    return std::stoll(text.substr(text.find(behind) + std::strlen(behind)));
  };
  int states = 0, lines = 0;
  for (const std::int64_t percent : {99, 80, 60, 45}) {
    const auto text = explain_memory(dynamic::inspection(adam_step(m.with({.memory = held / 100 * percent}), 48)));
    CAPTURE(text);
    std::int64_t sum = 0;
    for (auto at = text.find('\n') + 1; at < text.size(); at = text.find('\n', at) + 1) {
      const auto line = text.substr(at, text.find('\n', at) - at);
      const auto colon = line.rfind(": ");
      if (colon == std::string::npos) continue;  // a heading
      ++lines;
      if (line.find(" bytes more by itself") != std::string::npos) sum -= number(line.substr(colon), ": ");
      else if (line.find("no bytes by itself") == std::string::npos) sum += number(line.substr(colon), ": ");
      if (line.find("a state: its next value is output ") == std::string::npos) continue;
      ++states;
      CHECK(number(line, "input ") == number(line, "is output ") + 1);
    }
    CHECK(sum == held - number(text, "it holds "));
    CHECK((percent != 80 ||
           has(text,
               "\ninputs that are split, 4 of 18:\n  input 7, a state: its next value is output 6: 15360 bytes for no time\n")));
  }
  CHECK(states == 2 + 4 + 8 + 8);
  CHECK(lines == 2 + 4 + 9 + 9 + 2);
}

TEST_CASE("of states that are split along several dims no more are than a limit of memory takes") {
  const auto step = [](const dynamic::mesh& m) {
    dynamic::builder b(m);
    value y = b.input(f32({240, 48}, {"data", ""}));
    std::vector<value> w;
    for (int k = 0; k < 3; ++k) w.push_back(b.input(dynamic::input<float>({48, 48})));
    constexpr optimizer::momentum opt{.rate = 0.01};
    const auto state = optimizer::state_inputs(b, opt, w);
    for (const auto& weight : w) y = tanh(einsum<"bd,df->bf">(y, weight));
    dynamic::outputs(b, opt.update(w, grad(mean(y * y), w), state));
    return b.compile();
  };
  const dynamic::mesh m({{"data", 2}, {"one", 1}, {"model", 3}});
  const auto held = step(m).peak_bytes_per_device();
  const auto some = step(m.with({.memory = held / 10 * 6})), all = step(m.with({.memory = held / 2}));
  CHECK(some.peak_bytes_per_device() <= held / 10 * 6);
  CHECK(all.peak_bytes_per_device() <= held / 2);
  CHECK(some.traffic().bytes == 55296);
  CHECK(all.traffic().bytes == 49152);
}

namespace compiled_with_momentum {

constexpr auto train = [](value w, value v, value x) {
  const value y = einsum<"bd,df->bf">(x, w), next = update(v, 0.9 * v + grad(sum(y * y), w));
  return std::tuple(update(w, w - 0.1 * next), next);
};
using pod = mesh<axis<"data", 4>>;
template <options Options = options{}>
using step_with = compile<train, pod, with<Options>, input<float, shape<32, 32>>, input<float, shape<32, 32>>,
                          input<float, shape<512, 32>, split<"data", _>>>;
constexpr std::int64_t limit = step_with<>::peak_bytes_per_device - 3 * 32 * 32;  // three quarters of a state less
using step = step_with<options{.memory = limit}>;
static_assert(step::peak_bytes_per_device <= limit && step::traffic.bytes == step_with<>::traffic.bytes);

}  // namespace compiled_with_momentum

TEST_CASE("states give way when compiling as they do at run time") {
  using namespace compiled_with_momentum;
  const auto p = dynamic::compile(train, dynamic::mesh({{"data", 4}}).with({.memory = limit}), dynamic::input<float>({32, 32}),
                                  dynamic::input<float>({32, 32}), f32({512, 32}, {"data", ""}));
  CHECK(p.peak_bytes_per_device() == step::peak_bytes_per_device);
  CHECK(p.traffic().bytes == step::traffic.bytes);
  CHECK(p.input(0).sharding() == names{"", ""});
  CHECK(p.input(1).sharding() == names{"data", ""});
  CHECK(p.output(1).sharding() == names{"data", ""});
}

TEST_CASE("a plan within a device's memory takes an operand in parts") {
  const auto product = [](const dynamic::mesh& m) {
    dynamic::builder b(m);
    const value x = b.input(f32({4096, 1024}, {"x", ""})), w = b.input(f32({1024, 1024}, {"", "x"}));
    b.output(b.reshard(einsum<"bd,df->bf">(x, w), {"x", ""}));
    return b.compile();
  };
  const dynamic::mesh m({{"x", 4}});
  const auto held = product(m).peak_bytes_per_device();
  const auto saving = product(m.with({.memory = held - 1}));
  CHECK(saving.peak_bytes_per_device() <= held - MiB);  // three parts of the weight instead of the whole weight of 4 MiB
  CHECK(saving.traffic().bytes == product(m).traffic().bytes);
}
