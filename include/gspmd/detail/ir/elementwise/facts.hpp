// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "gspmd/detail/ir/meet.hpp"
#include "gspmd/detail/ir/opcode.hpp"
#include "gspmd/detail/support/target.hpp"

/// The facts that the struct of an elementwise operator states, and names for facts that many operators share. Nothing has a default:
/// `complete_elementwise` (ops/elementwise.hpp) refuses a struct that leaves a fact out. To write an operator, see docs/extending.md.
namespace gspmd::detail {
struct node;
class gradient_builder;
inline namespace GSPMD_TARGET {

// clang-format off
/// The facts, one line each:
///
///   name                  the name in messages, StableHLO's if it has one
///   operands              the number of operands
///   has_condition         operand 0 is pred; the others have the type of the result
///   defined               the element types of the operands (defined_for)
///   result                the type of the result
///   value(x...)           the value for one element, for every type T that kernels compute with; it is total and has no branch, so that
///                         compilers vectorise its loop
///   is_exact              `value` consists of correctly rounded operations, so the bits do not depend on the instruction set
///   folds, neutral        which results the planner computes if the operands are numbers, and which number gives the other operand
///   work, role, vectors   see loop_facts
///   ignores_sign          unsigned integers have the bits that signed integers of their width have
///   flops                 per element
///   kernels               the place of its kernels for programs that are planned at run time
///   meets(n, monoid)      the class for operands that are partial by `monoid` (ir/meet.hpp)
///   gradient(b, n)        sends the operands their gradients; a struct states it too if there is none
// clang-format on

/// Every struct of an elementwise operator has this base.
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

/// The results that the planner computes if all operands are numbers: by value<double>, which rounds once more to float, and by
/// value<uint64_t>, whose low bits are those of every integer type.
enum class folding : std::uint8_t { never, floats_unless_by_zero, integers, numbers };

/// The number that makes the result equal to the other operand: on the left, on the right.
struct neutral_operand {
  bool left = false, right = false;
  double real = 0;  // of floats; 0.0 and -0.0 differ
  std::int64_t integer = 0;
};

/// Where the kernels of an operator are for programs that are planned at run time.
struct kernel_home {
  bool is_listed = false;  // in the library: an entry of listed_elementwise (ir/elementwise/list.hpp)
  /// The header of the operator, below the include directory of gspmd, for loops that are compiled at run time. Empty: these loops are
  /// interpreted.
  const char* header = "";
};
inline constexpr kernel_home library_kernels{true, ""};
/// The program that uses the operator contains its kernels.
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
struct needs_function {
  static constexpr loop_facts::work_class work = loop_facts::work_class::function;
};
struct any_role {
  static constexpr loop_facts::role_class role = loop_facts::role_class::other;
};
struct vectorised_everywhere {
  static constexpr loop_facts::vector_class vectors = loop_facts::vector_class::any_loop;
};
/// One operation for each element, whatever the function: prices of plans count the elements that are visited.
struct one_flop {
  static constexpr int flops = 1;
};
struct regards_sign {
  static constexpr bool ignores_sign = false;
};
/// A function of one number: it keeps the type and is computed where the program runs.
struct one_function : listed_operator,
                      keeps_type,
                      not_folded,
                      needs_function,
                      any_role,
                      vectorised_everywhere,
                      one_flop,
                      regards_sign {
  static constexpr int operands = 1;
};

/// The result of partial operands is not partial.
struct reduces_operands {
  static constexpr operator_class meets(const auto&, monoid) { return {}; }
};
constexpr bool is_order(monoid kind) { return kind == monoid::maximum || kind == monoid::minimum; }
constexpr operator_class all_if(bool holds) { return {holds ? partial_class::all : partial_class::none}; }
/// Grows with its operand, and has a value for the identities of maximum and minimum.
struct grows_with_operand {
  static constexpr operator_class meets(const auto&, monoid kind) { return all_if(is_order(kind)); }
};
struct has_no_gradient {
  static constexpr void gradient(gradient_builder&, const node&) {}
};
/// Constant almost everywhere.
struct selects_values : has_no_gradient {
  static constexpr operator_class meets(const auto&, monoid) { return {partial_class::none, every_operand}; }
};

// ---- from a struct to data, and back to the struct ----

/// Finds the kernel of an operator that is not listed, by the type of its operands: a fused_kernel (kernels/fused_kernels.hpp).
template <class O>
void (*scalar_kernel(dtype type))();

/// A part of the id that fits the description of a row (kernels/fused_row.hpp), and differs from each opcode.
constexpr std::uint32_t short_id(const operator_code& op) {
  if (op.code != opcode::listed) return static_cast<std::uint32_t>(op.code);
  return (static_cast<std::uint32_t>(op.id ^ op.id >> 24 ^ op.id >> 48) & 0xffffffU) | 0x800000U;
}

#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-template-friend"  // each id has a function of its own, by intent
#endif
template <std::uint32_t Id>
struct operator_with_id {
  friend constexpr auto struct_with_id(operator_with_id);
};
/// Two operators that have one name, or by chance one short id, define this function twice, which does not compile.
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
/// An elementwise operator as loops identify it.
template <class O>
inline constexpr operator_name scalar_name = scalar_name_of<O>();
template <class O>
inline constexpr scalar_code scalar_code_of{scalar_name<O>};
template <class O>
inline constexpr std::uint64_t operator_id = scalar_name<O>.id;

/// The struct of the operator with a short id.
template <std::uint32_t Id>
using operator_struct = typename decltype(struct_with_id(operator_with_id<Id>{}))::type;
/// The operator with a short id, in a loop.
template <std::uint32_t Id>
constexpr scalar_code code_with_short_id() {
  if constexpr (Id < enumerated_count) return static_cast<opcode>(Id);
  else return scalar_code_of<operator_struct<Id>>;
}

/// One element of the result.
template <class O, class Out, class... In>
[[gnu::always_inline]] constexpr Out apply(In... x) {
  if constexpr (O::result == element_result::chosen) return O::template value<Out>(x...);
  else return static_cast<Out>(O::value(x...));
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
