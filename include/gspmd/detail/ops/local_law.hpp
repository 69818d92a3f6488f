// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/detail/exec/monoid_ops.hpp"
#include "gspmd/detail/ir/local_function.hpp"

/// The law of a local_op, tried on small blocks: for every letter that may be split, in and out of the function commute
/// with cutting it,
///
///     parallel     f of the parts, put side by side, is f of the whole
///     reduction    f of the parts, combined by the monoid, is f of the whole
///
/// and the function writes all of its result, and nothing else. One letter is cut at a time: what holds for any extents of the
/// others holds for all cuts together. Ordinary code: the compiler runs it where it can run the function, else the program.
///
/// Extents of 2, 3 and 4 are cut at every place, with two patterns of numbers, as far as that is cheap: after the first cut the
/// next one is tried while the blocks tried for a letter have had fewer than `most_tried` elements. Stated extents of 64 by 64
/// are so many at once: such a function is tried in halves, on one pattern.
namespace gspmd::detail {

/// What is broken: by which letter, and the extent and the cut that show it.
struct law_finding {
  enum class kind : std::uint8_t { holds, unknown, untried, unwritten, outside, parallel, reduction };
  kind broken = kind::holds;
  int letter = 0;
  std::int64_t extent = 0;
  std::int64_t cut = 0;
  friend constexpr bool operator==(const law_finding&, const law_finding&) = default;
};

constexpr std::size_t most_dims_of(const local_rule& rule) {
  std::size_t most = 1;
  for (const auto& dims : rule.tensors)
    if (static_cast<std::size_t>(dims.count) > most) most = static_cast<std::size_t>(dims.count);
  return most;
}

constexpr text law_text(const local_rule& rule, const law_finding& found) {
  text t("the function of ");
  t << local_rule_text(rule);
  const char name = found.broken >= law_finding::kind::parallel ? rule.letters[found.letter].name : ' ';
  if (found.broken == law_finding::kind::untried)
    return t << " cannot be tried on small blocks: the extents that the rule states are none there; state others";
  if (found.broken == law_finding::kind::unwritten)
    return t << " leaves elements of its result as they were, or reads them; every call must write all of them";
  if (found.broken == law_finding::kind::outside)
    return t << " writes past the extents of its block; take the strides of the block";
  t << " does not work part by part along `" << name << "`: ";
  if (found.broken == law_finding::kind::parallel) t << "its results for the parts, side by side,";
  else t << "its results for the parts, combined by " << name_of(rule.kind) << ',';
  t << " are not its result for the whole (`" << name << "` of " << found.extent << ", cut at " << found.cut << "); mark `"
    << name << "` as whole: [" << name << ']';
  if (found.broken == law_finding::kind::reduction) t << ", state the monoid with reduces<...>,";
  return t << " or correct the function";
}

/// Elements that a constant evaluation may allocate; of bool too.
template <class T>
class law_array {
 public:
  constexpr law_array(std::int64_t count, T value) : items_(new T[static_cast<std::size_t>(count) + 1]) {
    for (std::int64_t i = 0; i <= count; ++i) items_[i] = value;
  }
  constexpr law_array(law_array&& other) noexcept : items_(other.items_) { other.items_ = nullptr; }
  law_array& operator=(law_array&&) = delete;
  constexpr ~law_array() { delete[] items_; }
  [[nodiscard]] constexpr T* get() const { return items_; }

 private:
  T* items_;
};

/// Sums and products of whole numbers are exact; what else a function of floats computes may depend on the order in the last
/// bits.
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

/// `Typed` has the rule, `function`, the element types as `operand<K>` and `result`, and `call(f, operands, out, places)`.
template <class Typed>
struct local_law {
  using F = typename Typed::function;
  using R = typename Typed::result;
  static constexpr const local_rule& rule = Typed::rule;
  static constexpr int operand_count = rule.operand_count();
  static constexpr std::size_t at(int i) { return static_cast<std::size_t>(i); }
  using by_letter = std::array<std::int64_t, at(rule.letters.count) + 1>;
  static constexpr int pattern_count = 2;
  static constexpr std::int64_t most_tried = 4096;

