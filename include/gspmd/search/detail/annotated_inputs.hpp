// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "gspmd/detail/support/refuse.hpp"
#include "gspmd/program/inputs.hpp"
#include "gspmd/search/detail/input_layout.hpp"

/// The inputs of `compile` with the annotations that a search found.
namespace gspmd {

template <class First, class... Rest>
struct array_of;

namespace detail {

/// An input with the annotation that the search found, unless it has its own annotation. `Layouts::value` has the
/// layouts by leaf, and `First` is the number of the input's first leaf.
template <class Input, class Layouts, const mesh_info& Mesh, std::size_t First>
struct annotated_input {
  static_assert(accepted<Input>,
                "gspmd: search_annotations: the inputs are `input`, `record` and `array_of`; search this program at run time, by "
                "dynamic::find_annotations or gspmd-plan --search, and write the lines that it prints");
  using type = Input;
};
template <class T, class Dims, class Split, class Partial, class Layouts, const mesh_info& Mesh, std::size_t First>
struct annotated_input<input<T, Dims, Split, Partial>, Layouts, Mesh, First> {
  static constexpr input_layout layout = Layouts::value[First];
  template <std::size_t... D>
  static auto find(std::index_sequence<D...>)
      -> input<T, Dims, split<spec_of(Mesh, sharding_of(layout), static_cast<int>(D))...>>;
  static auto find() {
    if constexpr (Split::is_annotation || layout.empty()) return std::type_identity<input<T, Dims, Split, Partial>>{};
    else return std::type_identity<decltype(find(std::make_index_sequence<static_cast<std::size_t>(Dims::rank)>{}))>{};
  }
  using type = typename decltype(find())::type;
};
/// Returns the number of the first leaf of part `K`.
template <std::size_t K, class... Parts>
constexpr std::size_t first_leaf(std::size_t first) {
  constexpr int leaves[] = {Parts::leaves..., 0};
  for (std::size_t k = 0; k < K; ++k) first += static_cast<std::size_t>(leaves[k]);
  return first;
}
template <class Layouts, const mesh_info& Mesh, std::size_t First, class... Parts>
struct annotated_parts {
  template <std::size_t K, class Part>
  using part = typename annotated_input<Part, Layouts, Mesh, first_leaf<K, Parts...>(First)>::type;
  template <template <class...> class Of, std::size_t... K>
  static auto make(std::index_sequence<K...>) -> std::type_identity<Of<part<K, Parts>...>>;
  template <template <class...> class Of>
  using in_group = typename decltype(make<Of>(std::index_sequence_for<Parts...>{}))::type;
};
template <template <class> class Struct>
struct record_of {
  template <class... Members>
  using type = record<Struct, Members...>;
};
template <template <class> class Struct, class... Members, class Layouts, const mesh_info& Mesh, std::size_t First>
struct annotated_input<record<Struct, Members...>, Layouts, Mesh, First> {
  using type = typename annotated_parts<Layouts, Mesh, First, Members...>::template in_group<record_of<Struct>::template type>;
};
template <class Part, class... Parts, class Layouts, const mesh_info& Mesh, std::size_t First>
struct annotated_input<array_of<Part, Parts...>, Layouts, Mesh, First> {
  using type = typename annotated_parts<Layouts, Mesh, First, Part, Parts...>::template in_group<array_of>;
};

}  // namespace detail
}  // namespace gspmd
