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

namespace gspmd {

/// A part of an axis, in Shardy's notation: `sub_axis::of("x:(2)4")` has the base `x`, 2 parts `before` it and the size 4. A plain
/// name has size 0.
using detail::sub_axis;

namespace dynamic {

/// A device mesh whose axes are known at run time.
///
///     dynamic::mesh m({{"data", 2}, {"model", ranks / 2}});
///     dynamic::mesh r({{"x", 2}, {"y", 2}}, {0, 1, 3, 2});       // device ids, row-major over the axes
///
/// Threads: nothing in it changes; any number may use one.
class mesh {
 public:
  struct axis {
    std::string name;
    std::int64_t size = 1;
  };

  static constexpr std::size_t most_axes = static_cast<std::size_t>(detail::max_axes);
  static constexpr std::int64_t most_devices = std::int64_t{1} << 30;
  /// 1 to 31 letters, digits and _.
  static constexpr bool is_axis_name(std::string_view name) {
    return name.size() <= detail::max_name && detail::is_axis_name(name);
  }

  /// Throws gspmd::error: a bad name, two equal names, a size below 1, too many axes or devices, an order that is none.
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
    if (held_->info.has_equal_names()) throw error("mesh: two axes have one name; rename one of them");
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

  /// The axes that split tensors, major to minor; an axis that was cut is its parts: `x:(1)2` and `x:(2)2`.
  [[nodiscard]] std::vector<axis> axes() const {
    std::vector<axis> result;
    for (int a = 0; a < info().shape.axis_count(); ++a) result.push_back({std::string(info().name(a)), info().shape.sizes[a]});
    return result;
  }
  /// Which of axes() a name means, which may be that of an axis, of a part of one, or of an axis of another view; none: no such axis.
  [[nodiscard]] std::vector<std::size_t> find(std::string_view name) const {
    const auto run = info().find_run(name);
    return {run.begin(), run.end()};
  }
  /// The number of devices along the axis; 0: no such axis.
  [[nodiscard]] std::int64_t size_of(std::string_view name) const {
    const auto axes = info().mask_of(name);
    return axes == 0 ? 0 : info().shape.size_of(axes);
  }
  /// All that an annotation may name: `data,model`.
  [[nodiscard]] std::string names() const { return std::string(detail::names_text(info()).view()); }

  /// One device, with axes of the same names.
  [[nodiscard]] mesh with_one_device() const {
    mesh result(*this);
    result.held_ = std::make_shared<held>();
    for (int a = 0; a < info().shape.axis_count(); ++a) result.held_->info.add_axis(info().name(a), 1);
    result.held_->info.views = info().views;
    return result;
  }
  /// The same devices as this mesh and as `other`: annotations may name the axes of both. Throws gspmd::error: see `views`.
  [[nodiscard]] mesh with_view(const mesh& other) const {
    const auto combined = detail::with_view(info(), other.info());
    if (!combined.problem.empty()) throw error("views: " + std::string(combined.problem.view()));
    return with_info(combined.info);
  }
  /// The same devices, connected so: plans for this mesh are those that take least time on this network (gspmd::on_network). Throws
  /// gspmd::error: an axis of more than one device about which the network says nothing.
  ///
  ///     auto step = dynamic::compile(f, dynamic::mesh({{"x", 8}, {"y", 4}}).on(network(1e12, 10e9, 1e-6)), ...);
  template <class Network>  // gspmd::network: who names none need not include it
    requires requires(const Network& n, const detail::mesh_info& m) { n.rates_on(m); }
  [[nodiscard]] mesh on(const Network& connected) const {
    const auto found = connected.rates_on(info());
    if (!found.problem.empty()) throw error("network: " + std::string(found.problem.view()));
    auto described = info();
    described.request.network = found.rates;
    return with_info(described);
  }
  /// Returns the same mesh with a limit of `bytes` for the memory of a device: see `within`. Throws gspmd::error if `bytes` is not positive.
  /// If no plan fits, `compile` throws gspmd::error with the least number of bytes that a plan holds.
  [[nodiscard]] mesh within(std::int64_t bytes) const {
    if (const auto why = detail::why_refused("within: bytes", bytes); !why.empty()) throw error(why);
    auto limited = info();
    limited.request.most_memory = bytes;
    return with_info(limited);
  }
  /// The same mesh, for which better plans are searched for: see gspmd::searched.
  [[nodiscard]] mesh searched() const {
    auto sought = info();
    sought.request.is_searched = true;
    return with_info(sought);
  }
  /// The same mesh, on which runs look whether devices hold the same of what is the same on all of them: see `checked`.
  [[nodiscard]] mesh checked() const {
    auto looked_at = info();
    looked_at.request.is_checked = true;
    return with_info(looked_at);
  }
  /// The same mesh, of which programs type these axes only and leave the others to the planner: see gspmd::explicit_axes. Throws
  /// gspmd::error: an axis that is not there.
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
  /// The same devices with axes cut so that annotations may name these parts of them: `x:(2)4`. A part that overlaps one before it,
  /// that its axis does not have, or for which there is no room, is left out, and unknown to annotations.
  [[nodiscard]] mesh with_parts(const std::vector<std::string>& names) const {
    std::map<std::string, std::set<std::int64_t>, std::less<>> ends;  // by axis: where parts begin and end, from the major side
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
  /// The same mesh, of whose plans something else is asked.
  [[nodiscard]] mesh with_request(const detail::plan_request& asked) const {
    auto other = info();
    other.request = asked;
    return with_info(other);
  }
  /// The same devices with one axis cut in two (detail/passes/rewrite/sub_axes.hpp).
  [[nodiscard]] mesh with_cut(detail::axis_cut cut) const { return with_info(detail::cut_axis(held_->info, cut)); }

 private:
  struct held {  // plans point into it
    detail::mesh_info info;
    std::vector<std::int32_t> order;
    std::vector<std::int32_t> position;
  };
  /// The same devices under other axes.
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

/// Several meshes over the same devices as one: annotations may name the axes of each, and a value that is sharded by one of them
/// is resharded where an operator wants it by another. What can be views of each other is said at gspmd::mesh_views. Throws
/// gspmd::error: another number of devices, axes of one that end inside axes of the other, a device order that is no exchange of
/// axes, one name for two things.
///
///     const auto m = dynamic::views({dynamic::mesh({{"x", 4}, {"y", 2}}), dynamic::mesh({{"a", 2}, {"b", 4}})});
///     auto step = dynamic::compile(f, m, dynamic::in<float>({8, 8}, {"x", ""}), dynamic::in<float>({8, 8}, {"b", ""}));
inline mesh views(const std::vector<mesh>& meshes) {
  if (meshes.empty()) throw error("views: give at least one mesh");
  mesh result = meshes.front();
  for (std::size_t k = 1; k < meshes.size(); ++k) result = result.with_view(meshes[k]);
  return result;
}

}  // namespace dynamic
}  // namespace gspmd
