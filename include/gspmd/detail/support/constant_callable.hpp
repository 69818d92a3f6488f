// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "gspmd/detail/support/language.hpp"

/// A user's callable as a template argument. It is deduced and not `auto`, so that a callable which captures a number of the run time
/// reaches the template, which can then say in one sentence what is wrong.
namespace gspmd::detail {

template <class T, T...>
struct constants_of;
/// A type of which template arguments may be. GCC 12 takes closures that capture for such, Clang does not.
template <class T> concept is_structural = requires { typename constants_of<T>; };

/// A lambda that captures. Of it only the bytes can be a template argument everywhere. (GCC 12 no longer takes a closure for trivially
/// copyable once it was asked whether it can be assigned.)
template <class F>
concept is_capturing = std::is_class_v<F> && !std::is_empty_v<F> &&
                       (!is_structural<F> || !(std::is_aggregate_v<F> || std::is_default_constructible_v<F>));

template <class F>
struct closure_bytes {
  unsigned char of[sizeof(F)];
};
/// References and pointers have bytes at run time only.
template <class F>
constexpr bool has_constant_bytes(const F& given) {
  return __builtin_constant_p((static_cast<void>(std::bit_cast<closure_bytes<F>>(given)), 1));
}

template <class F>
struct constant_callable {
  static constexpr bool is_known = true;
  F callable;

  constexpr constant_callable(const F& given) : callable(given) {}
  constexpr F argument() const { return callable; }
};

/// `is_known`: the captures are constant.
template <class F>
  requires is_capturing<F>
struct constant_callable<F> {
  bool is_known = false;
  closure_bytes<F> captured{};

  constexpr constant_callable(const F& given) {
    if constexpr (std::is_trivially_copyable_v<F>)
      if (has_constant_bytes(given)) {
        is_known = true;
        copy(std::bit_cast<closure_bytes<F>>(given), std::make_index_sequence<sizeof(F)>{});
      }
  }
  constexpr const constant_callable& argument() const { return *this; }
  template <class... A>
  constexpr auto operator()(A&&... arguments) const -> decltype(std::declval<const F&>()(std::forward<A>(arguments)...)) {
    return std::bit_cast<F>(captured)(std::forward<A>(arguments)...);
  }

 private:
  /// Bytes between captures are no constants; they stay zero.
  template <std::size_t... Index>
  constexpr void copy(const closure_bytes<F>& from, std::index_sequence<Index...>) {
    ((__builtin_constant_p(from.of[Index]) ? static_cast<void>(captured.of[Index] = from.of[Index]) : void()), ...);
  }
};
template <class F>
constant_callable(F) -> constant_callable<F>;

/// In place of a callable that is none: its mistake has been reported.
struct unusable {};

/// The callable as the argument of the planner's templates.
template <constant_callable Callable>
consteval auto callable_argument() {
  if constexpr (Callable.is_known) return Callable.argument();
  else return unusable{};
}

}  // namespace gspmd::detail
