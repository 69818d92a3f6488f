// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/text.hpp"

/// Placements: rules that distribute one dim to parts. Users can add their own. The library's shardings always cut a
/// dim into equal contiguous parts. A placement is any invertible rule: a split, an unsplit and a local extent.
///
/// Programs use only shardings. Data with another placement is converted at the boundary (placed_array.hpp), so an
/// operator never reads two kinds.
namespace gspmd {

/// The position of an element of a dim: its part, and its index in the part.
struct placed_at {
  std::int64_t part = 0;
  std::int64_t index = 0;
  friend constexpr bool operator==(const placed_at&, const placed_at&) = default;
};

/// A rule that distributes `extent` elements of a dim to `parts` parts.
///
///     p.local_extent(extent, parts, part)    the number of elements of the part
///     p.split(extent, parts, part, i)        the global index of element i of the part
///     p.unsplit(extent, parts, global)       the part and index of an element: the inverse of split
///     p.fits(extent, parts)                  optional: returns true if the rule is defined for these numbers
///     P::text()                              its name in messages, a literal
///
/// Law: split and unsplit are inverse to each other, and the parts together hold every element once.
template <class P>
concept placement = std::copy_constructible<P> && requires(const P& p, std::int64_t n) {
  { p.local_extent(n, n, n) } -> std::same_as<std::int64_t>;
  { p.split(n, n, n, n) } -> std::same_as<std::int64_t>;
  { p.unsplit(n, n, n) } -> std::same_as<placed_at>;
  { P::text() } -> std::convertible_to<detail::text>;
};

/// Returns true if a placement is defined for an extent and a number of parts.
template <placement P>
constexpr bool placement_fits(const P& p, std::int64_t extent, std::int64_t parts) {
  if constexpr (requires { p.fits(extent, parts); }) return p.fits(extent, parts);
  else return true;
}

/// Returns true if the placement obeys the law for one extent and number of parts. Checks every element.
template <placement P>
constexpr bool obeys_placement_law(const P& p, std::int64_t extent, std::int64_t parts) {
  std::int64_t held = 0;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t n = p.local_extent(extent, parts, part);
    if (n < 0 || n > extent - held) return false;
    held += n;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t global = p.split(extent, parts, part, i);
      if (global < 0 || global >= extent || !(p.unsplit(extent, parts, global) == placed_at{part, i})) return false;
    }
  }
  return held == extent;
}

/// Returns true if the placement obeys the law for all small extents and numbers of parts that it fits, and for those
/// in `P::shapes()`. Returns false if it fits no extent and number of parts. The library checks this at compile time
/// before it accepts a placement.
///
///     static_assert(obeys_placement_law<block_cyclic<2>>());
template <placement P>
constexpr bool obeys_placement_law() {
  const P p{};
  bool any = false;
  for (std::int64_t extent = 0; extent <= 12; ++extent)
    for (std::int64_t parts = 1; parts <= 5; ++parts) {
      if (!placement_fits(p, extent, parts)) continue;
      any = any || extent > 0;
      if (!obeys_placement_law(p, extent, parts)) return false;
    }
  if constexpr (requires { P::shapes(); })
    for (const auto& shape : P::shapes()) {
      any = true;
      if (!placement_fits(p, shape.part, shape.index) || !obeys_placement_law(p, shape.part, shape.index)) return false;
    }
  return any;
}

/// The placement of the library's shardings: equal contiguous parts, rounded up. 9 in 4 is 3,3,3,0.
struct contiguous {
  static constexpr detail::text text() { return "contiguous"; }
  static constexpr std::int64_t local_extent(std::int64_t extent, std::int64_t parts, std::int64_t part) {
    return detail::part_range(extent, parts, part).size();
  }
  static constexpr std::int64_t split(std::int64_t extent, std::int64_t parts, std::int64_t part, std::int64_t i) {
    return detail::part_range(extent, parts, part).begin + i;
  }
  static constexpr placed_at unsplit(std::int64_t extent, std::int64_t parts, std::int64_t global) {
    const auto step = detail::shard_extent(extent, parts);
    return {global / step, global % step};
  }
};

