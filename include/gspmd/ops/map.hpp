// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ops/map_function.hpp"
#include "gspmd/ops/elementwise.hpp"

namespace gspmd {

namespace detail {

/// The derivatives of a function for `map`; nothing where their types say everything.
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

/// A function with its derivatives, for `map`: one derivative per argument, of the same arguments.
///
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

/// A function for `map` on the run-time path that is called for runs of elements; see by_rows.
template <class T, class F>
struct row_function {
  F f;
};

/// A function for `map`, on the run-time path, that computes a run of elements at a time: f(const T* x, ..., T* out,
/// std::int64_t n), one pointer for each argument. The operands must be of type T (float, double, int32_t, int64_t, uint32_t or uint64_t).
/// `out` overlaps no argument; how the elements are cut into runs is not said.
///
///     map(by_rows<float>(kernel), x)     // void (*kernel)(const float* x, float* out, std::int64_t n), from dlsym
template <class T, class F>
constexpr row_function<T, F> by_rows(F f) {
  static_assert(
      detail::is_element<T> && !detail::own_element<T> && !detail::is_narrow(detail::dtype_of<T>()) && !std::is_same_v<T, bool>,
      "gspmd: by_rows: float, double, int32_t, int64_t, uint32_t or uint64_t; for other types give map a function of elements");
  return {std::move(f)};
}

/// Applies a callable to every element of one to eight tensors of one type; it must accept that type and give numbers of it, which
/// only floats may have to round: a double for int64 elements is refused. Fused like any other elementwise operator, no communication. The
/// gradient needs `with_derivative`.
///
/// Elements of a narrow type are given to it as what they are computed as: bf16 and f16 as float, int8, uint8 and int16 as int32.
///
/// On the run-time path (dynamic.hpp) the function may be one that is known at run time: a lambda with captures, a pointer
/// to a function, `by_rows`. The program keeps a copy of it. Devices call it at the same time, each for the elements that it
/// holds: never for the padding of uneven shards. What it throws reaches the caller with the operator's line. `compile` takes
/// only functions without state.
///
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
              "the function has a state (captures, an address), which only the run-time path of gspmd/dynamic.hpp takes; give a "
              "captureless lambda, and numbers as operands");
      return detail::made(-1, tensor);
    }
    return detail::elementwise(detail::code_of<detail::map_op>, {first, operand(rest, first.at)...}, first.at,
                               detail::function_keeper<arity>{*g->functions}(std::move(f)));
  }
}

}  // namespace gspmd
