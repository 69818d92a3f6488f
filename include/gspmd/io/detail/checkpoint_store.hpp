// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gspmd/error.hpp"
#include "gspmd/io/detail/posix_file.hpp"

/// A directory of checkpoints:
///
///     state/lock                        locked by a saver until it ends, in any way; the file stays
///     state/step-000000000120/          a checkpoint: manifest.json and the parts. It gets this name when all files
///                                       are on the disk
///     state/step-000000000130.partial/  a checkpoint that is being saved or removed, or whose saver was killed; the
///                                       next saver removes it
namespace gspmd::detail {

inline std::string step_directory(std::int64_t step) {
  auto digits = std::to_string(step);
  if (digits.size() < 12) digits.insert(0, 12 - digits.size(), '0');
  return "step-" + digits;
}
inline constexpr std::string_view partial_suffix = ".partial";
inline constexpr std::string_view manifest_name = "manifest.json";

/// Returns the step in the name of a directory, if step_directory writes this name.
inline std::optional<std::int64_t> step_named(std::string_view name) {
  if (name.substr(0, 5) != "step-" || name.size() < 17 || name.size() > 23) return {};
  std::int64_t step = 0;
  for (const char c : name.substr(5)) {
    if (c < '0' || c > '9') return {};
    step = 10 * step + (c - '0');
  }
  return step_directory(step) == name ? std::optional(step) : std::nullopt;
}

/// Returns the names in a directory, or an empty list if the directory does not exist.
inline std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code failed;
  for (std::filesystem::directory_iterator it(directory, failed), end; !failed && it != end; it.increment(failed))
    names.push_back(it->path().filename().string());
  if (failed && failed != std::errc::no_such_file_or_directory) throw file_error(directory, "cannot be read", failed.value());
  return names;
}

/// Returns the steps of the checkpoints in a directory, ascending.
inline std::vector<std::int64_t> steps_in(const std::string& directory) {
  std::vector<std::int64_t> steps;
  for (const auto& name : names_in(directory))
    if (const auto step = step_named(name)) steps.push_back(*step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

/// A save, on the process that makes and names the directory. No other save to the directory begins during its
/// lifetime. If it is destroyed before commit(), it removes its files.
class checkpoint_in_progress {
 public:
  checkpoint_in_progress(const std::string& directory, std::int64_t step)
      : directory_(directory),
        step_(step),
        name_(directory + '/' + step_directory(step)),
        partial_(name_ + std::string(partial_suffix)) {
    make_directories();
    const bool is_locked = lock();
    if (is_there(name_)) throw error("step " + std::to_string(step) + " is in `" + directory + "` already");
    for (const auto& name : names_in(directory))
      if (name.ends_with(partial_suffix) && step_named(name.substr(0, name.size() - partial_suffix.size()))) {
        if (!is_locked)
          throw error(
              "`" + directory + '/' + name +
              "` is there, and no locks on this file system: another save is under way, or one was killed; if so, remove it");
        remove_directory(directory + '/' + name);
      }
    if (::mkdir(partial_.c_str(), 0777) != 0) throw file_error(partial_, "cannot be made");
    is_made_ = true;
  }
  checkpoint_in_progress(const checkpoint_in_progress&) = delete;
  checkpoint_in_progress& operator=(const checkpoint_in_progress&) = delete;
  ~checkpoint_in_progress() {
    if (!is_made_) return;
    try {
      remove_directory(partial_);
    } catch (const error&) {  // the next saver removes the rest
    }
  }

  /// Writes the manifest, waits until the directory is on the disk, and gives the directory its name.
  void commit(const std::string& manifest_text) {
    auto file = posix_file::create(partial_ + '/' + std::string(manifest_name));
    file.write(manifest_text.data(), manifest_text.size());
    file.finish();
    sync_directory(partial_);
    // rename does not replace a directory that has files. So the first saver wins, also without locks.
    if (::rename(partial_.c_str(), name_.c_str()) != 0) throw file_error(partial_, "cannot be renamed");
    is_made_ = false;
    sync_directory(directory_);
  }
  /// Removes the oldest checkpoints before this one until `count` are left, this one included. Checkpoints of later
  /// steps belong to another run and stay. A checkpoint loses its name before its files are removed. If the name is a
  /// link, only the link is removed.
  void keep(std::int64_t count) const {
    auto steps = steps_in(directory_);
    steps.erase(std::lower_bound(steps.begin(), steps.end(), step_), steps.end());
    const auto kept = std::min(count - 1, static_cast<std::int64_t>(steps.size()));
    steps.resize(steps.size() - static_cast<std::size_t>(kept));
    for (const auto step : steps) {
      const auto old = directory_ + '/' + step_directory(step);
      const auto gone = old + std::string(partial_suffix);
      if (is_link(old)) {
        if (::unlink(old.c_str()) != 0) throw file_error(old, "is to be kept no more and cannot be removed");
        continue;
      }
      if (::rename(old.c_str(), gone.c_str()) != 0) throw file_error(old, "is to be kept no more and cannot be renamed");
      remove_directory(gone);
    }
  }

 private:
  static bool is_there(const std::string& path) {
    struct ::stat facts {};
    return ::lstat(path.c_str(), &facts) == 0;
  }
  static bool is_link(const std::string& path) {
    struct ::stat facts {};
    return ::lstat(path.c_str(), &facts) == 0 && S_ISLNK(facts.st_mode);
  }
  void make_directories() const {
    std::string path, parent = directory_[0] == '/' ? "/" : ".";
    for (const auto& part : std::filesystem::path(directory_)) {
      path = path.empty() ? part.string() : (std::filesystem::path(path) / part).string();
      if (part.empty() || path == "/") continue;
      if (::mkdir(path.c_str(), 0777) == 0) sync_directory(parent);
      else if (errno != EEXIST) throw file_error(path, "cannot be made");
      parent = path;
    }
  }
  /// Locks the directory. Returns false if the file system has no locks.
  bool lock() {
    lock_.emplace(posix_file::lockable(directory_ + "/lock"));
    return lock_file(*lock_, "another save to `" + directory_ + "` is under way; wait for it, or save to another directory");
  }
  /// Removes the files of a directory, then the directory. A link is not followed, because it may lead to the user's
  /// files.
  static void remove_directory(const std::string& path) {
    const int handle = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (handle < 0) {
      if (errno == ENOENT) return;
      if (errno == ENOTDIR || errno == ELOOP) throw error('`' + path + "` is no directory; remove it");
      throw file_error(path, "cannot be read");
    }
    const std::unique_ptr<::DIR, int (*)(::DIR*)> files(::fdopendir(handle), ::closedir);
    if (!files) {
      ::close(handle);
      throw file_error(path, "cannot be read", ENOMEM);
    }
    std::vector<std::string> names;
    while (const auto* entry = ::readdir(files.get()))
      if (const std::string_view name = entry->d_name; name != "." && name != "..") names.emplace_back(name);
    for (const auto& name : names)
      if (::unlinkat(handle, name.c_str(), 0) != 0 && errno != ENOENT) throw file_error(path + '/' + name, "cannot be removed");
    if (::rmdir(path.c_str()) != 0 && errno != ENOENT) throw file_error(path, "cannot be removed");
  }

  std::string directory_;
  std::int64_t step_;
  std::string name_, partial_;
  bool is_made_ = false;
  std::optional<posix_file> lock_;
};

}  // namespace gspmd::detail
