// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include "gspmd/detail/ops/sources.hpp"
#include "gspmd/program/program.hpp"
#include "gspmd/program/sharding.hpp"
#include "gspmd/program/tree.hpp"

namespace gspmd {

/// An input of a program: element type, global shape, and optionally the sharding and the axes over which it is
/// partial.
///
///     input<float, shape<64, 512>, split<"data", _>>
///     input<float, shape<512>>                            completion infers the sharding
///     input<float, shape<10>, split<_>, partial<"data">>  each device along data holds a partial sum
template <class T, class Dims, class Split = unannotated, class Partial = partial<"">>
struct input {
  using element = T;
  using shape = Dims;
  static constexpr int leaves = 1;
  static_assert(detail::is_checked_element<T>() || true);

  /// Adds the input to the traced program.
  static constexpr value trace(detail::graph& g, int number) {
    const int id = detail::add_parameter(g, detail::dtype_of<T>(), Dims::value, location::input(number));
    auto& n = g.nodes[static_cast<std::size_t>(id)];
    if constexpr (!detail::is_element<T>) g.fail(n.at, "input", detail::mistake::reported, "see the error at the type");
    if constexpr (Split::is_annotation) {
      const auto r = [&g] {
        if constexpr (requires { Split::resolve(*g.mesh, Dims::rank); }) {  // xla_split, placements
          static_assert(Partial::axes.empty(),
                        "gspmd: input: this form of sharding states the partial axes; leave out partial<>");
          return Split::resolve(*g.mesh, Dims::rank);
        } else {
          return detail::resolve(*g.mesh, Split::specs(), Split::rank, Dims::rank, Partial::axes, Partial::kind);
        }
      }();
      if (!r.problem.empty()) g.fail(n.at, "input", r.broken, r.problem);
      n.annotated = true;
      n.annotation = r.value;
    }
    return {&g, id};
  }
};

namespace detail {

/// True if `compile` accepts the type as an input. The predicates below check only that a name exists; other mistakes
/// in the type are reported one after another.
template <class Input>
inline constexpr bool is_input = requires { Input::leaves; };
template <class Dims>
inline constexpr bool is_shape = requires { Dims::value; };
template <std::int64_t... Extents>
inline constexpr bool is_shape<shape<Extents...>> = true;
template <class Split>
inline constexpr bool is_split = requires { Split::is_annotation; };
template <dim_spec... Dims>
inline constexpr bool is_split<split<Dims...>> = true;
template <class Partial>
inline constexpr bool is_partial = requires { Partial::axes; };
template <fixed_string Axes, monoid Kind>
inline constexpr bool is_partial<partial<Axes, Kind>> = true;

/// Checks that the arguments of an `input` are in the right order.
template <class Input>
struct ordered_input {
  static constexpr bool has_shape = true, has_split = true, has_partial = true;
};
template <class T, class Dims, class Split, class Partial>
struct ordered_input<input<T, Dims, Split, Partial>> {
  static constexpr bool has_shape = is_shape<Dims>, has_split = is_split<Split>, has_partial = is_partial<Partial>;
};
template <class T, class Dims, class Split, class Partial>
inline constexpr bool is_input<input<T, Dims, Split, Partial>> = is_shape<Dims> && is_split<Split> && is_partial<Partial>;

/// Checks that a struct of values and the inputs of a record correspond one to one, and reports a mismatch.
template <class Struct, class... Members>
struct record_check {
  template <std::size_t... K>
  static constexpr bool has_form(std::index_sequence<K...>) {
    return (std::is_same_v<decltype(Members::trace(std::declval<graph&>(), 0)), part_type<K, Struct>> && ...);
  }
  static constexpr bool fits() {
    if constexpr (!user_struct<Struct>) {
      static_assert(user_struct<Struct>,
                    "gspmd: record: the struct must be an aggregate; make its members public, and remove its constructors");
      return false;
    } else if constexpr (part_count<Struct>() == 0) {
      return sizeof...(Members) == 0;  // an error of the struct is already reported
    } else if constexpr (part_count<Struct>() != sizeof...(Members)) {
      static_assert(part_count<Struct>() == sizeof...(Members), "gspmd: record: give one input for each member of the struct");
      return false;
    } else {
      constexpr bool is_alike = has_form(std::index_sequence_for<Members...>{});
      static_assert(is_alike,
                    "gspmd: record: a member and its input have different forms; a value is given as an `input`, a struct as a "
                    "`record`, and a std::array as an `array_of` (gspmd/program/input_arrays.hpp)");
      return is_alike;
    }
  }
};

}  // namespace detail

/// A group of inputs that the program takes as one argument: a struct template, and one input for each member. An input
/// may be a record itself. The names of the members become the names of the inputs.
///
/// **Errors.** Compile error if the struct is not an aggregate, or if a member and its input have different forms.
/// **Example.**
///
///     template <class T> struct weights { T w, b; };
///     record<weights, input<float, shape<64, 256>, split<_, "model">>, input<float, shape<256>>>
template <template <class> class Struct, class... Members>
struct record {
  using check = detail::record_check<Struct<value>, Members...>;
  static_assert(check::fits() || true);
  static constexpr int leaves = (0 + ... + Members::leaves);

  static constexpr Struct<value> trace(detail::graph& g, int number) {
    Struct<value> result{};
    if constexpr (check::fits()) {
      const auto take = [&]<class Member>(auto& member, const char* name, std::type_identity<Member>) {
        member = Member::trace(g, number);
        if constexpr (std::is_same_v<value&, decltype(member)>)
          g.nodes[static_cast<std::size_t>(member.id())].at = location::input(number, name);
        number += Member::leaves;
      };
      [&]<std::size_t... K>(std::index_sequence<K...>) {
        (take(detail::part<K>(result), detail::struct_members<Struct<value>>::template name<K>, std::type_identity<Members>{}),
         ...);
      }(std::index_sequence_for<Members...>{});
    } else {
      g.fail({}, "record", detail::mistake::reported, "see the error at its type");
      for (int k = 0; k < leaves; ++k) detail::add_parameter(g, dtype::f32, {}, location::input(number + k));
    }
    return result;
  }
};

namespace detail {
template <template <class> class Struct, class... Members>
inline constexpr bool is_input<record<Struct, Members...>> = true;
}  // namespace detail

}  // namespace gspmd
