// SPDX-License-Identifier: Apache-2.0
// labels: threads
// group: dynamic
// Next values of inputs, and updates of weights that are split over the axes that replicate them (Xu et al. 2020).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/groups.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/nn/optimizer.hpp>
#include <gspmd/nn/optimizer/master_weights.hpp>
#include <gspmd/nn/optimizer/reformatted.hpp>
#include <gspmd/plan/network.hpp>
#include <gspmd/transform/weight_update.hpp>

#include "support/error_of.hpp"
#include "support/golden_plans.hpp"

namespace {

using namespace gspmd;
using caught::contains;
using caught::error_of;
using sizes = std::vector<std::int64_t>;
using splits = std::vector<std::string>;

template <class T>
struct mlp {
  T w1, b1, w2;
};
/// One attention head and two layers, on the rows of an example.
template <class T>
struct block {
  T q, k, v, up, down;
};
value loss_of(const mlp<value>& w, value x) {
  const value y = einsum("bi,io->bo", tanh(einsum("bi,io->bo", x, w.w1) + w.b1), w.w2);
  return mean(y * y);
}
value loss_of(const block<value>& w, value x) {
  const value scores = einsum("bqd,bkd->bqk", einsum("bsd,de->bse", x, w.q), einsum("bsd,de->bse", x, w.k));
  const value read = x + einsum("bqk,bkd->bqd", softmax(scores, 2), einsum("bsd,de->bse", x, w.v));
  const value y = read + einsum("bsf,fd->bsd", tanh(einsum("bsd,df->bsf", read, w.up)), w.down);
  return mean(y * y);
}

/// A convolution of 3 x 3 with one output position, and biases of the rows of a matrix.
template <class T>
struct conv {
  T kernel, bias, out;
};
value loss_of(const conv<value>& w, value x) {
  const value y = einsum("bo,oc->bc", tanh(einsum("bhwi,hwio->bo", x, w.kernel) + w.bias), w.out);
  return mean(y * y);
}

struct model {
  mlp<dynamic::input_spec> of_mlp(bool is_annotated = true) const {
    const auto in = [&](sizes s) {
      const splits whole(s.size());
      return is_annotated ? dynamic::input<double>(std::move(s), whole) : dynamic::input<double>(std::move(s));
    };
    return {in({inner, outer}), in({outer}), in({outer, 3})};
  }
  std::int64_t inner = 7, outer = 6, examples = 64;
};
block<dynamic::input_spec> block_inputs(const std::string& axis) {
  const auto square = dynamic::input<double>({6, 6}, {"", axis});
  return {square, square, square, dynamic::input<double>({6, 10}, {"", axis}), dynamic::input<double>({10, 6}, {axis, ""})};
}

enum class way { plain, by_parts, by_hand };

/// A training step. With by_hand, moments are inputs that are split along their first dim, and completion does the rest
/// (ZeRO-1).
template <class Optimizer, class Inputs>
dynamic::program step_of(const dynamic::mesh& m, const Optimizer& opt, const Inputs& inputs, const dynamic::input_spec& batch,
                         way how, double clip = 0) {
  dynamic::builder b(m);
  const auto w = dynamic::inputs(b, inputs);
  auto state = optimizer::state_inputs(b, opt, w);
  if (how == way::by_hand)
    detail::for_each_leaf(state, [&](value v) {
      if (v.rank() == 0) return;
      splits along(static_cast<std::size_t>(v.rank()));
      along[0] = "data";
      b.annotate(v, along);
    });
  const value x = b.input(batch);
  const value loss = loss_of(w, x);
  auto g = grad(loss, w);
  if (clip > 0) g = optimizer::clip_by_global_norm(g, clip);
  dynamic::outputs(b, opt.update(w, g, state));
  b.output(loss);
  if (how == way::by_parts) shard_weight_update(b, {"data"});
  return b.compile();
}

using tensors = std::vector<std::vector<double>>;

/// Returns parameters and state after some steps, all as doubles. The last output is the loss.
tensors train(const dynamic::program& step, const auto& backend, std::size_t weights, int steps = 4) {
  const auto count = step.output_count() - 1;
  std::vector<dynamic::any_array> held;
  const auto filled = [](const dynamic::placed_tensor& t, std::size_t seed, bool is_zero) {
    dynamic::any_array a{t.type(), t.global_shape(), {}};
    std::size_t elems = 1;
    for (const auto e : a.shape) elems *= static_cast<std::size_t>(e);
    a.bytes.resize(elems * static_cast<std::size_t>(detail::bytes_of(a.type)));
    auto* const to = reinterpret_cast<double*>(a.bytes.data());
    for (std::size_t i = 0; i < elems && !is_zero; ++i)
      to[i] = static_cast<double>(static_cast<int>((7 * i + 3 * seed) % 13) - 6) / 16;
    return a;
  };
  for (std::size_t k = 0; k < count; ++k) held.push_back(filled(step.input(k), k, k >= weights));
  for (int n = 0; n < steps; ++n) {
    const auto batch = filled(step.input(count), 5 + static_cast<std::size_t>(n), false);
    std::vector<const void*> in;
    for (const auto& h : held) in.push_back(h.bytes.data());
    in.push_back(batch.bytes.data());
    auto out = step.run(backend, in);
    out.pop_back();
    held = std::move(out);
  }
  tensors result;
  for (const auto& h : held)
    if (h.type == dtype::f64) {
      const auto* const from = reinterpret_cast<const double*>(h.bytes.data());
      result.emplace_back(from, from + h.bytes.size() / sizeof(double));
    }
  return result;
}
double difference(const tensors& a, const tensors& b) {
  double worst = a.size() == b.size() ? 0 : 1;
  for (std::size_t k = 0; k < a.size() && k < b.size(); ++k)
    for (std::size_t i = 0; i < a[k].size(); ++i) worst = std::max(worst, std::abs(a[k][i] - b[k].at(i)));
  return worst;
}

/// Checks that updates by parts equal the steps of one device, and that carried values keep their shardings.
template <class Optimizer, class Inputs>
void check_numbers(const Optimizer& opt, const Inputs& inputs, const dynamic::input_spec& batch, const dynamic::mesh& m,
                   double clip = 0) {
  const auto alone = step_of(m.with_one_device(), opt, inputs, batch, way::plain, clip);
  const auto parts = step_of(m, opt, inputs, batch, way::by_parts, clip);
  for (std::size_t k = 0; k + 1 < parts.output_count(); ++k) CHECK(parts.output(k).sharding() == parts.input(k).sharding());
  CHECK(parts.traffic().in(collective_kind::reduce_scatter).bytes > 0);
  CHECK(parts.traffic().in(collective_kind::all_gather).bytes > 0);
  constexpr auto weights = detail::leaf_count<Inputs>();
  const auto expected = train(alone, simulated{}, weights);
  CHECK(difference(train(parts, simulated{}, weights), expected) < 1e-12);
  CHECK(difference(train(parts, threads{}, weights), expected) < 1e-12);
}

std::string mistake_of(auto build) {
  return error_of([&] {
    dynamic::builder b(dynamic::mesh({{"data", 2}}));
    build(b);
    static_cast<void>(b.compile());
  });
}

}  // namespace

