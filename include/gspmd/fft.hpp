// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/kernels/line_transform.hpp"
#include "gspmd/detail/ops/fft.hpp"
#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/ops/reduce.hpp"
#include "gspmd/ops/shape.hpp"

/// Discrete Fourier transforms.
namespace gspmd {
namespace detail {

constexpr value transformed(value x, const dim_list& dims, bool is_inverse, location at) {
  if (!x.is_valid()) return {};
  const one_call call(x.graph(), is_inverse ? "ifft" : "fft", {x.id()});
  return made(add_fft(*x.graph(), x.id(), dims.mask(x.rank()), is_inverse, at), x);
}

}  // namespace detail

/// y[k] = the sum over j of x[j] e^(-2 pi i jk / n) along each of `dims`, `{}` being all, as numpy.fft.fftn: unscaled. Complex numbers, any n.
/// Global and local: shards give shards.
///
/// A dim is whole on a device while it is transformed, and other dims may be split. Transforms along several dims come one after the other, along
/// the dims that are whole first; before a split one the planner moves the split to another dim, one all_to_all, of which a device sends (p - 1) /
/// p of its part to p - 1 others. So of x[z,y,x] with split z (slabs) there is one all_to_all, with split z and y (pencils) there are two, and
/// the result lies where they leave it, which costs nothing to transform back; an annotation of the result may ask for more. Where no other dim
/// can be split the lines are gathered, which is an error that says so unless the call stands in allow_replication(...).
///
/// 5 n log2(n) flops for each line of n; scratch for as many lines as a vector has lanes. n with a prime factor above 13 costs about six times
/// as much. Gradients, by the same transform. Errors: real numbers, a dim that is not there or has no elements, more than 8 dims. Source:
/// Stockham's order of Cooley and Tukey's algorithm (Van Loan 1992), Bailey 1990, Bluestein 1970; pencils: Pekurovsky, P3DFFT, 2012.
///
///     fft(u, {0, 1, 2})        fft(u, -1)
constexpr value fft(value x, detail::dim_list dims, location at = location::current()) {
  return detail::transformed(x, dims, false, at);
}
/// The inverse of fft: e^(+2 pi i jk / n), and each dim scaled by 1/n. Everything else is as there.
///
///     ifft(decay * fft(u, {0, 1}), {0, 1})
constexpr value ifft(value x, detail::dim_list dims, location at = location::current()) {
  return detail::transformed(x, dims, true, at);
}

}  // namespace gspmd
