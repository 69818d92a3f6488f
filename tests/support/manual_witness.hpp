// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "support/manual_programs.hpp"

/// Searches for numbers on two devices that show a mistake in a manual program. They must exist for every refused
/// program, and must not exist for an accepted program.
namespace manual_law {

/// Computes an operator on one number per operand, by the operator's name in messages. tanh represents any nonlinear
/// function, a product any bilinear function.
using numbers = std::array<std::int64_t, 3>;
inline std::int64_t computed(const std::string& name, const numbers& x) {
  if (name == "add") return x[0] + x[1];
  if (name == "multiply" || name == "einsum") return x[0] * x[1];
  if (name == "where") return x[0] != 0 ? x[1] : x[2];
  if (name == "concatenate") return x[0] + 1000 * x[1];  // both operands are visible in the result
  return name == "tanh" ? x[0] * x[0] : x[0];
}
/// Returns the derivative, exact for squares.
inline std::int64_t slope(const std::string& name, numbers x, std::size_t by) {
  numbers less = x;
  ++x[by];
  --less[by];
  return (computed(name, x) - computed(name, less)) / 2;
}
/// Returns true if an operator without communication is sound on two devices for these states, for random numbers. Its
/// result must be in state `to`, and the gradient of each operand in the dual of its state.
inline bool is_sound(const std::string& name, const std::vector<state>& in, state to, std::mt19937& random) {
  const auto some = [&] { return static_cast<std::int64_t>(random() % 19) - 9; };
  const std::size_t first = name == "where" ? 1 : 0;  // with a gradient
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
        if (to != state::varying) return false;  // the user of a varying gradient is the device itself
        continue;
      }
      if (to == state::varying) expected = dy[0] * slope(name, means[0], k) + dy[1] * slope(name, means[1], k);
      if (in[k] == state::replica ? found[0] + found[1] != expected : found[0] != expected || found[1] != expected) return false;
    }
  }
  return true;
}
/// The evidence about a program that is refused because of its states. `found`: on the axis of the mistake no state of
/// the result is sound, or a collective or the border of the region names a state that the value does not have. Then
/// the untyped program is wrong.
enum class witness : std::uint8_t {
  found,
  unnamed,  // a replica is used as varying: not wrong on any mesh, but the program must contain to_varying, which is free
  missing,
  others_mistake,  // not a mistake in states: an extent that is not divisible
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
    const auto found = typer.types[static_cast<std::size_t>(node)].on(axis).is;
    return found == state::shard ? state::varying : found;
  }
  [[nodiscard]] static value built(dynamic::builder& in, const program_of_devices& p) {
    const value a = in.input(dynamic::input<double>({p.size, p.size})), c = in.input(dynamic::input<double>({p.size, p.size})),
                d = in.input(dynamic::input<double>({p.size, p.size}));
    return p.build(a, c, d);
  }
};
/// For a dim that axes of two devices each split in this order: returns true if the parts of the devices along `moved`
/// are adjacent.
inline bool is_side_by_side(const std::vector<int>& order, detail::axis_mask moved) {
  int next = 0, begin = -1;
  for (int device = 0; device < 4; ++device) {  // row-major over the two axes of the mesh
    const auto place = [&](int axis) { return axis == 0 ? device / 2 : device % 2; };
    bool is_first = true;  // of the other axes
    for (int a = 0; a < 2; ++a) is_first = is_first && ((moved & detail::axis_bit(a)) != 0 || place(a) == 0);
    if (!is_first) continue;
    int at = 0;
    for (const int a : order) at = 2 * at + place(a);
    if (begin < 0) begin = at;
    if (at != begin + next++) return false;
  }
  return true;
}
inline witness witness_of(const program_of_devices& p, unsigned seed) {
  std::mt19937 random(seed);
  typed_again t(p);
  if (t.typer.mistakes.empty() || t.typer.mistakes[0].axis < 0) return witness::others_mistake;
  const auto& mistake = t.typer.mistakes[0];
  const detail::node& n = t.b.graph().nodes[static_cast<std::size_t>(mistake.node)];
  if (mistake.kind == detail::mode_mistake::axis_order) {
    const auto c = detail::state_change::of(n);
    const auto order = t.typer.types[static_cast<std::size_t>(n.operands[0])].parts.order_of(c.from.dim);
    return is_side_by_side({order.begin(), order.end()}, c.axes) ? witness::missing : witness::found;
  }
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
/// Returns true if the same numbers show a mistake in an accepted program.
inline bool is_shown_wrong(const program_of_devices& p, unsigned seed) {
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

}  // namespace manual_law
