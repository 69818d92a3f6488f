// SPDX-License-Identifier: Apache-2.0
// alone: yes
// An operator that lacks a fact is rejected, for each fact.
#include "extend/new_operator/logaddexp.hpp"
#include "extend/new_operator/sum_last.hpp"

namespace gspmd::detail {
using new_operator::sum_last_op;
static_assert(complete_operator<sum_last_op>);

#define GSPMD_WITHOUT(fact)            \
  struct lacks_##fact : sum_last_op {  \
    static constexpr char fact = '\0'; \
  };                                   \
  static_assert(!complete_operator<lacks_##fact>);
GSPMD_WITHOUT(name)
GSPMD_WITHOUT(made)
GSPMD_WITHOUT(runs)
GSPMD_WITHOUT(completes)
GSPMD_WITHOUT(uniform)
GSPMD_WITHOUT(keeps_slices)
GSPMD_WITHOUT(composes)
GSPMD_WITHOUT(replication)
GSPMD_WITHOUT(leading)
GSPMD_WITHOUT(rule)
GSPMD_WITHOUT(meets)
GSPMD_WITHOUT(exchanges)
GSPMD_WITHOUT(sends)
GSPMD_WITHOUT(reads)
GSPMD_WITHOUT(is_made_again)
GSPMD_WITHOUT(may_go_round_ring)
GSPMD_WITHOUT(movements)
GSPMD_WITHOUT(map)
GSPMD_WITHOUT(tiles)
GSPMD_WITHOUT(tile)
GSPMD_WITHOUT(flops)
GSPMD_WITHOUT(in_loop)
GSPMD_WITHOUT(lies_along)
GSPMD_WITHOUT(name_dim)
GSPMD_WITHOUT(gradient)
GSPMD_WITHOUT(lower)
GSPMD_WITHOUT(describe)

// The same for an elementwise operator.
using new_operator::logaddexp_op;
static_assert(complete_elementwise<logaddexp_op>);
#define GSPMD_ELEMENTWISE_WITHOUT(fact)              \
  struct elementwise_without_##fact : logaddexp_op { \
    static constexpr char fact = '\0';               \
  };                                                 \
  static_assert(!complete_elementwise<elementwise_without_##fact>);
GSPMD_ELEMENTWISE_WITHOUT(name)
GSPMD_ELEMENTWISE_WITHOUT(operands)
GSPMD_ELEMENTWISE_WITHOUT(has_condition)
GSPMD_ELEMENTWISE_WITHOUT(defined)
GSPMD_ELEMENTWISE_WITHOUT(result)
GSPMD_ELEMENTWISE_WITHOUT(value)
GSPMD_ELEMENTWISE_WITHOUT(is_exact)
GSPMD_ELEMENTWISE_WITHOUT(folds)
GSPMD_ELEMENTWISE_WITHOUT(neutral)
GSPMD_ELEMENTWISE_WITHOUT(work)
GSPMD_ELEMENTWISE_WITHOUT(role)
GSPMD_ELEMENTWISE_WITHOUT(vectors)
GSPMD_ELEMENTWISE_WITHOUT(ignores_sign)
GSPMD_ELEMENTWISE_WITHOUT(flops)
GSPMD_ELEMENTWISE_WITHOUT(kernels)
GSPMD_ELEMENTWISE_WITHOUT(meets)
GSPMD_ELEMENTWISE_WITHOUT(gradient)
}  // namespace gspmd::detail
