// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Programs with explicit communication. An accepted program has the values and gradients of a single device, and sends
// only the bytes that its types state.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/strict_program.hpp>
#include <gspmd/dynamic/written_program.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/transform/grad.hpp>

#include "support/error_of.hpp"
#include "support/typed_law.hpp"

using namespace gspmd;

namespace strict_programs {

/// One operator of a random program, with the numbers of its values.
struct written {
  enum kind { add, multiply, negate, relu, transpose, product, column_sum, move, zero_plus, groups } what = add;
  int a = 0, b = 0;
  std::string axis;
  transition_kind by = transition_kind::convert;
  axis_state from, to;
};

struct random_typed_program {
  std::vector<dynamic::mesh::axis> axes;
  std::int64_t size = 4;
  std::vector<dynamic::value_states> inputs;
  std::vector<written> ops;
  struct refusal {
    written is;
    std::vector<axis_state> a, b;  // by axis: the states of the operands
    std::string kind;
  };
  std::vector<refusal> refused{};

  [[nodiscard]] dynamic::input_spec input() const { return dynamic::input<double>({size, size}); }

  static value apply(const written& w, const std::vector<value>& v, dynamic::strict_program* p) {
    const value a = v[static_cast<std::size_t>(w.a)], b = v[static_cast<std::size_t>(w.b)];
    switch (w.what) {
      case written::add: return a + b;
      case written::multiply: return a * b;
      case written::negate: return -operand(a);
      case written::relu: return relu(a);
      case written::transpose: return transpose(a, {1, 0});
      case written::product: return einsum("ab,bc->ac", a, b);
      case written::column_sum: return einsum("ab->b", a);
      case written::zero_plus: return zeros_like(a) + a;
      case written::groups: {  // replaces the rows by the sums of every other row, or of neighbours
        const auto n = a.shape()[0], rows = n % 2 == 0 ? 2 : n;
        const auto sums = sum(reshape(a, {rows, n / rows, n}), w.b % 2);
        return reshape(broadcast_in_dim(sums, {rows, n / rows, n}, {w.b % 2 == 0 ? 1 : 0, 2}), {n, n});
      }
      case written::move: return p == nullptr ? a : p->transition(a, w.by, w.axis, w.from, w.to);
    }
    return {};
  }
};

axis_state some_state(std::mt19937& random) {
  constexpr state whole_states[] = {state::replica, state::invariant, state::partial};
  if (random() % 2 == 0) return {state::shard, static_cast<std::int8_t>(random() % 2), monoid::add};
  return {whole_states[random() % 3]};
}

random_typed_program random_program(std::mt19937& random) {
  random_typed_program r;
  const std::vector<std::vector<int>> meshes{{2}, {3}, {2, 2}, {2, 3}, {1, 2}};
  const auto& sizes = meshes[random() % meshes.size()];
  for (std::size_t a = 0; a < sizes.size(); ++a) r.axes.push_back({a == 0 ? "x" : "y", sizes[a]});
  r.size = 1 + static_cast<std::int64_t>(random() % 6);
  for (int k = 0; k < 3; ++k) {
    dynamic::value_states s;
    for (std::size_t a = 0; a < r.axes.size(); ++a) s.on.push_back(some_state(random));
    r.inputs.push_back(s);
  }
  dynamic::builder b(dynamic::mesh(r.axes));
  dynamic::strict_program p(b, "");
  std::vector<value> values;
  for (const auto& s : r.inputs) {
    values.push_back(b.input(r.input()));
    p.input(values.back(), s);
  }
  for (int trial = 0; trial < 60 && r.ops.size() < 7; ++trial) {
    written w;
    w.what = static_cast<written::kind>(random() % 10);
    w.a = static_cast<int>(random() % values.size());
    w.b = static_cast<int>(random() % values.size());
    const bool is_square = values[static_cast<std::size_t>(w.a)].rank() == 2 && values[static_cast<std::size_t>(w.b)].rank() == 2;
    if (!is_square && w.what != written::move) continue;
    if (w.what == written::move) {
      const auto at = random() % r.axes.size();
      w.axis = r.axes[at].name;
      w.from = p.states(values[static_cast<std::size_t>(w.a)])->on[at];
      constexpr transition_kind kinds[] = {transition_kind::convert, transition_kind::all_gather, transition_kind::all_to_all,
                                           transition_kind::all_reduce, transition_kind::reduce_scatter};
      w.by = kinds[random() % 5];
      w.to = w.by == transition_kind::reduce_scatter || w.by == transition_kind::all_to_all
                 ? axis_state{state::shard, static_cast<std::int8_t>(random() % 2), monoid::add}
                 : some_state(random);
    }
    const auto before = p.here();
    const value made = random_typed_program::apply(w, values, &p);
    p.check();
    if (p.error_count() != 0 || !p.states(made)) {
      const auto states = [&](int k) { return p.states(values[static_cast<std::size_t>(k)])->on; };
      if (w.what != written::move && w.what != written::groups && p.error_count() != 0)
        r.refused.push_back({w, states(w.a), states(w.b), p.errors().back().kind});
      p.back_to(before);
      continue;
    }
    values.push_back(made);
    r.ops.push_back(w);
  }
  return r;
}

/// The typed program on a mesh, or the program without types on one device: its results and gradients.
struct built {
  std::vector<value> results;
  std::vector<dynamic::written_collective> forward, backward;
};
built build(const random_typed_program& r, dynamic::builder& b, dynamic::strict_program* p, int loss_of, bool& has_loss,
            bool leaves_terms = false) {
  built made;
  std::vector<value> values;
  for (const auto& s : r.inputs) {
    values.push_back(b.input(r.input()));
    if (p != nullptr) p->input(values.back(), s);
  }
  for (const auto& w : r.ops) values.push_back(random_typed_program::apply(w, values, p));
  const auto whole = [&](value v) {
    if (p == nullptr || leaves_terms) return v;
    for (std::size_t a = 0; a < r.axes.size(); ++a) {
      p->check();
      const auto is = p->states(v);
      if (!is) return v;
      if (is->on[a].is == state::partial)
        v = p->transition(v, transition_kind::all_reduce, r.axes[a].name, {state::partial}, {state::invariant});
    }
    return v;
  };
  for (std::size_t k = r.inputs.size(); k < values.size(); ++k) made.results.push_back(whole(values[k]));
  value of = values[static_cast<std::size_t>(loss_of)];
  const value loss = of.rank() == 2 ? einsum("ab->", of) : einsum("a->", of);
  if (p != nullptr) {
    p->check();
    has_loss = p->error_count() == 0;
    const auto is = *p->states(loss);
    for (const auto& s : is.on) has_loss = has_loss && s.is != state::replica;
    made.forward = p->collectives();
    made.backward = p->backward_collectives(loss);
  }
  if (!has_loss) return made;
  for (const auto& g :
       grad(loss, std::vector<value>(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(r.inputs.size()))))
    made.results.push_back(whole(g));
  return made;
}

/// The same operators on integers, with their derivatives.
typed_law::law_operator law_of(written::kind what) {
  using typed_law::of_each, typed_law::of_two;
  switch (what) {
    case written::add:
      return of_two([](auto a, auto b) { return a + b; }, [](auto, auto) { return 1; }, [](auto, auto) { return 1; });
    case written::multiply:
      return of_two([](auto a, auto b) { return a * b; }, [](auto, auto b) { return b; }, [](auto a, auto) { return a; });
    case written::negate: return of_each([](auto a) { return -a; }, [](auto) { return -1; });
    case written::relu: return of_each([](auto a) { return a > 0 ? a : 0; }, [](auto a) { return a > 0 ? 1 : 0; });
    case written::transpose: return typed_law::transpose();
    case written::product: return typed_law::product();
    case written::column_sum: return typed_law::column_sum();
    case written::move:
    case written::zero_plus:
    case written::groups: break;
  }
  return of_each([](auto a) { return a; }, [](auto) { return 1; });
}
constexpr bool takes_two(written::kind what) {
  return what == written::add || what == written::multiply || what == written::product;
}
/// Returns true if a refused operator has a state with a right result on an axis of n devices, without communication.
bool is_possible_on(const written& w, const axis_state& a, const axis_state& b, int n, std::mt19937& random) {
  return typed_law::is_possible(law_of(w.what), takes_two(w.what) ? std::vector{a, b} : std::vector{a}, n, random);
}

/// The collectives, in any order: kind, axes, bytes.
using bill = std::multiset<std::tuple<std::string, std::string, std::int64_t>>;
/// Returns the collectives of the plan's steps.
bill sent_by(const dynamic::program& step) {
  bill all;
  const auto& view = step.view();
  for (const auto& s : view.steps)
    if (detail::communicates(s) && s.bytes_sent > 0)
      all.emplace(detail::name_of(s.collective), detail::axes_text(step.mesh_info(), s.axes).view(), s.bytes_sent);
  return all;
}
/// Returns the collectives of the types, for values that outputs need.
bill written_in(const dynamic::builder& b) {
  bill all;
  const auto g = detail::canonical_order(b.graph());
  for (const auto& s : detail::typed_program(g).steps)
    if (s.sent > 0) all.emplace(s.sends, detail::axes_text(*g.mesh, s.axes).view(), s.sent);
  return all;
}

TEST_CASE("a manual region whose states are known at run time") {  // the example of written_program.hpp
  dynamic::builder b(dynamic::mesh({{"x", 2}}));
  dynamic::written_program p(b);
  const dynamic::value_states rows{{{state::shard, 0}}, {{0, 0}}}, whole{{{state::invariant}}};
  const value x = b.input(dynamic::input<float>({4, 2}));
  p.input(x, rows);
  const auto y = p.region("x", {rows}, {whole}, {x}, [&](const std::vector<value>& in) {
    return std::vector<value>{p.transition(in[0], transition_kind::all_gather, "x", {state::shard, 0}, {state::invariant})};
  });
  b.output(y[0]);
  const auto program = b.compile();
  CHECK(program.traffic().bytes == 2 * 2 * 4);
  const std::vector<float> data{1, 2, 3, 4, 5, 6, 7, 8};
  for (const auto& results : {program.run(threads{}, data), program.run(simulated{}, data)})
    for (std::size_t i = 0; i < data.size(); ++i) CHECK(results[0].data<float>()[i] == data[i]);
}

TEST_CASE("what varies is stacked along a dim of its own and cut along it, with the gradients of a dim that is there") {
  struct way {
    transition_kind by;
    state from, to;
  };
  const way ways[] = {{transition_kind::all_gather, state::varying, state::invariant},
                      {transition_kind::all_gather, state::varying, state::replica},
                      {transition_kind::convert, state::varying, state::partial},
                      {transition_kind::convert, state::replica, state::varying},
                      {transition_kind::convert, state::invariant, state::varying},
                      {transition_kind::reduce_scatter, state::partial, state::varying}};
  for (const std::int64_t n : {1, 2, 3})
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{}, {2}, {2, 3}})
      for (const auto& w : ways) {
        CAPTURE(n);
        CAPTURE(shape.size());
        CAPTURE(static_cast<int>(w.by));
        const bool joins = w.from == state::varying;
        std::vector<std::int64_t> one{1}, all{n};  // a part, and all parts
        for (const auto e : shape) one.push_back(e), all.push_back(e);
        const auto run = [&](bool is_stacked) {
          dynamic::builder b(dynamic::mesh({{"x", n}}));
          dynamic::written_program p(b);
          const dynamic::value_states parts{{{state::shard, 0}}, {{0, 0}}}, whole{{{w.from}}}, terms{{{state::partial}}};
          const dynamic::value_states of_gradient{{detail::dual({w.from})}};
          const value x = b.input(dynamic::input<double>(all));
          p.input(x, joins ? parts : whole);
          const auto y = p.region(
              "x", {joins ? parts : whole}, {terms, joins ? parts : of_gradient}, {x}, [&](const std::vector<value>& in) {
                value v = in[0];
                if (joins && is_stacked) v = reshape(v, shape);
                const axis_state chunk = is_stacked ? axis_state{state::varying} : axis_state{state::shard, 0, monoid::add};
                v = p.transition(v, w.by, "x", joins ? chunk : axis_state{w.from}, joins ? axis_state{w.to} : chunk);
                if (w.to == state::partial)
                  v = p.transition(v, transition_kind::all_reduce, "x", {state::partial}, {state::replica});
                value loss = sum(v * v * v);
                const state is = w.to == state::partial ? state::replica : w.to;
                if (is == state::varying)
                  loss = p.transition(loss, transition_kind::reinterpret, "x", {state::varying}, {state::partial});
                if (is == state::replica)
                  loss = p.transition(loss, transition_kind::convert, "x", {state::replica}, {state::partial});
                const value slope = grad(loss, in[0]);
                if (is == state::invariant)
                  loss = p.transition(p.transition(loss, transition_kind::convert, "x", {state::invariant}, {state::replica}),
                                      transition_kind::convert, "x", {state::replica}, {state::partial});
                return std::vector<value>{loss, slope};
              });
          b.output(y[0]);
          b.output(y[1]);
          const auto program = b.compile();
          std::vector<double> data;
          for (std::int64_t k = 0; k < n * (shape.empty() ? 1 : shape.size() == 1 ? 2 : 6); ++k)
            data.push_back(static_cast<double>(k % 5) - 1);
          const auto results = program.run(simulated{}, data);
          return std::tuple{results[0].bytes, results[1].bytes, program.traffic().bytes};
        };
        CHECK(run(true) == run(false));
      }
}

