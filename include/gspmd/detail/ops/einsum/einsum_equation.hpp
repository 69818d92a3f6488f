// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "gspmd/detail/notation/equation.hpp"
#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/text.hpp"
#include "gspmd/detail/support/vec.hpp"

/// The letters and indices of an einsum's equation, parsed from its text.
namespace gspmd::detail {

/// An index of an operand: `(2x+w-1)`.
struct equation_window {
  char letter[2]{};
  std::int64_t step[2]{};
  std::int64_t first = 0;
};
/// The code of window k in a list of letters, for a dim that has a window.
constexpr char code_of_window(int k) { return static_cast<char>(k + 1); }
constexpr bool is_window(int letter) { return letter > 0 && letter <= max_windows; }
constexpr int window_of(int letter) { return letter - 1; }

/// The letters of an einsum's operands and result, or the error in its equation and the error's column.
struct einsum_equation {
  inline_vec<inline_vec<char, max_rank>, 2> operands;
  inline_vec<char, max_rank> result;
  inline_vec<equation_window, max_windows> windows;
  const char* error = nullptr;
  int column = 0;   // of the error, counted from 1
  char letter = 0;  // of the result, if the error is that no operand has it
};

constexpr bool holds(const inline_vec<char, max_rank>& letters, char c) {
  for (const char l : letters)
    if (l == c) return true;
  return false;
}
/// Returns true if operand `k` has the letter, as a dim or in an index.
constexpr bool has_letter(const einsum_equation& e, int k, char c) {
  for (const char l : e.operands[k])
    if (l == c || (is_window(l) && (e.windows[window_of(l)].letter[0] == c || e.windows[window_of(l)].letter[1] == c)))
      return true;
  return false;
}

/// Parses an equation with one or two operands, as `bd,df->bf`. A letter that the result lacks is summed. One operand
/// may have indices of two letters, as in `b(2x+w)i,wio->bxo`.
constexpr einsum_equation parse_einsum(std::string_view s) {
  equation e = parse_equation(s);
  if (e.operands.size() > 2) e.fail(e.operands[2].column - 1, "at most two operands, separated by one comma before ->");
  if (e.results.size() > 1) e.fail(e.results[1].column - 1, "one result: no comma after ->");
  einsum_equation p;
  int windowed = -1;  // the operand that has indices
  const auto add_window = [&](const equation_dim& d, int k) {
    if (k < 0) e.fail(d.column, "an index is allowed in an operand, not in the result; use pad to insert elements");
    else if (windowed >= 0 && windowed != k) e.fail(d.column, "an index in both operands; only one operand may have indices");
    else if (d.sum.terms.size() == 1)
      e.fail(d.column, "an index of one letter has no window; slice and shift take and move elements");
    else if (d.sum.terms.size() > 2) e.fail(d.sum.terms[2].column, "an index of an einsum has two letters: (2x+w-1)");
    else if (d.sum.terms[0].times < 0 && d.sum.terms[1].times < 0)
      e.fail(d.column, "one letter of an index counts upwards: (x-w); flip turns a tensor round");
    else if (p.windows.count == max_windows) e.fail(d.column, "an einsum has at most 4 indices");
    if (e.error != nullptr) return;
    windowed = k;
    equation_window w;
    for (int i = 0; i < 2; ++i) {
      const auto& term = d.sum.terms[static_cast<std::size_t>(i)];
      w.letter[i] = term.letter;
      w.step[i] = term.times;
    }
    w.first = d.sum.constant;
    p.windows.push_back(w);
  };
  const auto letters_of = [&](const equation_tensor& tensor, int k) {
    inline_vec<char, max_rank> letters;
    for (const auto& d : tensor.dims) {
      if (d.kind == dim_kind::index) add_window(d, k);
      if (d.kind == dim_kind::bracketed)
        e.fail(d.column,
               "an einsum has no brackets: it multiplies and adds along every letter; use local_op for another function");
      letters.push_back(d.kind == dim_kind::index ? code_of_window(p.windows.count - 1) : d.letter);
    }
    return letters;
  };
  for (std::size_t k = 0; k < e.operands.size() && e.error == nullptr; ++k)
    p.operands.push_back(letters_of(e.operands[k], static_cast<int>(k)));
  if (e.error == nullptr) {
    p.result = letters_of(e.results[0], -1);
    for (const auto& d : e.results[0].dims)
      if (p.letter == 0 && d.kind == dim_kind::letter && !has_letter(p, 0, d.letter) &&
          !(p.operands.count == 2 && has_letter(p, 1, d.letter))) {
        p.letter = d.letter;
        e.fail(d.column, "the letter is in no operand");
      }
  }
  p.error = e.error;
  p.column = e.column;
  return p;
}

/// Appends the remedy for a letter of the result that is in no operand. `count(c)` returns the number of operands with
/// letter c, and `is_kept(c)` returns true if the result has c.
///   ik,kj->im   write `j` instead: one operand has j, and the result lacks it
///   ik,kj->ijm  remove it, or use broadcast_in_dim to add a dim
template <class Count, class IsKept>
[[gnu::cold]] constexpr void add_letter_remedy(text& t, Count count, IsKept is_kept) {
  bool is_first = true;
  for (char c = 'A'; c <= 'z'; ++c) {
    if (count(c) != 1 || is_kept(c)) continue;
    t << (is_first ? "write `" : " or `") << c << '`';
    is_first = false;
  }
  t << (is_first ? "remove it, or use broadcast_in_dim to add a dim" : " instead");
}

/// Returns the text of the error in an equation, without its column.
constexpr text einsum_mistake(const einsum_equation& e) {
  text t;
  if (e.letter != 0) {
    t << "no operand has the letter `" << e.letter << '`';
    vec<char> named;
    const auto name = [&](char c) {
      for (const char other : named)
        if (other == c) return;
      t << (named.empty() ? ", only " : ", ") << c;
      named.push_back(c);
    };
    for (const auto& letters : e.operands)
      for (const char c : letters)
        if (!is_window(c)) {
          name(c);
        } else {
          for (const char l : e.windows[window_of(c)].letter) name(l);
        }
    const auto count = [&e](char c) {
      int n = 0;
      for (int k = 0; k < e.operands.count; ++k) n += has_letter(e, k, c) ? 1 : 0;
      return n;
    };
    t << "; ";
    add_letter_remedy(t, count, [&e](char c) { return holds(e.result, c); });
    return t;
  }
  return t << e.error;
}

/// Returns the text of an index, as `2x+w-1`.
constexpr text window_text(char outer, std::int64_t step, char inner, std::int64_t inner_step, std::int64_t first) {
  text t;
  const auto add = [&](std::int64_t n, char letter) {
    if (n < 0) t << '-';
    else if (!t.empty()) t << '+';
    if (n < 0) n = -n;
    if (letter == 0 || n != 1) t << n;
    if (letter != 0) t << letter;
  };
  add(step, outer);
  add(inner_step, inner);
  if (first != 0) add(first, 0);
  return t;
}
constexpr void add_letter(text& t, const einsum_equation& e, char c) {
  if (!is_window(c)) {
    t << c;
    return;
  }
  const auto& w = e.windows[window_of(c)];
  t << '(' << window_text(w.letter[0], w.step[0], w.letter[1], w.step[1], w.first) << ')';
}
constexpr text equation_text(const einsum_equation& e) {
  text t("`");
  for (int k = 0; k < e.operands.count; ++k) {
    if (k > 0) t << ',';
    for (const char c : e.operands[k]) add_letter(t, e, c);
  }
  t << "->";
  for (const char c : e.result) t << c;
  return t << '`';
}

}  // namespace gspmd::detail
