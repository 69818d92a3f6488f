// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/strided/view.hpp"

/// The words for ghost layers of the caller's, which ghosted_step and ghosted_session take.
namespace gspmd {

/// How many ghost layers lie before a block along a dim, and behind it; a number: as many on both sides.
struct layers {
  std::int64_t low, high;
  constexpr layers(int both) : low(both), high(both) {}  // NOLINT: implicit on purpose
  constexpr layers(int before, int behind) : low(before), high(behind) {}
};

/// The ghost layers of a shard, by dim: see ghosted_step. `ghosts<>`: it is a dense shard, or copied.
///
///     ghosts<1, 1>                       a layer on all four sides
///     ghosts<layers{2, 0}, 0>            two rows before it
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

/// A block whose ghost layers the step fills before it reads them: see filled.
template <class T>
struct filled_view {
  using element = T;
  strided_view<T> block;
};
/// A block whose ghost layers the step is to fill, for ghosted_step and ghosted_session.
///
///     s(comm, filled(u), next);
template <class T>
[[nodiscard]] filled_view<T> filled(const strided_view<T>& block) {
  static_assert(!std::is_const_v<T>, "gspmd: filled: ghost layers are written and the view given is of const elements");
  return {block};
}

namespace detail {

template <class Leaf>
inline constexpr bool is_filled_view = false;
template <class T>
inline constexpr bool is_filled_view<filled_view<T>> = true;

}  // namespace detail
}  // namespace gspmd
