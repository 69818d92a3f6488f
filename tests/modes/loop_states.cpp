// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// A loop-carried value has the least state that both the initial value and the result of the body can enter without a
// message.
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <optional>
#include <tuple>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/strict_program.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/modes/manual.hpp>
#include <gspmd/transform/grad.hpp>

using namespace gspmd;

namespace loop_states {

/// The values that bodies read in addition to the carried values.
struct others {
  value replica, invariant, varying, terms;
};
/// The operators of the local view that a program for one device lacks.
struct moves {
  virtual ~moves() = default;
  virtual value sum(value varying) const = 0;  // invariant
  virtual value sum_to_replica(value varying) const = 0;
  virtual value term(value replica) const = 0;
};
struct local_moves : moves {
  value sum(value x) const override { return local::all_reduce<"x">(x); }
  value sum_to_replica(value x) const override { return local::all_reduce<"x", state::replica>(x); }
  value term(value x) const override { return local::to_partial<"x", state::replica>(x); }
};
constexpr int devices = 3;
/// On one device, dim 0 counts the devices.
struct whole_moves : moves {
  value sum(value x) const override { return broadcast_in_dim(gspmd::sum(x, 0), {devices, x.shape()[1]}, {1}); }
  value sum_to_replica(value x) const override { return sum(x); }
  value term(value x) const override {
    return concatenate({slice(x, {0, 0}, {1, x.shape()[1]}), zeros_like(slice(x, {1, 0}, {devices, x.shape()[1]}))}, 0);
  }
};

using body = value (*)(value c, const others& o, const moves& m);
const std::vector<body>& bodies() {
  static const std::vector<body> all{
      [](value c, const others& o, const moves&) { return c + o.replica; },
      [](value c, const others& o, const moves&) { return c + o.invariant; },
      [](value c, const others& o, const moves&) { return c + o.varying; },
      [](value c, const others& o, const moves&) { return c + o.terms; },
      [](value c, const others& o, const moves&) { return c * o.replica; },
      [](value c, const others& o, const moves&) { return c * o.invariant; },
      [](value c, const others& o, const moves&) { return c * o.varying; },
      [](value c, const others& o, const moves&) { return c * o.terms; },
      [](value c, const others&, const moves&) { return 2.0 * c; },
      [](value c, const others&, const moves&) { return c * c; },
      [](value, const others& o, const moves&) { return o.replica; },
      [](value, const others& o, const moves&) { return o.varying; },
      [](value, const others& o, const moves&) { return o.terms; },
      [](value c, const others& o, const moves& m) { return m.sum(c * o.varying); },
      [](value c, const others& o, const moves& m) { return m.sum_to_replica(c * o.varying); },
      [](value c, const others& o, const moves& m) { return c + m.sum_to_replica(o.varying); },
      [](value c, const others& o, const moves& m) { return c + m.term(o.replica); },
      // a nested loop that begins with the carried value of the outer loop
      [](value c, const others& o, const moves&) {
        return fori_loop(
                   2, [&](value, value d) { return d + o.replica; }, c) +
               o.varying;
      },
      [](value c, const others& o, const moves&) {
        return fori_loop(
            2, [&](value, value d) { return d + o.terms; }, c);
      },
      [](value c, const others& o, const moves&) {
        return fori_loop(
            2, [&](value, value d) { return d * o.varying; }, c);
      },
      [](value c, const others& o,
         const moves& m) {  // first a replica, with a partial value taken from it; in the second iteration neither
        const value d = fori_loop(
            2, [&](value, value v) { return v + o.replica; }, c);
        return d + o.varying + m.sum_to_replica(m.term(d));
      },
  };
  return all;
}

constexpr std::array begins{state::constant, state::replica, state::invariant, state::varying, state::partial};
struct beginning {
  state is;
  bool is_zero;
};
std::vector<beginning> beginnings() {
  std::vector<beginning> all{{state::constant, true}};
  for (const auto is : begins) all.push_back({is, false});
  return all;
}

/// Returns the state that a program gives to a value of the local view, or nothing if the program is refused.
template <class Program>
std::optional<state> typed(state begins_as, bool is_zero, Program program) {
  dynamic::builder b(dynamic::mesh({{"x", devices}}));
  dynamic::strict_program p(b, "x");
  const auto input = [&](state is) {
    const value v = b.input(dynamic::input<double>({2}));
    p.input(v, {{{is}}}, is != state::constant);
    return v;
  };
  const others o{input(state::replica), input(state::invariant), input(state::varying), input(state::partial)};
  const value begin = input(begins_as);
  const detail::local_scope scope(b.graph(), 1);
  const value made = program(is_zero ? zeros_like(begin) : begin, o);
  p.check();
  if (p.error_count() != 0 || !p.states(made)) return {};
  return p.states(made)->on[0].is;
}
/// Returns true if a value enters a state without a message in either direction.
bool goes_in(state from, bool is_zero, state to) {
  if (from == to) return true;
  if (from == state::constant) return to != state::partial || is_zero;
  return from == state::replica && to == state::varying;
}

/// Returns the result of three iterations, squared and summed.
template <class Spec>
value on_devices(const body& f, const beginning& from, state found, const std::vector<value>& in) {
  return manual<"x">(
      [&](value r, value i, value v, value t, value b) {
        const local_moves m;
        const others o{r, i, v, local::to_partial<"x">(t)};
        if (from.is == state::constant) b = from.is_zero ? zeros_like(b) : zeros_like(b) + 1.5;
        if (from.is == state::partial) b = local::to_partial<"x">(b);
        const value y = fori_loop(
            3, [&](value, value c) { return f(c, o, m); }, b);
        const value e = found == state::replica                              ? m.sum(m.term(y))
                        : found == state::varying || found == state::partial ? m.sum(y)
                                                                             : y;
        return einsum("a,a->", e, e);
      },
      takes<replica<"x">, held<>, split<"x">, split<"x">, Spec>{}, gives<held<>>{})(in[0], in[1], in[2], in[3], in[4]);
}
value on_one(const body& f, const beginning& from, state found, const std::vector<value>& in) {
  const whole_moves m;
  const auto of_each = [&](value x) {
    return x.shape()[0] == 2 ? broadcast_in_dim(x, {devices, 2}, {1}) : reshape(x, {devices, 2});
  };
  const others o{of_each(in[0]), of_each(in[1]), of_each(in[2]), of_each(in[3])};
  value b = of_each(in[4]);
  if (from.is == state::constant) b = from.is_zero ? zeros_like(b) : zeros_like(b) + 1.5;
  const value y = fori_loop(
      3, [&](value, value c) { return f(c, o, m); }, b);
  const value e = found == state::varying || found == state::partial ? sum(y, 0) : reshape(slice(y, {0, 0}, {1, 2}), {2});
  return einsum("a,a->", e, e);
}

}  // namespace loop_states
using namespace loop_states;

