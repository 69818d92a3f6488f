// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/refine.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/passes/request/save_memory.hpp"
#include "gspmd/detail/support/planning_work.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// The rules of a graph's operators. Each rule is computed at its first use.
class rule_table {
 public:
  constexpr explicit rule_table(const graph& g) : graph_(g), index_(g.nodes.size(), -1) {
    std::size_t count = 0;  // rules are large: reserving costs less than growing the list
    for (const auto& n : g.nodes) count += facts_of(n.op).uniform ? 0 : 1;
    rules_.reserve(count);
  }

  [[nodiscard]] constexpr const op_rule& of(int i) {
    const node& n = graph_.nodes[i];
    if (facts_of(n.op).uniform) return any_uniform;
    int& index = index_[i];
    if (index < 0) {
      index = static_cast<int>(rules_.size());
      rules_.push_back(op_rule{});
      rule_of(graph_, n, rules_.back());
    }
    return rules_[index];
  }

 private:
  static constexpr op_rule any_uniform = [] {  // splits pass unchanged from tensor to tensor
    op_rule rule;
    rule.uniform = true;
    rule.maps.push_back({});
    return rule;
  }();
  const graph& graph_;
  vec<int> index_;
  vec<op_rule> rules_;
};

/// The origin of a split: `node` got the split `use` from its neighbour `from`, through the operator `via`.
struct split_origin {
  int node = 0;
  axis_use use{};
  int from = 0;
  int via = 0;
};

/// Infers a sharding for every value of a graph from the annotations (GSPMD 3.5).
///
/// Input: the graph with its annotations, and the mesh. Result: `shardings`, by node.
///
///   x{B:data} w{F:model}  h = einsum<"bd,df->bf">(x, w)  ->  h{B:data, F:model}        (Fig. 3)
///
/// 1. A value starts with its annotation. Without an annotation it is replicated and open in all dims.
/// 2. In round r, the operators of levels up to r take part: first elementwise operators and reshapes, then einsum and
///    reduce, then broadcast backward, then broadcast forward.
/// 3. A round sweeps forward (operands to result) and backward (result to operands, and between operands). It visits
///    the operators whose neighbours changed, until nothing changes.
/// 4. A value takes over a split only on an open dim, and only by axes that it does not use yet. The dim must be
///    unsplit, or the new splits must continue its splits. Shardings are only refined, so a fixed point is reached.
///    Dims that an annotation closes never change.
/// 5. If annotations have priorities, steps 2 and 3 run in stages: splits of priority p are passed on from stage p on.
/// 6. If an operator works on whole lines, it cannot keep an axis that splits the lines. The axis then splits the
///    largest unsplit dim that result and operand share, by an all_to_all. Otherwise every device would work on the
///    whole tensor. Example, a 3-D FFT:
///      x{X:a, Y:b, Z:-}  y = fft along Y  ->  y{X:a, Y:-, Z:b}
///
/// If one tensor of a shard_alike gets splits, all its tensors get them, in both directions, before other neighbours
/// pass splits on. Only annotations can give these tensors different shardings.
///
/// If two splits exclude each other, the earlier split stays. A result first takes splits on dims that all operands
/// have (batch dims). Then it takes splits of larger operands before those of smaller operands.
class completion {
 public:
  /// If `record` is not null, it gets every split that is passed on, in order.
  constexpr completion(const graph& g, const mesh_shape& mesh, const plan_request& request,
                       std::vector<split_origin>* record = nullptr)
      : graph_(g), mesh_(mesh), request_(request), rules_(g), record_(record) {
    const auto count = g.nodes.size();
    states_.resize(count, annotation{});
    nodes_ = g.nodes.data();
    found_ = states_.data();
    dirty_.resize(count, 0);
    split_axes_.resize(count, 0);
    axes_ = split_axes_.data();
    sizes_.resize(count, 0);
    users_begin_.resize(count + 1, 0);
    int* const begin = users_begin_.data();
    for (std::size_t i = 0; i < count; ++i) {
      const node& n = nodes_[i];
      auto& s = found_[i];
      if (n.annotated && !is_state_moved(n)) {
        s = without_size_1(n.annotation);
        axes_[i] = s.layout.split_axes();
        if (s.last_stage() > last_stage_) last_stage_ = s.last_stage();
      } else {
        s.open = ~dim_mask{0};
      }
      sizes_[i] = elements(n.shape);
      for (int k = 0; k < n.operands.count; ++k) ++begin[n.operands.items[k] + 1];
    }
    for (std::size_t i = 0; i < count; ++i) begin[i + 1] += begin[i];
    users_.resize(static_cast<std::size_t>(begin[count]), 0);
    auto next = users_begin_;
    int* const users = users_.data();
    int* const at = next.data();
    for (std::size_t i = 0; i < count; ++i) {
      const auto& operands = nodes_[i].operands;
      for (int k = 0; k < operands.count; ++k) users[at[operands.items[k]]++] = static_cast<int>(i);
    }
  }
  completion(const completion&) = delete;
  completion& operator=(const completion&) = delete;

