// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "gspmd/detail/ir/fused_group.hpp"
#include "gspmd/detail/ir/types.hpp"

namespace gspmd::detail {

/// Returns the bits of an element with this value. For c128 it returns the bits of a c64: see written_number::fills.
constexpr std::uint64_t bits_of(dtype type, double real, std::int64_t integer) {
  std::uint64_t bits = 0;
  if (is_own(type)) return bits;  // 0 is the only constant of an own type
  with_element_type(type, [&]<class T>(T) {
    if constexpr (std::is_same_v<T, float>) bits = std::bit_cast<std::uint32_t>(static_cast<float>(real));
    else if constexpr (std::is_same_v<T, double>) bits = std::bit_cast<std::uint64_t>(real);
    else if constexpr (is_narrow_float<T>) bits = T(real).bits;
    else if constexpr (is_complex_element<T>) {
      bits = std::bit_cast<std::uint32_t>(static_cast<float>(real));
      // -0.0, the identity of addition, has two parts.
      if (bits == 0x80000000U) bits |= bits << 32;
    } else if constexpr (std::is_same_v<T, bool>) bits = static_cast<std::uint64_t>(integer);
    else bits = static_cast<std::make_unsigned_t<T>>(integer);
  });
  return bits;
}

/// Returns the constant whose element has these bits.
constexpr scalar_op constant_of(dtype type, std::uint64_t bits) {
  scalar_op made = scalar_op::constant(type, 0, 0);
  if (is_own(type)) return made;
  with_element_type(type, [&]<class T>(T) {
    if constexpr (std::is_same_v<T, float>)
      made = scalar_op::constant(type, std::bit_cast<float>(static_cast<std::uint32_t>(bits)), 0);
    else if constexpr (std::is_same_v<T, double>) made = scalar_op::constant(type, std::bit_cast<double>(bits), 0);
    else if constexpr (is_narrow_float<T>)
      made = scalar_op::constant(type, static_cast<float>(T::of_bits(static_cast<std::uint16_t>(bits))), 0);
    else if constexpr (is_complex_element<T>)
      made = scalar_op::constant(type, std::bit_cast<float>(static_cast<std::uint32_t>(bits)), 0);
    else if constexpr (std::is_same_v<T, bool>) made = scalar_op::constant(type, 0, static_cast<std::int64_t>(bits));
    else made = scalar_op::constant(type, 0, static_cast<std::int64_t>(static_cast<T>(bits)));
  });
  return made;
}

}  // namespace gspmd::detail
