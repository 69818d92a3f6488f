// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/detail/exec/device_memory.hpp"
#include "gspmd/detail/exec/gemm.hpp"
#include "gspmd/detail/exec/step_checks.hpp"

namespace gspmd::detail {

/// The devices that a communicator holds, with an arena each, for one plan. Made at the first call and again when the
/// communicator is another one; calls in between allocate nothing.
///
/// A communicator that has memory its peers can read in place (mpi, inside a node) gives the arena.
class bound_devices {
 public:
  bound_devices() = default;
  bound_devices(bound_devices&&) = default;
  bound_devices& operator=(bound_devices&&) = default;
  [[gnu::noinline]] ~bound_devices() {}

  /// For a call on these shards, after the checks of step_checks.hpp: `inputs[d * plan.inputs.size() + k]` is input k of device d.
  template <class Comm>
  [[gnu::noinline]] void bind(Comm& comm, const plan_view& plan, const void* const* inputs, void* const* outputs) {
    bind(comm, plan);
    check_memory(plan, devices.size(), inputs, outputs);
    for (std::size_t d = 0; d < devices.size(); ++d) {
      devices[d].inputs = inputs + d * plan.inputs.size();
      devices[d].outputs = outputs + d * plan.outputs.size();
    }
  }

  template <class Comm>
  void bind(Comm& comm, const plan_view& plan) {
    const auto count = static_cast<std::size_t>(comm.local_count());
    if (devices.size() == count && count > 0 && first_device_ == comm.device(0) && serial_ == serial_of(comm)) return;
    require_devices(comm, static_cast<int>(plan.mesh->device_count()));
    arenas_.clear();
    devices.clear();
    from.resize(count);
    to.resize(count);
    for (std::size_t d = 0; d < count; ++d)
      devices.push_back(
          {nullptr, nullptr, arena_from(comm, plan.arena_bytes), plan.mesh->coordinates_of(comm.device(static_cast<int>(d)))});
    first_device_ = comm.device(0);
    serial_ = serial_of(comm);
    single_threaded_blas();
  }

  std::vector<device_memory> devices;
  std::vector<const void*> from;  // room for a pointer per device
  std::vector<void*> to;

 private:
  template <class Comm>
  static std::uint64_t serial_of(const Comm& comm) {
    if constexpr (requires { comm.serial(); }) return comm.serial();
    else return 0;
  }
  template <class Comm>
  std::byte* arena_from(Comm& comm, std::int64_t bytes) {
    if constexpr (requires { comm.allocate(std::size_t{}); }) {
      auto* arena = comm.allocate(static_cast<std::size_t>(bytes) + 64);
      std::memset(arena, 0, static_cast<std::size_t>(bytes));
      return arena;
    } else {
      arenas_.emplace_back(bytes);
      return arenas_.back().get();
    }
  }

  std::vector<aligned_bytes> arenas_;
  int first_device_ = -1;
  std::uint64_t serial_ = 0;
};

}  // namespace gspmd::detail
