// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include <boost/mp11/algorithm.hpp>

#include "gspmd/detail/run/fused_step.hpp"
#include "gspmd/detail/run/joint_step.hpp"
#include "gspmd/detail/run/local_step.hpp"
#include "gspmd/detail/run/runner.hpp"

namespace gspmd::detail {

/// The run-time path: a plan made ready, by the kernels that compiled programs use.
class interpreter {
 public:
  explicit interpreter(const plan_view& plan) : plan_(plan) {
    ready_.reserve(plan.steps.size());
    prepared_.reserve(plan.steps.size());
    for (const auto& s : plan.steps)
      mp11::mp_with_index<kernel_count>(static_cast<std::size_t>(s.what),
                                        [&](auto name) { prepare<mp11::mp_at_c<all_kernels, name>>(s); });
  }
  interpreter(const interpreter&) = delete;
  interpreter& operator=(const interpreter&) = delete;

  template <class Comm>
  void run(Comm& comm, const device_memory* devices, const void** from, void** to) {
    if (known_communicator_ != &communicator_type<Comm>) find_joint_functions<Comm>();
    run_plan(plan_, ready_.data(), {devices, comm.local_count(), from, to, &comm});
  }

 private:
  template <class Comm>
  static inline char communicator_type = 0;  // its address tells types apart; not const: linkers may merge equal constants

  template <class K>
  static auto prepare_by(const plan_view& p, const plan_step& s, step_memory& memory) {
    if constexpr (requires { K::prepare(p, s, memory); }) return K::prepare(p, s, memory);
    else return K::prepare(p, s);
  }
  template <class K>
  using prepared_by =
      decltype(prepare_by<K>(std::declval<const plan_view&>(), std::declval<const plan_step&>(), std::declval<step_memory&>()));

  template <class K>
  void prepare(const plan_step& s) {
    ready_step r;
    if constexpr (K::work != step_work::controls) {
      using prepared = prepared_by<K>;
      if constexpr (!std::is_empty_v<prepared>) {
        r.prepared = new prepared(prepare_by<K>(plan_, s, memory_));
        prepared_.emplace_back(r.prepared, [](const void* p) { delete static_cast<const prepared*>(p); });
      }
      if constexpr (runs_alone<K>)
        with_handled_type<K>(s.type, [&](auto element) { r.alone = run_alone<K, decltype(element), prepared>; });
    }
    ready_.push_back(r);
  }
  template <class Comm>
  void find_joint_functions() {
    known_communicator_ = &communicator_type<Comm>;
    for (std::size_t i = 0; i < ready_.size(); ++i)
      mp11::mp_for_each<mp11::mp_transform<mp11::mp_identity, all_kernels>>([&](auto kernel) {
        using K = typename decltype(kernel)::type;
        if constexpr (runs_jointly<K>)
          if (const auto& s = plan_.steps[i]; s.what == K::name)
            with_handled_type<K>(
                s.type, [&](auto element) { ready_[i].joint = run_jointly<K, decltype(element), prepared_by<K>, Comm>; });
      });
  }

  plan_view plan_;
  step_memory memory_;
  std::vector<ready_step> ready_;
  std::vector<std::unique_ptr<const void, void (*)(const void*)>> prepared_;
  const char* known_communicator_ = nullptr;
};

}  // namespace gspmd::detail
