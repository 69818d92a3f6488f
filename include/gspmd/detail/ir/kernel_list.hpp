// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include "gspmd/detail/ir/kernels/collectives.hpp"
#include "gspmd/detail/ir/kernels/contract.hpp"
#include "gspmd/detail/ir/kernels/copies.hpp"
#include "gspmd/detail/ir/kernels/folds.hpp"
#include "gspmd/detail/ir/kernels/fused.hpp"
#include "gspmd/detail/ir/kernels/indices.hpp"
#include "gspmd/detail/ir/kernels/rearrange.hpp"
#include "gspmd/detail/ir/kernels/regions.hpp"
#include "gspmd/detail/ir/kernels/scans.hpp"
#include "gspmd/detail/ir/kernels/sorts.hpp"
#include "gspmd/detail/ir/kernels/windows.hpp"

/// All kernels. A new one is its struct, a name in `action` and an entry here; and where it is added as a step.
namespace gspmd::detail {

using all_kernels =
    mp11::mp_list<kernels::fused, kernels::contract, kernels::contract_round_ring, kernels::reduce, kernels::permute,
                  kernels::move, kernels::move_together, kernels::start_move, kernels::finish_move, kernels::combine,
                  kernels::combine_together, kernels::row, kernels::set_row, kernels::add_row, kernels::copy, kernels::terms,
                  kernels::local, kernels::reduce_window, kernels::select_and_scatter, kernels::gather, kernels::scatter,
                  kernels::scatter_set, kernels::scan, kernels::top_k, kernels::sort, kernels::sort_ends, kernels::fold,
                  kernels::loop_begin, kernels::loop_end, kernels::branch, kernels::otherwise, kernels::join, kernels::rows_begin,
                  kernels::rows_end>;
inline constexpr std::size_t kernel_count = mp11::mp_size<all_kernels>::value;

/// The kernel of a name.
template <action Name>
using kernel_named = mp11::mp_at_c<all_kernels, static_cast<std::size_t>(Name)>;

template <class... K>
constexpr bool is_in_order(mp11::mp_list<K...>) {
  int place = 0;
  return ((static_cast<int>(K::name) == place++) && ...);
}
static_assert(is_in_order(all_kernels{}), "the list and `action` have one order");

/// The tables that kernels fill, each once.
template <class K>
using tables_of_kernel = typename K::tables;
using kernel_tables = mp11::mp_unique<mp11::mp_apply<mp11::mp_append, mp11::mp_transform<tables_of_kernel, all_kernels>>>;

}  // namespace gspmd::detail
