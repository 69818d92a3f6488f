// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/plan.hpp"

/// What passes and counts ask about a step, whatever its kernel: facts_of(step).
namespace gspmd::detail {

struct kernel_facts {
  step_work work;
  step_role role;
  bool (*works_in_place)(const plan_step& s);
  void (*mark_kept)(const table_views& tables, const plan_step& s, std::uint8_t* kept);  // by operand
  std::int64_t (*scratch_bytes)(const table_views& tables, const plan_step& s);
  bool (*communicates)(const plan_view& p, const plan_step& s);
  axis_mask (*axes)(const plan_view& p, const plan_step& s);
  std::int64_t (*messages)(const plan_view& p, const plan_step& s);
  detail::packing (*packing)(const plan_view& p, const plan_step& s);
  ring_rounds_kind (*rounds)(const plan_view& p, const plan_step& s);
};

/// A kernel that states every fact (ir/kernels/parts.hpp), each as what it is here.
template <class K>
concept complete_kernel = requires {
  requires mp11::mp_is_list<typename K::tables>::value;
  requires K::name >= action{};
  requires K::handles >= element_kinds{};
  kernel_facts{K::work,         K::role, K::works_in_place, K::mark_kept, K::scratch_bytes,
               K::communicates, K::axes, K::messages,       K::packing,   K::rounds};
};

template <class Kernels>
struct facts_of_kernels;
template <complete_kernel... K>
struct facts_of_kernels<mp11::mp_list<K...>> {
  static constexpr kernel_facts by_name[sizeof...(K)] = {kernel_facts{K::work, K::role, K::works_in_place, K::mark_kept,
                                                                      K::scratch_bytes, K::communicates, K::axes, K::messages,
                                                                      K::packing, K::rounds}...};
};

constexpr const kernel_facts& facts_of(const plan_step& s) {
  return facts_of_kernels<all_kernels>::by_name[static_cast<int>(s.what)];
}

/// How kernel K describes a step; null: the step is of another one.
template <class K>
constexpr auto description_by(const plan_view& p, const plan_step& s) {
  const auto& table = table_of<typename mp11::mp_first<typename K::tables>::entry>(p);
  return s.what == K::name ? table.data() + s.spec : nullptr;
}

/// Whether a step computes the inner part of a loop, or the rest of one, which goes on where that one ended.
constexpr bool is_inner_part(const plan_view& p, const plan_step& s) {
  const auto* group = description_by<kernels::fused>(p, s);
  return group != nullptr && group->part >= 0 && !group->is_rim;
}
constexpr bool is_rim(const plan_view& p, const plan_step& s) {
  const auto* group = description_by<kernels::fused>(p, s);
  return group != nullptr && group->is_rim;
}

/// One message carries all operands.
constexpr bool is_joined(const plan_step& s) { return s.operands.count > 1 && facts_of(s).role == step_role::joins_operands; }
constexpr bool communicates(const plan_view& p, const plan_step& s) { return facts_of(s).communicates(p, s); }
constexpr axis_mask axes_of(const plan_view& p, const plan_step& s) { return facts_of(s).axes(p, s); }

}  // namespace gspmd::detail
