// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/text.hpp"
#include "gspmd/detail/support/vec.hpp"

/// Equations: the correspondence of the dims of operands and results, in the notation of einsum and local_op. All
/// operators share one parser. Each operator decides which constructs it accepts.
///
///  bd,df->bf           a letter is a dim, with the same extent everywhere
///  b[t]->b[u=t-2]      in brackets: a dim that is whole or indexed; its extent can be stated
///  b(2x+w-1),w->bx     in parentheses: an index, which is a sum of letters with strides and a number
///
/// An extent is a number, or is computed from another letter: [u=4], [u=2t/3+1]. Spaces are allowed.
namespace gspmd::detail {

/// `times * letter / per`.
struct equation_term {
  char letter = 0;
  std::int64_t times = 1;
  std::int64_t per = 1;
  int column = 0;
};
struct equation_sum {
  vec<equation_term> terms;
  std::int64_t constant = 0;
};

enum class dim_kind : std::uint8_t { letter, bracketed, index };
struct equation_dim {
  dim_kind kind = dim_kind::letter;
  char letter = 0;         // an index has no letter
  bool is_stated = false;  // the extent is `sum`
  equation_sum sum;        // the index, or the stated extent
  int column = 0;
};
struct equation_tensor {
  vec<equation_dim> dims;
  int column = 0;  // of its first letter, after the comma or the arrow
};
/// The tensors of an equation, or its first mistake. Columns count from 1.
struct equation {
  vec<equation_tensor> operands;
  vec<equation_tensor> results;
  const char* error = nullptr;
  int column = 0;  // of the error

  constexpr void fail(int where, const char* why) {
    if (error != nullptr) return;
    error = why;
    column = where;
  }
};

class equation_parser {
 public:
  constexpr explicit equation_parser(std::string_view s) : text_(s) {
    begin_tensor(result.operands);
    while (is_sound() && skip_spaces()) step();
    if (is_sound()) finish();
  }
  equation result;

 private:
  static constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
  static constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
  /// A set of letters is a mask of these bits.
  static constexpr std::uint64_t bit(char letter) { return std::uint64_t{1} << (letter - 'A'); }

  [[nodiscard]] constexpr bool is_sound() const { return result.error == nullptr; }
  [[nodiscard]] constexpr int column() const { return static_cast<int>(at_) + 1; }
  constexpr void fail(const char* why) { result.fail(column(), why); }
  constexpr bool skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size();
  }
  [[nodiscard]] constexpr bool is_at(char c) const { return at_ < text_.size() && text_[at_] == c; }
  [[nodiscard]] constexpr bool is_at_arrow() const {  // `=>` is not an arrow, and is refused with its own message
    return at_ + 1 < text_.size() && (text_[at_] == '-' || text_[at_] == '=') && text_[at_ + 1] == '>';
  }
  [[nodiscard]] constexpr bool in_result() const { return !result.results.empty(); }
  constexpr vec<equation_tensor>& side() { return in_result() ? result.results : result.operands; }
  constexpr void begin_tensor(vec<equation_tensor>& list) {
    list.push_back(equation_tensor{{}, column()});
    in_tensor_ = 0;
  }

  constexpr void step() {
    const char c = text_[at_];
    if (is_letter(c)) return named_dim();
    if (bracket_ != 0 && c != ']')
      return fail(c == '[' ? "[ inside of [ ]"
                           : "write letters between [ and ], each with its extent if the extent is stated: [t], [u=t-2]");
    if (c == '(') return index();
    if (c == '[') {
      bracket_ = column();
    } else if (c == ']') {
      if (bracket_ == 0) return fail("] without [");
      bracket_ = 0;
    } else if (c == ',') {
      ++at_;
      return begin_tensor(side());
    } else if (c == '-' && is_at_arrow()) {
      if (in_result()) return fail("a second ->");
      at_ += 2;
      return begin_tensor(result.results);
    } else {
      return fail("only letters, [ ], ( ), commas and one -> are allowed here");
    }
    ++at_;
  }

  constexpr void named_dim() {
    equation_dim d;
    d.kind = bracket_ != 0 ? dim_kind::bracketed : dim_kind::letter;
    d.letter = text_[at_];
    d.column = column();
    ++at_;
    if (skip_spaces() && is_at('=') && !is_at_arrow()) {
      if (bracket_ == 0) return fail("only the extent of a letter in brackets is stated: [u=4]");
      for (const auto* list : {&result.operands, &result.results})
        for (const auto& tensor : *list)
          for (const auto& other : tensor.dims)
            if (other.letter == d.letter && other.is_stated) return fail("the extent of this letter is stated twice");
      d.is_stated = true;
      const int from = column();
      ++at_;
      constexpr auto wrong = "an extent is a number or follows from another letter: [u=4], [u=2t], [u=t/2], [u=t-2]";
      d.sum = sum(wrong);
      if (d.sum.terms.size() > 1 || (d.sum.terms.size() == 1 && d.sum.terms[0].times < 0)) result.fail(from, wrong);
    }
    append(d);
  }

  constexpr void index() {
    equation_dim d;
    d.kind = dim_kind::index;
    d.column = column();
    ++at_;
    constexpr auto wrong = "an index is a sum of letters, with whole strides that are not 0, and a number: (2x+w-1)";
    d.sum = sum(wrong);
    if (is_sound() && !is_at(')')) fail(at_ == text_.size() ? ") is missing" : wrong);
    if (d.sum.terms.empty()) result.fail(d.column, wrong);
    for (const auto& term : d.sum.terms)
      if (term.times == 0 || term.per != 1) result.fail(term.column, wrong);
    ++at_;
    append(d);
  }

