// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/support/refuse.hpp"
#include "gspmd/shard_view.hpp"

/// Whether what a step is given as a shard is the one it takes, decided when compiling.
namespace gspmd::detail {

/// Axes of size 1 cut nothing: with them or without them a sharding is the same.
constexpr sharding without_axes_of_size_1(const mesh_shape& mesh, const sharding& s) {
  sharding result = s;
  result.splits.clear();
  for (const auto& use : s.splits)
    if (mesh.sizes[use.axis] > 1) result.splits.push_back(use);
  return result;
}

/// `f32 [15,64], sharded [data, _]`
template <class Shard>
constexpr text shard_text() {
  return text(name_of(dtype_of<std::remove_const_t<typename Shard::element>>()))
         << ' ' << shape_text(Shard::global_extents) << ", sharded "
         << sharding_text(Shard::mesh_type::info, Shard::layout, Shard::global_extents.count);
}
template <class Mesh>
constexpr text mesh_text() {
  text t;
  for (int a = 0; a < Mesh::info.shape.axis_count(); ++a)
    t << (a > 0 ? "," : "") << Mesh::info.name(a) << '=' << static_cast<std::int64_t>(Mesh::info.shape.sizes[a]);
  return t;
}

/// placed_array.hpp specialises both.
template <class Given>
inline constexpr bool is_placed_array = false;
template <class Given>
struct placed_array_text;

template <class Wanted, class Given>
inline constexpr bool is_on_mesh_of = std::is_same_v<typename Given::mesh_type, typename Wanted::mesh_type>;

template <class Wanted, class Given>
constexpr bool is_shard_for() {
  if constexpr (is_placed_array<std::remove_cv_t<Given>>) {
    return false;
  } else if constexpr (is_shard<Given>) {
    const auto& mesh = Given::mesh_type::info.shape;
    return is_on_mesh_of<Wanted, Given> && std::is_convertible_v<typename Given::element*, typename Wanted::element*> &&
           Given::global_extents == Wanted::global_extents &&
           same_layout(without_axes_of_size_1(mesh, Given::layout), without_axes_of_size_1(mesh, Wanted::layout));
  } else {
    return std::is_constructible_v<Wanted, Given&>;
  }
}

/// Says what is wrong with the shard given for leaf `K`: inputs come first, then outputs.
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
    } else if constexpr (!is_shard<Given>) {
      t << " is " << shard_text<Wanted>() << "; give a shard_view of that, or a pointer or contiguous range of its elements";
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
