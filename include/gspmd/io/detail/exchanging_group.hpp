// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "gspmd/detail/transport/communicator.hpp"
#include "gspmd/io/detail/device_group.hpp"

namespace gspmd::detail {

/// Devices that also exchange bytes, if their communicator can. Savers use it; code that only agrees uses device_group.
class exchanging_group : public device_group {
 public:
  template <communicator Comm>
  exchanging_group(Comm& comm, std::string subject) : device_group(comm, std::move(subject)), comm_(&comm) {
    if constexpr (requires(const byte* const* in, byte* const* out, const std::int64_t* const* n) {
                    comm.exchange(in, n, out, n);
                  })
      exchange_ = [](void* to, const byte* const* in, const std::int64_t* const* sent, byte* const* out,
                     const std::int64_t* const* received) {
        static_cast<Comm*>(to)->template exchange<byte>(in, sent, out, received);
      };
  }

  using byte = std::uint8_t;
  [[nodiscard]] bool can_exchange() const { return exchange_ != nullptr; }
  /// Sends a block of its own size from each device to each device, like the communicator's exchange. Collective.
  void exchange(const byte* const* in, const std::int64_t* const* sent, byte* const* out,
                const std::int64_t* const* received) const {
    exchange_(comm_, in, sent, out, received);
  }

 private:
  void* comm_;
  void (*exchange_)(void*, const byte* const*, const std::int64_t* const*, byte* const*, const std::int64_t* const*) = nullptr;
};

}  // namespace gspmd::detail
