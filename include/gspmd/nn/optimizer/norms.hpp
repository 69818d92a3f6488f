// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/nn/optimizer/update.hpp"
#include "gspmd/ops/reduce.hpp"

namespace gspmd {
namespace detail {

/// Returns the sum of squares of all elements; bf16 and f16 are computed as float. If `x` is split, each device
/// contributes one number to the reduction. norm_of and rms_of return the root of the sum and of the mean.
constexpr quantity squares_of(const quantity& x) {
  const quantity wide = x.wide();
  return {sum((wide * wide).tensor(), {}, x.at()), x.at()};
}
constexpr quantity norm_of(const quantity& x) { return sqrt(squares_of(x)); }
constexpr quantity rms_of(const quantity& x) {
  const auto count = elements(x.tensor().shape());
  return sqrt(squares_of(x) / static_cast<double>(count == 0 ? 1 : count));
}

}  // namespace detail

namespace optimizer {

/// Returns the root of the sum of the squares of all elements of a group of floats.
///
/// **Shapes.** The result has rank 0. It has the type of the group, float for bf16 and f16, and double if the types
/// differ.
/// **Communication.** The sums of tensors with equal splits are added before they are reduced.
/// **Errors.** An element type that is not a float.
template <class Tree>
constexpr value global_norm(const Tree& tree, location at = location::current()) {
  using gspmd::detail::quantity;
  auto* const g = gspmd::detail::graph_in(tree);
  const gspmd::detail::parameter_update all(g, "global_norm", at);
  bool is_alike = true;
  dtype type = dtype::f64;
  quantity total;
  gspmd::detail::for_each_leaf(tree, [&](const value& v) {
    if (!v.is_valid() || g->failed() || !all.is_float(v)) return;
    const quantity squares = gspmd::detail::squares_of(all.of(v));
    const dtype own = squares.tensor().type();
    is_alike = is_alike && (total.is_number() || own == type);
    type = is_alike ? own : dtype::f64;
    total = total.is_number() ? squares : total.as(type) + squares.as(type);
  });
  if (g == nullptr) return {};
  if (total.is_number())
    return gspmd::detail::made(*g, gspmd::detail::add_constant(*g, dtype::f64, {}, 0, 0, at), dtype::f64, {});
  return sqrt(total).tensor();
}

/// Returns the gradients, scaled by limit / norm if their global norm is above `limit`.
///
/// **Communication.** The same as global_norm.
/// **Errors.** A limit that is not above 0; an element type that is not a float.
/// **Example.**
///
///     const auto g = optimizer::clip_by_global_norm(grad(loss, w), 1.0);
///
/// **Source.** Pascanu, Mikolov and Bengio 2013, Algorithm 1.
template <class Grads>
constexpr Grads clip_by_global_norm(Grads grads, double limit, location at = location::current()) {
  using gspmd::detail::quantity;
  auto* const g = gspmd::detail::graph_in(grads);
  if (g == nullptr) return grads;
  if (!(limit > 0))
    g->fail(at, "clip_by_global_norm", gspmd::detail::mistake::number, "the limit is not above 0; pass the largest allowed norm");
  const quantity norm(global_norm(grads, at), at);
  const gspmd::detail::parameter_update all(g, "clip_by_global_norm", at);
  if (g->failed()) return grads;
  const quantity factor = limit / max(norm, limit);
  gspmd::detail::for_each_leaf(grads, [&](value& v) {
    const quantity wide = all.of(v).wide();
    v = (wide * factor.as(wide.tensor().type())).as(v.type()).tensor();
  });
  return grads;
}

}  // namespace optimizer
}  // namespace gspmd