  constexpr void run() {
    connect_alike();
    for (int i = 0; i < static_cast<int>(states_.size()); ++i)
      if (nodes_[i].annotation.closed != 0) lie_as_outside(i);
    for (stage_ = 0; stage_ <= last_stage_; ++stage_) run_stage();
    stage_ = last_stage_;
    while (move_on()) run_rounds();
    if (place_states()) run_rounds();
    if (split_inputs()) run_rounds();
    shardings.reserve(states_.size());
    for (const auto& s : states_) shardings.push_back(s.layout);
  }

  vec<sharding> shardings;  // by node, after run()

 private:
  constexpr void run_stage() {
    for (auto& o : offered_) o = 0;
    for (int i = 0; i < static_cast<int>(next_alike_.size()); ++i) share(i);
    run_rounds();
  }
  constexpr void run_rounds() {
    for (round_ = 0; round_ < completion_round_count; ++round_) {
      const int count = static_cast<int>(dirty_.size());
      std::uint8_t* const dirty = dirty_.data();
      for (int i = 0; i < count; ++i) dirty[i] |= starts_in(round_, facts_of(nodes_[i].op).completes);
      changed_ = true;
      while (changed_) {
        changed_ = false;
        for (int i = 0; i < count; ++i)
          if ((dirty[i] & 1) != 0) {
            dirty[i] ^= 1;
            visit(i, true);
          }
        for (int i = count; i-- > 0;)
          if ((dirty[i] & 2) != 0) {
            dirty[i] ^= 2;
            visit(i, false);
          }
      }
    }
  }

