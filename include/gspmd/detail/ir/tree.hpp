// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/struct_members.hpp"
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/error.hpp"

/// Groups of values: std::tuple, std::pair, std::array and std::vector, which is for a number of values that is known
/// only at run time. A user's struct is a group too if it is an aggregate of at most 64 members:
///
///     template <class T> struct weights { T w1, b1, w2, b2; };
///
/// A program takes and returns the struct as weights<value>. Its arrays are in weights<array<float>>. Groups can be
/// nested. Members have names of their own, no base classes, and no C arrays.
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

template <class T> concept user_struct = !is_number<T> && !is_tuple<T> && !is_list<T> && struct_members<T>::is_group;

template <class Tree>
inline constexpr bool is_leaf = !is_tuple<Tree> && !user_struct<Tree>;

/// Returns part `K` of a tuple or of a user's struct.
template <std::size_t K, class Tree>
constexpr auto& part(Tree& tree) {
  using plain = std::remove_cv_t<Tree>;
  if constexpr (is_tuple<plain>) return std::get<K>(tree);
  else return std::get<K>(struct_members<plain>::tie(tree));
}
template <class Tree>
constexpr std::size_t part_count() {
  if constexpr (is_tuple<Tree>) return std::tuple_size_v<Tree>;
  else return std::tuple_size_v<decltype(struct_members<Tree>::tie(std::declval<Tree&>()))>;
}
template <std::size_t K, class Tree>
using part_type = std::remove_cvref_t<decltype(part<K>(std::declval<Tree&>()))>;

/// Calls `f` with every leaf of a tree, in order. A type that is not a group is a leaf.
template <class Tree, class F>
constexpr void for_each_leaf(Tree& tree, F&& f) {
  using plain = std::remove_cv_t<Tree>;
  if constexpr (is_tuple<plain>) {
    std::apply([&f](auto&... parts) { (for_each_leaf(parts, f), ...); }, tree);
  } else if constexpr (is_list<plain>) {
    for (auto& part : tree) for_each_leaf(part, f);
  } else if constexpr (user_struct<plain>) {
    std::apply([&f](auto&... parts) { (for_each_leaf(parts, f), ...); }, struct_members<plain>::tie(tree));
  } else {
    f(tree);
  }
}

/// Returns the number of leaves before part `K` of a tuple or of a user's struct.
template <class Tree, std::size_t K>
constexpr std::size_t leaves_before();

/// Returns the number of leaves of a tree; a list counts as one leaf.
template <class Tree>
constexpr std::size_t leaf_count() {
  if constexpr (is_leaf<Tree>) return 1;
  else return leaves_before<Tree, part_count<Tree>()>();
}
template <class Tree, std::size_t K>
constexpr std::size_t leaves_before() {
  return []<std::size_t... Index>(std::index_sequence<Index...>) {
    return (std::size_t{0} + ... + leaf_count<part_type<Index, Tree>>());
  }(std::make_index_sequence<K>{});
}

/// Marks argument `K` of a struct template, to find the members with this type.
template <std::size_t K>
struct argument_mark {};

/// Returns the type in `Now`, a group like `Marked`, at the position of the first argument_mark<K>, or void if the mark
/// does not occur.
template <std::size_t K, class Marked, class Now, std::size_t Part = 0>
constexpr auto argument_in() {
  if constexpr (std::is_same_v<Marked, argument_mark<K>>) {
    return std::type_identity<Now>{};
  } else if constexpr (is_list<Marked> && is_list<Now>) {
    return argument_in<K, typename Marked::value_type, typename Now::value_type>();
  } else if constexpr (is_leaf<Marked> || is_leaf<Now>) {
    return std::type_identity<void>{};
  } else if constexpr (Part == part_count<Marked>() || Part == part_count<Now>()) {
    return std::type_identity<void>{};
  } else {
    constexpr auto found = argument_in<K, part_type<Part, Marked>, part_type<Part, Now>>();
    if constexpr (std::is_void_v<typename decltype(found)::type>) return argument_in<K, Marked, Now, Part + 1>();
    else return found;
  }
}

/// The type of a group like `Tree` with other parts, which are specified as a tuple. An array whose parts get several
/// types becomes a tuple, and so does a struct that is no template.
template <class Tree, class Parts>
struct regrouped {
  using type = Parts;
};
template <class Struct, class... Parts>
  requires user_struct<Struct>
