// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "gspmd/detail/driver/static_plan.hpp"
#include "gspmd/detail/passes/typed/automatic_axes.hpp"
#include "gspmd/modes/tensor.hpp"

namespace gspmd {

/// A mesh with explicit axes `Axes`; all other axes are automatic. Pass it to `compile` instead of the mesh.
///
/// The program is in the explicit mode along the explicit axes: gspmd accepts, refuses and sends the same as if the
/// mesh had no other axes. It is in the automatic mode along the automatic axes: completion infers the shardings, and
/// the planner chooses the communication. If all axes are explicit, it is the same as `compile<f, Mesh, ...>`. At run
/// time use dynamic::mesh::explicit_axes.
///
/// A `split` of an input, of `reshard` or of `out` may name automatic axes. Then it states the sharding along all
/// automatic axes. A split without automatic axes leaves them to completion. Types do not contain automatic axes, so
/// typed_result names explicit axes only. If both kinds split a dim, explicit axes come first, and automatic axes must
/// split each part evenly.
///
/// **Errors.** Compile errors: those of the explicit mode along explicit axes, and those of the automatic mode along
/// automatic axes. A split must not name an automatic axis before an explicit axis, and must be even. A replica, an
/// invariant or a partial sum along an automatic axis is an error, and so is an unknown axis.
/// **Example.**
///
///     using pod = mesh<axis<"data", 2>, axis<"model", 4>>;
///     using x = tensor<float, shape<64, 512>, place<pod, split<"data", _>>>;
///     using w = tensor<float, shape<512, 2048>, place<pod, replica<"data">, split<_, "model">>>;
///     using step = compile<train, explicit_axes<pod, "data">, x, w>;
template <class Mesh, dim_spec... Axes>
struct explicit_axes {
 private:
  struct unknown {
    static constexpr detail::text make() {
      detail::text what("explicit_axes: ");
      bool is_first = true;
      const auto say = [&](std::string_view name) {
        if (Mesh::info.mask_of(name) != 0) return;
        what << (is_first ? "`" : ", `") << name << '`';
        is_first = false;
      };
      (say(Axes.view()), ...);
      return what << " is not an axis of the mesh; its axes are " << detail::names_text(Mesh::info);
    }
  };
  static constexpr detail::mesh_info make_info() {
    if constexpr (!((Mesh::info.mask_of(Axes.view()) != 0) && ...)) detail::refuse<detail::mistake::unknown_axis, unknown>();
    auto m = Mesh::info;
    m.automatic_axes = (detail::axis_bit(m.shape.axis_count()) - 1) & ~(detail::axis_mask{0} | ... | m.mask_of(Axes.view()));
    return m;
  }

 public:
  static constexpr detail::mesh_info info = make_info();
  static constexpr int device_count = info.shape.axis_count() > 0 ? Mesh::device_count : 0;
};

namespace detail {

template <class Mesh, dim_spec... Axes>
struct changed_mesh<explicit_axes<Mesh, Axes...>> : std::type_identity<Mesh> {};

/// A program that is typed along explicit axes, with the plan of the automatic axes added. Each pass is a separate
/// constant evaluation.
template <class Program, class Mesh>
struct automatic_plan {
 private:
  struct seen {
    static constexpr mesh_info info = [] {
      auto m = Mesh::info;
      m.shape = without_explicit_axes(m);
      m.automatic_axes = 0;
      m.request = asked_of_automatic(m);
      return m;
    }();
  };
  struct make_along {
    static constexpr accepted_program run() { return {along_automatic(Program::frozen().thaw()).program}; }
    static constexpr auto guess() { return with_room(list_sizes<accepted_program>(Program::frozen().sizes)); }
  };
  using passes = static_passes<frozen_program<make_along>, seen>;
  static constexpr graph planned() {
    const graph typed = Program::frozen().thaw();
    return with_automatic_plan(typed, along_automatic(typed), passes());
  }
  struct make {
    static constexpr accepted_program run() { return {planned()}; }
    static constexpr auto guess() { return with_room(list_sizes<accepted_program>(frozen_result<make_along>::value().sizes)); }
  };
  /// Adds room for the reshards that the plan inserts between the operators.
  static constexpr list_sizes<accepted_program> with_room(list_sizes<accepted_program> sizes) {
    sizes.of[0] += sizes.of[0] / 2 + 8;  // nodes
    return sizes;
  }

 public:
  static constexpr const auto& frozen() { return frozen_result<make>::value(); }
  static constexpr text error() { return planned().error; }
};
template <class Program, class Mesh>
  requires(Mesh::info.automatic_axes != 0)
struct program_on<Program, Mesh> {
  static auto find() {
    constexpr const auto& rest = Program::frozen().rest;
    if constexpr (rest.broken != mistake::none || !rest.is_explicit) return std::type_identity<Program>{};
    else return std::type_identity<automatic_plan<Program, Mesh>>{};
  }
  using type = typename decltype(find())::type;
};

}  // namespace detail
}  // namespace gspmd
