// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gspmd/detail/run/checked_run.hpp"
#include "gspmd/detail/run/joint_step.hpp"
#include "gspmd/detail/run/local_step.hpp"
#include "gspmd/detail/run/run_time_kernel.hpp"
#include "gspmd/detail/run/runner.hpp"
#include "gspmd/detail/support/mp11.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/support/target.hpp"

namespace gspmd::detail {

template <class K>
auto prepare_by(const plan_view& p, const plan_step& s, step_memory& memory) {
  if constexpr (requires { K::prepare(p, s, memory); }) return K::prepare(p, s, memory);
  else return K::prepare(p, s);
}
/// The type of the object that a kernel prepares for a session.
template <class K>
struct prepared_for_session {
  using type =
      decltype(prepare_by<K>(std::declval<const plan_view&>(), std::declval<const plan_step&>(), std::declval<step_memory&>()));
};
template <class K>
  requires(!is_listed_kernel<K>)
struct prepared_for_session<K> {
  using type = decltype(prepared_device_step<K>::prepared);
};
template <class K>
using prepared_by = typename prepared_for_session<K>::type;

inline namespace GSPMD_TARGET {

/// Returns the steps of a plan, ready except for their joint functions.
template <class = once>
std::vector<ready_step> make_all_ready(const plan_view& p, step_memory& memory, prepared_objects& objects);

/// Returns the function for the joint work of a communicator's devices in a step. Returns null for a step without
/// joint work.
template <class Comm>
ready_step::joint_function joint_function_of(const plan_step& s) {
  ready_step::joint_function found = nullptr;
  if (!s.kernel.name->is_listed()) return found;
  mp11::mp_with_index<listed_kernel_count>(s.kernel.number(), [&](auto number) {
    using K = mp11::mp_at_c<listed_kernels, number>;
    if constexpr (runs_jointly<K> && takes_types<Comm>) found = run_jointly<K, type_of_step, prepared_by<K>, Comm>;
    else if constexpr (runs_jointly<K>)
      with_handled_type<K>(s.type, [&](auto element) { found = run_jointly<K, decltype(element), prepared_by<K>, Comm>; });
  });
  return found;
}

}  // namespace GSPMD_TARGET

/// The run-time path: runs a plan with the kernels that compiled programs use.
class interpreter {
 public:
  /// `named` is the mesh with the names for the errors of a checked run. If it is null, a checked plan is not
  /// checked.
  explicit interpreter(const plan_view& plan, const mesh_info* named = nullptr)
      : plan_(plan), named_(named), ready_(make_all_ready(plan, memory_, objects_)) {}
  interpreter(const interpreter&) = delete;
  interpreter& operator=(const interpreter&) = delete;

  /// Returns a step that the caller replaces by another function. The caller adds the object that the function needs
  /// to objects().
  ready_step& step(std::size_t i) {
    has_other_steps_ = true;
    return ready_[i];
  }
  prepared_objects& objects() { return objects_; }

  template <class Comm>
  void run(Comm& comm, const device_memory* devices, const void** from, void** to) {
    plan_step words;
    words.kernel = id_of<kernels::move>;
    words.type = dtype::s64;
    if constexpr (requires { typename Comm::teamed; }) {
      if (has_other_steps_ || (plan_.is_checked && named_ != nullptr)) return run(comm.of_devices(), devices, from, to);
      know<typename Comm::teamed>();
      comm.run_session(plan_, ready_, team_, {devices, comm.local_count(), from, to, &comm.of_devices(), go_on_});
    } else if constexpr (requires { typename Comm::traced; }) {
      know<typename Comm::traced>();
      comm.run(plan_, *named_, ready_.data(), devices, from, to, joint_function_of<typename Comm::traced>(words));
    } else {
      know<Comm>();
      const devices_here here{devices, comm.local_count(), from, to, &comm, go_on_};
      if (!plan_.is_checked || named_ == nullptr) return run_plan(plan_, ready_.data(), here);
      run_plan_checked(plan_, *named_, ready_.data(), here, joint_function_of<Comm>(words));
    }
  }

 private:
  /// Sets the joint functions of the steps for communicators of this type.
  template <class Comm>
  void know() {
    if (known_communicator_ == &communicator_type<Comm>) return;
    known_communicator_ = &communicator_type<Comm>;
    go_on_ = go_on_of<Comm>(plan_);
    for (std::size_t i = 0; i < ready_.size(); ++i) ready_[i].joint = joint_function_of<Comm>(plan_.steps[i]);
  }
  template <class Comm>
  static inline char communicator_type = 0;  // its address identifies the type; not const: linkers may merge constants

  plan_view plan_;
  const mesh_info* named_;
  step_memory memory_;
  prepared_objects objects_;
  std::vector<ready_step> ready_;
  const char* known_communicator_ = nullptr;
  void (*go_on_)(void*) = nullptr;
  bool has_other_steps_ = false;
  std::shared_ptr<void> team_;  // the state of the threads of a device, if a device has several (run/parts/)
};

}  // namespace gspmd::detail

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/run/interpreter.ipp"
#endif
