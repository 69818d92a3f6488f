// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/passes/rewrite/equal_nodes.hpp"
#include "gspmd/detail/passes/rewrite/loop_invariants.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Returns the same program with its nodes in canonical order: the inputs in order, then all nodes that the outputs
/// need, operands first and in order. Nodes that no output needs and duplicate nodes are dropped (equal_nodes.hpp).
/// Loop-invariant nodes are placed before their loops (loop_invariants.hpp). The body of a loop or conditional is
/// contiguous. It is placed where its first result is needed, after all outside values that it reads.
///
/// A trace numbers operators in the order of evaluation of the callable's expressions. C++ leaves the order of
/// arguments open: GCC evaluates `f(g(x), h(x))` in one order in a constant and in another order at run time. Plans
/// must not depend on that order.
class canonical_orderer {
 public:
  constexpr explicit canonical_orderer(const graph& traced)
      : result(traced.without_nodes()),
        traced_(traced),
        homes_(homes_of(traced)),
        same_(traced, homes_),
        number_(traced.nodes.size(), -1) {
    result.nodes.reserve(traced.nodes.size());
    if (traced.has_regions) find_needed();
    for (const int i : traced.inputs) {
      add(i);
      result.inputs.push_back(number_[i]);
    }
    for (const int o : traced.outputs) {
      place(same_[o]);
      result.outputs.push_back(number_[same_[o]]);
    }
    name_equals();
  }

  graph result;

 private:
  using list = vec<int>;
  [[nodiscard]] constexpr const node& old(int i) const { return traced_.nodes[i]; }

  constexpr void add(int i) {
    number_[i] = static_cast<int>(result.nodes.size());
    result.nodes.push_back(old(i));
    node& n = result.nodes.back();
    if (same_.folded().is_number(i)) same_.folded().make_constant(n, i);
    for (auto& o : n.operands) o = number_[same_[o]];
    n.region = homes_[i] < 0 ? -1 : number_[homes_[i]];
    for (int r = 1, count = n.results; r < count; ++r) add(i + r);
  }

  /// Numbers node `target`, after all nodes that it needs.
  constexpr void place(int target) {
    struct visit {
      int node;
      int next;  // its next operand
    };
    vec<visit> path;
    path.push_back({target, 0});
    while (!path.empty()) {
      const int i = path.back().node;
      if (number_[i] >= 0) {
        path.pop_back();
        continue;
      }
      const node& n = old(i);
      if (is_region_result(n.op)) {
        const int start = start_of(n);
        if (read_outside_[start].empty()) read_outside_[start] = what_is_read_outside(start);
        const auto& outside = read_outside_[start];
        if (path.back().next < static_cast<int>(outside.size())) {
          path.push_back({outside[path.back().next++], 0});
        } else {
          place_region(start);
          path.pop_back();
        }
      } else if (path.back().next < n.operands.count && !same_.folded().is_number(i)) {
        path.push_back({same_[n.operands[path.back().next++]], 0});
      } else {
        add(i);
        path.pop_back();
      }
    }
  }

  /// Records the label of a dropped node at the equal node that replaces it: labels name values of the program as it
  /// was written.
  constexpr void name_equals() {
    const auto& nodes = traced_.nodes;
    for (const auto& also : traced_.also_tagged)
      if (const int now = number_[same_[also.node]]; now >= 0) result.also_tagged.push_back({also.tag, now});
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const int taken = same_[static_cast<int>(i)];
      if (taken == static_cast<int>(i) || nodes[i].tag < 0 || number_[taken] < 0) continue;
      if (i + 1 == nodes.size() || nodes[i + 1].tag != nodes[i].tag) result.also_tagged.push_back({nodes[i].tag, number_[taken]});
    }
  }

  // ---- regions ----

  /// Returns the loop or branch node that a result belongs to.
  [[nodiscard]] constexpr int start_of(const node& n) const {
    return n.op == opcode::loop_result ? old(n.operands[0]).region : old(n.operands[0]).operands[0];
  }

  /// Marks the nodes that the outputs need. Lists the needed results of each loop and conditional, in the order of the
  /// program. A carried value needs its next value, even if the value has no users after the loop.
  constexpr void find_needed() {
    const auto count = traced_.nodes.size();
    results_.resize(count, list{});
    read_outside_.resize(count, list{});
    vec<int> result_of(count, -1);  // by carry
    for (std::size_t i = 0; i < count; ++i)
      if (traced_.nodes[i].op == opcode::loop_result) result_of[traced_.nodes[i].operands[0]] = static_cast<int>(i);
    vec<std::uint8_t> needed(count, 0);
    list open;
    const auto mark = [&](int i) {
      if (needed[i] != 0) return;
      needed[i] = 1;
      open.push_back(i);
    };
    for (const int o : traced_.outputs) mark(same_[o]);
    while (!open.empty()) {
      const int i = open.back();
      open.pop_back();
      for (const int o : old(i).operands) mark(same_[o]);
      if (old(i).op == opcode::carry) mark(result_of[i]);
    }
    for (std::size_t i = 0; i < count; ++i)
      if (needed[i] != 0 && is_region_result(traced_.nodes[i].op))
        results_[start_of(traced_.nodes[i])].push_back(static_cast<int>(i));
  }

  /// Returns the values outside of a loop or conditional that its needed part reads, including bodies inside it, in
  /// order.
  [[nodiscard]] constexpr list what_is_read_outside(int start) const {
    list outside;
    vec<std::uint8_t> visited(traced_.nodes.size(), 0);
    list open;
    const auto& own = results_[start];
    for (std::size_t r = own.size(); r-- > 0;) open.push_back(own[r]);
    while (!open.empty()) {
      const int i = open.back();
      open.pop_back();
      if (visited[i] != 0) continue;
      visited[i] = 1;
      const node& n = old(i);
      const bool is_own = is_region_result(n.op) && start_of(n) == start;
      if (!is_own && i != start && n.op != opcode::otherwise && !is_in(i, start)) {
        outside.push_back(i);
        continue;
      }
      if (is_region_result(n.op) && !is_own) {  // a body inside this body
        const auto& inner = results_[start_of(n)];
        for (std::size_t r = inner.size(); r-- > 0;) open.push_back(inner[r]);
      }
      for (int k = n.operands.count; k-- > 0;) open.push_back(same_[n.operands[k]]);
    }
    return outside;
  }
  /// Returns true if node `i` is in a body of the loop or conditional that starts at `start`.
  [[nodiscard]] constexpr bool is_in(int i, int start) const {
    for (int r = homes_[i]; r >= 0; r = old(r).region)
      if (r == start || (old(r).op == opcode::otherwise && old(r).operands[0] == start)) return true;
    return false;
  }

  constexpr void place_region(int start) {
    const auto& own = results_[start];
    add(start);
    if (old(start).op == opcode::loop) {
      for (const int r : own) add(old(r).operands[0]);
      for (const int r : own) place(same_[old(r).operands[1]]);
    } else {
      for (const int r : own) place(same_[old(r).operands[1]]);
      add(old(own[0]).operands[0]);
      for (const int r : own) place(same_[old(r).operands[2]]);
    }
    for (const int r : own) add(r);
  }

  const graph& traced_;
  const vec<int> homes_;
  const equal_nodes same_;
  vec<int> number_;         // by old number
  vec<list> results_;       // by loop or branch
  vec<list> read_outside_;  // by loop or branch
};

constexpr graph canonical_order(const graph& traced) { return canonical_orderer(traced).result; }

}  // namespace gspmd::detail
