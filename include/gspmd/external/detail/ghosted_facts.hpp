// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/external/detail/read_end.hpp"

namespace gspmd::detail {

/// The facts about a plan for blocks with ghost layers. Leaves are inputs, then outputs. A list ends with the last leaf
/// that it describes.
struct ghosted_facts {
  const plan_view* plan;
  span<const given_layers> listed;    // as the caller listed them
  span<const given_layers> in_place;  // without results that no loop stores
  span<const input_ends> ends;
  span<const fillable> can_fill;

  [[nodiscard]] constexpr std::size_t input_count() const { return plan->inputs.size(); }
  [[nodiscard]] constexpr std::size_t leaf_count() const { return plan->inputs.size() + plan->outputs.size(); }
  [[nodiscard]] constexpr const planned_value& value(std::size_t k) const {
    return plan->value(k < input_count() ? plan->inputs[k] : plan->outputs[k - input_count()]);
  }
  [[nodiscard]] constexpr std::int64_t elem_bytes(std::size_t k) const { return bytes_of(value(k).type); }
  [[nodiscard]] constexpr bool is_listed(std::size_t k) const { return k < listed.size() && listed[k].is_given; }
  [[nodiscard]] constexpr bool is_in_place(std::size_t k) const { return k < in_place.size() && in_place[k].is_given; }
};

}  // namespace gspmd::detail
