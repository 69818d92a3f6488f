// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ir/elementwise/list.hpp"
#include "gspmd/detail/ir/fused_group.hpp"
#include "gspmd/detail/ir/fused_loop.hpp"
#include "gspmd/detail/ir/inner_part.hpp"
#include "gspmd/detail/ir/monoid_ops.hpp"
#include "gspmd/detail/ir/scalar_ops.hpp"
#include "gspmd/detail/kernels/fused_row.hpp"
#include "gspmd/detail/kernels/reduce_rows.hpp"
#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/support/target.hpp"
#include "gspmd/detail/support/tuning.hpp"
#include "gspmd/error.hpp"

/// A fused group that is known at compile time. One vectorised loop over a row is compiled for the group. One driver
/// for all groups iterates over the rows.
///
/// `Group` has the static constants `loop`, `cut` (as in planned_group), `ops` and `stores`. It is a type, so that
/// names of instantiations stay short. Per operator of a group, one small function is instantiated. The code of an
/// operator is shared by all groups.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Consecutive rows, as the arguments of a function that is compiled for a group. Each load, iota and store has the
/// begin of the first row and the step to the next row, in bytes or in indices. If rows consist of several pieces, the
/// arrays hold the values of all pieces one after the other. Only the steps of iotas and stores are shared by all
/// pieces.
struct fused_rows {
  const scalar_op** load_op;
  const fused_margin** margin;  // the first halo buffer of a load; null if the load has no offset
  const void** from;
  std::int64_t* from_step;
  const scalar_op** iota_op;
  std::int64_t* index;
  std::int64_t* index_step;
  void** to;
  std::int64_t* to_step;
  std::int64_t* elems;  // of each piece, if there are several
  int most_pieces, pieces = 1;

  [[nodiscard]] fused_rows piece(int p, std::size_t loads, std::size_t iotas, std::size_t stores) const {
    auto one = *this;
    const auto k = static_cast<std::size_t>(p);
    one.from += k * loads, one.from_step += k * loads, one.index += k * iotas, one.to += k * stores;
    return one;
  }
};
/// Maximum number of pieces of a row that are computed before the next row. It suffices for loads up to two elements to
/// both sides. Computing the outer pieces of many rows together would evict data of the inner pieces from the
/// first-level cache.
inline constexpr int most_row_pieces = 5;

/// Constants of a group that are computed once.
template <class Group>
struct fused_plan {
  static constexpr std::size_t op_count = std::size(Group::ops);
  static constexpr std::size_t store_count = std::size(Group::stores);
  static constexpr int ndim = Group::loop.count;
  /// 0: the length of a row is known at run time only.
  static constexpr std::int64_t row_elems = has_cut_rows<Group>() ? 0 : ndim == 0 ? 1 : Group::loop[ndim - 1];

  struct tables {
    std::array<std::int16_t, op_count> position{};  // of an op's register among the registers of its type
    std::array<std::int16_t, op_count> load{};      // index of a load among the loads, or of an iota among the iotas
    std::array<std::int16_t, dtype_end> registers{};
    bool has_own = false;  // own types
    std::int16_t loads = 0;
    std::int16_t iotas = 0;
    bool has_map = false;
  };
  static constexpr tables facts = [] {
    tables t;
    for (std::size_t i = 0; i < op_count; ++i) {
      const scalar_op& o = Group::ops[i];
      t.position[i] = t.registers[static_cast<std::size_t>(o.type)]++;
      if (o.op == opcode::parameter) t.load[i] = t.loads++;
      if (o.op == opcode::iota) t.load[i] = t.iotas++;
      t.has_own = t.has_own || is_own(o.type);
      t.has_map = t.has_map || o.op == scalar_code_of<map_op>;
    }
    return t;
  }();

  // Registers of each type are in an array: much cheaper to compile than a tuple of a thousand members.
  template <dtype Type>
  struct bank {
    element_t<Type> of[facts.registers[static_cast<std::size_t>(Type)] + 1];
  };
  template <dtype Type>
    requires(is_own(Type) && facts.registers[static_cast<std::size_t>(Type)] == 0)
  struct bank<Type> {};
  template <std::size_t... Type>
  static auto banks(std::index_sequence<Type...>) {
    struct all : bank<static_cast<dtype>(Type)>... {};
    return all{};
  }
  using registers = decltype(banks(std::make_index_sequence < facts.has_own ? dtype_end : element_type_count > {}));

  template <std::size_t Index>
  [[gnu::always_inline]] static auto& at(registers& r) {
    return static_cast<bank<Group::ops[Index].type>&>(r).of[facts.position[Index]];
  }