TEST_CASE("a manual region gathers scalars, as every device's loss, along a new dim") {
  struct expected {
    const char* axes;
    std::vector<std::int64_t> shape;
    std::vector<double> losses;
  };
  for (const auto& want : {expected{"x,y", {6}, {1, 2, 3, 10, 20, 30}}, expected{"x", {3, 2}, {1, 10, 2, 20, 3, 30}},
                           expected{"y", {2, 3}, {1, 2, 3, 10, 20, 30}}}) {
    CAPTURE(want.axes);
    dynamic::builder b(dynamic::mesh({{"x", 2}, {"y", 3}}));
    dynamic::written_program p(b);
    const dynamic::value_states block{{{state::shard, 0}, {state::shard, 1}}, {{0, 0}, {1, 1}}},
        whole{{{state::invariant}, {state::invariant}}, {}};
    const value x = b.input(dynamic::input<double>({2, 3}));
    p.input(x, block);
    const auto y = p.region("x,y", {block}, {whole}, {x}, [&](const std::vector<value>& in) {
      const auto gathered = [&](value v, std::string_view axes) {
        return p.transition(v, transition_kind::all_gather, axes, {state::varying}, {state::replica});
      };
      const std::string_view axes = want.axes;
      const value first = gathered(sum(in[0]), axes), all = axes == "x,y" ? first : gathered(first, axes == "x" ? "y" : "x");
      return std::vector<value>{p.transition(all, transition_kind::convert, "x,y", {state::replica}, {state::invariant})};
    });
    b.output(y[0]);
    const auto program = b.compile();
    CHECK(program.traffic().bytes == 5 * 8);
    const std::vector<double> data{1, 2, 3, 10, 20, 30};
    for (const auto& results : {program.run(threads{}, data), program.run(simulated{}, data)}) {
      REQUIRE(results[0].shape == want.shape);
      for (std::size_t i = 0; i < data.size(); ++i) CHECK(results[0].data<double>()[i] == want.losses[i]);
    }
  }
}

}  // namespace strict_programs
using namespace strict_programs;

