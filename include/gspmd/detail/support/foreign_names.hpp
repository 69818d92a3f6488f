// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>

#include "gspmd/detail/support/language.hpp"

/// Comparisons and functions of std that users try on values. Each use is an error that names the function of gspmd.
/// Functions of headers that the program does not include: each call is an error that names the header.
/// Argument-dependent lookup finds the comparisons, so they do not clash with the users' names. The results are `auto`,
/// so that the error is reported when the call is compiled. If the compiler evaluated the call as a constant instead,
/// the error would contain the whole chain of calls.
namespace gspmd {
class value;
}
namespace gspmd::detail {

/// Always false. It depends on a type, so that a static_assert on it fails only when the template is used.
template <class Type>
inline constexpr bool written_so = false;

class foreign_names;
template <class T> concept traced = std::derived_from<T, foreign_names>;
template <class A, class B> concept one_traced = traced<A> || traced<B>;

/// Marks the operand that is a value as refused and returns it, so that compilation continues.
template <class A, class B>
constexpr auto refused_call(const A& a, const B& b) {
  if constexpr (traced<A>) {
    a.note_refused();
    return a;
  } else {
    b.note_refused();
    return b;
  }
}

/// Any argument after the first.
struct extra {
  constexpr extra() = default;
  template <class T>
  constexpr extra(const T&) {}                             // NOLINT: on purpose
  constexpr extra(std::initializer_list<std::int64_t>) {}  // NOLINT: on purpose
};
// The conversion to foreign_names makes the function of the header, or the user's function, the better match.
#define GSPMD_IN_HEADER(name, header)                                                                                          \
  template <class Value = value>                                                                                               \
  friend constexpr auto name(const foreign_names& x, extra = {}, extra = {}, extra = {}, extra = {}) {                         \
    static_assert(written_so<Value>, "gspmd: no function " #name                                                               \
                                     " takes these arguments; if its header is missing, add #include <gspmd/" header ".hpp>"); \
    return refused_call(static_cast<const Value&>(x), x);                                                                      \
  }

class foreign_names {
  GSPMD_IN_HEADER(fft, "fft")
  GSPMD_IN_HEADER(ifft, "fft")
  GSPMD_IN_HEADER(rfft, "fft")
  GSPMD_IN_HEADER(irfft, "fft")
  GSPMD_IN_HEADER(attention, "nn")
  GSPMD_IN_HEADER(cross_entropy, "nn")
  GSPMD_IN_HEADER(dropout, "nn")
  GSPMD_IN_HEADER(gelu, "nn")
  GSPMD_IN_HEADER(layer_norm, "nn")
  GSPMD_IN_HEADER(rms_norm, "nn")
  GSPMD_IN_HEADER(rotary_embedding, "nn")
  GSPMD_IN_HEADER(silu, "nn")
  GSPMD_IN_HEADER(softplus, "nn")
  GSPMD_IN_HEADER(cholesky, "linalg")
  GSPMD_IN_HEADER(det, "linalg")
  GSPMD_IN_HEADER(inv, "linalg")
  GSPMD_IN_HEADER(solve, "linalg")
  GSPMD_IN_HEADER(triangular_solve, "linalg")
  GSPMD_IN_HEADER(tridiagonal_solve, "linalg")
  GSPMD_IN_HEADER(argmax, "index")
  GSPMD_IN_HEADER(cumsum, "index")
  GSPMD_IN_HEADER(embedding, "index")
  GSPMD_IN_HEADER(gather, "index")
  GSPMD_IN_HEADER(scatter, "index")
  GSPMD_IN_HEADER(sort, "index")
  GSPMD_IN_HEADER(take, "index")
  GSPMD_IN_HEADER(avg_pool, "windows")
  GSPMD_IN_HEADER(convolution, "windows")
  GSPMD_IN_HEADER(max_pool, "windows")

  template <class A, class B>
    requires one_traced<A, B>
  friend constexpr auto operator==(const A& a, const B& b) {
    static_assert(written_so<A>,
                  "gspmd: x == y: a value has no data to compare while the program is traced; equal(x, y) gives "
                  "a tensor of bool");
    return refused_call(a, b);
  }
  template <class A, class B>
    requires one_traced<A, B>
  friend constexpr auto operator!=(const A& a, const B& b) {
    static_assert(written_so<A>,
                  "gspmd: x != y: a value has no data to compare while the program is traced; not_equal(x, y) "
                  "gives a tensor of bool");
    return refused_call(a, b);
  }
};
#undef GSPMD_IN_HEADER

}  // namespace gspmd::detail

// No function of std takes a value. For a call, compilers would list all functions with that name. So these names are
// declared in std for values alone, to report one sentence. The pack makes the operators of gspmd better
// matches if both namespaces are used.
#define GSPMD_REFUSE_OF_STD(name, ours)                                                               \
  template <gspmd::detail::traced A, class... Rest>                                                   \
  constexpr auto name(const A& a, const Rest&...) {                                                   \
    static_assert(gspmd::detail::written_so<A>,                                                       \
                  "gspmd: std::" #name " takes a number and not a value; write gspmd::" #ours "(x)"); \
    return gspmd::detail::refused_call(a, a);                                                         \
  }
#define GSPMD_REFUSE_PAIR_OF_STD(name, ours, ...)                                                      \
  template <class A, class B, class... Rest>                                                           \
    requires(gspmd::detail::one_traced<A, B> __VA_ARGS__)                                              \
  constexpr auto name(const A& a, const B& b, const Rest&...) {                                        \
    static_assert(gspmd::detail::written_so<A>,                                                        \
                  "gspmd: std::" #name " takes numbers and not values; write gspmd::" #ours "(x, y)"); \
    return gspmd::detail::refused_call(a, b);                                                          \
  }
namespace std {
GSPMD_REFUSE_OF_STD(sqrt, sqrt)
GSPMD_REFUSE_OF_STD(cbrt, cbrt)
GSPMD_REFUSE_OF_STD(abs, abs)
GSPMD_REFUSE_OF_STD(fabs, abs)
GSPMD_REFUSE_OF_STD(exp, exp)
GSPMD_REFUSE_OF_STD(expm1, expm1)
GSPMD_REFUSE_OF_STD(log, log)
GSPMD_REFUSE_OF_STD(log1p, log1p)
GSPMD_REFUSE_OF_STD(sin, sin)
GSPMD_REFUSE_OF_STD(cos, cos)
GSPMD_REFUSE_OF_STD(tanh, tanh)
GSPMD_REFUSE_OF_STD(erf, erf)
GSPMD_REFUSE_OF_STD(floor, floor)
GSPMD_REFUSE_OF_STD(ceil, ceil)
GSPMD_REFUSE_OF_STD(real, real)
GSPMD_REFUSE_OF_STD(imag, imag)
GSPMD_REFUSE_OF_STD(conj, conj)
GSPMD_REFUSE_PAIR_OF_STD(pow, pow)
GSPMD_REFUSE_PAIR_OF_STD(max, max, &&!std::same_as<A, B>)
GSPMD_REFUSE_PAIR_OF_STD(min, min, &&!std::same_as<A, B>)
GSPMD_REFUSE_PAIR_OF_STD(fmax, max)
GSPMD_REFUSE_PAIR_OF_STD(fmin, min)
}  // namespace std
#undef GSPMD_REFUSE_PAIR_OF_STD
#undef GSPMD_REFUSE_OF_STD
