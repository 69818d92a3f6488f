// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstddef>
#include <string>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/// Counts the system calls that change files. One call can kill the process, stop it, or fail because the disk is full.
/// It replaces these system calls, so include it in one translation unit of a program.
namespace faults {

enum class fault { none, killed, stopped, full };
fault kind = fault::none;
int count = 0, at = 0;
bool has_no_locks = false;

/// Returns true if this call must fail. A writing call writes half of its bytes first, except if the fault is
/// `stopped`.
template <class Half>
bool is_due(Half half) {
  if (kind == fault::none || __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST) != at) return false;
  if (kind != fault::stopped) half();
  if (kind == fault::killed) kill(getpid(), SIGKILL);
  if (kind == fault::stopped) raise(SIGSTOP);
  errno = ENOSPC;
  return kind == fault::full;
}
bool is_due() {
  return is_due([] {});
}
/// Calls `f` with a fault at its call number `n`, counted from 1. Returns true if `f` made at least n calls.
template <class F>
bool with(fault what, int n, F f) {
  count = 0;
  at = n;
  kind = what;
  f();
  kind = fault::none;
  return count >= n;
}

/// Ends the program by SIGALRM if the object lives too long. So a test that waits for a pipe fails instead of hanging.
struct time_limit {
  explicit time_limit(unsigned seconds) { alarm(seconds); }
  ~time_limit() { alarm(0); }
  time_limit(const time_limit&) = delete;
  time_limit& operator=(const time_limit&) = delete;
};

/// Creates something at a path that is not a file: a pipe, a link to `target`, or a directory.
enum class obstacle { pipe, link, directory };
void put(obstacle what, const std::string& path, const std::string& target) {
  const int done = what == obstacle::pipe   ? mkfifo(path.c_str(), 0666)
                   : what == obstacle::link ? symlink(target.c_str(), path.c_str())
                                            : mkdir(path.c_str(), 0777);
  REQUIRE(done == 0);
}

template <class F>
pid_t begin_process(F f) {
  const auto child = fork();
  REQUIRE(child >= 0);
  if (child != 0) return child;
  f();
  _exit(0);
}

}  // namespace faults

extern "C" {
ssize_t write(int file, const void* data, std::size_t size) {
  if (faults::is_due([&] { static_cast<void>(syscall(SYS_write, file, data, size / 2)); })) return -1;
  return syscall(SYS_write, file, data, size);
}
ssize_t pwrite(int file, const void* data, std::size_t size, off_t offset) {
  if (faults::is_due([&] { static_cast<void>(syscall(SYS_pwrite64, file, data, size / 2, offset)); })) return -1;
  return syscall(SYS_pwrite64, file, data, size, offset);
}
int fsync(int file) { return faults::is_due() ? -1 : static_cast<int>(syscall(SYS_fsync, file)); }
int mkdir(const char* path, mode_t mode) noexcept {
  return faults::is_due() ? -1 : static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
int rename(const char* from, const char* to) noexcept {
  return faults::is_due() ? -1 : static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int unlink(const char* path) noexcept {
  return faults::is_due() ? -1 : static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}
int unlinkat(int folder, const char* path, int flags) noexcept {
  return faults::is_due() ? -1 : static_cast<int>(syscall(SYS_unlinkat, folder, path, flags));
}
int rmdir(const char* path) noexcept {
  return faults::is_due() ? -1 : static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR));
}
int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const auto mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : mode_t{0};
  va_end(rest);
  if ((flags & O_CREAT) != 0 && faults::is_due()) return -1;
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
int flock(int file, int operation) noexcept {
  if (!faults::has_no_locks) return static_cast<int>(syscall(SYS_flock, file, operation));
  errno = ENOSYS;
  return -1;
}
}
