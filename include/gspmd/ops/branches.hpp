// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/elementwise_node.hpp"
#include "gspmd/detail/support/callable.hpp"
#include "gspmd/ops/traced_body.hpp"

namespace gspmd {
namespace detail {

/// The predicate of a conditional, with the source line of the call.
struct condition {
  value pred;
  location at;
  constexpr condition(value v, location where = location::current()) : pred(v), at(where) {}  // NOLINT: implicit on purpose
};

/// Traces both bodies as the branches of a conditional, and returns one result for each value that they return. For
/// f(x) = 2 x, g(x) = -x and x = 3: 6 if `pred` holds, otherwise -3.
template <class OnTrue, class OnFalse, class... Arguments>
constexpr auto branches(const condition& pred, OnTrue& on_true, OnFalse& on_false, const Arguments&... arguments) {
  using result_type = typename call_with<OnTrue&, const Arguments&...>::result;
  graph* g = graph_of(pred.pred, arguments...);
  const int branch = g == nullptr ? -1 : open_branch(*g, pred.pred.id(), pred.at);
  if (branch < 0) return result_type(on_true(arguments...));
  const result_type a = on_true(arguments...);
  const auto first = leaves_of(a);
  const bool is_first_valid = check_body(*g, "cond", pred.at, first, first, "");
  const int otherwise = open_otherwise(*g, branch, pred.at);
  result_type result = on_false(arguments...);
  const auto second = leaves_of(result);
  const bool fits = is_first_valid && check_body(*g, "cond", pred.at, first, second, "that of the other body");
  g->open_region = g->nodes[static_cast<std::size_t>(branch)].region;
  std::size_t k = 0;
  for_each_leaf(result, [&](value& v) {
    if (fits) v = {g, add_cond_result(*g, otherwise, first[k].id(), second[k].id(), pred.at)};
    else if (k < first.size() && first[k].is_valid()) v = {g, g->add_stand_in(first[k].type(), first[k].shape())};
    ++k;
  });
  return result;
}

/// Traces a chain of conditionals: body K runs if the index is at most K, otherwise one of the bodies after K runs.
template <std::size_t K, class... Bodies, class... Arguments>
constexpr auto one_of_bodies(value index, std::tuple<Bodies...>& bodies, location at, const Arguments&... arguments) {
  auto& own = std::get<K>(bodies);
  if constexpr (K + 1 == sizeof...(Bodies)) {
    return own(arguments...);
  } else {
    auto others = [&](const Arguments&... a) { return one_of_bodies<K + 1>(index, bodies, at, a...); };
    if (!index.is_valid()) return own(arguments...);
    auto& g = *index.graph();
    const int number = add_constant(g, index.type(), index.shape(), static_cast<double>(K), static_cast<std::int64_t>(K), at);
    const int is_own = add_elementwise(g, code_of<compare_le_op>, {index.id(), number}, at);
    return branches(condition(made(g, is_own, dtype::pred, index.shape()), at), own, others, arguments...);
  }
}

}  // namespace detail

/// Runs one of two bodies: on_true(args...) if `pred` holds, otherwise on_false(args...). Both bodies return the same
/// types and shapes. A body may use values from outside. The gradient recomputes the branch that was taken.
///
/// **Communication.** Every device holds the whole `pred` and takes the same branch, so a branch may communicate. The
/// bytes of a program count the branch that sends more.
/// **Errors.** `pred` is not a bool of rank 0; the bodies return different types or shapes.
/// **Example.**
///     auto y = cond(sum(x) > 0.0, [](value x) { return x * 2.0; }, [](value x) { return -x; }, x);
template <class OnTrue, class OnFalse, class... Arguments>
constexpr auto cond(detail::condition pred, OnTrue&& on_true, OnFalse&& on_false, const Arguments&... arguments) {
  using on_true_call = detail::call_with<OnTrue&, const Arguments&...>;
  using on_false_call = detail::call_with<OnFalse&, const Arguments&...>;
  if constexpr (on_true_call::refuses || on_false_call::refuses) {
    static_assert(
        detail::written_so<OnTrue>,
        "gspmd: cond: both bodies are called as body(arguments...) with the arguments after the bodies: cond(pred, on_true, "
        "on_false, arguments...)");
    pred.pred.note_refused();
    return pred.pred;
  } else if constexpr (!on_true_call::compiles || !on_false_call::compiles) {
    pred.pred.note_refused();  // the compiler has reported the mistake in a body
    return pred.pred;
  } else if constexpr (!detail::is_values<typename on_true_call::result> ||
                       !std::is_same_v<typename on_true_call::result, typename on_false_call::result>) {
    static_assert(detail::written_so<OnTrue>,
                  "gspmd: cond: both bodies must return the same types: a value, a tuple or a struct of values");
    pred.pred.note_refused();
    return pred.pred;
  } else {
    return detail::branches(pred, on_true, on_false, arguments...);
  }
}

/// Runs body number `index`, an integer of rank 0. An index below 0 runs the first body; an index after the end runs
/// the last body. Each body gets the elements of the tuple `arguments` and follows the rules of cond.
///
/// **Example.**
///     auto bodies = std::tuple{[](value x) { return x; }, [](value x) { return -x; }, [](value x) { return x * x; }};
///     auto y = switch_(index, bodies, std::tuple{x});
template <class Index, class... Bodies, class... Arguments>
  requires std::same_as<Index, value>
constexpr auto switch_(Index index, std::tuple<Bodies...> bodies, const std::tuple<Arguments...>& arguments,
                       location at = location::current()) {
  return std::apply([&](const auto&... a) { return detail::one_of_bodies<0>(index, bodies, at, a...); }, arguments);
}

}  // namespace gspmd