  /// Where the elements of one tensor of a call lie: allocated with `pad` more than what is valid.
  struct place {
    std::int64_t extents[most_dims_of(rule)]{};
    std::int64_t strides[most_dims_of(rule)]{};
    std::int64_t allocated = 1;

    constexpr place(int tensor, const by_letter& sizes, const by_letter& pad) {
      const auto& dims = rule.tensors[tensor];
      for (int d = dims.count - 1; d >= 0; --d) {
        extents[d] = sizes[at(dims[d])];
        strides[d] = allocated;
        allocated *= sizes[at(dims[d])] + pad[at(dims[d])];
      }
    }
    [[nodiscard]] constexpr std::int64_t offset(int tensor, const by_letter& index) const {
      const auto& dims = rule.tensors[tensor];
      std::int64_t sum = 0;
      for (int d = 0; d < dims.count; ++d) sum += index[at(dims[d])] * strides[d];
      return sum;
    }
  };

  /// Calls `visit(index by letter)` for every element of a tensor with these extents.
  template <class Visit>
  static constexpr void for_each(int tensor, const by_letter& sizes, Visit visit) {
    const auto& dims = rule.tensors[tensor];
    by_letter index{};
    for (const auto l : dims)
      if (sizes[at(l)] == 0) return;
    while (true) {
      visit(index);
      int d = dims.count - 1;
      for (; d >= 0; --d) {
        auto& i = index[at(dims[d])];
        if (++i < sizes[at(dims[d])]) break;
        i = 0;
      }
      if (d < 0) return;
    }
  }

  /// The element of an operand at a global index: whole numbers, so that sums are exact. Pattern 0: 1 to 9; 1: -4 to 5, no 0.
  template <class T>
  static constexpr T element(int tensor, const by_letter& index, const by_letter& from, int pattern) {
    std::uint32_t h = static_cast<std::uint32_t>(tensor) * 7U + 3U;
    for (const auto l : rule.tensors[tensor])
      h = (h ^ static_cast<std::uint32_t>(index[at(l)] + from[at(l)] + 1)) * 16777619U + 17U;
    const int small = static_cast<int>((h >> 7U) % 9U);
    if constexpr (std::is_same_v<T, bool>) return small % 2 == 0;
    else return static_cast<T>(pattern == 0 ? small + 1 : small < 4 ? small - 4 : small - 3);
  }

  /// The function's result for the part of the operands that begins at `from`. Result and padding hold `fill` before.
  class call {
   public:
    constexpr call(const F& f, const by_letter& sizes, const by_letter& from, const by_letter& pad, int pattern, R fill)
        : place_(operand_count, sizes, pad), result_(place_.allocated, fill) {
      run(f, sizes, from, pad, pattern, std::make_index_sequence<at(operand_count)>{});
    }
    [[nodiscard]] constexpr R at_index(const by_letter& index) const {
      return result_.get()[place_.offset(operand_count, index)];
    }
    [[nodiscard]] constexpr bool left_padding(const by_letter& sizes, R fill) const {
      const law_array<bool> valid(place_.allocated, false);
      for_each(operand_count, sizes, [&](const by_letter& i) { valid.get()[place_.offset(operand_count, i)] = true; });
      for (std::int64_t i = 0; i <= place_.allocated; ++i)
        if (!valid.get()[i] && !same_number(result_.get()[i], fill)) return false;
      return true;
    }

   private:
    template <std::size_t... K>
    constexpr void run(const F& f, const by_letter& sizes, const by_letter& from, const by_letter& pad, int pattern,
                       std::index_sequence<K...>) {
      const place places[] = {place(static_cast<int>(K), sizes, pad)..., place_};
      const std::tuple operands{
          filled<typename Typed::template operand<K>>(static_cast<int>(K), places[K], sizes, from, pattern)...};
      Typed::call(f, std::tuple{static_cast<const typename Typed::template operand<K>*>(std::get<K>(operands).get())...},
                  result_.get(), places);
    }
    template <class T>
    static constexpr law_array<T> filled(int tensor, const place& p, const by_letter& sizes, const by_letter& from, int pattern) {
      law_array<T> items(p.allocated, T(1));
      for_each(tensor, sizes,
               [&](const by_letter& i) { items.get()[p.offset(tensor, i)] = element<T>(tensor, i, from, pattern); });
      return items;
    }

