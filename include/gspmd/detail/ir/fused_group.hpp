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

/// A load reads the element at offset `by` along loop dim `dim`.
struct offset_along {
  std::int8_t dim = 0;
  std::int64_t by = 0;  // not 0
  friend constexpr bool operator==(const offset_along&, const offset_along&) = default;
};
inline constexpr int max_offset_dims = 3;
using load_offsets = inline_vec<offset_along, max_offset_dims>;

/// One scalar operation of a fused loop. The number of its register is its position in the group.
///
///   constant   the value is `real` (floats) or `integer` (other types)
///   iota       index along loop dim `dim`, plus iota_offsets[`slot`] of the device
///   parameter  a load: inputs[`slot`], with `strides`, at `offsets` from the current element. Elements beyond the ends of the
///              loop are in a margin (fused_margin)
///   otherwise  an elementwise operator on the registers `args`
struct scalar_op {
  scalar_code op = opcode::constant;
  dtype type = dtype::f32;          // of the result
  dtype operand_type = dtype::f32;  // of the operands (select: of the two values): see result_type
  inline_vec<std::int16_t, max_map_arity> args;
  double real = 0;
  std::int64_t integer = 0;
  std::int16_t slot = 0;
  // for a load: the number, from 1, of the input whose strides and ghost layers are the user's (given_layers); else 0
  std::int16_t given = 0;
  std::int8_t dim = 0;
  extents strides;  // of a load, in elements per loop dim; 0 broadcasts
  load_offsets offsets;
  const map_function* function = nullptr;

  [[nodiscard]] constexpr bool is_load() const { return op == opcode::parameter; }
  [[nodiscard]] constexpr bool is_index() const { return op == opcode::iota; }
  [[nodiscard]] constexpr bool is_conversion() const { return op == scalar_code_of<cast_op>; }
  [[nodiscard]] constexpr bool is_at_offset() const { return !offsets.empty(); }
  [[nodiscard]] constexpr bool has_margins() const { return is_at_offset() && given == 0; }

  static constexpr scalar_op constant(dtype type, double real, std::int64_t integer) {
    scalar_op s;
    s.type = s.operand_type = type;
    s.real = real;
    s.integer = integer;
    return s;
  }
  /// Returns a load without strides.
  static constexpr scalar_op load(dtype type, int slot) {
    scalar_op s = constant(type, 0, 0);
    s.op = opcode::parameter;
    s.slot = static_cast<std::int16_t>(slot);
    return s;
  }
  /// Returns the conversion of one register.
  static constexpr scalar_op conversion(int from, dtype type, dtype to) {
    scalar_op s = constant(to, 0, 0);
    s.op = scalar_code_of<cast_op>;
    s.operand_type = type;
    s.args.push_back(static_cast<std::int16_t>(from));
    return s;
  }
  /// Returns the larger of two registers if `below` is set, otherwise the smaller one.
  static constexpr scalar_op bound_of(int a, int b, dtype type, bool below) {
    scalar_op s = constant(type, 0, 0);
    s.op = below ? scalar_code_of<max_op> : scalar_code_of<min_op>;
    s.args.push_back(static_cast<std::int16_t>(a));
    s.args.push_back(static_cast<std::int16_t>(b));
    return s;
  }
  [[nodiscard]] constexpr bool is_constant() const { return op == opcode::constant; }
  /// Compares numbers by their bits: 0 and -0.0 differ, and a NaN equals itself. Compares functions by identity.
  friend constexpr bool operator==(const scalar_op& a, const scalar_op& b) {
    return a.op == b.op && a.type == b.type && a.operand_type == b.operand_type && a.args == b.args &&
           std::bit_cast<std::uint64_t>(a.real) == std::bit_cast<std::uint64_t>(b.real) && a.integer == b.integer &&
           a.slot == b.slot && a.given == b.given && a.dim == b.dim && a.strides == b.strides && a.offsets == b.offsets &&
           a.function == b.function;
  }
};

/// Returns true if a load with these strides reads the element of the current loop index: the strides are those of the
/// dense loop.
constexpr bool is_dense(const extents& loop, const extents& strides) {
  std::int64_t stride = 1;
  for (int d = loop.count - 1; d >= 0; --d) {
    if (loop[d] != 1 && strides[d] != stride) return false;
    stride *= loop[d];
  }
  return true;
}

/// Stores register `op` to outputs[`slot`], dense row-major over the loop. If `given` is set, it is the number, from 1,
/// of an input or output whose strides are the user's.
struct fused_store {
  std::int16_t op = 0;
  std::int16_t slot = 0;
  std::int16_t given = 0;
  friend constexpr bool operator==(const fused_store&, const fused_store&) = default;
};

/// The location of elements beyond the loop's ends that the load `op` reads: inputs[`slot`]. `first` is the offset of
/// the element with index 0 along the dims that the index exceeds. A load has one entry for each nonempty set of its
/// dims that an index can exceed. The entries are in the order of the sets as numbers, with bit k for offsets[k].
struct fused_margin {
  std::int16_t op = 0;
  std::int16_t slot = 0;
  std::int64_t first = 0;
  extents strides;  // in elements per loop dim
  friend constexpr bool operator==(const fused_margin&, const fused_margin&) = default;
};
constexpr std::size_t margin_count(const load_offsets& offsets) { return (std::size_t{1} << offsets.count) - 1; }

/// The location of a loaded element: `offset` + the sum of index * stride.
struct found_load {
  std::int16_t slot;
  const extents* strides;
  std::int64_t offset;
};
/// Returns the location of an element. `margins` are those of the load. In a margin, an index before the begin of a dim
/// counts from the begin, and an index after the end counts from the end.
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

/// A sequence of elementwise operators as one loop nest over `loop`: every element is loaded, computed and stored once.
struct fused_group {
  extents loop;
  span<const scalar_op> ops;
  span<const fused_store> stores;
  span<const fused_margin> margins = {};  // of the loads at offsets, in order
};

}  // namespace gspmd::detail
