// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "gspmd/detail/passes/choose/choice_table.hpp"
#include "gspmd/detail/passes/choose/form_book.hpp"

namespace gspmd::detail {

/// The lengths of the lists of a choose_state and its costs, before one item. An item is a node or, after the nodes, an
/// output.
struct item_mark {
  int values = 0, wanted = 0, paths = 0, steps = 0;
  int forced = 0;
  std::int64_t time = 0, least = 0;
};

/// The lengths of the lists of a choose_state, by name.
struct choose_lengths {
  struct {
    std::size_t values = 0, roots = 0, first = 0, last = 0, open = 0, inside = 0, level_of_inside = 0;
  } book;
  struct {
    std::size_t nodes = 0, wanted = 0, paths = 0, steps = 0, outputs = 0;
  } table;
  std::size_t given = 0, marks = 0;
};

/// The state of choose after some of the items. Another evaluation can continue from it.
struct choose_state {
  form_book book;
  choice_table table;
  vec<int> given;        // results of the open conditionals, see form_walk
  vec<item_mark> marks;  // by item; one more entry when all items are done
  int next = 0;          // the next item
  bool is_complete = false;
  std::int64_t time = 0;   // picoseconds of all items
  std::int64_t least = 0;  // picoseconds of the work that every plan needs
  int forced = 0;          // forced gathers, and keep_split and keep_partial policies that are broken

  constexpr choose_state() = default;
  constexpr explicit choose_state(const graph& g) : book(g) {}
  /// Copies the complete state `all` as it was before `item`. The program must not have regions.
  constexpr choose_state(const choose_state& all, int item)
      : book(all.book, all.marks[item].values),
        next(item),
        time(all.marks[item].time),
        least(all.marks[item].least),
        forced(all.marks[item].forced) {
    const item_mark& mark = all.marks[item];
    const auto begin = [](const auto& list, int count) {
      return std::remove_cvref_t<decltype(list)>(list.data(), list.data() + count);
    };
    const int nodes = static_cast<int>(all.table.nodes.size());
    table.nodes = begin(all.table.nodes, item < nodes ? item : nodes);
    table.wanted = begin(all.table.wanted, mark.wanted);
    table.paths = begin(all.table.paths, mark.paths);
    table.steps = begin(all.table.steps, mark.steps);
    table.outputs = begin(all.table.outputs, item < nodes ? 0 : item - nodes);
    marks = begin(all.marks, item);
  }
  [[nodiscard]] constexpr item_mark mark() const {
    const auto length = [](const auto& list) { return static_cast<int>(list.size()); };
    return {length(book.values), length(table.wanted), length(table.paths), length(table.steps), forced, time, least};
  }

  [[nodiscard]] constexpr bool is_better_than(const choose_state& other) const {
    return forced <= other.forced && time < other.time;
  }

  static constexpr auto lists(auto& s, auto f) {
    return f(s.table.nodes, s.table.wanted, s.table.paths, s.table.steps, s.table.outputs, s.book.values, s.book.roots,
             s.book.first, s.book.last, s.book.open, s.book.inside, s.book.level_of_inside, s.given, s.marks);
  }
  struct rest_members {
    struct {
      bool as_written = false;
    } table;
    int next = 0;
    bool is_complete = false;
    std::int64_t time = 0, least = 0;
    int forced = 0;
  };
  static constexpr auto rest(auto& s, auto f) { return f(s.table.as_written, s.next, s.is_complete, s.time, s.least, s.forced); }
};

}  // namespace gspmd::detail
