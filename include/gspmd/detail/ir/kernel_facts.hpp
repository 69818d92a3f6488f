// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ir/plan.hpp"

/// The facts of a step for passes and counts, independent of its kernel: facts_of(step).
namespace gspmd::detail {

struct kernel_facts {
  step_work work;
  step_role role;
  bool (*works_in_place)(const plan_step& s);
  void (*mark_kept)(const table_views& tables, const plan_step& s, std::uint8_t* kept);  // by operand
  std::int64_t (*scratch_bytes)(const table_views& tables, const plan_step& s);
  axis_mask (*axes)(const plan_view& p, const plan_step& s);
  std::int64_t (*messages)(const plan_view& p, const plan_step& s);
  detail::packing (*packing)(const plan_view& p, const plan_step& s);
  ring_rounds_kind (*rounds)(const plan_view& p, const plan_step& s);
};

/// A kernel that states every fact (ir/kernels/parts.hpp) with the type of the member here.
template <class K>
concept complete_kernel = requires {
  requires mp11::mp_is_list<typename K::tables>::value;
  requires K::handles >= element_kinds{};
  kernel_facts{K::work, K::role, K::works_in_place, K::mark_kept, K::scratch_bytes, K::axes, K::messages, K::packing, K::rounds};
};

/// One table for each fact: a program that queries a few facts at run time contains no code of the other facts.
template <class Kernels>
struct facts_of_kernels;
template <complete_kernel... K>
struct facts_of_kernels<mp11::mp_list<K...>> {
  template <class Kernel>
  static constexpr kernel_facts of = {Kernel::work,      Kernel::role,          Kernel::works_in_place,
                                      Kernel::mark_kept, Kernel::scratch_bytes, Kernel::axes,
                                      Kernel::messages,  Kernel::packing,       Kernel::rounds};
  template <auto Fact>
  static constexpr std::remove_cvref_t<decltype(std::declval<kernel_facts>().*Fact)> by_kernel[sizeof...(K)] = {of<K>.*Fact...};
};

class facts_of_step {
  template <auto Fact>
  static constexpr const auto& table = facts_of_kernels<all_kernels>::by_kernel<Fact>;
  int kernel_;

 public:
  constexpr explicit facts_of_step(const plan_step& s)
      : kernel_(static_cast<int>(s.kernel)),
        work(table<&kernel_facts::work>[kernel_]),
        role(table<&kernel_facts::role>[kernel_]) {}

  step_work work;
  step_role role;
  constexpr bool works_in_place(const plan_step& s) const { return table<&kernel_facts::works_in_place>[kernel_](s); }
  constexpr void mark_kept(const table_views& tables, const plan_step& s, std::uint8_t* kept) const {
    table<&kernel_facts::mark_kept>[kernel_](tables, s, kept);
  }
  constexpr std::int64_t scratch_bytes(const table_views& tables, const plan_step& s) const {
    return table<&kernel_facts::scratch_bytes>[kernel_](tables, s);
  }
  constexpr axis_mask axes(const plan_view& p, const plan_step& s) const { return table<&kernel_facts::axes>[kernel_](p, s); }
  constexpr std::int64_t messages(const plan_view& p, const plan_step& s) const {
    return table<&kernel_facts::messages>[kernel_](p, s);
  }
  constexpr detail::packing packing(const plan_view& p, const plan_step& s) const {
    return table<&kernel_facts::packing>[kernel_](p, s);
  }
  constexpr ring_rounds_kind rounds(const plan_view& p, const plan_step& s) const {
    return table<&kernel_facts::rounds>[kernel_](p, s);
  }
};

constexpr facts_of_step facts_of(const plan_step& s) { return facts_of_step(s); }

/// Returns kernel K's description of a step, or null if the step has another kernel.
template <class K>
constexpr auto description_by(const plan_view& p, const plan_step& s) {
  const auto& table = table_of<typename mp11::mp_first<typename K::tables>::entry>(p);
  return s.kernel == id_of<K> ? table.data() + s.spec : nullptr;
}

/// Return true if a step computes the interior of a loop (is_inner_part), or the rest of the loop after the interior
/// (is_rim).
constexpr bool is_inner_part(const plan_view& p, const plan_step& s) {
  const auto* group = description_by<kernels::fused>(p, s);
  return group != nullptr && group->part >= 0 && !group->is_rim;
}
constexpr bool is_rim(const plan_view& p, const plan_step& s) {
  const auto* group = description_by<kernels::fused>(p, s);
  return group != nullptr && group->is_rim;
}

/// Returns true if one message carries all operands.
constexpr bool is_joined(const plan_step& s) { return s.operands.count > 1 && facts_of(s).role == step_role::joins_operands; }
}  // namespace gspmd::detail
