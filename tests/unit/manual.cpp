// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Manual regions: what is accepted gives what the devices of a naive machine hold, and its gradients; known layers send what they say.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/grad.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/manual.hpp>
#include <gspmd/modes.hpp>

#include "support/error_of.hpp"

using namespace gspmd;
using caught::error_of;

namespace manual_regions {

/// What one device holds: a matrix.
struct matrix {
  std::int64_t rows = 0, cols = 0;
  std::vector<double> of{};
  [[nodiscard]] double& at(std::int64_t r, std::int64_t c) { return of[static_cast<std::size_t>(r * cols + c)]; }
  [[nodiscard]] double at(std::int64_t r, std::int64_t c) const { return of[static_cast<std::size_t>(r * cols + c)]; }
  static matrix zeros(std::int64_t r, std::int64_t c) {
    return {r, c, std::vector<double>(static_cast<std::size_t>(r * c), 0.0)};
  }
};
matrix part_of(const matrix& m, int dim, std::int64_t parts, std::int64_t k) {
  matrix p = dim == 0 ? matrix::zeros(m.rows / parts, m.cols) : matrix::zeros(m.rows, m.cols / parts);
  for (std::int64_t r = 0; r < p.rows; ++r)
    for (std::int64_t c = 0; c < p.cols; ++c) p.at(r, c) = m.at(dim == 0 ? r + k * p.rows : r, dim == 1 ? c + k * p.cols : c);
  return p;
}

enum class kind {
  add,
  multiply,
  product,
  tanh,
  transpose,
  scale,
  all_reduce,
  all_reduce_r,
  gather,
  gather_r,
  scatter,
  exchange,
  rotate,
  shift,
  reverse,
  permute,
  part_r,
  part_i,
  to_replica,
  to_varying,
  to_partial,
  broadcast,
  index,
  halo,
  count
};
struct op {
  kind is = kind::add;
  int a = 0, b = 0;
  int axis = 0;  // 0: x, 1: y, 2: both
  int dim = 0;
  std::int64_t by = 1;
};

/// A permutation by number, some of whose devices get nothing: the device that sends to k of n, or -1.
std::int64_t source_of(std::int64_t number, std::int64_t k, std::int64_t n) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) order[static_cast<std::size_t>(i)] = i;
  std::mt19937 random(static_cast<unsigned>(number + 5));
  std::shuffle(order.begin(), order.end(), random);
  return (k + number) % 3 == 0 ? -1 : order[static_cast<std::size_t>(k)];
}

/// The devices of a mesh x,y, each with its own values.
struct machine {
  std::int64_t x, y;
  using held = std::vector<matrix>;  // by device
  [[nodiscard]] std::int64_t devices() const { return x * y; }
  [[nodiscard]] std::int64_t size(int axis) const { return axis == 0 ? x : axis == 1 ? y : x * y; }
  [[nodiscard]] std::int64_t place(std::int64_t d, int axis) const { return axis == 0 ? d / y : axis == 1 ? d % y : d; }
  [[nodiscard]] std::int64_t peer(std::int64_t d, int axis, std::int64_t k) const {
    return axis == 0 ? k * y + d % y : axis == 1 ? d / y * y + k : k;
  }

  [[nodiscard]] matrix local(const op& o, const matrix& a, const matrix& b) const {
    if (o.is == kind::product) {
      matrix c = matrix::zeros(a.rows, b.cols);
      for (std::int64_t i = 0; i < a.rows; ++i)
        for (std::int64_t k = 0; k < a.cols; ++k)
          for (std::int64_t j = 0; j < b.cols; ++j) c.at(i, j) += a.at(i, k) * b.at(k, j);
      return c;
    }
    if (o.is == kind::transpose) {
      matrix c = matrix::zeros(a.cols, a.rows);
      for (std::int64_t i = 0; i < a.rows; ++i)
        for (std::int64_t j = 0; j < a.cols; ++j) c.at(j, i) = a.at(i, j);
      return c;
    }
    matrix c = a;
    for (std::size_t i = 0; i < c.of.size(); ++i)
      c.of[i] = o.is == kind::add        ? a.of[i] + b.of[i]
                : o.is == kind::multiply ? a.of[i] * b.of[i]
                : o.is == kind::tanh     ? std::tanh(a.of[i])
                                         : 0.5 * a.of[i];
    return c;
  }
  [[nodiscard]] matrix sum(const held& a, std::int64_t d, int axis) const {
    matrix s = matrix::zeros(a[static_cast<std::size_t>(d)].rows, a[static_cast<std::size_t>(d)].cols);
    for (std::int64_t k = 0; k < size(axis); ++k)
      for (std::size_t i = 0; i < s.of.size(); ++i) s.of[i] += a[static_cast<std::size_t>(peer(d, axis, k))].of[i];
    return s;
  }
  [[nodiscard]] matrix joined(const held& a, std::int64_t d, int axis, int dim) const {
    const matrix& like = a[static_cast<std::size_t>(d)];
    const auto n = size(axis);
    matrix w = dim == 0 ? matrix::zeros(like.rows * n, like.cols) : matrix::zeros(like.rows, like.cols * n);
    for (std::int64_t k = 0; k < n; ++k)
      for (std::int64_t r = 0; r < like.rows; ++r)
        for (std::int64_t c = 0; c < like.cols; ++c)
          w.at(dim == 0 ? r + k * like.rows : r, dim == 1 ? c + k * like.cols : c) =
              a[static_cast<std::size_t>(peer(d, axis, k))].at(r, c);
    return w;
  }
  [[nodiscard]] held run(const op& o, const held& a, const held& b) const {
    held result;
    for (std::int64_t d = 0; d < devices(); ++d) {
      const auto n = size(o.axis), k = place(d, o.axis);
      const matrix& own = a[static_cast<std::size_t>(d)];
      const auto from = [&](std::int64_t p) { return a[static_cast<std::size_t>(peer(d, o.axis, p))]; };
      switch (o.is) {
        case kind::all_reduce:
        case kind::all_reduce_r: result.push_back(sum(a, d, o.axis)); break;
        case kind::gather:
        case kind::gather_r: result.push_back(joined(a, d, o.axis, o.dim)); break;
        case kind::scatter: result.push_back(part_of(sum(a, d, o.axis), o.dim, n, k)); break;
        case kind::exchange: result.push_back(part_of(joined(a, d, o.axis, 1 - o.dim), o.dim, n, k)); break;
        case kind::rotate: result.push_back(from(((k - o.by) % n + n) % n)); break;
        case kind::shift: result.push_back(k >= o.by && k - o.by < n ? from(k - o.by) : matrix::zeros(own.rows, own.cols)); break;
        case kind::reverse: result.push_back(from(n - 1 - k)); break;
        case kind::permute:
          result.push_back(source_of(o.by, k, n) < 0 ? matrix::zeros(own.rows, own.cols) : from(source_of(o.by, k, n)));
          break;
        case kind::part_r:
        case kind::part_i: result.push_back(part_of(own, o.dim, n, k)); break;
        case kind::broadcast: result.push_back(from((o.by + n) % n)); break;
        case kind::to_replica:
        case kind::to_varying:
        case kind::to_partial: result.push_back(own); break;
        case kind::halo: {  // an index from the device before, and perhaps one from that behind
          const auto wide = [&](std::int64_t p, std::int64_t from_index) {
            const bool is_there = p >= 0 && p < n;
            const matrix neighbour = is_there || o.by == 2 ? from((p + n) % n) : matrix::zeros(own.rows, own.cols);
            return part_of(neighbour, o.dim, o.dim == 0 ? own.rows : own.cols, from_index);
          };
          const auto extent = o.dim == 0 ? own.rows : own.cols;
          std::vector<matrix> parts{wide(k - 1, extent - 1)};
          for (std::int64_t e = 0; e < extent; ++e) parts.push_back(part_of(own, o.dim, extent, e));
          if (o.by > 0) parts.push_back(wide(k + 1, 0));
          const auto count = static_cast<std::int64_t>(parts.size());
          matrix all = o.dim == 0 ? matrix::zeros(count, own.cols) : matrix::zeros(own.rows, count);
          for (std::int64_t e = 0; e < count; ++e)
            for (std::int64_t i = 0; i < (o.dim == 0 ? own.cols : own.rows); ++i)
              all.at(o.dim == 0 ? e : i, o.dim == 0 ? i : e) =
                  parts[static_cast<std::size_t>(e)].at(o.dim == 0 ? 0 : i, o.dim == 0 ? i : 0);
          result.push_back(all);
          break;
        }
        case kind::index:
          result.push_back(own);
          for (auto& e : result.back().of) e *= static_cast<double>(k);
          break;
        default: result.push_back(local(o, own, b[static_cast<std::size_t>(d)]));
      }
    }
    return result;
  }
};

