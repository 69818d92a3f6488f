// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/vec.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/shape.hpp"

namespace gspmd {

/// A tensor that a stencil reads, with its boundaries: zero, or `by_dim`, with one entry for all dims or one for each
/// dim.
///
/// **Example.**
///     // repeats its outermost elements
///     stencil_field(u, {boundary::edge()})
///     stencil_field(u, {{boundary::constant(1), boundary::zero()}, boundary::wrap()})  // by dim
class stencil_field {
 public:
  constexpr stencil_field(value x, location where = location::current())  // NOLINT: implicit on purpose
      : at(where), tensor_(x) {
    sides_.push_back(boundary::zero());
  }
  constexpr stencil_field(value x, std::initializer_list<boundary::sides> by_dim, location where = location::current())
      : stencil_field(x, detail::span<const boundary::sides>(by_dim.begin(), by_dim.size()), where) {}
  constexpr stencil_field(value x, detail::span<const boundary::sides> by_dim, location where = location::current())
      : at(where), tensor_(x) {
    for (const auto& s : by_dim) sides_.push_back(s);
  }
  /// A field as an argument of an operator. Errors name the line of the call.
  constexpr stencil_field(const stencil_field& other, location) : stencil_field(other) {}

  location at;

  [[nodiscard]] constexpr value tensor() const { return tensor_; }
  [[nodiscard]] constexpr int side_count() const { return static_cast<int>(sides_.size()); }
  [[nodiscard]] constexpr const boundary::sides& along(int dim) const { return sides_[sides_.size() == 1 ? 0 : dim]; }

 private:
  value tensor_;
  detail::vec<boundary::sides> sides_;
};

namespace detail {

/// An offset of a read, with the source line of the read.
struct written_offset {
  std::int64_t by;
  location at;
  constexpr written_offset(std::integral auto offset, location where = location::current())  // NOLINT: implicit on purpose
      : by(static_cast<std::int64_t>(offset)), at(where) {}
};

/// One field while a stencil is traced, with the tensors that were made for its reads.
class stencil_reads {
 public:
  /// `shape` is the shape of the stencil's results. Records an error if the field does not fit.
  constexpr stencil_reads(const stencil_field& f, detail::span<const int> radius, const extents& shape)
      : field_(f), radius_(radius), shape_(shape) {
    const value x = f.tensor();
    if (!x.is_valid()) return;
    is_right_ = x.graph()->may_read({x.id()}, f.at, "stencil");
    if (!is_right_) return;
    const extents own = x.shape();
    const auto count = static_cast<int>(radius.size());
    if (own.count != count)
      refuse(mistake::rank,
             text("has ") << count << " radii and reads a field of " << shape_text(own) << "; write one radius for each dim");
    else if (f.side_count() != 1 && f.side_count() != count)
      refuse(mistake::rank, text("is given ") << f.side_count() << " boundaries for a field of " << shape_text(own)
                                              << "; write one for all dims or one for each");
    for (int d = 0; d < count && is_right_; ++d) {
      if (own[d] != shape[d] && (own[d] - shape[d] > 1 || shape[d] - own[d] > 1 || own[d] == 0))
        refuse(mistake::extent, text("reads a field of ")
                                    << shape_text(own) << " for results of " << shape_text(shape) << ": dim " << d
                                    << " may have the extent of the first field, or one more or less where it is staggered");
    }
  }

  constexpr value read(detail::span<const std::int64_t> by, location at) {
    value x = field_.tensor();
    if (!x.is_valid() || !is_right_) return stand_in();
    const one_call call(x.graph(), "stencil", {x.id()});
    const auto rank = static_cast<int>(radius_.size());
    if (static_cast<int>(by.size()) != rank) {
      refuse(mistake::rank,
             text("reads at ") << static_cast<std::int64_t>(by.size()) << " offsets in a field of " << shape_text(x.shape())
                               << "; write one for each dim",
             at);
      return stand_in();
    }
    for (int d = 0; d < rank; ++d) {
      const auto offset = by[static_cast<std::size_t>(d)];
      const auto radius = radius_[static_cast<std::size_t>(d)];
      if (offset > radius || -offset > radius) {
        refuse(mistake::radius,
               text("reads ") << offset << " along dim " << d << " of " << shape_text(x.shape()) << ", beyond its radius of "
                              << radius << " there; the radii are the arguments of stencil<...>",
               at);
        return stand_in();
      }
    }
    for (int d = 0; d < rank; ++d) x = moved_to_results(x, by, d, false, at);
    return x;
  }

