// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/detail/files/check_arrays.hpp"
#include "gspmd/detail/files/hdf5_driver.hpp"
#include "gspmd/detail/files/hdf5_library.hpp"
#include "gspmd/detail/files/hdf5_types.hpp"
#include "gspmd/detail/files/posix_file.hpp"
#include "gspmd/detail/files/stored_array.hpp"
#include "gspmd/error.hpp"

/// HDF5 files that are read: where datasets lie, and those that only the library finds.
namespace gspmd::detail {

/// A dataset: where its elements lie in the file, one after the other, the last dim fastest; or that only the library finds them.
struct hdf5_dataset {
  std::string name;                 // with its groups: `fields/u`
  std::string type;                 // `f64`
  std::vector<std::int64_t> shape;  // of what holds nothing: {0}
  std::int64_t begin = -1;
};
struct hdf5_header {
  std::map<std::string, std::string> attributes;  // of the file, those that are strings
  std::vector<hdf5_dataset> datasets;             // in the order of their names
};

/// An open file for the library, which is held while this object is there.
class hdf5_reader {
 public:
  explicit hdf5_reader(const posix_file& source)
      : path_(source.path()), medium_{&source, nullptr}, driver_(medium_), file_(opened(source, driver_.access())) {}

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] hid_t file() const { return file_.id(); }
  [[nodiscard]] bool has_dataset(const std::string& name) const {
    const auto object = H5Oopen(file(), name.c_str(), H5P_DEFAULT);
    if (object < 0) return false;
    const bool is_one = H5Iget_type(object) == H5I_DATASET;
    H5Oclose(object);
    return is_one;
  }
  [[nodiscard]] hdf5_object dataset(const std::string& name) const {
    return {H5Dopen2(file(), name.c_str(), H5P_DEFAULT), H5Dclose, failed(name)};
  }
  [[nodiscard]] std::string failed(const std::string& name) const { return '`' + name + "` in `" + path_ + "` cannot be read"; }
  /// The names of all datasets, in order.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> links, found;
    check_hdf5(H5Lvisit(
                   file(), H5_INDEX_NAME, H5_ITER_INC,
                   [](hid_t, const char* name, const H5L_info_t*, void* to) -> herr_t {
                     static_cast<std::vector<std::string>*>(to)->push_back(name);
                     return 0;
                   },
                   &links),
               '`' + path_ + "` cannot be read");
    for (auto& name : links)
      if (has_dataset(name)) found.push_back(std::move(name));
    return found;
  }

 private:
  /// A file begins with eight bytes, or has them behind 512, 1024, 2048 ... bytes of another program.
  static void check_signature(const posix_file& source) {
    constexpr char signature[] = "\x89HDF\r\n\x1a\n";
    const auto size = source.size();
    for (std::int64_t at = 0; at + 8 <= size; at = at == 0 ? 512 : 2 * at) {
      char found[8];
      source.read_at(at, found, sizeof found);
      if (std::memcmp(found, signature, sizeof found) == 0) return;
    }
    throw error('`' + source.path() + "` is no HDF5 file");
  }
  static hdf5_object opened(const posix_file& source, hid_t access) {
    check_signature(source);
    return {H5Fopen(source.path().c_str(), H5F_ACC_RDONLY, access), H5Fclose, '`' + source.path() + "` cannot be read"};
  }

  hdf5_session library_;
  std::string path_;
  hdf5_medium medium_;
  hdf5_driver driver_;
  hdf5_object file_;
};