template <dim_spec A>
value apply_along(const op& o, value a) {
  switch (o.is) {
    case kind::all_reduce: return local::all_reduce<A>(a);
    case kind::all_reduce_r: return local::all_reduce<A, state::replica>(a);
    case kind::gather: return local::all_gather<A>(a, o.dim);
    case kind::gather_r: return local::all_gather<A, state::replica>(a, o.dim);
    case kind::scatter: return local::reduce_scatter<A>(a, o.dim);
    case kind::exchange: return local::all_to_all<A>(a, 1 - o.dim, o.dim);
    case kind::rotate: return local::rotate<A>(a, o.by);
    case kind::shift: return local::shift_devices<A>(a, o.by);
    case kind::reverse: return local::reverse_devices<A>(a);
    case kind::permute: {
      std::vector<local::device_pair> pairs;
      const auto n = local::axis_size<A>(a);
      for (std::int64_t k = 0; k < n; ++k)
        if (source_of(o.by, k, n) >= 0) pairs.push_back({source_of(o.by, k, n), k});
      return local::permute<A>(a, pairs);
    }
    case kind::part_r: return local::own_part<A>(a, o.dim);
    case kind::part_i: return local::own_part<A, state::invariant>(a, o.dim);
    case kind::to_replica: return local::to_replica<A>(a);
    case kind::to_varying: return local::to_varying<A>(a);
    case kind::to_partial: return local::to_partial<A>(a);
    case kind::halo: return local::halo<A>(a, o.dim, 1, o.by > 0 ? 1 : 0, o.by == 2);
    case kind::broadcast: return local::broadcast<A>(a, (o.by + local::axis_size<A>(a)) % local::axis_size<A>(a));
    default: return a * broadcast_in_dim(convert<double>(local::axis_index<A>(a)), {a.shape()[0], a.shape()[1]}, {});
  }
}
value apply(const op& o, value a, value b) {
  if ((o.is == kind::add || o.is == kind::multiply) && !(a.shape() == b.shape()))
    a.graph()->fail({}, "test", detail::mistake::other, "the naive machine stretches nothing");
  switch (o.is) {
    case kind::add: return a + b;
    case kind::multiply: return a * b;
    case kind::product: return einsum("ab,bc->ac", a, b);
    case kind::tanh: return tanh(a);
    case kind::transpose: return transpose(a, {1, 0});
    case kind::scale: return 0.5 * a;
    default: break;
  }
  return o.axis == 0 ? apply_along<"x">(o, a) : o.axis == 1 ? apply_along<"y">(o, a) : apply_along<"x,y">(o, a);
}

/// Three inputs [size,size] enter in different states; the sum of the last values is the loss.
struct program_of_devices {
  machine on;
  std::int64_t size = 6;
  int entry = 0;
  std::vector<op> ops;
  std::vector<int> outs;  // their ways out are ops already: all are invariant

  template <class Spec>
  value with(value a, value b, value c) const {
    return manual<"x", "y">(
        [this](value p, value q, value r) {
          std::vector<value> v{p, q, r};
          for (const auto& o : ops) v.push_back(apply(o, v[static_cast<std::size_t>(o.a)], v[static_cast<std::size_t>(o.b)]));
          value total = einsum("ab->", v.back() * 0.0);
          for (const int o : outs) total = total + einsum("ab->", v[static_cast<std::size_t>(o)]);
          return total;
        },
        Spec{})(a, b, c);
  }
  [[nodiscard]] value build(value a, value b, value c) const {
    switch (entry) {
      case 0: return with<takes<split<"x", "y">, replica<"x,y">, invariant<"x,y">>>(a, b, c);
      case 1: return with<takes<split<"x,y", _>, held<split<_, "y">, replica<"x">>, replica<"x,y">>>(a, b, c);
      case 2: return with<takes<held<split<"y", _>>, held<split<_, "x">, replica<"y">>, split<_, "x,y">>>(a, b, c);
      default: return with<takes<replica<"x,y">, replica<"x,y">, held<split<"y,x", _>>>>(a, b, c);
    }
  }
  [[nodiscard]] double loss(const std::vector<matrix>& in) const {
    std::vector<machine::held> v(3);
    for (std::int64_t d = 0; d < on.devices(); ++d) {
      const auto i = on.place(d, 0), j = on.place(d, 1);
      const auto cut = [&](const matrix& m, int dim, int axis) { return part_of(m, dim, on.size(axis), on.place(d, axis)); };
      switch (entry) {
        case 0: v[0].push_back(cut(cut(in[0], 0, 0), 1, 1)), v[1].push_back(in[1]), v[2].push_back(in[2]); break;
        case 1: v[0].push_back(cut(in[0], 0, 2)), v[1].push_back(cut(in[1], 1, 1)), v[2].push_back(in[2]); break;
        case 2: v[0].push_back(cut(in[0], 0, 1)), v[1].push_back(cut(in[1], 1, 0)), v[2].push_back(cut(in[2], 1, 2)); break;
        default: v[0].push_back(in[0]), v[1].push_back(in[1]), v[2].push_back(part_of(in[2], 0, on.devices(), j * on.x + i));
      }
    }
    for (const auto& o : ops) v.push_back(on.run(o, v[static_cast<std::size_t>(o.a)], v[static_cast<std::size_t>(o.b)]));
    double total = 0;
    for (const int o : outs)
      for (const double e : v[static_cast<std::size_t>(o)][0].of) total += e;
    return total;
  }
};

/// Whether the program is accepted, so far.
std::string refusal(const program_of_devices& p, bool differentiates) {
  dynamic::builder b(dynamic::mesh({{"x", p.on.x}, {"y", p.on.y}}));
  std::vector<value> in;
  for (int k = 0; k < 3; ++k) in.push_back(b.input(dynamic::in<double>({p.size, p.size})));
  value y = p.build(in[0], in[1], in[2]);
  if (differentiates && b.graph().error.empty()) y = grad(y, in[0]);
  if (!b.graph().error.empty()) return b.take_mistake();
  b.graph().outputs.push_back(y.id());
  b.graph().type_local(b.graph(), false);
  return std::string(b.graph().error.view());
}

