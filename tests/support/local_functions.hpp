// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/ops/local_op.hpp"

/// Custom operators for random programs. reference.hpp computes their expected results.
namespace reference::local_functions {

using gspmd::detail::local_function;

inline constexpr auto reverse_list = [](auto x, auto y) {
  for (std::int64_t i = 0; i < x.extent(0); ++i) y(i) = x(x.extent(0) - 1 - i);
};
inline constexpr auto reverse_rows = [](auto x, auto y) {
  for (std::int64_t i = 0; i < x.extent(0); ++i)
    for (std::int64_t j = 0; j < x.extent(1); ++j) y(i, j) = x(i, x.extent(1) - 1 - j);
};
inline constexpr auto turn = [](auto x, auto y) {
  for (std::int64_t i = 0; i < x.extent(0); ++i)
    for (std::int64_t j = 0; j < x.extent(1); ++j)
      for (std::int64_t k = 0; k < x.extent(2); ++k) y(k, i, j) = x(i, j, k);
};
inline constexpr auto column_minimum = [](auto x, auto y) {
  for (std::int64_t j = 0; j < x.extent(1); ++j) {
    y(j) = x(0, j);
    for (std::int64_t i = 1; i < x.extent(0); ++i) y(j) = x(i, j) < y(j) ? x(i, j) : y(j);
  }
};
inline constexpr auto copy_and_column_minimum = [](auto x, auto y, auto least) {
  for (std::int64_t i = 0; i < x.extent(0); ++i)
    for (std::int64_t j = 0; j < x.extent(1); ++j) y(i, j) = x(i, j);
  column_minimum(x, least);
};
inline constexpr auto column_sum = [](auto x, auto y) {
  for (std::int64_t j = 0; j < x.extent(1); ++j) {
    y(j) = 0;
    for (std::int64_t i = 0; i < x.extent(0); ++i) y(j) += x(i, j);
  }
};

template <gspmd::fixed_string Rule, const auto& F, gspmd::monoid Kind = gspmd::monoid::add>
struct made {
  using function = std::remove_const_t<std::remove_reference_t<decltype(F)>>;
  using rule = gspmd::detail::rule_constant<Rule, Kind>;
  using list = typename gspmd::detail::local_facts<rule, function, void>::list;
  static constexpr const local_function& value = gspmd::detail::local_holder<rule, list, 1, function>::function;
};
inline constexpr const local_function* reversed = &made<"[t]->[t]", reverse_list>::value;
inline constexpr const local_function* rows_reversed = &made<"b[t]->b[t]", reverse_rows>::value;
inline constexpr const local_function* turned = &made<"abc->cab", turn>::value;
inline constexpr const local_function* minima = &made<"ab->b", column_minimum, gspmd::monoid::min>::value;
inline constexpr const local_function* copy_and_minima = &made<"ab->ab,b", copy_and_column_minimum, gspmd::monoid::min>::value;
inline constexpr const local_function* sums = &made<"ab->b", column_sum>::value;

}  // namespace reference::local_functions
