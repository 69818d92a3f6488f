// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "gspmd/detail/ir/network_rates.hpp"

namespace gspmd::detail {

/// The largest number of bytes that the planner counts. Larger numbers are cut to it.
inline constexpr std::int64_t most_counted_bytes = std::int64_t{1} << 56;

/// The cost of one way to run an operator. Costs are compared member by member, in this order.
struct cost {
  int refused = 0;         // reasons to refuse this way; taken only if no other way exists
  std::int64_t time = 0;   // picoseconds of communication and computation on the mesh's network
  std::int64_t bytes = 0;  // sent by one device
  int messages = 0;
  std::int64_t memory = 0;  // bytes of all shards of the operator

  [[nodiscard]] constexpr bool is_less_than(const cost& other) const {
    if (refused != other.refused) return refused < other.refused;
    if (time != other.time) return time < other.time;
    if (bytes != other.bytes) return bytes < other.bytes;
    if (messages != other.messages) return messages < other.messages;
    return memory < other.memory;
  }
  /// Returns the time above which other ways need not be examined once this cost is known.
  [[nodiscard]] constexpr std::int64_t limit() const { return refused != 0 ? std::numeric_limits<std::int64_t>::max() : time; }
};

}  // namespace gspmd::detail
