// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "gspmd/detail/ir/meet.hpp"
#include "gspmd/detail/ir/opcode.hpp"
#include "gspmd/detail/support/target.hpp"

/// The facts that the struct of an elementwise operator states, and base classes for facts that many operators share.
/// No fact has a default: `complete_elementwise` (ops/elementwise.hpp) rejects a struct that lacks a fact.
/// docs/extending/elementwise.md shows how to write an operator.
namespace gspmd::detail {
struct node;
class gradient_builder;
inline namespace GSPMD_TARGET {

// clang-format off
/// The facts, one line each:
///
///   name                  the name in messages: StableHLO's name if StableHLO has the operator
///   operands              the number of operands
///   has_condition         operand 0 is pred, and the other operands have the type of the result
///   defined               the element types of the operands (defined_for)
///   result                the type of the result
///   value(x...)           computes one element, for every type of kernels. It is defined for all
///                         operands and has no branch, so compilers vectorise its loop
///   is_exact              `value` consists of correctly rounded operations, so the bits do not depend on the instruction set
///   folds, neutral        the results that the planner computes if the operands are numbers, and the neutral number of the operator
///   work, role, vectors   see loop_facts
///   ignores_sign          the bits of the result are the same for signed and unsigned integers
///   flops                 the operations per element
///   kernels               the location of the kernels for programs that are planned at run time
///   meets(n, monoid)      the class of the operator if its operands are partial by `monoid` (ir/meet.hpp)
///   gradient(b, n)        sends the gradients to the operands; it is empty if the operator has no gradient
// clang-format on

/// The base class of every elementwise operator.
struct elementwise_struct {};

/// Sets of element types.
namespace defined_for {
template <class Holds>
constexpr dtype_set types_with(Holds holds) {
  dtype_set set;
  for (std::size_t k = 0; k < element_type_count; ++k)
    if (holds(facts_of(static_cast<dtype>(k)))) set.types |= 1U << k;
  return set;
}
constexpr dtype_set only(dtype type) { return {1U << static_cast<unsigned>(type), false}; }
inline constexpr dtype_set own_types = {0, true};
inline constexpr dtype_set every_type = types_with([](const element_facts&) { return true; });
inline constexpr dtype_set ordered_types = types_with([](const element_facts& f) { return !f.is_complex; });
inline constexpr dtype_set numbers = types_with([](const element_facts& f) { return f.is_integer || f.is_floating; });
inline constexpr dtype_set real_numbers =
    types_with([](const element_facts& f) { return f.is_integer || (f.is_floating && !f.is_complex); });
inline constexpr dtype_set floats = types_with([](const element_facts& f) { return f.is_floating; });
inline constexpr dtype_set real_floats = types_with([](const element_facts& f) { return f.is_floating && !f.is_complex; });
inline constexpr dtype_set complex_floats = types_with([](const element_facts& f) { return f.is_complex; });
inline constexpr dtype_set integers = types_with([](const element_facts& f) { return f.is_integer; });
inline constexpr dtype_set integers_and_pred = types_with([](const element_facts& f) { return !f.is_floating; });
}  // namespace defined_for

/// The results that the planner computes if all operands are numbers. It computes floats with value(double), rounded
/// once more for float, and integers with value(uint64_t), whose low bits are right for every integer type.
enum class folding : std::uint8_t { never, floats_unless_by_zero, integers, numbers };

/// The number for which the result equals the other operand, as left operand, as right operand, or both.
struct neutral_operand {
  bool left = false, right = false;
  double real = 0;  // of floats; 0.0 and -0.0 differ
  std::int64_t integer = 0;
};

/// The location of an operator's kernels for programs that are planned at run time.
struct kernel_home {
  bool is_listed = false;  // true: the library compiles them, and listed_elementwise contains the operator
  /// The header of the operator, relative to the include directory of gspmd. Loops that are compiled at run time
  /// include it. If it is empty, these loops are interpreted.
  const char* header = "";
};
inline constexpr kernel_home library_kernels{true, ""};
/// The kernels are compiled with the program that uses the operator.
constexpr kernel_home kernels_of_program(const char* header = "") { return {false, header}; }

// ---- facts that many operators share ----

struct listed_operator : elementwise_struct {
  static constexpr kernel_home kernels = library_kernels;
};
struct without_condition {
  static constexpr bool has_condition = false;
};
struct keeps_type : without_condition {
  static constexpr element_result result = element_result::same;
};
struct not_folded {
  static constexpr folding folds = folding::never;
  static constexpr neutral_operand neutral{};
};
struct folded_numbers {
  static constexpr folding folds = folding::numbers;
  static constexpr neutral_operand neutral{};
};
struct needs_instruction {
  static constexpr loop_facts::work_class work = loop_facts::work_class::instruction;
};
struct needs_few_instructions {
  static constexpr loop_facts::work_class work = loop_facts::work_class::few_instructions;
};
struct needs_vectorised_function {
  static constexpr loop_facts::work_class work = loop_facts::work_class::vectorised_function;
};
struct needs_function {
  static constexpr loop_facts::work_class work = loop_facts::work_class::function;
};
struct any_role {
  static constexpr loop_facts::role_class role = loop_facts::role_class::other;
};
struct vectorised_everywhere {
  static constexpr loop_facts::vector_class vectors = loop_facts::vector_class::any_loop;
};
/// One operation per element, for cheap and expensive functions: costs of plans count visited elements.
struct one_flop {
  static constexpr int flops = 1;
};
struct regards_sign {
  static constexpr bool ignores_sign = false;
};
/// A function of one operand. The result has the operand's type and is not computed by the planner.
struct one_function : listed_operator, keeps_type, not_folded, any_role, vectorised_everywhere, one_flop, regards_sign {
  static constexpr int operands = 1;
};

/// Partial operands are reduced before the operator.
struct reduces_operands {
  static constexpr operator_class meets(const node&, monoid) { return {}; }
};
constexpr bool is_order(monoid kind) { return kind == monoid::max || kind == monoid::min; }
constexpr operator_class all_if(bool holds) { return {holds ? partial_class::all : partial_class::none}; }
/// A monotonically increasing function that is defined for the identities of maximum and minimum.
struct grows_with_operand {
  static constexpr operator_class meets(const node&, monoid kind) { return all_if(is_order(kind)); }
};
struct has_no_gradient {
  static constexpr void gradient(gradient_builder&, const node&) {}
};
/// A function that is constant almost everywhere, so its operands have no gradient.
struct selects_values : has_no_gradient {
  static constexpr operator_class meets(const node&, monoid) { return {partial_class::none, every_operand}; }
};

// ---- from a struct to data, and back to the struct ----

/// Returns the kernel (fused_kernel, kernels/fused_kernels.hpp) of an operator that is not listed, for an operand type.
template <class O>
void (*scalar_kernel(dtype type))();

/// Returns 24 bits of the id, the number that the description of a row stores (kernels/fused_row.hpp). It differs from
/// every enumerated opcode.
constexpr std::uint32_t short_id(const operator_code& op) {
  if (op.code != opcode::listed) return static_cast<std::uint32_t>(op.code);
  return (static_cast<std::uint32_t>(op.id ^ op.id >> 24 ^ op.id >> 48) & 0xffffffU) | 0x800000U;
}

#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-template-friend"  // intended: each id has its own function
#endif
template <std::uint32_t Id>
struct operator_with_id {
  friend constexpr auto struct_with_id(operator_with_id);
};
/// Maps the short id to the struct. Two operators with the same name or the same short id define one function twice,
/// which is a compile error.
template <class O, std::uint32_t Id>
struct define_operator {
  friend constexpr auto struct_with_id(operator_with_id<Id>) { return std::type_identity<O>{}; }
  static constexpr bool is_done = true;
};
#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif

template <class O>
constexpr operator_name scalar_name_of() {
  loop_facts f;
  f.operands = static_cast<std::int8_t>(O::operands);
  f.result = O::result;
  f.has_condition = O::has_condition;
  f.ignores_sign = O::ignores_sign;
  f.is_exact = O::is_exact;
  f.work = O::work;
  f.role = O::role;
  f.vectors = O::vectors;
  f.flops = static_cast<std::int16_t>(O::flops);
  f.defined = O::defined;
  f.header = O::kernels.header;
  f.is_listed = O::kernels.is_listed;
  if constexpr (!O::kernels.is_listed) f.kernel = scalar_kernel<O>;
  const operator_name name(O::name, f);
  static_assert(define_operator<O, short_id(operator_code(operator_name(O::name)))>::is_done);
  return name;
}
/// The constant that identifies an elementwise operator in loops and plans.
template <class O>
inline constexpr operator_name scalar_name = scalar_name_of<O>();
template <class O>
inline constexpr scalar_code scalar_code_of{scalar_name<O>};
template <class O>
inline constexpr std::uint64_t operator_id = scalar_name<O>.id;

/// The struct of the operator with this short id.
template <std::uint32_t Id>
using operator_struct = typename decltype(struct_with_id(operator_with_id<Id>{}))::type;
/// Returns the code of the operator with this short id.
template <std::uint32_t Id>
constexpr scalar_code code_with_short_id() {
  if constexpr (Id < enumerated_count) return static_cast<opcode>(Id);
  else return scalar_code_of<operator_struct<Id>>;
}

/// Computes one element of the result.
template <class O, class Out, class... In>
[[gnu::always_inline]] constexpr Out apply(In... x) {
  if constexpr (O::result == element_result::chosen) return O::template value<Out>(x...);
  else return static_cast<Out>(O::value(x...));
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
