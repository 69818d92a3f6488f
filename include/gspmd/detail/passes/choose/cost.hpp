// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "gspmd/detail/ir/network_rates.hpp"

namespace gspmd::detail {

/// So many bytes can be added up.
inline constexpr std::int64_t most_counted_bytes = std::int64_t{1} << 56;

/// The cost of one way to run an operator, compared member by member.
struct cost {
  int refused = 0;         // the user does not allow so many things of it: only if nothing else is possible
  std::int64_t time = 0;   // picoseconds on the mesh's network, of communication and of computing
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
  /// The time beyond which other ways need not be looked at, once this cost is known.
  [[nodiscard]] constexpr std::int64_t limit() const { return refused != 0 ? std::numeric_limits<std::int64_t>::max() : time; }
};

}  // namespace gspmd::detail
