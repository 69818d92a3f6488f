// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Programs that type some axes of a mesh and leave the other axes to the planner. They are accepted as with the typed
// axes alone. They have the values and gradients of a single device, and send along the typed axes only the bytes that
// their types state.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/strict_program.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/modes/manual.hpp>
#include <gspmd/report/explain.hpp>
#include <gspmd/transform/grad.hpp>
#include <gspmd/transform/vmap.hpp>

#include "support/error_of.hpp"
#include "support/run_random.hpp"

using namespace gspmd;

namespace explicit_some_axes {

using detail::axis_bit;
using on = axis_state;

/// One operator of a random program, with the numbers of its values. Axes are numbered as in the whole mesh.
struct line {
  int is = 0, a = 0, b = 0, dim = 0;
  std::int64_t by = 1;
  std::vector<std::vector<int>> split{};  // of a reshard: the axes of each dim
  std::vector<int> replica{}, invariant{};
};
constexpr int kinds_of_lines = 21;
constexpr int reshard_line = 17, annotation_line = 18;

struct random_mesh {
  std::vector<dynamic::mesh::axis> axes;
  unsigned typed = 0;  // a bit for each explicit axis

  [[nodiscard]] bool is_typed(int a) const { return (typed >> a & 1U) != 0; }
  [[nodiscard]] std::vector<std::string> typed_names() const {
    std::vector<std::string> names;
    for (std::size_t a = 0; a < axes.size(); ++a)
      if (is_typed(static_cast<int>(a))) names.push_back(axes[a].name);
    return names;
  }
  /// all() is the mesh of all axes, alone() the mesh of the explicit axes.
  [[nodiscard]] dynamic::mesh all() const { return dynamic::mesh(axes).explicit_axes(typed_names()); }
  [[nodiscard]] dynamic::mesh alone() const {
    std::vector<dynamic::mesh::axis> left;
    for (std::size_t a = 0; a < axes.size(); ++a)
      if (is_typed(static_cast<int>(a))) left.push_back(axes[a]);
    return dynamic::mesh(left);
  }
};

/// A program that is built on either mesh, or untyped on a single device.
struct side {
  dynamic::builder b;
  std::optional<dynamic::strict_program> p{};
  std::vector<int> number{};  // by axis of the whole mesh: its number in this mesh, or -1
  std::vector<value> values{};

