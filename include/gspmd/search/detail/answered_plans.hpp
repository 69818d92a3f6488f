// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "gspmd/search/detail/input_groups.hpp"
#include "gspmd/search/detail/input_layout.hpp"
#include "gspmd/search/detail/plan_price.hpp"
#include "gspmd/search/detail/planned_layouts.hpp"

/// The plans of a search in the compiler. Constant evaluation cannot instantiate a plan. So the search runs again after
/// each new plan, with the prices of all earlier plans, until it requires a plan that does not exist. This plan is
/// instantiated next.
namespace gspmd::detail {

inline constexpr std::size_t most_searched_inputs = 16;
using layouts_by_input = std::array<input_layout, most_searched_inputs>;

/// The annotations that a search requested, and the price of the plan with them.
struct answered_plan {
  layouts_by_input asked;
  bool is_refused = true;
  plan_price fastest, price;  // of the fastest plan; of the plan within the memory of a device, if the fastest plan does not fit
  std::int64_t input_bytes = 0;
  bool is_cut = false;  // an axis is cut, along which inputs may be sharded
  layouts_by_input lies;
};

/// The existing plans, with the interface that input_search requires, and the plan that is missing.
class answered_plans {
 public:
  constexpr answered_plans(const mesh_shape& mesh, const answered_plan* const* plans, std::size_t count, std::size_t most)
      : mesh_(mesh), plans_(plans), count_(count), most_(most) {}

  [[nodiscard]] constexpr const mesh_shape& shape() const { return mesh_; }
  constexpr std::optional<plan_price> of(const constant_vector<input_group>& groups, const group_layouts& layouts) {
    if (is_waiting_) return {};
    const auto inputs = by_input(groups, layouts);
    if (const auto* p = find(inputs)) return price_of(*p);
    is_spent_ = count_ >= most_;
    is_waiting_ = !is_spent_;
    if (is_waiting_) asked_ = inputs;
    return {};
  }
  [[nodiscard]] constexpr std::optional<plan_price> known(const constant_vector<input_group>& groups,
                                                          const group_layouts& layouts) const {
    const auto* p = find(by_input(groups, layouts));
    return p == nullptr ? std::nullopt : price_of(*p);
  }
  [[nodiscard]] constexpr std::optional<group_layouts> lies(const constant_vector<input_group>& groups,
                                                            group_layouts layouts) const {
    const auto* p = find(by_input(groups, layouts));
    if (p == nullptr || p->is_cut || p->is_refused) return {};
    for (std::size_t k = 0; k < groups.size(); ++k)
      if (layouts[k].empty()) layouts[k] = p->lies[static_cast<std::size_t>(groups[k].members.front())];
    return layouts;
  }
  /// Permits one more plan.
  constexpr void allow_one_more() { ++most_; }
  /// Returns true if the search requested a plan that does not exist.
  [[nodiscard]] constexpr bool is_waiting() const { return is_waiting_; }
  [[nodiscard]] constexpr bool is_spent() const { return is_spent_; }
  [[nodiscard]] constexpr const layouts_by_input& asked() const { return asked_; }

  static constexpr layouts_by_input by_input(const constant_vector<input_group>& groups, const group_layouts& layouts) {
    layouts_by_input inputs;
    for (std::size_t k = 0; k < groups.size(); ++k)
      for (const int i : groups[k].members) inputs[static_cast<std::size_t>(i)] = layouts[k];
    return inputs;
  }

 private:
  static constexpr std::optional<plan_price> price_of(const answered_plan& p) {
    return p.is_refused ? std::nullopt : std::optional(p.price);
  }
  [[nodiscard]] constexpr const answered_plan* find(const layouts_by_input& asked) const {
    for (std::size_t k = 0; k < count_ && k < most_; ++k)
      if (plans_[k]->asked == asked) return plans_[k];
    return nullptr;
  }
  const mesh_shape& mesh_;
  const answered_plan* const* plans_;
  std::size_t count_, most_;
  bool is_waiting_ = false, is_spent_ = false;
  layouts_by_input asked_;
};

}  // namespace gspmd::detail
