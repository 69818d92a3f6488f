// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "gspmd/detail/ir/fused_group.hpp"
#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/text.hpp"

/// Finds the steps of a plan that need a dense shard if the caller passes strided memory with ghost layers
/// (given_layers).
namespace gspmd::detail {

/// Returns the index of the input or output whose memory holds a value, inputs first; -1 for the arena.
constexpr int leaf_at(const plan_view& p, const memory_place& where) {
  if (where.where == memory_place::kind::input) return static_cast<int>(where.at);
  if (where.where == memory_place::kind::output) return static_cast<int>(p.inputs.size()) + static_cast<int>(where.at);
  return -1;
}

/// Returns true if a step accesses the memory of `leaf` only through its strides: a loop loads from it or stores to
/// it.
constexpr bool uses_strides(const plan_view& p, const plan_step& s, int slot, int leaf, bool is_result) {
  if (facts_of(s).role != step_role::fuses_operators) return false;
  const auto& group = table_of<planned_group>(p)[static_cast<std::size_t>(s.spec)];
  if (is_result) {
    for (int i = group.stores.begin; i < group.stores.begin + group.stores.count; ++i)
      if (const auto& to = table_of<fused_store>(p)[static_cast<std::size_t>(i)]; to.slot == slot) return to.given == leaf + 1;
    return false;
  }
  for (int i = group.ops.begin; i < group.ops.begin + group.ops.count; ++i)
    if (const auto& o = table_of<scalar_op>(p)[static_cast<std::size_t>(i)]; o.is_load() && o.slot == slot && o.given != leaf + 1)
      return false;
  for (int i = group.margins.begin; i < group.margins.begin + group.margins.count; ++i)
    if (table_of<fused_margin>(p)[static_cast<std::size_t>(i)].slot == slot) return false;
  return true;
}

/// The first use that needs a strided input or output to be dense. leaf is -1 if there is no such use.
struct dense_use {
  int leaf = -1, step = -1;
};
constexpr dense_use find_dense_use(const plan_view& p, span<const given_layers> given) {
  const auto inputs = static_cast<int>(p.inputs.size());
  const auto is_given = [&](int leaf) {
    if (leaf < 0 || leaf >= static_cast<int>(given.size()) || !given[static_cast<std::size_t>(leaf)].is_given) return false;
    const int value =
        leaf < inputs ? p.inputs[static_cast<std::size_t>(leaf)] : p.outputs[static_cast<std::size_t>(leaf - inputs)];
    return elements(p.value(value).global) > 0;  // strides do not matter for an empty tensor
  };
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    const auto& s = p.steps[i];
    for (int k = 0; k < s.operands.count; ++k) {
      const auto& where = p.operand(s, k).where;
      const int leaf = leaf_at(p, where);
      if (is_given(leaf) && (leaf >= inputs || where.row_bytes != 0 || !uses_strides(p, s, k, leaf, false)))
        return {leaf, static_cast<int>(i)};
    }
    for (int k = 0; k < s.results.count; ++k) {
      const auto& where = p.result(s, k).where;
      const int leaf = leaf_at(p, where);
      if (is_given(leaf) && (where.row_bytes != 0 || where.takes_turns() || !uses_strides(p, s, k, leaf, true)))
        return {leaf, static_cast<int>(i)};
      if (where.takes_turns() && is_given(leaf_at(p, memory_place(where.other, where.other_at))))
        return {leaf_at(p, memory_place(where.other, where.other_at)), static_cast<int>(i)};
    }
  }
  return {};
}

/// Returns true if the step could read the input in place with wider ghost layers.
constexpr bool is_too_far(const plan_view& p, span<const given_layers> given, const dense_use& wrong) {
  const auto& n = p.nodes[static_cast<std::size_t>(p.steps[static_cast<std::size_t>(wrong.step)].node)];
  const auto leaf = static_cast<std::size_t>(wrong.leaf);
  return n.moved_dim >= 0 && !given[leaf].reaches(n.moved_dim, n.moved_by);
}
/// Returns the remedy for a dense use of an input. A shift is the cause only if the operator moves elements.
constexpr const char* remedy_of(const plan_view& p, span<const given_layers> given, const dense_use& wrong) {
  if (is_too_far(p, given, wrong)) return "; give wider layers, or none to it";
  const auto& s = p.steps[static_cast<std::size_t>(wrong.step)];
  if (p.nodes[static_cast<std::size_t>(s.node)].moved_dim >= 0) return "; list no layers for it, or write one shift";
  return "; list no layers for it";
}
/// Returns the reason why an input cannot be read in place.
[[gnu::cold]] constexpr text dense_use_text(const plan_view& p, span<const given_layers> all, const dense_use& wrong) {
  const auto leaf = static_cast<std::size_t>(wrong.leaf);
  const auto& given = all[leaf];
  const auto& s = p.steps[static_cast<std::size_t>(wrong.step)];
  const auto& n = p.nodes[static_cast<std::size_t>(s.node)];
  const auto dim = static_cast<std::int64_t>(n.moved_dim);
  text t("input ");
  t << static_cast<std::int64_t>(wrong.leaf) << " has ghost layers of " << shape_text(given.low) << " before and "
    << shape_text(given.high) << " after it, and " << name_of(n.op);
  if (!n.at.is_input()) t << " in line " << static_cast<std::int64_t>(n.at.line);
  if (n.moved_dim < 0) {
    t << " reads it as a dense shard";
    if (facts_of(s).role == step_role::fuses_operators) return t;
    return t << (facts_of(s).work == step_work::computes ? ", for no loop over elements computes it (nor a large sum of products)"
                                                         : ", for it is moved or copied before");
  }
  if (n.moved_by == 0) return t << " reads it 0 further along dim " << dim << ", as where the extent is 1, so as a dense shard";
  t << " reads it " << n.moved_by << " further along dim " << dim;
  if (!is_too_far(p, all, wrong))
    t << "; it is resharded or reshaped before, shifted again along the dim, or read by an operator that is not elementwise";
  return t;
}

}  // namespace gspmd::detail
