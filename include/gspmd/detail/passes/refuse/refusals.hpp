// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/passes/emit/emit.hpp"

namespace gspmd::detail {

/// The reason to refuse a program because of its communication, if any.
struct refusal {
  mistake broken = mistake::none;
  text error;
};

/// Finds the choices that the policies of a program forbid.
///
/// Input: the table of choices. Result: a refusal, with the message. If several kinds of policies are broken, the first
/// kind of this list is reported, wherever the operator is in the program:
///
///   forbid_reshard       an operator communicates to get its operands
///   keep_split           an operator gathers a value that must stay split
///   allow_replication    is missing, and an operator that cannot keep a split gathers its operand along an axis
///   limit_gather         an einsum gathers an operand to more bytes than the limit, and no ring of devices helps
class refusals {
 public:
  constexpr refusals(const graph& g, const mesh_shape& mesh, int saving, const choice_table& table)
      : graph_(g), mesh_(mesh), saving_(saving), table_(table) {}

  constexpr refusal find(const value_uses& uses) {
    if (!is_any_possible()) return {};
    program_ = emitter(graph_, mesh_, saving_, table_).run(uses);  // the choices as instructions that move data
    found first;
    for (const auto& op : program_.ops)
      if (const found here = broken_by(op); here.policy < first.policy) first = here;
    if (first.policy == policies::none) return {};
    if (first.policy == policies::limit_gather) return {mistake::gather_limit, gathers_too_much(*first.op)};
    if (first.policy == policies::allow_replication) return {mistake::replication, replicates(*first.op)};
    return {mistake::communication, communicates(first)};
  }

 private:
  enum class policies : std::uint8_t { forbid_reshard, keep_split, allow_replication, limit_gather, none };
  struct found {
    policies policy = policies::none;
    const instruction* op = nullptr;
    int operand = -1;
  };

  [[nodiscard]] constexpr const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr const local_value& value(int v) const { return program_.value(v); }
  [[nodiscard]] constexpr text layout_of(const local_value& v) const {
    return sharding_text(*graph_.mesh, v.layout, v.global.count);
  }
  [[nodiscard]] static constexpr int operand_of(const node& n, int i) {
    int k = 0;
    while (k < n.operands.count && n.operands[k] != i) ++k;
    return k < n.operands.count ? k : -1;
  }
  [[nodiscard]] constexpr int root_of(int i) const {
    while (facts_of(at(i).op).made == origin::renamed) i = at(i).operands[0];
    return i;
  }
  /// Returns the axes that split the operand of a movement and not its result.
  [[nodiscard]] constexpr axis_mask lost(const instruction& op) const {
    return value(op.operands[0]).layout.split_axes() & ~value(op.result).layout.split_axes();
  }

  [[nodiscard]] constexpr bool is_any_possible() const {
    bool any = false;
    for (const auto& n : graph_.nodes) any = any || n.forbid_reshard || n.keep_split;
    for (const auto& c : table_.nodes) any = any || (c.forced != 0 && !graph_.allow_replication) || c.ring.beyond_limit;
    return any;
  }
  [[nodiscard]] constexpr found broken_by(const instruction& op) const {
    const node& n = at(op.node);
    if (op.what == instruction_kind::compute && op.ring.beyond_limit) return {policies::limit_gather, &op};
    if (op.what != instruction_kind::move && op.what != instruction_kind::reduce) return {};
    const int moved = value(op.operands[0]).node;
    if (n.forbid_reshard && !op.for_output) return {policies::forbid_reshard, &op, operand_of(n, moved)};
    if (op.what != instruction_kind::move || lost(op) == 0) return {};
    for (int k = 0; k < n.operands.count && !op.for_output && facts_of(n.op).made != origin::renamed; ++k)
      if (at(n.operands[k]).keep_split && root_of(n.operands[k]) == root_of(moved)) return {policies::keep_split, &op, k};
    if (op.forced && !n.allow_replication && !graph_.allow_replication) return {policies::allow_replication, &op};
    return {};
  }

  [[nodiscard]] constexpr text communicates(const found& f) const {
    const instruction& op = *f.op;
    const node& n = at(op.node);
    const local_value &from = value(op.operands[0]), &to = value(op.result);
    const bool is_kept = f.policy == policies::keep_split;
    text t = text() << graph::place(n.at, name_of(n.op)) << ": ";
    if (f.operand >= 0) {
      t << "operand " << f.operand << " is sharded " << layout_of(from) << " and the operator needs " << layout_of(to);
      int dim = -1;
      for (int d = from.global.count - 1; d >= 0 && !is_kept; --d)
        if (from.layout.axes_of(d) != to.layout.axes_of(d)) dim = d;
      if (dim >= 0) facts_of(n.op).name_dim(t, graph_, n, f.operand, dim);
    }
    return t << ": this takes " << name_of(op.collective) << " over `" << axes_text(*graph_.mesh, op.axes) << "`, which "
             << (is_kept ? "keep_split" : "forbid_reshard") << " does not allow; give the operands equal shardings, or reshard "
             << (is_kept ? "it" : "one") << " yourself";
  }
  [[nodiscard]] constexpr text replicates(const instruction& op) const {
    const node& n = at(op.node);
    const local_value &from = value(op.operands[0]), &to = value(op.result);
    const replication_words& words = facts_of(n.op).replication;
    const bool is_plain = words.does.empty();
    text t = text() << graph::place(n.at, words.who.empty() ? name_of(n.op) : words.who) << ": ";
    if (!is_plain) t << words.does << ' ';
    else if (const int k = operand_of(n, from.node); k >= 0) t << "operand " << k << ' ';
    t << shape_text(from.global) << (is_plain ? " is sharded " : ", which is sharded ") << layout_of(from);
    if (is_plain) t << " and the operator, with result " << shape_text(n.shape) << ", cannot work on that split";
    return t << ": every device along `" << axes_text(*graph_.mesh, lost(op)) << "` would hold " << layout_of(to) << "; "
             << words.remedy;
  }
  [[nodiscard]] constexpr text gathers_too_much(const instruction& op) const {
    const node& n = at(op.node);
    const auto bytes = [&](int k) {
      const local_value& v = value(op.operands[k]);
      return elements(v.local) * bytes_of(v.type);
    };
    const int largest = op.ring.operand == 0 || (op.ring.operand < 0 && bytes(1) > bytes(0)) ? 1 : 0;
    const local_value& v = value(op.operands[largest]);
    return text() << graph::place(n.at, name_of(n.op)) << ": operand " << largest << ' ' << shape_text(v.global)
                  << " would be gathered to " << layout_of(v) << ", " << bytes(largest)
                  << " bytes on every device, limit_gather allows " << n.gather_limit
                  << "; give the operands equal shardings, or raise the limit";
  }

  const graph& graph_;
  const mesh_shape& mesh_;
  int saving_;
  const choice_table& table_;
  local_program program_;
};

}  // namespace gspmd::detail
