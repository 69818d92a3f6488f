// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/rule.hpp"
#include "gspmd/detail/ops/elementwise.hpp"

namespace gspmd::detail {

constexpr node source(opcode op, dtype type, const extents& shape, location at) {
  node n;
  n.op = op;
  n.type = type;
  n.shape = shape;
  n.at = at;
  return n;
}

/// Adds an input of the program.
constexpr int add_parameter(graph& g, dtype type, const extents& shape, location at) {
  const int id = g.add(source(opcode::parameter, type, shape, at));
  g.inputs.push_back(id);
  return id;
}

/// False for NaN, infinities and what lies beyond all integers.
template <class Number>
constexpr bool has_integer(Number n) {
  if constexpr (std::is_floating_point_v<Number>) return n > static_cast<Number>(-9.2e18) && n < static_cast<Number>(9.2e18);
  else return true;
}
/// The integer that a number stands for among integers, cut off; 0 if there is none.
template <class Number>
constexpr std::int64_t integer_of(Number n) {
  return has_integer(n) ? static_cast<std::int64_t>(n) : 0;
}

/// Adds a tensor whose every element is the same number.
constexpr int add_constant(graph& g, dtype type, const extents& shape, double real, std::int64_t integer, location at) {
  node n = source(opcode::constant, type, shape, at);
  n.real = real;
  n.integer = integer;
  return g.add(n);
}

/// Adds a tensor whose elements are their global index along `dim` (F35).
constexpr int add_iota(graph& g, dtype type, const extents& shape, int dim, location at) {
  if (dim < 0 || dim >= shape.count)
    return g.fail(at, "iota", mistake::dim,
                  text("dim ") << dim << " is not a dim of " << shape_text(shape) << "; dims count from 0");
  if (type == dtype::pred) return g.fail(at, "iota", mistake::type, "is not defined for pred; use a number type");
  node n = source(opcode::iota, type, shape, at);
  n.attributes.push_back(static_cast<std::int8_t>(dim));
  return g.add(n);
}

}  // namespace gspmd::detail