/// An operator on one number of each operand, by its name in messages: tanh is any function that is not linear, a product any bilinear one.
using numbers = std::array<std::int64_t, 3>;
std::int64_t computed(const std::string& name, const numbers& x) {
  if (name == "add") return x[0] + x[1];
  if (name == "multiply" || name == "einsum") return x[0] * x[1];
  if (name == "select") return x[0] != 0 ? x[1] : x[2];
  if (name == "concatenate") return x[0] + 1000 * x[1];  // both are there
  return name == "tanh" ? x[0] * x[0] : x[0];
}
/// The derivative, exact for squares.
std::int64_t slope(const std::string& name, numbers x, std::size_t by) {
  numbers less = x;
  ++x[by];
  --less[by];
  return (computed(name, x) - computed(name, less)) / 2;
}
/// Whether on two devices that hold operands in these states, whatever the numbers, an operator that sends nothing gives a result in state
/// `to`, and each operand a gradient in the dual of its state.
bool is_sound(const std::string& name, const std::vector<state>& in, state to, std::mt19937& random) {
  const auto some = [&] { return static_cast<std::int64_t>(random() % 19) - 9; };
  const std::size_t first = name == "select" ? 1 : 0;  // with a gradient
  for (int trial = 0; trial < 8; ++trial) {
    numbers held[2]{}, means[2]{};
    for (std::size_t k = 0; k < in.size(); ++k) {
      held[0][k] = held[1][k] = some();
      if (in[k] == state::varying || in[k] == state::partial) held[1][k] = some();
      if (k < first)
        for (auto& x : held) x[k] = x[k] > 0 ? 1 : 0;
      for (std::size_t d = 0; d < 2; ++d) means[d][k] = in[k] == state::partial ? held[0][k] + held[1][k] : held[d][k];
    }
    const std::int64_t y[] = {computed(name, held[0]), computed(name, held[1])},
                       whole[] = {computed(name, means[0]), computed(name, means[1])};
    if (to != state::varying && whole[0] != whole[1]) return false;
    if (to == state::partial ? y[0] + y[1] != whole[0] : y[0] != whole[0] || y[1] != whole[1]) return false;
    const std::int64_t g = some(), other = some(), dy[] = {g, to == state::varying || to == state::replica ? other : g};
    for (std::size_t k = first; k < in.size(); ++k) {
      if (in[k] == state::constant) continue;
      if (to == state::constant) return false;
      const std::int64_t found[] = {dy[0] * slope(name, held[0], k), dy[1] * slope(name, held[1], k)};
      std::int64_t expected = (to == state::replica ? dy[0] + dy[1] : dy[0]) * slope(name, means[0], k);
      if (in[k] == state::varying) {
        if (to != state::varying) return false;  // it is asked for by each device itself
        continue;
      }
      if (to == state::varying) expected = dy[0] * slope(name, means[0], k) + dy[1] * slope(name, means[1], k);
      if (in[k] == state::replica ? found[0] + found[1] != expected : found[0] != expected || found[1] != expected) return false;
    }
  }
  return true;
}
/// Of a program that is refused for its states: whether numbers show that the untyped one goes wrong. On no axis of what was refused is
/// there a state of the result that holds; a collective, and the border, takes a value for what it is not.
enum class witness : std::uint8_t {
  found,
  unnamed,  // a replica is named as what varies: wrong on no mesh, but to_varying, which is free, is to be written
  missing,
  others_mistake,  // not of states: an extent that is not divided
};
struct typed_again {
  dynamic::builder b;
  value y;
  std::string mistake;
  detail::program_typer typer;
  explicit typed_again(const program_of_devices& p)
      : b(dynamic::mesh({{"x", p.on.x}, {"y", p.on.y}})),
        y(built(b, p)),
        mistake(b.take_mistake()),
        typer(b.graph(), b.mesh().info(), 0, true) {
    if (mistake.empty()) typer.run();
  }
  [[nodiscard]] std::vector<state> operands(const detail::node& n, int axis) const {
    std::vector<state> states;
    for (const int o : n.operands) states.push_back(is(o, axis));
    return states;
  }
  [[nodiscard]] state is(int node, int axis) const {
    const auto found = typer.types[static_cast<std::size_t>(node)].on[axis].is;
    return found == state::shard ? state::varying : found;
  }
  [[nodiscard]] static value built(dynamic::builder& in, const program_of_devices& p) {
    const value a = in.input(dynamic::in<double>({p.size, p.size})), c = in.input(dynamic::in<double>({p.size, p.size})),
                d = in.input(dynamic::in<double>({p.size, p.size}));
    return p.build(a, c, d);
  }
};
witness witness_of(const program_of_devices& p, unsigned seed) {
  std::mt19937 random(seed);
  typed_again t(p);
  if (t.typer.mistakes.empty() || t.typer.mistakes[0].axis < 0) return witness::others_mistake;
  const auto& mistake = t.typer.mistakes[0];
  const detail::node& n = t.b.graph().nodes[static_cast<std::size_t>(mistake.node)];
  const auto states = t.operands(n, mistake.axis);
  const bool is_border = detail::facts_of(n.op).made == detail::origin::viewed;
  if (is_border || detail::facts_of(n.op).made == detail::origin::renamed) {
    state named = is_border ? state::invariant : detail::state_change::of(n).from.is;
    if (named == state::shard) named = state::varying;
    if (!is_sound("identity", states, named, random)) return witness::found;
    return states[0] == state::replica && named == state::varying ? witness::unnamed : witness::missing;
  }
  for (const state to : {state::constant, state::replica, state::invariant, state::varying, state::partial})
    if (is_sound(detail::name_of(n.op), states, to, random)) return witness::missing;
  return witness::found;
}
/// The same numbers show nothing of what is accepted.
bool is_shown_wrong(const program_of_devices& p, unsigned seed) {
  std::mt19937 random(seed);
  typed_again t(p);
  for (std::size_t i = 0; i < t.b.graph().nodes.size(); ++i) {
    const detail::node& n = t.b.graph().nodes[i];
    const std::string name = detail::name_of(n.op);
    if (n.operands.count < 2 && name != "tanh" && name != "transpose") continue;
    if (detail::facts_of(n.op).made != detail::origin::shards) continue;
    for (int axis = 0; axis < 2; ++axis)
      if (!is_sound(name, t.operands(n, axis), t.is(static_cast<int>(i), axis), random)) return true;
  }
  return false;
}

/// `refused`: how many programs were on the way, by witness.
program_of_devices random_program(std::mt19937& random, std::array<int, 4>& refused) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const std::pair<int, int> meshes[] = {{2, 1}, {3, 1}, {2, 2}, {1, 3}, {2, 3}, {1, 1}, {3, 2}};
  const auto mesh = meshes[below(7)];
  program_of_devices p{{mesh.first, mesh.second}, mesh.first * mesh.second == 4 ? 4 : 6, below(4), {}, {}};
  for (int trial = 0; trial < 40 && p.ops.size() < 6; ++trial) {
    const int count = 3 + static_cast<int>(p.ops.size());
    op o{static_cast<kind>(below(static_cast<int>(kind::count))), below(count), below(count), below(3), below(2), below(4) - 1};
    if (below(3) == 0) o.a = count - 1;
    p.ops.push_back(o);
    if (const std::string words = refusal(p, false); !words.empty()) {
      const witness w = witness_of(p, static_cast<unsigned>(trial));
      CHECK_MESSAGE(w != witness::missing, words);
      ++refused[static_cast<std::size_t>(w)];
      p.ops.pop_back();
    }
  }
  // Each way out along each axis is tried until one is accepted: nothing, a sum, the part of a replica and then a sum.
  for (int v = 0, count = 3 + static_cast<int>(p.ops.size()); v < count; ++v) {
    bool is_out = false;
    for (int way = 0; way < 9 && !is_out; ++way) {
      const auto before = p.ops.size();
      int last = v;
      for (int axis = 0; axis < 2; ++axis) {
        const int how = axis == 0 ? way % 3 : way / 3;
        if (how == 2) {
          p.ops.push_back({kind::part_r, last, last, axis, 0, 0});
          last = 2 + static_cast<int>(p.ops.size());
        }
        if (how >= 1) {
          p.ops.push_back({kind::all_reduce, last, last, axis, 0, 0});
          last = 2 + static_cast<int>(p.ops.size());
        }
      }
      p.outs.push_back(last);
      is_out = refusal(p, false).empty();
      if (is_out) break;
      p.outs.pop_back();
      p.ops.resize(before);
    }
  }
  return p;
}

TEST_CASE("random manual programs compute and differentiate as the devices of a naive machine") {
  std::mt19937 random(16);
  int ran = 0, sent = 0;
  std::array<int, 4> refused{};
  for (int k = 0; k < 150; ++k) {
    const program_of_devices p = random_program(random, refused);
    if (p.outs.empty()) continue;
    CHECK_FALSE(is_shown_wrong(p, static_cast<unsigned>(k)));
    std::vector<matrix> in;
    for (int i = 0; i < 3; ++i) {
      in.push_back(matrix::zeros(p.size, p.size));
      for (auto& e : in.back().of) e = (static_cast<double>(random() % 2001) - 1000.0) / 2000.0;
    }
    INFO("program ", k, " on ", p.on.x, "x", p.on.y, ", entry ", p.entry);
    std::string words;
    for (const auto& o : p.ops)
      words += std::to_string(static_cast<int>(o.is)) + "(" + std::to_string(o.a) + "," + std::to_string(o.b) + ";" +
               std::to_string(o.axis) + "," + std::to_string(o.dim) + "," + std::to_string(o.by) + ") ";
    INFO(words);
    const auto program = dynamic::compile(
        [&](value a, value b, value c) {
          const value y = p.build(a, b, c);
          auto g = grad(y, std::tuple{a, b, c});
          return std::tuple{y, std::get<0>(g), std::get<1>(g), std::get<2>(g)};
        },
        dynamic::mesh({{"x", p.on.x}, {"y", p.on.y}}).checked(), dynamic::in<double>({p.size, p.size}),
        dynamic::in<double>({p.size, p.size}), dynamic::in<double>({p.size, p.size}));
    const auto result = k % 8 == 0 ? program.run(threads{}, in[0].of, in[1].of, in[2].of)
                                   : program.run(simulated{}, in[0].of, in[1].of, in[2].of);
    const double loss = p.loss(in);
    CHECK(result[0].data<double>()[0] == doctest::Approx(loss).epsilon(1e-9));
    for (int i = 0; i < 3; ++i) {  // along a direction that is not zero anywhere
      std::vector<matrix> up = in, down = in;
      double found = 0;
      for (std::size_t e = 0; e < in[0].of.size(); ++e) {
        const double d = 0.1 + static_cast<double>(random() % 10) * 0.2;
        up[static_cast<std::size_t>(i)].of[e] += 1e-5 * d;
        down[static_cast<std::size_t>(i)].of[e] -= 1e-5 * d;
        found += d * result[static_cast<std::size_t>(i) + 1].data<double>()[e];
      }
      const double slope = (p.loss(up) - p.loss(down)) / 2e-5;
      CHECK(found == doctest::Approx(slope).epsilon(1e-5));
    }
    ++ran;
    sent += program.traffic().bytes > 0 ? 1 : 0;
  }
  CHECK(ran > 120);
  CHECK(sent > 80);
  CHECK(refused[static_cast<std::size_t>(witness::found)] > 2000);
}

