// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/text.hpp"

namespace gspmd::detail {

inline constexpr std::size_t max_name = 31;

constexpr bool is_axis_name(std::string_view s) {
  for (const char c : s)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_')) return false;
  return !s.empty();
}

/// A part of an axis, in Shardy's notation: `x:(2)4` lies within x behind parts of 2 and has 4. A plain name has size 0.
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

/// A mesh with the names of its axes: what annotations and messages speak of.
struct mesh_info {
  mesh_shape shape;
  inline_vec<inline_vec<char, static_cast<int>(max_name)>, max_axes> names;

  constexpr void add_axis(std::string_view name, std::int32_t size) {
    inline_vec<char, static_cast<int>(max_name)> chars;
    for (const char c : name) chars.push_back(c);
    names.push_back(chars);
    shape.sizes.push_back(size);
  }
  [[nodiscard]] constexpr std::string_view name(int axis) const {
    return {names[axis].begin(), static_cast<std::size_t>(names[axis].size())};
  }
  [[nodiscard]] constexpr int find(std::string_view wanted) const {
    for (int a = 0; a < names.count; ++a)
      if (name(a) == wanted) return a;
    return -1;
  }
  /// The axes that a name means: one, or, where the planner has cut an axis, the neighbours that it was cut into. None: count 0.
  struct run {
    int first = -1;
    int count = 0;
  };
  [[nodiscard]] constexpr run find_run(std::string_view wanted) const {
    if (const int a = find(wanted); a >= 0) return {a, 1};
    const sub_axis w = sub_axis::of(wanted);
    for (int a = 0; a < names.count; ++a) {
      const sub_axis s = sub_axis::of(name(a));
      if (s.size == 0 || s.base != w.base || s.before != w.before) continue;
      std::int64_t size = 1;
      for (int b = a; b < names.count && sub_axis::of(name(b)).base == w.base; ++b) {
        size *= shape.sizes[b];
        const bool is_last = b + 1 == names.count || sub_axis::of(name(b + 1)).base != w.base;
        if (w.size == 0 ? is_last : size == w.size) return {a, b + 1 - a};
      }
    }
    return {};
  }
  [[nodiscard]] constexpr axis_mask mask_of(std::string_view wanted) const {
    const run r = find_run(wanted);
    axis_mask mask = 0;
    for (int a = r.first; a < r.first + r.count; ++a) mask |= axis_bit(a);
    return mask;
  }
  /// The axis that this one is a part of: the user's name.
  [[nodiscard]] constexpr std::string_view base_name(int axis) const { return sub_axis::of(name(axis)).base; }
  /// Writes neighbours that were one axis as that axis: x:(1)2,x:(2)2 is x. Returns how many of `axes` it took.
  constexpr int write_run(text& t, const int* axes, int count) const {
    const sub_axis first = sub_axis::of(name(axes[0]));
    if (first.size == 0) {
      t << name(axes[0]);
      return 1;
    }
    std::int64_t size = shape.sizes[axes[0]];
    int n = 1;
    for (; n < count && axes[n] == axes[n - 1] + 1 && base_name(axes[n]) == first.base; ++n) size *= shape.sizes[axes[n]];
    const int last = axes[n - 1];
    const bool is_whole = first.before == 1 && (last + 1 == names.count || base_name(last + 1) != first.base);
    t << first.base;
    if (!is_whole) t << ":(" << first.before << ')' << size;
    return n;
  }
  [[nodiscard]] constexpr bool has_equal_names() const {
    for (int a = 0; a < names.count; ++a)
      if (find(name(a)) != a) return true;
    return false;
  }
};

/// `data,model`
constexpr text axes_text(const mesh_info& mesh, axis_mask axes) {
  text t;
  int list[max_axes]{};
  int count = 0;
  for (int a = 0; a < mesh.shape.axis_count(); ++a)
    if ((axes & axis_bit(a)) != 0) list[count++] = a;
  for (int i = 0; i < count;) {
    if (i > 0) t << ',';
    i += mesh.write_run(t, list + i, count - i);
  }
  return t;
}

/// Appends the axes that split a dim, major to minor; false if there are none.
constexpr bool write_dim(text& t, const mesh_info& mesh, const sharding& s, int dim) {
  int list[max_axes]{};
  int count = 0;
  for (const auto& use : s.splits)
    if (use.dim == dim) list[count++] = use.axis;
  for (int i = 0; i < count;) {
    if (i > 0) t << ',';
    i += mesh.write_run(t, list + i, count - i);
  }
  return count > 0;
}

/// `[data, _, model] partial(x: add)`: per dim the axes that split it, major to minor
constexpr text sharding_text(const mesh_info& mesh, const sharding& s, int rank) {
  text t("[");
  for (int d = 0; d < rank; ++d) {
    if (d > 0) t << ", ";
    if (!write_dim(t, mesh, s, d)) t << '_';
  }
  t << ']';
  if (s.partial != 0) t << " partial(" << axes_text(mesh, s.partial) << ": " << name_of(s.kind) << ')';
  return t;
}

}  // namespace gspmd::detail
