// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include "gspmd/detail/ops/as_index.hpp"
#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/detail/ops/reduce.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/ops/composite.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/integers.hpp"
#include "gspmd/ops/shape.hpp"

namespace gspmd {
namespace detail {

/// The dims that an operator works on: one dim, or a list. `{}` means all dims. An empty list that is known only at
/// run time means no dim.
class dim_list {
 public:
  constexpr dim_list() = default;
  constexpr dim_list(std::initializer_list<std::int64_t> list) : dims_(list), all_(list.size() == 0) {}  // NOLINT: on purpose
  constexpr dim_list(int dim) : single_(dim), is_single_(true), all_(false) {}                           // NOLINT: on purpose
  template <class List>
    requires std::convertible_to<const List&, detail::span<const std::int64_t>>
  constexpr dim_list(const List& list) : dims_(list), all_(false) {}  // NOLINT: on purpose

  [[nodiscard]] constexpr int count() const { return is_single_ ? 1 : static_cast<int>(dims_.size()); }
  [[nodiscard]] constexpr dim_mask mask(int rank) const {
    if (is_single_) return bit(single_, rank);
    dim_mask found = all_ ? dim_bit(rank) - 1 : 0;
    for (const auto d : dims_) found |= bit(d, rank);
    return found;
  }

 private:
  static constexpr dim_mask bit(std::int64_t dim, int rank) {
    const int d = counted_dim(dim, rank);
    return d < 0 || d >= rank ? dim_bit(63) : dim_bit(d);
  }

