// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/elementwise_node.hpp"
#include "gspmd/detail/support/mp11.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/error.hpp"
#include "gspmd/program/dtype.hpp"
#include "gspmd/program/program.hpp"

/// Operators whose names or types are known at run time, for programs that are read from a file.
namespace gspmd {

/// An elementwise operator and its number of operands. Names are those of `explain`: the name of the function, if it
/// exists.
struct elementwise_operator {
  std::string_view name;
  int operands = 0;
  detail::operator_code op = {};
};

/// Returns the operators that elementwise() accepts. A comparison is `compare_lt`.
inline std::vector<elementwise_operator> elementwise_operators() {
  std::vector<elementwise_operator> result;
  boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, detail::listed_elementwise>>(
      [&]<class O>(std::type_identity<O>) {
        constexpr bool is_of_arguments_alone = O::operands > 0 && O::result != detail::element_result::chosen;
        if constexpr (is_of_arguments_alone) result.push_back({O::name, O::operands, detail::code_of<O>});
      });
  return result;
}

/// Returns the result of the elementwise operator with this name. All operands have one shape; there is no
/// broadcasting.
///
/// **Errors.** gspmd::error at the call if `operands` is empty. When the program is compiled, if the operator does not
/// exist, or if the number of operands, their shapes or their types are wrong.
/// **Example.**
///
///     auto y = elementwise("add", std::array{a, b});
inline value elementwise(std::string_view name, detail::span<const value> operands, location at = location::current()) {
  if (operands.empty()) throw error("elementwise: an operator has operands");
  for (const auto& x : operands)
    if (!x.is_valid()) return {};
  auto& g = *operands.front().graph();
  const auto known = elementwise_operators();
  const auto it = std::find_if(known.begin(), known.end(), [&](const auto& k) { return k.name == name; });
  if (it == known.end() || operands.size() != static_cast<std::size_t>(it->operands)) {
    detail::text what("there is no such elementwise operator");
    if (it != known.end())
      what = detail::text("takes ") << it->operands << " operands, and there are " << static_cast<std::int64_t>(operands.size());
    return detail::made(g.fail(at, name, detail::mistake::operand_count, what), operands.front());
  }
  std::vector<int> ids;
  for (const auto& x : operands) ids.push_back(x.graph() == &g ? x.id() : -1);
  const int id = detail::add_elementwise(g, it->op, ids, at);
  const dtype type = operands.back().type();
  return detail::made(g, id, detail::result_type(it->op, type, type), operands.front().shape());
}

/// Returns the elements as another type. Floats saturate to integers, and NaN becomes 0.
inline value cast(value x, dtype to, location at = location::current()) {
  if (!x.is_valid()) return {};
  const int id = x.id();
  return detail::made(
      *x.graph(), detail::add_elementwise(*x.graph(), detail::code_of<detail::cast_op>, detail::span<const int>(&id, 1), at, to),
      to, x.shape());
}

}  // namespace gspmd
