// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gspmd/index/lookup.hpp"
#include "gspmd/modes/manual.hpp"
#include "gspmd/sparse/detail/kernels.hpp"
#include "gspmd/sparse/layout.hpp"
#include "gspmd/sparse/matrix.hpp"

/// Products with sparse matrices whose rows are split over devices.
namespace gspmd {
namespace detail::sparse {

/// Sends `piece` to the devices of the exchange `e`. If `back` is true, sends it in the opposite direction.
template <dim_spec Axis>
constexpr value carried(value piece, const sparse_layout& l, const sparse_exchange& e, bool back, location at) {
  if (l.devices > 64) return local::rotate<Axis>(piece, back ? -e.by : e.by, at);
  std::vector<local::device_pair> pairs;
  for (std::int64_t d = 0; d < l.devices; ++d)
    if ((e.senders >> d) % 2 != 0) {
      const auto other = (d + e.by) % l.devices;
      pairs.push_back(back ? local::device_pair{other, d} : local::device_pair{d, other});
    }
  return local::permute<Axis>(piece, span<const local::device_pair>(pairs.data(), pairs.size()), at);
}
/// Exchanges the elements of a product. Returns the elements received from other devices, [halo, b]; `sent` has the
/// elements that this device sends. If `back` is true, returns elements to the devices that sent them.
template <dim_spec Axis>
constexpr value exchanged(value sent, const sparse_layout& l, bool back, location at) {
  const auto b = l.block;
  if (l.to_each > 0) {
    const value each = reshape(sent, {1, l.devices, l.to_each, b}, at);
    return reshape(local::all_to_all<Axis>(each, 0, 1, at), {l.halo(), b}, at);
  }
  std::vector<value> pieces;
  std::int64_t begin = 0;
  for (std::size_t k = 0; k < l.exchange_count; ++k) {
    const auto end = begin + l.exchanges[k].most;
    pieces.push_back(carried<Axis>(slice(sent, {begin, 0}, {end, b}, {}, at), l, l.exchanges[k], back, at));
    begin = end;
  }
  if (pieces.empty()) return sent;
  return pieces.size() == 1 ? pieces[0] : concatenate(span<const value>(pieces.data(), pieces.size()), 0, at);
}

/// The parts of a matrix and a vector on one device.
struct own_parts {
  value starts, cols, entries, halo_rows, sends, x;

