// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/detail/support/mp11.hpp"
#include "gspmd/detail/support/sort_in_order.hpp"
#include "gspmd/run/compile.hpp"
#include "gspmd/search/detail/static_search.hpp"

/// Finds annotations for the inputs of a small program at compile time.
namespace gspmd {
namespace detail {

inline constexpr std::size_t most_static_plans = 32, most_searched_nodes = 128;

/// The text of the result of `search_annotations`.
template <class Search>
struct found_words {
  static constexpr void add_time(text& t, std::int64_t picoseconds) {
    const auto nanoseconds = (picoseconds + 500) / 1000;
    t << nanoseconds / 1000 << '.' << nanoseconds / 100 % 10 << nanoseconds / 10 % 10 << nanoseconds % 10 << " us";
  }
  static constexpr void add_row(text& t, std::string_view mark, std::string_view name, const plan_price& price) {
    t << mark << ' ';
    add_time(t, price.picoseconds);
    t << ", " << price.bytes << " bytes sent, " << price.memory << " held" << (price.fits ? "" : ", too many") << ": " << name
      << '\n';
  }
  /// Returns a line for each input and for each plan that was compared.
  static constexpr text make(const mesh_info& mesh) {
    return Search::ended([&](const auto& search) {
      text t;
      if (!search.best()) return t;
      const auto& best = *search.best();
      std::vector<std::pair<int, std::size_t>> inputs;  // and their groups
      for (std::size_t k = 0; k < best.groups.size(); ++k)
        for (const int i : best.groups[k].members) inputs.emplace_back(i, k);
      sort_in_order(inputs, [](const auto& a, const auto& b) { return a.first < b.first; });
      for (const auto& [i, k] : inputs) {
        const auto& l = best.layouts[k];
        t << "input " << i << ": ";
        if (l.empty()) t << "left to the planner\n";
        else t << sharding_text(mesh, sharding_of(l), best.groups[k].shape.count) << '\n';
      }
      std::vector<std::pair<plan_price, std::string_view>> rows;
      for (const auto& s : search.starts())
        if (!s.name.empty() && s.price) rows.emplace_back(*s.price, s.name.view());
      sort_in_order(rows, [](const auto& a, const auto& b) { return a.first < b.first; });
      add_row(t, ">", "found", best.price);
      for (const auto& [price, name] : rows) add_row(t, " ", name, price);
      t << static_cast<std::int64_t>(Search::made) << " plans were made; "
        << (Search::is_complete ? "no other annotation of one input, or of two along one axis, is better\n"
                                : "the search ended there, and with more plans it may find a better annotation\n");
      return t;
    });
  }
};

/// Returns true if the program is correct, so that annotations can be searched. Otherwise `compile` reports the error.
template <constant_callable Callable, class Mesh, class... Inputs>
consteval bool can_be_searched() {
  if constexpr (!Callable.is_known || !(is_input<Inputs> && ...)) return false;
  else if constexpr (!accepts_meshes<Mesh> || !traced_call<callable_argument<Callable>(), Inputs...>::compiles) return false;
  else if constexpr (!checked_program<callable_argument<Callable>(), Inputs...>::fits) return false;
  else if constexpr (!is_constant_program<callable_argument<Callable>(), Mesh, Inputs...>) return false;
  else {
    using traced = traced_program<callable_run_by_the_compiler<callable_argument<Callable>(), Mesh, Inputs...>>;
    return traced::frozen().rest.broken == mistake::none;
  }
}
/// Returns true if the program and the number of plans are small enough. Otherwise reports a compile error.
template <std::size_t MostPlans, auto Callable, class Mesh, class... Inputs>
consteval bool is_small_search() {
  using traced = traced_program<callable_run_by_the_compiler<Callable, Mesh, Inputs...>>;
  constexpr auto lists = lists_of_program(traced::frozen());
  constexpr std::size_t nodes = lists.nodes.size(), inputs = lists.inputs.size();
  constexpr bool is_typed = traced::frozen().rest.is_explicit || traced::frozen().rest.has_manual_regions;
  static_assert(
      !is_typed,
      "gspmd: search_annotations: the program writes its own communication, by types or manual regions; nothing is left "
      "to annotate; compile it as it is");
  static_assert(
      MostPlans >= 1 && MostPlans <= most_static_plans,
      "gspmd: search_annotations: the compiler makes 1 to 32 plans; search at run time, by dynamic::find_annotations or "
      "gspmd-plan --search, and write the lines that it prints");
  static_assert(nodes <= most_searched_nodes && inputs <= most_searched_inputs,
                "gspmd: search_annotations: the program has more than 128 operators or 16 inputs; search at run time, by "
                "dynamic::find_annotations or gspmd-plan --search, and write the lines that it prints");
  return !is_typed && MostPlans >= 1 && MostPlans <= most_static_plans && nodes <= most_searched_nodes &&
         inputs <= most_searched_inputs;
}

}  // namespace detail

/// Searches annotations for the inputs that have none, at compile time.
///
/// The compiler plans the program at most `MostPlans` times, each time with other annotations. It takes the annotations
/// with the least time of a step, among the plans that fit into the memory of a device. The planner estimates the time
/// on the network of the options, and refuses plans that need more than their memory. `step` is the program compiled
/// with these annotations. The search is that of dynamic::find_annotations (find_annotations.hpp), limited to one mesh
/// and to inputs. With the same number of plans, the starts, the order and the result are the same. Existing
/// annotations do not change. Each plan takes as long as one `compile`.
///
/// **Errors.** Compile error: more than 32 plans, 128 operators or 16 inputs; inputs other than `input`, `record` and
/// `array_of`; a program that writes its own communication. If no plan is found, the errors are those of `compile` for
/// the program without annotations.
/// **Example.**
///
///     using found =
///         search_annotations<20, layer, pod, input<float, shape<4096, 512>>, input<float, shape<512, 2048>>>;
///     using step = found::step;   // compile<layer, pod, input<float, shape<4096, 512>, split<"x", _>>, ...>
///     static_assert(std::is_same_v<found::input<0>, input<float, shape<4096, 512>, split<"x", _>>>);
///     found::text                 // the annotations, and the plans that were compared, a constant
template <std::size_t MostPlans, detail::constant_callable Callable, class Mesh, class... Inputs>
class search_annotations {
  static constexpr std::size_t most_chars = 4096;
  static constexpr auto find() {
    if constexpr (detail::can_be_searched<Callable, Mesh, Inputs...>()) {
      if constexpr (detail::is_small_search<MostPlans, detail::callable_argument<Callable>(), Mesh, Inputs...>())
        return std::type_identity<detail::static_search<MostPlans, detail::callable_argument<Callable>(), Mesh, Inputs...>>{};
      else return std::type_identity<void>{};
    } else {
      return std::type_identity<void>{};
    }
  }
  using search = typename decltype(find())::type;
  template <class... Annotated>
  using list_of = boost::mp11::mp_list<Annotated...>;
  template <class Search>
  static auto inputs_of() {
    if constexpr (std::is_void_v<Search>) return list_of<Inputs...>{};
    else return typename Search::template with_found<list_of>{};
  }
  using inputs = decltype(inputs_of<search>());
  template <class... Annotated>
  using compiled = compile<Callable, Mesh, Annotated...>;

