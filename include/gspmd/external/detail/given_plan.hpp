// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>

#include "gspmd/detail/driver/static_passes.hpp"
#include "gspmd/detail/support/refuse.hpp"
#include "gspmd/external/detail/dense_use.hpp"

/// The plan of a compiled program for user-provided strided memory of some inputs and outputs, with ghost layers that
/// loads at offsets read (given_layers). All passes before the local program becomes steps are shared with the
/// program's own plan.
namespace gspmd::detail {

/// The program and the mesh of some passes.
template <class Passes>
struct planned_on;
template <class Program, class Mesh, class Until>
struct planned_on<static_passes<Program, Mesh, Until>> {
  template <class Given>
  struct mesh_with {
    static constexpr mesh_info info = [] {
      auto m = Mesh::info;
      m.request.given = span<const given_layers>(Given::layers.data(), Given::layers.size());
      return m;
    }();
  };
  using mesh = Mesh;
  template <class Given>
  using passes = static_passes<Program, mesh_with<Given>, static_passes<Program, Mesh, Until>>;
};

/// The same without leaf `Leaf`, which is copied.
template <class Given, int Leaf>
struct without_leaf {
  static constexpr auto layers = [] {
    auto all = Given::layers;
    all[static_cast<std::size_t>(Leaf)].is_given = false;
    return all;
  }();
};

/// The message about an input that cannot be read in place.
template <class Program>
struct no_loop_reads {
  static constexpr text make() {
    return dense_use_text(plan_view(Program::passes::plan()), Program::given_span(), Program::wrong);
  }
};

/// The plan of `Passes` with `Given::layers` in place. Results that no loop stores are removed from the layers and
/// copied.
template <class Passes, class Given>
struct given_plan {
  using passes = typename planned_on<Passes>::template passes<Given>;
  using mesh = typename planned_on<Passes>::mesh;
  using given = Given;
  static constexpr plan_view view{passes::plan()};
  static constexpr span<const given_layers> given_span() { return {Given::layers.data(), Given::layers.size()}; }
  static constexpr dense_use wrong = find_dense_use(view, given_span());

  static auto find() {
    if constexpr (wrong.leaf < 0) {
      return std::type_identity<given_plan>{};
    } else if constexpr (wrong.leaf >= static_cast<int>(view.inputs.size())) {
      return std::type_identity<typename given_plan<Passes, without_leaf<Given, wrong.leaf>>::type>{};
    } else {
      using reason = no_loop_reads<given_plan>;
      if constexpr (is_too_far(view, given_span(), wrong))
        static_assert(
            accepted<typename message_of<reason>::type>,
            "gspmd: with_ghosts: an input among ghost layers is read by elementwise operators and reductions of what they "
            "compute, at offsets within the layers; give wider layers, or give it without ghosts<>; see message<>");
      else
        static_assert(
            accepted<typename message_of<reason>::type>,
            "gspmd: with_ghosts: an input among ghost layers is read by elementwise operators and reductions of what they "
            "compute, through no more than one shift along a dim; give it without ghosts<>, or write one shift; see message<>");
      return std::type_identity<given_plan<Passes, without_leaf<Given, wrong.leaf>>>{};
    }
  }
  using type = typename decltype(find())::type;
};

}  // namespace gspmd::detail
