// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/detail/support/vec.hpp"
#include "gspmd/error.hpp"

namespace gspmd {

/// One collective_permute of `most` elements of x: devices send them to the device `by` positions after them, modulo
/// the number of devices. Bit k of `senders` is set if device k sends. With more than 64 devices all devices send.
struct sparse_exchange {
  std::int64_t by = 0;
  std::int64_t most = 0;
  std::uint64_t senders = 0;
};

/// The facts of a sparse matrix that a program is planned with: the split of its rows, and the communication of its
/// devices. The entries themselves are data.
///
/// Rows and columns count blocks of `block` x `block` numbers. Device d has rows d r to (d + 1) r - 1, where r is rows
/// / devices, rounded up. Columns of x are split in the same way.
struct sparse_layout {
  static constexpr std::size_t most_exchanges = 256;  // the size of the array in a constant

  std::int64_t rows = 0, cols = 0, devices = 1, block = 1;
  std::int64_t entries = 1;    ///< the most entries of a device's rows
  std::int64_t halo_rows = 1;  ///< 1 + the most rows of a device that read elements of other devices
  std::array<sparse_exchange, most_exchanges> exchanges{};
  std::size_t exchange_count = 0;
  std::int64_t to_each = 0;  ///< if not 0: one all_to_all of this number of elements for each device, instead of permutes

  [[nodiscard]] constexpr std::int64_t local_rows() const { return share(rows); }
  [[nodiscard]] constexpr std::int64_t local_columns() const { return share(cols); }
  /// Returns the largest number of elements (blocks) of x that a device receives; at least 1.
  [[nodiscard]] constexpr std::int64_t halo() const {
    std::int64_t sum = to_each * devices;
    for (std::size_t k = 0; k < exchange_count; ++k) sum += exchanges[k].most;
    return std::max<std::int64_t>(sum, 1);
  }
  /// Returns the bytes that a device sends for one product, with elements of `of_element` bytes.
  [[nodiscard]] constexpr std::int64_t bytes(std::int64_t of_element) const {
    std::int64_t sum = to_each * (devices - 1);
    for (std::size_t k = 0; k < exchange_count; ++k) sum += exchanges[k].most;
    return sum * block * of_element;
  }
  /// sent_from returns the position of the elements for device `to` among the elements that `from` sends.
  /// received_from returns the position of the elements from `from` among the elements that `to` receives. Both return
  /// -1 if nothing is sent.
  [[nodiscard]] constexpr std::int64_t sent_from(std::int64_t from, std::int64_t to) const {
    return to_each > 0 ? to * to_each : place_by((to - from + devices) % devices);
  }
  [[nodiscard]] constexpr std::int64_t received_from(std::int64_t from, std::int64_t to) const {
    return to_each > 0 ? from * to_each : place_by((to - from + devices) % devices);
  }
  /// Returns the number of elements that `from` may send to `to`.
  [[nodiscard]] constexpr std::int64_t room(std::int64_t from, std::int64_t to) const {
    if (to_each > 0) return to_each;
    for (std::size_t k = 0; k < exchange_count; ++k)
      if (exchanges[k].by == (to - from + devices) % devices)
        return devices > 64 || (exchanges[k].senders >> from) % 2 != 0 ? exchanges[k].most : 0;
    return 0;
  }

