// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ir/local_function.hpp"
#include "gspmd/detail/ir/monoid_ops.hpp"
#include "gspmd/detail/ops/own/law_blocks.hpp"
#include "gspmd/detail/ops/own/local_rule.hpp"

/// The law of a local_op, tested on small blocks. Each letter that may be split is cut, and the function must commute
/// with the cut:
///
///     parallel     f of the parts, concatenated, is f of the whole
///     reduction    f of the parts, combined by the monoid, is f of the whole
///
/// The law must hold for each result. In addition, the function must write all elements of its results, and nothing
/// else. One letter is cut at a time: if cuts of one letter are correct for all extents of the others, all cuts
/// together are correct. The code is ordinary C++. The compiler runs it if it can evaluate the function; otherwise the
/// program runs it.
///
/// Extents of 2, 3 and 4 are cut at each index, with two patterns of numbers, or one for each of the user's samples.
/// The next cut of a letter is tested only if fewer than `most_tried` elements were tested for the letter. Stated
/// extents of 64 by 64 reach this limit in one call, so the function is tested with one cut and one pattern.
namespace gspmd::detail {

/// The result of testing a law: whether the law holds. If it does not, the letter (-1: none), the extent, the cut and
/// the pattern that show the fault.
struct law_finding {
  enum class kind : std::uint8_t { holds, unknown, untried, unwritten, outside, parallel, reduction };
  kind broken = kind::holds;
  int letter = -1;
  std::int64_t extent = 1;
  std::int64_t cut = 0;
  int pattern = 0;
  friend constexpr bool operator==(const law_finding&, const law_finding&) = default;
};

/// Returns the extents of the tested call: ` (`t` of 2, cut at 1; `b` of 3)`.
constexpr text tried_text(const local_rule& rule, const law_finding& at) {
  letter_numbers sizes{};
  choose_extents(rule, sizes, at.letter, at.extent, at.pattern);
  text t;
  const char* before = " (";
  const auto add = [&](int l) {
    t << before << '`' << rule.letters[l].name << "` of " << sizes[of_letter(l)];
    before = ", ";
  };
  if (at.letter >= 0) {
    add(at.letter);
    if (at.cut > 0) t << ", cut at " << at.cut;
    before = "; ";
  }
  for (int l = 0; l < rule.letters.count; ++l)
    if (l != at.letter) add(l);
  if (!t.empty()) t << ')';
  return t;
}
/// Returns the remedy if two whole letters were tested with different extents: how a rule states that the extents are
/// equal.
constexpr text equal_extents_text(const local_rule& rule, const law_finding& at) {
  letter_numbers sizes{};
  choose_extents(rule, sizes, at.letter, at.extent, at.pattern);
  const auto is_free = [&](int l) {
    return rule.letters[l].kind == factor_kind::whole && rule.letters[l].in_operand && !rule.letters[l].stated;
  };
  for (int l = 0; l < rule.letters.count; ++l)
    for (int k = l + 1; k < rule.letters.count; ++k)
      if (is_free(l) && is_free(k) && sizes[of_letter(l)] != sizes[of_letter(k)]) {
        const char one = rule.letters[l].name, other = rule.letters[k].name;
        return text(", state that `") << other << "` is as long as `" << one << "` if it is: [" << other << '=' << one << "],";
      }
  return {};
}

constexpr text law_text(const local_rule& rule, const law_finding& found) {
  text t("the function of ");
  t << local_rule_text(rule);
  const char name = found.broken >= law_finding::kind::parallel ? rule.letters[found.letter].name : ' ';
  if (found.broken == law_finding::kind::untried)
    return t << " cannot be tested on small blocks, because the stated extents are not positive there; state other extents";
  const text tried = tried_text(rule, found), equal = equal_extents_text(rule, found);
  if (found.broken == law_finding::kind::unwritten)
    return t << " leaves elements of its result as they were, or reads them" << tried << "; write all elements in every call"
             << equal;
  if (found.broken == law_finding::kind::outside)
    return t << " writes past the extents of its block" << tried << "; take the extents and strides of the block" << equal;
  t << " does not work part by part along `" << name << "`: ";
  if (found.broken == law_finding::kind::parallel) t << "its results for the parts, side by side,";
  else t << "its results for the parts, combined by " << name_of(rule.reduced_by) << ',';
  t << " are not its result for the whole" << tried << "; mark `" << name << "` as whole: [" << name << ']';
  if (found.broken == law_finding::kind::reduction) t << ", state the monoid with reduces<...>" << (equal.empty() ? "," : "");
  return t << equal << " or correct the function";
}

/// The results of a call.
template <class Typed, class Sequence = std::make_index_sequence<static_cast<std::size_t>(Typed::rule.results)>>
struct law_results;
template <class Typed, std::size_t... J>
struct law_results<Typed, std::index_sequence<J...>> {
  template <std::size_t Index>
  using element = typename Typed::template result<Index>;

