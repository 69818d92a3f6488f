// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "gspmd/detail/passes/emit/lazy_ops.hpp"
#include "gspmd/detail/support/tuning.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Joins small collectives of equal kind over the same axes (Xu et al. 2020, 5.2; XLA: AllReduceCombiner,
/// AllGatherCombiner).
///
///   a = all_reduce(p); b = all_reduce(q); c = f(a); d = g(b)    ->    a, b = all_reduce(p, q); c = f(a); d = g(b)
///   a = all_gather(p); c = f(a); b = all_gather(q); d = g(b)    ->    a, b = all_gather(p, q); c = f(a); d = g(b)
///   In the second line, q is an input.
///
/// 1. A collective whose operand and result have at most most_joined_bytes waits in the group of its kind, axes,
///    element type and monoid. Groups are formed within a stretch: the part of the program between two ends of loops,
///    branches and bodies.
/// 2. Elementwise operators, broadcasts and reshapes of waiting values wait too; the scheduler would delay them
///    anyway. Small collectives of waiting values wait in another group afterwards: T weights are updated by one
///    reduce_scatter and one all_gather.
/// 3. A group is released by the first other operator that reads a waiting value, by the end of the stretch, or if it
///    is full. In the first case, later collectives of the stretch are added whose operands existed before the
///    stretch. The collectives become consecutive (instruction::joined). The operators that waited only for them
///    follow.
///
/// Joining sends the same bytes in fewer messages, keeps all shardings, and combines all elements in the same order.
/// An all_reduce is side by side if it is the only user of a value that this stretch computes. The memory planner
/// stores the operands of such all_reduces contiguously, and their results too, so that they are one collective. Other
/// joined collectives send each part from the place of its operand to the place of its result. Each message may hold
/// up to most_joined_bytes_in_all more on a device.
class collective_joiner {
 public:
  constexpr collective_joiner(const graph& g, const mesh_shape& mesh, int saving, local_program& p)
      : graph_(g), mesh_(mesh), saving_(saving), program_(p) {}

