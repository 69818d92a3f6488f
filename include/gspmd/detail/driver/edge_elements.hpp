// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/mp11.hpp"
#include "gspmd/program/inputs.hpp"

/// The complex types of the user: inputs and results have the declared type of the inputs, for example
/// std::complex. The library does not include <complex>, because <complex> includes streams.
namespace gspmd::detail {

template <class Input>
struct declared_elements {
  using type = boost::mp11::mp_list<typename Input::element>;
};
template <template <class> class Struct, class... Members>
struct declared_elements<record<Struct, Members...>> {
  using type = boost::mp11::mp_append<boost::mp11::mp_list<>, typename declared_elements<Members>::type...>;
};
template <class Input>
using declared_elements_t = typename declared_elements<Input>::type;
/// The declared element types of all leaves of the inputs.
template <class... Inputs>
using all_declared_elements = boost::mp11::mp_append<boost::mp11::mp_list<>, declared_elements_t<Inputs>...>;

/// A class template of complex numbers, deduced from a specialisation. `of<Part>` is the specialisation for another
/// part type.
template <class T>
struct complex_family {
  static constexpr bool is_foreign = false;
  template <class Part>
  using of = complex_number<Part>;
};
template <template <class> class ComplexOf, class Part>
  requires(is_complex_element<listed_element_t<ComplexOf<Part>>> && !is_complex_element<ComplexOf<Part>>)
struct complex_family<ComplexOf<Part>> {
  static constexpr bool is_foreign = true;
  template <class Other>
  using of = ComplexOf<Other>;
};
template <class T>
using is_foreign_complex = std::bool_constant<complex_family<T>::is_foreign>;

/// The element type of a result whose elements are of type T.
template <class T, class Declared>
struct given_element {
  using type = T;
};
template <class Part, class Declared>
struct given_element<complex_number<Part>, Declared> {
  using families = boost::mp11::mp_push_back<boost::mp11::mp_copy_if<Declared, is_foreign_complex>, complex_number<Part>>;
  using type = typename complex_family<boost::mp11::mp_front<families>>::template of<Part>;
};

/// The element type of input `K`, whose elements are of type T.
template <class T, class Declared, std::size_t K>
struct taken_element {
  using type = T;
};
template <class Part, class Declared, std::size_t K>
struct taken_element<complex_number<Part>, Declared, K> {
  using type = boost::mp11::mp_at_c<Declared, K>;
};

}  // namespace gspmd::detail
