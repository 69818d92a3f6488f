// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ir/row_work.hpp"
#include "gspmd/detail/run/static_program.hpp"

/// Steps that go through the same rows (passes/lower/row_blocks.hpp) as one loop of the static path, row by row: what one step leaves of a
/// row, the next one finds in the first cache, and no step is begun anew for a few rows.
///
///   layer norm      for each row: its sum, the mean; what is left of each element and the sum of its squares, the factor; products
///
/// A row is computed by the functions that compute all of them, and has the same bits. What only these steps read has one row's place.
namespace gspmd::detail {

/// Where the operands and results of a step have row 0, and how far it is to the next row, in bytes.
template <class Program, int Step>
struct row_places {
  static constexpr const plan_step& s = step_of<Program, Step>;
  const std::byte* from[s.operands.count + 1];
  std::byte* to[s.results.count + 1];

  row_places(const plan_view& plan, const device_memory& device) {
    for (int k = 0; k < s.operands.count; ++k) from[k] = static_cast<const std::byte*>(device.read(plan.operand(s, k).where));
    for (int k = 0; k < s.results.count; ++k) to[k] = static_cast<std::byte*>(device.write(plan.result(s, k).where));
  }
  static constexpr std::int64_t from_step(int k) { return Program::view.operand(s, k).where.row_bytes; }
  static constexpr std::int64_t to_step(int k) { return Program::view.result(s, k).where.row_bytes; }
  /// No device has less of what is read.
  static constexpr bool is_whole() {
    for (int b = 0; b < s.bounds.count; ++b)
      if (Program::view.value(Program::view.bounds[static_cast<std::size_t>(s.bounds.begin + b)].value).is_padded) return false;
    return true;
  }
};

/// The elements of a row that is reduced as a whole; 0: that is not what the reduction does.
constexpr std::int64_t elems_of_reduced_row(const reduction_spec& spec, std::int64_t rows) {
  dim_mask of_row = 0;
  for (int d = 1; d < spec.in.count; ++d) of_row |= dim_bit(d);
  return of_row != 0 && spec.dims == of_row && spec.in[0] == rows ? elements(spec.in) / rows : 0;
}

/// Reduces a row in memory. Rows of floats that are no sums of parts have their loop here, of a length that is constant.
template <monoid Kind, class T, std::int64_t Elems>
[[gnu::always_inline]] inline void reduce_row(const std::byte* from, std::byte* to) {
  if constexpr (std::is_floating_point_v<T> && Kind != monoid::multiply && Elems <= most_in_turn * 4 * simd_lanes<T>) {
    const T result = reduce_run<Kind>(reinterpret_cast<const T*>(from), Elems);
    std::memcpy(to, &result, sizeof result);
  } else {
    stored_elements source{reduction_kernel_of<Kind, T>};
    reduce_each(source, from, 1, Elems, Elems, to);
  }
}

/// A step that cannot be done row by row.
struct no_row {
  static constexpr bool can_be = false;
};

/// A row of a loop of one dim that goes through all rows.
template <class Group, std::int64_t Elems>
struct row_of_one_dim {
  static constexpr extents loop = extents(1, Elems);
  static constexpr dim_mask cut = 0;
  static constexpr const auto& ops = Group::ops;
  static constexpr const auto& stores = Group::stores;
  static constexpr const auto& margins = Group::margins;
};

/// A loop, over elements of a row or of one for each row, and its reductions.
template <class Program, int Step, std::int64_t Rows>
struct row_of_loop {
  using places = row_places<Program, Step>;
  using own_group = static_group<Program, places::s.spec>;
  static constexpr const planned_group& planned = own_group::group;
  static constexpr int reductions = planned.reductions.count;
  static constexpr const extents& loop = own_group::loop;
  static constexpr bool has_rows = (loop.count == 1 || loop.count == 2) && loop[0] % Rows == 0 && elements(loop) > 0;
  static constexpr std::int64_t elems = has_rows ? elements(loop) / Rows : 1;
  static constexpr const loop_reduction& reduction(int k) {
    return table_of<loop_reduction>(Program::view)[static_cast<std::size_t>(planned.reductions.begin + k)];
  }
  using rows_group =
      std::conditional_t<(loop.count == 1 && (elems > 1 || reductions > 0)), row_of_one_dim<own_group, elems>, own_group>;
  using group = std::conditional_t<(reductions > 0), reduced_group<rows_group>, rows_group>;
  using row_type = typename row_of_group<group>::type;
  using row_plan = fused_plan<row_type>;
  /// Whether its reductions are made while it is computed, and no block holds what is reduced.
  static constexpr bool accumulates = [] {
    if constexpr (reductions == 0 || !has_rows) {
      return false;
    } else {
      constexpr auto at_once = 4 * kernel_of_reduction<Program, planned.reductions.begin>()->lanes;
      return accumulation_of<Program, own_group, row_type>::is_one && elems % at_once == 0 && elems <= most_in_turn * at_once;
    }
  }();
  static constexpr bool can_be = [] {
    if (planned.cut != 0 || planned.part >= 0 || planned.margins.count > 0 || row_plan::facts.has_map) return false;
    if (!has_rows || (loop.count == 2 && loop[0] != Rows)) return false;
    for (int k = 0; k < reductions; ++k)
      if (elems_of_reduced_row(table_of<reduction_spec>(Program::view)[static_cast<std::size_t>(reduction(k).reduction)], Rows) !=
              elems ||
          (!accumulates && elems > reduced_block_elems(loop, bytes_of(reduction(k).type))))
        return false;
    return places::is_whole();
  }();

