// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/error.hpp"
#include "gspmd/program/tree.hpp"

namespace gspmd {
namespace detail {

/// The base class of every edge (gspmd/extend/edge.hpp). A view of external memory is a type that names its edge.
struct edge_struct {};
template <class X>
inline constexpr bool is_external_view = requires { requires std::derived_from<typename X::edge, edge_struct>; };

/// Returns true if a leaf of an argument is a view of external memory.
template <class Tree>
constexpr bool has_view() {
  if constexpr (is_list<Tree>) {
    return has_view<typename Tree::value_type>();
  } else if constexpr (is_leaf<Tree>) {
    return is_external_view<Tree>;
  } else {
    return []<std::size_t... P>(std::index_sequence<P...>) {
      return (has_view<part_type<P, Tree>>() || ...);
    }(std::make_index_sequence<part_count<Tree>()>{});
  }
}

/// Returns true if a container has one dim according to its type.
///
///     std::vector, std::span         yes: the type has no dims
///     rank, rank(), dimensionality   the number that the type states (Kokkos, mdarray, Boost.MultiArray)
///     rows() and cols(), shape(), dimension(), num_dimensions()   no
template <class C>
constexpr bool has_one_dim() {
  if constexpr (requires { std::bool_constant<(static_cast<std::size_t>(C::rank()) <= 1)>{}; }) {
    return static_cast<std::size_t>(C::rank()) <= 1;
  } else if constexpr (requires { std::bool_constant<(static_cast<std::size_t>(C::rank) <= 1)>{}; }) {
    return static_cast<std::size_t>(C::rank) <= 1;
  } else if constexpr (requires { std::bool_constant<(static_cast<std::size_t>(C::dimensionality) <= 1)>{}; }) {
    return static_cast<std::size_t>(C::dimensionality) <= 1;
  } else {
    return !(
        requires(const C& c) { c.rank(); } || requires(const C& c) { c.shape(); } || requires(const C& c) { c.dimension(); } ||
        requires(const C& c) { c.num_dimensions(); } || requires(const C& c) { c.rows(), c.cols(); });
  }
}

/// Returns true if a container is row-major. Eigen and xtensor state their order in the type; other containers are
/// row-major if they have one dim.
template <class C>
constexpr bool finds_row_major() {
  if constexpr (requires { C::IsRowMajor, C::IsVectorAtCompileTime; }) {
    return static_cast<bool>(C::IsRowMajor) || static_cast<bool>(C::IsVectorAtCompileTime);
  } else if constexpr (requires { std::remove_cvref_t<decltype(C::static_layout)>::row_major; }) {
    return C::static_layout == std::remove_cvref_t<decltype(C::static_layout)>::row_major || has_one_dim<C>();
  } else {
    return has_one_dim<C>();
  }
}

}  // namespace detail

/// True if the elements of a container are in row-major order, like the elements of all tensors. `run`, `distribute`
/// and shard_view require it.
///
/// It is true for containers with one dim. For containers of several dims it is true only if the type states the order.
/// If the type does not state it, declare the container row-major with a specialisation.
///
/// **Example.**
///
///     static_assert(is_row_major<std::vector<float>> && !is_row_major<Eigen::MatrixXf>);
///     template <> inline constexpr bool gspmd::is_row_major<my::grid> = true;
template <class Container>
inline constexpr bool is_row_major = detail::finds_row_major<Container>();

namespace detail {

/// False for std::vector<bool> and similar containers: their elements are bits, and a bit has no address.
template <class C>
inline constexpr bool has_addresses =
    !requires { requires std::is_same_v<typename C::value_type, bool> && !std::is_reference_v<typename C::reference>; };

template <class Leaf>
consteval bool accept_container() {
  using plain = std::remove_cvref_t<Leaf>;
  static_assert(!is_external_view<plain>,
                "gspmd: a view of external memory is not accepted here; pass it to a step or a session, or to run<step> or "
                "distribute<step, K> (gspmd/external.hpp), or to run(program, ...) (gspmd/external/program.hpp)");
  static_assert(has_addresses<plain>,
                "gspmd: std::vector<bool> stores bits, and a tensor of bool has a byte for each element; pass a "
                "gspmd::array<bool>, or a pointer to or a span of bools");
  static_assert(!has_addresses<plain> || is_external_view<plain> || is_row_major<plain>,
                "gspmd: a container of several dims must say that it is row-major; give a strided_view of it "
                "(gspmd/external.hpp), a pointer "
                "or a span of its elements in that order, or specialise gspmd::is_row_major for it");
  return true;
}

/// Reports each container that is not accepted, in all leaves of a group and in vectors. Call it first, so that the
/// error names the user's line.
template <class Tree>
consteval bool accept_containers() {
  if constexpr (is_list<Tree>) {
    return accept_containers<typename Tree::value_type>();
  } else if constexpr (is_leaf<Tree>) {
    return accept_container<Tree>();
  } else {
    return []<std::size_t... P>(std::index_sequence<P...>) {
      return (accept_containers<part_type<P, Tree>>() && ...);
    }(std::make_index_sequence<part_count<Tree>()>{});
  }
}

/// A view of `double x[4][6]` as one row of contiguous elements.
template <class Array>
struct flat_array {
  using element = std::remove_all_extents_t<Array>;
  const Array& rows;

