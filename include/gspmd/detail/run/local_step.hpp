// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "gspmd/detail/ir/monoid_ops.hpp"
#include "gspmd/detail/kernels/contraction.hpp"
#include "gspmd/detail/kernels/fill.hpp"
#include "gspmd/detail/kernels/narrow_contraction.hpp"
#include "gspmd/detail/run/padding.hpp"
#include "gspmd/detail/run/ready_step.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/transport/box.hpp"

/// The kernels that run on one device, except for fused loops. `Spec` is the source of a kernel's description:
/// constants in a compiled program, the tables of a plan in a session.
namespace gspmd::detail {

struct prepared_reduction {
  reduction_plan plan;
  const reduction_kernel* kernel;
};
struct prepared_permutation {
  permutation_plan plan;
  void (*run)(const permutation_plan&, const void* from, void* to);
};

namespace kernels {

template <class = once>  // compiled only by programs that plan at run time
prepared_contraction prepare_contraction(const contraction_plan& plan, dtype type) {
  prepared_contraction prepared{&plan, nullptr};
  with_computing_type(signed_of(type), [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, bool> && !std::is_unsigned_v<T>)
      prepared.run = run_contraction<T, runtime_spec<contraction_plan>>;
  });
  return prepared;
}
template <class>
prepared_contraction contract::prepare(const plan_view& p, const plan_step& s) {
  const contraction_plan& plan = table_of<contraction_plan>(p)[static_cast<std::size_t>(s.spec)];
  auto prepared = prepare_contraction(plan, s.type);
  if (plan.panel > 0)
    with_real_type(p.operand(s, 0).type, [&]<class T>(T) {
      if constexpr (is_narrow(dtype_of<T>())) prepared.run = run_narrow_contraction<T>;
    });
  return prepared;
}
inline void contract::run(const prepared_contraction& prepared, const plan_view& p, const plan_step& s,
                          const device_memory& device) {
  std::int64_t valid[max_letters];
  read_bounds(p, s, device, valid);
  prepared.run(*prepared.plan, valid, device.read(p.operand(s, 0).where), device.read(p.operand(s, 1).where),
               device.write(p.result(s).where), device.arena + s.scratch, false, true);
}

/// Sets valid[d] to the number of valid indices of dim d of operand 0.
[[gnu::noinline]] inline void read_valid(const plan_view& p, const plan_step& s, const device_memory& device,
                                         std::int64_t* valid) {
  const auto& operand = p.operand(s, 0);
  for (int d = 0; d < operand.local.count; ++d) valid[d] = operand.local[d];
  read_bounds(p, s, device, valid);
}
template <class>
prepared_reduction reduce::prepare(const plan_view& p, const plan_step& s) {
  const reduction_spec& spec = table_of<reduction_spec>(p)[static_cast<std::size_t>(s.spec)];
  const reduction_kernel* kernel = nullptr;
  with_computing_type(s.type, [&](auto element) { kernel = &reduction_kernel_for<decltype(element)>(spec.reduced_by); });
  return {plan_reduction(spec), kernel};
}
inline void reduce::run(const prepared_reduction& prepared, const plan_view& p, const plan_step& s, const device_memory& device) {
  std::int64_t valid[max_rank];
  read_valid(p, s, device, valid);
  detail::reduce(*prepared.kernel, prepared.plan, valid, device.read(p.operand(s, 0).where), device.write(p.result(s).where));
}

template <class>
prepared_permutation permute::prepare(const plan_view& p, const plan_step& s) {
  prepared_permutation prepared{plan_permutation(table_of<permutation_spec>(p)[static_cast<std::size_t>(s.spec)]), nullptr};
  with_element_type(s.type, [&](auto element) { prepared.run = detail::permute<raw_bits<decltype(element)>>; });
  return prepared;
}
inline void permute::run(const prepared_permutation& prepared, const plan_view& p, const plan_step& s,
                         const device_memory& device) {
  prepared.run(prepared.plan, device.read(p.operand(s, 0).where), device.write(p.result(s).where));
  clear_padding(p, p.result(s), device);  // a sort passes on the elements that fill up its lines
}

/// Returns the offset in operand 0, in bytes, of the row whose number is the last operand. Returns -1 if the row is
/// on another device or does not exist. A number outside of the tensor is clamped to the nearest row.
inline std::int64_t row_offset(const plan_view& p, const plan_step& s, const planned_value& row, const device_memory& device) {
  const auto& from = p.operand(s, 0);
  std::int64_t at = 0;
  std::memcpy(&at, device.read(p.operand(s, s.operands.count - 1).where), sizeof at);
  at = std::max(std::min(at, from.global[0] - 1), std::int64_t{0});
  if (s.bounds.count > 0) at -= first_index(p, p.bounds[static_cast<std::size_t>(s.bounds.begin)], device.at);
  return at >= 0 && at < from.local[0] ? at * static_cast<std::int64_t>(bytes_in(row)) : -1;
}
inline void row::run(nothing_prepared, const plan_view& p, const plan_step& s, const device_memory& device) {
  const auto& result = p.result(s);
  if (bytes_in(result) == 0) return;
  const auto offset = row_offset(p, s, result, device);
  void* const to = device.write(result.where);
  if (offset < 0) return fill_with_identity(result, monoid::add, to);
  std::memcpy(to, static_cast<const std::byte*>(device.read(p.operand(s, 0).where)) + offset, bytes_in(result));
}
/// Copies the other rows to the result. Returns the address of the row to write in the result, or null if another
/// device holds this row.
inline std::byte* row_to_write(const plan_view& p, const plan_step& s, const device_memory& device) {
  copy_operand(p, s, 0, device);
  const auto& row = p.operand(s, 1);
  const auto offset = bytes_in(row) == 0 ? -1 : row_offset(p, s, row, device);
  return offset < 0 ? nullptr : static_cast<std::byte*>(device.write(p.result(s).where)) + offset;
}
inline void set_row::run(nothing_prepared, const plan_view& p, const plan_step& s, const device_memory& device) {
  const auto& row = p.operand(s, 1);
  if (auto* const to = row_to_write(p, s, device)) std::memcpy(to, device.read(row.where), bytes_in(row));
}
template <class T>
void add_row::run(nothing_prepared, const plan_view& p, const plan_step& s, const device_memory& device) {
  auto* const to = reinterpret_cast<T*>(row_to_write(p, s, device));
  if (to == nullptr) return;
  const auto& row = p.operand(s, 1);
  const T* const from = static_cast<const T*>(device.read(row.where));
  for (std::int64_t i = elements(row.local); i-- > 0;) to[i] = detail::combine(monoid::add, to[i], from[i]);
}
inline void terms::run(nothing_prepared, const plan_view& p, const plan_step& s, const device_memory& device) {
  const auto &from = p.operand(s, 0), &to = p.result(s);
  void* const shard = device.write(to.where);
  fill_with_identity(to, to.layout.reduced_by, shard);
  const axis_mask of_first = to.layout.partial & ~from.layout.partial & ~from.layout.split_axes();
  for (int a = 0; a < p.mesh->axis_count(); ++a)
    if ((of_first & axis_bit(a)) != 0 && device.at[a] != 0) return;
  const auto box = ranges_of(*p.mesh, from.global, from.layout, device.at);
  if (!box.any()) return;
  const auto mine = layout_of(*p.mesh, from.global, from.layout, device.at);
  copy_box(shard, device.read(from.where), place(box, mine, layout_of(*p.mesh, to.global, to.layout, device.at)),
           bytes_of(to.type), false);
}
inline void copy::run(nothing_prepared, const plan_view& p, const plan_step& s, const device_memory& device) {
  copy_operand(p, s, 0, device);
}
}  // namespace kernels

}  // namespace gspmd::detail
