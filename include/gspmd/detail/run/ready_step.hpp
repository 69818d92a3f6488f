// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/transport/device_memory.hpp"

/// A step that is ready to run: the function of its kernel, and the object that the kernel prepared for it once. Both
/// paths make ready steps:
///
///   run time     K::prepare(plan, step), optionally with the session's step_memory. The session keeps the object. All
///                steps of a kernel and an element type share one function. It is a template, so programs that do not
///                plan at run time do not compile it.
///   compiled     K::freeze<Program, Step>() or, if K has none, K::prepare, as a constant. If the object has no
///                members, its type determines the function, which is compiled for it. Any other object is kept, and
///                steps whose objects have the same type share a function.
namespace gspmd::detail {

/// The devices that one communicator holds. `from` and `to` have memory for a pointer for each device.
struct devices_here {
  const device_memory* memory;
  int count;
  const void** from;
  void** to;
  void* communicator;
  void (*go_on)(void* communicator);  // lets started collectives progress; null: the plan starts none
};
/// Returns the function that lets the started collectives of a plan progress. Returns null if the plan starts none,
/// or if its communicator has no go_on.
template <class Comm>
constexpr auto go_on_of(const plan_view& p) -> void (*)(void*) {
  if constexpr (requires(Comm& comm) { comm.go_on(); })
    for (const auto& n : p.nodes)
      if (n.is_started) return [](void* communicator) { static_cast<Comm*>(communicator)->go_on(); };
  return nullptr;
}

/// Memory that the steps of a session share. One step runs at a time.
class step_memory {
 public:
  void need(std::int64_t bytes) {
    if (needed_ < bytes) needed_ = bytes;
  }
  std::byte* get() {
    if (held_ < needed_) {
      bytes_ = aligned_bytes(needed_, "the scratch data of an operator");
      held_ = needed_;
    }
    return bytes_.get();
  }

 private:
  aligned_bytes bytes_;
  std::int64_t needed_ = 0, held_ = 0;
};

struct ready_step {
  using alone_function = void (*)(const void* prepared, const plan_view& p, const plan_step& s, const device_memory& device);
  using joint_function = void (*)(const void* prepared, const plan_view& p, const plan_step& s, const devices_here& devices);
  alone_function alone = nullptr;  // on each device
  joint_function joint = nullptr;  // on all devices together; control steps have neither function
  const void* prepared = nullptr;
  alone_function rows = nullptr;  // rows_begin: runs all steps of a block; null: the steps run one after the other
};

template <class K>
inline constexpr bool runs_alone = K::work == step_work::computes;
template <class K>
inline constexpr bool runs_jointly = !runs_alone<K> && K::work != step_work::controls;

/// The element type of a function that is compiled for all types, and reads the type from the step. It is for
/// communicators that take types (takes_types).
struct type_of_step {};

/// Runs a kernel. Kernels that handle bytes have one function for all types T.
template <class K, class T, class Prepared, class... Rest>
[[gnu::always_inline]] inline void run_kernel(const Prepared& prepared, const plan_view& p, const plan_step& s, Rest&... rest) {
  if constexpr (K::handles == element_kinds::bytes) K::run(prepared, p, s, rest...);
  else K::template run<T>(prepared, p, s, rest...);
}
template <class K, class T, class Prepared>
void run_alone(const void* prepared, const plan_view& p, const plan_step& s, const device_memory& device) {
  if constexpr (std::is_empty_v<Prepared>) run_kernel<K, T>(Prepared{}, p, s, device);
  else run_kernel<K, T>(*static_cast<const Prepared*>(prepared), p, s, device);
}
template <class K, class T, class Prepared, class Comm>
void run_jointly(const void* prepared, const plan_view& p, const plan_step& s, const devices_here& devices) {
  auto& comm = *static_cast<Comm*>(devices.communicator);
  if constexpr (std::is_empty_v<Prepared>) run_kernel<K, T>(Prepared{}, p, s, comm, devices);
  else run_kernel<K, T>(*static_cast<const Prepared*>(prepared), p, s, comm, devices);
}

/// Calls `body(T{})` with the type for which the function of a step of kernel K is compiled.
template <class K, class Body>
void with_handled_type(dtype type, Body body) {
  if constexpr (K::handles == element_kinds::bytes) body(std::byte{});
  else with_element_type(type, body);
}

}  // namespace gspmd::detail
