// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include "gspmd/ops/elementwise.hpp"

namespace gspmd {

/// A function with its derivatives, for `map`: one derivative per argument, of the same arguments.
///
///     map(with_derivative([](auto x) { return x * x; }, [](auto x) { return 2 * x; }), x)
template <class F, class... Derivatives>
struct with_derivative : F {
  constexpr with_derivative(F f, Derivatives...) : F(f) {}
};

namespace detail {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"        // a function of doubles is offered longs too; the program decides which
#pragma GCC diagnostic ignored "-Wfloat-conversion"  // type it is called with
template <class T, class F, std::size_t... I>
constexpr auto call_pointer(std::index_sequence<I...>) -> T (*)(const T*) {
  if constexpr (requires(T x) { static_cast<T>(F{}(((void)I, x)...)); }) {
    return +[](const T* x) { return static_cast<T>(F{}(x[I]...)); };
  } else {
    return nullptr;
  }
}
#pragma GCC diagnostic pop

template <class F, int Arity>
constexpr map_function make_map_function(const map_function* const* derivatives = nullptr) {
  static_assert(std::is_empty_v<F> && std::is_default_constructible_v<F>,
                "gspmd: map: the function must be a captureless lambda or an empty function object; give numbers as operands");
  static_assert(Arity >= 1 && Arity <= max_map_arity, "gspmd: map: a function of 1 to 8 arguments");
  using arguments = std::make_index_sequence<static_cast<std::size_t>(Arity)>;
  return {Arity,
          call_pointer<float, F>(arguments{}),
          call_pointer<double, F>(arguments{}),
          call_pointer<std::int32_t, F>(arguments{}),
          call_pointer<std::int64_t, F>(arguments{}),
          call_pointer<bool, F>(arguments{}),
          derivatives};
}

template <class F, int Arity>
struct map_holder {
  static constexpr map_function function = make_map_function<F, Arity>();
};
template <class F, class... Derivatives, int Arity>
struct map_holder<with_derivative<F, Derivatives...>, Arity> {
  static_assert(sizeof...(Derivatives) == static_cast<std::size_t>(Arity), "gspmd: map: give one derivative for each argument");
  static constexpr const map_function* derivatives[] = {&map_holder<Derivatives, Arity>::function...};
  static constexpr map_function function = make_map_function<F, Arity>(derivatives);
};

}  // namespace detail

/// Applies a captureless callable to every element of one to eight tensors of one type; it must accept that type and its
/// result is converted to it. Fused like any other elementwise operator. The gradient needs `with_derivative`.
template <class F, class... Rest>
  requires(std::is_convertible_v<Rest, operand> && ...)
constexpr value map(F, operand first, Rest... rest) {
  return detail::elementwise(detail::opcode::map, {first, operand(rest, first.at)...}, first.at,
                             &detail::map_holder<F, 1 + static_cast<int>(sizeof...(Rest))>::function);
}

}  // namespace gspmd
