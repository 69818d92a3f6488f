// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/fft/detail/fft_op.hpp"
#include "gspmd/fft/detail/transform_lines.hpp"
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

/// Returns the last dim in `dims`, the one that a transform to or from real numbers halves. Returns `rank` if a dim
/// does not exist.
constexpr int halved_dim(dim_mask dims, int rank) {
  int last = rank;
  for (int d = 0; d < rank && (dims >> rank) == 0; ++d)
    if ((dims & dim_bit(d)) != 0) last = d;
  return last;
}
/// Returns the elements of x from index `from` to `limit` along a dim.
constexpr value part_along(value x, int dim, std::int64_t from, std::int64_t limit, location at) {
  extents start(x.rank(), 0), end = x.shape();
  start[dim] = from;
  end[dim] = limit;
  return slice(x, start, end, {}, at);
}

}  // namespace detail

/// Returns the discrete Fourier transform along each of `dims`, unscaled as in numpy.fft.fftn. `{}` means all dims.
///
/// y[k] is the sum over j of x[j] e^(-2 pi i jk / n). x is complex, and n is any extent of at least 1.
///
/// A line of n elements counts 5 n log2(n) flops. If n has a prime factor above 13, a line takes two transforms of a
/// power of two of at least 2n - 1 elements. All lines together then take one more such transform. Gradients use the
/// same transform.
///
/// A device needs scratch memory for at most about 2 L + 1 lines, of that power of two if n has a large prime factor. L
/// is 16 for c64 and 8 for c128, the lanes of the widest vectors.
///
/// **Shapes.** The result has the shape of x. The local shapes are equal too, if the planner moves no split.
/// **Communication.** A dim must be whole while it is transformed; other dims may be split. Whole dims are transformed
/// first. Before the transform along a split dim, the planner moves the split to another dim with an all_to_all. A
/// device then sends (p - 1) / p of its shard to p - 1 others. For x[z,y,x], split z (slabs) needs one all_to_all, and
/// split z and y (pencils) need two. The result keeps the last sharding, so an inverse transform needs no reshard
/// first. An annotation of the result may need another reshard. If no other dim can be split, the lines are gathered,
/// which is an error unless the call is in allow_replication(...).
/// **Errors.** x is real, a dim does not exist or has no elements, or x has more than 8 dims.
/// **Example.** fft(u, {0, 1, 2})   or   fft(u, -1)
/// **Source.** Stockham's order of Cooley and Tukey's algorithm (Van Loan 1992), Bailey 1990, Bluestein 1970. Pencils:
/// Pekurovsky, P3DFFT, 2012.
constexpr value fft(value x, detail::dim_list dims, location at = location::current()) {
  return detail::transformed(x, dims, false, at);
}
/// Returns the inverse of fft: the sum with e^(+2 pi i jk / n), scaled by 1/n for each dim. Communication and errors
/// are those of fft.
///
/// **Example.** ifft(decay * fft(u, {0, 1}), {0, 1})
constexpr value ifft(value x, detail::dim_list dims, location at = location::current()) {
  return detail::transformed(x, dims, true, at);
}

/// Returns the transform of real numbers. Only the first n / 2 + 1 elements along the last of `dims` are stored, as in
/// numpy.fft.rfftn. The other elements are the conjugates of the stored elements.
///
/// The last of `dims` is transformed first, and must be whole during this transform. The flops are those of fft. There
/// are gradients.
///
/// **Shapes.** float or double [8,64] -> complex [8,33]
/// **Communication.** The same as for fft.
/// **Errors.** The elements are not float or double. Also the errors of fft.
/// **Example.** rfft(x, {-1})
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
  const value z = x.type() == dtype::f32 ? cast<c64>(x, at) : cast<c128>(x, at);
  const int id = detail::add_fft(g, z.id(), halved, false, at);
  if (id < 0) return detail::made(g, -1, z.type(), shape);
  const value half = detail::part_along({&g, id}, halved, 0, shape[halved], at);
  return detail::made(detail::add_fft(g, half.id(), mask & ~detail::dim_bit(halved), false, at), half);
}
/// Returns the inverse of rfft: real numbers, n along the last of `dims`.
///
/// If x has m elements along that dim, n is 2 (m - 1) or 2 m - 1. The overload without n takes 2 (m - 1). The imaginary
/// part of element 0 is not read. If n is even, neither is the imaginary part of element n / 2.
///
/// **Communication.** The same as for fft.
/// **Errors.** m is not n / 2 + 1. Also the errors of fft.
/// **Example.** irfft(k * rfft(x, {0, 1}), x.shape()[1], {0, 1})        irfft(z, 9, along(0))
constexpr value irfft(value x, std::int64_t n, detail::listed_dims dims, location at = location::current()) {
  if (!x.is_valid()) return {};
  auto& g = *x.graph();
  const detail::one_call call(&g, "irfft", {x.id()});
  const auto mask = dims.mask(x.rank());
  const int halved = detail::halved_dim(mask, x.rank());
  detail::extents shape = x.shape();
  const std::int64_t m = halved < x.rank() ? shape[halved] : 1;
  if (halved < x.rank()) shape[halved] = n;
  const dtype type = x.type() == dtype::c128 ? dtype::f64 : dtype::f32;
  if (halved < x.rank() && (n < 1 || n / 2 + 1 != m)) {
    g.fail(at, "irfft", detail::mistake::extent,
           detail::text("dim ")
               << halved << " of " << detail::shape_text(x.shape()) << " is to have " << n
               << " real numbers, and their transform has n / 2 + 1 elements; for m elements pass 2 (m - 1) or 2 m - 1");
    return detail::made(g, -1, type, shape);
  }
  int id = detail::add_fft(g, x.id(), mask & ~detail::dim_bit(halved), true, at);
  if (id >= 0 && halved < x.rank() && n > m) {
    const value half{&g, id};
    const value others = conj(flip(detail::part_along(half, halved, 1, n - m + 1, at), {halved}, at), at);
    id = concatenate({half, others}, halved, at).id();
  }
  if (id >= 0) id = detail::add_fft(g, id, halved, true, at);
  return id < 0 ? detail::made(g, -1, type, shape) : real({&g, id}, at);
}
constexpr value irfft(value x, detail::dim_list dims, location at = location::current()) {
  const int halved = x.is_valid() ? detail::halved_dim(dims.mask(x.rank()), x.rank()) : 0;
  const std::int64_t m = halved < x.rank() ? x.shape()[halved] : 1;
  return irfft(x, m > 1 ? 2 * (m - 1) : 1, detail::listed_dims(dims), at);
}

}  // namespace gspmd
