// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/notation/mesh_views.hpp"
#include "gspmd/detail/passes/rewrite/sub_axes.hpp"
#include "gspmd/detail/support/positive_limit.hpp"
#include "gspmd/error.hpp"
#include "gspmd/plan/options.hpp"

namespace gspmd {

/// A part of an axis, in Shardy's notation: `sub_axis::of("x:(2)4")` has the base `x`, `before` 2 and the size 4. A
/// plain name has size 0.
using detail::sub_axis;

namespace dynamic {

/// A device mesh whose axes are known at run time.
///
/// **Threads.** It is immutable; any number of threads may use it.
/// **Example.**
///
///     dynamic::mesh m({{"data", 2}, {"model", ranks / 2}});
///     dynamic::mesh r({{"x", 2}, {"y", 2}}, {0, 1, 3, 2});       // device ids, row-major over the axes
class mesh {
 public:
  struct axis {
    std::string name;
    std::int64_t size = 1;
  };

  static constexpr std::size_t most_axes = static_cast<std::size_t>(detail::max_axes);
  static constexpr std::int64_t most_devices = std::int64_t{1} << 30;
  /// Returns true for names of 1 to 31 letters, digits and _.
  static constexpr bool is_axis_name(std::string_view name) {
    return name.size() <= detail::max_name && detail::is_axis_name(name);
  }

  /// Throws gspmd::error for a bad name, two equal names, a size below 1, or too many axes or devices. Also if `order`
  /// is not a permutation of all devices.
  explicit mesh(const std::vector<axis>& axes, const std::vector<std::int32_t>& order = {}) : held_(std::make_shared<held>()) {
    if (axes.size() > most_axes) throw error("mesh: at most 16 axes");
    std::int64_t devices = 1;
    for (const auto& a : axes) {
      if (!is_axis_name(a.name)) throw error("mesh: the axis name `" + a.name + "` must have 1 to 31 letters, digits and _");
      if (a.size < 1)
        throw error("mesh: axis `" + a.name + "` has " + std::to_string(a.size) + " devices; it needs at least one");
      if (a.size > most_devices / devices) throw error("mesh: more than 2^30 devices");
      devices *= a.size;
      held_->info.add_axis(a.name, static_cast<std::int32_t>(a.size));
    }
    if (held_->info.has_equal_names()) throw error("mesh: two axes have one name; rename one axis");
    if (order.empty()) return;
    held_->order = order;
    held_->position.assign(static_cast<std::size_t>(devices), -1);
    bool fits = static_cast<std::int64_t>(order.size()) == devices;
    for (std::size_t i = 0; i < order.size() && fits; ++i) {
      fits = order[i] >= 0 && order[i] < devices && held_->position[static_cast<std::size_t>(order[i])] < 0;
      if (fits) held_->position[static_cast<std::size_t>(order[i])] = static_cast<std::int32_t>(i);
    }
    if (!fits) throw error("mesh: device_order must name every device id from 0 to " + std::to_string(devices - 1) + " once");
    held_->info.shape.order = held_->order.data();
    held_->info.shape.position = held_->position.data();
  }

  // A move is a copy, so that no mesh is without its axes.
  mesh(const mesh&) = default;
  mesh& operator=(const mesh&) = default;

  [[nodiscard]] const detail::mesh_info& info() const { return held_->info; }
  [[nodiscard]] std::shared_ptr<const detail::mesh_info> shared_info() const { return {held_, &held_->info}; }
  [[nodiscard]] std::int64_t device_count() const { return held_->info.shape.device_count(); }

  /// Returns the axes that split tensors, major to minor. If an axis was cut, returns its parts: `x:(1)2` and `x:(2)2`.
  [[nodiscard]] std::vector<axis> axes() const {
    std::vector<axis> result;
    for (int a = 0; a < info().shape.axis_count(); ++a) result.push_back({std::string(info().name(a)), info().shape.sizes[a]});
    return result;
  }
  /// Returns the indices in axes() of a name: an axis, a part of an axis, or an axis of another view. Returns an empty
  /// list if no such axis exists.
  [[nodiscard]] std::vector<std::size_t> find(std::string_view name) const {
    const auto run = info().find_run(name);
    return {run.begin(), run.end()};
  }
  /// Returns the number of devices along the axis, or 0 if the axis does not exist.
  [[nodiscard]] std::int64_t size_of(std::string_view name) const {
    const auto axes = info().mask_of(name);
    return axes == 0 ? 0 : info().shape.size_of(axes);
  }
  /// Returns all names that an annotation may use: `data,model`.
  [[nodiscard]] std::string names() const { return std::string(detail::names_text(info()).view()); }

