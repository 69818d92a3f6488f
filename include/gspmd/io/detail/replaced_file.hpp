// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

#include <sys/stat.h>
#include <unistd.h>

#include "gspmd/error.hpp"
#include "gspmd/io/detail/posix_file.hpp"

namespace gspmd::detail {

inline std::string partial_name(const std::string& path) { return path + ".partial"; }

/// A file that is written under the name `<path>.partial` and gets its own name in commit(). The process of device 0
/// holds this object. Until commit(), a reader of `path` finds the file that was there before. If the object is
/// destroyed before commit(), it removes the partial file.
///
/// The partial file is locked during the lifetime of the object. A partial file without a lock was left by a saver that
/// was killed. It is removed and not written to, because other processes of that saver may still write. A link or a
/// pipe of that name is an error.
class replaced_file {
 public:
  explicit replaced_file(const std::string& path) : path_(path), partial_(partial_name(path)) {
    struct ::stat facts {};
    if (::stat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode)) throw error('`' + path + "` is there, and is no file");
    const auto is_under_way = "another save to `" + path + "` is under way; wait for it, or save to another file";
    while (!file_) {
      if (auto made = posix_file::create_if_new(partial_)) {
        // Another saver may have found the file before it was locked, assumed that its saver was dead, and removed it.
        if (!lock_file(*made, is_under_way) || has_name(*made)) file_.emplace(std::move(*made));
      } else if (auto left = posix_file::write_to_if_there(partial_)) {
        if (!lock_file(*left, is_under_way))
          throw error(
              '`' + partial_ +
              "` is there, and no locks on this file system: another save is under way, or one was killed; if so, remove it");
        if (has_name(*left) && ::unlink(partial_.c_str()) != 0) throw file_error(partial_, "cannot be removed");
      }
    }
  }
  replaced_file(const replaced_file&) = delete;
  replaced_file& operator=(const replaced_file&) = delete;
  ~replaced_file() {
    if (file_) ::unlink(partial_.c_str());
  }

  [[nodiscard]] posix_file& file() { return *file_; }

  /// Waits until the bytes of this process are on the disk, and gives the file its name. The other processes must have
  /// waited for their bytes before.
  void commit() {
    if (::fsync(file_->handle()) != 0) throw file_error(partial_, "cannot be written to the disk");
    if (::rename(partial_.c_str(), path_.c_str()) != 0) throw file_error(partial_, "cannot be renamed");
    file_.reset();
    const auto parent = std::filesystem::path(path_).parent_path().string();
    sync_directory(parent.empty() ? "." : parent);
  }

 private:
  [[nodiscard]] bool has_name(const posix_file& file) const {
    struct ::stat named {
    }, held{};
    return ::lstat(partial_.c_str(), &named) == 0 && ::fstat(file.handle(), &held) == 0 && named.st_ino == held.st_ino &&
           named.st_dev == held.st_dev;
  }

  std::string path_, partial_;
  std::optional<posix_file> file_;
};

}  // namespace gspmd::detail
