// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/nn/detail/floats.hpp"
#include "gspmd/nn/detail/quantity.hpp"
#include "gspmd/ops/composite.hpp"
#include "gspmd/ops/elementwise.hpp"

/// Activation functions of floats. They are elementwise: the result has the shape and the sharding of the operand, and
/// nothing is sent. bf16 and f16 are computed as float and rounded once (ops/composite.hpp). relu and logistic are
/// elementwise operators (ops/elementwise.hpp).
namespace gspmd {

/// The two forms of gelu. `exact` uses the error function. `tanh` is the approximation of the paper and of GPT-2.
enum class gelu_form { exact, tanh };

namespace detail {

/// Returns f(x), computed in float if `x` is bf16 or f16. f gets and returns a quantity.
template <class F>
constexpr value activation(const char* name, value x, location at, F f) {
  if (!x.is_valid()) return {};
  const one_call call(x.graph(), name, {x.id()});
  if (!has_floats(x, name, at)) return made(-1, x);
  return rounded_once(
      at, [&](value wide) { return f(quantity(wide, at)).tensor(); }, x);
}

}  // namespace detail

/// Returns x times the normal distribution function of x: 0.5 x (1 + erf(x / sqrt(2))). With `gelu_form::tanh`, it
/// returns 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), which differs by at most 0.0005.
///
/// **Errors.** Compile error `type` if the elements are not real floats.
/// **Example.**
///     auto h = gelu(matmul(x, w));
///     auto y = gelu(x, gelu_form::tanh);
/// **Source.** Hendrycks and Gimpel, Gaussian Error Linear Units, 2016.
constexpr value gelu(value x, gelu_form form = gelu_form::exact, location at = location::current()) {
  return detail::activation("gelu", x, at, [&](const detail::quantity& t) {
    const auto argument = form == gelu_form::exact ? t * 0x1.6a09e667f3bcdp-1 : 0x1.9884533d43651p-1 * (t + 0.044715 * t * t * t);
    const value bent = form == gelu_form::exact ? erf(argument.tensor(), at) : tanh(argument.tensor(), at);
    return 0.5 * t * (1.0 + detail::quantity(bent, at));
  });
}

/// Returns x / (1 + exp(-x)), which is also called swish.
///
/// **Errors.** Compile error `type` if the elements are not real floats.
/// **Example.**
///     auto gated = silu(matmul(x, gate)) * matmul(x, up);     // SwiGLU
constexpr value silu(value x, location at = location::current()) {
  return detail::activation("silu", x, at,
                            [at](const detail::quantity& t) { return t * detail::quantity(sigmoid(t.tensor(), at), at); });
}

/// Returns log(1 + exp(x)). The result is finite and exact for large |x|, because it is computed as
/// max(x, 0) + log(1 + exp(-|x|)).
///
/// **Errors.** Compile error `type` if the elements are not real floats.
/// **Example.**
///     auto deviation = softplus(matmul(x, w));                // positive
constexpr value softplus(value x, location at = location::current()) {
  return detail::activation("softplus", x, at, [at](const detail::quantity& t) {
    const value tail = exp(negative(abs(t.tensor(), at), at), at);
    return max(t, 0.0) + detail::quantity(log1p(tail, at), at);
  });
}

}  // namespace gspmd
