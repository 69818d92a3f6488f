// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "gspmd/detail/ir/collective_time.hpp"
#include "gspmd/detail/passes/choose/plan_search.hpp"
#include "gspmd/detail/passes/complete/narrow.hpp"
#include "support/graph_builder.hpp"
#include "support/random_program.hpp"

/// Small random programs, and the least time over all shardings of their values without annotation.
///
///  program := 2 to 4 inputs, 1 to 6 operators, each on earlier values; the last value and all unused values are
///  outputs
///  operator := negate | add | multiply | einsum of "ab,bc->ac" "ab,cb->ac" "ab,b->a" "ab,b->ab" | transpose | sum over
///  one dim
///  extents are 2, 4, 8, 16 or 32; inputs have random shardings, and outputs too if `annotate_outputs`
namespace layouts {

struct small_program : graph_builder {
  small_program(const std::vector<int>& sizes, unsigned seed, int operators, bool annotate_outputs)
      : graph_builder(sizes), random_(seed) {
    for (int k = random_.between(2, 4); k > 0; --k) add_input(random_.chance(30) ? 1 : 2);
    for (int k = 0; k < operators; ++k) add_operator();
    std::vector<bool> is_read(g.nodes.size(), false);
    for (const auto& n : g.nodes)
      for (const int o : n.operands) is_read[static_cast<std::size_t>(o)] = true;
    for (std::size_t i = 0; i < g.nodes.size(); ++i) {
      if (is_read[i] || g.nodes[i].operands.count == 0) continue;
      g.outputs.push_back(static_cast<int>(i));
      if (annotate_outputs) annotate(static_cast<int>(i), one_of(g.nodes[i].shape.count));
    }
    if (!annotate_outputs) {  // outputs have the shardings of completion
      const auto completed = complete();
      for (const int o : g.outputs) {
        annotation a;
        a.layout = completed[static_cast<std::size_t>(o)];
        a.layout.partial = 0;
        annotate(o, a);
      }
    }
    request.network.one_switch.per_kib = std::int64_t{1} << 50;  // each byte takes a second, so every plan is worth a search
  }

  /// Returns every sharding of a value with `rank` dims.
  [[nodiscard]] std::vector<sharding> all_shardings(int rank) const {
    std::vector<sharding> list{{}};
    for (int a = 0; a < mesh.axis_count(); ++a) {
      const auto before = list;
      for (const auto& s : before)
        for (int d = 0; d < rank; ++d) {
          int first = 0;
          while (first < s.splits.count && s.splits[first].dim < d) ++first;
          int last = first;
          while (last < s.splits.count && s.splits[last].dim == d) ++last;
          for (int at = first; at <= last; ++at) {
            list.push_back(s);
            list.back().splits.insert(at, axis_use{static_cast<std::int8_t>(a), static_cast<std::int8_t>(d)});
          }
        }
    }
    return list;
  }

  [[nodiscard]] std::vector<int> free_nodes() const {
    std::vector<int> nodes;
    for (std::size_t i = 0; i < g.nodes.size(); ++i)
      if (!g.nodes[i].annotated && g.nodes[i].operands.count > 0) nodes.push_back(static_cast<int>(i));
    return nodes;
  }

  /// Returns the choices of simple rules: split only if required; use the sharding of the first operand, of the last
  /// operand, or of the first user.
  [[nodiscard]] std::vector<std::vector<sharding>> simple_shardings() const {
    std::vector<std::vector<sharding>> list(4, complete());
    const auto free = free_nodes();
    const auto carry = [this](std::vector<sharding>& preferred, int via, int from, int to) {  // -1: the result
      const node& n = g.nodes[static_cast<std::size_t>(via)];
      op_rule rule;
      rule_of(g, n, rule);
      const auto map = [&](int k) { return k < 0 ? rule.result() : rule.operand(k); };
      const auto of = [&](int k) { return static_cast<std::size_t>(k < 0 ? via : n.operands[k]); };
      factor_splits kept;
      for (const auto& use : to_factors(mesh, rule, map(from), preferred[of(from)].splits))
        if (map(to).holds(use.dim)) kept.push_back(use);
      preferred[of(to)].splits = to_dims(mesh, rule, map(to), kept);
    };
    for (const int i : free) list[0][static_cast<std::size_t>(i)] = {};
    for (const int i : free) carry(list[1], i, 0, -1);
    for (const int i : free) carry(list[3], i, g.nodes[static_cast<std::size_t>(i)].operands.count - 1, -1);
    for (auto at = free.rbegin(); at != free.rend(); ++at) {
      const int reader = uses_of(g).readers(*at)[0];
      int operand = 0;
      while (reader != *at && g.nodes[static_cast<std::size_t>(reader)].operands[operand] != *at) ++operand;
      if (reader != *at) carry(list[2], reader, -1, operand);
    }
    return list;
  }

