// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "gspmd/detail/support/mp11.hpp"

namespace gspmd::detail {

namespace mp11 = boost::mp11;

/// The kernels of the centre. The list declares them. All kernels that communicate are in the list, because their code
/// is compiled for each type of communicator. A kernel that computes on one device needs no entry: see device_kernel
/// (ir/kernels/parts.hpp).
namespace kernels {
using list = mp11::mp_list<struct fused, struct contract, struct contract_round_ring, struct reduce, struct permute, struct move,
                           struct move_together, struct start_move, struct finish_move, struct combine, struct combine_together,
                           struct start_combine, struct finish_combine, struct row, struct set_row, struct add_row, struct copy,
                           struct terms, struct loop_begin, struct loop_end, struct branch, struct otherwise, struct join,
                           struct rows_begin, struct rows_end>;
}  // namespace kernels

using listed_kernels = kernels::list;
inline constexpr std::size_t listed_kernel_count = mp11::mp_size<listed_kernels>::value;

/// Returns the index of K in the list, or the size of the list. It uses the compilers' own comparison of types, because
/// every file evaluates it for all kernels.
template <class K, class... Kernels>
constexpr std::size_t place_of(mp11::mp_list<Kernels...>) {
  std::size_t place = 0;
  static_cast<void>(((__is_same(K, Kernels) || (++place, false)) || ...));
  return place;
}
template <class K>
inline constexpr std::size_t place_of_kernel = place_of<K>(listed_kernels{});
template <class K>
inline constexpr bool is_listed_kernel = place_of_kernel<K> < listed_kernel_count;

constexpr std::uint32_t number_from_name(const char* name) {
  std::uint32_t hash = 0x811c9dc5U;
  for (; *name != 0; ++name) hash = (hash ^ static_cast<unsigned char>(*name)) * 0x01000193U;
  return hash | 0x80000000U;
}
/// The number of a kernel: its index in the list, or a hash of its name.
template <class K>
inline constexpr std::uint32_t kernel_number = number_from_name(K::name);
template <class K>
  requires is_listed_kernel<K>
inline constexpr std::uint32_t kernel_number<K> = static_cast<std::uint32_t>(place_of_kernel<K>);

enum class step_work : std::uint8_t {
  computes,  // on one device, from its own memory to its own memory
  moves,     // data between devices; a part of this can be inside one device
  computes_while_moving,
  ends_moving,  // that another step started
  controls,     // the next step, which the runner executes
};
enum class step_role : std::uint8_t {
  plain,
  fuses_operators,  // a loop of elementwise operators, planned_group, which can write to the memory of any of its inputs
  joins_operands,   // its operands are contiguous in memory, and so are its results
  updates_a_part,   // of an operand: if it works in place, it copies nothing else
  hands_on,         // the results of a body. This step and the following ones keep their position in the order of steps
  loop_begin,
  loop_end,
  branch,
  otherwise,
  join,
};

struct device_kernel_facts;  // ir/kernel_facts.hpp

/// The facts of a kernel that a plan stores.
struct kernel_name {
  std::uint32_t number = 0x80000000U;  // no kernel
  step_work work = step_work::controls;
  step_role role = step_role::plain;
  const device_kernel_facts* own = nullptr;  // of a kernel that is not listed

  /// GCC with -fsanitize=undefined cannot compare `own` with null in a constant expression.
  [[nodiscard]] constexpr bool is_listed() const { return number < listed_kernel_count; }
};
inline constexpr kernel_name no_kernel;

/// The kernel of a step: the address of its kernel_name, so that any header can define a kernel. GCC with
/// -fsanitize=undefined cannot compare addresses in a constant expression, so kernels are compared by number.
struct kernel_id {
  const kernel_name* name = &no_kernel;

  [[nodiscard]] constexpr std::uint32_t number() const { return name->number; }
  friend constexpr bool operator==(const kernel_id& a, const kernel_id& b) { return a.name->number == b.name->number; }
};

}  // namespace gspmd::detail
