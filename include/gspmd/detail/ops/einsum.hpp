// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/rule.hpp"

namespace gspmd::detail {

/// An einsum equation, parsed: the letters of each operand and of the result, or what is wrong with it and where.
struct parsed_equation {
  inline_vec<inline_vec<char, max_rank>, 2> operands;
  inline_vec<char, max_rank> result;
  const char* error = nullptr;
  int column = 0;  // of the error, from 1
};

constexpr bool holds(const inline_vec<char, max_rank>& letters, char c) {
  for (const char l : letters)
    if (l == c) return true;
  return false;
}

/// `bd,df->bf`: one or two operands, letters a-z and A-Z, no letter twice in a tensor; a letter that is missing in the
/// result is summed. Spaces are allowed.
constexpr parsed_equation parse_equation(std::string_view s) {
  parsed_equation p;
  p.operands.push_back({});
  bool in_result = false;
  for (std::size_t i = 0; i < s.size(); ++i) {
    const char c = s[i];
    p.column = static_cast<int>(i) + 1;
    auto& letters = in_result ? p.result : p.operands[p.operands.count - 1];
    if (c == ' ') continue;
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      if (holds(letters, c)) {
        p.error = in_result ? "a letter stands twice in the result; a letter names one dim of a tensor"
                            : "a letter stands twice in one operand; take the diagonal first, a letter names one dim";
        return p;
      }
      if (in_result && !holds(p.operands[0], c) && !(p.operands.count == 2 && holds(p.operands[1], c))) {
        p.error = "a letter of the result is in no operand; use broadcast_in_dim to add a dim";
        return p;
      }
      if (letters.count == max_rank) {
        p.error = "a tensor has at most 32 dims";
        return p;
      }
      letters.push_back(c);
    } else if (c == ',') {
      if (in_result || p.operands.count == 2) {
        p.error = "at most two operands, separated by one comma before ->";
        return p;
      }
      p.operands.push_back({});
    } else if (c == '-' && i + 1 < s.size() && s[i + 1] == '>') {
      if (in_result) {
        p.error = "a second ->";
        return p;
      }
      in_result = true;
      ++i;
    } else {
      p.error = "only letters, one comma and -> may stand here";
      return p;
    }
  }
  if (!in_result) {
    p.column = static_cast<int>(s.size()) + 1;
    p.error = "-> and the letters of the result are missing";
  }
  return p;
}

constexpr text equation_text(const parsed_equation& e) {
  text t("`");
  for (int k = 0; k < e.operands.count; ++k) {
    if (k > 0) t << ',';
    for (const char c : e.operands[k]) t << c;
  }
  t << "->";
  for (const char c : e.result) t << c;
  return t << '`';
}

/// Adds an einsum whose equation has been parsed. The node's attributes are the letters of the operands, then of the result.
constexpr int add_einsum(graph& g, const parsed_equation& e, std::initializer_list<int> operands, location at) {
  node n;
  n.op = opcode::einsum;
  n.at = at;
  if (static_cast<int>(operands.size()) != e.operands.count)
    return g.fail(at, "einsum", mistake::operand_count,
                  text("the equation ") << equation_text(e) << " has " << e.operands.count << " operands, the call has "
                                        << static_cast<int>(operands.size()));
  int k = 0;
  for (const int o : operands) {
    if (o < 0) return -1;
    n.operands.push_back(o);
    const node& x = g.nodes[static_cast<std::size_t>(o)];
    const auto& letters = e.operands[k];
    if (x.shape.count != letters.count)
      return g.fail(at, "einsum", mistake::rank,
                    text("operand ") << k << " of " << equation_text(e) << " has " << letters.count << " letters, the tensor is "
                                     << shape_text(x.shape) << " of rank " << x.shape.count);
    if (x.type == dtype::pred)
      return g.fail(at, "einsum", mistake::type, text("operand ") << k << " is pred; convert it to a number first");
    for (const char c : letters) n.attributes.push_back(static_cast<std::int8_t>(c));
    ++k;
  }
  const node& lhs = g.nodes[static_cast<std::size_t>(n.operands[0])];
  n.type = lhs.type;
  if (k == 2) {
    const node& rhs = g.nodes[static_cast<std::size_t>(n.operands[1])];
    if (rhs.type != lhs.type)
      return g.fail(
          at, "einsum", mistake::type,
          text("operand 0 is ") << name_of(lhs.type) << " and operand 1 is " << name_of(rhs.type) << "; convert one of them");
    for (int i = 0; i < lhs.shape.count; ++i)
      for (int j = 0; j < rhs.shape.count; ++j)
        if (e.operands[0][i] == e.operands[1][j] && lhs.shape[i] != rhs.shape[j])
          return g.fail(at, "einsum", mistake::extent,
                        text("dim `") << e.operands[0][i] << "` of " << equation_text(e) << " is " << lhs.shape[i]
                                      << " in operand 0 and " << rhs.shape[j] << " in operand 1; a letter has one extent");
  }
  for (const char c : e.result) {
    n.attributes.push_back(static_cast<std::int8_t>(c));
    const int o = holds(e.operands[0], c) ? 0 : 1;
    int i = 0;
    while (e.operands[o][i] != c) ++i;
    n.shape.push_back(g.nodes[static_cast<std::size_t>(n.operands[o])].shape[i]);
  }
  return g.add_sized(n);
}

/// The letters of operand `k`, or of the result for k = the number of operands.
struct einsum_letters {
  const node* n = nullptr;
  int begin = 0;
  int count = 0;
  [[nodiscard]] constexpr std::int8_t operator[](int i) const { return n->attributes[begin + i]; }
  [[nodiscard]] constexpr int find(std::int8_t letter) const {
    for (int i = 0; i < count; ++i)
      if ((*this)[i] == letter) return i;
    return -1;
  }
};

constexpr einsum_letters letters_of(const graph& g, const node& n, int k) {
  int begin = 0;
  for (int o = 0; o < k; ++o) begin += g.nodes[static_cast<std::size_t>(n.operands[o])].shape.count;
  const int count = k < n.operands.count ? g.nodes[static_cast<std::size_t>(n.operands[k])].shape.count : n.shape.count;
  return {&n, begin, count};
}

/// The equation is the rule: a letter is a factor; parallel if the result has it, else a reduction by add.
constexpr void einsum_rule(const graph& g, const node& n, op_rule& rule) {
  inline_vec<std::int8_t, 2 * max_rank> letters;  // by factor
  const auto result = letters_of(g, n, n.operands.count);
  for (int k = 0; k <= n.operands.count; ++k) {
    const auto dims = letters_of(g, n, k);
    tensor_map map;
    for (int d = 0; d < dims.count; ++d) {
      int f = 0;
      while (f < letters.count && letters[f] != dims[d]) ++f;
      if (f == letters.count) {
        letters.push_back(dims[d]);
        rule.add_factor(g.nodes[static_cast<std::size_t>(n.operands[k])].shape[d],
                        result.find(dims[d]) >= 0 ? factor_kind::parallel : factor_kind::reduction);
      }
      map.begin_dim();
      map.add_factor(f);
    }
    rule.maps.push_back(map);
  }
}

}  // namespace gspmd::detail
