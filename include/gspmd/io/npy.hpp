// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/error.hpp"
#include "gspmd/io/detail/device_group.hpp"
#include "gspmd/io/detail/exchanging_group.hpp"
#include "gspmd/io/detail/load_file.hpp"
#include "gspmd/io/detail/npy_header.hpp"
#include "gspmd/io/detail/npy_parser.hpp"
#include "gspmd/io/detail/save_file.hpp"
#include "gspmd/io/named_arrays.hpp"
#include "gspmd/program/dtype.hpp"

/// Saves and loads arrays on any mesh as NumPy's files of a single array.
namespace gspmd {

using detail::npy_description;

/// Returns the bytes before the elements of a .npy file in row-major order.
[[nodiscard]] inline std::string npy_header_text(dtype type, const std::vector<std::int64_t>& shape) {
  return detail::npy_header(type, shape);
}

/// Returns the element type of a .npy file. `|V2` is bf16.
///
/// **Errors.** Throws gspmd::error if the library does not have the type.
[[nodiscard]] inline dtype npy_dtype(const npy_description& of) { return detail::npy_dtype(of.type); }

/// Parses the header of a .npy file. `text` is the file or its beginning, and `file_bytes` the size of the file. Checks
/// that the size matches the header.
///
/// **Errors.** Throws gspmd::error with a text that continues after the name of the file: not a .npy file, an element
/// type that the library does not have, or a wrong size.
[[nodiscard]] inline npy_description parse_npy_header(std::string_view text, std::int64_t file_bytes) {
  const auto found = detail::parse_npy(text, file_bytes);
  detail::check_npy_size(found, bytes_of(npy_dtype(found)), file_bytes);
  return found;
}

namespace detail {

inline std::string read_npy_header(const posix_file& file) {
  const auto size = plain_size(file);
  std::string text(static_cast<std::size_t>(std::min(size, std::int64_t{12})), '\0');
  file.read_at(0, text.data(), text.size());
  try {
    text.resize(static_cast<std::size_t>(npy_header_bytes(text, size)));
  } catch (const error& e) {
    throw error('`' + file.path() + "` " + e.text());
  }
  file.read_at(0, text.data(), text.size());
  return text;
}

}  // namespace detail

/// Returns the element type, shape and order of a .npy file.
///
/// **Communication.** None.
/// **Errors.** Throws gspmd::error like parse_npy_header.
/// **Example.**
///
///     const auto found = read_npy_header("u.npy");   // found.shape is {1024, 768}, npy_dtype(found) is dtype::f32
[[nodiscard]] inline npy_description read_npy_header(const std::string& path) {
  try {
    const auto file = detail::posix_file::read(path);
    const auto text = detail::read_npy_header(file);
    try {
      return parse_npy_header(text, file.size());
    } catch (const error& e) {
      throw error('`' + path + "` " + e.text());
    }
  } catch (const error& e) {
    throw error("npy: " + e.text());
  }
}

/// Writes an array to a .npy file (version 1.0, row-major). It replaces the file `path`, like save_safetensors.
/// Elements of bf16 and of your own types are written as bytes without a type.
///
/// **Communication.** Collective. An array with rows under 4 KiB on a device is gathered first, like in
/// save_safetensors. Otherwise only a few integers are sent.
/// **Errors.** Throws gspmd::error, the same on all processes, like save_safetensors.
/// **Example.**
///
///     save_npy(comm, "u.npy", u);      // np.load("u.npy")
template <communicator Comm>
void save_npy(Comm& comm, const std::string& path, const one_array& array) {
  detail::save_file(
      detail::exchanging_group(comm, "npy"), path, [&] { return array.list().described(); },
      [](const std::vector<detail::stored_array>& list) {
        auto header = detail::npy_header(list[0].type, list[0].global);
        const auto begin = static_cast<std::int64_t>(header.size());
        return detail::file_layout{std::move(header), {begin}};
      });
}

/// Fills an array from a .npy file in row-major or Fortran order. Each device reads the elements of its shard, like
/// load_safetensors.
///
/// **Communication.** Collective. Only the header is sent.
/// **Errors.** Throws gspmd::error, the same on all processes, and then changes no array: a missing, truncated or too
/// long file; another format; big-endian elements; a type or shape other than the array's.
template <communicator Comm>
void load_npy(Comm& comm, const std::string& path, const one_array& array) {
  detail::load_file(
      detail::device_group(comm, "npy"), path, "", [&] { return array.list().described(); },
      [](const detail::posix_file& file) { return detail::read_npy_header(file); },
      [&](const std::vector<detail::stored_array>& list, const std::string& text, std::int64_t size) {
        const auto& a = list[0];
        try {
          const auto found = detail::parse_npy(text, size);
          if (found.type.starts_with('>'))
            throw error("has elements of `" + found.type + "`, high bytes first, which are not turned round; save it as `<" +
                        found.type.substr(1) + '`');
          const auto given = detail::npy_type(a.type);
          if (!detail::is_npy_type(found.type, a.type) || found.shape != a.global)
            throw error("has " + found.type + ' ' + detail::stored_shape_text(found.shape) + " and the array given is " + given +
                        ' ' + detail::stored_shape_text(a.global) +
                        std::string(detail::differing_dim_text(found.shape, a.global).view()));
          detail::check_npy_size(found, detail::bytes_of(a.type), size);
          return std::vector{detail::array_place{found.begin, found.is_fortran_order}};
        } catch (const error& e) {
          throw error('`' + path + "` " + e.text());
        }
      });
}

}  // namespace gspmd