/// Returns what a dataset is that the library has opened.
inline hdf5_dataset look_at_dataset(const hdf5_reader& reader, const hdf5_object& dataset, const std::string& name) {
  const auto failed = reader.failed(name);
  const hdf5_object type(H5Dget_type(dataset.id()), H5Tclose, failed), space(H5Dget_space(dataset.id()), H5Sclose, failed);
  const hdf5_object made(H5Dget_create_plist(dataset.id()), H5Pclose, failed);
  hdf5_dataset found{name, hdf5_type_text(type.id()), {}, -1};
  if (H5Sget_simple_extent_type(space.id()) == H5S_NULL) {
    found.shape = {0};
    return found;
  }
  std::vector<hsize_t> shape(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space.id())));
  if (!shape.empty()) check_hdf5(H5Sget_simple_extent_dims(space.id(), shape.data(), nullptr), failed);
  found.shape.assign(shape.begin(), shape.end());
  const bool lies_in_order = H5Pget_layout(made.id()) == H5D_CONTIGUOUS && H5Pget_external_count(made.id()) == 0;
  if (const auto begin = H5Dget_offset(dataset.id()); lies_in_order && begin != HADDR_UNDEF)
    found.begin = static_cast<std::int64_t>(begin);
  return found;
}

/// Whether a dataset lies in the file itself, and not in one that a link of it names.
inline bool is_in_file(const hdf5_reader& reader, const hdf5_object& dataset) {
  std::string name(reader.path().size() + 1, '\0');
  const auto length = H5Fget_name(dataset.id(), name.data(), name.size() + 1);
  name.resize(reader.path().size());
  return length == static_cast<ssize_t>(name.size()) && name == reader.path();
}

/// Where the arrays lie in a file: the begin of each, or -1 if only the library finds it. Throws gspmd::error: one is not there, or has another
/// type or shape.
inline std::vector<std::int64_t> find_in_hdf5(const posix_file& source, const std::vector<stored_array>& arrays) {
  const hdf5_reader reader(source);
  const auto size = source.size();
  std::vector<std::int64_t> begins;
  for (const auto& a : arrays) {
    if (!reader.has_dataset(a.name)) {
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
    // By a link it may lie in another file.
    const bool is_here = is_low && found.begin >= 0 && is_in_file(reader, dataset);
    if (is_here && (found.begin > size || bytes > size - found.begin))
      throw error('`' + reader.path() + "` is cut off: `" + a.name + "` ends behind its " + std::to_string(size) + " bytes");
    begins.push_back(is_here ? found.begin : -1);
  }
  return begins;
}

/// Fills the shard of a device from a dataset that only the library finds: in chunks, compressed, in other files, high bytes first.
inline void read_by_hdf5(const posix_file& source, const stored_array& a, std::int64_t device, std::byte* shard) {
  const auto box = a.box_of(device);
  if (box.elems() == 0) return;
  const hdf5_reader reader(source);
  const auto failed = reader.failed(a.name);
  const auto dataset = reader.dataset(a.name);
  const std::vector<hsize_t> offset(box.offset.begin(), box.offset.end()), size(box.size.begin(), box.size.end()),
      local(a.local.begin(), a.local.end()), zeros(local.size(), 0);
  const auto rank = static_cast<int>(local.size());
  const hdf5_object there(H5Dget_space(dataset.id()), H5Sclose, failed);
  const hdf5_object here(rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(rank, local.data(), nullptr), H5Sclose, failed);
  if (rank > 0) {
    check_hdf5(H5Sselect_hyperslab(there.id(), H5S_SELECT_SET, offset.data(), nullptr, size.data(), nullptr), failed);
    check_hdf5(H5Sselect_hyperslab(here.id(), H5S_SELECT_SET, zeros.data(), nullptr, size.data(), nullptr), failed);
  }
  // An opaque type is read as it is in the file: the library refuses another tag.
  const auto type = is_own(a.type) ? hdf5_object(H5Dget_type(dataset.id()), H5Tclose, failed) : hdf5_type(a.type);
  check_hdf5(H5Dread(dataset.id(), type.id(), here.id(), there.id(), H5P_DEFAULT, shard), failed);
}

/// The attributes of a file that are strings.
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
      // Whatever fills the bytes behind the text, by its convention, is none of it.
      if (H5Tget_strpad(type.id()) == H5T_STR_SPACEPAD) value.resize(value.find_last_not_of(' ') + 1);
      else value.resize(std::min(value.find('\0'), value.size()));
    }
    all.emplace(name, std::move(value));
  }
  return all;
}

}  // namespace gspmd::detail