TEST_CASE("a loop is accepted exactly where a state goes round it, and carries the least one") {
  const local_moves m;
  int accepted = 0, refused = 0;
  for (std::size_t k = 0; k < bodies().size(); ++k)
    for (const auto& from : beginnings()) {
      std::optional<state> least;
      for (const auto carried : begins) {
        if (!goes_in(from.is, from.is_zero, carried)) continue;
        const auto after = typed(carried, false, [&](value c, const others& o) { return bodies()[k](c, o, m); });
        if (!after || !goes_in(*after, false, carried)) continue;
        if (!least) least = carried;
      }
      const auto found = typed(from.is, from.is_zero, [&](value c, const others& o) {
        return fori_loop(
            3, [&](value, value v) { return bodies()[k](v, o, m); }, c);
      });
      (found ? accepted : refused) += 1;
      CAPTURE(k);
      CAPTURE(static_cast<int>(from.is));
      CAPTURE(from.is_zero);
      CHECK(found == least);
    }
  MESSAGE(accepted, " loops accepted, ", refused, " refused");
  CHECK(accepted > 40);
  CHECK(refused > 30);
}

TEST_CASE("zeros become a sum in the round in which what is added to them does") {
  const local_moves m;
  // c, d = c + d, d + partial values: c is partial only after d is partial.
  const auto of = [&](bool is_nested, bool is_sum) {
    return typed(state::replica, true, [&](value zeros, const others& o) {
      const auto round = [&](value c, value d) { return std::tuple{c + d, d + (is_sum ? o.terms : 0.0 * o.terms + 1.0)}; };
      const auto [a, b] = fori_loop(
          3,
          [&](value, value c, value d) {
            if (!is_nested) return round(c, d);
            return fori_loop(
                2, [&](value, value inner_c, value inner_d) { return round(inner_c, inner_d); }, c, d);
          },
          zeros, zeros);
      static_cast<void>(b);
      return a;
    });
  };
  CHECK(of(false, true) == state::partial);
  CHECK(of(true, true) == state::partial);
  CHECK(!of(false, false));
  CHECK(!of(true, false));
}

