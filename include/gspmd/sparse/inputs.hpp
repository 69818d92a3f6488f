// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "gspmd/detail/driver/edge_elements.hpp"
#include "gspmd/detail/ops/sources.hpp"
#include "gspmd/detail/support/mp11.hpp"
#include "gspmd/program/program.hpp"
#include "gspmd/program/sharding.hpp"
#include "gspmd/sparse/layout.hpp"

namespace gspmd {

/// A sparse matrix while a program is traced, with its rows split over `Axis`. `entries` contains the values,
/// [devices, entries, b, b]. grad(loss, a.entries) is the gradient with respect to them.
template <dim_spec Axis>
struct sparse_value {
  sparse_layout layout;
  value starts, cols, entries, halo_rows, sends;
};

namespace detail {

template <class T, dim_spec Axis>
constexpr sparse_value<Axis> trace_sparse(graph& g, int number, const sparse_layout& l) {
  const auto n = l.devices;
  const auto add = [&](dtype type, std::initializer_list<std::int64_t> shape, const char* name) {
    extents e;
    for (const auto x : shape) e.push_back(x);
    const int id = add_parameter(g, type, e, location::input(number++, name));
    const dim_spec specs[] = {Axis, "", "", ""};
    const auto r = resolve(*g.mesh, specs, e.count, e.count, "", monoid::add);
    auto& node = g.nodes[static_cast<std::size_t>(id)];
    if (!r.problem.empty()) g.fail(node.at, "input", r.broken, r.problem);
    node.annotated = true;
    node.annotation = r.value;
    return value(&g, id);
  };
  sparse_value<Axis> a{l, {}, {}, {}, {}, {}};
  a.starts = add(dtype::s32, {n, l.local_rows() + 1}, "starts");
  a.cols = add(dtype::s32, {n, l.entries}, "columns");
  a.entries = add(dtype_of<T>(), {n, l.entries, l.block, l.block}, "entries");
  a.halo_rows = add(dtype::s32, {n, l.halo_rows, 2}, "halo_rows");
  a.sends = add(dtype::s32, {n, l.halo()}, "sends");
  return a;
}

}  // namespace detail

/// An input of a compiled program: a sparse matrix with a constant layout.
///
/// **Example.**
///     constexpr sparse_layout lines = sparse_layout_of(...);
///     using step = compile<solve, mesh<axis<"x", 4>>, sparse_input<double, lines, "x">,
///                          input<double, shape<64>, split<"x">>>;
///     run<step>(threads{}, sparse_matrix<double>(lines, row_start, column, values).parts(), b);
template <class T, const sparse_layout& Layout, dim_spec Axis>
struct sparse_input {
  static constexpr int leaves = 5;
  static constexpr sparse_value<Axis> trace(detail::graph& g, int number) {
    return detail::trace_sparse<T, Axis>(g, number, Layout);
  }
};
/// The same for a program at run time; sparse_matrix::input returns it.
template <class T, dim_spec Axis>
struct sparse_input_spec {
  static constexpr int leaves = 5;
  sparse_layout layout;
  constexpr sparse_value<Axis> trace(detail::graph& g, int number) const {
    return detail::trace_sparse<T, Axis>(g, number, layout);
  }
};

namespace detail {
template <class T, const sparse_layout& Layout, dim_spec Axis>
struct declared_elements<sparse_input<T, Layout, Axis>> {
  using type = boost::mp11::mp_list<std::int32_t, std::int32_t, T, std::int32_t, std::int32_t>;
};
}  // namespace detail

}  // namespace gspmd
