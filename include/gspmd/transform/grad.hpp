// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/grad/grad.hpp"
#include "gspmd/program/program.hpp"
#include "gspmd/program/tree.hpp"

namespace gspmd {

/// Returns the gradients of `loss` by the values in `by`.
///
/// The backward program is completed and partitioned as the forward program is. The gradient of a replicated weight by
/// a split batch is partial, so an all_reduce follows, or a reduce_scatter if the weight is split. If operands of
/// maximum or minimum are equal, they share the gradient evenly. The gradient of a product reduction divides by the
/// element, so it is not defined at 0.
///
/// **Shapes.** `loss` is a float of rank 0. `by` is a value, a tuple, array or vector of values, or a struct of
/// values. The result has the type of `by`, and each gradient has the shape of its value.
/// **Errors.**
///  - the loss is not a float of rank 0
///  - an operator has no derivative, for example a `map` without `with_derivative`
///  - a loop must store the iterations of a carried value of more than 31 dims
/// **Example.** auto g = grad(loss, w);   w = w - 0.1 * g;
/// **Source.** GSPMD, section 3.6.
template <class Tree>
constexpr Tree grad(value loss, Tree by) {
  if (!loss.is_valid()) return by;
  int first = loss.id();
  detail::for_each_leaf(by, [&](const value& leaf) {
    if (leaf.is_valid() && leaf.id() < first) first = leaf.id();
  });
  detail::differentiator d(*loss.graph(), loss.id(), first);
  detail::for_each_leaf(by, [&](value& leaf) {
    if (leaf.is_valid()) leaf = detail::made(d.found(leaf.id()), leaf);
  });
  return by;
}

}  // namespace gspmd
