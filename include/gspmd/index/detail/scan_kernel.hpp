// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "gspmd/detail/support/target.hpp"
#include "gspmd/index/detail/scan_table.hpp"

/// Scans, and largest elements, of the lines of a shard.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Computes out[i] = prefix op x[0] op ... op x[i] for each line along the dim. `valid` is the number of elements of a
/// line that are not padding. `totals` has the reduction of each part, and `part` is the number of this part; the
/// prefix is the reduction of the parts before it. If totals is null, there is one part and no prefix. Example: the
/// running sum of 1, 2, 3 is 1, 3, 6; exclusive 0, 1, 3; reversed 6, 5, 3.
template <monoid Kind, class T>
void scan_lines(const scan_spec& s, std::int64_t valid, std::int64_t part, const void* from, const void* from_totals, void* to) {
  using element = combined_t<Kind, T>;
  const auto *const x = static_cast<const element*>(from), *const totals = static_cast<const element*>(from_totals);
  auto* const out = static_cast<element*>(to);
  // -0 and +0 are equal, so the zero that a maximum or minimum keeps depends on the order of its operands. The order of
  // a part's total differs from the order of a line. So a running maximum or minimum is never -0, on any mesh. For all
  // other numbers and NaN, x + 0 is x.
  const auto combine = [](element a, element b) {
    constexpr bool keeps_one = Kind == monoid::max || Kind == monoid::min;
    if constexpr (keeps_one && std::is_floating_point_v<element>) return combine_lanes<Kind>(a, b) + element{};
    else return combine_lanes<Kind>(a, b);
  };
  const auto nothing = static_cast<element>(identity<T>(Kind));
  std::int64_t outer = 1, inner = 1;
  for (int d = 0; d < s.dim; ++d) outer *= s.shape[d];
  for (int d = s.dim + 1; d < s.shape.count; ++d) inner *= s.shape[d];
  const std::int64_t n = s.shape[s.dim];
  if (valid <= 0) return;
  const std::int64_t first = s.is_reversed ? valid - 1 : 0, step = s.is_reversed ? -1 : 1;
  const auto before = [&](std::int64_t o, std::int64_t j) {  // the reduction of the parts before this part, in their order
    element sum = nothing;
    if (totals == nullptr) return sum;
    for (std::int64_t p = s.is_reversed ? s.parts - 1 : 0; p != part; p += step)
      sum = combine(sum, totals[(o * s.parts + p) * inner + j]);
    return sum;
  };
  for (std::int64_t o = 0; o < outer; ++o) {
    const element* const line = x + o * n * inner;
    element* const result = out + o * n * inner;
    if (inner == 1) {
      element sum = before(o, 0);
      if (s.is_exclusive)
        for (std::int64_t i = first, left = valid; left > 0; --left, i += step) {
          const element next = line[i];
          result[i] = sum;
          sum = combine(sum, next);
        }
      else
        for (std::int64_t i = first, left = valid; left > 0; --left, i += step) result[i] = sum = combine(sum, line[i]);
      continue;
    }
    for (std::int64_t j = 0; j < inner; ++j) {
      const element sum = before(o, j);
      result[first * inner + j] = s.is_exclusive ? sum : combine(sum, line[first * inner + j]);
    }
    for (std::int64_t i = first + step, left = valid - 1; left > 0; --left, i += step) {
      const element* const last = result + (i - step) * inner;
      const element* const next = line + (s.is_exclusive ? i - step : i) * inner;
      element* const row = result + i * inner;
      for (std::int64_t j = 0; j < inner; ++j) row[j] = combine(last[j], next[j]);
    }
  }
}
using line_scanner = void (*)(const scan_spec&, std::int64_t valid, std::int64_t part, const void* x, const void* totals,
                              void* out);

/// The number of an element that does not exist, in a part with fewer than k elements.
inline constexpr std::int32_t no_element = std::numeric_limits<std::int32_t>::max();

