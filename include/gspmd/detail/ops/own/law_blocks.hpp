// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ir/local_function.hpp"
#include "gspmd/detail/ir/monoid_ops.hpp"

/// The small blocks that test the law of a local_op: extents, memory layout, and numbers. Nothing here depends
/// on the function, and little on the element types, so the code is compiled once and not for each function.
namespace gspmd::detail {

/// For each letter of a rule: its extent, index, or padding.
using letter_numbers = std::array<std::int64_t, max_rank>;
using letter_list = inline_vec<std::int8_t, max_rank>;

constexpr std::size_t of_letter(int letter) { return static_cast<std::size_t>(letter); }
constexpr letter_numbers for_all_letters(const local_rule& rule, std::int64_t n) {
  letter_numbers list{};
  for (int l = 0; l < rule.letters.count; ++l) list[of_letter(l)] = n;
  return list;
}

/// The memory layout of a tensor in a call. Each dim is allocated with `pad` more elements than are valid.
struct law_place {
  std::int64_t extents[max_rank]{};
  std::int64_t strides[max_rank]{};
  std::int64_t allocated = 1;

  constexpr law_place(const letter_list& dims, const letter_numbers& sizes, const letter_numbers& pad) {
    for (int d = dims.count - 1; d >= 0; --d) {
      extents[d] = sizes[of_letter(dims[d])];
      strides[d] = allocated;
      allocated *= sizes[of_letter(dims[d])] + pad[of_letter(dims[d])];
    }
  }
  [[nodiscard]] constexpr std::int64_t offset(const letter_list& dims, const letter_numbers& index) const {
    std::int64_t sum = 0;
    for (int d = 0; d < dims.count; ++d) sum += index[of_letter(dims[d])] * strides[d];
    return sum;
  }
};

/// Iterates over the elements of a tensor: `for (law_walk i(dims, sizes); i.is_there; i.step())`.
struct law_walk {
  const letter_list& dims;
  const letter_numbers& sizes;
  letter_numbers index{};
  bool is_there = true;

  constexpr law_walk(const letter_list& tensor, const letter_numbers& limits) : dims(tensor), sizes(limits) {
    for (const auto l : dims) is_there = is_there && sizes[of_letter(l)] != 0;
  }
  constexpr void step() {
    for (int d = dims.count - 1; d >= 0; --d) {
      auto& i = index[of_letter(dims[d])];
      if (++i < sizes[of_letter(dims[d])]) return;
      i = 0;
    }
    is_there = false;
  }
};

/// Returns the element of an operand at a global index: an integer, so that sums are exact. Pattern 0: 1 to 9. Pattern
/// 1: -4 to 5, without 0.
template <class T>
constexpr T small_number(const local_rule& rule, int tensor, const letter_numbers& index, const letter_numbers& from,
                         int pattern) {
  std::uint32_t h = static_cast<std::uint32_t>(tensor) * 7U + 3U;
  for (const auto l : rule.tensors[tensor])
    h = (h ^ static_cast<std::uint32_t>(index[of_letter(l)] + from[of_letter(l)] + 1)) * 16777619U + 17U;
  const int small = static_cast<int>((h >> 7U) % 9U);
  if constexpr (std::is_same_v<T, bool>) return small % 2 == 0;
  else return static_cast<T>(pattern == 0 ? small + 1 : small < 4 ? small - 4 : small - 3);
}

template <class F> concept has_samples = requires(const F& f) { f.samples(); };

/// The numbers of the operands, one pattern after the other.
template <class F>
struct law_numbers {
  constexpr explicit law_numbers(const F&) {}
  [[nodiscard]] static constexpr int patterns() { return 2; }
  template <class T, int Operand>
  [[nodiscard]] constexpr T at(const local_rule& rule, const letter_numbers& index, const letter_numbers& from,
                               int pattern) const {
    return small_number<T>(rule, Operand, index, from, pattern);
  }
};
/// The numbers that the user's samples() returns. There is one pattern for each sample. A pattern begins with its
/// sample; the next index of any letter has the next sample.
template <has_samples F>
struct law_numbers<F> {
  using list = std::remove_cvref_t<decltype(std::declval<const F&>().samples())>;
  list samples;