/// Cuts the dim into `Pieces`, then each piece into the parts. Part p holds the p-th part of each piece (DTensor's
/// StridedShard with split_factor = Pieces). A dim [B,S] that was flattened while S was split is `strided<B>`.
///
///     strided<2>, 8 in 2 parts:  0 1 4 5 | 2 3 6 7
template <std::int64_t Pieces>
struct strided {
  static_assert(Pieces >= 1, "gspmd: strided: at least 1 piece");
  static constexpr detail::text text() { return detail::text("strided<") << Pieces << '>'; }
  static constexpr std::int64_t local_extent(std::int64_t extent, std::int64_t parts, std::int64_t part) {
    const pieces cut(extent);
    return cut.full * detail::part_range(cut.step, parts, part).size() + detail::part_range(cut.rest, parts, part).size();
  }
  static constexpr std::int64_t split(std::int64_t extent, std::int64_t parts, std::int64_t part, std::int64_t i) {
    const pieces cut(extent);
    const auto run = detail::part_range(cut.step, parts, part);
    const auto in_full = cut.full * run.size();
    if (i < in_full) return i / run.size() * cut.step + run.begin + i % run.size();
    return cut.full * cut.step + detail::part_range(cut.rest, parts, part).begin + i - in_full;
  }
  static constexpr placed_at unsplit(std::int64_t extent, std::int64_t parts, std::int64_t global) {
    const pieces cut(extent);
    const auto piece = global / cut.step;
    placed_at at = contiguous::unsplit(piece < cut.full ? cut.step : cut.rest, parts, global % cut.step);
    at.index += piece * detail::part_range(cut.step, parts, at.part).size();
    return at;
  }

 private:
  /// `full` pieces of `step` elements, and a shorter one of `rest` elements after them.
  struct pieces {
    std::int64_t step, full, rest;
    constexpr explicit pieces(std::int64_t extent)
        : step(detail::shard_extent(extent, Pieces)), full(step > 0 ? extent / step : 0), rest(extent - full * step) {}
  };
};

/// Blocks of `Block` elements, distributed to the parts in rotation, as in ScaLAPACK. block_cyclic<1> distributes
/// single elements.
///
///     block_cyclic<2>, 9 in 2 parts:  0 1 4 5 8 | 2 3 6 7
template <std::int64_t Block>
struct block_cyclic {
  static_assert(Block >= 1, "gspmd: block_cyclic: a block has at least 1 element");
  static constexpr detail::text text() { return detail::text("block_cyclic<") << Block << '>'; }
  static constexpr std::int64_t local_extent(std::int64_t extent, std::int64_t parts, std::int64_t part) {
    const auto full = extent / Block, rest = extent % Block;
    const auto mine = full / parts + (part < full % parts ? 1 : 0);
    return mine * Block + (part == full % parts ? rest : 0);
  }
  static constexpr std::int64_t split(std::int64_t, std::int64_t parts, std::int64_t part, std::int64_t i) {
    return (i / Block * parts + part) * Block + i % Block;
  }
  static constexpr placed_at unsplit(std::int64_t, std::int64_t parts, std::int64_t global) {
    const auto block = global / Block;
    return {block % parts, block / parts * Block + global % Block};
  }
};

namespace detail {

/// Contiguous ranges of whole blocks: `counts[p]` blocks for part p. The last block of the dim can be shorter.
template <class Counts>
struct ragged_rule {
  Counts counts;
  std::int64_t block = 1;

  constexpr bool fits(std::int64_t extent, std::int64_t parts) const {
    std::int64_t blocks = 0;
    for (const auto c : counts) {
      if (c < 0) return false;
      blocks += c;
    }
    return parts == static_cast<std::int64_t>(counts.size()) && blocks == (extent + block - 1) / block;
  }
  constexpr std::int64_t begin(std::int64_t extent, std::int64_t part) const {
    std::int64_t blocks = 0;
    for (std::int64_t p = 0; p < part; ++p) blocks += counts[static_cast<std::size_t>(p)];
    return blocks * block < extent ? blocks * block : extent;
  }
  constexpr std::int64_t local_extent(std::int64_t extent, std::int64_t, std::int64_t part) const {
    return begin(extent, part + 1) - begin(extent, part);
  }
  constexpr std::int64_t split(std::int64_t extent, std::int64_t, std::int64_t part, std::int64_t i) const {
    return begin(extent, part) + i;
  }
  constexpr placed_at unsplit(std::int64_t, std::int64_t parts, std::int64_t global) const {
    std::int64_t part = 0, from = 0;
    for (; part + 1 < parts && global >= from + counts[static_cast<std::size_t>(part)] * block; ++part)
      from += counts[static_cast<std::size_t>(part)] * block;
    return {part, global - from};
  }
};

}  // namespace detail