TEST_CASE("updates by parts: the numbers of one device, for optimizers with and without norms, even and uneven") {
  const dynamic::mesh four({{"data", 4}});
  for (const std::int64_t inner : {7, 8}) {
    const model m{inner};
    const auto batch = dynamic::input<double>({m.examples, inner}, {"data", ""});
    check_numbers(optimizer::momentum{.rate = 0.1}, m.of_mlp(), batch, four);
    check_numbers(optimizer::adam{.rate = 0.1}, m.of_mlp(), batch, four);
    check_numbers(optimizer::lamb{.rate = 0.1}, m.of_mlp(), batch, four);
  }
  const model m;
  const auto batch = dynamic::input<double>({m.examples, m.inner}, {"data", ""});
  check_numbers(optimizer::sgd{.rate = 0.1}, m.of_mlp(false), batch, dynamic::mesh({{"data", 3}}));
  check_numbers(optimizer::adam{.rate = 0.1}, m.of_mlp(false), batch, four, 0.01);
  check_numbers(optimizer::adafactor{}, m.of_mlp(), batch, four);
}

TEST_CASE("updates by parts: a block of a Transformer, whose weights are split over another axis") {
  const dynamic::mesh m({{"data", 2}, {"model", 2}});
  const auto batch = dynamic::input<double>({16, 5, 6}, {"data", "", ""});
  check_numbers(optimizer::adam{.rate = 0.05}, block_inputs("model"), batch, m);
  check_numbers(optimizer::lamb{.rate = 0.05}, block_inputs("model"), batch, m, 0.5);
  const auto step = step_of(m, optimizer::adam{}, block_inputs("model"), batch, way::by_parts);
  CHECK(step.input(3).text() == "[_, model]");         // up
  CHECK(step.input(5 + 3).text() == "[data, model]");  // its moments, 3 x 5 of 6 x 10
  CHECK(step.input(5 + 4).text() == "[model, data]");  // of down: 5 x 3 of 10 x 6; [model,data, _] would give 3 x 6
}

TEST_CASE("updates by parts: the bytes of the plain step, 1/N of the moments, and the plan of ZeRO-1 by hand") {
  const dynamic::mesh four({{"data", 4}});
  const model m{64, 128, 1024};
  const auto batch = dynamic::input<double>({m.examples, m.inner}, {"data", ""});
  const auto plain = step_of(four, optimizer::adam{}, m.of_mlp(), batch, way::plain);
  const auto parts = step_of(four, optimizer::adam{}, m.of_mlp(), batch, way::by_parts);
  const auto hand = step_of(four, optimizer::adam{}, m.of_mlp(), batch, way::by_hand);
  const std::int64_t weights = 8 * (64 * 128 + 128 + 128 * 3), loss = 8 * 2 * 3 / 4;
  CHECK(parts.traffic().bytes == plain.traffic().bytes);
  CHECK(parts.traffic().in(collective_kind::reduce_scatter).bytes == weights * 3 / 4);
  CHECK(parts.traffic().in(collective_kind::all_gather).bytes == weights * 3 / 4);
  CHECK(parts.traffic().in(collective_kind::all_reduce).bytes == loss);
  CHECK(plain.traffic().in(collective_kind::all_reduce).bytes == 2 * weights * 3 / 4 + loss);
  const auto held = [](const dynamic::program& p) {
    std::int64_t bytes = 0;
    for (std::size_t k = 0; k < p.input_count(); ++k) bytes += p.input(k).local_bytes();
    return bytes;
  };
  CHECK(held(plain) - held(parts) == 2 * weights * 3 / 4);
  // Moments before and after the step. In between it is less, because the gradient is held in parts.
  CHECK(plain.peak_bytes_per_device() - parts.peak_bytes_per_device() >= 2 * 2 * weights * 3 / 4);
  CHECK(parts == hand);
  for (std::size_t k = 3; k < 9; ++k) CHECK(parts.can_alias(k, k));
}