  constexpr own_parts(const sparse_layout& l, const value* parts, location at)
      : starts(reshape(parts[0], {l.local_rows() + 1}, at)),
        cols(reshape(parts[1], {l.entries}, at)),
        entries(reshape(parts[2], {l.entries, l.block, l.block}, at)),
        halo_rows(reshape(parts[3], {l.halo_rows, 2}, at)),
        sends(reshape(parts[4], {l.halo()}, at)),
        x(parts[5]) {}
};
template <class T, dim_spec Axis>
constexpr value product_on_device(const sparse_layout& l, const value* parts, location at) {
  const own_parts a(l, parts, at);
  const value halo = exchanged<Axis>(take(a.x, a.sends, 0, out_of_range::clip, 0, at), l, false, at);
  return product<T>(operand(a.starts, at), a.cols, a.entries, a.halo_rows, a.x, halo);
}
template <class T, dim_spec Axis>
constexpr value transposed_on_device(const sparse_layout& l, const value* parts, location at) {
  const own_parts a(l, parts, at);
  const value like = as_many(a.x, l.local_columns(), at);
  const value sent = transposed_halo<T>(operand(a.starts, at), a.cols, a.entries, a.halo_rows, a.x, like, a.sends);
  return transposed_own<T>(operand(a.starts, at), a.cols, a.entries, a.halo_rows, a.x, like, a.sends,
                           exchanged<Axis>(sent, l, true, at));
}

/// with_room pads dim 0 of x to `elements`, the capacity of all devices. without_room removes this padding.
constexpr value with_room(value x, std::int64_t elements, location at) {
  const std::int64_t none[2]{}, behind[2]{elements - x.shape()[0], 0};
  const auto rank = static_cast<std::size_t>(x.rank());
  return behind[0] == 0 ? x : pad(x, integers(none, rank), integers(behind, rank), 0, {}, at);
}
constexpr value without_room(value x, std::int64_t elements, location at) {
  if (x.shape()[0] == elements) return x;
  const std::int64_t none[2]{}, last[2]{elements, x.rank() > 1 ? x.shape()[1] : 0};
  const auto rank = static_cast<std::size_t>(x.rank());
  return slice(x, integers(none, rank), integers(last, rank), {}, at);
}

template <bool IsTransposed, dim_spec Axis>
constexpr value multiplied(const sparse_value<Axis>& a, value x, location at) {
  if (!x.is_valid() || !a.starts.is_valid()) return {};
  auto& g = *x.graph();
  const char* const op = IsTransposed ? "multiply_transposed" : "multiply";
  const sparse_layout& l = a.layout;
  const auto from = IsTransposed ? l.rows : l.cols, to = IsTransposed ? l.cols : l.rows;
  const auto each = IsTransposed ? l.local_rows() : l.local_columns();
  const auto refused = [&](mistake kind, const text& what) {
    extents shape;
    shape.push_back(to);
    if (l.block > 1) shape.push_back(l.block);
    return made(g, g.fail(at, op, kind, what), a.entries.type(), shape);
  };
  const auto devices = local::axis_size<Axis>(x);
  if (devices != l.devices)
    return refused(mistake::extent, text("the matrix is made for ") << l.devices << " devices, and `" << Axis.view() << "` has "
                                                                    << devices << "; make it for this number");
  extents needed;
  needed.push_back(from);
  if (l.block > 1) needed.push_back(l.block);
  if (!(x.shape() == needed))
    return refused(mistake::extent, text("x is ") << shape_text(x.shape()) << "; a matrix of " << l.rows << " x " << l.cols
                                                  << (l.block > 1 ? " blocks" : "") << " takes " << shape_text(needed));
  const dtype type = a.entries.type();
  if (x.type() != type || (type != dtype::f32 && type != dtype::f64))
    return refused(mistake::type, text("the matrix is ") << name_of(type) << " and x is " << name_of(x.type())
                                                         << "; both are float, or both double");
  const auto region = manual<Axis>(
      [&l, at, type](value starts, value cols, value entries, value halo_rows, value sends, value own) {
        const value parts[] = {starts, cols, entries, halo_rows, sends, own};
        value y;
        if constexpr (IsTransposed)
          y = type == dtype::f32 ? transposed_on_device<float, Axis>(l, parts, at)
                                 : transposed_on_device<double, Axis>(l, parts, at);
        else
          y = type == dtype::f32 ? product_on_device<float, Axis>(l, parts, at) : product_on_device<double, Axis>(l, parts, at);
        return y;
      },
      takes<split<Axis, _>, split<Axis, _>, split<Axis, _, _, _>, split<Axis, _, _>, split<Axis, _>, split<Axis, _>>{},
      gives<split<Axis, _>>{}, at);
  // x is whole along the other axes. Otherwise completion would propagate their splits into the region.
  const value whole = reshard(reshape(with_room(x, each * devices, at), {each * devices, l.block}, at), split<Axis, _>{}, at);
  const value y = region(a.starts, a.cols, a.entries, a.halo_rows, a.sends, whole);
  return without_room(l.block > 1 ? y : reshape(y, {y.shape()[0]}, at), to, at);
}

}  // namespace detail::sparse

/// Returns y = A x, split over the axis that splits the rows of A.
///
/// Each row adds the entries in the device's own columns in their order, then the entries in columns of other devices.
/// Therefore the last bits depend on the number of devices. The flops are not counted. Gradients exist by x (A^T dy)
/// and by a.entries.
///
/// **Shapes.** x [columns] -> y [rows]; with blocks of b x b, x [columns, b] -> y [rows, b].
/// **Communication.** Each device sends the elements of x that other devices read, once to each reader, and padding.
/// `a.layout.bytes(sizeof(T))` is the number of bytes that a device sends, as in the plan. A 5-point Laplacian sends
/// the lines at both boundaries of a shard.
///  * By default there is one collective_permute for each distance between devices that exchange elements. The size
///    of the permute is the maximum over the pairs of devices at that distance. With more than 64 devices, all
///    devices take part in each permute.
///  * If there are more than 256 distances, one all_to_all replaces the permutes. It also replaces them if permutes
///    would save less than an eighth, and all pairs of devices exchange elements or there are more than 64 devices.
///    The size of the all_to_all for each device is the maximum over all pairs.
///  * If x has another sharding, x is resharded first.
///
/// **Errors.** x has another shape or type; the matrix was made for another number of devices.
/// **Example.**
///
///     auto step = dynamic::compile([](auto a, auto x) { return multiply(a, x); }, m, a.input<"x">(),
///                                  dynamic::input<double>({n}, {"x"}));
///
/// **Source.** PETSc's MatAIJ (Balay et al. 1997) stores a row in the same two parts.
template <dim_spec Axis>
constexpr value multiply(const sparse_value<Axis>& a, value x, location at = location::current()) {
  return detail::sparse::multiplied<false>(a, x, at);
}
/// Returns A^T y. Each device computes the products of its rows. It sends the products for columns of other devices to
/// these devices, which add them.
///
/// **Shapes.** y [rows] -> [columns]; with blocks, y [rows, b] -> [columns, b].
/// **Communication.** The bytes of multiply, in the opposite direction.
/// **Errors.** The errors of multiply.
/// **Example.**
///
///     multiply_transposed(a, y)
template <dim_spec Axis>
constexpr value multiply_transposed(const sparse_value<Axis>& a, value y, location at = location::current()) {
  return detail::sparse::multiplied<true>(a, y, at);
}

}  // namespace gspmd
