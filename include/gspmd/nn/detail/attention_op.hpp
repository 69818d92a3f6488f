// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/sources.hpp"
#include "gspmd/nn/detail/attention_rule.hpp"

namespace gspmd::detail {

/// The common facts of attention and its gradient. `Words` names the tensors of the operator.
template <const attention_words& Words>
struct attention_family : plain_operator, reduced_first, without_movements, reads_shards, outside_of_loops {
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 1, .backward = 1};
  static constexpr bool uniform = false;
  static constexpr bool keeps_slices = false;
  static constexpr leading_dim leading{.most = most_attention_dims};  // all tensors get the dim, and no attribute numbers a dim
  static constexpr replication_words replication{"", "needs whole rows, and all rows of k and v, so it would gather",
                                                 "reshard it so that heads or examples are split, or write "
                                                 "allow_replication(...) around it"};

  static constexpr void rule(const graph& g, const node& n, op_rule& rule) { attention_rule(g, n, Words, rule); }
  static constexpr void name_dim(text& t, const graph& g, const node& n, int k, int dim) {
    name_attention_dim(t, g, n, Words, k, dim);
  }
};

/// Adds the gradients of the attention node `forward` with respect to q, k and v. Returns the node of the gradient of
/// q; the gradients of k and v are its further results. The results of `forward` are the nodes `result` and `result +
/// 1`.
constexpr int add_attention_gradient(graph& g, const node& forward, int result, int by_result);

/// Attention of q, k and v: softmax(scale q k^T) v for each example and head. The second result is the logarithm of the
/// sum of exponentials of each row, which the gradient reads.
///
/// **Shapes.** q [examples..., h, t, k], k [examples..., g, s, k], v [examples..., g, s, v] -> [examples..., h, t, v]
/// and [examples..., h, t]. Each head of k and v is shared by h/g heads of q. **Splits.** Examples, heads and rows of q
/// may be split. The rows of k and v and the elements of rows are gathered.
struct attention_op : attention_family<forward_words> {
  static constexpr const char* name = "attention";

  static constexpr std::int64_t flops(const graph& g, const mesh_shape&, const local_program& p, const instruction& op) {
    return attention_flops(g, p, op, 1, 1);
  }
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    const int by_q = add_attention_gradient(b.program(), n, b.visited(), b.dy().id());
    for (int k = 0; k < 3 && by_q >= 0; ++k) b.send(k, by_q + k);
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    attention_step<true>(l, op);
  }
  static void describe(std::string& t, const plan_view& plan, const plan_step* step) { describe_attention<true>(t, plan, step); }
};

/// The gradients of attention with respect to q, k and v. Shapes and splits are those of attention. If rows or heads of
/// q are split, the gradients of k and v can be partial. Has no gradient.
struct attention_gradient_op : attention_family<backward_words> {
  static constexpr const char* name = "attention_gradient";

  static constexpr std::int64_t flops(const graph& g, const mesh_shape&, const local_program& p, const instruction& op) {
    return attention_flops(g, p, op, 3, 2);
  }
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    b.program().fail(n.at, attention_op::name, mistake::no_derivative,
                     "has a gradient, and that has none; write softmax and einsum where you need gradients of gradients");
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    attention_step<false>(l, op);
  }
  static void describe(std::string& t, const plan_view& plan, const plan_step* step) { describe_attention<false>(t, plan, step); }
};

constexpr int add_attention_gradient(graph& g, const node& forward, int result, int by_result) {
  if (by_result < 0) return -1;
  const auto like = [&](int o) -> const node& { return g.nodes[static_cast<std::size_t>(forward.operands[o])]; };
  node n = source(code_of<attention_gradient_op>, like(0).type, like(0).shape, forward.at);
  for (int o = 0; o < 3; ++o) n.operands.push_back(forward.operands[o]);
  n.operands.push_back(result);
  n.operands.push_back(by_result);
  n.operands.push_back(result + 1);
  for (int o = 3; o < forward.operands.count; ++o) n.operands.push_back(forward.operands[o]);
  const extents by_k = like(1).shape, by_v = like(2).shape;
  const int id = g.add_sized(n);
  return id < 0 || g.add_result(n.type, by_k) < 0 || g.add_result(n.type, by_v) < 0 ? -1 : id;
}

