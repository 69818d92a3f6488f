// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ops/as_index.hpp"
#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/elementwise_node.hpp"
#include "gspmd/detail/ops/regions.hpp"
#include "gspmd/detail/support/callable.hpp"
#include "gspmd/ops/branches.hpp"
#include "gspmd/ops/traced_body.hpp"

namespace gspmd {
namespace detail {

/// The number of iterations of a loop, with the source line of the call.
struct trip_count {
  std::int64_t trips;
  location at;
  std::int64_t sweeps = 1;  // for each exchange (ops/ghost_zones.hpp)
  template <std::integral Number>
  constexpr trip_count(Number n, location where = location::current())  // NOLINT: implicit on purpose
      : trips(static_cast<std::int64_t>(n)), at(where) {}
};

}  // namespace detail

/// Runs `body` n times and returns the carried values after the last iteration; if n is 0, returns `init`. body(i,
/// carried...) is traced once. It returns the carried values of the next iteration: a value, a struct, a std::vector
/// of values, or a tuple with one element for each argument in `init`. Their types and shapes do not change. `i` is an
/// s64 scalar from 0 to n - 1. The body may use values from outside.
///
/// A carried value keeps one sharding. Completion propagates through the loop until no sharding changes. Annotations
/// before the loop, in the body and after the loop have equal weight. A carried value is a sum if it starts as the
/// constant 0 (zeros_like) and the body only adds to it. A sum of partial values stays partial until the loop ends. So
/// the gradients of several batches are reduced by one all_reduce.
///
/// grad stores the carried values of every iteration and recomputes the body in the backward pass.
///
/// **Communication.** If the body requires another sharding of a value from outside, the value is resharded once,
/// before the loop. A collective in the body is listed once and counts n times in the bytes.
/// **Errors.** The body returns other types or shapes.
/// **Example.**
///     auto [h, c] = fori_loop(10, [&](value i, value h, value c) { return std::tuple{tanh(h + x), c + h}; }, h0, c0);
template <class Body, class... Carry>
constexpr auto fori_loop(detail::trip_count n, Body&& body, const Carry&... init) {
  using call = detail::call_with<Body&, value, const Carry&...>;
  if constexpr (std::is_arithmetic_v<std::remove_cvref_t<Body>> && sizeof...(Carry) > 1) {
    static_assert(detail::written_so<Body>,
                  "gspmd: fori_loop: one number, of trips: fori_loop(n, body, init...); the index of the body counts from 0");
    return fori_loop(n, init...);
  } else if constexpr (sizeof...(Carry) == 0 || !(detail::is_values<Carry> && ...)) {
    static_assert(detail::written_so<Body>,
                  "gspmd: fori_loop: pass the carried values, or groups of values: fori_loop(n, body, init...); for a "
                  "number write constant<float>(x, {}, number)");
    return detail::unlooped(init...);
  } else if constexpr (call::refuses) {
    static_assert(detail::written_so<Body>,
                  "gspmd: fori_loop: the body is called as body(i, carried...): it takes the index, then one argument for each "
                  "value that is carried");
    return detail::unlooped(init...);
  } else if constexpr (!call::compiles) {
    return detail::unlooped(init...);  // the compiler has reported the mistake in the body
  } else if constexpr (!detail::is_carried<typename call::result, Carry...>) {
    static_assert(detail::written_so<Body>, "gspmd: fori_loop: the body must return the carried values, several as a tuple");
    return detail::unlooped(init...);
  } else {
    using carried_type = std::tuple<Carry...>;
    const carried_type result = [&]() -> carried_type {
      const carried_type start{init...};
      detail::graph* g = detail::graph_of(init...);
      const int loop = g == nullptr ? -1 : detail::open_loop(*g, n.trips, n.at);
      if (loop < 0) return start;
      if (n.sweeps != 1) detail::set_ghost_sweeps(g->nodes[static_cast<std::size_t>(loop)], n.sweeps);
      const detail::open_body open{*g, loop, "fori_loop", n.at};
      const carried_type carried = open.carry(start);
      const auto next = std::apply([&](const auto&... c) { return body(value(g, loop), c...); }, carried);
      const carried_type results = open.close(carried, carried_type{next});
      g->open_region = g->nodes[static_cast<std::size_t>(loop)].region;
      return results;
    }();
    if constexpr (sizeof...(Carry) == 1) return std::get<0>(result);
    else return result;
  }
}

/// Runs `body` while `condition` holds, and returns the carried values for which it does not hold. condition(carried)
/// returns a bool of rank 0. body(carried) returns the carried values of the next iteration, with the same types and
/// shapes. `init` is a value, or a tuple or struct of values, and is the result if the condition never holds. Both
/// functions may use values from outside. while_loop has no gradient.
///
/// Carried values keep one sharding, as in fori_loop. The number of iterations is known only at run time. So bytes,
/// messages, flops and times count one iteration. The condition is evaluated once more than the body.
///
/// **Communication.** Every device holds the whole condition and stops after the same iteration, so both functions may
/// communicate.
/// **Errors.** The condition is not a bool of rank 0; the body returns other types or shapes.
/// **Example.**
///     auto goes_on = [](auto carried) { return sum(std::get<1>(carried) * std::get<1>(carried)) > 1e-6; };
///     auto [x, r] = while_loop(goes_on, step, std::tuple{x0, r0});
template <class Condition, class Body, class Carry>
constexpr Carry while_loop(Condition&& condition, Body&& body, const Carry& init, location at = location::current()) {
  using asked = detail::call_with<Condition&, const Carry&>;
  using call = detail::call_with<Body&, const Carry&>;
  if constexpr (!detail::is_values<Carry> || asked::refuses || call::refuses) {
    static_assert(detail::written_so<Body>,
                  "gspmd: while_loop: both functions are called with the carried value or group of values: while_loop(condition, "
                  "body, init)");
    return detail::unlooped(init);
  } else if constexpr (!asked::compiles || !call::compiles) {
    return detail::unlooped(init);  // the compiler has reported the mistake in a function
  } else if constexpr (!std::is_same_v<typename asked::result, value> || !std::is_same_v<typename call::result, Carry>) {
    static_assert(detail::written_so<Body>,
                  "gspmd: while_loop: the condition returns one value, a bool of rank 0, and the body the carried values");
    return detail::unlooped(init);
  } else {
    detail::graph* const g = detail::graph_of(init);
    const int loop = g == nullptr ? -1 : detail::open_while(*g, at);
    if (loop < 0) return init;
    const detail::open_body open{*g, loop, "while_loop", at};
    const Carry carried = open.carry(init);
    const value goes_on = condition(carried);
    if (goes_on.is_valid() && (goes_on.type() != dtype::pred || goes_on.rank() != 0))
      g->fail(at, "while_loop", detail::mistake::region,
              detail::text("the condition is ") << detail::name_of(goes_on.type()) << detail::shape_text(goes_on.shape())
                                                << "; it must be one bool, of rank 0: compare, then reduce with and_ or or_");
    auto next = [&](const Carry& now) {
      Carry made = body(now);
      static_cast<void>(
          detail::check_body(*g, "while_loop", at, detail::leaves_of(now), detail::leaves_of(made), "the carried value"));
      return made;
    };
    auto last = [](const Carry& now) { return now; };
    const Carry results = open.close(carried, detail::branches(detail::condition(goes_on, at), next, last, carried));
    g->open_region = g->nodes[static_cast<std::size_t>(loop)].region;
    return results;
  }
}

namespace detail {
/// A number of iterations that the program computes, with the source line of the call.
struct counted_trips {
  value trips;
  location at;
  constexpr counted_trips(value v, location where = location::current()) : trips(v), at(where) {}  // NOLINT: implicit on purpose
};
}  // namespace detail

/// The same as fori_loop with a number of iterations that the program computes: an integer of rank 0. A negative
/// number counts as 0. The costs count one iteration, and there is no gradient, as in while_loop.
///
/// **Example.**
///     // count is input<std::int64_t, shape<>>
///     auto x = fori_loop(count, [&](value i, value x) { return x + einsum<"ab,b->a">(a, x); }, x0);
template <class Body, class... Carry>
  requires(sizeof...(Carry) > 0)
constexpr auto fori_loop(detail::counted_trips n, Body&& body, const Carry&... init) {
  using carried_type = std::tuple<value, Carry...>;
  auto& g = *n.trips.graph();
  int count = detail::as_index(g, n.trips.id(), n.at);
  if (count >= 0 && g.nodes[static_cast<std::size_t>(count)].type != dtype::s64)
    count = detail::add_elementwise(g, detail::code_of<detail::cast_op>, {count}, n.at, dtype::s64);
  const value wide = detail::made(g, count, dtype::s64, n.trips.shape());
  const value zero = detail::made(g, detail::add_constant(g, dtype::s64, {}, 0, 0, n.at), dtype::s64, {});
  const value one = detail::made(g, detail::add_constant(g, dtype::s64, {}, 0, 1, n.at), dtype::s64, {});
  const auto of = [&](const detail::operator_code& op, value a, value b) {
    return detail::made(g, detail::add_elementwise(g, op, {a.id(), b.id()}, n.at),
                        op == detail::code_of<detail::add_op> ? dtype::s64 : dtype::pred, {});
  };
  const carried_type last =
      while_loop([&](const carried_type& now) { return of(detail::code_of<detail::compare_lt_op>, std::get<0>(now), wide); },
                 [&](const carried_type& now) {
                   return std::apply(
                       [&](const value& i, const auto&... c) {
                         return std::tuple_cat(std::tuple<value>(of(detail::code_of<detail::add_op>, i, one)),
                                               std::tuple<Carry...>(body(i, c...)));
                       },
                       now);
                 },
                 carried_type(zero, init...), n.at);
  if constexpr (sizeof...(Carry) == 1) return std::get<1>(last);
  else return std::apply([](const value&, const auto&... c) { return std::tuple<Carry...>(c...); }, last);
}

}  // namespace gspmd