std::vector<double> some(const dynamic::input& in, int seed) {
  std::int64_t n = 1;
  for (const auto e : in.shape) n *= e;
  std::vector<double> v(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>((static_cast<int>(i) * 37 + seed * 11) % 17 - 8) / 8;
  return v;
}
using layer = std::function<value(const std::vector<value>&)>;
/// The layer, and the gradients by its inputs of the sum of squares of its result.
dynamic::program with_gradients(const layer& f, const dynamic::mesh& m, const std::vector<dynamic::input>& inputs) {
  dynamic::builder b(m);
  std::vector<value> in;
  for (const auto& i : inputs) in.push_back(b.input(i));
  const value y = f(in);
  const value flat = reshape(y, {-1});
  std::vector<value> g = grad(einsum("a,a->", flat, flat), in);
  for (std::size_t k = 0; k < g.size(); ++k) {
    if (inputs[k].annotated) g[k] = b.reshard(g[k], inputs[k].sharding);
    b.output(g[k]);
  }
  b.output(y);
  return b.compile();
}
/// Both give the same values and gradients; what one device sends in each.
std::pair<dynamic::program, dynamic::program> same_results(const layer& by_hand, const layer& automatic, const dynamic::mesh& m,
                                                           const std::vector<dynamic::input>& inputs) {
  const auto a = with_gradients(by_hand, m.checked(), inputs), b = with_gradients(automatic, m, inputs);
  std::vector<std::vector<double>> data;
  for (const auto& in : inputs) data.push_back(some(in, static_cast<int>(data.size())));
  const auto run = [&](const dynamic::program& p, bool in_threads) {
    if (data.size() == 3)
      return in_threads ? p.run(threads{}, data[0], data[1], data[2]) : p.run(simulated{}, data[0], data[1], data[2]);
    return in_threads ? p.run(threads{}, data[0], data[1]) : p.run(simulated{}, data[0], data[1]);
  };
  const std::vector<dynamic::any_array> expected = run(b, false);
  for (const bool in_threads : {false, true}) {
    const std::vector<dynamic::any_array> result = run(a, in_threads);
    REQUIRE(result.size() == expected.size());
    for (std::size_t k = 0; k < result.size(); ++k) {
      REQUIRE(result[k].shape == expected[k].shape);
      for (std::size_t i = 0; i < result[k].bytes.size() / sizeof(double); ++i)
        CHECK(result[k].data<double>()[i] == doctest::Approx(expected[k].data<double>()[i]).epsilon(1e-9));
    }
  }
  return {a, b};
}

TEST_CASE("Megatron's layers by hand are those of the automatic mode") {
  const auto [by_hand, automatic] = same_results(
      [](const std::vector<value>& in) {
        return manual<"data", "model">(
            [](value x, value w1, value w2) {
              const value h = tanh(einsum("bd,df->bf", local::to_replica<"model">(x), w1));
              return local::all_reduce<"model">(einsum("bf,fd->bd", h, w2));
            },
            takes<split<"data", _>, held<split<_, "model">, replica<"data">>, held<split<"model", _>, replica<"data">>>{},
            gives<split<"data", _>>{})(in[0], in[1], in[2]);
      },
      [](const std::vector<value>& in) { return einsum("bf,fd->bd", tanh(einsum("bd,df->bf", in[0], in[1])), in[2]); },
      dynamic::mesh({{"data", 2}, {"model", 2}}),
      {dynamic::in<double>({8, 6}, {"data", ""}), dynamic::in<double>({6, 10}, {"", "model"}),
       dynamic::in<double>({10, 6}, {"model", ""})});
  const traffic a = by_hand.traffic(), b = automatic.traffic();
  CHECK(a.bytes == b.bytes);
  // y and the gradient by x, [4,6] each, are summed along model; the gradients by both weights, [6,5], along data.
  CHECK(a.over("model").bytes == 2 * 24 * 8);
  CHECK(a.over("data").bytes == 2 * 30 * 8);
}

TEST_CASE("FSDP by hand gathers weights and scatters their gradients") {
  const auto [by_hand, automatic] = same_results(
      [](const std::vector<value>& in) {
        return manual<"data">(
            [](value x, value w1, value w2) {
              const value h = tanh(einsum("bd,df->bf", x, local::all_gather<"data", state::replica>(w1, 0)));
              return einsum("bf,fd->bd", h, local::all_gather<"data", state::replica>(w2, 0));
            },
            takes<split<"data", _>, split<"data", _>, split<"data", _>>{}, gives<split<"data", _>>{})(in[0], in[1], in[2]);
      },
      [](const std::vector<value>& in) { return einsum("bf,fd->bd", tanh(einsum("bd,df->bf", in[0], in[1])), in[2]); },
      dynamic::mesh({{"data", 4}}),
      {dynamic::in<double>({64, 8}, {"data", ""}), dynamic::in<double>({8, 12}, {"data", ""}),
       dynamic::in<double>({12, 8}, {"data", ""})});
  const traffic a = by_hand.traffic(), b = automatic.traffic();
  CHECK(a.bytes == b.bytes);
  CHECK(a.in(collective_kind::all_gather).bytes == 2 * 3 * 24 * 8);
  CHECK(a.in(collective_kind::reduce_scatter).bytes == 2 * 3 * 24 * 8);
}

TEST_CASE("SUMMA by hand: rows of blocks gather the one factor, columns the other one") {
  const auto [by_hand, automatic] = same_results(
      [](const std::vector<value>& in) {
        return manual<"x", "y">(
            [](value p, value q) {
              return einsum("ik,kj->ij", local::all_gather<"y", state::replica>(p, 1),
                            local::all_gather<"x", state::replica>(q, 0));
            },
            takes<split<"x", "y">, split<"x", "y">>{}, gives<split<"x", "y">>{})(in[0], in[1]);
      },
      [](const std::vector<value>& in) { return reshard(einsum("ik,kj->ij", in[0], in[1]), split<"x", "y">{}); },
      dynamic::mesh({{"x", 2}, {"y", 2}}), {dynamic::in<double>({8, 8}, {"x", "y"}), dynamic::in<double>({8, 8}, {"x", "y"})});
  const traffic a = by_hand.traffic(), b = automatic.traffic();
  CHECK(a.in(collective_kind::all_gather).bytes == 2 * 16 * 8);
  CHECK(a.bytes <= b.bytes);
}

TEST_CASE("ring attention by hand is attention") {
  const auto attention = [](const std::vector<value>& in) {
    const value s = einsum("qd,kd->qk", in[0], in[1]);
    const value p = exponential(s - broadcast_in_dim(stop_gradient(reduce(s, monoid::maximum, {1})), {12, 12}, {0}));
    return einsum("qk,kd->qd", p / broadcast_in_dim(einsum("qk->q", p), {12, 12}, {0}), in[2]);
  };
  const auto ring = [](const std::vector<value>& in) {
    return manual<"seq">(
        [](value q, value k, value v) {
          const auto n = local::axis_size<"seq">(q);
          const std::int64_t rows = q.shape()[0], width = q.shape()[1], keys = k.shape()[0];
          value most, total, out;
          for (std::int64_t step = 0; step < n; ++step) {
            const value s = einsum("qd,kd->qk", q, k);
            const value here = stop_gradient(reduce(s, monoid::maximum, {1}));
            const value now = step == 0 ? here : maximum(most, here);
            const value p = exponential(s - broadcast_in_dim(now, {rows, keys}, {0}));
            const value sum = einsum("qk->q", p), part = einsum("qk,kd->qd", p, v);
            if (step == 0) {
              total = sum, out = part;
            } else {
              const value scale = exponential(most - now);
              total = total * scale + sum;
              out = out * broadcast_in_dim(scale, {rows, width}, {0}) + part;
            }
            most = now;
            if (step + 1 < n) k = local::rotate<"seq">(k), v = local::rotate<"seq">(v);
          }
          return out / broadcast_in_dim(total, {rows, width}, {0});
        },
        takes<split<"seq", _>, split<"seq", _>, split<"seq", _>>{}, gives<split<"seq", _>>{})(in[0], in[1], in[2]);
  };
  const auto in = dynamic::in<double>({12, 4}, {"seq", ""});
  const auto [by_hand, automatic] = same_results(ring, attention, dynamic::mesh({{"seq", 3}}), {in, in, in});
  const traffic a = by_hand.traffic();
  static_cast<void>(automatic);
  CHECK(a.in(collective_kind::collective_permute).bytes == 2 * 2 * 2 * 16 * 8);  // keys and values, twice, and back again
  CHECK(a.bytes == a.in(collective_kind::collective_permute).bytes);
}

using varying = split<"x", _>;

TEST_CASE("a permutation sends what one device holds, whoever gets nothing, and what is started is finished") {
  const auto program = dynamic::compile(
      [](value x) {
        return manual<"x", "y">(
            [](value v) {
              auto it = local::start(local::permute<"y">(v, {{0, 2}, {2, 1}}));
              const value square = einsum<"ab,cb->ac">(v, v);
              return square + local::finish(std::move(it));
            },
            takes<split<"x", "y">>{}, gives<split<"x", "y">>{})(x);
      },
      dynamic::mesh({{"x", 2}, {"y", 3}}), dynamic::in<double>({2, 3}));
  const std::vector<double> in{1, 2, 3, 4, 5, 6}, expected{1, 7, 10, 16, 31, 40};
  for (const auto& result : {program.run(threads{}, in), program.run(simulated{}, in)})
    for (std::size_t i = 0; i < 6; ++i) CHECK(result[0].data<double>()[i] == expected[i]);
  CHECK(program.traffic().in(collective_kind::collective_permute).bytes == 8);
  CHECK(program.traffic().in(collective_kind::collective_permute).messages == 1);
  const auto steps = program.view().steps;  // what does not need it is computed while it is under way
  const auto place_of = [&](auto is) { return std::find_if(steps.begin(), steps.end(), is) - steps.begin(); };
  using detail::step_work;
  const auto works = [](step_work work) {
    return [work](const detail::plan_step& s) { return detail::facts_of(s).work == work; };
  };
  const auto start = place_of(works(step_work::moves)), end = place_of(works(step_work::ends_moving));
  REQUIRE(end < static_cast<std::ptrdiff_t>(steps.size()));
  CHECK(start + 1 < end);
  CHECK(std::count_if(steps.begin() + start, steps.begin() + end, works(step_work::computes)) > 0);
  const auto mistake = error_of([] {
    static_cast<void>(dynamic::compile(
        [](value x) {
          return manual<"x">([](value v) { return local::permute<"x">(v, {{0, 1}}); }, takes<varying>{}, gives<varying>{})(x);
        },
        dynamic::mesh({{"x", 65}}), dynamic::in<double>({65, 2})));
  });
  CHECK(mistake.find("`x` has 65 devices, and a list names 64 at most; write rotate or shift_devices") != std::string::npos);
}

TEST_CASE("places, permutations and broadcasts go along several axes at once") {
  const auto program = dynamic::compile(
      [](value x) {
        return manual<"x", "y">(
            [](value v) {
              const value place =
                  convert<double>(local::axis_index<"x,y">(v)) + static_cast<double>(10 * local::axis_size<"x,y">(v));
              const value all = local::broadcast<"x,y", state::replica>(v, 3);
              return local::permute<"x,y">(v, {{0, 2}, {2, 1}, {3, 3}}) + all + broadcast_in_dim(place, {1, 2}, {});
            },
            takes<split<"x,y", _>>{}, gives<split<"x,y", _>>{})(x);
      },
      dynamic::mesh({{"x", 2}, {"y", 2}}), dynamic::in<double>({4, 2}));
  const std::vector<double> in{1, 2, 3, 4, 5, 6, 700, 800}, expected{740, 840, 746, 847, 743, 844, 1443, 1643};
  for (const auto& result : {program.run(threads{}, in), program.run(simulated{}, in)})
    for (std::size_t i = 0; i < 8; ++i) CHECK(result[0].data<double>()[i] == expected[i]);
}

TEST_CASE("groups of devices within an axis are its parts, contiguous and strided") {
  const std::vector<double> in{1, 2, 3, 4, 5, 6, 7, 8};
  const auto sums = []<dim_spec Part>() {
    return dynamic::compile(
        [](value x) {
          return manual<"x">([](value v) { return local::all_reduce<Part, state::replica>(v) + 0.0 * v; }, takes<varying>{},
                             gives<varying>{})(x);
        },
        dynamic::mesh({{"x", 4}}).with_parts({"x:(2)2"}), dynamic::in<double>({4, 2}));
  };
  const auto near = sums.operator()<"x:(2)2">().run(threads{}, in), far = sums.operator()<"x:(1)2">().run(threads{}, in);
  const std::vector<double> pairs{4, 6, 4, 6, 12, 14, 12, 14}, strided{6, 8, 10, 12, 6, 8, 10, 12};
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(near[0].data<double>()[i] == pairs[i]);
    CHECK(far[0].data<double>()[i] == strided[i]);
  }
  CHECK(sums.operator()<"x:(2)2">().traffic().bytes == 16);
}

