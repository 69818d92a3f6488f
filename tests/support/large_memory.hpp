// SPDX-License-Identifier: Apache-2.0
// Tensors with more elements than an int can count, in less memory than they have bytes.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace large {

/// Not a divisor of any power of two, so an index that wrapped around would read a different number.
constexpr std::int64_t period = std::int64_t{61} << 20;
/// More elements than an int can count.
constexpr std::int64_t elems = (std::int64_t{1} << 31) + 3 * 4096;

/// Returns element i of the tensor with this seed.
inline std::int8_t element(int seed, std::int64_t i) {
  const auto n =
      static_cast<std::uint64_t>(i % period) * 0x9E3779B97F4A7C15U + static_cast<std::uint64_t>(seed) * 0x632BE59BD9B4E019U;
  return static_cast<std::int8_t>(n >> 40);
}
/// Returns the first period of the tensor.
inline std::vector<std::int8_t> pattern(int seed) {
  std::vector<std::int8_t> v(static_cast<std::size_t>(period));
  for (std::int64_t i = 0; i < period; ++i) v[static_cast<std::size_t>(i)] = element(seed, i);
  return v;
}

/// Read-only memory that maps the same period repeatedly.
class repeated {
 public:
  repeated(const std::vector<std::int8_t>& once, std::int64_t count)
      : bytes_(static_cast<std::size_t>((count + period - 1) / period * period)) {
    const int file = memfd_create("gspmd-test", 0);
    if (file < 0 || write(file, once.data(), once.size()) != static_cast<ssize_t>(once.size()))
      throw std::runtime_error("no memory to map");
    void* const all = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) throw std::runtime_error("no addresses to map to");
    begin_ = static_cast<std::int8_t*>(all);
    for (std::size_t at = 0; at < bytes_; at += once.size())
      if (mmap(begin_ + at, once.size(), PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
        throw std::runtime_error("a period cannot be mapped");
    close(file);
  }
  repeated(const repeated&) = delete;
  repeated& operator=(const repeated&) = delete;
  ~repeated() { munmap(begin_, bytes_); }
  [[nodiscard]] const std::int8_t* data() const { return begin_; }

 private:
  std::size_t bytes_;
  std::int8_t* begin_ = nullptr;
};

/// Returns memory that is not committed before it is written.
inline std::unique_ptr<std::int8_t[]> unwritten(std::int64_t count) {
  return std::unique_ptr<std::int8_t[]>(new std::int8_t[static_cast<std::size_t>(count)]);
}

/// Returns true if `count` elements repeat the period. The first one is element `first` of a period.
inline bool is_periodic(const std::int8_t* data, std::int64_t count, const std::vector<std::int8_t>& once,
                        std::int64_t first = 0) {
  for (std::int64_t i = 0; i < count;) {
    const auto from = (first + i) % period, n = std::min(count - i, period - from);
    if (std::memcmp(data + i, once.data() + from, static_cast<std::size_t>(n)) != 0) return false;
    i += n;
  }
  return true;
}

/// Returns the reason to skip a test that needs this number of bytes, or "".
inline std::string why_not(std::int64_t bytes) {
  std::int64_t available = 0;
  std::ifstream info("/proc/meminfo");
  for (std::string word; info >> word;)
    if (word == "MemAvailable:" && info >> available) break;
  available *= 1024;
  for (const char* name : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/memory"}) {  // the limit of a container, in
                                                                                        // either version of cgroups
    std::int64_t limit = 0, used = 0;
    const std::string prefix = name;
    const bool is_first = prefix.ends_with("memory/memory");
    std::ifstream most(prefix + (is_first ? ".limit_in_bytes" : ".max")),
        now(prefix + (is_first ? ".usage_in_bytes" : ".current"));
    if (most >> limit && now >> used) available = std::min(available, limit - used);
  }
  constexpr std::int64_t left = std::int64_t{2} << 30;  // reserved for other processes
  if (available >= bytes + left) return "";
  return "skipped: it needs " + std::to_string(bytes >> 20) + " MiB, and " + std::to_string(available >> 20) +
         " MiB are available";
}

}  // namespace large