  /// The begin of one row: the addresses of loads and stores, and the values of iotas at the first element.
  struct row {
    std::array<const void*, static_cast<std::size_t>(facts.loads) + 1> from;
    std::array<std::int64_t, static_cast<std::size_t>(facts.iotas) + 1> index;
    std::array<void*, store_count + 1> to;
  };
  /// The step from row to row, in bytes and in indices.
  struct row_steps {
    std::int64_t from[static_cast<std::size_t>(facts.loads) + 1], index[static_cast<std::size_t>(facts.iotas) + 1],
        to[store_count + 1];

    [[gnu::always_inline]] void move(row& r) const {
      for (std::size_t n = 0; n < static_cast<std::size_t>(facts.loads); ++n)
        r.from[n] = static_cast<const std::byte*>(r.from[n]) + from[n];
      for (std::size_t n = 0; n < static_cast<std::size_t>(facts.iotas); ++n) r.index[n] += index[n];
      for (std::size_t k = 0; k < store_count; ++k) r.to[k] = static_cast<std::byte*>(r.to[k]) + to[k];
    }
  };
  [[gnu::always_inline]] static void begin(const fused_rows& all, row& r, row_steps& steps, int piece = 0) {
    const auto first =
        all.piece(piece, static_cast<std::size_t>(facts.loads), static_cast<std::size_t>(facts.iotas), store_count);
    for (std::size_t n = 0; n < static_cast<std::size_t>(facts.loads); ++n)
      r.from[n] = first.from[n], steps.from[n] = first.from_step[n];
    for (std::size_t n = 0; n < static_cast<std::size_t>(facts.iotas); ++n)
      r.index[n] = first.index[n], steps.index[n] = first.index_step[n];
    for (std::size_t k = 0; k < store_count; ++k) r.to[k] = first.to[k], steps.to[k] = first.to_step[k];
  }
};

template <class Group, std::size_t Index>
[[gnu::always_inline]] inline void compute(typename fused_plan<Group>::registers& r, const typename fused_plan<Group>::row& row,
                                           std::int64_t i) {
  using group_plan = fused_plan<Group>;
  constexpr const scalar_op& o = Group::ops[Index];
  constexpr opcode op = o.op.code;
  constexpr dtype type = o.type;  // GCC 12 accepts no member of `o` as a template argument
  using out = element_t<type>;
  auto& result = group_plan::template at<Index>(r);
  if constexpr (op == opcode::parameter) {
    constexpr std::int64_t stride = group_plan::ndim == 0 ? 0 : o.strides[group_plan::ndim - 1];
    result = load_element<out>(row.from[group_plan::facts.load[Index]], i * stride);
  } else if constexpr (op == opcode::constant) {
    if constexpr (is_own(type)) result = out{};  // own types have no other constant
    else if constexpr (is_floating(type)) result = static_cast<out>(o.real);
    else result = static_cast<out>(o.integer);
  } else if constexpr (op == opcode::iota) {
    const std::int64_t moved = o.dim == group_plan::ndim - 1 ? i : 0;
    result = convert_element<out>(row.index[group_plan::facts.load[Index]] + moved);
  } else if constexpr (constexpr std::uint32_t id = short_id(o.op); id == short_id(scalar_code_of<map_op>)) {
    constexpr auto function = function_for<out>(*o.function);
    [&]<std::size_t... K>(std::index_sequence<K...>) __attribute__((always_inline)) {
      const out args[] = {group_plan::template at<o.args[K]>(r)...};
      result = function(args);
    }
    (std::make_index_sequence<static_cast<std::size_t>(o.args.count)>{});
  } else if constexpr (o.args.count == 1) {
    result = apply<operator_struct<id>, out>(group_plan::template at<o.args[0]>(r));
  } else if constexpr (o.args.count == 2) {
    result = apply<operator_struct<id>, out>(group_plan::template at<o.args[0]>(r), group_plan::template at<o.args[1]>(r));
  } else {
    result = apply<operator_struct<id>, out>(group_plan::template at<o.args[0]>(r), group_plan::template at<o.args[1]>(r),
                                             group_plan::template at<o.args[2]>(r));
  }
}

template <class Group, std::size_t Index>
[[gnu::always_inline]] inline void store(typename fused_plan<Group>::registers& r, const typename fused_plan<Group>::row& row,
                                         std::int64_t i) {
  constexpr const fused_store& s = Group::stores[Index];
  store_element(row.to[Index], i, fused_plan<Group>::template at<static_cast<std::size_t>(s.op)>(r));
}

