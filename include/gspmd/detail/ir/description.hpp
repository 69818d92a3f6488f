// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "gspmd/detail/ir/plan_table.hpp"
#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/vec.hpp"

/// The data of a step whose kernel is not listed, as words in two tables of the plan. So a plan does not depend on the
/// types of such data. A description is an aggregate with `==`, and it states its members:
///
///   struct scan_spec {
///     extents shape;
///     std::int8_t dim = 0;
///     bool is_reversed = false;
///     static constexpr void fields(auto& s, auto f) { f(s.shape, s.dim, s.is_reversed); }
///   };
///
/// A member is an integer, bool, enumeration or floating-point number, an inline_vec, or a type with `fields`.
namespace gspmd::detail {

/// The entries of the two tables. `spec` of a step is an index of a described_range.
struct description_word {
  std::int64_t bits = 0;
  friend constexpr bool operator==(const description_word&, const description_word&) = default;
};
struct described_range {
  int begin = 0, count = 0;
  friend constexpr bool operator==(const described_range&, const described_range&) = default;
};

/// A kernel whose step has no data, or a number in `spec`.
struct no_description {};

template <class T>
inline constexpr bool is_inline_vec = false;
template <class T, int N>
inline constexpr bool is_inline_vec<inline_vec<T, N>> = true;

template <class T>
constexpr void write_words(vec<description_word>& to, const T& x) {
  if constexpr (requires { T::fields(x, [](const auto&...) {}); }) {
    T::fields(x, [&to](const auto&... member) { (write_words(to, member), ...); });
  } else if constexpr (is_inline_vec<T>) {
    to.push_back({x.count});
    for (int i = 0; i < x.count; ++i) write_words(to, x.items[i]);
  } else if constexpr (std::is_floating_point_v<T>) {
    to.push_back({std::bit_cast<std::int64_t>(static_cast<double>(x))});
  } else {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>,
                  "gspmd: a member of a kernel's description is no number, enumeration or inline_vec; give its type `fields`");
    to.push_back({static_cast<std::int64_t>(x)});
  }
}
/// Reads `x` and returns the address after its words.
template <class T>
constexpr const description_word* read_words(const description_word* from, T& x) {
  if constexpr (requires { T::fields(x, [](auto&...) {}); }) {
    T::fields(x, [&from](auto&... member) { ((from = read_words(from, member)), ...); });
  } else if constexpr (is_inline_vec<T>) {
    x.count = static_cast<int>((from++)->bits);
    for (int i = 0; i < x.count; ++i) from = read_words(from, x.items[i]);
  } else if constexpr (std::is_floating_point_v<T>) {
    x = static_cast<T>(std::bit_cast<double>((from++)->bits));
  } else {
    x = static_cast<T>((from++)->bits);
  }
  return from;
}

/// Adds a description to the tables of a plan and returns its number. Returns the number of an equal description among
/// the last entries_looked_at descriptions, if one exists.
template <class Description>
constexpr int description_entry(auto& tables, const Description& d) {
  vec<description_word>& words = table_of<description_word>(tables);
  vec<described_range>& ranges = table_of<described_range>(tables);
  const std::size_t begin = words.size();
  write_words(words, d);
  const std::size_t count = words.size() - begin,
                    first = ranges.size() < entries_looked_at ? 0 : ranges.size() - entries_looked_at;
  for (std::size_t i = ranges.size(); i-- > first;) {
    bool is_equal = static_cast<std::size_t>(ranges[i].count) == count;
    for (std::size_t k = 0; k < count && is_equal; ++k)
      is_equal = words[static_cast<std::size_t>(ranges[i].begin) + k] == words[begin + k];
    if (!is_equal) continue;
    words.resize(begin);
    return static_cast<int>(i);
  }
  ranges.push_back({static_cast<int>(begin), static_cast<int>(count)});
  return static_cast<int>(ranges.size()) - 1;
}
/// Returns description `number` of a plan.
template <class Description>
constexpr Description read_description(const auto& tables, int number) {
  Description d{};
  const described_range& range = table_of<described_range>(tables)[static_cast<std::size_t>(number)];
  read_words(table_of<description_word>(tables).data() + range.begin, d);
  return d;
}

}  // namespace gspmd::detail
