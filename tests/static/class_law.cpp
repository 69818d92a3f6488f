// SPDX-License-Identifier: Apache-2.0
// alone: yes
// Checks `meets`, the class of an operator for partial operands, with values and gradients of small numbers. A wrong
// class is a compile error.
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "gspmd/index.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/program/mesh.hpp"
#include "gspmd/windows.hpp"
#include "support/all_operators.hpp"

namespace gspmd::detail {
namespace {

struct answer {
  bool is_known = false;
  double is = 0;
};
constexpr answer applied(const operator_code& op, const double* x) {
  const double a = x[0], b = x[1], c = x[2];
  switch (op.id) {
    case operator_id<negative_op>: return {true, -a};
    case operator_id<stop_gradient_op>:
    case operator_id<real_op>:
    case operator_id<conj_op>:
    case operator_id<cast_op>: return {true, a};
    case operator_id<imag_op>: return {true, 0};
    case operator_id<complex_op>: return {true, a + 100 * b};
    case operator_id<abs_op>: return {true, a < 0 ? -a : a};
    case operator_id<relu_op>: return {true, a > 0 ? a : 0};
    case operator_id<sign_op>: return {true, a > 0 ? 1.0 : a < 0 ? -1.0 : 0.0};
    case operator_id<floor_op>: return {true, static_cast<double>(floor_div(static_cast<std::int64_t>(2 * a), 2))};
    case operator_id<ceil_op>: return {true, -static_cast<double>(floor_div(-static_cast<std::int64_t>(2 * a), 2))};
    case operator_id<add_op>: return {true, a + b};
    case operator_id<subtract_op>: return {true, a - b};
    case operator_id<multiply_op>: return {true, a * b};
    case operator_id<divide_op>: return {true, a / (b == 0 ? 1 : b)};
    case operator_id<max_op>: return {true, a < b ? b : a};
    case operator_id<min_op>: return {true, a < b ? a : b};
    case operator_id<and_op>: return {true, static_cast<double>(static_cast<int>(a) & static_cast<int>(b))};
    case operator_id<or_op>: return {true, static_cast<double>(static_cast<int>(a) | static_cast<int>(b))};
    case operator_id<xor_op>: return {true, static_cast<double>(static_cast<int>(a) ^ static_cast<int>(b))};
    case operator_id<compare_eq_op>: return {true, a == b ? 1.0 : 0.0};
    case operator_id<compare_ne_op>: return {true, a != b ? 1.0 : 0.0};
    case operator_id<compare_lt_op>: return {true, a < b ? 1.0 : 0.0};
    case operator_id<compare_le_op>: return {true, a <= b ? 1.0 : 0.0};
    case operator_id<compare_gt_op>: return {true, a > b ? 1.0 : 0.0};
    case operator_id<compare_ge_op>: return {true, a >= b ? 1.0 : 0.0};
    case operator_id<not_op>: return {true, -a - 1};
    case operator_id<where_op>: return {true, a > 0 ? b : c};
    case operator_id<exp_op>:
    case operator_id<log_op>:
    case operator_id<sqrt_op>:
    case operator_id<rsqrt_op>:
    case operator_id<tanh_op>:
    case operator_id<sigmoid_op>:
    case operator_id<sin_op>:
    case operator_id<cos_op>:
    case operator_id<expm1_op>:
    case operator_id<log1p_op>:
    case operator_id<erf_op>:
    case operator_id<erf_inv_op>:
    case operator_id<cbrt_op>:
    case operator_id<atan2_op>:
    case operator_id<pow_op>:
    case operator_id<fmod_op>:
    case operator_id<left_shift_op>:
    case operator_id<right_shift_op>:
    case operator_id<threefry2x32_op>: return {};  // not constexpr
    default: throw "an operator is missing here";
  }
}
constexpr double joined(monoid kind, double a, double b) {
  switch (kind) {
    case monoid::add: return a + b;
    case monoid::multiply: return a * b;
    case monoid::max: return a < b ? b : a;
    case monoid::min: return a < b ? a : b;
    case monoid::and_: return static_cast<double>(static_cast<int>(a) & static_cast<int>(b));
    default: return static_cast<double>(static_cast<int>(a) | static_cast<int>(b));
  }
}
constexpr int operands_of(const operator_code& op) { return op.loop().operands; }
/// A monotonically increasing function whose value is not constexpr.
constexpr bool grows(const operator_code& op) {
  return op == code_of<exp_op> || op == code_of<expm1_op> || op == code_of<tanh_op> || op == code_of<sigmoid_op> ||
         op == code_of<erf_op> || op == code_of<cbrt_op>;
}

/// Returns true if combining f of the partial values gives f of the combined values. `partial`: a bit per partial
/// operand.
constexpr bool holds(const operator_code& op, const operator_class& c, monoid kind, unsigned partial, bool others_are_positive) {
  constexpr double numbers[] = {-2, 1, 0.5};
  const bool is_whole = kind == monoid::and_ || kind == monoid::or_;
  const int operands = operands_of(op);
  monoid of_result = kind;
  if (c.turns_order) of_result = kind == monoid::max ? monoid::min : monoid::max;
  int combinations = 1;
  for (int k = 0; k < 2 * operands; ++k) combinations *= 3;
  for (int n = 0; n < combinations; ++n) {
    double first[3] = {}, second[3] = {}, both[3] = {};
    bool is_asked = true;
    for (int k = 0, rest = n; k < operands; ++k) {
      const auto number = [&] {
        const int which = rest % 3;
        rest /= 3;
        return is_whole ? which + 1.0 : numbers[which];
      };
      first[k] = number();
      second[k] = number();
      if ((partial >> k & 1U) != 0) {
        both[k] = joined(kind, first[k], second[k]);
      } else {
        both[k] = second[k] = first[k];
        is_asked = is_asked && (!others_are_positive || first[k] > 0);
      }
    }
    if (is_asked && applied(op, both).is != joined(of_result, applied(op, first).is, applied(op, second).is)) return false;
  }
  return true;
}
constexpr bool is_sound(const operator_code& op, dtype type, monoid kind, const operator_class& c) {
  const unsigned all = ((1U << operands_of(op)) - 1) & ~c.selectors;
  const bool is_known = applied(op, std::array{1.0, 1.0, 1.0}.data()).is_known;
  if (c.takes == partial_class::none || c.takes == partial_class::affine) return true;
  if (!is_known)
    return grows(op) && is_floating(type) && c.takes == partial_class::all && !c.turns_order &&
           (kind == monoid::max || kind == monoid::min);
  switch (c.takes) {
    case partial_class::all: return holds(op, c, kind, all, false);
    case partial_class::first: return holds(op, c, kind, 1, false);
    case partial_class::quotient: return holds(op, c, kind, 1, true);
    default:
      for (int k = 0; k < operands_of(op); ++k)
        if (!holds(op, c, kind, 1U << k, c.takes == partial_class::scaled)) return false;
      return true;
  }
}
constexpr bool keeps_law(const operator_code& op, monoid kind) {
  node n;
  n.op = op;
  n.type = kind == monoid::and_ || kind == monoid::or_ ? dtype::s32 : dtype::f64;
  n.integer = op == code_of<cast_op> && n.type == dtype::f64 ? 1 : 0;  // from a float
  return is_sound(op, n.type, kind, facts_of(op).meets(n, kind));
}

/// One evaluation for each monoid: Clang limits the steps of an evaluation.
template <class O, monoid Kind>
struct law_of {
  static_assert(std::is_same_v<O, map_op> || keeps_law(code_of<O>, Kind), "a class in ir/elementwise/ is refuted");
};
template <class O>
struct laws_of : law_of<O, monoid::add>,
                 law_of<O, monoid::multiply>,
                 law_of<O, monoid::max>,
                 law_of<O, monoid::min>,
                 law_of<O, monoid::and_>,
                 law_of<O, monoid::or_> {};
template <class... O>
constexpr std::size_t check(boost::mp11::mp_list<O...>) {
  return (sizeof(laws_of<O>) + ...);
}
static_assert(check(listed_elementwise{}) > 0);

// The check rejects wrong classes.
static_assert(!is_sound(code_of<multiply_op>, dtype::f64, monoid::add, {partial_class::all}));
static_assert(!is_sound(code_of<multiply_op>, dtype::f64, monoid::max, {partial_class::one}));
static_assert(!is_sound(code_of<relu_op>, dtype::f64, monoid::add, {partial_class::all}));
static_assert(!is_sound(code_of<add_op>, dtype::f64, monoid::add, {partial_class::one}));
static_assert(!is_sound(code_of<divide_op>, dtype::f64, monoid::add, {partial_class::one}));
static_assert(!is_sound(code_of<subtract_op>, dtype::f64, monoid::max, {partial_class::one}));
static_assert(!is_sound(code_of<negative_op>, dtype::f64, monoid::max, {partial_class::all}));
static_assert(!is_sound(code_of<sin_op>, dtype::f64, monoid::max, {partial_class::all}));

// A reduction keeps its operand partial only if it reduces by the monoid of the partial operand.
constexpr bool reduces_only_its_own() {
  for (const monoid by : {monoid::add, monoid::multiply, monoid::max, monoid::min})
    for (const monoid kind : {monoid::add, monoid::multiply, monoid::max, monoid::min}) {
      node n;
      n.op = code_of<reduce_op>;
      n.type = dtype::f64;
      n.reduced_by = by;
      bool is_law = true;  // for two numbers on each of two devices
      for (const double a : {-2.0, 1.0})
        for (const double b : {-3.0, 2.0})
          for (const double c : {-1.0, 4.0})
            for (const double d : {-5.0, 0.5})
              is_law = is_law &&
                       joined(by, joined(kind, a, c), joined(kind, b, d)) == joined(kind, joined(by, a, b), joined(by, c, d));
      if (reduce_op::meets(n, kind).takes == partial_class::all && !is_law) return false;
    }
  return true;
}
static_assert(reduces_only_its_own());

// Operators with dims. Each case has a program with one operator, and a function that computes it on a few numbers. The
// check runs on two devices along one axis, for every combination of states that `meet` accepts for the class. The
// result must be in the state that `meet` returns. The gradient of each operand must be in the dual of the operand's
// state. Gradients are differences, because all these operators are affine in every number.

constexpr int most = 6;  // elements of a tensor
struct numbers {
  double of[most]{};
  friend constexpr bool operator==(const numbers&, const numbers&) = default;
};
struct operator_case {
  value (*written)(value a, value b);                             // its last operator is the tested operator
  void (*apply)(const numbers& a, const numbers& b, numbers& y);  // into zeros
  extents a, b{};                                                 // without `b` the operator has one operand
  bool is_affine = true;                                          // otherwise its gradient is not checked
  std::int64_t places[most]{};                                    // the indices, if operand `b` has indices
  bool has_indices = false;
};
constexpr extents dims_of(std::initializer_list<std::int64_t> list) {
  extents e;
  for (const auto n : list) e.push_back(n);
  return e;
}

struct said {
  operator_class is;
  int operands = 0, data[2]{};  // by operand of the case: its number in the operator, or -1
};
constexpr said class_of(const operator_case& c, monoid kind, dtype type) {
  constexpr mesh_info one = [] {
    mesh_info m;
    m.add_axis("x", 2);
    return m;
  }();
  graph g;
  g.mesh = &one;
  const value a{&g, add_parameter(g, type, c.a, location::input(0))};
  const value b{&g, add_parameter(g, c.has_indices ? dtype::s32 : type, c.b, location::input(1))};
  const value y = c.written(a, b);
  const node n = g.maker_of(y.id());
  said s{facts_of(n.op).meets(n, kind), n.operands.count, {-1, -1}};
  for (int k = 0; k < n.operands.count; ++k)
    for (int of = 0; of < 2; ++of)
      if (n.operands[k] == of) s.data[of] = k;
  return s;
}

/// Random numbers whose sums and products are exact.
struct drawn_numbers {
  std::uint32_t state = 1;
  constexpr double next() {
    state = state * 1664525U + 1013904223U;
    return static_cast<double>(static_cast<int>(state >> 28) - 7);
  }
  constexpr numbers some() {
    numbers n;
    for (auto& e : n.of) e = next();
    return n;
  }
};
constexpr numbers applied(const operator_case& c, const numbers& a, const numbers& b) {
  numbers y;
  c.apply(a, b, y);
  return y;
}
/// Returns the result of `take` for each pair of elements.
template <class F>
constexpr numbers each(const numbers& a, const numbers& b, F take) {
  numbers y;
  for (int i = 0; i < most; ++i) y.of[i] = take(a.of[i], b.of[i]);
  return y;
}
/// Returns the gradient of the sum of y * g with respect to one operand.
constexpr numbers pulled(const operator_case& c, const numbers& a, const numbers& b, const numbers& g, int by) {
  const numbers y = applied(c, a, b);
  numbers d;
  for (int i = 0; i < most; ++i) {
    numbers more = by == 0 ? a : b;
    more.of[i] += 1;
    const numbers z = by == 0 ? applied(c, more, b) : applied(c, a, more);
    for (int k = 0; k < most; ++k) d.of[i] += (z.of[k] - y.of[k]) * g.of[k];
  }
  return d;
}

/// The values on two devices.
struct pair_of {
  numbers on[2];
};
constexpr numbers whole_of(const pair_of& p, state is, monoid kind) {
  return is == state::partial ? each(p.on[0], p.on[1], [&](double a, double b) { return joined(kind, a, b); }) : p.on[0];
}
constexpr pair_of drawn(state is, drawn_numbers& draw) {
  const numbers first = draw.some();
  return {{first, is == state::partial || is == state::varying ? draw.some() : first}};
}
constexpr state dual_of(state is) { return is == state::replica ? state::partial : is == state::partial ? state::replica : is; }
/// The states of operand `a`, operand `b` and the result.
struct states_of_case {
  state a, b, y;
};
constexpr bool values_hold(const operator_case& c, const states_of_case& s, monoid kind, const pair_of& a, const pair_of& b) {
  const pair_of y{{applied(c, a.on[0], b.on[0]), applied(c, a.on[1], b.on[1])}};
  if (s.y == state::varying) return true;  // each device has its own value
  if (s.y != state::partial) return y.on[0] == y.on[1];
  return whole_of(y, s.y, kind) == applied(c, whole_of(a, s.a, kind), whole_of(b, s.b, kind));
}
constexpr bool gradients_hold(const operator_case& c, const states_of_case& s, const pair_of& a, const pair_of& b,
                              const pair_of& g) {
  for (int by = 0; by < (c.b.empty() || c.has_indices ? 1 : 2); ++by) {
    const state is = by == 0 ? s.a : s.b;
    if (is == state::constant) continue;
    if (s.y == state::constant) return false;  // a gradient is lost
    const pair_of d{{pulled(c, a.on[0], b.on[0], g.on[0], by), pulled(c, a.on[1], b.on[1], g.on[1], by)}};
    if (is == state::varying) continue;
    // If results vary or cotangents are partial, it is the gradient of the sum over devices. Otherwise it is the
    // gradient of one device's result.
    const numbers one =
        pulled(c, whole_of(a, s.a, monoid::add), whole_of(b, s.b, monoid::add), whole_of(g, dual_of(s.y), monoid::add), by);
    const numbers sum = each(d.on[0], d.on[1], [](double p, double q) { return p + q; });
    if (is == state::replica && s.y != state::varying && !(sum == one)) return false;
    if (is != state::replica && !(d.on[0] == one && d.on[1] == one)) return false;
  }
  return true;
}
/// Returns true if the class is right for every combination of states that it accepts.
constexpr bool keeps_law(const operator_case& c, monoid kind, const operator_class& is, const said& s) {
  constexpr state all[] = {state::constant, state::replica, state::invariant, state::varying, state::partial};
  drawn_numbers draw;
  const bool is_alone = c.b.empty();
  for (const state of_a : all)
    for (const state of_b : all) {
      if (c.has_indices && of_b != state::constant && of_b != state::varying && of_b != state::partial) continue;
      if (is_alone && of_b != state::constant) continue;
      if (kind != monoid::add && (of_a != state::partial || of_b == state::varying))
        continue;  // the other monoids are checked as add
      state in[3] = {state::constant, state::constant, state::constant};
      if (s.data[0] >= 0) in[s.data[0]] = of_a;
      if (s.data[1] >= 0) in[s.data[1]] = of_b;
      const meeting met = meet(is, {in, static_cast<std::size_t>(s.operands)});
      if (met.broken != conflict::none) continue;
      for (int trial = 0; trial < 2; ++trial) {
        const pair_of a = drawn(of_a, draw);
        pair_of b = drawn(of_b, draw);
        if (c.has_indices)
          for (int i = 0; i < most; ++i) {
            b.on[0].of[i] = static_cast<double>(c.places[i]);
            b.on[1].of[i] = of_b == state::constant ? b.on[0].of[i] : static_cast<double>((c.places[i] + 1) % 3);
          }
        const states_of_case states{of_a, of_b, met.result};
        if (!values_hold(c, states, kind, a, b)) return false;
        if (kind == monoid::add && c.is_affine && !gradients_hold(c, states, a, b, drawn(dual_of(met.result), draw)))
          return false;
      }
    }
  return true;
}
constexpr bool keeps_law(const operator_case& c) {
  for (const monoid kind : {monoid::add, monoid::multiply, monoid::max, monoid::min}) {
    const said s = class_of(c, kind, dtype::f64);
    if (!keeps_law(c, kind, s.is, s)) return false;
  }
  return true;
}

using in_numbers = const numbers&;
constexpr operator_case product{[](value a, value b) { return einsum<"ab,bc->ac">(a, b); },
                                [](in_numbers a, in_numbers b, numbers& y) {
                                  for (int i = 0; i < 8; ++i)
                                    y.of[i / 4 * 2 + i % 2] += a.of[i / 4 * 2 + i / 2 % 2] * b.of[i / 2 % 2 * 2 + i % 2];
                                },
                                dims_of({2, 2}), dims_of({2, 2})};
constexpr operator_case weighted_rows{[](value a, value b) { return einsum<"nk,n->nk">(a, b); },
                                      [](in_numbers a, in_numbers b, numbers& y) {
                                        for (int i = 0; i < 6; ++i) y.of[i] = a.of[i] * b.of[i / 3];
                                      },
                                      dims_of({2, 3}), dims_of({2})};
constexpr operator_case letter_sum{[](value a, value) { return einsum<"uv->v">(a); },
                                   [](in_numbers a, in_numbers, numbers& y) {
                                     for (int i = 0; i < 6; ++i) y.of[i % 3] += a.of[i];
                                   },
                                   dims_of({2, 3})};
constexpr operator_case window_sum{[](value a, value b) { return einsum<"(x+w),w->x">(a, b); },
                                   [](in_numbers a, in_numbers b, numbers& y) {
                                     for (int i = 0; i < 6; ++i) y.of[i / 2] += a.of[i / 2 + i % 2] * b.of[i % 2];
                                   },
                                   dims_of({4}), dims_of({2})};
template <int Number>
constexpr operator_case padded{[](value a, value) { return pad(a, {1}, {2}, Number); },
                               [](in_numbers a, in_numbers, numbers& y) {
                                 y.of[0] = y.of[4] = y.of[5] = Number;
                                 for (int i = 0; i < 3; ++i) y.of[i + 1] = a.of[i];
                               },
                               dims_of({3})};
template <int Number>
constexpr operator_case shifted{[](value a, value) { return shift(a, 1, gspmd::along(0), boundary::constant(Number)); },
                                [](in_numbers a, in_numbers, numbers& y) {
                                  y.of[2] = Number;
                                  for (int i = 0; i < 2; ++i) y.of[i] = a.of[i + 1];
                                },
                                dims_of({3})};
constexpr operator_case some_rows{[](value a, value b) { return take(a, b, 0); },
                                  [](in_numbers a, in_numbers b, numbers& y) {
                                    for (int i = 0; i < 4; ++i) y.of[i] = a.of[static_cast<int>(b.of[i])];
                                  },
                                  dims_of({3}),
                                  dims_of({4}),
                                  true,
                                  {2, 0, 2, 1},
                                  true};
template <int Number>
constexpr operator_case filled_rows{[](value a, value b) { return take(a, b, 0, out_of_range::fill, Number); },
                                    [](in_numbers a, in_numbers b, numbers& y) {
                                      for (int i = 0; i < 4; ++i)
                                        y.of[i] = b.of[i] > 2 ? Number : a.of[static_cast<int>(b.of[i])];
                                    },
                                    dims_of({3}),
                                    dims_of({4}),
                                    true,
                                    {2, 7, 0, 1},
                                    true};
template <monoid Kind>
constexpr operator_case segments{[](value a, value b) { return segment_sum(a, b, 3, Kind); },
                                 [](in_numbers a, in_numbers b, numbers& y) {
                                   for (int s = 0; s < 3; ++s) {
                                     bool any = false;
                                     for (int i = 0; i < 4; ++i) {
                                       if (static_cast<int>(b.of[i]) != s) continue;
                                       y.of[s] = any ? joined(Kind, y.of[s], a.of[i]) : a.of[i];
                                       any = true;
                                     }
                                   }
                                 },
                                 dims_of({4}),
                                 dims_of({4}),
                                 Kind == monoid::add,
                                 {2, 0, 2, 1},
                                 true};
constexpr operator_case set_rows{[](value a, value b) {  // two rows that begin at row 0, a number of rank 1
                                   return scatter(a, iota<std::int32_t>(a, {1}, 0), b,
                                                  scatter_dims{.update_window_dims = {0}, .scatter_dims_to_operand_dims = {0}});
                                 },
                                 [](in_numbers a, in_numbers b, numbers& y) {
                                   for (int i = 0; i < 3; ++i) y.of[i] = i < 2 ? b.of[i] : a.of[i];
                                 },
                                 dims_of({3}), dims_of({2})};
template <monoid Kind>
constexpr operator_case running{[](value a, value) { return scan_along(a, Kind, 0); },
                                [](in_numbers a, in_numbers, numbers& y) {
                                  y.of[0] = a.of[0];
                                  for (int i = 1; i < 4; ++i) y.of[i] = joined(Kind, y.of[i - 1], a.of[i]);
                                },
                                dims_of({4}),
                                {},
                                Kind == monoid::add};
template <monoid Kind>
constexpr operator_case windows{[](value a, value) { return reduce_window(a, Kind, {2}); },
                                [](in_numbers a, in_numbers, numbers& y) {
                                  for (int i = 0; i < 3; ++i) y.of[i] = joined(Kind, a.of[i], a.of[i + 1]);
                                },
                                dims_of({4}),
                                {},
                                Kind == monoid::add};
constexpr operator_case chosen{[](value a, value b) { return where(iota<double>(a, {3}, 0) > 0.5, a, b); },
                               [](in_numbers a, in_numbers b, numbers& y) {
                                 for (int i = 0; i < 3; ++i) y.of[i] = i > 0 ? a.of[i] : b.of[i];
                               },
                               dims_of({3}), dims_of({3})};
constexpr operator_case side_by_side{[](value a, value b) {
                                       return concatenate({a, b}, 0);
                                     },
                                     [](in_numbers a, in_numbers b, numbers& y) {
                                       for (int i = 0; i < 3; ++i) {
                                         y.of[i] = a.of[i];
                                         y.of[3 + i] = b.of[i];
                                       }
                                     },
                                     dims_of({3}), dims_of({3})};
constexpr operator_case turned{[](value a, value) {
                                 return transpose(a, {1, 0});
                               },
                               [](in_numbers a, in_numbers, numbers& y) {
                                 for (int i = 0; i < 6; ++i) y.of[i % 3 * 2 + i / 3] = a.of[i];
                               },
                               dims_of({2, 3})};
constexpr operator_case repeated{[](value a, value) {
                                   return broadcast_in_dim(a, {2, 3}, {1});
                                 },
                                 [](in_numbers a, in_numbers, numbers& y) {
                                   for (int i = 0; i < 6; ++i) y.of[i] = a.of[i % 3];
                                 },
                                 dims_of({3})};

static_assert(keeps_law(product) && keeps_law(weighted_rows) && keeps_law(letter_sum), "the class of einsum is refuted");
static_assert(keeps_law(window_sum), "the class of a windowed einsum is refuted");
static_assert(keeps_law(padded<0>) && keeps_law(padded<2>), "the class of pad is refuted");
static_assert(keeps_law(shifted<0>) && keeps_law(shifted<2>), "the class of shift is refuted");
static_assert(keeps_law(some_rows) && keeps_law(filled_rows<0>) && keeps_law(filled_rows<2>), "the class of gather is refuted");
static_assert(keeps_law(segments<monoid::add>) && keeps_law(segments<monoid::max>), "the class of scatter is refuted");
static_assert(keeps_law(set_rows), "the class of scatter_set is refuted");
static_assert(keeps_law(running<monoid::add>) && keeps_law(running<monoid::multiply>) && keeps_law(running<monoid::min>),
              "the class of scan_along is refuted");
static_assert(keeps_law(windows<monoid::add>) && keeps_law(windows<monoid::max>), "the class of reduce_window is refuted");
static_assert(keeps_law(chosen), "the class of where is refuted");
static_assert(keeps_law(side_by_side), "the class of concatenate is refuted");
static_assert(keeps_law(turned) && keeps_law(repeated), "the class of transpose or broadcast_in_dim is refuted");

// The check rejects wrong classes, by values or by gradients only.
constexpr bool would_keep_law(const operator_case& c, const operator_class& is, monoid kind = monoid::add) {
  return keeps_law(c, kind, is, class_of(c, kind, dtype::f64));
}
static_assert(!would_keep_law(product, {partial_class::all}));
static_assert(!would_keep_law(product, {partial_class::one, 2}));  // a factor is not an index
static_assert(!would_keep_law(product, {partial_class::one}, monoid::max));
static_assert(!would_keep_law(padded<2>, {partial_class::all}));
static_assert(!would_keep_law(shifted<2>, {partial_class::all}));
static_assert(!would_keep_law(filled_rows<2>, {partial_class::all, 2}));
static_assert(!would_keep_law(some_rows, {partial_class::all}));  // an index that is a sum
static_assert(!would_keep_law(segments<monoid::add>, {partial_class::all, 1}, monoid::max));
static_assert(!would_keep_law(set_rows, {partial_class::one, 2}));
static_assert(!would_keep_law(set_rows, {partial_class::all, 4}));  // data called an index
static_assert(!would_keep_law(running<monoid::multiply>, {partial_class::all}));
static_assert(!would_keep_law(side_by_side, {partial_class::one}));

}  // namespace
}  // namespace gspmd::detail
