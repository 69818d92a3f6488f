// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/support/span.hpp"

/// Two plans are the same if every device runs the same steps on the same memory. Lines and names of the user's program
/// are ignored.
namespace gspmd::detail {

template <class List, class Same>
constexpr bool same_list(const List& a, const List& b, Same same) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!same(a[i], b[i])) return false;
  return true;
}

template <class Same>
constexpr bool same_list(span<const scope>, span<const scope>, Same) {
  return true;
}

constexpr bool same_plan(const plan_view& a, const plan_view& b) {
  const auto same = []<class Entry>(const Entry& x, const Entry& y) {
    if constexpr (std::is_same_v<Entry, planned_node>)
      return x.op == y.op && x.value == y.value && x.flops == y.flops && x.work.flops == y.work.flops &&
             x.work.bytes == y.work.bytes;
    else return x == y;
  };
  return same_mesh(*a.mesh, *b.mesh) && a.arena_bytes == b.arena_bytes && lists_of_plan(a, [&](const auto&... list) {
           return lists_of_plan(b, [&](const auto&... other) { return (same_list(list, other, same) && ...); });
         });
}

}  // namespace gspmd::detail