  /// Returns true if the node is a state or its next value, and saving may change the sharding that was found at
  /// tracing.
  [[nodiscard]] constexpr bool is_state_moved(const node& n) const {
    return n.state >= 0 && saving_level(request_.saving) == most_saving;
  }
  /// Gives each state the sharding of its next value as computed, then gives the same sharding to the nodes that mark
  /// next values. Returns true if the program has any.
  constexpr bool place_states() {
    if (saving_level(request_.saving) != most_saving) return false;
    bool any = false;
    for (const bool is_mark : {false, true})
      for (int i = 0; i < static_cast<int>(dirty_.size()); ++i) {
        if (!is_state_moved(nodes_[i]) || nodes_[i].operands.count == 0) continue;
        const int state = state_of(nodes_[i]), from = is_mark ? state : nodes_[i].operands[0], to = is_mark ? i : state;
        found_[to].layout.splits = found_[from].layout.splits;
        found_[to].open = 0;
        note_change(to, axes_[to], from, i);
        any = true;
      }
    return any;
  }
  /// Splits inputs to save memory, and the next values of states like the states. Returns true if any input was split.
  constexpr bool split_inputs() {
    bool any = false;
    if (saving_level(request_.saving) < 2) return false;
    is_saving_ = true;
    const auto gives_way = giving_way(graph_.nodes, request_.saving, 2, request_.most_memory);
    vec<int> next(states_.size(), -1);  // by state: its next value
    for (int i = 0; i < static_cast<int>(dirty_.size()); ++i)
      if (const node& n = nodes_[i]; n.state >= 0 && n.operands.count > 0) next[state_of(n)] = n.operands[0];
    for (int i = 0; i < static_cast<int>(dirty_.size()); ++i) {
      bool is_split = false;
      if (!gives_way.empty() && gives_way[i] == 0) continue;
      const axis_mask first = next[i] < 0 ? 0 : axes_[next[i]];  // splits along these axes send nothing
      const int count = mesh_.axis_count();
      for (int k = 0; k < 2 * count && is_split_to_save(mesh_, request_, nodes_[i], found_[i].layout); ++k) {
        const int a = k % count;
        if (((first & axis_bit(a)) != 0) != (k < count) || mesh_.sizes[a] == 1 || (axes_[i] & axis_bit(a)) != 0) continue;
        const int dim = dim_to_save(i, a, next[i]);
        if (dim < 0) continue;
        found_[i].layout.add_split(a, dim);
        axes_[i] |= axis_bit(a);
        is_split = true;
      }
      if (is_split) note_change(i, axes_[i], i, i);
      any = any || is_split;
    }
    for (int i = 0; any && i < static_cast<int>(dirty_.size()); ++i) {
      const node& n = nodes_[i];
      if (n.state < 0 || n.operands.count == 0 || found_[i].layout == found_[state_of(n)].layout) continue;
      found_[i].layout = found_[state_of(n)].layout;
      note_change(i, axes_[i], state_of(n), i);
    }
    return any;
  }
  /// Returns the dim of input `i` that an axis should split, or -1. If the axis splits the computed next value of a
  /// state, this is the same dim. Otherwise it is the dim that leaves the smallest parts. Ties go to the dim that is
  /// longest after the split. For a state at level 2, a dim that is split already counts with its whole length: then
  /// the users of the state stay unchanged.
  ///
  ///   an unsplit weight [1024,64]: dim 0
  [[nodiscard]] constexpr int dim_to_save(int i, int axis, int next) const {
    const extents& shape = nodes_[i].shape;
    const std::int64_t now = local_elements(mesh_, shape, found_[i].layout);
    int dim = -1;
    std::int64_t least = now, longest = 0;
    for (int d = 0; d < shape.count; ++d) {
      sharding s = found_[i].layout;
      s.add_split(axis, d);
      const bool is_behind = nodes_[i].state >= 0 && saving_level(request_.saving) == 2 && found_[i].layout.is_split(d);
      const auto elems = local_elements(mesh_, shape, s), length = is_behind ? shape[d] : shape[d] / parts_of(mesh_, s, d);
      for (int k = 0; next >= 0 && elems < now && k < found_[next].layout.splits.count; ++k)
        if (const auto& use = found_[next].layout.splits[k]; use.axis == axis && use.dim == d) return d;
      if (elems > least || (elems == least && (dim < 0 || length <= longest))) continue;
      dim = d;
      least = elems;
      longest = length;
    }
    return dim;
  }
  /// Returns the input of the state that node `n` is, or is a next value of.
  [[nodiscard]] constexpr int state_of(const node& n) const { return graph_.inputs[n.state]; }

  /// Sweeps once over the operators with whole dims and the users of their results, and moves axes on (step 6). Returns
  /// true if any moved.
  constexpr bool move_on() {
    bool any = false;
    round_ = completion_round_count - 1;
    for (int i = 0; i < static_cast<int>(dirty_.size()); ++i) {
      const node& n = nodes_[i];
      if (any && (dirty_[i] & 1) != 0) visit(i, true);
      if (n.operands.count == 0 || n.results != 1 || axes_[n.operands[0]] == 0 || facts_of(n.op).uniform) continue;
      if ((axes_[n.operands[0]] & ~axes_[i]) == 0) continue;
      const op_rule& rule = rules_.of(i);
      for (const auto& use : found_[n.operands[0]].layout.splits) {
        const tensor_map& from = rule.operand(0);
        const bool is_kept = (axes_[i] & axis_bit(use.axis)) != 0 || from.begin(use.dim) == from.end(use.dim) ||
                             rule.factors[from.factors[from.begin(use.dim)]].kind != factor_kind::whole;
        if (is_kept || (found_[i].layout.partial & axis_bit(use.axis)) != 0) continue;
        const int dim = free_dim_for(i, rule, mesh_.sizes[use.axis]);
        if (dim < 0) continue;
        found_[i].layout.add_split(use.axis, dim);
        note_change(i, axes_[i], n.operands[0], i);
        any = true;
      }
    }
    return any;
  }
  /// Returns the largest open and unsplit dim of the result of node `i` that its first operand has too. Its extent is
  /// at least `parts`. Returns -1 if no dim qualifies.
  [[nodiscard]] constexpr int free_dim_for(int i, const op_rule& rule, std::int64_t parts) const {
    const tensor_map& map = rule.result();
    const auto& found = found_[i];
    int best = -1;
    for (int d = 0; d < nodes_[i].shape.count; ++d) {
      const auto extent = nodes_[i].shape[d];
      if ((found.open & dim_bit(d)) == 0 || found.layout.is_split(d) || extent < parts || map.end(d) != map.begin(d) + 1)
        continue;
      const int f = map.factors[map.begin(d)];
      if (rule.factors[f].kind != factor_kind::parallel || !rule.operand(0).holds(f)) continue;
      if (best < 0 || extent > nodes_[i].shape[best]) best = d;
    }
    return best;
  }

