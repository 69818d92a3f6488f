// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/ir/network_rates.hpp"
#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/text.hpp"

namespace gspmd::detail {

inline constexpr std::size_t max_name = 31;

constexpr bool is_axis_name(std::string_view s) {
  for (const char c : s)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_')) return false;
  return !s.empty();
}

/// A part of an axis, in Shardy's notation: `x:(2)4` is the part of x with size 4 after major parts of size 2. A plain
/// name has size 0.
struct sub_axis {
  std::string_view base;
  std::int64_t before = 1;
  std::int64_t size = 0;

  static constexpr sub_axis of(std::string_view s) {
    const auto colon = s.find(":(");
    const auto close = s.find(')');
    if (colon == std::string_view::npos || close == std::string_view::npos || close < colon) return {s, 1, 0};
    return {s.substr(0, colon), number(s.substr(colon + 2, close - colon - 2)), number(s.substr(close + 1))};
  }

 private:
  static constexpr std::int64_t number(std::string_view s) {
    std::int64_t n = 0;
    for (const char c : s)
      if (c >= '0' && c <= '9' && n < (std::int64_t{1} << 40)) n = n * 10 + (c - '0');
    return n;
  }
};

using axis_list = inline_vec<std::int8_t, max_axes>;  // ordered, major to minor

/// An axis of a second mesh over the same devices (mesh_views.hpp): the axes that it consists of.
struct view_axis {
  inline_vec<char, static_cast<int>(max_name)> name;
  axis_list parts;
  friend constexpr bool operator==(const view_axis&, const view_axis&) = default;
};
inline constexpr int max_view_axes = 32;

/// The user's memory of an input or output whose strides are passed at run time. Loops load and store it in place
/// (scalar_op::given). For an input, `low` and `high` count the ghost layers around the shard that loads at an offset
/// can read.
struct given_layers {
  bool is_given = false;
  extents low, high;
  [[nodiscard]] constexpr bool reaches(int dim, std::int64_t by) const { return by <= high[dim] && -by <= low[dim]; }
};

struct plan;
/// Picoseconds of one step: of the plan, and a lower bound for all plans. -1: the option `solve` is not set.
struct solved_times {
  std::int64_t plan = -1, least = -1;
};
/// The options of a plan, in addition to the program and the mesh.
struct plan_request {
  network_rates network;         // the basis of the planner's choices
  std::int64_t most_memory = 0;  // bytes that a device may hold; 0: unlimited
  int saving = 0;                // the level of memory saving, see save_memory.hpp
  bool is_searched = false;      // the planner searches for plans (choose/plan_search.hpp)
  bool is_checked = false;       // runs compare the data that must be equal on several devices (run/equality_check.hpp)
  /// Starts collectives early, so that they run concurrently with computation (order/hide_collectives.hpp). Null: not
  /// requested.
  void (*hide)(plan&, span<const int> base, const network_rates&) = nullptr;
  /// Chooses all shardings together, with a lower bound (solve/solve_plan.hpp). Null: not requested.
  void (*solve)(const struct solve_input&, struct search_state&) = nullptr;
  span<const given_layers> given = {};  // of the first inputs and outputs
};

/// A mesh with the names of its axes, which annotations and messages use, and the options of plans for it.
struct mesh_info {
  mesh_shape shape;
  plan_request request;
  // in programs with types: the axes whose sharding the types do not state (typed/automatic_axes.hpp)
  axis_mask automatic_axes = 0;
  inline_vec<inline_vec<char, static_cast<int>(max_name)>, max_axes> names;
  inline_vec<view_axis, max_view_axes> views;  // other names for sequences of axes; each has at least one axis

