// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "gspmd/detail/run/fused_step.hpp"
#include "gspmd/detail/run/interpreter.hpp"
#include "gspmd/error.hpp"

namespace gspmd::detail {
template <class K>
ready_step make_ready(const plan_view& p, const plan_step& s, step_memory& memory, prepared_objects& objects) {
  ready_step r;
  if constexpr (K::work != step_work::controls) {
    using prepared = prepared_by<K>;
    if constexpr (!std::is_empty_v<prepared>) {
      r.prepared = new prepared(prepare_by<K>(p, s, memory));
      objects.emplace_back(r.prepared, [](const void* o) { delete static_cast<const prepared*>(o); });
    }
    if constexpr (runs_alone<K>)
      with_handled_type<K>(s.type, [&](auto element) { r.alone = run_alone<K, decltype(element), prepared>; });
  }
  return r;
}

[[noreturn, gnu::cold]] inline void throw_without_code(const char* kernel) {
  throw error(std::string("a step has the kernel ") + kernel +
              ", whose code for programs that are planned at run time is in no file of this program; include "
              "gspmd/dynamic.hpp in the file that calls its operator");
}

inline namespace GSPMD_TARGET {

template <class Once>
std::vector<ready_step> make_all_ready(const plan_view& p, step_memory& memory, prepared_objects& objects) {
  std::vector<ready_step> ready;
  ready.reserve(p.steps.size());
  objects.reserve(p.steps.size());
  for (const auto& s : p.steps) {
    if (!s.kernel.name->is_listed()) {
      const device_kernel_facts* const own = s.kernel.name->own;
      if (own->ready == nullptr) throw_without_code(own->name);
      own->ready(p, s, ready.emplace_back(), objects);
      continue;
    }
    mp11::mp_with_index<listed_kernel_count>(s.kernel.number(), [&](auto number) {
      ready.push_back(make_ready<mp11::mp_at_c<listed_kernels, number>>(p, s, memory, objects));
    });
  }
  return ready;
}
GSPMD_KERNELS_ONCE(std::vector<ready_step> make_all_ready<once>(const plan_view&, step_memory&, prepared_objects&));

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
