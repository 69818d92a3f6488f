// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ir/local_block.hpp"
#include "gspmd/detail/ops/own/kept_functions.hpp"
#include "gspmd/detail/ops/own/local_law.hpp"
#include "gspmd/detail/ops/own/local_rule.hpp"
#include "gspmd/detail/support/fixed_string.hpp"
#include "gspmd/detail/support/mp11.hpp"
#include "gspmd/error.hpp"

/// Makes a local_function from a user's function of blocks: one entry for each combination of element types that it
/// accepts.
namespace gspmd::detail {

template <fixed_string Text, monoid Kind>
struct rule_constant {
  static constexpr local_rule value = parse_local_rule(Text.view(), Kind);
};

template <class F, class... Blocks>
constexpr bool find_returns_nothing() {
  if constexpr (std::is_invocable_v<F, Blocks...>) return std::is_void_v<std::invoke_result_t<F, Blocks...>>;
  else return false;
}
template <class F, class... Blocks>
inline constexpr bool returns_nothing = find_returns_nothing<F, Blocks...>();

/// A function with the element types of its operands and results.
template <class Rule, class F, class Signature,
          class = std::make_index_sequence<static_cast<std::size_t>(Rule::value.operand_count())>,
          class = std::make_index_sequence<static_cast<std::size_t>(Rule::value.results)>>
struct typed_local;
template <class Rule, class F, class... R, class... A, std::size_t... K, std::size_t... J>
struct typed_local<Rule, F, std::tuple<R...>(A...), std::index_sequence<K...>, std::index_sequence<J...>> {
  static constexpr const local_rule& rule = Rule::value;
  using function = F;
  template <std::size_t Index>
  using result = std::tuple_element_t<Index, std::tuple<R...>>;
  template <std::size_t Index>
  using operand = std::tuple_element_t<Index, std::tuple<A...>>;
  template <std::size_t Index>
  using block = local_block<const operand<Index>, rule.tensors[static_cast<int>(Index)].count>;
  template <std::size_t Index>
  using result_block = local_block<result<Index>, rule.result(static_cast<int>(Index)).count>;

  static constexpr bool takes = returns_nothing<const F&, block<K>..., result_block<J>...>;

  /// Calls the function. `places` has objects with extents and strides: one for each operand, then one for each result.
  template <class Pointers, class Results, class Places>
  static constexpr void call(const F& f, const Pointers& operands, const Results& results, const Places& places) {
    f(block<K>(std::get<K>(operands), places[K].extents, places[K].strides)...,
      result_block<J>(std::get<J>(results), places[sizeof...(K) + J].extents, places[sizeof...(K) + J].strides)...);
  }
  static void call(const F& f, const erased_block* blocks) {
    call(f, std::tuple{static_cast<const A*>(blocks[K].data)...}, std::tuple{static_cast<R*>(blocks[sizeof...(K) + J].data)...},
         blocks);
  }

  /// Runs a stateless function. If the compiler could not test the law, the first call tests it.
  template <bool IsProven>
  static void run_constant(const void*, const erased_block* blocks) {
    if constexpr (!IsProven) {
      const text& broken = tried();
      if (!broken.empty()) throw error(std::string(broken.view()));
    }
    call(F{}, blocks);
  }
  static text try_constant(const void*) { return tried(); }
  static void run_object(const void* object, const erased_block* blocks) { call(*static_cast<const F*>(object), blocks); }
  static text try_object(const void* object) { return law_at_run_time<typed_local>(*static_cast<const F*>(object)); }

  /// Returns the text of the broken law of a stateless function, or an empty text. The law is tested once.
  static const text& tried() {
    static const text broken = law_at_run_time<typed_local>(F{});
    return broken;
  }

  static constexpr local_entry entry_with(void (*run)(const void*, const erased_block*), text (*law)(const void*)) {
    return {{dtype_of<A>()...}, {dtype_of<R>()...}, run, law};
  }
};

/// A signature with its results as a tuple: users write a single result without a tuple.
template <class Signature>
struct with_results;
template <class R, class... A>
struct with_results<R(A...)> {
  using type = std::tuple<R>(A...);
};
template <class... R, class... A>
struct with_results<std::tuple<R...>(A...)> {
  using type = std::tuple<R...>(A...);
};
template <class T, class Operands, class Results>
struct same_types;
template <class T, std::size_t... K, std::size_t... J>
struct same_types<T, std::index_sequence<K...>, std::index_sequence<J...>> {
  using type = std::tuple<decltype((void)J, T())...>(decltype((void)K, T())...);
};

/// The combinations of element types that a function accepts: the stated one, or one type for all tensors.
template <class Rule, class F, class Signature>
struct typed_list {
  template <class Typed>
  using takes = std::bool_constant<Typed::takes>;
  using type = boost::mp11::mp_copy_if<boost::mp11::mp_list<typed_local<Rule, F, typename with_results<Signature>::type>>, takes>;
};
template <class Rule, class F>
struct typed_list<Rule, F, void> {
  using operands = std::make_index_sequence<static_cast<std::size_t>(Rule::value.operand_count())>;
  using results = std::make_index_sequence<static_cast<std::size_t>(Rule::value.results)>;
  template <class T>
  using with = typed_local<Rule, F, typename same_types<T, operands, results>::type>;
  template <class Typed>
  using takes = std::bool_constant<Typed::takes>;
  using type =
      boost::mp11::mp_copy_if<boost::mp11::mp_list<with<double>, with<float>, with<std::int64_t>, with<std::int32_t>>, takes>;
};

/// Returns the compiler's finding about the law. Only the first types that the function accepts are tested at compile
/// time.
template <class Typed, class First>
constexpr law_finding compiled_law_of() {
  if constexpr (std::is_same_v<Typed, First>) return compiled_law<Typed>;
  else return {law_finding::kind::unknown};
}

template <class List, bool IsConstant>
constexpr local_function make_local_function(const local_rule& rule, std::int64_t flops, const void* object = nullptr) {
  local_function f;
  f.rule = rule;
  f.flops = flops;
  f.object = object;
  boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, List>>([&](auto each) {
    using typed = typename decltype(each)::type;
    if constexpr (IsConstant) {
      constexpr bool proven = compiled_law_of<typed, boost::mp11::mp_front<List>>().broken == law_finding::kind::holds;
      f.entries[f.entry_count++] =
          typed::entry_with(&typed::template run_constant<proven>, proven ? nullptr : &typed::try_constant);
    } else {
      f.entries[f.entry_count++] = typed::entry_with(&typed::run_object, &typed::try_object);
    }
  });
  return f;
}

}  // namespace gspmd::detail
