// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/ir/tree.hpp"
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/fixed_string.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/support/refuse.hpp"
#include "gspmd/detail/support/text.hpp"
#include "gspmd/error.hpp"

/// Checks the arguments of a call against the tensors of a program: its inputs, then its outputs. Compile errors and
/// exceptions have the same texts.
namespace gspmd::detail {

/// Returns the name, type and shape of tensor `k`. With `between` " is ": `input 1 (w) is double [80,60]`.
constexpr text tensor_words(const plan_view& plan, std::size_t k, const char* between) {
  const auto inputs = plan.inputs.size();
  const auto& v = plan.value(k < inputs ? plan.inputs[k] : plan.outputs[k - inputs]);
  text t;
  if (k < inputs) t << graph::input_text(plan.nodes[static_cast<std::size_t>(v.node)].at);
  else t << "output " << static_cast<std::int64_t>(k - inputs);
  t << between << cpp_name_of(v.type) << ' ' << shape_text(v.global);
  return t;
}
/// Returns a number with its noun: `2 inputs`.
constexpr text number_of(std::size_t n, const char* noun) {
  text t(noun);
  if (n != 1) t << 's';
  return text("") << static_cast<std::int64_t>(n) << ' ' << t;
}
/// Returns the error text for a call that passes `passed` arrays for `wanted` tensors from tensor `first` on.
///
///   run: the program has 2 inputs and the call passes 1 array; also pass input 1, double [80,60]
constexpr text count_problem(const plan_view& plan, const char* call, std::size_t first, std::size_t wanted, std::size_t passed) {
  const auto inputs = first < plan.inputs.size() ? plan.inputs.size() - first : 0;
  text t = text(call) << ": the program has ";
  if (inputs > 0) t << number_of(inputs < wanted ? inputs : wanted, "input") << (inputs < wanted ? " and " : "");
  if (inputs < wanted || wanted == 0) t << number_of(wanted == 0 ? 0 : wanted - inputs, "output");
  t << " and the call passes " << number_of(passed, "array");
  if (passed < wanted) t << "; also pass " << tensor_words(plan, first + passed, ", ");
  else if (passed == wanted + 1) t << "; leave out the last one";
  else t << "; leave out the last " << static_cast<std::int64_t>(passed - wanted);
  return t;
}
/// Returns the error text for an array whose element type differs from the type of tensor `k`.
constexpr text type_problem(const plan_view& plan, const char* call, std::size_t k, dtype passed) {
  const auto inputs = plan.inputs.size();
  const char* const wanted = cpp_name_of(plan.value(k < inputs ? plan.inputs[k] : plan.outputs[k - inputs]).type);
  text t = text(call) << ": " << tensor_words(plan, k, " is ") << " and the array passed for it is of " << cpp_name_of(passed)
                      << "; pass an array of " << wanted;
  if (k < inputs) t << ", or declare the input with elements of " << cpp_name_of(passed);
  return t;
}

/// The same errors, for calls that only the run time can check.
template <class = once>
[[gnu::cold]] error count_error(const plan_view& plan, const char* call, std::size_t first, std::size_t wanted,
                                std::size_t passed);
template <class = once>
[[gnu::cold]] error type_error(const plan_view& plan, const char* call, std::size_t k, dtype passed);

/// Collects facts from the types of a call's arguments: the number of arrays, and the first array with a wrong element
/// type. Example: two inputs of double, arrays of double and of float: `wrong` is 1 and `type` is f32.
struct argument_facts {
  const plan_view* plan;
  std::size_t first, wanted;  // the tensors that the arguments are for
  std::size_t passed = 0, wrong = SIZE_MAX;
  dtype type = dtype::pred;
  bool is_counted = true;  // false after a std::vector of arrays: its length is a run-time value
  bool are_arrays = true;  // false if an argument has no elements in memory or no element type: both are reported elsewhere

  constexpr argument_facts(const plan_view& p, std::size_t from, std::size_t count) : plan(&p), first(from), wanted(count) {}

  constexpr void add(dtype given) {
    if (is_counted && wrong == SIZE_MAX && passed < wanted && type_of(first + passed) != given) {
      wrong = passed;
      type = given;
    }
    ++passed;
  }
  constexpr void add_list() { is_counted = false; }
  constexpr void add_other() { is_counted = are_arrays = false; }
  [[nodiscard]] constexpr bool fit() const { return wrong == SIZE_MAX && (!is_counted || passed == wanted); }
  [[nodiscard]] constexpr text problem(const char* call) const {
    if (wrong != SIZE_MAX) return type_problem(*plan, call, first + wrong, type);
    return count_problem(*plan, call, first, wanted, passed);
  }

 private:
  [[nodiscard]] constexpr dtype type_of(std::size_t k) const {
    const auto inputs = plan->inputs.size();
    return plan->value(k < inputs ? plan->inputs[k] : plan->outputs[k - inputs]).type;
  }
};

/// The element type of an array, a range, a pointer or a view; void for all other types.
template <class Leaf>
constexpr auto find_leaf_element() {
  if constexpr (std::is_array_v<Leaf>) return std::type_identity<std::remove_all_extents_t<Leaf>>{};
  else if constexpr (std::is_pointer_v<Leaf>) return std::type_identity<std::remove_pointer_t<Leaf>>{};
  else if constexpr (requires(Leaf& leaf) { *std::data(leaf), std::size(leaf); })
    return std::type_identity<std::remove_pointer_t<decltype(std::data(std::declval<Leaf&>()))>>{};
  else if constexpr (requires { typename Leaf::element; }) return std::type_identity<typename Leaf::element>{};
  else return std::type_identity<void>{};
}
template <class Leaf>
using leaf_element_t = std::remove_cv_t<typename decltype(find_leaf_element<Leaf>())::type>;

/// Adds the element types of all leaves of a group to `facts`. After a vector of arrays, their number is a run-time
/// value.
template <class Tree, class Facts>
constexpr void note_leaves(Facts& facts) {
  if constexpr (is_list<Tree>) {
    facts.add_list();
    note_leaves<typename Tree::value_type>(facts);
  } else if constexpr (is_leaf<Tree>) {
    using element = leaf_element_t<Tree>;
    if constexpr (is_element<element>) facts.add(dtype_of<element>());
    else facts.add_other();
    if constexpr (!std::is_void_v<element>) static_cast<void>(dtype_of<element>());  // the only error for a type such as char
  } else {
    [&]<std::size_t... P>(std::index_sequence<P...>) {
      (note_leaves<part_type<P, Tree>>(facts), ...);
    }(std::make_index_sequence<part_count<Tree>()>{});
  }
}

/// The arguments of a call `Call`, for `Count` tensors of a step, starting with tensor `First`.
template <class Step, fixed_string Call, std::size_t First, std::size_t Count, class... Arguments>
struct call_arguments {
  static constexpr argument_facts facts = [] {
    argument_facts f(Step::view, First, Count);
    (note_leaves<Arguments>(f), ...);
    return f;
  }();
  static constexpr text make() { return facts.problem(Call.chars); }

  /// Reports an argument that is missing, superfluous or has the wrong element type. A mistake of the step itself is
  /// already reported.
  static consteval bool accept() {
    if constexpr (Step::accepted && !facts.fit()) refuse<mistake::arguments, call_arguments>();
    return true;
  }
};

}  // namespace gspmd::detail

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/driver/given_arguments.ipp"
#endif
