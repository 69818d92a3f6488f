// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include "gspmd/detail/passes/choose/operator_chooser.hpp"

namespace gspmd::detail {

/// Returns every sharding of a value: each axis splits one dim, or none. Two axes that split one dim are listed in both
/// orders, more axes in the order of the mesh. Parts are empty only if `asked` splits the dim by the axis.
constexpr vec<sharding> all_shardings(const mesh_shape& mesh, const extents& shape, const sharding& asked) {
  vec<sharding> list{sharding{}};
  for (int a = 0; a < mesh.axis_count(); ++a) {
    if (mesh.sizes[a] == 1) continue;
    for (std::size_t k = 0, count = list.size(); k < count; ++k)
      for (int d = 0; d < shape.count; ++d) {
        const sharding before = list[k];
        sharding after = before;
        after.add_split(a, d);
        if (parts_of(mesh, after, d) > shape[d] && (asked.axes_of(d) & axis_bit(a)) == 0) continue;
        list.push_back(after);
        int at = 0, axes = 0;
        while (at < before.splits.count && before.splits[at].dim < d) ++at;
        for (int i = at; i < before.splits.count && before.splits[i].dim == d; ++i) ++axes;
        if (axes != 1) continue;
        after = before;
        after.splits.insert(at, axis_use{static_cast<std::int8_t>(a), static_cast<std::int8_t>(d)});
        list.push_back(after);
      }
  }
  return list;
}

/// The axes over which the forms of a value can be partial.
struct partial_form {
  axis_mask axes = 0;
  monoid reduced_by = monoid::add;
  friend constexpr bool operator==(const partial_form&, const partial_form&) = default;
};
using partial_forms = inline_vec<partial_form, 8>;

/// The ways to run one operator, with their own times: its work, its movements, halos and collectives. Reshards of
/// operands and results are not included. Ways with smaller shards are first.
struct operator_ways {
  vec<operator_use> of;
  vec<std::int64_t> times;
};

/// Lists the ways to run the operator of node `i`.
///
/// Input: the axes over which its operands can be partial, by operand. Each axis splits one factor of the rule or none.
/// An operand stays partial if the operator is linear in it. An operator that one movement may replace also has the
/// movements between shardings over the same axes. A way that would make a refused gather is left out, unless no other
/// way exists.
///
///   bd,df->bf on x: replicated; b over x; d over x, the result is partial; f over x
class way_list {
 public:
  static constexpr std::size_t most_ways = 512;

  constexpr way_list(const form_prices& known, int i, const inline_vec<partial_forms, max_map_arity>& operands)
      : known_(known), i_(i), n_(known.at(i)), operands_(operands) {
    rule_of(known.program, n_, rule_);
  }

  [[nodiscard]] constexpr operator_ways run() {
    list_uses();
    add_movements();
    drop_refused();
    return with_times();
  }

 private:
  /// Returns true if an operand or a result should be split along factor `f` by axis `a`.
  [[nodiscard]] constexpr bool is_asked(int a, int f) const {
    const axis_use use{static_cast<std::int8_t>(a), static_cast<std::int8_t>(f)};
    const auto has_use = [&](const tensor_map& map, int node) {
      for (const auto& other : to_factors(known_.mesh, rule_, map, known_.preferred_of(node).splits))
        if (other == use) return true;
      return false;
    };
    for (int k = 0; k < n_.operands.count; ++k)
      if (has_use(rule_.operand(k), n_.operands[k])) return true;
    for (int r = 0; r < n_.results; ++r)
      if (has_use(rule_.result(r), i_ + r)) return true;
    return false;
  }
  constexpr void list_uses() {
    vec<factor_splits> all{factor_splits{}};
    for (int a = 0; a < known_.mesh.axis_count(); ++a) {
      if (known_.mesh.sizes[a] == 1) continue;
      for (std::size_t k = 0, count = all.size(); k < count && all.size() < most_ways; ++k)
        for (int f = 0; f < rule_.factors.count; ++f) {
          if (rule_.factors[f].kind == factor_kind::whole) continue;
          const factor_splits before = all[k];
          int first = 0;
          while (first < before.count && before[first].dim < f) ++first;
          int last = first;
          std::int64_t parts = known_.mesh.sizes[a];
          for (; last < before.count && before[last].dim == f; ++last) parts *= known_.mesh.sizes[before[last].axis];
          if (parts > rule_.factors[f].size && !is_asked(a, f)) continue;
          factor_splits after = before;
          after.insert(last, axis_use{static_cast<std::int8_t>(a), static_cast<std::int8_t>(f)});
          all.push_back(after);
          if (last != first + 1) continue;
          after = before;
          after.insert(first, axis_use{static_cast<std::int8_t>(a), static_cast<std::int8_t>(f)});
          all.push_back(after);
        }
    }
    const use_search search(known_.mesh, known_.net(), rule_, use_search::no_preferences);
    for (const auto& uses : all)
      if (search.legal(uses) == uses) add_with_partial(use_of(known_, n_, rule_, uses, {}));
  }