// In steps, because Clang rejects a fold of more than 256 operands.
inline constexpr std::size_t fold_step = 64;
constexpr std::size_t fold_steps(std::size_t n) { return (n + fold_step - 1) / fold_step; }
constexpr std::size_t fold_rest(std::size_t n, std::size_t step) {
  return n - step * fold_step < fold_step ? n - step * fold_step : fold_step;
}

template <class Group, std::size_t First, std::size_t... Index>
[[gnu::always_inline]] inline void compute_some(typename fused_plan<Group>::registers& r,
                                                const typename fused_plan<Group>::row& row, std::int64_t i,
                                                std::index_sequence<Index...>) {
  (compute<Group, First + Index>(r, row, i), ...);
}
template <class Group, std::size_t First, std::size_t... Index>
[[gnu::always_inline]] inline void store_some(typename fused_plan<Group>::registers& r,
                                              const typename fused_plan<Group>::row& row, std::int64_t i,
                                              std::index_sequence<Index...>) {
  (store<Group, First + Index>(r, row, i), ...);
}

template <class Group>
[[gnu::always_inline]] inline void compute_registers(typename fused_plan<Group>::registers& r,
                                                     const typename fused_plan<Group>::row& row, std::int64_t i) {
  constexpr auto count = fused_plan<Group>::op_count;
  [&]<std::size_t... C>(std::index_sequence<C...>) __attribute__((always_inline)) {
    (compute_some<Group, C * fold_step>(r, row, i, std::make_index_sequence<fold_rest(count, C)>{}), ...);
  }
  (std::make_index_sequence<fold_steps(count)>{});
}
/// Computes element `i` of row `from` and stores the results at element `at` of row `to`.
template <class Group>
[[gnu::always_inline]] inline void compute_element(const typename fused_plan<Group>::row& from, std::int64_t i,
                                                   const typename fused_plan<Group>::row& to, std::int64_t at) {
  constexpr auto count = fused_plan<Group>::store_count;
  typename fused_plan<Group>::registers r;
  compute_registers<Group>(r, from, i);
  [&]<std::size_t... S>(std::index_sequence<S...>) __attribute__((always_inline)) {
    (store_some<Group, S * fold_step>(r, to, at, std::make_index_sequence<fold_rest(count, S)>{}), ...);
  }
  (std::make_index_sequence<fold_steps(count)>{});
}

template <class Group>
constexpr std::int64_t bytes_of_store(std::size_t k) {
  return bytes_of(Group::ops[static_cast<std::size_t>(Group::stores[k].op)].type);
}
/// Bytes per element of the stores before `end`.
template <class Group>
constexpr std::int64_t stored_bytes(std::size_t end = fused_plan<Group>::store_count) {
  std::int64_t bytes = 0;
  for (std::size_t k = 0; k < end; ++k) bytes += bytes_of_store<Group>(k);
  return bytes;
}

template <class Group>
inline constexpr bool is_row_in_pieces = false;
template <class Description, std::int64_t Elems, std::int64_t Rest>
inline constexpr bool is_row_in_pieces<fused_row<Description, Elems, Rest, true>> = true;

/// The number of elements that compute_row computes in a row, or in its inner piece, as a type. constant_elems: the
/// constant for which it is compiled.
template <std::int64_t Elems>
struct constant_elems {
  static constexpr bool can_be(std::int64_t elems) { return elems == Elems; }
  static constexpr constant_elems of(std::int64_t) { return {}; }
};
/// Whole steps of for_each_index, with the remainder for which compute_row is compiled.
template <std::int64_t Rest>
struct elems_in_steps {
  std::int64_t steps;

  static constexpr bool can_be(std::int64_t elems) { return elems >= for_each_index_step && elems % for_each_index_step == Rest; }
  static constexpr elems_in_steps of(std::int64_t elems) { return {elems / for_each_index_step}; }
};
/// Any number.
struct any_elems {
  std::int64_t count;

  static constexpr bool can_be(std::int64_t) { return true; }
  static constexpr any_elems of(std::int64_t elems) { return {elems}; }
};
template <class Group>
constexpr auto elems_of_row() {
  if constexpr (fused_plan<Group>::row_elems > 0) return constant_elems<fused_plan<Group>::row_elems>{};
  else if constexpr (has_cut_rows<Group>()) return any_elems{};
  else return elems_in_steps<Group::rest>{};
}
template <class Group>
using row_elems_type = decltype(elems_of_row<Group>());
template <class Group>
inline constexpr bool computes_any_length = std::is_same_v<row_elems_type<Group>, any_elems>;