TEST_CASE("an operator is accepted exactly when its values and gradients are right without a message") {
  std::mt19937 random(7);
  int accepted = 0, refused = 0;
  for (const int n : {1, 2, 3})
    for (int what = written::add; what <= written::column_sum; ++what) {
      written w;
      w.what = static_cast<written::kind>(what);
      w.b = 1;
      const auto& all = typed_law::all_states();
      for (const auto& a : all)
        for (const auto& b : all) {
          if (!takes_two(w.what) && !(b == a)) continue;
          dynamic::builder g(dynamic::mesh({{"x", n}}));
          dynamic::strict_program p(g, "");
          std::vector<value> x;
          for (const auto& is : {a, b}) {
            x.push_back(g.input(dynamic::input<double>({6, 6})));
            p.input(x.back(), {{is}}, is.is != state::constant);
          }
          const value y = random_typed_program::apply(w, x, &p);
          p.check();
          CAPTURE(n);
          CAPTURE(what);
          CAPTURE(std::string(detail::short_text(a).view()) + ' ' + std::string(detail::short_text(b).view()));
          const auto is = p.states(y);
          ++(is ? accepted : refused);
          if (n == 1) {  // an axis of one device follows the same rule as any other axis
            CHECK(is.has_value() == is_possible_on(w, a, b, 2, random));
            continue;
          }
          CHECK(is.has_value() == is_possible_on(w, a, b, n, random));
        }
    }
  CHECK(accepted > 100);
  CHECK(refused > 150);
}

