// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "gspmd/detail/ir/elementwise/list.hpp"
#include "gspmd/detail/ops/elementwise_node.hpp"
#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/support/mp11.hpp"
#include "gspmd/detail/support/saturating.hpp"

/// The facts of elementwise operators for the planner.
namespace gspmd::detail {

/// The facts that all elementwise operators share. Each element of the result is computed from the same element of the
/// operands. Operands and result have one sharding, so no data is sent. Several operators become one loop.
struct elementwise_op : same_dims, without_exchange, without_movements, reads_shards, dims_by_number, names_no_dims {
  static constexpr const char* name = "elementwise";
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::loop;
  static constexpr completion_rounds completes{.forward = 0, .backward = 0};
  static constexpr replication_words replication = ordinary_replication;

  static constexpr int reads(const node& n) { return n.operands.count; }
  /// A conversion changes the width, so its operand may be cheaper to move than its result.
  static constexpr bool is_made_again(const node& n) {
    return n.op.loop().result == element_result::chosen && n.integer != cast_op::widened_term;
  }
  static constexpr bool may_go_round_ring(const node&) { return false; }
  static constexpr std::int64_t flops(const graph& g, const mesh_shape&, const local_program& p, const instruction& op) {
    const std::int64_t each = g.nodes[static_cast<std::size_t>(op.node)].op.loop().flops;
    return saturating_multiply(saturating_elements(p.value(op.result).local), each);
  }
  static constexpr scalar_op in_loop(const graph& g, const node& n);
  static constexpr dim_places lies_along(const graph&, const node&) { return {}; }
  static constexpr void lower(lowering&, const instruction&) {}
  static void describe(std::string&, const plan_view&, const plan_step*) {}

  // replaced by the facts of each operator
  static constexpr operator_class meets(const node&, monoid) { return {}; }
  static constexpr void gradient(gradient_builder&, const node&) {}
};

/// An element of the first type in a set (dtype_set). The concept below calls `value` with it.
template <std::uint32_t Types>
using first_element = boost::mp11::mp_at_c<element_types, std::countr_zero(Types | 1U << (element_type_count - 1))>;
template <class O>
concept computes_value = requires(first_element<O::defined.types> x) {
  requires O::operands == 1;
  O::value(x);
} || requires(first_element<O::defined.types> x) {
  requires O::operands == 1 && O::result == element_result::chosen;
  O::template value<float>(x);
} || requires(first_element<O::defined.types> x) {
  requires O::operands == 2;
  O::value(x, x);
} || requires(first_element<O::defined.types> x) {
  requires O::operands == 3 && O::has_condition;
  O::value(true, x, x);
} || requires { requires O::operands == loop_facts::any_number; };

// clang-format off
/// A struct that states all facts of an elementwise operator (ir/elementwise/facts.hpp).
template <class O>
concept complete_elementwise = requires(const node& n, gradient_builder& b) {
  requires std::same_as<decltype(O::name), const char* const>;
  requires std::same_as<decltype(O::operands), const int>;
  requires std::same_as<decltype(O::has_condition), const bool>;
  requires std::same_as<decltype(O::defined), const dtype_set>;
  requires std::same_as<decltype(O::result), const element_result>;
  requires std::same_as<decltype(O::is_exact), const bool>;
  requires std::same_as<decltype(O::folds), const folding>;
  requires std::same_as<decltype(O::neutral), const neutral_operand>;
  requires std::same_as<decltype(O::work), const loop_facts::work_class>;
  requires std::same_as<decltype(O::role), const loop_facts::role_class>;
  requires std::same_as<decltype(O::vectors), const loop_facts::vector_class>;
  requires std::same_as<decltype(O::ignores_sign), const bool>;
  requires std::same_as<decltype(O::flops), const int>;
  requires std::same_as<decltype(O::kernels), const kernel_home>;
  requires computes_value<O>;
  { O::meets(n, monoid::add) } -> std::same_as<operator_class>;
  { O::gradient(b, n) } -> std::same_as<void>;
};
// clang-format on

/// Functions that compute results while planning (compositions/folded_nodes.hpp).
struct folded_values {
  double (*real)(double, double) = nullptr;                       // folding::numbers and floats_unless_by_zero
  std::uint64_t (*bits)(std::uint64_t, std::uint64_t) = nullptr;  // folding::numbers and integers
  bool (*compared)(std::int64_t order) = nullptr;                 // comparisons; `order` has the sign of a - b
};
template <class O, class T>
constexpr T folded_value(T a, [[maybe_unused]] T b) {
  if constexpr (O::result == element_result::chosen) return a;
  else if constexpr (O::operands == 1) return O::value(a);
  else return O::value(a, b);
}
template <class O>
constexpr bool folded_comparison(std::int64_t order) {
  return O::value(order, std::int64_t{0});
}

/// Requires all facts of an elementwise operator.
template <class O>
constexpr void require_complete() {
  static_assert(complete_elementwise<O>,
                "gspmd: an elementwise operator states every fact of gspmd/detail/ir/elementwise/facts.hpp: the one named below "
                "is missing");
}

/// The facts of an elementwise operator in a graph: the facts that all such operators share, and its own.
struct elementwise_facts : operator_facts {
  folding folds = folding::never;
  neutral_operand neutral;
  folded_values folded;

