// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/error.hpp"
#include "gspmd/io/detail/check_arrays.hpp"
#include "gspmd/io/detail/hdf5_library.hpp"
#include "gspmd/io/detail/hdf5_reader.hpp"
#include "gspmd/io/detail/hdf5_storage.hpp"
#include "gspmd/io/detail/hdf5_types.hpp"
#include "gspmd/io/detail/posix_file.hpp"
#include "gspmd/io/detail/stored_array.hpp"

/// Arrays from datasets: the bytes of their elements, or elements that only the library can find.
namespace gspmd::detail {

/// Returns the byte where each array begins in the file, or -1 if only the library finds its elements. Throws
/// gspmd::error if an array is missing, has another type or shape, or is in another file that may not be opened.
inline std::vector<std::int64_t> find_in_hdf5(const posix_file& source, const std::vector<stored_array>& arrays,
                                              bool may_open_other_files) {
  const hdf5_reader reader(source, may_open_other_files);
  const auto size = source.size();
  std::vector<std::int64_t> begins;
  for (const auto& a : arrays) {
    if (!reader.is_dataset(reader.find(reader.file(), a.name))) {
      if (const auto& other = reader.medium().refused; !other.empty())
        throw in_another_file(reader, a.name, "a link to the other file", other);
      std::vector<hdf5_dataset> there;
      for (auto& name : reader.names()) there.push_back({std::move(name), "", {}, -1});
      static_cast<void>(entry_named(a.name, there, reader.path()));
    }
    const auto dataset = reader.dataset(a.name);
    const auto found = look_at_dataset(reader, dataset, a.name);
    const hdf5_object type(H5Dget_type(dataset.id()), H5Tclose, reader.failed(a.name));
    const bool is_low = is_hdf5_type(type.id(), a.type, false), is_high = !is_low && is_hdf5_type(type.id(), a.type, true);
    check_given(a, is_low || is_high ? found.type : stored_type(a.type), found.type, found.shape, reader.path());
    auto bytes = bytes_of(a.type);
    for (const auto n : a.global) bytes *= n;
    check_storage(reader, dataset, a.name, bytes);
    const bool is_here = is_low && found.begin >= 0 && file_of(dataset) == reader.path();
    if (is_here && (found.begin > size || bytes > size - found.begin))
      throw error('`' + reader.path() + "` is cut off: `" + a.name + "` ends after its " + std::to_string(size) + " bytes");
    begins.push_back(is_here ? found.begin : -1);
  }
  return begins;
}

/// Fills the shard of a device with the library: from datasets in chunks, compressed, in other files, or with high
/// bytes first.
inline void read_by_hdf5(const posix_file& source, bool may_open_other_files, const stored_array& a, std::int64_t device,
                         std::byte* shard) {
  const auto box = a.box_of(device);
  if (box.elems() == 0) return;
  const hdf5_reader reader(source, may_open_other_files);
  const auto failed = reader.failed(a.name);
  const auto dataset = reader.dataset(a.name);
  auto bytes = bytes_of(a.type);
  for (const auto n : a.global) bytes *= n;
  check_storage(reader, dataset, a.name, bytes);
  const std::vector<hsize_t> offset(box.offset.begin(), box.offset.end()), size(box.size.begin(), box.size.end()),
      local(a.local.begin(), a.local.end()), zeros(local.size(), 0);
  const auto rank = static_cast<int>(local.size());
  const hdf5_object there(H5Dget_space(dataset.id()), H5Sclose, failed);
  const hdf5_object here(rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(rank, local.data(), nullptr), H5Sclose, failed);
  if (rank > 0) {
    check_hdf5(H5Sselect_hyperslab(there.id(), H5S_SELECT_SET, offset.data(), nullptr, size.data(), nullptr), failed);
    check_hdf5(H5Sselect_hyperslab(here.id(), H5S_SELECT_SET, zeros.data(), nullptr, size.data(), nullptr), failed);
  }
  // An opaque type is read with the type in the file, because the library rejects another tag.
  const auto type = is_own(a.type) ? hdf5_object(H5Dget_type(dataset.id()), H5Tclose, failed) : hdf5_type(a.type);
  check_hdf5(H5Dread(dataset.id(), type.id(), here.id(), there.id(), H5P_DEFAULT, shard), failed);
  check_sources(reader, dataset, a.name);
}

}  // namespace gspmd::detail
