// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <tuple>

#include "gspmd/program/array.hpp"
#include "gspmd/sparse/inputs.hpp"
#include "gspmd/sparse/layout.hpp"

namespace gspmd {

/// A sparse matrix that is distributed by rows. The constructor determines, once, the columns that each device reads
/// of other devices.
///
/// **Example.**
///     sparse_matrix<double> a(n, n, row_start, column, values, 4);       // compressed rows (CSR); 4 devices
///     auto step = dynamic::compile([](auto a, auto x) { return multiply(a, x); }, dynamic::mesh({{"x", 4}}),
///                                  a.input<"x">(), dynamic::input<double>({n}, {"x"}));
///     auto y = step.run(threads{}, a.parts(), x);
///
/// Row r has entries row_start[r] to row_start[r + 1] - 1. Each entry has a column and a value. Entries are in any
/// order, and entries with the same row and column are added. With `block` = b, rows, columns and entries are blocks:
/// an entry has b x b values, row-major, and x and y are [columns, b] and [rows, b]. Row pointers and columns have any
/// integral type, in any contiguous container. The object stores only the arrays of parts(). Each device has space for
/// the largest number of entries of a device. Each process builds the whole matrix, with the parts of all devices.
///
/// **Errors.** Throws gspmd::error for row pointers that decrease or have a wrong end, a column outside, or a wrong
/// number of values. Also for more than 2^31 - 1 rows, columns or entries on a device, or received elements of x.
template <class T>
class sparse_matrix {
 public:
  /// The arguments of `run` for an input of this matrix, with one row for each device. They are row pointers, columns,
  /// values, the rows that read elements of other devices, and the elements of x that the device sends.
  using parts_type = std::tuple<array<std::int32_t>, array<std::int32_t>, array<T>, array<std::int32_t>, array<std::int32_t>>;

  template <class RowStart, class Columns, class Values>
  sparse_matrix(std::int64_t rows, std::int64_t cols, const RowStart& row_start, const Columns& column, const Values& values,
                std::int64_t devices, std::int64_t block = 1)
      : sparse_matrix(of(rows, cols, devices, block), row_start, column, values, nullptr) {}
  /// The same, with the space that a compiled program reserves. Also throws if the matrix requires more space.
  template <class RowStart, class Columns, class Values>
  sparse_matrix(const sparse_layout& room, const RowStart& row_start, const Columns& column, const Values& values)
      : sparse_matrix(of(room.rows, room.cols, room.devices, room.block), row_start, column, values, &room) {}

  [[nodiscard]] const sparse_layout& layout() const { return layout_; }
  [[nodiscard]] const parts_type& parts() const { return parts_; }
  /// Returns an input of a program at run time, with the rows split over the axis.
  template <dim_spec Axis>
  [[nodiscard]] sparse_input_spec<T, Axis> input() const {
    return {layout_};
  }

 private:
  static sparse_layout of(std::int64_t rows, std::int64_t cols, std::int64_t devices, std::int64_t block) {
    sparse_layout l;
    l.rows = rows;
    l.cols = cols;
    l.devices = devices;
    l.block = block;
    return l;
  }
  template <class RowStart, class Columns, class Values>
  sparse_matrix(const sparse_layout& size, const RowStart& row_start, const Columns& column, const Values& values,
                const sparse_layout* room) {
    const detail::sparse_pattern<RowStart, Columns> pattern(size, row_start, column);
    layout_ = pattern.layout();
    const auto count = static_cast<std::int64_t>(std::size(column)), given = static_cast<std::int64_t>(std::size(values)),
               square = size.block * size.block;
    if (given != count * square)
      detail::refuse_sparse(std::to_string(count) + " entries have " + std::to_string(count * square) + " values, and " +
                            std::to_string(given) + " are given");
    if (room != nullptr) take_room(pattern, *room);
    const auto n = layout_.devices;
    auto& [starts, cols, entries, halo_rows, sends] = parts_;
    starts = array<std::int32_t>({n, layout_.local_rows() + 1});
    cols = array<std::int32_t>({n, layout_.entries});
    entries = array<T>({n, layout_.entries, size.block, size.block});
    halo_rows = array<std::int32_t>({n, layout_.halo_rows, 2});
    sends = array<std::int32_t>({n, layout_.halo()});
    for (std::int64_t d = 0; d < n; ++d) fill(pattern, d, std::data(values));
  }
  template <class Pattern>
  void take_room(const Pattern& pattern, const sparse_layout& room) {
    const auto fit = [](const char* what, std::int64_t needed, std::int64_t there) {
      if (needed > there)
        detail::refuse_sparse(std::string("the matrix needs room for ") + std::to_string(needed) + ' ' + what +
                              ", and the layout has " + std::to_string(there));
    };
    fit("entries on a device", layout_.entries, room.entries);
    fit("rows that read elements of other devices, and one,", layout_.halo_rows, room.halo_rows);
    for (std::int64_t d = 0; d < room.devices; ++d)
      for (std::int64_t from = 0; from < room.devices; ++from)
        fit(("elements from device " + std::to_string(from) + " to device " + std::to_string(d)).c_str(),
            static_cast<std::int64_t>(pattern.needs_from(d, from).size()), room.room(from, d));
    detail::check_sparse_room(room);
    layout_ = room;
  }