TEST_CASE("random programs with types give one device's values and gradients, and send what they say") {
  std::mt19937 random(5);
  int gradients = 0, ran = 0, refused = 0;
  for (int trial = 0; trial < 150; ++trial) {
    const auto r = random_program(random);
    const int loss_of = static_cast<int>(random() % (r.inputs.size() + r.ops.size()));
    CAPTURE(trial);
    for (const auto& no : r.refused) {  // each refusal has a witness: an axis along which no result is right
      bool is_possible = true;
      for (std::size_t a = 0; a < r.axes.size(); ++a)
        is_possible =
            is_possible && is_possible_on(no.is, no.a[a], no.b[a], std::max(2, static_cast<int>(r.axes[a].size)), random);
      CAPTURE(no.kind);
      CAPTURE(static_cast<int>(no.is.what));
      CHECK((!is_possible || no.kind == "axis_order"));
      ++refused;
    }
    dynamic::builder typed{dynamic::mesh(r.axes).with({.checked = true})};  // devices hold the states of the types
    dynamic::strict_program p(typed, "");
    bool has_loss = false;
    const auto on_mesh = build(r, typed, &p, loss_of, has_loss, trial % 2 == 0);
    dynamic::builder plain{dynamic::mesh({{"x", 1}})};
    const auto alone = build(r, plain, nullptr, loss_of, has_loss);
    for (const auto v : on_mesh.results) typed.output(v);
    for (const auto v : alone.results) plain.output(v);
    if (on_mesh.results.empty()) continue;
    const auto step = p.compile();
    gradients += has_loss ? 1 : 0;
    ++ran;
    std::vector<std::vector<double>> data;
    for (std::size_t k = 0; k < r.inputs.size(); ++k) {
      data.emplace_back(static_cast<std::size_t>(r.size * r.size));
      for (auto& e : data.back()) e = static_cast<double>(random() % 5) - 2;
    }
    CHECK(sent_by(step) == written_in(typed));
    const auto expected = plain.compile().run(serial{}, data[0], data[1], data[2]);
    const auto found = step.run(simulated{}, data[0], data[1], data[2]);
    REQUIRE(found.size() == expected.size());
    for (std::size_t k = 0; k < found.size(); ++k) {
      CAPTURE(k);
      REQUIRE(found[k].bytes.size() == expected[k].bytes.size());
      const double *is = found[k].data<double>(),
                   *wanted = expected[k].data<double>();  // compare numbers: 0.0 of partial values may be -0.0 on one device
      CHECK(std::equal(is, is + found[k].bytes.size() / sizeof(double), wanted));
    }
  }
  CHECK(ran > 80);
  CHECK(gradients > 40);
  CHECK(refused > 300);
}

