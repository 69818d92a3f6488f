// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include "gspmd/detail/support/vec.hpp"

/// Tables that are found by the type of their entries: those of a plan that kernels fill. `List` is a vec, an array or a
/// table_view.
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

/// The entries of a table. A std::span costs compilers more for each type than all else about a table.
template <class Entry>
class table_view {
 public:
  constexpr table_view() = default;
  template <class List>
  constexpr explicit table_view(const List& list) : begin_(list.data()), size_(list.size()) {}

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
struct viewed_tables<boost::mp11::mp_list<Kind...>> : plan_table<typename Kind::entry, table_view<typename Kind::entry>>... {
  constexpr viewed_tables() = default;
  template <class Tables>
  constexpr explicit viewed_tables(const Tables& t)
      : plan_table<typename Kind::entry, table_view<typename Kind::entry>>{
            table_view<typename Kind::entry>(table_of<typename Kind::entry>(t))}... {}
};

/// How many entries each table has.
template <class Kinds>
struct sizes_of_tables;
template <class... Kind>
struct sizes_of_tables<boost::mp11::mp_list<Kind...>> {
  std::size_t count[sizeof...(Kind)]{};

  template <class Tables>
  static constexpr sizes_of_tables of(const Tables& t) {
    return {{table_of<typename Kind::entry>(t).size()...}};
  }
  static constexpr sizes_of_tables guess(std::size_t ops, std::size_t movements) { return {{Kind::guess(ops, movements)...}}; }
  [[nodiscard]] constexpr bool fit(const sizes_of_tables& room) const {
    for (std::size_t i = 0; i < sizeof...(Kind); ++i)
      if (count[i] > room.count[i]) return false;
    return true;
  }
};

/// Copies as many entries as both have room for.
template <class Array, class List>
constexpr void fill_table(Array& to, const List& from) {
  const std::size_t count = from.size() < to.size() ? from.size() : to.size();
  const auto* const source = from.data();  // no calls in the loop: they count against the limits of an evaluation
  auto* const target = to.data();
  for (std::size_t i = 0; i < count; ++i) target[i] = source[i];
}

template <class Kinds, sizes_of_tables<Kinds> Room>
struct constant_tables_of;
template <class... Kind, sizes_of_tables<boost::mp11::mp_list<Kind...>> Room>
struct constant_tables_of<boost::mp11::mp_list<Kind...>, Room>
    : plan_table<
          typename Kind::entry,
          std::array<typename Kind::entry, Room.count[boost::mp11::mp_find<boost::mp11::mp_list<Kind...>, Kind>::value]>>... {
  template <class Tables>
  constexpr void fill_tables(const Tables& from) {
    (fill_table(table_of<typename Kind::entry>(*this), table_of<typename Kind::entry>(from)), ...);
  }
  template <class Tables>
  constexpr void thaw_tables(Tables& to, const sizes_of_tables<boost::mp11::mp_list<Kind...>>& sizes) const {
    const std::size_t* count = sizes.count;
    (table_of<typename Kind::entry>(to).assign(table_of<typename Kind::entry>(*this).data(),
                                               table_of<typename Kind::entry>(*this).data() + *count++),
     ...);
  }
};

template <class Tables, class Same, class... Kind>
constexpr bool same_tables(boost::mp11::mp_list<Kind...>, const Tables& a, const Tables& b, Same same) {
  return (same(table_of<typename Kind::entry>(a), table_of<typename Kind::entry>(b)) && ...);
}

}  // namespace gspmd::detail
