// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/choose/choose.hpp"
#include "gspmd/detail/passes/emit/join_collectives.hpp"

namespace gspmd::detail {

/// Turns a table of choices into the program that every device runs (GSPMD 4.1-4.5). Makes no decisions.
class emitter {
 public:
  constexpr emitter(const graph& g, const mesh_shape& mesh, int saving, const choice_table& table)
      : graph_(g), mesh_(mesh), table_(table), book_(g), walk_(g, mesh, saving, book_, given_, *this) {
    program_.results.resize(g.nodes.size(), -1);
    book_.as_written = table.as_written;
  }

  constexpr local_program run(const value_uses& uses) {
    for (int i = 0; i < static_cast<int>(graph_.nodes.size()); ++i)
      if (chooser::is_visited(graph_, uses, i)) walk_.visit(i);
    for (std::size_t k = 0; k < graph_.outputs.size(); ++k) {
      const int o = graph_.outputs[k];
      program_.outputs.push_back(walk_.bring(o, table_.outputs[k], {o, 0, true}));
    }
    program_.values.reserve(book_.values.size());
    for (const auto& form : book_.values) {
      const node& n = at(form.node);
      program_.values.push_back({form.node, n.type, n.shape, form.layout, local_extents(mesh_, n.shape, form.layout)});
    }
    drop_unused();
    return std::move(program_);
  }

  // ---- queries of form_walk ----
  constexpr const sharding& layout_of(int i) const { return table_.nodes[i].result; }
  constexpr const node_choice& choice_for(int i) const { return table_.nodes[i]; }
  constexpr const sharding& wanted(int i, int k) const { return table_.wanted[table_.nodes[i].wanted + k]; }
  constexpr const reshard_path& next_path(int, const sharding&) { return table_.paths[next_path_++]; }
  constexpr const reshard_step& step(const reshard_path& way, int k) const { return table_.steps[way.step + k]; }

  // ---- results of the walk, with the numbers of forms ----
  constexpr void input(int i, int form) {
    program_.inputs.push_back(form);
    named(i, form);
  }
  constexpr void named(int i, int form) {
    if (program_.results[i] < 0) program_.results[i] = form;
  }
  constexpr void renamed(int i, int form) { program_.results[i] = form; }
  /// Adds a further result of the last operator.
  constexpr void made_with_last(int i, int form) {
    named(i, form);
    program_.ops.back().further_results.push_back(form);
  }
  /// Adds a source, or a recomputed operator with a single operand, at depth `level` of nested bodies.
  constexpr void made(int i, int operand, int form, int level) {
    instruction op;
    op.node = i;
    if (operand >= 0) op.operands.push_back(operand);
    op.result = form;
    named(i, form);
    add(op, level);
  }
  constexpr void moved(const purpose& why, int from, const reshard_step& step, int form, int level) {
    const sharding& layout = book_.layout_of(from);
    const int value = book_.values[from].node;
    const extents& shape = at(value).shape;
    instruction op;
    op.node = why.user;
    op.operands.push_back(from);
    op.result = form;
    op.axes = step.axes;
    op.forced = (layout.split_axes() & ~step.to.split_axes() & why.lost) != 0;
    op.for_output = why.for_output;
    if (step.what == reshard_step::kind::slice) {
      op.what = instruction_kind::slice;
    } else if (step.what == reshard_step::kind::terms) {
      op.what = instruction_kind::terms;
    } else if (step.what == reshard_step::kind::move) {
      op.what = instruction_kind::move;
      op.collective = classify(mesh_, movement{shape, layout, step.to, step.axes});
    } else {
      op.what = instruction_kind::reduce;
      op.collective = classify(mesh_, reduction{shape, layout, step.to, step.axes, layout.reduced_by});
    }
    add(op, level);
  }
  constexpr void ran(int i, const node_choice& choice, const inline_vec<int, max_map_arity>& operands, int form) {
    instruction op;
    op.node = i;
    op.operands = operands;
    op.ring = choice.ring;
    op.result = form;
    named(i, form);
    program_.ops.push_back(op);
  }
  /// Adds movement `k` of an operator that consists of movements. It writes into the result of the previous movement,
  /// `written`, if there is one.
  constexpr void ran_movement(int i, int k, int operand, int written, int form) {
    const node& n = at(i);
    const auto traffic = traffic_of(graph_, mesh_, n, k, book_.layout_of(operand), book_.layout_of(form));
    instruction op;
    op.node = i;
    op.operands.push_back(operand);
    if (written >= 0) op.operands.push_back(written);
    op.result = form;
    op.movement = k;
    op.axes = traffic.axes;
    op.bytes_sent = traffic.elems() * bytes_of(n.type);
    op.collective = collective_kind::collective_permute;
    program_.results[i] = form;  // the result of the last movement is complete
    program_.ops.push_back(op);
  }
  constexpr void copied(int user, int from, int to) { add_region_op(instruction_kind::copy, user, from, to); }
  constexpr void opens(int i, int operand, int form) {
    begins_.push_back(static_cast<int>(program_.ops.size()));
    add_region_op(instruction_kind::control, i, operand, form);
  }
  constexpr void ends(int i) { add_region_op(instruction_kind::control, i, -1, -1); }
  constexpr void closes() { begins_.pop_back(); }