TEST_CASE("updates by parts: in groups of devices, and the small weights of all layers in one collective") {
  // N x M devices: scattered in the rows; then each device's part is reduced over the columns.
  const dynamic::mesh groups({{"outer", 2}, {"data", 2}});
  const model m;
  const auto batch = dynamic::input<double>({m.examples, m.inner}, {"outer,data", ""});
  check_numbers(optimizer::adam{.rate = 0.1}, m.of_mlp(), batch, groups);
  const auto p = step_of(groups, optimizer::adam{}, m.of_mlp(), batch, way::by_parts);
  const auto& t = p.traffic();
  CHECK(t.in(collective_kind::reduce_scatter).collectives == 1);
  CHECK(t.in(collective_kind::all_gather).collectives == 1);
  CHECK(t.in(collective_kind::all_gather).over("outer").bytes == 0);
  CHECK(t.in(collective_kind::reduce_scatter).over("outer").bytes == 0);
  const std::int64_t parts = 8 * (7 * 3 + 3 + 3 * 3);  // of the three weights; the loss is one more number
  CHECK(t.in(collective_kind::all_reduce).over("outer").bytes <= parts + 2 * 8);
}

TEST_CASE("updates by parts: where they pay, and where the user wants none") {
  const network slow_messages(1e12, 25e9, 2e-6);
  const auto built = [](const dynamic::mesh& m, const auto& change) {
    dynamic::builder b(m);
    const model sizes{512, 1024, 16384};
    auto w = dynamic::inputs(b, sizes.of_mlp());
    const auto state = optimizer::state_inputs(b, optimizer::momentum{}, w);
    change(b, w);
    dynamic::outputs(
        b, optimizer::momentum{}.update(
               w, grad(loss_of(w, b.input(dynamic::input<double>({sizes.examples, sizes.inner}, {"data", ""}))), w), state));
    shard_weight_update(b, {"data"});
    return explain_weight_updates(b);
  };
  const dynamic::mesh four({{"data", 4}});
  const auto said = built(four.with({.network = slow_messages}), [](auto&, auto&) {});
  CHECK(contains(said,
                 "input 0 (w1) f64[512,1024]: updated as [data, _] and gathered, 1 state stays split; that saves 157.3 us of the "
                 "update, and sends 0.0 us longer\n"));
  CHECK(contains(said, "input 1 (b1) f64[1024]: updated whole: in parts it saves 0.3 us of the update, and sends "));
  CHECK(contains(said, "input 2 (w2) f64[1024,3]: updated whole: in parts it saves 0.9 us of the update, and sends "));
  const auto kept = built(four, [](auto&, auto& w) { keep_update_whole(w.w1); });
  CHECK(contains(kept, "input 0 (w1) f64[512,1024]: updated whole, as keep_update_whole says\n"));
  CHECK(contains(kept, "input 1 (b1) f64[1024]: updated as [data] and gathered"));
  const auto small = [] {
    dynamic::builder b(dynamic::mesh({{"data", 2}}));
    const value w = b.input(dynamic::input<float>({8}, {""})), s = b.input(dynamic::input<float>({1}, {""}));
    const value x = b.input(dynamic::input<float>({64, 8}, {"data", ""}));
    const auto g = grad(sum(tanh(x * w) * s), std::vector{w, s});
    b.output(update(w, reshard(w - g[0], split<_>{})));
    b.output(update(s, s - g[1]));
    shard_weight_update(b, {"data"});
    return explain_weight_updates(b);
  }();
  CHECK(contains(small, "input 0 f32[8]: updated whole: the program states the sharding of its new value\n"));
  CHECK(contains(small, "input 1 f32[1]: updated whole: none of its dims can be cut\n"));
}

namespace {

/// Returns the difference between the results by parts and on one device. `build` adds the program, with weights of 12
/// x 8 and examples.
double difference_of(auto build, std::string& said, std::vector<collective>& sent) {
  const dynamic::mesh four({{"data", 4}});
  std::vector<std::vector<dynamic::any_array>> results;
  for (const auto& m : {four.with_one_device(), four}) {
    dynamic::builder b(m);
    build(b);
    shard_weight_update(b, {"data"});  // does nothing on one device
    const auto p = b.compile();
    said = explain_weight_updates(b);
    sent = p.collectives();
    std::vector<std::vector<double>> arrays;
    std::vector<const void*> in;
    for (std::size_t k = 0; k < p.input_count(); ++k) {
      std::size_t elems = 1;
      for (const auto e : p.input(k).global_shape()) elems *= static_cast<std::size_t>(e);
      arrays.emplace_back(elems);
      for (std::size_t i = 0; i < elems; ++i) arrays[k][i] = static_cast<double>(static_cast<int>((i * 7 + k * 3) % 13) - 6) / 16;
    }
    for (const auto& a : arrays) in.push_back(a.data());
    results.push_back(p.run(simulated{}, in));
  }
  double worst = 0;
  for (std::size_t k = 0; k < results[0].size(); ++k)
    for (std::size_t i = 0; i < results[0][k].bytes.size() / sizeof(double); ++i)
      worst = std::max(worst, std::abs(results[0][k].data<double>()[i] - results[1][k].data<double>()[i]));
  return worst;
}

}  // namespace

