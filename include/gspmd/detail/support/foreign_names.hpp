// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

/// What users try on values because other libraries have it, refused with the name it has here. Found by their arguments only:
/// the names of users do not meet these. Results are `auto`, so that the refusal stands where the call is compiled and not, with
/// all the lines on how it came there, where the compiler runs it.
namespace gspmd::detail {

/// Never true; it depends on a type, so that what stands on it is refused where it is used.
template <class Type>
inline constexpr bool written_so = false;

class foreign_names;
template <class T> concept traced = std::derived_from<T, foreign_names>;
template <class A, class B> concept one_traced = traced<A> || traced<B>;

/// Goes on with the operand that is a value.
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
  // max and min twice: as specialised as those of std, which may be visible too, and for a value and a number.
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