  constexpr void add_axis(std::string_view name, std::int32_t size) {
    inline_vec<char, static_cast<int>(max_name)> chars;
    for (const char c : name) chars.push_back(c);
    names.push_back(chars);
    shape.sizes.push_back(size);
  }
  [[nodiscard]] constexpr std::string_view name(int axis) const { return view_of(names[axis]); }
  [[nodiscard]] constexpr std::string_view view_name(int k) const { return view_of(views[k].name); }
  [[nodiscard]] constexpr int find(std::string_view wanted) const {
    for (int a = 0; a < names.count; ++a)
      if (name(a) == wanted) return a;
    return -1;
  }
  /// Returns the axes of a name. These are one axis, the parts of an axis that was cut, or the axes of an axis of
  /// another view. `x:(2)4` is a part of x. Returns count 0 if the name is unknown.
  [[nodiscard]] constexpr axis_list find_run(std::string_view wanted) const {
    axis_list found;
    if (const int a = find(wanted); a >= 0) {
      found.push_back(static_cast<std::int8_t>(a));
      return found;
    }
    const sub_axis w = sub_axis::of(wanted);
    if (w.size == 0 && w.base.size() != wanted.size()) return found;
    for (int a = 0; a < names.count; ++a)
      if (base_name(a) == w.base) found.push_back(static_cast<std::int8_t>(a));
    for (int k = 0; k < views.count && found.empty(); ++k)
      if (view_name(k) == w.base) found = views[k].parts;
    return w.size == 0 ? found : part_of(found, w);
  }
  [[nodiscard]] constexpr axis_mask mask_of(std::string_view wanted) const {
    axis_mask mask = 0;
    for (const auto a : find_run(wanted)) mask |= axis_bit(a);
    return mask;
  }
  /// Returns the user's name of the axis that `axis` is a part of.
  [[nodiscard]] constexpr std::string_view base_name(int axis) const { return sub_axis::of(name(axis)).base; }
  /// Writes the first of `axes` and removes it. If the axes after it complete an axis of the user, writes that axis and
  /// removes them too: x:(1)2,x:(2)2 is x. With `any_order`, the list is a set in the order of the mesh.
  [[gnu::cold]] constexpr void write_first(text& t, axis_list& axes, bool any_order) const {
    const sub_axis first = sub_axis::of(name(axes[0]));
    int n = 1;
    bool is_whole = first.size == 0;
    if (!is_whole) {
      while (n < axes.count && axes[n] == axes[n - 1] + 1 && base_name(axes[n]) == first.base) ++n;
      const int last = axes[n - 1];
      is_whole = first.before == 1 && (last + 1 == names.count || base_name(last + 1) != first.base);
    }
    int best = -1;
    for (int k = 0; k < views.count; ++k) {
      const int longest = best >= 0 ? views[best].parts.count : is_whole ? n : 0;
      if (views[k].parts.count > longest && begins_with(axes, views[k].parts, any_order)) best = k;
    }
    axis_list written;
    if (best >= 0) {
      t << view_name(best);
      written = views[best].parts;
    } else {
      std::int64_t size = 1;
      for (int i = 0; i < n; ++i) {
        size *= shape.sizes[axes[i]];
        written.push_back(axes[i]);
      }
      t << first.base;
      if (!is_whole) t << ":(" << first.before << ')' << size;
    }
    axis_list rest;
    for (const auto a : axes)
      if (!holds(written, a)) rest.push_back(a);
    axes = rest;
  }
  /// Returns for each axis of the original mesh the axes that it was cut into, in order.
  [[nodiscard]] constexpr inline_vec<axis_list, max_axes> own_axes() const {
    inline_vec<axis_list, max_axes> result;
    for (int a = 0; a < names.count; ++a) {
      if (a == 0 || sub_axis::of(name(a)).size == 0 || base_name(a) != base_name(a - 1)) result.push_back({});
      result[result.count - 1].push_back(static_cast<std::int8_t>(a));
    }
    return result;
  }
  /// Calls `f(name, axes, size)` for every axis that the user named: those of the mesh, then those of its views.
  template <class F>
  constexpr void for_each_named(F f) const {
    for (const auto& parts : own_axes()) {
      axis_mask mask = 0;
      for (const auto a : parts) mask |= axis_bit(a);
      f(base_name(parts[0]), mask, shape.size_of(mask));
    }
    for (int k = 0; k < views.count; ++k) f(view_name(k), mask_of(view_name(k)), shape.size_of(mask_of(view_name(k))));
  }
  [[nodiscard]] constexpr bool has_equal_names() const {
    for (int a = 0; a < names.count; ++a)
      if (find(name(a)) != a) return true;
    return false;
  }

