// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/program/tree.hpp"

// Includes Boost.Hana, whose names <complex.h> and X11 define as macros. The macros are restored afterwards.
#pragma push_macro("I")
#pragma push_macro("Bool")
#undef I
#undef Bool
#include <boost/hana/accessors.hpp>
#include <boost/hana/adapt_struct.hpp>
#include <boost/hana/at.hpp>
#include <boost/hana/concept/struct.hpp>
#include <boost/hana/define_struct.hpp>
#include <boost/hana/first.hpp>
#include <boost/hana/integral_constant.hpp>
#include <boost/hana/length.hpp>
#include <boost/hana/second.hpp>
#pragma pop_macro("Bool")
#pragma pop_macro("I")

/// Structs that are adapted to Boost.Hana as groups of values. Include this header if a struct is not an aggregate, for
/// example because it has constructors, or if only some of its members are values. Other structs do not need it.
///
///     class layer {
///      public:
///       layer();
///       value w, b;
///     };
///     BOOST_HANA_ADAPT_STRUCT(layer, w, b);
namespace gspmd::detail {

template <class T>
  requires boost::hana::Struct<T>::value
struct struct_members<T> {
  static constexpr bool is_group = true;
  static constexpr std::size_t count = decltype(boost::hana::length(boost::hana::accessors<T>()))::value;

  template <std::size_t K, class Tree>
  static constexpr auto& member(Tree& tree) {
    const auto member = boost::hana::second(boost::hana::at_c<K>(boost::hana::accessors<T>()));
    if constexpr (std::is_const_v<Tree>) return std::as_const(member(const_cast<T&>(tree)));
    else return member(tree);
  }
  template <class Tree>
  static constexpr auto tie(Tree& tree) {
    return [&]<std::size_t... K>(std::index_sequence<K...>) {
      return std::tie(member<K>(tree)...);
    }(std::make_index_sequence<count>{});
  }
  template <std::size_t K>
  static constexpr const char* name = boost::hana::first(boost::hana::at_c<K>(boost::hana::accessors<T>())).c_str();
};

}  // namespace gspmd::detail