TEST_CASE("a bias is counted once beside a partial sum") {
  const auto program = dynamic::compile(
      [](value x, value bias) {
        return manual<"x">(
            [](value v, value b) {
              const value terms = local::to_partial<"x">(v);
              return local::all_reduce<"x">(terms + local::to_partial<"x", state::replica>(b));
            },
            takes<varying, replica<"x">>{}, gives<>{})(x, bias);
      },
      dynamic::mesh({{"x", 3}}), dynamic::in<double>({3, 2}), dynamic::in<double>({1, 2}));
  const auto result = program.run(simulated{}, std::vector<double>{1, 2, 3, 4, 5, 6}, std::vector<double>{10, 20});
  CHECK(result[0].data<double>()[0] == 19);
  CHECK(result[0].data<double>()[1] == 32);
}

TEST_CASE("a norm on parts of the sequence: its weight is a replica, or its gradient would miss a sum") {
  const auto norm = [](value x, value w, std::int64_t rows) {
    const value s = rsqrt(einsum("sd,sd->s", x, x) + 1.0);
    return x * broadcast_in_dim(s, {rows, 6}, {0}) * broadcast_in_dim(w, {rows, 6}, {1});
  };
  const auto [by_hand, automatic] = same_results(
      [=](const std::vector<value>& in) {
        return manual<"model">(
            [=](value x, value w, value u) {
              const value y = local::all_gather<"model", state::replica>(norm(x, w, x.shape()[0]), 0);
              return local::reduce_scatter<"model">(einsum("sf,df->sd", einsum("sd,df->sf", y, u), u), 0);
            },
            takes<split<"model", _>, replica<"model">, split<_, "model">>{}, gives<split<"model", _>>{})(in[0], in[1], in[2]);
      },
      [=](const std::vector<value>& in) {
        const value y = reshard(reshard(norm(in[0], in[1], 8), split<"model", _>{}), split<_, _>{});
        return reshard(einsum("sf,df->sd", einsum("sd,df->sf", y, in[2]), in[2]), split<"model", _>{});
      },
      dynamic::mesh({{"model", 2}}),
      {dynamic::in<double>({8, 6}, {"model", ""}), dynamic::in<double>({6}), dynamic::in<double>({6, 40}, {"", "model"})});
  const traffic a = by_hand.traffic(), b = automatic.traffic();
  CHECK(a.bytes == b.bytes);
  CHECK(a.in(collective_kind::all_gather).bytes == a.in(collective_kind::reduce_scatter).bytes);
}