template <std::int64_t Elems, class Body>
[[gnu::always_inline]] inline void for_each_of(constant_elems<Elems>, Body body) {
  for_each_index(Elems, body);
}
template <std::int64_t Rest, class Body>
[[gnu::always_inline]] inline void for_each_of(elems_in_steps<Rest> elems, Body body) {
  for_each_index(elems.steps * for_each_index_step + Rest, Rest, body);
}
template <class Body>
[[gnu::always_inline]] inline void for_each_of(any_elems elems, Body body) {
  for_each_index(elems.count, body);
}

[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_elems_of_row(std::int64_t elems) {
  throw error("a loop over rows is compiled for another number of elements than " + std::to_string(elems));
}

/// The loads that read the same element for a whole row. The last entry is the number of loads.
template <class Group>
inline constexpr auto lasting_loads = [] {
  std::array<std::size_t, std::size(Group::ops) + 1> list{};
  std::size_t count = 0;
  for (std::size_t i = 0; i < std::size(Group::ops); ++i) {
    const scalar_op& o = Group::ops[i];
    if (o.op == opcode::parameter && !is_own(o.type) && Group::loop.count > 0 && o.strides[Group::loop.count - 1] == 0)
      list[count++] = i;
  }
  list.back() = count;
  return list;
}();
template <class Group, std::size_t Index>
[[gnu::always_inline]] inline void read_once(typename fused_plan<Group>::row& row,
                                             typename fused_plan<Group>::registers& lasting) {
  auto& kept = fused_plan<Group>::template at<Index>(lasting);
  auto& from = row.from[static_cast<std::size_t>(fused_plan<Group>::facts.load[Index])];
  kept = load_element<std::remove_reference_t<decltype(kept)>>(from, 0);
  from = &kept;
}
/// Reads loads that are constant along the row once, into `lasting`. Otherwise compilers would reload them, since a
/// store might change them.
template <class Group>
[[gnu::always_inline]] inline void read_lasting(typename fused_plan<Group>::row& row,
                                                typename fused_plan<Group>::registers& lasting) {
  [&]<std::size_t... K>(std::index_sequence<K...>) __attribute__((always_inline)) {
    (read_once<Group, lasting_loads<Group>[K]>(row, lasting), ...);
  }
  (std::make_index_sequence<lasting_loads<Group>.back()>{});
}

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"  // see for_each_index
#endif
template <class Group>
[[gnu::always_inline]] inline void loop_over_row(const typename fused_plan<Group>::row& given, row_elems_type<Group> elems) {
  typename fused_plan<Group>::registers lasting;
  auto row = given;  // a local copy, so compilers see that stores do not change its addresses
  read_lasting<Group>(row, lasting);
  for_each_of(
      elems, [&row](std::int64_t i) __attribute__((always_inline)) { compute_element<Group>(row, i, row, i); });
}

template <class Group>
GSPMD_LOOP_FUNCTION void compute_row(const typename fused_plan<Group>::row& row, row_elems_type<Group> elems) {
  GSPMD_KEEP_LOOP_OPTIONS
  loop_over_row<Group>(row, elems);
}
/// Computes an outer piece of a row: a few elements.
template <class Group>
GSPMD_LOOP_FUNCTION void compute_few(const typename fused_plan<Group>::row& row, std::int64_t elems) {
  for (std::int64_t i = 0; i < elems; ++i) {
    compute_element<Group>(row, i, row, i);
    asm volatile("");  // prevents vectorisation
  }
}
/// The same as compute_row, with streaming stores. The results must not share memory with an operand. Blocks of 64
/// elements are computed into a buffer, so compilers see the same loop as in compute_row. Cache lines of the results
/// begin at element `head`. The first block stores only the elements before `head`, and the last block stores only
/// elements that are not stored yet.
template <class Group>
GSPMD_LOOP_FUNCTION void stream_row_of(const typename fused_plan<Group>::row& given, std::int64_t elems, std::int64_t head) {
  GSPMD_KEEP_LOOP_OPTIONS
  constexpr auto stores = std::make_index_sequence<fused_plan<Group>::store_count>{};
  constexpr std::int64_t at_once = for_each_index_step;
  alignas(cache_line_bytes) std::byte memory[at_once * stored_bytes<Group>()];
  typename fused_plan<Group>::registers lasting;
  auto row = given;  // a local copy, so compilers see that stores do not change its addresses
  read_lasting<Group>(row, lasting);
  auto block = row;
  for (std::size_t k = 0; k < stores.size(); ++k) block.to[k] = memory + at_once * stored_bytes<Group>(k);
  for (std::int64_t i = 0, end = 0; i < elems; i = end) {
    const auto begin = i + at_once <= elems ? i : elems - at_once;
    end = i < head ? head : begin + at_once;
    for_each_of(
        constant_elems<at_once>{}, [&](std::int64_t j)
                                       __attribute__((always_inline)) { compute_element<Group>(row, begin + j, block, j); });
    [&]<std::size_t... K>(std::index_sequence<K...>) __attribute__((always_inline)) {
      const auto stream = [&]<std::size_t Store>() __attribute__((always_inline)) {
        constexpr auto bytes = bytes_of_store<Group>(Store);
        auto* const to = static_cast<std::byte*>(row.to[Store]) + i * bytes;
        const auto* const from = memory + at_once * stored_bytes<Group>(Store);
        if (end - i == at_once) stream_lines<at_once * bytes>(to, from);
        else stream_part(to, from + (i - begin) * bytes, (end - i) * bytes);
      };
      (stream.template operator()<K>(), ...);
    }
    (stores);
  }
}
template <class Group>
[[gnu::noinline]] void compute_row_with_maps(const typename fused_plan<Group>::row& row, row_elems_type<Group> elems) {
  loop_over_row<Group>(row, elems);
}
#if defined(__clang__)
#pragma clang diagnostic pop
#endif

template <std::size_t Loads, std::size_t Iotas, std::size_t Stores, std::size_t Pieces>
struct fused_rows_memory {
  const scalar_op* load_op[Loads + 1];
  const fused_margin* margin[Loads + 1];
  const void* from[Pieces * Loads + 1];
  std::int64_t from_step[Pieces * Loads + 1];
  const scalar_op* iota_op[Iotas + 1];
  std::int64_t index[Pieces * Iotas + 1], index_step[Iotas + 1];
  void* to[Pieces * Stores + 1];
  std::int64_t to_step[Stores + 1], elems[Pieces];

  fused_rows rows() {
    return {load_op, margin, from, from_step, iota_op, index, index_step, to, to_step, elems, static_cast<int>(Pieces)};
  }
};

using fused_rows_function = void (*)(const fused_rows& first, std::int64_t rows, std::int64_t elems);

/// Computes `elems` elements of a row. Throws gspmd::error if the row is compiled for another number.
template <class Row>
[[gnu::always_inline]] inline void compute_one_row(const typename fused_plan<Row>::row& row, std::int64_t elems) {
  using elems_type = row_elems_type<Row>;
  if (elems_type::can_be(elems)) {
    if constexpr (fused_plan<Row>::facts.has_map) compute_row_with_maps<Row>(row, elems_type::of(elems));
    else compute_row<Row>(row, elems_type::of(elems));
  } else if constexpr (is_row_in_pieces<Row>) {
    compute_few<Row>(row, elems);
  } else {
    refuse_elems_of_row(elems);
  }
}
template <class Row>
inline constexpr int most_pieces_of = is_row_in_pieces<Row> || computes_any_length<Row> ? most_row_pieces : 1;

/// Calls compute(row, elems) for each piece of each row.
template <class Row, class Compute>
[[gnu::always_inline]] inline void for_each_row(const fused_rows& first, std::int64_t rows, std::int64_t elems, Compute compute) {
  using row_plan = fused_plan<Row>;
  typename row_plan::row row[most_pieces_of<Row>];
  typename row_plan::row_steps steps[most_pieces_of<Row>];  // its address never escapes
  if (most_pieces_of<Row> == 1 || first.pieces == 1) {
    row_plan::begin(first, row[0], steps[0]);
    for (std::int64_t r = 0; r < rows; ++r) {
      compute(row[0], elems);
      steps[0].move(row[0]);
    }
  } else {
    for (int p = 0; p < first.pieces; ++p) row_plan::begin(first, row[p], steps[p], p);
    for (std::int64_t r = 0; r < rows; ++r)
      for (int p = 0; p < first.pieces; ++p) {
        compute(row[p], first.elems[p]);
        steps[p].move(row[p]);
      }
  }
}
template <class Row>
void compute_rows(const fused_rows& first, std::int64_t rows, std::int64_t elems) {
  for_each_row<Row>(first, rows, elems, compute_one_row<Row>);
}

/// Returns the first element at which a cache line begins in all stores. Returns for_each_index_step if no such element
/// precedes it.
template <class Row>
std::int64_t first_of_lines(const typename fused_plan<Row>::row& row) {
  for (std::int64_t i = 0;; ++i) {
    std::uintptr_t past = 0;
    for (std::size_t k = 0; k < fused_plan<Row>::store_count; ++k)
      past |= reinterpret_cast<std::uintptr_t>(row.to[k]) + static_cast<std::uintptr_t>(i * bytes_of_store<Row>(k));
    if (past % cache_line_bytes == 0 || i == for_each_index_step) return i;
  }
}
/// The same as compute_rows, with streaming stores where cache lines are aligned. The results must not share memory
/// with an operand. The caller executes a fence afterwards.
template <class Row>
void stream_rows(const fused_rows& first, std::int64_t rows, std::int64_t elems) {
  for_each_row<Row>(first, rows, elems, [](const typename fused_plan<Row>::row& row, std::int64_t n) {
    const bool is_whole = n >= for_each_index_step && row_elems_type<Row>::can_be(n);
    const auto head = is_whole ? first_of_lines<Row>(row) : for_each_index_step;
    if (head < for_each_index_step) stream_row_of<Row>(row, n, head);
    else compute_one_row<Row>(row, n);
  });
}

// ---- loops that reduce their results to a few vectors ----

/// Marks store `Store` of a row as reduced with `Kind`. The value is not stored. The address of the store refers to the
/// partial results.
template <std::size_t Store, monoid Kind>
struct accumulated {
  static constexpr std::size_t store = Store;
  static constexpr monoid kind = Kind;
};
/// The number of consecutive elements that a reduction combines per step, with one partial result for each.
template <class Row, class First>
inline constexpr int accumulated_at_once =
    4 * simd_lanes<element_t<Row::ops[static_cast<std::size_t>(Row::stores[First::store].op)].type>>;
template <class Row, class... Reduced>
constexpr bool is_accumulated(std::size_t store) {
  return ((Reduced::store == store) || ...);
}

/// The partial results of a reduction.
template <class Row, class First>
struct accumulated_elems {
  element_t<Row::ops[static_cast<std::size_t>(Row::stores[First::store].op)].type> of[accumulated_at_once<Row, First>];
};

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"  // see for_each_index
#endif
/// Combines elements [begin, end) of a row with the partial results of each reduction. Their number is a multiple of
/// accumulated_at_once.
template <class Row, class First, class... Rest>
[[gnu::always_inline]] inline void accumulate_elems(const typename fused_plan<Row>::row& given, std::int64_t begin,
                                                    std::int64_t end, accumulated_elems<Row, First>* sums) {
  using row_plan = fused_plan<Row>;
  constexpr int at_once = accumulated_at_once<Row, First>;
  typename row_plan::registers lasting;
  auto row = given;
  read_lasting<Row>(row, lasting);
  for (std::int64_t i = begin; i < end; i += at_once) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
    for (int j = 0; j < at_once; ++j) {
      typename row_plan::registers r;
      compute_registers<Row>(r, row, i + j);
      [&]<std::size_t... S>(std::index_sequence<S...>) __attribute__((always_inline)) {
        const auto one = [&]<std::size_t Store>() __attribute__((always_inline)) {
          if constexpr (!is_accumulated<Row, First, Rest...>(Store)) store<Row, Store>(r, row, i + j);
        };
        (one.template operator()<S>(), ...);
      }
      (std::make_index_sequence<row_plan::store_count>{});
      int k = 0;
      const auto add = [&]<class R>(R) __attribute__((always_inline)) {
        auto& sum = sums[k++].of[j];
        sum = combine_lanes<R::kind>(sum, row_plan::template at<static_cast<std::size_t>(Row::stores[R::store].op)>(r));
      };
      add(First{});
      (add(Rest{}), ...);
    }
  }
}
template <class Row, class First, class... Rest>
GSPMD_LOOP_FUNCTION void accumulate_row(const typename fused_plan<Row>::row& row, std::int64_t begin, std::int64_t end,
                                        partial_reductions::vectors* partial) {
  GSPMD_KEEP_LOOP_OPTIONS
  accumulated_elems<Row, First> sums[1 + sizeof...(Rest)];
  for (std::size_t k = 0; k < 1 + sizeof...(Rest); ++k) std::memcpy(sums[k].of, partial[k].bytes, sizeof sums[k].of);
  accumulate_elems<Row, First, Rest...>(row, begin, end, sums);
  for (std::size_t k = 0; k < 1 + sizeof...(Rest); ++k) std::memcpy(partial[k].bytes, sums[k].of, sizeof sums[k].of);
}
/// Computes results[k] = reduction k of a whole row, whose length is a multiple of accumulated_at_once. Partial results
/// stay in registers, because passing them between functions through memory would stall.
template <class Row, class First, class... Rest>
GSPMD_LOOP_FUNCTION void accumulate_whole_row(const typename fused_plan<Row>::row& row, std::int64_t elems,
                                              std::byte* const* results) {
  GSPMD_KEEP_LOOP_OPTIONS
  accumulated_elems<Row, First> sums[1 + sizeof...(Rest)];
  using element = std::remove_extent_t<decltype(sums[0].of)>;
  std::size_t k = 0;
  const auto begin = [&]<class R>(R) __attribute__((always_inline)) {
    element neutral = R::kind == monoid::add ? element(-0.0) : identity<element>(R::kind);  // see reduction_kernel
    for (auto& x : sums[k].of) x = neutral;
    ++k;
  };
  const auto end = [&]<class R>(R) __attribute__((always_inline)) {
    const element result = fold_accumulated<R::kind>(sums[k].of);
    std::memcpy(results[k++], &result, sizeof result);
  };
  begin(First{});
  (begin(Rest{}), ...);
  accumulate_elems<Row, First, Rest...>(row, 0, elems, sums);
  k = 0;
  end(First{});
  (end(Rest{}), ...);
}
#if defined(__clang__)
#pragma clang diagnostic pop
#endif
/// The same as compute_rows, with reductions. The partial_reductions object is at the address of the first reduced
/// store. A run ends within a row, or continues in the next row.
template <class Row, class... Reduced>
void accumulate_rows(const fused_rows& first, std::int64_t rows, std::int64_t elems) {
  using row_plan = fused_plan<Row>;
  typename row_plan::row row;
  typename row_plan::row_steps steps;
  row_plan::begin(first, row, steps);
  constexpr std::size_t stores[] = {Reduced::store...};
  auto& partial = *static_cast<partial_reductions*>(first.to[stores[0]]);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t begin = 0, end = 0; begin < elems; begin = end) {
      partial.begin_some(sizeof...(Reduced));
      end = elems - begin < partial.left ? elems : begin + partial.left;
      accumulate_row<Row, Reduced...>(row, begin, end, partial.now);
      partial.end_some(end - begin);
    }
    steps.move(row);
  }
}