 private:
  struct known {
    int from, dim;
    std::int64_t by;
    bool is_given;
    int id;
  };

  constexpr void refuse(mistake broken, const text& what) { refuse(broken, what, field_.at); }
  constexpr void refuse(mistake broken, const text& what, location where) {
    is_right_ = false;
    field_.tensor().graph()->fail(where, "stencil", broken, what);
  }
  [[nodiscard]] constexpr value stand_in() const {
    const value x = field_.tensor();
    return x.graph() == nullptr ? value{} : made(*x.graph(), -1, x.type(), shape_);
  }

  /// Returns the number of indices that are read outside of an end of a dim. At the high end of a field with one
  /// element fewer than the results, it is one more than the radius.
  [[nodiscard]] constexpr std::int64_t reach(int dim, bool is_low) const {
    const auto lacking = is_low ? 0 : shape_[dim] - field_.tensor().shape()[dim];
    return radius_[static_cast<std::size_t>(dim)] + (lacking > 0 ? lacking : 0);
  }

  // `is_given`: x is not the field but the boundary values of a later dim.

  /// Moves `x` along `dim` so that element i of the result is element i + by[dim] of `x`. The result has the extent of
  /// the stencil's results along `dim`; `x` already has their extents along the dims before it. With a zero boundary
  /// and by = 1: {1, 2, 3, 4} -> {2, 3, 4, 0}; for 3 results {1, 2, 3, 4} -> {2, 3, 4}.
  constexpr value moved_to_results(value x, detail::span<const std::int64_t> by, int dim, bool is_given, location at) {
    const auto offset = by[static_cast<std::size_t>(dim)];
    const auto extent = x.shape()[dim], wanted = shape_[dim];
    if (extent == wanted) return moved(x, by, dim, offset, is_given, at);
    const boundary &below = field_.along(dim).low, &behind = field_.along(dim).high;
    if (!is_given && !below.has_values() && !behind.has_values() && below.beyond() == continuation::none &&
        behind.beyond() == continuation::none && below.number().real == behind.number().real &&
        below.number().integer == behind.number().integer)
      return framed(x, dim, -offset, wanted + offset - extent, below.number(), at);
    // A staggered field without a constant boundary: one tensor holds all elements that are read along the dim.
    const std::int64_t low = reach(dim, true), above = wanted - extent + low, high = above > 0 ? above : 0;
    vec<value> pieces;
    for (auto first = -low; first < 0;) first += add_piece(pieces, x, by, dim, first, -first, is_given, at);
    pieces.push_back(x);
    for (std::int64_t first = 0; first < high;)
      first += add_piece(pieces, x, by, dim, first + extent, high - first, is_given, at);
    return cut(concatenate(detail::span<const value>(pieces.data(), pieces.size()), dim, at), dim, low + offset, wanted, at);
  }
  /// Adds at most `count` elements from index `first`, and returns the number of elements that it added.
  constexpr std::int64_t add_piece(vec<value>& pieces, value x, detail::span<const std::int64_t> by, int dim, std::int64_t first,
                                   std::int64_t count, bool is_given, location at) {
    const auto extent = x.shape()[dim];
    if (count > extent) count = extent;
    const auto offset = first < 0 ? first : first - extent + count;  // of the tensor that begins or ends with these elements
    pieces.push_back(cut(moved(x, by, dim, offset, is_given, at), dim, first < 0 ? 0 : extent - count, count, at));
    return count;
  }
  static constexpr value cut(value x, int dim, std::int64_t first, std::int64_t count, location at) {
    return count == x.shape()[dim] ? x : framed(x, dim, -first, first + count - x.shape()[dim], 0, at);
  }
  /// Adds `low` elements before and `high` elements after `x` along `dim`, or removes them if negative.
  static constexpr value framed(value x, int dim, std::int64_t low, std::int64_t high, detail::written_number n, location at) {
    vec<std::int64_t> before(static_cast<std::size_t>(x.rank()), 0), behind = before;
    before[dim] = low;
    behind[dim] = high;
    return pad(x, integers(before.data(), before.size()), integers(behind.data(), behind.size()), n, {}, at);
  }

