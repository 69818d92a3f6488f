// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/support/target.hpp"

/// The facts of a step for passes and counts, independent of its kernel: facts_of(step).
namespace gspmd::detail {

struct ready_step;  // run/ready_step.hpp
struct prepared_objects;
struct shared_plan;  // run/parts/shared_plan.hpp

// ---- listed kernels ----

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

/// A listed kernel that states every fact (ir/kernels/parts.hpp) with the type of the member here.
template <class K>
concept complete_kernel = requires {
  requires mp11::mp_is_list<typename K::tables>::value;
  requires K::handles >= element_kinds{};
  typename K::parts;
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

// ---- all other kernels ----

/// The facts of a kernel that is not listed. The last three functions are for programs that are planned at run time.
/// They are null in a program without such code: see at_run_time<K>::make_ready.
struct device_kernel_facts {
  const char* name;
  bool (*works_in_place)(const plan_step& s);
  void (*mark_kept)(const table_views& tables, const plan_step& s, std::uint8_t* kept);
  std::int64_t (*scratch_bytes)(const table_views& tables, const plan_step& s);
  void (*ready)(const plan_view& p, const plan_step& s, ready_step& ready, prepared_objects& objects);
  std::int64_t (*shared_work)(const plan_view& p, const plan_step& s);
  void (*share)(ready_step& ready, shared_plan& made, std::size_t step, int thread);
};

/// A kernel that is not listed and states every fact (ir/kernels/parts.hpp).
// clang-format off
template <class K>
concept complete_device_kernel =
    requires(const plan_view& p, const plan_step& s, const table_views& tables, std::uint8_t* kept, const device_memory& device) {
  requires std::derived_from<K, device_kernel>;
  requires std::same_as<decltype(K::name), const char* const>;
  requires std::same_as<decltype(K::role), const step_role>;
  requires std::same_as<decltype(K::handles), const element_kinds>;
  typename K::description;
  typename K::parts;
  { K::works_in_place(s) } -> std::same_as<bool>;
  { K::mark_kept(tables, s, kept) } -> std::same_as<void>;
  { K::scratch_bytes(tables, s) } -> std::same_as<std::int64_t>;
  K::prepare(std::declval<const typename K::description&>(), p, s);
  requires K::handles == element_kinds::all ||
           requires { K::run(K::prepare(std::declval<const typename K::description&>(), p, s), p, s, device); };
  requires K::handles == element_kinds::bytes ||
           requires { K::template run<float>(K::prepare(std::declval<const typename K::description&>(), p, s), p, s, device); };
};
// clang-format on
template <class K, bool IsComplete = complete_device_kernel<K>>
struct checked_kernel {
  static_assert(
      complete_device_kernel<K>,
      "gspmd: a kernel states every fact of complete_device_kernel, in detail/ir/kernel_facts.hpp: the one named below is "
      "missing");
  static constexpr bool holds = false;
};
template <class K>
struct checked_kernel<K, true> {
  static_assert(K::role == step_role::plain || K::role == step_role::updates_a_part,
                "gspmd: the role of a kernel that is not listed is step_role::plain or step_role::updates_a_part");
  static constexpr bool holds = true;
};

#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-template-friend"  // each number has its own function, by intent
#endif
template <std::uint32_t Number>
struct kernel_with_number {
  friend constexpr auto struct_of_kernel(kernel_with_number);
};
/// Maps the number to the struct. Two kernels with the same name define one function twice, which is a compile error.
template <class K, std::uint32_t Number = kernel_number<K>>
struct define_kernel {
  friend constexpr auto struct_of_kernel(kernel_with_number<Number>) { return std::type_identity<K>{}; }
  static constexpr bool is_done = true;
};
#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif

inline namespace GSPMD_TARGET {

/// Prepares a step of K for a session, and the parts of its threads. Files that plan at run time define these functions
/// (run/run_time_kernel.hpp, run/parts/shared_plan.hpp), and so compile K for all element types. All other files refer
/// to weak symbols and compile nothing. If no file of the program defines the functions, their addresses are null.
/// They are members, because GCC 12 ignores gnu::weak on a function template behind `#pragma GCC optimize`.
template <class K>
struct at_run_time {
  [[gnu::weak]] static void make_ready(const plan_view& p, const plan_step& s, ready_step& ready, prepared_objects& objects);
  [[gnu::weak]] static std::int64_t shared_work(const plan_view& p, const plan_step& s);
  [[gnu::weak]] static void share(ready_step& ready, shared_plan& made, std::size_t step, int thread);
};

template <class K>
inline constexpr device_kernel_facts device_facts = {K::name,
                                                     K::works_in_place,
                                                     K::mark_kept,
                                                     K::scratch_bytes,
                                                     at_run_time<K>::make_ready,
                                                     at_run_time<K>::shared_work,
                                                     at_run_time<K>::share};

template <class K, bool IsComplete>
constexpr kernel_name name_of_device_kernel() {
  if constexpr (IsComplete) {
    static_assert(define_kernel<K>::is_done);
    return {kernel_number<K>, K::work, K::role, &device_facts<K>};
  } else {  // the compiler has reported it
    return {0, step_work::computes, step_role::plain, nullptr};
  }
}
template <class K>
inline constexpr kernel_name name_of_kernel = name_of_device_kernel<K, checked_kernel<K>::holds>();
template <class K>
  requires is_listed_kernel<K>
inline constexpr kernel_name name_of_kernel<K>{kernel_number<K>, K::work, K::role};
/// Identifies the kernel K in a step.
template <class K>
inline constexpr kernel_id id_of{&name_of_kernel<K>};

}  // namespace GSPMD_TARGET

/// The kernel with this number.
template <std::uint32_t Number>
struct find_kernel : decltype(struct_of_kernel(kernel_with_number<Number>{})) {};
template <std::uint32_t Number>
  requires(Number < listed_kernel_count)
struct find_kernel<Number> {
  using type = mp11::mp_at_c<listed_kernels, Number>;
};

// ---- the facts of a step ----

class facts_of_step {
  template <auto Fact>
  static constexpr const auto& table = facts_of_kernels<listed_kernels>::by_kernel<Fact>;
  const kernel_name* kernel_;

  [[nodiscard]] constexpr bool is_own() const { return !kernel_->is_listed(); }

 public:
  constexpr explicit facts_of_step(const plan_step& s)
      : kernel_(s.kernel.name), work(s.kernel.name->work), role(s.kernel.name->role) {}

  step_work work;
  step_role role;
  constexpr bool works_in_place(const plan_step& s) const {
    return is_own() ? kernel_->own->works_in_place(s) : table<&kernel_facts::works_in_place>[kernel_->number](s);
  }
  constexpr void mark_kept(const table_views& tables, const plan_step& s, std::uint8_t* kept) const {
    is_own() ? kernel_->own->mark_kept(tables, s, kept) : table<&kernel_facts::mark_kept>[kernel_->number](tables, s, kept);
  }
  constexpr std::int64_t scratch_bytes(const table_views& tables, const plan_step& s) const {
    return is_own() ? kernel_->own->scratch_bytes(tables, s) : table<&kernel_facts::scratch_bytes>[kernel_->number](tables, s);
  }
  constexpr axis_mask axes(const plan_view& p, const plan_step& s) const {
    return is_own() ? axis_mask{0} : table<&kernel_facts::axes>[kernel_->number](p, s);
  }
  constexpr std::int64_t messages(const plan_view& p, const plan_step& s) const {
    return is_own() ? 0 : table<&kernel_facts::messages>[kernel_->number](p, s);
  }
  constexpr detail::packing packing(const plan_view& p, const plan_step& s) const {
    return is_own() ? detail::packing{} : table<&kernel_facts::packing>[kernel_->number](p, s);
  }
  constexpr ring_rounds_kind rounds(const plan_view& p, const plan_step& s) const {
    return is_own() ? ring_rounds_kind::none : table<&kernel_facts::rounds>[kernel_->number](p, s);
  }
};

constexpr facts_of_step facts_of(const plan_step& s) { return facts_of_step(s); }

/// Returns listed kernel K's description of a step, or null if the step has another kernel.
template <class K>
constexpr auto description_by(const plan_view& p, const plan_step& s) {
  const auto& table = table_of<typename mp11::mp_first<typename K::tables>::entry>(p);
  return is<K>(s) ? table.data() + s.spec : nullptr;
}

/// Returns the description of a step of K, which is not listed.
template <class K>
constexpr typename K::description description_of(const auto& tables, const plan_step& s) {
  if constexpr (std::is_same_v<typename K::description, no_description>) return {};
  else return read_description<typename K::description>(tables, s.spec);
}
/// The same if the kernel of the step is K, or one of `Others` with the same type of description. Otherwise, and if the
/// step is null, returns nothing.
template <class K, class... Others>
constexpr std::optional<typename K::description> description_if(const plan_view& p, const plan_step* s) {
  if (s == nullptr || !(is<K>(*s) || ... || is<Others>(*s))) return std::nullopt;
  return description_of<K>(p, *s);
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