/// Returns true if an element precedes another element in the order of top_k: larger elements first, NaN before all
/// numbers. Among equal elements the first one precedes.
template <class T>
constexpr bool stands_before(T a, std::int32_t at_a, T b, std::int32_t at_b) {
  if (a > b) return true;
  if (a < b) return false;
  const bool a_is_nan = a != a, b_is_nan = b != b;
  if (a_is_nan != b_is_nan) return a_is_nan;
  return at_a < at_b;
}
/// The number of elements that top_of_line compares together.
inline constexpr std::int64_t passed_over = 32;
/// Returns false if one of `passed_over` elements is larger than `worst` or NaN.
template <class T>
bool all_at_most(const T* x, T worst) {
  int others = 0;  // a sum, because compilers vectorise it
  for (std::int64_t i = 0; i < passed_over; ++i) others += x[i] <= worst ? 0 : 1;
  return others == 0;
}
/// Finds the first `k` of `n` elements in the order of top_k. Keeps them in a heap with the last one at the top, then
/// removes them one by one. Example: 3, 1, 3, NaN with k = 2 gives NaN, 3 at 3, 0.
template <class T>
void top_of_line(const T* x, const std::int32_t* numbers, std::int64_t n, std::int64_t first, std::int64_t k, T* best,
                 std::int32_t* at) {
  std::int64_t count = 0;
  const auto is_last = [&](std::int64_t a, std::int64_t b) { return stands_before(best[b], at[b], best[a], at[a]); };
  /// Inserts an element at the top of the heap of the first `end` elements and moves it down.
  const auto sink = [&](std::int64_t end, T value, std::int32_t number) {
    std::int64_t i = 0;
    for (std::int64_t child = 1; child < end; i = child, child = 2 * i + 1) {
      if (child + 1 < end && is_last(child + 1, child)) ++child;
      if (!stands_before(value, number, best[child], at[child])) break;
      best[i] = best[child], at[i] = at[child];
    }
    best[i] = value, at[i] = number;
  };
  for (std::int64_t i = 0; i < n && k > 0; ++i) {
    if (count == k && numbers == nullptr) {  // nearly all elements are skipped: among equal elements the first one precedes
      const T worst = best[0];
      while (i + passed_over <= n && all_at_most(x + i, worst)) i += passed_over;
      while (i < n && x[i] <= worst) ++i;
      if (i == n) break;
    }
    const std::int32_t number = numbers == nullptr ? static_cast<std::int32_t>(first + i) : numbers[i];
    if (number == no_element) continue;
    if (count < k) {
      best[count] = x[i];
      at[count] = number;
      for (std::int64_t c = count++; c > 0 && is_last(c, (c - 1) / 2); c = (c - 1) / 2) {
        std::swap(best[c], best[(c - 1) / 2]);
        std::swap(at[c], at[(c - 1) / 2]);
      }
    } else if (stands_before(x[i], number, best[0], at[0])) {
      sink(count, x[i], number);
    }
  }
  for (std::int64_t end = count; end > 1;) {
    const T value = best[--end];
    const std::int32_t number = at[end];
    best[end] = best[0], at[end] = at[0];
    sink(end, value, number);
  }
  for (; count < k; ++count) best[count] = T{}, at[count] = no_element;
}
/// Finds the largest elements of all lines. A line has `valid` elements that are not padding, from global index `first`
/// on.
template <class T>
void top_of_lines(const top_k_spec& s, std::int64_t valid, std::int64_t first, const void* from, const std::int32_t* numbers,
                  void* to, std::int32_t* at) {
  const std::int64_t n = s.shape[s.shape.count - 1];
  std::int64_t line_count = 1;
  for (int d = 0; d + 1 < s.shape.count; ++d) line_count *= s.shape[d];
  for (std::int64_t l = 0; l < line_count; ++l)
    top_of_line(static_cast<const T*>(from) + l * n, numbers == nullptr ? nullptr : numbers + l * n, valid, first, s.k,
                static_cast<T*>(to) + l * s.k, at + l * s.k);
}
using top_finder = void (*)(const top_k_spec&, std::int64_t valid, std::int64_t first, const void* x, const std::int32_t* numbers,
                            void* best, std::int32_t* at);

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
