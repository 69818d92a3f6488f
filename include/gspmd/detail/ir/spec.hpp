// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "gspmd/detail/support/language.hpp"

/// A kernel takes its description (extents, plan) as the result of calling an object, so that one source serves both paths:
/// for a static program the object is empty and the description a constant; the interpreter keeps it at run time.
namespace gspmd::detail {

/// A description that is known to the compiler, with static storage.
template <auto const& Value>
struct constant_spec {
  constexpr const auto& operator()() const { return Value; }
};

/// A description that exists at run time only.
template <class V>
struct runtime_spec {
  const V* value;
  constexpr const V& operator()() const { return *value; }
};
template <class V>
runtime_spec(const V*) -> runtime_spec<V>;

/// A description that exists at run time, without what its flags (see may_hold) tell: the most common one, compiled once.
template <class V>
struct plain_spec {
  static constexpr bool is_plain = true;
  const V* value;
  constexpr const V& operator()() const { return *value; }
};
template <class V>
plain_spec(const V*) -> plain_spec<V>;

/// An empty description object is one whose description may be used in constant expressions.
template <class Spec>
inline constexpr bool is_constant_spec = std::is_empty_v<Spec>;

/// One member of a description, itself a description; as constant as the whole.
template <class Spec, auto Member>
struct member_spec : Spec {
  constexpr const auto& operator()() const { return Spec::operator()().*Member; }
};

template <auto Member, class Spec>
constexpr member_spec<Spec, Member> member_of(Spec spec) {
  return {spec};
}

/// False when a constant description says that `flag` is not set, so that the code behind it need not even be instantiated.
template <auto Flag, class Spec>
constexpr bool may_hold() {
  if constexpr (requires { Spec::is_plain; }) return false;
  else if constexpr (is_constant_spec<Spec>) return Spec{}().*Flag;
  else return true;
}

template <auto Derive, class Spec>
struct derived_constant {
  static constexpr auto value = Derive(Spec{}());
};

/// Calls `body` with the description `Derive` makes of another one: made at compile time where that is possible.
template <auto Derive, class Spec, class Body>
void with_derived(const Spec& spec, Body&& body) {
  if constexpr (is_constant_spec<Spec>) {
    body(constant_spec<derived_constant<Derive, Spec>::value>{});
  } else {
    const auto value = Derive(spec());
    body(runtime_spec{&value});
  }
}

}  // namespace gspmd::detail
