// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/error.hpp"
#include "gspmd/io/detail/npy_header.hpp"

/// Reading of headers of .npy files (NumPy's format, versions 1 to 3). Errors do not contain the name of the file.
namespace gspmd::detail {

/// The header of a .npy file.
struct npy_description {
  std::string type;  // `<f4`: as in the file; gspmd may not have the type
  std::vector<std::int64_t> shape;
  bool is_fortran_order = false;  // dim 0 is fastest
  std::int64_t begin = 0;         // the byte where the elements begin
};

/// Reads the dictionary of a header: a Python dictionary with the keys descr, fortran_order and shape, in any order.
class npy_parser {
 public:
  explicit npy_parser(std::string_view text) : text_(text) {}

  npy_description parse() {
    // No valid header has a NUL, and an error text would end at it.
    if (const auto at = text_.find('\0'); at != std::string_view::npos) fail("a NUL at character " + std::to_string(at));
    npy_description h;
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const auto key = quoted();
      expect(':');
      if (key == "descr" && !has_descr) {
        if (peek() != '\'' && peek() != '"') fail("a structured dtype; only elements of one number are read");
        h.type = quoted();
        has_descr = true;
      } else if (key == "fortran_order" && !has_order) {
        h.is_fortran_order = boolean();
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
    if (!has_descr || !has_order || !has_shape) throw error("the header lacks descr, fortran_order or shape");
    return h;
  }

 private:
  [[noreturn]] static void fail(const std::string& what) { throw error("the header has " + what); }
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
      if (list.size() == static_cast<std::size_t>(max_rank)) fail("more than 32 dims");
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

/// Returns the number of bytes of the header in a file of `size` bytes. `start` is the first twelve bytes, or all bytes
/// of a shorter file.
inline std::int64_t npy_header_bytes(std::string_view start, std::int64_t size) {
  if (start.size() < 10 || start.substr(0, 6) != "\x93NUMPY") throw error("is not a .npy file");
  const int version = static_cast<unsigned char>(start[6]);
  if (version < 1 || version > 3) throw error("is a .npy file of version " + std::to_string(version) + "; 1 to 3 are read");
  const std::size_t before = version == 1 ? 10 : 12;
  std::int64_t length = 0;
  for (std::size_t i = std::min(before, start.size()); i-- > 8;) length = length << 8 | static_cast<unsigned char>(start[i]);
  const auto bytes = static_cast<std::int64_t>(before) + length;
  if (start.size() < before || length > 1 << 20 || bytes > size) throw error("is cut off in the header");
  return bytes;
}

/// Returns true if NumPy's type `name` has the elements of `type`. A bf16 of ml_dtypes is two untyped bytes.
inline bool is_npy_type(const std::string& name, dtype type) {
  if (name == npy_type(type)) return true;
  if (type == dtype::pred) return name == "?" || name == "b1";
  return name.size() > 1 && name[0] == '<' && npy_type(type)[0] == '|' && name.substr(1) == npy_type(type).substr(1);
}

/// Returns the element type of a NumPy name. `|V2` is bf16.
inline dtype npy_dtype(const std::string& name) {
  std::string known;
  for (std::size_t i = 0; i < element_type_count; ++i) {
    if (is_npy_type(name, static_cast<dtype>(i))) return static_cast<dtype>(i);
    known += (i > 0 ? " " : "") + npy_type(static_cast<dtype>(i));
  }
  throw error("has the dtype `" + name.substr(0, 20) + "`; only little-endian " + known + " are read");
}

/// Reads the header of a file of `size` bytes. `text` is the whole header, or more.
inline npy_description parse_npy(std::string_view text, std::int64_t size) {
  const auto begin = npy_header_bytes(text, size);
  const std::size_t before = text[6] == 1 ? 10 : 12;
  if (static_cast<std::int64_t>(text.size()) < begin) throw error("is cut off in the header");
  auto found = npy_parser(text.substr(before, static_cast<std::size_t>(begin) - before)).parse();
  found.begin = begin;
  return found;
}

/// Throws gspmd::error unless a file of `size` bytes has the elements of its header, with `elem_bytes` each. Even if an
/// extent is 0, the product of the other extents must not be too large.
inline void check_npy_size(const npy_description& of, std::int64_t elem_bytes, std::int64_t size) {
  auto bound = elem_bytes;
  bool is_empty = false;
  for (const auto n : of.shape) {
    if (n == 0) is_empty = true;
    else if (n > (std::int64_t{1} << 60) / bound) throw error("has more than 2^60 bytes");
    else bound *= n;
  }
  const auto bytes = is_empty ? 0 : bound, there = size - of.begin;
  if (there != bytes)
    throw error((there < bytes ? "is cut off: " : "is too long: ") + std::to_string(there) +
                " bytes of data where the header promises " + std::to_string(bytes));
}

}  // namespace gspmd::detail
