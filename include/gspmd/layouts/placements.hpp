// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/support/refuse.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/error.hpp"
#include "gspmd/program/mesh.hpp"
#include "gspmd/program/sharding.hpp"

/// Shardings as placement lists, as in PyTorch's DTensor: for each mesh axis its effect on the tensor, instead of the
/// axes of each dim. A placement list is less expressive than dims with ordered axes. If two axes split one dim, the
/// axis that is first in the mesh is always major.
namespace gspmd {
namespace per_axis {

/// The effect of a mesh axis on a tensor.
enum class kind : std::uint8_t { replicate, shard, partial };

/// The placement of a tensor on one mesh axis: split along a dim, replicated or partial.
struct placement {
  per_axis::kind kind = per_axis::kind::replicate;
  int dim = 0;              // of shard
  monoid op = monoid::add;  // of partial
  friend constexpr bool operator==(const placement& a, const placement& b) {
    return a.kind == b.kind && (a.kind != kind::shard || a.dim == b.dim) && (a.kind != kind::partial || a.op == b.op);
  }
};

/// Every device along the axis holds the same data.
inline constexpr placement replicate{};
/// The axis splits dim `dim`.
constexpr placement shard(int dim) { return {kind::shard, dim, monoid::add}; }
/// Every device along the axis holds a partial value. The value is their sum, or another reduction.
constexpr placement partial(monoid op = monoid::add) { return {kind::partial, 0, op}; }

}  // namespace per_axis

namespace detail {

struct placement_list {
  inline_vec<per_axis::placement, max_axes> at;  // by mesh axis
  text problem;
};

constexpr const char* placement_name_of(monoid op) {  // DTensor's names
  switch (op) {
    case monoid::add: return "sum";
    case monoid::multiply: return "product";
    case monoid::max: return "max";
    case monoid::min: return "min";
    case monoid::and_: return "and";
    case monoid::or_: return "or";
  }
  return "?";
}

/// Returns the sharding of a placement list: {shard(0), partial()} on data, model -> [data, _] partial(model: add).
constexpr resolved_sharding from_placements(const mesh_info& mesh, const per_axis::placement* list, int count, int rank) {
  resolved_sharding r;
  if (!mesh.views.empty()) {
    r.refuse(mistake::placement) << "the program is on several meshes (" << named_sizes_text(mesh)
                                 << "); say for which one the placements are: on<mesh, placements<...>>";
    return r;
  }
  if (count != mesh.shape.axis_count()) {
    r.refuse(mistake::placement) << "there are " << count << (count == 1 ? " placement" : " placements")
                                 << " for a mesh with the axes " << names_text(mesh) << "; write one for each axis";
    return r;
  }
  for (int a = 0; a < count; ++a) {
    const auto& p = list[a];
    if (p.kind == per_axis::kind::shard) {
      if (p.dim < 0 || p.dim >= rank) {
        r.refuse(mistake::placement) << "axis `" << mesh.name(a) << "` shards dim " << p.dim << " and the tensor has " << rank
                                     << (rank == 1 ? " dim" : " dims") << "; dims count from 0";
        return r;
      }
      r.value.layout.add_split(a, p.dim);
    } else if (p.kind == per_axis::kind::partial) {
      if (r.value.layout.partial != 0 && r.value.layout.reduced_by != p.op) {
        r.refuse(mistake::placement) << "the value is a partial " << name_of(r.value.layout.reduced_by) << " and, over axis `"
                                     << mesh.name(a) << "`, a partial " << name_of(p.op)
                                     << "; a value has one reduction, reduce the other first";
        return r;
      }
      r.value.layout.partial |= axis_bit(a);
      r.value.layout.reduced_by = p.op;
    }
  }
  return r;
}

/// The inverse: [data, _] partial(model: add) on data, model -> {shard(0), partial()}.
constexpr placement_list to_placements(const mesh_info& mesh, const sharding& s) {
  placement_list r;
  for (int a = 0; a < mesh.shape.axis_count(); ++a) r.at.push_back(per_axis::replicate);
  int last_wide = -1, last_dim = -1;
  for (const auto& use : s.splits) {
    r.at[use.axis] = per_axis::shard(use.dim);
    if (mesh.shape.sizes[use.axis] == 1) continue;  // the order of an axis of size 1 has no effect
    if (use.dim == last_dim && use.axis < last_wide && r.problem.empty())
      r.problem << "axis `" << mesh.name(last_wide) << "` splits dim " << use.dim << " before axis `" << mesh.name(use.axis)
                << "`, and placements are applied in the order of the mesh, " << names_text(mesh)
                << ": the order would be lost; give the mesh the other order of axes, or let `" << mesh.name(use.axis)
                << "` split first";
    last_wide = use.axis;
    last_dim = use.dim;
  }
  for (int a = 0; a < mesh.shape.axis_count(); ++a)
    if ((s.partial & axis_bit(a)) != 0) r.at[a] = per_axis::partial(s.reduced_by);
  return r;
}

/// Returns the text of a list, for example `{Shard(0), Replicate, Partial(sum)}`.
constexpr text placements_text(detail::span<const per_axis::placement> list) {
  text t("{");
  for (const auto& p : list) {
    if (&p != list.data()) t << ", ";
    switch (p.kind) {
      case per_axis::kind::replicate: t << "Replicate"; break;
      case per_axis::kind::shard: t << "Shard(" << p.dim << ')'; break;
      case per_axis::kind::partial: t << "Partial(" << placement_name_of(p.op) << ')'; break;
    }
  }
  t << '}';
  return t;
}

}  // namespace detail

/// A sharding by mesh axes, instead of `split`: one placement for each axis of the mesh, in the order of the mesh. If
/// several axes split one dim, it is divided once into equal parts, rounded up: 9 over 2x2 is 3,3,3,0.
///
/// **Example.**
///     // split<"data", _> on data, model
///     input<float, shape<64, 512>, placements<per_axis::shard(0), per_axis::replicate>>
template <per_axis::placement... List>
struct placements {
  static constexpr bool is_annotation = true;
  static constexpr int count = static_cast<int>(sizeof...(List));
  static constexpr detail::resolved_sharding resolve(const detail::mesh_info& mesh, int rank) {
    constexpr per_axis::placement list[sizeof...(List) + 1] = {List...};
    return detail::from_placements(mesh, list, count, rank);
  }
};

/// Returns the sharding of a placement list.
///
/// **Errors.** Throws gspmd::error for a list without one placement for each axis, a dim that does not exist, or two
/// reductions.
/// **Example.**
///     auto s = sharding_of(mesh, {per_axis::shard(0), per_axis::partial()}, 2);
inline detail::sharding sharding_of(const detail::mesh_info& mesh, const std::vector<per_axis::placement>& list, int rank) {
  const auto r = detail::from_placements(mesh, list.data(), static_cast<int>(list.size()), rank);
  if (!r.problem.empty()) throw error("placements: " + std::string(r.problem.view()));
  return r.value.layout;
}

/// Returns the placement list of a sharding. Throws gspmd::error if two axes split one dim in another order than that
/// of the mesh, because no placement list exists for this order.
inline std::vector<per_axis::placement> placements_of(const detail::mesh_info& mesh, const detail::sharding& s) {
  const auto r = detail::to_placements(mesh, s);
  if (!r.problem.empty()) throw error("placements: " + std::string(r.problem.view()));
  return {r.at.begin(), r.at.end()};
}

/// Returns the text of a list, for example `{Shard(0), Replicate, Partial(sum)}`.
inline std::string text_of(const std::vector<per_axis::placement>& list) {
  return std::string(detail::placements_text(list).view());
}

namespace detail {

template <class Mesh, class Split, class Partial>
struct split_placements {
  static constexpr resolved_sharding resolved() {
    return resolve(Mesh::info, Split::specs(), Split::rank, Split::rank, Partial::axes, Partial::kind);
  }
  struct problem {
    static constexpr text make() {
      const auto r = resolved();
      if (!r.problem.empty()) return text("placements_of: ") << r.problem;
      return text("placements_of: ") << to_placements(Mesh::info, r.value.layout).problem;
    }
  };
  struct facts {
    inline_vec<per_axis::placement, max_axes> at;
    bool ok = false;
    mistake broken = mistake::other;
  };
  static constexpr facts found = [] {
    const auto r = resolved();
    if (!r.problem.empty()) return facts{{}, false, r.broken};
    const auto list = to_placements(Mesh::info, r.value.layout);
    return facts{list.at, list.problem.empty(), mistake::placement};
  }();
  template <std::size_t... Index>
  static auto type_for(std::index_sequence<Index...>) -> placements<found.at[static_cast<int>(Index)]...>;
  static constexpr bool check() {
    if constexpr (!found.ok) refuse<found.broken, problem>();
    return true;
  }
  static_assert(check());
  using type = decltype(type_for(std::make_index_sequence<static_cast<std::size_t>(found.at.count)>{}));
};

}  // namespace detail

/// Returns the placement list of a `split` as a type. A compile error if the split has no placement list.
///
/// **Example.**
///     split_as_placements<pod, split<"data", _>>            placements<shard(0), replicate>
///     split_as_placements<pod, split<"model,data", _>>      does not compile: data precedes model in the mesh
template <class Mesh, class Split, class Partial = partial<"">>
using split_as_placements = typename detail::split_placements<Mesh, Split, Partial>::type;

}  // namespace gspmd
