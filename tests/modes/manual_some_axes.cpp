// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Manual regions of automatic programs that name some axes. The planner uses the other axes, inside the region too.
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/strict_program.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/modes/manual.hpp>
#include <gspmd/transform/grad.hpp>

#include "support/by_hand.hpp"
#include "support/error_of.hpp"
#include "support/run_random.hpp"

using namespace gspmd;
using caught::error_of;

namespace manual_some_axes {

using written_by_hand::check_same;
using written_by_hand::layer;
using written_by_hand::some;
/// Other axes may split the parts of regions unevenly.
dynamic::program with_gradients(const layer& f, const dynamic::mesh& m, const std::vector<dynamic::input_spec>& inputs) {
  return written_by_hand::with_gradients(f, m, inputs, true);
}

/// Checks that the gradients equal the slopes of the sum of squares of the result.
void check_slopes(const dynamic::program& p, const std::vector<dynamic::input_spec>& inputs) {
  std::vector<std::vector<double>> data;
  for (const auto& in : inputs) data.push_back(some(in, static_cast<int>(data.size())));
  const auto loss = [&](std::size_t k, double step) {
    auto moved = data;
    for (std::size_t i = 0; i < moved[k].size(); ++i) moved[k][i] += step * (0.5 + static_cast<double>(i % 3));
    double sum = 0;
    const auto result = p.run(simulated{}, moved[0], moved[1]);
    const auto& y = result.back();
    for (std::size_t i = 0; i < y.bytes.size() / sizeof(double); ++i) sum += y.data<double>()[i] * y.data<double>()[i];
    return sum;
  };
  const auto result = p.run(simulated{}, data[0], data[1]);
  for (std::size_t k = 0; k < 2; ++k) {
    double found = 0;
    for (std::size_t i = 0; i < data[k].size(); ++i) found += (0.5 + static_cast<double>(i % 3)) * result[k].data<double>()[i];
    CHECK(found == doctest::Approx((loss(k, 1e-5) - loss(k, -1e-5)) / 2e-5).epsilon(1e-4));
  }
}

TEST_CASE("data parallel by hand, model parallel by the planner") {
  const auto two_layers = [](value x, value w, value v) { return einsum("bf,fd->bd", tanh(einsum("bd,df->bf", x, w)), v); };
  const std::vector<dynamic::input_spec> inputs{dynamic::input<double>({8, 6}, {"data", ""}),
                                                dynamic::input<double>({6, 10}, {"", "model"}),
                                                dynamic::input<double>({10, 6}, {"model", ""})};
  const dynamic::mesh m({{"data", 2}, {"model", 2}});
  const auto by_hand = with_gradients(
      [&](const std::vector<value>& in) {
        return manual<"data">([&](value x, value w, value v) { return two_layers(x, w, v); },
                              takes<split<"data", _>, replica<"data">, replica<"data">>{},
                              gives<split<"data", _>>{})(in[0], in[1], in[2]);
      },
      m.with({.checked = true}), inputs);
  const auto automatic = with_gradients([&](const std::vector<value>& in) { return two_layers(in[0], in[1], in[2]); }, m, inputs);
  check_same(by_hand, automatic, inputs);
  CHECK(by_hand.traffic().over("model").bytes == automatic.traffic().over("model").bytes);
  CHECK(by_hand.traffic().bytes == automatic.traffic().bytes);
}

TEST_CASE("a pipeline by hand along one axis; the layers of a stage are split along the other by the planner") {
  constexpr std::int64_t stages = 3, batches = 4, rows = 2, width = 6, hidden = 8;
  const auto batch = [=](value x, std::int64_t t) { return reshape(slice(x, {t, 0, 0}, {t + 1, rows, width}), {rows, width}); };
  const auto by_hand = [=](const std::vector<value>& in) {
    return manual<"stage">(
        [=](value x, value w, value v) {  // [4,2,6] whole; [1,6,8] and [1,8,6] belong to the stage, split along model
          const value up = reshape(w, {width, hidden}), down = reshape(v, {hidden, width});
          const value is_first = broadcast_in_dim(equal(local::axis_index<"stage">(x), 0), {rows, width}, {});
          value now;
          std::vector<value> kept;
          for (std::int64_t t = 0; t < batches + stages - 1; ++t) {
            value given = batch(x, t < batches ? t : batches - 1);
            if (t > 0) given = where(is_first, given, local::shift_devices<"stage">(now));
            now = einsum("bf,fd->bd", tanh(einsum("bd,df->bf", given, up)), down);
            kept.push_back(reshape(now, {1, 1, rows, width}));
          }
          return concatenate(kept, 1);
        },
        takes<replica<"stage">, split<"stage", _, _>, split<"stage", _, _>>{},
        gives<split<"stage", _, _, _>>{})(in[0], in[1], in[2]);
  };
  const auto with_stages = [=](const std::vector<value>& in) {
    const value x = in[0], is_first = equal(iota<std::int32_t>(x, {stages, rows, width}, 0), 0);
    value now;
    std::vector<value> kept;
    for (std::int64_t t = 0; t < batches + stages - 1; ++t) {
      value given = broadcast_in_dim(batch(x, t < batches ? t : batches - 1), {stages, rows, width}, {1, 2});
      if (t > 0) given = where(is_first, given, shift(now, -1, along(0)));
      now = reshard(einsum("sbf,sfd->sbd", tanh(einsum("sbd,sdf->sbf", given, in[1])), in[2]), split<"stage", _, _>{});
      kept.push_back(reshape(now, {stages, 1, rows, width}));
    }
    return concatenate(kept, 1);
  };
  const std::vector<dynamic::input_spec> inputs{dynamic::input<double>({batches, rows, width}),
                                                dynamic::input<double>({stages, width, hidden}, {"stage", "", "model"}),
                                                dynamic::input<double>({stages, hidden, width}, {"stage", "model", ""})};
  const dynamic::mesh m({{"stage", stages}, {"model", 2}});
  const auto a = with_gradients(by_hand, m.with({.checked = true}), inputs), b = with_gradients(with_stages, m, inputs);
  check_same(a, b, inputs);
  // The result of a stage is sent to the next stage five times, and its gradient back.
  CHECK(a.traffic().in(collective_kind::collective_permute).bytes == 2 * 5 * rows * width * 8);
  // Each step sums its result, [2,6], along model. The backward pass sums its gradient, or the gradient of its operand.
  CHECK(a.traffic().over("model").bytes <= b.traffic().over("model").bytes);
  CHECK(a.traffic().bytes <= b.traffic().bytes);
}

TEST_CASE("a region inside of a region, and a loop in it, leave the third axis to the planner") {
  const std::vector<dynamic::input_spec> inputs{dynamic::input<double>({8, 6}, {"x", "z"}),
                                                dynamic::input<double>({6, 6}, {"z", "y"})};
  const auto by_hand = [](const std::vector<value>& in) {
    return manual<"x">(
        [](value x, value w) {  // [4,6] and [6,6]
          return manual<"y">(
              [](value a, value u) {  // [4,6] and the device's columns, [6,3]
                return fori_loop(
                    3,
                    [&](value, value now) {
                      return local::all_gather<"y", state::replica>(tanh(einsum("bd,df->bf", now, u)), 1);
                    },
                    a);
              },
              takes<replica<"y">, split<_, "y">>{}, gives<replica<"y">>{})(x, w);
        },
        takes<split<"x", _>, replica<"x">>{}, gives<split<"x", _>>{})(in[0], in[1]);
  };
  const auto automatic = [](const std::vector<value>& in) {
    return fori_loop(
        3, [&](value, value now) { return tanh(einsum("bd,df->bf", now, in[1])); }, in[0]);
  };
  const dynamic::mesh m({{"x", 2}, {"y", 2}, {"z", 3}});
  const auto a = with_gradients(by_hand, m.with({.checked = true}), inputs), b = with_gradients(automatic, m, inputs);
  check_same(a, b, inputs);
  CHECK(a.traffic().over("z").bytes > 0);
}

TEST_CASE("in a region, a reshape cuts an axis that is the planner's") {
  const layer f = [](const std::vector<value>& in) {
    return manual<"x">(
        [](value a, value b) {
          const value place = cast<double>(1 + local::axis_index<"x">(a));
          const value rows = transpose(reshape(a, {2, 4, 3}), {1, 0, 2}) * broadcast_in_dim(place, {4, 2, 3}, {});
          return einsum("ab,cb->ac", reshape(local::rotate<"x">(rows), {8, 3}), b);
        },
        takes<split<"x", _>, replica<"x">>{}, gives<split<"x", _>>{})(in[0], in[1]);
  };
  const std::vector<dynamic::input_spec> alone{dynamic::input<double>({16, 3}), dynamic::input<double>({5, 3})};
  const auto expected = with_gradients(f, dynamic::mesh({{"x", 2}}), alone);
  const std::vector<dynamic::mesh::axis> axes{{"x", 2}, {"y", 4}};
  for (const bool is_first : {true, false}) {  // 8 rows over y:4 become 2 and 4: y:(1)2 and y:(2)2
    const auto found = with_gradients(f, dynamic::mesh({axes[is_first ? 0 : 1], axes[is_first ? 1 : 0]}).with({.checked = true}),
                                      {dynamic::input<double>({16, 3}, {"x,y", ""}), alone[1]});
    check_same(found, expected, alone);
  }
}

TEST_CASE("in a program with types, parts of regions are cut evenly by other axes") {
  using on = axis_state;
  const auto compiled = [](std::int64_t extent, const dynamic::value_states& states, auto region) {
    dynamic::builder b(dynamic::mesh({{"x", 2}, {"y", 4}}));
    dynamic::strict_program p(b, "");
    const value x = b.input(dynamic::input<double>({extent}));
    p.input(x, states);
    b.output(region(x));
    return b.compile();
  };
  const dynamic::value_states both{{on{state::shard, 0}, on{state::shard, 0}}, {{0, 0}, {1, 0}}};
  const auto numbered = [](value x) {
    return manual<"x">(
        [](value a) { return a * broadcast_in_dim(cast<double>(1 + local::axis_index<"x">(a)), {a.shape()[0]}, {}); },
        takes<split<"x">>{}, gives<split<"x">>{})(x);
  };
  CHECK(error_of([&] {
          static_cast<void>(compiled(12, both, numbered));
        }).find("dim 0, 12 elements, is cut into parts of 6 by `x`, and these by `y` into 4 parts that are not equal") !=
        std::string::npos);
  const auto even = compiled(16, both, numbered).run(simulated{}, std::vector<double>(16, 1.0));
  for (std::size_t i = 0; i < 16; ++i) CHECK(even[0].data<double>()[i] == (i < 8 ? 1 : 2));

  // An axis of one device cuts nothing, in any position.
  dynamic::builder b(dynamic::mesh({{"y", 1}, {"x", 2}}));
  dynamic::strict_program p(b, "");
  const value ones = b.input(dynamic::input<double>({16}));
  p.input(ones, both);  // y before x
  b.output(numbered(ones));
  const auto behind_one = b.compile().run(simulated{}, std::vector<double>(16, 1.0));
  for (std::size_t i = 0; i < 16; ++i) CHECK(behind_one[0].data<double>()[i] == (i < 8 ? 1 : 2));

  const dynamic::value_states one{{on{state::replica}, on{state::shard, 0}}};
  const auto own = [](value x) {
    return manual<"x">([](value a) { return local::own_part<"x">(a, 0); }, takes<replica<"x">>{}, gives<split<"x">>{})(x);
  };
  CHECK(error_of([&] { static_cast<void>(compiled(12, one, own)); }).find("these by `y` into 4 parts that are not equal") !=
        std::string::npos);
}

TEST_CASE("a split that would cut a part of a region unevenly is refused, or given up where that is allowed") {
  const auto compiled = [](bool is_allowed) {
    dynamic::builder b(dynamic::mesh({{"x", 2}, {"y", 4}}));
    if (is_allowed) b.allow_replication();
    const value x = b.input(dynamic::input<double>({12}, {"x,y"}));
    b.output(manual<"x">([](value a) { return 2.0 * local::rotate<"x">(a); }, takes<split<"x">>{}, gives<split<"x">>{})(x));
    return b.compile();
  };
  CHECK(error_of([&] { static_cast<void>(compiled(false)); }).find("is cut evenly by the axes that are not the region's") !=
        std::string::npos);
  std::vector<double> numbers;
  for (int i = 0; i < 12; ++i) numbers.push_back(i);
  const auto result = compiled(true).run(threads{}, numbers);
  for (std::size_t i = 0; i < 12; ++i) CHECK(result[0].data<double>()[i] == 2 * static_cast<double>((i + 6) % 12));
}

TEST_CASE("terms of a gradient are parts of a dim and partial sums alike") {
  const auto program = with_gradients(
      [](const std::vector<value>& in) {
        return manual<"x">(
            [](value a, value b) {
              const value t = local::to_varying<"x">(tanh(b));
              return local::all_to_all<"x">(a * (t + b), 0, 1) * local::all_to_all<"x">(t, 0, 1);
            },
            takes<split<"x", _>, replica<"x">>{}, gives<split<_, "x">>{})(in[0], in[1]);
      },
      dynamic::mesh({{"x", 2}}), {dynamic::input<double>({8, 4}), dynamic::input<double>({4, 4})});
  check_slopes(program, {dynamic::input<double>({8, 4}), dynamic::input<double>({4, 4})});
}

/// One line of a body: an operator, a collective along `x`, or, if `m` has other axes, an annotation for these axes.
struct line {
  int is = 0;  // kinds of lines: see apply
  int a = 0, b = 0, dim = 0;
  std::int64_t by = 1;
};
constexpr int kinds_of_lines = 30;

value annotated(value v, std::int64_t by) {
  switch (by % 7) {
    case 0: return reshard(v, split<"y", _>{});
    case 1: return reshard(v, split<_, "y">{});
    case 2: return reshard(v, split<"z", "y">{});
    case 3: return reshard(v, split<"y,z", _>{});
    case 4: return reshard(v, split<_, "z,y">{});
    case 5: return reshard(v, split<_, _>{});
    default: return reshard(v, split<"z", "?">{});
  }
}
value apply(const line& o, value a, value b, bool has_others) {
  const auto rows = a.shape()[0], cols = a.shape()[1];
  const auto refuse = [&] { a.graph()->fail({}, "test", detail::mistake::other, "not these shapes"); };
  switch (o.is) {
    case 0: return a + b;
    case 1: return a * b;
    case 2: return 0.25 * einsum("ab,bc->ac", a, b);
    case 3: return tanh(a);
    case 4: return transpose(a, {1, 0});
    case 5: return broadcast_in_dim(reduce(a, monoid::add, {o.dim}), {rows, cols}, {1 - o.dim});
    case 6: return flip(a, {o.dim});
    case 7: return roll(a, o.by, along(o.dim));
    case 8: return concatenate({a, b}, o.dim);
    case 9:
      if (rows < 2 || cols < 2) refuse();
      return slice(a, {rows / 2, 0}, {rows, cols - 1});
    case 10: return reshape(a, {cols, rows});
    case 11: return reshape(transpose(reshape(a, {rows, cols, 1}), {1, 2, 0}), {cols, rows});
    case 12: return scan_along(a, monoid::add, o.dim);
    case 13: return einsum("ab,cb->ac", a, b);
    case 14: return 0.5 * local::all_reduce<"x">(a);
    case 15: return 0.5 * local::all_reduce<"x", state::replica>(a);
    case 16: return local::all_gather<"x">(a, o.dim);
    case 17: return local::all_gather<"x", state::replica>(a, o.dim);
    case 18: return local::reduce_scatter<"x">(a, o.dim);
    case 19: return local::all_to_all<"x">(a, 1 - o.dim, o.dim);
    case 20: return local::rotate<"x">(a, o.by);
    case 21: return local::shift_devices<"x">(a, o.by);
    case 22: return local::own_part<"x">(a, o.dim);
    case 23: return local::to_replica<"x">(a);
    case 24: return local::to_varying<"x">(a);
    case 25: return local::to_partial<"x">(a);
    case 26: return local::halo<"x">(a, 1, 1, along(o.dim), o.by == 2);
    case 27: return a * broadcast_in_dim(cast<double>(local::axis_index<"x">(a)), {rows, cols}, {});
    default: return has_others ? annotated(a, o.by) : a;
  }
}
struct body {
  std::vector<line> lines;
  int entry = 0, exit = 0;

