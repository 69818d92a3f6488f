// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "gspmd/detail/driver/static_plan.hpp"
#include "gspmd/search/detail/annotated_inputs.hpp"
#include "gspmd/search/detail/answered_plans.hpp"
#include "gspmd/search/detail/input_search.hpp"

namespace gspmd::detail {

/// A mesh without its memory limit.
template <class Mesh>
struct mesh_without_limit {
  static constexpr mesh_info info = [] {
    auto m = Mesh::info;
    m.request.most_memory = 0;
    return m;
  }();
  static constexpr int device_count = Mesh::device_count;
};
template <class Mesh>
struct changed_mesh<mesh_without_limit<Mesh>> : std::type_identity<Mesh> {};

/// The search for annotations of a program, evaluated by the compiler. It gives the same result as the search at run
/// time, with the same number of plans.
template <std::size_t MostPlans, auto Callable, class Mesh, class... Inputs>
class static_search {
  using traced = traced_program<callable_run_by_the_compiler<Callable, Mesh, Inputs...>>;
  static constexpr std::int64_t most_memory = Mesh::info.request.most_memory;
  using fast_mesh = std::conditional_t<(most_memory > 0), mesh_without_limit<Mesh>, Mesh>;
  using search = input_search<answered_plans>;

  struct state {
    bool is_asking = false, is_complete = false, has_found = false;
    layouts_by_input layouts;  // requested or found
  };
  /// Runs the search with the answers to the first plans; returns f(search, state).
  template <std::size_t... K>
  static constexpr auto run(std::index_sequence<K...>, auto f) {
    const answered_plan* const plans[] = {&answer<K>..., nullptr};
    answered_plans all(Mesh::info.shape, plans, sizeof...(K), MostPlans);
    search s(groups_of_inputs(traced::frozen().thaw()), all);
    s.run(search::usual_descents);
    state now{false, !all.is_waiting() && !all.is_spent(), false, {}};
    if (!all.is_waiting()) {
      all.allow_one_more();
      s.say_explicitly();
    }
    now.is_asking = all.is_waiting();
    now.has_found = s.best().has_value();
    if (now.is_asking) now.layouts = all.asked();
    else if (now.has_found) now.layouts = answered_plans::by_input(s.best()->groups, s.best()->layouts);
    return f(s, now);
  }
  template <std::size_t Made>
  static constexpr state after = run(std::make_index_sequence<Made>{}, [](const search&, const state& now) { return now; });

  template <std::size_t Made>
  struct layouts_after {
    static constexpr const layouts_by_input& value = after<Made>.layouts;
  };
  template <class On>
  struct on {
    template <class... Annotated>
    using plan_with = static_plan<Callable, On, Annotated...>;
  };
  template <class On, std::size_t K>
  using plan_of =
      typename annotated_parts<layouts_after<K>, Mesh::info, 0, Inputs...>::template in_group<on<On>::template plan_with>;

  /// Returns true if the program with the annotations of plan `K` must also be planned with the memory limit. `fastest`
  /// is the price of its plan without the limit.
  template <std::size_t... Before>
  static constexpr bool is_tried(plan_price fastest, std::int64_t input_bytes, std::index_sequence<Before...>) {
    memory_trials trials(most_memory);
    [[maybe_unused]] const auto add = [&](const answered_plan& p) {
      if (p.is_refused) return;
      auto price = p.fastest;
      if (trials.is_worth_trying(price, p.input_bytes) && !p.price.fits) trials.failed(price, p.input_bytes);
      trials.add(p.price);
    };
    (add(answer<Before>), ...);
    return trials.is_worth_trying(fastest, input_bytes);
  }
  template <class Plan>
  static constexpr void write(answered_plan& p) {
    constexpr const auto& info = Plan::mesh::info;
    p.price = price_of(Plan::view, info, info.request.network.is_named ? info.request.network : rates_on(default_network, info));
    p.price.fits = most_memory <= 0 || p.price.memory <= most_memory;
    p.is_cut = info.shape.axis_count() != Mesh::info.shape.axis_count();
    for (std::size_t k = 0; k < Plan::view.inputs.size() && !p.is_cut; ++k)
      p.lies[k] = planned_layout(Plan::view, info.shape, static_cast<int>(k));
  }
  template <std::size_t K>
  static constexpr answered_plan fastest = [] {
    answered_plan p;
    p.asked = after<K>.layouts;
    using made_plan = plan_of<fast_mesh, K>;
    if constexpr (made_plan::is_accepted) {
      p.is_refused = false;
      write<made_plan>(p);
      p.fastest = p.price;
      p.input_bytes = bytes_of_inputs(made_plan::view);
    }
    return p;
  }();
  template <std::size_t K>
  static constexpr answered_plan answer = [] {
    answered_plan p = fastest<K>;
    if constexpr (!fastest<K>.is_refused && most_memory > 0) {
      if constexpr (is_tried(fastest<K>.fastest, fastest<K>.input_bytes, std::make_index_sequence<K>{})) {
        using made_plan = plan_of<Mesh, K>;
        if constexpr (made_plan::is_accepted) write<made_plan>(p);
      }
    }
    return p;
  }();

  template <std::size_t Made = 0>
  static constexpr std::size_t count() {
    if constexpr (after<Made>.is_asking) return count<Made + 1>();
    else return Made;
  }

 public:
  /// The number of plans that were made.
  static constexpr std::size_t made = count();
  static constexpr bool is_complete = after<made>.is_complete;
  /// True if a plan was found that is not refused.
  static constexpr bool has_found = after<made>.has_found;
  /// `Of` applied to the inputs with the annotations that were found.
  template <template <class...> class Of>
  using with_found = typename annotated_parts<layouts_after<made>, Mesh::info, 0, Inputs...>::template in_group<Of>;
  /// Returns f(the finished search).
  static constexpr auto ended(auto f) {
    return run(std::make_index_sequence<made>{}, [&](const search& s, const state&) { return f(s); });
  }
};

}  // namespace gspmd::detail