  [[nodiscard]] const element* data() const { return reinterpret_cast<const element*>(&rows); }
  [[nodiscard]] static constexpr std::size_t size() { return sizeof(Array) / sizeof(element); }
};

/// Returns the extents of an array or a container. Returns nothing if the container has only `size()`. An Eigen vector
/// has one extent.
template <class C>
constexpr std::optional<extents> known_extents(const C& container) {
  extents shape;
  [[maybe_unused]] const auto add = [&](auto count, auto extent_at) {
    const auto n = static_cast<std::size_t>(count);
    if (n > static_cast<std::size_t>(max_rank)) return false;
    for (std::size_t d = 0; d < n; ++d) shape.push_back(static_cast<std::int64_t>(extent_at(d)));
    return true;
  };
  bool is_known = true;
  if constexpr (std::is_array_v<C>) {
    is_known = []<std::size_t... D>(extents& list, std::index_sequence<D...>) {
      if constexpr (sizeof...(D) > static_cast<std::size_t>(max_rank)) return false;
      else return (list.push_back(static_cast<std::int64_t>(std::extent_v<C, D>)), ..., true);
    }(shape, std::make_index_sequence<std::rank_v<C>>{});
  } else if constexpr (requires { container.shape().count; }) {  // gspmd
    shape = container.shape();
  } else if constexpr (requires { container.rows(), container.cols(); }) {  // Eigen
    if constexpr (requires { std::bool_constant<static_cast<bool>(C::IsVectorAtCompileTime)>{}; }) {
      if (C::IsVectorAtCompileTime) return extents{static_cast<std::int64_t>(container.rows() * container.cols())};
    }
    shape = {static_cast<std::int64_t>(container.rows()), static_cast<std::int64_t>(container.cols())};
  } else if constexpr (requires { container.extent(0), C::rank(); }) {  // mdspan's family
    is_known = add(C::rank(), [&](std::size_t d) { return container.extent(d); });
  } else if constexpr (requires { container.extent(0), static_cast<std::size_t>(C::rank); }) {  // Kokkos
    is_known = add(C::rank, [&](std::size_t d) { return container.extent(d); });
  } else if constexpr (requires { container.num_dimensions(), container.shape()[0]; }) {  // Boost
    is_known = add(container.num_dimensions(), [&](std::size_t d) { return container.shape()[d]; });
  } else if constexpr (requires { std::size(container.shape()), container.shape()[0]; }) {  // xtensor
    is_known = add(std::size(container.shape()), [&](std::size_t d) { return container.shape()[d]; });
  } else {
    is_known = false;
  }
  return is_known ? std::optional(shape) : std::nullopt;
}

/// Checks that the elements of a container have no gaps between them.
///
/// **Errors.** Throws gspmd::error if they have gaps.
template <class C>
constexpr void require_dense(const C& container) {
  bool is_dense = true;
  if constexpr (requires { container.innerStride(), container.outerStride(), container.rows(), container.cols(); }) {  // Eigen
    is_dense = container.rows() * container.cols() <= 1 || container.innerStride() == 1;
    if constexpr (!C::IsVectorAtCompileTime)
      is_dense = is_dense && (container.rows() <= 1 || container.outerStride() == container.cols());
  } else if constexpr (requires { container.span_is_contiguous(); }) {  // Kokkos
    is_dense = container.span_is_contiguous();
  } else if constexpr (requires { container.is_exhaustive(); }) {  // mdspan's family
    is_dense = container.is_exhaustive();
  }
  if (!is_dense) throw error("the elements of the container are not contiguous; pass a strided_view of it");
}

}  // namespace detail
}  // namespace gspmd
