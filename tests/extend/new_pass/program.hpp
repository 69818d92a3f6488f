// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "extend/new_pass/reciprocals.hpp"
#include "extend/new_pass/split_inputs.hpp"
#include "gspmd/gspmd.hpp"

namespace new_pass {

inline constexpr auto fractions = [](auto x) { return x / 8.0 + x / 3.0; };
inline constexpr auto quick_fractions = with_pass<exact_reciprocals>(fractions);
inline constexpr auto of_split_inputs = [](auto x, auto w) { return split_inputs_above<1024>(x * w) + x; };

using pod = gspmd::mesh<gspmd::axis<"x", 2>>;
using row = gspmd::input<double, gspmd::shape<30>, gspmd::split<"x">>;
using step = gspmd::compile<fractions, pod, row>;
using quick_step = gspmd::compile<quick_fractions, pod, row>;

constexpr int divisions_of(const gspmd::detail::plan_view& plan) {
  int count = 0;
  for (const auto& n : plan.nodes) count += std::string_view(gspmd::detail::name_of(n.op)) == "divide" ? 1 : 0;
  return count;
}
static_assert(divisions_of(step::view) == 2 && divisions_of(quick_step::view) == 1);
static_assert(step::view.nodes.size() == quick_step::view.nodes.size());

// Completion splits w like x, so each device holds one part of both.
template <class... Inputs>
using plan_of_split_inputs = gspmd::detail::static_plan<of_split_inputs, pod, Inputs...>;
using large = gspmd::input<double, gspmd::shape<512>>;
static_assert(plan_of_split_inputs<gspmd::input<double, gspmd::shape<512>, gspmd::split<"x">>, large>::is_accepted);
static_assert(!plan_of_split_inputs<large, large>::is_accepted);
static_assert(plan_of_split_inputs<large, large>::refusal::make().view() ==
              "input 0: each device holds all 4096 bytes of [512]; split a dim");
static_assert(
    plan_of_split_inputs<gspmd::input<double, gspmd::shape<128>>, gspmd::input<double, gspmd::shape<128>>>::is_accepted);

}  // namespace new_pass
