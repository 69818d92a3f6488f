// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/notation/tile_factors.hpp"
#include "gspmd/detail/support/vec.hpp"

/// Conversion between XLA's text and shardings on a mesh. If `problem` is not empty, it states why the conversion is
/// impossible.
namespace gspmd::detail {

/// An XLA sharding on a mesh.
struct xla_on_mesh {
  sharding value;
  axis_mask manual = 0;   // axes along which the program is manual
  bool annotated = true;  // false: unknown, completion decides
  text problem;
};

/// A mesh made for one sharding, and the sharding on this mesh.
struct xla_with_mesh {
  constant_vector<std::int32_t> sizes;         // of the axes, major to minor
  constant_vector<std::int32_t> device_order;  // empty: the devices in order
  sharding value;
  axis_mask manual = 0;
  text problem;
};

/// Converts the kinds without a device list. Returns false for a tiled sharding.
constexpr bool convert_untiled(const xla_tiles& x, std::int64_t device_count, axis_mask all, xla_on_mesh& r) {
  switch (x.kind) {
    case xla_kind::replicated: return true;
    case xla_kind::manual: r.manual = all; return true;
    case xla_kind::unreduced: r.value.partial = all; return true;
    case xla_kind::unknown: r.annotated = false; return true;
    case xla_kind::maximal:
      if (device_count != 1 || x.device != 0)
        r.problem << "a value that device " << x.device
                  << " alone holds (maximal) is no sharding over a mesh; replicate it, or split it";
      return true;
    case xla_kind::tuple:
      r.problem << "a tuple of " << static_cast<std::int64_t>(x.elements.size())
                << " shardings is not one sharding; pass one of its elements";
      return true;
    case xla_kind::tiled: return false;
  }
  return true;
}

/// If `rank` is negative, the text determines the rank.
constexpr bool has_rank(const xla_tiles& x, int rank, text& problem) {
  if (x.rank() > max_rank) problem << "the sharding names " << x.rank() << " dims; a tensor has at most 32";
  else if (rank >= 0 && x.rank() != rank)
    problem << "the sharding names " << x.rank() << (x.rank() == 1 ? " dim" : " dims") << " and the tensor has " << rank
            << "; devices=[...] has one entry for each dim, then one for each subgroup that last_tile_dims names";
  return problem.empty();
}

/// Returns the sharding on an existing mesh. Each axis must cut one dim or none.
constexpr xla_on_mesh on_mesh(const xla_tiles& x, const mesh_info& info, int rank) {
  xla_on_mesh r;
  const auto& mesh = info.shape;
  if (convert_untiled(x, mesh.device_count(), mesh.wide_axes(), r) || !has_rank(x, rank, r.problem)) return r;
  if (x.device_count() != mesh.device_count()) {
    r.problem << "the sharding is over " << x.device_count() << (x.device_count() == 1 ? " device" : " devices")
              << " and the mesh has " << mesh.device_count();
    return r;
  }
  const auto factors = factors_of(x, mesh.position);
  if (!factors.is_product) {
    r.problem << "the device list is no product of the axes of the mesh (" << names_text(info)
              << "); give a mesh with that device order";
    return r;
  }
  constant_vector<std::int64_t> stride(static_cast<std::size_t>(mesh.axis_count()), 1);
  for (int a = mesh.axis_count() - 1; a > 0; --a)
    stride[static_cast<std::size_t>(a - 1)] = stride[static_cast<std::size_t>(a)] * mesh.sizes[a];
  axis_mask placed = 0;
  for (const auto& f : factors.list)
    for (int a = 0; a < mesh.axis_count(); ++a) {
      const auto begin = stride[static_cast<std::size_t>(a)], end = begin * mesh.sizes[a];
      if (mesh.sizes[a] == 1 || begin < f.stride || end > f.stride * f.size) continue;
      // Inside, and at a multiple: an axis of 3 does not fit into a factor with stride 2.
      if (begin % f.stride != 0 || (f.stride * f.size) % end != 0) continue;
      placed |= axis_bit(a);
      const int group = f.dim - x.rank();
      if (group < 0) r.value.add_split(a, f.dim);
      else if (subgroup_kinds[group] == xla_kind::manual) r.manual |= axis_bit(a);
      else if (subgroup_kinds[group] == xla_kind::unreduced) r.value.partial |= axis_bit(a);
    }
  if (const auto missing = mesh.wide_axes() & ~placed; missing != 0) {
    r.problem << "a part of the " << ((missing & (missing - 1)) != 0 ? "axes `" : "axis `") << axes_text(info, missing)
              << "` would split a dim; the mesh that fits has the axes [";
    auto list = factors.list;
    sort_by_stride(list);
    for (std::size_t i = 0; i < list.size(); ++i) (i > 0 ? r.problem << "," : r.problem) << list[i].size;
    r.problem << "]";
  }
  return r;
}

/// Returns the sharding on a mesh that is made for it. If the list is a product, the devices are in order. Otherwise
/// the list is the device order.
constexpr xla_with_mesh with_mesh(const xla_tiles& x, std::int64_t device_count, int rank) {
  xla_with_mesh r;
  if (x.kind != xla_kind::tiled) {
    xla_on_mesh on;
    if (device_count != 1) r.sizes.push_back(static_cast<std::int32_t>(device_count));
    convert_untiled(x, device_count, r.sizes.empty() ? 0 : 1, on);
    r.value = on.value;
    r.manual = on.manual;
    r.problem = on.problem;
    return r;
  }
  if (!has_rank(x, rank, r.problem)) return r;
  auto factors = factors_of(x, nullptr);
  if (!factors.is_product) {
    xla_tiles listed = x;
    listed.devices = devices_of(x);
    listed.iota.clear();
    const auto sorted = with_sorted_subgroups(listed);
    for (const auto id : sorted.devices) r.device_order.push_back(static_cast<std::int32_t>(id));
    factors.list.clear();
    std::int64_t stride = sorted.device_count();
    for (std::size_t d = 0; d < sorted.dims.size(); ++d) {
      stride /= sorted.dims[d];
      if (sorted.dims[d] > 1) factors.list.push_back({sorted.dims[d], stride, static_cast<int>(d)});
    }
  }
  auto axes = factors.list;
  sort_by_stride(axes);
  if (axes.size() > static_cast<std::size_t>(max_axes)) {
    r.problem << "the sharding needs a mesh with " << static_cast<std::int64_t>(axes.size()) << " axes; at most 16";
    return r;
  }
  for (const auto& a : axes) r.sizes.push_back(static_cast<std::int32_t>(a.size));
  for (const auto& f : factors.list)
    for (std::size_t a = 0; a < axes.size(); ++a) {
      if (axes[a].stride != f.stride) continue;
      const int group = f.dim - x.rank();
      if (group < 0) r.value.add_split(static_cast<int>(a), f.dim);
      else if (subgroup_kinds[group] == xla_kind::manual) r.manual |= axis_bit(static_cast<int>(a));
      else if (subgroup_kinds[group] == xla_kind::unreduced) r.value.partial |= axis_bit(static_cast<int>(a));
    }
  return r;
}

/// Returns a sharding in XLA's form: dims, then manual, unreduced and replicated subgroups. Uses the iota form if
/// possible. Example: [x, _] on x of 2 and y of 4 gives devices=[2,1,4]<=[8] last_tile_dim_replicate.
constexpr xla_tiles to_xla(const mesh_shape& mesh, const sharding& s, int rank, axis_mask manual) {
  xla_tiles x;
  constant_vector<tile_factor> factors;
  const auto add = [&](int axis, int dim) {
    if (mesh.sizes[axis] == 1) return;
    std::int64_t stride = 1;
    for (int a = axis + 1; a < mesh.axis_count(); ++a) stride *= mesh.sizes[a];
    factors.push_back({mesh.sizes[axis], stride, dim});
  };
  bool any_split = false;
  for (int d = 0; d < rank; ++d) {
    x.dims.push_back(parts_of(mesh, s, d));
    any_split = any_split || x.dims.back() > 1;
    for (const auto& use : s.splits)
      if (use.dim == d) add(use.axis, d);
  }
  const axis_mask rest = ~(s.split_axes() | manual | s.partial);
  const axis_mask groups[] = {manual, s.partial, rest};
  for (int g = 0; g < 3; ++g) {
    const auto size = mesh.size_of(groups[g]);
    if (size == 1) continue;
    x.dims.push_back(size);
    x.subgroups.push_back(subgroup_kinds[g]);
    for (int a = 0; a < mesh.axis_count(); ++a)
      if ((groups[g] & axis_bit(a)) != 0) add(a, rank + g);
  }
  if (!any_split && x.subgroups.size() <= 1) {
    xla_tiles whole;
    if (x.subgroups.size() == 1) whole.kind = x.subgroups[0];
    return whole;
  }
  x.kind = xla_kind::tiled;
  if (mesh.order != nullptr) {
    xla_tiles positions;  // the list as positions in the mesh, then as ids
    positions.kind = xla_kind::tiled;
    for (const auto& f : factors) {
      positions.dims.push_back(f.size);
      positions.transpose.push_back(0);
    }
    auto by_stride = factors;
    sort_by_stride(by_stride);
    for (std::size_t i = 0; i < by_stride.size(); ++i) {
      positions.iota.push_back(by_stride[i].size);
      for (std::size_t k = 0; k < factors.size(); ++k)
        if (factors[k].stride == by_stride[i].stride) positions.transpose[k] = static_cast<int>(i);
    }
    x.devices = devices_of(positions);
    for (auto& id : x.devices) id = mesh.order[id];
    x.devices = with_sorted_subgroups(x).devices;
    factors = factors_of_list(x.devices);
    if (factors.empty()) return x;  // not a product: list the devices
  }
  constant_vector<tile_factor> merged;
  for (const auto& f : factors)
    if (!merged.empty() && merged.back().stride == f.size * f.stride) {
      merged.back().size *= f.size;
      merged.back().stride = f.stride;
    } else {
      merged.push_back(f);
    }
  auto by_stride = merged;
  sort_by_stride(by_stride);
  for (const auto& f : by_stride) x.iota.push_back(f.size);
  for (const auto& f : merged)
    for (std::size_t i = 0; i < by_stride.size(); ++i)
      if (by_stride[i].stride == f.stride) x.transpose.push_back(static_cast<int>(i));
  x.devices.clear();
  return x;
}

}  // namespace gspmd::detail
