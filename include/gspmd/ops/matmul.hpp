// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "gspmd/ops/einsum.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/shape.hpp"

/// The products of NumPy: matmul, dot and outer. They are einsums, so their gradients and communication are those of
/// einsum.
namespace gspmd {
namespace detail {

/// Adds the error that `op` refuses the shapes of `a` and `b`.
constexpr value refused_product(const char* op, value a, value b, const char* why, location at) {
  text what("the operands are ");
  what << shape_text(a.shape()) << " and " << shape_text(b.shape()) << "; " << why;
  return made(a.graph()->fail(at, op, mistake::extent, what), a);
}

/// Returns the einsum that sums the last dim of `a` and the second-to-last dim of `b` (the only dim of a vector), and
/// keeps the other dims of both in order.
///   [2,3] and [5,3,4]: `ba,cad->bcd`
constexpr value product_over_one_dim(const char* op, value a, value b, location at) {
  const int summed[]{a.rank() - 1, b.rank() < 2 ? 0 : b.rank() - 2};
  if (a.shape()[summed[0]] != b.shape()[summed[1]])
    return refused_product(
        op, a, b, "the last dim of the first must equal the second-to-last (or only) dim of the second: transpose one", at);
  if (!has_room_for_dims(*a.graph(), static_cast<std::size_t>(a.rank() + b.rank() - 2), op, at)) return made(-1, a);
  einsum_equation e;
  int letters = 1;  // letter 0 is the summed dim
  for (const int k : {0, 1}) {
    e.operands.push_back({});
    auto& own = e.operands[k];
    for (int d = 0; d < (k == 0 ? a : b).rank(); ++d) {
      const int letter = d == summed[k] ? 0 : letters++;
      own.push_back(static_cast<char>(letter < 26 ? 'a' + letter : 'A' + letter - 26));
      if (letter > 0) e.result.push_back(own[d]);
    }
  }
  return einsum_of(e, a, b, at);
}

}  // namespace detail

/// Returns the dot product of two vectors, or NumPy's dot of tensors: the sum over the last dim of `a` and the
/// second-to-last dim of `b`. The result has the other dims of `a`, then those of `b`. If an operand has rank 0, this
/// is the product of a number and a tensor.
///
/// **Shapes.** [k], [k] -> []; [m, k], [k] -> [m]; [l, m, k], [j, k, n] -> [l, m, j, n].
/// **Communication.** That of einsum: if the summed dim is split, one all_reduce or reduce_scatter of the result.
/// **Errors.** Compile error `extent` if the summed dims have two extents, `type` if the operands have two types.
/// **Example.**
///     auto energy = dot(r, r);
constexpr value dot(value a, value b, location at = location::current()) {
  if (!a.is_valid() || !b.is_valid()) return {};
  const detail::one_call call(a.graph(), "dot", {a.id(), b.id()});
  if (a.rank() == 0 || b.rank() == 0) return operand(a, at) * operand(b, at);
  return detail::product_over_one_dim("dot", a, b, at);
}

/// Returns the product of the matrices in the last two dims of `a` and `b`; NumPy's matmul. The dims before them are
/// batch dims. They are aligned at the right, and an extent of 1 is repeated. An operand of rank 1 is a vector, and the
/// result lacks its dim.
///
/// **Shapes.** [m, k], [k, n] -> [m, n]; [b, m, k], [b, k, n] -> [b, m, n]; [b, m, k], [k] -> [b, m]. Each device holds
/// [m/x, n/y] if m is split over x and n over y.
/// **Communication.** None if k is not split. Otherwise one all_reduce or reduce_scatter over the axes of k: 2 (p-1)/p
/// or (p-1)/p of the result.
/// **Errors.** Compile error `extent` if the summed dims or two batch dims do not match, or if an operand has rank 0;
/// `type` if the operands have two types.
/// **Example.**
///     auto h = relu(matmul(x, w) + b);
/// **Source.** GSPMD, section 4.2.
constexpr value matmul(value a, value b, location at = location::current()) {
  if (!a.is_valid() || !b.is_valid()) return {};
  const detail::one_call call(a.graph(), "matmul", {a.id(), b.id()});
  if (a.rank() == 0 || b.rank() == 0) return detail::refused_product("matmul", a, b, "for an operand of rank 0, write a * b", at);
  if (a.rank() < 2 || b.rank() < 3 || a.shape()[a.rank() - 1] != b.shape()[b.rank() - 2])
    return detail::product_over_one_dim("matmul", a, b, at);
  for (int d = 3; d <= a.rank() && d <= b.rank(); ++d)
    if (const auto m = a.shape()[a.rank() - d], n = b.shape()[b.rank() - d]; m != n && m != 1 && n != 1)
      return detail::refused_product("matmul", a, b, "the batch dims, aligned at the right, must be equal or 1", at);
  return einsum("...ab,...bc->...ac", a, b, at);
}

/// Returns the products of each element of `a` with each element of `b`; NumPy's outer. Tensors are read in row-major
/// order, as vectors.
///
/// **Shapes.** [m], [n] -> [m, n].
/// **Communication.** None for vectors. If an operand has a higher rank, that of its reshape to a vector.
/// **Example.**
///     auto update = outer(u, v);
constexpr value outer(value a, value b, location at = location::current()) {
  if (!a.is_valid() || !b.is_valid()) return {};
  const detail::one_call call(a.graph(), "outer", {a.id(), b.id()});
  const auto as_vector = [at](value x) { return x.rank() == 1 ? x : reshape(x, {detail::elements(x.shape())}, at); };
  return einsum("a,b->ab", as_vector(a), as_vector(b), at);
}

}  // namespace gspmd
