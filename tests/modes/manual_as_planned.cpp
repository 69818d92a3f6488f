// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Inside a manual region, plans along other axes equal the plans outside. Sums are delayed until they are read, values
// that are read only in slices are computed in slices, and small collectives are one message.
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/modes/manual.hpp>
#include <gspmd/ops/ghost_zones.hpp>

#include "support/by_hand.hpp"
#include "support/error_of.hpp"
#include "support/run_random.hpp"

using namespace gspmd;

namespace manual_as_planned {

using caught::error_of;
using written_by_hand::some;
using values = std::vector<value>;

/// One line of a body. Its values have rows that are split along `data`, and columns that the planner may split.
struct line {
  int is = 0;  // kinds of lines: see apply
  int a = 0, b = 0, weight = 0;
};
constexpr int kinds_of_lines = 16;

constexpr std::int64_t rows = 8;
value laid(value v, bool is_inside, bool is_split) {
  if (is_split) return is_inside ? reshard(v, split<_, "model">{}) : reshard(v, split<"data", "model">{});
  return is_inside ? reshard(v, split<_, _>{}) : reshard(v, split<"data", _>{});
}
value apply(const line& o, value a, value b, value w, bool is_inside) {
  const auto n = a.shape()[0], width = a.shape()[1];
  const auto along_rows = [&](value row) { return broadcast_in_dim(row, {n, width}, {0}); };
  const auto times = [&](value x) { return 0.5 * einsum("bd,df->bf", x, w); };
  switch (o.is) {
    case 0: return a + b;
    case 1: return a - 0.5 * b;
    case 2: return a * b;
    case 3: return tanh(a);
    case 4:
    case 5:
    case 6: return times(a);
    case 7: return times(a) + times(b);
    case 8: return 0.5 * einsum("bd,fd->bf", a, w);
    case 9: return slice(concatenate({a, b}, 1), {0, width / 2}, {n, width / 2 + width});
    case 10: return tanh(slice(concatenate({a, b}, 1), {0, 0}, {n, width}));
    case 11: return a - along_rows(reduce(a, monoid::max, {1}));
    case 12: return 0.25 * a * along_rows(reduce(a, monoid::add, {1}));
    case 13: return laid(a, is_inside, true);
    case 14: return laid(a, is_inside, false);
    default:
      return fori_loop(
          3, [&](value, value now) { return tanh(times(now)) + b; }, a);
  }
}
struct body {
  std::vector<line> lines;
  bool has_two_results = false;

  [[nodiscard]] values operator()(const values& in, bool is_inside) const {
    values v{in[0], in[1]};
    for (const auto& o : lines)
      v.push_back(apply(o, v[static_cast<std::size_t>(o.a)], v[static_cast<std::size_t>(o.b)],
                        in[static_cast<std::size_t>(2 + o.weight)], is_inside));
    return has_two_results ? values{v[v.size() - 2], v.back()} : values{v.back()};
  }
};
using batch = split<"data", _>;
using weight = replica<"data">;

dynamic::program compiled(const dynamic::mesh& m, const std::vector<dynamic::input_spec>& inputs, const body& f, bool by_hand) {
  dynamic::builder b(m);
  values in;
  for (const auto& i : inputs) in.push_back(b.input(i));
  values out;
  if (!by_hand) {
    for (const auto& y : f(in, false)) out.push_back(reshard(y, split<"data", "?">{}));
  } else if (f.has_two_results) {
    const auto [y, z] = manual<"data">(
        [&](value p, value q, value w, value u) {
          const values r = f({p, q, w, u}, true);
          return std::tuple{r[0], r[1]};
        },
        takes<batch, batch, weight, weight>{}, gives<batch, batch>{})(in[0], in[1], in[2], in[3]);
    out = {y, z};
  } else {
    out = {manual<"data">(
        [&](value p, value q, value w, value u) {
          return f({p, q, w, u}, true)[0];
        },
        takes<batch, batch, weight, weight>{}, gives<batch>{})(in[0], in[1], in[2], in[3])};
  }
  for (const auto& y : out) b.output(y);
  return b.compile();
}
std::vector<dynamic::any_array> results_of(const dynamic::program& p, const std::vector<dynamic::input_spec>& inputs, auto on) {
  std::vector<std::vector<double>> data;
  for (const auto& in : inputs) data.push_back(some(in, static_cast<int>(data.size())));
  return p.run(on, data[0], data[1], data[2], data[3]);
}
void check_same(const std::vector<dynamic::any_array>& a, const std::vector<dynamic::any_array>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t k = 0; k < a.size(); ++k)
    for (std::size_t i = 0; i < b[k].bytes.size() / sizeof(double); ++i)
      CHECK(a[k].data<double>()[i] == doctest::Approx(b[k].data<double>()[i]).epsilon(1e-9));
}