/// The text of the first mistake of a region over x:2 with x [4,2] taken as `Spec`.
template <class Spec, class Gives = gives<>, class Body>
std::string mistake_of(Body body) {
  return error_of([&] {
    static_cast<void>(dynamic::compile([&](value x) { return manual<"x">(body, takes<Spec>{}, Gives{})(x); },
                                       dynamic::mesh({{"x", 2}}), dynamic::in<double>({4, 2})));
  });
}
TEST_CASE("mistakes of manual regions are named, with the way out") {
  const auto has = [](const std::string& text, std::string_view part) {
    if (text.find(part) == std::string::npos) MESSAGE("not `", part, "` but: ", text);
    return text.find(part) != std::string::npos;
  };
  const auto total = [](value v) { return einsum("ab->", v); };
  CHECK(has(mistake_of<varying>([](value x) { return x; }),
            "the result is varying over `x` and leaves as invariant; name the dim that `x` splits"));
  CHECK(has(mistake_of<invariant<"x">>([](value x) { return x * convert<double>(local::axis_index<"x">(x)); }),
            "the gradient of operand 0 would miss a sum over `x`"));
  CHECK(has(mistake_of<invariant<"x">>([](value x) { return local::all_reduce<"x">(x); }),
            "the operand is invariant over `x`, and a sum of equal data is so many times the value"));
  CHECK(has(mistake_of<replica<"x">>([](value x) { return x; }), "leaves as invariant; let it leave as replica<\"x\">"));
  CHECK(has(mistake_of<replica<"x">, gives<varying>>([](value x) { return x; }), "as many copies of it"));
  CHECK(has(mistake_of<varying, gives<varying>>([=](value x) {
              return cond(
                  total(x) > 0.0, [](value v) { return local::all_reduce<"x">(v); }, [](value v) { return zeros_like(v); }, x);
            }),
            "devices along `x` may go different ways here, and this is an all_reduce of all of them"));
  CHECK(has(mistake_of<varying, gives<varying>>([=](value x) {
              return while_loop([=](value v) { return total(local::all_reduce<"x", state::replica>(v)) + total(v) < 9.0; },
                                [](value v) { return v + 1.0; }, x);
            }),
            "devices along `x` may go different ways here"));
  CHECK(has(mistake_of<varying>([=](value x) {  // chosen by what varies
              return cond(
                  total(x) > 0.0, [](value v) { return v; }, [](value v) { return 2.0 * v; }, local::all_reduce<"x">(x));
            }),
            "the predicate varies over `x`"));
  CHECK(has(mistake_of<varying>([](value x) {
              return fori_loop(
                  3, [](value, value a) { return local::to_replica<"x">(a); }, local::all_reduce<"x">(x));
            }),
            "is invariant over `x` before an iteration and a replica after it; write local::to_replica<`x`>(operand 0): 0 bytes "
            "forward, 32 bytes (all_reduce) backward"));
  CHECK(has(mistake_of<varying>([](value x) { return local::all_reduce<"y">(x); }), "`y` is not an axis of the mesh"));
  CHECK(
      has(mistake_of<varying>([](value x) { return reshard(x, split<_, _>{}) + reshard(x, varying{}); }), "which is local here"));
  CHECK(has(mistake_of<varying>([=](value x) { return grad(total(x), x); }), "the loss is varying over `x`"));
  CHECK(has(mistake_of<varying>([=](value x) { return grad(total(local::all_reduce<"x">(x, monoid::maximum)), x); }),
            "has no gradient"));
  CHECK(has(mistake_of<varying>([](value x) { return local::reduce_scatter<"x">(einsum("ab->b", x), 1); }),
            "dim 1 is not a dim of [2]"));
  CHECK(has(mistake_of<varying>([](value x) {
              return local::reduce_scatter<"x">(slice(x, {0, 0}, {1, 2}), 0);
            }),
            "is cut into 2 parts"));
  CHECK(has(mistake_of<varying>([](value x) { return x * local::all_reduce<"x">(x); }),
            "write local::to_replica<`x`>(operand 1): 0 bytes forward, 32 bytes (all_reduce) backward; or"));
  CHECK(has(mistake_of<varying>([](value x) {
              return local::permute<"x">(x, {{0, 1}, {1, 1}});
            }),
            "bad_permutation: device 1 along `x` gets from two: from 0 and from 1"));
  CHECK(has(mistake_of<varying>([](value x) {
              return local::permute<"x">(x, {{0, 0}, {0, 1}});
            }),
            "bad_permutation: device 0 along `x` sends to two: to 0 and to 1; write broadcast, or two permutations"));
  CHECK(has(mistake_of<varying>([](value x) {
              return local::permute<"x">(x, {{0, 2}});
            }),
            "bad_permutation: from 0 to 2: places along `x` are 0 to 1"));
  CHECK(has(mistake_of<varying, gives<varying>>([](value x) {
              const auto it = local::start(local::rotate<"x">(x));
              return x;
            }),
            "what is started here is never finished; write finish(std::move(it))"));
  CHECK(has(mistake_of<varying, gives<varying>>([](value x) {
              auto it = local::start(local::rotate<"x">(x));
              const value first = local::finish(std::move(it));
              return first + local::finish(std::move(it));
            }),
            "it is finished already; start another one"));
  CHECK(has(mistake_of<varying, gives<varying>>([](value x) { return local::finish(local::start(x + x)); }),
            "what is started is a collective of namespace local"));
  CHECK(has(mistake_of<varying>([](value x) { return local::all_reduce<"x:(2)1">(x); }),
            "groups of devices within an axis are parts that the mesh has: write it as two axes, or m.with_parts({`x:(2)1`})"));
  CHECK(has(mistake_of<varying>([](value x) { return local::broadcast<"x">(x, 2); }),
            "device 2 is none of those along `x`, which are 0 to 1"));
  CHECK(has(mistake_of<split<"z", _>>([](value x) { return x; }), "`z` is not an axis of the mesh"));
  CHECK(has(mistake_of<partial<"x">>([](value x) { return x; }), "in_spec_mismatch"));
  CHECK(has(mistake_of<varying, gives<varying, varying>>([](value x) { return x; }),
            "1 results are returned, and `gives` names 2"));
  const auto of_two = [&](auto program, dynamic::mesh m, std::int64_t rows) {
    return error_of([&] {
      static_cast<void>(dynamic::compile(program, m, dynamic::in<double>({rows, 2}), dynamic::in<double>({rows, 2})));
    });
  };
  const dynamic::mesh x2({{"x", 2}});
  CHECK(has(of_two(
                [](value a, value b) {
                  return manual<"x">([=](value v) { return einsum("ab,cb->ac", v, b); }, takes<varying>{}, gives<varying>{})(a);
                },
                x2, 4),
            "uses a value from outside of its manual region"));
  CHECK(has(of_two(
                [](value a, value b) {
                  value kept;
                  const value y = manual<"x">([&](value v) { return kept = 2.0 * v; }, takes<varying>{}, gives<varying>{})(a);
                  return einsum("ab,cb->ac", kept, y + b);
                },
                x2, 4),
            "uses a value of a manual region outside of it"));
  CHECK(has(
      of_two([](value a, value b) { return manual<"x">([](value v) { return v; }, takes<varying>{}, gives<varying>{})(a) + b; },
             x2, 5),
      "dim 0 of the argument [5,2] has 5 elements, which are not 2 equal parts"));
}

