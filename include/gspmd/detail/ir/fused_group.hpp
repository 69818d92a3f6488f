// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "gspmd/detail/ir/elementwise/choice.hpp"
#include "gspmd/detail/ir/elementwise/order.hpp"
#include "gspmd/detail/ir/opcode.hpp"
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/span.hpp"

namespace gspmd::detail {

/// A load reads `by` further along loop dim `dim`.
struct offset_along {
  std::int8_t dim = 0;
  std::int64_t by = 0;  // not 0
  friend constexpr bool operator==(const offset_along&, const offset_along&) = default;
};
inline constexpr int max_offset_dims = 3;
using load_offsets = inline_vec<offset_along, max_offset_dims>;

/// One scalar operation of a fused loop. Its register is its position in the group.
///
///   constant   the value is `real` (floats) or `integer` (the rest)
///   iota       index along loop dim `dim`, plus iota_offsets[`slot`] of the device
///   parameter  a load: inputs[`slot`], strides in `strides`; of the element that is `offsets` further, which lies in a margin where
///              the loop's extents end (fused_margin)
///   otherwise  an elementwise operator on the registers `args`
struct scalar_op {
  scalar_code op = opcode::constant;
  dtype type = dtype::f32;          // of the result
  dtype operand_type = dtype::f32;  // of the operands (select: of the two values): see result_type
  inline_vec<std::int16_t, max_map_arity> args;
  double real = 0;
  std::int64_t integer = 0;
  std::int16_t slot = 0;
  std::int16_t given =
      0;  // of a load: the input, counted from 1, whose strides and layers are the caller's (given_layers); 0: of none
  std::int8_t dim = 0;
  extents strides;  // of a load, in elements per loop dim; 0 broadcasts
  load_offsets offsets;
  const map_function* function = nullptr;

  [[nodiscard]] constexpr bool is_load() const { return op == opcode::parameter; }
  [[nodiscard]] constexpr bool is_index() const { return op == opcode::iota; }
  [[nodiscard]] constexpr bool is_conversion() const { return op == scalar_code_of<convert_op>; }
  [[nodiscard]] constexpr bool is_at_offset() const { return !offsets.empty(); }
  [[nodiscard]] constexpr bool has_margins() const { return is_at_offset() && given == 0; }

  static constexpr scalar_op constant(dtype type, double real, std::int64_t integer) {
    scalar_op s;
    s.type = s.operand_type = type;
    s.real = real;
    s.integer = integer;
    return s;
  }
  /// Without its strides.
  static constexpr scalar_op load(dtype type, int slot) {
    scalar_op s = constant(type, 0, 0);
    s.op = opcode::parameter;
    s.slot = static_cast<std::int16_t>(slot);
    return s;
  }
  /// The conversion of one register.
  static constexpr scalar_op conversion(int from, dtype type, dtype to) {
    scalar_op s = constant(to, 0, 0);
    s.op = scalar_code_of<convert_op>;
    s.operand_type = type;
    s.args.push_back(static_cast<std::int16_t>(from));
    return s;
  }
  /// The larger of two registers, with `below`; else the smaller one.
  static constexpr scalar_op bound_of(int a, int b, dtype type, bool below) {
    scalar_op s = constant(type, 0, 0);
    s.op = below ? scalar_code_of<maximum_op> : scalar_code_of<minimum_op>;
    s.args.push_back(static_cast<std::int16_t>(a));
    s.args.push_back(static_cast<std::int16_t>(b));
    return s;
  }
  [[nodiscard]] constexpr bool is_constant() const { return op == opcode::constant; }
  /// Numbers by their bits: 0 and -0.0 are two programs, and a NaN is equal to itself. Functions by identity.
  friend constexpr bool operator==(const scalar_op& a, const scalar_op& b) {
    return a.op == b.op && a.type == b.type && a.operand_type == b.operand_type && a.args == b.args &&
           std::bit_cast<std::uint64_t>(a.real) == std::bit_cast<std::uint64_t>(b.real) && a.integer == b.integer &&
           a.slot == b.slot && a.given == b.given && a.dim == b.dim && a.strides == b.strides && a.offsets == b.offsets &&
           a.function == b.function;
  }
};

/// True when a load with these strides reads the element that the loop is at: they are those of the dense loop.
constexpr bool is_dense(const extents& loop, const extents& strides) {
  std::int64_t stride = 1;
  for (int d = loop.count - 1; d >= 0; --d) {
    if (loop[d] != 1 && strides[d] != stride) return false;
    stride *= loop[d];
  }
  return true;
}

/// The register `op` is stored to outputs[`slot`], dense row-major over the loop, or by the caller's strides for `given`: an input or
/// output, counted from 1.
struct fused_store {
  std::int16_t op = 0;
  std::int16_t slot = 0;
  std::int16_t given = 0;
  friend constexpr bool operator==(const fused_store&, const fused_store&) = default;
};

/// Where the load `op` at offsets finds elements beyond the loop's ends: in inputs[`slot`], where the element that would have index 0
/// along the dims beyond whose ends it lies is at `first`. There is one entry for each set of the load's dims that an index can lie
/// beyond the ends of: in the order of the sets as numbers, bit k for offsets[k].
struct fused_margin {
  std::int16_t op = 0;
  std::int16_t slot = 0;
  std::int64_t first = 0;
  extents strides;  // in elements per loop dim
  friend constexpr bool operator==(const fused_margin&, const fused_margin&) = default;
};
constexpr std::size_t margin_count(const load_offsets& offsets) { return (std::size_t{1} << offsets.count) - 1; }

/// Where a load finds its element: at offset + the sum of index * stride.
struct found_load {
  std::int16_t slot;
  const extents* strides;
  std::int64_t offset;
};
/// `margins`: of the load. An index before the begin of a dim counts from there in a margin, one behind its end from there.
constexpr found_load find_load(const scalar_op& o, const fused_margin* margins, const extents& loop, const std::int64_t* index) {
  std::int64_t moved[max_offset_dims]{};
  unsigned beyond = 0;
  for (int k = 0; k < o.offsets.count; ++k) {
    const auto& along = o.offsets[k];
    const auto i = index[along.dim] + along.by, extent = loop[along.dim];
    const bool is_outside = i < 0 || i >= extent;
    moved[k] = along.by - (is_outside && i >= 0 ? extent : 0);
    if (is_outside) beyond |= 1U << k;
  }
  const fused_margin* const margin = beyond == 0 ? nullptr : margins + beyond - 1;
  found_load found{margin == nullptr ? o.slot : margin->slot, margin == nullptr ? &o.strides : &margin->strides,
                   margin == nullptr ? 0 : margin->first};
  for (int k = 0; k < o.offsets.count; ++k) found.offset += moved[k] * (*found.strides)[o.offsets[k].dim];
  return found;
}

/// A run of elementwise operators as one loop nest over `loop`: every element is loaded, computed and stored once.
struct fused_group {
  extents loop;
  span<const scalar_op> ops;
  span<const fused_store> stores;
  span<const fused_margin> margins = {};  // of the loads at offsets, in their order
};

}  // namespace gspmd::detail