/// The functions of reductions that run while their operands are computed: for rows that are parts of runs, and for one
/// row that is one run.
template <class Row, class... Reduced>
struct accumulation {
  static constexpr bool is_one = true;
  static constexpr fused_rows_function rows = accumulate_rows<Row, Reduced...>;

  [[gnu::always_inline]] static void whole_row(const typename fused_plan<Row>::row& row, std::int64_t elems,
                                               std::byte* const* results) {
    accumulate_whole_row<Row, Reduced...>(row, elems, results);
  }
};
struct no_accumulation {
  static constexpr bool is_one = false;
  static constexpr fused_rows_function rows = nullptr;
};

/// Runs a group on one device. Groups differ only in `compute` and in the capacity of `at`, which has room for all
/// loads, iotas and stores. `inputs` and `outputs` are indexed by slot. An output may share memory with an input that
/// is loaded at the same index. `loop` is the part of the group's loop whose elements exist, and `box` is the part of
/// `loop` that is computed.
///
/// At the indices where a load at an offset changes from the shard to its halo buffer, rows are cut into pieces. In
/// each piece, a load reads only one of the two. If there are too many pieces to compute them together, a piece of
/// several rows is computed before the next piece.
struct fused_rows_runner {
  const fused_group& group;
  const extents& loop;
  const loop_box& box;
  fused_rows_function compute;
  fused_rows at;  // the current piece
  const void* const* inputs;
  void* const* outputs;
  const std::int64_t* iota_offsets;
  const given_rows* given;
  const int last = loop.count - 1, next = loop.count - 2;  // rows are consecutive along `next`
  std::size_t loads = 0, iotas = 0;
  std::int64_t index[max_rank]{};  // begin of the current piece