TEST_CASE("what is partial by a maximum stays so where that is right, and has no gradient") {
  dynamic::builder b{dynamic::mesh({{"x", 3}})};
  dynamic::strict_program p(b, "");
  const axis_state maxima{state::partial, 0, monoid::max}, minima{state::partial, 0, monoid::min};
  const auto v = b.input(dynamic::input<double>({4, 2})), r = b.input(dynamic::input<double>({2}));
  p.input(v, {{{state::shard}}});
  p.input(r, {{{state::replica}}});
  const value most = reduce(v, monoid::max, {0});  // the parts are uneven, and one part is empty
  const value own = p.transition(r, transition_kind::convert, "x", {state::replica}, maxima);   // all other devices have -inf
  const value spread = p.transition(v, transition_kind::convert, "x", {state::shard}, maxima);  // their parts among -inf
  const value all = max(relu(most + r), own);
  const value least = p.transition(-operand(all), transition_kind::all_reduce, "x", minima, {state::replica});
  b.output(least);
  b.output(p.transition(spread, transition_kind::all_reduce, "x", maxima, {state::invariant}));
  b.output(all);  // reduced by the run
  const auto step = p.compile();
  const std::vector<double> vs{-5, -6, -3, -9, -4, -7, -8, -1}, rs{2, -3};
  const auto found = step.run(threads{}, vs, rs);
  CHECK(found[0].data<double>()[0] == -2);  // max(relu(-3 + 2), 2)
  CHECK(found[0].data<double>()[1] == 0);   // max(relu(-1 - 3), -3)
  for (std::size_t k = 0; k < vs.size(); ++k) CHECK(found[1].data<double>()[k] == vs[k]);
  CHECK(found[2].data<double>()[0] == 2);
  CHECK(found[2].data<double>()[1] == 0);
  const value loss = einsum("a->", p.transition(most, transition_kind::all_reduce, "x", maxima, {state::invariant}));
  b.output(grad(loss, v));
  CHECK(caught::contains(caught::error_of([&] { static_cast<void>(p.compile()); }),
                         "has no gradient, because the device of the taken partial value"));
}

