// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "gspmd/detail/support/language.hpp"

/// A user's callable as a template argument. Its type is deduced and not `auto`, so that a callable that captures a
/// run-time value reaches the template. The template can then report the mistake in one sentence.
namespace gspmd::detail {

template <class T, T...>
struct constants_of;
/// True if T can be the type of a template argument. GCC 12 accepts capturing closures here; Clang does not.
template <class T> concept is_structural = requires { typename constants_of<T>; };

/// True for a lambda with captures. Only its bytes can be a template argument in all compilers. (After a query whether
/// a closure can be assigned, GCC 12 no longer treats the closure as trivially copyable.)
template <class F>
concept is_capturing = std::is_class_v<F> && !std::is_empty_v<F> &&
                       (!is_structural<F> || !(std::is_aggregate_v<F> || std::is_default_constructible_v<F>));

template <class F>
struct closure_bytes {
  unsigned char of[sizeof(F)];
};
/// Returns true if the bytes of the captures are constants. References and pointers have bytes only at run time.
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

/// `is_known` is true if the captures are constants.
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
  /// Copies the bytes that are constants. Padding bytes between captures are no constants and stay zero.
  template <std::size_t... Index>
  constexpr void copy(const closure_bytes<F>& from, std::index_sequence<Index...>) {
    ((__builtin_constant_p(from.of[Index]) ? static_cast<void>(captured.of[Index] = from.of[Index]) : void()), ...);
  }
};
template <class F>
constant_callable(F) -> constant_callable<F>;

/// Replaces a callable whose mistake has been reported.
struct unusable {};

/// Returns the callable as an argument for the planner's templates.
template <constant_callable Callable>
consteval auto callable_argument() {
  if constexpr (Callable.is_known) return Callable.argument();
  else return unusable{};
}

}  // namespace gspmd::detail
