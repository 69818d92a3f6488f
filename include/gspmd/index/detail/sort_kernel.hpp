// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ir/element_bits.hpp"
#include "gspmd/detail/support/target.hpp"
#include "gspmd/detail/support/tuning.hpp"
#include "gspmd/index/detail/sort_table.hpp"

/// Sorting. Elements are compared by their codes, unsigned numbers in the order of the elements. So one function sorts
/// all types of a width, digit by digit.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// The code of an element. NaN of either sign is the largest float.
///  ascending floats   -inf .. -1 -0 0 1 .. inf NaN -> 0x007fffff .. 0x407fffff 0x7fffffff 0x80000000 0xbf800000 ..
///                     0xff800000 0xffffffff
template <class Bits>
struct element_code {
  Bits sign = 0, infinity = 0, flip = 0;
  bool is_float = false, has_one_zero = false;

  element_code(dtype type, bool is_descending, bool one_zero) : flip(is_descending ? static_cast<Bits>(~Bits{0}) : Bits{0}) {
    const auto& facts = facts_of(type);
    is_float = facts.is_floating;
    has_one_zero = one_zero && is_float;
    if (is_float || facts.least < 0) sign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
    if (is_float) infinity = static_cast<Bits>(bits_of(type, std::numeric_limits<double>::infinity(), 0));
  }
  [[nodiscard]] Bits of(Bits x) const {
    if (!is_float) return static_cast<Bits>(x ^ sign ^ flip);
    const Bits magnitude = static_cast<Bits>(x & ~sign);
    if (magnitude > infinity) x = static_cast<Bits>(~sign);
    if (has_one_zero && magnitude == 0) x = 0;
    return static_cast<Bits>(((x & sign) != 0 ? ~x : x | sign) ^ flip);
  }
  [[nodiscard]] Bits element(Bits code) const {
    const Bits x = static_cast<Bits>(code ^ flip);
    if (!is_float) return static_cast<Bits>(x ^ sign);
    return static_cast<Bits>((x & sign) != 0 ? x ^ sign : ~x);
  }
  /// Returns the largest code of any element.
  [[nodiscard]] Bits last() const {
    if (is_float && flip != 0) return of(static_cast<Bits>(sign | infinity));
    return static_cast<Bits>(~Bits{0});
  }
};

/// Sorts entries by code(entry), which has `bytes` bytes. The sort is stable and starts with the least significant
/// digit. Returns `from` or `to`, whichever holds the result.
template <class Entry, class Code>
Entry* sort_by_digits(Entry* from, Entry* to, std::int64_t n, int bytes, Code code) {
  if (n <= most_inserted_elems) {
    for (std::int64_t i = 1; i < n; ++i) {
      const Entry entry = from[i];
      const auto own = code(entry);
      std::int64_t at = i;
      for (; at > 0 && own < code(from[at - 1]); --at) from[at] = from[at - 1];
      from[at] = entry;
    }
    return from;
  }
  constexpr int digits = 256;
  std::int64_t count[8][digits];
  std::memset(count, 0, sizeof(count[0]) * static_cast<std::size_t>(bytes));
  for (std::int64_t i = 0; i < n; ++i) {
    auto rest = code(from[i]);
    for (int b = 0; b < bytes; ++b) ++count[b][static_cast<std::uint64_t>(rest) >> (8 * b) & (digits - 1)];
  }
  for (int b = 0; b < bytes; ++b) {
    const auto digit = [&](const Entry& e) { return static_cast<std::uint64_t>(code(e)) >> (8 * b) & (digits - 1); };
    std::int64_t* const at = count[b];
    if (at[digit(from[0])] == n) continue;
    for (std::int64_t d = 0, before = 0; d < digits; ++d) before += std::exchange(at[d], before);
    for (std::int64_t i = 0; i < n; ++i) to[at[digit(from[i])]++] = from[i];
    std::swap(from, to);
  }
  return from;
}

/// The positions of a line's elements in the operand and in the result.
struct sorted_line {
  std::int64_t from, from_step, to, to_step, cols, rows;
  sorted_line(const sort_spec& s, std::int64_t o, std::int64_t j)
      : from(o * s.length * s.inner + j),
        from_step(s.inner),
        to(s.makes_rows ? (o * s.inner + j) * s.sorted_length : from),
        to_step(s.makes_rows ? 1 : s.inner),
        cols(s.cols),
        rows(s.sorted_length / s.cols) {}
  /// Calls put(position, i) for all elements of the result, in their order.
  template <class Put>
  void each(std::int64_t n, Put put) const {
    if (cols == 1)
      for (std::int64_t i = 0; i < n; ++i) put(to + i * to_step, i);
    else
      for (std::int64_t row = 0, i = 0; row < rows; ++row)
        for (std::int64_t c = 0; c < cols; ++c, ++i) put(to + (c * rows + row) * to_step, i);
  }
};

/// Sorts a single operand. Only the codes are sorted, because elements with equal codes are identical.
template <class Bits>
void sort_elements(const sort_spec& s, const sorted_line& line, std::int64_t valid, dtype type, const void* from, void* to,
                   void* scratch) {
  const auto n = s.sorted_length;
  const element_code<Bits> code(type, s.order.descending != 0, false);
  auto* const codes = static_cast<Bits*>(scratch);
  const auto* const x = static_cast<const Bits*>(from) + line.from;
  for (std::int64_t i = 0; i < valid; ++i) codes[i] = code.of(x[i * line.from_step]);
  for (std::int64_t i = valid; i < n; ++i) codes[i] = code.last();
  const Bits* const sorted = sort_by_digits(codes, codes + n, n, sizeof(Bits), [](Bits c) { return c; });
  line.each(n,
            [out = static_cast<Bits*>(to), sorted, code](std::int64_t at, std::int64_t i) { out[at] = code.element(sorted[i]); });
}

