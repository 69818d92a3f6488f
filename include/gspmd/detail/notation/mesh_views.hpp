// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/cut_axis.hpp"
#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/notation/tile_factors.hpp"
#include "gspmd/detail/support/vec.hpp"

/// Combines several meshes over the same devices into one mesh (GSPMD 3.1). The planner uses one mesh. This is the
/// coarsest mesh whose axes can be combined to the axes of all meshes:
///
///  (x:4, y:2) and (a:2, b:4)          x is cut into x:(1)2, x:(2)2; a is x:(1)2, b is x:(2)2,y
///  (x:4, y:2) and (f:8)               nothing is cut; f is x,y
///  (x:4, y:2) and (a:2, b:4) with devices column by column: device of (i, j) is i + 2 j; a is y, b is x
///  (x:2, y:3) and (a:3, b:2)          does not exist: x ends after parts of 3 devices, a after parts of 2
///
/// The devices of one mesh have positions in the other mesh. These positions must be a product of factors
/// (tile_factors.hpp), each with a size and a stride. Each factor is cut where an axis of either mesh begins.
namespace gspmd::detail {

class view_finder {
 public:
  /// `mesh` may already have views; `other` is a plain mesh.
  constexpr view_finder(const mesh_info& mesh, const mesh_info& other) : found(mesh), other_(other) {}

  constexpr void run() {
    if (!other_.views.empty()) {
      problem << "a mesh that has views must be the first mesh";
      return;
    }
    if (found.shape.device_count() != other_.shape.device_count()) {
      problem << "the meshes " << named_sizes_text(found) << " and " << named_sizes_text(other_) << " have "
              << found.shape.device_count() << " and " << other_.shape.device_count()
              << " devices; views are of the same devices";
      return;
    }
    if (!find_factors()) {
      problem << "the devices of the mesh " << named_sizes_text(other_)
              << " have an order that no exchange of axes, or of parts of axes, of the first mesh gives" << remedy;
      return;
    }
    for (const auto& f : factors_) cut_at_begins(f);
    if (problem.empty()) name_axes();
  }

  mesh_info found;
  text problem;  // empty: `found` has the axes of both meshes

 private:
  static constexpr const char* remedy =
      "; compile one step for each of the meshes, and bring values from one to the other with to_step or redistribute "
      "(gspmd/layouts/placed_array.hpp)";

  /// Finds the positions of the other mesh's devices in the first mesh, as factors from major to minor.
  constexpr bool find_factors() {
    const auto n = found.shape.device_count();
    if (n == 1) return true;
    if (found.shape.order == nullptr && other_.shape.order == nullptr) {
      factors_.push_back({n, 1, 0});
      return true;
    }
    constant_vector<std::int64_t> places;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t id = other_.shape.order != nullptr ? other_.shape.order[i] : i;
      places.push_back(found.shape.position != nullptr ? found.shape.position[id] : id);
    }
    factors_ = factors_of_list(places);
    return !factors_.empty();
  }

  /// Returns the number of devices of the axes after `axis`.
  [[nodiscard]] static constexpr std::int64_t stride_of(const mesh_shape& mesh, int axis) {
    std::int64_t n = 1;
    for (int a = axis + 1; a < mesh.axis_count(); ++a) n *= mesh.sizes[a];
    return n;
  }

  /// Cuts the first mesh where an axis of the other mesh begins inside the factor, and where the factor begins.
  constexpr void cut_at_begins(const tile_factor& f) {
    std::int64_t behind = 1;  // in the other mesh
    for (auto k = factors_.size(); k-- > 0 && factors_[k].stride != f.stride;) behind *= factors_[k].size;
    cut_at(f.stride);  // the factor ends where the next factor begins
    for (int a = 0; a < other_.shape.axis_count(); ++a) {
      const auto begin = stride_of(other_.shape, a);
      if (begin <= behind || begin >= behind * f.size) continue;
      if (begin % behind != 0 || behind * f.size % begin != 0) return refuse();
      cut_at(f.stride * (begin / behind));
    }
  }

  /// Makes an axis of the first mesh begin at the position after which the axes have `stride` devices.
  constexpr void cut_at(std::int64_t stride) {
    for (int a = 0; a < found.shape.axis_count() && problem.empty(); ++a) {
      const auto behind = stride_of(found.shape, a);
      const std::int64_t size = found.shape.sizes[a];
      if (stride <= behind || stride >= behind * size) continue;
      if (stride % behind != 0 || behind * size % stride != 0) return refuse();
      const axis_cut cut{a, static_cast<std::int32_t>(behind * size / stride)};
      if (!can_cut(found, cut)) {
        problem << "a mesh that has the axes of " << named_sizes_text(found) << " and of " << named_sizes_text(other_)
                << " needs more than 16 axes, or longer names than 31 characters for the parts of axes" << remedy;
        return;
      }
      found = cut_axis(found, cut);
      return;
    }
  }
  constexpr void refuse() {
    if (problem.empty())
      problem << "no mesh has both the axes " << named_sizes_text(found) << " and " << named_sizes_text(other_)
              << ": an axis of one ends inside an axis of the other, and does not divide it" << remedy;
  }
  /// Returns the axes of the first mesh, after all cuts, that are inside `axis` of the other mesh.
  [[nodiscard]] constexpr axis_list parts_of(int axis) const {
    const auto begin = stride_of(other_.shape, axis);
    const auto end = begin * other_.shape.sizes[axis];
    axis_list parts;
    std::int64_t behind = other_.shape.device_count();
    for (const auto& f : factors_) {
      behind /= f.size;
      for (int a = 0; a < found.shape.axis_count(); ++a) {
        const auto stride = stride_of(found.shape, a);
        if (found.shape.sizes[a] == 1 || stride < f.stride || stride >= f.stride * f.size) continue;
        const auto at = behind * (stride / f.stride);
        if (begin <= at && at < end) parts.push_back(static_cast<std::int8_t>(a));
      }
    }
    return parts;
  }

  constexpr void name_axes() {
    for (int b = 0; b < other_.shape.axis_count() && problem.empty(); ++b) {
      const auto parts = parts_of(b);
      const auto there = found.find_run(other_.name(b));
      if (!there.empty()) {
        axis_list wide;
        for (const auto a : there)
          if (found.shape.sizes[a] > 1) wide.push_back(a);
        if (!(wide == parts))
          problem << "the axis `" << other_.name(b) << "` does not have the same devices in the meshes "
                  << named_sizes_text(found) << " and " << named_sizes_text(other_) << "; give it another name in one mesh";
      } else if (parts.empty()) {  // one device
        if (found.shape.axis_count() == max_axes) problem << "a mesh with its views has at most 16 parts of axes";
        else found.add_axis(other_.name(b), 1);
      } else if (found.views.count == max_view_axes) {
        problem << "a mesh has at most " << max_view_axes << " axes in other views";
      } else {
        view_axis v;
        for (const char c : other_.name(b)) v.name.push_back(c);
        v.parts = parts;
        found.views.push_back(v);
      }
    }
  }

  const mesh_info& other_;
  constant_vector<tile_factor> factors_;
};

/// A mesh, combined with views over the same devices.
struct mesh_with_views {
  mesh_info info;
  text problem;
};
constexpr mesh_with_views with_view(const mesh_info& mesh, const mesh_info& other) {
  view_finder f(mesh, other);
  f.run();
  return {f.found, f.problem};
}

}  // namespace gspmd::detail
