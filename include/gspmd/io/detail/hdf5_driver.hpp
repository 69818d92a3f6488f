// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "gspmd/error.hpp"
#include "gspmd/io/detail/hdf5_library.hpp"
#include "gspmd/io/detail/posix_file.hpp"

/// A file driver for HDF5's library. For reading, it uses a file that is already open. So the file cannot be replaced
/// in between, and the library takes no lock. For writing, it keeps the bytes in memory. The library's own driver
/// crashes at the end of the program if the disk was full (1.10).
namespace gspmd::detail {

/// The bytes that the library writes, by page. In a file with room for arrays, these are all bytes except the elements.
class hdf5_pages {
 public:
  void write(std::int64_t at, const std::byte* from, std::int64_t size) {
    for_each_part(at, size, [&](std::int64_t page, std::int64_t in_page, std::int64_t n) {
      std::memcpy(pages_[page].data() + in_page, from, static_cast<std::size_t>(n));
      from += n;
    });
    size_ = std::max(size_, at + size);
  }
  void read(std::int64_t at, std::byte* to, std::int64_t size) const {
    for_each_part(at, size, [&](std::int64_t page, std::int64_t in_page, std::int64_t n) {
      const auto found = pages_.find(page);
      if (found == pages_.end()) std::memset(to, 0, static_cast<std::size_t>(n));
      else std::memcpy(to, found->second.data() + in_page, static_cast<std::size_t>(n));
      to += n;
    });
  }
  void grow_to(std::int64_t size) { size_ = std::max(size_, size); }
  [[nodiscard]] std::int64_t size() const { return size_; }

  /// Writes these bytes to a new file. Bytes that the library has not written are zero.
  void write_to(const posix_file& file) const {
    const std::byte zero{0};
    if (size_ > 0) file.write_at(size_ - 1, &zero, 1);
    for (const auto& [page, bytes] : pages_)
      file.write_at(page * page_bytes, bytes.data(), static_cast<std::size_t>(std::min(page_bytes, size_ - page * page_bytes)));
  }

 private:
  static constexpr std::int64_t page_bytes = 4096;
  template <class F>
  static void for_each_part(std::int64_t at, std::int64_t size, F f) {
    while (size > 0) {
      const auto in_page = at % page_bytes, n = std::min(size, page_bytes - in_page);
      f(at / page_bytes, in_page, n);
      at += n;
      size -= n;
    }
  }
  std::map<std::int64_t, std::array<std::byte, page_bytes>> pages_;
  std::int64_t size_ = 0;
};

/// The file that the library reads, or the pages that it writes.
struct hdf5_medium {
  const posix_file* file = nullptr;
  hdf5_pages* pages = nullptr;
  bool may_open_other_files = false;   // that the file names
  bool is_open = false;                // `file`: a second open means another file, whatever its name
  std::string refused;                 // the first other file that was not opened
  std::map<std::string, bool> others;  // by path: the other files that the library has tried to open; true if it could
};

/// The driver in a property list for access, during the lifetime of this object. Other files that the file names are
/// opened only if the medium allows it.
class hdf5_driver {
 public:
  explicit hdf5_driver(hdf5_medium& medium)
      : class_(made_class()),
        driver_(H5FDregister(&class_), H5FDunregister, "HDF5 takes no driver"),
        access_(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "HDF5 has no properties") {
    const hdf5_medium* const at = &medium;
    check_hdf5(H5Pset_driver(access_.id(), driver_.id(), static_cast<const void*>(&at)), "HDF5 takes no driver");
  }
  [[nodiscard]] hid_t access() const { return access_.id(); }

 private:
  struct open_file {
    H5FD_t common;  // first, because the library uses only this member
    hdf5_medium* medium;
    std::optional<posix_file> other;  // a file that the medium's file names
    std::int64_t end;                 // of the bytes that the library has allocated

    [[nodiscard]] const posix_file* source() const { return other ? &*other : medium->file; }
    [[nodiscard]] std::int64_t size() const { return source() != nullptr ? source()->size() : medium->pages->size(); }
  };
  static open_file& of(H5FD_t* file) { return *reinterpret_cast<open_file*>(file); }
  static const open_file& of(const H5FD_t* file) { return *reinterpret_cast<const open_file*>(file); }

