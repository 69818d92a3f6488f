// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/ops/reduce.hpp"
#include "gspmd/index/detail/part_of_lines.hpp"
#include "gspmd/index/detail/scatter_op.hpp"

/// Operators along a dim that stays split: devices exchange a few values of each line, and do not gather the dim.
namespace gspmd::detail {

/// Adds the reductions of the elements of a line up to each index, or from each index on.
constexpr int add_scan(graph& g, int operand, int dim, monoid kind, bool is_exclusive, bool is_reversed, location at);

/// Returns the all_gather that sends `count` elements of each line and part along a split dim to all parts.
constexpr own_collective gathered_parts(const mesh_shape& mesh, const extents& shape, const sharding& s, int dim,
                                        std::int64_t count, std::int64_t elem_bytes) {
  extents local = local_extents(mesh, shape, s);
  local[dim] = saturating_multiply(count, parts_of(mesh, s, dim) - 1);
  return {collective_kind::all_gather, s.axes_of(dim), saturating_multiply(saturating_elements(local), elem_bytes)};
}

/// The attributes of a scan.
struct scan_way {
  int dim = 0;
  bool is_exclusive = false, is_reversed = false;

  constexpr void keep(node& n) const { add_attributes(n, dim, is_exclusive, is_reversed); }
  static constexpr scan_way of(const node& n) { return {attribute_dim(n, 0), n.attributes[1] != 0, n.attributes[2] != 0}; }
};

/// The running reductions of a line by a monoid, as a running sum.
///
/// **Shapes.** x -> the shape of x. **Splits.** Every dim may be split. If the scanned dim is split, the devices gather
/// one total of each line and part.
struct scan_op : plain_operator, same_dims, without_movements, reads_shards, outside_of_loops, dims_by_number {
  static constexpr const char* name = "scan_along";
  static constexpr leading_dim leading{.count = 1};
  static constexpr operator_class meets(const node& n, monoid kind) {
    return {n.reduced_by == kind ? partial_class::all : partial_class::none};
  }
  static constexpr dim_mask exchanges(const node& n) { return dim_bit(scan_way::of(n).dim); }
  static constexpr vec<own_collective> sends(const graph&, const mesh_shape& mesh, const node& n, const sharding& s) {
    return {gathered_parts(mesh, n.shape, s, scan_way::of(n).dim, 1, bytes_of(computed_as(n.type)))};
  }
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 1, .backward = 1};
  static constexpr bool keeps_slices = false;

  static constexpr std::int64_t flops(const graph&, const mesh_shape&, const local_program& p, const instruction& op) {
    return saturating_elements(p.value(op.result).local);
  }
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    const scan_way way = scan_way::of(n);
    const auto back = [&](auto t) {
      return b.as_term(add_scan(b.program(), t.id(), way.dim, monoid::add, way.is_exclusive, !way.is_reversed, n.at));
    };
    if (n.reduced_by == monoid::add) b.send(0, back(b.dy()));
    else if (n.reduced_by == monoid::multiply) b.send(0, back(b.dy() * b.y()) / b.in(0));
    else
      b.program().fail(n.at, name_of(n.op), mistake::no_derivative,
                       "by maximum or minimum has no gradient; that of a sum or product has one");
  }
  /// Gathers the total of each part on all devices. Then scans each part, beginning with the combination of the earlier
  /// totals.
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    const node& n = l.node_of(op);
    const auto [dim, is_exclusive, is_reversed] = scan_way::of(n);
    const int x = l.widened(op, op.operands[0]);
    scan_spec s{l.value(x).local, static_cast<std::int8_t>(dim), n.reduced_by, is_exclusive, is_reversed};
    if (l.value(x).layout.axes_of(dim) == 0) return scan_step(l, op, s, x, -1);
    local_value total = l.value(x);
    s.parts = total.global[dim] = parts_of(l.out.mesh, total.layout, dim);
    total.local[dim] = 1;
    const int own = l.add_value(total);
    l.reduce(op, x, own, dim_bit(dim), n.reduced_by);
    scan_step(l, op, s, x, l.gather_parts(op, own, dim));
  }
  /// `totals` has the totals of the parts of x; -1: there is only one part.
  static constexpr void scan_step(lowering& l, const instruction& op, scan_spec spec, int x, int totals) {
    if (is_complex(l.value(x).type)) spec.shape.push_back(2);
    vec<int> operands(1, x);
    if (totals >= 0) operands.push_back(totals);
    const int to = l.wide_result(op.result);
    auto& s = add_step<kernels::scan>(l, op, spec, operands, {to});
    s.type = part_of(s.type);
    if (totals >= 0) l.add_bound(s, 0, op.operands[0], spec.dim);
    l.narrowed(op, to, op.result, has_ends(spec.combined_by));
  }
  static void describe(std::string& t, const plan_view& plan, const plan_step* step) {
    if (const auto s = description_if<kernels::scan>(plan, step))
      t += '(' + std::string(name_of(s->combined_by)) + (s->is_exclusive ? ", exclusive" : "") +
           (s->is_reversed ? ", reversed" : "") + ')';
  }
};