/// Part p holds the next `Counts[p]` blocks of `Block` elements. Blocks are never cut. Uses: block-wise quantisation, a
/// whole parameter on one device.
///
///     ragged<4, 0, 3, 1>     16 in 3 parts: nothing | 0 to 11 | 12 to 15
template <std::int64_t Block, std::int64_t... Counts>
struct ragged {
  static_assert(Block >= 1, "gspmd: ragged: a block has at least 1 element");
  static_assert(sizeof...(Counts) >= 1 && ((Counts >= 0) && ...), "gspmd: ragged: give the number of blocks of each part");
  static constexpr detail::text text() {
    detail::text t("ragged<");
    t << Block;
    ((t << ',' << Counts), ...);
    return t << '>';
  }
  static constexpr std::array<placed_at, 1> shapes() { return {{{(Counts + ...) * Block, sizeof...(Counts)}}}; }  // extent, parts
  static constexpr bool fits(std::int64_t extent, std::int64_t parts) { return rule.fits(extent, parts); }
  static constexpr std::int64_t local_extent(std::int64_t extent, std::int64_t parts, std::int64_t part) {
    return rule.local_extent(extent, parts, part);
  }
  static constexpr std::int64_t split(std::int64_t extent, std::int64_t parts, std::int64_t part, std::int64_t i) {
    return rule.split(extent, parts, part, i);
  }
  static constexpr placed_at unsplit(std::int64_t extent, std::int64_t parts, std::int64_t global) {
    return rule.unsplit(extent, parts, global);
  }

 private:
  static constexpr detail::ragged_rule<std::array<std::int64_t, sizeof...(Counts)>> rule{{Counts...}, Block};
};

/// The same as ragged, with numbers that are known at run time.
///
///     ragged_list{{0, 3, 1}, 4}
struct ragged_list {
  std::vector<std::int64_t> counts;  // blocks of each part
  std::int64_t block = 1;

  static constexpr detail::text text() { return "ragged_list"; }
  constexpr bool fits(std::int64_t extent, std::int64_t parts) const { return block >= 1 && rule().fits(extent, parts); }
  constexpr std::int64_t local_extent(std::int64_t extent, std::int64_t parts, std::int64_t part) const {
    return rule().local_extent(extent, parts, part);
  }
  constexpr std::int64_t split(std::int64_t extent, std::int64_t parts, std::int64_t part, std::int64_t i) const {
    return rule().split(extent, parts, part, i);
  }
  constexpr placed_at unsplit(std::int64_t extent, std::int64_t parts, std::int64_t global) const {
    return rule().unsplit(extent, parts, global);
  }

 private:
  [[nodiscard]] constexpr detail::ragged_rule<detail::span<const std::int64_t>> rule() const {
    return {{counts.data(), counts.size()}, block};
  }
};

/// Applies `Outer` to the dim and `Inner` to each of its parts. Parts are numbered with those of `Outer` major:
/// placements apply from left to right. chained<strided<tp>, fsdp, contiguous> is the order "tp first, then fsdp" on a
/// mesh whose first axis is fsdp.
template <placement Outer, std::int64_t OuterParts, placement Inner>
struct chained {
  static constexpr detail::text text() {
    return detail::text("chained<") << Outer::text() << ',' << OuterParts << ',' << Inner::text() << '>';
  }
  static constexpr bool fits(std::int64_t extent, std::int64_t parts) {
    if (parts % OuterParts != 0 || !placement_fits(Outer{}, extent, OuterParts)) return false;
    for (std::int64_t p = 0; p < OuterParts; ++p)
      if (!placement_fits(Inner{}, Outer{}.local_extent(extent, OuterParts, p), parts / OuterParts)) return false;
    return true;
  }
  static constexpr std::int64_t local_extent(std::int64_t extent, std::int64_t parts, std::int64_t part) {
    const auto inner = parts / OuterParts;
    return Inner{}.local_extent(Outer{}.local_extent(extent, OuterParts, part / inner), inner, part % inner);
  }
  static constexpr std::int64_t split(std::int64_t extent, std::int64_t parts, std::int64_t part, std::int64_t i) {
    const auto inner = parts / OuterParts;
    const auto held = Outer{}.local_extent(extent, OuterParts, part / inner);
    return Outer{}.split(extent, OuterParts, part / inner, Inner{}.split(held, inner, part % inner, i));
  }
  static constexpr placed_at unsplit(std::int64_t extent, std::int64_t parts, std::int64_t global) {
    const auto inner = parts / OuterParts;
    const auto outer = Outer{}.unsplit(extent, OuterParts, global);
    const auto at = Inner{}.unsplit(Outer{}.local_extent(extent, OuterParts, outer.part), inner, outer.index);
    return {outer.part * inner + at.part, at.index};
  }
};

namespace detail {

template <class P>
inline constexpr bool placement_law_holds = [] {
  if constexpr (std::is_empty_v<P>) return obeys_placement_law<P>();
  else return true;  // has run-time members: checked when it is used
}();

template <class P>
consteval bool accept_placement() {
  static_assert(placement_law_holds<P>,
                "gspmd: placement: split and unsplit must be inverse to each other, and the parts must hold every element once; "
                "obeys_placement_law(p, extent, parts) is false for the extents with the fault");
  return true;
}

}  // namespace detail
}  // namespace gspmd
