// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "gspmd/detail/exec/contraction.hpp"
#include "gspmd/detail/exec/device_memory.hpp"
#include "gspmd/detail/exec/local_function_step.hpp"
#include "gspmd/detail/exec/padding.hpp"
#include "gspmd/detail/exec/permute.hpp"
#include "gspmd/detail/exec/reduce.hpp"
#include "gspmd/error.hpp"

/// One step of a plan on one device. `Step` is where the step's description comes from: constants in a static program, the
/// tables of a plan in the interpreter; the kernels are the same.
namespace gspmd::detail {

template <class T, class Step>
void run_contract(Step step, const device_memory& device) {
  const plan_view& plan = step.plan();
  const plan_step& s = step.step();
  std::int64_t valid[max_letters];
  for (int b = 0; b < s.bounds.count; ++b) {
    const auto& item = plan.bounds[static_cast<std::size_t>(s.bounds.begin + b)];
    valid[item.index] = valid_extent(plan, item, device.at);
  }
  contract<T>(step.contraction(), valid, static_cast<const T*>(device.read(plan.operand(s, 0).where)),
              static_cast<const T*>(device.read(plan.operand(s, 1).where)), static_cast<T*>(device.write(plan.result(s).where)),
              reinterpret_cast<T*>(device.arena + s.scratch));
}

/// Of every dim of operand 0, how much is data.
[[gnu::noinline]] inline void read_valid(const plan_view& plan, const plan_step& s, const device_memory& device,
                                         std::int64_t* valid) {
  const auto& operand = plan.operand(s, 0);
  for (int d = 0; d < operand.local.count; ++d) valid[d] = operand.local[d];
  for (int b = 0; b < s.bounds.count; ++b) {
    const auto& item = plan.bounds[static_cast<std::size_t>(s.bounds.begin + b)];
    valid[item.index] = valid_extent(plan, item, device.at);
  }
}
template <class T, class Step>
void run_reduce(Step step, const device_memory& device) {
  const plan_view& plan = step.plan();
  const plan_step& s = step.step();
  std::int64_t valid[max_rank];
  read_valid(plan, s, device, valid);
  reduce<T>(step.reduction(), valid, static_cast<const T*>(device.read(plan.operand(s, 0).where)),
            static_cast<T*>(device.write(plan.result(s).where)));
}

template <class T, class Step>
void run_permute(Step step, const device_memory& device) {
  const plan_view& plan = step.plan();
  const plan_step& s = step.step();
  using element = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;  // padding of a pred may be neither 0 nor 1
  permute<element>(step.permutation(), static_cast<const element*>(device.read(plan.operand(s, 0).where)),
                   static_cast<element*>(device.write(plan.result(s).where)));
}

/// Row `index` of dim 0 begins here.
inline std::int64_t row_offset(const plan_view& plan, const plan_step& s, int whole, int row, int index,
                               const device_memory& device) {
  const auto rows = plan.operand(s, whole).local[0];
  std::int64_t at = 0;
  std::memcpy(&at, device.read(plan.operand(s, index).where), sizeof at);
  at = at < 0 || rows == 0 ? 0 : at < rows ? at : rows - 1;
  const auto& r = row < 0 ? plan.result(s) : plan.operand(s, row);
  return at * elements(r.local) * bytes_of(r.type);
}

/// The steps that only copy: copy, row, set_row.
inline void run_copy(const plan_view& plan, const plan_step& s, const device_memory& device) {
  const auto bytes_in = [](const planned_value& v) { return static_cast<std::size_t>(elements(v.local) * bytes_of(v.type)); };
  const auto& result = plan.result(s);
  const void* from = device.read(plan.operand(s, 0).where);
  void* to = device.write(result.where);
  if (bytes_in(result) == 0) return;
  if (s.what == action::row) {
    const auto offset = row_offset(plan, s, 0, -1, 1, device);
    std::memcpy(to, static_cast<const std::byte*>(from) + offset, bytes_in(result));
    return;
  }
  if (from != to) std::memcpy(to, from, bytes_in(result));
  if (s.what == action::set_row) {
    const auto offset = row_offset(plan, s, 0, 1, 2, device);
    std::memcpy(static_cast<std::byte*>(to) + offset, device.read(plan.operand(s, 1).where), bytes_in(plan.operand(s, 1)));
  }
}

/// What a movement into a range leaves as it was.
inline void keep_operand(const plan_view& plan, const plan_step& s, const device_memory& device) {
  if (!writes_into_operand(s)) return;
  const auto& whole = plan.operand(s, 1);
  const void* from = device.read(whole.where);
  void* to = device.write(plan.result(s).where);
  const auto bytes = static_cast<std::size_t>(elements(whole.local) * bytes_of(whole.type));
  if (from != to && bytes > 0) std::memcpy(to, from, bytes);
}

/// Whether the devices take the first branch: their predicates are one value. One that differs, which a communicator that holds
/// several devices can see, would make collectives wait for ever.
inline bool holds(const plan_view& plan, const plan_step& s, const device_memory* devices, int count) {
  bool first = false;
  for (int d = 0; d < count; ++d) {
    bool own = false;
    std::memcpy(&own, devices[d].read(plan.operand(s, 0).where), sizeof own);
    if (d == 0) first = own;
    else if (own != first) throw error("the condition differs between devices");
  }
  return first;
}

inline void set_counter(const plan_view& plan, const plan_step& s, const device_memory* devices, int count, std::int64_t i) {
  for (int d = 0; d < count; ++d) std::memcpy(devices[d].write(plan.result(s).where), &i, sizeof i);
}

}  // namespace gspmd::detail