 private:
  static constexpr std::string_view view_of(const inline_vec<char, static_cast<int>(max_name)>& chars) {
    return {chars.begin(), static_cast<std::size_t>(chars.size())};
  }
  static constexpr bool holds(const axis_list& list, std::int8_t axis) {
    for (const auto a : list)
      if (a == axis) return true;
    return false;
  }
  static constexpr bool begins_with(const axis_list& axes, const axis_list& parts, bool any_order) {
    if (parts.count > axes.count) return false;
    if (!any_order) {
      for (int i = 0; i < parts.count; ++i)
        if (axes[i] != parts[i]) return false;
      return true;
    }
    for (const auto p : parts)
      if (!holds(axes, p)) return false;
    return holds(parts, axes[0]);
  }
  /// Returns the axes of `whole` that form a part of size `w.size` after major parts of size `w.before`.
  [[nodiscard]] constexpr axis_list part_of(const axis_list& whole, const sub_axis& w) const {
    axis_list found;
    std::int64_t before = 1, size = 1;
    for (const auto a : whole) {
      if (before >= w.before && size < w.size) {
        if (before != w.before && found.empty()) break;
        found.push_back(a);
        size *= shape.sizes[a];
      }
      before *= shape.sizes[a];
    }
    if (size != w.size) found.clear();
    return found;
  }
};

constexpr bool same_mesh(const mesh_shape& a, const mesh_shape& b) {
  if (!(a.sizes == b.sizes)) return false;
  if (a.order == nullptr && b.order == nullptr) return true;
  for (std::int64_t i = 0; i < a.device_count(); ++i) {
    const auto device = static_cast<std::int32_t>(i);
    if ((a.order != nullptr ? a.order[i] : device) != (b.order != nullptr ? b.order[i] : device)) return false;
  }
  return true;
}
constexpr bool same_mesh(const mesh_info& a, const mesh_info& b) {
  return a.names == b.names && a.views == b.views && same_mesh(a.shape, b.shape);
}

/// Returns `data,model`.
constexpr text axes_text(const mesh_info& mesh, axis_mask axes) {
  text t;
  axis_list list;
  for (int a = 0; a < mesh.shape.axis_count(); ++a)
    if ((axes & axis_bit(a)) != 0) list.push_back(static_cast<std::int8_t>(a));
  while (!list.empty()) {
    if (!t.empty()) t << ',';
    mesh.write_first(t, list, true);
  }
  return t;
}

/// Returns `x=4, y=2 | f=8`: the axes of the mesh, then the axes that only its other views have.
[[gnu::cold]] constexpr text named_sizes_text(const mesh_info& mesh) {
  text t;
  int n = 0;
  const int own = [&mesh] {
    int count = 0;
    mesh.for_each_named([&count](std::string_view, axis_mask, std::int64_t) { ++count; });
    return count - mesh.views.count;
  }();
  mesh.for_each_named([&](std::string_view name, axis_mask, std::int64_t size) {
    if (n > 0) t << (n == own ? " | " : ", ");
    t << name << '=' << size;
    ++n;
  });
  return t;
}

/// Returns all names that a sharding can use: `data,model`, and the axes of the other views of the mesh.
constexpr text names_text(const mesh_info& mesh) {
  text t;
  mesh.for_each_named([&t](std::string_view name, axis_mask, std::int64_t) { t << (t.empty() ? "" : ",") << name; });
  return t;
}

/// Appends the axes that split a dim, major to minor. Returns false if no axis splits it.
constexpr bool write_dim(text& t, const mesh_info& mesh, const sharding& s, int dim) {
  axis_list list;
  for (const auto& use : s.splits)
    if (use.dim == dim) list.push_back(use.axis);
  const bool is_split = !list.empty();
  for (bool is_first = true; !list.empty(); is_first = false) {
    if (!is_first) t << ',';
    mesh.write_first(t, list, false);
  }
  return is_split;
}

/// Returns `[data, _, model] partial(x: add)`: for each dim the axes that split it, major to minor.
[[gnu::cold]] constexpr text sharding_text(const mesh_info& mesh, const sharding& s, int rank) {
  text t("[");
  for (int d = 0; d < rank; ++d) {
    if (d > 0) t << ", ";
    if (!write_dim(t, mesh, s, d)) t << '_';
  }
  t << ']';
  if (s.partial != 0) t << " partial(" << axes_text(mesh, s.partial) << ": " << name_of(s.reduced_by) << ')';
  return t;
}

}  // namespace gspmd::detail
