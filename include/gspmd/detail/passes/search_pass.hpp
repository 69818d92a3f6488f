// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "gspmd/detail/passes/choose/plan_search.hpp"
#include "gspmd/detail/passes/pipeline.hpp"

namespace gspmd::detail {

// Apart from pipeline.hpp: a program that is compiled for a mesh which does not ask for a search reads none of it.
struct search_pass {
  using result = search_state;
  template <class Before>
  static constexpr search_state begin(const Before& before) {
    return begin_search(before.template take<choose_pass>(), before.template of<narrow_pass>().all());
  }
  template <class Before>
  static constexpr void go_on(const Before& before, search_state& state, effort most) {
    if (!before.mesh().is_searched) return;
    const graph& g = before.program();
    const layouts& asked = before.template of<narrow_pass>();
    const value_uses uses = uses_of(g);
    plan_search(g, before.mesh(), uses, asked.all(), state).run(most.nodes, most.prices);
  }
  static constexpr bool is_complete(const auto& frozen) { return item<0>(frozen.rest) == search_phase::done; }
  /// One plan is the other's neighbour, and takes its place.
  template <class Before>
  static constexpr list_sizes<search_state> guess(const Before& before, const list_sizes<search_state>& before_it, effort most) {
    constexpr auto lists = static_cast<std::size_t>(entries_of<choose_state>::count);
    const auto all = before.node_count();
    list_sizes<search_state> sizes;
    for (std::size_t k = 0; k < lists; ++k) {
      std::size_t longest = before.template length<choose_pass>(k);
      for (const auto known : {before_it.of[k], before_it.of[lists + k]}) longest = known > longest ? known : longest;
      sizes.of[k] = sizes.of[lists + k] = longest + 8;
    }
    std::size_t* const others = sizes.of + 2 * lists;
    others[0] = others[1] = others[3] = all;
    others[2] = most_values_in_order_of_search;
    others[4] = sizes.of[5];
    others[5] = before_it.of[2 * lists + 5] + static_cast<std::size_t>(most.nodes);
    return sizes;
  }
};

}  // namespace gspmd::detail