  /// Fills the arrays of device d. For [[1, 2], [0, 3]] on two devices, device 0 has starts {0, 1}, columns {0, 0} and
  /// entries {1, 2}. Its second column is an index of the received elements. It has halo_rows {{0, 1}, {0, 2}} and
  /// sends {0}.
  template <class Pattern>
  void fill(const Pattern& pattern, std::int64_t d, const T* values) {
    auto& [starts, cols, entries, halo_rows, sends] = parts_;
    const auto own_columns = layout_.local_columns(), square = layout_.block * layout_.block;
    const auto first = pattern.first_row(d), last = pattern.first_row(d + 1);
    std::int32_t* const start = starts.data() + d * (layout_.local_rows() + 1);
    std::int32_t* const column = cols.data() + d * layout_.entries;
    T* const value = entries.data() + d * layout_.entries * square;
    std::int32_t* const halo_row = halo_rows.data() + d * layout_.halo_rows * 2;
    std::int64_t at = 0, rows = 0;
    const auto put = [&](std::int64_t k, std::int64_t where) {
      column[at] = static_cast<std::int32_t>(where);
      std::copy_n(values + k * square, square, value + at * square);
      ++at;
    };
    for (auto r = first; r < last; ++r) {
      for (auto k = pattern.begin_of(r); k < pattern.begin_of(r + 1); ++k)
        if (pattern.column(k) / own_columns == d) put(k, pattern.column(k) - d * own_columns);
      start[r - first + 1] = static_cast<std::int32_t>(at);
    }
    for (auto r = last - first; r < layout_.local_rows(); ++r) start[r + 1] = static_cast<std::int32_t>(at);
    for (auto r = first; r < last; ++r) {
      const auto begin = at;
      for (auto k = pattern.begin_of(r); k < pattern.begin_of(r + 1); ++k) {
        const auto from = pattern.column(k) / own_columns;
        if (from == d) continue;
        const auto needs = pattern.needs_from(d, from);
        put(k,
            layout_.received_from(from, d) + (std::lower_bound(needs.begin(), needs.end(), pattern.column(k)) - needs.begin()));
      }
      if (at == begin) continue;
      halo_row[2 * rows] = static_cast<std::int32_t>(r - first);
      halo_row[2 * rows++ + 1] = static_cast<std::int32_t>(begin);
    }
    for (; rows < layout_.halo_rows; ++rows) halo_row[2 * rows + 1] = static_cast<std::int32_t>(at);
    std::int32_t* const send = sends.data() + d * layout_.halo();
    for (std::int64_t to = 0; to < layout_.devices; ++to) {
      std::int64_t next = layout_.sent_from(d, to);
      for (const auto c : pattern.needs_from(to, d)) send[next++] = static_cast<std::int32_t>(c - d * own_columns);
    }
  }

  sparse_layout layout_;
  parts_type parts_;
};

}  // namespace gspmd
