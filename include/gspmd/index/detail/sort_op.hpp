// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/ops/reduce.hpp"
#include "gspmd/detail/ops/sources.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/index/detail/part_of_lines.hpp"

/// Sorts tensors along a dim, which may stay split.
namespace gspmd::detail {

/// The largest number of tensors that are sorted together: one result has their indices.
inline constexpr int max_sorted = max_results - 1;

/// Adds a sort of the lines of all operands along a dim, by the first `order.keys` operands. With several operands, the
/// keys of two elements of a line always differ: the last key is an index.
constexpr int add_sort(graph& g, span<const int> operands, int dim, const sort_order& order, location at);

/// Adds a stable sort of tensors by the first `keys` tensors, then by their indices. The indices become the result
/// after the keys.
constexpr int add_stable_sort(graph& g, span<const int> tensors, int keys, int dim, bool is_descending, location at) {
  const node x = g.nodes[static_cast<std::size_t>(tensors[0])];
  const bool is_large = x.shape[dim] >= facts_of(dtype::s32).most;
  inline_vec<int, max_results> operands;
  for (const int t : tensors) operands.push_back(t);
  operands.insert(keys, add_iota(g, is_large ? dtype::s64 : dtype::s32, x.shape, dim, at));
  return add_sort(g, {operands.begin(), static_cast<std::size_t>(operands.count)}, dim,
                  {static_cast<std::int8_t>(keys + 1), static_cast<std::uint8_t>(is_descending ? (1 << keys) - 1 : 0)}, at);
}

/// A columnsort of a split dim; see sort_op::lower.
struct sort_by_columns {
  std::int64_t length = 0;  // of each part, with additional elements instead of padding
  std::int64_t elems = 0;   // the number of elements of each line that a device sends

  constexpr sort_by_columns(std::int64_t shard, std::int64_t parts) {
    const std::int64_t least = 2 * (parts - 1) * (parts - 1), multiple = parts % 2 == 0 ? parts : 2 * parts;
    length = (shard > least ? shard : least) + multiple - 1;
    length -= length % multiple;
    elems = 3 * length - 2 * (length / parts);
  }
};

/// The algorithm that sorts a device's lines, which are split into parts along the sorted dim; see sort_op::lower.
struct sort_on_parts {
  enum class way { alone, exchange, transpose, cols };
  std::int64_t parts = 1, line_count = 1, length = 0;  // length: of a part

  constexpr sort_on_parts(const mesh_shape& mesh, const extents& local, const sharding& s, int dim)
      : parts(parts_of(mesh, s, dim)), length(local[dim]) {
    for (int d = 0; d < local.count; ++d)
      if (d != dim) line_count *= local[d];
  }
  [[nodiscard]] constexpr sort_by_columns cols() const { return {length, parts}; }
  /// Returns the number of lines that a device receives if lines are distributed.
  [[nodiscard]] constexpr std::int64_t lines_per_part() const { return (line_count + parts - 1) / parts; }
  [[nodiscard]] constexpr way how() const {
    if (parts == 1 || line_count == 0 || length == 0) return way::alone;
    if (parts == 2) return way::exchange;
    return 2 * (parts - 1) * length * lines_per_part() <= line_count * cols().elems ? way::transpose : way::cols;
  }
};

/// The attributes of a sort.
struct sort_way {
  int dim = 0;
  sort_order order;

  constexpr void keep(node& n) const { add_attributes(n, dim, order.keys, order.descending); }
  static constexpr sort_way of(const node& n) {
    const auto& a = n.attributes;
    return {static_cast<int>(a[0]), {static_cast<std::int8_t>(a[1]), static_cast<std::uint8_t>(a[2])}};
  }
};

/// Sorts the lines of all operands along one dim by the keys.
///
/// **Shapes.** Each operand -> the shape of the operand. **Splits.** Every dim may be split. If the sorted dim is
/// split, it stays split, and the devices exchange elements as described at `lower`.
struct sort_op : plain_operator, reduced_first, without_movements, reads_shards, outside_of_loops, dims_by_number {
  static constexpr const char* name = "sort";
  static constexpr leading_dim leading{.count = 1};
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 1, .backward = 1};
  static constexpr bool uniform = true;
  static constexpr bool keeps_slices = false;

