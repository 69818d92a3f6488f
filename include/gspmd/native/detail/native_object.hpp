// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "gspmd/detail/support/language.hpp"

/// The objects in the cache of native code. A file in the cache may be cut or damaged, or it may be a link or a FIFO.
/// Reading never blocks and never follows a link. A damaged object counts as missing.
namespace gspmd::detail {

/// A hash of 128 bits: two hashes FNV-1a with different initial values.
class native_key {
 public:
  void add(const std::string& text) {
    for (const char c : text + '\0')
      for (auto& h : of_) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  [[nodiscard]] std::string text() const {
    char digits[33];
    std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(of_[0]),
                  static_cast<unsigned long long>(of_[1]));
    return digits;
  }

 private:
  std::uint64_t of_[2] = {0xcbf29ce484222325U, 0x9ae16a3b2f90404fU};
};

/// A file that is removed when this object is destroyed.
struct native_temporary {
  std::string path;
  explicit native_temporary(std::string p) : path(std::move(p)) {}
  native_temporary(const native_temporary&) = delete;
  native_temporary& operator=(const native_temporary&) = delete;
  ~native_temporary() { unlink(path.c_str()); }
};

/// Reads a regular file of this user. Returns false if it cannot.
inline bool read_own_file(const std::string& path, std::string& bytes) {
  constexpr off_t most = off_t{256} << 20;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  struct stat found {};
  bool ok = file >= 0 && fstat(file, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid() && found.st_size <= most;
  if (ok) bytes.resize(static_cast<std::size_t>(found.st_size));
  for (std::size_t at = 0; ok && at < bytes.size();) {
    const ssize_t n = read(file, &bytes[at], bytes.size() - at);
    if (n > 0) at += static_cast<std::size_t>(n);
    else ok = n < 0 && errno == EINTR;
  }
  if (file >= 0) close(file);
  return ok;
}

inline bool write_all(int file, const std::string& bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t n = write(file, &bytes[at], bytes.size() - at);
    if (n > 0) at += static_cast<std::size_t>(n);
    else if (n == 0 || errno != EINTR) return false;
  }
  return true;
}

/// Returns the last line of a stored object: its length, and the hash of its key and its bytes. Loaders of ELF files
/// ignore this line.
inline std::string object_seal(const std::string& key, const std::string& object) {
  native_key hash;
  hash.add(key);
  hash.add(object);
  char text[80];
  std::snprintf(text, sizeof text, "\ngspmd-native %016llx %s\n", static_cast<unsigned long long>(object.size()),
                hash.text().c_str());
  return text;
}

/// Reads the object that was stored for this key. Returns false if it is missing or damaged.
inline bool read_object(const std::string& path, const std::string& key, std::string& object) {
  const auto seal_size = object_seal(key, {}).size();
  if (!read_own_file(path, object) || object.size() < seal_size) return false;
  const auto seal = object.substr(object.size() - seal_size);
  object.resize(object.size() - seal_size);
  return seal == object_seal(key, object);
}

/// Stores an object so that other processes find the whole object or nothing, also after a power failure. Returns 0
/// or an errno.
inline int store_object(const std::string& directory, const std::string& key, const std::string& object) {
  auto path = directory + '/' + key + ".XXXXXX.so";
  const int file = mkstemps(path.data(), 3);
  if (file < 0) return errno;
  const native_temporary removed(path);
  const bool is_written = write_all(file, object) && write_all(file, object_seal(key, object)) && fsync(file) == 0;
  int failure = is_written ? 0 : errno;
  close(file);
  if (failure == 0 && rename(path.c_str(), (directory + '/' + key + ".so").c_str()) != 0) failure = errno;
  if (const int folder = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); failure == 0 && folder >= 0) {
    fsync(folder);
    close(folder);
  }
  return failure;
}

}  // namespace gspmd::detail