  /// Adds a dim to the current tensor.
  constexpr void append(const equation_dim& d) {
    if (!is_sound()) return;
    auto& tensor = side().back();
    if (tensor.dims.size() == static_cast<std::size_t>(max_rank)) return result.fail(d.column, "a tensor has at most 32 dims");
    if (d.kind != dim_kind::index) note(d.letter, d.column);
    else
      for (const auto& term : d.sum.terms) note(term.letter, term.column);
    tensor.dims.push_back(d);
  }
  constexpr void note(char letter, int where) {
    if ((in_tensor_ & bit(letter)) != 0)
      result.fail(where, "a letter occurs twice in one tensor; take the diagonal first, a letter names one dim");
    in_tensor_ |= bit(letter);
  }

  /// Parses a sum such as `2x+w-1`, up to the first character that does not belong to it.
  constexpr equation_sum sum(const char* wrong) {
    equation_sum s;
    skip_spaces();
    bool minus = is_at('-') && !is_at_arrow();
    if (minus) ++at_;
    do term(s, minus, wrong);
    while (is_sound() && sign(minus));
    return s;
  }
  constexpr bool sign(bool& minus) {
    skip_spaces();
    minus = is_at('-');
    if (!is_at('+') && (!minus || is_at_arrow())) return false;
    ++at_;
    return true;
  }
  constexpr void term(equation_sum& s, bool minus, const char* wrong) {
    std::int64_t n = 1;
    const bool has_number = number(n);
    if (minus) n = -n;
    if (at_ < text_.size() && is_letter(text_[at_])) {
      equation_term t{text_[at_], n, 1, column()};
      ++at_;
      skip_spaces();
      if (is_at('/')) {
        ++at_;
        if (!number(t.per) || t.per == 0) return fail("write a number other than 0 after /");
      }
      s.terms.push_back(t);
    } else if (has_number) {
      s.constant += n;
    } else {
      fail(wrong);
    }
  }
  /// Parses a number of at most six digits, so that extents do not overflow.
  constexpr bool number(std::int64_t& n) {
    skip_spaces();
    int digits = 0;
    std::int64_t read = 0;
    for (; at_ < text_.size() && is_digit(text_[at_]) && digits <= 6; ++at_, ++digits) read = read * 10 + (text_[at_] - '0');
    if (digits > 6) fail("a number has at most 6 digits");
    if (digits > 0) n = read;
    skip_spaces();
    return digits > 0;
  }

  constexpr void finish() {
    if (bracket_ != 0) return fail("] is missing");
    if (!in_result()) return fail("-> and the letters of the result are missing");
    std::uint64_t named = 0;  // letters that are dims or in an index
    std::uint64_t known = 0;  // letters whose extent is known from an operand or a number
    for (const auto* list : {&result.operands, &result.results})
      for (const auto& tensor : *list)
        for (const auto& d : tensor.dims) {
          if (d.kind != dim_kind::index) named |= bit(d.letter);
          else
            for (const auto& t : d.sum.terms) named |= bit(t.letter);
          if (d.kind != dim_kind::index && (list == &result.operands || d.is_stated)) known |= bit(d.letter);
        }
    for (const auto* list : {&result.operands, &result.results})
      for (const auto& tensor : *list)
        for (const auto& d : tensor.dims)
          if (d.is_stated && !d.sum.terms.empty() && (named & bit(d.sum.terms[0].letter)) == 0)
            result.fail(d.sum.terms[0].column, "an extent follows from a letter that no tensor has");
    solve(known);
  }
  /// Computes which extents are known: an index of an operand determines one letter if its other letters are known.
  /// Example: in b(2x+w-1),w->bx the letter w is known, so x is known.
  constexpr void solve(std::uint64_t known) {
    for (bool more = true; more;) {
      more = false;
      for (const auto& tensor : result.operands)
        for (const auto& d : tensor.dims) {
          if (d.kind != dim_kind::index) continue;
          std::uint64_t open = 0;
          for (const auto& t : d.sum.terms) open |= bit(t.letter) & ~known;
          if (open == 0 || (open & (open - 1)) != 0) continue;
          known |= open;
          more = true;
        }
    }
    for (const auto* list : {&result.operands, &result.results})
      for (const auto& tensor : *list)
        for (const auto& d : tensor.dims)
          if (d.kind == dim_kind::index)
            for (const auto& t : d.sum.terms)
              if ((known & bit(t.letter)) == 0)
                result.fail(t.column,
                            "the extent of this letter cannot be solved for: of the letters of an index all but one "
                            "are dims of an operand");
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int bracket_ = 0;              // the column of the open bracket, or 0
  std::uint64_t in_tensor_ = 0;  // the letters of the current tensor
};

constexpr equation parse_equation(std::string_view s) { return equation_parser(s).result; }

/// Returns the error text for an equation with a mistake. `what` is the user's word for the text: an equation, a rule.
constexpr text equation_problem(std::string_view what, std::string_view written, int column, const char* error) {
  return text(what) << " `" << written << "`, column " << column << ": " << error;
}

}  // namespace gspmd::detail