constexpr int add_scan(graph& g, int operand, int dim, monoid kind, bool is_exclusive, bool is_reversed, location at) {
  if (operand < 0) return -1;
  const node x = g.nodes[static_cast<std::size_t>(operand)];
  if (dim < 0 || dim >= x.shape.count)
    return g.fail(at, "scan_along", mistake::dim,
                  text("dim ") << dim << " is not a dim of " << shape_text(x.shape) << "; dims count from 0");
  if (!is_defined(kind, x.type))
    return g.fail(at, "scan_along", mistake::type, text("kind ") << name_of(kind) << ' ' << not_defined_for(x.type));
  node n = source(code_of<scan_op>, x.type, x.shape, at);
  n.reduced_by = kind;
  n.operands.push_back(operand);
  scan_way{dim, is_exclusive, is_reversed}.keep(n);
  return g.add(n);
}

/// Adds the k largest elements along the last dim, in order. The further result has their indices (s32).
constexpr int add_top_k(graph& g, int operand, std::int64_t k, location at);

/// The k largest elements along the last dim, and their indices.
///
/// **Shapes.** [a, b] -> [a, k] and s32 [a, k]. **Splits.** Every dim of the operand may be split. If the last dim is
/// split, the devices gather the k largest elements of each part, and all have the results.
struct top_k_op : plain_operator,
                  reduced_first,
                  without_movements,
                  reads_shards,
                  outside_of_loops,
                  dims_by_number,
                  names_no_dims {
  static constexpr const char* name = "top_k";
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 1, .backward = 1};
  static constexpr bool uniform = false;
  static constexpr bool keeps_slices = false;

  /// Rule `ab->ak,ak`: each device has the k elements, for every split of `b`.
  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    const extents& in = operand_of(g, n, 0).shape;
    tensor_map operand, result;
    for (int d = 0; d < in.count; ++d) {
      const bool is_last = d + 1 == in.count;
      const int f = rule.add_factor(in[d], is_last ? factor_kind::exchanged : factor_kind::parallel);
      operand.begin_dim();
      operand.add_factor(f);
      result.begin_dim();
      result.add_factor(is_last ? rule.add_factor(n.shape[d], factor_kind::whole) : f);
    }
    rule.maps.push_back(operand);
    for (int r = 0; r < n.results; ++r) rule.maps.push_back(result);
  }
  static constexpr vec<own_collective> sends(const graph& g, const mesh_shape& mesh, const node& n, const sharding& s) {
    const extents& shape = operand_of(g, n, 0).shape;
    const int dim = shape.count - 1;
    const auto part = local_extents(mesh, shape, s)[dim], k = n.shape[dim] < part ? n.shape[dim] : part;
    return {gathered_parts(mesh, shape, s, dim, k, bytes_of(computed_as(n.type))),
            gathered_parts(mesh, shape, s, dim, k, bytes_of(dtype::s32))};
  }
  /// 1 for each element: the comparison with the smallest of the k elements.
  static constexpr std::int64_t flops(const graph&, const mesh_shape&, const local_program& p, const instruction& op) {
    return saturating_elements(p.value(op.operands[0]).local);
  }
  /// Sends dy to the selected elements.
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    const node x = b.at(n.operands[0]);
    // A tensor without elements has no gradient, and a scatter cannot take slices of one element from it.
    if (!is_floating(x.type) || elements(x.shape) == 0) return;
    std::int64_t batch[max_rank]{};
    const std::int64_t last[] = {x.shape.count - 1};
    for (int d = 0; d + 1 < x.shape.count; ++d) batch[d] = d;
    index_dims dims;
    dims.collapsed = dims.cols = last;
    dims.table_batch = dims.index_batch = {batch, static_cast<std::size_t>(x.shape.count - 1)};
    dims.vector_dim = x.shape.count;
    b.send(0, add_scatter(b.program(), b.visited() + 1, b.by(b.visited()), x.shape, dims, monoid::add, out_of_range::fill, n.at));
  }
  /// Gathers the k largest elements of each part on all devices, then selects the k largest of all.
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    const int x = l.widened(op, op.operands[0]), dim = l.value(x).global.count - 1;
    const int best = l.wide_result(op.result), at = op.further_results[0];
    const std::int64_t k = l.value(op.result).local[dim];
    if (l.value(x).layout.axes_of(dim) == 0) {
      top_k_step(l, op, {l.value(x).local, k}, x, -1, best, at);
    } else {
      local_value found = l.value(x);
      const std::int64_t own = k < found.local[dim] ? k : found.local[dim];
      found.global[dim] = own * parts_of(l.out.mesh, found.layout, dim);
      found.local[dim] = own;
      const int values = l.add_value(found);
      found.type = dtype::s32;
      const int numbers = l.add_value(found);
      top_k_step(l, op, {l.value(x).local, own}, x, -1, values, numbers);
      const int all = l.gather_parts(op, values, dim), all_numbers = l.gather_parts(op, numbers, dim);
      top_k_step(l, op, {l.value(all).local, k, true}, all, all_numbers, best, at);
    }
    l.narrowed(op, best, op.result);
  }
  /// `numbers` has the indices of the elements of x; -1: the elements are numbered by their position.
  static constexpr void top_k_step(lowering& l, const instruction& op, const top_k_spec& spec, int x, int numbers, int best,
                                   int at) {
    vec<int> operands(1, x);
    if (numbers >= 0) operands.push_back(numbers);
    auto& s = add_step<kernels::top_k>(l, op, spec, operands, {best, at});
    const int last = l.value(x).global.count - 1;
    if (l.value(x).layout.axes_of(last) != 0) l.add_bound(s, 0, x, last);
  }
  static void describe(std::string&, const plan_view&, const plan_step*) {}
};

constexpr int add_top_k(graph& g, int operand, std::int64_t k, location at) {
  if (operand < 0) return -1;
  const node x = g.nodes[static_cast<std::size_t>(operand)];
  if (x.shape.count == 0) return g.fail(at, "top_k", mistake::rank, "a tensor of rank 0 has no last dim");
  if (is_complex(x.type) || is_own(x.type)) return g.fail(at, "top_k", mistake::type, not_defined_for(x.type));
  const auto last = x.shape[x.shape.count - 1];
  if (k < 0 || k > last)
    return g.fail(at, "top_k", mistake::bounds,
                  text("requests ") << k << " of the " << last << " elements along the last dim of " << shape_text(x.shape)
                                    << "; k is from 0 to their number");
  if (last >= std::int64_t{1} << 31)
    return g.fail(at, "top_k", mistake::type,
                  text("s32 does not hold the indices of the last dim of ") << shape_text(x.shape) << "; reshape it");
  node n = source(code_of<top_k_op>, x.type, x.shape, at);
  n.shape[x.shape.count - 1] = k;
  n.operands.push_back(operand);
  const int id = g.add(n);
  return id < 0 || g.add_result(dtype::s32, n.shape) < 0 ? -1 : id;
}

}  // namespace gspmd::detail
