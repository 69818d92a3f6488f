// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Marks the reshards that are written before an operator and cost less after it. A deferred reshard moves nothing,
/// and the operator's sharding is chosen by the shardings of the values before the reshards.
///
///   reshard(x, S) + reshard(y, S)                  x + y in the present sharding: one value is moved to S or reduced,
///                                                  not two
///   2 * reshard(x, S) - reshard(y, S) / n          the same, with elementwise operators of one value in between
///   slice(reshard(x, S)), if all users are slices  the slices are moved to S, if they have fewer elements than x
///                                                  together
///
/// If deferring sends more, because other operators read a resharded value, choose takes the plan without deferred
/// reshards. Users of the result find the sharding that was requested, because completion ignores deferral. A reshard
/// with other users, or whose result is an output, stays where it was written. All elementwise operators qualify,
/// linear or not. Before a nonlinear operator, partial values are reduced to the parts that it computes.
class deferred_reshards {
 public:
  constexpr explicit deferred_reshards(graph& g) : graph_(g) {}

  constexpr void mark() {
    bool any = false;
    for (const auto& n : graph_.nodes) any = any || is_plain_reshard(n);
    if (!any) return;
    const auto count = graph_.nodes.size();
    readers_.resize(count, 0);
    read_elems_.resize(count, 0);
    is_light_.resize(count, 0);
    from_.resize(count, -1);
    for (std::size_t i = 0; i < count; ++i) note_reads(static_cast<int>(i));
    for (const int o : graph_.outputs) {
      ++readers_[o];
      read_elems_[o] = saturating_add(read_elems_[o], elements(at(o).shape));
    }
    for (std::size_t i = 0; i < count; ++i) look_at(static_cast<int>(i));
  }

 private:
  [[nodiscard]] constexpr const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }

  /// Returns true if the user wrote the reshard, and it reshards the whole value.
  [[nodiscard]] static constexpr bool is_plain_reshard(const node& n) {
    return facts_of(n.op).made == origin::renamed && n.annotated && n.operands.count == 1 && n.attributes.empty() && is_free(n);
  }
  /// Returns true if a node has no policies and no collectives that a manual region writes.
  [[nodiscard]] static constexpr bool is_free(const node& n) {
    return n.local_axes == n.hidden_axes && !n.forbid_reshard && !n.keep_split && !n.keep_partial && n.gather_limit < 0;
  }
  [[nodiscard]] static constexpr bool computes_by_element(const node& n) {
    const auto& facts = facts_of(n.op);
    return facts.made == origin::shards && facts.uniform && facts.runs == realisation::loop && facts.tiles(n) == 0 &&
           !n.annotated && n.results == 1 && is_free(n);
  }
  /// Returns true if a node does nothing but take a part of its operand.
  [[nodiscard]] constexpr bool cuts(const node& n) const {
    return facts_of(n.op).composes && !n.annotated && is_free(n) && elements(n.shape) < elements(at(n.operands[0]).shape);
  }

  /// Counts the users of each operand, and the elements that they read.
  constexpr void note_reads(int i) {
    const node& n = at(i);
    const auto& facts = facts_of(n.op);
    bool has_light_operands = true;
    for (int k = 0; k < n.operands.count; ++k) {
      const int o = n.operands[k];
      has_light_operands = has_light_operands && (is_light_[o] != 0 || elements(at(o).shape) == 1);
      if (k > 0 && o == n.operands[0]) continue;
      ++readers_[o];
      read_elems_[o] = saturating_add(read_elems_[o], cuts(n) ? elements(n.shape) : elements(at(o).shape));
    }
    is_light_[i] = facts.made == origin::source || (facts.made == origin::shards && facts.is_made_again(n) && has_light_operands);
  }

  /// Finds the reshard that could follow the value of node `i`, and stores it in `from_`. Defers reshards that cost
  /// less there.
  constexpr void look_at(int i) {
    const node& n = at(i);
    if (is_plain_reshard(n)) {
      const int o = n.operands[0];  // other users may prefer the resharded value
      if (readers_[o] == 1 && at(o).region == n.region) from_[i] = i;
    } else if (cuts(n)) {
      const int o = n.operands[0];
      if (from_[o] < 0 || at(o).region != n.region || read_elems_[o] >= elements(at(o).shape)) return;
      defer(from_[o]);
    } else if (computes_by_element(n)) {
      meet(i, n);
    }
  }
  constexpr void meet(int i, const node& n) {
    int first = -1;
    bool are_several = false;
    for (const int o : n.operands) {
      if (is_light_[o] != 0 || o == first) continue;
      if (from_[o] < 0 || readers_[o] != 1 || at(o).region != n.region) return;
      if (first >= 0 && !(at(from_[o]).annotation == at(from_[first]).annotation)) return;
      are_several = are_several || first >= 0;
      if (first < 0) first = o;
    }
    if (first < 0) return;
    from_[i] = from_[first];
    if (!are_several) return;
    for (const int o : n.operands)
      if (is_light_[o] == 0) defer(from_[o]);
  }
  constexpr void defer(int reshard) { graph_.nodes[static_cast<std::size_t>(reshard)].deferred = true; }

  graph& graph_;
  vec<int> readers_;              // by node: the number of its users; an output counts as one
  vec<std::int64_t> read_elems_;  // by node: the elements that its users read in total
  vec<std::uint8_t> is_light_;    // by node: computed wherever it is read, without communication
  vec<int> from_;                 // by node: the reshard that can follow it; -1: none
};

/// See deferred_reshards.
constexpr void defer_reshards(graph& g) { deferred_reshards(g).mark(); }

}  // namespace gspmd::detail
