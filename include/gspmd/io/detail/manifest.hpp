// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/error.hpp"
#include "gspmd/io/detail/crc32c.hpp"
#include "gspmd/io/detail/json_text.hpp"
#include "gspmd/io/detail/stored_array.hpp"

/// The manifest of a checkpoint. It is JSON, but only the text below is written and read: these keys in this order with
/// these spaces. So a reader needs no library, and text from other programs is not a manifest.
///
///     {"format": "gspmd checkpoint", "version": 1, "step": 120, "block_bytes": 1048576, "arrays": [
///       {"name": "u", "type": "f64", "shape": [7, 3], "sharding": ["x", ""], "parts": [
///         {"file": "0.u.0.npy", "offset": [0, 0], "size": [4, 3], "bytes": 96, "crc32c": ["0b0a9bd2"]},
///         {"file": "0.u.1.npy", "offset": [4, 0], "size": [3, 3], "bytes": 72, "crc32c": ["5f3c31aa"]}]}],
///     "manifest_crc32c": "89abcdef"}
///
/// The elements have a checksum for each block of block_bytes, so a reader of a few rows of a large file can check
/// these rows. The last checksum covers all text before its line.
namespace gspmd::detail {

struct stored_part {
  std::string file;
  stored_box box;
  std::vector<std::uint32_t> checksums;
};

struct stored_entry {
  std::string name;
  dtype type = dtype::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::string> sharding;
  std::vector<stored_part> parts;
};

struct manifest {
  std::int64_t step = 0;
  std::int64_t block_bytes = 1;
  std::vector<stored_entry> arrays;

  [[nodiscard]] std::int64_t block_count(std::int64_t bytes) const { return (bytes + block_bytes - 1) / block_bytes; }
};

inline constexpr std::string_view manifest_start = "{\"format\": \"gspmd checkpoint\", \"version\": ";
inline constexpr std::string_view manifest_end = "\n\"manifest_crc32c\": ";
inline constexpr std::int64_t manifest_version = 1;

/// The most bytes of a manifest. A checksum takes 12 bytes and a part about 200 bytes. So 85 TiB of elements fit in
/// blocks of 1 MiB, or 5 million parts. A reader needs memory for the manifest on each process.
inline constexpr std::int64_t most_manifest_bytes = std::int64_t{1} << 30;

/// Throws gspmd::error if a manifest would be longer than a reader accepts.
inline void check_manifest_bytes(std::int64_t bytes) {
  if (bytes > most_manifest_bytes)
    throw error("the manifest would have " + std::to_string(bytes) + " bytes, and at most " +
                std::to_string(most_manifest_bytes) +
                " are allowed; set block_bytes to a larger number, or save fewer arrays to one checkpoint");
}

inline std::string hex_text(std::uint32_t number) {
  std::string text(8, '0');
  for (std::size_t i = 8; i-- > 0; number >>= 4) text[i] = "0123456789abcdef"[number & 0xfU];
  return text;
}

inline std::string text_of(const manifest& m) {
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  const auto quoted = [](const std::string& s) { return json_text(s); };
  const auto part = [&](const stored_entry& a, const stored_part& p) {
    return "{\"file\": " + json_text(p.file) + ", \"offset\": " + json_list(p.box.offset, ", ", number) +
           ", \"size\": " + json_list(p.box.size, ", ", number) +
           ", \"bytes\": " + std::to_string(p.box.elems() * bytes_of(a.type)) +
           ", \"crc32c\": " + json_list(p.checksums, ", ", [](std::uint32_t c) { return json_text(hex_text(c)); }) + '}';
  };
  const auto array = [&](const stored_entry& a) {
    return "\n  {\"name\": " + json_text(a.name) + ", \"type\": " + json_text(stored_type(a.type)) +
           ", \"shape\": " + json_list(a.shape, ", ", number) + ", \"sharding\": " + json_list(a.sharding, ", ", quoted) +
           ", \"parts\": " + json_list(a.parts, ",", [&](const stored_part& p) { return "\n    " + part(a, p); }) + '}';
  };
  std::string text(manifest_start);
  text += std::to_string(manifest_version) + ", \"step\": " + std::to_string(m.step) +
          ", \"block_bytes\": " + std::to_string(m.block_bytes) + ", \"arrays\": " + json_list(m.arrays, ",", array) + ',';
  const auto checksum = crc32c(text.data(), text.size());
  return text + std::string(manifest_end) + json_text(hex_text(checksum)) + "}\n";
}

}  // namespace gspmd::detail