/// Returns true if the tensors fit attention as q, k and v. Otherwise records the mistake.
constexpr bool fits_attention(graph& g, int q, int k, int v, location at) {
  const char* const op = attention_op::name;
  if (q < 0 || k < 0 || v < 0 || !g.may_read({q, k, v}, at, op)) return false;
  const node &qs = g.nodes[static_cast<std::size_t>(q)], &ks = g.nodes[static_cast<std::size_t>(k)],
             &vs = g.nodes[static_cast<std::size_t>(v)];
  const auto refuse = [&](mistake rule, const text& what) { return g.fail(at, op, rule, what) >= 0; };
  const int rank = qs.shape.count;
  if (rank < 3 || rank > most_attention_dims || ks.shape.count != rank || vs.shape.count != rank)
    return refuse(mistake::rank, text("q, k and v are ")
                                     << shape_text(qs.shape) << ", " << shape_text(ks.shape) << " and " << shape_text(vs.shape)
                                     << "; give it [examples..., heads, rows, elements], three to " << most_attention_dims
                                     << " dims each, the same number for all three");
  if (qs.type != ks.type || qs.type != vs.type || !is_floating(qs.type) || is_complex(qs.type))
    return refuse(mistake::type, text("q, k and v are ") << name_of(qs.type) << ", " << name_of(ks.type) << " and "
                                                         << name_of(vs.type) << "; give it floats of one type");
  for (int d = 0; d < rank; ++d) {
    const bool has_rows = d == rank - 2, has_elements = d == rank - 1, has_heads = d == rank - 3;
    const std::int64_t own = qs.shape[d], other = ks.shape[d];
    const bool fits = has_rows       ? other == vs.shape[d] && other > 0
                      : has_elements ? own == other
                      : has_heads    ? other == vs.shape[d] && (own == other || (other > 0 && own % other == 0))
                                     : own == other && own == vs.shape[d];
    if (fits) continue;
    return refuse(mistake::extent, text("dim ")
                                       << d << " of q, k and v, " << shape_text(qs.shape) << ", " << shape_text(ks.shape)
                                       << " and " << shape_text(vs.shape) << ": "
                                       << (has_rows       ? "k and v have the same number of rows, at least one"
                                           : has_elements ? "rows of q and k have the same length"
                                           : has_heads ? "k and v have the same number of heads, and q a multiple of that number"
                                                       : "all three have the same examples"));
  }
  return true;
}

/// Adds attention. Returns the node of the first result. If q is bf16 or f16, both results are float, because the
/// gradient reads them; the caller rounds the first result. `seen` is the number of rows of k that the first row of q
/// sees; each further row of q sees one more. If `seen` is null, all rows see all rows.
constexpr int add_attention(graph& g, int q, int k, int v, double scale, const std::int64_t* seen, location at) {
  if (!fits_attention(g, q, k, v, at)) return -1;
  const node like = g.nodes[static_cast<std::size_t>(q)];
  const int rank = like.shape.count;
  extents examples, rows;
  for (int d = 0; d < rank - 3; ++d) examples.push_back(like.shape[d]);
  rows = examples;
  rows.push_back(like.shape[rank - 2]);
  const dtype wide = computed_as(like.type);
  node n = source(code_of<attention_op>, wide, like.shape, at);
  n.shape[rank - 1] = g.nodes[static_cast<std::size_t>(v)].shape[rank - 1];
  for (const int o : {q, k, v}) n.operands.push_back(o);
  n.operands.push_back(add_number(g, scale, wide, examples, attention_op::name, at));
  if (seen != nullptr) {
    const int row = add_iota(g, dtype::s32, rows, rows.count - 1, at);
    const int first = add_number(g, *seen, dtype::s32, rows, attention_op::name, at);
    n.operands.push_back(row < 0 || first < 0 ? -1 : add_elementwise(g, code_of<add_op>, {row, first}, at));
  }
  for (const int o : n.operands)
    if (o < 0) return -1;
  extents per_row = like.shape;
  per_row.pop_back();
  const int id = g.add_sized(n);
  return id < 0 || g.add_result(wide, per_row) < 0 ? -1 : id;
}

}  // namespace gspmd::detail