  static constexpr dim_mask exchanges(const node& n) { return dim_bit(sort_way::of(n).dim); }
  static constexpr void rule(const graph&, const node& n, op_rule& rule) { uniform_rule(n.shape, rule); }
  /// The collectives of `lower`, for each operand.
  static constexpr vec<own_collective> sends(const graph& g, const mesh_shape& mesh, const node& n, const sharding& s) {
    const int dim = sort_way::of(n).dim;
    const sort_on_parts how(mesh, local_extents(mesh, n.shape, s), s, dim);
    vec<own_collective> all;
    const auto send = [&](int k, collective_kind what, std::int64_t elems) {
      all.push_back({what, s.axes_of(dim), saturating_multiply(elems, bytes_of(operand_of(g, n, k).type))});
    };
    for (int k = 0; k < n.operands.count; ++k) switch (how.how()) {
        case sort_on_parts::way::alone: break;
        case sort_on_parts::way::exchange: send(k, collective_kind::collective_permute, how.line_count * how.length); break;
        case sort_on_parts::way::transpose:
          for (int turn = 0; turn < 2; ++turn)
            send(k, collective_kind::all_to_all, (how.parts - 1) * how.length * how.lines_per_part());
          break;
        case sort_on_parts::way::cols: {
          const auto length = how.cols().length;
          for (int turn = 0; turn < 2; ++turn)
            send(k, collective_kind::all_to_all, how.line_count * (length - length / how.parts));
          send(k, collective_kind::collective_permute, how.line_count * length);
          if (length != how.length)
            send(k, collective_kind::collective_permute, how.line_count * placed_again(mesh, s, dim, how, n.shape[dim]));
        }
      }
    return all;
  }
  /// Returns the largest number of elements of a line that a device sends to convert parts of the columns' length to
  /// parts of the result.
  static constexpr std::int64_t placed_again(const mesh_shape& mesh, const sharding& s, int dim, const sort_on_parts& how,
                                             std::int64_t global) {
    sharding line;
    for (const auto& use : s.splits)
      if (use.dim == dim) line.add_split(use.axis, 0);
    index_map cut;
    cut.dims.push_back(dim_map{0});
    return traffic_of(mesh, extents(1, how.parts * how.cols().length), extents(1, global), line, cut).elems();
  }
  /// The flops of a comparison sort: log2 of the length of a line for each element.
  static constexpr std::int64_t flops(const graph& g, const mesh_shape&, const local_program& p, const instruction& op) {
    const node& n = g.nodes[static_cast<std::size_t>(op.node)];
    std::int64_t log2 = 1;
    for (auto rest = n.shape[sort_way::of(n).dim]; rest > 2; rest = (rest + 1) / 2) ++log2;
    return saturating_multiply(log2, saturating_elements(p.value(op.result).local));
  }
  /// Sends gradients back to the original positions, by a sort of the gradients of the results by the indices. The
  /// split of the dim does not change.
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    graph& g = b.program();
    const int count = n.operands.count;
    const auto [dim, order] = sort_way::of(n);
    int indices = b.visited() + order.keys - 1;
    if (count == 1) indices = add_stable_sort(g, {n.operands.begin(), 1}, 1, dim, order.descending != 0, n.at) + 1;
    for (int k = 0; k < count && indices > 0; ++k) {
      if (!is_floating(b.at(n.operands[k]).type)) continue;
      const int pair[] = {indices, b.by(b.visited() + k)};
      const int back = add_sort(g, pair, dim, {1, 0}, n.at);
      if (back >= 0) b.send(k, back + 1);
    }
  }

  /// If the dim is whole, each line is sorted separately. If the dim is split, each device sorts its part of each line,
  /// and then:
  ///
  ///   2 parts        the devices exchange their parts; one keeps the smaller half of both, the other the larger half
  ///   many lines     each device receives some of the lines and sorts them, and the parts are sent back: two
  ///                  all_to_alls
  ///   few lines      columnsort with the parts as columns: transpose, sort, transpose back, sort, and merge the
  ///                  elements on both sides of each boundary. For each line, it sends two all_to_alls of a part, and
  ///                  exchanges half a part with each neighbour. The length of a part is at least 2(P-1)^2, and a
  ///                  multiple of P
  ///
  /// **Source.** Leighton, "Tight bounds on the complexity of parallel sorting", 1985.
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    const node& n = l.node_of(op);
    const auto [dim, order] = sort_way::of(n);
    vec<int> operands(op.operands.begin(), op.operands.end()), results(1, op.result);
    for (const int v : op.further_results) results.push_back(v);
    const local_value& x = l.value(operands[0]);
    sort_spec s;
    s.order = order;
    for (int d = 0; d < x.local.count; ++d)
      if (d != dim) (d < dim ? s.outer : s.inner) *= x.local[d];
    s.length = s.sorted_length = x.local[dim];
    const sort_on_parts how(l.out.mesh, x.local, x.layout, dim);
    if (how.how() == sort_on_parts::way::alone) return sort_step(l, op, s, operands, results, -1);
    on_parts<Lowering>{l, op, x, dim, how.parts, how.line_count, s}.lower(how, operands, results);
  }
  static constexpr void sort_step(lowering& l, const instruction& op, const sort_spec& spec, const vec<int>& operands,
                                  const vec<int>& results, int dim) {
    auto& s = add_step<kernels::sort>(l, op, spec, operands, results);
    if (dim >= 0) l.add_bound(s, 0, operands[0], dim);
  }
  /// `others` has, for each operand, the elements that the neighbours sent.
  static constexpr void sort_ends_step(lowering& l, const instruction& op, const sort_ends_spec& spec, const vec<int>& operands,
                                       const vec<int>& others, const vec<int>& results, int dim) {
    vec<int> all = operands;
    for (const int v : others) all.push_back(v);
    l.add_bound(add_step<kernels::sort_ends>(l, op, spec, all, results), 0, operands[0], dim);
  }
  static void describe(std::string& t, const plan_view& plan, const plan_step* step) {
    sort_order order;
    if (const auto s = description_if<kernels::sort>(plan, step)) order = s->order;
    if (const auto s = description_if<kernels::sort_ends>(plan, step)) {
      order = s->order;
      t += " of " + std::to_string(s->half) + " at the ends";
    }
    if (order.descending != 0) t += " (descending)";
  }

 private:
  /// The lines of a device between the steps: [others, lines, ...]. Devices with other lines have other indices in the
  /// first dim.
  template <class Lowering>
  struct on_parts {
    Lowering& l;
    const instruction& op;
    const local_value x;
    int dim;
    std::int64_t parts, line_count;
    sort_spec first;

    constexpr void lower(const sort_on_parts& how, const vec<int>& operands, const vec<int>& results) {
      first.makes_rows = true;
      if (how.how() == sort_on_parts::way::exchange) return exchange(operands, results);
      if (how.how() == sort_on_parts::way::transpose) return by_lines(operands, results);
      by_columns(how.cols().length, operands, results);
    }

   private:
    static constexpr int of_parts = 2;  // the dim of rows that is split into the parts

    constexpr void exchange(const vec<int>& operands, const vec<int>& results) {
      const vec<int> sorted = rows(operands, {parts * first.length}, of_parts);
      sort_step(l, op, first, operands, sorted, dim);
      index_map mirror;
      mirror.dims.push_back(dim_map::affine(of_parts, -1, parts * first.length - 1, 1));
      vec<int> others;
      for (const int v : sorted) others.push_back(l.mapped(op, v, l.value(v), mirror));
      sort_ends_spec ends{line_count, first.length, first.length, parts, true, first.order};
      finish_with(ends, sorted, others, results);
    }
    constexpr void by_lines(const vec<int>& operands, const vec<int>& results) {
      const vec<int> sorted = rows(operands, {parts, first.length}, of_parts);
      sort_step(l, op, first, operands, sorted, dim);
      const vec<int> exchanged = redistributed(sorted, 1);
      vec<int> whole;
      for (const int v : exchanged) whole.push_back(l.add_value(local_value(l.value(v))));
      sort_step(l, op, row_sort(l.value(exchanged[0]).local[1], parts * first.length), exchanged, whole, -1);
      unpack(redistributed(whole, of_parts), results);
    }
    constexpr void by_columns(std::int64_t length, const vec<int>& operands, const vec<int>& results) {
      first.sorted_length = length;
      first.cols = parts;
      const vec<int> sorted = rows(operands, {parts, parts, length / parts}, of_parts);
      sort_step(l, op, first, operands, sorted, dim);
      const vec<int> transposed = redistributed(sorted, of_parts + 1);
      vec<int> again;
      for (const int v : transposed) again.push_back(l.add_value(local_value(l.value(v))));
      sort_step(l, op, row_sort(line_count, length), transposed, again, -1);
      const vec<int> back = redistributed(again, of_parts), last = rows(operands, {parts * length}, of_parts);
      sort_step(l, op, row_sort(line_count, length), back, last, -1);
      index_map margins;
      margins.low = margins.high = length / 2;
      margins.dims.push_back(dim_map{of_parts});
      margins.dims.push_back(dim_map{of_parts});
      vec<int> others;
      for (const int v : last) {
        local_value around = l.value(v);
        around.local[of_parts] = length;
        others.push_back(l.mapped(op, v, around, margins));
      }
      const sort_ends_spec ends{line_count, length, length / 2, parts, false, first.order};
      if (length == first.length) return finish_with(ends, last, others, results);
      const vec<int> merged = rows(operands, {parts * length}, of_parts);
      sort_ends_step(l, op, ends, last, others, merged, of_parts);
      index_map cut;  // the parts of the result end at other indices
      cut.dims.push_back(dim_map{of_parts});
      vec<int> placed;
      for (const int v : merged) {
        local_value own = l.value(v);
        own.global[of_parts] = x.global[dim];
        own.local = local_extents(l.out.mesh, own.global, own.layout);
        placed.push_back(l.mapped(op, v, own, cut));
      }
      unpack(placed, results);
    }

    /// Adds values for the rows of all operands: [others, lines] and `tail`. Dim `split` is split into the parts.
    constexpr vec<int> rows(const vec<int>& operands, std::initializer_list<std::int64_t> tail, int split) {
      local_value v = x;
      v.global = extents(2, 1);
      v.global[1] = line_count;
      v.layout = {};
      for (const auto& use : x.layout.splits)
        if (use.dim != dim) {
          v.layout.add_split(use.axis, 0);
          v.global[0] *= l.out.mesh.sizes[use.axis];
        }
      for (const auto extent : tail) v.global.push_back(extent);
      vec<int> all;
      for (const int o : operands) {
        v.type = l.value(o).type;
        all.push_back(l.add_value(split_by_parts(v, split)));
      }
      return all;
    }
    [[nodiscard]] constexpr local_value split_by_parts(local_value v, int d) const {
      sharding layout;
      for (const auto& use : v.layout.splits)
        if (use.dim == 0) layout.splits.push_back(use);
      for (const auto& use : x.layout.splits)
        if (use.dim == dim) layout.add_split(use.axis, d);
      v.layout = layout;
      v.local = local_extents(l.out.mesh, v.global, layout);
      return v;
    }
    constexpr vec<int> redistributed(const vec<int>& from, int split) {
      vec<int> all;
      for (const int v : from) all.push_back(l.redistribute(op, v, split_by_parts(l.value(v), split).layout));
      return all;
    }
    [[nodiscard]] constexpr sort_spec row_sort(std::int64_t count, std::int64_t length) const {
      sort_spec s;
      s.outer = count;
      s.length = s.sorted_length = length;
      s.order = first.order;
      return s;
    }
    constexpr void finish_with(const sort_ends_spec& ends, const vec<int>& sorted, const vec<int>& others,
                               const vec<int>& results) {
      if (first.inner == 1) return sort_ends_step(l, op, ends, sorted, others, results, of_parts);
      vec<int> merged;
      for (const int v : sorted) merged.push_back(l.add_value(local_value(l.value(v))));
      sort_ends_step(l, op, ends, sorted, others, merged, of_parts);
      unpack(merged, results);
    }
    /// Stores the rows [outer * inner, length] as [outer, length, inner].
    constexpr void unpack(const vec<int>& from, const vec<int>& results) {
      permutation_spec spec;
      for (const auto extent : {first.outer, first.inner, first.length}) spec.in.push_back(extent);
      for (const int d : {0, 2, 1}) spec.permutation.push_back(static_cast<std::int8_t>(d));
      for (std::size_t k = 0; k < from.size(); ++k) l.permute_as(op, from[k], results[k], spec);
    }
  };
};

constexpr int add_sort(graph& g, span<const int> operands, int dim, const sort_order& order, location at) {
  for (const int o : operands)
    if (o < 0) return -1;
  const node x = g.nodes[static_cast<std::size_t>(operands[0])];
  node n = source(code_of<sort_op>, x.type, x.shape, at);
  for (const int o : operands) n.operands.push_back(o);
  sort_way{dim, order}.keep(n);
  const int id = g.add(n);
  if (id < 0) return -1;
  for (const int o : operands.subspan(1))
    if (g.add_result(g.nodes[static_cast<std::size_t>(o)].type, x.shape) < 0) return -1;
  return id;
}

}  // namespace gspmd::detail