  constexpr elementwise_facts() = default;
  template <class O>
  constexpr explicit elementwise_facts(std::type_identity<O>) : operator_facts(facts_for<elementwise_op>) {
    if constexpr (complete_elementwise<O>) set<O>();
    else require_complete<O>();
  }

 private:
  template <class O>
  constexpr void set() {
    static_assert(O::kernels.is_listed == boost::mp11::mp_set_contains<listed_elementwise, O>::value,
                  "gspmd: the fact `kernels` of an elementwise operator is library_kernels for the operators of "
                  "ir/elementwise/list.hpp, and kernels_of_program(...) for all others");
    static_assert(
        O::folds == folding::never || O::is_exact,
        "gspmd: the planner computes results of an elementwise operator (`folds`), whose `is_exact` is false: a folded result "
        "could differ from a computed one; write folding::never");
    static_assert((!O::neutral.left && !O::neutral.right) || (O::operands == 2 && O::result == element_result::same),
                  "gspmd: an elementwise operator with a `neutral` number has two operands, and its result has their type");
    static_assert(O::has_condition == (O::operands == 3), "gspmd: an elementwise operator of three operands has a condition");
    static_cast<operator_name&>(*this) = scalar_name<O>;
    in_plan = &scalar_name<O>;
    meets = O::meets;
    gradient = O::gradient;
    folds = O::folds;
    neutral = O::neutral;
    if constexpr (O::folds != folding::never && O::result == element_result::truth) {
      folded.compared = folded_comparison<O>;
    } else {
      if constexpr (O::folds == folding::numbers || O::folds == folding::floats_unless_by_zero)
        folded.real = folded_value<O, double>;
      if constexpr (O::folds == folding::numbers || O::folds == folding::integers) folded.bits = folded_value<O, std::uint64_t>;
    }
  }
};
elementwise_facts type_of_facts(const elementwise_struct*);

/// Returns the facts of the operator of an elementwise node.
constexpr const elementwise_facts& elementwise_facts_of(const operator_code& op) {
  return static_cast<const elementwise_facts&>(*op.listed);
}

constexpr scalar_op elementwise_op::in_loop(const graph& g, const node& n) {
  scalar_op s;
  s.op = scalar_code(*elementwise_facts_of(n.op).in_plan);
  s.type = n.type;
  s.operand_type = operand_of(g, n, n.op.loop().has_condition ? 1 : 0).type;
  s.function = n.function;
  return s;
}

}  // namespace gspmd::detail

#include "gspmd/detail/ops/gradient_builder.hpp"  // the facts of an operator include its gradient
