// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/index/detail/scan_kernel.hpp"

/// Scans and top_k as steps of a plan.
namespace gspmd::detail {

struct prepared_scan {
  const scan_spec* spec;
  line_scanner scan;
};
struct prepared_top_k {
  const top_k_spec* spec;
  top_finder find;
};

template <class T, monoid Kind>
constexpr prepared_scan scan_of(const scan_spec& spec) {
  constexpr monoid natural = natural_kind<T>(Kind);
  if constexpr (!monoid_is_defined<T>(natural)) return {&spec, nullptr};  // the program is refused earlier
  else return {&spec, scan_lines<natural, T>};
}

namespace kernels {

template <class>
prepared_scan scan::prepare(const scan_spec& spec, const plan_view&, const plan_step& s) {
  prepared_scan prepared{};
  with_computing_type(s.type, [&]<class T>(T) {
    with_monoid(spec.combined_by, [&](auto kind) { prepared = scan_of<T, decltype(kind)::value>(spec); });
  });
  return prepared;
}
inline void scan::run(const prepared_scan& prepared, const plan_view& p, const plan_step& s, const device_memory& device) {
  const scan_spec& spec = *prepared.spec;
  std::int64_t valid = spec.shape[spec.dim], part = 0;
  if (s.bounds.count > 0) {
    const auto& b = p.bounds[static_cast<std::size_t>(s.bounds.begin)];
    valid = valid_extent(p, b, device.at);
    part = part_index(*p.mesh, p.value(b.value).layout, b.dim, device.at);
  }
  prepared.scan(spec, valid, part, device.read(p.operand(s, 0).where),
                s.operands.count > 1 ? device.read(p.operand(s, 1).where) : nullptr, device.write(p.result(s).where));
  clear_padding(p, p.result(s), device);
}

template <class>
prepared_top_k top_k::prepare(const top_k_spec& spec, const plan_view&, const plan_step& s) {
  prepared_top_k prepared{&spec, nullptr};
  with_computing_type(s.type, [&]<class T>(T) { prepared.find = top_of_lines<T>; });
  return prepared;
}
inline void top_k::run(const prepared_top_k& prepared, const plan_view& p, const plan_step& s, const device_memory& device) {
  const top_k_spec& spec = *prepared.spec;
  std::int64_t valid = spec.shape[spec.shape.count - 1], first = 0;
  if (s.bounds.count > 0) {
    const auto& b = p.bounds[static_cast<std::size_t>(s.bounds.begin)];
    valid = valid_extent(p, b, device.at);
    first = first_index(p, b, device.at);
  }
  prepared.find(spec, valid, first, device.read(p.operand(s, 0).where),
                spec.is_merge ? static_cast<const std::int32_t*>(device.read(p.operand(s, 1).where)) : nullptr,
                device.write(p.result(s).where), static_cast<std::int32_t*>(device.write(p.result(s, 1).where)));
  for (int r = 0; r < s.results.count; ++r) clear_padding(p, p.result(s, r), device);
}

template <class Program, int Step>
constexpr auto scan::freeze() {
  constexpr const scan_spec& spec = description_of_step<Program, Step, scan>;
  return scan_of<element_t<step_of<Program, Step>.type>, spec.combined_by>(spec);
}
template <class Program, int Step>
constexpr auto top_k::freeze() {
  return prepared_top_k{&description_of_step<Program, Step, top_k>, top_of_lines<element_t<step_of<Program, Step>.type>>};
}

}  // namespace kernels

}  // namespace gspmd::detail

#if defined(GSPMD_PRECOMPILED)
#include "gspmd/index/detail/scan_step_instances.ipp"
#endif
