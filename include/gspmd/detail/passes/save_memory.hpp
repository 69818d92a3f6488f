// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/cut_axis.hpp"
#include "gspmd/detail/ir/layout.hpp"
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

/// Why no plan fits.
constexpr text too_large(std::int64_t least, std::int64_t most) {
  return text("a device holds ") << least << " bytes, inputs, outputs and what is between them, in the plan that holds least; "
                                 << most << " are allowed: split more of the inputs, or use more devices";
}

/// A try to plan a program: what it found.
struct planned_try {
  axis_cut cut;             // that its reshapes need; then the others are not looked at
  bool is_refused = false;  // for what it would send
  std::int64_t holds = 0;   // bytes on a device; looked at where the mesh has a limit
};

struct next_try {
  enum class way : std::uint8_t { none, on_cut_mesh, saving_more } is;
  bool was_best;  // the one that was looked at, of those so far
};

/// Returns what comes after a try, with its level of saving; `least`: what the best one of those before it holds. Both paths read
/// this: the compiler goes from type to type, the run time from value to value.
///
///   an axis to cut                                        the same on the mesh with that cut
///   more than a device may hold, and not all is saved     the next level; a refused one is passed over, but for the first
///   else                                                  nothing
constexpr next_try after(const planned_try& t, const plan_request& request, std::int64_t least) {
  if (t.cut.axis >= 0) return {next_try::way::on_cut_mesh, false};
  const bool is_first = request.saving == 0;
  if (request.most_memory <= 0 || (is_first && t.is_refused)) return {next_try::way::none, true};
  const bool is_best = is_first || (!t.is_refused && t.holds < least);
  const bool is_too_large = (is_best ? t.holds : least) > request.most_memory;
  return {is_too_large && request.saving < most_saving ? next_try::way::saving_more : next_try::way::none, is_best};
}

}  // namespace gspmd::detail
