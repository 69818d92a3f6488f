// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ir/elementwise/list.hpp"
#include "gspmd/detail/ir/fused_group.hpp"
#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/support/tuning.hpp"

/// The computation of one row of a fused group, as a type without other information. Groups of several programs, meshes
/// and layers with the same computation share one loop in the object code, which is compiled once.
namespace gspmd::detail {

/// Groups with more operators are not shared: their type names would be long, and they are seldom equal.
inline constexpr std::size_t most_shared_ops = 64;

/// Bits 0 to 7 and 48 to 63 of an operator's word hold its short id (ir/elementwise/facts.hpp). The bits between them
/// have space for 3 operands.
constexpr std::uint64_t word_of_short_id(std::uint32_t id) { return (id & 255U) | static_cast<std::uint64_t>(id >> 8) << 48; }
constexpr std::uint32_t short_id_in(std::uint64_t word) {
  return static_cast<std::uint32_t>(word & 255U) | static_cast<std::uint32_t>(word >> 48) << 8;
}

/// Two words per operator, then one word per store; see row_words.
template <std::size_t Ops, std::uint64_t... Words>
struct row_description {
  static constexpr std::array<std::uint64_t, sizeof...(Words)> words{Words...};
  static constexpr std::size_t store_count = sizeof...(Words) - 2 * Ops;
  static constexpr auto codes = []<std::size_t... K>(std::index_sequence<K...>) {
    return std::array<scalar_code, Ops>{code_with_short_id<short_id_in(words[2 * K])>()...};
  }(std::make_index_sequence<Ops>{});
  static constexpr auto ops = [] {
    std::array<scalar_op, Ops> list{};
    for (std::size_t i = 0; i < Ops; ++i) {
      const auto word = words[2 * i], value = words[2 * i + 1];
      scalar_op& o = list[i];
      o.op = codes[i];
      o.type = static_cast<dtype>(word >> 8 & 15);
      o.operand_type = static_cast<dtype>(word >> 12 & 15);
      o.dim = static_cast<std::int8_t>((word >> 16 & 1) != 0 ? 0 : -1);
      const auto count = static_cast<int>(word >> 20 & 15);
      for (int k = 0; k < count; ++k) o.args.push_back(static_cast<std::int16_t>(word >> (24 + 8 * k) & 255));
      if (o.op == opcode::parameter) o.strides = extents(1, static_cast<std::int64_t>(value));
      else if (is_floating(o.type)) o.real = std::bit_cast<double>(value);
      else o.integer = static_cast<std::int64_t>(value);
    }
    return list;
  }();
  static constexpr auto stores = [] {
    std::array<fused_store, store_count> list{};
    for (std::size_t s = 0; s < store_count; ++s)
      list[s] = fused_store{static_cast<std::int16_t>(words[2 * Ops + s]), static_cast<std::int16_t>(s)};
    return list;
  }();
};

/// A group of one dim. It has `Elems` elements; if Elems is 0, any number with the remainder `Rest` modulo 64. If Rest
/// is -1, the remainder is unknown. If InPieces, these numbers are for the inner piece of a row, and the pieces to its
/// left and right are short.
template <class Description, std::int64_t Elems, std::int64_t Rest, bool InPieces>
struct fused_row {
  static constexpr extents loop = extents(1, Elems);
  static constexpr dim_mask cut = Rest < 0 ? 1 : 0;
  static constexpr const auto& ops = Description::ops;
  static constexpr const auto& stores = Description::stores;
  static constexpr std::int64_t rest = Rest;
  static constexpr bool in_pieces = InPieces;
};

/// Returns the number of elements of a row at which no load at an offset leaves the row.
template <class Group>
constexpr std::int64_t inner_elems() {
  const int last = Group::loop.count - 1;
  std::int64_t low = 0, high = 0;
  for (const auto& o : Group::ops) {
    for (const auto& along : o.offsets) {
      if (along.dim != last || o.given != 0) continue;
      if (low < -along.by) low = -along.by;
      if (high < along.by) high = along.by;
    }
  }
  return last < 0 ? 1 : Group::loop[last] < low + high ? 0 : Group::loop[last] - low - high;
}
template <class Group>
constexpr bool has_rows_in_pieces() {
  return Group::loop.count > 0 && inner_elems<Group>() < Group::loop[Group::loop.count - 1];
}

/// Returns true if the length of a group's rows is known at run time only: rows end early on some device, or are
/// computed in pieces that the type does not show.
template <class Group>
constexpr bool ends_early() {
  return Group::loop.count > 0 && (Group::cut & dim_bit(Group::loop.count - 1)) != 0;
}
template <class Group>
constexpr bool has_cut_rows() {
  return ends_early<Group>() || has_rows_in_pieces<Group>();
}

template <class Group>
constexpr bool has_shared_row() {
  if (std::size(Group::ops) > most_shared_ops) return false;
  for (const auto& o : Group::ops)
    if (o.op == scalar_code_of<map_op> || is_own(o.type) || is_own(o.operand_type)) return false;
  return true;
}

/// Writes the words of a group, for groups that are known at compile time and for native_code.
template <class Ops, class Stores>
constexpr void write_row_words(const Ops& ops, const Stores& stores, int last, std::uint64_t* words) {
  for (const scalar_op& o : ops) {
    auto &word = *words++, &value = *words++;
    word = word_of_short_id(short_id(o.op)) | static_cast<std::uint64_t>(o.type) << 8 |
           static_cast<std::uint64_t>(o.operand_type) << 12 |
           static_cast<std::uint64_t>(o.op == opcode::iota && o.dim == last ? 1 : 0) << 16 |
           static_cast<std::uint64_t>(o.args.count) << 20;
    for (int k = 0; k < o.args.count; ++k) word |= static_cast<std::uint64_t>(o.args[k]) << (24 + 8 * k);
    if (o.op == opcode::parameter) value = last < 0 ? 0 : static_cast<std::uint64_t>(o.strides[last]);
    if (o.op == opcode::constant)
      value = is_floating(o.type) ? std::bit_cast<std::uint64_t>(o.real) : static_cast<std::uint64_t>(o.integer);
  }
  for (const auto& s : stores) *words++ = static_cast<std::uint64_t>(s.op);
}
template <class Group>
constexpr auto row_words() {
  std::array<std::uint64_t, 2 * std::size(Group::ops) + std::size(Group::stores)> words{};
  write_row_words(Group::ops, Group::stores, Group::loop.count - 1, words.data());
  return words;
}

/// The type of a group's rows: a shared type if possible, otherwise the group itself.
template <class Group, bool IsShared = has_shared_row<Group>()>
struct row_of_group {
  static constexpr auto words = row_words<Group>();
  static constexpr std::int64_t elems = inner_elems<Group>();
  static constexpr bool is_cut = ends_early<Group>(), is_short = !is_cut && elems < constant_row_elems,
                        in_pieces = !is_cut && has_rows_in_pieces<Group>();
  template <std::size_t... W>
  static auto find(std::index_sequence<W...>) -> fused_row<row_description<std::size(Group::ops), words[W]...>,
                                                           (is_short ? elems : 0), (is_cut ? -1 : elems % 64), in_pieces>;
  using type = decltype(find(std::make_index_sequence<words.size()>{}));
};
template <class Group>
struct row_of_group<Group, false> {
  using type = Group;
};

}  // namespace gspmd::detail
