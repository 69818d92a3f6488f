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
  [[nodiscard]] constexpr bool has_equal_names() const {
    for (int a = 0; a < names.count; ++a)
      if (find(name(a)) != a) return true;
    return false;
  }
};

/// `data,model`
constexpr text axes_text(const mesh_info& mesh, axis_mask axes) {
  text t;
  for (int a = 0; a < mesh.shape.axis_count(); ++a)
    if ((axes & axis_bit(a)) != 0) {
      if (!t.empty()) t << ',';
      t << mesh.name(a);
    }
  return t;
}

/// `[data, _, model] partial(x: add)`: per dim the axes that split it, major to minor
constexpr text sharding_text(const mesh_info& mesh, const sharding& s, int rank) {
  text t("[");
  for (int d = 0; d < rank; ++d) {
    if (d > 0) t << ", ";
    bool any = false;
    for (const auto& use : s.splits)
      if (use.dim == d) {
        if (any) t << ',';
        t << mesh.name(use.axis);
        any = true;
      }
    if (!any) t << '_';
  }
  t << ']';
  if (s.partial != 0) t << " partial(" << axes_text(mesh, s.partial) << ": " << name_of(s.kind) << ')';
  return t;
}

}  // namespace gspmd::detail
