// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "gspmd/detail/support/language.hpp"

/// Pages of memory that the processes of a machine share. They have no name in a file system. If a process is killed,
/// the system frees the pages.
///
/// MPI_Win_allocate_shared is not used: its pages are in /dev/shm and each page is reserved when it is first written.
/// If /dev/shm is small, as in containers, a process dies by SIGBUS, or waits forever for a process that has given
/// up. Also, freeing a window is collective.
namespace gspmd::detail {

/// The transfer of the file descriptor of the pages (memfd_create) to other processes.
enum class page_source : std::uint8_t {
  opened,  // other processes open /proc/PID/fd/N of the owner
  sent,    // the owner sends the descriptor over a UNIX socket, since /proc/PID/fd of another user namespace may be closed
};

struct unmap_pages {
  std::size_t bytes = 0;
  void operator()(std::byte* p) const { ::munmap(p, bytes); }
};
using mapped_pages = std::unique_ptr<std::byte, unmap_pages>;

/// Maps the pages of a file. Returns null if the system refuses; errno has the reason.
inline mapped_pages map_pages(int fd, std::size_t bytes) {
  void* const p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return p == MAP_FAILED ? mapped_pages{} : mapped_pages(static_cast<std::byte*>(p), unmap_pages{bytes});
}

/// The data about the pages of a process that other processes need. In another container, a different file may have
/// the same path, so receivers compare the device and file numbers.
struct page_offer {
  char name[40];  // opened: the path of the pages; sent: the address of the owner's socket, in the abstract namespace
  std::uint64_t device, file;
  std::int64_t failure;  // an errno, or 0
};

/// Maps the pages of another process if `fd` is their file. Otherwise, or if the system refuses, returns null; errno
/// has the reason. Closes `fd`.
inline mapped_pages map_offered(int fd, const page_offer& offer, std::size_t bytes) {
  struct stat found {};
  mapped_pages pages;
  int failure = ESTALE;
  if (::fstat(fd, &found) != 0) failure = errno;
  else if (found.st_dev == offer.device && found.st_ino == offer.file && found.st_uid == ::geteuid() &&
           static_cast<std::uint64_t>(found.st_size) >= bytes) {  // mapping a smaller file would cause a SIGBUS
    pages = map_pages(fd, bytes);
    failure = errno;
  }
  ::close(fd);
  errno = failure;
  return pages;
}

/// Zeroed pages of this process. Other processes can get them as long as this object exists.
class offered_pages {
 public:
  offered_pages(page_source from, std::size_t bytes) { offer_.failure = make(from, bytes); }
  offered_pages(const offered_pages&) = delete;
  offered_pages& operator=(const offered_pages&) = delete;
  ~offered_pages() {
    for (const int fd : {fd_, socket_})
      if (fd >= 0) ::close(fd);
  }

  [[nodiscard]] const page_offer& offer() const { return offer_; }
  [[nodiscard]] mapped_pages take() { return std::move(mine_); }

  /// Sends the descriptor to the process with this offer. Does not wait. Returns 0 or an errno.
  [[nodiscard]] int send_to(const page_offer& other) const {
    auto to = address_of_socket(other);
    char text = 0;
    iovec one{&text, 1};
    descriptor_message control{};
    msghdr message{};
    message.msg_name = &to;
    message.msg_namelen = sizeof to;
    message.msg_iov = &one;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    auto* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd_);
    std::memcpy(CMSG_DATA(head), &fd_, sizeof fd_);
    return ::sendmsg(socket_, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
  }
  /// Returns the pages of the process with this offer, if their descriptor has arrived. Otherwise returns null; errno
  /// has the reason. Does not wait. Ignores each message with more than one descriptor, and closes the descriptors of
  /// such messages.
  [[nodiscard]] mapped_pages receive_from(const page_offer& other, std::size_t bytes) const {
    mapped_pages pages;
    for (int failure = ESTALE; !pages; failure = errno) {
      char text = 0;
      iovec one{&text, 1};
      descriptor_message control{};
      msghdr message{};
      message.msg_iov = &one;
      message.msg_iovlen = 1;
      message.msg_control = control.bytes;
      message.msg_controllen = sizeof control.bytes;
      if (::recvmsg(socket_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0) {
        errno = failure;
        break;
      }
      errno = failure;
      const auto* const head = CMSG_FIRSTHDR(&message);
      if (head == nullptr || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
      int fds[sizeof control.bytes / sizeof(int)] = {};  // CMSG_SPACE rounds up, so a second descriptor can fit
      const std::size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      std::memcpy(fds, CMSG_DATA(head), count * sizeof(int));
      if (count == 1 && (message.msg_flags & MSG_CTRUNC) == 0) {
        pages = map_offered(fds[0], other, bytes);
        continue;
      }
      for (std::size_t k = 0; k < count; ++k) ::close(fds[k]);
      errno = failure;
    }
    return pages;
  }

 private:
  union descriptor_message {
    char bytes[CMSG_SPACE(sizeof(int))];
    cmsghdr aligned;
  };
  static sockaddr_un address_of_socket(const page_offer& offer) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, offer.name, sizeof offer.name);  // begins with '\0': an abstract address, no file
    return address;
  }

