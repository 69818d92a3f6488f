// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gspmd/detail/notation/xla_convert.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/error.hpp"
#include "gspmd/sharding.hpp"

namespace gspmd {

/// How a device list is written: `<=[2,4]T(1,0)` where it is a transposed count, or always one by one.
using detail::xla_form;

/// A sharding of XLA's in the words of `split`: the axes of each dim, those it is unreduced and those it is manual over.
struct xla_named {
  std::vector<std::string> dims;
  std::string partial_axes, manual_axes;
  bool annotated = true;  // false: unknown, completion decides
};

/// A sharding in XLA's textual form: explicit device lists and the iota form, replicated, manual and unreduced subgroups,
/// tuples. `metadata` is read over. The groups of values that share a sharding, `shard_as 1` and `shard_like 1`, are read and
/// written; what they mean is for whoever sees all values: `tiles().shard_group` has the number, `gspmd-plan` ties the values, and
/// in a program `shard_alike` does.
///
///     const auto s = xla_sharding::parse("{devices=[2,1,4]<=[8] last_tile_dim_replicate}");
///     const auto on = s.on(pod::info, 2);              // [data, _] on mesh<axis<"data", 2>, axis<"model", 4>>
///     xla_sharding::of(pod::info, on.value, 2).text()  // the same text again
class xla_sharding {
 public:
  /// Throws gspmd::error with the column of the first mistake.
  static xla_sharding parse(std::string_view text) {
    detail::xla_parser p(text);
    xla_sharding result(p.parse());
    if (!p.problem.empty()) throw error(std::string(p.problem.view()));
    return result;
  }

  /// A sharding of the library's in XLA's form; `manual`: axes along which the program is manual. What is open is not said:
  /// XLA has no word for it. Partial sums are XLA's `unreduced`; throws gspmd::error for another reduction.
  static xla_sharding of(const detail::mesh_info& mesh, const detail::sharding& s, int rank, detail::axis_mask manual = 0) {
    if (s.partial != 0 && s.reduced_by != monoid::add)
      throw error(std::string("XLA has no sharding for a partial ") + detail::name_of(s.reduced_by) + " over " +
                  std::string(detail::axes_text(mesh, s.partial).view()) + "; reduce the value first");
    return xla_sharding(detail::to_xla(mesh.shape, s, rank, manual));
  }

  /// Finds the sharding on a mesh that is there: whichever axes of it give every device the tile that the list gives it. `annotated` is
  /// false for `{unknown}`. Throws gspmd::error: another number of dims or devices; no product of these axes, or of parts of them only; one
  /// device alone (`maximal`); a tuple.
  [[nodiscard]] detail::xla_on_mesh on(const detail::mesh_info& mesh, int rank) const {
    auto result = detail::on_mesh(tiles_, mesh, rank);
    if (!result.problem.empty()) refuse(result.problem);
    return result;
  }

  /// The same in the words of `split`, one entry for each dim, as dynamic::in takes them.
  [[nodiscard]] xla_named on_named(const detail::mesh_info& mesh, int rank) const {
    const auto on_mesh = on(mesh, rank);
    xla_named result{{},
                     std::string(detail::axes_text(mesh, on_mesh.value.partial).view()),
                     std::string(detail::axes_text(mesh, on_mesh.manual).view()),
                     on_mesh.annotated};
    for (int d = 0; d < rank; ++d) result.dims.emplace_back(detail::spec_text(mesh, on_mesh.value, d).view());
    return result;
  }
  /// How many devices `on` has to go through one by one, where the list is no product of axes; a short text may name many.
  [[nodiscard]] std::int64_t listed_devices(const detail::mesh_info& mesh) const {
    if (tiles_.kind != detail::xla_kind::tiled || tiles_.device_count() != mesh.shape.device_count()) return 0;
    if (mesh.shape.position == nullptr && !tiles_.iota.empty())
      if (auto factors = detail::factors_of_iota(tiles_); detail::cut_at_dims(factors, tiles_.dims)) return 0;
    return tiles_.device_count();
  }

  /// Makes a mesh for the sharding, with as few axes as do. A list that is no product of axes becomes the device order of the mesh.
  /// `device_count` is for what names no devices, like `{replicated}`. Throws gspmd::error as `on` does.
  [[nodiscard]] detail::xla_with_mesh with_mesh(std::int64_t device_count = 1) const {
    auto result = detail::with_mesh(tiles_, device_count, -1);
    if (!result.problem.empty()) refuse(result.problem);
    return result;
  }

  /// The text, spelled as XLA spells it.
  [[nodiscard]] std::string text(xla_form form = xla_form::iota) const {
    detail::text t;
    detail::write_xla(t, tiles_, form);
    return std::string(t.view());
  }

  [[nodiscard]] bool is_tuple() const { return tiles_.kind == detail::xla_kind::tuple; }
  /// The shardings of a tuple.
  [[nodiscard]] std::vector<xla_sharding> elements() const {
    std::vector<xla_sharding> result;
    for (const auto& e : tiles_.elements) result.push_back(xla_sharding(e));
    return result;
  }
  /// Returns the parts of the text that was read.
  [[nodiscard]] const detail::xla_tiles& tiles() const { return tiles_; }

 private:
  explicit xla_sharding(detail::xla_tiles tiles) : tiles_(std::move(tiles)) {}
  [[noreturn]] void refuse(const detail::text& why) const {
    throw error("XLA sharding `" + text() + "`: " + std::string(why.view()));
  }

  detail::xla_tiles tiles_;
};

namespace detail {

/// An annotation in XLA's text. What is unknown is open in all dims.
constexpr resolved_sharding resolve_xla(const mesh_info& mesh, std::string_view written, int rank) {
  resolved_sharding r;
  r.broken = mistake::xla_sharding;
  xla_parser p(written);
  const auto tiles = p.parse();
  if (!p.problem.empty()) {
    r.problem << p.problem;
    return r;
  }
  if (tiles.shard_group >= 0) {
    r.problem
        << "XLA sharding `" << written << "`: " << (tiles.is_shard_like ? "shard_like" : "shard_as")
        << " ties values of a program, and one annotation does not see the others; leave it out and write shard_alike(x, other)";
    return r;
  }
  const auto on = on_mesh(tiles, mesh, rank);
  if (!on.problem.empty()) r.problem << "XLA sharding `" << written << "`: " << on.problem;
  else if (on.manual != 0) r.problem << "XLA sharding `" << written << "`: a value of a program in the global view is not manual";
  r.value = on.value;
  if (!on.annotated && rank > 0) r.value.open = ~dim_mask{0} >> (64 - rank);
  return r;
}
template <class = once>
resolved_sharding resolve_xla_at_run_time(const mesh_info& mesh, std::string_view written, int rank) {
  return resolve_xla(mesh, written, rank);
}
GSPMD_PLANNED_ONCE(resolved_sharding resolve_xla_at_run_time<once>(const mesh_info&, std::string_view, int));

}  // namespace detail

/// An annotation of an input in XLA's textual form, in the place of `split`. It is checked against the mesh when the program is
/// compiled; what `xla_sharding::on` throws is a compile error here.
///
///     in<float, dims<8, 8>, xla_split<"{devices=[2,1,4]<=[8] last_tile_dim_replicate}">>
template <fixed_string Text>
struct xla_split {
  static constexpr bool is_annotation = true;
  static constexpr detail::resolved_sharding resolve(const detail::mesh_info& mesh, int rank) {
    return detail::resolve_xla(mesh, Text.view(), rank);
  }
};

}  // namespace gspmd
