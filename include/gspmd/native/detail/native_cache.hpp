// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <utility>

#include "gspmd/native/detail/native_compiler.hpp"

/// The directory of the cache of native code, and its locks.
namespace gspmd::detail {

/// Makes the directory if it is missing, and returns its path without links. Throws native_refusal unless the
/// directory belongs to the user and no other user may read or write it. Also throws if a user other than root may
/// replace it or a directory above it.
inline std::string require_own_directory(std::string path) {
  while (path.size() > 1 && (path.back() == '/' || path.compare(path.size() - 2, 2, "/.") == 0))
    path.pop_back();  // with `link/` lstat would follow the link
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
    mkdir(path.substr(0, at).c_str(), 0700);
  mkdir(path.c_str(), 0700);
  const auto status_of = [&path](const std::string& of) {
    struct stat found {};
    if (lstat(of.c_str(), &found) != 0)
      throw native_refusal{"the directory `" + path + "` cannot be made: " + std::strerror(errno)};
    return found;
  };
  const auto require_own = [&](const std::string& directory) {
    const auto found = status_of(directory);
    if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid() || (found.st_mode & 077U) != 0)
      throw native_refusal{"`" + path + "` is not a directory of yours with mode 0700"};
  };
  require_own(path);
  const std::unique_ptr<char, void (*)(void*)> resolved(realpath(path.c_str(), nullptr), std::free);
  if (resolved == nullptr) throw native_refusal{"the directory `" + path + "` cannot be made: " + std::strerror(errno)};
  const std::string real = resolved.get();
  require_own(real);
  for (std::string above = real; above.size() > 1;) {
    const auto end = above.rfind('/');
    above.resize(end == 0 ? 1 : end);
    const auto found = status_of(above);
    if (found.st_uid != geteuid() && found.st_uid != 0 &&
        found.st_uid != status_of("/").st_uid)  // containers may show root as another user
      throw native_refusal{"`" + above + "` belongs to another user, who can replace `" + path +
                           "`: set GSPMD_CACHE or native_options::cache"};
    if ((found.st_mode & 022U) != 0 && (found.st_mode & S_ISVTX) == 0)
      throw native_refusal{"others may write in `" + above + "`, and so replace `" + path +
                           "`: take that right from them (chmod go-w), or set GSPMD_CACHE or native_options::cache"};
  }
  return real;
}

/// A file that one process at a time holds. If the file system has no locks, no process holds it and all go on.
class native_lock {
 public:
  /// Waits until the deadline, and then throws native_refusal.
  native_lock(const std::string& path, native_clock::time_point deadline)
      : file_(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600)) {
    while (!try_lock() && (errno == EWOULDBLOCK || errno == EINTR)) {
      if (native_clock::now() >= deadline) {
        if (file_ >= 0) close(file_);
        throw native_refusal{"another process still compiles the same loops after native_options::most_seconds, and holds `" +
                             path + '`'};
      }
      usleep(2000);
    }
  }
  /// Tries to take the lock. Does not wait and makes no file.
  explicit native_lock(const std::string& path) : file_(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) {
    if (!try_lock() && errno == ENOENT) is_held_ = true;  // no file: no process compiles
  }
  native_lock(const native_lock&) = delete;
  native_lock& operator=(const native_lock&) = delete;
  ~native_lock() {
    if (file_ >= 0) close(file_);
  }
  [[nodiscard]] bool is_held() const { return is_held_; }

 private:
  bool try_lock() {
    is_held_ = file_ >= 0 && flock(file_, LOCK_EX | LOCK_NB) == 0;
    return is_held_;
  }
  int file_;
  bool is_held_ = false;
};

/// Removes temporary files, KEY.XXXXXX.cpp and KEY.XXXXXX.so, that a killed process left at least an hour ago, if no
/// process holds the lock of their key. This process holds the lock of `own_key`.
inline void remove_old_temporaries(const std::string& directory, const std::string& own_key) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(directory.c_str()), closedir);
  for (const dirent* entry = nullptr; entries && (entry = readdir(entries.get())) != nullptr;) {
    const std::string name = entry->d_name, end = name.size() > 39 ? name.substr(39) : "";
    constexpr std::size_t key_size = 32;
    if ((end != ".cpp" && end != ".so") || name.find_first_not_of("0123456789abcdef") != key_size || name[key_size] != '.')
      continue;
    const auto path = directory + '/' + name;
    struct stat found {};
    if (lstat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode) || found.st_mtime > std::time(nullptr) - 3600) continue;
    const auto key = name.substr(0, key_size);
    if (key == own_key || native_lock(directory + '/' + key + ".lock").is_held()) unlink(path.c_str());
  }
}

}  // namespace gspmd::detail
