// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/passes/choose/reduction_search.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

struct made_form {  // in an open body
  int node = 0;
  int value = 0;
  int level = 0;
};

/// The local values that are made of every node, its forms: the same global value under several shardings. What a reader needs
/// is made from the cheapest of them, and is then a form itself (GSPMD 4.5). Knows the bodies of loops and conditionals too, as
/// far as a form is only there inside of them.
class value_forms {
 public:
  constexpr value_forms(const graph& g, const mesh_shape& mesh, std::span<const sharding> completed)
      : graph_(g), mesh_(mesh), completed_(completed.data(), completed.data() + completed.size()) {
    forms_.resize(g.nodes.size(), vec<int>{});
    results_.resize(g.nodes.size(), -1);
    readers_.resize(g.nodes.size(), vec<int>{});
    roots_.resize(g.nodes.size(), 0);
    int* const roots = roots_.data();
    for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) roots[i] = i;
  }

  local_program program;

  /// Compilers limit the steps of one evaluation, so that programs are planned in stretches: of so many nodes, or of fewer if more
  /// than so many prices were worked out for them. Ways to reduce uneven shards are searched for: in a stretch so many shardings
  /// are looked at for what is emitted, and as many for prices. Each search is made once, and its result is used again until the
  /// end of the stretch. Where a plan is made in several evaluations, one begins with a stretch, so that all compilers and the
  /// run-time path find the same.
  static constexpr int nodes_per_stretch = 64;
  static constexpr int prices_per_stretch = 128;
  static constexpr int looked_at_per_stretch = reduction_search::most_looked_at;

 protected:
  [[nodiscard]] constexpr const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr bool is_result_of(int i, opcode op, int start) const {
    if (i >= static_cast<int>(graph_.nodes.size()) || at(i).op != op) return false;
    return op == opcode::loop_result ? at(at(i).operands[0]).region == start : at(i).operands[0] == start;
  }
  [[nodiscard]] constexpr const sharding& completed_of(int i) const { return completed_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr const extents& shape_of(int i) const { return graph_.nodes[static_cast<std::size_t>(i)].shape; }
  /// A reshard is its operand: both have the same forms.
  [[nodiscard]] constexpr int root_of(int i) const { return roots_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr const vec<int>& forms_of(int i) const { return forms_[static_cast<std::size_t>(root_of(i))]; }
  /// How many operands are read: the second one of shard_alike is only looked at.
  [[nodiscard]] static constexpr bool is_source(const node& n) { return facts_of(n.op).made == origin::source; }

  constexpr int add_value(int i, const sharding& layout) {
    const node& n = graph_.nodes[static_cast<std::size_t>(i)];
    local_value v{i, n.type, n.shape, layout, local_extents(mesh_, n.shape, layout)};
    v.layout.open = 0;
    program.values.push_back(v);
    return static_cast<int>(program.values.size()) - 1;
  }
  constexpr int add_form(int i, const sharding& layout) {
    const int v = add_value(i, layout);
    name_form(i, v);
    return v;
  }
  constexpr void name_form(int i, int v) {
    i = root_of(i);
    forms_[static_cast<std::size_t>(i)].push_back(v);
    auto& first = program.results[static_cast<std::size_t>(i)];
    if (first < 0) first = v;
    if (!open_.empty()) note_form(i, v);
  }

  /// The cheapest form of a node's value to start from; -1 if it is made anew: sources always, what may be made again
  /// where its operand moves fewer bytes than its result.
  struct priced_form {
    int value = -1;
    reshard_price price;  // of bringing it to what is wanted, or the operand of what is made anew
  };
  [[nodiscard]] constexpr priced_form best_form(int i, const sharding& wanted) const {
    priced_form best;
    for (const int v : forms_of(i)) {
      const local_value& form = program.value(v);
      if (same_layout(form.layout, wanted)) return {v, {}};
      if ((wanted.partial & ~form.layout.partial) != 0) continue;
      const auto price = price_of_reshard(mesh_, shape_of(i), form.layout, wanted, bytes_of(form.type));
      if (best.value < 0 || price.bytes < best.price.bytes) best = {v, price};
    }
    const node& n = at(root_of(i));
    if (best.value < 0 || best.price.bytes == 0 || !facts_of(n.op).is_made_again(n)) return best;
    sharding operand;
    if (wanted.partial != 0 || !is_made_from(n, wanted, operand)) return best;
    const auto again = best_form(n.operands[0], operand).price.bytes;
    if (again < best.price.bytes) best = {-1, {again, 0}};
    return best;
  }
  [[nodiscard]] constexpr int best_form(int i, const sharding& wanted, std::int64_t& bytes) const {
    const priced_form best = best_form(i, wanted);
    bytes = best.price.bytes;
    return best.value;
  }

  /// Whether an operator of one operand can make its result in sharding `wanted`, and from what.
  [[nodiscard]] constexpr bool is_made_from(const node& n, const sharding& wanted, sharding& operand) const {
    op_rule rule;
    rule_of(graph_, n, rule);
    const auto uses = to_factors(mesh_, rule, rule.result(), wanted.splits);
    operand.splits = to_dims(mesh_, rule, rule.operand(0), uses);
    return to_dims(mesh_, rule, rule.result(), uses) == wanted.splits;
  }

  /// The local value of node `i` under `wanted`; emits what it takes to get it, for the sake of node `user`.
  constexpr int form_of(int i, const sharding& wanted, int user, bool forced = false, bool for_output = false) {
    std::int64_t bytes = 0;
    int v = best_form(i, wanted, bytes);
    const int level = level_of(i);
    if (v < 0) {
      i = root_of(i);
      const node& n = graph_.nodes[static_cast<std::size_t>(i)];
      local_op op;
      op.node = i;
      sharding operand;
      if (!is_source(n) && is_made_from(n, wanted, operand))
        op.operands.push_back(form_of(n.operands[0], operand, user, forced, for_output));
      op.result = v = add_form(i, wanted);
      add_op(op, level);
      return v;
    }
    if (same_layout(program.value(v).layout, wanted)) return v;
    for (const auto& step : path_to(wanted, program.value(v).layout, shape_of(i))) {
      const sharding from = program.value(v).layout;
      local_op op;
      op.node = user;
      op.operands.push_back(v);
      op.axes = step.axes;
      op.forced = forced;
      op.for_output = for_output;
      if (step.what == reshard_step::kind::slice) {
        op.what = local_kind::slice;
      } else if (step.what == reshard_step::kind::move) {
        op.what = local_kind::move;
        op.collective = classify(mesh_, movement{shape_of(i), from, step.to, step.axes});
      } else {
        op.what = local_kind::reduce;
        op.collective = classify(mesh_, reduction{shape_of(i), from, step.to, step.axes, from.kind});
      }
      op.result = v = add_form(i, step.to);
      add_op(op, level);
    }
    return v;
  }

  constexpr void begin_stretch() {
    may_price_ = prices_per_stretch;
    may_look_at_ = may_search_ = looked_at_per_stretch;
    paths_.clear();
  }
  [[nodiscard]] constexpr std::vector<reshard_step> path_to(const sharding& wanted, const sharding& from, const extents& shape) {
    for (const auto& known : paths_)
      if (same_layout(known.to, wanted) && same_layout(known.from, from) && known.shape == shape) return known.steps;
    const int before = may_look_at_;
    auto steps = cheapest_path(mesh_, shape, from, wanted, may_look_at_);
    if (may_look_at_ != before) paths_.push_back({shape, from, wanted, steps});
    return steps;
  }

  /// At how many of the open bodies' depth a form of node `i` is made now.
  [[nodiscard]] constexpr int level_of(int i) const {
    i = root_of(i);
    int level = static_cast<int>(open_.size());
    while (level > 0) {
      const int start = open_[static_cast<std::size_t>(level) - 1];
      if (graph_.nodes[static_cast<std::size_t>(start)].op != opcode::loop || graph_.is_inside(i, start)) break;
      --level;
    }
    return level;
  }
  constexpr void note_form(int i, int v) {
    const int level = level_of(i);
    if (level > 0) made_.push_back(made_form{i, v, level});
  }
  /// Appends an operator, or puts it before the loops that it need not be in.
  constexpr void add_op(const local_op& op, int level) {
    if (level == static_cast<int>(open_.size())) {
      program.ops.push_back(op);
      return;
    }
    const int where = open_at_[static_cast<std::size_t>(level)];
    program.ops.insert(program.ops.begin() + where, op);
    for (std::size_t k = static_cast<std::size_t>(level); k < open_at_.size(); ++k) ++open_at_[k];
  }
  constexpr void add_region_op(local_kind what, int i, int operand, int result) {
    local_op op;
    op.what = what;
    op.node = i;
    if (operand >= 0) op.operands.push_back(operand);
    op.result = result;
    program.ops.push_back(op);
  }
  constexpr void open_body(int i, int operand, int result) {
    open_.push_back(i);
    open_at_.push_back(static_cast<int>(program.ops.size()));
    add_region_op(local_kind::control, i, operand, result);
  }
  constexpr void close_body() {
    const int level = static_cast<int>(open_.size());
    std::size_t kept = 0;
    for (std::size_t k = 0; k < made_.size(); ++k) {
      if (made_[k].level < level) {
        made_[kept++] = made_[k];
        continue;
      }
      auto& forms = forms_[static_cast<std::size_t>(made_[k].node)];
      for (std::size_t f = forms.size(); f-- > 0;)
        if (forms[f] == made_[k].value) forms.erase(forms.begin() + static_cast<std::ptrdiff_t>(f));
    }
    made_.resize(kept);
    open_.pop_back();
    open_at_.pop_back();
  }

  const graph& graph_;
  const mesh_shape& mesh_;
  vec<sharding> completed_;  // by node: what completion found, or less where nobody reads more
  vec<int> roots_;           // by node: itself; of a reshard, what it reshards
  vec<int> results_;         // by node: the form that a reshard asked for; -1: another operator
  vec<vec<int>> forms_;      // by root: its local values
  vec<vec<int>> readers_;    // by node: those that read it; itself if it is an output
  vec<int> open_;            // the nodes that opened the bodies around what is emitted now
  vec<int> open_at_;         // where they are in the program
  vec<made_form> made_;

  struct known_path {
    extents shape;
    sharding from, to;
    std::vector<reshard_step> steps;
  };
  vec<known_path> paths_;  // that were searched for in this stretch
  int may_price_ = 0;      // in this stretch
  int may_look_at_ = 0;    // where a plan is emitted
  int may_search_ = 0;     // where it is priced
};

}  // namespace gspmd::detail
