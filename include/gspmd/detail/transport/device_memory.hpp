// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "gspmd/detail/ir/fused_loop.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/support/no_memory.hpp"

namespace gspmd::detail {

/// The memory of a device while a program runs on this device.
struct device_memory {
  const void* const* inputs = nullptr;  // shards of the inputs, in the caller's memory
  void* const* outputs = nullptr;       // shards of the outputs, in the caller's memory
  std::byte* arena = nullptr;
  coordinates at;                     // the device's coordinates on the mesh
  const given_rows* given = nullptr;  // null: no input or output has user-provided strides
  int part = 0, parts = 1;            // of a step that several threads of the device share: run/parts/

  [[nodiscard]] const void* read(const memory_place& p) const {
    if (p.where == memory_place::kind::input) return static_cast<const std::byte*>(inputs[p.at]) + rows_before(p);
    return write(p);
  }
  [[nodiscard]] void* write(const memory_place& p) const {
    if (p.takes_turns()) {
      std::int64_t trips = 0;
      std::memcpy(&trips, arena + p.trips_at, sizeof trips);
      if (trips % 2 != 0) return at_place(p.other, p.other_at) + rows_before(p);
    }
    return at_place(p.where, p.at) + rows_before(p);
  }

 private:
  [[nodiscard]] std::byte* at_place(memory_place::kind where, std::int64_t number) const {
    return where == memory_place::kind::output ? static_cast<std::byte*>(outputs[number]) : arena + number;
  }
  [[nodiscard]] std::int64_t rows_before(const memory_place& p) const {
    if (p.row_bytes == 0) return 0;
    std::int64_t row = 0;
    std::memcpy(&row, arena + p.row_at, sizeof row);
    return row * p.row_bytes;
  }
};

/// Zeroed memory that is aligned to a cache line; error messages name `what`. It is zeroed because kernels read
/// padding, which never affects results: see padding.hpp.
class aligned_bytes {
 public:
  aligned_bytes() = default;
  explicit aligned_bytes(std::int64_t bytes, const char* what = "a device") {
    constexpr std::size_t line = 64;
    const auto size = (static_cast<std::size_t>(bytes) + line) / line * line;
    bytes_.reset(static_cast<std::byte*>(std::aligned_alloc(line, size)));
    if (!bytes_) throw no_memory(bytes, what);
    std::memset(bytes_.get(), 0, size);
  }
  [[nodiscard]] std::byte* get() const { return bytes_.get(); }

 private:
  struct release {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte[], release> bytes_;
};

}  // namespace gspmd::detail
