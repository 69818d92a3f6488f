// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/io/detail/hdf5_library.hpp"
#include "gspmd/io/detail/hdf5_reader.hpp"

namespace gspmd::detail {

/// Returns the attributes of a file that are strings.
inline std::map<std::string, std::string> hdf5_attributes(const hdf5_reader& reader) {
  const auto failed = "the attributes of `" + reader.path() + "` cannot be read";
  std::map<std::string, std::string> all;
  std::vector<std::string> names;
  check_hdf5(H5Aiterate2(
                 reader.file(), H5_INDEX_NAME, H5_ITER_INC, nullptr,
                 [](hid_t, const char* name, const H5A_info_t*, void* to) -> herr_t {
                   static_cast<std::vector<std::string>*>(to)->push_back(name);
                   return 0;
                 },
                 &names),
             failed);
  for (const auto& name : names) {
    const hdf5_object attribute(H5Aopen(reader.file(), name.c_str(), H5P_DEFAULT), H5Aclose, failed);
    const hdf5_object type(H5Aget_type(attribute.id()), H5Tclose, failed), space(H5Aget_space(attribute.id()), H5Sclose, failed);
    if (H5Tget_class(type.id()) != H5T_STRING || H5Sget_simple_extent_type(space.id()) != H5S_SCALAR) continue;
    std::string value;
    if (H5Tis_variable_str(type.id()) > 0) {
      char* text = nullptr;
      check_hdf5(H5Aread(attribute.id(), type.id(), static_cast<void*>(&text)), failed);
      if (text != nullptr) value = text;
      H5free_memory(text);
    } else {
      value.resize(H5Tget_size(type.id()));
      check_hdf5(H5Aread(attribute.id(), type.id(), value.data()), failed);
      // The text ends at the start of its padding.
      if (H5Tget_strpad(type.id()) == H5T_STR_SPACEPAD) value.resize(value.find_last_not_of(' ') + 1);
      else value.resize(std::min(value.find('\0'), value.size()));
    }
    all.emplace(name, std::move(value));
  }
  return all;
}

}  // namespace gspmd::detail
