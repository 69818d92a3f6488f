// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "gspmd/detail/ir/fused_group.hpp"
#include "gspmd/detail/ir/types.hpp"

namespace gspmd::detail {

/// The bits of a constant's element.
constexpr std::uint64_t bits_of(dtype type, double real, std::int64_t integer) {
  switch (type) {
    case dtype::f32: return std::bit_cast<std::uint32_t>(static_cast<float>(real));
    case dtype::f64: return std::bit_cast<std::uint64_t>(real);
    case dtype::s32: return static_cast<std::uint32_t>(integer);
    default: return static_cast<std::uint64_t>(integer);
  }
}

/// The constant whose element has these bits.
constexpr scalar_op constant_of(dtype type, std::uint64_t bits) {
  switch (type) {
    case dtype::f32: return scalar_op::constant(type, std::bit_cast<float>(static_cast<std::uint32_t>(bits)), 0);
    case dtype::f64: return scalar_op::constant(type, std::bit_cast<double>(bits), 0);
    case dtype::s32: return scalar_op::constant(type, 0, static_cast<std::int32_t>(static_cast<std::uint32_t>(bits)));
    default: return scalar_op::constant(type, 0, static_cast<std::int64_t>(bits));
  }
}

}  // namespace gspmd::detail
