// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>

#include "gspmd/detail/ir/elementwise/arithmetic.hpp"
#include "gspmd/detail/ir/elementwise/choice.hpp"
#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/scalar_ops.hpp"
#include "gspmd/detail/support/span.hpp"

namespace gspmd::detail {

/// Returns the error text for a map whose function does not accept `type`, or whose result has another type.
[[gnu::cold]] constexpr text map_problem(const map_function& f, dtype type) {
  if (is_own(type))
    return text("is not defined for ")
           << name_of(type) << ", and the function does not accept this type; let it take and return elements of this type";
  text t("is not defined for ");
  t << name_of(type) << ", which the function does not take or would cut off, only for";
  dtype better = type;
  for (std::size_t i = 0; i < element_type_count; ++i) {
    const auto other = static_cast<dtype>(i);
    if (is_narrow(other) || !accepts(f, other)) continue;
    t << (better == type ? " " : ", ") << name_of(other);
    if (better == type || (type == dtype::s64 && other == dtype::f64)) better = other;
  }
  return t << "; convert the operand, cast<" << cpp_name_of(better) << ">(x), or the result of the function";
}

/// Returns the error text for an operator or a monoid that is not defined for a type. With `for_complex`, it is defined for complex types
/// only.
[[gnu::cold]] constexpr text not_defined_for(dtype type, bool for_complex = false) {
  return text("is not defined for ") << name_of(type)
                                     << (is_own(type)       ? "; map a function that takes it"
                                         : is_complex(type) ? "; take real(x), imag(x) or abs(x)"
                                         : for_complex      ? ", which is real; cast<gspmd::c64>(x)"
                                                            : "; convert the operand");
}

/// The same for a convolution, or a reduction over windows.
[[gnu::cold]] constexpr text not_defined_with_windows(dtype type) {
  return text("is not defined for ") << name_of(type)
                                     << (is_own(type) ? "; write it as a sum of shifted tensors"
                                                      : "; it is linear: write it for real(x) and imag(x)");
}

/// Returns the remedy for different shapes of two operands of an elementwise operator.
///   a * b, [m,k] and [k,n]  a matrix product is matmul(a, b), the einsum `ij,jk->ik`
///   [5] and [4]             slice the longer operand, for example nodes to cells
///   [5] and [9]             correct the extents
///   [4,1] and [4,6], [6] and [4,6]   correct the extents, or use broadcast_in_dim
[[gnu::cold]] constexpr text shape_remedy(bool is_product, const extents& a, const extents& b) {
  if (is_product && a.count == 2 && b.count > 0 && b.count <= 2 && a[1] == b[0])
    return text("; a matrix product is matmul(a, b), the einsum `") << (b.count == 2 ? "ij,jk->ik`" : "ij,j->i`");
  bool is_near = true, may_repeat = a.count != b.count;
  for (int d = 0; d < a.count && !may_repeat; ++d) {
    may_repeat = a[d] != b[d] && (a[d] == 1 || b[d] == 1);
    is_near = is_near && a[d] - b[d] <= 2 && b[d] - a[d] <= 2;
  }
  if (may_repeat) return text("; correct the extents, or use broadcast_in_dim");
  return text(is_near ? "; slice the longer operand, or correct the extents" : "; correct the extents");
}

/// Adds an elementwise operator. The operands have the same shape. Operands and result have the same type, except for compare (the result
/// is pred), select (the first operand is pred) and convert (the result is `to`).
constexpr int add_elementwise(graph& g, const operator_code& op, span<const int> operands, location at, dtype to = dtype::f32,
                              const map_function* function = nullptr) {
  node n;
  n.op = op;
  n.at = at;
  n.function = function;
  for (const int o : operands) {
    if (o < 0) return -1;
    n.operands.push_back(o);
  }
  const int first_value = op.loop().has_condition ? 1 : 0;
  const node& model = g.nodes[static_cast<std::size_t>(n.operands[first_value])];
  const dtype in = model.type;
  n.shape = model.shape;
  n.type = result_type(op, in, to);
  for (int k = 0; k < n.operands.count; ++k) {
    const node& o = g.nodes[static_cast<std::size_t>(n.operands[k])];
    if (!(o.shape == n.shape))
      return g.fail(at, name_of(op), mistake::extent,
                    text("operand ") << k << " is " << shape_text(o.shape) << " and operand " << first_value << " is "
                                     << shape_text(n.shape) << differing_dim_text(o.shape, n.shape)
                                     << shape_remedy(op == scalar_code_of<multiply_op>, n.shape, o.shape));
    const dtype wanted = op.loop().has_condition && k == 0 ? dtype::pred : in;
    if (o.type != wanted)
      return g.fail(at, name_of(op), mistake::type,
                    text("operand ") << k << " is " << name_of(o.type) << " and must be " << name_of(wanted) << "; convert it");
  }
  const bool defined = op == scalar_code_of<map_op> ? accepts(*function, in) : is_defined(op, in);
  if (!defined && op == scalar_code_of<map_op>) return g.fail(at, name_of(op), mistake::number, map_problem(*function, in));
  if (!defined)
    return g.fail(at, name_of(op), mistake::type, not_defined_for(in, is_defined(op, dtype::c64) && !is_defined(op, dtype::f32)));
  if (op == scalar_code_of<cast_op> && is_complex(in) && !is_complex(to))
    return g.fail(at, name_of(op), mistake::type,
                  text("of ") << name_of(in) << " to " << name_of(to) << " would lose a part; take real(x), imag(x) or abs(x)");
  if (op == scalar_code_of<cast_op> && is_floating(in) && is_floating(to)) {
    const bool is_widened = bytes_of(part_of(to)) > bytes_of(part_of(in)) || part_of(to) == part_of(in);
    n.integer = is_widened || g.is_in_call ? cast_op::linear : cast_op::linear_in_gradient;
  }
  return bytes_of(n.type) > bytes_of(in) ? g.add_sized(n) : g.add(n);
}

constexpr int add_elementwise(graph& g, const operator_code& op, std::initializer_list<int> operands, location at,
                              dtype to = dtype::f32, const map_function* function = nullptr) {
  return add_elementwise(g, op, span<const int>(operands.begin(), operands.size()), at, to, function);
}

}  // namespace gspmd::detail
