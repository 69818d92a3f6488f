// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/choose/free_values.hpp"
#include "gspmd/detail/passes/choose/partial_rule.hpp"
#include "gspmd/detail/support/span.hpp"

namespace gspmd::detail {

/// Finds the values whose sharding a search may change, the values that change together, and the shardings to try.
///
///   y = transpose(x), z = y + 1, all free: y and z form a run; x follows the run through the transpose
class plan_changes {
 public:
  /// The shardings that are tried for one value.
  using candidates = inline_vec<sharding, 8>;

  /// `asked`: the shardings of completion, narrowed. `preferred`: the shardings that the best plan so far prefers.
  constexpr plan_changes(const graph& g, const mesh_shape& mesh, const value_uses& uses, span<const sharding> asked,
                         const vec<sharding>& preferred)
      : graph_(g), mesh_(mesh), uses_(uses), asked_(asked), preferred_(preferred) {}

  [[nodiscard]] constexpr bool is_free(int i) const { return detail::is_free(graph_, uses_, i); }

  /// Returns the run of node `i`: the free values with its sharding that elementwise operators connect with it. A
  /// carried value and its next value belong to one run, but its initial value need not. A result of a conditional and
  /// the results of both bodies belong to one run.
  [[nodiscard]] constexpr vec<int> run_of(int i) const {
    vec<int> run;
    run.push_back(i);
    for (std::size_t k = 0; k < run.size() && run.size() < most_in_a_run; ++k) {
      const auto take = [&](int j) {
        if (!is_free(j) || !(preferred_[j].splits == preferred_[i].splits) || at(j).shape.count != at(i).shape.count) return;
        for (const int known : run)
          if (known == j) return;
        run.push_back(j);
      };
      const auto connects = [&](const operator_code& op) {
        return op != opcode::carry && (facts_of(op).uniform || op == opcode::cond_result);
      };
      const int here = run[k];
      if (connects(at(here).op))
        for (const int o : at(here).operands) take(o);
      for (const int reader : uses_.readers(here)) {
        if (at(reader).op == opcode::loop_result || at(reader).op == opcode::cond_result)
          for (const int o : at(reader).operands) take(o);
        if (at(reader).op != opcode::loop_result && connects(at(reader).op)) take(reader);
      }
    }
    return run;
  }

  /// Returns the shardings to try for a run. The list has the shardings that neighbours of the run prefer. It also has
  /// a partial sharding that is reduced later, the sharding of completion, and unsplit. If none differs from the
  /// present sharding, the list has the splits of split_further instead.
  [[nodiscard]] constexpr candidates candidates_for(const vec<int>& run) const {
    candidates list;
    const auto add = [&](const inline_vec<axis_use, max_axes>& splits) {
      if (list.count == candidates::capacity || splits == preferred_[run[0]].splits) return;
      for (const auto& known : list)
        if (known.splits == splits) return;
      sharding s;
      s.splits = splits;
      list.push_back(s);
    };
    for (const int i : run) {
      op_rule rule;
      rule_of(graph_, at(i), rule);
      add(moved_on(i, rule, rule.result()));
      for (int k = 0; k < at(i).operands.count; ++k)
        add(carried(mesh_, rule, rule.operand(k), preferred_[at(i).operands[k]].splits, rule.result()));
      for (const int reader : uses_.readers(i)) {
        const node& user = at(reader);
        op_rule its;
        rule_of(graph_, user, its);
        for (int k = 0; k < user.operands.count; ++k) {
          if (user.operands[k] != i) continue;
          add(moved_on(i, its, its.operand(k)));
          add(carried(mesh_, its, its.result(), preferred_[reader].splits, its.operand(k)));
          for (int o = 0; o < user.operands.count; ++o)
            if (user.operands[o] != i)
              add(carried(mesh_, its, its.operand(o), preferred_[user.operands[o]].splits, its.operand(k)));
        }
      }
    }
    if (list.count < candidates::capacity && may_be_summed_later(run)) {
      sharding s = preferred_[run[0]];
      s.partial = mesh_.wide_axes();
      list.push_back(s);
    }
    add(asked_[static_cast<std::size_t>(run[0])].splits);
    if (!list.empty()) add({});
    else add(split_further(mesh_, at(run[0]), preferred_[run[0]].splits));
    return list;
  }
  /// Returns the shardings of node `i` that differ from the preferred sharding in a single axis. The axis splits
  /// another dim, is major or minor to the other axes of a dim, or splits nothing.
  ///
  ///   {x,-} on a mesh of x: {-,-}, {-,x}
  [[nodiscard]] constexpr vec<sharding> one_axis_away(int i) const {
    vec<sharding> list;
    const auto& now = preferred_[i].splits;
    for (int a = 0; a < mesh_.axis_count(); ++a) {
      if (mesh_.sizes[a] == 1 || (at(i).annotation.closed & axis_bit(a)) != 0) continue;
      sharding s;
      for (const auto& use : now)
        if (use.axis != a) s.splits.push_back(use);
      const auto add = [&](const sharding& other) {
        if (!(other.splits == now)) list.push_back(other);
      };
      add(s);
      for (int d = 0; d < at(i).shape.count; ++d) {
        if (at(i).shape[d] <= 1) continue;
        int place = 0;
        while (place < s.splits.count && s.splits[place].dim < d) ++place;
        for (bool is_last = false; !is_last; ++place) {
          is_last = place == s.splits.count || s.splits[place].dim != d;
          sharding other = s;
          other.splits.insert(place, axis_use{static_cast<std::int8_t>(a), static_cast<std::int8_t>(d)});
          add(other);
        }
      }
    }
    return list;
  }
  /// Changes the values that follow the changed values through an operator with tensors of several shapes. A value
  /// follows if its present splits correspond to those of a changed value. Returns false if no value follows.
  ///
  ///   y = transpose(x)   x [a, _], y [_, a]: if x becomes [_, b], y becomes [b, _]
  constexpr bool change_followers(vec<int>& changed, vec<sharding>& tried) const {
    const std::size_t own = changed.size();
    for (std::size_t next = 0; next < changed.size() && changed.size() < most_in_a_run; ++next) {
      const int i = changed[next];
      const auto follow = [&](int via, int from, int to) {  // the tensors of an operator: operand numbers, or -1 for the result
        op_rule rule;
        rule_of(graph_, at(via), rule);
        const auto map = [&](int k) { return k < 0 ? rule.result() : rule.operand(k); };
        const int j = to < 0 ? via : at(via).operands[to];
        const auto& lay = preferred_[j].splits;
        if (!is_free(j) || lay.empty() || !(carried(mesh_, rule, map(from), preferred_[i].splits, map(to)) == lay)) return;
        for (const int known : changed)
          if (known == j) return;
        tried[j].splits = carried(mesh_, rule, map(from), tried[i].splits, map(to));
        if (!(tried[j].splits == lay)) changed.push_back(j);
      };
      if (facts_of(at(i).op).made == origin::shards)
        for (int k = 0; k < at(i).operands.count; ++k) follow(i, -1, k);
      for (const int reader : uses_.readers(i))
        for (int k = 0; k < at(reader).operands.count; ++k)
          if (at(reader).operands[k] == i && facts_of(at(reader).op).made == origin::shards) follow(reader, k, -1);
    }
    return changed.size() > own;
  }

