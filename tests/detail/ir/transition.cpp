// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: planner
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gspmd/detail/ir/meet.hpp"
#include "gspmd/detail/ir/transition.hpp"

using namespace gspmd;
using detail::conflict;
using detail::device_action;
using detail::operator_class;
using detail::partial_class;
using detail::state;

namespace {

using number = std::int64_t;
using tensor = std::vector<number>;
using on_devices = std::vector<tensor>;  // the data of each device

number dot(const tensor& a, const tensor& b) {
  number sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
tensor plus(const tensor& a, const tensor& b) {
  tensor sum = a;
  for (std::size_t i = 0; i < a.size(); ++i) sum[i] += b[i];
  return sum;
}
tensor sum_of(const on_devices& all) {
  tensor sum(all[0].size(), 0);
  for (const auto& t : all) sum = plus(sum, t);
  return sum;
}
bool are_equal(const on_devices& all) {
  for (const auto& t : all)
    if (t != all[0]) return false;
  return true;
}

/// An operator with its derivative, on tensors of two elements (or one).
struct case_of_operator {
  std::string name;
  operator_class is;
  int operands;
  std::function<tensor(const std::vector<tensor>&)> apply;
  std::function<std::vector<tensor>(const std::vector<tensor>&, const tensor&)> pull;  // by operand; empty: it has no gradient
  bool is_flag_first = false;                                                          // operand 0 is 0 or 1
};

using arguments = std::vector<tensor>;
tensor each(const arguments& x, const std::function<number(std::size_t)>& f) {
  tensor y(x.back().size());
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = f(i);
  return y;
}
tensor scaled(const tensor& g, number by) {
  tensor y = g;
  for (auto& e : y) e *= by;
  return y;
}

std::vector<case_of_operator> all_operators() {
  constexpr auto none = partial_class::none;
  constexpr auto all = partial_class::all, one = partial_class::one, first = partial_class::first, affine = partial_class::affine;
  const auto unary = [](std::string name, partial_class c, auto f, auto d) {
    return case_of_operator{std::move(name),
                            {c},
                            1,
                            [f](const arguments& x) { return each(x, [&](std::size_t i) { return f(x[0][i]); }); },
                            [d](const arguments& x, const tensor& g) {
                              return arguments{each(x, [&](std::size_t i) { return d(x[0][i]) * g[i]; })};
                            }};
  };
  const auto without = [](std::string name, int operands, auto f) {
    return case_of_operator{std::move(name),
                            {partial_class::none, detail::every_operand},
                            operands,
                            [f](const arguments& x) { return each(x, [&](std::size_t i) { return f(x, i); }); },
                            [](const arguments& x, const tensor&) { return arguments(x.size()); }};
  };
  std::vector<case_of_operator> list{
      unary(
          "square", none, [](number v) { return v * v; }, [](number v) { return 2 * v; }),
      unary(
          "relu", none, [](number v) { return v > 0 ? v : 0; }, [](number v) { return v > 0 ? 1 : 0; }),
      unary(
          "abs", none, [](number v) { return v < 0 ? -v : v; }, [](number v) { return v < 0 ? -1 : 1; }),
      unary(
          "clip", none, [](number v) { return v > 2 ? 2 : v; }, [](number v) { return v > 2 ? 0 : 1; }),
      unary(
          "negative", all, [](number v) { return -v; }, [](number) { return -1; }),
      unary(
          "scale", all, [](number v) { return 3 * v; }, [](number) { return 3; }),
      unary(
          "add 5", affine, [](number v) { return v + 5; }, [](number) { return 1; }),
      without("sign", 1, [](const arguments& x, std::size_t i) { return number{x[0][i] > 0} - number{x[0][i] < 0}; }),
      without("compare", 2, [](const arguments& x, std::size_t i) { return number{x[0][i] < x[1][i]}; }),
      without("argmax", 1, [](const arguments& x, std::size_t) { return number{x[0][1] > x[0][0]}; }),
  };
  list.push_back({"sum",
                  {all},
                  1,
                  [](const arguments& x) { return tensor{x[0][0] + x[0][1]}; },
                  [](const arguments&, const tensor& g) {
                    return arguments{{g[0], g[0]}};
                  }});
  list.push_back({"product",
                  {none},
                  1,
                  [](const arguments& x) { return tensor{x[0][0] * x[0][1]}; },
                  [](const arguments& x, const tensor& g) {
                    return arguments{{g[0] * x[0][1], g[0] * x[0][0]}};
                  }});
  list.push_back({"maximum along",
                  {none},
                  1,
                  [](const arguments& x) { return tensor{std::max(x[0][0], x[0][1])}; },
                  [](const arguments& x, const tensor& g) {
                    const bool is_first = x[0][0] >= x[0][1];
                    return arguments{{is_first ? g[0] : 0, is_first ? 0 : g[0]}};
                  }});
  list.push_back({"cumsum",
                  {all},
                  1,
                  [](const arguments& x) {
                    return tensor{x[0][0], x[0][0] + x[0][1]};
                  },
                  [](const arguments&, const tensor& g) {
                    return arguments{{g[0] + g[1], g[1]}};
                  }});
  list.push_back({"flip",
                  {all},
                  1,
                  [](const arguments& x) {
                    return tensor{x[0][1], x[0][0]};
                  },
                  [](const arguments&, const tensor& g) {
                    return arguments{{g[1], g[0]}};
                  }});
  list.push_back({"slice",
                  {all},
                  1,
                  [](const arguments& x) { return tensor{x[0][1]}; },
                  [](const arguments&, const tensor& g) {
                    return arguments{{0, g[0]}};
                  }});
  list.push_back({"pad by 0",
                  {all},
                  1,
                  [](const arguments& x) {
                    return tensor{0, x[0][0], x[0][1]};
                  },
                  [](const arguments&, const tensor& g) {
                    return arguments{{g[1], g[2]}};
                  }});
  list.push_back({"pad by 1",
                  {affine},
                  1,
                  [](const arguments& x) {
                    return tensor{1, x[0][0], x[0][1]};
                  },
                  [](const arguments&, const tensor& g) {
                    return arguments{{g[1], g[2]}};
                  }});
  list.push_back({"add",
                  {all},
                  2,
                  [](const arguments& x) { return plus(x[0], x[1]); },
                  [](const arguments&, const tensor& g) {
                    return arguments{g, g};
                  }});
  list.push_back({"subtract",
                  {all},
                  2,
                  [](const arguments& x) { return plus(x[0], scaled(x[1], -1)); },
                  [](const arguments&, const tensor& g) {
                    return arguments{g, scaled(g, -1)};
                  }});
  list.push_back({"concatenate",
                  {all},
                  2,
                  [](const arguments& x) {
                    return tensor{x[0][0], x[0][1], x[1][0], x[1][1]};
                  },
                  [](const arguments&, const tensor& g) {
                    return arguments{{g[0], g[1]}, {g[2], g[3]}};
                  }});
  list.push_back({"max",
                  {none},
                  2,
                  [](const arguments& x) { return each(x, [&](std::size_t i) { return std::max(x[0][i], x[1][i]); }); },
                  [](const arguments& x, const tensor& g) {
                    arguments d{g, g};
                    for (std::size_t i = 0; i < g.size(); ++i) d[x[0][i] >= x[1][i] ? 1 : 0][i] = 0;
                    return d;
                  }});
  list.push_back({"multiply",
                  {one},
                  2,
                  [](const arguments& x) { return each(x, [&](std::size_t i) { return x[0][i] * x[1][i]; }); },
                  [](const arguments& x, const tensor& g) {
                    return arguments{each(x, [&](std::size_t i) { return g[i] * x[1][i]; }),
                                     each(x, [&](std::size_t i) { return g[i] * x[0][i]; })};
                  }});
  list.push_back({"dot",
                  {one},
                  2,
                  [](const arguments& x) { return tensor{dot(x[0], x[1])}; },
                  [](const arguments& x, const tensor& g) {
                    return arguments{scaled(x[1], g[0]), scaled(x[0], g[0])};
                  }});
  list.push_back({"multiply three",
                  {one},
                  3,
                  [](const arguments& x) { return each(x, [&](std::size_t i) { return x[0][i] * x[1][i] * x[2][i]; }); },
                  [](const arguments& x, const tensor& g) {
                    return arguments{each(x, [&](std::size_t i) { return g[i] * x[1][i] * x[2][i]; }),
                                     each(x, [&](std::size_t i) { return g[i] * x[0][i] * x[2][i]; }),
                                     each(x, [&](std::size_t i) { return g[i] * x[0][i] * x[1][i]; })};
                  }});
  // Linear in operand 0 and nonlinear in operand 1, like a division, but in integers: x * y^2.
  list.push_back({"times the square of",
                  {first},
                  2,
                  [](const arguments& x) { return each(x, [&](std::size_t i) { return x[0][i] * x[1][i] * x[1][i]; }); },
                  [](const arguments& x, const tensor& g) {
                    return arguments{each(x, [&](std::size_t i) { return g[i] * x[1][i] * x[1][i]; }),
                                     each(x, [&](std::size_t i) { return 2 * g[i] * x[0][i] * x[1][i]; })};
                  }});
  list.push_back({"take",
                  {all, 1},
                  2,
                  [](const arguments& x) { return tensor{x[1][static_cast<std::size_t>(x[0][0])]}; },
                  [](const arguments& x, const tensor& g) {
                    tensor d(2, 0);
                    d[static_cast<std::size_t>(x[0][0])] = g[0];
                    return arguments{{}, d};
                  },
                  true});
  list.push_back({"where",
                  {all, 1},
                  3,
                  [](const arguments& x) { return x[0][0] != 0 ? x[1] : x[2]; },
                  [](const arguments& x, const tensor& g) {
                    const tensor zero(2, 0);
                    return x[0][0] != 0 ? arguments{{}, g, zero} : arguments{{}, zero, g};
                  },
                  true});
  return list;
}

constexpr state kinds[] = {state::constant, state::replica, state::invariant, state::varying, state::partial};

/// Returns the data of all devices for a value in some state.
on_devices member(state s, const tensor& base, std::size_t n, std::mt19937& random, bool is_flag) {
  on_devices held(n, base);
  if (s != state::varying && s != state::partial) return held;
  for (auto& t : held)
    for (auto& e : t) e = is_flag ? static_cast<number>(random() % 2) : static_cast<number>(random() % 9) - 4;
  return held;
}

/// Returns true if `result` is a sound state of the operator's result on n devices, for values and gradients with
/// random numbers.
bool is_sound(const case_of_operator& op, const std::vector<state>& in, state result, std::size_t n, std::mt19937& random) {
  const auto operands = static_cast<std::size_t>(op.operands);
  std::vector<on_devices> held;
  for (std::size_t k = 0; k < operands; ++k) {
    tensor base(2);
    const bool is_flag = op.is_flag_first && k == 0;
    for (auto& e : base) e = is_flag ? static_cast<number>(random() % 2) : static_cast<number>(random() % 9) - 4;
    held.push_back(member(in[k], base, n, random, is_flag));
  }
  const auto local = [&](std::size_t d) {
    arguments x;
    for (const auto& h : held) x.push_back(h[d]);
    return x;
  };
  // The operands that device d represents: its own data if varying, the sum if partial.
  const auto meant = [&](std::size_t d) {
    arguments x;
    for (std::size_t k = 0; k < operands; ++k) x.push_back(in[k] == state::partial ? sum_of(held[k]) : held[k][d]);
    return x;
  };
  on_devices y, wanted;
  for (std::size_t d = 0; d < n; ++d) {
    y.push_back(op.apply(local(d)));
    wanted.push_back(op.apply(meant(d)));
  }
  const auto right = [&](state s, const on_devices& is, const on_devices& should) {
    if (s == state::varying) return is == should;
    if (!are_equal(should)) return false;
    if (s == state::partial) return sum_of(is) == should[0];
    return are_equal(is) && is[0] == should[0];
  };
  if (!right(result, y, wanted)) return false;

  // The gradient of <y, g> with g in the dual state. The gradient of each operand must be in the dual of the operand's
  // state.
  on_devices g(n, tensor(y[0].size(), 0));
  for (auto& e : g[0]) e = static_cast<number>(random() % 9) - 4;
  for (std::size_t d = 1; d < n; ++d) g[d] = g[0];
  const bool is_term_each = result == state::replica || result == state::varying;
  if (is_term_each)
    for (auto& t : g)
      for (auto& e : t) e = static_cast<number>(random() % 9) - 4;
  if (result == state::constant)
    for (auto& t : g)
      for (auto& e : t) e = 0;
  std::vector<on_devices> found(operands), full(operands);
  for (std::size_t d = 0; d < n; ++d) {
    const auto here = op.pull(local(d), g[d]);
    // The part of device d in <y, g>: all of y if it is one value.
    const auto all = op.pull(meant(d), result == state::replica ? sum_of(g) : g[d]);
    for (std::size_t k = 0; k < operands; ++k) {
      found[k].push_back(here[k]);
      full[k].push_back(all[k]);
    }
  }
  // A constant result passes no gradient on. This is right if no operand needs a gradient.
  if (result == state::constant) {
    for (std::size_t k = 0; k < operands; ++k) {
      if (in[k] == state::constant || k >= 32 || (op.is.selectors >> k & 1U) != 0) continue;
      return false;
    }
    return true;
  }
  for (std::size_t k = 0; k < operands; ++k) {
    if (in[k] == state::constant || (op.is.selectors >> k & 1U) != 0) continue;
    const bool varies = result == state::varying;
    switch (in[k]) {
      case state::varying:
        if (!varies || found[k] != full[k]) return false;
        break;
      case state::replica:  // the sum of the partial values is the whole
        if (sum_of(found[k]) != (varies ? sum_of(full[k]) : full[k][0])) return false;
        break;
      case state::invariant:  // complete on every device
        if (!are_equal(found[k]) || found[k][0] != (varies ? sum_of(full[k]) : full[k][0])) return false;
        break;
      case state::partial:
        if (!are_equal(found[k]) || found[k][0] != (varies ? sum_of(full[k]) : full[k][0])) return false;
        break;
      default: break;
    }
  }
  return true;
}

bool is_always_sound(const case_of_operator& op, const std::vector<state>& in, state result) {
  std::mt19937 random(7);
  for (std::size_t n = 1; n <= 3; ++n)
    for (int trial = 0; trial < 40; ++trial)
      if (!is_sound(op, in, result, n, random)) return false;
  return true;
}

std::string letters(const std::vector<state>& in) {
  std::string t;
  for (const auto s : in) t += "CRIVSP"[static_cast<int>(s)];
  return t;
}

}  // namespace

TEST_CASE("the typing rule accepts what is sound, values and gradients, and nothing else") {
  int accepted = 0, refused = 0;
  for (const auto& op : all_operators()) {
    const auto operands = static_cast<std::size_t>(op.operands);
    std::size_t combinations = 1;
    for (std::size_t k = 0; k < operands; ++k) combinations *= std::size(kinds);
    for (std::size_t c = 0; c < combinations; ++c) {
      std::vector<state> in;
      for (std::size_t k = 0, rest = c; k < operands; ++k, rest /= std::size(kinds)) in.push_back(kinds[rest % std::size(kinds)]);
      const auto met = detail::meet(op.is, in);
      CAPTURE(op.name);
      CAPTURE(letters(in));
      if (met.broken == conflict::none) {
        ++accepted;
        CHECK(is_always_sound(op, in, met.result));
      } else {
        ++refused;
        for (const auto result : kinds) {
          CAPTURE(letters({result}));
          CHECK_FALSE(is_always_sound(op, in, result));
        }
      }
    }
  }
  CHECK(accepted == 300);
  CHECK(refused == 260);
}

TEST_CASE("a class that the law refutes is found out") {
  auto operators = all_operators();
  for (auto& op : operators) {
    if (op.name != "add" && op.name != "square" && op.name != "multiply") continue;
    op.is.takes = op.name == "square" ? partial_class::all : op.name == "add" ? partial_class::one : partial_class::all;
    const std::vector<state> in = op.name == "square" ? std::vector{state::partial}
                                  : op.name == "add"  ? std::vector{state::partial, state::replica}
                                                      : std::vector{state::partial, state::partial};
    REQUIRE(detail::meet(op.is, in).broken == conflict::none);
    CHECK_FALSE(is_always_sound(op, in, state::partial));
  }
}

TEST_CASE("why states do not go together, and which operand is in the way") {
  using enum state;
  const auto why = [](const operator_class& c, std::vector<state> in) {
    const auto met = detail::meet(c, in);
    return std::pair(met.broken, met.operand);
  };
  const operator_class add{partial_class::all}, multiply{partial_class::one}, divide{partial_class::first}, exp{},
      plus_5{partial_class::affine}, take{partial_class::all, 2};
  CHECK(why(multiply, {varying, invariant}) == std::pair(conflict::states, 1));
  CHECK(why(multiply, {shard, invariant}) == std::pair(conflict::states, 1));
  CHECK(why(add, {replica, invariant}) == std::pair(conflict::states, 1));
  CHECK(why(add, {partial, invariant}) == std::pair(conflict::states, 1));
  CHECK(why(add, {partial, varying}) == std::pair(conflict::partial_varying, 0));
  CHECK(why(add, {partial, constant}) == std::pair(conflict::affine, 1));
  CHECK(why(plus_5, {partial}) == std::pair(conflict::affine, 0));
  CHECK(why(exp, {partial}) == std::pair(conflict::nonlinear, 0));
  CHECK(why(multiply, {partial, partial}) == std::pair(conflict::product, 1));
  CHECK(why(divide, {replica, partial}) == std::pair(conflict::denominator, 1));
  CHECK(why(divide, {partial, partial}) == std::pair(conflict::denominator, 1));
  CHECK(why(take, {partial, varying}) == std::pair(conflict::partial_varying, 0));
  CHECK(why(take, {constant, partial}) == std::pair(conflict::nonlinear, 1));
  CHECK(why(take, {replica, invariant}) == std::pair(conflict::none, 0));
}

// ---- transitions ----

namespace {

using detail::transition;

/// Returns the tensors of the devices after an action. A part has two elements.
on_devices done(device_action d, const on_devices& x) {
  const auto n = x.size();
  const std::size_t part = x[0].size() / n;
  const auto own = [&](const tensor& whole, std::size_t k) {
    return tensor(whole.begin() + static_cast<std::ptrdiff_t>(k * part),
                  whole.begin() + static_cast<std::ptrdiff_t>((k + 1) * part));
  };
  on_devices y;
  tensor joined;
  for (const auto& t : x) joined.insert(joined.end(), t.begin(), t.end());
  for (std::size_t k = 0; k < n; ++k) {
    switch (d) {
      case device_action::nothing: y.push_back(x[k]); break;
      case device_action::keep_own: y.push_back(own(x[k], k)); break;
      case device_action::keep_first: y.push_back(k == 0 ? x[k] : tensor(x[k].size(), 0)); break;
      case device_action::pad_zeros: {
        tensor t(n * x[k].size(), 0);
        for (std::size_t i = 0; i < x[k].size(); ++i) t[k * x[k].size() + i] = x[k][i];
        y.push_back(t);
        break;
      }
      case device_action::gather: y.push_back(joined); break;
      case device_action::gather_sum: y.push_back(own(sum_of(x), k)); break;
      case device_action::sum: y.push_back(sum_of(x)); break;
      case device_action::exchange: {  // part k of every device; it is its own transpose, so applying it twice is the identity
        tensor t;
        for (const auto& from : x) {
          const auto piece = own(from, k);
          t.insert(t.end(), piece.begin(), piece.end());
        }
        y.push_back(t);
        break;
      }
      case device_action::permute: y.push_back(x[(k + 1) % n]); break;
    }
  }
  return y;
}
/// Reverses a permutation.
on_devices undone(device_action d, const on_devices& x) {
  if (d != device_action::permute) return done(d, x);
  on_devices y;
  for (std::size_t k = 0; k < x.size(); ++k) y.push_back(x[(k + x.size() - 1) % x.size()]);
  return y;
}

on_devices some(state s, std::size_t n, std::size_t elems, std::mt19937& random) {
  on_devices held(n, tensor(elems));
  for (auto& t : held)
    for (auto& e : t) e = static_cast<number>(random() % 19) - 9;
  if (s == state::replica || s == state::invariant)
    for (auto& t : held) t = held[0];
  return held;
}
/// Returns <x, g>, where x is in state `s` and g in its dual.
number paired(state s, const on_devices& x, const on_devices& g) {
  number sum = 0;
  switch (s) {
    case state::replica: return dot(x[0], sum_of(g));
    case state::invariant: return dot(x[0], g[0]);
    case state::partial: return dot(sum_of(x), g[0]);
    default:
      for (std::size_t k = 0; k < x.size(); ++k) sum += dot(x[k], g[k]);
      return sum;
  }
}
bool is_member(state s, const on_devices& x) { return (s != state::replica && s != state::invariant) || are_equal(x); }

bool is_adjoint(const transition& t, std::size_t n, std::mt19937& random) {
  using detail::axis_state;
  const bool shrinks = t.forward == device_action::keep_own || t.forward == device_action::gather_sum;
  const bool grows = t.forward == device_action::gather || t.forward == device_action::pad_zeros;
  const std::size_t before = grows ? 2 : 2 * n, after = shrinks ? 2 : 2 * n;
  for (int trial = 0; trial < 20; ++trial) {
    const auto x = some(t.from, n, before, random);
    const auto y = done(t.forward, x);
    const state back_from = detail::dual(axis_state{t.to}).is, back_to = detail::dual(axis_state{t.from}).is;
    const auto g = some(back_from, n, after, random);
    const auto gx = undone(t.backward, g);
    if (!is_member(t.to, y) || !is_member(back_to, gx)) return false;
    if (gx[0].size() != x[0].size()) return false;
    if (paired(t.to, y, g) != paired(t.from, x, gx)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("the backward pass of every transition is its adjoint, and a row again") {
  std::mt19937 random(11);
  for (int r = 0; r < detail::transition_count; ++r) {
    const auto& t = detail::transitions[r];
    CAPTURE(r + 1);
    for (std::size_t n = 1; n <= 4; ++n) CHECK(is_adjoint(t, n, random));
    CHECK(detail::row_of(t.by, t.from, t.to) == r);
    if (t.inverse < 0) continue;
    const auto& back = detail::transitions[t.inverse];
    CHECK(back.from == detail::dual({t.to}).is);
    CHECK(back.to == detail::dual({t.from}).is);
    CHECK(back.forward == t.backward);
    CHECK(back.backward == t.forward);
    CHECK(back.inverse == r);
  }
}

TEST_CASE("wrong backward passes that systems had are no adjoints") {
  std::mt19937 random(13);
  const std::pair<int, device_action> wrong[] = {
      {6, device_action::nothing},   {7, device_action::nothing},    {17, device_action::nothing},
      {18, device_action::sum},      {13, device_action::keep_own},  {14, device_action::gather_sum},
      {8, device_action::pad_zeros}, {19, device_action::pad_zeros}, {12, device_action::gather}};
  for (const auto& [row, backward] : wrong) {
    auto t = detail::transitions[row - 1];
    t.backward = backward;
    CAPTURE(row);
    for (std::size_t n = 2; n <= 4; ++n) CHECK_FALSE(is_adjoint(t, n, random));
  }
}

TEST_CASE("what a transition sends, in both directions") {
  const auto sent = [](int row, std::int64_t before, std::int64_t after) {
    const auto& t = detail::transitions[row - 1];
    return std::pair(detail::bytes_of(t.forward, 4, before, after), detail::bytes_of(t.backward, 4, after, before));
  };
  using both = std::pair<std::int64_t, std::int64_t>;
  CHECK(sent(6, 400, 400) == both(0, 600));
  CHECK(sent(8, 400, 100) == both(0, 300));
  CHECK(sent(13, 100, 400) == both(300, 300));
  CHECK(sent(14, 100, 400) == both(300, 0));
  CHECK(sent(15, 400, 400) == both(300, 300));
  CHECK(sent(17, 400, 400) == both(600, 600));
  CHECK(sent(18, 400, 400) == both(600, 0));
  CHECK(sent(19, 400, 100) == both(300, 300));
}