  template <class Takes, class Gives>
  [[nodiscard]] value region(value a, value b, bool has_others) const {
    return manual<"x">(
        [&](value p, value q) {
          std::vector<value> v{p, q};
          for (const auto& o : lines)
            v.push_back(apply(o, v[static_cast<std::size_t>(o.a)], v[static_cast<std::size_t>(o.b)], has_others));
          return v.back();
        },
        Takes{}, Gives{})(a, b);
  }
  template <class Takes>
  [[nodiscard]] value leaves(value a, value b, bool has_others) const {
    switch (exit) {
      case 0: return region<Takes, gives<split<"x", _>>>(a, b, has_others);
      case 1: return region<Takes, gives<split<_, "x">>>(a, b, has_others);
      case 2: return region<Takes, gives<replica<"x">>>(a, b, has_others);
      case 3: return region<Takes, gives<partial<"x">>>(a, b, has_others);
      default: return region<Takes, gives<invariant<"x">>>(a, b, has_others);
    }
  }
  [[nodiscard]] value operator()(value a, value b, bool has_others) const {
    switch (entry) {
      case 0: return leaves<takes<split<"x", _>, replica<"x">>>(a, b, has_others);
      case 1: return leaves<takes<split<_, "x">, split<"x", _>>>(a, b, has_others);
      case 2: return leaves<takes<invariant<"x">, invariant<"x">>>(a, b, has_others);
      default: return leaves<takes<replica<"x">, split<_, "x">>>(a, b, has_others);
    }
  }
};
bool is_refused(const body& p, const dynamic::mesh& m, std::int64_t size) {
  dynamic::builder b(m);
  b.allow_replication();
  const value x = b.input(dynamic::input<double>({size, size})), w = b.input(dynamic::input<double>({size, size}));
  const value y = p(x, w, true);
  if (b.graph().error.empty()) {
    b.graph().outputs.push_back(y.id());
    detail::run_at_run_time<detail::check_regions_pass>(b.graph());
  }
  return !b.graph().error.empty() || detail::elements(y.shape()) > 4096;
}

TEST_CASE("random regions of one axis give on a mesh of three what they give on that axis alone") {
  std::mt19937 random(122);
  const auto below = [&](std::size_t n) { return static_cast<int>(random() % n); };
  const std::vector<std::string> splits[] = {{"", ""}, {"y", ""}, {"", "y"}, {"x", "y"}, {"z", "y,x"}, {"x,y", "z"}, {"y,z", ""}};
  int ran = 0, sent_by_others = 0, by_kind[kinds_of_lines]{};
  const int programs = static_cast<int>(reference::programs(240));
  for (int k = 0; k < programs; ++k) {
    const std::int64_t n = std::vector<std::int64_t>{2, 3, 2, 1}[random() % 4], size = n == 3 || random() % 2 == 0 ? 6 : 4;
    const std::int64_t z = random() % 3 == 0 ? 3 : 2;
    const dynamic::mesh m({{"x", n}, {"y", 2}, {"z", z}});
    body p;
    p.entry = below(4);
    p.exit = 4;
    for (int trial = 0; trial < 40 && p.lines.size() < 7; ++trial) {
      const auto count = 2 + p.lines.size();
      line o{below(kinds_of_lines), below(count), below(count), below(2), 1 + below(6)};
      if (below(3) != 0) o.a = static_cast<int>(count) - 1;
      p.lines.push_back(o);
      bool is_out = false;
      for (p.exit = 0; p.exit < 5 && !is_out; p.exit += is_out ? 0 : 1) is_out = !is_refused(p, m, size);
      if (!is_out) p.lines.pop_back();
    }
    for (p.exit = 0; p.exit < 5 && is_refused(p, m, size);) ++p.exit;
    if (p.exit == 5) continue;
    std::string words;
    for (const auto& o : p.lines)
      words += std::to_string(o.is) + "(" + std::to_string(o.a) + "," + std::to_string(o.b) + ";" + std::to_string(o.dim) + "," +
               std::to_string(o.by) + ") ";
    std::vector<dynamic::input_spec> inputs;
    std::string given;
    for (int i = 0; i < 2; ++i) {
      const auto& split = splits[random() % 7];
      inputs.push_back(dynamic::input<double>({size, size}, split));
      for (const auto& dim : split) given += (dim.empty() ? "-" : dim) + " ";
    }
    INFO("program ", k, ": ", n, " ", z, " ", size, " ", p.entry, " ", p.exit, " ", given, words);
    const std::vector<dynamic::input_spec> alone{dynamic::input<double>({size, size}), dynamic::input<double>({size, size})};
    const auto with =
        with_gradients([&](const std::vector<value>& in) { return p(in[0], in[1], true); }, m.with({.checked = true}), inputs);
    const auto without =
        with_gradients([&](const std::vector<value>& in) { return p(in[0], in[1], false); }, dynamic::mesh({{"x", n}}), alone);
    check_same(with, without, alone);
    check_slopes(without, alone);
    ++ran;
    sent_by_others += with.traffic().over("y").bytes + with.traffic().over("z").bytes > 0 ? 1 : 0;
    for (const auto& o : p.lines) ++by_kind[o.is];
  }
  CHECK(ran > programs * 9 / 10);
  CHECK(sent_by_others > programs / 3);
  for (int kind = 0; kind < kinds_of_lines && programs >= 240; ++kind) CHECK_MESSAGE(by_kind[kind] > 0, kind);
}

}  // namespace manual_some_axes
