// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/kernels/local_function.hpp"
#include "gspmd/detail/ir/local_function.hpp"
#include "gspmd/detail/ir/monoid_ops.hpp"
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/run/padding.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/transport/device_memory.hpp"

namespace gspmd::detail {

/// Calls a user's function on the valid elements of a device's blocks. If no result has elements, the function is not
/// called. It is not called either if the device has no element along a letter that may be split. Then the results
/// are filled with the identity of the reduction.
inline void call_local_function(const plan_view& plan, const plan_step& s, const device_memory& device) {
  const local_function& f = *s.local;
  const int operands = f.rule.operand_count();
  // Not value-initialised: these arrays are large, and only their first entries are used.
  erased_block blocks[max_local_operands + max_results];
  std::int64_t valid[max_local_operands + max_results][max_rank];
  std::int64_t strides[max_local_operands + max_results][max_rank];
  bool is_empty = false, has_results = false;
  for (int k = 0; k < f.rule.tensors.count; ++k) {
    const bool is_operand = k < operands;
    const auto& v = is_operand ? plan.operand(s, k) : plan.result(s, k - operands);
    std::int64_t stride = 1, elems = 1;
    for (int d = v.local.count - 1; d >= 0; --d) {
      valid[k][d] = dim_range(*plan.mesh, v.global, v.layout, d, device.at).size();
      strides[k][d] = stride;
      stride *= v.local[d];
      elems *= valid[k][d];
      is_empty = is_empty || (valid[k][d] == 0 && f.rule.letters[f.rule.tensors[k][d]].kind != factor_kind::whole);
    }
    has_results = has_results || (!is_operand && elems != 0);
    blocks[k] = {is_operand ? const_cast<void*>(device.read(v.where)) : device.write(v.where), valid[k], strides[k]};
  }
  if (!has_results) return;
  if (!is_empty) return f.entries[s.spec].run(f.object, blocks);  // the callee makes the operands const again
  for (int r = 0; r < s.results.count; ++r)
    with_element_type(moved_as(plan.result(s, r).type), [&](auto element) {
      using T = decltype(element);
      T* const out = static_cast<T*>(blocks[operands + r].data);
      for (std::int64_t i = 0, n = elements(plan.result(s, r).local); i < n; ++i) out[i] = identity<T>(f.rule.reduced_by);
    });
}

inline void kernels::local::run(nothing_prepared, const plan_view& p, const plan_step& s, const device_memory& device) {
  call_local_function(p, s, device);
  for (int r = 0; r < s.results.count; ++r) clear_padding(p, p.result(s, r), device);
}

}  // namespace gspmd::detail

#if defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/run/local_function_step_instances.ipp"
#endif
