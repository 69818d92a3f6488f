// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/detail/ops/elementwise_node.hpp"
#include "gspmd/detail/ops/regions.hpp"
#include "gspmd/detail/ops/rows.hpp"
#include "gspmd/detail/support/callable.hpp"
#include "gspmd/program.hpp"
#include "gspmd/tree.hpp"

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
/// What a conditional asks, likewise.
struct condition {
  value pred;
  location at;
  constexpr condition(value v, location where = location::current()) : pred(v), at(where) {}  // NOLINT: implicit on purpose
};

/// The program that all leaves belong to; null if one of them was refused.
template <class... Trees>
constexpr graph* graph_of(const Trees&... trees) {
  graph* g = nullptr;
  bool valid = true;
  const auto look = [&](const value& v) {
    valid = valid && v.is_valid();
    g = v.graph();
  };
  (for_each_leaf(trees, look), ...);
  return valid ? g : nullptr;
}
template <class Tree>
inline constexpr bool is_values = is_tree_of<Tree, value>();

/// What a refused loop gives: what is carried, as it came, and a value for what is none.
template <class Tree>
constexpr auto unlooped_part(const Tree& tree) {
  if constexpr (is_values<Tree>) {
    for_each_leaf(tree, [](const value& v) { v.note_refused(); });
    return tree;
  } else {
    return value(nullptr, reported_id);
  }
}
template <class... Trees>
constexpr auto unlooped(const Trees&... trees) {
  std::tuple<decltype(unlooped_part(trees))...> result{unlooped_part(trees)...};
  if constexpr (sizeof...(Trees) == 1) return std::get<0>(result);
  else return result;
}
/// `next` is what a body returns for what is carried.
template <class Next, class... Carry>
inline constexpr bool is_carried =
    std::is_same_v<Next, std::tuple<Carry...>> || std::is_same_v<std::tuple<Next>, std::tuple<Carry...>>;
template <class Tree>
constexpr std::vector<value> leaves_of(const Tree& tree) {
  std::vector<value> list;
  for_each_leaf(tree, [&list](const value& v) { list.push_back(v); });
  return list;
}

/// Refuses what a body returns where it is not like `wanted`.
constexpr bool check_body(graph& g, const char* op, location at, const std::vector<value>& wanted,
                          const std::vector<value>& given, const char* what) {
  for (std::size_t k = 0; k < given.size() && !g.failed(); ++k) {
    const value& a = wanted[k];
    const value& b = given[k];
    if (!b.is_valid() || b.graph() != &g || !g.is_visible(b.id()))
      g.fail(at, op, mistake::region,
             text("result ") << static_cast<int>(k) << " of the body is no value of this program that the body may use");
    else if (a.type() != b.type() || !(a.shape() == b.shape()))
      g.fail(at, op, mistake::region,
             text("result ") << static_cast<int>(k) << " of the body is " << name_of(b.type()) << shape_text(b.shape()) << " and "
                             << what << " is " << name_of(a.type()) << shape_text(a.shape())
                             << "; they must have one type and shape");
  }
  return !g.failed();
}

/// A loop under construction: one is made, its body is traced, and it is closed.
struct open_body {
  graph& g;
  int loop;
  const char* name;
  location at;

  template <class Tree>
  constexpr Tree carry(Tree tree) const {
    for_each_leaf(tree, [this](value& v) { v = {&g, add_carry(g, v.id(), at)}; });
    return tree;
  }
  /// The values after the loop of what was carried, given what the body returns for it.
  template <class Tree>
  constexpr Tree close(const Tree& carried, const Tree& next) const {
    const auto from = leaves_of(carried);
    const auto to = leaves_of(next);
    Tree results = carried;
    const bool fits = check_body(g, name, at, from, to, "the carried value");
    std::size_t k = 0;
    for_each_leaf(results, [&](value& v) {
      if (fits) v = {&g, add_loop_result(g, from[k].id(), to[k].id(), at)};
      ++k;
    });
    return results;
  }
};

/// A tuple of what is carried on and of a row.
template <class Result, class Carry>
inline constexpr bool is_scan_result = false;
template <class Carry, class Row>
inline constexpr bool is_scan_result<std::tuple<Carry, Row>, Carry> = is_values<Row>;
template <class Carry, class Row>
inline constexpr bool is_scan_result<std::pair<Carry, Row>, Carry> = is_values<Row>;

/// A value with an extent in front, as the refused rows of a loop are stacked; without dim 0, as a row is.
constexpr value stacked_stand_in(value row, std::int64_t rows) {
  extents shape = row.shape();
  if (shape.count < max_rank) shape.insert(0, rows);
  return row.is_valid() ? value(row.graph(), row.graph()->add_stand_in(row.type(), shape)) : row;
}
constexpr value row_stand_in(value x) {
  extents shape;
  for (int d = 1; d < x.rank(); ++d) shape.push_back(x.shape()[d]);
  return x.is_valid() ? value(x.graph(), x.graph()->add_stand_in(x.type(), shape)) : x;
}