  /// Returns the tensor whose element i along `dim` is element i + offset of `x`. `x` has been moved along the dims
  /// before `dim`.
  constexpr value moved(value x, detail::span<const std::int64_t> by, int dim, std::int64_t offset, bool is_given, location at) {
    if (offset == 0 || !is_right_) return x;
    for (const auto& k : known_)
      if (k.from == x.id() && k.dim == dim && k.by == offset && k.is_given == is_given) return {x.graph(), k.id};
    const boundary& b = offset < 0 ? field_.along(dim).low : field_.along(dim).high;
    const value result = !b.has_values() ? shift(x, offset, along(dim), b, at)
                         : is_given      ? shift(x, offset, along(dim), boundary::edge(), at)
                                         : beside_values(x, b.given_values(), by, dim, offset, at);
    known_.push_back({x.id(), dim, offset, is_given, result.id()});
    return result;
  }

  /// The same if `given` contains the values outside of the end of the field: x = {1, 2, 3, 4}, given = {7}, offset =
  /// 1 -> {2, 3, 4, 7}.
  constexpr value beside_values(value x, value given, detail::span<const std::int64_t> by, int dim, std::int64_t offset,
                                location at) {
    if (!given.is_valid()) return stand_in();
    const bool is_low = offset < 0;
    const auto extent = x.shape()[dim], beyond = is_low ? -offset : offset;
    extents wanted = field_.tensor().shape();
    wanted[dim] = given.rank() == wanted.count ? given.shape()[dim] : 1;
    const auto rows = wanted[dim];
    if (!(given.shape() == wanted) || (rows != 1 && rows != reach(dim, is_low))) {
      wanted[dim] = 1;
      refuse(mistake::extent,
             text("is given ") << shape_text(given.shape()) << " as the values beyond dim " << dim << " of "
                               << shape_text(field_.tensor().shape()) << "; give " << shape_text(wanted) << ", or the extent "
                               << reach(dim, is_low) << " there, the number of elements that it reads",
             field_.at);
      return stand_in();
    }
    // The boundary values move along with the field. Outside of ends that have boundary values too, they continue with
    // their edge.
    for (int d = 0; d < dim; ++d) given = moved_to_results(given, by, d, true, at);
    const value index = iota<std::int64_t>(x, integers(x.shape()), dim, at);
    const value inside = shift(x, offset, along(dim), at);
    const auto choose = [at](value condition, value yes, value no) {
      return where(operand(condition, at), operand(yes, at), operand(no, at));
    };
    if (rows == 1)
      return is_low ? choose(operand(index, at) < operand(beyond, at), given, inside)
                    : choose(operand(index, at) >= operand(extent - beyond, at), given, inside);
    value result = inside;
    for (std::int64_t away = 1; away <= beyond; ++away) {  // 1: next to the field
      const auto i = is_low ? beyond - away : extent - 1 - beyond + away;
      if (i < 0 || i >= extent) continue;
      const value row = cut(given, dim, is_low ? rows - away : away - 1, 1, at);
      result = choose(equal(operand(index, at), operand(i, at)), row, result);
    }
    return result;
  }