 private:
  [[nodiscard]] constexpr std::int64_t share(std::int64_t of) const { return of / devices + (of % devices != 0 ? 1 : 0); }
  [[nodiscard]] constexpr std::int64_t place_by(std::int64_t by) const {
    std::int64_t at = 0;
    for (std::size_t k = 0; k < exchange_count; at += exchanges[k++].most)
      if (exchanges[k].by == by) return at;
    return -1;
  }
};

namespace detail {

[[noreturn]] inline void refuse_sparse(const std::string& text) { throw error("sparse_matrix: " + text); }
constexpr void require_sparse(bool holds, const char* text, std::int64_t given) {
  if (!holds) refuse_sparse(text + std::to_string(given));
}

/// Positions in the parts of a device are 32-bit numbers.
inline constexpr std::int64_t most_sparse_places = 0x7fffffff;
constexpr void check_sparse_share(const char* what, std::int64_t all, std::int64_t devices, std::int64_t each) {
  if (each > most_sparse_places)
    refuse_sparse(std::to_string(all) + ' ' + what + " over " + std::to_string(devices) + " devices are " + std::to_string(each) +
                  " on each, and one has at most " + std::to_string(most_sparse_places) + "; split them over more devices");
}
constexpr void check_sparse_room(const sparse_layout& l) {
  if (l.entries > most_sparse_places)
    refuse_sparse("the rows of a device have " + std::to_string(l.entries) + " entries, and one has at most " +
                  std::to_string(most_sparse_places) + "; split the rows over more devices");
  bool fits = l.to_each <= most_sparse_places / l.devices;  // checked before the sum, which might overflow
  for (std::size_t k = 0; k < l.exchange_count; ++k) fits = fits && l.exchanges[k].most <= most_sparse_places;
  if (!fits || l.halo() > most_sparse_places)
    refuse_sparse("a device is sent more than " + std::to_string(most_sparse_places) +
                  " elements of x; order the rows so that devices read less of each other's columns");
}

/// The pattern of a matrix: the columns that each device reads of other devices. The constructor checks row pointers
/// and columns.
template <class RowStart, class Columns>
class sparse_pattern {
 public:
  constexpr sparse_pattern(sparse_layout of, const RowStart& row_start, const Columns& column)
      : layout_(of), row_start_(row_start), column_(column) {
    check();
    for (std::int64_t d = 0; d < layout_.devices; ++d) add_device(d);
    constant_vector<std::int64_t> most;  // grown one by one: libstdc++ 12 makes no vector of a size when compiling with Clang
    constant_vector<std::uint64_t> senders;
    for (std::int64_t by = 0; by < layout_.devices; ++by) {
      most.push_back(0);
      senders.push_back(0);
    }
    std::int64_t pairs = 0;
    for (std::int64_t d = 0; d < layout_.devices; ++d)
      for (std::int64_t from = 0; from < layout_.devices; ++from)
        if (const auto n = static_cast<std::int64_t>(needs_from(d, from).size()); n > 0) {
          const auto by = static_cast<std::size_t>((d - from + layout_.devices) % layout_.devices);
          most[by] = std::max(most[by], n);
          if (layout_.devices <= 64) senders[by] |= std::uint64_t{1} << from;
          ++pairs;
        }
    choose(most, senders, pairs);
    check_sparse_room(layout_);
  }

  [[nodiscard]] constexpr const sparse_layout& layout() const { return layout_; }
  /// The columns that a device reads of another device, in ascending order.
  struct columns_of {
    const std::int64_t *first, *last;
    [[nodiscard]] constexpr const std::int64_t* begin() const { return first; }
    [[nodiscard]] constexpr const std::int64_t* end() const { return last; }
    [[nodiscard]] constexpr std::size_t size() const { return static_cast<std::size_t>(last - first); }
  };
  [[nodiscard]] constexpr columns_of needs_from(std::int64_t device, std::int64_t from) const {
    const auto& all = needs_[static_cast<std::size_t>(device)];
    const auto c = layout_.local_columns();
    const auto first = std::lower_bound(all.begin(), all.end(), from * c),
               last = std::lower_bound(first, all.end(), (from + 1) * c);
    return {all.data() + (first - all.begin()), all.data() + (last - all.begin())};
  }
  [[nodiscard]] constexpr std::int64_t begin_of(std::int64_t row) const {
    return static_cast<std::int64_t>(std::data(row_start_)[static_cast<std::size_t>(row)]);
  }
  [[nodiscard]] constexpr std::int64_t column(std::int64_t entry) const {
    return static_cast<std::int64_t>(std::data(column_)[static_cast<std::size_t>(entry)]);
  }
  /// Returns the first row of a device.
  [[nodiscard]] constexpr std::int64_t first_row(std::int64_t device) const {
    return std::min(device * layout_.local_rows(), layout_.rows);
  }

