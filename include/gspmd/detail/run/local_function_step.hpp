// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/local_function.hpp"
#include "gspmd/detail/ir/monoid_ops.hpp"
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/run/padding.hpp"
#include "gspmd/detail/transport/device_memory.hpp"

namespace gspmd::detail {

/// A block of a device: the valid elements, and how many there are.
struct local_extents_of_block {
  std::int64_t valid[max_rank];
  std::int64_t strides[max_rank];
  std::int64_t elems = 1;

  local_extents_of_block(const plan_view& plan, const planned_value& v, const coordinates& at) {
    std::int64_t stride = 1;
    for (int d = v.local.count - 1; d >= 0; --d) {
      valid[d] = dim_range(*plan.mesh, v.global, v.layout, d, at).size();
      strides[d] = stride;
      stride *= v.local[d];
      elems *= valid[d];
    }
  }
};

inline void call_local_function(const plan_view& plan, const plan_step& s, const local_extents_of_block& made,
                                const device_memory& device) {
  const local_function& f = *s.local;
  const int count = f.rule.operand_count();
  const auto& result = plan.result(s);
  // Not value-initialized: these are large, and only the first entries are used.
  erased_block blocks[max_local_operands + 1];
  std::int64_t valid[max_local_operands][max_rank];
  std::int64_t strides[max_local_operands][max_rank];
  bool is_empty = false;
  for (int k = 0; k < count; ++k) {
    const auto& v = plan.operand(s, k);
    const local_extents_of_block own(plan, v, device.at);
    for (int d = 0; d < v.local.count; ++d) {
      valid[k][d] = own.valid[d];
      strides[k][d] = own.strides[d];
      is_empty = is_empty || (own.valid[d] == 0 && f.rule.letters[f.rule.tensors[k][d]].kind == factor_kind::reduction);
    }
    blocks[k] = {const_cast<void*>(device.read(v.where)), valid[k], strides[k]};  // made const again by `run`
  }
  blocks[count] = {device.write(result.where), made.valid, made.strides};
  if (!is_empty) return f.entries[s.spec].run(f.object, blocks);
  with_element_type(result.type, [&](auto element) {
    using T = decltype(element);
    T* const out = static_cast<T*>(blocks[count].data);
    for (std::int64_t i = 0, n = elements(result.local); i < n; ++i) out[i] = identity<T>(f.rule.kind);
  });
}

}  // namespace gspmd::detail