TEST_CASE("updates by parts: gradients that a loop adds up, updates in a loop, means of weights") {
  const auto weight = [](auto& b) { return b.input(dynamic::input<double>({12, 8}, {"", ""})); };
  const auto examples = [](auto& b, std::int64_t n) { return b.input(dynamic::input<double>({n, 64, 12}, {"", "data", ""})); };
  const auto loss = [](value w, value x) {
    const value y = tanh(einsum("nbi,io->nbo", x, w));
    return mean(y * y);
  };
  std::string said;
  std::vector<collective> sent;
  const auto accumulated = [&](auto& b) {
    const value w = weight(b), m = weight(b), x = examples(b, 3);
    const auto add = [&](value i, value sum) {
      const value zero = constant<std::int32_t>(x, {}, 0);
      const value at[] = {i, zero, zero};
      return sum + grad(loss(w, dynamic_slice(x, at, {1, 64, 12})), w);
    };
    const value next = 0.9 * m + fori_loop(3, add, zeros_like(w));
    b.output(update(w, w - 0.1 * next));
    b.output(update(m, next));
  };
  CHECK(difference_of(accumulated, said, sent) < 1e-14);
  REQUIRE(sent.size() == 2);  // once, after the loop
  CHECK(sent[0].kind == collective_kind::reduce_scatter);
  CHECK(sent[1].kind == collective_kind::all_gather);
  const auto mixed = [&](auto& b) {
    const value w = weight(b), v = weight(b), e = weight(b), x = examples(b, 1);
    b.output(update(w, fori_loop(
                           2, [&](value, value c) { return c - 0.1 * grad(loss(c, x), c); }, w)));
    const value next = update(v, v - 0.1 * grad(loss(v, x), v));
    b.output(next);
    b.output(update(e, 0.9 * e + 0.1 * next));
  };
  CHECK(difference_of(mixed, said, sent) < 1e-14);
  CHECK(contains(said, "input 0 f64[12,8]: updated whole: a loop or a conditional updates it\n"));
  CHECK(contains(said, "input 1 f64[12,8]: updated as [data, _] and gathered, 0 states stay split"));
  CHECK(contains(said, "input 2 f64[12,8]: whole: no weight's update reads it element by element\n"));
}

TEST_CASE("updates by parts: moments of other shapes than their weights stay in parts, and are gathered nowhere") {
  const dynamic::mesh four({{"data", 4}});
  const model m{64, 128, 1024};
  const auto batch = dynamic::input<double>({m.examples, m.inner}, {"data", ""});
  const auto parts = step_of(four, optimizer::adafactor{}, m.of_mlp(), batch, way::by_parts);
  // Means of squares over rows of w1, squares of b1, means over rows of w2; then over columns, the dim that is cut.
  const char* const places[] = {"[data]", "[data]", "[data]", "[data]", "[]", "[_]"};
  for (std::size_t k = 0; k < 6; ++k) CHECK(parts.input(3 + k).text() == places[k]);
  // Sums over the columns of w1 are scattered and gathered like gradients; the sums of w2 are three numbers.
  const std::int64_t sent_in_parts = 8 * (64 * 128 + 128 + 128 * 3 + 128) * 3 / 4;
  CHECK(parts.traffic().in(collective_kind::reduce_scatter).bytes == sent_in_parts);
  CHECK(parts.traffic().in(collective_kind::all_gather).bytes == sent_in_parts);
  // For each weight, the norms of the weight and its step, and the mean of its means over rows; and the loss.
  CHECK(parts.traffic().in(collective_kind::all_reduce).bytes <= 8 * 2 * 3 * (3 + 3 * 3 + 1) / 4);

  std::string said;
  std::vector<collective> sent;
  const auto loss = [](value w, value x) {
    const value y = tanh(einsum("bi,io->bo", x, w));
    return mean(y * y);
  };
  // Moments with other shapes: the transposed weight, all its elements in one row, and two dims of three.
  const auto changed = [&](std::vector<std::int64_t> shape, auto to_moment, auto to_weight) {
    const auto build = [&](auto& b) {
      const value w = b.input(dynamic::input<double>({12, 8}, {"", ""}));
      const value s = b.input(dynamic::input<double>(shape, splits(shape.size())));
      const value next = 0.9 * s + 0.1 * to_moment(grad(loss(w, b.input(dynamic::input<double>({64, 12}, {"data", ""}))), w));
      b.output(update(w, w - to_weight(next)));
      b.output(update(s, next));
    };
    CHECK(difference_of(build, said, sent) < 1e-14);
    CHECK(contains(said, "input 0 f64[12,8]: updated as [data, _] and gathered, 1 state stays split"));
    CHECK(std::none_of(sent.begin(), sent.end(), [](const collective& c) { return c.kind == collective_kind::all_to_all; }));
    CHECK(std::count_if(sent.begin(), sent.end(), [](const collective& c) { return c.kind == collective_kind::all_gather; }) ==
          1);
  };
  const auto turned = [](value x) { return transpose(x, {1, 0}); };
  changed({8, 12}, turned, turned);
  changed(
      {96}, [](value x) { return reshape(x, {96}); },
      [](value x) {
        return reshape(x, {12, 8});
      });
  changed(
      {4, 3, 8},
      [](value x) {
        return reshape(x, {4, 3, 8});
      },
      [](value x) {
        return reshape(x, {12, 8});
      });
  changed(
      {12}, [](value x) { return mean(x * x, 1); },
      [](value x) {
        return broadcast_in_dim(x, {12, 8}, {0});
      });
}

