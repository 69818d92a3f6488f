// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "gspmd/detail/exec/contraction.hpp"
#include "gspmd/detail/exec/device_memory.hpp"
#include "gspmd/detail/exec/permute.hpp"
#include "gspmd/detail/exec/reduce.hpp"

/// One step of a plan on one device. `Step` is where the step's description comes from: constants in a static program, the
/// tables of a plan in the interpreter; the kernels are the same.
namespace gspmd::detail {

/// How much of a dim of a shard is data.
inline std::int64_t valid_extent(const plan_view& plan, const bound& b, const coordinates& at) {
  const auto& v = plan.value(b.value);
  return dim_range(*plan.mesh, v.global, v.layout, b.dim, at).size();
}

/// The global index of the first element of a shard along a dim.
inline std::int64_t first_index(const plan_view& plan, const bound& b, const coordinates& at) {
  const auto& v = plan.value(b.value);
  return part_index(*plan.mesh, v.layout, b.dim, at) * v.local[b.dim];
}

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

template <class T, class Step>
void run_reduce(Step step, const device_memory& device) {
  const plan_view& plan = step.plan();
  const plan_step& s = step.step();
  const auto& operand = plan.operand(s, 0);
  std::int64_t valid[max_rank];
  for (int d = 0; d < operand.local.count; ++d) valid[d] = operand.local[d];
  for (int b = 0; b < s.bounds.count; ++b) {
    const auto& item = plan.bounds[static_cast<std::size_t>(s.bounds.begin + b)];
    valid[item.index] = valid_extent(plan, item, device.at);
  }
  reduce<T>(step.reduction(), valid, static_cast<const T*>(device.read(operand.where)),
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

}  // namespace gspmd::detail
