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

/// The last of the dims of a transform to or from real numbers; what is no dim if one of them is none.
constexpr int halved_dim(dim_mask dims, int rank) {
  int last = rank;
  for (int d = 0; d < rank && (dims >> rank) == 0; ++d)
    if ((dims & dim_bit(d)) != 0) last = d;
  return last;
}
/// The part of x from index `from` to `limit` along a dim.
constexpr value part_along(value x, int dim, std::int64_t from, std::int64_t limit, location at) {
  extents start(x.rank(), 0), end = x.shape();
  start[dim] = from;
  end[dim] = limit;
  return slice(x, start, end, {}, at);
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
/// 5 n log2(n) flops for each line of n; scratch for as many lines as a vector has lanes. For n with a prime factor above 13 a line
/// takes two transforms of a power of two of at least 2n - 1 elements, and all lines together one more. Gradients, by the same transform.
/// Errors: real numbers, a dim that is not there or has no elements, more than 8 dims. Source: Stockham's order of
/// Cooley and Tukey's algorithm (Van Loan 1992), Bailey 1990, Bluestein 1970; pencils: Pekurovsky, P3DFFT, 2012.
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

/// The transform of real numbers, float or double: the last of `dims` keeps its first n / 2 + 1 elements, as the others are the conjugates of
/// these (numpy.fft.rfftn). It is transformed first, and is whole while it is; everything else is as of fft, with the same flops. Gradients.
/// Errors: other elements, and those of fft.
///
///     rfft(x, {-1})      // float [8,64] gives complex [8,33]
constexpr value rfft(value x, detail::dim_list dims, location at = location::current()) {
  if (!x.is_valid()) return {};
  auto& g = *x.graph();
  const detail::one_call call(&g, "rfft", {x.id()});
  const auto mask = dims.mask(x.rank());
  const int halved = detail::halved_dim(mask, x.rank());
  detail::extents shape = x.shape();
  if (halved < x.rank()) shape[halved] = shape[halved] / 2 + 1;
  if (x.type() != dtype::f32 && x.type() != dtype::f64) {
    g.fail(at, "rfft", detail::mistake::type,
           detail::text("x is ") << detail::name_of(x.type()) << "; give it float or double, and fft complex numbers");
    return detail::made(g, -1, dtype::c64, shape);
  }
  const value z = x.type() == dtype::f32 ? convert<c64>(x, at) : convert<c128>(x, at);
  const int id = detail::add_fft(g, z.id(), halved, false, at);
  if (id < 0) return detail::made(g, -1, z.type(), shape);
  const value half = detail::part_along({&g, id}, halved, 0, shape[halved], at);
  return detail::made(detail::add_fft(g, half.id(), mask & ~detail::dim_bit(halved), false, at), half);
}
/// The inverse of rfft: real numbers, of which the last of `dims` has n: 2 (m - 1) for m elements of x if it is not said, which is that of an even
/// n. The imaginary part of element 0, and for even n that of element n / 2, is not read. Errors: an n that has not m elements, and those of fft.
///
///     irfft(k * rfft(x, {0, 1}), {0, 1}, x.shape()[1])
constexpr value irfft(value x, detail::dim_list dims, std::int64_t n = -1, location at = location::current()) {
  if (!x.is_valid()) return {};
  auto& g = *x.graph();
  const detail::one_call call(&g, "irfft", {x.id()});
  const auto mask = dims.mask(x.rank());
  const int halved = detail::halved_dim(mask, x.rank());
  detail::extents shape = x.shape();
  const std::int64_t m = halved < x.rank() ? shape[halved] : 1;
  if (n < 0) n = m > 1 ? 2 * (m - 1) : 1;
  if (halved < x.rank()) shape[halved] = n;
  const dtype type = x.type() == dtype::c128 ? dtype::f64 : dtype::f32;
  if (halved < x.rank() && (n < 1 || n / 2 + 1 != m)) {
    g.fail(
        at, "irfft", detail::mistake::extent,
        detail::text("dim ") << halved << " of " << detail::shape_text(x.shape()) << " is to have " << n
                             << " real numbers, of which a transform has n / 2 + 1 elements; give it 2 (m - 1) or 2 m - 1 of m");
    return detail::made(g, -1, type, shape);
  }
  int id = detail::add_fft(g, x.id(), mask & ~detail::dim_bit(halved), true, at);
  if (id >= 0 && halved < x.rank() && n > m) {
    const value half{&g, id};
    const value others = conj(reverse(detail::part_along(half, halved, 1, n - m + 1, at), {halved}, at), at);
    id = concatenate({half, others}, halved, at).id();
  }
  if (id >= 0) id = detail::add_fft(g, id, halved, true, at);
  return id < 0 ? detail::made(g, -1, type, shape) : real({&g, id}, at);
}

}  // namespace gspmd