TEST_CASE(
    "updates by parts: Adafactor on weights of three dims, of single rows, under other axes, on more devices than elements") {
  const auto of_shapes = [](const dynamic::mesh& m, std::vector<sizes> shapes, splits along, bool is_asked) {
    dynamic::builder b(m);
    const optimizer::adafactor opt{.rate = 0.1};
    std::vector<value> w;
    for (const auto& s : shapes)
      w.push_back(b.input(dynamic::input<double>(s, s.size() == along.size() ? along : splits(s.size()))));
    const auto state = optimizer::state_inputs(b, opt, w);
    value loss;
    for (const auto& s : w) {
      sizes all{24};
      for (int d = 0; d < s.rank(); ++d) all.push_back(s.shape()[d]);
      splits by_data(all.size());
      by_data[0] = "data";
      const value x = b.input(dynamic::input<double>(all, by_data));
      sizes dims;
      for (int d = 0; d < s.rank(); ++d) dims.push_back(d + 1);
      const value y = tanh(x * broadcast_in_dim(s, all, dims));
      loss = loss.is_valid() ? loss + sum(y * y) : sum(y * y);
    }
    dynamic::outputs(b, opt.update(w, grad(loss, w), state));
    if (is_asked) shard_weight_update(b, {"data"});
    return b.compile();
  };
  const auto check = [&](const dynamic::mesh& m, const std::vector<sizes>& shapes, const splits& along) {
    const auto alone = of_shapes(m.with_one_device(), shapes, along, false), parts = of_shapes(m, shapes, along, true);
    std::vector<std::vector<double>> held;
    std::vector<std::vector<std::int32_t>> counts;
    std::vector<const void*> in;
    for (std::size_t k = 0; k < parts.input_count(); ++k) {
      std::size_t elems = 1;
      for (const auto e : parts.input(k).global_shape()) elems *= static_cast<std::size_t>(e);
      held.emplace_back(elems);
      counts.emplace_back(elems, 3);
      const bool is_state = k >= shapes.size() && k < parts.output_count();
      for (std::size_t i = 0; i < elems; ++i)
        held[k][i] =
            is_state ? 0.125 + static_cast<double>(i % 3) : static_cast<double>(static_cast<int>((7 * i + 3 * k) % 13) - 6) / 16;
    }
    for (std::size_t k = 0; k < held.size(); ++k)
      in.push_back(parts.input(k).type() == dtype::f64 ? static_cast<const void*>(held[k].data()) : counts[k].data());
    const auto wanted = alone.run(simulated{}, in), found = parts.run(simulated{}, in);
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      REQUIRE(wanted[k].bytes.size() == found[k].bytes.size());
      if (wanted[k].type != dtype::f64) continue;
      for (std::size_t i = 0; i < wanted[k].bytes.size() / sizeof(double); ++i)
        CHECK(std::abs(wanted[k].data<double>()[i] - found[k].data<double>()[i]) < 1e-12);
    }
    return parts;
  };
  const auto deep = check(dynamic::mesh({{"data", 4}}), {{6, 5, 3}, {1, 9}, {9, 1}, {2, 2}}, {});
  CHECK(deep.input(4).text() == "[data, _]");  // rows of [6,5,3], which is cut to 2 x 5 x 3
  CHECK(check(dynamic::mesh({{"data", 8}}), {{3, 2}, {3, 2, 5}}, {}).input_count() == 9);
  const auto crossed = check(dynamic::mesh({{"model", 2}, {"data", 2}}), {{6, 10}, {4, 3}}, {"", "model"});
  CHECK(crossed.input(2).text() == "[data]");
}

