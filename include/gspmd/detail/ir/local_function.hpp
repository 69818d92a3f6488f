// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "gspmd/detail/ir/rule.hpp"
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/text.hpp"

/// An operator of the user's own: a rule in the notation of einsum, and a function of one device's blocks.
namespace gspmd::detail {

class graph;

/// The most operands that such an operator may take: an op_rule has one map for each of them, and one for the result.
inline constexpr int max_local_operands = decltype(op_rule::maps)::capacity - 1;

/// One letter of a rule. Its extent may be stated: `times * extent of another letter / per + plus`, or the number `plus`.
struct rule_letter {
  char name = 0;
  factor_kind kind = factor_kind::parallel;
  bool in_operand = false;
  bool in_result = false;
  bool stated = false;
  std::int8_t of = -1;  // another letter; -1: none
  std::int64_t times = 1;
  std::int64_t per = 1;
  std::int64_t plus = 0;
};

/// `bi,io->bo`, `b[t]->b[u=t-2]`: every letter is a factor. In brackets: whole on every device. Only in operands and not in
/// brackets: a reduction. Only in the result: whole, and its extent is stated.
struct local_rule {
  inline_vec<rule_letter, max_rank> letters;
  inline_vec<inline_vec<std::int8_t, max_rank>, max_local_operands + 1> tensors;  // letters, of the operands and the result
  monoid kind = monoid::add;
  const char* error = nullptr;
  int column = 0;  // of the error, from 1

  [[nodiscard]] constexpr int operand_count() const { return tensors.count - 1; }
  [[nodiscard]] constexpr const inline_vec<std::int8_t, max_rank>& result() const { return tensors[tensors.count - 1]; }
  [[nodiscard]] constexpr bool has_reduction() const {
    for (const auto& l : letters)
      if (l.kind == factor_kind::reduction) return true;
    return false;
  }
  [[nodiscard]] constexpr std::int64_t stated_extent(int letter, const extents& by_letter) const {
    const auto& l = letters[letter];
    return l.of < 0 ? l.plus : l.times * by_letter[l.of] / l.per + l.plus;
  }
};

class local_rule_parser {
 public:
  constexpr local_rule_parser(std::string_view s, monoid kind) : text_(s) {
    rule.kind = kind;
    rule.tensors.push_back({});
    while (rule.error == nullptr && skip_spaces()) step();
    if (rule.error == nullptr) finish();
  }
  local_rule rule;

 private:
  static constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
  static constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
  constexpr bool skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size();
  }
  constexpr void fail(const char* error) {
    if (rule.error != nullptr) return;
    rule.error = error;
    rule.column = static_cast<int>(at_) + 1;
  }
  constexpr int letter(char name) {
    for (int i = 0; i < rule.letters.count; ++i)
      if (rule.letters[i].name == name) return i;
    if (rule.letters.count == max_rank) {
      fail("at most 32 letters");
      return 0;
    }
    rule_letter l;
    l.name = name;
    rule.letters.push_back(l);
    return rule.letters.count - 1;
  }

  constexpr void step() {
    const char c = text_[at_];
    if (is_letter(c)) return dim();
    if (c == '[') {
      if (whole_) return fail("[ inside of [ ]");
      whole_ = true;
    } else if (c == ']') {
      if (!whole_) return fail("] without [");
      whole_ = false;
    } else if (whole_) {
      return fail("between [ and ] stand letters, each with its extent where that is stated: [t], [u=t-2]");
    } else if (c == ',') {
      if (in_result_) return fail("one result: no comma after ->");
      if (rule.tensors.count == max_local_operands) return fail("too many operands");
      rule.tensors.push_back({});
    } else if (c == '-' && at_ + 1 < text_.size() && text_[at_ + 1] == '>') {
      if (in_result_) return fail("a second ->");
      in_result_ = true;
      rule.tensors.push_back({});
      ++at_;
    } else {
      return fail("only letters, [ ], commas and one -> may stand here");
    }
    ++at_;
  }

  constexpr void dim() {
    const int l = letter(text_[at_]);
    auto& letters = rule.tensors[rule.tensors.count - 1];
    for (const auto other : letters)
      if (other == l) return fail("a letter stands twice in one tensor; a letter names one dim");
    if (rule.error != nullptr) return;
    letters.push_back(static_cast<std::int8_t>(l));
    (in_result_ ? rule.letters[l].in_result : rule.letters[l].in_operand) = true;
    if (whole_) rule.letters[l].kind = factor_kind::whole;
    ++at_;
    if (!skip_spaces() || text_[at_] != '=') return;
    if (!whole_) return fail("only the extent of a letter in brackets is stated: [u=4]");
    if (rule.letters[l].stated) return fail("the extent of this letter is stated twice");
    ++at_;
    extent(l);
  }

