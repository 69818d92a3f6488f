// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/add_pass.hpp"
#include "gspmd/detail/ir/collective_time.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/passes/carried/next_values.hpp"
#include "gspmd/detail/support/precompiled.hpp"

/// Automatic cross-replica sharding of weight updates (Xu et al. 2020): each of the devices that hold the same weights
/// updates a part of the weights.
namespace gspmd::detail {

/// Splits the updates of weights over mesh axes, in a program whose next values are marked (next_values.hpp). The pass
/// only adds annotations. The planner chooses the communication, as for annotations of a user: a reduce_scatter of the
/// gradient, the update of a part, and an all_gather of the new weight.
///
/// 1. Find the values that are equal on all devices along the axes. Find those among them that depend on a reduction
///    over the axes (3.1 of the paper). Completion has found the shardings, and the rules of operators state the
///    reductions.
/// 2. Find the weights. A weight is carried, is updated by a reduced value, and is read on the way to the reduction.
///    Other carried values that only the update reads, the moments, stay split from step to step. They are one group.
///    A moment may have another shape, for example as a mean of squares over rows. It is split if the rules of the
///    operators between it and the new weight pass the cut on. If the moment is reduced over the dim that is cut, it
///    is a sum of the devices' parts. Then it is split along a dim of its own, and scattered and gathered instead of
///    reduced, which sends the same number of bytes.
/// 3. Choose the dim that is cut: the parts with their padding must be smallest. The first of several such dims is cut
///    (4.1).
/// 4. Split if that saves time (3.2). Each device saves update time, estimated from the operations and the bytes read
///    and written. In return, reduce_scatter and all_gather may take longer than all_reduce on the network of the
///    mesh. If gathering the examples is faster than a reduction, its time is used instead of the reduction's.
class weight_updates {
 public:
  constexpr weight_updates(graph& g, const vec<sharding>& layouts)
      : graph_(g),
        mesh_(g.mesh->shape),
        net_(g.mesh->request.network),
        layouts_(layouts),
        visited_(g.nodes.size(), -1),
        cut_dim_(g.nodes.size(), -1),
        seen_for_(g.nodes.size(), -1) {
    for (std::size_t i = 0; i < g.nodes.size(); ++i) {
      if (!update_mark::is_on(g.nodes[i])) continue;
      auto mark = update_mark::of(g.nodes[i]);
      axes_ |= mark.axes;
      if (first_mark(g.nodes, static_cast<int>(i)) == static_cast<int>(i)) {
        marks_.push_back(static_cast<int>(i));
      } else {  // the decision for the first mark applies to it
        mark.axes = 0;
        mark.keep(g.nodes[i]);
      }
    }
  }

  constexpr void run() {
    follow_reductions();
    bool any = false;
    for (std::size_t k = 0; k < marks_.size(); ++k) any = look_at_weight(static_cast<int>(k)) || any;
    for (const int m : marks_) look_at_rest(m);
    if (!any) fail();
  }

 private:
  struct group {
    vec<int> states;              // marks
    bool is_any_unlike = false;   // of another shape than the weight
    std::int64_t operations = 0;  // on each element
    std::int64_t bytes = 0;       // of each element, read and written
    std::int64_t gather = 0;      // picoseconds to gather the operands of the gradient's reduction
  };
  struct way_to_cut {
    int dim = -1;
    std::int64_t elems = 0;  // of a part
  };