  typename row_plan::row first;
  std::byte* results[reductions + 1];

  row_of_loop(const plan_view& plan, const device_memory& device) {
    const places at(plan, device);
    std::int64_t offsets[places::s.bounds.count + 1]{};
    find_offsets(Program::view, places::s, device, offsets);
    std::size_t load = 0, iota = 0;
    for (const scalar_op& o : own_group::ops) {
      if (o.is_load()) first.from[load++] = at.from[o.slot];
      else if (o.is_index()) first.index[iota++] = offsets[o.slot];
    }
    for (std::size_t k = 0; k < row_plan::store_count; ++k) first.to[k] = at.to[own_group::stores[k].slot];
    std::byte* block = device.arena + plan.steps[Step].scratch;
    for (int k = 0; k < reductions; ++k) {
      results[k] = at.to[reduction(k).slot];
      if (!reduction(k).is_stored()) continue;
      first.to[store_of(reduction(k).stored)] = block;
      block += reduced_block_bytes(loop, bytes_of(reduction(k).type));
    }
  }
  [[gnu::always_inline]] void run(std::int64_t r) const {
    const auto row = row_at(r);
    if constexpr (elems == 1 && reductions == 0) {
      compute_element<row_type>(row, 0, row, 0);
    } else if constexpr (reductions == 0) {
      compute_row<row_type>(row, row_elems_type<row_type>::of(elems));
    } else {
      reduce(row, r, std::make_integer_sequence<int, reductions>{});
    }
  }

 private:
  static constexpr std::size_t store_of(int slot) {
    std::size_t store = 0;
    while (own_group::stores[store].slot != slot) ++store;
    return store;
  }
  /// From row to row, by load and by store.
  static constexpr auto steps = [] {
    struct all {
      std::int64_t from[std::size(own_group::ops) + 1]{}, to[row_plan::store_count + 1]{};
    } bytes;
    std::size_t load = 0;
    for (const scalar_op& o : own_group::ops)
      if (o.is_load()) bytes.from[load++] = places::from_step(o.slot);
    for (std::size_t k = 0; k < row_plan::store_count; ++k) bytes.to[k] = places::to_step(own_group::stores[k].slot);
    for (int k = 0; k < reductions; ++k)
      if (reduction(k).is_stored()) bytes.to[store_of(reduction(k).stored)] = 0;
    return bytes;
  }();
  [[gnu::always_inline]] auto row_at(std::int64_t r) const {
    auto row = first;
    [&]<std::size_t... L, std::size_t... S>(std::index_sequence<L...>, std::index_sequence<S...>) __attribute__((always_inline)) {
      ((row.from[L] = static_cast<const std::byte*>(row.from[L]) + r * steps.from[L]), ...);
      ((row.to[S] = static_cast<std::byte*>(row.to[S]) + r * steps.to[S]), ...);
    }
    (std::make_index_sequence<static_cast<std::size_t>(row_plan::facts.loads)>{},
     std::make_index_sequence<row_plan::store_count>{});
    return row;
  }
  template <int... K>
  [[gnu::always_inline]] void reduce(const typename row_plan::row& row, std::int64_t r, std::integer_sequence<int, K...>) const {
    std::byte* const to[] = {results[K] + r * places::to_step(reduction(K).slot)...};
    if constexpr (accumulates) {
      accumulation_of<Program, own_group, row_type>::whole_row(row, elems, to);
    } else {
      compute_row<row_type>(row, row_elems_type<row_type>::of(elems));
      (reduce_stored<K>(static_cast<const std::byte*>(row.to[store_of(reduction(K).stored)]), to[K]), ...);
    }
  }
  template <int K>
  [[gnu::always_inline]] static void reduce_stored(const std::byte* from, std::byte* to) {
    constexpr dtype type = reduction(K).type;
    using element = element_t<type>;
    reduce_row<natural_kind<element>(
                   table_of<reduction_spec>(Program::view)[static_cast<std::size_t>(reduction(K).reduction)].reduced_by),
               element, elems>(from, to);
  }
};

/// A reduction of rows that lie in memory.
template <class Program, int Step, std::int64_t Rows>
struct row_of_reduction : row_places<Program, Step> {
  using places = row_places<Program, Step>;
  static constexpr std::int64_t elems = elems_of_reduced_row(entry_of_step<Program, Step, reduction_spec>, Rows);
  static constexpr bool can_be = elems > 0 && places::is_whole();