  /// The text is computed in a single evaluation, because each evaluation is a search. First it is in an array of
  /// most_chars characters, then in an array of its own size.
  struct room {
    std::array<char, most_chars> chars{};
    std::size_t count = 0;
  };
  static constexpr room written = [] {
    room r;
    if constexpr (!std::is_void_v<search>) {
      const detail::text t = detail::found_words<search>::make(Mesh::info);
      for (const char c : t.view().substr(0, most_chars)) r.chars[r.count++] = c;
    }
    return r;
  }();
  static constexpr auto chars = [] {
    std::array<char, written.count + 1> copy{};
    for (std::size_t i = 0; i < written.count; ++i) copy[i] = written.chars[i];
    return copy;
  }();

 public:
  /// The arguments of `compile` for the inputs, with the annotations that were found.
  template <std::size_t K>
  using input = boost::mp11::mp_at_c<inputs, K>;
  using step = boost::mp11::mp_apply<compiled, inputs>;

  /// The number of plans that were made.
  static constexpr std::size_t plans = [] {
    if constexpr (std::is_void_v<search>) return std::size_t{0};
    else return search::made;
  }();
  /// True if no change to the annotation of a single input, or to two inputs along one axis, is better. False if the
  /// search ended at `MostPlans`.
  static constexpr bool is_complete = [] {
    if constexpr (std::is_void_v<search>) return false;
    else return search::is_complete;
  }();
  /// The annotations, then the plans that were compared: the time of a step, and the bytes that a device sends and
  /// holds.
  static constexpr std::string_view text{chars.data(), written.count};
};

/// Searches with options: the network and the memory of a device.
template <std::size_t MostPlans, detail::constant_callable Callable, class Mesh, options Options, class... Inputs>
class search_annotations<MostPlans, Callable, Mesh, with<Options>, Inputs...>
    : public search_annotations<MostPlans, Callable, detail::mesh_with<Mesh, Options>, Inputs...> {};

}  // namespace gspmd
