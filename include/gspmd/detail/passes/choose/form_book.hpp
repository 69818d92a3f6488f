// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// A form: the result of a node under one sharding. It is one value of the program that every device runs.
struct value_form {
  int node = 0;
  sharding layout;
  int next = -1;  // the next form with the same root; -1: none
};

/// The forms of every value that exist at one point of the program. The operand of a user is made from an existing form
/// and then is a form too (GSPMD 4.5). A form that is made in the body of a loop or conditional exists until the body
/// ends.
///
///   y = f(w), z = g(w), w [model, _], both need w [_, _]: f gathers w, g uses the gathered form
struct form_book {
  vec<value_form> values;
  vec<int> roots;        // by node: itself, or the value that a reshard reshards; both have the same forms
  vec<int> first, last;  // by root: its first and last form; -1: none
  vec<int> open;         // the nodes that opened the bodies around this point
  vec<int> inside;       // forms that are removed when the body of their level ends
  vec<int> level_of_inside;
  bool as_written = false;  // see choice_table

  constexpr form_book() = default;
  constexpr explicit form_book(const graph& g) {
    const auto count = g.nodes.size();
    roots.resize(count, 0);
    for (int i = 0; i < static_cast<int>(count); ++i) roots[i] = i;
    first.resize(count, -1);
    last.resize(count, -1);
  }
  /// Copies the first `count` forms of `all`. The program must not have regions.
  constexpr form_book(const form_book& all, int count) : values(all.values.data(), all.values.data() + count), roots(all.roots) {
    first.resize(roots.size(), -1);
    last.resize(roots.size(), -1);
    for (int v = 0; v < count; ++v) {
      const int root = roots[values[v].node];
      values[v].next = -1;
      if (first[root] < 0) first[root] = v;
      else values[last[root]].next = v;
      last[root] = v;
    }
  }

  [[nodiscard]] constexpr int root_of(int i) const { return roots[i]; }
  [[nodiscard]] constexpr int depth() const { return static_cast<int>(open.size()); }
  /// Returns true if node `n` is a deferred reshard: its users read its operand in any layout.
  [[nodiscard]] constexpr bool defers(const node& n) const { return n.deferred && !as_written; }
  [[nodiscard]] constexpr bool has_forms(int i) const { return first[roots[i]] >= 0; }
  [[nodiscard]] constexpr const sharding& layout_of(int value) const { return values[value].layout; }
  /// Returns the form of `i` that was made first. `last_of` returns the form that was made last.
  [[nodiscard]] constexpr int first_of(int i) const { return first[roots[i]]; }
  [[nodiscard]] constexpr int last_of(int i) const { return last[roots[i]]; }

  /// Returns the level of a form of node `i` that is made now: the number of open bodies around it. A form that is
  /// equal in all iterations is made before the loop, at a lower level.
  [[nodiscard]] constexpr int level_of(const graph& g, int i) const {
    i = roots[i];
    for (int level = depth(); level > 0; --level)
      if (const int start = open[level - 1]; g.nodes[static_cast<std::size_t>(start)].op != opcode::loop || g.is_inside(i, start))
        return level;
    return 0;
  }

  constexpr int add_value(int i, const sharding& layout) {
    values.push_back({i, layout, -1});
    return static_cast<int>(values.size()) - 1;
  }
  /// Registers `value` as a form of node `i`.
  constexpr void name(const graph& g, int i, int value) {
    const int root = roots[i];
    if (first[root] < 0) first[root] = value;
    else values[last[root]].next = value;
    last[root] = value;
    const int level = open.empty() ? 0 : level_of(g, i);
    if (level == 0) return;
    inside.push_back(value);
    level_of_inside.push_back(level);
  }
  constexpr int add(const graph& g, int i, const sharding& layout) {
    const int value = add_value(i, layout);
    name(g, i, value);
    return value;
  }
  constexpr void close_body() {
    const int level = depth();
    std::size_t kept = 0;
    for (std::size_t k = 0; k < inside.size(); ++k) {
      if (level_of_inside[k] < level) {
        inside[kept] = inside[k];
        level_of_inside[kept++] = level_of_inside[k];
      } else {
        remove(roots[values[inside[k]].node], inside[k]);
      }
    }
    inside.resize(kept);
    level_of_inside.resize(kept);
    open.pop_back();
  }

 private:
  constexpr void remove(int root, int value) {
    int before = -1;
    for (int v = first[root]; v >= 0; before = v, v = values[v].next) {
      if (v != value) continue;
      (before < 0 ? first[root] : values[before].next) = values[v].next;
      if (last[root] == v) last[root] = before;
      return;
    }
  }
};

}  // namespace gspmd::detail
