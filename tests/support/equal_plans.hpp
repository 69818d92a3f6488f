// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>

#include "gspmd/detail/ir/plan.hpp"

namespace reference {

/// Returns the first difference between two plans, instruction by instruction, or "".
inline std::string difference(const gspmd::detail::plan_view& a, const gspmd::detail::plan_view& b) {
  const auto range = [](const gspmd::detail::table_range& x, const gspmd::detail::table_range& y) {
    return x.begin == y.begin && x.count == y.count;
  };
  const auto place = [](const gspmd::detail::memory_place& x, const gspmd::detail::memory_place& y) {
    return x.where == y.where && x.at == y.at;
  };
  if (a.steps.size() != b.steps.size()) return "step count";
  if (a.values.size() != b.values.size()) return "value count";
  if (a.slots.size() != b.slots.size() || a.bounds.size() != b.bounds.size()) return "slots or bounds";
  if (table_of<gspmd::detail::scalar_op>(a).size() != table_of<gspmd::detail::scalar_op>(b).size() ||
      table_of<gspmd::detail::fused_store>(a).size() != table_of<gspmd::detail::fused_store>(b).size())
    return "fused operators";
  const auto& maps = table_of<gspmd::detail::index_map>(a);
  const auto& other_maps = table_of<gspmd::detail::index_map>(b);
  if (!std::equal(maps.begin(), maps.end(), other_maps.begin(), other_maps.end())) return "maps";
  if (a.arena_bytes != b.arena_bytes) return "arena";
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    const auto& x = a.steps[i];
    const auto& y = b.steps[i];
    if (x.kernel != y.kernel || x.type != y.type || x.node != y.node || x.spec != y.spec || !range(x.operands, y.operands) ||
        !range(x.results, y.results) || !range(x.bounds, y.bounds) || x.scratch != y.scratch || x.collective != y.collective ||
        x.forced != y.forced || x.bytes_sent != y.bytes_sent || x.target != y.target || x.trips != y.trips || x.times != y.times)
      return "step " + std::to_string(i);
  }
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    const auto& x = a.values[i];
    const auto& y = b.values[i];
    if (x.node != y.node || x.type != y.type || !(x.global == y.global) || !(x.layout == y.layout) || !(x.local == y.local) ||
        !place(x.where, y.where))
      return "value " + std::to_string(i);
  }
  for (std::size_t i = 0; i < a.slots.size(); ++i)
    if (a.slots[i] != b.slots[i]) return "slot " + std::to_string(i);
  for (std::size_t i = 0; i < a.bounds.size(); ++i)
    if (a.bounds[i].index != b.bounds[i].index || a.bounds[i].value != b.bounds[i].value || a.bounds[i].dim != b.bounds[i].dim)
      return "bound " + std::to_string(i);
  for (std::size_t i = 0; i < table_of<gspmd::detail::scalar_op>(a).size(); ++i) {
    const auto& x = table_of<gspmd::detail::scalar_op>(a)[i];
    const auto& y = table_of<gspmd::detail::scalar_op>(b)[i];
    if (x.op != y.op || x.type != y.type || x.operand_type != y.operand_type || !(x.args == y.args) || x.real != y.real ||
        x.integer != y.integer || x.slot != y.slot || x.dim != y.dim || !(x.strides == y.strides) || x.function != y.function)
      return "fused operator " + std::to_string(i);
  }
  for (std::size_t i = 0; i < a.nodes.size(); ++i)
    if (a.nodes[i].op != b.nodes[i].op || a.nodes[i].value != b.nodes[i].value || a.nodes[i].flops != b.nodes[i].flops)
      return "node " + std::to_string(i);
  for (std::size_t i = 0; i < a.completed.size(); ++i)
    if (!(a.completed[i] == b.completed[i])) return "sharding of node " + std::to_string(i);
  return {};
}

}  // namespace reference
