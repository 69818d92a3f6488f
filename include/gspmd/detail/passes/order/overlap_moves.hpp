// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/passes/order/memory_use.hpp"
#include "gspmd/detail/passes/order/overlap_started.hpp"
#include "gspmd/detail/support/tuning.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Joins the exchanges of margins with the same neighbours, and lets loops compute during the exchange. The memory of
/// the plan must be placed:
///
///   move m, move n, loop reading u, v, m and n      ->      start_move m and n, interior of the loop, finish_move m
///                                                           and n, boundary
///
/// Exchanges are joined if no step needs the first margins before the last margins are fetched. They then share
/// messages, and small loops wait only once. An exchange that other work hides is not joined (overlap_started.hpp).
/// The loop must be the first step that reads the margins, and must read the values that the margins surround. No body
/// may begin or end between the exchange and the loop.
///
/// The steps for interior and boundary have the operands and results of the loop, each over other indices. So all
/// values stay where they are, and the loop may still work in place. A loop is not split if its interior has fewer
/// than `least` elements, or if it reduces its elements in order.
class move_overlapper {
 public:
  constexpr move_overlapper(plan& p, std::int64_t least) : plan_(p), least_(least) {}

  constexpr void run() {
    list_readers();
    if (join()) list_readers();
    for (int i = 0; i < count(); ++i)
      if (facts_of(plan_.steps[i]).role == step_role::fuses_operators) split(i);
    if (loops_.empty()) return;
    insert_steps();
  }

 private:
  struct overlapped_loop {
    int step = 0, inner = 0, rim = 0;  // a step, and two groups
    vec<int> moves;                    // steps
  };

  [[nodiscard]] constexpr int count() const { return static_cast<int>(plan_.steps.size()); }
  [[nodiscard]] constexpr int operand(const plan_step& s, int k) const { return plan_.slots[s.operands.begin + k]; }
  [[nodiscard]] constexpr int result(const plan_step& s, int k) const { return plan_.slots[s.results.begin + k]; }

  constexpr void list_readers() {
    first_reader_ = vec<int>(plan_.values.size(), -1);
    last_reader_ = maker_ = first_reader_;
    finished_at_ = vec<int>(plan_.steps.size(), 0);
    bodies_before_ = vec<int>(plan_.steps.size(), 0);
    int bodies = 0;
    for (int i = 0; i < count(); ++i) {
      const auto& s = plan_.steps[i];
      bodies_before_[i] = bodies += facts_of(s).role >= step_role::hands_on ? 1 : 0;
      for (int k = 0; k < s.operands.count; ++k) {
        const int v = operand(s, k);
        if (first_reader_[v] < 0) first_reader_[v] = i;
        last_reader_[v] = i;
      }
      for (int k = 0; k < s.results.count; ++k) maker_[result(s, k)] = i;
    }
  }
  /// Returns true if a step fetches margins from other devices.
  [[nodiscard]] constexpr bool brings_margins(const plan_step& s) const {
    return s.bytes_sent > 0 && s.operands.count == s.results.count && detail::brings_margins(plan_, s);
  }
  /// Returns the step that fetches operand k of step i from other devices, if step i can compute concurrently with it;
  /// -1 otherwise.
  [[nodiscard]] constexpr int movement_to(int i, int k) const {
    const int m = maker_[operand(plan_.steps[i], k)];
    if (m < 0 || m >= i || !brings_margins(plan_.steps[m])) return -1;
    const auto& s = plan_.steps[m];
    for (int r = 0; r < s.results.count; ++r)
      if (first_reader_[result(s, r)] < i || !stays(i, m, operand(s, r))) return -1;
    return m;
  }
  /// Returns true if the operand `value` of movement m is unchanged until step i is done, and no body begins or ends
  /// between them. A value that is still to be read is not overwritten. Step i, the first user of the margins, does
  /// not overwrite an operand that it reads at offsets.
  [[nodiscard]] constexpr bool stays(int i, int m, int value) const {
    return bodies_before_[m] == bodies_before_[i] && last_reader_[value] >= i;
  }
  /// The devices that margins are fetched from.
  struct neighbours {
    dtype type;
    axis_mask axes;
    inline_vec<std::int8_t, max_axes> in_order;  // the axes of the dim, major to minor

