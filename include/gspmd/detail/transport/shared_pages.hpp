// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "gspmd/detail/support/language.hpp"

/// Pages of memory that processes of one machine share.
///
/// Not MPI_Win_allocate_shared: its pages come from /dev/shm, at the first write to each. Where that is small, as it is in
/// containers, a process dies by SIGBUS, or waits for one that has given up; and all must come together to free a window.
namespace gspmd::detail {

enum class page_source : std::uint8_t {
  anonymous,  // takes nothing from /dev/shm; the others open it in the owner's /proc/PID/fd
  file,       // in /dev/shm, for processes that may not look there: those in user namespaces of their own
};

struct unmap_pages {
  std::size_t bytes = 0;
  void operator()(std::byte* p) const { ::munmap(p, bytes); }
};
using mapped_pages = std::unique_ptr<std::byte, unmap_pages>;

/// Null where the system refuses; errno says why.
inline mapped_pages map_pages(int fd, std::size_t bytes) {
  void* const p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return p == MAP_FAILED ? mapped_pages{} : mapped_pages(static_cast<std::byte*>(p), unmap_pages{bytes});
}

/// Where other processes find the pages of one. In another container something else may lie at the same path, so they compare
/// the numbers of device and file.
struct page_offer {
  char path[40];
  std::uint64_t device, file;
  std::int64_t failure;  // an errno; 0: none
};

/// Zeroed pages of this process, which others can open as long as this object lives.
class offered_pages {
 public:
  offered_pages(page_source from, std::size_t bytes) { offer_.failure = make(from, bytes); }
  offered_pages(const offered_pages&) = delete;
  offered_pages& operator=(const offered_pages&) = delete;
  ~offered_pages() {
    if (has_name_) ::unlink(offer_.path);
    if (fd_ >= 0) ::close(fd_);
  }

  [[nodiscard]] const page_offer& offer() const { return offer_; }
  [[nodiscard]] mapped_pages take() { return std::move(mine_); }

 private:
  int make(page_source from, std::size_t bytes) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) return EFBIG;  // a signal would end the process
    if (from == page_source::anonymous) {
      fd_ = ::memfd_create("gspmd", MFD_CLOEXEC);
      std::snprintf(offer_.path, sizeof offer_.path, "/proc/%ld/fd/%d", static_cast<long>(::getpid()), fd_);
    } else {
      std::snprintf(offer_.path, sizeof offer_.path, "/dev/shm/gspmd-XXXXXX");
      fd_ = ::mkostemp(offer_.path, O_CLOEXEC);
      has_name_ = fd_ >= 0;
    }
    if (fd_ < 0) return errno;
    if (const int failure = reserve(bytes); failure != 0) return failure;
    struct stat here {};
    if (::fstat(fd_, &here) != 0) return errno;
    offer_.device = here.st_dev;
    offer_.file = here.st_ino;
    mine_ = map_pages(fd_, bytes);
    return mine_ ? 0 : errno;
  }

  /// Takes all pages now: a page that is not there is an error here, and a signal at the first write. In pieces, because a
  /// signal, as of a profiler, undoes what a call has reserved.
  [[nodiscard]] int reserve(std::size_t bytes) const {
    if (const auto pages = ::sysconf(_SC_PHYS_PAGES), size = ::sysconf(_SC_PAGESIZE);
        pages > 0 && size > 0 && bytes / static_cast<std::size_t>(size) > static_cast<std::size_t>(pages))
      return ENOMEM;  // and not all memory taken before it is known
    constexpr std::size_t piece = std::size_t{4} << 20;
    for (std::size_t at = 0; at < bytes; at += piece) {
      int failure = EINTR;
      while (failure == EINTR)
        failure = ::posix_fallocate(fd_, static_cast<off_t>(at), static_cast<off_t>(std::min(piece, bytes - at)));
      if (failure != 0) return failure;
    }
    return 0;
  }

  int fd_ = -1;
  bool has_name_ = false;
  page_offer offer_{};
  mapped_pages mine_;
};

/// The pages that another process offers. Null where they cannot be had; errno says why.
inline mapped_pages open_pages(const page_offer& offer, std::size_t bytes) {
  struct stat found {};
  if (::stat(offer.path, &found) != 0) return {};
  if (found.st_dev != offer.device || found.st_ino != offer.file) {
    errno = ESTALE;
    return {};
  }
  const int fd = ::open(offer.path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return {};
  auto pages = map_pages(fd, bytes);
  const int failure = errno;
  ::close(fd);
  errno = failure;
  return pages;
}

}  // namespace gspmd::detail
