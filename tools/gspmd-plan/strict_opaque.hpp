// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "operators.hpp"

/// Stand-ins for functions for which a document states only the class.
namespace plan_tool {

/// Returns n elements: the elements of a value, row-major, repeated as necessary; zeros if the value is empty.
inline value cycled(value x, dtype type, std::int64_t n, gspmd::location at) {
  std::int64_t size = 1;
  for (const auto e : x.shape()) size *= e;
  value all = gspmd::reshape(x, integer_list{size}, at);
  if (size == 0 && n > 0) {
    all = gspmd::pad(all, integer_list{0}, integer_list{n}, 0, {}, at);
  } else if (size < n) {
    const auto times = (n + size - 1) / size;
    all = gspmd::reshape(gspmd::broadcast_in_dim(all, integer_list{times, size}, integer_list{1}, at), integer_list{times * size},
                         at);
  }
  all = gspmd::slice(all, integer_list{0}, integer_list{n}, {}, at);
  return type == x.type() ? all : gspmd::cast(all, type, at);
}

/// Builds a stand-in of the same class for an opaque function. Element i is computed from element i, modulo the number
/// of elements, of each operand. A linear function is their sum, a multilinear one their product, and any other the sum
/// of their magnitudes.
inline value build_opaque(gspmd::dynamic::builder& b, object_reader& attrs, const std::vector<value>& operands,
                          gspmd::location at) {
  const auto type = read_dtype(attrs);
  const auto shape = read_shape(attrs, type.value_or(dtype::f32));
  const auto* word = attrs.find("class");
  if (!type || !shape) return {};
  const bool is_multilinear = word != nullptr && *word == "multilinear", is_linear = word != nullptr && *word == "linear";
  std::int64_t n = 1;
  for (const auto e : *shape) n *= e;
  value made;
  for (const auto x : operands) {
    value own = cycled(x, *type, n, at);
    if (!is_linear && !is_multilinear && *type != dtype::pred && !gspmd::is_complex(*type))
      own = gspmd::elementwise("abs", std::vector<value>{own}, at);
    const char* by = *type == dtype::pred ? "or" : is_multilinear ? "multiply" : "add";
    made = made.is_valid() ? gspmd::elementwise(by, std::vector<value>{made, own}, at) : own;
  }
  if (!made.is_valid()) return b.constant(*type, *shape, 0.0, at);
  return gspmd::reshape(made, *shape, at);
}

}  // namespace plan_tool