  const stencil_field& field_;
  detail::span<const int> radius_;
  extents shape_;
  vec<known> known_;
  bool is_right_ = true;
};

}  // namespace detail

/// The argument of a stencil's function for each field: `u(di, dj)` is the tensor whose element [i,j] is element
/// [i+di, j+dj] of the field.
class stencil_neighbours {
 public:
  constexpr explicit stencil_neighbours(detail::stencil_reads& reads) : reads_(&reads) {}

  /// Takes one offset for each dim.
  constexpr value operator()(detail::written_offset first, std::integral auto... rest) const {
    const std::int64_t by[] = {first.by, static_cast<std::int64_t>(rest)...};
    return reads_->read(by, first.at);
  }
  /// The same with a list of offsets, for any number of dims: `u.at({di, dj})`.
  [[nodiscard]] constexpr value at(integers by, location where = location::current()) const { return reads_->read(by, where); }

 private:
  detail::stencil_reads* reads_;
};

/// Returns the results of `f`, called with an accessor for each field: one tensor, or several in a tuple, an array or
/// a record. `Radius` is the largest offset of f along each dim.
///
/// **Example.**
///     auto next = stencil<1, 1>([](auto u) { return 0.25 * (u(-1, 0) + u(1, 0) + u(0, -1) + u(0, 1)); }, u);
///     auto [vx, vy] = stencil<1, 1>([](auto p, auto k) {
///       return std::pair(k(0, 0) * (p(1, 0) - p(-1, 0)), k(0, 0) * (p(0, 1) - p(0, -1)));
///     }, stencil_field(pressure, {boundary::edge(), boundary::wrap()}), permeability);
///
/// Fields are tensors of one global shape, which the results have too. A staggered field has one element more or fewer
/// than the first field along some dims. For example, if u has N + 1 elements, element i of a result of N elements
/// reads i + di of u. The boundary of a field is zero, or the boundaries in `stencil_field` by dim and side. Dims are
/// continued one after the other: in a corner that is outside along several dims, the last of these dims determines the
/// value. The gradient is the transposed stencil, exact at the ends.
///
/// Reads that are elementwise operands are loads of one loop at an offset (GSPMD 4.3; GShard 3.3.3). For this, each
/// shard must hold at least the number of elements that are read outside the shard. Otherwise the read is a separate
/// movement. Large shards compute their interior during the exchange; `explain` reports this.
///
/// **Communication.** If a dim is split, neighbouring devices exchange the halo by one collective_permute for each dim
/// that is read at an offset. Only elements that f reads are sent: at most radius * s in each direction, if a shard
/// has s elements per index of the dim. Fields that one loop reads share the messages. With `wrap` the first and the
/// last device are neighbours. Corners (reads at offsets along several dims) arrive with the halo of the later dim. So
/// a box stencil sends two messages for each dim, as a star stencil does. A staggered field is first moved to the
/// shards of the other fields. `staggered` (gspmd/staggered/staggered.hpp) avoids this if its boundary is one constant.
/// **Errors.** At compile time: a read beyond the radius; a number of radii, offsets or boundaries that differs from
/// the number of dims; fields whose extents differ by more than one; boundary values whose shape does not fit their
/// end.
template <int... Radius, class F, class... Fields>
  requires(std::is_convertible_v<Fields, stencil_field> && ...)
constexpr auto stencil(F&& f, stencil_field first, Fields... rest) {
  static_assert(sizeof...(Radius) > 0 && ((Radius >= 0) && ...),
                "gspmd: stencil: one radius for each dim, 0 or more: stencil<1, 1>");
  constexpr int radius[] = {Radius...};
  const detail::extents shape = first.tensor().shape();
  const stencil_field fields[] = {first, stencil_field(rest, first.at)...};
  return [&]<std::size_t... K>(std::index_sequence<K...>) {
    detail::stencil_reads reads[] = {detail::stencil_reads(fields[K], radius, shape)...};
    return std::forward<F>(f)(stencil_neighbours(reads[K])...);
  }(std::make_index_sequence<1 + sizeof...(Fields)>{});
}

}  // namespace gspmd