namespace {

constexpr detail::extents least_padded(const detail::extents& of, std::int64_t devices, detail::dim_mask apart = 0) {
  return detail::least_padding(of, devices, apart).shape_of(of);
}
using detail::extents;
// The example of 4.1 of the paper, whose [9,256,256] is padded to ten. If no dim is a plane of tiles, as here, more
// dims may be combined.
static_assert(least_padded({3, 3, 256, 256}, 10) == extents{3, 196608});
static_assert(least_padded({3, 3, 256, 256}, 10, 0b1100) == extents{3, 3, 256, 256});  // 26 of 256: [9,256,256] is not better
static_assert(least_padded({3, 3, 256, 256}, 64) == extents{3, 3, 256, 256});          // already even
static_assert(least_padded({3, 3, 2, 2}, 8, 0b1100) == extents{9, 2, 2});
static_assert(least_padded({3, 3, 5, 7}, 8) == extents{315} && least_padded({3, 3, 5, 7}, 9, 0b1100) == extents{9, 5, 7} &&
              least_padded({3, 3, 5, 7}, 8, 0b0101) == extents{3, 3, 5, 7});
static_assert(least_padded({1, 1}, 4) == extents{1, 1} && least_padded({2, 1, 3}, 6) == extents{6} &&
              least_padded({}, 4) == extents{});
static_assert(least_padded({0, 3}, 4) == extents{0, 3} && least_padded({3, 5}, 1) == extents{3, 5});

conv<dynamic::input_spec> conv_inputs(const std::string& axis = "") {
  return {dynamic::input<double>({3, 3, 5, 7}, {"", "", "", axis}), dynamic::input<double>({7}, {axis}),
          dynamic::input<double>({7, 3}, {axis, ""})};
}
const dynamic::input_spec places_of_conv = dynamic::input<double>({24, 3, 3, 5}, {"data", "", "", ""});

/// Checks that reformatted updates by parts give the parameters and the state of a single device with the original
/// optimizer.
template <std::int64_t Devices, class Optimizer>
dynamic::program check_reformatted(const Optimizer& opt, const dynamic::mesh& m, const std::string& axis = "") {
  const optimizer::reformatted<Optimizer, Devices> even{opt};
  const auto expected = train(step_of(m.with_one_device(), opt, conv_inputs(axis), places_of_conv, way::plain), simulated{}, 3);
  for (const way how : {way::plain, way::by_parts}) {
    const auto step = step_of(m, even, conv_inputs(axis), places_of_conv, how);
    CHECK(difference(train(step, simulated{}, 3), expected) < 1e-12);
    CHECK(difference(train(step, threads{}, 3), expected) < 1e-12);
  }
  return step_of(m, even, conv_inputs(axis), places_of_conv, way::by_parts);
}

}  // namespace

TEST_CASE("updates by parts: parameters in shapes that devices cut with least padding") {
  const dynamic::mesh eight({{"data", 8}});
  const optimizer::adamw decaying{.rate = 0.05, .weight_decay = 0.1, .decays = optimizer::matrices};
  const auto step = check_reformatted<8>(decaying, eight);
  CHECK(step.input(3).global_shape() == sizes{315});
  CHECK(step.input(3).text() == "[data]");
  CHECK(step.input(5).global_shape() == sizes{7, 3});  // 1 x 3 is a part, and 3 of 21 are a part too
  const std::int64_t sent = 7 * 8 * (40 + 1 + 3);      // a part of each for 7 other devices
  CHECK(step.traffic().in(collective_kind::reduce_scatter).bytes == sent);
  CHECK(step.traffic().in(collective_kind::all_gather).bytes == sent);
  const auto plain = step_of(eight, decaying, conv_inputs(), places_of_conv, way::by_parts);
  CHECK(plain.traffic().in(collective_kind::reduce_scatter).bytes == 7 * 8 * (45 + 1 + 3));
  for (std::size_t k = 0; k + 1 < step.output_count(); ++k) CHECK(step.output(k).sharding() == step.input(k).sharding());

  check_reformatted<8>(optimizer::lamb{.rate = 0.05}, eight);
  check_reformatted<8>(optimizer::momentum{.rate = 0.05}, dynamic::mesh({{"data", 3}}));  // for another number of devices
                                                                                          // than exists
  const auto factored = check_reformatted<8>(optimizer::adafactor{}, eight);
  CHECK(factored.input(3).global_shape() == sizes{3, 3, 5});  // [9,5,7] has no smaller parts than 3 x 3 x 5 x 1
  const auto few = check_reformatted<9>(optimizer::adafactor{}, dynamic::mesh({{"data", 9}}));
  CHECK(few.input(3).global_shape() == sizes{9, 5});
  CHECK(few.input(3).text() == "[data, _]");
  // Dims that the user split are not combined.
  const auto crossed = check_reformatted<4>(optimizer::adam{.rate = 0.05}, dynamic::mesh({{"model", 2}, {"data", 4}}), "model");
  CHECK(crossed.input(3).global_shape() == sizes{3, 15, 7});
  CHECK(crossed.input(3).text() == "[_, _, model,data]");  // 45 of 315 elements; 48 if the second dim is cut
  // The master weights have those shapes too.
  check_reformatted<8>(optimizer::with_master_weights<optimizer::adamw>{decaying}, eight);
}

TEST_CASE("updates by parts: what is said of a weight that is cut in another shape") {
  dynamic::builder b(dynamic::mesh({{"data", 8}}));
  const optimizer::reformatted<optimizer::with_master_weights<optimizer::adam>, 8> mixed{};
  const value w = b.input(dynamic::input<bf16>({3, 3, 5, 7}, splits(4)));
  const auto state = optimizer::state_inputs(b, mixed, w);
  const value x = b.input(dynamic::input<bf16>({24, 3, 3, 5}, {"data", "", "", ""}));
  const value y = tanh(einsum("bhwi,hwio->bo", x, w));
  dynamic::outputs(b, mixed.update(w, grad(mean(y * y), w), state));
  shard_weight_update(b, {"data"});
  const auto said = explain_weight_updates(b);
  INFO(said);
  CHECK(contains(said, "input 0 bf16[3,3,5,7]: updated as [data] of its elements as [315] and gathered, 3 states stay split"));
}