  /// Adds a way, and the same way with partial operands.
  constexpr void add_with_partial(const operator_use& p) {
    add(p);
    if (divides_whole_sum(known_, i_)) return;
    axis_mask used = 0;
    for (const auto& use : p.uses) used |= axis_bit(use.axis);
    for (int k = 0; k < n_.operands.count; ++k)
      for (const auto& form : operands_[k]) {
        if ((form.axes & (used | p.result.partial)) != 0) continue;
        if (p.result.partial != 0 && p.result.reduced_by != form.reduced_by) continue;
        const auto how = partial_rule_of(n_, k, form.reduced_by);
        if (how == partial_rule::none) continue;
        operator_use partial = p;
        partial.result.partial |= form.axes;
        partial.result.reduced_by = form.reduced_by;
        if (how == partial_rule::any) {
          if (n_.operands.count > 1 && (is_looked_up(known_, n_.operands[k]) || is_read_twice(k))) continue;
          set_partial(partial.wanted[k], form);
        } else {
          bool is_alike = true, is_first = true;
          const auto selectors = facts_of(n_.op).meets(n_, form.reduced_by).selectors;
          for (int o = 0; o < n_.operands.count; ++o) {
            if ((selectors >> o & 1U) != 0) continue;
            is_first = is_first && o >= k;
            is_alike = is_alike && has(operands_[o], form);
            set_partial(partial.wanted[o], form);
          }
          if (!is_alike || !is_first) continue;
        }
        add(partial);
      }
  }
  static constexpr void set_partial(sharding& s, const partial_form& form) {
    s.partial = form.axes;
    s.reduced_by = form.reduced_by;
  }
  static constexpr bool has(const partial_forms& forms, const partial_form& form) {
    for (const auto& other : forms)
      if (other == form) return true;
    return false;
  }
  /// Returns true if another operand is the same value: x * x needs the reduced x.
  [[nodiscard]] constexpr bool is_read_twice(int k) const {
    for (int o = 0; o < n_.operands.count; ++o)
      if (o != k && n_.operands[o] == n_.operands[k]) return true;
    return false;
  }

  /// Adds the movements that may replace the operator, between shardings over the same axes.
  constexpr void add_movements() {
    if (!may_be_moved(known_.program, n_)) return;
    const auto from = all_shardings(known_.mesh, known_.shape_of(n_.operands[0]), known_.preferred_of(n_.operands[0]));
    const auto to = all_shardings(known_.mesh, n_.shape, known_.preferred_of(i_));
    for (const auto& f : from)
      for (const auto& t : to) {
        if (f.split_axes() != t.split_axes() || ways_.size() >= most_ways) continue;
        if (!may_be_moved(known_.program, known_.mesh, n_, f, t)) continue;
        operator_use moved;
        moved.moved = true;
        moved.wanted.push_back(f);
        moved.result = t;
        add(moved);
      }
  }

  constexpr void add(const operator_use& p) {
    for (const auto& other : ways_)
      if (other.result == p.result && other.wanted == p.wanted && (other.moved == p.moved || p.moved)) return;
    ways_.push_back(p);
  }

  /// Leaves out the ways that make whole copies, see operator_chooser.
  constexpr void drop_refused() {
    if (known_.program.allow_replication || n_.allow_replication) return;
    axis_mask held[max_map_arity] = {};
    axis_mask all_held = 0;
    const axis_mask anyway = axes_gathered_anyway(known_, i_);
    for (int k = 0; k < n_.operands.count; ++k) {
      if (must_lose_a_split(known_, n_, rule_, k) || is_looked_into(known_, n_, rule_, k))
        held[k] = known_.preferred_of(n_.operands[k]).split_axes() & ~anyway;
      all_held |= held[k];
    }
    if (all_held == 0) return;
    vec<operator_use> kept;
    for (const auto& p : ways_) {
      bool is_refused = false;
      for (int k = 0; k < n_.operands.count; ++k) is_refused = is_refused || (held[k] & ~p.wanted[k].split_axes()) != 0;
      if (!is_refused) kept.push_back(p);
    }
    if (!kept.empty()) ways_ = std::move(kept);
  }

  [[nodiscard]] constexpr operator_ways with_times() const {
    const operator_prices prices(known_, i_, n_, rule_);
    const work_counter work(known_.program, known_.mesh, known_.uses, i_, rule_, !known_.net().is_named);
    const auto past_begin = [](std::int64_t time) { return time <= picoseconds_to_begin ? 0 : time - picoseconds_to_begin; };
    vec<std::int64_t> elems;  // of all shards of a way, the least first
    vec<int> order;
    for (std::size_t w = 0; w < ways_.size(); ++w) {
      std::int64_t sum = local_elements(known_.mesh, n_.shape, ways_[w].result);
      for (int k = 0; k < n_.operands.count; ++k)
        sum = saturating_add(sum, local_elements(known_.mesh, known_.shape_of(n_.operands[k]), ways_[w].wanted[k]));
      elems.push_back(sum);
      order.push_back(static_cast<int>(w));
      for (std::size_t k = w; k > 0 && elems[order[k - 1]] > sum; --k) std::swap(order[k - 1], order[k]);
    }
    operator_ways made;
    for (const int w : order) {
      const operator_use& p = ways_[w];
      count_planning();
      const auto sent = prices.own(p).time;
      made.times.push_back(p.moved ? sent : add_times(sent, past_begin(known_.net().time_of(work.of(p.uses)))));
      made.of.push_back(p);
    }
    return made;
  }

  const form_prices& known_;
  int i_;
  const node& n_;
  const inline_vec<partial_forms, max_map_arity>& operands_;
  op_rule rule_;
  vec<operator_use> ways_;
};

}  // namespace gspmd::detail
