// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "gspmd/detail/driver/edge_elements.hpp"
#include "gspmd/detail/support/mp11.hpp"
#include "gspmd/program/inputs.hpp"

namespace gspmd {
namespace detail {

/// Checks that the inputs of an array have the same form, and reports a mismatch.
template <class First, class... Rest>
consteval bool is_array_of() {
  constexpr bool are_alike =
      (std::is_same_v<decltype(First::trace(std::declval<graph&>(), 0)), decltype(Rest::trace(std::declval<graph&>(), 0))> &&
       ...);
  static_assert(are_alike,
                "gspmd: array_of: the inputs have different forms; give `input`s alone, or records of one struct template, or "
                "name the others in a record");
  return are_alike;
}

}  // namespace detail

/// A group of inputs that the program takes as one argument, a std::array.
///
/// The elements are `input`s, or `record`s of the same struct template. Their shapes and shardings may differ. Pass
/// the arrays to `run` as a std::array, or as a std::vector of the same length.
///
/// **Errors.** Compile error if the inputs have different forms.
/// **Example.**
///
///     array_of<record<layer, input<float, shape<64, 256>>, input<float, shape<256>>>,
///              record<layer, input<float, shape<256, 64>>, input<float, shape<64>>>>
template <class First, class... Rest>
struct array_of {
  using part = decltype(First::trace(std::declval<detail::graph&>(), 0));
  static constexpr bool are_alike = detail::is_array_of<First, Rest...>();
  static_assert(are_alike || true);
  static constexpr int leaves = (First::leaves + ... + Rest::leaves);

  static constexpr std::array<part, 1 + sizeof...(Rest)> trace(detail::graph& g, int number) {
    if constexpr (!are_alike) g.fail({}, "array_of", detail::mistake::reported, "see the error at its type");
    const auto next = [&]<class Input>(std::type_identity<Input>) {
      const int from = std::exchange(number, number + Input::leaves);
      if constexpr (are_alike) return Input::trace(g, from);
      else return First::trace(g, from);
    };
    return {next(std::type_identity<First>{}), next(std::type_identity<Rest>{})...};
  }
};

namespace detail {
template <class First, class... Rest>
inline constexpr bool is_input<array_of<First, Rest...>> = true;
template <class First, class... Rest>
struct declared_elements<array_of<First, Rest...>> {
  using type = boost::mp11::mp_append<typename declared_elements<First>::type, typename declared_elements<Rest>::type...>;
};
}  // namespace detail

/// An array_of `Count` equal inputs.
///
/// **Example.** repeat<12, record<layer, input<float, shape<64, 64>, split<_, "model">>, input<float, shape<64>>>>
template <std::size_t Count, class Input>
using repeat = boost::mp11::mp_apply<array_of, boost::mp11::mp_repeat_c<boost::mp11::mp_list<Input>, Count>>;

}  // namespace gspmd