  /// Fills the results with a number, or with the identities of the monoid.
  constexpr law_results(const local_rule& rule, const letter_numbers& sizes, const letter_numbers& pad, int fill)
      : of(law_result<element<J>>(rule, static_cast<int>(J), sizes, pad, element<J>(fill))...) {}
  constexpr law_results(const local_rule& rule, const letter_numbers& sizes)
      : of(law_result<element<J>>(rule, static_cast<int>(J), sizes, letter_numbers{}, identity<element<J>>(rule.reduced_by))...) {
  }

  std::tuple<law_result<element<J>>...> of;

  [[nodiscard]] constexpr auto pointers() const { return std::tuple{std::get<J>(of).data()...}; }
  [[nodiscard]] constexpr bool equals(const law_results& other) const {
    return (std::get<J>(of).equals(std::get<J>(other.of)) && ...);
  }
  [[nodiscard]] constexpr bool left_padding(int fill) const { return (std::get<J>(of).left_padding(element<J>(fill)) && ...); }
  /// Combines a part of the letter, from `begin` on, into the results that are reduced along the letter. Compares the
  /// other results with the part of the whole. Returns false if these differ.
  [[nodiscard]] constexpr bool add_part(const local_rule& rule, const law_results& part, const law_results& whole, int letter,
                                        std::int64_t begin) const {
    return (take_part<J>(rule, part, whole, letter, begin) && ...);
  }
  /// Returns true if the results that are reduced along the letter are equal to those of the whole.
  [[nodiscard]] constexpr bool is_whole(const local_rule& rule, const law_results& whole, int letter) const {
    return ((!rule.reduces(letter, static_cast<int>(J)) || std::get<J>(of).equals(std::get<J>(whole.of))) && ...);
  }

 private:
  template <std::size_t Index>
  constexpr bool take_part(const local_rule& rule, const law_results& part, const law_results& whole, int letter,
                           std::int64_t begin) const {
    if (!rule.reduces(letter, static_cast<int>(Index)))
      return std::get<Index>(part.of).is_part_of(std::get<Index>(whole.of), letter, begin);
    std::get<Index>(of).add(std::get<Index>(part.of), rule.reduced_by);
    return true;
  }
};

/// Tests the law of `Typed`. `Typed` has the rule, `function`, the element types `operand<K>` and `result<K>`, and
/// `call(f, operands, results, places)`. The code that does not depend on the function is in law_blocks.hpp.
template <class Typed>
struct local_law {
  using F = typename Typed::function;
  using results = law_results<Typed>;
  static constexpr const local_rule& rule = Typed::rule;

  /// Calls the function on the part of the operands that begins at `from`.
  static constexpr void call(const F& f, const results& result, const letter_numbers& sizes, const letter_numbers& from,
                             const letter_numbers& pad, int pattern) {
    call_with(f, result, sizes, from, pad, pattern, std::make_index_sequence<static_cast<std::size_t>(rule.operand_count())>{},
              std::make_index_sequence<static_cast<std::size_t>(rule.results)>{});
  }

  // In the functions below, `at` is the current test, and then the finding.

  /// Tests that the function writes all elements of its results, and nothing else.
  static constexpr void try_writing(const F& f, int pattern, law_finding& at) {
    if (pattern > 0 && is_large(rule, -1)) return;
    at = {};
    at.pattern = pattern;
    letter_numbers sizes{};
    if (!choose_extents(rule, sizes, -1, 1, pattern)) {
      at.broken = law_finding::kind::untried;
      return;
    }
    const results first(rule, sizes, for_all_letters(rule, 1), 0);
    const results second(rule, sizes, for_all_letters(rule, 1), 1);
    call(f, first, sizes, letter_numbers{}, for_all_letters(rule, 1), pattern);
    call(f, second, sizes, letter_numbers{}, for_all_letters(rule, 1), pattern);
    if (!first.equals(second)) at.broken = law_finding::kind::unwritten;
    else if (!first.left_padding(0) || !second.left_padding(1)) at.broken = law_finding::kind::outside;
  }

