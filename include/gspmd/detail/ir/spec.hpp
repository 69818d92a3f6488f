// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "gspmd/detail/support/language.hpp"

/// A kernel gets its description (extents, plan) by calling an object, so that one source serves both paths. In a
/// static program the object is empty and the description is a constant. The interpreter stores the description at run
/// time.
namespace gspmd::detail {

/// A description that is known at compile time, with static storage.
template <auto const& Value>
struct constant_spec {
  constexpr const auto& operator()() const { return Value; }
};

/// A description that exists only at run time.
template <class V>
struct runtime_spec {
  const V* value;
  constexpr const V& operator()() const { return *value; }
};
template <class V>
runtime_spec(const V*) -> runtime_spec<V>;

/// A run-time description whose flags (see may_hold) are all unset. This is the most common case, and it is compiled
/// once.
template <class V>
struct plain_spec {
  static constexpr bool is_plain = true;
  const V* value;
  constexpr const V& operator()() const { return *value; }
};
template <class V>
plain_spec(const V*) -> plain_spec<V>;

/// True if the description object is empty, so that the description can be used in constant expressions.
template <class Spec>
inline constexpr bool is_constant_spec = std::is_empty_v<Spec>;

/// One member of a description, which is itself a description. It is constant if the whole description is.
template <class Spec, auto Member>
struct member_spec : Spec {
  constexpr const auto& operator()() const { return Spec::operator()().*Member; }
};

template <auto Member, class Spec>
constexpr member_spec<Spec, Member> member_of(Spec spec) {
  return {spec};
}

/// Returns false if `flag` is known to be unset, so that the code for it is not instantiated.
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

/// Calls `body` with the description that `Derive` computes from `spec`, at compile time if possible.
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
