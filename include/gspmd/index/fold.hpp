// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/detail/support/span.hpp"
#include "gspmd/index/detail/fold_op.hpp"
#include "gspmd/index/order.hpp"
#include "gspmd/program/program.hpp"

/// Reductions and running reductions of several tensors together by a custom monoid.
///
/// A monoid is a type with a tuple of element types, an identity, and an associative function `combine`. combine does
/// not have to commute:
///
///     struct mean_and_spread {  // Welford's count, mean, sum of squared deviations
///       using values = std::tuple<double, double, double>;
///       static constexpr values identity() { return {0, 0, 0}; }
///       static constexpr values combine(values a, values b);
///       static constexpr std::array<values, 3> samples();             // optional
///     };
///
/// At compile time the law is checked on `samples()`, or without them on tuples of small numbers. combine(combine(a,
/// b), c) must equal combine(a, combine(b, c)), and combining with identity() must change nothing. Floats may differ
/// by a thousandth.
namespace gspmd {
namespace detail {

template <class T>
constexpr bool nearly_equal(T a, T b) {
  if constexpr (is_float_element<T>) {
    const auto x = static_cast<double>(a), y = static_cast<double>(b);
    if (x == y || (x != x && y != y)) return true;
    const double size = (x < 0 ? -x : x) + (y < 0 ? -y : y), apart = x < y ? y - x : x - y;
    return apart <= 1e-3 * (size > 1 ? size : 1);
  } else {
    return a == b;
  }
}

/// The facts of a monoid: whether its law holds on samples, and the function that processes rows of elements.
template <class M>
struct monoid_of_values {
  using values = typename M::values;
  static constexpr std::size_t count = std::tuple_size_v<values>;
  using indices = std::make_index_sequence<count>;
  static_assert(count >= 1 && count <= static_cast<std::size_t>(max_results), "gspmd: a monoid has one to four elements");

  static constexpr bool are_equal(const values& a, const values& b) {
    return [&]<std::size_t... K>(std::index_sequence<K...>) {
      return (nearly_equal(std::get<K>(a), std::get<K>(b)) && ...);
    }(indices{});
  }
  static constexpr auto samples() {
    if constexpr (requires { M::samples(); }) {
      return M::samples();
    } else {
      constexpr int numbers[] = {1, 0, 3, 2, 1};  // element k of sample i is number i + 2k
      std::array<values, 5> all{};
      for (std::size_t i = 0; i < all.size(); ++i)
        [&]<std::size_t... K>(std::index_sequence<K...>) {
          ((std::get<K>(all[i]) = static_cast<std::tuple_element_t<K, values>>(numbers[(i + 2 * K) % 5])), ...);
        }(indices{});
      return all;
    }
  }
  static constexpr bool has_identity() {
    for (const values& a : samples())
      if (!are_equal(M::combine(a, M::identity()), a) || !are_equal(M::combine(M::identity(), a), a)) return false;
    return true;
  }
  static constexpr bool is_associative() {
    const auto all = samples();
    for (const values& a : all)
      for (const values& b : all)
        for (const values& c : all)
          if (!are_equal(M::combine(M::combine(a, b), c), M::combine(a, M::combine(b, c)))) return false;
    return true;
  }

