// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/ops/registry.hpp"

/// The levels of saving: what a plan gives up to hold less, where the mesh says how much a device may hold. A program is planned for one
/// level after the other until it fits:
///
///   0   nothing
///   1   inputs that are gathered are not kept: who needs one again gathers it again (fully sharded data parallelism)
///   2   and inputs that nobody annotated are split by the axes that completion found no use for, those of more than a 4096th of the memory
///   3   and an einsum takes an operand that would be gathered to more than a quarter of the memory in parts, where it can
///   4   to more than a 16th
///   5   to more than a 64th
namespace gspmd::detail {

inline constexpr int most_saving = 5;

/// Whether a form of a node that is larger than what it was made of is there for one reader only.
constexpr bool is_gathered_again(const mesh_shape& mesh, int saving, const node& n, const sharding& from, const sharding& to) {
  return saving > 0 && facts_of(n.op).made == origin::given && from.partial == 0 &&
         local_elements(mesh, n.shape, from) < local_elements(mesh, n.shape, to);
}

/// Whether an input that is held so is to be split further.
constexpr bool is_split_to_save(const mesh_shape& mesh, const plan_request& request, const node& n, const sharding& held) {
  return request.saving > 1 && facts_of(n.op).made == origin::given && !n.annotated &&
         local_elements(mesh, n.shape, held) * bytes_of(n.type) > request.most_memory / 4096;
}

/// The most bytes that an operand of an einsum may be gathered to on a device; -1: any number.
constexpr std::int64_t gather_limit_of(const plan_request& request, const node& n) {
  if (n.gather_limit >= 0 || request.saving < 3 || !facts_of(n.op).may_go_round_ring(n)) return n.gather_limit;
  return request.most_memory >> (2 * (request.saving - 2));
}

}  // namespace gspmd::detail