TEST_CASE("updates by parts: parameters that are wide already, and kept as floats twice") {
  const optimizer::with_master_weights<optimizer::adam> mixed{};
  const auto train = [&](value w, auto state, value x) {
    const value y = tanh(einsum<"bi,io->bo">(x, w));
    return mixed.update(w, grad(mean(y * y), w), state);
  };
  dynamic::builder b(dynamic::mesh({{"data", 8}}));
  const value w = b.input(dynamic::input<float>({24, 8}, splits(2)));
  const auto state = optimizer::state_inputs(b, mixed, w);
  dynamic::outputs(b, train(w, state, b.input(dynamic::input<float>({4096, 24}, {"data", ""}))));
  shard_weight_update(b, {"data"});
  const auto said = explain_weight_updates(b);
  INFO(said);
  CHECK(contains(said, "3 states stay split"));
  const auto p = b.compile();
  CHECK(p.input(1).local_shape() == sizes{3, 8});  // the master weights
  CHECK(p.traffic().in(collective_kind::all_gather).bytes == 7 * 4 * 3 * 8);
  CHECK(p.traffic().in(collective_kind::reduce_scatter).bytes == 7 * 4 * 3 * 8);
}

TEST_CASE("reformatted: a parameter that completion splits is to be annotated, and the mistake says so") {
  const auto words = [](bool is_annotated) {
    return error_of([&] {
      dynamic::builder b(dynamic::mesh({{"model", 2}, {"data", 4}}));
      const optimizer::reformatted<optimizer::adam, 4> even{};
      const sizes of_kernel{3, 3, 5, 6};
      const value w =
          b.input(is_annotated ? dynamic::input<double>(of_kernel, {"", "", "", "model"}) : dynamic::input<double>(of_kernel));
      const value out = b.input(dynamic::input<double>({6, 3}, {"model", ""}));
      const std::vector<value> weights{w, out};
      const auto state = optimizer::state_inputs(b, even, weights);
      const value x = b.input(dynamic::input<double>({24, 3, 3, 5}, {"data", "", "", ""}));
      const value y = einsum("bo,oc->bc", tanh(einsum("bhwi,hwio->bo", x, w)), out);
      dynamic::outputs(b, even.update(weights, grad(mean(y * y), weights), state));
      static_cast<void>(b.compile());
    });
  };
  CHECK(words(true) == "no error");
  const auto refused = words(false);
  INFO(refused);
  CHECK(contains(refused, "reformatted at "));
  CHECK(contains(refused,
                 ": it combines dims of a parameter [3,3,5,6], which is sharded [_, _, _, model]: every device along "
                 "`model` would hold [_, _, _, _]; annotate the parameter where it is an input, so that its split dims "
                 "are not combined, or move it by the optimizer itself"));
}

TEST_CASE("updates by parts: a weight and a state that are marked twice are decided for once") {
  const auto built = [](const auto& opt, bool is_marked_again) {
    dynamic::builder b(dynamic::mesh({{"data", 4}}));
    const value w = b.input(dynamic::input<double>({8, 12}, splits(2)));
    const auto state = optimizer::state_inputs(b, opt, w);
    const value x = b.input(dynamic::input<double>({64, 8}, {"data", ""}));
    auto next = opt.update(w, grad(mean(tanh(einsum("bi,io->bo", x, w))), w), state);
    if (is_marked_again) next = {update(w, next.params), update(state, next.state)};
    dynamic::outputs(b, next);
    shard_weight_update(b, {"data"});
    static_cast<void>(b.compile());
    return explain_weight_updates(b);
  };
  const auto said = built(optimizer::adam{}, false);
  CHECK(contains(said, "input 0 f64[8,12]: updated as [data, _] and gathered, 2 states stay split"));
  CHECK(built(optimizer::adam{}, true) == said);
  CHECK(built(optimizer::reformatted<optimizer::adam, 4>{}, false) == said);  // already even: the shape does not change
  CHECK(built(optimizer::reformatted<optimizer::adam, 4>{}, true) == said);
}

TEST_CASE("the next value of an input lies where completion puts the input") {
  const auto build = [](bool is_marked) {
    dynamic::builder b(dynamic::mesh({{"x", 2}}));
    const value u = b.input(dynamic::input<float>({8, 8}));
    const value f = b.input(dynamic::input<float>({8, 8}, {"x", ""}));
    const value next = transpose(u + f, {1, 0});
    b.output(is_marked ? update(u, next) : next);
    return b.compile();
  };
  const auto plain = build(false), marked = build(true);
  CHECK(plain.input(0).text() == "[x, _]");
  CHECK(plain.output(0).text() == "[_, x]");
  CHECK(marked.input(0).text() == "[x, _]");
  CHECK(marked.output(0).text() == "[x, _]");
  std::vector<float> u(64), f(64);
  for (std::size_t i = 0; i < 64; ++i) u[i] = static_cast<float>(i), f[i] = static_cast<float>(i % 5);
  const auto a = plain.run(threads{}, u, f), c = marked.run(threads{}, u, f);
  CHECK(a[0].bytes == c[0].bytes);
}