TEST_CASE("loops, conditionals and gradients inside of a region") {
  const auto [by_hand, automatic] = same_results(
      [](const std::vector<value>& in) {
        return manual<"x">(
            [](value a, value w) {
              // Every part of w visits every device: what the loop carries varies from the beginning.
              auto [sum, part] = fori_loop(
                  local::axis_size<"x">(a),
                  [&](value, value s, value p) {
                    return std::tuple{s + einsum("bd,fd->bf", a, p), local::rotate<"x">(p, -1)};
                  },
                  zeros_like(einsum("bd,fd->bf", a, w)), w);
              const value n = einsum("ab,ab->", w, w);
              const value chosen = cond(
                  local::all_reduce<"x">(n) > 0.0, [](value v) { return 2.0 * v; }, [](value v) { return -v; }, sum);
              return chosen + 0.0 * broadcast_in_dim(einsum("fd->", part), {a.shape()[0], w.shape()[0]}, {});
            },
            takes<split<"x", _>, split<"x", _>>{}, gives<split<"x", _>>{})(in[0], in[1]);
      },
      [](const std::vector<value>& in) {  // the parts of w, added up
        return 2.0 * einsum("bd,gfd->bf", in[0], reshape(in[1], {3, 2, 5}));
      },
      dynamic::mesh({{"x", 3}}), {dynamic::in<double>({6, 5}), dynamic::in<double>({6, 5})});
  static_cast<void>(automatic);
  CHECK(by_hand.traffic().in(collective_kind::all_gather).bytes == 0);

  // grad inside: of a loss that is a sum over all devices, by a replica, terms; by what varies, its own.
  const auto inside = dynamic::compile(
      [](value x, value w) {
        return manual<"x">(
            [](value a, value u) {
              const value y = einsum("bd,d->b", a, u);
              const auto [ga, gu] = grad(local::to_partial<"x">(einsum("b,b->", y, y)), std::tuple{a, u});
              return std::tuple{ga, local::all_reduce<"x">(gu)};
            },
            takes<split<"x", _>, replica<"x">>{}, gives<split<"x", _>, held<>>{})(x, w);
      },
      dynamic::mesh({{"x", 2}}), dynamic::in<double>({4, 2}), dynamic::in<double>({2}));
  const std::vector<double> x{1, 2, 3, 4, 5, 6, 7, 8}, w{1, -2};
  const auto result = inside.run(simulated{}, x, w);
  double expected[2] = {0, 0};
  for (std::size_t r = 0; r < 4; ++r)
    for (std::size_t c = 0; c < 2; ++c) {
      const double y = x[2 * r] * w[0] + x[2 * r + 1] * w[1];
      CHECK(result[0].data<double>()[2 * r + c] == doctest::Approx(2 * y * w[c]));
      expected[c] += 2 * y * x[2 * r + c];
    }
  for (std::size_t c = 0; c < 2; ++c) CHECK(result[1].data<double>()[c] == doctest::Approx(expected[c]));
}

TEST_CASE("collectives of each row, in a loop over rows, are those of all rows at once") {
  // What a function of one row sends is written for all rows by one dim more, or by a scan (there is no vmap).
  const auto of_row = [](value row, int dim) {  // [..,2] of [..,4]
    const auto whole = local::all_gather<"x", state::replica>(row, dim);
    const auto norm = local::all_reduce<"x", state::replica>(row * row);
    const auto moved = local::permute<"x">(tanh(row), {{1, 0}}) + local::rotate<"x">(row);
    const auto part = local::reduce_scatter<"x">(local::to_varying<"x">(whole * whole), dim);
    return (moved + norm) * part;
  };
  const auto with_rows = [](auto f) {
    return [=](const std::vector<value>& in) {
      const auto turned = [=](value a, value w) { return transpose(f(a, w), {1, 0}); };
      return manual<"x">(turned, takes<split<_, "x">, replica<"x">>{}, gives<split<"x", _>>{})(in[0], in[1]);
    };
  };
  const auto in_loop = [=](value a, value w) {
    const auto body = [=](value sum, value row) { return std::tuple{sum + row, of_row(row, 0) * sum}; };
    return std::get<1>(scan(body, local::to_varying<"x">(w), a));
  };
  const auto all_rows = [=](value a, value w) {
    const value before = cumsum(a, 0, {.exclusive = true});
    return of_row(a, 1) * (before + broadcast_in_dim(local::to_varying<"x">(w), {4, 2}, {1}));
  };
  const auto [by_loop, at_once] = same_results(with_rows(in_loop), with_rows(all_rows), dynamic::mesh({{"x", 2}}),
                                               {dynamic::in<double>({4, 4}), dynamic::in<double>({2})});
  const auto sent_by = [&](auto f) {
    return dynamic::compile(
               [&](value a, value w) {
                 return with_rows(f)({a, w});
               },
               dynamic::mesh({{"x", 2}}), dynamic::in<double>({4, 4}), dynamic::in<double>({2}))
        .traffic()
        .bytes;
  };
  CHECK(sent_by(in_loop) == sent_by(all_rows));
  // The gradient of a loop goes through its trips once more, and sends what they send.
  CHECK(by_loop.traffic().bytes == at_once.traffic().bytes + sent_by(in_loop));
}

TEST_CASE("in a program with types a region may take some axes; the others go on") {
  dynamic::builder b(dynamic::mesh({{"data", 2}, {"model", 2}}));
  dynamic::strict_program p(b, "");
  const value x = b.input(dynamic::in<double>({6, 4})), w = b.input(dynamic::in<double>({4, 8})),
              v = b.input(dynamic::in<double>({8, 4}));
  using on = axis_state;
  p.input(x, {{on{state::shard, 0}, on{state::invariant}}});
  p.input(w, {{on{state::replica}, on{state::shard, 1}}});
  p.input(v, {{on{state::replica}, on{state::shard, 0}}});
  const value y = manual<"model">([](value a, value u, value t) {
    const value h = tanh(einsum("bd,df->bf", local::to_replica<"model">(a), u));
    return local::all_reduce<"model">(einsum("bf,fd->bd", h, t));
  })(x, w, v);
  CHECK(y.shape() == detail::extents{6, 4});
  b.output(y);
  const auto flat = einsum("bd,bd->", y, y);
  for (const auto& g : grad(flat, std::vector<value>{x})) b.output(g);
  const auto program = b.compile();
  CHECK(program.traffic().over("data").bytes == 0);
  CHECK(program.traffic().bytes == 2 * 3 * 4 * 8);  // y and the gradient by x, [3,4]
  dynamic::builder c(dynamic::mesh({{"one", 1}}));
  const value cx = c.input(dynamic::in<double>({6, 4})), cw = c.input(dynamic::in<double>({4, 8})),
              cv = c.input(dynamic::in<double>({8, 4}));
  const value cy = einsum("bf,fd->bd", tanh(einsum("bd,df->bf", cx, cw)), cv);
  c.output(cy);
  c.output(grad(einsum("bd,bd->", cy, cy), cx));
  const auto one = c.compile();
  const auto dx = some(dynamic::in<double>({6, 4}), 1), dw = some(dynamic::in<double>({4, 8}), 2),
             dv = some(dynamic::in<double>({8, 4}), 3);
  const auto given = program.run(simulated{}, dx, dw, dv), expected = one.run(self{}, dx, dw, dv);
  for (std::size_t k = 0; k < 2; ++k)
    for (std::size_t i = 0; i < 24; ++i) CHECK(given[k].data<double>()[i] == doctest::Approx(expected[k].data<double>()[i]));
}

TEST_CASE("a pipeline by hand: a stage is what a device does, and no dim of stages is written") {
  constexpr std::int64_t stages = 3, batches = 4, rows = 2, width = 5;
  const auto batch = [=](value x, std::int64_t t) { return reshape(slice(x, {t, 0, 0}, {t + 1, rows, width}), {rows, width}); };
  const auto by_hand = [=](const std::vector<value>& in) {
    return manual<"stage">(
        [=](value x, value w) {  // [4,2,5] whole, [1,5,5] the device's own
          const value own = reshape(w, {width, width}), place = local::axis_index<"stage">(x);
          const value is_first = broadcast_in_dim(equal(place, 0), {rows, width}, {});
          value now;
          std::vector<value> seen;
          for (std::int64_t t = 0; t < batches + stages - 1; ++t) {
            value given = batch(x, t < batches ? t : batches - 1);
            if (t > 0) given = select(is_first, given, local::shift_devices<"stage">(now));
            now = tanh(einsum("bd,df->bf", given, own));
            seen.push_back(reshape(now, {1, 1, rows, width}));
          }
          return concatenate(seen, 1);
        },
        takes<replica<"stage">, split<"stage", _, _>>{}, gives<split<"stage", _, _, _>>{})(in[0], in[1]);
  };
  const auto with_stages = [=](const std::vector<value>& in) {
    const value x = in[0];
    const value is_first = equal(iota<std::int32_t>(x, {stages, rows, width}, 0), 0);
    value now;
    std::vector<value> seen;
    for (std::int64_t t = 0; t < batches + stages - 1; ++t) {
      value given = broadcast_in_dim(batch(x, t < batches ? t : batches - 1), {stages, rows, width}, {1, 2});
      if (t > 0) given = select(is_first, given, shift(now, 0, -1));
      now = reshard(tanh(einsum("sbd,sdf->sbf", given, in[1])), split<"stage", _, _>{});
      seen.push_back(reshape(now, {stages, 1, rows, width}));
    }
    return concatenate(seen, 1);
  };
  const auto [a, b] =
      same_results(by_hand, with_stages, dynamic::mesh({{"stage", stages}}),
                   {dynamic::in<double>({batches, rows, width}), dynamic::in<double>({stages, width, width}, {"stage", "", ""})});
  // Five times what a stage made goes to the next one, and its gradient back.
  CHECK(a.traffic().in(collective_kind::collective_permute).bytes == 2 * 5 * rows * width * 8);
  CHECK(a.traffic().in(collective_kind::collective_permute).bytes == b.traffic().in(collective_kind::collective_permute).bytes);
  CHECK(a.traffic().bytes <= b.traffic().bytes);  // the gradient by x, which every stage has a term of, is summed once
}

