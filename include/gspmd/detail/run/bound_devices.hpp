// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/run/checked_memory.hpp"
#include "gspmd/detail/support/no_memory.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/transport/communicator.hpp"
#include "gspmd/detail/transport/device_memory.hpp"
#include "gspmd/detail/transport/exclusive_use.hpp"

namespace gspmd::detail {

template <class = once>
[[gnu::cold]] error no_memory_for(const plan_view& plan, int device, const no_memory& e);

/// Returns take(), which allocates memory of a device for a plan. Adds the peak of the plan to the error if memory is
/// missing.
template <class Take>
auto taken_for(const plan_view& plan, int device, Take take) {
  try {
    return take();
  } catch (const no_memory& e) {
    throw no_memory_for(plan, device, e);
  }
}

/// The devices that a communicator holds, with an arena for each device, for one plan. The arenas are made at the
/// first call, and again if the communicator changes. Other calls allocate nothing.
///
/// A communicator with memory that its peers can read in place (mpi, inside a node) provides the arena.
class bound_devices {
 public:
  bound_devices() = default;
  bound_devices(bound_devices&&) = default;
  bound_devices& operator=(bound_devices&&) = default;
  [[gnu::noinline]] ~bound_devices() {}

  /// Marks the devices as in use until the result is destroyed. Throws gspmd::error if they are in use already.
  [[nodiscard]] exclusive_use::held take() { return use_.take(); }

  /// Binds the devices to these shards, after checking their memory: `inputs[d * plan.inputs.size() + k]` is input k
  /// of device d.
  template <class Comm>
  [[gnu::noinline]] void bind(Comm& comm, const plan_view& plan, const void* const* inputs, void* const* outputs) {
    bind(comm, plan);
    memory_.check(plan, devices.size(), inputs, outputs);
    for (std::size_t d = 0; d < devices.size(); ++d) {
      devices[d].inputs = inputs + d * plan.inputs.size();
      devices[d].outputs = outputs + d * plan.outputs.size();
    }
  }

  template <class Comm>
  void bind(Comm& comm, const plan_view& plan) {
    if (device_count_ == 0) device_count_ = static_cast<int>(plan.mesh->device_count());
    require_devices(comm, device_count_);
    if (is_bound_to(comm)) return;
    const auto count = static_cast<std::size_t>(comm.local_count());
    arenas_.clear();
    shared_arenas_.clear();
    devices.clear();
    held_.clear();
    from.resize(count);
    to.resize(count);
    for (int d = 0; d < comm.local_count(); ++d) {
      held_.push_back(comm.device(d));
      auto bytes = plan.arena_bytes;
      if constexpr (requires { comm.arena_bytes(plan); }) bytes = comm.arena_bytes(plan);
      const auto arena = taken_for(plan, held_.back(), [&] { return arena_from(comm, bytes); });
      devices.push_back({nullptr, nullptr, arena, plan.mesh->coordinates_of(held_.back())});
    }
    serial_ = serial_of(comm);
  }

  std::vector<device_memory> devices;
  std::vector<const void*> from;  // memory for a pointer for each device
  std::vector<void*> to;

 private:
  template <class Comm>
  static std::uint64_t serial_of(const Comm& comm) {
    if constexpr (requires { comm.serial(); }) return comm.serial();
    else return 0;
  }
  /// Returns true if the devices are bound to this communicator. Each call may use another communicator, with more or
  /// fewer devices.
  template <class Comm>
  bool is_bound_to(const Comm& comm) const {
    const int count = comm.local_count();
    if (count == 0 || static_cast<int>(devices.size()) != count || serial_ != serial_of(comm)) return false;
    for (int d = 0; d < count; ++d)
      if (held_[static_cast<std::size_t>(d)] != comm.device(d)) return false;
    return true;
  }
  template <class Comm>
  std::byte* arena_from(Comm& comm, std::int64_t bytes) {
    if constexpr (requires { comm.allocate(std::size_t{}); }) {
      shared_arenas_.push_back(comm.allocate(static_cast<std::size_t>(bytes) + 64));
      return shared_arenas_.back().get();
    } else {
      arenas_.emplace_back(bytes, "the arena of a device");
      return arenas_.back().get();
    }
  }

  std::vector<aligned_bytes> arenas_;
  std::vector<std::shared_ptr<std::byte>> shared_arenas_;
  std::vector<int> held_;  // the ids of the devices
  int device_count_ = 0;   // of the mesh
  std::uint64_t serial_ = 0;
  checked_memory memory_;
  exclusive_use use_;
};

}  // namespace gspmd::detail

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/run/bound_devices.ipp"
#endif
