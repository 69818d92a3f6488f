// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/error.hpp"
#include "gspmd/io/detail/device_group.hpp"
#include "gspmd/io/detail/exchanging_group.hpp"
#include "gspmd/io/detail/load_file.hpp"
#include "gspmd/io/detail/save_file.hpp"
#include "gspmd/io/named_arrays.hpp"

/// Saves and loads arrays on any mesh as files that contain only elements, as in MPI-IO, Fortran's stream files and
/// NumPy's `tofile`.
namespace gspmd {

/// The location and order of the array in a file that is read. All processes pass the same options.
struct raw_options {
  std::int64_t begin_byte = 0;    // the number of bytes before the array
  bool is_fortran_order = false;  // dim 0 is fastest, not the last one
  bool may_be_longer = false;     // other bytes may follow the array
};

/// Writes the elements of an array to a file, row-major and little-endian, and nothing else. It replaces the file
/// `path`, like save_safetensors.
///
/// **Communication.** Collective. An array with rows under 4 KiB on a device is gathered first, like in
/// save_safetensors. Otherwise only a few integers are sent.
/// **Errors.** Throws gspmd::error, the same on all processes, like save_safetensors.
/// **Example.**
///
///     save_raw(comm, "u.f64", u);      // np.fromfile("u.f64").reshape(shape)
template <communicator Comm>
void save_raw(Comm& comm, const std::string& path, const one_array& array) {
  detail::save_file(
      detail::exchanging_group(comm, "raw file"), path, [&] { return array.list().described(); },
      [](const std::vector<detail::stored_array>&) {
        return detail::file_layout{"", {0}};
      });
}

/// Fills an array from a file of little-endian elements. Each device reads the elements of its shard, like
/// load_safetensors.
///
/// **Communication.** Collective.
/// **Errors.** Throws gspmd::error, the same on all processes, and then changes no array: a file that is missing, too
/// short or too long.
/// **Example.**
///
///     // a record of Fortran
///     load_raw(comm, "u.bin", u, {.begin_byte = 4, .is_fortran_order = true, .may_be_longer = true});
template <communicator Comm>
void load_raw(Comm& comm, const std::string& path, const one_array& array, const raw_options& options = {}) {
  detail::load_file(
      detail::device_group(comm, "raw file"), path,
      std::to_string(options.begin_byte) + (options.is_fortran_order ? " F" : " C") + (options.may_be_longer ? "+" : ""),
      [&] { return array.list().described(); }, [](const detail::posix_file&) { return std::string(); },
      [&](const std::vector<detail::stored_array>& list, const std::string&, std::int64_t size) {
        const auto& a = list[0];
        auto bytes = detail::bytes_of(a.type);
        for (const auto n : a.global) bytes *= n;
        if (options.begin_byte < 0 || options.begin_byte > std::int64_t{1} << 60)
          throw error("begin_byte is " + std::to_string(options.begin_byte) + "; it counts bytes from 0");
        const auto end = options.begin_byte + bytes;
        if (size < end || (size > end && !options.may_be_longer))
          throw error('`' + path + "` has " + std::to_string(size) + " bytes, and " + detail::stored_type(a.type) + ' ' +
                      detail::stored_shape_text(a.global) + " from byte " + std::to_string(options.begin_byte) +
                      " ends at byte " + std::to_string(end) + (size < end ? "" : "; set may_be_longer if others follow"));
        return std::vector{detail::array_place{options.begin_byte, options.is_fortran_order}};
      });
}

}  // namespace gspmd
