// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/lower/loop_group.hpp"

namespace gspmd::detail {

/// Widens narrow values in memory: kernels other than loops compute with copies of a wider type.
class widening {
 public:
  constexpr explicit widening(step_state& state) : s_(state) {}

  /// Returns a new value of the same shard, in the type that kernels use for its elements. Returns `v` itself if it
  /// has that type.
  constexpr int like(int v) {
    local_value wide = s_.program_.value(v);
    if (!is_narrow(wide.type)) return v;
    wide.type = computed_as(wide.type);
    return s_.add_value(wide);
  }
  /// Converts `from`, which is in memory. `saturates`: an integer out of range becomes the nearest integer in range.
  constexpr void convert(const instruction& op, int from, int to, bool saturates) {
    loop_group group(s_, extents(1, elements(s_.program_.value(from).local)));
    scalar_op load = scalar_op::load(s_.program_.value(from).type, 0);
    load.strides = extents(1, 1);
    const int made = group.converted(group.add_op(load), s_.program_.value(to).type, saturates);
    group.stores.push_back(fused_store{static_cast<std::int16_t>(made), 0});
    planned_group planned;
    planned.loop = group.loop;
    s_.add_step(id_of<kernels::fused>, op, group.entry_for(planned), {from}, {to});
  }

 private:
  step_state& s_;
};

}  // namespace gspmd::detail
