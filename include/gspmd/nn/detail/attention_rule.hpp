// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/extend/kernel.hpp"
#include "gspmd/nn/detail/attention_block.hpp"

/// The tensors of attention and of its gradient. Letters name the last dims. The first dims of all tensors are dims of
/// examples.
///
///   h   heads of q; each attends to one head of k and v     t   rows of q       k   elements of a row of q and k
///   g   heads of k and v; h/g heads of q share each         s   rows of k, v    v   elements of a row of v
///
/// A device computes its own examples, heads and rows of q, and reads all rows of k and v.
namespace gspmd::detail {

struct attention_words {
  std::array<std::string_view, max_local_operands> operands;  // the last one: the visible rows, if not all are visible
  int count = 0;                                              // the number of operands without the last one
  std::array<std::string_view, 3> results;
  int result_count = 0;
};
inline constexpr attention_words forward_words{{"htk", "gsk", "gsv", "", "t"}, 4, {"htv", "ht"}, 2};
inline constexpr attention_words backward_words{{"htk", "gsk", "gsv", "htv", "htv", "ht", "", "t"}, 7, {"htk", "gsk", "gsv"}, 3};

/// Returns the number of dims of examples.
constexpr int attention_examples(const graph& g, const node& n) { return operand_of(g, n, 0).shape.count - 3; }

constexpr factor_kind kind_of_attention(char letter) {
  return letter == 'h' || letter == 'g' || letter == 't' ? factor_kind::parallel : factor_kind::whole;
}

constexpr void attention_rule(const graph& g, const node& n, const attention_words& words, op_rule& rule) {
  const extents &q = operand_of(g, n, 0).shape, &k = operand_of(g, n, 1).shape, &v = operand_of(g, n, 2).shape;
  const int examples = attention_examples(g, n);
  rule.reduced_by = monoid::add;  // the gradients of k and v are sums over rows and heads of q
  for (int d = 0; d < examples; ++d) rule.add_factor(q[d]);
  const std::int64_t heads = q[examples], shared = k[examples];
  const int per_example = rule.add_factor(shared);
  const int per_shared = heads == shared ? -1 : rule.add_factor(heads / shared);
  int of_letter[128]{};
  of_letter[int{'t'}] = rule.add_factor(q[examples + 1]);
  of_letter[int{'s'}] = rule.add_factor(k[examples + 1], factor_kind::whole);
  of_letter[int{'k'}] = rule.add_factor(q[examples + 2], factor_kind::whole);
  of_letter[int{'v'}] = rule.add_factor(v[examples + 2], factor_kind::whole);
  const auto add = [&](std::string_view letters) {
    tensor_map map;
    for (int d = 0; d < examples; ++d) {
      map.begin_dim();
      map.add_factor(d);
    }
    for (const char l : letters) {
      map.begin_dim();
      if (l != 'h' && l != 'g') {
        map.add_factor(of_letter[static_cast<int>(l)]);
        continue;
      }
      map.add_factor(per_example);
      if (l == 'h' && per_shared >= 0) map.add_factor(per_shared);
    }
    rule.maps.push_back(map);
  };
  for (int o = 0; o < n.operands.count; ++o) add(words.operands[static_cast<std::size_t>(o)]);
  for (int r = 0; r < n.results; ++r) add(words.results[static_cast<std::size_t>(r)]);
}

/// Appends the name of a dim to a message: heads, rows, or elements of a row.
constexpr void name_attention_dim(text& t, const graph& g, const node& n, const attention_words& words, int k, int dim) {
  const int d = dim - attention_examples(g, n);
  if (d < 0) return;
  const char letter = words.operands[static_cast<std::size_t>(k)][static_cast<std::size_t>(d)];
  t << (letter == 's'                    ? " (the rows of k and v)"
        : letter == 't'                  ? " (the rows of q)"
        : letter == 'h' || letter == 'g' ? " (heads)"
                                         : " (the elements of a row)");
}

/// Returns the flops of `products` products of rows of q and k, and of `sums` sums of rows of v. Rows that are not
/// visible count as well.
constexpr std::int64_t attention_flops(const graph& g, const local_program& p, const instruction& op, std::int64_t products,
                                       std::int64_t sums) {
  const int examples = attention_examples(g, g.nodes[static_cast<std::size_t>(op.node)]);
  const extents &q = p.value(op.operands[0]).local, &v = p.value(op.operands[2]).local;
  std::int64_t total = 2;
  for (int d = 0; d < examples + 2; ++d) total = saturating_multiply(total, q[d]);
  total = saturating_multiply(total, v[examples + 1]);
  return saturating_multiply(
      total, saturating_add(saturating_multiply(products, q[examples + 2]), saturating_multiply(sums, v[examples + 2])));
}

/// The largest number of dims of attention's tensors. Each number of dims has its own function of a device's blocks.
inline constexpr int most_attention_dims = 8;

/// Returns the rule of one device's blocks, for tensors of `rank` dims. The last result is scratch.
constexpr local_rule attention_block_rule(int rank, bool is_causal, const attention_words& words) {
  local_rule rule;
  constexpr std::string_view letters = "abcdehgtskvw";  // examples, the letters of attention_words, scratch
  for (const char l : letters) {
    rule_letter letter;
    letter.name = l;
    letter.kind = l < 'f' ? factor_kind::parallel : kind_of_attention(l);
    rule.letters.push_back(letter);
  }
  const auto add = [&](std::string_view own, bool is_scratch = false) {
    inline_vec<std::int8_t, max_rank> dims;
    for (int d = 0; d < rank - 3 && !is_scratch; ++d) dims.push_back(static_cast<std::int8_t>(d));
    for (const char l : own) dims.push_back(static_cast<std::int8_t>(letters.find(l)));
    rule.tensors.push_back(dims);
  };
  for (int o = 0; o < words.count + (is_causal ? 1 : 0); ++o) add(words.operands[static_cast<std::size_t>(o)]);
  for (int r = 0; r < words.result_count; ++r) add(words.results[static_cast<std::size_t>(r)]);
  add("w", true);
  rule.results = static_cast<std::int8_t>(words.result_count + 1);
  return rule;
}

template <bool IsForward, int Rank, bool IsCausal, class T>
void call_attention(const void*, const erased_block* blocks) {
  if constexpr (IsForward) attend_blocks<T>(Rank, IsCausal, blocks);
  else attend_blocks_back<T>(Rank, IsCausal, blocks);
}
template <bool IsForward, int Rank, bool IsCausal>
inline constexpr local_function attention_function = [] {
  local_function f;
  f.rule = attention_block_rule(Rank, IsCausal, IsForward ? forward_words : backward_words);
  f.entries[0].run = &call_attention<IsForward, Rank, IsCausal, float>;
  f.entries[1].run = &call_attention<IsForward, Rank, IsCausal, double>;
  f.entry_count = 2;
  return f;
}();
template <bool IsForward>
constexpr const local_function* attention_function_of(int rank, bool is_causal) {
  return [&]<int... R>(std::integer_sequence<int, R...>) {
    const local_function* const of[][2] = {
        {&attention_function<IsForward, 3 + R, false>, &attention_function<IsForward, 3 + R, true>}...};
    return of[rank - 3][is_causal ? 1 : 0];
  }(std::make_integer_sequence<int, most_attention_dims - 2>{});
}

/// Adds the step of attention or of its gradient.
template <bool IsForward>
constexpr void attention_step(lowering& l, const instruction& op) {
  const node& n = l.node_of(op);
  constexpr const attention_words& words = IsForward ? forward_words : backward_words;
  const int rank = operand_of(l.g, n, 0).shape.count;
  const bool is_causal = op.operands.count > words.count;
  vec<int> operands, results;
  for (const int o : op.operands) operands.push_back(l.widened(op, o));
  results.push_back(l.wide_result(op.result));
  for (const int v : op.further_results) results.push_back(l.wide_result(v));
  const dtype type = l.value(operands[0]).type;
  const auto block = attention_block::of(l.value(operands[0]).local[rank - 2], l.value(operands[1]).local[rank - 2], is_causal);
  local_value scratch = l.value(operands[0]);
  scratch.layout = sharding{};
  scratch.global = scratch.local = extents(1, IsForward ? block.forward_elems() : block.backward_elems());
  results.push_back(l.add_value(scratch));
  auto& s = add_step<kernels::local>(l, op, type == dtype::f64 ? 1 : 0, operands, results);
  s.local = attention_function_of<IsForward>(rank, is_causal);
  l.narrowed(op, results[0], op.result);
  for (int r = 0; r < op.further_results.count; ++r) l.narrowed(op, results[r + 1], op.further_results[r]);
}

/// Appends ` by blocks of 128 x 256`, and `, causal` if rows do not see later rows.
template <bool IsForward>
void describe_attention(std::string& t, const plan_view& plan, const plan_step* step) {
  if (step == nullptr || step->local == nullptr) return;
  const extents &q = plan.operand(*step, 0).local, &k = plan.operand(*step, 1).local;
  const bool is_causal = step->operands.count > (IsForward ? forward_words : backward_words).count;
  const auto block = attention_block::of(q[q.count - 2], k[k.count - 2], is_causal);
  t += " by blocks of " + std::to_string(block.rows) + " x " + std::to_string(block.cols) + (is_causal ? ", causal" : "");
}

}  // namespace gspmd::detail
