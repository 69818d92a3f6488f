// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include "gspmd/detail/passes/choose/operator_chooser.hpp"

namespace gspmd::detail {

/// For each mesh axis: the factors or dims that completion splits by the axis.
using asked_splits = inline_vec<dim_mask, max_axes>;

/// The most joint uses of all axes by one tensor or operator, before partial values and orders are counted.
inline constexpr std::int64_t most_joint_splits = 160;

/// Returns every way to split factors of these sizes. Each axis splits an `allowed` factor, or no factor.
///
/// If the ways are too many, small axes split only the factors in `asked`. Two axes that split the same factor
/// are listed in both orders if there are few ways, otherwise in the order of the mesh. Parts are empty only if `asked`
/// splits the factor by the axis.
///
///   sizes 8, 8 on x: {}, {x on 0}, {x on 1}
constexpr vec<factor_splits> all_splits(const mesh_shape& mesh, const auto& sizes, dim_mask allowed, const asked_splits& asked) {
  asked_splits options;
  std::int64_t joint = 1;
  const auto count_of = [](dim_mask of) { return std::int64_t{1} + std::popcount(of); };
  for (int a = 0; a < mesh.axis_count(); ++a) {
    options.push_back(mesh.sizes[a] == 1 ? 0 : asked[a] & allowed);
    joint *= count_of(options[a]);
  }
  axis_mask left = mesh.wide_axes();
  while (left != 0) {  // the largest axis first
    int largest = -1;
    for (int a = 0; a < mesh.axis_count(); ++a)
      if ((left & axis_bit(a)) != 0 && (largest < 0 || mesh.sizes[a] > mesh.sizes[largest])) largest = a;
    left &= ~axis_bit(largest);
    const auto wider = joint / count_of(options[largest]) * count_of(allowed);
    if (wider > most_joint_splits) continue;
    joint = wider;
    options[largest] = allowed;
  }
  const bool has_orders = joint <= most_joint_splits / 2;
  vec<factor_splits> all{factor_splits{}};
  for (int a = 0; a < mesh.axis_count(); ++a)
    for (std::size_t k = 0, count = all.size(); k < count; ++k)
      for (int f = 0; f < sizes.count; ++f) {
        if ((options[a] & dim_bit(f)) == 0) continue;
        const factor_splits before = all[k];
        int first = 0;
        while (first < before.count && before[first].dim < f) ++first;
        int last = first;
        std::int64_t parts = mesh.sizes[a];
        for (; last < before.count && before[last].dim == f; ++last) parts *= mesh.sizes[before[last].axis];
        if (parts > sizes[f] && (asked[a] & dim_bit(f)) == 0) continue;
        const axis_use use{static_cast<std::int8_t>(a), static_cast<std::int8_t>(f)};
        factor_splits after = before;
        after.insert(last, use);
        all.push_back(after);
        if (last != first + 1 || !has_orders) continue;
        after = before;
        after.insert(first, use);
        all.push_back(after);
      }
  return all;
}

/// Returns the shardings of a value without partial axes, see all_splits.
constexpr vec<sharding> all_shardings(const mesh_shape& mesh, const extents& shape, const sharding& asked) {
  asked_splits by_axis(mesh.axis_count(), dim_mask{0});
  for (const auto& use : asked.splits) by_axis[use.axis] |= dim_bit(use.dim);
  vec<sharding> list;
  for (const auto& splits : all_splits(mesh, shape, dim_bit(shape.count) - 1, by_axis)) {
    list.push_back({});
    list.back().splits = splits;
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
  static constexpr std::size_t most_ways = 512, most_with_partial = 256;

  constexpr way_list(const form_prices& known, int i, const inline_vec<partial_forms, max_map_arity>& operands)
      : known_(known), i_(i), n_(known.at(i)), operands_(operands) {
    rule_of(known.program, n_, rule_);
    bool is_partial = false;
    for (int f = 0; f < rule_.factors.count; ++f)
      for (int r = 0; r < rule_.results; ++r) is_partial = is_partial || rule_.leaves_partial(f, r);
    if (is_partial) result_kind_ = rule_.reduced_by;
    for (int k = operands.count; k-- > 0 && !is_partial;)
      if (operands[k].count > 0) result_kind_ = operands[k][0].reduced_by;
  }

  [[nodiscard]] constexpr operator_ways run() {
    list_uses();
    add_movements();
    drop_refused();
    return with_times();
  }

 private:
  constexpr void list_uses() {
    asked_splits asked(known_.mesh.axis_count(), dim_mask{0});
    const auto ask = [&](const tensor_map& map, int node) {
      for (const auto& use : to_factors(known_.mesh, rule_, map, known_.preferred_of(node).splits))
        asked[use.axis] |= dim_bit(use.dim);
    };
    for (int k = 0; k < n_.operands.count; ++k) ask(rule_.operand(k), n_.operands[k]);
    for (int r = 0; r < n_.results; ++r) ask(rule_.result(r), i_ + r);
    dim_mask allowed = 0;
    inline_vec<std::int64_t, 2 * max_rank> sizes;
    dim_mask any_asked = 0;
    for (const auto mask : asked) any_asked |= mask;
    for (int f = 0; f < rule_.factors.count; ++f) {
      sizes.push_back(rule_.factors[f].size);
      if (rule_.factors[f].kind != factor_kind::whole && (sizes[f] > 1 || (any_asked & dim_bit(f)) != 0)) allowed |= dim_bit(f);
    }
    const auto all = all_splits(known_.mesh, sizes, allowed, asked);
    const use_search search(known_.mesh, known_.net(), rule_, use_search::no_preferences);
    for (const auto& uses : all)
      if (search.legal(uses) == uses) add_with_partial(use_of(known_, n_, rule_, uses, {}));
  }

  /// Adds a way, and the same way with partial operands.
  constexpr void add_with_partial(const operator_use& p) {
    add(p);
    if (divides_whole_sum(known_, i_) || ways_.size() >= most_with_partial) return;
    axis_mask used = 0;
    for (const auto& use : p.uses) used |= axis_bit(use.axis);
    for (int k = 0; k < n_.operands.count; ++k)
      for (const auto& form : operands_[k]) {
        if ((form.axes & (used | p.result.partial)) != 0) continue;
        if (form.reduced_by != result_kind_) continue;
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
    if (from.size() * to.size() > most_ways * 8) return;
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

  /// Leaves out the ways that make whole copies (see operator_chooser), and the ways that lose a split of an annotated
  /// operand that another way keeps.
  constexpr void drop_refused() {
    const bool may_copy = known_.program.allow_replication || n_.allow_replication;
    const axis_mask anyway = axes_gathered_anyway(known_, i_);
    axis_mask held[max_map_arity] = {};
    std::uint32_t loses = 0;
    for (int k = 0; k < n_.operands.count; ++k) {
      const node& operand = known_.at(n_.operands[k]);
      const bool must_lose = must_lose_a_split(known_, n_, rule_, k);
      if (!may_copy && (must_lose || is_looked_into(known_, n_, rule_, k)))
        held[k] = known_.preferred_of(n_.operands[k]).split_axes() & ~anyway;
      if (must_lose && operand.annotated) loses |= std::uint32_t{1} << k;
    }
    vec<operator_use> kept;
    for (const auto& p : ways_) {
      bool is_refused = false;
      for (int k = 0; k < n_.operands.count; ++k)
        is_refused = is_refused || (held[k] & ~p.wanted[k].split_axes()) != 0 ||
                     ((loses >> k & 1U) != 0 && axes_lost(known_, i_, rule_, k, p.wanted[k]) != 0);
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
  monoid result_kind_ = monoid::add;  // all partial forms of a value have one monoid: no reshard changes it
  vec<operator_use> ways_;
};

}  // namespace gspmd::detail
