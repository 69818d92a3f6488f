// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "gspmd/detail/ir/annotation.hpp"
#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/support/mistake.hpp"
#include "gspmd/detail/support/text.hpp"
#include "gspmd/error.hpp"
#include "gspmd/program/mesh.hpp"

namespace gspmd {

/// The global extents of a tensor.
template <std::int64_t... Extents>
struct shape {
  static_assert(sizeof...(Extents) <= static_cast<std::size_t>(detail::max_rank), "gspmd: shape: a tensor has at most 32 dims");
  static_assert(((Extents >= 0) && ...), "gspmd: shape: an extent is not negative");
  static constexpr int rank = static_cast<int>(sizeof...(Extents));
  static constexpr detail::extents value = [] {
    detail::extents e;
    if constexpr (rank <= detail::max_rank) (e.push_back(Extents), ...);
    return e;
  }();
};

/// The type of `_`.
struct unsplit_t {};
/// The entry of `split` for a dim that is not split: split<"data", _>.
inline constexpr unsplit_t _{};

/// Describes how a dim is split: the names of mesh axes, major to minor, separated by commas.
/// If `?` follows the names, completion may split the dim further.
/// If ` p1` to ` p15` ends the text, it is a priority, as in Shardy. Without it the priority is p0. Completion first
/// propagates splits of priority p0 through the whole program, then splits of p1, and so on. The annotated value itself
/// has all its splits from the start.
///
///     "data"   "data,model"   "data?"   "?"   "data p1"   _
struct dim_spec {
  static constexpr std::size_t most_chars = 63;
  char chars[most_chars + 1]{};
  int size = 0;

  constexpr dim_spec(unsplit_t) {}  // NOLINT: implicit on purpose
  template <std::size_t N>
  constexpr dim_spec(const char (&literal)[N]) : size(static_cast<int>(N) - 1) {  // NOLINT: implicit on purpose
    static_assert(N <= most_chars + 1, "gspmd: split: at most 63 characters for a dim");
    for (std::size_t i = 0; i + 1 < N; ++i) chars[i] = literal[i];
  }
  /// **Errors.** Throws gspmd::error if the text has more than 63 characters.
  constexpr dim_spec(const std::string& s) : dim_spec(std::string_view(s)) {}  // NOLINT: implicit on purpose
  constexpr explicit dim_spec(std::string_view s) : size(static_cast<int>(s.size())) {
    if (s.size() > most_chars) throw error("split: at most 63 characters for a dim, and `" + std::string(s) + "` has more");
    for (std::size_t i = 0; i < s.size(); ++i) chars[i] = s[i];
  }
  [[nodiscard]] constexpr std::string_view view() const { return {chars, static_cast<std::size_t>(size)}; }
};

/// A dimension mapping (GSPMD 3.1, `mesh_split` with names): for each dim, the mesh axes that split the dim. The value
/// is replicated along all other axes. Completion does not split a dim further unless its entry has a `?`.
///
/// **Example.**
///
///     split<"data", _>          rows over data, columns not split
///     split<"data,model", "?">  rows over both axes, data major; completion decides about the columns
template <dim_spec... Dims>
struct split {
  static constexpr int rank = static_cast<int>(sizeof...(Dims));
  static constexpr bool is_annotation = true;
  static constexpr const dim_spec* specs() {
    if constexpr (rank == 0) return nullptr;
    else return list;
  }

 private:
  static constexpr dim_spec list[sizeof...(Dims) == 0 ? 1 : sizeof...(Dims)] = {Dims...};
};
template <>
struct split<> {
  static constexpr int rank = 0;
  static constexpr bool is_annotation = true;
  static constexpr const dim_spec* specs() { return nullptr; }
};

/// No annotation: completion finds the sharding.
struct unannotated {
  static constexpr bool is_annotation = false;
};

/// Annotates a value as partial along `Axes` (names separated by commas): each device holds a partial value. The value
/// is the reduction of the partial values by `Kind`.
template <fixed_string Axes, monoid Kind = monoid::add>
struct partial {
  static constexpr std::string_view axes = Axes.view();
  static constexpr monoid kind = Kind;
};

namespace detail {

/// An annotation that was resolved against a mesh. If it is wrong, `problem` is the text of the error and `broken` the
/// rule.
struct resolved_sharding {
  annotation value;
  text problem;
  detail::mistake broken = detail::mistake::other;

