// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/run/interpreter.hpp"

namespace gspmd::detail {
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
