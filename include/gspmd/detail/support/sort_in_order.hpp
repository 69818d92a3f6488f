// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Sorts a list and keeps the order of equal elements. (std::stable_sort of libstdc++ 12 calls a function that Clang 19
/// warns about.)
template <class List, class Less>
constexpr void sort_in_order(List& list, Less less) {
  constant_vector<std::size_t> order;
  for (std::size_t i = 0; i < list.size(); ++i) order.push_back(i);
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return less(list[a], list[b]) || (!less(list[b], list[a]) && a < b); });
  List sorted;
  for (const auto i : order) sorted.push_back(std::move(list[i]));
  list = std::move(sorted);
}

}  // namespace gspmd::detail
