// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include "gspmd/detail/support/language.hpp"

/// The outcome of a call of a user's callable, determined before the call.
namespace gspmd::detail {

struct call_name {
  void operator()();
};
template <class F>
struct with_call_name : F, call_name {};
/// The name operator() is ambiguous if the class F has one too.
template <class F>
concept has_call_operator = std::is_class_v<F> && !std::is_final_v<F> && !requires { &with_call_name<F>::operator(); };

struct no_call {};
/// Adds an overload that accepts all arguments that the callable does not accept.
template <class F>
struct call_probe : F {
  using F::operator();
  no_call operator()(...) const;
};
template <class F, class Plain = std::remove_cvref_t<F>>
struct probe_of {
  using type = F;
};
template <class F, class Plain>
  requires has_call_operator<Plain>
struct probe_of<F, Plain> {
  using type = std::conditional_t<std::is_const_v<std::remove_reference_t<F>>, const call_probe<Plain>&, call_probe<Plain>&>;
};

template <class... Arguments>
struct argument_list {};

/// call_of<F, argument_list<A...>> has one of three outcomes. `compiles` is true, and `result` is the type of the call.
/// Or `refuses` is true: F does not accept these arguments. Or both are false: the body of F has a mistake. The
/// compiler reports the mistake when it instantiates the body, which happens here first. So callers must not report a
/// second error. Clang answers later queries differently, so all queries are in one class.
template <class F, class Arguments, class = void>
struct call_of {
  static constexpr bool compiles = false;
  static constexpr bool refuses = !has_call_operator<std::remove_cvref_t<F>>;
};
template <class F, class... A>
struct call_of<F, argument_list<A...>, std::void_t<decltype(std::declval<typename probe_of<F>::type>()(std::declval<A>()...))>> {
  using result = std::remove_cvref_t<decltype(std::declval<typename probe_of<F>::type>()(std::declval<A>()...))>;
  static constexpr bool refuses = std::is_same_v<result, no_call>;
  static constexpr bool compiles = !refuses;
};
template <class F, class... A>
using call_with = call_of<F, argument_list<A...>>;

}  // namespace gspmd::detail
