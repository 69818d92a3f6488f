// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ops/own/map_function.hpp"
#include "gspmd/ops/elementwise.hpp"

namespace gspmd {

namespace detail {

/// Stores the derivatives of a function for `map`. Empty if the function and its derivatives have no state.
template <bool Constant, class... Derivatives>
struct derivative_tuple {
  constexpr explicit derivative_tuple(Derivatives...) {}
};
template <class... Derivatives>
struct derivative_tuple<false, Derivatives...> {
  constexpr explicit derivative_tuple(Derivatives... given) : derivatives(std::move(given)...) {}
  std::tuple<Derivatives...> derivatives;
};

}  // namespace detail

/// A function with its derivatives, for `map`. There is one derivative per argument, and each derivative takes all
/// arguments.
///
/// **Example.**
///     map(with_derivative([](auto x) { return x * x; }, [](auto x) { return 2 * x; }), x)
template <class F, class... Derivatives>
struct with_derivative
    : F,
      detail::derivative_tuple<detail::is_constant_function<F> && (detail::is_constant_function<Derivatives> && ...),
                               Derivatives...> {
  constexpr with_derivative(F f, Derivatives... derivatives)
      : F(std::move(f)),
        detail::derivative_tuple < detail::is_constant_function<F> && (detail::is_constant_function<Derivatives> && ...),
        Derivatives... > (std::move(derivatives)...) {}
};

/// A function for `map` on the run-time path that processes several consecutive elements per call; see by_rows.
template <class T, class F>
struct row_function {
  F f;
};

/// Makes a function for `map`, on the run-time path, that processes several consecutive elements per call: f(const T*
/// x, ..., T* out, std::int64_t n), with one pointer for each argument. The operands must be of type T (float, double,
/// int32_t, int64_t, uint32_t or uint64_t). `out` overlaps no argument. The number of elements per call is
/// unspecified.
///
/// **Example.**
///     map(by_rows<float>(kernel), x)     // void (*kernel)(const float* x, float* out, std::int64_t n), from dlsym
template <class T, class F>
constexpr row_function<T, F> by_rows(F f) {
  static_assert(
      detail::is_element<T> && !detail::own_element<T> && !detail::is_narrow(detail::dtype_of<T>()) && !std::is_same_v<T, bool>,
      "gspmd: by_rows: float, double, int32_t, int64_t, uint32_t or uint64_t; for other types give map a function of elements");
  return {std::move(f)};
}

/// Applies a callable to every element of 1 to 8 tensors with the same element type. The callable must accept this
/// type and return numbers that the type holds. Only floats may be rounded: a double for int64 elements is refused.
/// The planner fuses `map` with other elementwise operators. No communication. The gradient requires
/// `with_derivative`.
///
/// The callable gets elements of a narrow type in the type of their arithmetic: bf16 and f16 as float; int8, uint8 and
/// int16 as int32.
///
/// On the run-time path (dynamic/compile.hpp) the function may have state: a lambda with captures, a pointer to a
/// function, or `by_rows`. The program keeps a copy of the function. If the function throws, the caller gets the
/// exception with the source line of the operator. `compile` takes only functions without state.
///
/// **Threads.** Devices call the function concurrently, each for its own elements and never for the padding of uneven
/// shards.
/// **Example.**
///     map([limit](float x) { return x < limit ? x : limit; }, x)
template <class F, class... Rest>
  requires(std::is_convertible_v<Rest, operand> && ...)
constexpr value map(F f, operand first, Rest... rest) {
  constexpr int arity = 1 + static_cast<int>(sizeof...(Rest));
  static_assert(arity <= detail::max_map_arity, "gspmd: map: a function of 1 to 8 arguments");
  if constexpr (detail::is_constant_function<F>) {
    return detail::elementwise(detail::code_of<detail::map_op>, {first, operand(rest, first.at)...}, first.at,
                               &detail::map_holder<F, arity>::function);
  } else {
    value tensor;
    for (const operand& o : {first, operand(rest, first.at)...})
      if (!o.is_number() && o.tensor().is_valid()) tensor = o.tensor();
    detail::graph* const g = tensor.graph();
    if (g == nullptr) return {};
    if (g->functions == nullptr) {
      g->fail(first.at, "map", detail::mistake::other,
              "the function has a state (captures, an address), which only the run-time path of gspmd/dynamic/compile.hpp takes; "
              "give a "
              "captureless lambda, and numbers as operands");
      return detail::made(-1, tensor);
    }
    return detail::elementwise(detail::code_of<detail::map_op>, {first, operand(rest, first.at)...}, first.at,
                               detail::function_keeper<arity>{*g->functions}(std::move(f)));
  }
}

}  // namespace gspmd
