// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/hana/accessors.hpp>
#include <boost/hana/at.hpp>
#include <boost/hana/concept/struct.hpp>
#include <boost/hana/define_struct.hpp>
#include <boost/hana/first.hpp>
#include <boost/hana/for_each.hpp>
#include <boost/hana/integral_constant.hpp>
#include <boost/hana/length.hpp>
#include <boost/hana/second.hpp>

#include "gspmd/detail/ir/types.hpp"

/// Groups of values: std::tuple, std::pair, std::array, where their number is known at run time only std::vector, and a user's own struct
/// declared with Hana,
///
///     template <class T> struct weights { BOOST_HANA_DEFINE_STRUCT(weights, (T, w1), (T, b1), (T, w2), (T, b2)); };
///
/// which a program takes and returns as weights<value>, and whose arrays stand in weights<array<float>>.
namespace gspmd::detail {

template <class T>
inline constexpr bool is_number = std::is_arithmetic_v<T> || is_element<T>;

template <class T>
inline constexpr bool is_tuple = false;
template <class... Ts>
inline constexpr bool is_tuple<std::tuple<Ts...>> = true;
template <class A, class B>
inline constexpr bool is_tuple<std::pair<A, B>> = true;
template <class T, std::size_t N>
inline constexpr bool is_tuple<std::array<T, N>> = !is_number<T>;  // an array of numbers is a buffer

template <class T>
inline constexpr bool is_list = false;
template <class T>
inline constexpr bool is_list<std::vector<T>> = !is_number<T>;

template <class T> concept user_struct = boost::hana::Struct<T>::value;

/// Calls `f` with every leaf of a tree, in order; what is no group is a leaf.
template <class Tree, class F>
constexpr void for_each_leaf(Tree& tree, F&& f) {
  using plain = std::remove_cv_t<Tree>;
  if constexpr (is_tuple<plain>) {
    std::apply([&f](auto&... parts) { (for_each_leaf(parts, f), ...); }, tree);
  } else if constexpr (is_list<plain>) {
    for (auto& part : tree) for_each_leaf(part, f);
  } else if constexpr (user_struct<plain>) {
    boost::hana::for_each(boost::hana::accessors<plain>(), [&](auto accessor) {
      for_each_leaf(
          const_cast<
              std::conditional_t<std::is_const_v<Tree>, const std::remove_cvref_t<decltype(boost::hana::second(accessor)(tree))>,
                                 std::remove_cvref_t<decltype(boost::hana::second(accessor)(tree))>>&>(
              boost::hana::second(accessor)(tree)),
          f);
    });
  } else {
    f(tree);
  }
}

/// The number of leaves of a tree.
template <class Tree>
constexpr std::size_t leaf_count();

/// The number of leaves before part `K` of a tuple.
template <class Tuple, std::size_t K>
constexpr std::size_t leaves_before() {
  return []<std::size_t... I>(std::index_sequence<I...>) {
    return (std::size_t{0} + ... + leaf_count<std::tuple_element_t<I, Tuple>>());
  }(std::make_index_sequence<K>{});
}

template <class Tree>
constexpr std::size_t leaf_count() {
  if constexpr (is_tuple<Tree>) {
    return leaves_before<Tree, std::tuple_size_v<Tree>>();
  } else if constexpr (user_struct<Tree>) {
    return decltype(boost::hana::length(boost::hana::accessors<Tree>()))::value;
  } else {
    return 1;
  }
}

/// The same group with other leaves: rebind<weights<value>, array<float>> is weights<array<float>>.
template <class Tree, class Leaf>
struct rebind_tree {
  using type = Leaf;
};
template <template <class> class Struct, class T, class Leaf>
  requires user_struct<Struct<T>>
struct rebind_tree<Struct<T>, Leaf> {
  using type = Struct<Leaf>;
};

/// The type of a group like `Tree` of other parts, given as a tuple.
template <class Tree, class Parts>
struct regrouped;
template <class... Ts, class... Parts>
struct regrouped<std::tuple<Ts...>, std::tuple<Parts...>> {
  using type = std::tuple<Parts...>;
};
template <class A, class B, class First, class Second>
struct regrouped<std::pair<A, B>, std::tuple<First, Second>> {
  using type = std::pair<First, Second>;
};
template <class T, std::size_t N, class Part, class... Rest>
struct regrouped<std::array<T, N>, std::tuple<Part, Rest...>> {
  using type = std::array<Part, N>;
};
template <template <class> class Struct, class T, class Part, class... Rest>
  requires user_struct<Struct<T>>
struct regrouped<Struct<T>, std::tuple<Part, Rest...>> {
  static_assert((std::is_same_v<Part, Rest> && ...), "gspmd: transform_leaves: the members of a struct must get one type");
  using type = Struct<Part>;
};

/// Part `K` of a tuple or of a user's struct.
template <std::size_t K, class Tree>
constexpr auto& part(Tree& tree) {
  using plain = std::remove_cv_t<Tree>;
  if constexpr (is_tuple<plain>) {
    return std::get<K>(tree);
  } else {
    const auto member = boost::hana::second(boost::hana::at_c<K>(boost::hana::accessors<plain>()));
    if constexpr (std::is_const_v<Tree>) return std::as_const(member(const_cast<plain&>(tree)));
    else return member(tree);
  }
}

template <class Tree>
inline constexpr bool is_leaf = !is_tuple<Tree> && !user_struct<Tree>;

/// The number of leaves before part `K` of a tuple or of a user's struct.
template <class Tree, std::size_t K>
constexpr std::size_t parts_before() {
  if constexpr (is_tuple<Tree>) return leaves_before<Tree, K>();
  else return K;
}

template <class Tree>
constexpr std::size_t part_count() {
  if constexpr (is_tuple<Tree>) return std::tuple_size_v<Tree>;
  else return decltype(boost::hana::length(boost::hana::accessors<Tree>()))::value;
}

template <std::size_t K, class Tree>
using part_type = std::remove_cvref_t<decltype(part<K>(std::declval<Tree&>()))>;

/// True for a Leaf and for groups of them; true for a group whose parts are all leaves.
template <class Tree, class Leaf>
consteval bool is_tree_of() {
  if constexpr (std::is_same_v<Tree, Leaf>) {
    return true;
  } else if constexpr (std::is_void_v<Tree>) {
    return false;
  } else if constexpr (is_leaf<Tree>) {
    return false;
  } else {
    return []<std::size_t... K>(std::index_sequence<K...>) {
      return (is_tree_of<part_type<K, Tree>, Leaf>() && ...);
    }(std::make_index_sequence<part_count<Tree>()>{});
  }
}
template <class Tree, class Leaf>
consteval bool has_members_of() {
  return []<std::size_t... K>(std::index_sequence<K...>) {
    return (std::is_same_v<part_type<K, Tree>, Leaf> && ...);
  }(std::make_index_sequence<part_count<Tree>()>{});
}

/// transform_leaves with the number of the leaf, counted from `First`, before the leaves: f(integral_constant, a, b, ...).
template <std::size_t First, class F, class Tree, class... Trees>
constexpr auto with_leaf_numbers(F&& f, const Tree& first, const Trees&... rest) {
  if constexpr (is_leaf<Tree>) {
    static_assert((is_leaf<Trees> && ...), "gspmd: transform_leaves: the groups must have the same form");
    return f(std::integral_constant<std::size_t, First>{}, first, rest...);
  } else {
    static_assert(((!is_leaf<Trees> && part_count<Trees>() == part_count<Tree>()) && ...),
                  "gspmd: transform_leaves: the groups must have the same form");
    const auto at = [&]<std::size_t K>(std::integral_constant<std::size_t, K>) {
      return with_leaf_numbers<First + parts_before<Tree, K>()>(f, part<K>(first), part<K>(rest)...);
    };
    return [&]<std::size_t... K>(std::index_sequence<K...>) {
      // braces: in the order of the parts
      std::tuple<decltype(at(std::integral_constant<std::size_t, K>{}))...> parts{
          at(std::integral_constant<std::size_t, K>{})...};
      return [&]<std::size_t... J>(std::index_sequence<J...>) {
        return typename regrouped<Tree, decltype(parts)>::type{std::move(std::get<J>(parts))...};
      }(std::index_sequence<K...>{});
    }(std::make_index_sequence<part_count<Tree>()>{});
  }
}

}  // namespace gspmd::detail

namespace gspmd {

/// Groups of the same form, leaf by leaf: a group like the first one with `f(a, b, ...)` for the leaves a, b, ... that stand
/// at one place. A struct template gets the type that `f` returns as its argument, so `f` returns one type for all members.
/// Without groups it is just f(a, b, ...).
///
///     w = transform_leaves([](value x, value g) { return x - 0.1 * g; }, w, grad(loss, w));
template <class F, class Tree, class... Trees>
constexpr auto transform_leaves(F&& f, const Tree& first, const Trees&... rest) {
  return detail::with_leaf_numbers<0>([&](auto, const auto&... leaves) { return f(leaves...); }, first, rest...);
}

}  // namespace gspmd
