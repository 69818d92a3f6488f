// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/error.hpp"
#include "gspmd/io/detail/hdf5_driver.hpp"
#include "gspmd/io/detail/hdf5_library.hpp"
#include "gspmd/io/detail/hdf5_types.hpp"
#include "gspmd/io/detail/posix_file.hpp"

/// Reading of HDF5 files: groups and datasets.
namespace gspmd::detail {

/// A dataset of a file.
struct hdf5_dataset {
  std::string name;                 // with its groups: `fields/u`
  std::string type;                 // `f64`
  std::vector<std::int64_t> shape;  // {0} if it holds nothing
  std::int64_t begin = -1;  // the byte where its elements begin, row-major without gaps; -1 if only the library finds them
};
struct hdf5_header {
  std::map<std::string, std::string> attributes;  // of the file, only strings; empty unless requested
  std::vector<hdf5_dataset> datasets;             // in the order of their names
};

/// An object's place in its file: hard links with different names can lead to one object.
#if H5_VERSION_GE(1, 12, 0)
using hdf5_address = std::array<unsigned char, sizeof(H5O_token_t)>;
inline hdf5_address hdf5_address_of(hid_t object) {
  H5O_info2_t facts{};
  hdf5_address address{};
  if (H5Oget_info3(object, &facts, H5O_INFO_BASIC) >= 0) std::memcpy(address.data(), &facts.token, sizeof facts.token);
  return address;
}
#else
using hdf5_address = haddr_t;
inline hdf5_address hdf5_address_of(hid_t object) {
  H5O_info_t facts{};
#if H5_VERSION_GE(1, 10, 3)
  H5Oget_info2(object, &facts, H5O_INFO_BASIC);
#else
  H5Oget_info(object, &facts);
#endif
  return facts.addr;
}
#endif

/// An open file. No other thread uses the library during its lifetime.
class hdf5_reader {
 public:
  explicit hdf5_reader(const posix_file& source, bool may_open_other_files = false)
      : path_(source.path()),
        medium_{&source, nullptr, may_open_other_files, false, {}, {}},
        driver_(medium_),
        file_(opened(source, driver_.access())) {}

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] hid_t file() const { return file_.id(); }
  [[nodiscard]] const hdf5_medium& medium() const { return medium_; }
  [[nodiscard]] std::string failed(const std::string& name) const { return '`' + name + "` in `" + path_ + "` cannot be read"; }
  /// Returns the object at a path that begins at a group or a file. Returns nothing if it does not exist, or is in a
  /// file that may not be opened.
  [[nodiscard]] static std::optional<hdf5_object> find(hid_t from, const std::string& name) {
    const auto object = H5Oopen(from, name.c_str(), H5P_DEFAULT);
    if (object < 0) return {};
    return hdf5_object(object, H5Oclose, "");
  }
  [[nodiscard]] static bool is_dataset(const std::optional<hdf5_object>& object) {
    return object && H5Iget_type(object->id()) == H5I_DATASET;
  }
  [[nodiscard]] hdf5_object dataset(const std::string& name) const {
    return {H5Dopen2(file(), name.c_str(), H5P_DEFAULT), H5Dclose, failed(name)};
  }
  /// Opens a file that the library has opened before as part of this one.
  [[nodiscard]] hdf5_object other_file(const std::string& path) const {
    return {H5Fopen(path.c_str(), H5F_ACC_RDONLY, driver_.access()), H5Fclose, '`' + path + "` cannot be read"};
  }
  /// Returns the names of all datasets, in order. Each group is entered once, and its children are opened from the
  /// group. A path from the root would open all parent groups again.
  [[nodiscard]] std::vector<std::string> names() const {
    struct child {
      std::shared_ptr<const hdf5_object> group;
      std::string name, prefix;  // prefix: the path of the group, with a `/` after it
    };
    std::vector<std::string> found;
    std::vector<child> groups;
    std::set<hdf5_address> entered;
    const auto enter = [&](hdf5_object&& object, const std::string& prefix) {
      const auto group = std::make_shared<const hdf5_object>(std::move(object));
      if (!entered.insert(hdf5_address_of(group->id())).second) return;
      const auto first = groups.size();
      for (const auto& [name, type] : links_of(group->id())) {
        if (type == H5L_TYPE_EXTERNAL && !medium_.may_open_other_files) continue;
        const auto object_there = find(group->id(), name);
        if (is_dataset(object_there)) found.push_back(prefix + name);
        else if (object_there && type == H5L_TYPE_HARD) groups.push_back({group, name, prefix});
      }
      std::reverse(groups.begin() + static_cast<std::ptrdiff_t>(first), groups.end());
    };
    enter({H5Gopen2(file(), "/", H5P_DEFAULT), H5Gclose, '`' + path_ + "` cannot be read"}, "");
    while (!groups.empty()) {
      const auto next = std::move(groups.back());
      groups.pop_back();
      auto object = find(next.group->id(), next.name);
      if (object && H5Iget_type(object->id()) == H5I_GROUP) enter(std::move(*object), next.prefix + next.name + '/');
    }
    std::sort(found.begin(), found.end());
    return found;
  }

 private:
  /// Returns the names of the links in a group, and their types.
  [[nodiscard]] std::vector<std::pair<std::string, H5L_type_t>> links_of(hid_t group) const {
    std::vector<std::pair<std::string, H5L_type_t>> links;
    check_hdf5(H5Literate(
                   group, H5_INDEX_NAME, H5_ITER_INC, nullptr,
                   [](hid_t, const char* name, const H5L_info_t* facts, void* to) -> herr_t {
                     static_cast<decltype(links)*>(to)->emplace_back(name, facts->type);
                     return 0;
                   },
                   &links),
               '`' + path_ + "` cannot be read");
    return links;
  }
  /// Throws unless the file has the eight bytes of the format at its beginning, or after 512, 1024, 2048 ... bytes of
  /// another program.
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

/// Returns the type, the shape and the first byte of an open dataset.
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

/// Returns the path of the file that contains a dataset. A link can lead to another file.
inline std::string file_of(const hdf5_object& dataset) {
  std::string name(static_cast<std::size_t>(std::max<ssize_t>(H5Fget_name(dataset.id(), nullptr, 0), 0)), '\0');
  H5Fget_name(dataset.id(), name.data(), name.size() + 1);
  return name;
}

}  // namespace gspmd::detail
