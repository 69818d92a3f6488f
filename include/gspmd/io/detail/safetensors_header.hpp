// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/sort_in_order.hpp"
#include "gspmd/error.hpp"
#include "gspmd/io/detail/json_reader.hpp"
#include "gspmd/io/detail/json_text.hpp"
#include "gspmd/io/detail/save_file.hpp"
#include "gspmd/io/detail/stored_array.hpp"

/// The format of safetensors (github.com/huggingface/safetensors, "Format"). The first eight bytes are the length of
/// the header, low byte first. The header is JSON. The elements of all tensors follow without gaps, row-major, low
/// bytes first.
///
///     {"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}
namespace gspmd::detail {

static_assert(std::endian::native == std::endian::little,
              "gspmd: safetensors contain the bytes of memory, low bytes first; compile for a little-endian processor");

/// A tensor of a file.
struct safetensors_entry {
  std::string name;
  std::string type;  // `F32`, `BF16`, `F8_E4M3`: as in the file; gspmd may not have the type
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;  // bytes after the header
};

/// The header of a file.
struct safetensors_header {
  std::map<std::string, std::string> metadata;
  std::vector<safetensors_entry> tensors;  // in the order of their bytes
};

/// Returns the format's name of a type, for example `F32` for f32. Returns an empty text for c128 and own types,
/// because the format lacks them.
inline std::string safetensors_type(dtype type) {
  constexpr const char* names[] = {"F32", "F64", "I32", "I64", "BOOL", "BF16", "F16", "I8", "U8", "I16", "U32", "U64", "C64", ""};
  static_assert(std::size(names) == element_type_count);
  return is_own(type) ? "" : names[static_cast<std::size_t>(type)];
}

/// Returns the bytes of an element of a type in a file, or 0 if gspmd lacks the width, for example half a byte.
inline std::int64_t safetensors_width(const std::string& type) {
  for (std::size_t i = 0; i < element_type_count; ++i)
    if (type == safetensors_type(static_cast<dtype>(i)) && !type.empty()) return bytes_of(static_cast<dtype>(i));
  if (type == "U16") return 2;
  return type.starts_with("F8_") ? 1 : 0;
}

inline constexpr std::int64_t most_safetensors_header = 100'000'000;  // the limit of the format's own reader

/// Returns the length of the header, from the first bytes of a file of `size` bytes. Throws gspmd::error without the
/// name of the file.
inline std::int64_t safetensors_header_bytes(std::string_view start, std::int64_t size) {
  if (size < 8) throw error("is no safetensors file: it has " + std::to_string(size) + " bytes");
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(start[i]);
  if (length > static_cast<std::uint64_t>(most_safetensors_header))
    throw error("is no safetensors file: its header would have " + std::to_string(length) + " bytes, and at most " +
                std::to_string(most_safetensors_header) + " are allowed");
  if (static_cast<std::int64_t>(length) > size - 8)
    throw error("is cut off: its header has " + std::to_string(length) + " bytes and the file " + std::to_string(size));
  return static_cast<std::int64_t>(length);
}

inline safetensors_entry parse_safetensors_entry(json_reader& in, const std::string& name) {
  safetensors_entry e;
  e.name = name;
  std::set<std::string> keys;
  std::vector<std::int64_t> offsets;
  in.object([&](const std::string& key) {
    if (!keys.insert(key).second) throw error("has `" + key + "` twice in `" + name + '`');
    if (key == "dtype") e.type = in.string();
    else if (key == "shape") in.list([&] { e.shape.push_back(in.count()); });
    else if (key == "data_offsets") in.list([&] { offsets.push_back(in.count()); });
    else in.skip();
  });
  if (!keys.contains("dtype") || !keys.contains("shape") || offsets.size() != 2)
    throw error("has no dtype, shape and two data_offsets of `" + name + '`');
  e.begin = offsets[0];
  e.end = offsets[1];
  return e;
}

/// Throws gspmd::error unless the bytes of the tensors are adjacent, `bytes` in all, and each tensor has the bytes of
/// its type and shape.
inline void check_safetensors(const safetensors_header& header, std::int64_t bytes) {
  std::int64_t next = 0;
  for (const auto& e : header.tensors) {
    if (e.begin < next || e.end < e.begin)
      throw error("has bytes of `" + e.name + "` that are another tensor's too, or end before they begin");
    if (e.begin > next) throw error("has bytes that are no tensor's, before `" + e.name + '`');
    next = e.end;
    const auto width = safetensors_width(e.type);
    if (width == 0) continue;  // it can be skipped, not loaded
    auto elems = std::int64_t{1};
    const bool is_empty = std::find(e.shape.begin(), e.shape.end(), 0) != e.shape.end();
    for (const auto n : e.shape) {
      if (!is_empty && n > (std::int64_t{1} << 60) / width / elems)
        throw error("has a tensor of more than 2^60 bytes, `" + e.name + '`');
      elems = is_empty ? 0 : elems * n;
    }
    if (e.end - e.begin != elems * width)
      throw error("has " + std::to_string(e.end - e.begin) + " bytes of `" + e.name + "`, and " + e.type + ' ' +
                  stored_shape_text(e.shape) + " has " + std::to_string(elems * width));
  }
  if (next != bytes)
    throw error((next > bytes ? "is cut off: it has " : "is too long: it has ") + std::to_string(bytes) +
                " bytes after its header, which speaks of " + std::to_string(next));
}

/// Reads the header of a file with `bytes` bytes of elements. Throws gspmd::error without the name of the file.
inline safetensors_header parse_safetensors(std::string_view text, std::int64_t bytes) {
  if (text.empty() || text[0] != '{') throw error("is no safetensors file: its header does not begin with `{`");
  if (!is_utf8(text)) throw error("has a header that is no UTF-8");
  safetensors_header header;
  json_reader in(text);
  std::set<std::string> names;
  in.object([&](const std::string& name) {
    if (!names.insert(name).second) throw error("has two tensors of the name `" + name + '`');
    if (name != "__metadata__") return header.tensors.push_back(parse_safetensors_entry(in, name));
    in.object([&](const std::string& key) {
      if (!header.metadata.emplace(key, in.string()).second) throw error("has `" + key + "` twice in its metadata");
    });
  });
  in.expect_end();
  // The header can have any order; the bytes have an order. An empty tensor precedes another tensor at the same byte.
  sort_in_order(header.tensors,
                [](const auto& a, const auto& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  check_safetensors(header, bytes);
  return header;
}

/// Returns the first eight bytes and the header for some arrays, and the first byte of each array. The widest elements
/// are first, then the order is by name, so that elements are aligned, as in the format's own writer. Throws
/// gspmd::error if the format cannot store an array.
inline file_layout safetensors_layout(const std::vector<stored_array>& arrays,
                                      const std::map<std::string, std::string>& metadata) {
  std::vector<std::size_t> order(arrays.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(-bytes_of(arrays[a].type), arrays[a].name) < std::pair(-bytes_of(arrays[b].type), arrays[b].name);
  });
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (!is_utf8(key) || !is_utf8(value)) throw error("metadata is to be UTF-8, and `" + key + "` is not");
      text += (text.back() == '{' ? "" : ",") + json_text(key) + ':' + json_text(value);
    }
    text += '}';
  }
  file_layout layout;
  layout.begins.resize(arrays.size());
  std::int64_t next = 0;
  for (const auto k : order) {
    const auto& a = arrays[k];
    const auto type = safetensors_type(a.type);
    if (type.empty()) throw error('`' + a.name + "` is " + stored_type(a.type) + ", and the format has no such type");
    if (a.name == "__metadata__") throw error("`__metadata__` is no name of an array there; give another one");
    if (!is_utf8(a.name)) throw error("the name `" + a.name + "` is no UTF-8");
    auto bytes = bytes_of(a.type);
    for (const auto n : a.global) bytes *= n;
    layout.begins[k] = next;
    next += bytes;
    text += (text.size() > 1 ? "," : "") + json_text(a.name) + ":{\"dtype\":\"" + type +
            "\",\"shape\":" + stored_shape_text(a.global) + ",\"data_offsets\":[" + std::to_string(layout.begins[k]) + ',' +
            std::to_string(next) + "]}";
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > static_cast<std::size_t>(most_safetensors_header))
    throw error("the header would have " + std::to_string(text.size()) + " bytes, and at most " +
                std::to_string(most_safetensors_header) + " are allowed; save to several files");
  for (std::uint64_t i = 0, n = text.size(); i < 8; ++i) layout.header += static_cast<char>(n >> (8 * i) & 0xffU);
  layout.header += text;
  for (auto& begin : layout.begins) begin += static_cast<std::int64_t>(layout.header.size());
  return layout;
}

}  // namespace gspmd::detail