TEST_CASE("a function of state and batch") {
  constexpr auto step = [](value u, value f) { return std::tuple{transpose(u + f, {1, 0}), sum(u)}; };
  const auto p = dynamic::compile(carried(step), dynamic::mesh({{"x", 2}}), dynamic::input<float>({8, 8}),
                                  dynamic::input<float>({8, 8}, {"x", ""}));
  CHECK(p.output(0).text() == "[x, _]");
  CHECK(contains(error_of([&] {
                   static_cast<void>(dynamic::compile(carried<2>([](value u, value) { return u; }), dynamic::mesh({{"x", 2}}),
                                                      dynamic::input<float>({8}), dynamic::input<float>({8})));
                 }),
                 "carried: 2 tensors are carried and the function returns 1; return the next values of all of them first"));
}

TEST_CASE("next values and updates by parts that are none are refused") {
  const auto in = [](dynamic::builder& b, sizes s, splits along) {
    return b.input(dynamic::input<float>(std::move(s), std::move(along)));
  };
  CHECK(contains(mistake_of([&](auto& b) {
                   const value w = in(b, {4}, {""});
                   b.output(update(w + 1.0, w));
                 }),
                 "the value before is no input of this program; give the input whose next value this is"));
  CHECK(contains(mistake_of([&](auto& b) {
                   const value w = in(b, {4}, {""});
                   b.output(update(w, sum(w)));
                 }),
                 "input 0 is f32[4] and its next value f32[]; give one of the same type and shape"));
  CHECK(contains(mistake_of([&](auto& b) {
                   const std::vector<value> w{in(b, {4}, {""}), in(b, {4}, {""})};
                   dynamic::outputs(b, update(w, std::vector<value>{w[0]}));
                 }),
                 "the groups have 2 inputs and 1 next values; give one for each"));
  CHECK(contains(mistake_of([&](auto& b) { b.output(keep_update_whole(in(b, {4}, {""}) + 1.0)); }),
                 "this is no input of the program; give the weight or the moment that is one"));
  const auto asked = [&](splits batch, bool is_marked, const char* axis) {
    return mistake_of([&](auto& b) {
      const value w = in(b, {6}, {""}), x = in(b, {8, 6}, batch);
      const value next = w - grad(sum(tanh(x * w)), w);
      b.output(is_marked ? update(w, next) : next);
      shard_weight_update(b, {axis});
    });
  };
  CHECK(asked({"data", ""}, true, "data") == "no error");
  CHECK(contains(asked({"data", ""}, true, "dat"), "shard_weight_update: `dat` is not an axis of the mesh; its axes are data"));
  CHECK(contains(asked({"data", ""}, false, "data"),
                 "shard_weight_update: no output is the next value of an input; return update(w, new_w), or the result of an "
                 "optimizer"));
  CHECK(contains(mistake_of([&](auto& b) {
                   const value w = in(b, {6}, {""}), x = in(b, {8, 6}, {"data", ""});
                   static_cast<void>(update(w, w - grad(sum(tanh(x * w)), w)));  // computed, but without users
                   b.output(sum(x));
                   shard_weight_update(b, {"data"});
                 }),
                 "shard_weight_update: no output is the next value of an input"));
  CHECK(contains(asked({"", ""}, true, "data"),
                 "shard_weight_update: nothing that is carried is a weight whose update reads a reduction over data; split "
                 "the examples"));
  CHECK(contains(mistake_of([&](auto& b) {
                   const value w = in(b, {6}, {"data"});
                   b.output(update(w, w * 0.5));
                   shard_weight_update(b, {"data"});
                 }),
                 "shard_weight_update: all that is carried is split over data already; leave the pass out"));
}

TEST_CASE("updates by parts: a moment that a branch reads whole stays in parts, and is gathered in that branch") {
  const auto build = [](auto& b) {  // a summary of some steps (Xu et al. 2020, 3.2)
    const value w = b.input(dynamic::input<double>({12, 8}, {"", ""})), m = b.input(dynamic::input<double>({12, 8}, {"", ""}));
    const value x = b.input(dynamic::input<double>({64, 12}, {"data", ""}));
    const value y = tanh(einsum("bi,io->bo", x, w));
    const value next = update(m, 0.9 * m + grad(mean(y * y), w));
    b.output(update(w, w - 0.1 * next));
    b.output(next);
    const auto summary = [](value of) { return sum(abs(einsum("ac,bc->ab", of, of))); };
    const auto none = [](value of) { return 0.0 * sum(of); };
    b.output(cond(sum(w) < 100.0, summary, none, next));
  };
  std::string said;
  std::vector<collective> sent;
  CHECK(difference_of(build, said, sent) < 1e-14);
  CHECK(contains(said, "1 state stays split"));
  dynamic::builder b(dynamic::mesh({{"data", 4}}));
  build(b);
  shard_weight_update(b, {"data"});
  const auto p = b.compile();
  int gathered[2] = {0, 0};
  bool inside = false;
  for (const auto& s : p.view().steps) {
    inside = inside || detail::facts_of(s).role >= detail::step_role::hands_on;
    if (s.bytes_sent > 0 && s.collective == collective_kind::all_gather) ++gathered[inside ? 1 : 0];
  }
  CHECK(gathered[0] == 1);  // the weight
  CHECK(gathered[1] == 1);  // the moment
}
