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
#include "gspmd/detail/support/tuning.hpp"

/// Steps that process the same rows (passes/lower/row_blocks.hpp) as one loop of the static path, row by row. The
/// next step finds a row in the first-level cache, and the overhead of a step is not paid again for each block of
/// rows.
///
///   layer norm      for each row: its sum, the mean; the differences and the sum of their squares, the factor;
///                   products
///
/// A row is computed by the functions that compute whole tensors, so it has the same bits. Each step processes a
/// group of rows before the next step begins. The first-level cache holds a group. The sum, root and quotient of a
/// row depend on each other. Meanwhile the processor computes them for other rows of the group. A value that only
/// these steps read has memory for a group of rows.
namespace gspmd::detail {

/// The number of a row in its block, and in its group of rows.
struct row_number {
  std::int64_t of_block, of_group;
};
/// The distance to the next row, in bytes: for a value that has memory for each row of the block, or for each row of
/// a group.
struct row_steps {
  std::int64_t of_block = 0, of_group = 0;
  [[nodiscard]] constexpr std::int64_t to(row_number r) const { return r.of_block * of_block + r.of_group * of_group; }
  static constexpr row_steps of(const planned_value& v, std::int64_t rows) {
    const bool is_inside = v.whole >= 0 && v.counter < 0;
    return {v.where.row_bytes, is_inside ? elements(v.local) / rows * bytes_of(v.type) : 0};
  }
};

/// The addresses of row 0 of the operands and results of a step, and the distances to the next row.
template <class Program, int Step, std::int64_t Rows>
struct row_places {
  static constexpr const plan_step& s = step_of<Program, Step>;
  const std::byte* from[s.operands.count + 1];
  std::byte* to[s.results.count + 1];