  constexpr text& refuse(mistake rule) {
    broken = rule;
    return problem;
  }
};

constexpr void add_axes(const mesh_info& mesh, std::string_view list, int dim, resolved_sharding& r, axis_mask& used) {
  while (!list.empty() && r.problem.empty()) {
    const auto comma = list.find(',');
    auto name = list.substr(0, comma);
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    const auto run = mesh.find_run(name);
    if (run.empty()) {
      r.refuse(mistake::unknown_axis) << "`" << name << "` is not an axis of the mesh; its axes are " << names_text(mesh);
      if (mesh.find(sub_axis::of(name).base) >= 0)
        r.problem << "; it has a part of an axis that is written as two axes, or that m.with_parts({...}) names";
      return;
    }
    for (const auto axis : run) {
      if ((used & axis_bit(axis)) != 0) {
        r.refuse(mistake::axis_used_twice) << "axis `" << name << "` is used twice; a mesh axis splits one dim at most";
        return;
      }
      used |= axis_bit(axis);
      if (dim >= 0) r.value.layout.add_split(axis, dim);
      else r.value.layout.partial |= axis_bit(axis);
    }
    if (comma == std::string_view::npos) return;
    list.remove_prefix(comma + 1);
  }
}

/// Removes ` p12` from the end of a dim's text and returns 12. Returns 0 if the text has no priority.
constexpr int take_priority(std::string_view& list) {
  auto end = list.size();
  int number = 0;
  int scale = 1;
  while (end > 0 && list[end - 1] >= '0' && list[end - 1] <= '9' && scale < 10000) {
    number += (list[--end] - '0') * scale;
    scale *= 10;
  }
  if (scale == 1 || end < 2 || list[end - 1] != 'p' || list[end - 2] != ' ') return 0;
  list = list.substr(0, end - 2);
  return number;
}

constexpr std::string_view words_of(const dim_spec& spec) { return spec.view(); }
constexpr std::string_view words_of(const std::string& spec) { return spec; }

/// Resolves the annotation of a tensor of `rank` dims. `specs` has `count` entries: dim_spec or, at run time, texts of
/// any length. An entry "" or "_" is a dim that is not split.
/// Example: {"data", "_"} on mesh<axis<"data", 2>> gives a layout that splits dim 0 over data.
template <class Spec>
constexpr resolved_sharding resolve(const mesh_info& mesh, const Spec* specs, int count, int rank,
                                    std::string_view partial_axes = {}, monoid kind = monoid::add) {
  resolved_sharding r;
  if (count != rank) {
    r.refuse(mistake::annotation_rank) << "the sharding names " << count << (count == 1 ? " dim" : " dims")
                                       << " and the tensor has " << rank
                                       << "; write one entry for each dim, _ for a dim that is not split";
    return r;
  }
  axis_mask used = 0;
  for (int d = 0; d < count; ++d) {
    auto list = words_of(specs[d]);
    const int stage = take_priority(list);
    if (stage > 15) {
      r.refuse(mistake::unknown_axis) << "a priority is p0 to p15, and `" << words_of(specs[d]) << "` has p" << stage;
      return r;
    }
    if (!list.empty() && list.back() == '?') {
      r.value.open |= dim_bit(d);
      list.remove_suffix(1);
    }
    if (list != "_") add_axes(mesh, list, d, r, used);
    if (!r.problem.empty()) return r;
    for (const auto& use : r.value.layout.splits)
      if (use.dim == d) r.value.stages |= static_cast<std::uint64_t>(stage) << (4 * use.axis);
  }
  r.value.layout.reduced_by = kind;
  add_axes(mesh, partial_axes, -1, r, used);
  return r;
}

/// Returns the text of the entry for `dim` in a `split`.
constexpr text spec_text(const mesh_info& mesh, const sharding& s, int dim) {
  text t;
  write_dim(t, mesh, s, dim);
  return t;
}
constexpr dim_spec spec_of(const mesh_info& mesh, const sharding& s, int dim) { return dim_spec(spec_text(mesh, s, dim).view()); }
constexpr bool has_spec(const mesh_info& mesh, const sharding& s, int dim) {
  const text t = spec_text(mesh, s, dim);
  return t.view().size() <= dim_spec::most_chars;
}

}  // namespace detail
}  // namespace gspmd
