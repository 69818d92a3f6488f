// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "gspmd/dynamic/builder.hpp"
#include "gspmd/program/tree.hpp"

namespace gspmd::detail {

/// Names the inputs that are members of structs after the members, as a `record` does.
template <class Tree>
void name_members(dynamic::builder& b, const Tree& tree) {
  if constexpr (is_list<Tree>) {
    for (const auto& each : tree) name_members(b, each);
  } else if constexpr (!is_leaf<Tree>) {
    [&]<std::size_t... K>(std::index_sequence<K...>) {
      const auto one = [&]<std::size_t P>(std::integral_constant<std::size_t, P>) {
        const auto& member = part<P>(tree);
        if constexpr (!std::is_same_v<part_type<P, Tree>, value>) name_members(b, member);
        else if constexpr (user_struct<Tree>) b.name(member, struct_members<Tree>::template name<P>);
      };
      (one(std::integral_constant<std::size_t, K>{}), ...);
    }(std::make_index_sequence<part_count<Tree>()>{});
  }
}

}  // namespace gspmd::detail

namespace gspmd::dynamic {

/// Adds an input for each member of a group, in order, and returns a group of the same form with values.
///
/// A group is a struct, an array, a vector or a tuple, and groups can be nested. The names of a struct's members become
/// the names of the inputs.
///
/// **Example.**
///
///     const std::vector<layer<dynamic::input_spec>> layers{
///         {dynamic::input<float>({n, n}), dynamic::input<float>({n})}};
///     const auto w = dynamic::inputs(b, layers);
template <class Tree>
auto inputs(builder& b, const Tree& tree) {
  auto made = transform_leaves([&b](const input_spec& i) { return b.input(i, location::input(b.input_count())); }, tree);
  detail::name_members(b, made);
  return made;
}

/// Makes all values of a group outputs, in order, for example those of an optimizer's update.
template <class Tree>
void outputs(builder& b, Tree tree, location at = location::current()) {
  detail::for_each_leaf(tree, [&](const value& v) { b.output(v, at); });
}

}  // namespace gspmd::dynamic