TEST_CASE("what goes round a loop without a message has the values and the gradients of one device") {
  const local_moves m;
  int run = 0;
  for (std::size_t k = 0; k < bodies().size(); ++k)
    for (const auto& from : beginnings()) {
      CAPTURE(k);
      CAPTURE(static_cast<int>(from.is));
      const body& f = bodies()[k];
      const auto found = typed(from.is, from.is_zero, [&](value c, const others& o) {
        return fori_loop(
            3, [&](value, value v) { return f(v, o, m); }, c);
      });
      if (!found) continue;
      const bool begins_split = from.is == state::varying || from.is == state::partial;
      const std::vector<dynamic::input_spec> inputs{dynamic::input<double>({2}), dynamic::input<double>({2}),
                                                    dynamic::input<double>({6}), dynamic::input<double>({6}),
                                                    dynamic::input<double>({begins_split ? 6 : 2})};
      const auto built = [&](int n, auto&& program) {
        dynamic::builder b(dynamic::mesh({{"x", n}}));
        std::vector<value> in;
        for (const auto& i : inputs) in.push_back(b.input(i));
        const value y = program(in);
        b.output(y);
        for (const auto& g : grad(y, in)) b.output(g);
        return b.compile();
      };
      const auto by_hand = built(devices, [&](const std::vector<value>& in) {
        return from.is == state::replica   ? on_devices<replica<"x">>(f, from, *found, in)
               : from.is == state::varying ? on_devices<split<"x">>(f, from, *found, in)
               : from.is == state::partial ? on_devices<split<"x">>(f, from, *found, in)
                                           : on_devices<held<>>(f, from, *found, in);
      });
      const auto expected = built(1, [&](const std::vector<value>& in) { return on_one(f, from, *found, in); });
      std::vector<std::vector<double>> data;
      std::vector<const void*> pointers;
      for (const auto& i : inputs) {
        auto& d = data.emplace_back(static_cast<std::size_t>(i.shape[0]));
        for (std::size_t e = 0; e < d.size(); ++e) d[e] = static_cast<double>((7 * e + 3 * data.size()) % 5) - 2;
      }
      for (const auto& d : data) pointers.push_back(d.data());
      const auto a = by_hand.run(simulated{}, pointers), b = expected.run(simulated{}, pointers);
      for (std::size_t o = 0; o < a.size(); ++o)
        for (std::size_t e = 0; e < a[o].bytes.size() / 8; ++e) CHECK(a[o].data<double>()[e] == b[o].data<double>()[e]);
      ++run;
    }
  CHECK(run > 40);
}

TEST_CASE("a sum that an inner loop adds to is looked for before that loop is planned") {
  const auto nest = [](bool two) {
    return [two](value x, value y0) {
      return fori_loop(
          2,
          [&](value, value y) {
            const value v = einsum<"bd,be->de">(x, y);
            value sums = fori_loop(
                3,
                [&](value k, value a) {
                  return a + v * broadcast_in_dim(cast<float>(k), {4, 4}, {});
                },
                zeros_like(v));
            if (two) sums = sums + 2.0 * v;
            return y + einsum<"bd,de->be">(x, sums) * 0.01;
          },
          y0);
    };
  };
  array<float> x({8, 4}), y({8, 4});
  for (std::int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 5) - 2, y[i] = static_cast<float>(i % 3) - 1;
  for (const bool two : {false, true}) {
    const auto given = dynamic::input<float>({8, 4}, {"d", ""}), whole = dynamic::input<float>({8, 4});
    const auto split = dynamic::compile(nest(two), dynamic::mesh({{"d", 4}}), given, given).run(simulated{}, x, y);
    const auto one = dynamic::compile(nest(two), dynamic::mesh({{"d", 1}}), whole, whole).run(serial{}, x, y);
    for (std::int64_t i = 0; i < x.size(); ++i)
      CHECK(split[0].data<float>()[i] == doctest::Approx(one[0].data<float>()[i]).epsilon(1e-4));
  }
}
