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

/// Small collectives of one kind over the same axes become one (Xu et al. 2020, 5.2; XLA: AllReduceCombiner, AllGatherCombiner).
///
///   a = all_reduce(p); b = all_reduce(q); c = f(a); d = g(b)    ->    a, b = all_reduce(p, q); c = f(a); d = g(b)
///   a = all_gather(p); c = f(a); b = all_gather(q); d = g(b)    ->    a, b = all_gather(p, q); c = f(a); d = g(b)     q is an input
///
/// 1. A collective whose operand and result have at most most_joined_bytes waits in the group of its kind, axes, element type and
///    monoid. A stretch of the program lies between two ends of loops, branches and bodies.
/// 2. Elementwise operators, broadcasts and reshapes that read what waits wait too: the scheduler would put them off anyway. So do
///    small collectives, which wait in a group of their own afterwards: T weights are updated by one reduce_scatter and one all_gather.
/// 3. The first other operator that reads what waits, the end of the stretch and a full group let the group go. In the first case
///    those that stand behind it in the stretch, of operands that were there before the stretch, go along. The collectives stand one
///    after the other (instruction::joined), then follows what waited for them alone.
///
/// The same bytes are sent in fewer messages, every value keeps its sharding, and every element is combined in the same order.
/// all_reduces that alone read what this stretch computes are side by side: the memory planner lays their operands, and their results,
/// one after the other, so that they are one collective. Of the others each part goes to its place from its place. A device may hold
/// up to most_joined_bytes_in_all more for each such message.
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
  static constexpr int most_groups = 64;  // that wait at once: bits of a word

  /// Those of one kind: all can be in one message.
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
    bool is_closing = false;  // its collectives went; what waited for it goes now, in the order of the program
    kind_of kind;
    std::int64_t bytes = 0;
    int number = 0;
    vec<int> members;
    vec<int> followers;  // what waits for this group first of all, in order
  };

  [[nodiscard]] constexpr std::int64_t size_of(int v) const {
    return elements(program_.value(v).local) * bytes_of(program_.value(v).type);
  }
  /// Returns the bytes of its operand or its result, whichever are more.
  [[nodiscard]] constexpr std::int64_t size_of(const instruction& op) const {
    return std::max(size_of(op.operands[0]), size_of(op.result));
  }
  [[nodiscard]] constexpr bool is_small(const instruction& op) const {
    if ((op.what != instruction_kind::reduce && op.what != instruction_kind::move) || op.forced || mesh_.size_of(op.axes) == 1)
      return false;
    if ((graph_.nodes[static_cast<std::size_t>(op.node)].local_axes & op.axes) != 0) return false;  // written as it is
    if (saving_ > 0 && op.collective != collective_kind::all_reduce) return false;                  // what waits is held longer
    const auto bytes = size_of(op);
    return bytes > 0 && bytes <= most_joined_bytes;
  }
  [[nodiscard]] constexpr kind_of kind(const instruction& op) const {
    const auto& from = program_.value(op.operands[0]);
    if (op.what == instruction_kind::move) return {op.collective, false, op.axes, from.type, monoid::add};
    return {op.collective, may_lie_anywhere(op), op.axes, from.type, from.layout.reduced_by};
  }

  /// Whether an all_reduce's operand is made in this stretch for it alone: its memory can be chosen freely, and overwritten.
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
  /// Lists the small collectives whose operands are there when their stretch begins.
  constexpr void list_ready() {
    int stretch = 0;
    for (int i = 0; i < static_cast<int>(program_.ops.size()); ++i) {
      const auto& op = program_.ops[i];
      if (ends_stretch(op)) stretch = i + 1;
      else if (is_small(op) && maker_[before_borders(op.operands[0])] < stretch) ready_.push_back(i);
    }
  }
  /// The value that is this one before it went over the borders of manual regions, which do nothing.
  [[nodiscard]] constexpr int before_borders(int v) const {
    const int i = maker_[v];
    const bool is_border = i >= 0 && program_.ops[i].what == instruction_kind::compute &&
                           facts_of(graph_.nodes[static_cast<std::size_t>(program_.ops[i].node)].op).made == origin::viewed;
    return is_border ? before_borders(program_.ops[i].operands[0]) : v;
  }
  /// Puts the borders through which a value goes, if they do not stand there yet.
  constexpr void put_borders(int v, int at) {
    if (v == before_borders(v) || maker_[v] < at || is_taken_[maker_[v]] != 0) return;
    put_borders(program_.ops[maker_[v]].operands[0], at);
    is_taken_[maker_[v]] = 1;
    put(maker_[v]);
  }
  /// Lets those that stand behind `at` in this stretch go along with groups that are let go.
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

  /// Visits the operators in order: the first time to number the groups, the second to move those of more than one.
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
  /// The groups that must go before an operator.
  [[nodiscard]] constexpr std::uint64_t waits_of(const instruction& op) const {
    std::uint64_t waits = 0;
    for (const int o : op.operands) waits |= waits_for_[o];
    return waits;
  }
  /// It follows the groups that it waits for; where it waits for none, a collective may wait in one.
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
    // A group without room is sent now, and its readers may be what another group of the kind begins with: look again.
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
  /// A place for a new one; -1 if all are being let go.
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
  /// Adds to the list what waits for group k by now, so that from `next` on it is in the order of the program: an operator that went over
  /// to this group late stands before those that read it. False if nothing is left.
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
  vec<int> maker_;                // by value: the op that makes it; -1: an input
  vec<int> uses_;                 // by value
  vec<int> group_of_;             // by op: the number of its group; -1: none
  vec<int> sizes_;                // by number of the group
  vec<group> groups_;             // that wait, at most most_groups at once
  vec<std::uint64_t> waits_for_;  // by value: the groups it needs
  vec<int> order_;
  vec<int> ready_;              // small collectives whose operands are there when their stretch begins, in order
  int first_ready_ = 0;         // of those that may be taken along
  vec<std::uint8_t> is_taken_;  // by op: along with a group that stands before it
  int stretch_ = 0;             // where it begins
  int end_of_stretch_ = 0;      // if that was looked for
  bool moves_ = false;
};

}  // namespace gspmd::detail
