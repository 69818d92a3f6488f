// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "gspmd/error.hpp"
#include "gspmd/io/detail/hdf5_library.hpp"
#include "gspmd/io/detail/hdf5_reader.hpp"
#include "gspmd/io/detail/posix_file.hpp"

/// Checks of how a dataset is stored, before and after the library reads it.
namespace gspmd::detail {

/// Returns the error for a dataset that has its elements in another file.
inline error in_another_file(const hdf5_reader& reader, const std::string& name, const std::string& how,
                             const std::string& other) {
  return error('`' + name + "` in `" + reader.path() + "` is " + how + " `" + other +
               "`; set may_open_other_files if you trust the file");
}

/// Throws gspmd::error unless the files of an external storage are plain files with all their bytes. Otherwise the
/// library would wait for a pipe, and read zeros after the end of a file. `made` is the creation properties of
/// `dataset`. A `${ORIGIN}` in HDF5_EXTFILE_PREFIX is the folder of the file that contains the dataset. An external
/// link can lead to that file.
inline void check_external_files(const hdf5_reader& reader, const hdf5_object& dataset, hid_t made, const std::string& name,
                                 std::int64_t bytes) {
  const auto failed = reader.failed(name);
  const char* const prefix = std::getenv("HDF5_EXTFILE_PREFIX");
  for (int k = 0; k < H5Pget_external_count(made) && bytes > 0; ++k) {
    char text[4097] = {};
    off_t begin = 0;
    hsize_t size = 0;
    check_hdf5(H5Pget_external(made, static_cast<unsigned>(k), sizeof text - 1, text, &begin, &size), failed);
    std::filesystem::path path(text);
    if (prefix != nullptr && path.is_relative()) {
      constexpr std::string_view origin = "${ORIGIN}";
      std::string folder = prefix;
      if (folder.starts_with(origin))
        folder.replace(0, origin.size(), std::filesystem::absolute(file_of(dataset)).parent_path().string());
      path = folder / path;
    }
    const auto file = posix_file::read(path.string());
    if (file.size() < 0) throw error(failed + ": `" + path.string() + "` is no file");
    const auto part = static_cast<std::int64_t>(std::min(size, static_cast<hsize_t>(bytes)));
    if (begin < 0 || file.size() < begin || file.size() - begin < part)
      throw error(failed + ": `" + path.string() + "` is cut off: it has " + std::to_string(file.size()) + " bytes");
    bytes -= part;
  }
}

/// Throws gspmd::error for a dataset in other files that may not be opened, and for chunks that need far more memory
/// than the dataset. `bytes` is the size of all elements. The library unpacks a chunk as a whole, even for one element.
/// It reads chunks without filters in parts.
inline void check_storage(const hdf5_reader& reader, const hdf5_object& dataset, const std::string& name, std::int64_t bytes) {
  constexpr hsize_t small_chunk_bytes = hsize_t{1} << 26;
  const auto failed = reader.failed(name);
  const hdf5_object made(H5Dget_create_plist(dataset.id()), H5Pclose, failed), type(H5Dget_type(dataset.id()), H5Tclose, failed);
  const auto layout = H5Pget_layout(made.id());
  if (H5Pget_external_count(made.id()) > 0) {
    char other[256] = {};
    check_hdf5(H5Pget_external(made.id(), 0, sizeof other - 1, other, nullptr, nullptr), failed);
    if (!reader.medium().may_open_other_files) throw in_another_file(reader, name, "stored in the other file", other);
    check_external_files(reader, dataset, made.id(), name, bytes);
  }
  if (layout == H5D_VIRTUAL && !reader.medium().may_open_other_files) {
    char other[256] = {};
    H5Pget_virtual_filename(made.id(), 0, other, sizeof other);
    throw in_another_file(reader, name, "a virtual dataset, of the file", other);
  }
  if (layout != H5D_CHUNKED || H5Pget_nfilters(made.id()) < 1) return;
  hsize_t chunk[H5S_MAX_RANK];
  const int rank = H5Pget_chunk(made.id(), H5S_MAX_RANK, chunk);
  const auto most = std::max(small_chunk_bytes, static_cast<hsize_t>(bytes));
  hsize_t chunk_bytes = H5Tget_size(type.id());
  for (int d = 0; d < rank; ++d) {
    if (chunk[d] > 0 && chunk_bytes > most / chunk[d])
      throw error('`' + name + "` in `" + reader.path() + "` has " + std::to_string(bytes) +
                  " bytes in packed chunks of more than " + std::to_string(most) +
                  ", which need as much memory; write it in smaller chunks (h5repack -l)");
    chunk_bytes *= chunk[d];
  }
}

/// Returns the path of a source of a virtual dataset in the file `home`. Returns an empty text if the library could not
/// open the source, and nothing if the library did not need it.
///
/// The library opens an absolute name. If that fails, or if the name is relative, it searches HDF5_VDS_PREFIX, the
/// folder of `home` and the current folder. For an absolute name, it then searches for the last component.
inline std::optional<std::string> path_of_source(const hdf5_medium& medium, const std::string& source, const std::string& home) {
  const auto name = source.starts_with('/') ? source.substr(source.rfind('/') + 1) : source;
  const auto is_searched = [&](const std::string& folder) {
    std::error_code failed;
    const auto own = std::filesystem::absolute(home, failed), real = std::filesystem::canonical(home, failed);
    return std::getenv("HDF5_VDS_PREFIX") != nullptr || std::filesystem::equivalent(folder, own.parent_path(), failed) ||
           std::filesystem::equivalent(folder, real.parent_path(), failed);
  };
  std::optional<std::string> found;
  for (const auto& [path, could_open] : medium.others) {
    const bool is_source =
        path == source || path == name || (path.ends_with('/' + name) && is_searched(path.substr(0, path.size() - name.size())));
    if (is_source && could_open) return path;
    if (is_source) found = "";
  }
  return found;
}

/// Throws gspmd::error if a virtual dataset lacks a source that was needed, because the library then uses the fill
/// value for its elements. Sources in a numbered series (`%b`) are not checked, because the series ends at the first
/// file that is missing.
inline void check_sources(const hdf5_reader& reader, const hdf5_object& dataset, const std::string& name) {
  const auto failed = reader.failed(name);
  const hdf5_object made(H5Dget_create_plist(dataset.id()), H5Pclose, failed);
  if (H5Pget_layout(made.id()) != H5D_VIRTUAL) return;
  std::size_t count = 0;
  check_hdf5(H5Pget_virtual_count(made.id(), &count), failed);
  const auto text = [&](auto get, std::size_t k) {
    std::string result(static_cast<std::size_t>(std::max<ssize_t>(get(made.id(), k, nullptr, 0), 0)), '\0');
    get(made.id(), k, result.data(), result.size() + 1);
    return result;
  };
  for (std::size_t k = 0; k < count; ++k) {
    const auto file = text(H5Pget_virtual_filename, k), source = text(H5Pget_virtual_dsetname, k);
    if ((file + source).find("%b") != std::string::npos) continue;
    const auto home = file_of(dataset);
    const auto path = file == "." ? home : path_of_source(reader.medium(), file, home);
    if (!path) continue;  // this shard has no element of the source
    if (path->empty()) throw error(failed + ": its source `" + file + "` cannot be opened");
    const auto opened = *path == reader.path() ? std::nullopt : std::optional(reader.other_file(*path));
    if (!reader.is_dataset(reader.find(opened ? opened->id() : reader.file(), source)))
      throw error(failed + ": its source `" + file + "` has no dataset `" + source + '`');
  }
}

}  // namespace gspmd::detail