 private:
  [[nodiscard]] constexpr const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }

  /// Appends an operator, or inserts it before the loops that need not contain it.
  constexpr void add(const instruction& op, int level) {
    if (level == book_.depth()) {
      program_.ops.push_back(op);
      return;
    }
    program_.ops.insert(program_.ops.begin() + begins_[level], op);
    for (std::size_t k = static_cast<std::size_t>(level); k < begins_.size(); ++k) ++begins_[k];
  }
  constexpr void add_region_op(instruction_kind what, int i, int operand, int result) {
    instruction op;
    op.what = what;
    op.node = i;
    if (operand >= 0) op.operands.push_back(operand);
    op.result = result;
    program_.ops.push_back(op);
  }

  /// Returns true if an instruction is kept: one of its results is read, or it is a control instruction or a copy of a
  /// loop or branch.
  [[nodiscard]] static constexpr bool is_wanted(const instruction& op, const vec<std::uint8_t>& is_read) {
    bool is_any_read = op.what == instruction_kind::control || op.what == instruction_kind::copy || is_read[op.result] != 0;
    for (const int v : op.further_results) is_any_read = is_any_read || is_read[v] != 0;
    return is_any_read;
  }
  /// Removes the operators whose results are not read, such as a broadcast that was needed only in another sharding.
  constexpr void drop_unused() {
    vec<std::uint8_t> is_read(program_.values.size(), 0);
    for (const int v : program_.outputs) is_read[v] = 1;
    std::size_t kept = program_.ops.size();
    for (std::size_t k = program_.ops.size(); k-- > 0;) {
      const instruction& op = program_.ops[k];
      if (!is_wanted(op, is_read)) --kept;
      else
        for (const int o : op.operands) is_read[o] = 1;
    }
    if (kept == program_.ops.size()) return;
    vec<instruction> wanted;
    wanted.reserve(kept);
    for (const auto& op : program_.ops)
      if (is_wanted(op, is_read)) wanted.push_back(op);
    program_.ops = std::move(wanted);
    for (int i = 0; i < static_cast<int>(graph_.nodes.size()); ++i) {
      int& result = program_.results[i];
      if (result < 0 || is_read[result] != 0) continue;
      if (book_.root_of(i) != i) result = -1;
      else
        for (int v = book_.first_of(i); v >= 0 && is_read[result] == 0; v = book_.values[v].next)
          if (is_read[v] != 0) result = v;
    }
  }

  const graph& graph_;
  const mesh_shape& mesh_;
  const choice_table& table_;
  form_book book_;
  vec<int> given_;
  form_walk<emitter> walk_;
  int next_path_ = 0;
  vec<int> begins_;  // the first instructions of the open bodies
  local_program program_;
};

}  // namespace gspmd::detail
