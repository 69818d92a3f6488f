// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"

/// The gradients of the elementwise operators in ir/elementwise/. They are defined here because they add operators.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

// ---- arithmetic ----

constexpr void negative_op::gradient(gradient_builder& b, const node&) { b.send(0, -b.dy()); }

constexpr void add_op::gradient(gradient_builder& b, const node&) {
  b.send(0, b.dy());
  b.send(1, b.dy());
}

constexpr void subtract_op::gradient(gradient_builder& b, const node&) {
  b.send(0, b.dy());
  b.send(1, -b.dy());
}

constexpr void multiply_op::gradient(gradient_builder& b, const node&) {
  const term dy = b.dy();
  b.send(0, dy * b.in(1));
  b.send(1, dy * b.in(0));
}

constexpr void divide_op::gradient(gradient_builder& b, const node&) {
  const term y = b.y(), dy = b.dy();
  b.send(0, dy / b.in(1));
  b.send(1, -(dy * y / b.in(1)));
}

constexpr void fmod_op::gradient(gradient_builder& b, const node&) {  // x - y * trunc(x / y)
  const term y = b.y(), dy = b.dy();
  b.send(0, dy);
  b.send(1, -(dy * ((b.in(0) - y) / b.in(1))));
}

constexpr void pow_op::gradient(gradient_builder& b, const node& n) {
  const term y = b.y(), dy = b.dy(), base = b.in(0), exponent = b.in(1);
  const term slope = exponent * term::of<pow_op>(base, exponent - 1.0);
  const node& written = operand_of(b.program(), n, 1);
  const bool is_never_0 = written.op == opcode::constant && written.real != 0;
  b.send(0,
         dy * (is_never_0 ? slope  // otherwise 0 * 0^-1 would be NaN
                          : term::of<where_op>(term::of<compare_eq_op>(exponent, exponent.number(0)), slope.number(0), slope)));
  const term is_positive = term::of<compare_gt_op>(base, base.number(0));
  const term logarithm = term::of<where_op>(is_positive, term::of<log_op>(base), base.number(0));
  b.send(1, dy * (y * logarithm));
}

/// The gradient with respect to a complex z = a + bi is passed on as dL/da - i dL/db, so an analytic function has its usual
/// derivative. The user gets the conjugate, the direction in which L grows (see grad). The gradient of |z| is
/// dy conj(z) / |z|, and 0 if z is 0.
constexpr void abs_op::gradient(gradient_builder& b, const node&) {
  const term y = b.y(), dy = b.dy();
  if (!is_complex(b.in_type(0))) return b.send(0, dy * term::of<sign_op>(b.in(0)));
  const term is_zero = term::of<compare_eq_op>(y, y.number(0));
  const term ratio = dy / term::of<where_op>(is_zero, y.number(1), y);
  b.send(0, term::of<complex_op>(ratio, ratio.number(0)) * term::of<conj_op>(b.in(0)));
}

// ---- order ----

/// Sends the gradient to the operand that is the result. If the operands are equal, each gets half of it.
template <class Wins>
constexpr void send_to_winner(gradient_builder& b) {
  const term dy = b.dy(), zero = dy.number(0);
  const term half = term::of<where_op>(term::of<compare_eq_op>(b.in(0), b.in(1)), dy * 0.5, zero);
  b.send(0, term::of<where_op>(term::of<Wins>(b.in(0), b.in(1)), dy, half));
  b.send(1, term::of<where_op>(term::of<Wins>(b.in(1), b.in(0)), dy, half));
}
constexpr void max_op::gradient(gradient_builder& b, const node&) { send_to_winner<compare_gt_op>(b); }

constexpr void min_op::gradient(gradient_builder& b, const node&) { send_to_winner<compare_lt_op>(b); }

/// Compares y instead of x, because y > 0 if and only if x > 0. So x need not be stored.
constexpr void relu_op::gradient(gradient_builder& b, const node&) {
  const term y = b.y(), dy = b.dy();
  b.send(0, term::of<where_op>(term::of<compare_gt_op>(y, y.number(0)), dy, dy.number(0)));
}

// ---- functions ----

constexpr void exp_op::gradient(gradient_builder& b, const node&) {
  const term y = b.y(), dy = b.dy();
  b.send(0, dy * y);
}

constexpr void log_op::gradient(gradient_builder& b, const node&) {
  const term dy = b.dy();
  b.send(0, dy / b.in(0));
}