/// Checks that one device sends the same bytes in the same collectives, and that the results are equal. Checks the
/// hand-written form too.
void check_alike(const dynamic::mesh& m, const std::vector<dynamic::input_spec>& inputs, const body& f) {
  const auto by_hand = compiled(m, inputs, f, true), automatic = compiled(m, inputs, f, false);
  for (const auto kind : {collective_kind::all_reduce, collective_kind::all_gather, collective_kind::reduce_scatter,
                          collective_kind::all_to_all, collective_kind::collective_permute}) {
    CHECK(by_hand.traffic().in(kind).bytes == automatic.traffic().in(kind).bytes);
    CHECK(by_hand.traffic().in(kind).collectives == automatic.traffic().in(kind).collectives);
  }
  const auto expected = results_of(automatic, inputs, simulated{});
  check_same(results_of(by_hand, inputs, simulated{}), expected);
  check_same(results_of(compiled(m.with({.checked = true}), inputs, f, true), inputs, threads{}), expected);
}

const dynamic::mesh two_by_two({{"data", 2}, {"model", 2}});
std::vector<dynamic::input_spec> inputs_with(const std::vector<std::string>& weights, const std::string& columns = "model") {
  return {dynamic::input<double>({rows, 8}, {"data", columns}), dynamic::input<double>({rows, 8}, {"data", columns}),
          dynamic::input<double>({8, 8}, weights), dynamic::input<double>({8, 8}, weights)};
}

TEST_CASE("a sum along an axis of the planner's waits until all terms are there, and is scaled before") {
  body f;
  f.lines = {{4, 0, 0, 0}, {4, 1, 1, 1}, {1, 2, 3, 0}};  // p w - 0.5 q u
  const auto inputs = inputs_with({"model", ""});
  check_alike(two_by_two, inputs, f);
  const auto p = compiled(two_by_two, inputs, f, true);
  CHECK(p.traffic().collectives == 1);
  CHECK(p.traffic().in(collective_kind::all_reduce).bytes == 4 * 8 * 8);
}

TEST_CASE("what is only read in slices is added up in slices") {
  body f;
  f.lines = {
      {4, 0, 0, 0}, {14, 2, 2, 0}, {3, 3, 3, 0}, {13, 4, 4, 0}};  // whole rows of p w are requested, and parts of the rows read
  const auto inputs = inputs_with({"model", ""});
  check_alike(two_by_two, inputs, f);
  const auto p = compiled(two_by_two, inputs, f, true);
  CHECK(p.traffic().collectives == 1);
  CHECK(p.traffic().in(collective_kind::reduce_scatter).bytes == 4 * 4 * 8);
}

TEST_CASE("small collectives along an axis of the planner's are one message, of arguments too") {
  body sums;
  sums.lines = {{4, 0, 0, 0}, {3, 2, 2, 0}, {4, 1, 1, 1}, {3, 4, 4, 0}, {0, 3, 5, 0}};  // tanh(p w) + tanh(q u)
  const auto inputs = inputs_with({"model", ""});
  check_alike(two_by_two, inputs, sums);
  CHECK(compiled(two_by_two, inputs, sums, true).traffic().collectives == 1);
  body gathers;
  gathers.lines = {{3, 0, 0, 0}, {7, 2, 1, 0}};  // tanh(p) w + q w, where w is split along its columns
  const auto split_columns = inputs_with({"", "model"});
  check_alike(two_by_two, split_columns, gathers);
  CHECK(compiled(two_by_two, split_columns, gathers, true).traffic().collectives == 1);
}