  /// Returns the annotation without axes of size 1, which split nothing. No later pass sees these axes.
  [[nodiscard]] constexpr annotation without_size_1(const annotation& s) const {
    annotation result = s;
    const axis_mask wide = mesh_.wide_axes();
    result.layout = {{}, s.layout.partial & wide, s.layout.reduced_by};
    for (const auto& use : s.layout.splits)
      if ((wide & axis_bit(use.axis)) != 0) result.layout.splits.push_back(use);
    return result;
  }

  constexpr void visit(int i, bool is_forward) {
    if (nodes_[i].op == opcode::result) i = nodes_[i].operands[0];
    count_planning();
    const node& n = nodes_[i];
    const int count = n.operands.count;
    const int* const operands = n.operands.items;
    if (count == 0) return;
    const auto& rounds = facts_of(n.op).completes;
    if ((is_forward ? rounds.forward : rounds.backward) > round_) return;
    const op_rule& rule = rules_.of(i);
    int order[max_map_arity]{};
    if (count > 1) list_larger_first(n, order);
    if (is_forward) {
      for (int r = 0; r < n.results; ++r) {
        if (!rule.uniform && count > 1)
          for (int k = 0; k < count; ++k)
            if (has_news(operands[k], i + r)) give(i, rule, operands[k], rule.operand(k), i + r, rule.result(r), true);
        for (int p = 0; p < count; ++p)
          if (const int k = order[p]; has_news(operands[k], i + r))
            give(i, rule, operands[k], rule.operand(k), i + r, rule.result(r));
      }
    } else {
      for (int r = 0; r < n.results; ++r)
        for (int k = 0; k < count; ++k)
          if (has_news(i + r, operands[k])) give(i, rule, i + r, rule.result(r), operands[k], rule.operand(k));
      for (int p = 0; p < count; ++p)
        for (int k = 0; k < count; ++k)
          if (const int from = order[p]; k != from && has_news(operands[from], operands[k]))
            give(i, rule, operands[from], rule.operand(from), operands[k], rule.operand(k));
    }
  }
  /// Returns true if an axis splits tensor `from` that tensor `to` could take over.
  [[nodiscard]] constexpr bool has_news(int from, int to) const {
    return (axes_[from] & ~(axes_[to] | found_[to].layout.partial)) != 0 && !(is_saving_ && is_made_of_numbers(to));
  }
  /// Returns true for numbers: constants, and broadcasts of a single element. A number exists in every layout. Equal
  /// numbers are one node, which would pass the splits of one state on to all other states.
  [[nodiscard]] constexpr bool is_made_of_numbers(int i) const {
    const node& n = nodes_[i];
    return facts_of(n.op).made == origin::source || (n.operands.count == 1 && sizes_[n.operands[0]] == 1);
  }

