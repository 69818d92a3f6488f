// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/external/view.hpp"

/// Ghost layers in external memory, for with_ghosts and ghosted_program.
namespace gspmd {

/// The number of ghost layers before and after a block along a dim. A single number is the number on both sides.
struct layers {
  std::int64_t low, high;
  constexpr layers(int both) : low(both), high(both) {}  // NOLINT: implicit on purpose
  constexpr layers(int before, int behind) : low(before), high(behind) {}
};

/// The ghost layers of a shard, by dim: see with_ghosts. `ghosts<>` means a dense or copied shard.
///
///     ghosts<1, 1>                       a layer on all four sides
///     ghosts<layers{2, 0}, 0>            two rows before the block
template <layers... Widths>
struct ghosts {
  static constexpr int rank = sizeof...(Widths);
  static constexpr detail::given_layers given = [] {
    detail::given_layers all;
    all.is_given = rank > 0;
    (all.low.push_back(Widths.low), ...);
    (all.high.push_back(Widths.high), ...);
    return all;
  }();
  static constexpr bool is_any = ((Widths.low != 0 || Widths.high != 0) || ...);
  static_assert(((Widths.low >= 0 && Widths.high >= 0) && ...), "gspmd: ghosts: a width is negative");
};

template <class T>
struct ghosted_view;
template <class T>
struct ghost_exchange_view;
namespace detail {

/// The edges of ghosted_view and ghost_exchange_view.
template <class T>
struct ghosted_edge : strided_edge<T> {
  static constexpr const char* name = "ghosted_view";
  static constexpr bool has_ghost_cells = true;
  using view = ghosted_view<T>;
  static strided_elements<T> memory(const view& x) { return strided_edge<T>::memory(x.block); }
};
template <class T>
struct filled_edge : strided_edge<T> {
  static constexpr const char* name = "ghost_exchange_view";
  static constexpr bool fills_ghost_cells = true;
  using view = ghost_exchange_view<T>;
  static strided_elements<T> memory(const view& x) { return strided_edge<T>::memory(x.block); }
};

}  // namespace detail

/// A block with its ghost layers, for a step or a session that is planned for them. The layers of an input are valid.
/// The layers of a result stay unchanged.
///
/// **Example.**
///
///     s(comm, ghosted_view(u, {52, 66}), ghosted_view(next, {52, 66}));
template <class T>
struct ghosted_view {
  using element = T;
  using edge = detail::ghosted_edge<T>;
  strided_view<T> block;
  explicit ghosted_view(const strided_view<T>& with_layers) : block(with_layers) {}
  ghosted_view(T* data, const detail::int_list& shape) : block(data, shape) {}
  ghosted_view(T* data, const detail::int_list& shape, const detail::int_list& strides) : block(data, shape, strides) {}
};
template <class T>
ghosted_view(T*, std::initializer_list<std::int64_t>) -> ghosted_view<T>;
template <class T>
ghosted_view(T*, std::initializer_list<std::int64_t>, std::initializer_list<std::int64_t>) -> ghosted_view<T>;
/// A block whose ghost layers the step fills before it reads them: see exchange_ghosts.
template <class T>
struct ghost_exchange_view {
  using element = T;
  using edge = detail::filled_edge<T>;
  strided_view<T> block;
};
/// Returns a block whose ghost layers the step fills before it reads them.
///
/// **Example.**
///
///     s(comm, exchange_ghosts(u), next);
template <class T>
[[nodiscard]] ghost_exchange_view<T> exchange_ghosts(const ghosted_view<T>& u) {
  static_assert(!std::is_const_v<T>, "gspmd: exchange_ghosts: ghost layers are written and the view given is of const elements");
  return {u.block};
}
template <class T>
[[nodiscard]] ghost_exchange_view<T> exchange_ghosts(const strided_view<T>& with_layers) {
  return exchange_ghosts(ghosted_view(with_layers));
}

}  // namespace gspmd