    place place_;
    law_array<R> result_;
  };

  /// Small extents, those of whole letters large enough for what is stated to be there. False if there are none.
  static constexpr bool choose(by_letter& sizes, int tested, std::int64_t extent, int pattern) {
    std::int64_t product = extent;
    for (int l = 0; l < rule.letters.count; ++l) {
      const auto& letter = rule.letters[l];
      const int whole = letter.kind == factor_kind::gathered ? 1 : 0;
      if (l == tested) sizes[at(l)] = extent;
      else sizes[at(l)] = product > 16 ? 1 : (l + pattern) % 3 + 1 + whole;
      if (letter.stated && letter.of < 0) sizes[at(l)] = letter.plus;
      product *= sizes[at(l)];
    }
    for (int round = 0; round < 1000; ++round) {
      bool fits = true;
      for (int l = 0; l < rule.letters.count; ++l) {
        const auto& letter = rule.letters[l];
        if (!letter.stated || letter.of < 0) continue;
        sizes[at(l)] = letter.times * sizes[at(letter.of)] / letter.per + letter.plus;
        if (sizes[at(l)] >= 1) continue;
        if (letter.of == tested || rule.letters[letter.of].stated || letter.times == 0) return false;
        fits = false;
        ++sizes[at(letter.of)];
      }
      if (fits) return true;
    }
    return false;
  }

  /// The elements of all tensors of a call.
  static constexpr std::int64_t elements_of(const by_letter& sizes) {
    std::int64_t sum = 0;
    for (int k = 0; k <= operand_count; ++k) sum += place(k, sizes, all(0)).allocated;
    return sum;
  }
  /// Whether trying a letter once takes all that may be tried, and one pattern has to do.
  static constexpr bool is_large(int letter) {
    by_letter sizes{};
    return choose(sizes, letter, letter < 0 ? 1 : 2, 0) && 2 * elements_of(sizes) >= most_tried;
  }

  static constexpr by_letter all(std::int64_t n) {
    by_letter list{};
    for (auto& i : list) i = n;
    return list;
  }

  /// The function writes all of its result, and nothing else.
  static constexpr law_finding try_writing(const F& f, int pattern) {
    if (pattern > 0 && is_large(-1)) return {};
    by_letter sizes{};
    if (!choose(sizes, -1, 1, pattern)) return {law_finding::kind::untried};
    const call first(f, sizes, all(0), all(1), pattern, R(0));
    const call second(f, sizes, all(0), all(1), pattern, R(1));
    bool same = true;
    for_each(operand_count, sizes,
             [&](const by_letter& i) { same = same && same_number(first.at_index(i), second.at_index(i)); });
    if (!same) return {law_finding::kind::unwritten};
    if (!first.left_padding(sizes, R(0)) || !second.left_padding(sizes, R(1))) return {law_finding::kind::outside};
    return {};
  }