  /// Passes the splits of tensor `from` of an operator on to its tensor `to`, through the factors that both have.
  constexpr void give(int via, const op_rule& rule, int from, const tensor_map& from_map, int to, const tensor_map& to_map,
                      bool only_batch = false) {
    const annotation& source = found_[from];
    auto splits = to_factors(mesh_, rule, from_map, source.last_stage() > stage_ ? due(source) : source.layout.splits,
                             rule.is_moved_unevenly);
    if (!rule.uniform)
      for (int i = splits.count - 1; i >= 0; --i)
        if (rule.factors[splits[i].dim].kind == factor_kind::whole || !to_map.holds(splits[i].dim) ||
            (only_batch && !is_batch(rule, splits[i].dim)))
          remove(splits, i);
    if (nodes_[to].annotation.closed != 0) keep_closed(nodes_[to].annotation.closed, rule, to, to_map, splits);
    if (splits.count > 0 && refine(found_[to], to_dims(mesh_, rule, to_map, splits, rule.is_moved_unevenly), nodes_[to].shape)) {
      note_change(to, axes_[to], from, via);
      if (next_alike_.empty()) return;
      offered_[to] = 0;
      share(to);
    }
  }
  /// The tensor keeps the layout that is written for closed axes. Other axes split its dims minor to the closed axes.
  constexpr void keep_closed(axis_mask closed, const op_rule& rule, int to, const tensor_map& to_map,
                             factor_splits& splits) const {
    inline_vec<axis_use, max_axes> written;
    for (const auto& use : found_[to].layout.splits)
      if ((closed & axis_bit(use.axis)) != 0) written.push_back(use);
    factor_splits kept = to_factors(mesh_, rule, to_map, written);
    for (const auto& use : splits)
      if ((closed & axis_bit(use.axis)) == 0) add_factor_split(kept, use.axis, use.dim);
    splits = kept;
  }
  /// At the border of a manual region, and at a reshard to its layout, takes over the splits of the operand by axes
  /// outside the region. Closes the dims that the operand closes. Users of the value then find the same splits on both
  /// sides.
  constexpr void lie_as_outside(int i) {
    const node& n = nodes_[i];
    if (facts_of(n.op).made != origin::viewed && (n.annotation.closed & ~n.local_axes) == 0) return;
    const int from = n.operands[0];
    if (nodes_[from].shape.count != n.shape.count || found_[from].last_stage() > 0) return;
    give(i, rules_.of(i), from, rules_.of(i).operand(0), i, rules_.of(i).result());
    found_[i].open &= found_[from].open;
  }
  constexpr void note_change(int to, axis_mask had, int from, int via) {
    changed_ = true;
    if (record_ != nullptr)
      for (const auto& use : found_[to].layout.splits)
        if ((had & axis_bit(use.axis)) == 0) record_->push_back(split_origin{to, use, from, via});
    axes_[to] = found_[to].layout.split_axes();
    std::uint8_t* const dirty = dirty_.data();
    const int* const users = users_.data();
    dirty[to] = 3;
    for (int u = users_begin_[to]; u < users_begin_[to + 1]; ++u) dirty[users[u]] = 3;
  }