  explicit side(const dynamic::mesh& m) : b(m) {}
  side(const dynamic::mesh& m, const random_mesh& r) : b(m) {
    p.emplace(b, "");
    for (const auto& a : r.axes) {
      const auto found = m.find(a.name);
      number.push_back(found.empty() ? -1 : static_cast<int>(found[0]));
    }
  }
  [[nodiscard]] value resharded(value v, const line& o) {
    if (!p) return v;
    detail::requested_state asked;
    asked.has_splits = true;
    for (std::size_t d = 0; d < o.split.size(); ++d)
      for (const int a : o.split[d])
        if (number[static_cast<std::size_t>(a)] >= 0)
          asked.layout.splits.push_back(
              {static_cast<std::int8_t>(number[static_cast<std::size_t>(a)]), static_cast<std::int8_t>(d)});
    for (const int a : o.replica) asked.layout.replica |= axis_bit(number[static_cast<std::size_t>(a)]);
    for (const int a : o.invariant) asked.invariant |= axis_bit(number[static_cast<std::size_t>(a)]);
    asked.has_splits =
        o.is == reshard_line || !asked.layout.splits.empty();  // an annotation is the identity on a mesh without its axes
    return {v.graph(), detail::add_requested_state(*v.graph(), v.id(), asked, {})};
  }
  value apply(const line& o) {
    const value a = values[static_cast<std::size_t>(o.a)], c = values[static_cast<std::size_t>(o.b)];
    const auto rows = a.shape()[0], cols = a.shape()[1];
    const auto exchanging = [&](auto f) {
      if (!p || o.by % 3 == 0) return f(a);
      return p->with_exchange(b.mesh().names(), f, a);
    };
    switch (o.is) {
      case 0: return a + c;
      case 1: return a * c;
      case 2: return 0.25 * einsum("ab,bc->ac", a, c);
      case 3: return tanh(a);
      case 4: return transpose(a, {1, 0});
      case 5: return broadcast_in_dim(reduce(a, monoid::add, {o.dim}), {rows, cols}, {1 - o.dim});
      case 6: return exchanging([&](value v) { return flip(v, {o.dim}); });
      case 7: return exchanging([&](value v) { return roll(v, o.by, along(o.dim)); });
      case 8: return concatenate({a, c}, o.dim);
      case 9: return rows < 2 ? a : slice(a, {rows / 2, 0}, {rows, cols});
      case 10: return reshape(a, {cols, rows});
      case 11: return reduce(reshape(a, {rows, cols, 1}), monoid::add, {2});
      case 12: return scan_along(a, monoid::add, o.dim);
      case 13: return einsum("ab,cb->ac", a, c);
      case 14: return a + broadcast_in_dim(reduce(c, monoid::max, {o.dim}), {rows, cols}, {1 - o.dim});
      case 15:
        return fori_loop(
            2, [&](value, value v) { return 0.5 * (v + c); }, a);
      case 16: return exchanging([](value u) { return stencil<1, 1>([](auto v) { return v(-1, 0) + v(0, 1) + v(0, 0); }, u); });
      case reshard_line: return resharded(a, o);
      case annotation_line: return resharded(a, o);
      case 19:
        return fori_loop(
            2, [&](value, value v) { return v + 0.5 * einsum("ab,bc->ac", a, c); }, constant(a, {rows, c.shape()[1]}, 0.0));
      default: return a * constant(a, {rows, cols}, 0.5) + cast<double>(iota<std::int64_t>(a, {rows, cols}, o.dim));
    }
  }
};

struct program {
  random_mesh mesh;
  std::int64_t size = 4;
  struct input {
    std::vector<std::vector<int>> split;
    std::vector<int> replica, partial;
  };
  std::vector<input> inputs;
  std::vector<line> lines;