TEST_CASE("collectives that a region writes stay apart from those that are planned, and from each other") {
  dynamic::builder b(two_by_two);
  const auto inputs = inputs_with({"model", ""});
  values in;
  for (const auto& i : inputs) in.push_back(b.input(i));
  const value y = manual<"data">(
      [](value p, value q, value w, value u) {
        const value a = local::all_reduce<"data">(tanh(einsum("bd,df->bf", p, w)));
        const value c = local::all_reduce<"data">(tanh(einsum("bd,df->bf", q, u)));
        return a * c;
      },
      takes<batch, batch, weight, weight>{}, gives<invariant<"data">>{})(in[0], in[1], in[2], in[3]);
  b.output(y);
  const auto p = b.compile();
  CHECK(p.traffic().over("data").collectives == 2);
  CHECK(p.traffic().over("data").bytes == 2 * 4 * 8 * 8);
}

TEST_CASE("what lies whole outside of a region is whole inside of it, and nothing is sent for that") {
  body f;
  f.lines = {{9, 0, 1, 0}, {2, 0, 1, 0}};  // a part of both in sequence is cut; if they were split, this would be sent
  f.has_two_results = true;
  const auto inputs = inputs_with({"model", ""}, "");
  check_alike(two_by_two, inputs, f);
  CHECK(compiled(two_by_two, inputs, f, true).traffic().bytes == 0);
}

TEST_CASE("a loop of several sweeps on one exchange is no loop of a region") {
  dynamic::builder b(two_by_two);
  const value x = b.input(dynamic::input<double>({8, 8}, {"model", "data"}));
  b.output(manual<"data">(
      [](value a) {
        return fori_loop(4, ghost<2>([](value, value u) { return 0.25 * (shift(u, -1, along(0)) + shift(u, 1, along(0))); }), a);
      },
      takes<split<_, "data">>{}, gives<split<_, "data">>{})(x));
  CHECK(
      error_of([&] { static_cast<void>(b.compile()); })
          .find("a manual region makes one sweep on each exchange, and no ghost zones; write the loop outside of the region, or "
                "without ghost") != std::string::npos);
}

TEST_CASE("random regions that send nothing themselves are planned as the same program without them") {
  std::mt19937 random(163);
  const auto below = [&](std::size_t n) { return static_cast<int>(random() % n); };
  const std::vector<std::string> weights[] = {{"", "model"}, {"model", ""}, {"", ""}};
  const int programs = static_cast<int>(reference::programs(200));
  int sends = 0, others = 0, dearer = 0;
  for (int k = 0; k < programs; ++k) {
    const std::int64_t parts = 2 + below(2), width = parts * (random() % 2 == 0 ? 2 : 4);
    const dynamic::mesh m({{"data", 2}, {"model", parts}});
    body f;
    f.has_two_results = below(3) == 0;
    std::string words;
    for (int lines = 2 + below(6); lines > 0; --lines) {
      const auto count = 2 + f.lines.size();
      line o{below(kinds_of_lines), below(count), below(count), below(2)};
      if (below(3) != 0) o.a = static_cast<int>(count) - 1;
      f.lines.push_back(o);
      words +=
          std::to_string(o.is) + "(" + std::to_string(o.a) + "," + std::to_string(o.b) + ";" + std::to_string(o.weight) + ") ";
    }
    std::vector<dynamic::input_spec> inputs;
    for (int i = 0; i < 2; ++i) inputs.push_back(dynamic::input<double>({rows, width}, {"data", below(3) == 0 ? "model" : ""}));
    for (int i = 0; i < 2; ++i) {
      inputs.push_back(dynamic::input<double>({width, width}, weights[below(3)]));
      words += inputs.back().sharding[0] + "|" + inputs.back().sharding[1] + " ";
    }
    INFO("program ", k, ": ", parts, " ", width, " ", words);
    const auto by_hand = compiled(m, inputs, f, true), automatic = compiled(m, inputs, f, false);
    const auto a = by_hand.traffic(), b = automatic.traffic();
    sends += b.bytes > 0 ? 1 : 0;
    const bool is_less = a.bytes < b.bytes || (a.bytes == b.bytes && a.collectives < b.collectives);
    const bool is_same = a.bytes == b.bytes && a.collectives == b.collectives;
    others += is_same ? 0 : 1;
    dearer += is_same || is_less ? 0 : 1;
    const auto expected = results_of(automatic, inputs, simulated{});
    check_same(results_of(by_hand, inputs, simulated{}), expected);
    if (k % 10 == 0) check_same(results_of(compiled(m.with({.checked = true}), inputs, f, true), inputs, threads{}), expected);
  }
  CHECK(sends > programs / 2);
  CHECK(others <= programs / 100);  // the border may hide the sharding of a user
  CHECK(dearer <= programs / 100);
}

}  // namespace manual_as_planned
