// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/transport/device_memory.hpp"

/// A step made ready to run: the function of its kernel, and what that worked out once. Both paths make these:
///
///   run time     K::prepare(plan, step), or with the session's step_memory, which the session keeps; for all steps of a kernel and
///                an element type there is one function. It is a template, so that programs that do not plan at run time do not compile it.
///   compiled     K::freeze<Program, Step>(), or else the same, as a constant. Of an object without members its type says all: a
///                function of its own is compiled for it. Any other is kept, and steps whose objects have one type share a function.
namespace gspmd::detail {

/// The devices that one communicator holds; `from` and `to` have room for a pointer per device.
struct devices_here {
  const device_memory* memory;
  int count;
  const void** from;
  void** to;
  void* communicator;
  void (*go_on)(void* communicator);  // moves on what is under way; null: nothing ever is
};
/// Returns what moves on the collectives that a plan starts; null: it starts none, or its communicator does not ask for that.
template <class Comm>
constexpr auto go_on_of(const plan_view& p) -> void (*)(void*) {
  if constexpr (requires(Comm& comm) { comm.go_on(); })
    for (const auto& n : p.nodes)
      if (n.is_started) return [](void* communicator) { static_cast<Comm*>(communicator)->go_on(); };
  return nullptr;
}

/// Memory that the steps of a session, of which one runs at a time, share.
class step_memory {
 public:
  void need(std::int64_t bytes) {
    if (needed_ < bytes) needed_ = bytes;
  }
  std::byte* get() {
    if (held_ < needed_) {
      bytes_ = aligned_bytes(needed_, "what an operator computes with");
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
  joint_function joint = nullptr;  // on all of them; steps that control have neither
  const void* prepared = nullptr;
  alone_function rows = nullptr;  // rows_begin: all steps of a block; null: one after the other
};

template <class K>
inline constexpr bool runs_alone = K::work == step_work::computes;
template <class K>
inline constexpr bool runs_jointly = !runs_alone<K> && K::work != step_work::controls;

/// Kernels that handle bytes have one function for all types T.
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