  constexpr void run() {
    if (std::count_if(program_.ops.begin(), program_.ops.end(), [this](const auto& op) { return is_small(op); }) < 2) return;
    const auto count = program_.values.size();
    maker_.resize(count, -1);
    uses_.resize(count, 0);
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      const auto& op = program_.ops[i];
      if (op.result >= 0) maker_[op.result] = static_cast<int>(i);
      for (const int v : op.further_results) maker_[v] = static_cast<int>(i);
      for (const int o : op.operands) ++uses_[o];
    }
    for (const int o : program_.outputs) ++uses_[o];
    group_of_.resize(program_.ops.size(), -1);
    if (saving_ == 0) list_ready();
    walk(false);
    if (std::any_of(sizes_.begin(), sizes_.end(), [](int size) { return size > 1; })) walk(true);
  }

 private:
  static constexpr int most_groups = 64;  // that wait at the same time: bits of a word

  /// The kind of a collective. Collectives of one kind can share a message.
  struct kind_of {
    collective_kind collective = collective_kind::all_reduce;
    bool side_by_side = false;
    axis_mask axes = 0;
    dtype type = dtype::f32;
    monoid reduced_by = monoid::add;
    friend constexpr bool operator==(const kind_of&, const kind_of&) = default;
  };
  struct group {
    bool is_open = false;
    bool is_closing = false;  // its collectives are released; their followers are being released, in the order of the program
    kind_of kind;
    std::int64_t bytes = 0;
    int number = 0;
    vec<int> members;
    vec<int> followers;  // operators that wait for this group first of all, in order
  };

  [[nodiscard]] constexpr std::int64_t size_of(int v) const {
    return elements(program_.value(v).local) * bytes_of(program_.value(v).type);
  }
  /// Returns the larger of the bytes of the operand and the bytes of the result.
  [[nodiscard]] constexpr std::int64_t size_of(const instruction& op) const {
    return std::max(size_of(op.operands[0]), size_of(op.result));
  }
  [[nodiscard]] constexpr bool is_small(const instruction& op) const {
    if ((op.what != instruction_kind::reduce && op.what != instruction_kind::move) || op.forced || mesh_.size_of(op.axes) == 1)
      return false;
    if ((graph_.nodes[static_cast<std::size_t>(op.node)].local_axes & op.axes) != 0) return false;  // written by a manual region
    if (saving_ > 0 && op.collective != collective_kind::all_reduce) return false;  // waiting values are held longer
    const auto bytes = size_of(op);
    return bytes > 0 && bytes <= most_joined_bytes;
  }
  [[nodiscard]] constexpr kind_of kind(const instruction& op) const {
    const auto& from = program_.value(op.operands[0]);
    if (op.what == instruction_kind::move) return {op.collective, false, op.axes, from.type, monoid::add};
    return {op.collective, may_lie_anywhere(op), op.axes, from.type, from.layout.reduced_by};
  }

  /// Returns true if this stretch computes the operand of an all_reduce and the all_reduce is its only user. Then the
  /// operand's memory can be chosen freely, and overwritten.
  [[nodiscard]] constexpr bool may_lie_anywhere(const instruction& op) const {
    if (op.collective != collective_kind::all_reduce) return false;
    int v = op.operands[0];
    for (;;) {
      const int i = maker_[v];
      if (i < stretch_ || uses_[v] != 1) return false;
      const auto& made = program_.ops[i];
      if (!is_alias(graph_, mesh_, program_, made))
        return made.what != instruction_kind::control && made.what != instruction_kind::copy &&
               !(made.what == instruction_kind::reduce && made.collective == collective_kind::all_reduce);
      v = made.operands[0];
    }
  }

  [[nodiscard]] static constexpr bool ends_stretch(const instruction& op) {
    return op.what == instruction_kind::control || op.what == instruction_kind::copy;
  }
  /// Lists the small collectives whose operands exist when their stretch begins.
  constexpr void list_ready() {
    int stretch = 0;
    for (int i = 0; i < static_cast<int>(program_.ops.size()); ++i) {
      const auto& op = program_.ops[i];
      if (ends_stretch(op)) stretch = i + 1;
      else if (is_small(op) && maker_[before_borders(op.operands[0])] < stretch) ready_.push_back(i);
    }
  }
  /// Returns the value before it crossed the borders of manual regions, which do nothing.
  [[nodiscard]] constexpr int before_borders(int v) const {
    const int i = maker_[v];
    const bool is_border = i >= 0 && program_.ops[i].what == instruction_kind::compute &&
                           facts_of(graph_.nodes[static_cast<std::size_t>(program_.ops[i].node)].op).made == origin::viewed;
    return is_border ? before_borders(program_.ops[i].operands[0]) : v;
  }
  /// Adds the borders that a value crosses, if they are not added yet.
  constexpr void put_borders(int v, int at) {
    if (v == before_borders(v) || maker_[v] < at || is_taken_[maker_[v]] != 0) return;
    put_borders(program_.ops[maker_[v]].operands[0], at);
    is_taken_[maker_[v]] = 1;
    put(maker_[v]);
  }
  /// Adds collectives after `at` in this stretch to the groups that are being released.
  constexpr void take_along(std::uint64_t groups, int at) {
    if (end_of_stretch_ <= at)
      for (end_of_stretch_ = at;
           end_of_stretch_ < static_cast<int>(program_.ops.size()) && !ends_stretch(program_.ops[end_of_stretch_]);)
        ++end_of_stretch_;
    while (first_ready_ < static_cast<int>(ready_.size()) && (ready_[first_ready_] < at || is_taken_[ready_[first_ready_]] != 0))
      ++first_ready_;
    for (int r = first_ready_; r < static_cast<int>(ready_.size()) && ready_[r] < end_of_stretch_; ++r) {
      const int i = ready_[r];
      if (is_taken_[i] != 0 || (moves_ && !is_grouped(i))) continue;
      const kind_of k = kind(program_.ops[i]);
      const auto bytes = size_of(program_.ops[i]);
      for (int g = 0; g < static_cast<int>(groups_.size()) && is_taken_[i] == 0; ++g)
        if ((groups >> g & 1U) != 0 && can_take(groups_[g], k) && has_room(groups_[g], bytes)) {
          put_borders(program_.ops[i].operands[0], at);
          is_taken_[i] = 1;
          add_to(g, i, bytes);
        }
    }
  }

  /// Visits the operators in order. The first visit numbers the groups. The second visit moves the groups with several
  /// members.
  constexpr void walk(bool moves) {
    moves_ = moves;
    waits_for_.clear();
    waits_for_.resize(program_.values.size(), 0);
    is_taken_.clear();
    is_taken_.resize(program_.ops.size(), 0);
    first_ready_ = 0;
    stretch_ = 0;
    end_of_stretch_ = 0;
    if (moves_) order_.reserve(program_.ops.size());
    for (int i = 0; i < static_cast<int>(program_.ops.size()); ++i) {
      const auto& op = program_.ops[i];
      if (is_taken_[i] != 0) continue;
      if (ends_stretch(op)) {
        let_all_go();
        put(i);
        stretch_ = i + 1;
        continue;
      }
      const bool is_put_off = is_lazy(graph_, op) || is_alias(graph_, mesh_, program_, op);
      if (is_put_off || is_small(op)) {
        release(i);
        continue;
      }
      for (auto waits = waits_of(op); waits != 0; waits = waits_of(op)) {
        if (!ready_.empty()) take_along(waits, i);
        let_go(waits);
      }
      put(i);
    }
    let_all_go();
    if (!moves_) return;
    vec<instruction> ops;
    ops.reserve(order_.size());
    for (const int i : order_) ops.push_back(program_.ops[i]);
    program_.ops = std::move(ops);
  }

  constexpr void put(int i) {
    if (moves_) order_.push_back(i);
  }
  /// Returns the groups that must be released before an operator.
  [[nodiscard]] constexpr std::uint64_t waits_of(const instruction& op) const {
    std::uint64_t waits = 0;
    for (const int o : op.operands) waits |= waits_for_[o];
    return waits;
  }
  /// Lets an operator follow the groups for which it waits. If it waits for no group, a collective may join a group.
  constexpr void release(int i) {
    const auto waits = waits_of(program_.ops[i]);
    waits_for_[program_.ops[i].result] = waits;
    if (waits != 0) groups_[std::countr_zero(waits)].followers.push_back(i);
    else if (moves_ ? is_grouped(i) : is_small(program_.ops[i])) join(i);
    else put(i);
  }

  constexpr void join(int i) {
    const auto& op = program_.ops[i];
    const kind_of k = kind(op);
    const auto bytes = size_of(op);
    int place = -1;
    for (int g = 0; g < static_cast<int>(groups_.size()); ++g)
      if (can_take(groups_[g], k)) place = g;
    // A group without room is released now. Its users may be collectives that open another group of the kind: look
    // again.
    if (place >= 0 && !has_room(groups_[place], bytes)) {
      let_go(std::uint64_t{1} << place);
      place = -1;
    }
    if (place < 0) {
      place = open_group();
      if (place < 0) return put(i);
      auto& g = groups_[place];
      g.is_open = true;
      g.kind = k;
      g.bytes = 0;
      g.number = static_cast<int>(sizes_.size());
      if (!moves_) sizes_.push_back(0);
    }
    add_to(place, i, bytes);
    waits_for_[op.result] = std::uint64_t{1} << place;
  }
  constexpr void add_to(int place, int i, std::int64_t bytes) {
    auto& g = groups_[place];
    g.bytes += bytes;
    g.members.push_back(i);
    if (moves_) return;
    group_of_[i] = g.number;
    ++sizes_[g.number];
  }
  [[nodiscard]] constexpr bool is_grouped(int i) const { return group_of_[i] >= 0 && sizes_[group_of_[i]] > 1; }
  [[nodiscard]] static constexpr bool has_room(const group& g, std::int64_t bytes) {
    return g.bytes + bytes <= most_joined_bytes_in_all &&
           (g.kind.side_by_side || static_cast<int>(g.members.size()) < most_moved_together);
  }
  [[nodiscard]] static constexpr bool can_take(const group& g, const kind_of& k) {
    return g.is_open && !g.is_closing && g.kind == k;
  }
  /// Returns the index of a new group; -1 if all groups are being released.
  constexpr int open_group() {
    for (int g = 0; g < static_cast<int>(groups_.size()); ++g)
      if (!groups_[g].is_open) return g;
    if (static_cast<int>(groups_.size()) < most_groups) {
      groups_.push_back({});
      return static_cast<int>(groups_.size()) - 1;
    }
    for (int g = 0; g < most_groups; ++g) {
      if (groups_[g].is_closing) continue;
      let_go(std::uint64_t{1} << g);
      return open_group();
    }
    return -1;
  }

  constexpr void let_go(std::uint64_t which) {
    for (int k = 0; which != 0 && k < static_cast<int>(groups_.size()); ++k) {
      if ((which >> k & 1U) == 0 || !groups_[k].is_open || groups_[k].is_closing) continue;
      groups_[k].is_closing = true;
      const vec<int> members = std::move(groups_[k].members);
      groups_[k].members = {};
      for (const int m : members) {
        if (moves_) {
          program_.ops[m].joined = m != members.front();
          program_.ops[m].side_by_side = groups_[k].kind.side_by_side;
        }
        put(m);
        waits_for_[program_.ops[m].result] = 0;
      }
      vec<int> followers;
      for (std::size_t next = 0; take_followers(k, followers, next); ++next) {
        const int f = followers[next];
        release(f);
      }
      groups_[k].is_open = groups_[k].is_closing = false;
    }
  }
  /// Appends the operators that wait for group k to the list and sorts the list from `next` on in the order of the
  /// program. So an operator that was added to this group late is placed before its users. Returns false if no
  /// operator is left.
  constexpr bool take_followers(int k, vec<int>& list, std::size_t next) {
    const vec<int> more = std::move(groups_[k].followers);
    groups_[k].followers = {};
    bool is_sorted = true;
    for (const int f : more) {
      is_sorted = is_sorted && (list.size() <= next || list.back() < f);
      list.push_back(f);
    }
    if (!is_sorted) std::sort(list.begin() + static_cast<std::ptrdiff_t>(next), list.end());
    return next < list.size();
  }
  constexpr void let_all_go() {
    do let_go(~std::uint64_t{0});
    while (std::any_of(groups_.begin(), groups_.end(), [](const group& g) { return g.is_open; }));
  }

  const graph& graph_;
  const mesh_shape& mesh_;
  int saving_;
  local_program& program_;
  vec<int> maker_;                // by value: the operator that computes it; -1: an input
  vec<int> uses_;                 // by value
  vec<int> group_of_;             // by operator: the number of its group; -1: none
  vec<int> sizes_;                // by number of the group
  vec<group> groups_;             // that wait, at most most_groups at the same time
  vec<std::uint64_t> waits_for_;  // by value: the groups for which it waits
  vec<int> order_;
  vec<int> ready_;              // small collectives whose operands exist when their stretch begins, in order
  int first_ready_ = 0;         // the first one that can still be added to a group
  vec<std::uint8_t> is_taken_;  // by operator: added to an earlier group
  int stretch_ = 0;             // the start of the stretch
  int end_of_stretch_ = 0;      // the end of the stretch, if known
  bool moves_ = false;
};

}  // namespace gspmd::detail