  void run() {
    if (!box.any()) return;
    for (int d = 0; d < next; ++d) index[d] = box.begin[d];
    std::size_t margins = 0;
    for (const scalar_op& o : group.ops) {
      if (o.op == opcode::parameter) {
        at.margin[loads] = o.has_margins() ? &group.margins[margins] : nullptr;
        if (o.has_margins()) margins += margin_count(o.offsets);
        at.load_op[loads++] = o.given == 0 ? &o : given->placed_later;
      } else if (o.op == opcode::iota) {
        at.index_step[iotas] = o.dim == next ? 1 : 0;
        at.iota_op[iotas++] = &o;
      }
    }
    const std::int64_t row_room = last < 0 ? 1 : group.loop[last];
    for (std::size_t k = 0; k < group.stores.size(); ++k)
      at.to_step[k] = row_room * bytes_of(group.ops[static_cast<std::size_t>(group.stores[k].op)].type);
    const std::int64_t first = last < 0 ? 0 : box.begin[last], elems = last < 0 ? 1 : box.end[last];
    const std::int64_t rows = next < 0 ? 1 : box.end[next];
    const auto inner = piece_end(last, first, elems);
    auto all = at;
    for (auto end = inner; end < elems; end = piece_end(last, end, elems)) ++all.pieces;
    const bool together = all.pieces <= all.most_pieces;
    if (!together) all.pieces = 1;
    for (;;) {
      for (std::int64_t row = next < 0 ? 0 : box.begin[next], end = 0; row < rows; row = end) {
        end = piece_end(next, row, rows);
        if (!together && end - row > row_piece_elems / elems) end = row + (elems < row_piece_elems ? row_piece_elems / elems : 1);
        if (next >= 0) index[next] = row;
        int p = 0;
        for (std::int64_t begin = first, piece = inner; begin < elems; begin = piece, piece = piece_end(last, begin, elems)) {
          if (last >= 0) index[last] = begin;
          at = all.piece(p, loads, iotas, group.stores.size());
          place();
          if (all.pieces > 1) all.elems[p++] = piece - begin;
          else compute(all, end - row, piece - begin);
        }
        if (all.pieces > 1) compute(all, end - row, all.elems[0]);
      }
      int d = next - 1;
      for (; d >= 0 && ++index[d] == box.end[d]; --d) index[d] = box.begin[d];
      if (d < 0) return;
    }
  }