struct regrouped<Struct, std::tuple<Parts...>> {
  template <std::size_t... K>
  static constexpr bool keeps_types(std::index_sequence<K...>) {
    return (std::is_same_v<part_type<K, Struct>, Parts> && ...);
  }
  using type = std::conditional_t<keeps_types(std::index_sequence_for<Parts...>{}), Struct, std::tuple<Parts...>>;
};
template <class A, class B, class First, class Second>
struct regrouped<std::pair<A, B>, std::tuple<First, Second>> {
  using type = std::pair<First, Second>;
};
template <class T, std::size_t N, class Part, class... Rest>
  requires(std::is_same_v<Part, Rest> && ...)
struct regrouped<std::array<T, N>, std::tuple<Part, Rest...>> {
  using type = std::array<Part, N>;
};
template <template <class, auto...> class Struct, class T, auto... Numbers, class... Parts>
  requires(sizeof...(Numbers) > 0 && user_struct<Struct<T, Numbers...>>)
struct regrouped<Struct<T, Numbers...>, std::tuple<Parts...>> {
  using type =
      Struct<typename decltype(argument_in<0, Struct<argument_mark<0>, Numbers...>, std::tuple<Parts...>>())::type, Numbers...>;
};
template <template <class...> class Struct, class... Ts, class... Parts>
  requires user_struct<Struct<Ts...>>
struct regrouped<Struct<Ts...>, std::tuple<Parts...>> {
  template <std::size_t... K>
  static auto find(std::index_sequence<K...>)
      -> Struct<typename decltype(argument_in<K, Struct<argument_mark<K>...>, std::tuple<Parts...>>())::type...>;
  using type = decltype(find(std::index_sequence_for<Ts...>{}));
  static_assert([]<std::size_t... K>(std::index_sequence<K...>) { return (std::is_same_v<part_type<K, type>, Parts> && ...); }(
                    std::index_sequence_for<Parts...>{}),
                "gspmd: transform_leaves: the members of a struct must get one type");
};

/// Returns true for a Leaf, and for a group whose leaves all are of this type. With `Lists`, vectors are groups too.
template <class Tree, class Leaf, bool Lists = false>
consteval bool is_tree_of() {
  if constexpr (std::is_same_v<Tree, Leaf>) {
    return true;
  } else if constexpr (Lists && is_list<Tree>) {
    return is_tree_of<typename Tree::value_type, Leaf, true>();
  } else if constexpr (std::is_void_v<Tree> || is_leaf<Tree>) {
    return false;
  } else {
    return []<std::size_t... K>(std::index_sequence<K...>) {
      return (is_tree_of<part_type<K, Tree>, Leaf, Lists>() && ...);
    }(std::make_index_sequence<part_count<Tree>()>{});
  }
}

}  // namespace gspmd::detail

namespace gspmd {

/// Returns a group like `first` whose leaves are `f(a, b, ...)`, for the leaves a, b, ... at the same position of each
/// group. The types that `f` returns become the arguments of a struct template. So `f` must return one type for all
/// members of one type. Without groups, returns f(a, b, ...).
///
/// **Errors.** Compile error if the groups differ in form. Throws gspmd::error if vectors in them differ in length.
/// **Example.**
///
///     w = transform_leaves([](value x, value g) { return x - 0.1 * g; }, w, grad(loss, w));
template <class F, class Tree, class... Trees>
constexpr auto transform_leaves(F&& f, const Tree& first, const Trees&... rest) {
  static_assert(((detail::is_list<Trees> == detail::is_list<Tree> && detail::is_leaf<Trees> == detail::is_leaf<Tree>)&&...),
                "gspmd: transform_leaves: the groups must have the same form");
  if constexpr (detail::is_list<Tree>) {
    if (!((rest.size() == first.size()) && ...))
      throw error("transform_leaves: the groups must have the same form, and vectors in them differ in length");
    std::vector<decltype(transform_leaves(f, first[0], rest[0]...))> parts;
    for (std::size_t k = 0; k < first.size(); ++k) parts.push_back(transform_leaves(f, first[k], rest[k]...));
    return parts;
  } else if constexpr (detail::is_leaf<Tree>) {
    return f(first, rest...);
  } else {
    static_assert(((detail::part_count<Trees>() == detail::part_count<Tree>()) && ...),
                  "gspmd: transform_leaves: the groups must have the same form");
    return [&]<std::size_t... K>(std::index_sequence<K...>) {
      const auto at = [&]<std::size_t P>(std::integral_constant<std::size_t, P>) {
        return transform_leaves(f, detail::part<P>(first), detail::part<P>(rest)...);
      };
      // braces: evaluates in the order of the parts
      std::tuple<decltype(at(std::integral_constant<std::size_t, K>{}))...> parts{
          at(std::integral_constant<std::size_t, K>{})...};
      return typename detail::regrouped<Tree, decltype(parts)>::type{std::move(std::get<K>(parts))...};
    }(std::make_index_sequence<detail::part_count<Tree>()>{});
  }
}

}  // namespace gspmd