    friend constexpr bool operator==(const neighbours&, const neighbours&) = default;
  };
  /// Movements that can be joined, in their order.
  struct joint_margins {
    neighbours from;
    vec<int> moves;
    int results = 0;
  };
  /// Joins exchanges of margins over the same axes into one step, in place of the last exchange. Returns true if any
  /// were joined.
  constexpr bool join() {
    vec<int> into(plan_.steps.size(), -1);  // by step: the step into which it is joined
    vec<joint_margins> open;
    bool any = false;
    const auto close = [&](std::size_t k) {
      const vec<int>& moves = open[k].moves;
      if (moves.size() > 1) {
        any = true;
        for (const int m : moves) into[m] = moves.back();
        become_one(moves);
      }
      open[k] = open.back();
      open.pop_back();
    };
    for (int i = 0; i < count(); ++i) {
      const plan_step s = plan_.steps[i];
      for (std::size_t k = open.size(); k-- > 0;)
        if (facts_of(s).role >= step_role::hands_on || needs(s, open[k].moves)) close(k);
      if (!brings_margins(s) || goes_on_beside_work(i)) continue;
      const neighbours from = neighbours_of(s);
      std::size_t k = 0;
      while (k < open.size() && !(open[k].from == from)) ++k;
      if (k < open.size() && open[k].results + s.results.count > most_moved_together) {
        close(k);
        k = open.size();
      }
      if (k == open.size()) open.push_back({from, {}});
      open[k].moves.push_back(i);
      open[k].results += s.results.count;
    }
    while (!open.empty()) close(open.size() - 1);
    if (!any) return false;
    vec<plan_step> steps;
    vec<int> place;
    for (int i = 0; i < count(); ++i) {
      place.push_back(static_cast<int>(steps.size()));
      if (into[i] < 0 || into[i] == i) steps.push_back(plan_.steps[i]);
    }
    for (auto& s : steps)
      if (s.target >= 0) s.target = place[s.target];
    for (auto& v : plan_.values)
      if (v.step >= 0) v.step = place[into[v.step] < 0 ? v.step : into[v.step]];
    plan_.steps = std::move(steps);
    return true;
  }
  /// Returns true if step `i` is started, and work other than the loop that reads its result hides it.
  [[nodiscard]] constexpr bool goes_on_beside_work(int i) const {
    if (!is_started(plan_, plan_.steps[i]) || !brings_whole_shards(plan_, plan_.steps[i])) return false;
    for (int next = i + 1; next < first_reader_[result(plan_.steps[i], 0)]; ++next)
      if (facts_of(plan_.steps[next]).work == step_work::computes) return true;
    return false;
  }
  /// Returns true if a step reads results of movements, or writes to their operands.
  [[nodiscard]] constexpr bool needs(const plan_step& s, const vec<int>& moves) const {
    for (const int m : moves)
      for (int k = 0; k < plan_.steps[m].results.count; ++k) {
        for (int own = 0; own < s.operands.count; ++own)
          if (operand(s, own) == result(plan_.steps[m], k)) return true;
        if (writes(plan_, s, plan_.values[operand(plan_.steps[m], k)])) return true;
      }
    return false;
  }
  [[nodiscard]] constexpr neighbours neighbours_of(const plan_step& s) const {
    const auto &from = plan_.values[operand(s, 0)], &to = plan_.values[result(s, 0)];
    const index_map& map = table_of<index_map>(plan_)[s.spec];
    neighbours found{s.type, traffic_of(plan_.mesh, from.global, to.global, from.layout, map).axes, {}};
    for (const auto& use : from.layout.splits)
      if (use.dim == map.dims[0].dim) found.in_order.push_back(use.axis);
    return found;
  }
  constexpr void become_one(const vec<int>& all) {
    auto& maps = table_of<index_map>(plan_);
    const int spec = static_cast<int>(maps.size());
    vec<int> from, to;
    std::int64_t bytes = 0;
    for (const int m : all) {
      const plan_step s = plan_.steps[m];
      for (int k = 0; k < s.results.count; ++k) {
        from.push_back(operand(s, k));
        to.push_back(result(s, k));
        const index_map map = maps[s.spec + k];
        maps.push_back(map);
      }
      bytes += s.bytes_sent;
    }
    auto& s = plan_.steps[all.back()];
    const auto add_step = [&s](kernel_id kernel, int first_map) {
      s.kernel = kernel;
      s.spec = first_map;
    };
    add_step(id_of<kernels::move_together>, spec);
    s.bytes_sent = bytes;
    for (auto* const list : {&from, &to}) {
      auto& range = list == &from ? s.operands : s.results;
      range = {static_cast<int>(plan_.slots.size()), static_cast<int>(list->size())};
      for (const int v : *list) plan_.slots.push_back(v);
    }
  }

