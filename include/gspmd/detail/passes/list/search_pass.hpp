// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "gspmd/detail/passes/choose/plan_search.hpp"
#include "gspmd/detail/passes/list/pipeline.hpp"

namespace gspmd::detail {

// Separate from pipeline.hpp: a program that is compiled for a mesh without a search does not read this header.
/// Searches for a better plan than the result of choose_pass (plan_search.hpp).
struct search_pass {
  using result = search_state;
  template <class Before>
  static constexpr search_state begin(const Before& before) {
    const layouts& asked = before.template of<narrow_pass>();
    search_state state = begin_search(before.template take<choose_pass>(), asked.of);
    if (before.request().solve != nullptr)
      before.request().solve({before.program(), before.mesh(), before.request(), before.template of<uses_pass>(), asked.of},
                             state);
    return state;
  }
  template <class Before>
  static constexpr void go_on(const Before& before, search_state& state, effort most) {
    if (!before.request().is_searched) return;
    const graph& g = before.program();
    const layouts& asked = before.template of<narrow_pass>();
    const value_uses& uses = before.template of<uses_pass>();
    plan_search(g, before.mesh(), before.request(), uses, asked.of, state).run(most.nodes, most.prices);
  }
  static constexpr bool is_complete(const auto& frozen) { return frozen.rest.phase == search_phase::done; }
  /// Returns the lengths of the state. The tried plan may replace the best plan, so both get the same room.
  template <class Before>
  static constexpr list_sizes<search_state> guess(const Before& before, const list_sizes<search_state>& before_it, effort most) {
    const auto all = before.node_count();
    auto sizes = before_it.template by_name<search_state::lengths>();
    const choose_lengths chosen = before.template lengths<choose_pass>().best;
    choose_state::lists(sizes.best, [&](auto&... of_best) {
      choose_state::lists(chosen, [&](const auto&... first) { ((of_best = of_best > first ? of_best : first), ...); });
    });
    choose_pass::share_room(sizes.best, sizes.trial, all);
    sizes.preferred = sizes.tried = sizes.differs.of = all;
    sizes.order = most_values_in_order_of_search;
    sizes.differs.now = sizes.best.book.values;
    sizes.known += static_cast<std::size_t>(most.nodes);
    return list_sizes<search_state>::of_names(sizes);
  }
};

}  // namespace gspmd::detail
