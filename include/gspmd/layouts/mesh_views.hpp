// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "gspmd/detail/notation/mesh_views.hpp"
#include "gspmd/detail/support/refuse.hpp"
#include "gspmd/program/mesh.hpp"
#include "gspmd/program/sharding.hpp"

namespace gspmd {

/// Combines several meshes over the same devices into one argument, wherever a mesh is expected. Annotations may name
/// the axes of each mesh. A value that is sharded by axes of one mesh is resharded if its user requires axes of
/// another mesh.
///
/// A second mesh may combine axes of the first mesh, split them, divide the devices at other positions, and count them
/// in another order. The axes of all meshes must be consecutive axes of one finer mesh, which excludes axes of 2x3 and
/// 3x2. A name must denote the same devices in all meshes. Texts use the names of the mesh with the longest axis, and
/// those of the first mesh before the others.
///
/// **Errors.** At compile time: different numbers of devices; axes of one mesh that end inside axes of another mesh; a
/// device order that does more than exchange axes; one name with two meanings; more than 16 parts of axes.
/// **Example.**
///     using dense  = mesh<axis<"pp", 2>, axis<"dp_shard", 2>, axis<"cp", 2>, axis<"tp", 2>>;
///     using expert = mesh<axis<"pp", 2>, axis<"ep", 4>, axis<"tp", 2>>;
///     using step = compile<experts, mesh_views<dense, expert>,
///                           input<float, shape<64, 8, 32>, split<"dp_shard,cp", _, _>>,
///                           input<float, shape<8, 32, 64>, split<"ep", _, "tp">>>;
/// **Source.** GSPMD, section 3.1.
template <class First, class... Others>
struct mesh_views {
 private:
  static constexpr detail::mesh_with_views make() {
    detail::mesh_with_views combined;
    combined.info = First::info;
    const detail::mesh_info* const others[] = {&Others::info..., nullptr};
    for (std::size_t k = 0; k < sizeof...(Others) && combined.problem.empty(); ++k) {
      auto next = detail::with_view(combined.info, *others[k]);
      combined.info = next.info;
      combined.problem = next.problem;
    }
    return combined;
  }
  struct problem {
    static constexpr detail::text make() { return detail::text("mesh_views: ") << mesh_views::make().problem; }
  };
  static constexpr bool are_views = [] {
    const auto combined = make();
    return combined.problem.empty();
  }();
  static constexpr bool check() {
    if constexpr (!are_views) detail::refuse<detail::mistake::mesh_views, problem>();
    return true;
  }
  static_assert(check());

 public:
  /// False if the meshes are not views of each other; the compiler has reported the error.
  static constexpr bool accepted = are_views;
  static constexpr detail::mesh_info info = [] {
    const auto combined = make();
    return combined.info;
  }();
  static constexpr int device_count = First::device_count;
};

namespace detail {

/// Translates a sharding by the axes of `own` into the axes of `mesh`, which contains all axes of `own`. In the
/// example above: [ep] of `expert` -> the two axes dp_shard and cp.
constexpr resolved_sharding on_views(resolved_sharding r, const mesh_info& own, const mesh_info& mesh) {
  if (!r.problem.empty()) return r;
  const auto combined = with_view(mesh, own);
  if (!combined.problem.empty() || !same_mesh(combined.info, mesh)) {
    r.refuse(mistake::unknown_axis) << "the annotation is on the mesh " << named_sizes_text(own)
                                    << ", and the program is compiled for " << named_sizes_text(mesh)
                                    << "; give compile mesh_views<> of both meshes";
    return r;
  }
  annotation s = r.value;
  s.layout.splits.clear();
  s.layout.partial = 0;
  s.stages = 0;
  for (const auto& use : r.value.layout.splits)
    for (const auto a : mesh.find_run(own.name(use.axis))) {
      s.layout.add_split(a, use.dim);
      s.stages |= static_cast<std::uint64_t>(r.value.stage_of(use.axis)) << (4 * a);
    }
  for (int a = 0; a < own.shape.axis_count(); ++a)
    if ((r.value.layout.partial & axis_bit(a)) != 0) s.layout.partial |= mesh.mask_of(own.name(a));
  r.value = s;
  return r;
}

}  // namespace detail

/// An annotation that names its mesh, which must be one of the meshes of the program. Use it instead of `split` in an
/// input, and with `reshard`. Placement lists and XLA shardings describe a whole mesh, so they require `on` if the
/// program has several meshes.
///
/// **Example.**
///     input<float, shape<512, 64>, on<expert, split<"ep", _>>>
///     input<float, shape<512, 64>,
///           on<expert, placements<per_axis::replicate, per_axis::shard(0), per_axis::replicate>>>
template <class Mesh, class Sharding, class Partial = partial<"">>
struct on {
  static constexpr bool is_annotation = true;
  static constexpr detail::resolved_sharding resolve(const detail::mesh_info& mesh, int rank) {
    if constexpr (requires { Sharding::resolve(mesh, rank); })
      return detail::on_views(Sharding::resolve(Mesh::info, rank), Mesh::info, mesh);
    else
      return detail::on_views(detail::resolve(Mesh::info, Sharding::specs(), Sharding::rank, rank, Partial::axes, Partial::kind),
                              Mesh::info, mesh);
  }
};

namespace detail {

template <class First, class... Others>
inline constexpr bool accepts_meshes<mesh_views<First, Others...>> = mesh_views<First, Others...>::accepted;
template <class First, class... Others>
inline constexpr bool is_mesh<mesh_views<First, Others...>> = is_mesh<First>;

template <class Mesh, class First, class... Others>
inline constexpr bool is_view_of<Mesh, mesh_views<First, Others...>> =
    std::is_same_v<Mesh, First> || (std::is_same_v<Mesh, Others> || ...);

}  // namespace detail
}  // namespace gspmd