  /// Calls `f`, and turns an exception into an entry of the library's error stack: C code cannot pass exceptions on.
  template <class F>
  static herr_t guarded(F f) {
    std::string text;
    try {
      f();
      return 0;
    } catch (const error& e) {
      text = e.text();
    } catch (const std::exception& e) {
      text = e.what();
    }
    H5Epush2(H5E_DEFAULT, __FILE__, "gspmd", __LINE__, H5E_ERR_CLS, H5E_IO, H5E_READERROR, "%s", text.c_str());
    return -1;
  }
  /// The library copies properties, also from an open file to the files that it links to.
  static void* properties_of(H5FD_t* file) { return new hdf5_medium*(of(file).medium); }
  static void* copy_properties(const void* from) { return new hdf5_medium*(*static_cast<hdf5_medium* const*>(from)); }
  static herr_t free_properties(void* properties) {
    delete static_cast<hdf5_medium**>(properties);
    return 0;
  }
  static H5FD_t* open(const char* name, unsigned flags, hid_t access, haddr_t) {
    auto* const medium = *static_cast<hdf5_medium* const*>(H5Pget_driver_info(access));
    open_file* opened = nullptr;
    guarded([&] {
      std::optional<posix_file> other;
      if (medium->file != nullptr && medium->is_open) other.emplace(opened_other(*medium, name));
      if (medium->file != nullptr && (flags & H5F_ACC_RDWR) != 0) throw error(std::string("`") + name + "` is only read");
      opened = new open_file{{}, medium, std::move(other), 0};
      medium->is_open = true;
    });
    return opened != nullptr ? &opened->common : nullptr;
  }
  static posix_file opened_other(hdf5_medium& medium, const std::string& name) {
    if (!medium.may_open_other_files) {
      if (medium.refused.empty()) medium.refused = name;
      throw error('`' + name + "` is another file");
    }
    auto& could_open = medium.others[name];
    auto file = posix_file::read(name);
    if (file.size() < 0) throw error('`' + name + "` is no file");
    could_open = true;
    return file;
  }
  static herr_t close(H5FD_t* file) {
    if (!of(file).other) of(file).medium->is_open = false;
    delete &of(file);
    return 0;
  }
  static herr_t query(const H5FD_t*, unsigned long* flags) {
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_DATA_SIEVE;
    return 0;
  }
  static haddr_t end(const H5FD_t* file, H5FD_mem_t) { return static_cast<haddr_t>(of(file).end); }
  static herr_t set_end(H5FD_t* file, H5FD_mem_t, haddr_t at) {
    of(file).end = static_cast<std::int64_t>(at);
    return 0;
  }
  static haddr_t size(const H5FD_t* file, H5FD_mem_t) { return static_cast<haddr_t>(of(file).size()); }
  /// The library expects zeros after the end of a file.
  static herr_t read(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t at, std::size_t size, void* to) {
    auto& f = of(file);
    return guarded([&] {
      const auto from = static_cast<std::int64_t>(at);
      auto* const bytes = static_cast<std::byte*>(to);
      if (f.source() == nullptr) return f.medium->pages->read(from, bytes, static_cast<std::int64_t>(size));
      const auto there = static_cast<std::size_t>(std::clamp(f.size() - from, std::int64_t{0}, static_cast<std::int64_t>(size)));
      f.source()->read_at(from, bytes, there);
      std::memset(bytes + there, 0, size - there);
    });
  }
  static herr_t write(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t at, std::size_t size, const void* from) {
    auto& f = of(file);
    return guarded([&] {
      if (f.source() != nullptr) throw error('`' + f.source()->path() + "` is only read");
      f.medium->pages->write(static_cast<std::int64_t>(at), static_cast<const std::byte*>(from), static_cast<std::int64_t>(size));
    });
  }
  static herr_t truncate(H5FD_t* file, hid_t, hbool_t) {
    if (of(file).source() == nullptr) of(file).medium->pages->grow_to(of(file).end);
    return 0;
  }

  static H5FD_class_t made_class() {
    H5FD_class_t c{};
#ifdef H5FD_CLASS_VERSION
    c.version = H5FD_CLASS_VERSION;
    c.value = 511;  // from the range that HDF5 leaves to all applications
#endif
    c.name = "gspmd";
    c.maxaddr = static_cast<haddr_t>(1) << 62;
    c.fc_degree = H5F_CLOSE_STRONG;
    c.fapl_size = sizeof(hdf5_medium*);
    c.fapl_get = properties_of;
    c.fapl_copy = copy_properties;
    c.fapl_free = free_properties;
    c.open = open;
    c.close = close;
    c.query = query;
    c.get_eoa = end;
    c.set_eoa = set_end;
    c.get_eof = size;
    c.read = read;
    c.write = write;
    c.truncate = truncate;
    return c;
  }

  H5FD_class_t class_;
  hdf5_object driver_, access_;
};

}  // namespace gspmd::detail
