// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "gspmd/detail/support/mp11.hpp"

namespace gspmd::detail {

namespace mp11 = boost::mp11;

/// All kernels. The list declares them. A new kernel needs a struct in a header that ir/plan.hpp includes, an entry in
/// this list, and code that adds it as a step.
namespace kernels {
using list =
    mp11::mp_list<struct fused, struct contract, struct contract_round_ring, struct reduce, struct permute, struct move,
                  struct move_together, struct start_move, struct finish_move, struct combine, struct combine_together,
                  struct start_combine, struct finish_combine, struct row, struct set_row, struct add_row, struct copy,
                  struct terms, struct local, struct reduce_window, struct select_and_scatter, struct gather, struct scatter,
                  struct scatter_set, struct scan, struct top_k, struct sort, struct sort_ends, struct fold, struct loop_begin,
                  struct loop_end, struct branch, struct otherwise, struct join, struct rows_begin, struct rows_end>;
}  // namespace kernels

using all_kernels = kernels::list;
inline constexpr std::size_t kernel_count = mp11::mp_size<all_kernels>::value;

/// The kernel of a step: its index in the list. It is an enumeration without names, because constant evaluation
/// compares enumerations without a call.
enum class kernel_id : std::uint8_t {};

/// Returns the index of K in the list, or the size of the list. It uses the compilers' own comparison of types, because
/// every file evaluates it for all kernels.
template <class K, class... Kernels>
constexpr std::size_t place_of(mp11::mp_list<Kernels...>) {
  std::size_t place = 0;
  static_cast<void>(((__is_same(K, Kernels) || (++place, false)) || ...));
  return place;
}
/// The number of a kernel. A type that is not in the list has no number.
template <class K>
  requires(place_of<K>(all_kernels{}) < kernel_count)
inline constexpr kernel_id id_of{place_of<K>(all_kernels{})};

}  // namespace gspmd::detail