 private:
  constexpr void check() const {
    require_sparse(layout_.rows > 0, "a matrix has at least one row, and this one has ", layout_.rows);
    require_sparse(layout_.cols > 0, "a matrix has at least one column, and this one has ", layout_.cols);
    require_sparse(layout_.devices > 0, "rows are split over at least one device, and not over ", layout_.devices);
    require_sparse(layout_.block > 0, "blocks have at least one row, and not ", layout_.block);
    check_sparse_share("rows", layout_.rows, layout_.devices, layout_.local_rows());
    check_sparse_share("columns", layout_.cols, layout_.devices, layout_.local_columns());
    const auto starts = static_cast<std::int64_t>(std::size(row_start_)), count = static_cast<std::int64_t>(std::size(column_));
    if (starts - 1 != layout_.rows)
      refuse_sparse(std::to_string(layout_.rows) + " rows have " + std::to_string(layout_.rows + 1) + " row pointers, and " +
                    std::to_string(starts) + " are given");
    require_sparse(begin_of(0) == 0, "row 0 begins at 0, and its row pointer is ", begin_of(0));
    for (std::int64_t r = 0; r < layout_.rows; ++r) {
      if (begin_of(r + 1) < begin_of(r))
        refuse_sparse("row " + std::to_string(r) + " begins at " + std::to_string(begin_of(r)) + " and ends at " +
                      std::to_string(begin_of(r + 1)) + "; row pointers do not decrease");
      if (begin_of(r + 1) > count)
        refuse_sparse("row " + std::to_string(r) + " ends at " + std::to_string(begin_of(r + 1)) + ", and there are " +
                      std::to_string(count) + " entries");
      for (auto k = begin_of(r); k < begin_of(r + 1); ++k)
        if (column(k) < 0 || column(k) >= layout_.cols)
          refuse_sparse("row " + std::to_string(r) + " has an entry in column " + std::to_string(column(k)) +
                        ", and columns are 0 to " + std::to_string(layout_.cols - 1));
    }
    if (begin_of(layout_.rows) != count)
      refuse_sparse("row " + std::to_string(layout_.rows - 1) + " ends at " + std::to_string(begin_of(layout_.rows)) +
                    ", and there are " + std::to_string(count) + " entries");
  }
  constexpr void add_device(std::int64_t d) {
    auto& own = needs_.emplace_back();
    const auto c = layout_.local_columns();
    std::int64_t rows = 1;
    for (auto r = first_row(d); r < first_row(d + 1); ++r) {
      const auto before = own.size();
      for (auto k = begin_of(r); k < begin_of(r + 1); ++k)
        if (column(k) / c != d) own.push_back(column(k));
      if (own.size() != before) ++rows;
    }
    std::sort(own.begin(), own.end());
    own.erase(std::unique(own.begin(), own.end()), own.end());
    const auto entries = begin_of(first_row(d + 1)) - begin_of(first_row(d));
    layout_.entries = std::max(layout_.entries, entries);
    layout_.halo_rows = std::max(layout_.halo_rows, rows);
  }
  /// Chooses collective_permutes between devices that communicate, or one all_to_all. It is an all_to_all if all
  /// devices send to all others (always assumed for more than 64) and permutes would save less than an eighth. It is
  /// also an all_to_all if there are more permutes than a layout can store. With more than 64 devices every device
  /// sends in each permute, which is a rotation. If each of 4 devices sends one element to the next device: one
  /// permute; to all others: one all_to_all.
  constexpr void choose(const constant_vector<std::int64_t>& most, const constant_vector<std::uint64_t>& senders,
                        std::int64_t pairs) {
    const auto n = layout_.devices;
    std::int64_t sum = 0, largest = 0, used = 0;
    for (const auto m : most) {
      sum += m;
      largest = std::max(largest, m);
      if (m > 0) ++used;
    }
    if (used > static_cast<std::int64_t>(sparse_layout::most_exchanges) ||
        (n > 2 && (n > 64 || pairs == n * (n - 1)) && 8 * sum >= 7 * (n - 1) * largest)) {
      layout_.to_each = largest;
      return;
    }
    for (std::size_t by = 1; by < most.size(); ++by)
      if (most[by] > 0) layout_.exchanges[layout_.exchange_count++] = {static_cast<std::int64_t>(by), most[by], senders[by]};
  }

  sparse_layout layout_;
  const RowStart& row_start_;
  const Columns& column_;
  constant_vector<constant_vector<std::int64_t>> needs_;
};

}  // namespace detail

/// Returns the layout of a matrix of `rows` x `columns` (blocks) in CSR, with its rows split over `devices`. A
/// compiled program takes the layout as a constant (`sparse_input`). For small matrices the compiler can compute it.
/// You can also write it as a constant. A layout with more space than the matrix requires is valid.
///
/// **Errors.** Throws gspmd::error for row pointers that decrease, or a column outside; the message has the row and
/// the number.
/// **Example.**
///     constexpr auto lines = sparse_layout_of(64, 64, row_start, column, 4);
template <class RowStart, class Columns>
constexpr sparse_layout sparse_layout_of(std::int64_t rows, std::int64_t cols, const RowStart& row_start, const Columns& column,
                                         std::int64_t devices, std::int64_t block = 1) {
  sparse_layout l;
  l.rows = rows;
  l.cols = cols;
  l.devices = devices;
  l.block = block;
  return detail::sparse_pattern<RowStart, Columns>(l, row_start, column).layout();
}

}  // namespace gspmd
