// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/grad/grad.hpp"
#include "gspmd/program.hpp"
#include "gspmd/tree.hpp"

namespace gspmd {

/// The gradients of `loss`, a float of rank 0, by the values in `by`: a value, a tuple, an array or a vector of values, or a struct
/// declared with Hana. The result has the type of `by`, each gradient the shape of its value.
///
/// A graph transform (GSPMD 3.6): the backward program is completed and partitioned like the forward one; the gradient of a
/// replicated weight by a split batch is partial, so an all_reduce, or a reduce_scatter into a split weight, follows. At ties
/// maximum and minimum share the gradient evenly; the gradient of a product reduction divides by the element, so it is not
/// defined at 0. Errors: the loss is no float scalar; a `map` without `with_derivative`.
///
///     auto g = grad(loss, w);   w = w - 0.1 * g;
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
