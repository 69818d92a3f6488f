// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "gspmd/detail/passes/list/make_plan.hpp"
#include "support/all_operators.hpp"
#include "support/layouts.hpp"

namespace layouts {

using gspmd::dtype;

/// Returns the program of all devices, before all_reduces are joined.
inline local_program emitted(const graph& g, const mesh_shape& mesh, const plan_request& request = {}) {
  const pass_results passes(g, mesh, request);
  return emitter(g, mesh, request.saving, passes.of<search_pass>().best.table).run(passes.of<uses_pass>());
}

/// A program under construction, in f32, on a mesh with the axes x, y, z.
struct graph_builder {
  graph g;
  mesh_shape mesh;
  plan_request request;

  explicit graph_builder(const std::vector<int>& mesh_sizes) : mesh(mesh_of(mesh_sizes)) {}

  int input(const std::vector<std::int64_t>& shape) { return add_parameter(g, dtype::f32, shape_of(shape), {}); }
  int input(const std::vector<std::int64_t>& shape, const annotation& s) { return annotate(input(shape), s); }
  int constant(const std::vector<std::int64_t>& shape, double value) {
    return add_constant(g, dtype::f32, shape_of(shape), value, 0, {});
  }
  int einsum(const char* equation, int a) { return add_einsum(g, parse_einsum(equation), {a}, {}); }
  int einsum(const char* equation, int a, int b) { return add_einsum(g, parse_einsum(equation), {a, b}, {}); }
  int op(const operator_code& o, int a) { return add_elementwise(g, o, {a}, {}); }
  int op(const operator_code& o, int a, int b) { return add_elementwise(g, o, {a, b}, {}); }
  int reduce(int a, dim_mask dims, monoid kind = monoid::add) { return add_reduce(g, a, dims, kind, {}); }
  int reshape(int a, const std::vector<std::int64_t>& shape) { return add_reshape(g, a, shape_of(shape), {}); }
  int reshard(int a, const sharding& s) { return add_reshard(g, a, s, {}); }
  int broadcast(int a, const std::vector<std::int64_t>& shape, const std::vector<int>& dims) {
    return add_broadcast(g, a, shape_of(shape), list(dims), {});
  }
  int transpose(int a, const std::vector<int>& permutation) { return add_transpose(g, a, list(permutation), {}); }
  int annotate(int i, const annotation& s) {
    at(i).annotated = true;
    at(i).annotation = s;
    return i;
  }
  node& at(int i) { return g.nodes[static_cast<std::size_t>(i)]; }

  [[nodiscard]] std::vector<sharding> complete() const {
    check();
    completion c(g, mesh, request);
    c.run();
    return {c.shardings.begin(), c.shardings.end()};
  }
  [[nodiscard]] local_program partition() const {
    check();
    return emitted(g, mesh);
  }

 private:
  void check() const {
    if (g.failed()) throw std::logic_error(std::string(g.error.view()));
  }
  static inline_vec<std::int8_t, max_rank> list(const std::vector<int>& dims) {
    inline_vec<std::int8_t, max_rank> result;
    for (const int d : dims) result.push_back(static_cast<std::int8_t>(d));
    return result;
  }
};

inline std::string axes_text(axis_mask axes) {
  std::string t;
  for (int a = 0; a < 8; ++a)
    if ((axes & axis_bit(a)) != 0) t += "xyzabcde"[a];
  return t;
}

/// Returns `all_gather x` for every collective, in order, with `forced` before forced gathers.
inline std::vector<std::string> collectives(const local_program& p) {
  std::vector<std::string> result;
  for (const auto& op : p.ops)
    if (op.what == instruction_kind::move || op.what == instruction_kind::reduce)
      result.push_back(std::string(op.forced ? "forced " : "") + name_of(op.collective) + ' ' + axes_text(op.axes));
  return result;
}

inline std::int64_t bytes_sent(const mesh_shape& mesh, const local_program& p) {
  std::int64_t bytes = 0;
  for (const auto& op : p.ops) bytes += bytes_of(mesh, p, op);
  return bytes;
}

}  // namespace layouts