template <class Body, class Carry, class Xs>
constexpr auto scan_rows(Body& body, const Carry& init, const Xs& xs, location at) {
  using row_type = std::tuple_element_t<1, typename call_with<Body&, const Carry&, const Xs&>::result>;
  using result_type = std::tuple<Carry, row_type>;
  graph* g = graph_of(init, xs);
  const auto rows_of = leaves_of(xs);
  std::int64_t trips = 0;
  bool fits = g != nullptr;
  if (fits) {
    for (const auto& x : rows_of) {
      fits = fits && x.rank() > 0 && rows_of[0].rank() > 0 && x.shape()[0] == rows_of[0].shape()[0];
      if (!fits)
        g->fail(at, "scan", mistake::region,
                text("goes over the rows of ") << shape_text(rows_of[0].shape()) << " and " << shape_text(x.shape())
                                               << "; all must have dim 0, and it must be equal");
    }
    if (fits) trips = rows_of[0].shape()[0];
  }
  const int loop = fits ? open_loop(*g, trips, at) : -1;
  Xs row = xs;
  if (loop < 0) {
    if (g != nullptr) for_each_leaf(row, [](value& v) { v = row_stand_in(v); });
    auto [last, stacked] = body(init, std::as_const(row));
    if (g != nullptr) for_each_leaf(stacked, [&](value& v) { v = stacked_stand_in(v, trips); });
    return result_type{last, stacked};
  }
  const open_body open{*g, loop, "scan", at};
  const Carry carried = open.carry(init);
  for_each_leaf(row, [&](value& v) { v = {g, add_dynamic_index(*g, v.id(), loop, at)}; });
  const result_type next = body(std::as_const(carried), std::as_const(row));
  Carry last = open.close(carried, std::get<0>(next));
  row_type stacked = std::get<1>(next);
  const int outside = g->nodes[static_cast<std::size_t>(loop)].region;
  for_each_leaf(stacked, [&](value& v) {
    if (!check_body(*g, "scan", at, {v}, {v}, "the row")) {
      v = stacked_stand_in(v, trips);
      return;
    }
    extents shape = v.shape();
    if (shape.count == max_rank) {
      g->fail(at, "scan", mistake::rank, "stacks rows of 32 dims along a new one; a tensor has at most 32");
      return;
    }
    shape.insert(0, trips);
    int buffer = -1;
    {
      const region_scope before(*g, outside);
      buffer = add_constant(*g, v.type(), shape, 0, 0, at);
    }
    const int held = add_carry(*g, buffer, at);
    v = {g, add_loop_result(*g, held, add_dynamic_update<set_row_op>(*g, held, v.id(), loop, at), at)};
  });
  g->open_region = outside;
  return result_type{last, stacked};
}

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
    else if (first[k].is_valid()) v = {g, g->add_stand_in(first[k].type(), first[k].shape())};
    ++k;
  });
  return result;
}

/// Body K where the index is at most K, else one of those behind it.
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
    const int is_own = add_elementwise(g, opcode::compare_le, {index.id(), number}, at);
    return branches(condition(made(g, is_own, dtype::pred, index.shape()), at), own, others, arguments...);
  }
}

}  // namespace detail

/// Runs `body` a fixed number of times: body(i, carried...) is traced once and returns what the next iteration finds,
/// one value or struct, or a tuple of as many as are carried; types and shapes stay. `i` is one s64, 0 to n - 1. Values from
/// outside may be used in the body. Returns what is carried after the last iteration; with n = 0 that is `init`.
///
/// A carried value keeps one sharding: completion goes round the loop to a fixed point, and annotations in front of the loop,
/// in the body and behind it count alike. What the body needs resharded from outside is resharded once, before the loop. A
/// collective in the body is listed once and counts n times in the bytes. A value that the body only adds to, and that begins as a
/// constant 0 (zeros_like), stays partial with what is added: gradients of several batches are added up in one all_reduce. grad works through it: what is carried is stored for
/// every iteration, and the body is computed again on the way back. Errors: a body that returns other types or shapes.
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
/// fields that it carries have one shape, and one sharding, that of the plain loop; numbers may be carried too. Trips that are left over go
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

/// The same as fori_loop with a number of trips that the program computes: one integer of rank 0; a negative one is none. As while_loop: the
/// costs are those of one trip, and it has no gradient.
///
///     auto x = fori_loop(count, [&](value i, value x) { return x + einsum<"ab,b->a">(a, x); }, x0);   // count is in<std::int64_t, dims<>>
template <class Body, class... Carry>
  requires(sizeof...(Carry) > 0)
