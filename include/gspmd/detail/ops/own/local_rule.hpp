// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "gspmd/detail/ir/local_function.hpp"
#include "gspmd/detail/notation/equation.hpp"

namespace gspmd::detail {

/// Parses the rule of a local_op. Rejects notation that local_ops do not support.
class local_rule_reader {
 public:
  constexpr local_rule_reader(std::string_view s, monoid kind) {
    rule.reduced_by = kind;
    equation e = parse_equation(s);
    if (e.operands.size() > static_cast<std::size_t>(max_local_operands))
      e.fail(e.operands[max_local_operands].column - 1, "too many operands");
    if (e.results.size() > static_cast<std::size_t>(max_results)) e.fail(e.results[max_results].column - 1, "too many results");
    rule.results = static_cast<std::int8_t>(e.results.size());
    for (const auto* list : {&e.operands, &e.results})
      for (const auto& tensor : *list)
        if (e.error == nullptr) read(e, tensor, list == &e.results);
    if (e.error == nullptr) finish(e);
    rule.error = e.error;
    rule.column = e.column;
  }
  local_rule rule;

 private:
  constexpr std::int8_t letter(equation& e, char name, int column) {
    for (int i = 0; i < rule.letters.count; ++i)
      if (rule.letters[i].name == name) return static_cast<std::int8_t>(i);
    if (rule.letters.count == max_rank) {
      e.fail(column, "at most 32 letters");
      return 0;
    }
    rule_letter l;
    l.name = name;
    l.column = column;
    rule.letters.push_back(l);
    return static_cast<std::int8_t>(rule.letters.count - 1);
  }
  constexpr void read(equation& e, const equation_tensor& tensor, bool is_result) {
    inline_vec<std::int8_t, max_rank> dims;
    for (const auto& d : tensor.dims) {
      if (d.kind == dim_kind::index)
        return e.fail(d.column,
                      "a function of blocks sees no neighbours, so its rule has no index; mark the dim as whole, [x], or give "
                      "shifted tensors as operands");
      const auto l = letter(e, d.letter, d.column);
      dims.push_back(l);
      (is_result ? rule.letters[l].in_result : rule.letters[l].in_operand) = true;
      if (d.kind == dim_kind::bracketed) rule.letters[l].kind = factor_kind::whole;
      if (!d.is_stated) continue;
      std::int8_t of = -1;
      if (!d.sum.terms.empty()) of = letter(e, d.sum.terms[0].letter, d.sum.terms[0].column);
      auto& stated = rule.letters[l];
      stated.stated = true;
      stated.plus = d.sum.constant;
      if (of < 0) continue;
      stated.of = of;
      stated.times = d.sum.terms[0].times;
      stated.per = d.sum.terms[0].per;
    }
    rule.tensors.push_back(dims);
  }
  constexpr void finish(equation& e) {
    for (auto& l : rule.letters) {
      if (!l.in_operand && !l.stated)
        return e.fail(l.column, "a letter that only results have is whole, and its extent is stated: [u=4], [u=t-2]");
      if (l.of >= 0 && rule.letters[l.of].stated && rule.letters[l.of].of >= 0)
        return e.fail(l.column, "an extent follows from a letter whose extent follows from another one; state it from that");
      if (l.of >= 0 && !rule.letters[l.of].in_operand) return e.fail(l.column, "an extent follows from a letter of an operand");
      if (!l.in_result && l.kind == factor_kind::parallel) l.kind = factor_kind::reduction;
    }
  }
};

constexpr local_rule parse_local_rule(std::string_view s, monoid kind = monoid::add) { return local_rule_reader(s, kind).rule; }

[[gnu::cold]] constexpr text local_rule_text(const local_rule& rule) {
  text t("`");
  for (int k = 0; k < rule.tensors.count; ++k) {
    if (k > 0) t << (k == rule.operand_count() ? "->" : ",");
    for (const auto l : rule.tensors[k]) {
      const auto& letter = rule.letters[l];
      if (letter.kind == factor_kind::whole) t << '[' << letter.name << ']';
      else t << letter.name;
    }
  }
  return t << '`';
}

}  // namespace gspmd::detail
