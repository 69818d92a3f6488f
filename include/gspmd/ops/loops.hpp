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

/// How often a loop runs, with the line that says so.
struct trip_count {
  std::int64_t trips;
  location at;
  std::int64_t sweeps = 1;  // see ghost
  template <std::integral Number>
  constexpr trip_count(Number n, location where = location::current())  // NOLINT: implicit on purpose
      : trips(static_cast<std::int64_t>(n)), at(where) {}
};

}  // namespace detail

/// Runs `body` a fixed number of times: body(i, carried...) is traced once and returns what the next iteration finds,
/// one value or struct, a std::vector of values, or a tuple of as many as are carried; types and shapes stay. `i` is one s64, 0 to n - 1.
/// Values from outside may be used in the body. Returns what is carried after the last iteration; with n = 0 that is `init`.
///
/// A carried value keeps one sharding: completion goes round the loop to a fixed point, and annotations in front of the loop,
/// in the body and behind it count alike. What the body needs resharded from outside is resharded once, before the loop. A
/// collective in the body is listed once and counts n times in the bytes. A value that the body only adds to, and that begins as a
/// constant 0 (zeros_like), stays partial with what is added: gradients of several batches are added up in one all_reduce. grad works
/// through it: what is carried is stored for every iteration, and the body is computed again on the way back. Errors: a body that returns
/// other types or shapes.
///
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
                  "gspmd: fori_loop: give the values that are carried, or groups of them: fori_loop(n, body, init...); for a "
                  "number write constant<float>(x, {}, number)");
    return detail::unlooped(init...);
  } else if constexpr (call::refuses) {
    static_assert(detail::written_so<Body>,
                  "gspmd: fori_loop: the body is called as body(i, carried...): it takes the index, then one argument for each "
                  "value that is carried");
    return detail::unlooped(init...);
  } else if constexpr (!call::compiles) {
    return detail::unlooped(init...);  // a mistake in the body, which the compiler has reported
  } else if constexpr (!detail::is_carried<typename call::result, Carry...>) {
    static_assert(detail::written_so<Body>,
                  "gspmd: fori_loop: the body must return what is carried, as a tuple if it is several values");
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

/// A body of fori_loop of which several sweeps go on one exchange: see ghost.
template <class Body>
struct ghost_body {
  Body body;
  std::int64_t sweeps;
};

/// The body of a fori_loop over a stencil, of which `sweeps` trips go on one exchange, of so many times the radius (ghost zones, wide
/// halos); or as many as are fastest on the mesh's network, if they are not given. Devices compute in between what their neighbours compute
/// too.
///
///     auto u = fori_loop(100, ghost<4>([](value, value u) { return stencil<1, 1>(laplace, u); }), u0);   // 25 exchanges
///     auto [p, v] = fori_loop(steps, ghost(leapfrog), p0, v0);                                           // by on_network's latency
///
/// Values are those of fori_loop without it, bit for bit. The body consists of stencils, shifts, rolls and elementwise operators; all
/// fields that it carries have one shape, and one sharding, that of the plain loop; numbers may be carried too. In a manual region trips go
/// one by one: there local::halo takes as much as is wanted. Trips that are left over go
/// on an exchange of their own. What is read from outside is exchanged before the loop, once, or twice if trips are left over.
///
/// Communication: for each split dim that is read along, and each field, one collective_permute every `sweeps` trips: two messages of
/// sweeps * radius * s elements, s elements for an index of the dim in a shard with its margins along the split dims before it; less of a
/// field that is not read at offsets itself. Margins may be wider than a shard. On the network that counts where none is named a message
/// costs nothing, and ghost(body) is the plain loop. A round copies each field into blocks, dim by dim, and back. grad goes through the
/// plain loop.
///
/// Errors, at compile time: another operator in the body, a reduction say, or a function of yours (`map`), with its line; complex fields;
/// fields of several shapes or shardings; a number of trips that is computed.
template <int Sweeps, class Body>
  requires(Sweeps >= 1)
constexpr ghost_body<Body> ghost(Body body) {
  return {std::move(body), Sweeps};
}
template <class Body>
constexpr ghost_body<Body> ghost(Body body) {
  return {std::move(body), -1};
}
/// The same with a number that is known at run time; one below 1 is 1.
template <class Body>
constexpr ghost_body<Body> ghost(std::int64_t sweeps, Body body) {
  return {std::move(body), sweeps < 1 ? 1 : sweeps};
}
template <class Body, class... Carry>
constexpr auto fori_loop(detail::trip_count n, ghost_body<Body> body, const Carry&... init) {
  n.sweeps = body.sweeps;
  return fori_loop(n, body.body, init...);
}

/// Runs `body` as long as `condition` holds: condition(carried) gives one bool of rank 0, body(carried) what the next trip finds, of the
/// same types and shapes. `init`, and so what is carried, is a value, or a tuple or struct of values. Returns what is carried when the
/// condition does not hold any more; if it never held, that is `init`. Values from outside may be used in both.
///
/// Every device has the condition whole and stops after the same trip, so both may communicate. What is carried keeps one sharding, as in
/// fori_loop. How many trips there are is known at run time only: bytes, messages, flops and times are those of one trip, with one more
/// evaluation of the condition than there are trips. Errors: a condition that is no bool of rank 0, a body that returns other types or
/// shapes; it has no gradient.
///
///     auto [x, r] = while_loop([](auto carried) { return sum(std::get<1>(carried) * std::get<1>(carried)) > 1e-6; }, step, std::tuple{x0, r0});
template <class Condition, class Body, class Carry>
constexpr Carry while_loop(Condition&& condition, Body&& body, const Carry& init, location at = location::current()) {
  using asked = detail::call_with<Condition&, const Carry&>;
  using call = detail::call_with<Body&, const Carry&>;
  if constexpr (!detail::is_values<Carry> || asked::refuses || call::refuses) {
    static_assert(detail::written_so<Body>,
                  "gspmd: while_loop: both functions are called with what is carried, a value or a group of values: "
                  "while_loop(condition, body, init)");
    return detail::unlooped(init);
  } else if constexpr (!asked::compiles || !call::compiles) {
    return detail::unlooped(init);  // a mistake in a function, which the compiler has reported
  } else if constexpr (!std::is_same_v<typename asked::result, value> || !std::is_same_v<typename call::result, Carry>) {
    static_assert(detail::written_so<Body>,
                  "gspmd: while_loop: the condition returns one value, a bool of rank 0, and the body what is carried");
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
/// A number of trips that is known at run time, with the line that says so.
struct counted_trips {
  value trips;
  location at;
  constexpr counted_trips(value v, location where = location::current()) : trips(v), at(where) {}  // NOLINT: implicit on purpose
};
}  // namespace detail

/// The same as fori_loop with a number of trips that the program computes: one integer of rank 0; a negative one is none. As while_loop:
/// the costs are those of one trip, and it has no gradient.
///
///     auto x = fori_loop(count, [&](value i, value x) { return x + einsum<"ab,b->a">(a, x); }, x0);   // count is in<std::int64_t, dims<>>
template <class Body, class... Carry>
  requires(sizeof...(Carry) > 0)
constexpr auto fori_loop(detail::counted_trips n, Body&& body, const Carry&... init) {
  using carried_type = std::tuple<value, Carry...>;
  auto& g = *n.trips.graph();
  int count = detail::as_index(g, n.trips.id(), n.at);
  if (count >= 0 && g.nodes[static_cast<std::size_t>(count)].type != dtype::s64)
    count = detail::add_elementwise(g, detail::code_of<detail::convert_op>, {count}, n.at, dtype::s64);
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

/// How many sweeps are left over must be known: refused.
template <class Body, class... Carry>
  requires(sizeof...(Carry) > 0)
constexpr auto fori_loop(detail::counted_trips n, ghost_body<Body> body, const Carry&... init) {
  n.trips.graph()->fail(
      n.at, "fori_loop", detail::mistake::region,
      "makes several sweeps on one exchange, ghost, and computes how many trips there are; give a number of trips, or "
      "write the loop without ghost");
  return fori_loop(n, body.body, init...);
}

}  // namespace gspmd
