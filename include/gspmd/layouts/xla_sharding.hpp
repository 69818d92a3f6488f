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
#include "gspmd/program/sharding.hpp"

namespace gspmd {

/// The form of a device list: `<=[2,4]T(1,0)` if it is a transposed iota, or always a list of all devices.
using detail::xla_form;

/// An XLA sharding in the notation of `split`: the axes of each dim, the axes over which it is partial (unreduced),
/// and its manual axes.
struct xla_named {
  std::vector<std::string> dims;
  std::string partial_axes, manual_axes;
  bool annotated = true;  // false: unknown, completion decides
};

/// A sharding in XLA's textual form: device lists, the iota form, tuples, and replicated, manual and unreduced
/// subgroups. `metadata` is ignored. Groups of values that share a sharding, `shard_as 1` and `shard_like 1`, are
/// parsed and written. Their meaning depends on all values of a program: `tiles().shard_group` has the number, and
/// `gspmd-plan` gives the values one sharding. In a program, use `shard_alike`.
///
/// **Example.**
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

  /// Converts a sharding of the library to XLA's form. `manual` is the mask of manual axes. Open dims are not
  /// represented, because XLA has no notation for them. Partial sums are XLA's `unreduced`. Throws gspmd::error for
  /// another reduction.
  static xla_sharding of(const detail::mesh_info& mesh, const detail::sharding& s, int rank, detail::axis_mask manual = 0) {
    if (s.partial != 0 && s.reduced_by != monoid::add)
      throw error(std::string("XLA has no sharding for a partial ") + detail::name_of(s.reduced_by) + " over " +
                  std::string(detail::axes_text(mesh, s.partial).view()) + "; reduce the value first");
    return xla_sharding(detail::to_xla(mesh.shape, s, rank, manual));
  }

  /// Finds the sharding on a mesh: the axes that give every device the same tile as the device list. `annotated` is
  /// false for `{unknown}`. Throws gspmd::error for a wrong number of dims or devices, or a list that is no product of
  /// axes or of their parts. Also for a single device (`maximal`) and for a tuple.
  [[nodiscard]] detail::xla_on_mesh on(const detail::mesh_info& mesh, int rank) const {
    auto result = detail::on_mesh(tiles_, mesh, rank);
    if (!result.problem.empty()) refuse(result.problem);
    return result;
  }

  /// The same in the notation of `split`, with one entry for each dim, as in dynamic::input.
  [[nodiscard]] xla_named on_named(const detail::mesh_info& mesh, int rank) const {
    const auto on_mesh = on(mesh, rank);
    xla_named result{{},
                     std::string(detail::axes_text(mesh, on_mesh.value.partial).view()),
                     std::string(detail::axes_text(mesh, on_mesh.manual).view()),
                     on_mesh.annotated};
    for (int d = 0; d < rank; ++d) result.dims.emplace_back(detail::spec_text(mesh, on_mesh.value, d).view());
    return result;
  }
  /// Returns the number of devices that `on` must check one by one, if the list is no product of axes. A short text
  /// may have a long list.
  [[nodiscard]] std::int64_t listed_devices(const detail::mesh_info& mesh) const {
    if (tiles_.kind != detail::xla_kind::tiled || tiles_.device_count() != mesh.shape.device_count()) return 0;
    if (mesh.shape.position == nullptr && !tiles_.iota.empty())
      if (auto factors = detail::factors_of_iota(tiles_); detail::cut_at_dims(factors, tiles_.dims)) return 0;
    return tiles_.device_count();
  }

  /// Makes a mesh for the sharding with the fewest possible axes. A list that is no product of axes becomes the device
  /// order of the mesh. `device_count` is used for shardings that name no devices, such as `{replicated}`. Throws
  /// gspmd::error in the cases of `on`.
  [[nodiscard]] detail::xla_with_mesh with_mesh(std::int64_t device_count = 1) const {
    auto result = detail::with_mesh(tiles_, device_count, -1);
    if (!result.problem.empty()) refuse(result.problem);
    return result;
  }

  /// Returns the text, in XLA's spelling.
  [[nodiscard]] std::string text(xla_form form = xla_form::iota) const {
    detail::text t;
    detail::write_xla(t, tiles_, form);
    return std::string(t.view());
  }

  [[nodiscard]] bool is_tuple() const { return tiles_.kind == detail::xla_kind::tuple; }
  /// Returns the shardings of a tuple.
  [[nodiscard]] std::vector<xla_sharding> elements() const {
    std::vector<xla_sharding> result;
    for (const auto& e : tiles_.elements) result.push_back(xla_sharding(e));
    return result;
  }
  /// Returns the parts of the parsed text.
  [[nodiscard]] const detail::xla_tiles& tiles() const { return tiles_; }

 private:
  explicit xla_sharding(detail::xla_tiles tiles) : tiles_(std::move(tiles)) {}
  [[noreturn]] void refuse(const detail::text& why) const {
    throw error("XLA sharding `" + text() + "`: " + std::string(why.view()));
  }

  detail::xla_tiles tiles_;
};

namespace detail {

/// Resolves an annotation in XLA's text. If it is unknown, all dims are open.
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
resolved_sharding resolve_xla_at_run_time(const mesh_info& mesh, std::string_view written, int rank);

}  // namespace detail

/// An annotation of an input in XLA's textual form, instead of `split`. It is checked against the mesh when the
/// program is compiled.
///
/// **Errors.** At compile time, if `xla_sharding::on` would throw.
/// **Example.**
///     input<float, shape<8, 8>, xla_split<"{devices=[2,1,4]<=[8] last_tile_dim_replicate}">>
template <fixed_string Text>
struct xla_split {
  static constexpr bool is_annotation = true;
  static constexpr detail::resolved_sharding resolve(const detail::mesh_info& mesh, int rank) {
    return detail::resolve_xla(mesh, Text.view(), rank);
  }
};

}  // namespace gspmd

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/layouts/xla_sharding.ipp"
#endif
