// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gspmd/layouts/placed_array.hpp"
#include "gspmd/program/shard_view.hpp"

/// Layouts of data that other codes have distributed: balanced blocks, and layouts by meshes, splits and steps.
namespace gspmd {

/// The distribution of most MPI codes: contiguous blocks, where the first blocks have one element more (codes that use
/// MPI_Dims_create, PETSc's DMDA, HDF5 slabs). 9 elements in 4 parts are 3,2,2,2; in the library's own shardings they
/// are 3,3,3,0.
struct balanced {
  static constexpr detail::text text() { return "balanced"; }
  static constexpr std::int64_t begin(std::int64_t extent, std::int64_t parts, std::int64_t part) {
    const auto rest = extent % parts;
    return part * (extent / parts) + (part < rest ? part : rest);
  }
  static constexpr std::int64_t local_extent(std::int64_t extent, std::int64_t parts, std::int64_t part) {
    return extent / parts + (part < extent % parts ? 1 : 0);
  }
  static constexpr std::int64_t split(std::int64_t extent, std::int64_t parts, std::int64_t part, std::int64_t i) {
    return begin(extent, parts, part) + i;
  }
  static constexpr placed_at unsplit(std::int64_t extent, std::int64_t parts, std::int64_t global) {
    const auto least = extent / parts, rest = extent % parts, longer = rest * (least + 1);
    const auto part = global < longer ? global / (least + 1) : rest + (global - longer) / least;
    return {part, global - begin(extent, parts, part)};
  }
};

/// Returns the layout of a tensor on a mesh, with a placement for each dim. Dims without a placement are contiguous.
///
/// **Errors.** Those of shard_view, at compile time, and of placed_layout.
/// **Example.**
///     const auto rows = layout_on<pod, shape<15, 8>, split<"data", _>>(balanced{});
template <class Mesh, class Dims, class Split, placement... P>
placed_layout<P...> layout_on(const P&... per_dim) {
  using shard = shard_view<std::int8_t, Mesh, Dims, Split>;
  return {Mesh::info.shape, shard::global_extents, shard::layout, per_dim...};
}

/// The same on a mesh that is known at run time (dynamic::mesh). The mesh must outlive the layout. `split` has the
/// names of the axes that split each dim, as in dynamic::input.
///
/// **Errors.** Throws gspmd::error for a wrong number of dims, names that are not axes of the mesh, and the errors of
/// placed_layout.
/// **Example.**
///     const auto rows = layout_on(m, {n, 8}, {"data", ""}, balanced{});
template <class Mesh, placement... P>
  requires requires(const Mesh& m) { m.info().shape; }
placed_layout<P...> layout_on(const Mesh& mesh, const std::vector<std::int64_t>& shape, const std::vector<std::string>& split,
                              const P&... per_dim) {
  const auto found = detail::resolve(mesh.info(), split.data(), static_cast<int>(split.size()), static_cast<int>(shape.size()));
  if (!found.problem.empty()) throw error("layout_on: " + std::string(found.problem.view()));
  if (shape.size() > static_cast<std::size_t>(detail::max_rank)) throw error("layout_on: a tensor has at most 32 dims");
  detail::extents extents;
  for (const auto n : shape) extents.push_back(n);
  return {mesh.info().shape, extents, found.value.layout, per_dim...};
}

/// Returns the layout of input `K` of a step, with the same axes and with other placements.
///
/// **Example.**
///     const auto theirs = layout_of_input<step, 0>(balanced{});
///     bytes_sent_to_redistribute(theirs, layout_of_input<step, 0>(), me, 8);
template <class Step, std::size_t K, placement... P>
placed_layout<P...> layout_of_input(const P&... per_dim) {
  const auto& v = Step::view.value(Step::view.inputs[K]);
  return {*Step::view.mesh, v.global, v.layout, per_dim...};
}
/// The same for output `K`.
template <class Step, std::size_t K, placement... P>
placed_layout<P...> layout_of_output(const P&... per_dim) {
  const auto& v = Step::view.value(Step::view.outputs[K]);
  return {*Step::view.mesh, v.global, v.layout, per_dim...};
}

/// The same for an input of a program that is planned at run time. The program must outlive the layout.
///
/// **Errors.** Throws gspmd::error: no such input; the errors of placed_layout.
/// **Example.**
///     const auto theirs = layout_of_input(program, 0, balanced{});
template <class Program, placement... P>
  requires requires(const Program& p) { p.input(0).sharding(); }
placed_layout<P...> layout_of_input(const Program& program, std::size_t k, const P&... per_dim) {
  static_cast<void>(program.input(k));  // throws if the input does not exist
  const auto& v = program.view().value(program.view().inputs[k]);
  return {*program.view().mesh, v.global, v.layout, per_dim...};
}
/// The same for an output.
template <class Program, placement... P>
  requires requires(const Program& p) { p.output(0).sharding(); }
placed_layout<P...> layout_of_output(const Program& program, std::size_t k, const P&... per_dim) {
  static_cast<void>(program.output(k));  // throws if the output does not exist
  const auto& v = program.view().value(program.view().outputs[k]);
  return {*program.view().mesh, v.global, v.layout, per_dim...};
}

}  // namespace gspmd
