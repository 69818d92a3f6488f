// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "gspmd/detail/ir/types.hpp"

namespace gspmd::detail {

static_assert(std::endian::native == std::endian::little,
              "gspmd: files contain the bytes of memory, low bytes first; compile for a little-endian processor");

/// Returns NumPy's name of an element type. NumPy has no bf16 and no own types; their elements are untyped bytes there
/// (`a.view(...)`).
inline std::string npy_type(dtype type) {
  constexpr const char* names[] = {"<f4", "<f8", "<i4", "<i8", "|b1", "|V2", "<f2",
                                   "|i1", "|u1", "<i2", "<u4", "<u8", "<c8", "<c16"};
  static_assert(std::size(names) == element_type_count);
  return is_own(type) ? "|V" + std::to_string(bytes_of(type)) : names[static_cast<std::size_t>(type)];
}

/// Returns the bytes before the elements in a .npy file: version 1.0, C order. Padding makes the elements begin at a
/// multiple of 64, as in NumPy.
///
///     f32, {3} -> 128 bytes: \x93NUMPY, version 1.0, length 118,
///                 {'descr': '<f4', 'fortran_order': False, 'shape': (3,), }, 60 spaces, \n
inline std::string npy_header(dtype type, const std::vector<std::int64_t>& shape) {
  std::string facts = "{'descr': '" + npy_type(type) + "', 'fortran_order': False, 'shape': (";
  for (std::size_t d = 0; d < shape.size(); ++d) facts += (d > 0 ? ", " : "") + std::to_string(shape[d]);
  facts += shape.size() == 1 ? ",), }" : "), }";
  constexpr std::size_t before = 10, line = 64;
  facts.append(line - 1 - (before + facts.size()) % line, ' ');
  facts += '\n';
  std::string header = "\x93NUMPY";
  header += '\x01';
  header += '\0';
  header += static_cast<char>(facts.size() & 0xffU);
  header += static_cast<char>(facts.size() >> 8);
  return header + facts;
}

}  // namespace gspmd::detail
