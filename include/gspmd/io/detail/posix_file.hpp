// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gspmd/error.hpp"

/// Files with the functions of POSIX. C++ streams do not report whether bytes have reached the disk, nor the reason of
/// a failure.
namespace gspmd::detail {

/// Returns the error `<path> cannot be written: No space left on device`.
[[nodiscard]] inline error file_error(const std::string& path, const char* cannot, int reason = errno) {
  return error("`" + path + "` " + cannot + ": " + std::error_code(reason, std::generic_category()).message());
}

/// An open file, which the destructor closes. The functions throw gspmd::error with the path and the system's reason.
class posix_file {
 public:
  /// Creates a file. Throws if the name exists, also as a link.
  [[nodiscard]] static posix_file create(const std::string& path) {
    return {path, O_WRONLY | O_CREAT | O_EXCL, "cannot be made"};
  }
  /// Opens a user's file for reading. The name may be a link. A pipe does not block, and has no size().
  [[nodiscard]] static posix_file read(const std::string& path) {
    return {path, O_RDONLY | O_NONBLOCK | O_NOCTTY, "cannot be opened"};
  }

  // The functions below open names that gspmd chooses itself, for example F.partial. Other users with write access to
  // the folder can put a link or a pipe there. A link is not followed, and a pipe does not block. Both are errors.

  /// Opens a file that exists.
  [[nodiscard]] static posix_file write_to(const std::string& path) { return {path, own_name(path, O_WRONLY)}; }
  /// Creates a file. Returns nothing if the name exists.
  [[nodiscard]] static std::optional<posix_file> create_if_new(const std::string& path) {
    return open_unless(EEXIST, path, O_WRONLY | O_CREAT | O_EXCL, "cannot be made");
  }
  /// Opens a file. Returns nothing if it does not exist.
  [[nodiscard]] static std::optional<posix_file> write_to_if_there(const std::string& path) {
    const int handle = own_name(path, O_WRONLY, ENOENT);
    if (handle < 0) return {};
    return posix_file(path, handle);
  }
  /// Opens a file to lock, and creates it if it does not exist.
  [[nodiscard]] static posix_file lockable(const std::string& path) { return {path, own_name(path, O_RDWR | O_CREAT)}; }

  posix_file(posix_file&& other) noexcept : path_(std::move(other.path_)), handle_(std::exchange(other.handle_, -1)) {}
  posix_file& operator=(posix_file&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~posix_file() {
    if (handle_ >= 0) ::close(handle_);
  }

  [[nodiscard]] int handle() const { return handle_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  /// Returns the size in bytes, or -1 if this is not a plain file.
  [[nodiscard]] std::int64_t size() const {
    struct ::stat facts {};
    if (::fstat(handle_, &facts) != 0) throw file_error(path_, "has no size");
    return S_ISREG(facts.st_mode) ? static_cast<std::int64_t>(facts.st_size) : -1;
  }
  void write(const void* data, std::size_t size) {
    for (const auto* from = static_cast<const char*>(data); size > 0;) {
      const auto written = ::write(handle_, from, size);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw file_error(path_, "cannot be written");
      from += written;
      size -= static_cast<std::size_t>(written);
    }
  }
  void write_at(std::int64_t offset, const void* data, std::size_t size) const {
    for (const auto* from = static_cast<const char*>(data); size > 0;) {
      const auto written = ::pwrite(handle_, from, size, static_cast<::off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw file_error(path_, "cannot be written");
      from += written;
      offset += written;
      size -= static_cast<std::size_t>(written);
    }
  }
  /// Returns the inode number, which stays when another file gets the name.
  [[nodiscard]] std::int64_t number() const {
    struct ::stat facts {};
    if (::fstat(handle_, &facts) != 0) throw file_error(path_, "has no number");
    return static_cast<std::int64_t>(facts.st_ino);
  }
  void read_at(std::int64_t offset, void* data, std::size_t size) const {
    for (auto* to = static_cast<char*>(data); size > 0;) {
      const auto got = ::pread(handle_, to, size, static_cast<::off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw file_error(path_, "cannot be read");
      if (got == 0) throw error("`" + path_ + "` is cut off at byte " + std::to_string(offset));
      to += got;
      offset += got;
      size -= static_cast<std::size_t>(got);
    }
  }
  /// Waits until the bytes are on the disk, and closes the file: some file systems report a full disk only then.
  void finish() {
    if (::fsync(handle_) != 0) throw file_error(path_, "cannot be written to the disk");
    if (::close(std::exchange(handle_, -1)) != 0) throw file_error(path_, "cannot be written");
  }

 private:
  static std::optional<posix_file> open_unless(int reason, const std::string& path, int flags, const char* cannot) {
    const int handle = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
    if (handle >= 0) return posix_file(path, handle);
    if (errno == reason) return {};
    throw file_error(path, cannot);
  }
  /// Returns a handle of a plain file, or -1 if opening fails with the error `allowed`.
  static int own_name(const std::string& path, int flags, int allowed = 0) {
    const int handle = ::open(path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    const int reason = errno;
    if (handle < 0 && reason == allowed) return -1;
    struct ::stat facts {};
    if (handle >= 0 && ::fstat(handle, &facts) == 0 && S_ISREG(facts.st_mode)) return handle;
    if (handle >= 0) ::close(handle);
    if (::lstat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode))
      throw error('`' + path +
                  (S_ISLNK(facts.st_mode) ? "` is a link, which is not followed; remove it" : "` is no file; remove it"));
    throw file_error(path, "cannot be opened", reason);
  }
  posix_file(std::string path, int handle) : path_(std::move(path)), handle_(handle) {}
  posix_file(const std::string& path, int flags, const char* cannot)
      : path_(path), handle_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (handle_ < 0) throw file_error(path_, cannot);
  }

  std::string path_;
  int handle_ = -1;
};

/// Locks a file. The system releases the lock when the file is closed or the process dies. Returns false if the file
/// system has no locks. Throws gspmd::error: `is_locked` if another process has the lock, or the reason of a failure.
inline bool lock_file(const posix_file& file, const std::string& is_locked) {
  if (::flock(file.handle(), LOCK_EX | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK) throw error(is_locked);
  if (errno == ENOSYS || errno == ENOTSUP || errno == ENOLCK || errno == EINVAL) return false;
  throw file_error(file.path(), "cannot be locked");
}

/// Waits until the names in a directory are on the disk, for files that were created, renamed or removed.
inline void sync_directory(const std::string& path) {
  const auto directory = posix_file::read(path);
  // A file system that does this itself may reject the call.
  if (::fsync(directory.handle()) != 0 && errno != EINVAL && errno != EROFS)
    throw file_error(path, "cannot be written to the disk");
}

}  // namespace gspmd::detail
