// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "gspmd/detail/support/language.hpp"

/// Values with lists as constants that outlive a constant evaluation. A vec cannot outlive the evaluation that created
/// it.
///
/// A type that can be frozen passes its lists by reference. Each list is a vec. If the type has other members, it also
/// passes these, and declares a struct that has members with the same names:
///
///   static constexpr auto lists(auto& s, auto f) { return f(s.nodes, s.inputs); }
///   struct rest_members { int next = 0; };
///   static constexpr auto rest(auto& s, auto f) { return f(s.next); }
///
/// `s` is an object of the type, or of a struct with members of the same names: rest_members, lengths of the lists, or
/// views of the lists.
namespace gspmd::detail {

/// A sequence of values. A std::tuple takes compilers ten times as long.
template <std::size_t K, class T>
struct frozen_item {
  T value{};
};
template <class Numbers, class... T>
struct frozen_items;
template <std::size_t... K, class... T>
struct frozen_items<std::index_sequence<K...>, T...> : frozen_item<K, T>... {
  template <class F>
  constexpr void visit(F f) {
    f(static_cast<frozen_item<K, T>&>(*this).value...);
  }
  template <class F>
  constexpr void visit(F f) const {
    f(static_cast<const frozen_item<K, T>&>(*this).value...);
  }
};

/// The element types of the lists of T.
template <class... Entry>
struct entry_types {
  static constexpr std::size_t count = sizeof...(Entry);
  template <auto Sizes, std::size_t... K>
  static frozen_items<std::index_sequence<K...>, std::array<Entry, Sizes.of[K]>...> arrays(std::index_sequence<K...>);
  static std::index_sequence_for<Entry...> places();
};
template <class T>
using entries_of =
    decltype(T::lists(std::declval<T&>(), []<class... List>(List&...) { return entry_types<typename List::value_type...>{}; }));

/// The members of T that are not lists.
template <class T>
struct rest_of {
  struct type {};
  static constexpr void copy(const auto&, auto&) {}
};
template <class T>
  requires requires { typename T::rest_members; }
struct rest_of<T> {
  using type = typename T::rest_members;
  static constexpr void copy(const auto& from, auto& to) {
    T::rest(from, [&](const auto&... in) { T::rest(to, [&](auto&... out) { ((out = in), ...); }); });
  }
};

/// The lengths of the lists of T.
template <class T>
struct list_sizes {
  std::size_t of[entries_of<T>::count == 0 ? 1 : entries_of<T>::count]{};

  constexpr list_sizes() = default;
  constexpr explicit list_sizes(const T& value) {
    std::size_t k = 0;
    T::lists(value, [&](const auto&... list) { ((of[k++] = list.size()), ...); });
  }
  constexpr list_sizes(std::initializer_list<std::size_t> sizes) {
    std::size_t k = 0;
    for (const auto n : sizes) of[k++] = n;
  }
  /// Returns the sizes from `named`, which has a number with the name of each list in T::lists.
  template <class Named>
  static constexpr list_sizes of_names(Named named) {
    list_sizes sizes;
    sizes.exchange(named, false);
    return sizes;
  }
  template <class Named>
  [[nodiscard]] constexpr Named by_name() const {
    Named named;
    list_sizes(*this).exchange(named, true);
    return named;
  }
  [[nodiscard]] constexpr bool fit(const list_sizes& room) const {
    for (std::size_t k = 0; k < entries_of<T>::count; ++k)
      if (of[k] > room.of[k]) return false;
    return true;
  }

 private:
  template <class Named>
  constexpr void exchange(Named& named, bool gives) {
    T::lists(named, [this, gives](auto&... length) {
      std::size_t* const names[] = {&length...};
      for (std::size_t k = 0; k < sizeof...(length); ++k) (gives ? *names[k] : of[k]) = gives ? of[k] : *names[k];
    });
  }
};

/// A T as a constant. Elements that exceed `Room` are left out; then `fits()` returns false.
template <class T, list_sizes<T> Room>
struct frozen {
  static constexpr list_sizes<T> room = Room;
  list_sizes<T> sizes;
  decltype(entries_of<T>::template arrays<Room>(entries_of<T>::places())) lists{};
  typename rest_of<T>::type rest{};

  constexpr explicit frozen(const T& value) : sizes(value) {
    rest_of<T>::copy(value, rest);
    lists.visit([&](auto&... to) {
      T::lists(value, [&](const auto&... from) { (copy(from.data(), from.size(), to.data(), to.size()), ...); });
    });
  }
  [[nodiscard]] constexpr bool fits() const { return sizes.fit(Room); }
  /// Sets a view of each list. `views` has a span with the name of each list in T::lists.
  constexpr void view_lists(auto& views) const {
    lists.visit([&](const auto&... from) {
      std::size_t k = 0;
      T::lists(views, [&](auto&... view) { ((view = {from.data(), sizes.of[k++]}), ...); });
    });
  }
  [[nodiscard]] constexpr T thaw() const {
    T value;
    rest_of<T>::copy(rest, value);
    lists.visit([&](const auto&... from) {
      std::size_t k = 0;
      T::lists(value, [&](auto&... to) { (to.assign(from.data(), from.data() + sizes.of[k++]), ...); });
    });
    return value;
  }

 private:
  // Copies by pointers, because calls count against the limits of a constant evaluation.
  template <class E>
  static constexpr void copy(const E* from, std::size_t count, E* to, std::size_t space) {
    if (space < count) count = space;
    for (std::size_t i = 0; i < count; ++i) to[i] = from[i];
  }
};

/// The result of `Make::run()` as a constant. It is computed once if `Make::guess()` has enough room, and a second time
/// otherwise.
template <class Make>
class frozen_result {
  using T = decltype(Make::run());
  template <list_sizes<T> Room>
  static constexpr frozen<T, Room> made{Make::run()};
  static constexpr list_sizes<T> guess = Make::guess();

 public:
  /// Returns true. A `requires` that names the call tests whether the result is a constant.
  static constexpr bool is_made() { return made<guess>.fits() || true; }
  static constexpr const auto& value() {
    if constexpr (made<guess>.fits()) return made<guess>;
    else return made<made<guess>.sizes>;
  }
};

}  // namespace gspmd::detail