  constexpr void split(int i) {
    const planned_group group = table_of<planned_group>(plan_)[plan_.steps[i].spec];
    overlapped_loop made{i, 0, 0, {}};
    vec<std::uint8_t> is_late(static_cast<std::size_t>(plan_.steps[i].operands.count), 0);
    for (int k = 0; k < plan_.steps[i].operands.count; ++k) {
      const int m = group.margins.count == 0 || group.reductions.count > 0 ? -1 : movement_to(i, k);
      if (m < 0) continue;
      is_late[k] = 1;
      bool is_known = false;
      for (const int known : made.moves) is_known = is_known || known == m;
      if (!is_known) made.moves.push_back(m);
    }
    if (made.moves.empty()) return;
    inner_part part;
    if (!find_part(group, is_late, part)) return;
    const auto inner = elements(inner_box(part, group.loop).size());
    if (inner < least_ || inner == 0) return;
    auto& groups = table_of<planned_group>(plan_);
    auto& parts = table_of<inner_part>(plan_);
    made.inner = static_cast<int>(groups.size());
    made.rim = made.inner + 1;
    for (const bool is_rim : {false, true}) {
      groups.push_back(group);
      groups.back().part = static_cast<int>(parts.size());
      groups.back().is_rim = is_rim;
    }
    parts.push_back(part);
    for (const int m : made.moves) finished_at_[m] = 1;
    loops_.push_back(std::move(made));
  }

  /// Finds the part of a group's loop that needs no late operands. Returns false if too many dims would have
  /// to be cut.
  [[nodiscard]] constexpr bool find_part(const planned_group& group, const vec<std::uint8_t>& is_late, inner_part& part) const {
    const auto& ops = table_of<scalar_op>(plan_);
    const auto& margins = table_of<fused_margin>(plan_);
    unsigned set = 0;
    int load = -1;
    for (int i = group.margins.begin; i < group.margins.begin + group.margins.count; ++i) {
      const auto& margin = margins[i];
      set = margin.op == load ? set + 1 : 1;
      load = margin.op;
      if (is_late[margin.slot] == 0) continue;
      const auto& offsets = ops[group.ops.begin + load].offsets;
      for (int k = 0; k < offsets.count; ++k) {
        if ((set >> k & 1U) == 0) continue;
        if (!part.need(offsets[k].dim, offsets[k].by)) return false;
        if (offsets[k].dim > 0) part.most_elems = most_overlapped_rows_elems;
      }
    }
    return part.sides.count > 0;
  }

  constexpr void insert_steps() {
    vec<plan_step> steps;
    vec<int> place;  // by old step
    place.resize(plan_.steps.size(), 0);
    steps.reserve(plan_.steps.size() + 3 * loops_.size());
    const auto add_step = [&](kernel_id kernel, plan_step s, int spec) {
      s.kernel = kernel;
      s.spec = spec;
      steps.push_back(s);
    };
    std::size_t next = 0;
    for (int i = 0; i < count(); ++i) {
      const plan_step& s = plan_.steps[i];
      place[i] = static_cast<int>(steps.size());
      if (finished_at_[i] != 0) {
        add_step(id_of<kernels::start_move>, s, s.spec);
      } else if (next == loops_.size() || loops_[next].step != i) {
        steps.push_back(s);
      } else {
        const overlapped_loop& loop = loops_[next++];
        add_step(id_of<kernels::fused>, s, loop.inner);
        for (const int m : loop.moves) {
          finished_at_[m] = static_cast<int>(steps.size());
          add_step(id_of<kernels::finish_move>, plan_.steps[m], plan_.steps[m].spec);
          steps.back().bytes_sent = 0;
        }
        add_step(id_of<kernels::fused>, s, loop.rim);
      }
    }
    for (auto& s : steps)
      if (s.target >= 0) s.target = place[s.target];
    for (const auto& loop : loops_)
      for (const int m : loop.moves) steps[place[m]].target = finished_at_[m];
    for (auto& v : plan_.values)
      if (v.step >= 0) v.step = place[v.step];
    plan_.steps = std::move(steps);
  }

  plan& plan_;
  std::int64_t least_;
  vec<int> first_reader_, last_reader_, maker_;  // by value: steps; -1: none
  vec<int> finished_at_;                         // by step: nonzero for a movement that is started
  vec<int> bodies_before_;                       // by step: the number of steps up to it that begin or end a body
  vec<overlapped_loop> loops_;
};

constexpr void overlap_moves(plan& p, std::int64_t least = least_overlapped_elems) {
  if (p.is_checked) return;  // a checked program sends nothing between the two steps
  if (!table_of<fused_margin>(p).empty()) move_overlapper(p, least).run();
}

}  // namespace gspmd::detail