  /// At most six digits, so that extents stay countable.
  constexpr bool number(std::int64_t& n) {
    skip_spaces();
    int digits = 0;
    std::int64_t read = 0;
    for (; at_ < text_.size() && is_digit(text_[at_]); ++at_, ++digits) read = read * 10 + (text_[at_] - '0');
    if (digits > 6) fail("a number has at most 6 digits");
    if (digits > 0) n = read;
    skip_spaces();
    return digits > 0;
  }
  constexpr void extent(int l) {
    rule_letter stated = rule.letters[l];
    stated.stated = true;
    std::int64_t first = 1;
    const bool has_number = number(first);
    if (at_ < text_.size() && is_letter(text_[at_])) {
      stated.times = first;
      stated.of = static_cast<std::int8_t>(letter(text_[at_]));
      ++at_;
      skip_spaces();
      if (at_ < text_.size() && text_[at_] == '/') {
        ++at_;
        if (!number(stated.per) || stated.per == 0) return fail("after / stands a number, not 0");
      }
      if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) {
        const bool minus = text_[at_++] == '-';
        if (!number(stated.plus)) return fail("a number is missing: [u=t-2]");
        if (minus) stated.plus = -stated.plus;
      }
    } else if (has_number) {
      stated.plus = first;
    } else {
      return fail("an extent is a number or follows from another letter: [u=4], [u=2t], [u=t/2], [u=t-2]");
    }
    if (rule.error == nullptr) rule.letters[l] = stated;
  }

  constexpr void finish() {
    if (whole_) return fail("] is missing");
    if (!in_result_) return fail("-> and the letters of the result are missing");
    for (const auto& l : rule.letters)
      if (!l.in_operand && !l.in_result) return fail("an extent follows from a letter that no tensor has");
    for (auto& l : rule.letters) {
      if (!l.in_operand && !l.stated)
        return fail("a letter that only the result has is whole, and its extent is stated: [u=4], [u=t-2]");
      if (l.of >= 0 && rule.letters[l.of].stated && rule.letters[l.of].of >= 0)
        return fail("an extent follows from a letter whose extent follows from another one; state it from that");
      if (l.of >= 0 && !rule.letters[l.of].in_operand) return fail("an extent follows from a letter of an operand");
      if (!l.in_result && l.kind == factor_kind::parallel) l.kind = factor_kind::reduction;
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool whole_ = false;
  bool in_result_ = false;
};

constexpr local_rule parse_local_rule(std::string_view s, monoid kind = monoid::add) { return local_rule_parser(s, kind).rule; }

[[gnu::cold]] constexpr text local_rule_text(const local_rule& rule) {
  text t("`");
  for (int k = 0; k < rule.tensors.count; ++k) {
    if (k > 0) t << (k + 1 == rule.tensors.count ? "->" : ",");
    for (const auto l : rule.tensors[k]) {
      const auto& letter = rule.letters[l];
      if (letter.kind == factor_kind::whole) t << '[' << letter.name << ']';
      else t << letter.name;
    }
  }
  return t << '`';
}

/// A block of one device as the function is given it, before its type is known: what is valid, and the strides.
struct erased_block {
  void* data = nullptr;
  const std::int64_t* extents = nullptr;
  const std::int64_t* strides = nullptr;
};

/// The function for one choice of element types. `law` tries the law at run time and says what is broken; null: it holds, this
/// was tried when compiling.
struct local_entry {
  dtype operands[max_local_operands]{};
  dtype result = dtype::f32;
  void (*run)(const void* object, const erased_block* blocks) = nullptr;  // the operands, then the result
  text (*law)(const void* object) = nullptr;
};

struct local_function {
  static constexpr int most_entries = 4;
  local_rule rule;
  local_entry entries[most_entries]{};
  int entry_count = 0;
  std::int64_t flops = 1;        // for every combination of the indices of all letters
  const void* object = nullptr;  // a function with state; what `run` and `law` are given
  /// Adds the gradients by the operands to a graph; null: there is none. `out`: nodes, -1 for none.
  void (*gradient)(const void* object, graph& g, const int* operands, int y, int dy, int* out) = nullptr;
  const void* gradient_object = nullptr;
};

}  // namespace gspmd::detail