  [[nodiscard]] constexpr node& at(int i) { return graph_.nodes[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr bool is_split(int i) const { return (layouts_[i].split_axes() & axes_) != 0; }
  [[nodiscard]] constexpr int before(int mark) const {
    return graph_.inputs[static_cast<std::size_t>(update_mark::of(at(mark)).input)];
  }

  /// Returns true if node `i` reduces parts of its operands over the axes, or if it consists of partial values.
  [[nodiscard]] constexpr bool reduces(int i) const {
    const node& n = at(i);
    if ((layouts_[i].partial & axes_) != 0) return true;
    if (is_split(i)) return false;
    const int reads = facts_of(n.op).reads(n);
    bool any = false;
    for (int k = 0; k < reads; ++k) any = any || is_split(n.operands[k]);
    if (!any) return false;
    op_rule rule;
    rule_of(graph_, n, rule);
    for (int k = 0; k < reads; ++k)
      for (const auto& use : to_factors(mesh_, rule, rule.operand(k), layouts_[n.operands[k]].splits))
        if ((axes_ & axis_bit(use.axis)) != 0 && rule.leaves_partial(use.dim)) return true;
    return false;
  }
  /// Finds the values that are equal on all devices and depend on a reduction, and the values that a split value
  /// depends on.
  constexpr void follow_reductions() {
    const auto count = graph_.nodes.size();
    is_source_.resize(count, 0);
    is_reduced_.resize(count, 0);
    is_used_.resize(count, 0);
    for (int i = 0; i < static_cast<int>(count); ++i) {
      is_source_[i] = reduces(i);
      is_reduced_[i] = is_source_[i];
      if (is_split(i)) continue;
      for (const int o : at(i).operands) is_reduced_[i] = is_reduced_[i] != 0 || (is_reduced_[o] != 0 && !is_split(o));
    }
    for (int i = static_cast<int>(count); i-- > 0;)
      if (is_split(i) || is_source_[i] != 0 || is_used_[i] != 0)
        for (const int o : at(i).operands) is_used_[o] = 1;
  }

  /// Decides about the update of a weight and of its states. Returns false if mark number `k` belongs to no weight.
  constexpr bool look_at_weight(int k) {
    const int m = marks_[k];
    const int input = before(m), next = updated_value(at(m).operands[0]);
    auto mark = update_mark::of(at(m));
    if (mark.outcome != update_outcome::not_asked || is_used_[input] == 0 || is_split(input)) return false;
    if (is_reduced_[next] == 0 || is_split(next)) return false;
    const group with = group_of(k, next);
    mark.weight = mark.input;
    decide(mark, with, input, next);
    if (mark.outcome == update_outcome::split) {
      node& n = at(next);
      n.annotated = true;
      n.annotation = cut(layouts_[next], mark.dim);
      for (int i = at(m).operands[0]; i != next; i = at(i).operands[0])
        at(i).allow_replication = true;  // a view of the gathered value
      if (with.is_any_unlike) pass_on_cut(k, next, mark.dim);
      for (const int s : with.states)
        if (const int dim = dim_of_state(s, next, mark.dim); dim >= 0) split_state(s, mark, dim);
    }
    mark.keep(at(m));
    return true;
  }
  /// Returns the value that is cut: the new weight, or the value that it is a view of (optimizer/reformatted.hpp), if
  /// that has smaller parts. A new weight that is also the next value of a state is cut before its mark (floats of
  /// wide parameters, optimizer/master_weights.hpp).
  [[nodiscard]] constexpr int updated_value(int next) const {
    while (update_mark::is_on(at(next))) next = at(next).operands[0];
    int best = next;
    std::int64_t least = part_of(next);
    for (int i = next; is_operand_reshaped(at(i)) && !at(i).annotated;) {
      i = at(i).operands[0];
      if (const auto part = part_of(i); part < least) best = i, least = part;
    }
    return best;
  }
  [[nodiscard]] constexpr std::int64_t part_of(int i) const {
    const extents& shape = at(i).shape;
    return best_cut(shape, layouts_[i], local_elements(mesh_, shape, layouts_[i])).elems;
  }
  constexpr void decide(update_mark& mark, const group& with, int input, int next) const {
    const extents& shape = at(next).shape;
    const std::int64_t whole = local_elements(mesh_, shape, layouts_[next]);
    const way_to_cut best = best_cut(shape, layouts_[next], whole);
    bool is_forbidden = has_whole_update(at(input));
    for (const int s : with.states) is_forbidden = is_forbidden || has_whole_update(at(before(s)));
    mark.dim = best.dim;
    if (is_forbidden) {
      mark.outcome = update_outcome::kept_by_user;
    } else if (at(next).annotated) {
      mark.outcome = update_outcome::placed_by_user;
    } else if (is_region_result(at(next).op)) {
      mark.outcome = update_outcome::in_body;
    } else if (best.dim < 0) {
      mark.outcome = update_outcome::too_small;
    } else {
      const std::int64_t bytes = bytes_of(at(input).type);  // that are sent
      mark.saved = time_of_update(with, whole) - time_of_update(with, best.elems);
      mark.sent_longer = sent_longer(whole * bytes, best.elems * bytes, with.gather);
      mark.outcome = mark.saved > mark.sent_longer ? update_outcome::split : update_outcome::too_slow;
    }
  }
  /// Returns the dim along which a state is split if the updated value of its weight is cut along `dim`; -1 if none.
  [[nodiscard]] constexpr int dim_of_state(int m, int updated, int dim) {
    const node& state = at(before(m));
    if (state.shape == at(updated).shape) return dim;
    if (const int passed = cut_dim_[before(m)]; passed >= 0) return passed;
    if (elements(state.shape) >= elements(at(updated).shape) || !hangs_on_gradient(m)) return -1;  // no sum
    const sharding& place = layouts_[before(m)];
    const std::int64_t whole = local_elements(mesh_, state.shape, place), bytes = bytes_of(state.type);
    const way_to_cut best = best_cut(state.shape, place, whole);
    group alone;
    alone.bytes = 2 * bytes;
    const bool pays = time_of_update(alone, whole) - time_of_update(alone, best.elems) >
                      sent_longer(whole * bytes, best.elems * bytes, most_picoseconds);
    return pays ? best.dim : -1;
  }
  /// Returns true if the next value of mark `m` depends on a gradient other than by single numbers.
  [[nodiscard]] constexpr bool hangs_on_gradient(int m) {
    vec<int> open;
    open.push_back(at(m).operands[0]);
    while (!open.empty()) {
      const int i = open.back();
      open.pop_back();
      if (seen_for_[i] == m || is_reduced_[i] == 0 || is_split(i) || elements(at(i).shape) <= 1) continue;
      if (is_source_[i] != 0) return true;
      seen_for_[i] = m;
      for (const int o : at(i).operands) open.push_back(o);
    }
    return false;
  }
  constexpr void split_state(int m, const update_mark& weight, int dim) {
    auto mark = update_mark::of(at(m));
    mark.outcome = update_outcome::split_state;
    mark.weight = weight.input;
    mark.dim = dim;
    mark.keep(at(m));
    node& input = at(before(m));
    annotation place = closed_place(input, layouts_[before(m)]);
    place.layout = cut(place.layout, dim);
    if (!input.annotated) input.state = static_cast<int>(mark.input);
    input.annotated = true;
    input.annotation = place;
  }
  constexpr void look_at_rest(int m) {
    auto mark = update_mark::of(at(m));
    if (mark.outcome != update_outcome::not_asked) return;
    const int next = at(m).operands[0];
    mark.outcome = is_split(before(m))      ? update_outcome::split_before
                   : is_reduced_[next] == 0 ? update_outcome::no_reduction
                                            : update_outcome::other_reader;
    mark.keep(at(m));
  }

  /// Lists the operators of the update of a weight, from its new value back to the reduction and to inputs. Stops at
  /// single numbers, which connect tensors that are updated separately.
  [[nodiscard]] constexpr group group_of(int k, int updated) {
    group found;
    const node& weight = at(updated);
    found.bytes = 3 * bytes_of(weight.type);  // reads its gradient, reads and writes the weight
    const sharding& place = layouts_[updated];
    vec<int> open;
    open.push_back(updated);
    while (!open.empty()) {
      const int i = open.back();
      open.pop_back();
      const node& n = at(i);
      if (visited_[i] == k || is_split(i) || elements(n.shape) <= 1) continue;
      visited_[i] = k;
      cut_dim_[i] = -1;
      const bool is_like = n.shape == weight.shape;
      if (is_source_[i] != 0) {
        found.gather = add_times(found.gather, gather_time_of(n));
        continue;
      }
      if (is_like && facts_of(n.op).made == origin::shards) ++found.operations;
      for (const int o : n.operands) open.push_back(o);
      if (facts_of(n.op).made != origin::given || is_used_[i] != 0 || (is_like && !(layouts_[i] == place))) continue;
      for (const int m : marks_)
        if (before(m) == i && is_reduced_[at(m).operands[0]] != 0 &&
            update_mark::of(at(m)).outcome == update_outcome::not_asked) {
          found.states.push_back(m);
          if (is_like) found.bytes += 2 * bytes_of(n.type);
          else found.is_any_unlike = true;
        }
    }
    return found;
  }
  /// Passes the cut of the new value of weight number `k` back through its group. If several paths lead to a value,
  /// the first one decides.
  constexpr void pass_on_cut(int k, int next, int dim) {
    struct cut_value {
      int node, dim;
    };
    vec<cut_value> open;
    open.push_back({next, dim});
    while (!open.empty()) {
      const auto [i, d] = open.back();
      open.pop_back();
      if (visited_[i] != k || cut_dim_[i] >= 0) continue;
      cut_dim_[i] = d;
      const node& n = at(i);
      if (is_source_[i] != 0 || is_region_result(n.op) || facts_of(n.op).reads(n) == 0) continue;
      op_rule rule;
      rule_of(graph_, n, rule);
      const auto factors = to_factors(mesh_, rule, rule.result(), cut(layouts_[i], d).splits);
      for (int o = 0; o < facts_of(n.op).reads(n); ++o)
        if (const int passed = dim_of_cut(to_dims(mesh_, rule, rule.operand(o), factors)); passed >= 0)
          open.push_back({n.operands[o], passed});
    }
  }
  /// Returns the dim that all of the axes split; -1 if there is no such dim.
  [[nodiscard]] constexpr int dim_of_cut(const inline_vec<axis_use, max_axes>& splits) const {
    axis_mask found = 0;
    int dim = -1;
    for (const auto& use : splits) {
      if ((axes_ & axis_bit(use.axis)) == 0) continue;
      if (dim >= 0 && dim != use.dim) return -1;
      dim = use.dim;
      found |= axis_bit(use.axis);
    }
    return found == axes_ ? dim : -1;
  }

  [[nodiscard]] constexpr sharding cut(sharding s, int dim) const {
    for (int a = 0; a < mesh_.axis_count(); ++a)
      if ((axes_ & axis_bit(a)) != 0) s.add_split(a, dim);
    return s;
  }
  [[nodiscard]] constexpr way_to_cut best_cut(const extents& shape, const sharding& place, std::int64_t whole) const {
    way_to_cut best{-1, whole};
    for (int d = 0; d < shape.count; ++d)
      if (const auto elems = local_elements(mesh_, shape, cut(place, d)); elems < best.elems) best = {d, elems};
    return best;
  }
  [[nodiscard]] constexpr std::int64_t time_of_update(const group& with, std::int64_t elems) const {
    return net_.time_of({saturating_multiply(elems, with.operations), saturating_multiply(elems, with.bytes)});
  }
  /// Returns the time to gather the operands of a reduction. If that is less, each device computes the gradient of all
  /// examples.
  [[nodiscard]] constexpr std::int64_t gather_time_of(const node& n) const {
    std::int64_t time = 0;
    for (int k = 0; k < facts_of(n.op).reads(n); ++k) {
      const int o = n.operands[k];
      if (!is_split(o)) continue;
      const auto bytes = saturating_multiply(local_elements(mesh_, at(o).shape, layouts_[o]), bytes_of(at(o).type));
      time = add_times(time, time_to(collective_kind::all_gather, bytes));
    }
    return time == 0 ? most_picoseconds : time;
  }
  /// Returns the time of a collective that moves `part` bytes for each other device.
  [[nodiscard]] constexpr std::int64_t time_to(collective_kind kind, std::int64_t part) const {
    return time_of_collective(mesh_, net_, kind, axes_, saturating_multiply(mesh_.size_of(axes_) - 1, part));
  }
  [[nodiscard]] constexpr std::int64_t sent_longer(std::int64_t whole, std::int64_t part, std::int64_t gather) const {
    const auto devices = mesh_.size_of(axes_);
    const auto sum =
        time_of_collective(mesh_, net_, collective_kind::all_reduce, axes_, share_of(2 * whole, devices - 1, devices));
    const auto scattered = time_to(collective_kind::reduce_scatter, part);
    const auto now = sum < gather ? sum : gather;
    const auto then = add_times(scattered < gather ? scattered : gather, time_to(collective_kind::all_gather, part));
    return then > now ? then - now : 0;
  }

  constexpr void fail() {
    bool are_split = true;
    for (const int m : marks_) are_split = are_split && is_split(before(m));
    text what;
    what << (are_split ? "all that is carried is split over "
                       : "nothing that is carried is a weight whose update reads a reduction over ")
         << axes_text(*graph_.mesh, axes_)
         << (are_split ? " already; leave the pass out" : "; split the examples over it, or leave the pass out");
    graph_.fail({}, "shard_weight_update", mistake::other, what);
  }

  graph& graph_;
  const mesh_shape& mesh_;
  const network_rates& net_;
  const vec<sharding>& layouts_;
  axis_mask axes_ = 0;
  vec<int> marks_;                // nodes
  vec<int> visited_;              // by node: the last group for which it was visited
  vec<int> cut_dim_;              // by node of that group: the dim along which the cut of the new weight splits it; -1: none
  vec<int> seen_for_;             // by node: the last mark for which hangs_on_gradient visited it
  vec<std::uint8_t> is_source_;   // by node: it reduces over the axes
  vec<std::uint8_t> is_reduced_;  // depends on these reductions, and is equal on all devices
  vec<std::uint8_t> is_used_;     // read before the update: by a split value or by a reduction
};

/// Gives the next values of inputs the shardings of their inputs. First decides about the updates that are to be split.
/// An axis of one device splits nothing.
struct place_carried_pass : plain_pass {
  static constexpr const char* name = "place carried";
  static constexpr pass_position position = pass_position::completed;
  static constexpr bool applies(const graph& g) { return has_open_marks(g.nodes, g.inputs, g.outputs); }
  static constexpr node_order run(graph& g, const vec<sharding>& shardings) {
    axis_mask asked = 0;
    for (const node& n : g.nodes)
      if (update_mark::is_on(n)) asked |= update_mark::of(n).axes;
    if (g.mesh->shape.size_of(asked) > 1) weight_updates(g, shardings).run();
    if (!g.failed()) place_next_values(g, shardings);
    return node_order::kept;
  }
};

}  // namespace gspmd::detail

#if defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/passes/carried/weight_updates_instances.ipp"
#endif