constexpr auto fori_loop(detail::counted_trips n, Body&& body, const Carry&... init) {
  using carried_type = std::tuple<value, Carry...>;
  auto& g = *n.trips.graph();
  const dtype type = n.trips.type();
  const value wide = type == dtype::s64
                         ? n.trips
                         : detail::made(g, detail::add_elementwise(g, detail::opcode::convert, {n.trips.id()}, n.at, dtype::s64),
                                        dtype::s64, n.trips.shape());
  const value zero = detail::made(g, detail::add_constant(g, dtype::s64, {}, 0, 0, n.at), dtype::s64, {});
  const value one = detail::made(g, detail::add_constant(g, dtype::s64, {}, 0, 1, n.at), dtype::s64, {});
  const auto of = [&](detail::opcode op, value a, value b) {
    return detail::made(g, detail::add_elementwise(g, op, {a.id(), b.id()}, n.at),
                        op == detail::opcode::add ? dtype::s64 : dtype::pred, {});
  };
  const carried_type last = while_loop(
      [&](const carried_type& now) { return of(detail::opcode::compare_lt, std::get<0>(now), wide); },
      [&](const carried_type& now) {
        return std::apply(
            [&](const value& i, const auto&... c) {
              return std::tuple_cat(std::tuple<value>(of(detail::opcode::add, i, one)), std::tuple<Carry...>(body(i, c...)));
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

/// Runs `body` over the rows of `xs`: body(carried, x) returns a tuple of what is carried on and of the row of the result
/// that this iteration makes. Returns what is carried at the end, and the rows, stacked along a new dim 0. `xs`, and each of
/// the other two, is a value or a group of values; all values of `xs` have the same extent of dim 0.
///
/// As fori_loop. All devices go through the rows together. An `xs` that is split along dim 0 is resharded once before the loop, by
/// all_to_all, so that it is split along another dim, where that sends less; else it stays where it is, and in every iteration the
/// row of the device that has it is brought to all, by a reduction of one row. It is gathered where a `reshard` before the scan
/// or allow_replication says so. Stacked rows that are wanted split along dim 0 are written where they are to lie.
///
///     auto [h, ys] = scan([&](value h, value x) { auto y = tanh(einsum<"bd,de->be">(h, w) + x); return std::tuple{y, y}; }, h0, xs);
template <class Body, class Carry, class Xs>
constexpr auto scan(Body&& body, const Carry& init, const Xs& xs, location at = location::current()) {
  using call = detail::call_with<Body&, const Carry&, const Xs&>;
  if constexpr (!detail::is_values<Carry> || !detail::is_values<Xs>) {
    static_assert(detail::written_so<Body>,
                  "gspmd: scan: what is carried and what the loop goes over are values, or groups of them: scan(body, init, xs)");
    return detail::unlooped(init, xs);
  } else if constexpr (call::refuses) {
    static_assert(detail::written_so<Body>,
                  "gspmd: scan: the body is called as body(carried, x): it takes what is carried, then a row of xs");
    return detail::unlooped(init, xs);
  } else if constexpr (!call::compiles) {
    return detail::unlooped(init, xs);  // a mistake in the body, which the compiler has reported
  } else if constexpr (!detail::is_scan_result<typename call::result, Carry>) {
    static_assert(detail::written_so<Body>,
                  "gspmd: scan: the body must return a tuple of what is carried and of a row of the result");
    return detail::unlooped(init, xs);
  } else {
    return detail::scan_rows(body, init, xs, at);
  }
}

/// Computes one of two bodies: on_true(args...) where `pred`, one bool of rank 0, holds, else on_false(args...). Both
/// return the same types and shapes. Values from outside may be used in the bodies.
///
/// Every device has `pred` whole and takes the same branch, so a branch may communicate. The bytes of a program count the
/// branch that sends more. grad computes the branch that was taken again, and its gradient.
///
///     auto y = cond(sum(x) > 0.0, [](value x) { return x * 2.0; }, [](value x) { return -x; }, x);
template <class OnTrue, class OnFalse, class... Arguments>
constexpr auto cond(detail::condition pred, OnTrue&& on_true, OnFalse&& on_false, const Arguments&... arguments) {
  using on_true_call = detail::call_with<OnTrue&, const Arguments&...>;
  using on_false_call = detail::call_with<OnFalse&, const Arguments&...>;
  if constexpr (on_true_call::refuses || on_false_call::refuses) {
    static_assert(detail::written_so<OnTrue>,
                  "gspmd: cond: both bodies are called as body(arguments...) with the arguments behind them: cond(pred, on_true, "
                  "on_false, arguments...)");
    pred.pred.note_refused();
    return pred.pred;
  } else if constexpr (!on_true_call::compiles || !on_false_call::compiles) {
    pred.pred.note_refused();  // a mistake in a body, which the compiler has reported
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

/// Computes one of several bodies: that of number `index`, an integer of rank 0; below 0 the first one, beyond the end the last one. As cond:
/// bodies are called with `arguments`, a tuple, and return the same types and shapes.
///
///     auto y = switch_(index, std::tuple{[](value x) { return x; }, [](value x) { return -x; }, [](value x) { return x * x; }}, std::tuple{x});
template <class Index, class... Bodies, class... Arguments>
  requires std::same_as<Index, value>
constexpr auto switch_(Index index, std::tuple<Bodies...> bodies, const std::tuple<Arguments...>& arguments,
                       location at = location::current()) {
  return std::apply([&](const auto&... a) { return detail::one_of_bodies<0>(index, bodies, at, a...); }, arguments);
}

}  // namespace gspmd