TEST_CASE("experts by hand: each device is one, and no dim of experts is written but to send") {
  const auto by_hand = [](const std::vector<value>& in) {
    return manual<"expert">(
        [](value x, value w) {  // [2,4,3,5]: of the device's groups for each expert; [1,5,6]
          const value mine = local::all_to_all<"expert">(x, 0, 1);
          const value h = tanh(einsum("gcd,df->gcf", reshape(mine, {8, 3, 5}), reshape(w, {5, 6})));
          return local::all_to_all<"expert">(reshape(h, {8, 1, 3, 6}), 1, 0);
        },
        takes<split<"expert", _, _, _>, split<"expert", _, _>>{}, gives<split<"expert", _, _, _>>{})(in[0], in[1]);
  };
  const auto with_experts = [](const std::vector<value>& in) {
    const value mine = reshard(in[0], split<_, "expert", _, _>{});
    const value h = tanh(einsum("gecd,edf->gecf", mine, in[1]));
    return reshard(reshard(h, split<_, "expert", _, _>{}), split<"expert", _, _, _>{});
  };
  const auto [a, b] = same_results(
      by_hand, with_experts, dynamic::mesh({{"expert", 4}}),
      {dynamic::in<double>({8, 4, 3, 5}, {"expert", "", "", ""}), dynamic::in<double>({4, 5, 6}, {"expert", "", ""})});
  // [2,4,3,5] and [2,4,3,6], three quarters of each, there and back.
  CHECK(a.traffic().in(collective_kind::all_to_all).bytes == 2 * (120 + 144) * 8 * 3 / 4);
  CHECK(a.traffic().bytes == a.traffic().in(collective_kind::all_to_all).bytes);
  CHECK(a.traffic().bytes == b.traffic().bytes);
}

TEST_CASE("a region inside of a region takes other axes") {
  using on = axis_state;
  const dynamic::mesh m({{"data", 2}, {"model", 3}});
  const auto two_layers = [](value x, value w, value v) { return einsum("bf,fd->bd", tanh(einsum("bd,df->bf", x, w)), v); };
  const auto built = [&](dynamic::builder& b, auto body) {
    dynamic::strict_program p(b, "");
    std::vector<value> in{b.input(dynamic::in<double>({6, 4})), b.input(dynamic::in<double>({4, 9})),
                          b.input(dynamic::in<double>({9, 4}))};
    p.input(in[0], {{on{state::shard, 0}, on{state::invariant}}});
    p.input(in[1], {{on{state::replica}, on{state::shard, 1}}});
    p.input(in[2], {{on{state::replica}, on{state::shard, 0}}});
    return std::pair{manual<"data">(body)(in[0], in[1], in[2]), in};
  };
  dynamic::builder b(m);
  // [3,4] [4,9] [9,4] outside, [3,4] [4,3] [3,4] inside.
  const auto [loss, in] = built(b, [](value x, value w, value v) {
    const value y = manual<"model">([](value a, value u, value t) {
      const value h = tanh(einsum("bd,df->bf", local::to_replica<"model">(a), u));
      return local::all_reduce<"model">(einsum("bf,fd->bd", h, t));
    })(x, w, v);
    return local::all_reduce<"data">(local::to_partial<"data">(einsum("bd,bd->", y, y)));
  });
  b.output(loss);
  for (const auto& g : grad(loss, in)) b.output(g);
  const auto program = b.compile();
  // [3,4] along model twice; along data the loss. The gradients of the weights stay partial: they leave as terms.
  CHECK(program.traffic().over("model").bytes == 2 * (2 * 2 * 12 * 8) / 3);

  dynamic::builder one(dynamic::mesh({{"one", 1}}));
  const std::vector<value> alone{one.input(dynamic::in<double>({6, 4})), one.input(dynamic::in<double>({4, 9})),
                                 one.input(dynamic::in<double>({9, 4}))};
  const value y = two_layers(alone[0], alone[1], alone[2]), total = einsum("bd,bd->", y, y);
  one.output(total);
  for (const auto& g : grad(total, alone)) one.output(g);
  const auto x = some(dynamic::in<double>({6, 4}), 1), w = some(dynamic::in<double>({4, 9}), 2),
             v = some(dynamic::in<double>({9, 4}), 3);
  const auto expected = one.compile().run(self{}, x, w, v), given = program.run(simulated{}, x, w, v);
  REQUIRE(given.size() == 4);
  for (std::size_t k = 0; k < 4; ++k) {
    REQUIRE(given[k].shape == expected[k].shape);
    for (std::size_t i = 0; i < given[k].bytes.size() / sizeof(double); ++i)
      CHECK(given[k].data<double>()[i] == doctest::Approx(expected[k].data<double>()[i]));
  }

  const auto refused = [&](auto body) {
    return error_of([&] {
      dynamic::builder c(m);
      const auto made = built(c, body);
      c.output(made.first);
      static_cast<void>(c.compile());
    });
  };
  const auto has = [](const std::string& text, std::string_view part) {
    if (text.find(part) == std::string::npos) MESSAGE("not `", part, "` but: ", text);
    return text.find(part) != std::string::npos;
  };
  const auto total_of = [](value r) { return local::all_reduce<"data">(local::to_partial<"data">(einsum("bd->", r))); };
  CHECK(has(refused([=](value r, value, value) { return total_of(manual<"data">([](value q) { return q; })(r)); }),
            "axis_used_twice: `data` is local already"));
  CHECK(has(refused([=](value r, value, value) {
              return total_of(manual<"model">([](value q) { return q; }, takes<split<"data", _>>{})(r));
            }),
            "argument 0 names `data`, which the region leaves as it is"));
}

/// The totals of the parts before that of the device; zeros in place of the others.
value compare_before(value totals, value place) {
  const value part = iota<std::int32_t>(totals, {totals.shape()[0], totals.shape()[1]}, 1);
  return select(part < broadcast_in_dim(place, {totals.shape()[0], totals.shape()[1]}, {}), totals, zeros_like(totals));
}

TEST_CASE("a kernel of the user's own gets spans of the device's shard") {
  constexpr auto running_sum = local_op<"b[t]->b[t]", types<double(double)>>([](auto x, auto y) {
    for (std::int64_t i = 0; i < x.extent(0); ++i)
      for (std::int64_t t = 0; t < x.extent(1); ++t) y(i, t) = x(i, t) + (t > 0 ? y(i, t - 1) : 0.0);
  });
  const auto program = dynamic::compile(
      [=](value x) {
        return manual<"x">(
            [=](value a) {  // sums of the own part, and of all parts before it
              const value own = running_sum(a);
              const value totals = local::all_gather<"x", state::replica>(slice(own, {0, 2}, {2, 3}), 1);
              const value before = compare_before(totals, local::axis_index<"x">(a));
              return own + broadcast_in_dim(einsum("bp->b", before), {2, 3}, {0});
            },
            takes<split<_, "x">>{}, gives<split<_, "x">>{})(x);
      },
      dynamic::mesh({{"x", 2}}), dynamic::in<double>({2, 6}));
  const std::vector<double> x{1, 2, 3, 4, 5, 6, 1, 1, 1, 1, 1, 1}, expected{1, 3, 6, 10, 15, 21, 1, 2, 3, 4, 5, 6};
  const auto result = program.run(threads{}, x);
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(result[0].data<double>()[i] == expected[i]);
  CHECK(program.traffic().bytes == 2 * 8);
}

}  // namespace manual_regions