  row_places(const plan_view& plan, const device_memory& device) {
    for (int k = 0; k < s.operands.count; ++k) from[k] = static_cast<const std::byte*>(device.read(plan.operand(s, k).where));
    for (int k = 0; k < s.results.count; ++k) to[k] = static_cast<std::byte*>(device.write(plan.result(s, k).where));
  }
  static constexpr row_steps from_step(int k) { return row_steps::of(Program::view.operand(s, k), Rows); }
  static constexpr row_steps to_step(int k) { return row_steps::of(Program::view.result(s, k), Rows); }
  /// Returns true if no value with a bound of this step is padded on any device.
  static constexpr bool is_whole() {
    for (int b = 0; b < s.bounds.count; ++b)
      if (Program::view.value(Program::view.bounds[static_cast<std::size_t>(s.bounds.begin + b)].value).is_padded) return false;
    return true;
  }
};

/// Returns the number of elements of a row if the reduction reduces whole rows. Otherwise returns 0.
constexpr std::int64_t elems_of_reduced_row(const reduction_spec& spec, std::int64_t rows) {
  dim_mask of_row = 0;
  for (int d = 1; d < spec.in.count; ++d) of_row |= dim_bit(d);
  return of_row != 0 && spec.dims == of_row && spec.in[0] == rows ? elements(spec.in) / rows : 0;
}

/// Reduces a row in memory. A row of floats whose sum is not divided into parts has a loop of constant length in this
/// function.
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

/// A step that cannot run row by row.
struct no_row {
  static constexpr bool can_be = false;
};

/// A row of a loop that has one dim for all rows.
template <class Group, std::int64_t Elems>
struct row_of_one_dim {
  static constexpr extents loop = extents(1, Elems);
  static constexpr dim_mask cut = 0;
  static constexpr const auto& ops = Group::ops;
  static constexpr const auto& stores = Group::stores;
  static constexpr const auto& margins = Group::margins;
};

/// A loop and its reductions. The loop has several elements for each row, or one.
template <class Program, int Step, std::int64_t Rows>
struct row_of_loop {
  using places = row_places<Program, Step, Rows>;
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
  /// True if the reductions are computed with the loop, so that no block stores the reduced elements.
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
  [[gnu::always_inline]] void run(row_number r) const {
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
  /// The distances to the next row, by load and by store.
  static constexpr auto steps = [] {
    struct all {
      row_steps from[std::size(own_group::ops) + 1]{}, to[row_plan::store_count + 1]{};
    } bytes;
    std::size_t load = 0;
    for (const scalar_op& o : own_group::ops)
      if (o.is_load()) bytes.from[load++] = places::from_step(o.slot);
    for (std::size_t k = 0; k < row_plan::store_count; ++k) bytes.to[k] = places::to_step(own_group::stores[k].slot);
    for (int k = 0; k < reductions; ++k)
      if (reduction(k).is_stored()) bytes.to[store_of(reduction(k).stored)] = {};
    return bytes;
  }();
  [[gnu::always_inline]] auto row_at(row_number r) const {
    auto row = first;
    [&]<std::size_t... L, std::size_t... S>(std::index_sequence<L...>, std::index_sequence<S...>) __attribute__((always_inline)) {
      ((row.from[L] = static_cast<const std::byte*>(row.from[L]) + steps.from[L].to(r)), ...);
      ((row.to[S] = static_cast<std::byte*>(row.to[S]) + steps.to[S].to(r)), ...);
    }
    (std::make_index_sequence<static_cast<std::size_t>(row_plan::facts.loads)>{},
     std::make_index_sequence<row_plan::store_count>{});
    return row;
  }
  template <int... K>
  [[gnu::always_inline]] void reduce(const typename row_plan::row& row, row_number r, std::integer_sequence<int, K...>) const {
    std::byte* const to[] = {results[K] + places::to_step(reduction(K).slot).to(r)...};
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

/// A reduction of rows in memory.
template <class Program, int Step, std::int64_t Rows>
struct row_of_reduction : row_places<Program, Step, Rows> {
  using places = row_places<Program, Step, Rows>;
  static constexpr std::int64_t elems = elems_of_reduced_row(entry_of_step<Program, Step, reduction_spec>, Rows);
  static constexpr bool can_be = elems > 0 && places::is_whole();

  using places::places;
  [[gnu::always_inline]] void run(row_number r) const {
    constexpr dtype type = places::s.type;  // GCC 12 accepts no member of `s` as a template argument
    using element = element_t<type>;
    reduce_row<natural_kind<element>(entry_of_step<Program, Step, reduction_spec>.reduced_by), element, elems>(
        places::from[0] + places::from_step(0).to(r), places::to[0] + places::to_step(0).to(r));
  }
};

/// An inner product of rows.
template <class Program, int Step, std::int64_t Rows>
struct row_of_product : row_places<Program, Step, Rows> {
  using places = row_places<Program, Step, Rows>;
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
  [[gnu::always_inline]] void run(row_number row) const {
    using element = element_t<signed_of(places::s.type)>;
    constexpr int first = plan.is_swapped ? 1 : 0, second = 1 - first;
    const auto* const l = reinterpret_cast<const element*>(places::from[first] + places::from_step(first).to(row));
    const auto* const r = reinterpret_cast<const element*>(places::from[second] + places::from_step(second).to(row));
    gemm(plan.transpose_first, plan.transpose_second, 1, 1, elems, l, plan.first_ld, r, plan.second_ld,
         reinterpret_cast<element*>(places::to[0] + places::to_step(0).to(row)), plan.out_ld);
  }
};

/// Selects, by kernel, the type that computes a row of a step.
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
  using row_of = typename row_of_step<kernel_of_step<Program, Begin + 1 + Offset>, Program, Begin + 1 + Offset, rows>::type;
  using offsets = std::make_integer_sequence<int, step_of<Program, Begin>.target - Begin - 1>;
  /// The number of rows of a group, such that the first-level cache can hold the group.
  static constexpr std::int64_t together = [] {
    const auto row_bytes = [](const planned_value& v) {
      const row_steps steps = row_steps::of(v, rows);
      return steps.of_block + steps.of_group;
    };
    std::int64_t bytes = 0;
    for (int i = Begin + 1; i < step_of<Program, Begin>.target; ++i) {
      const plan_step& s = Program::view.steps[static_cast<std::size_t>(i)];
      std::int64_t read = 0, made = 0;
      for (int k = 0; k < s.operands.count; ++k) read += row_bytes(Program::view.operand(s, k));
      for (int k = 0; k < s.results.count; ++k) made += row_bytes(Program::view.result(s, k));
      bytes = std::max(bytes, read + made);
    }
    const auto most = step_of<Program, Begin>.trips == 1 ? rows_together_bytes : far_rows_together_bytes;
    return std::clamp(most / std::max(bytes, std::int64_t{1}), std::int64_t{1}, std::min(most_rows_together, rows));
  }();

  template <int... Offset>
  static constexpr bool are_chained(std::integer_sequence<int, Offset...>) {
    return (row_of<Offset>::can_be && ...);
  }
  template <int... Offset>
  GSPMD_LOOP_FUNCTION static void run(const plan_view& plan, const device_memory& device, std::integer_sequence<int, Offset...>) {
    GSPMD_KEEP_LOOP_OPTIONS
    const std::tuple<row_of<Offset>...> steps{row_of<Offset>(plan, device)...};
    const auto end = rows * (device.part + 1) / device.parts;
    for (std::int64_t r = rows * device.part / device.parts; r < end; r += together) {
      const auto some = end - r < together ? end - r : together;
      const auto run_group = [&](const auto& step) __attribute__((always_inline)) {
        for (std::int64_t i = 0; i < some; ++i) step.run(row_number{r + i, i});
      };
      (run_group(std::get<static_cast<std::size_t>(Offset)>(steps)), ...);
    }
  }
  /// Runs one block of rows.
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
