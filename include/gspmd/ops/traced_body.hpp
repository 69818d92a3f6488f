// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <vector>

#include "gspmd/detail/ops/regions.hpp"
#include "gspmd/program/program.hpp"
#include "gspmd/program/tree.hpp"

namespace gspmd::detail {

/// Returns the program of all leaves, or null if a leaf was refused.
template <class... Trees>
constexpr graph* graph_of(const Trees&... trees) {
  graph* g = nullptr;
  bool valid = true;
  const auto look = [&](const value& v) {
    valid = valid && v.is_valid();
    g = v.graph();
  };
  (for_each_leaf(trees, look), ...);
  return valid ? g : nullptr;
}
/// True for a value, a group of values, a std::vector of values, or a tuple whose elements are values or groups.
template <class Tree>
inline constexpr bool is_values = is_tree_of<Tree, value>() || std::is_same_v<Tree, std::vector<value>>;
template <class... Trees>
inline constexpr bool is_values<std::tuple<Trees...>> = (is_values<Trees> && ...);

/// Returns the result of a refused loop: carried values unchanged, and an invalid value for anything else.
template <class Tree>
constexpr auto unlooped_part(const Tree& tree) {
  if constexpr (is_values<Tree>) {
    for_each_leaf(tree, [](const value& v) { v.note_refused(); });
    return tree;
  } else {
    return value(nullptr, reported_id);
  }
}
template <class... Trees>
constexpr auto unlooped(const Trees&... trees) {
  std::tuple<decltype(unlooped_part(trees))...> result{unlooped_part(trees)...};
  if constexpr (sizeof...(Trees) == 1) return std::get<0>(result);
  else return result;
}
/// True if `Next`, the result of a body, has the type of the carried values.
template <class Next, class... Carry>
inline constexpr bool is_carried =
    std::is_same_v<Next, std::tuple<Carry...>> || std::is_same_v<std::tuple<Next>, std::tuple<Carry...>>;
template <class Tree>
constexpr constant_vector<value> leaves_of(const Tree& tree) {
  constant_vector<value> list;
  for_each_leaf(tree, [&list](const value& v) { list.push_back(v); });
  return list;
}

/// Refuses the results of a body if their number, types or shapes differ from `wanted`. Returns true if the program
/// has no error.
constexpr bool check_body(graph& g, const char* op, location at, const constant_vector<value>& wanted,
                          const constant_vector<value>& given, const char* what) {
  if (given.size() != wanted.size())
    g.fail(at, op, mistake::region,
           text("the body gives ") << static_cast<int>(given.size()) << " values where " << static_cast<int>(wanted.size())
                                   << " are required; return one for each carried value, or for each result of the other body");
  for (std::size_t k = 0; k < given.size() && !g.failed(); ++k) {
    const value& a = wanted[k];
    const value& b = given[k];
    if (!b.is_valid() || b.graph() != &g || !g.is_visible(b.id()))
      g.fail(at, op, mistake::region,
             text("result ") << static_cast<int>(k) << " of the body is no value of this program that the body may use");
    else if (a.type() != b.type() || !(a.shape() == b.shape()))
      g.fail(at, op, mistake::region,
             text("result ") << static_cast<int>(k) << " of the body is " << name_of(b.type()) << shape_text(b.shape()) << " and "
                             << what << " is " << name_of(a.type()) << shape_text(a.shape())
                             << "; they must have one type and shape");
  }
  return !g.failed();
}

/// A loop under construction. Its user opens the loop, traces the body, and closes it.
struct open_body {
  graph& g;
  int loop;
  const char* name;
  location at;

  template <class Tree>
  constexpr Tree carry(Tree tree) const {
    for_each_leaf(tree, [this](value& v) { v = {&g, add_carry(g, v.id(), at)}; });
    return tree;
  }
  /// Returns the values of the carried values after the loop. `next` is the result of the body.
  template <class Tree>
  constexpr Tree close(const Tree& carried, const Tree& next) const {
    const auto from = leaves_of(carried);
    const auto to = leaves_of(next);
    Tree results = carried;
    const bool fits = check_body(g, name, at, from, to, "the carried value");
    std::size_t k = 0;
    for_each_leaf(results, [&](value& v) {
      if (fits) v = {&g, add_loop_result(g, from[k].id(), to[k].id(), at)};
      ++k;
    });
    return results;
  }
};

}  // namespace gspmd::detail