  /// Tests one letter, cut in two at each index, and in three.
  static constexpr void try_letter(const F& f, int letter, int pattern, law_finding& at) {
    const auto kind = rule.letters[letter].kind;
    if (kind == factor_kind::whole || (pattern > 0 && is_large(rule, letter))) return;
    bool tried = false;
    std::int64_t elements = 0;  // the sum over all calls
    for (std::int64_t extent = 2; extent <= 4; ++extent) {
      letter_numbers sizes{};
      if ((tried && elements >= most_tried) || !choose_extents(rule, sizes, letter, extent, pattern)) continue;
      tried = true;
      at = {law_finding::kind::holds, letter, extent, 0, pattern};
      elements += elements_tried(rule, sizes);
      const results whole(rule, sizes, letter_numbers{}, 0);
      call(f, whole, sizes, letter_numbers{}, letter_numbers{}, pattern);
      for (std::int64_t cut = 1; cut <= extent; ++cut) {  // the last iteration cuts into three parts: 1, 1 and the rest
        const bool in_three = cut == extent;
        if ((in_three && extent < 3) || (cut > 1 && elements >= most_tried)) break;
        elements += elements_tried(rule, sizes);
        at.cut = in_three ? 1 : cut;
        const std::int64_t bounds[] = {0, in_three ? 1 : cut, in_three ? 2 : extent, extent};
        const results sum(rule, sizes);
        bool is_split = true;
        for (int part = 0; part < (in_three ? 3 : 2); ++part) {
          letter_numbers own = sizes;
          own[of_letter(letter)] = bounds[part + 1] - bounds[part];
          letter_numbers from{};
          from[of_letter(letter)] = bounds[part];
          letter_numbers pad = for_all_letters(rule, pattern % 2);
          pad[of_letter(letter)] = 1;
          const results piece(rule, own, pad, 1);
          call(f, piece, own, from, pad, pattern);
          is_split = sum.add_part(rule, piece, whole, letter, bounds[part]) && is_split;
        }
        if (!is_split || !sum.is_whole(rule, whole, letter)) {
          at.broken = is_split ? law_finding::kind::reduction : law_finding::kind::parallel;
          return;
        }
      }
    }
    if (!tried) at = {law_finding::kind::untried, letter};
  }

  /// Tests everything. `at` is the current test, also if the function throws.
  static constexpr void try_all(const F& f, law_finding& at) {
    for (int pattern = 0, count = law_numbers<F>(f).patterns(); pattern < count; ++pattern) {
      try_writing(f, pattern, at);
      for (int l = 0; l < rule.letters.count && at.broken == law_finding::kind::holds; ++l) try_letter(f, l, pattern, at);
      if (at.broken != law_finding::kind::holds) return;
    }
  }

 private:
  template <std::size_t... K, std::size_t... J>
  static constexpr void call_with(const F& f, const results& result, const letter_numbers& sizes, const letter_numbers& from,
                                  const letter_numbers& pad, int pattern, std::index_sequence<K...>, std::index_sequence<J...>) {
    const law_place places[] = {law_place(rule.tensors[static_cast<int>(K)], sizes, pad)..., std::get<J>(result.of).place...};
    const law_numbers<F> numbers(f);
    call_on(
        f, result, places,
        law_operand<typename Typed::template operand<K>, static_cast<int>(K)>(rule, numbers, places[K], sizes, from, pattern)...);
  }
  template <class... A>
  static constexpr void call_on(const F& f, const results& result, const law_place* places, const law_array<A>&... operands) {
    Typed::call(f, std::tuple{static_cast<const A*>(operands.get())...}, result.pointers(), places);
  }
};

/// One test of the law by the compiler. The finding is `unknown` if the compiler cannot evaluate the function. Each
/// letter is its own evaluation, because compilers limit the steps of an evaluation.
template <class Typed, int Letter, int Pattern>
struct law_case {
  static constexpr law_finding run() {
    const typename Typed::function f{};
    law_finding at;
    if constexpr (Letter < 0) local_law<Typed>::try_writing(f, Pattern, at);
    else local_law<Typed>::try_letter(f, Letter, Pattern, at);
    return at;
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

/// The finding of the compiler. The writes of the function are tested first, on the smallest blocks:
template <class Typed>
inline constexpr law_finding compiled_law = [] {
  constexpr law_finding written = compiled_finding<law_case<Typed, -1, 0>>(0);
  if constexpr (written.broken != law_finding::kind::holds) {
    return written;
  } else {
    constexpr int cases = Typed::rule.letters.count + 1;
    constexpr int patterns = law_numbers<typename Typed::function>(typename Typed::function{}).patterns();
    return []<int... Index>(std::integer_sequence<int, Index...>) {
      law_finding result;
      const law_finding each[] = {compiled_finding<law_case<Typed, (Index + 1) % cases - 1, (Index + 1) / cases>>(0)...};
      for (const auto& found : each) {
        if (found.broken == law_finding::kind::holds) continue;
        if (found.broken != law_finding::kind::unknown) return found;
        result = found;
      }
      return result;
    }(std::make_integer_sequence<int, cases * patterns - 1>{});
  }
}();

/// Tests the law at run time. Returns an empty text if it holds.
template <class Typed>
text law_at_run_time(const typename Typed::function& f) {
  law_finding found;
  try {
    local_law<Typed>::try_all(f, found);
    return found.broken == law_finding::kind::holds ? text() : law_text(Typed::rule, found);
  } catch (const std::exception& e) {
    return text("the function of ") << local_rule_text(Typed::rule) << " threw on small blocks" << tried_text(Typed::rule, found)
                                    << ": " << e.what();
  }
}

}  // namespace gspmd::detail