 private:
  [[nodiscard]] constexpr const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }

  /// Returns true if the operators of the run may leave partial sums and all users of the run accept partial values.
  /// Then a user can reduce a smaller value.
  [[nodiscard]] constexpr bool may_be_summed_later(const vec<int>& run) const {
    bool may_be_partial = false;
    for (const int i : run) {
      if (preferred_[i].partial != 0 || facts_of(at(i).op).made != origin::shards) return false;
      op_rule rule;
      rule_of(graph_, at(i), rule);
      for (int f = 0; f < rule.factors.count; ++f) may_be_partial = may_be_partial || rule.leaves_partial(f);
      for (const int reader : uses_.readers(i)) {
        const node& user = at(reader);
        for (int k = 0; k < user.operands.count; ++k)
          if (user.operands[k] == i && partial_rule_of(user, k, monoid::add) == partial_rule::none) return false;
      }
    }
    return may_be_partial;
  }
  /// Returns the splits that completion found for node `i`, adapted to a tensor of an operator. If the operator needs a
  /// split dim whole, the axes of that dim split the largest unsplit dim instead.
  [[nodiscard]] constexpr inline_vec<axis_use, max_axes> moved_on(int i, const op_rule& rule, const tensor_map& map) const {
    const sharding& asked = asked_[static_cast<std::size_t>(i)];
    if (rule.uniform || asked.splits.empty()) return asked.splits;
    const auto is_whole = [&](int d) {
      return map.begin(d) < map.end(d) && rule.factors[map.factors[map.begin(d)]].kind == factor_kind::whole;
    };
    sharding s;
    axis_mask left = 0;
    for (const auto& use : asked.splits) {
      if (is_whole(use.dim)) left |= axis_bit(use.axis);
      else s.add_split(use.axis, use.dim);
    }
    int dim = -1;
    for (int d = 0; d < at(i).shape.count && left != 0; ++d)
      if (s.axes_of(d) == 0 && !is_whole(d) && at(i).shape[d] > 1 && (dim < 0 || at(i).shape[d] > at(i).shape[dim])) dim = d;
    if (dim < 0) return asked.splits;
    for (const auto& use : asked.splits)
      if ((left & axis_bit(use.axis)) != 0) s.add_split(use.axis, dim);
    return s.splits;
  }
  static constexpr std::size_t most_in_a_run = 64;

  const graph& graph_;
  const mesh_shape& mesh_;
  const value_uses& uses_;
  span<const sharding> asked_;
  const vec<sharding>& preferred_;
};

}  // namespace gspmd::detail