  /// Returns a mesh with one device and axes of the same names.
  [[nodiscard]] mesh with_one_device() const {
    mesh result(*this);
    result.held_ = std::make_shared<held>();
    for (int a = 0; a < info().shape.axis_count(); ++a) result.held_->info.add_axis(info().name(a), 1);
    result.held_->info.views = info().views;
    return result;
  }
  /// Returns a mesh with this mesh and `other` as views of the same devices: annotations may name the axes of both.
  /// Throws gspmd::error as `views` does.
  [[nodiscard]] mesh with_view(const mesh& other) const {
    const auto combined = detail::with_view(info(), other.info());
    if (!combined.problem.empty()) throw error("views: " + std::string(combined.problem.view()));
    return with_info(combined.info);
  }
  /// Returns the same mesh with options for the plans that it gets. Options that are not given stay as they are.
  ///
  /// **Errors.** gspmd::error: a memory limit that is not positive; a network that does not describe an axis of several
  /// devices. If no plan fits a memory limit, `compile` throws gspmd::error with the smallest peak of the plans.
  /// **Example.**
  ///
  ///     auto program = dynamic::compile(f, m.with({.memory = 512 * MiB, .search = true}), x, w);
  [[nodiscard]] mesh with(const options& given) const {
    if (const auto why = detail::why_refused("options: memory", given.memory); !why.empty()) throw error(why);
    if (const auto problem = detail::network_problem(given, info()); !problem.empty()) throw error(std::string(problem.view()));
    auto asked = info();
    detail::add_options(asked.request, given, info());
    return with_info(asked);
  }
  /// Returns the same mesh with these explicit axes; the planner plans along all other axes. See gspmd::explicit_axes.
  /// Throws gspmd::error if an axis does not exist.
  [[nodiscard]] mesh explicit_axes(const std::vector<std::string>& names) const {
    auto typed = info();
    typed.automatic_axes = detail::axis_bit(typed.shape.axis_count()) - 1;
    for (const auto& name : names) {
      const auto found = typed.mask_of(name);
      if (found == 0) throw error("explicit_axes: `" + name + "` is not an axis of the mesh; its axes are " + this->names());
      typed.automatic_axes &= ~found;
    }
    return with_info(typed);
  }
  /// Returns the same devices with axes cut, so that annotations may name these parts.
  ///
  /// A part is ignored if it overlaps an earlier part, does not divide its axis, or if the mesh has no room for another
  /// axis. Annotations cannot name ignored parts.
  ///
  /// **Example.** dynamic::mesh({{"x", 4}}).with_parts({"x:(2)2"}) has the axes x:(1)2 and x:(2)2.
  [[nodiscard]] mesh with_parts(const std::vector<std::string>& names) const {
    std::map<std::string, std::set<std::int64_t>, std::less<>> ends;  // by axis: ends of parts, from the major side
    for (const auto& name : names) {
      const auto part = sub_axis::of(name);
      const auto size = info().find(part.base) < 0 ? 0 : size_of(part.base);
      if (part.size < 1 || part.before < 1 || part.before > size || part.size > size / part.before ||
          size % (part.before * part.size) != 0)
        continue;
      for (const auto end : {part.before, part.before * part.size})
        if (end > 1 && end < size) ends[std::string(part.base)].insert(end);
    }
    mesh result(*this);
    for (const auto& [name, list] : ends) {
      std::int64_t before = 1;
      int at = result.info().find(name);
      for (const auto end : list) {
        const detail::axis_cut cut{at, static_cast<std::int32_t>(end / before)};
        if (end % before != 0 || !detail::can_cut(result.info(), cut)) break;
        result = result.with_cut(cut);
        before = end;
        ++at;
      }
    }
    return result;
  }
  /// Returns the same mesh with other requests to the planner.
  [[nodiscard]] mesh with_request(const detail::plan_request& asked) const {
    auto other = info();
    other.request = asked;
    return with_info(other);
  }
  /// Returns the same devices with one axis cut in two (detail/passes/rewrite/sub_axes.hpp).
  [[nodiscard]] mesh with_cut(detail::axis_cut cut) const { return with_info(detail::cut_axis(held_->info, cut)); }

 private:
  struct held {  // at a fixed address: plans point into it
    detail::mesh_info info;
    std::vector<std::int32_t> order;
    std::vector<std::int32_t> position;
  };
  /// Returns the same devices with other axes.
  [[nodiscard]] mesh with_info(const detail::mesh_info& other) const {
    mesh result(*this);
    result.held_ = std::make_shared<held>(*held_);
    auto& info = result.held_->info;
    info = other;
    if (info.shape.order != nullptr) {
      info.shape.order = result.held_->order.data();
      info.shape.position = result.held_->position.data();
    }
    return result;
  }
  std::shared_ptr<held> held_;
};

/// Returns a mesh that combines several meshes over the same devices. Annotations may name the axes of each mesh. A
/// value that is sharded by one mesh is resharded if an operator needs it sharded by another mesh. gspmd::mesh_views
/// documents which meshes can be combined.
///
/// **Errors.** gspmd::error if the numbers of devices differ, or if an axis ends inside an axis of another mesh. Also
/// if a device order is not an exchange of axes, or if one name has two meanings.
/// **Example.**
///
///     const auto m = dynamic::views({dynamic::mesh({{"x", 4}, {"y", 2}}), dynamic::mesh({{"a", 2}, {"b", 4}})});
///     auto step = dynamic::compile(f, m, dynamic::input<float>({8, 8}, {"x", ""}),
///                                  dynamic::input<float>({8, 8}, {"b", ""}));
inline mesh views(const std::vector<mesh>& meshes) {
  if (meshes.empty()) throw error("views: give at least one mesh");
  mesh result = meshes.front();
  for (std::size_t k = 1; k < meshes.size(); ++k) result = result.with_view(meshes[k]);
  return result;
}

}  // namespace dynamic
}  // namespace gspmd