TEST_CASE("gradients of microbatches stay terms in a loop, and are summed once behind it") {
  dynamic::builder b{dynamic::mesh({{"dp", 2}})};
  dynamic::strict_program p(b, "");
  const auto x = b.input(dynamic::input<double>({3, 4, 5})), w = b.input(dynamic::input<double>({5, 2}));
  p.input(x, {{{state::shard, 1, monoid::add}}});
  p.input(w, {{{state::replica}}});
  const auto [sum, losses] = scan(
      [&](value g, value part) {
        const value y = einsum("bd,df->bf", part, w), loss = einsum("bf->", y * y);
        return std::tuple{g + grad(loss, w), loss};
      },
      zeros_like(w), x);
  const value whole = p.transition(sum, transition_kind::all_reduce, "dp", {state::partial}, {state::invariant});
  p.check();
  CHECK(p.errors().empty());
  REQUIRE(p.states(sum));
  CHECK(p.states(sum)->on[0] == axis_state{state::partial});
  b.output(whole);
  const auto step = p.compile();
  REQUIRE(step.collectives().size() == 1);
  CHECK(step.collectives()[0].kind == collective_kind::all_reduce);
  CHECK(step.traffic().bytes == 5 * 2 * 8);
  std::vector<double> xs(60), ws(10), expected(10, 0);
  for (std::size_t k = 0; k < xs.size(); ++k) xs[k] = static_cast<double>(k % 7) - 3;
  for (std::size_t k = 0; k < ws.size(); ++k) ws[k] = static_cast<double>(k % 4) - 1;
  for (std::size_t r = 0; r < 12; ++r)
    for (std::size_t f = 0; f < 2; ++f) {
      double y = 0;
      for (std::size_t d = 0; d < 5; ++d) y += xs[r * 5 + d] * ws[d * 2 + f];
      for (std::size_t d = 0; d < 5; ++d) expected[d * 2 + f] += 2 * y * xs[r * 5 + d];
    }
  const auto found = step.run(threads{}, xs, ws);
  for (std::size_t k = 0; k < 10; ++k) CHECK(found[0].data<double>()[k] == expected[k]);
}

TEST_CASE("what a loop carries and what branches give has one state") {
  const auto first_error = [](auto&& body) {
    dynamic::builder b{dynamic::mesh({{"x", 2}})};
    dynamic::strict_program p(b, "");
    const auto r = b.input(dynamic::input<double>({4})), i = b.input(dynamic::input<double>({4})),
               s = b.input(dynamic::input<double>({4}));
    const auto flag = b.input(dynamic::input<bool>({}));
    p.input(r, {{{state::replica}}});
    p.input(i, {{{state::invariant}}});
    p.input(s, {{{state::shard}}});
    p.input(flag, {{{state::invariant}}});
    body(p, r, i, s, flag);
    p.check();
    const auto errors = p.errors();
    return errors.empty() ? std::string("none") : errors[0].kind;
  };
  CHECK(first_error([](auto&, value, value i, value s, value) {
          fori_loop(
              2, [&](value, value c) { return c + s; }, zeros_like(i));
        }) == "none");
  CHECK(
      first_error([](auto& p, value, value i, value, value) {
        fori_loop(
            2,
            [&](value, value c) { return p.transition(c, transition_kind::convert, "x", {state::invariant}, {state::replica}); },
            i);
      }) == "carry_mismatch");
  // The initial zeros of the loop are not in the carried state.
  CHECK(first_error([](auto& p, value r, value, value, value) {
          fori_loop(
              2,
              [&](value, value c) {
                const value sum = p.transition(r, transition_kind::convert, "x", {state::replica}, {state::partial});
                static_cast<void>(c + sum);
                return c + 1.0;
              },
              zeros_like(r));
        }) == "partial_affine");
  CHECK(first_error([](auto&, value r, value, value, value flag) {
          cond(
              flag, [](value v) { return v; }, [](value v) { return v + v; }, r);
        }) == "none");
  CHECK(first_error([](auto&, value r, value i, value, value flag) {
          cond(
              flag, [](value v, value) { return v + v; }, [](value, value v) { return v + v; }, r, i);
        }) == "branch_mismatch");
}

