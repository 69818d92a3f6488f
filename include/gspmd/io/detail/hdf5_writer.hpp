// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gspmd/error.hpp"
#include "gspmd/io/detail/hdf5_driver.hpp"
#include "gspmd/io/detail/hdf5_library.hpp"
#include "gspmd/io/detail/hdf5_types.hpp"
#include "gspmd/io/detail/json_reader.hpp"
#include "gspmd/io/detail/posix_file.hpp"
#include "gspmd/io/detail/stored_array.hpp"

/// HDF5 files that one process creates, with room for the elements that all processes write.
namespace gspmd::detail {

/// Throws gspmd::error if a name has another meaning in HDF5.
inline void check_hdf5_names(const std::vector<stored_array>& arrays) {
  for (const auto& a : arrays) {
    const auto bad = [&](const char* why) { return error("the name `" + a.name + "` " + why); };
    if (!is_utf8(a.name)) throw bad("is no UTF-8");
    const auto path = '/' + a.name + '/';
    if (path.find("//") != std::string::npos || path.find("/./") != std::string::npos)
      throw bad("has a part that is empty or `.`; `/` separates a group from its members");
    for (const auto& other : arrays)
      if (other.name.starts_with(a.name + '/')) throw bad(("is that of a group too, with `" + other.name + "`").c_str());
  }
}
inline void check_hdf5_attributes(const std::map<std::string, std::string>& attributes) {
  for (const auto& [key, value] : attributes)
    if (key.empty() || !is_utf8(key) || !is_utf8(value) || (key + value).find('\0') != std::string::npos)
      throw error("attributes are to be UTF-8 without zeros, with a name, and `" + key + "` is not");
}

inline hdf5_object hdf5_properties(hid_t kind) { return {H5Pcreate(kind), H5Pclose, "HDF5 has no properties"}; }

/// Returns the type of a string of any length. h5py reads it as a Python string.
inline hdf5_object hdf5_string() {
  auto type = hdf5_copy_of(H5T_C_S1);
  check_hdf5(H5Tset_size(type.id(), H5T_VARIABLE), "a type cannot be made");
  check_hdf5(H5Tset_cset(type.id(), H5T_CSET_UTF8), "a type cannot be made");
  return type;
}

/// Writes an HDF5 file to an empty file, with a dataset and room for the elements of each array. Returns the first byte
/// of each array's elements. The elements are not written. The bytes do not depend on the time or on shardings.
inline std::vector<std::int64_t> make_hdf5(const posix_file& target, const std::vector<stored_array>& arrays,
                                           const std::map<std::string, std::string>& attributes) {
  constexpr hsize_t pages_from = 1 << 16, page = 4096;
  const hdf5_session library;
  const auto failed = '`' + target.path() + "` cannot be made";
  hdf5_pages pages;
  hdf5_medium medium;
  medium.pages = &pages;
  const hdf5_driver driver(medium);
  check_hdf5(H5Pset_alignment(driver.access(), pages_from, page), failed);
  hdf5_object file(H5Fcreate(target.path().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, driver.access()), H5Fclose, failed);
  {
    const auto text = hdf5_string(), name = hdf5_properties(H5P_ATTRIBUTE_CREATE);
    const hdf5_object one(H5Screate(H5S_SCALAR), H5Sclose, failed);
    check_hdf5(H5Pset_char_encoding(name.id(), H5T_CSET_UTF8), failed);
    for (const auto& [key, value] : attributes) {
      const hdf5_object attribute(H5Acreate2(file.id(), key.c_str(), text.id(), one.id(), name.id(), H5P_DEFAULT), H5Aclose,
                                  failed);
      const char* const value_text = value.c_str();
      check_hdf5(H5Awrite(attribute.id(), text.id(), static_cast<const void*>(&value_text)), failed);
    }
  }
  const auto link = hdf5_properties(H5P_LINK_CREATE), made = hdf5_properties(H5P_DATASET_CREATE);
  check_hdf5(H5Pset_char_encoding(link.id(), H5T_CSET_UTF8), failed);
  check_hdf5(H5Pset_create_intermediate_group(link.id(), 1), failed);
  check_hdf5(H5Pset_layout(made.id(), H5D_CONTIGUOUS), failed);
  check_hdf5(H5Pset_alloc_time(made.id(), H5D_ALLOC_TIME_EARLY), failed);
  check_hdf5(H5Pset_fill_time(made.id(), H5D_FILL_TIME_NEVER), failed);
  check_hdf5(H5Pset_obj_track_times(made.id(), false), failed);
  std::vector<std::int64_t> begins;
  for (const auto& a : arrays) {
    const std::vector<hsize_t> shape(a.global.begin(), a.global.end());
    const auto rank = static_cast<int>(shape.size());
    const hdf5_object space(rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(rank, shape.data(), nullptr), H5Sclose, failed);
    const hdf5_object dataset(
        H5Dcreate2(file.id(), a.name.c_str(), hdf5_type(a.type).id(), space.id(), link.id(), made.id(), H5P_DEFAULT), H5Dclose,
        failed);
    const auto begin = H5Dget_offset(dataset.id());
    const bool is_empty = H5Sget_simple_extent_npoints(space.id()) == 0;
    if (begin == HADDR_UNDEF && !is_empty) throw error(failed + ": HDF5 gives `" + a.name + "` no place");
    begins.push_back(is_empty ? 0 : static_cast<std::int64_t>(begin));
  }
  file.close(failed);
  pages.write_to(target);
  return begins;
}

}  // namespace gspmd::detail
