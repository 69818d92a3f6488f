// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <gspmd/dtype.hpp>
#include <gspmd/dynamic.hpp>

#include "whole_file.hpp"

/// Arrays in NumPy's file format (versions 1 to 3, C and Fortran order; little-endian f4 f8 i4 i8 and b1).
namespace npy {

/// A mistake in a file, without the file's name.
struct problem : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct header {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

/// Reads the header: a Python dictionary with the keys descr, fortran_order and shape, in any order.
class header_parser {
 public:
  explicit header_parser(std::string_view text) : text_(text) {}

  header parse() {
    // Nothing that is meant has one, and texts of errors would end there.
    if (const auto at = text_.find('\0'); at != std::string_view::npos) fail("a NUL at character " + std::to_string(at));
    header h;
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const auto key = quoted();
      expect(':');
      if (key == "descr" && !has_descr) {
        if (peek() != '\'' && peek() != '"') fail("a structured dtype; only f4 f8 i4 i8 b1 are read");
        h.descr = quoted();
        has_descr = true;
      } else if (key == "fortran_order" && !has_order) {
        h.fortran_order = boolean();
        has_order = true;
      } else if (key == "shape" && !has_shape) {
        h.shape = tuple();
        has_shape = true;
      } else {
        fail("the key `" + key.substr(0, 20) + "`, which does not belong there");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    if (peek() != '\0') fail("text after the dictionary");
    if (!has_descr || !has_order || !has_shape) throw problem("the header lacks descr, fortran_order or shape");
    return h;
  }

 private:
  [[noreturn]] static void fail(const std::string& what) { throw problem("the header has " + what); }
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(std::string("no `") + c + "` at character " + std::to_string(at_));
  }
  std::string quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail("no string at character " + std::to_string(at_));
    const auto end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("a string without an end");
    std::string s(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return s;
  }
  bool boolean() {
    peek();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    fail("a fortran_order that is neither True nor False");
  }
  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> list;
    expect('(');
    while (!accept(')')) {
      if (list.size() == static_cast<std::size_t>(gspmd::max_rank)) fail("more than 32 dims");
      list.push_back(integer());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return list;
  }
  std::int64_t integer() {
    std::int64_t n = 0;
    bool any = false;
    for (char c = peek(); c >= '0' && c <= '9'; c = at_ < text_.size() ? text_[at_] : '\0', any = true) {
      if (n > (std::int64_t{1} << 59)) fail("an extent that is too large");
      n = 10 * n + (c - '0');
      ++at_;
    }
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote 3L
    if (!any) fail("no extent at character " + std::to_string(at_));
    return n;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

/// In the order of dtype. NumPy has no bf16: what is called so there, by ml_dtypes, is written as two bytes of no type.
inline constexpr const char* descrs[] = {"<f4", "<f8", "<i4", "<i8", "|b1", "<V2", "<f2",
                                         "|i1", "|u1", "<i2", "<u4", "<u8", "<c8", "<c16"};
static_assert(std::size(descrs) == gspmd::dtype_count);
inline std::string descrs_text() {
  std::string text;
  for (const char* const descr : descrs) text += (text.empty() ? "" : " ") + std::string(descr);
  return text;
}

inline gspmd::dtype dtype_of(const std::string& descr) {
  using gspmd::dtype;
  if (descr == "?" || descr == "b1") return dtype::pred;
  if (descr == "|V2") return dtype::bf16;
  for (std::size_t i = 0; i < std::size(descrs); ++i)
    if (descr == descrs[i]) return static_cast<dtype>(i);
  throw problem("has the dtype `" + descr.substr(0, 20) + "`; only little-endian " + descrs_text() + " are read");
}
inline const char* descr_of(gspmd::dtype type) { return descrs[static_cast<std::size_t>(type)]; }

/// The bytes of a shape; an extent of 0 does not excuse the others from being countable.
inline std::int64_t bytes_of(const std::vector<std::int64_t>& shape, gspmd::dtype type) {
  auto bound = gspmd::bytes_of(type);
  bool is_empty = false;
  for (const auto e : shape) {
    if (e == 0) {
      is_empty = true;
      continue;
    }
    if (e > (std::int64_t{1} << 60) / bound) throw problem("has more than 2^60 bytes");
    bound *= e;
  }
  return is_empty ? 0 : bound;
}

/// From Fortran order, dim 0 fastest, to C order, the last dim fastest.
inline std::vector<std::byte> to_c_order(const std::vector<std::byte>& from, const std::vector<std::int64_t>& shape,
                                         std::size_t size) {
  std::vector<std::byte> to(from.size());
  std::vector<std::size_t> stride(shape.size(), size);
  for (std::size_t d = 1; d < shape.size(); ++d) stride[d] = stride[d - 1] * static_cast<std::size_t>(shape[d - 1]);
  std::vector<std::int64_t> index(shape.size(), 0);
  std::size_t source = 0;
  for (std::size_t i = 0; i < to.size(); i += size) {
    std::memcpy(&to[i], &from[source], size);
    for (std::size_t d = shape.size(); d-- > 0;) {
      source += stride[d];
      if (++index[d] < shape[d]) break;
      source -= stride[d] * static_cast<std::size_t>(shape[d]);
      index[d] = 0;
    }
  }
  return to;
}

/// Reads from a stream of `file_bytes` bytes.
inline gspmd::dynamic::any_array read(std::istream& in, std::uint64_t file_bytes) {
  unsigned char start[12] = {};
  if (file_bytes < 10 || !in.read(reinterpret_cast<char*>(start), 8) || std::memcmp(start, "\x93NUMPY", 6) != 0)
    throw problem("is not a .npy file");
  const int version = start[6];
  if (version < 1 || version > 3) throw problem("is a .npy file of version " + std::to_string(version) + "; 1 to 3 are read");
  const int length_bytes = version == 1 ? 2 : 4;
  if (!in.read(reinterpret_cast<char*>(start + 8), length_bytes)) throw problem("is cut off in the header");
  std::uint64_t length = 0;
  for (int i = length_bytes - 1; i >= 0; --i) length = length << 8 | start[8 + i];
  const std::uint64_t before = 8 + static_cast<std::uint64_t>(length_bytes) + length;
  if (length > (1U << 20) || before > file_bytes) throw problem("is cut off in the header");
  std::string text(length, '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(length))) throw problem("is cut off in the header");

  const header h = header_parser(text).parse();
  gspmd::dynamic::any_array array;
  array.type = dtype_of(h.descr);
  array.shape = h.shape;
  const auto bytes = static_cast<std::uint64_t>(bytes_of(h.shape, array.type));
  const auto there = file_bytes - before;
  if (there != bytes)
    throw problem((there < bytes ? "is cut off: " : "is too long: ") + std::to_string(there) +
                  " bytes of data where the header promises " + std::to_string(bytes));
  array.bytes.resize(bytes);
  if (bytes > 0 && !in.read(reinterpret_cast<char*>(array.bytes.data()), static_cast<std::streamsize>(bytes)))
    throw problem("cannot be read to its end");
  if (array.type == gspmd::dtype::pred)
    for (auto& b : array.bytes) b = b == std::byte{0} ? std::byte{0} : std::byte{1};
  if (h.fortran_order && h.shape.size() > 1)
    array.bytes = to_c_order(array.bytes, h.shape, static_cast<std::size_t>(gspmd::bytes_of(array.type)));
  return array;
}

/// Throws `problem`.
inline gspmd::dynamic::any_array read(const std::string& file) {
  std::error_code failed;
  const auto status = std::filesystem::status(file, failed);
  if (status.type() == std::filesystem::file_type::not_found) throw problem("is not there");
  if (status.type() != std::filesystem::file_type::regular) throw problem("is not a file");
  const auto bytes = std::filesystem::file_size(file, failed);
  if (failed) throw problem("has no size: " + failed.message());
  std::ifstream in(file, std::ios::binary);
  if (!in) throw problem(std::string("cannot be opened: ") + std::strerror(errno));
  return read(in, bytes);
}

/// Version 1, C order, the data on a multiple of 64 bytes, as NumPy writes it.
inline void write(std::ostream& out, const gspmd::dynamic::any_array& array) {
  std::string text = std::string("{'descr': '") + descr_of(array.type) + "', 'fortran_order': False, 'shape': (";
  for (const auto e : array.shape) text += std::to_string(e) + ", ";
  if (array.shape.size() > 1) text.resize(text.size() - 2);
  else if (array.shape.size() == 1) text.resize(text.size() - 1);
  text += "), }";
  text.append((64 - (10 + text.size() + 1) % 64) % 64, ' ');
  text += '\n';
  const char start[10] = {
      '\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, static_cast<char>(text.size() & 0xFFU), static_cast<char>(text.size() >> 8)};
  out.write(start, sizeof start);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  out.write(reinterpret_cast<const char*>(array.bytes.data()), static_cast<std::streamsize>(array.bytes.size()));
}

/// Throws `problem`; then there is no file, or the one that was there before.
inline void write(const std::string& file, const gspmd::dynamic::any_array& array) {
  const auto failed = plan_tool::write_whole_file(file, [&](std::ostream& out) { write(out, array); });
  if (!failed.empty()) throw problem("cannot be written: " + failed);
}

}  // namespace npy
