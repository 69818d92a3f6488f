// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/ir/same_plan.hpp"
#include "gspmd/error.hpp"
#include "gspmd/program/along.hpp"
#include "gspmd/program/sharding.hpp"

namespace gspmd::dynamic {

/// A tensor of a program with its sharding, which the planner chose. The object is independent of the program and may
/// outlive it.
///
/// **Example.**
///
///     const auto h = program.output(0);       // [7,4] over data = 2
///     h.sharding();                           // {"data", ""}
///     h.local_shape();                        // {4, 4}, on every device
///     h.valid_range(1, along(0));             // rows 4 to 7, excluding 7; the fourth row of the shard is padding
class placed_tensor {
 public:
  placed_tensor(std::shared_ptr<const detail::mesh_info> mesh, const detail::planned_value& value)
      : mesh_(std::move(mesh)), type_(value.type), global_(value.global), local_(value.local), layout_(value.layout) {}
  placed_tensor(std::shared_ptr<const detail::mesh_info> mesh, dtype type, const detail::extents& global,
                const detail::sharding& layout)
      : mesh_(std::move(mesh)),
        type_(type),
        global_(global),
        local_(detail::local_extents(mesh_->shape, global, layout)),
        layout_(layout) {}

  [[nodiscard]] dtype type() const { return type_; }
  [[nodiscard]] int rank() const { return global_.count; }
  [[nodiscard]] std::int64_t device_count() const { return mesh_->shape.device_count(); }
  [[nodiscard]] std::vector<std::int64_t> global_shape() const { return {global_.begin(), global_.end()}; }
  /// Returns the extents of every shard, including padding.
  [[nodiscard]] std::vector<std::int64_t> local_shape() const { return {local_.begin(), local_.end()}; }
  [[nodiscard]] std::int64_t local_elems() const { return detail::elements(local_); }
  [[nodiscard]] std::int64_t local_bytes() const { return local_elems() * detail::bytes_of(type_); }

  /// Returns for each dim the axes that split it, in the form of `dynamic::input`: "data", "data,model", "".
  [[nodiscard]] std::vector<std::string> sharding() const {
    std::vector<std::string> dims;
    for (int d = 0; d < rank(); ++d) dims.emplace_back(detail::spec_text(*mesh_, layout_, d).view());
    return dims;
  }
  /// Returns the axes over which the tensor is partial, separated by commas. The list is usually empty.
  [[nodiscard]] std::string partial_axes() const { return std::string(detail::axes_text(*mesh_, layout_.partial).view()); }
  [[nodiscard]] monoid partial_kind() const { return layout_.reduced_by; }
  [[nodiscard]] bool is_partial_over(std::string_view axis) const { return (layout_.partial & mesh_->mask_of(axis)) != 0; }
  /// Returns the dim that an axis splits, or -1 if it splits no dim.
  [[nodiscard]] int dim_split_by(std::string_view axis) const {
    for (const auto& use : layout_.splits)
      if ((mesh_->mask_of(axis) & detail::axis_bit(use.axis)) != 0) return use.dim;
    return -1;
  }
  /// Return the number of parts of a dim, and the part that a device holds. Throw gspmd::error if the device or dim
  /// does not exist.
  [[nodiscard]] std::int64_t parts(int dim) const { return detail::parts_of(mesh_->shape, layout_, checked(dim, "parts")); }
  [[nodiscard]] std::int64_t part_of(std::int64_t device, along dim) const {
    return detail::part_index(mesh_->shape, layout_, checked(dim.dim, "part_of"), coordinates_of(device));
  }
  /// Returns the sharding in the form of `explain` and the messages: `[data, _] partial(model: add)`.
  [[nodiscard]] std::string text() const { return std::string(detail::sharding_text(*mesh_, layout_, rank()).view()); }

  /// Returns the global indices along `dim` that `device` holds without padding. Throws gspmd::error if the device or
  /// dim does not exist.
  [[nodiscard]] detail::index_range valid_range(std::int64_t device, along dim) const {
    return detail::dim_range(mesh_->shape, global_, layout_, checked(dim.dim, "valid_range"), coordinates_of(device));
  }
  /// Returns the global index of the first element of `device`'s shard. If the shard is only padding along a dim, the
  /// index is the extent.
  [[nodiscard]] std::vector<std::int64_t> offsets(std::int64_t device) const {
    const auto at = coordinates_of(device);
    std::vector<std::int64_t> result;
    for (int d = 0; d < rank(); ++d) result.push_back(detail::dim_range(mesh_->shape, global_, layout_, d, at).begin);
    return result;
  }

  /// Returns true if type, global shape, layout and mesh are equal.
  friend bool operator==(const placed_tensor& a, const placed_tensor& b) {
    return detail::same_mesh(*a.mesh_, *b.mesh_) && a.type_ == b.type_ && a.global_ == b.global_ && a.layout_ == b.layout_;
  }

 private:
  [[nodiscard]] int checked(std::int64_t dim, const char* op) const {
    const int d = detail::counted_dim(dim, rank());
    if (d >= 0 && d < rank()) return d;
    throw error(std::string(op) + ": dim " + std::to_string(dim) + " is not a dim of " +
                std::string(detail::shape_text(global_).view()) + "; dims count from 0");
  }
  [[nodiscard]] detail::coordinates coordinates_of(std::int64_t device) const {
    if (device < 0 || device >= device_count())
      throw error("there is no device " + std::to_string(device) + "; the mesh has " + std::to_string(device_count()) +
                  " devices, which count from 0");
    return mesh_->shape.coordinates_of(device);
  }

  std::shared_ptr<const detail::mesh_info> mesh_;
  dtype type_;
  detail::extents global_, local_;
  detail::sharding layout_;
};

/// An operator of the user's program and its result.
struct traced_operator {
  std::string name;  // StableHLO's name if it exists
  std::string file;  // empty for an input
  int line = 0;      // for an input its number
  placed_tensor result;
};

}  // namespace gspmd::dynamic
