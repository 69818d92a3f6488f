// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gspmd/detail/support/language.hpp"

namespace gspmd::detail {

/// Row k contains for each byte its remainder with k zero bytes after it. So eight bytes are looked up independently of
/// each other.
inline constexpr auto crc32c_table = [] {
  std::array<std::array<std::uint32_t, 256>, 8> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1U) != 0 ? 0x82f63b78U : 0U);
    table[0][byte] = rest;
  }
  for (std::size_t row = 1; row < 8; ++row)
    for (std::size_t byte = 0; byte < 256; ++byte)
      table[row][byte] = (table[row - 1][byte] >> 8) ^ table[0][table[row - 1][byte] & 0xffU];
  return table;
}();

/// Computes eight bytes at a time with tables. `rest` is the inverted checksum of the previous bytes.
inline std::uint32_t crc32c_by_tables(const unsigned char* p, std::size_t size, std::uint32_t rest) {
  const auto& t = crc32c_table;
  for (; size >= 8; size -= 8, p += 8) {
    std::uint32_t low = 0, high = 0;
    std::memcpy(&low, p, 4);
    std::memcpy(&high, p + 4, 4);
    low ^= rest;
    rest = t[7][low & 0xffU] ^ t[6][low >> 8 & 0xffU] ^ t[5][low >> 16 & 0xffU] ^ t[4][low >> 24] ^ t[3][high & 0xffU] ^
           t[2][high >> 8 & 0xffU] ^ t[1][high >> 16 & 0xffU] ^ t[0][high >> 24];
  }
  for (; size > 0; --size, ++p) rest = (rest >> 8) ^ t[0][(rest ^ *p) & 0xffU];
  return rest;
}

#if defined(__x86_64__)
/// The same with the processor's instruction.
[[gnu::target("sse4.2")]] inline std::uint32_t crc32c_by_instruction(const unsigned char* p, std::size_t size,
                                                                     std::uint32_t rest) {
  unsigned long long wide = rest;
  for (; size >= 8; size -= 8, p += 8) {
    unsigned long long word = 0;
    std::memcpy(&word, p, 8);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  return crc32c_by_tables(p, size, static_cast<std::uint32_t>(wide));
}
#endif

/// Returns the CRC-32C, the checksum of iSCSI, SCTP and ext4 (RFC 3720, B.4). `before` is the checksum of the preceding
/// bytes.
///
///     crc32c("123456789", 9) == 0xe3069283
///
/// It is used instead of a hash like FNV for three reasons. It detects each change within 32 bits, and misses other
/// changes once in four thousand million. Processors have an instruction for it. FNV is several times slower even
/// without the instruction, because each of its multiplications waits for the previous byte.
inline std::uint32_t crc32c(const void* data, std::size_t size, std::uint32_t before = 0) {
  const auto* p = static_cast<const unsigned char*>(data);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~crc32c_by_instruction(p, size, ~before);
#endif
  return ~crc32c_by_tables(p, size, ~before);
}

}  // namespace gspmd::detail
