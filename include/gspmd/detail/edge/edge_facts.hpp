// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ir/tree.hpp"
#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/program/row_major.hpp"

/// The facts of an edge. An edge is a struct that states how a view of external memory becomes a shard. A view is the
/// type that programs pass, with two member types:
///
///   element           the type of the elements; const if they can only be read
///   edge              the edge
///
/// Every edge has the base edge_struct and states all facts. No fact has a default:
///
///   name              the name of the view in messages
///   view              the type of the view
///   memory            strided_elements if each index has an address; otherwise memory_range, for overlap checks
///   layout            the elements of the tensor that the view has: a placed_layout, or layout_of_step{}
///   fills_ghost_cells true if the step fills the ghost cells around the elements before it reads them
///
/// An edge whose memory() is a memory_range also states:
///
///   shape             the extents
///   read              copies a box of elements to other memory
///   write             copies a box of elements from other memory; not needed if the elements are const
///   has_own_elements  false if several indices share an element, so that the view cannot be a result
namespace gspmd::detail {

/// Elements with an address for each index: `data[i * strides[0] + j * strides[1]]` for two dims.
template <class T>
struct strided_elements {
  T* data;
  extents shape, strides;  // in elements

  template <class... Index>
  T& operator()(Index... index) const {
    std::int64_t offset = 0;
    int d = 0;
    ((offset += index * strides[d++]), ...);
    return data[offset];
  }
};

/// The memory that a view reads or writes. Results must not overlap other results.
struct memory_range {
  const void* first;
  std::int64_t bytes;
};
/// The memory of a view without addresses in this process: a file, or a buffer of an accelerator.
inline constexpr memory_range no_addresses{nullptr, 0};

/// The layout of a view that has the elements of the step's shard, or the whole tensor for `run`.
struct layout_of_step {};
/// The facts of an edge whose view has the elements of the step's shard and no ghost cells.
struct block_of_step {
  static constexpr bool fills_ghost_cells = false;
  static constexpr layout_of_step layout(const auto&) { return {}; }
};

template <class E>
inline constexpr bool edge_with_strides = requires(const typename E::view& x) {
  requires std::same_as<decltype(E::memory(x)), strided_elements<typename E::view::element>>;
};
template <class E>
using edge_element = std::remove_const_t<typename E::view::element>;

// clang-format off
template <class E>
concept complete_edge = requires(const typename E::view& x) {
  typename E::view::element;
  requires std::derived_from<E, edge_struct>;
  requires std::same_as<typename E::view::edge, E>;
  requires std::same_as<decltype(E::name), const char* const>;
  requires std::same_as<decltype(E::fills_ghost_cells), const bool>;
  E::layout(x);
  E::memory(x);
  requires edge_with_strides<E> || std::same_as<decltype(E::memory(x)), memory_range>;
  requires edge_with_strides<E> || requires { { E::shape(x) } -> std::same_as<extents>; };
  requires edge_with_strides<E> || requires { { E::has_own_elements(x) } -> std::same_as<bool>; };
  requires edge_with_strides<E> ||
           requires(const extents& first, const strided_elements<edge_element<E>>& to) { E::read(x, first, to); };
  requires edge_with_strides<E> || std::is_const_v<typename E::view::element> ||
           requires(const extents& first, const strided_elements<const edge_element<E>>& from) { E::write(x, first, from); };
};
// clang-format on
template <class E>
consteval bool require_complete_edge() {
  static_assert(complete_edge<E>,
                "gspmd: an edge states every fact of detail/edge/edge_facts.hpp: the fact named below is missing");
  return true;
}

template <class View>
inline constexpr bool fills_ghost_cells = requires { requires View::edge::fills_ghost_cells; };
/// True if a view includes ghost cells: the step fills them, or the caller has filled them.
template <class View>
inline constexpr bool has_ghost_cells = fills_ghost_cells<View> || requires { requires View::edge::has_ghost_cells; };
template <class View>
constexpr bool has_layout_of_step() {
  if constexpr (is_external_view<View>) {
    using edge = typename View::edge;
    if constexpr (requires(const View& x) { requires std::same_as<decltype(edge::layout(x)), layout_of_step>; }) return true;
    else return !complete_edge<edge>;  // accept_views reports the missing fact
  } else {
    return false;
  }
}
/// True if a view has the elements of the step's shard, or the whole tensor, and no ghost cells.
template <class View>
inline constexpr bool is_block_of_step = has_layout_of_step<View>() && !has_ghost_cells<View>;
/// True if a view has the elements of a layout of its own.
template <class View>
inline constexpr bool has_own_layout = is_external_view<View> && !has_layout_of_step<View>();

/// Reports the missing facts of the views in an argument. Call it first, so that the error names the user's line.
template <class Tree>
consteval bool accept_views() {
  if constexpr (is_list<Tree>) {
    return accept_views<typename Tree::value_type>();
  } else if constexpr (is_external_view<Tree>) {
    return require_complete_edge<typename Tree::edge>();
  } else if constexpr (is_leaf<Tree>) {
    return true;
  } else {
    return []<std::size_t... P>(std::index_sequence<P...>) {
      return (accept_views<part_type<P, Tree>>() && ...);
    }(std::make_index_sequence<part_count<Tree>()>{});
  }
}

/// Returns true if a leaf of an argument is a view of a kind: `Is<View>::value`.
template <template <class> class Is, class Tree>
constexpr bool has_leaf() {
  if constexpr (is_list<Tree>) {
    return has_leaf<Is, typename Tree::value_type>();
  } else if constexpr (is_leaf<Tree>) {
    return Is<Tree>::value;
  } else {
    return []<std::size_t... P>(std::index_sequence<P...>) {
      return (has_leaf<Is, part_type<P, Tree>>() || ...);
    }(std::make_index_sequence<part_count<Tree>()>{});
  }
}
template <class View>
using block_of_step_constant = std::bool_constant<is_block_of_step<View>>;
template <class View>
using own_layout_constant = std::bool_constant<has_own_layout<View>>;
template <class View>
using ghost_cells_constant = std::bool_constant<has_ghost_cells<View>>;

/// Returns true if a leaf of an argument is a view with the layout of the step.
template <class Tree>
constexpr bool has_block_of_step() {
  return has_leaf<block_of_step_constant, Tree>();
}

}  // namespace gspmd::detail