  /// Returns the picoseconds of a plan with these preferred shardings.
  [[nodiscard]] std::int64_t time_of(const std::vector<sharding>& preferred) const {
    constexpr int no_limit = std::numeric_limits<int>::max();
    const auto uses = uses_of(g);
    choose_state state(g);
    chooser(g, mesh, request, uses, std::span<const sharding>(preferred), state).run(no_limit, no_limit);
    return time_of(state.table);
  }
  [[nodiscard]] std::int64_t time_of(const choice_table& table) const {
    const auto p = emitter(g, mesh, request.saving, table).run(uses_of(g));
    std::int64_t time = 0;
    for (const auto& op : p.ops)
      if (const auto bytes = bytes_of(mesh, p, op); bytes > 0)
        time = add_times(time, time_of_collective(mesh, request.network, op.collective, op.axes, bytes));
    return time;
  }
  [[nodiscard]] std::int64_t planned_time(bool is_searched) const {
    plan_request asked = request;
    asked.is_searched = is_searched;
    return time_of(pass_results(g, mesh, asked).of<search_pass>().best.table);
  }

  /// Returns the least time over all shardings of up to `most` free values. If there are more free values, it searches
  /// from many starts, changing one value at a time.
  [[nodiscard]] std::int64_t least_time(std::size_t most, std::vector<sharding>* found = nullptr) const {
    const auto free = free_nodes();
    auto preferred = complete();
    std::int64_t least = time_of(preferred);
    if (found != nullptr) *found = preferred;
    if (free.size() <= most) {
      visit_all(free, 0, preferred, least, found);
      return least;
    }
    reference::random_numbers starts(5);
    for (int k = 0; k < 12; ++k) {
      if (k > 0)
        for (const int i : free) preferred[static_cast<std::size_t>(i)] = starts.one_of(all_shardings(rank_of(i)));
      std::int64_t here = time_of(preferred);
      for (bool improved = true; improved;) {
        improved = false;
        for (const int i : free) {
          auto& tried = preferred[static_cast<std::size_t>(i)];
          for (const auto& s : all_shardings(rank_of(i))) {
            const auto before = tried;
            tried = s;
            const auto there = time_of(preferred);
            if (there < here) here = there, improved = true;
            else tried = before;
          }
        }
      }
      if (here < least) {
        least = here;
        if (found != nullptr) *found = preferred;
      }
    }
    return least;
  }

  [[nodiscard]] std::string text() const {
    std::string t;
    for (std::size_t i = 0; i < g.nodes.size(); ++i) {
      const auto& n = g.nodes[i];
      t += "#" + std::to_string(i) + " " + gspmd::detail::name_of(n.op) + "(";
      for (const int o : n.operands) t += " #" + std::to_string(o);
      t += " ) " + std::string(gspmd::detail::shape_text(n.shape).view());
      if (n.annotated) t += " " + text_of(n.annotation.layout, n.shape.count);
      t += "\n";
    }
    return t;
  }

 private:
  [[nodiscard]] int rank_of(int i) const { return g.nodes[static_cast<std::size_t>(i)].shape.count; }
  void visit_all(const std::vector<int>& free, std::size_t at, std::vector<sharding>& preferred, std::int64_t& least,
                 std::vector<sharding>* found) const {
    if (least == 0) return;
    if (at == free.size()) {
      const auto time = time_of(preferred);
      if (time >= least) return;
      least = time;
      if (found != nullptr) *found = preferred;
      return;
    }
    for (const auto& s : all_shardings(rank_of(free[at]))) {
      preferred[static_cast<std::size_t>(free[at])] = s;
      visit_all(free, at + 1, preferred, least, found);
    }
  }
  annotation one_of(int rank) { return random_.one_of(all_shardings(rank)); }
  std::int64_t extent() { return random_.one_of(std::vector<std::int64_t>{2, 4, 8, 16, 32}); }
  int add_input(int rank) {
    std::vector<std::int64_t> shape;
    for (int d = 0; d < rank; ++d) shape.push_back(extent());
    return input(shape, one_of(rank));
  }
  int input_like(const std::vector<std::int64_t>& shape) { return input(shape, one_of(static_cast<int>(shape.size()))); }
  /// Returns an existing value of this shape, or a new input.
  int value_of(const std::vector<std::int64_t>& shape) {
    std::vector<int> found;
    for (std::size_t i = 0; i < g.nodes.size(); ++i)
      if (g.nodes[i].shape == shape_of(shape)) found.push_back(static_cast<int>(i));
    return !found.empty() && random_.chance(70) ? random_.one_of(found) : input_like(shape);
  }
  void add_operator() {
    const int a = random_.between(0, static_cast<int>(g.nodes.size()) - 1);
    const auto& e = at(a).shape;
    const std::vector<std::int64_t> shape(e.begin(), e.end());
    const int kind = random_.between(0, shape.size() == 2 ? 8 : 2);
    if (kind == 0) op(code_of<negative_op>, a);
    else if (kind == 1) op(code_of<add_op>, a, value_of(shape));
    else if (kind == 2) op(code_of<multiply_op>, a, value_of(shape));
    else if (kind == 3) einsum("ab,bc->ac", a, value_of({shape[1], extent()}));
    else if (kind == 4) einsum("ab,cb->ac", a, value_of({extent(), shape[1]}));
    else if (kind == 5) einsum("ab,b->a", a, value_of({shape[1]}));
    else if (kind == 6) einsum("ab,b->ab", a, value_of({shape[1]}));
    else if (kind == 7) transpose(a, {1, 0});
    else reduce(a, dim_mask{1} << random_.between(0, 1));
  }

  reference::random_numbers random_;
};

}  // namespace layouts
