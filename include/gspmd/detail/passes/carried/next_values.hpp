// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/ops/update.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/vec.hpp"

/// Next values. An output that is marked as the next value of an input has, after the step, the sharding that the
/// input has before it. Completion finds the sharding of the input; then both get it as an annotation.
namespace gspmd::detail {

/// Returns the annotation of a node whose completed sharding is `found`: no dim is open any more.
constexpr annotation closed_place(const node& n, const sharding& found) {
  annotation place;
  if (n.annotated) place = n.annotation;
  place.layout.splits = found.splits;
  place.open = 0;
  return place;
}

/// Returns true if a node is its operand with another shape.
constexpr bool is_operand_reshaped(const node& n) {
  return facts_of(n.op).runs == realisation::alias && facts_of(n.op).made == origin::shards;
}

/// Returns the first of several nested marks of an input. `carried`, for example, marks the result of an optimizer,
/// which is marked already. Nested marks count as one mark.
constexpr int first_mark(span<const node> nodes, int mark) {
  const auto at = [&](int i) -> const node& { return nodes[static_cast<std::size_t>(i)]; };
  const auto input = update_mark::of(at(mark)).input;
  for (int o = at(mark).operands[0]; update_mark::is_on(at(o)) && update_mark::of(at(o)).input == input; o = at(o).operands[0])
    mark = o;
  return mark;
}

/// Returns the number of an input that has two outputs as next values; -1 if no input does. Marks that are no outputs
/// do not count: an optimizer marks values that the program uses further. One output that is returned twice is one
/// next value.
constexpr int marked_twice(span<const node> nodes, span<const int> inputs, span<const int> outputs) {
  vec<int> has_next;
  has_next.resize(inputs.size(), -1);
  for (const int o : outputs) {
    const node& n = nodes[static_cast<std::size_t>(o)];
    if (!update_mark::is_on(n)) continue;
    const auto input = update_mark::of(n).input;
    const int mark = first_mark(nodes, o);
    if (has_next[input] >= 0 && has_next[input] != mark) return static_cast<int>(input);
    has_next[input] = mark;
  }
  return -1;
}

/// Returns true if a next value and its input do not have the same closed annotation yet. Also returns true if updates
/// are to be split, or if an input has two next values.
constexpr bool has_open_marks(span<const node> nodes, span<const int> inputs, span<const int> outputs) {
  if (marked_twice(nodes, inputs, outputs) >= 0) return true;
  for (const node& n : nodes) {
    if (!update_mark::is_on(n)) continue;
    const auto mark = update_mark::of(n);
    const node& before = nodes[static_cast<std::size_t>(inputs[static_cast<std::size_t>(mark.input)])];
    if (!before.annotated || before.annotation.open != 0 || !(n.annotation == before.annotation)) return true;
    if (mark.axes != 0 && mark.outcome == update_outcome::not_asked) return true;
  }
  return false;
}

/// Annotates marked inputs with the shardings that completion found, and their next values with the same shardings.
constexpr void place_next_values(graph& g, const vec<sharding>& layouts) {
  if (const int twice = marked_twice(g.nodes, g.inputs, g.outputs); twice >= 0) {
    g.fail({}, "update", mistake::other,
           text("input ") << twice << " has two next values, and the next step gets one; mark the one that it gets");
    return;
  }
  for (node& n : g.nodes) {
    if (!update_mark::is_on(n)) continue;
    const int input = g.inputs[static_cast<std::size_t>(update_mark::of(n).input)];
    node& before = g.nodes[static_cast<std::size_t>(input)];
    if (!before.annotated) before.state = static_cast<int>(update_mark::of(n).input);
    if (!before.annotated || before.annotation.open != 0) before.annotation = closed_place(before, layouts[input]);
    before.annotated = true;
    n.annotation = before.annotation;
    n.state = before.state;
  }
}

}  // namespace gspmd::detail
