// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gspmd/detail/ops/rows.hpp"
#include "gspmd/nn/detail/stages.hpp"
#include "gspmd/nn/detail/ticks.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/shape.hpp"

/// A timetable as tables of numbers that a program reads at run time.
namespace gspmd::detail {

/// A table of rows of numbers. Field k is between 0 and `limits[k]`. Rows are packed into words of 62 bits.
///
///     limits {2, 7, 0} -> 5 bits for each row, 12 rows in a word
class packed_table {
 public:
  constexpr explicit packed_table(detail::constant_vector<std::int64_t> limits) {
    for (const auto n : limits) widths_.push_back(static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n < 0 ? 0 : n))));
    for (const int w : widths_) width_ += w;
    rows_of_word_ = width_ > 31 ? 1 : 62 / (width_ < 1 ? 1 : width_);
  }
  constexpr void add(const detail::constant_vector<std::int64_t>& row) {
    if (count_++ % rows_of_word_ == 0) words_.push_back(0);
    std::int64_t packed = 0;
    for (std::size_t k = 0; k < row.size(); ++k) packed = (packed << widths_[k]) | row[k];
    words_.back() |= packed << (width_ * ((count_ - 1) % rows_of_word_));
  }
  /// Returns the words as a value of the program.
  [[nodiscard]] constexpr value words(graph& g, location at) const {
    detail::constant_vector<value> parts;
    for (const auto w : words_) parts.push_back(made(g, add_constant(g, dtype::s64, {1}, 0, w, at), dtype::s64, {1}));
    return parts.size() == 1 ? parts[0] : concatenate(span<const value>(parts.data(), parts.size()), 0, at);
  }
  /// Returns the fields of row `row` of the words, each an s64 of rank 0.
  [[nodiscard]] constexpr detail::constant_vector<value> look_up(value all, value row, location at) const {
    const auto here = [at](auto x) { return operand(x, at); };
    graph& g = *all.graph();
    detail::constant_vector<value> fields(widths_.size(), made(g, add_constant(g, dtype::s64, {}, 0, 0, at), dtype::s64, {}));
    if (width_ == 0) return fields;
    value left = row_of(all, here(row) / here(rows_of_word_), at);
    const value place = fmod(here(row), here(rows_of_word_));
    left = right_shift(here(left), here(here(place) * here(std::int64_t{width_})));  // the fields cut off the bits above
    for (std::size_t k = widths_.size(); k-- > 0;) {
      if (widths_[k] == 0) continue;  // the only number is 0
      const std::int64_t size = std::int64_t{1} << widths_[k];
      fields[k] = fmod(here(left), here(size));
      if (k > 0) left = here(left) / here(size);
    }
    return fields;
  }

 private:
  detail::constant_vector<int> widths_;
  int width_ = 0;
  std::int64_t rows_of_word_ = 1, count_ = 0;
  detail::constant_vector<std::int64_t> words_;
};

/// The tables that the loops of a pipeline read. `works` and `slots` have a row for each tick and stage: the pass, and
/// the slots of its inputs and of received messages. `leaving` has a row for each tick: the microbatch whose backward
/// pass through the first part is in this tick, or else in the next tick that has one.
struct tick_rows {
  packed_table works, slots, leaving;

  template <class Schedule>
  constexpr tick_rows(const tick_table<Schedule>& table, const Schedule& by)
      : works({stage_tick::backward, by.microbatches - 1, by.rounds - 1}),
        slots({table.depth() - 1, table.depth() - 1, table.depth() - 1, table.depth() - 1}),
        leaving({by.microbatches - 1}) {
    detail::constant_vector<std::int64_t> leaves(static_cast<std::size_t>(table.ticks()), 0);
    std::int64_t next = 0;
    for (std::int64_t t = table.ticks(); t-- > 0;) {
      const auto& w = table.at(t, 0);
      if (w.does == stage_tick::backward && w.round == 0) next = w.microbatch;
      leaves[static_cast<std::size_t>(t)] = next;
    }
    for (const auto m : leaves) leaving.add({m});
    for (std::int64_t t = 0; t < table.ticks(); ++t)
      for (std::int64_t s = 0; s < by.stages; ++s) {
        const auto& w = table.at(t, s);
        works.add({w.does, w.microbatch, w.round});
        slots.add({w.x, w.dy, w.up, w.down});
      }
  }
};

}  // namespace gspmd::detail
