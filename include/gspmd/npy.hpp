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
#include "gspmd/detail/files/device_group.hpp"
#include "gspmd/detail/files/exchanging_group.hpp"
#include "gspmd/detail/files/load_file.hpp"
#include "gspmd/detail/files/npy_header.hpp"
#include "gspmd/detail/files/npy_parser.hpp"
#include "gspmd/detail/files/save_file.hpp"
#include "gspmd/dtype.hpp"
#include "gspmd/error.hpp"
#include "gspmd/named_arrays.hpp"

/// NumPy's files of one array, from and to arrays on any mesh.
namespace gspmd {

using detail::npy_description;

/// The bytes before the elements in a .npy file, row-major.
[[nodiscard]] inline std::string npy_header_text(dtype type, const std::vector<std::int64_t>& shape) {
  return detail::npy_header(type, shape);
}

/// The element type of a .npy file; `|V2` is bf16. Throws gspmd::error: the library has no such type.
[[nodiscard]] inline dtype npy_dtype(const npy_description& of) { return detail::npy_dtype(of.type); }

/// Reads the header at the beginning of `text`, which is a .npy file of `file_bytes` bytes or the first ones of it, and checks that these are as
/// many as it says. Throws gspmd::error, whose text goes on from the file's name: it is none, has an element type that the library does not
/// have, or another number of bytes.
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

/// The element type, shape and order of a .npy file. No communication. Throws gspmd::error: as parse_npy_header.
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

/// Writes an array to a .npy file (version 1.0, row-major), which replaces what `path` was before, as save_safetensors does. bf16 and types of your
/// own are bytes of no type there. An array in rows under 4 KiB is gathered first, as there; else only a few integers are sent. Collective. Throws
/// gspmd::error, the same on all processes: as save_safetensors.
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

/// Fills an array from a .npy file, row-major or in Fortran's order, as load_safetensors does: every device reads what its shard holds, and
/// nothing but the header is sent. Collective. Throws gspmd::error, the same on all processes, and then nothing has changed: a file
/// that is missing, cut off, too long or of another format; high bytes first; another type or shape than the array's.
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
                        ' ' + detail::stored_shape_text(a.global));
          detail::check_npy_size(found, detail::bytes_of(a.type), size);
          return std::vector{detail::array_place{found.begin, found.is_fortran_order}};
        } catch (const error& e) {
          throw error('`' + path + "` " + e.text());
        }
      });
}

}  // namespace gspmd
