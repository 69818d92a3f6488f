// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/contraction_planner.hpp"
#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/support/tuning.hpp"

namespace gspmd::detail {

/// Tries to add a reduction over `dims` of a waiting product as a contraction of shards, `ab,ab->a`, so that the
/// product is not materialised. Both factors must be in memory, and the summed dims must be all dims, the last dims, or
/// the first dims. Otherwise returns false and adds nothing. Also returns false if a factor is itself summed over the
/// same dims, as sum(x) with sum(x * x): one loop computes both sums.
template <class Lowering>
constexpr bool add_sum_of_product(Lowering& l, const instruction& op, dim_mask dims) {
  const node& n = l.node_of(op);
  const int product = op.operands[0];
  const instruction* const maker = l.waiting(product);
  if (dims == 0) return false;  // nothing is summed, so the product itself is needed
  if (maker == nullptr || n.reduced_by != monoid::add || !is_floating(n.type) || is_narrow(n.type) || is_complex(n.type) ||
      l.node_of(*maker).op != code_of<multiply_op>)
    return false;
  const int lhs = maker->operands[0], rhs = maker->operands[1];
  if (!l.lies_in_memory(lhs) || !l.lies_in_memory(rhs)) return false;
  if (l.is_read_alike(op, lhs) || l.is_read_alike(op, rhs)) return false;

  const local_value& v = l.value(product);
  std::int64_t terms = 1, kept = 1;
  int changes = 0;  // between summed dims and kept dims
  for (int d = 0; d < v.local.count; ++d) {
    const bool is_summed = (dims & dim_bit(d)) != 0;
    (is_summed ? terms : kept) *= v.local[d];
    if (d > 0 && is_summed != ((dims & dim_bit(d - 1)) != 0)) ++changes;
  }
  const bool sums_last = v.local.count > 0 && (dims & dim_bit(v.local.count - 1)) != 0;
  if (changes > 1 || (changes == 1 && (sums_last ? terms : kept) < least_terms_of_contraction)) return false;

  contraction c;
  c.padded = padded_dims(l.out.mesh, v.global, v.layout);
  for (int d = 0; d < v.local.count; ++d) {
    c.extent.push_back(v.local[d]);
    c.lhs.push_back(static_cast<std::int8_t>(d));
    c.rhs.push_back(static_cast<std::int8_t>(d));
    if ((dims & dim_bit(d)) == 0) c.out.push_back(static_cast<std::int8_t>(d));
  }
  l.forget(product);
  auto& s = add_step<kernels::contract>(l, op, l.planned(c), {lhs, rhs}, {op.result});
  for (int k = 0; k < 2; ++k)
    for (int d = 0; d < c.lhs.count; ++d)
      if ((dims & dim_bit(d)) != 0) l.add_bound(s, d, k == 0 ? lhs : rhs, d);
  return true;
}

}  // namespace gspmd::detail