  int make(page_source from, std::size_t bytes) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) return EFBIG;  // a signal would end the process
    fd_ = ::memfd_create("gspmd", MFD_CLOEXEC);
    if (fd_ < 0) return errno;
    if (from == page_source::opened)
      std::snprintf(offer_.name, sizeof offer_.name, "/proc/%ld/fd/%d", static_cast<long>(::getpid()), fd_);
    else if (const int failure = open_socket(); failure != 0) return failure;
    if (const int failure = reserve(bytes); failure != 0) return failure;
    struct stat here {};
    if (::fstat(fd_, &here) != 0) return errno;
    offer_.device = here.st_dev;
    offer_.file = here.st_ino;
    mine_ = map_pages(fd_, bytes);
    return mine_ ? 0 : errno;
  }

  /// Opens a socket with a random address, so that no other program has this address in the network namespace of a
  /// receiver.
  int open_socket() {
    std::uint64_t random[2];
    if (::getrandom(random, sizeof random, 0) != sizeof random) return EAGAIN;
    std::snprintf(offer_.name, sizeof offer_.name, "gspmd-%016llx%016llx", static_cast<unsigned long long>(random[0]),
                  static_cast<unsigned long long>(random[1]));
    socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const auto address = address_of_socket(offer_);
    return socket_ < 0 || ::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ? errno : 0;
  }

  /// Reserves all pages, so that a lack of memory is an error in this call and not a signal at the first write.
  /// Reserves in pieces, because a signal, for example a profiler's, undoes the reservation of the interrupted call.
  [[nodiscard]] int reserve(std::size_t bytes) const {
    if (const auto pages = ::sysconf(_SC_PHYS_PAGES), size = ::sysconf(_SC_PAGESIZE);
        pages > 0 && size > 0 && bytes / static_cast<std::size_t>(size) > static_cast<std::size_t>(pages))
      return ENOMEM;  // fails before the reservation takes all memory of the machine
    constexpr std::size_t piece = std::size_t{4} << 20;
    for (std::size_t at = 0; at < bytes; at += piece) {
      int failure = EINTR;
      while (failure == EINTR)
        failure = ::posix_fallocate(fd_, static_cast<off_t>(at), static_cast<off_t>(std::min(piece, bytes - at)));
      if (failure != 0) return failure;
    }
    return 0;
  }

  int fd_ = -1, socket_ = -1;
  page_offer offer_{};
  mapped_pages mine_;
};

/// Opens the pages that another process offers as page_source::opened. Returns null if it cannot; errno has the
/// reason.
inline mapped_pages open_pages(const page_offer& offer, std::size_t bytes) {
  struct stat found {};
  if (::stat(offer.name, &found) != 0) return {};
  if (found.st_dev != offer.device || found.st_ino != offer.file) {  // opening another file may have side effects
    errno = ESTALE;
    return {};
  }
  const int fd = ::open(offer.name, O_RDWR | O_CLOEXEC);
  return fd < 0 ? mapped_pages{} : map_offered(fd, offer, bytes);
}

}  // namespace gspmd::detail
