// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/kernels/attention.hpp"
#include "gspmd/detail/ops/attention.hpp"
#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/ops/composite.hpp"
#include "gspmd/program.hpp"

/// Attention without its matrix of scores.
namespace gspmd {

struct attention_options {
  bool causal = false;         ///< row t of q sees the rows of k up to first_row + t, and no later ones
  std::int64_t first_row = 0;  ///< of causal attention: where the first row of q is among the rows of k
  double scale = 0;            ///< of the scores; 0: one over the square root of the elements of a row
};

namespace detail {

/// Newton's iteration; std::sqrt is no constant.
constexpr double square_root_of_extent(std::int64_t n) {
  const double x = static_cast<double>(n);
  double root = n > 1 ? x : 1;
  for (int i = 0; i < 80; ++i) root = (root + x / root) / 2;
  return root;
}

}  // namespace detail

/// softmax(scale * q k^T) v, for every head of every example, by blocks of scores: q [..., heads, T, K], k [..., heads, S, K] and
/// v [..., heads, S, V] give [..., heads, T, V]. Memory is linear in T and S, a block of at most 128 x 256 scores on each device, with
/// gradients of two; blocks that no row sees are passed over. q may have a multiple of k's heads, and so many in a row share one of k and v.
/// A row that sees nothing, of a negative first_row, is 0.
///
/// Examples, heads and the rows of q are split as they lie, without communication: shards give shards. The gradients by k and v are then
/// partial along the axes that split the rows of q. Rows of k and v and elements of a row are not split: where they were, another split
/// takes its place (heads by an all_to_all, which sends the n-th part of a shard to each of n devices), or they are gathered, which is an
/// error that says so unless the call stands in allow_replication(...). 2 flops for each of T S (K + V) products of a head, 3 K + 2 V for its
/// gradients, whatever rows do not see. Floats of all widths. bf16 and f16 are computed as float and rounded once (ops/composite.hpp). A program
/// with gradients keeps the float result for them. Gradients by q, k and v; gradients of these gradients are refused. Errors: ranks (three to eight dims), extents and types that do not fit, no rows of k.
/// Source: Milakov and Gimelshein 2018 (running maximum and sum); Dao et al., FlashAttention, 2022, 3.1 and appendix B.2.
///
///     auto y = attention(q, k, v, {.causal = true});            // [8,8,512,64] of three times that
///     auto z = attention(one, k, v, {.scale = 0.125});          // one row: [8,8,1,64]
constexpr value attention(value q, value k, value v, attention_options options = {}, location at = location::current()) {
  if (!q.is_valid() || !k.is_valid() || !v.is_valid()) return {};
  auto& g = *q.graph();
  const detail::one_call call(&g, "attention", {q.id(), k.id(), v.id()});
  const int last = q.rank() - 1;
  const double scale =
      options.scale != 0 || last < 0 || q.shape()[last] == 0 ? options.scale : 1 / detail::square_root_of_extent(q.shape()[last]);
  const std::int64_t seen = options.first_row + 1;
  const int id = detail::add_attention(g, q.id(), k.id(), v.id(), scale, options.causal ? &seen : nullptr, at);
  detail::extents shape(q.shape());
  if (last >= 0 && v.rank() == q.rank()) shape[last] = v.shape()[last];
  const dtype type = q.type();
  return detail::converted(detail::made(g, id, detail::composite_type(type), shape), type, at);
}

}  // namespace gspmd
