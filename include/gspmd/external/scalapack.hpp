// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "gspmd/external/blocks.hpp"
#include "gspmd/external/view.hpp"

namespace gspmd {

/// A placement in blocks of `block` elements, which are assigned to the parts in rotation, starting with part `first`.
/// It is a dim of a ScaLAPACK matrix, with MB_ and RSRC_ or NB_ and CSRC_. If `first` is 0, it equals
/// block_cyclic<block> with a run-time value.
///
///     scalapack_blocks{2, 1}, 9 in 2 parts:  2 3 6 7 | 0 1 4 5 8
struct scalapack_blocks {
  std::int64_t block = 1, first = 0;

  static constexpr detail::text text() { return "scalapack_blocks"; }
  [[nodiscard]] constexpr bool fits(std::int64_t, std::int64_t parts) const { return block >= 1 && first >= 0 && first < parts; }
  [[nodiscard]] constexpr std::int64_t local_extent(std::int64_t extent, std::int64_t parts, std::int64_t part) const {
    const auto full = extent / block, at = turn(parts, part);
    const auto mine = full / parts + (at < full % parts ? 1 : 0);
    return mine * block + (at == full % parts ? extent % block : 0);
  }
  [[nodiscard]] constexpr std::int64_t split(std::int64_t, std::int64_t parts, std::int64_t part, std::int64_t i) const {
    return (i / block * parts + turn(parts, part)) * block + i % block;
  }
  [[nodiscard]] constexpr placed_at unsplit(std::int64_t, std::int64_t parts, std::int64_t global) const {
    const auto number = global / block;
    return {(number + first) % parts, number / parts * block + global % block};
  }

 private:
  /// Returns the position of a part in the rotation.
  [[nodiscard]] constexpr std::int64_t turn(std::int64_t parts, std::int64_t part) const {
    return part >= first ? part - first : part - first + parts;
  }
};

/// A dense matrix of ScaLAPACK, from the nine integers of its descriptor (descinit). Its blocks are distributed
/// block-cyclically over a process grid in two dims. Each process stores its blocks in column-major order.
///
/// Pass it to a step, or receive it from a step, like other blocks, with any sharding of the step. The mesh must have
/// the same order of processes as the BLACS grid, on the same communicator:
///
///     grid of P x Q, row-major            mesh<axis<"row", P>, axis<"column", Q>>
///     grid of P x Q, column-major         mesh<axis<"column", Q>, axis<"row", P>>
///
/// Neither ScaLAPACK nor BLACS is included or called.
///
/// **Errors.** Throws gspmd::error: a descriptor of another kind than 1, or with invalid numbers.
/// **Example.**
///
///     const scalapack_matrix a(desc_a);
///     const auto distributed = a.layout<pod, "row", "column">();
///     s(comm, placed_view(distributed, a.block(local_a, distributed, comm.device(0))), ...);
///
/// **Source.** Blackford et al. 1997, ScaLAPACK Users' Guide, 4.3.
class scalapack_matrix {
 public:
  /// `descriptor` points to nine integers.
  explicit scalapack_matrix(const int* descriptor)
      : extents_{descriptor[2], descriptor[3]},
        rows_{descriptor[4], descriptor[6]},
        columns_{descriptor[5], descriptor[7]},
        leading_(descriptor[8]) {
    if (descriptor[0] != 1)
      throw error("scalapack_matrix: DTYPE_ is " + std::to_string(descriptor[0]) +
                  "; only 1, a dense matrix in blocks of two dims, is supported");
    if (extents_[0] < 0 || extents_[1] < 0 || rows_.block < 1 || columns_.block < 1 || rows_.first < 0 || columns_.first < 0 ||
        leading_ < 1)
      throw error("scalapack_matrix: M_, N_, RSRC_ and CSRC_ are at least 0, MB_, NB_ and LLD_ at least 1");
  }

  /// Returns the layout on a mesh with an axis for the rows of the process grid and an axis for its columns.
  ///
  /// **Errors.** Throws gspmd::error: RSRC_ or CSRC_ is no process of the grid. Compile error: a name that is no axis
  /// of the mesh.
  template <class Mesh, dim_spec Row, dim_spec Column>
  [[nodiscard]] placed_layout<scalapack_blocks, scalapack_blocks> layout() const {
    using any = shard_view<std::int8_t, Mesh, shape<1, 1>, split<Row, Column>>;
    return {Mesh::info.shape, extents_, any::layout, rows_, columns_};
  }
  /// The same on a mesh that is created at run time (dynamic::mesh), which must outlive the layout.
  template <class Mesh>
  [[nodiscard]] placed_layout<scalapack_blocks, scalapack_blocks> layout(const Mesh& mesh, const std::string& row,
                                                                         const std::string& column) const {
    return layout_on(mesh, {extents_[0], extents_[1]}, {row, column}, rows_, columns_);
  }
  /// Returns a view of a device's elements at `local`: LOCr x LOCc elements, with columns LLD_ apart.
  ///
  /// **Errors.** Throws gspmd::error: a layout of a matrix of another shape; LLD_ is less than the rows of the device.
  template <class T>
  [[nodiscard]] strided_view<T> block(T* local, const placed_layout<scalapack_blocks, scalapack_blocks>& layout,
                                      int device) const {
    const auto& shape = layout.shape();
    if (!(shape == extents_))
      throw error("scalapack_matrix: it is [" + std::to_string(extents_[0]) + ',' + std::to_string(extents_[1]) +
                  "] by its descriptor, and the layout is of " + std::string(detail::shape_text(shape).view()));
    const auto held = static_cast<std::int64_t>(layout.held(device, along(0)).size());
    if (leading_ < held)
      throw error("scalapack_matrix: LLD_ is " + std::to_string(leading_) + " and device " + std::to_string(device) + " holds " +
                  std::to_string(held) + " rows");
    return strided_view<T>(local, {held, static_cast<std::int64_t>(layout.held(device, along(1)).size())}, {1, leading_});
  }

 private:
  detail::extents extents_;
  scalapack_blocks rows_, columns_;
  std::int64_t leading_;
};

}  // namespace gspmd