  /// One letter, cut in two at every place, and in three.
  static constexpr law_finding try_letter(const F& f, int letter, int pattern) {
    const auto kind = rule.letters[letter].kind;
    if (kind == factor_kind::gathered || (pattern > 0 && is_large(letter))) return {};
    bool tried = false;
    std::int64_t elements = 0;  // of all calls
    for (std::int64_t extent = 2; extent <= 4; ++extent) {
      by_letter sizes{};
      if ((tried && elements >= most_tried) || !choose(sizes, letter, extent, pattern)) continue;
      tried = true;
      elements += elements_of(sizes);
      const call whole(f, sizes, all(0), all(0), pattern, R(0));
      for (std::int64_t cut = 1; cut <= extent; ++cut) {  // the last time in three parts, 1, 1 and the rest
        const bool in_three = cut == extent;
        if ((in_three && extent < 3) || (cut > 1 && elements >= most_tried)) break;
        elements += elements_of(sizes);
        const std::int64_t bounds[] = {0, in_three ? 1 : cut, in_three ? 2 : extent, extent};
        const place sum_place(operand_count, sizes, all(0));
        const law_array<R> sum(sum_place.allocated, identity<R>(rule.kind));
        bool same = true;
        for (int part = 0; part < (in_three ? 3 : 2); ++part) {
          by_letter own = sizes;
          own[at(letter)] = bounds[part + 1] - bounds[part];
          by_letter from{};
          from[at(letter)] = bounds[part];
          by_letter pad = all(pattern);
          pad[at(letter)] = 1;
          const call piece(f, own, from, pad, pattern, R(1));
          for_each(operand_count, own, [&](const by_letter& i) {
            if (kind == factor_kind::parallel) {
              by_letter global = i;
              global[at(letter)] += bounds[part];
              same = same && same_number(piece.at_index(i), whole.at_index(global));
            } else {
              R& total = sum.get()[sum_place.offset(operand_count, i)];
              total = combine<R>(rule.kind, total, piece.at_index(i));
            }
          });
        }
        if (kind == factor_kind::reduction)
          for_each(operand_count, sizes, [&](const by_letter& i) {
            same = same && same_number(sum.get()[sum_place.offset(operand_count, i)], whole.at_index(i));
          });
        if (!same)
          return {kind == factor_kind::parallel ? law_finding::kind::parallel : law_finding::kind::reduction, letter, extent,
                  in_three ? 1 : cut};
      }
    }
    if (!tried) return {law_finding::kind::untried, letter};
    return {};
  }

  /// Everything, at run time or in one evaluation.
  static constexpr law_finding try_all(const F& f) {
    for (int pattern = 0; pattern < pattern_count; ++pattern) {
      const law_finding written = try_writing(f, pattern);
      if (written.broken != law_finding::kind::holds) return written;
      for (int l = 0; l < rule.letters.count; ++l) {
        const law_finding found = try_letter(f, l, pattern);
        if (found.broken != law_finding::kind::holds) return found;
      }
    }
    return {};
  }
};

/// What the compiler finds; `unknown` where it cannot run the function. Each letter is an evaluation of its own, because
/// compilers limit their steps.
template <class Typed, int Letter, int Pattern>
struct law_case {
  static constexpr law_finding run() {
    const typename Typed::function f{};
    if constexpr (Letter < 0) return local_law<Typed>::try_writing(f, Pattern);
    else return local_law<Typed>::try_letter(f, Letter, Pattern);
  }
};
template <class Case, law_finding Found = Case::run()>
constexpr law_finding compiled_finding(int) {
  return Found;
}
template <class Case>
constexpr law_finding compiled_finding(long) {
  return {law_finding::kind::unknown};
}

/// What is written is tried first, on the smallest blocks: where the compiler cannot run the function, it is not asked again.
template <class Typed>
inline constexpr law_finding compiled_law = [] {
  constexpr law_finding written = compiled_finding<law_case<Typed, -1, 0>>(0);
  if constexpr (written.broken != law_finding::kind::holds) {
    return written;
  } else {
    return []<int... I>(std::integer_sequence<int, I...>) {
      law_finding result;
      constexpr int cases = Typed::rule.letters.count + 1;
      const law_finding each[] = {compiled_finding<law_case<Typed, (I + 1) % cases - 1, (I + 1) / cases>>(0)...};
      for (const auto& found : each) {
        if (found.broken == law_finding::kind::holds) continue;
        if (found.broken != law_finding::kind::unknown) return found;
        result = found;
      }
      return result;
    }(std::make_integer_sequence<int, (Typed::rule.letters.count + 1) * local_law<Typed>::pattern_count - 1>{});
  }
}();

/// The law at run time; empty if it holds.
template <class Typed>
text law_at_run_time(const typename Typed::function& f) {
  try {
    const law_finding found = local_law<Typed>::try_all(f);
    return found.broken == law_finding::kind::holds ? text() : law_text(Typed::rule, found);
  } catch (const std::exception& e) {
    return text("the function of ") << local_rule_text(Typed::rule) << " threw on small blocks: " << e.what();
  }
}

}  // namespace gspmd::detail
