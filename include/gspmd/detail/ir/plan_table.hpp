// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "gspmd/detail/support/mp11.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/vec.hpp"

/// Tables that are found by the type of their entries: the tables of a plan that kernels fill. `List` is a vec, an
/// array or a table_view.
namespace gspmd::detail {

template <class Entry, class List>
struct plan_table {
  List list{};
};
template <class Entry, class List>
constexpr List& table_of(plan_table<Entry, List>& table) {
  return table.list;
}
template <class Entry, class List>
constexpr const List& table_of(const plan_table<Entry, List>& table) {
  return table.list;
}

inline constexpr std::size_t entries_looked_at = 16;

/// Returns the index of an equal entry among the last entries_looked_at entries of a table. If no such entry exists,
/// adds the entry. Equal descriptions of steps are planned, stored and compiled once: the layers of a network are often
/// equal.
template <class T>
constexpr int entry_of(vec<T>& table, const T& entry) {
  const std::size_t first = table.size() < entries_looked_at ? 0 : table.size() - entries_looked_at;
  for (std::size_t i = table.size(); i-- > first;)
    if (table[i] == entry) return static_cast<int>(i);
  table.push_back(entry);
  return static_cast<int>(table.size()) - 1;
}

/// The entries of a table. It replaces a span, because instantiating span for each type costs compilers more than
/// everything else in a table.
template <class Entry>
class table_view {
 public:
  constexpr table_view() = default;
  constexpr table_view(const Entry* begin, std::size_t size) : begin_(begin), size_(size) {}

  [[nodiscard]] constexpr const Entry* data() const { return begin_; }
  [[nodiscard]] constexpr const Entry* begin() const { return begin_; }
  [[nodiscard]] constexpr const Entry* end() const { return begin_ + size_; }
  [[nodiscard]] constexpr std::size_t size() const { return size_; }
  [[nodiscard]] constexpr bool empty() const { return size_ == 0; }
  [[nodiscard]] constexpr const Entry& operator[](std::size_t i) const { return begin_[i]; }

 private:
  const Entry* begin_ = nullptr;
  std::size_t size_ = 0;
};

/// A table for each of `Kinds`, a list of types that name their `entry`.
template <class Kinds>
struct owned_tables;
template <class... Kind>
struct owned_tables<boost::mp11::mp_list<Kind...>> : plan_table<typename Kind::entry, vec<typename Kind::entry>>... {};

template <class Kinds>
struct viewed_tables;
template <class... Kind>
struct viewed_tables<boost::mp11::mp_list<Kind...>> : plan_table<typename Kind::entry, table_view<typename Kind::entry>>... {};

/// The lengths of these tables.
template <class Kinds>
struct table_lengths;
template <class... Kind>
struct table_lengths<boost::mp11::mp_list<Kind...>> : plan_table<typename Kind::entry, std::size_t>... {};

/// Calls `f` with all these tables of `t`.
template <class... Kind, class Tables, class F>
constexpr auto with_tables(boost::mp11::mp_list<Kind...>, Tables& t, F f) {
  return f(table_of<typename Kind::entry>(t)...);
}

}  // namespace gspmd::detail