  /// Puts the tensors that shard_alike connects, directly or through other tensors, into one circular list.
  constexpr void connect_alike() {
    vec<int> upper;  // by node: another node of its circle, closer to the representative; the representative itself
    const auto stands_for = [&upper](int i) {
      while (upper[i] != i) i = upper[i] = upper[upper[i]];
      return i;
    };
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const node& n = graph_.nodes[i];
      if (!is_shared_alike(n)) continue;
      if (next_alike_.empty()) {
        for (std::size_t k = 0; k < graph_.nodes.size(); ++k) {
          next_alike_.push_back(static_cast<int>(k));
          upper.push_back(static_cast<int>(k));
        }
        alike_by_.resize(graph_.nodes.size(), 0);
        offered_.resize(graph_.nodes.size(), 0);
      }
      for (const int own : n.operands) {
        alike_by_[own] = static_cast<int>(i);
        const int here = stands_for(static_cast<int>(i)), there = stands_for(own);
        if (here == there) continue;
        upper[there] = here;
        const int next = next_alike_[i];
        next_alike_[i] = next_alike_[own];
        next_alike_[own] = next;
      }
      alike_by_[i] = static_cast<int>(i);
    }
  }
  /// Gives the splits of a tensor to all tensors of its circle, before other splits can reach them. A tensor that has
  /// the same splits afterwards need not share them again.
  constexpr void share(int from) {
    const annotation& source = found_[from];
    if (source.layout.splits.empty() || offered_[from] != 0) return;
    const auto splits = source.last_stage() > stage_ ? due(source) : source.layout.splits;
    offered_[from] = 1;
    for (int k = next_alike_[from]; k != from; k = next_alike_[k]) {
      if (refine(found_[k], splits, nodes_[k].shape)) note_change(k, axes_[k], from, alike_by_[k]);
      offered_[k] = found_[k].layout.splits == splits;
    }
  }

  /// Returns the splits on dims whose stage has begun.
  [[nodiscard]] constexpr inline_vec<axis_use, max_axes> due(const annotation& s) const {
    dim_mask waiting = 0;
    for (const auto& use : s.layout.splits)
      if (s.stage_of(use.axis) > stage_) waiting |= dim_bit(use.dim);
    inline_vec<axis_use, max_axes> result;
    for (const auto& use : s.layout.splits)
      if ((waiting & dim_bit(use.dim)) == 0) result.push_back(use);
    return result;
  }
  static constexpr bool is_batch(const op_rule& rule, int f) {
    for (const auto& map : rule.maps)
      if (!map.holds(f)) return false;
    return true;
  }
  static constexpr void remove(factor_splits& splits, int at) {
    for (int i = at; i + 1 < splits.count; ++i) splits[i] = splits[i + 1];
    splits.pop_back();
  }

  /// Lists the numbers of the operands, larger tensors first. Tensors of equal size stay in order.
  constexpr void list_larger_first(const node& n, int* order) const {
    const int* const operands = n.operands.items;
    const std::int64_t* const sizes = sizes_.data();
    for (int k = 0; k < n.operands.count; ++k) {
      int at = k;
      for (; at > 0 && sizes[operands[order[at - 1]]] < sizes[operands[k]]; --at) order[at] = order[at - 1];
      order[at] = k;
    }
  }
  /// Returns the directions of an operator that begin in a round, as bits: 1 forward, 2 backward.
  static constexpr std::uint8_t starts_in(int round, const completion_rounds& rounds) {
    return static_cast<std::uint8_t>((rounds.forward == round ? 1 : 0) | (rounds.backward == round ? 2 : 0));
  }

  /// Returns true for shard_alike, whose unread operands are only there to get the same sharding.
  static constexpr bool is_shared_alike(const node& n) { return facts_of(n.op).reads(n) < n.operands.count; }

  const graph& graph_;
  const mesh_shape& mesh_;
  const plan_request& request_;
  rule_table rules_;
  std::vector<split_origin>* record_ = nullptr;
  const node* nodes_ = nullptr;
  vec<annotation> states_;       // by node
  annotation* found_ = nullptr;  // the data of states_
  axis_mask* axes_ = nullptr;    // the data of split_axes_
  vec<axis_mask> split_axes_;    // by node: the axes that split it
  vec<std::int64_t> sizes_;      // by node: its number of elements
  int stage_ = 0;
  int last_stage_ = 0;
  int round_ = 0;
  bool changed_ = false;
  bool is_saving_ = false;   // inputs were split to save memory
  vec<std::uint8_t> dirty_;  // by node: 1 if to be visited forward, 2 backward
  vec<int> users_begin_;
  vec<int> users_;
  vec<int> next_alike_;        // by node: the next node of its circle; empty: no circles
  vec<int> alike_by_;          // by node: the shard_alike that connects it
  vec<std::uint8_t> offered_;  // by node: its circle has its splits
};

/// Returns the layouts of a program with types. Completion does not change them.
constexpr vec<sharding> written_layouts(const graph& g) {
  vec<sharding> found;
  for (const auto& n : g.nodes) found.push_back(n.annotation.layout.planned());
  return found;
}
/// Returns the layout of every value, as completion finds it or as the types state it.
constexpr vec<sharding> complete_graph(const graph& g, const mesh_shape& mesh, const plan_request& request,
                                       std::vector<split_origin>* record = nullptr) {
  if (g.is_explicit) return written_layouts(g);
  completion completed(g, mesh, request, record);
  completed.run();
  return std::move(completed.shardings);
}

}  // namespace gspmd::detail
