// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/error.hpp"
#include "gspmd/io/detail/device_group.hpp"
#include "gspmd/io/detail/exchanging_group.hpp"
#include "gspmd/io/detail/load_file.hpp"
#include "gspmd/io/detail/safetensors_header.hpp"
#include "gspmd/io/detail/save_file.hpp"
#include "gspmd/io/named_arrays.hpp"

/// Saves and loads arrays on any mesh as safetensors, the format for weights of Hugging Face, PyTorch, JAX and others.
namespace gspmd {

using detail::safetensors_entry;
using detail::safetensors_header;

/// Options of save_safetensors.
struct safetensors_options {
  /// Free texts, the file's `__metadata__`. PyTorch's readers look for {{"format", "pt"}}.
  std::map<std::string, std::string> metadata;
};

namespace detail {

/// Reads the header and the eight bytes before it.
inline std::string read_safetensors_header(const posix_file& file) {
  const auto size = plain_size(file);
  std::string text(static_cast<std::size_t>(std::min(size, std::int64_t{8})), '\0');
  file.read_at(0, text.data(), text.size());
  try {
    text.resize(8 + static_cast<std::size_t>(safetensors_header_bytes(text, size)));
  } catch (const error& e) {
    throw error('`' + file.path() + "` " + e.text());
  }
  file.read_at(8, text.data() + 8, text.size() - 8);
  return text;
}
inline safetensors_header parse_safetensors_of(const std::string& path, std::string_view text, std::int64_t size) {
  try {
    return parse_safetensors(text.substr(8), size - static_cast<std::int64_t>(text.size()));
  } catch (const error& e) {
    throw error('`' + path + "` " + e.text());
  }
}

}  // namespace detail

/// Writes all arrays to one file, which replaces the file `path`.
///
/// Each device writes its part of each array. The first of several replicas writes. When the function returns, all data
/// is on the disk. If the function fails or the program is killed, `path` keeps its old contents. At most the file
/// `path.partial` is left, and the next save removes it.
///
/// **Communication.** Collective. If a device has several rows of an array, of under 4 KiB each, the array is gathered
/// first. Its elements are sent to the device that writes them, up to 4 MiB for each device at a time. Otherwise only a
/// few integers are sent, to agree about success.
/// **Errors.** Throws gspmd::error, the same on all processes: a file that cannot be written; another save to the same
/// path under way; c128 and your own types, which the format does not have; names that are not UTF-8; and the errors of
/// checkpoint::save.
/// **Example.**
///
///     named_arrays model;
///     model.add("w", w);  // or a checkpoint, which is also a list of arrays
///     save_safetensors(comm, "model.safetensors", model, {.metadata = {{"format", "pt"}}});
template <communicator Comm>
void save_safetensors(Comm& comm, const std::string& path, const named_arrays& arrays, const safetensors_options& options = {}) {
  detail::save_file(
      detail::exchanging_group(comm, "safetensors"), path, [&] { return arrays.described(); },
      [&](const std::vector<detail::stored_array>& list) { return detail::safetensors_layout(list, options.metadata); });
}

/// Fills all arrays from a file. The file may contain other tensors too, also of types that the library does not have.
///
/// Each device reads the elements of its shard, including gaps of up to 4 KiB between two rows. It sets the padding to
/// zero. While the function runs, all shards are in memory twice.
///
/// **Communication.** Collective. Only the header is sent.
/// **Errors.** Throws gspmd::error, the same on all processes, and then changes no array: a missing, truncated or too
/// long file; another format; tensors that overlap or leave holes; an array that is not in the file, or has another
/// type or shape there.
template <communicator Comm>
void load_safetensors(Comm& comm, const std::string& path, const named_arrays& arrays) {
  detail::load_file(
      detail::device_group(comm, "safetensors"), path, "", [&] { return arrays.described(); },
      [](const detail::posix_file& file) { return detail::read_safetensors_header(file); },
      [&](const std::vector<detail::stored_array>& list, const std::string& text, std::int64_t size) {
        const auto header = detail::parse_safetensors_of(path, text, size);
        std::vector<detail::array_place> places;
        for (const auto& a : list) {
          const auto& e = detail::entry_named(a.name, header.tensors, path);
          const auto type = detail::safetensors_type(a.type);
          detail::check_given(a, type.empty() ? detail::stored_type(a.type) : type, e.type, e.shape, path);
          places.push_back({static_cast<std::int64_t>(text.size()) + e.begin, false});
        }
        return places;
      });
}

/// Returns the names, types and shapes of the tensors of a file, and its metadata.
///
/// **Communication.** None.
/// **Errors.** Throws gspmd::error like load_safetensors.
/// **Example.**
///
///     const auto header = read_safetensors_header("model.safetensors");
///     for (const auto& t : header.tensors) std::cout << t.name << ' ' << t.type << '\n';
[[nodiscard]] inline safetensors_header read_safetensors_header(const std::string& path) {
  try {
    const auto file = detail::posix_file::read(path);
    const auto text = detail::read_safetensors_header(file);
    return detail::parse_safetensors_of(path, text, file.size());
  } catch (const error& e) {
    throw error("safetensors: " + e.text());
  }
}

}  // namespace gspmd
