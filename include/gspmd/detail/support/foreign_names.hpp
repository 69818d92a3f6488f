// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include "gspmd/detail/support/language.hpp"

/// Names of other libraries' functions that users try on values. Each use is an error that names the function of gspmd.
/// Argument-dependent lookup finds these functions, so they do not clash with the users' names. The results are `auto`,
/// so that the error is reported when the call is compiled. If the compiler evaluated the call as a constant instead,
/// the error would contain the whole chain of calls.
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

template <class A, class B>
constexpr auto refused_max(const A& a, const B& b) {
  static_assert(written_so<A>, "gspmd: there is no max; write maximum(x, y), or reduce(x, monoid::maximum)");
  return refused_call(a, b);
}
template <class A, class B>
constexpr auto refused_min(const A& a, const B& b) {
  static_assert(written_so<A>, "gspmd: there is no min; write minimum(x, y), or reduce(x, monoid::minimum)");
  return refused_call(a, b);
}

class foreign_names {
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
  template <traced A>
  friend constexpr auto exp(const A& a) {
    static_assert(written_so<A>, "gspmd: there is no exp; write exponential(x)");
    return refused_call(a, a);
  }
  template <traced A>
  friend constexpr auto sin(const A& a) {
    static_assert(written_so<A>, "gspmd: there is no sin; write sine(x)");
    return refused_call(a, a);
  }
  template <traced A>
  friend constexpr auto cos(const A& a) {
    static_assert(written_so<A>, "gspmd: there is no cos; write cosine(x)");
    return refused_call(a, a);
  }
  template <traced A>
  friend constexpr auto sigmoid(const A& a) {
    static_assert(written_so<A>, "gspmd: there is no sigmoid; write logistic(x)");
    return refused_call(a, a);
  }
  template <class A, class B>
    requires one_traced<A, B>
  friend constexpr auto pow(const A& a, const B& b) {
    static_assert(written_so<A>, "gspmd: there is no pow; write power(x, y)");
    return refused_call(a, b);
  }
  // max and min have two overloads. The first is as specialised as that of std, which may be visible too. The second
  // takes a value and a number.
  template <traced A>
  friend constexpr auto max(const A& a, const A& b) {
    return refused_max(a, b);
  }
  template <class A, class B>
    requires(one_traced<A, B> && !std::same_as<A, B>)
  friend constexpr auto max(const A& a, const B& b) {
    return refused_max(a, b);
  }
  template <traced A>
  friend constexpr auto min(const A& a, const A& b) {
    return refused_min(a, b);
  }
  template <class A, class B>
    requires(one_traced<A, B> && !std::same_as<A, B>)
  friend constexpr auto min(const A& a, const B& b) {
    return refused_min(a, b);
  }
};

}  // namespace gspmd::detail

// No function of std takes a value. For a call, compilers would list all functions with that name. So these names are
// declared in std for values alone, to report one sentence. The pack makes the functions above a better match after a
// using-declaration.
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
GSPMD_REFUSE_OF_STD(exp, exponential)
GSPMD_REFUSE_OF_STD(expm1, expm1)
GSPMD_REFUSE_OF_STD(log, log)
GSPMD_REFUSE_OF_STD(log1p, log1p)
GSPMD_REFUSE_OF_STD(sin, sine)
GSPMD_REFUSE_OF_STD(cos, cosine)
GSPMD_REFUSE_OF_STD(tanh, tanh)
GSPMD_REFUSE_OF_STD(erf, erf)
GSPMD_REFUSE_OF_STD(floor, floor)
GSPMD_REFUSE_OF_STD(ceil, ceil)
GSPMD_REFUSE_OF_STD(real, real)
GSPMD_REFUSE_OF_STD(imag, imag)
GSPMD_REFUSE_OF_STD(conj, conj)
GSPMD_REFUSE_PAIR_OF_STD(pow, power)
GSPMD_REFUSE_PAIR_OF_STD(max, maximum, &&!std::same_as<A, B>)
GSPMD_REFUSE_PAIR_OF_STD(min, minimum, &&!std::same_as<A, B>)
GSPMD_REFUSE_PAIR_OF_STD(fmax, maximum)
GSPMD_REFUSE_PAIR_OF_STD(fmin, minimum)
}  // namespace std
#undef GSPMD_REFUSE_PAIR_OF_STD
#undef GSPMD_REFUSE_OF_STD