 private:
  /// Returns the end of the piece along dim `d` that begins at `begin`.
  [[nodiscard]] std::int64_t piece_end(int d, std::int64_t begin, std::int64_t end) const {
    for (std::size_t n = 0; n < loads; ++n)
      for (const auto& along : at.load_op[n]->offsets) {
        const auto over = along.by < 0 ? -along.by : loop[along.dim] - along.by;
        if (along.dim == d && begin < over && over < end) end = over;
      }
    return end;
  }
  /// Computes the addresses and indices at the begin of a piece.
  void place() {
    for (std::size_t n = 0; n < loads; ++n) {
      const scalar_op& o = *at.load_op[n];
      const auto found = find_load(o, at.margin[n], loop, index);
      auto offset = found.offset;
      for (int d = 0; d <= last; ++d) offset += index[d] * (*found.strides)[d];
      at.from[n] = static_cast<const std::byte*>(inputs[found.slot]) + offset * bytes_of(o.type);
      at.from_step[n] = next < 0 ? 0 : (*found.strides)[next] * bytes_of(o.type);
    }
    for (std::size_t n = 0; n < iotas; ++n) {
      const scalar_op& o = *at.iota_op[n];
      at.index[n] = iota_offsets[o.slot] + index[o.dim];
    }
    std::int64_t row = 0;
    for (int d = 0; d <= next; ++d) row = row * group.loop[d] + index[d];
    for (std::size_t k = 0; k < group.stores.size(); ++k) {
      const auto bytes = bytes_of(group.ops[static_cast<std::size_t>(group.stores[k].op)].type);
      at.to[k] =
          static_cast<std::byte*>(outputs[group.stores[k].slot]) + row * at.to_step[k] + (last < 0 ? 0 : index[last]) * bytes;
    }
    if (given != nullptr) given->place(*given, this);
  }
};
inline void run_fused_rows(const fused_group& group, const extents& loop, const loop_box& box, fused_rows_function compute,
                           const fused_rows& at, const void* const* inputs, void* const* outputs,
                           const std::int64_t* iota_offsets, const given_rows* given = nullptr) {
  fused_rows_runner{group, loop, box, compute, at, inputs, outputs, iota_offsets, given}.run();
}

/// Memory for the rows of a group.
template <class Row>
using fused_memory = fused_rows_memory<static_cast<std::size_t>(fused_plan<Row>::facts.loads),
                                       static_cast<std::size_t>(fused_plan<Row>::facts.iotas), fused_plan<Row>::store_count,
                                       static_cast<std::size_t>(most_pieces_of<Row>)>;

template <class Group>
void run_fused(const void* const* inputs, void* const* outputs, const std::int64_t* iota_offsets) {
  if constexpr (elements(Group::loop) != 0) {
    using row = typename row_of_group<Group>::type;
    fused_memory<row> memory;
    run_fused_rows(fused_group{Group::loop, Group::ops, Group::stores}, Group::loop, loop_box(Group::loop), compute_rows<row>,
                   memory.rows(), inputs, outputs, iota_offsets);
  }
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