  using places::places;
  [[gnu::always_inline]] void run(std::int64_t r) const {
    constexpr dtype type = places::s.type;  // GCC 12 takes no member of `s` as a template argument
    using element = element_t<type>;
    reduce_row<natural_kind<element>(entry_of_step<Program, Step, reduction_spec>.reduced_by), element, elems>(
        places::from[0] + r * places::from_step(0), places::to[0] + r * places::to_step(0));
  }
};

/// An inner product of rows.
template <class Program, int Step, std::int64_t Rows>
struct row_of_product : row_places<Program, Step> {
  using places = row_places<Program, Step>;
  static constexpr const contraction_plan& plan = entry_of_step<Program, Step, contraction_plan>;
  static constexpr std::int64_t elems = [] {
    std::int64_t n = 1;
    for (const auto& sum : plan.sums) n *= sum.extent;
    return n;
  }();
  static constexpr bool can_be = is_plain(plan) && plan.panel == 0 && !plan.direct.is_one && plan.m == 1 && plan.n == 1 &&
                                 plan.loops.count == 1 && plan.loops[0] == contraction_loop{Rows, {elems, elems, 1}} &&
                                 plan.merged_sums == plan.sums.count && plan.merged_sums > 0 && places::is_whole();

  using places::places;
  [[gnu::always_inline]] void run(std::int64_t row) const {
    using element = element_t<signed_of(places::s.type)>;
    constexpr int first = plan.is_swapped ? 1 : 0, second = 1 - first;
    const auto* const l = reinterpret_cast<const element*>(places::from[first] + row * places::from_step(first));
    const auto* const r = reinterpret_cast<const element*>(places::from[second] + row * places::from_step(second));
    gemm(plan.transpose_first, plan.transpose_second, 1, 1, elems, l, plan.first_ld, r, plan.second_ld,
         reinterpret_cast<element*>(places::to[0] + row * places::to_step(0)), plan.out_ld);
  }
};

/// By kernel, what computes a row of a step.
template <class Kernel, class Program, int Step, std::int64_t Rows>
struct row_of_step {
  using type = no_row;
};
template <class Program, int Step, std::int64_t Rows>
struct row_of_step<kernels::fused, Program, Step, Rows> {
  using type = row_of_loop<Program, Step, Rows>;
};
template <class Program, int Step, std::int64_t Rows>
struct row_of_step<kernels::reduce, Program, Step, Rows> {
  using type = row_of_reduction<Program, Step, Rows>;
};
template <class Program, int Step, std::int64_t Rows>
struct row_of_step<kernels::contract, Program, Step, Rows> {
  using type = row_of_product<Program, Step, Rows>;
};

/// The steps between the rows_begin step `Begin` and its end.
template <class Program, int Begin>
struct static_rows {
  static constexpr std::int64_t rows = entry_of_step<Program, Begin, row_blocks>.at_once;
  template <int Offset>
  using row_of =
      typename row_of_step<mp11::mp_at_c<all_kernels, static_cast<std::size_t>(step_of<Program, Begin + 1 + Offset>.kernel)>,
                           Program, Begin + 1 + Offset, rows>::type;
  using offsets = std::make_integer_sequence<int, step_of<Program, Begin>.target - Begin - 1>;

  template <int... Offset>
  static constexpr bool are_chained(std::integer_sequence<int, Offset...>) {
    return (row_of<Offset>::can_be && ...);
  }
  template <int... Offset>
  GSPMD_LOOP_FUNCTION static void run(const plan_view& plan, const device_memory& device, std::integer_sequence<int, Offset...>) {
    const std::tuple<row_of<Offset>...> steps{row_of<Offset>(plan, device)...};
    const auto end = rows * (device.part + 1) / device.parts;
    for (std::int64_t r = rows * device.part / device.parts; r < end; ++r)
      (std::get<static_cast<std::size_t>(Offset)>(steps).run(r), ...);
  }
  /// One block of rows.
  static void run_block(const void*, const plan_view& plan, const plan_step&, const device_memory& device) {
    run(plan, device, offsets{});
  }
};

template <class Program, int Begin>
constexpr ready_step::alone_function block_of_rows() {
  using all = static_rows<Program, Begin>;
  if constexpr (all::are_chained(typename all::offsets{})) return all::run_block;
  else return nullptr;
}

}  // namespace gspmd::detail
