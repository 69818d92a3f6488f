// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/nn/detail/attention_kernel.hpp"
#include "gspmd/nn/detail/attention_op.hpp"
#include "gspmd/nn/detail/square_root.hpp"
#include "gspmd/ops/composite.hpp"
#include "gspmd/program/program.hpp"

/// Attention that does not store the matrix of scores.
namespace gspmd {

/// Options of attention: causal masks and the factor of the scores.
struct attention_options {
  bool causal = false;         ///< row t of q attends to the rows of k up to first_row + t, and to no later ones
  std::int64_t first_row = 0;  ///< the position of q's first row among the rows of k, if `causal`
  double scale = 0;            ///< the factor of the scores; 0 means 1 / sqrt(K), with rows of q of K elements
};

/// Returns softmax(scale * q k^T) v for each head of each example, and computes the scores in blocks.
///
/// Memory is linear in T and S: a device holds one block of at most 128 x 256 scores, and two in the gradient. Blocks
/// that no row attends to are skipped. A row that attends to nothing, because of a negative first_row, is 0.
///
/// The elements are floats of one type. bf16 and f16 are computed as float and rounded once (ops/composite.hpp). A
/// program with gradients keeps the float result for them. There are gradients by q, k and v. A second gradient is an
/// error.
///
/// A head costs 2 T S (K + V) flops, and 2 T S (3 K + 2 V) in the gradient, also if `causal` skips blocks.
///
/// **Shapes.** q [..., heads, T, K], k [..., heads, S, K], v [..., heads, S, V] -> [..., heads, T, V]. Tensors have
/// three to eight dims. q may have n times the heads of k and v. Then n consecutive heads of q share a head of k and v.
/// **Communication.** None if only examples, heads and rows of q are split. The gradients by k and v are then partial
/// along the axes that split the rows of q. Rows of k and v, and the elements of a row, must be whole. If they are
/// split, the planner moves the split, for example to the heads. This is an all_to_all, which sends 1/n of a shard to
/// each of n devices. If it cannot move the split, it gathers them. The gather is an error unless the call is in
/// allow_replication(...).
/// **Errors.** The ranks, extents or types do not fit, or k and v have no rows.
/// **Example.**
///
///     auto y = attention(q, k, v, {.causal = true});            // q, k, v and y are [8,8,512,64]
///     auto z = attention(one, k, v, {.scale = 0.125});          // one row: [8,8,1,64]
///
/// **Source.** Milakov and Gimelshein 2018 (running maximum and sum). Dao et al., FlashAttention, 2022, 3.1 and
/// appendix B.2.
constexpr value attention(value q, value k, value v, attention_options options = {}, location at = location::current()) {
  if (!q.is_valid() || !k.is_valid() || !v.is_valid()) return {};
  auto& g = *q.graph();
  const detail::one_call call(&g, "attention", {q.id(), k.id(), v.id()});
  const int last = q.rank() - 1;
  const double scale = options.scale != 0 || last < 0 || q.shape()[last] == 0
                           ? options.scale
                           : 1 / detail::square_root_of(static_cast<double>(q.shape()[last]));
  const std::int64_t seen = options.first_row + 1;
  const int id = detail::add_attention(g, q.id(), k.id(), v.id(), scale, options.causal ? &seen : nullptr, at);
  detail::extents shape(q.shape());
  if (last >= 0 && v.rank() == q.rank()) shape[last] = v.shape()[last];
  const dtype type = q.type();
  return detail::converted(detail::made(g, id, detail::composite_type(type), shape), type, at);
}

}  // namespace gspmd