  template <std::size_t... K>
  static values load(const void* const* from, std::int64_t at, std::index_sequence<K...>) {
    return {static_cast<const std::tuple_element_t<K, values>*>(from[K])[at]...};
  }
  template <std::size_t... K>
  static void store(void* const* to, std::int64_t at, const values& x, std::index_sequence<K...>) {
    ((static_cast<std::tuple_element_t<K, values>*>(to[K])[at] = std::get<K>(x)), ...);
  }
  static void fold(const fold_call& c) {
    const auto combine = [&](const values& before, const values& next) {
      return c.is_reversed ? M::combine(next, before) : M::combine(before, next);
    };
    const auto start = [&](std::int64_t j) { return c.has_start ? load(c.start, j, indices{}) : values(M::identity()); };
    if (c.count == 1) {
      values sum = start(0);
      for (std::int64_t i = 0; i < c.n; ++i) {
        const values next = combine(sum, load(c.in, i * c.step, indices{}));
        if (c.is_scan) store(c.out, i * c.step, c.is_exclusive ? sum : next, indices{});
        sum = next;
      }
      if (!c.is_scan) store(c.out, 0, sum, indices{});
      return;
    }
    const std::int64_t step = c.is_scan ? c.step : 0;  // of the result, from one row to the next
    if (!c.is_scan || (c.is_exclusive && c.n > 0))
      for (std::int64_t j = 0; j < c.count; ++j) store(c.out, j, start(j), indices{});
    for (std::int64_t i = 0; i < (c.is_scan && c.is_exclusive ? c.n - 1 : c.n); ++i)
      for (std::int64_t j = 0; j < c.count; ++j) {
        const bool is_first = c.is_scan && !c.is_exclusive && i == 0;
        const std::int64_t last = c.is_scan && !c.is_exclusive ? (i - 1) * step : i * step,
                           to = c.is_exclusive ? (i + 1) * step : i * step;
        store(c.out, to + j,
              combine(is_first ? start(j) : load(c.out, last + j, indices{}), load(c.in, i * c.step + j, indices{})), indices{});
      }
  }
  static constexpr local_function function = [] {
    local_function f;
    f.fold = &fold;
    return f;
  }();
};

/// Reports the first broken law of a monoid.
template <class M>
constexpr bool is_checked_monoid() {
  static_assert(
      monoid_of_values<M>::has_identity(),
      "gspmd: reduce_by: combine(x, identity()) or combine(identity(), x) is not x for a sample of this monoid; correct "
      "identity(), or state samples() that occur");
  static_assert(
      !monoid_of_values<M>::has_identity() || monoid_of_values<M>::is_associative(),
      "gspmd: reduce_by: combine(combine(a, b), c) is not combine(a, combine(b, c)) for samples of this monoid: parts of a "
      "dim cannot be reduced apart; correct combine, or state samples() that occur");
  return true;
}

/// Adds the operator that reduces `tensors` together by a monoid of elements of these types. Returns -1 if it is
/// refused. Sets `how`.
template <class Op>
constexpr int add_checked_fold(detail::span<const value> tensors, detail::span<const dtype> types, const local_function& monoid,
                               int dim, scan_options options, const char* op, location at, fold_spec& how) {
  for (const value t : tensors)
    if (!t.is_valid()) return -1;
  auto& g = *tensors[0].graph();
  const extents shape(tensors[0].shape());
  const int d = counted_dim(dim, shape.count);
  if (d < 0 || d >= shape.count)
    return g.fail(at, op, mistake::dim, text("dim ") << dim << " is not a dim of " << shape_text(shape) << "; dims count from 0");
  vec<int> ids;
  for (const value t : tensors) ids.push_back(t.id());
  if (!g.may_read({ids.data(), ids.size()}, at, op)) return -1;
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    if (!(extents(tensors[k].shape()) == shape))
      return g.fail(at, op, mistake::extent,
                    text("the tensors have the shapes ")
                        << shape_text(shape) << " and " << shape_text(tensors[k].shape())
                        << "; tensors that are reduced together have one shape; use broadcast_to");
    if (tensors[k].type() != types[k])
      return g.fail(at, op, mistake::type,
                    text("tensor ") << static_cast<std::int64_t>(k) << " is " << name_of(tensors[k].type()) << " and element "
                                    << static_cast<std::int64_t>(k) << " of the monoid is " << name_of(types[k])
                                    << "; convert it");
  }
  how = {static_cast<std::int8_t>(d), std::is_same_v<Op, scan_by_op>, options.exclusive, options.reverse};
  return add_fold<Op>(g, ids, monoid, how, at);
}

template <class M, class Op, std::size_t N>
constexpr std::array<value, N> folded(const value (&tensors)[N], int dim, scan_options options, const char* op, location at) {
  using monoid = monoid_of_values<M>;
  static_assert(N == monoid::count, "gspmd: reduce_by: the number of tensors must be the number of elements of the monoid");
  std::array<value, N> all{};
  if constexpr (is_checked_monoid<M>() && N == monoid::count) {
    for (const value t : tensors)
      if (!t.is_valid()) return all;
    constexpr auto types = []<std::size_t... K>(std::index_sequence<K...>) {
      return std::array{dtype_of<std::tuple_element_t<K, typename monoid::values>>()...};
    }(typename monoid::indices{});
    fold_spec how{0, std::is_same_v<Op, scan_by_op>, options.exclusive, options.reverse};
    const int id = add_checked_fold<Op>(tensors, types, monoid::function, dim, options, op, at, how);
    const extents shape = shape_of_fold(extents(tensors[0].shape()), how);
    for (std::size_t k = 0; k < N; ++k)
      all[k] = made(*tensors[0].graph(), id < 0 ? -1 : id + static_cast<int>(k), types[k], shape);
  }
  return all;
}

}  // namespace detail

/// Returns the reductions of tensors of one shape by a custom monoid along `dim`: combine of all elements in the order
/// of their indices. No gradient.
///
/// **Shapes.** The other dims are parallel: shards give shards.
/// **Communication.** If `dim` is split, every device reduces its part. An all_gather for each tensor sends the
/// results to all devices: with n parts a device sends n - 1 elements for every line. Each device combines them in the
/// order of the parts, so the result is whole on these devices.
/// **Errors.** Different shapes, types that differ from the monoid's, a dim that does not exist. A monoid that breaks
/// the law does not compile.
/// **Example.**
///     auto [count, mean, squares] = reduce_by<mean_and_spread>({ones, x, zeros}, 0);
template <class M, std::size_t N>
constexpr std::array<value, N> reduce_by(const value (&tensors)[N], int dim, location at = location::current()) {
  return detail::folded<M, detail::reduce_by_op>(tensors, dim, {}, "reduce_by", at);
}

/// Returns the running reductions by a custom monoid along `dim`; see scan_along and scan_options in order.hpp.
///
/// **Example.**
///     auto [a, b] = scan_by<affine_maps>({factors, offsets}, 0);  // x[i] = a[i] x[i-1] + b[i], for all i in parallel
template <class M, std::size_t N>
constexpr std::array<value, N> scan_by(const value (&tensors)[N], int dim, scan_options options = {},
                                       location at = location::current()) {
  return detail::folded<M, detail::scan_by_op>(tensors, dim, options, "scan_by", at);
}

}  // namespace gspmd
