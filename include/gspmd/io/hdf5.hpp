// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/error.hpp"
#include "gspmd/io/detail/array_file.hpp"
#include "gspmd/io/detail/device_group.hpp"
#include "gspmd/io/detail/exchanging_group.hpp"
#include "gspmd/io/detail/hdf5_arrays.hpp"
#include "gspmd/io/detail/hdf5_attributes.hpp"
#include "gspmd/io/detail/hdf5_reader.hpp"
#include "gspmd/io/detail/hdf5_writer.hpp"
#include "gspmd/io/detail/load_file.hpp"
#include "gspmd/io/detail/posix_file.hpp"
#include "gspmd/io/detail/save_file.hpp"
#include "gspmd/io/detail/stored_array.hpp"
#include "gspmd/io/named_arrays.hpp"

/// HDF5 files: reads and writes datasets as arrays on any mesh. Requires HDF5's C library, serial or parallel, and
/// CMake's target gspmd::hdf5.
///
/// **Security.** Load only HDF5 files that you trust. HDF5's library parses the file, and it crashes or loops on some
/// damaged or hostile files. Use .npy or safetensors for files that you do not trust.
namespace gspmd {

using detail::hdf5_dataset;
/// The attributes and datasets of an HDF5 file, as read_hdf5_header returns them.
using detail::hdf5_header;

/// Options of save_hdf5.
struct hdf5_options {
  /// Names and texts of attributes that the file gets.
  std::map<std::string, std::string> attributes;
};

/// Options of load_hdf5. All processes pass the same.
struct hdf5_load_options {
  /// Allows elements in other files that the file names: by external links, external storage or virtual datasets. The
  /// author of the file chooses the names, so the load can read any file that the process can read.
  bool may_open_other_files = false;
};

namespace detail {

/// The position of a dataset in a file that is read.
struct hdf5_place {
  std::int64_t begin;  // the byte where the elements begin; -1 if only HDF5's library finds them
  bool may_open_other_files;
};
inline void read_from_file(const posix_file& file, const hdf5_place& where, const stored_array& a, std::int64_t device,
                           std::byte* shard) {
  if (where.begin >= 0) return read_from_file(file, array_place{where.begin, false}, a, device, shard);
  read_by_hdf5(file, where.may_open_other_files, a, device, shard);
  make_bools_true(a, shard);
}

}  // namespace detail

/// Writes all arrays to one file, with a dataset for each array. The file is the same on any mesh.
///
/// The file replaces the file at `path`, as with save_safetensors. A `/` in a name separates groups: `fields/u`.
/// Datasets are contiguous and have the types that h5py writes. The type of bf16 is a custom float of 16 bits, and your
/// own types are opaque. The process of device 0 creates the file with HDF5's library. Then each device writes its
/// part. If the parts are replicas, the first device writes.
///
/// **Communication.** Collective. A few integers. Arrays with rows under 4 KiB are gathered first, as in
/// save_safetensors.
/// **Errors.** Throws gspmd::error with the same text on all processes, for the reasons of save_safetensors. Further
/// reasons are a name with an empty part, and a name that is also a group.
/// **Example.**
///
///     named_arrays state;
///     state.add("fields/u", u);
///     // h5py.File("state.h5")["fields/u"][:]
///     save_hdf5(comm, "state.h5", state, {.attributes = {{"program", "heat"}}});
template <communicator Comm>
void save_hdf5(Comm& comm, const std::string& path, const named_arrays& arrays, const hdf5_options& options = {}) {
  detail::save_file(
      detail::exchanging_group(comm, "hdf5"), path, [&] { return arrays.described(); },
      [&](const std::vector<detail::stored_array>& list) {
        detail::check_hdf5_names(list);
        detail::check_hdf5_attributes(options.attributes);
        detail::file_layout layout;
        for (const auto& [key, value] : options.attributes) layout.header += key + '\0' + value + '\0';
        return layout;
      },
      [&](detail::posix_file& file, const std::vector<detail::stored_array>& list, detail::file_layout& layout) {
        layout.begins = detail::make_hdf5(file, list, options.attributes);
      });
}

/// Fills all arrays from datasets of a file, which may contain other datasets too.
///
/// Contiguous little-endian datasets are read as in load_safetensors: each device reads the bytes of its shard. HDF5's
/// library reads all other datasets (chunked, compressed or big-endian), one thread of a process at a time. Padding is
/// set to zero. Memory for all shards is needed twice.
///
/// **Communication.** Collective. The positions of the datasets, and a few integers.
/// **Errors.** Throws gspmd::error with the same text on all processes, and changes no array:
///  - the file is missing, cut off or of another format
///  - an array is missing, or has another type or shape
///  - a dataset is in another file (see hdf5_load_options)
///  - a compressed chunk is larger than 64 MiB and than the whole dataset, and would have to be unpacked whole
template <communicator Comm>
void load_hdf5(Comm& comm, const std::string& path, const named_arrays& arrays, const hdf5_load_options& options = {}) {
  const bool may_open = options.may_open_other_files;
  detail::load_file(
      detail::device_group(comm, "hdf5"), path, may_open ? "with other files" : "",
      [&] {
        auto list = arrays.described();
        detail::check_hdf5_names(list);
        return list;
      },
      [&](const detail::posix_file& file) {
        const auto begins = detail::find_in_hdf5(file, arrays.described(), may_open);
        return std::string(reinterpret_cast<const char*>(begins.data()), begins.size() * sizeof begins[0]);
      },
      [&](const std::vector<detail::stored_array>& list, const std::string& begins, std::int64_t) {
        std::vector<detail::hdf5_place> places(list.size(), {-1, may_open});
        for (std::size_t k = 0; k < places.size(); ++k)
          std::memcpy(&places[k].begin, begins.data() + k * sizeof(std::int64_t), sizeof(std::int64_t));
        return places;
      });
}

/// Options of read_hdf5_header.
struct hdf5_header_options {
  /// Also reads those attributes of the file that are strings.
  bool attributes = false;
};

/// Returns the datasets of a file with their types and shapes, and the attributes of the file if the options request
/// them. Datasets that are links to other files are left out.
///
/// **Communication.** None.
/// **Errors.** Throws gspmd::error as load_hdf5 does.
/// **Example.**
///
///     for (const auto& d : read_hdf5_header("state.h5").datasets)
///       std::cout << printable(d.name) << ' ' << d.type << '\n';                                      // fields/u f64
///     const auto program = read_hdf5_header("state.h5", {.attributes = true}).attributes.at("program");
[[nodiscard]] inline hdf5_header read_hdf5_header(const std::string& path, const hdf5_header_options& options = {}) {
  try {
    const auto source = detail::posix_file::read(path);
    static_cast<void>(detail::plain_size(source));
    const detail::hdf5_reader reader(source);
    hdf5_header header;
    if (options.attributes) header.attributes = detail::hdf5_attributes(reader);
    for (const auto& name : reader.names())
      header.datasets.push_back(detail::look_at_dataset(reader, reader.dataset(name), name));
    return header;
  } catch (const error& e) {
    throw error("hdf5: " + e.text());
  }
}

}  // namespace gspmd