  [[nodiscard]] bool fits(std::int64_t extent, const std::vector<int>& of_dim) const {
    std::int64_t typed = 1, rest = 1;
    for (const int a : of_dim) (mesh.is_typed(a) ? typed : rest) *= mesh.axes[static_cast<std::size_t>(a)].size;
    return typed == 1 || ((extent + typed - 1) / typed) % rest == 0;
  }
  void take_inputs(side& s) const {
    for (const auto& in : inputs) {
      const value v = s.b.input(dynamic::input<double>({size, size}));
      s.values.push_back(v);
      if (!s.p) continue;
      dynamic::value_states states{std::vector<on>(s.b.mesh().axes().size(), on{state::invariant}), {}};
      for (std::size_t d = 0; d < 2; ++d)
        for (const int a : in.split[d])
          if (const int n = s.number[static_cast<std::size_t>(a)]; n >= 0) {
            states.on[static_cast<std::size_t>(n)] = {state::shard, static_cast<std::int8_t>(d), monoid::add};
            states.order.emplace_back(n, static_cast<int>(d));
          }
      for (const int a : in.replica)
        states.on[static_cast<std::size_t>(s.number[static_cast<std::size_t>(a)])] = {state::replica};
      for (const int a : in.partial)
        states.on[static_cast<std::size_t>(s.number[static_cast<std::size_t>(a)])] = {state::partial};
      s.p->input(v, states);
    }
  }
};

/// Returns some axes of the mesh on some dims, explicit axes first, if they fit.
std::vector<std::vector<int>> random_splits(const program& p, const std::vector<std::int64_t>& shape, unsigned axes,
                                            std::mt19937& random) {
  std::vector<std::vector<int>> split(shape.size());
  for (const bool typed : {true, false})
    for (std::size_t a = 0; a < p.mesh.axes.size(); ++a) {
      if ((axes >> a & 1U) == 0 || p.mesh.is_typed(static_cast<int>(a)) != typed || random() % 3 == 0) continue;
      auto& dim = split[random() % split.size()];
      dim.push_back(static_cast<int>(a));
      if (typed && random() % 2 == 0) std::rotate(dim.begin(), dim.end() - 1, dim.end());
      for (std::size_t d = 0; d < shape.size() && !typed; ++d)
        if (!p.fits(shape[d], split[d])) split[d].pop_back();
    }
  return split;
}

struct verdict {
  std::string mistake;  // of another kind
  std::vector<dynamic::mode_error> errors;
  friend bool operator==(const verdict& a, const verdict& b) {
    return a.mistake == b.mistake &&
           std::equal(a.errors.begin(), a.errors.end(), b.errors.begin(), b.errors.end(), [](const auto& e, const auto& f) {
             return e.kind == f.kind && e.operand == f.operand && e.axis == f.axis && e.text == f.text &&
                    e.remedies == f.remedies;
           });
  }
  [[nodiscard]] bool is_accepted() const { return mistake.empty() && errors.empty(); }
};
verdict tried(side& s, const line& o) {
  const auto mark = s.p->here();
  const value v = s.apply(o);
  verdict found{s.b.take_mistake(), {}};
  if (!found.mistake.empty() || !v.is_valid()) s.p->skip();
  else s.p->check();
  found.errors = s.p->errors();
  s.p->back_to(mark);
  if (found.is_accepted()) s.values.push_back(v);
  return found;
}

/// Returns a value that is not partial along explicit axes.
value whole(side& s, value v) {
  if (!s.p) return v;
  s.p->check();
  const auto is = s.p->states(v);
  if (!is) return v;  // the program is refused
  detail::requested_state asked;
  for (std::size_t a = 0; a < is->on.size(); ++a)
    if (is->on[a].is == state::partial) asked.invariant |= axis_bit(static_cast<int>(a));
  return asked.invariant == 0 ? v : value{v.graph(), detail::add_requested_state(*v.graph(), v.id(), asked, {})};
}
/// Compiles the whole program, with or without gradients. Returns the mistake if it is refused.
std::string compiled(const program& p, side& s, bool has_gradients, std::optional<dynamic::program>& made) {
  s.b.allow_replication();
  p.take_inputs(s);
  for (const auto& o : p.lines) s.values.push_back(s.apply(o));
  const value last = s.values.back(), other = s.values[s.values.size() / 2];
  s.b.output(whole(s, last));
  s.b.output(whole(s, other));
  if (has_gradients)
    for (const auto& g :
         grad(einsum("ab,ab->", whole(s, last), whole(s, last)), std::vector<value>{s.values[0], s.values[1], s.values[2]}))
      s.b.output(whole(s, g));
  return caught::error_of([&] { made.emplace(s.b.compile()); });
}
/// Returns the bytes that are sent along any of `names`.
std::int64_t sent_over(const dynamic::program& p, const std::vector<std::string>& names) {
  detail::axis_mask axes = 0;
  for (const auto& n : names) axes |= p.mesh_info().mask_of(n);
  std::int64_t bytes = 0;
  for (const auto& s : p.view().steps)
    if (detail::communicates(s) && (s.axes & axes) != 0) bytes += s.bytes_sent;
  return bytes;
}

program random_program(std::mt19937& random, int (&by_kind)[kinds_of_lines], int& refused) {
  const auto below = [&](std::size_t n) { return static_cast<int>(random() % n); };
  program p;
  const std::vector<std::vector<std::int64_t>> sizes{{2, 2}, {2, 3}, {3, 2}, {2, 1}, {1, 2}, {2, 2, 2}, {2, 3, 2}, {4, 2}};
  const auto& of = sizes[random() % sizes.size()];
  for (std::size_t a = 0; a < of.size(); ++a) p.mesh.axes.push_back({std::string(1, static_cast<char>('x' + a)), of[a]});
  p.mesh.typed = 1 + static_cast<unsigned>(below((std::size_t{1} << of.size()) - 2));
  const unsigned all = (1U << of.size()) - 1;
  p.size = std::vector<std::int64_t>{4, 6, 8, 5, 12}[random() % 5];
  for (int k = 0; k < 3; ++k) {
    program::input in;
    in.split = random_splits(p, {p.size, p.size}, random() % 2 == 0 ? all : p.mesh.typed, random);
    for (std::size_t a = 0; a < of.size(); ++a) {
      const int axis = static_cast<int>(a);
      const bool splits =
          std::count(in.split[0].begin(), in.split[0].end(), axis) + std::count(in.split[1].begin(), in.split[1].end(), axis) > 0;
      if (!p.mesh.is_typed(axis) || splits) continue;
      if (below(2) == 0) in.replica.push_back(axis);
      else if (below(5) == 0) in.partial.push_back(axis);
    }
    p.inputs.push_back(in);
  }
  side mixed(p.mesh.all(), p.mesh), alone(p.mesh.alone(), p.mesh);
  p.take_inputs(mixed);
  p.take_inputs(alone);
  for (int trial = 0; trial < 50 && p.lines.size() < 7; ++trial) {
    const auto count = 3 + p.lines.size();
    line o{below(kinds_of_lines), below(count), below(count), below(2), 1 + below(6)};
    if (below(3) != 0) o.a = static_cast<int>(count) - 1;
    const auto shape = mixed.values[static_cast<std::size_t>(o.a)].shape();
    if (o.is == reshard_line || o.is == annotation_line)
      o.split = random_splits(p, {shape[0], shape[1]},
                              o.is == annotation_line ? all & ~p.mesh.typed
                              : below(2) == 0         ? all
                                                      : p.mesh.typed,
                              random);
    if (o.is == annotation_line) {  // after the axes of the type
      const auto states = mixed.p->states(mixed.values[static_cast<std::size_t>(o.a)]);
      bool fits = true;
      for (std::size_t d = 0; d < 2; ++d) {
        auto both = o.split[d];
        for (const auto& [axis, dim] : states->order)
          if (dim == static_cast<int>(d) && p.mesh.is_typed(axis)) both.push_back(axis);
        fits = fits && p.fits(shape[static_cast<int>(d)], both);
      }
      if (!fits) continue;
    }
    for (std::size_t a = 0; a < of.size() && o.is == reshard_line; ++a) {
      const int axis = static_cast<int>(a);
      const bool splits =
          std::count(o.split[0].begin(), o.split[0].end(), axis) + std::count(o.split[1].begin(), o.split[1].end(), axis) > 0;
      if (p.mesh.is_typed(axis) && !splits) (below(2) == 0 ? o.replica : o.invariant).push_back(axis);
    }
    const verdict with = tried(mixed, o), without = tried(alone, o);
    CHECK_MESSAGE(with == without, (with.errors.empty() ? with.mistake : with.errors[0].text)
                                       << " / " << (without.errors.empty() ? without.mistake : without.errors[0].text));
    refused += with.errors.empty() ? 0 : 1;
    if (!with.is_accepted() || !without.is_accepted()) continue;
    if (detail::elements(mixed.values.back().node().shape) > 2000) {
      mixed.values.pop_back();
      alone.values.pop_back();
      continue;
    }
    p.lines.push_back(o);
    ++by_kind[o.is];
  }
  return p;
}

TEST_CASE("random programs are accepted as if there were the explicit axes alone, and give one device's values and gradients") {
  std::mt19937 random(28);
  int by_kind[kinds_of_lines]{}, refused = 0, ran = 0, with_gradients = 0, sent_by_planner = 0, sent_by_types = 0, gave_way = 0;
  const int programs = static_cast<int>(reference::programs(260));
  for (int k = 0; k < programs; ++k) {
    const program p = random_program(random, by_kind, refused);
    if (p.lines.empty()) continue;
    std::string words;
    for (const auto& a : p.mesh.axes) words += a.name + std::to_string(a.size) + " ";
    for (const auto& n : p.mesh.typed_names()) words += n;
    for (const auto& o : p.lines)
      words += " " + std::to_string(o.is) + "(" + std::to_string(o.a) + "," + std::to_string(o.b) + ";" + std::to_string(o.dim) +
               "," + std::to_string(o.by) + ")";
    INFO("program ", k, ": ", p.size, " ", words);
    std::optional<dynamic::program> with, without, one;
    bool has_gradients = true;
    std::string said;
    for (;; has_gradients = false) {
      side mixed(p.mesh.all(), p.mesh), alone(p.mesh.alone(), p.mesh);
      said = compiled(p, mixed, has_gradients, with);
      CHECK(said == compiled(p, alone, has_gradients, without));
      if (said == "no error" || !has_gradients) break;
    }
    if (!with || !without) continue;
    side device(p.mesh.all().with_one_device());
    static_cast<void>(compiled(p, device, has_gradients, one));
    REQUIRE(one.has_value());
    std::vector<std::vector<double>> data(3);
    for (auto& d : data)
      for (std::int64_t i = 0; i < p.size * p.size; ++i) d.push_back(static_cast<double>(static_cast<int>(random() % 9)) / 4 - 1);
    const auto expected = one->run(serial{}, data[0], data[1], data[2]);
    const auto results =
        k % 8 == 0 ? with->run(threads{}, data[0], data[1], data[2]) : with->run(simulated{}, data[0], data[1], data[2]);
    REQUIRE(results.size() == expected.size());
    bool alike = true;
    for (std::size_t r = 0; r < results.size(); ++r) {
      REQUIRE(results[r].bytes.size() == expected[r].bytes.size());
      for (std::size_t i = 0; i < results[r].bytes.size() / sizeof(double); ++i)
        alike = alike && results[r].data<double>()[i] == doctest::Approx(expected[r].data<double>()[i]).epsilon(1e-8);
    }
    CHECK(alike);
    const auto typed = p.mesh.typed_names();
    bool is_exchanged = false;  // the planner may choose between two forms of a permitted exchange
    for (const auto& o : p.lines) is_exchanged = is_exchanged || o.is == 6 || o.is == 7 || o.is == 16;
    if (!is_exchanged) CHECK(sent_over(*with, typed) <= sent_over(*without, typed));
    ++ran;
    with_gradients += has_gradients ? 1 : 0;
    sent_by_types += sent_over(*with, typed) > 0 ? 1 : 0;
    const auto& steps = with->view().steps;
    if (std::any_of(steps.begin(), steps.end(), [](const auto& s) { return s.forced; })) {  // an automatic axis
      ++gave_way;
      CHECK(explain(*with).find("forced: a user cannot work on this split") != std::string::npos);
    }
    sent_by_planner += with->traffic().bytes > sent_over(*with, typed) ? 1 : 0;
  }
  MESSAGE(gave_way, " gave way, ", ran, " ran, ", with_gradients, " with gradients, ", refused, " refusals, ", sent_by_types, " ",
          sent_by_planner);
  CHECK(ran > programs * 8 / 10);
  CHECK(sent_by_planner > programs / 4);
  CHECK(sent_by_types > programs / 4);
  CHECK((gave_way > 0 || programs < 240));
  for (int kind = 0; kind < kinds_of_lines && programs >= 240; ++kind) CHECK_MESSAGE(by_kind[kind] > 0, kind);
}

TEST_CASE("a manual region over the explicit axis; what is in it is planned along the other") {
  const auto compiled = [](const dynamic::mesh& m, bool is_typed) {
    dynamic::builder b(m);
    std::optional<dynamic::strict_program> p;
    const value x = b.input(dynamic::input<double>({8, 6})), w = b.input(dynamic::input<double>({6, 4}));
    if (is_typed) {
      p.emplace(b, "");
      p->input(x, {{on{state::shard, 0, monoid::add}, on{state::invariant}}});
      p->input(w, {{on{state::replica}, on{state::shard, 1, monoid::add}}});
    }
    const auto product = [](value v, value u) { return tanh(einsum("bd,df->bf", v, u)); };
    value y;
    if (is_typed)
      y = manual<"data">(
          [&](value v, value u) {
            const value h = product(v, u);
            return local::all_reduce<"data">(local::to_partial<"data">(einsum("bf->f", h)));
          },
          takes<split<"data", _>, replica<"data">>{}, gives<invariant<"data">>{})(x, w);
    else y = einsum("bf->f", product(x, w));
    b.output(y);
    return b.compile();
  };
  const auto typed = compiled(dynamic::mesh({{"data", 2}, {"model", 2}}).explicit_axes({"data"}), true);
  const auto one = compiled(dynamic::mesh({{"data", 1}}), false);
  std::vector<double> xs, ws;
  for (int k = 0; k < 48; ++k) xs.push_back(k % 7 / 4.0 - 0.5);
  for (int k = 0; k < 24; ++k) ws.push_back(k % 5 / 4.0 - 0.5);
  const auto found = typed.run(threads{}, xs, ws), expected = one.run(serial{}, xs, ws);
  for (std::size_t k = 0; k < 4; ++k) CHECK(found[0].data<double>()[k] == doctest::Approx(expected[0].data<double>()[k]));
  CHECK(sent_over(typed, {"data"}) > 0);
}

TEST_CASE("automatic axes cut evenly what explicit ones leave of a dim, or such an input is refused") {
  const auto said = [](std::int64_t extent) {
    dynamic::builder b(dynamic::mesh({{"data", 2}, {"model", 4}}).explicit_axes({"data"}));
    dynamic::strict_program p(b, "");
    const value x = b.input(dynamic::input<double>({extent}));
    p.input(x, {{on{state::shard, 0, monoid::add}, on{state::shard, 0, monoid::add}}, {{0, 0}, {1, 0}}});
    b.output(2.0 * x);
    return caught::error_of([&] { static_cast<void>(b.compile()); });
  };
  CHECK(said(12).find(
            "input 0: dim 0, 12 elements, is cut into parts of 6 by `data`, and these by `model` into 4 parts that are not "
            "equal; split another dim, or pad this one") != std::string::npos);
  CHECK(said(16) == "no error");
}

TEST_CASE("vmap over examples that an explicit axis splits sends nothing over it; the example is planned along the other") {
  dynamic::builder b(dynamic::mesh({{"data", 2}, {"model", 2}}).explicit_axes({"data"}));
  const value x = b.input(dynamic::input<double>({8, 6})), w = b.input(dynamic::input<double>({6, 4}));
  dynamic::strict_program p(b, "");
  p.input(x, {{on{state::shard, 0, monoid::add}, on{state::invariant}}});
  p.input(w, {{on{state::replica}, on{state::shard, 0, monoid::add}}});
  b.output(vmap<0, not_mapped>([](value v, value u) { return tanh(einsum<"d,df->f">(v, u)); })(x, w));
  const auto program = b.compile();
  CHECK(sent_over(program, {"data"}) == 0);
  CHECK(sent_over(program, {"model"}) > 0);
  std::vector<double> xs, ws;
  for (int k = 0; k < 48; ++k) xs.push_back(k % 7 / 4.0 - 0.5);
  for (int k = 0; k < 24; ++k) ws.push_back(k % 5 / 4.0 - 0.5);
  const auto found = program.run(simulated{}, xs, ws);
  for (std::size_t e = 0; e < 8; ++e)
    for (std::size_t f = 0; f < 4; ++f) {
      double sum = 0;
      for (std::size_t d = 0; d < 6; ++d) sum += xs[6 * e + d] * ws[4 * d + f];
      CHECK(found[0].data<double>()[4 * e + f] == doctest::Approx(std::tanh(sum)));
    }
}

TEST_CASE("what the mesh asks of plans reaches that of the automatic axes: a search, and what a device may hold") {
  const auto compiled = [](const dynamic::mesh& m) {
    dynamic::builder b(m);
    const value x = b.input(dynamic::input<float>({512, 256})), w1 = b.input(dynamic::input<float>({256, 1024})),
                w2 = b.input(dynamic::input<float>({1024, 256}));
    dynamic::strict_program p(b, "");
    const on whole{state::invariant}, rows{state::shard, 0, monoid::add};
    p.input(x, {{whole, rows, rows}});
    p.input(w1, {{whole, rows, rows}});
    p.input(w2, {{whole, whole, rows}});
    const auto y = einsum<"bf,fd->bd">(relu(einsum<"bd,df->bf">(x, w1)), w2);
    const auto [g1, g2] = grad(mean(y * y), std::tuple{w1, w2});
    b.output(w1 - 0.1 * g1);
    b.output(w2 - 0.1 * g2);
    return b.compile();
  };
  const auto m = dynamic::mesh({{"pod", 2}, {"dp", 2}, {"tp", 4}}).explicit_axes({"pod"});
  CHECK(compiled(m.with({.search = true})).traffic().bytes < compiled(m).traffic().bytes);
  CHECK(caught::error_of([&] { static_cast<void>(compiled(m.with({.memory = 1000}))); }).find("are allowed: split more") !=
        std::string::npos);
}

}  // namespace explicit_some_axes