  constexpr explicit law_numbers(const F& f) : samples(f.samples()) {}
  [[nodiscard]] constexpr int patterns() const { return samples.empty() ? 2 : static_cast<int>(samples.size()); }
  template <class T, int Operand>
  [[nodiscard]] constexpr T at(const local_rule& rule, const letter_numbers& index, const letter_numbers& from,
                               int pattern) const {
    if (samples.empty()) return small_number<T>(rule, Operand, index, from, pattern);
    auto i = static_cast<std::size_t>(pattern);
    for (const auto l : rule.tensors[Operand]) i += static_cast<std::size_t>(index[of_letter(l)] + from[of_letter(l)]);
    const auto& sample = samples[i % samples.size()];
    if constexpr (requires { std::tuple_size<std::remove_cvref_t<decltype(sample)>>::value; })
      return static_cast<T>(std::get<static_cast<std::size_t>(Operand)>(sample));
    else return static_cast<T>(sample);
  }
};

/// An array of elements that a constant evaluation may allocate, also for bool. It has some elements more than
/// requested. A function that mistakes two extents for equal then reads these, and the law reports it, instead of
/// memory outside of the array.
template <class T>
class law_array {
 public:
  static constexpr std::int64_t behind = 16;
  constexpr law_array(std::int64_t count, T value) : items_(new T[static_cast<std::size_t>(count + behind)]) {
    for (std::int64_t i = 0; i < count + behind; ++i) items_[i] = value;
  }
  constexpr law_array(law_array&& other) noexcept : items_(std::exchange(other.items_, nullptr)) {}
  law_array& operator=(law_array&&) = delete;
  constexpr ~law_array() { delete[] items_; }
  [[nodiscard]] constexpr T* get() const { return items_; }

 private:
  T* items_;
};

/// Compares two numbers. Sums and products of integers are exact. Other functions of floats may depend on the order in
/// their last bits, so the comparison of floats has a tolerance.
template <class T>
constexpr bool same_number(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a == b || (a != a && b != b)) return true;
    const T from = a < 0 ? -a : a;
    const T to = b < 0 ? -b : b;
    const T largest = from > to ? from : to;
    if (!(largest <= std::numeric_limits<T>::max())) return false;
    const T apart = a < b ? b - a : a - b;
    return apart <= (std::is_same_v<T, float> ? T(1e-4) : T(1e-9)) * (largest > 1 ? largest : T(1));
  } else {
    return a == b;
  }
}

/// An operand of a call: the part that begins at `from`.
template <class T, int Operand>
struct law_operand : law_array<T> {
  template <class Numbers>
  constexpr law_operand(const local_rule& rule, const Numbers& numbers, const law_place& place, const letter_numbers& sizes,
                        const letter_numbers& from, int pattern)
      : law_array<T>(place.allocated, T(1)) {
    const auto& dims = rule.tensors[Operand];
    for (law_walk i(dims, sizes); i.is_there; i.step())
      this->get()[place.offset(dims, i.index)] = numbers.template at<T, Operand>(rule, i.index, from, pattern);
  }
};

/// The result of a call, or the combination of results. All elements, also padding, are `fill` before the call.
template <class R>
class law_result {
 public:
  constexpr law_result(const local_rule& rule, int r, const letter_numbers& sizes, const letter_numbers& pad, R fill)
      : place(rule.result(r), sizes, pad), dims_(rule.result(r)), sizes_(sizes), items_(place.allocated, fill) {}

  law_place place;

  [[nodiscard]] constexpr R* data() const { return items_.get(); }
  [[nodiscard]] constexpr R& at(const letter_numbers& index) const { return items_.get()[place.offset(dims_, index)]; }