/// An element of several operands.
struct entry_of_several {
  std::uint64_t code;
  std::int64_t at;  // in its line; -1: it replaces padding
};
/// Sorts several operands: by the last key first, so that the first key has the highest priority.
inline void sort_together(const sort_spec& s, const sorted_line& line, std::int64_t valid, int count, const dtype* types,
                          const void* const* from, void* const* to, void* scratch) {
  const auto n = s.sorted_length;
  auto *entries = static_cast<entry_of_several*>(scratch), *other = entries + n;
  for (std::int64_t i = 0; i < n; ++i) entries[i].at = i < valid ? i : -1;
  for (int k = s.order.keys; k-- > 0;)
    with_word(bytes_of(types[k]), [&]<class Bits>(Bits) {
      const element_code<Bits> code(types[k], (s.order.descending >> k & 1) != 0, true);
      const auto* const x = static_cast<const Bits*>(from[k]) + line.from;
      bool is_sorted = true;
      for (std::int64_t i = 0; i < n; ++i) {
        auto& e = entries[i];
        e.code = e.at < 0 ? code.last() : code.of(x[e.at * line.from_step]);
        is_sorted = is_sorted && (i == 0 || entries[i - 1].code <= e.code);
      }
      if (is_sorted) return;
      auto* const sorted = sort_by_digits(entries, other, n, sizeof(Bits), [](const entry_of_several& e) { return e.code; });
      if (sorted != entries) std::swap(entries, other);
    });
  for (int k = 0; k < count; ++k)
    with_bits(bytes_of(types[k]), [&]<class Bits>(Bits none) {
      if constexpr (!std::is_same_v<Bits, two_words>) {
        if (k < s.order.keys) {
          const element_code<Bits> code(types[k], (s.order.descending >> k & 1) != 0, true);
          none = code.element(code.last());
        }
      }
      const auto* const x = static_cast<const Bits*>(from[k]) + line.from;
      auto* const out = static_cast<Bits*>(to[k]);
      line.each(n,
                [&](std::int64_t at, std::int64_t i) { out[at] = entries[i].at < 0 ? none : x[entries[i].at * line.from_step]; });
    });
}

/// Merges `half` own elements of a part with the same number of a neighbour's elements. Both are sorted, and the part
/// keeps `half` elements.
struct merged_end {
  bool is_begin;                  // keeps the larger ones: the neighbour is the part before
  std::int64_t own, other, step;  // positions of the first own and first other element in their rows; the step between
                                  // other elements
  std::int64_t half;
};

template <class Bits>
void merge_elements(const merged_end& m, dtype type, bool is_descending, const void* own, const void* other, void* to) {
  const element_code<Bits> code(type, is_descending, false);
  const auto *const a = static_cast<const Bits*>(own) + m.own, *const b = static_cast<const Bits*>(other) + m.other;
  auto* const out = static_cast<Bits*>(to) + m.own;
  const auto half = m.half;
  if (m.is_begin)
    for (std::int64_t k = half, i = half - 1, j = half - 1; k-- > 0;) {
      const Bits x = a[i], y = b[j * m.step];
      const bool takes = code.of(y) > code.of(x);
      out[k] = takes ? y : x;
      j -= takes ? 1 : 0;
      i -= takes ? 0 : 1;
    }
  else
    for (std::int64_t k = 0, i = 0, j = 0; k < half; ++k) {
      const Bits x = a[i], y = b[j * m.step];
      const bool takes = code.of(y) < code.of(x);
      out[k] = takes ? y : x;
      j += takes ? 1 : 0;
      i += takes ? 0 : 1;
    }
}
/// Merges the ends of several operands. No two elements have equal keys, except elements that replace padding.
inline void merge_together(const merged_end& m, const sort_order& order, int count, const dtype* types, const void* const* own,
                           const void* const* others, void* const* to, void* scratch) {
  auto* const chosen = static_cast<std::int64_t*>(scratch);  // i: own element i; -1 - j: the neighbour's element j
  const auto half = m.half;
  const auto compare = [&](std::int64_t i, std::int64_t j) {  // < 0: the own element precedes
    int result = 0;
    for (int k = 0; k < order.keys && result == 0; ++k)
      with_word(bytes_of(types[k]), [&]<class Bits>(Bits) {
        const element_code<Bits> code(types[k], (order.descending >> k & 1) != 0, true);
        const Bits x = code.of(static_cast<const Bits*>(own[k])[m.own + i]);
        const Bits y = code.of(static_cast<const Bits*>(others[k])[m.other + j * m.step]);
        result = x < y ? -1 : x > y ? 1 : 0;
      });
    return result;
  };
  if (m.is_begin)
    for (std::int64_t k = half, i = half - 1, j = half - 1; k-- > 0;) chosen[k] = compare(i, j) < 0 ? -1 - j-- : i--;
  else
    for (std::int64_t k = 0, i = 0, j = 0; k < half; ++k) chosen[k] = compare(i, j) > 0 ? -1 - j++ : i++;
  for (int c = 0; c < count; ++c)
    with_bits(bytes_of(types[c]), [&]<class Bits>(Bits) {
      const auto *const a = static_cast<const Bits*>(own[c]) + m.own, *const b = static_cast<const Bits*>(others[c]) + m.other;
      auto* const out = static_cast<Bits*>(to[c]) + m.own;
      for (std::int64_t k = 0; k < half; ++k) out[k] = chosen[k] < 0 ? b[(-1 - chosen[k]) * m.step] : a[chosen[k]];
    });
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