TEST_CASE("a maximum of which devices have candidates is scaled by a positive number, and by nothing else") {
  const auto scaled = [](auto f) {
    dynamic::builder b(dynamic::mesh({{"x", 2}}));
    dynamic::strict_program p(b, "");
    const value x = b.input(dynamic::input<double>({4, 3}));
    p.input(x, {{detail::shard_of(0)}, {{0, 0}}});
    const value most = f(reduce(x, monoid::max, {0}));
    b.output(p.transition(most, transition_kind::all_reduce, "x", detail::partial_by(monoid::max), {state::invariant}));
    return p.compile();
  };
  const std::vector<double> in{-1, 2, -3, -4, 5, -6, -7, 8, -9, 10, -11, -12};
  const auto result = scaled([](value m) { return 3.0 * m / 2.0; }).run(simulated{}, in);
  const std::vector<double> expected{15, 12, -4.5};
  for (std::size_t i = 0; i < 3; ++i) CHECK(result[0].data<double>()[i] == expected[i]);
  const auto refused = [&](auto f) {
    return caught::error_of([&] { static_cast<void>(scaled(f)); }).find("partial by max over `x`, and ") != std::string::npos;
  };
  CHECK(refused([](value m) { return -2.0 * m; }));
  CHECK(refused([](value m) { return 0.0 * m; }));
  CHECK(refused([](value m) { return m * m; }));
  CHECK(refused([](value m) { return 1.0 / m; }));
  CHECK(refused([](value m) { return m / -1.0; }));
  CHECK(refused([](value m) { return m * exp(zeros_like(m)); }));
}

TEST_CASE("a bias that is a replica is added to rows that are split, and its gradient is partial") {
  struct bias {
    state is;
    bool is_cut;  // along its own dim
    const char* refusal;
  };
  for (const std::int64_t n : {1, 2, 3, 8})
    for (const auto& [is, is_cut, refusal] : {bias{state::replica, false, ""}, bias{state::invariant, false, "state_conflict"},
                                              bias{state::replica, true, "elementwise_conflict"}}) {
      dynamic::builder g(dynamic::mesh({{"x", n}}));
      dynamic::strict_program p(g, "");
      const value x = g.input(dynamic::input<double>({5, 4})), b = g.input(dynamic::input<double>({4}));
      p.input(x, {{{state::shard, static_cast<std::int8_t>(is_cut ? 1 : 0), monoid::add}}});
      p.input(b, {{{is}}});
      const value y = x * b + b * 2.0;
      const value loss = einsum("bd->", y * y), slope = grad(loss, b);
      p.check();
      CAPTURE(n);
      const auto errors = p.errors();
      if (*refusal != 0) {
        REQUIRE(!errors.empty());
        CHECK(errors[0].kind == refusal);
        if (is == state::invariant) {  // written for `b`, whose gradient has 4 elements
          const std::string wanted =
              "reshard<replica<`x`>>(operand 1): 0 bytes forward, " + std::to_string(64 - 64 / n) + " bytes ";
          bool is_named = false;
          for (const auto& way : errors[0].remedies) is_named = is_named || way.starts_with(wanted);
          CHECK(is_named);
        }
        // An operand that the operator broadcasts is not a value of the user. `b` has one dim, so no remedy names two.
        for (const auto& way : errors[0].remedies) CHECK(way.find("split<`x`, _>>(operand 1)") == std::string::npos);
        continue;
      }
      REQUIRE(errors.empty());
      CHECK(p.states(slope)->on[0] == axis_state{state::partial});
      g.output(y);
      g.output(p.transition(slope, transition_kind::all_reduce, "x", {state::partial}, {state::invariant}));
      const auto step = p.compile();
      CHECK(step.traffic().bytes == 2 * 4 * 8 - 2 * 4 * 8 / n);
      std::vector<double> xs(20), bs{1, -2, 3, 0}, expected(4, 0);
      for (std::size_t k = 0; k < 20; ++k) xs[k] = static_cast<double>(k % 7) - 3;
      const auto found = step.run(simulated{}, xs, bs);
      for (std::size_t k = 0; k < 20; ++k) {
        const double whole = xs[k] * bs[k % 4] + 2 * bs[k % 4];
        CHECK(found[0].data<double>()[k] == whole);
        expected[k % 4] += 2 * whole * (xs[k] + 2);
      }
      for (std::size_t k = 0; k < 4; ++k) CHECK(found[1].data<double>()[k] == expected[k]);
    }
}