  integers dims_;
  std::int64_t single_ = 0;
  bool is_single_ = false;
  bool all_ = true;
};

/// The dims of an operator that also takes a number: `along(0)`, or a list. `{}` means all dims.
class listed_dims : public dim_list {
 public:
  constexpr listed_dims() = default;
  explicit constexpr listed_dims(const dim_list& dims) : dim_list(dims) {}
  constexpr listed_dims(std::initializer_list<std::int64_t> list) : dim_list(list) {}  // NOLINT: on purpose
  constexpr listed_dims(along dim) : dim_list(counted_dim(dim, 0)) {}                  // NOLINT: on purpose
  template <std::integral Plain>
  constexpr listed_dims(Plain d) noexcept(reports_plain_dim<Plain>()) : dim_list(static_cast<int>(d)) {}  // NOLINT: on purpose
  template <class List>
    requires std::convertible_to<const List&, detail::span<const std::int64_t>>
  constexpr listed_dims(const List& list) : dim_list(list) {}  // NOLINT: on purpose
};

/// Restores the reduced dims of a tensor, with extent 1.
constexpr value keep_dims(value reduced, value original, dim_mask dims, location at) {
  if (!reduced.is_valid() || !original.is_valid()) return {};
  extents shape = original.shape();
  for (int d = 0; d < shape.count; ++d)
    if ((dims & dim_bit(d)) != 0) shape[d] = 1;
  return made(*reduced.graph(), add_reshape(*reduced.graph(), reduced.id(), shape, at), reduced.type(), shape);
}

}  // namespace detail

/// Reduces the dims in `dims` (default: all) by a monoid. The other dims keep their order. Padding does not take part.
///
/// **Communication.** If a reduced dim is split, the result is partial. An all_reduce or reduce_scatter follows if a
/// user of the result requires the whole value.
/// **Example.**
///     reduce(x, monoid::max, {0, 1})      reduce(x, monoid::max, -1)   // the last dim
constexpr value reduce(value x, monoid kind, detail::dim_list dims = {}, location at = location::current()) {
  if (!x.is_valid()) return {};
  const auto mask = dims.mask(x.rank());
  const int id = detail::add_reduce(*x.graph(), x.id(), mask, kind, at);
  if (id >= 0) return {x.graph(), id};
  detail::extents left;
  for (int d = 0; d < x.rank(); ++d)
    if ((mask & detail::dim_bit(d)) == 0) left.push_back(x.shape()[d]);
  while (left.count > 0 && left.count > x.rank() - dims.count()) left.pop_back();  // for a dim that does not exist
  return detail::made(*x.graph(), id, x.type(), left);
}

/// Returns the sum over `dims` (default: all). Each device adds up bf16 or f16 as float and rounds its sum to the type
/// of x. Use `sum(cast<float>(x))` to round nowhere and to add the sums of the devices as float. The conversion
/// stores no float copy of x.
constexpr value sum(value x, detail::dim_list dims = {}, location at = location::current()) {
  return reduce(x, monoid::add, dims, at);
}

/// Returns the mean over `dims` (default: all): the sum divided by the number of elements. The mean over no elements
/// is NaN. The mean of integers and bool is double, as in NumPy. The mean of bf16 and f16 is computed as float and
/// rounded once (ops/composite.hpp).
///
/// In a manual region this is the mean of the elements of the device. If the type states that the device has only a
/// part of a dim in `dims`, the call is refused. Write mean(local::to_varying<Axes, state::varying>(x)) for the mean
/// of the part.
///
/// **Communication.** If a dim in `dims` is split, one all_reduce or reduce_scatter, of floats also for bf16 and f16.
/// In the explicit mode the result is a partial value of the type of x, which you reduce.
/// **Example.** mean(losses)        mean(x, {0, 1})
constexpr value mean(value x, detail::dim_list dims = {}, location at = location::current()) {
  const detail::one_call call(x.graph(), "mean", {x.id()});
  x = detail::double_of_integers(x, at);
  double count = 1;
  const auto mask = dims.mask(x.rank());
  for (int d = 0; d < x.rank(); ++d)
    if ((mask & detail::dim_bit(d)) != 0) count *= static_cast<double>(x.shape()[d]);
  return detail::rounded_once(
      at, [&](value wide) { return operand(sum(wide, dims, at), at) / operand(count, at); }, x);
}

/// Returns the p-norm over `dims`: the p-th root of the sum of |x|^p, or the largest |x| if p is infinity. `{}` means
/// all dims. The norm of integers and bool is double, as in NumPy. Norms of bf16 and f16 are computed as float and
/// rounded once (ops/composite.hpp). Powers are not scaled: the square of a float above 1.8e19 is infinite.
///
/// **Communication.** If a dim in `dims` is split, one all_reduce or reduce_scatter before the root, of floats also
/// for bf16 and f16.
/// **Errors.** p < 1.
/// **Example.** norm(x, 1, along(-1))        norm(x, 3, {0, 1})
constexpr value norm(value x, double p, detail::listed_dims dims, location at = location::current()) {
  if (!x.is_valid()) return {};
  const detail::one_call call(x.graph(), "norm", {x.id()});
  x = detail::double_of_integers(x, at);
  if (!(p >= 1)) {
    x.graph()->fail(at, "norm", detail::mistake::number,
                    detail::text("p is less than 1; norms are those of p from 1 to infinity"));
    return sum(x, dims, at);
  }
  if (p == std::numeric_limits<double>::infinity()) return reduce(abs(x, at), monoid::max, dims, at);  // a maximum is exact
  return detail::rounded_once(
      at,
      [&](value wide) {
        if (p == 1) return sum(abs(wide, at), dims, at);
        if (p == 2) return sqrt(sum(operand(wide, at) * operand(wide, at), dims, at), at);
        const value powers = pow(operand(abs(wide, at), at), operand(p, at));
        return pow(operand(sum(powers, dims, at), at), operand(1 / p, at));
      },
      x);
}
/// The same with p = 2. `dims` is one dim or a list, by default all dims.
///
/// **Example.** norm(gradient)        norm(x, 0)
constexpr value norm(value x, detail::dim_list dims = {}, location at = location::current()) {
  return norm(x, 2, detail::listed_dims(dims), at);
}

namespace detail {

/// Returns `of_shifted` of x - max(x) along `dim`. of_shifted also gets a function that sums along `dim` and keeps the
/// dim.
template <class F>
constexpr value softmax_by(value x, int dim, location at, F of_shifted) {
  const auto mask = dim_list(dim).mask(x.rank());
  const auto keep = [&](value reduced) { return keep_dims(reduced, x, mask, at); };
  return rounded_once(
      at,
      [&](value wide, value largest) {
        return of_shifted(operand(wide, at) - operand(largest, at),
                          [&](value terms) { return operand(keep(sum(terms, dim, at)), at); });
      },
      x, keep(reduce(x, monoid::max, dim, at)));
}

}  // namespace detail

/// Returns exp(x) / sum(exp(x)) along `dim`, computed from x - max(x). The softmax of bf16 and f16 is computed as
/// float and rounded once (ops/composite.hpp). Its gradient is computed as float from the rounded result.
///
/// **Communication.** If `dim` is split: an all_reduce of the maxima, in the type of x, and an all_reduce of the sums,
/// which are floats.
constexpr value softmax(value x, int dim, location at = location::current()) {
  const detail::one_call call(x.graph(), "softmax", {x.id()});
  return detail::softmax_by(x, dim, at, [at](value shifted, auto sum_of) {
    const value e = exp(shifted, at);
    return operand(e, at) / sum_of(e);
  });
}

/// Returns x - log(sum(exp(x))) along `dim`, computed from x - max(x). Types and communication are those of softmax.
constexpr value log_softmax(value x, int dim, location at = location::current()) {
  const detail::one_call call(x.graph(), "log_softmax", {x.id()});
  return detail::softmax_by(x, dim, at, [at](value shifted, auto sum_of) {
    const operand total = sum_of(exp(shifted, at));
    return operand(shifted, at) - operand(log(total.tensor(), at), at);
  });
}

template <detail::traced A>
constexpr auto softmax(const A& x) {
  static_assert(detail::written_so<A>, "gspmd: softmax needs a dim; pass it: softmax(x, -1) is along the last one");
  return detail::refused_call(x, x);
}
template <detail::traced A>
constexpr auto log_softmax(const A& x) {
  static_assert(detail::written_so<A>, "gspmd: log_softmax needs a dim; pass it: log_softmax(x, -1) is along the last one");
  return detail::refused_call(x, x);
}

/// Adds a last dim of extent `n` that is 1 at the index in `labels` (integers) and 0 elsewhere. A label outside of 0
/// to n - 1 gives zeros.
///
/// **Example.**
///     one_hot<float>(labels, 10)
template <class T = void>
constexpr value one_hot(value labels, std::int64_t n, location at = location::current()) {
  if constexpr (std::is_void_v<T>) {
    static_assert(detail::written_so<T>, "gspmd: one_hot: name the element type: one_hot<float>(labels, n)");
    labels.note_refused();
    return one_hot<float>(labels, n, at);
  } else {
    if (!labels.is_valid()) return {};
    const detail::one_call call(labels.graph(), "one_hot", {labels.id()});
    auto& g = *labels.graph();
    detail::extents shape = labels.shape();
    if (!detail::has_room_for_dims(g, static_cast<std::size_t>(shape.count) + 1, "one_hot", at))
      return detail::made(g, -1, detail::dtype_of<T>(), shape);
    detail::inline_vec<std::int8_t, detail::max_rank> dims;
    for (int d = 0; d < shape.count; ++d) dims.push_back(static_cast<std::int8_t>(d));
    shape.push_back(n);
    if (detail::may_be_index(labels.type()) && n - 1 > detail::facts_of(labels.type()).most)
      labels = detail::made(detail::as_index(g, labels.id(), at), labels);
    const value spread = detail::made(g, detail::add_broadcast(g, labels.id(), shape, dims, at), labels.type(), shape);
    const value index = detail::made(g, detail::add_iota(g, labels.type(), shape, shape.count - 1, at), labels.type(), shape);
    return cast<T>(equal(operand(spread, at), operand(index, at)), at);
  }
}

}  // namespace gspmd
