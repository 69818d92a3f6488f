// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/dynamic/builder.hpp"
#include "gspmd/tree.hpp"

namespace gspmd::dynamic {

/// Inputs for a group of them, in order: the same group of values. A group is a struct declared with Hana, an array, a vector, a tuple, or one
/// of these in another.
///
///     const auto w = dynamic::inputs(b, std::vector<layer<dynamic::input>>{{dynamic::in<float>({n, n}), dynamic::in<float>({n})}});
template <class Tree>
auto inputs(builder& b, const Tree& tree) {
  return transform_leaves([&b](const input& i) { return b.input(i, location::input(b.input_count())); }, tree);
}

/// Makes all values of a group outputs, in order; that of an optimizer's update, say.
template <class Tree>
void outputs(builder& b, Tree tree, location at = location::current()) {
  detail::for_each_leaf(tree, [&](const value& v) { b.output(v, at); });
}

}  // namespace gspmd::dynamic
