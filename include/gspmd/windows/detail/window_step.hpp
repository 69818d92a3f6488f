// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/kernels/reduce.hpp"
#include "gspmd/windows/detail/window_reduction.hpp"
#include "gspmd/windows/detail/window_selection.hpp"

/// Reductions of windows and their gradients as steps of a plan.
namespace gspmd::detail {

struct prepared_window_reduction {
  const window_reduction* windows;
  const reduction_kernel* kernel;
};
struct prepared_window_selection {
  const window_selection* windows;
  window_selector select;
};

namespace kernels {

template <class>
prepared_window_reduction reduce_window::prepare(const window_reduction& windows, const plan_view&, const plan_step& s) {
  const reduction_kernel* kernel = nullptr;
  with_computing_type(s.type, [&](auto element) { kernel = &reduction_kernel_for<decltype(element)>(windows.reduced_by); });
  return {&windows, kernel};
}
inline void reduce_window::run(const prepared_window_reduction& prepared, const plan_view& p, const plan_step& s,
                               const device_memory& device) {
  std::int64_t valid[max_rank];
  read_existing(p, s, device, valid);
  reduce_windows(*prepared.kernel, *prepared.windows, valid, device.read(p.operand(s, 0).where), device.write(p.result(s).where));
  clear_padding(p, p.result(s), device);
}
template <class>
prepared_window_selection select_and_scatter::prepare(const window_selection& windows, const plan_view&, const plan_step& s) {
  window_selector select = nullptr;
  with_computing_type(s.type, [&](auto element) { select = window_selector_for<decltype(element)>(windows.is_minimum); });
  return {&windows, select};
}
inline void select_and_scatter::run(const prepared_window_selection& prepared, const plan_view& p, const plan_step& s,
                                    const device_memory& device) {
  std::int64_t valid[max_rank];
  read_existing(p, s, device, valid);
  prepared.select(*prepared.windows, valid, device.read(p.operand(s, 0).where), device.read(p.operand(s, 1).where),
                  device.write(p.result(s).where));
}
template <class Program, int Step>
constexpr auto reduce_window::freeze() {
  using element = element_t<step_of<Program, Step>.type>;
  constexpr const window_reduction& spec = description_of_step<Program, Step, reduce_window>;
  constexpr monoid kind = natural_kind<element>(spec.reduced_by);
  static_assert(monoid_is_defined<element>(kind), "gspmd: this reduction is not defined on this element type");
  return prepared_window_reduction{&spec, &reduction_kernel_of<kind, element>};
}
template <class Program, int Step>
constexpr auto select_and_scatter::freeze() {
  constexpr const window_selection& spec = description_of_step<Program, Step, select_and_scatter>;
  return prepared_window_selection{&spec, window_selector_for<element_t<step_of<Program, Step>.type>>(spec.is_minimum)};
}

}  // namespace kernels

}  // namespace gspmd::detail

#if defined(GSPMD_PRECOMPILED)
#include "gspmd/windows/detail/window_step_instances.ipp"
#endif