  /// Returns true if the other result has the same elements.
  [[nodiscard]] constexpr bool equals(const law_result& other) const {
    bool same = true;
    for (law_walk i(dims_, sizes_); i.is_there; i.step()) same = same && same_number(at(i.index), other.at(i.index));
    return same;
  }
  /// Returns true if this result is the part of `whole` that begins at `begin` of the letter.
  [[nodiscard]] constexpr bool is_part_of(const law_result& whole, int letter, std::int64_t begin) const {
    letter_numbers corner{};
    corner[of_letter(letter)] = begin;
    const R* part = whole.items_.get() + whole.place.offset(dims_, corner);
    bool same = true;
    for (law_walk i(dims_, sizes_); i.is_there; i.step())
      same = same && same_number(at(i.index), part[whole.place.offset(dims_, i.index)]);
    return same;
  }
  /// Combines the result of a part into this one.
  constexpr void add(const law_result& part, monoid kind) const {
    for (law_walk i(dims_, sizes_); i.is_there; i.step()) at(i.index) = combine<R>(kind, at(i.index), part.at(i.index));
  }
  [[nodiscard]] constexpr bool left_padding(R fill) const {
    const law_array<bool> valid(place.allocated, false);
    for (law_walk i(dims_, sizes_); i.is_there; i.step()) valid.get()[place.offset(dims_, i.index)] = true;
    for (std::int64_t i = 0; i < place.allocated + law_array<R>::behind; ++i)
      if (!valid.get()[i] && !same_number(items_.get()[i], fill)) return false;
    return true;
  }

 private:
  const letter_list& dims_;
  letter_numbers sizes_;
  law_array<R> items_;
};

/// Chooses small extents. Whole letters get larger extents until all stated extents are at least 1. Returns false if no
/// such extents exist.
constexpr bool choose_extents(const local_rule& rule, letter_numbers& sizes, int tested, std::int64_t extent, int pattern) {
  std::int64_t product = extent;
  for (int l = 0; l < rule.letters.count; ++l) {
    const auto& letter = rule.letters[l];
    const int whole = letter.kind == factor_kind::whole ? 1 : 0;
    if (l == tested) sizes[of_letter(l)] = extent;
    else sizes[of_letter(l)] = product > 16 ? 1 : (l + pattern) % 3 + 1 + whole;
    if (letter.stated && letter.of < 0) sizes[of_letter(l)] = letter.plus;
    product *= sizes[of_letter(l)];
  }
  for (int round = 0; round < 1000; ++round) {
    bool fits = true;
    for (int l = 0; l < rule.letters.count; ++l) {
      const auto& letter = rule.letters[l];
      if (!letter.stated || letter.of < 0) continue;
      sizes[of_letter(l)] = letter.times * sizes[of_letter(letter.of)] / letter.per + letter.plus;
      if (sizes[of_letter(l)] >= 1) continue;
      if (letter.of == tested || rule.letters[letter.of].stated || letter.times == 0) return false;
      fits = false;
      ++sizes[of_letter(letter.of)];
    }
    if (fits) return true;
  }
  return false;
}

/// Returns the number of elements of all tensors of a call.
constexpr std::int64_t elements_tried(const local_rule& rule, const letter_numbers& sizes) {
  std::int64_t sum = 0;
  for (const auto& dims : rule.tensors) sum += law_place(dims, sizes, letter_numbers{}).allocated;
  return sum;
}
/// The limit of tested elements for a letter: after it, no further cut of the letter is tested.
inline constexpr std::int64_t most_tried = 4096;
/// Returns true if testing a letter once reaches the limit, so that only one pattern is tested.
constexpr bool is_large(const local_rule& rule, int letter) {
  letter_numbers sizes{};
  return choose_extents(rule, sizes, letter, letter < 0 ? 1 : 2, 0) && 2 * elements_tried(rule, sizes) >= most_tried;
}

}  // namespace gspmd::detail
