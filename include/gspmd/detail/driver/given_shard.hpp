// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>

#include "gspmd/detail/driver/given_arguments.hpp"
#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/ir/same_tiles.hpp"
#include "gspmd/detail/support/refuse.hpp"
#include "gspmd/program/shard_view.hpp"

/// Checks at compile time that a shard passed to a step is the shard that the step requires.
namespace gspmd::detail {

/// Returns the description of a shard in messages: `f32 [15,64], sharded [data, _]`.
template <class Shard>
constexpr text shard_text() {
  return text(name_of(dtype_of<std::remove_const_t<typename Shard::element>>()))
         << ' ' << shape_text(Shard::global_extents) << ", sharded "
         << sharding_text(Shard::mesh_type::info, Shard::layout, Shard::global_extents.count);
}
template <class Mesh>
constexpr text mesh_text() {
  if (!Mesh::info.views.empty()) return named_sizes_text(Mesh::info);
  text t;
  for (int a = 0; a < Mesh::info.shape.axis_count(); ++a)
    t << (a > 0 ? "," : "") << Mesh::info.name(a) << '=' << static_cast<std::int64_t>(Mesh::info.shape.sizes[a]);
  return t;
}

/// The primary templates; placed_array.hpp specialises both.
template <class Given>
inline constexpr bool is_placed_array = false;
template <class Given>
struct placed_array_text;

/// The mesh as the user wrote it. trace_program.hpp specialises it for meshes with an axis that the planner has cut.
template <class Mesh>
struct base_mesh {
  using type = Mesh;
};

template <class A, class B>
inline constexpr bool see_each_other = is_view_of<A, B> || is_view_of<B, A>;

/// True if two shards are on the same mesh, or if one mesh is a view of the other.
template <class Wanted, class Given>
inline constexpr bool is_on_mesh_of =
    see_each_other<typename base_mesh<typename Given::mesh_type>::type, typename base_mesh<typename Wanted::mesh_type>::type>;

template <class Wanted, class Given>
constexpr bool is_shard_for() {
  if constexpr (is_placed_array<std::remove_cv_t<Given>>) {
    return false;
  } else if constexpr (is_shard<Given>) {
    return is_on_mesh_of<Wanted, Given> && std::is_convertible_v<typename Given::element*, typename Wanted::element*> &&
           Given::global_extents == Wanted::global_extents &&
           same_tiles(Given::mesh_type::info.shape, Given::layout, Wanted::mesh_type::info.shape, Wanted::layout,
                      Wanted::global_extents.count);
  } else {
    return std::is_constructible_v<Wanted, Given&>;
  }
}

/// The message about a wrong shard for leaf `K`. Inputs are numbered first, then outputs.
template <std::size_t K, std::size_t InputCount, class Wanted, class Given>
struct wrong_shard {
  static constexpr text make() {
    text t;
    if (K < InputCount) t << "input " << static_cast<std::int64_t>(K);
    else t << "output " << static_cast<std::int64_t>(K - InputCount);
    if constexpr (is_placed_array<std::remove_cv_t<Given>>) {
      t << " is " << shard_text<Wanted>() << "; the array given is placed " << placed_array_text<std::remove_cv_t<Given>>::make()
        << (K < InputCount ? "; bring it to the step's sharding: to_step<step, " : "; give a make_result<step, ")
        << static_cast<std::int64_t>(K < InputCount ? K : K - InputCount)
        << (K < InputCount ? ">(comm, array)" : ">(comm) and then from_step");
    } else if constexpr (std::is_const_v<Given> && K >= InputCount) {
      t << " is written and the argument is const";
    } else if constexpr (!is_shard<Given>) {
      t << " is " << shard_text<Wanted>();
      using element = leaf_element_t<Given>;
      if constexpr (is_element<element> && !std::is_same_v<element, std::remove_const_t<typename Wanted::element>>)
        t << ", and the elements passed are " << name_of(dtype_of<element>());
      t << "; give a shard_view of that, or a pointer or contiguous range of its elements";
    } else if constexpr (!is_on_mesh_of<Wanted, Given>) {
      t << " is on the mesh " << mesh_text<typename Wanted::mesh_type>() << " and the shard given is on the mesh "
        << mesh_text<typename Given::mesh_type>() << "; make the shard with the mesh of the step";
    } else if constexpr (std::is_const_v<typename Given::element> && !std::is_const_v<typename Wanted::element>) {
      t << " is written and the shard given is const";
    } else {
      t << " is " << shard_text<Wanted>() << "; the shard given is " << shard_text<Given>()
        << "; make it as step::" << (K < InputCount ? "input_shard<" : "output_shard<")
        << static_cast<std::int64_t>(K < InputCount ? K : K - InputCount) << ">, or annotate the input so";
    }
    return t;
  }
};

template <std::size_t Given, std::size_t InputCount, std::size_t OutputCount>
struct wrong_shard_count {
  static constexpr text make() {
    return text("the step has ") << static_cast<std::int64_t>(InputCount) << " inputs and "
                                 << static_cast<std::int64_t>(OutputCount) << " outputs, and the call gives "
                                 << static_cast<std::int64_t>(Given)
                                 << " shards; give the shards of all inputs, then of all outputs";
  }
};

}  // namespace gspmd::detail