constexpr void sqrt_op::gradient(gradient_builder& b, const node&) {
  const term y = b.y(), dy = b.dy();
  b.send(0, dy * 0.5 / y);
}

constexpr void rsqrt_op::gradient(gradient_builder& b, const node&) {
  const term y = b.y(), dy = b.dy();
  b.send(0, dy * -0.5 * (y / b.in(0)));
}

constexpr void tanh_op::gradient(gradient_builder& b, const node&) {
  const term y = b.y(), dy = b.dy();
  b.send(0, dy * (1.0 - y * y));
}

constexpr void sigmoid_op::gradient(gradient_builder& b, const node&) {
  const term y = b.y(), dy = b.dy();
  b.send(0, dy * (y * (1.0 - y)));
}

constexpr void sin_op::gradient(gradient_builder& b, const node&) {
  const term dy = b.dy();
  b.send(0, dy * term::of<cos_op>(b.in(0)));
}

constexpr void cos_op::gradient(gradient_builder& b, const node&) {
  const term dy = b.dy();
  b.send(0, -(dy * term::of<sin_op>(b.in(0))));
}

constexpr void expm1_op::gradient(gradient_builder& b, const node&) {
  const term y = b.y(), dy = b.dy();
  b.send(0, dy * (y - -1.0));
}

constexpr void log1p_op::gradient(gradient_builder& b, const node&) {
  const term dy = b.dy();
  b.send(0, dy / (b.in(0) - -1.0));
}

constexpr void erf_op::gradient(gradient_builder& b, const node&) {
  const term dy = b.dy();
  b.send(0, dy * (term::of<exp_op>(-(b.in(0) * b.in(0))) * 0x1.20dd750429b6dp+0));
}

constexpr void erf_inv_op::gradient(gradient_builder& b, const node&) {
  const term y = b.y(), dy = b.dy();
  b.send(0, dy * (term::of<exp_op>(y * y) * 0x1.c5bf891b4ef6bp-1));
}

constexpr void cbrt_op::gradient(gradient_builder& b, const node&) {
  const term y = b.y(), dy = b.dy();
  b.send(0, dy / (y * y * 3.0));
}

constexpr void atan2_op::gradient(gradient_builder& b, const node&) {
  const term dy = b.dy();
  const term of_both = dy / (b.in(0) * b.in(0) + b.in(1) * b.in(1));
  b.send(0, of_both * b.in(1));
  b.send(1, -(of_both * b.in(0)));
}

// ---- conversions, complex numbers, choices ----

constexpr void real_op::gradient(gradient_builder& b, const node&) {
  const term dy = b.dy();
  b.send(0, term::of<complex_op>(dy, dy.number(0)));
}

constexpr void imag_op::gradient(gradient_builder& b, const node&) {
  const term dy = b.dy(), zero = dy.number(0);
  b.send(0, term::of<complex_op>(zero, -dy));
}

constexpr void conj_op::gradient(gradient_builder& b, const node&) { b.send(0, term::of<conj_op>(b.dy())); }

constexpr void complex_op::gradient(gradient_builder& b, const node&) {
  const term dy = b.dy();
  b.send(0, term::of<real_op>(dy));
  b.send(1, -term::of<imag_op>(dy));
}

constexpr void cast_op::gradient(gradient_builder& b, const node& n) {
  const dtype from = b.in_type(0);
  const term dy = b.dy();
  if (!is_complex(n.type) || is_complex(from)) return b.send(0, b.converted(dy, from));
  const term part = term::of<real_op>(dy);
  b.send(0, part_of(n.type) == from ? part : b.converted(part, from));
}

constexpr void where_op::gradient(gradient_builder& b, const node&) {
  const term dy = b.dy();
  b.send(1, term::of<where_op>(b.in(0), dy, dy.number(0)));
  b.send(2, term::of<where_op>(b.in(0), dy.number(0), dy));
}

constexpr void map_op::gradient(gradient_builder& b, const node& n) {
  if (n.function->derivatives == nullptr) {
    b.program().fail(n.at, name, mistake::no_derivative, "has no derivative; pass with_derivative(f, df...) instead of f");
    return;
  }
  const term dy = b.dy();
  const span<const int> arguments(n.operands.begin(), static_cast<std::size_t>(n.operands.count));
  for (int k = 0; k < n.operands.count; ++k) {
    const int slope = add_elementwise(b.program(), code_of<map_op>, arguments, n.at, dtype::f32, n.function->derivatives[k]);
    b.send(k, dy * b.as_term(slope));
  }
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
