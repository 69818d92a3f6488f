// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/ops/sources.hpp"
#include "gspmd/extend/kernel.hpp"
#include "gspmd/fft/detail/line_transform.hpp"

/// Fourier transforms along one dim, which is whole on each device. A transform along several dims is one transform
/// after the other. Between them the planner moves the split from dim to dim.
namespace gspmd::detail {

/// Adds the transform of the lines along one dim.
constexpr int add_fft(graph& g, int operand, int dim, bool is_inverse, location at);

/// The largest number of dims of a transformed tensor. Each number of dims has its own function of a device's block.
inline constexpr int most_transform_dims = 8;

/// The function of a device's block, its transform, and scratch.
template <int Rank>
inline constexpr local_function fft_function = [] {
  local_function f;
  for (int tensor = 0; tensor < 3; ++tensor) {
    inline_vec<std::int8_t, max_rank> dims;
    for (int d = 0; d < Rank; ++d) dims.push_back(static_cast<std::int8_t>(tensor < 2 ? d : Rank + d));
    f.rule.tensors.push_back(dims);
  }
  for (int l = 0; l < 2 * Rank; ++l) {
    rule_letter letter;
    letter.kind = factor_kind::whole;  // a block without elements is passed to the function too
    f.rule.letters.push_back(letter);
  }
  f.rule.results = 2;
  f.entries[0].run = [](const void*, const erased_block* b) { transform_lines<false, float>(Rank, b); };
  f.entries[1].run = [](const void*, const erased_block* b) { transform_lines<true, float>(Rank, b); };
  f.entries[2].run = [](const void*, const erased_block* b) { transform_lines<false, double>(Rank, b); };
  f.entries[3].run = [](const void*, const erased_block* b) { transform_lines<true, double>(Rank, b); };
  f.entry_count = 4;
  return f;
}();
constexpr const local_function* fft_function_of(int rank) {
  return [&]<int... R>(std::integer_sequence<int, R...>) {
    const local_function* const of[] = {&fft_function<1 + R>...};
    return of[rank - 1];
  }(std::make_integer_sequence<int, most_transform_dims>{});
}

/// Returns 5 n log2(n) flops for n elements of a line, the usual count for transforms of any n.
constexpr std::int64_t fft_flops(const extents& shape, int dim) {
  double bits = 0, rest = static_cast<double>(shape[dim]);
  for (; rest >= 2; rest /= 2) ++bits;
  for (double bit = 0.5; bit > 1e-9; bit /= 2) {
    rest *= rest;
    if (rest < 2) continue;
    rest /= 2;
    bits += bit;
  }
  const double flops = 5 * bits * static_cast<double>(saturating_elements(shape));
  return flops > 9e18 ? saturating_elements(shape) : static_cast<std::int64_t>(flops + 0.5);
}

/// The attributes of a transform.
struct fft_way {
  int dim = 0;
  bool is_inverse = false;

  constexpr void keep(node& n) const { add_attributes(n, dim, is_inverse); }
  static constexpr fft_way of(const node& n) { return {attribute_dim(n, 0), n.attributes[1] != 0}; }
};

/// The discrete Fourier transform along one dim, forward or inverse.
///
/// **Shapes.** x [a, n] -> [a, n]. **Splits.** The transformed dim is whole. The other dims may be split.
struct fft_op : plain_operator, without_movements, reads_shards, outside_of_loops {
  static constexpr const char* name = "fft";
  static constexpr leading_dim leading{.count = 1, .most = most_transform_dims};
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 1, .backward = 1};
  static constexpr bool uniform = false;
  static constexpr bool keeps_slices = false;
  static constexpr replication_words replication{"", "needs whole lines along the dim that it transforms: it would gather",
                                                 "reshard it so that another dim is split, or write allow_replication(...) "
                                                 "around it"};
  /// Linear: the transform of a sum is the sum of the transforms.
  static constexpr operator_class meets(const node&, monoid kind) {
    return {kind == monoid::add ? partial_class::all : partial_class::none};
  }
  static constexpr void rule(const graph&, const node& n, op_rule& rule) {
    tensor_map map;
    for (int d = 0; d < n.shape.count; ++d) {
      map.begin_dim();
      map.add_factor(rule.add_factor(n.shape[d], d == fft_way::of(n).dim ? factor_kind::whole : factor_kind::parallel));
    }
    rule.maps.push_back(map);
    rule.maps.push_back(map);
  }
  static constexpr void name_dim(text& t, const graph&, const node& n, int, int dim) {
    if (dim == fft_way::of(n).dim) t << " (it is transformed)";
  }
  static constexpr std::int64_t flops(const graph& g, const mesh_shape&, const local_program& p, const instruction& op) {
    return fft_flops(p.value(op.operands[0]).local, fft_way::of(g.nodes[static_cast<std::size_t>(op.node)]).dim);
  }
  /// The matrix of a transform is symmetric, so the transform is its own transpose.
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    const fft_way way = fft_way::of(n);
    b.send(0, add_fft(b.program(), b.dy().id(), way.dim, way.is_inverse, n.at));
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    const auto [dim, is_inverse] = fft_way::of(l.node_of(op));
    const local_value x = l.value(op.operands[0]);
    const int rank = x.local.count;
    std::int64_t line_count = 1;
    for (int d = 0; d < rank; ++d)
      if (d != dim) line_count = saturating_multiply(line_count, x.local[d]);
    local_value scratch = x;
    scratch.layout = sharding{};
    scratch.global = scratch.local = extents(rank, 1);
    scratch.global[dim] = scratch.local[dim] =
        std::max<std::int64_t>(line_transform::of(x.local[dim], line_count).scratch_elems(bytes_of(x.type)), 2);
    const int entry = (x.type == dtype::c128 ? 2 : 0) + (is_inverse ? 1 : 0);
    add_step<kernels::local>(l, op, entry, {op.operands[0]}, {op.result, l.add_value(scratch)}).local = fft_function_of(rank);
  }
  static void describe(std::string& t, const plan_view& plan, const plan_step* step) {
    if (step == nullptr || step->local == nullptr) return;
    const extents& scratch = plan.result(*step, 1).local;
    int dim = 0;
    while (dim + 1 < scratch.count && scratch[dim] == 1) ++dim;
    t += std::string(step->spec % 2 == 1 ? ", inverse," : "") + " along dim " + std::to_string(dim);
  }
};

constexpr int add_fft(graph& g, int operand, int dim, bool is_inverse, location at) {
  if (operand < 0) return -1;
  const node x = g.nodes[static_cast<std::size_t>(operand)];
  const char* const op = is_inverse ? "ifft" : fft_op::name;
  if (!is_complex(x.type))
    return g.fail(at, op, mistake::type,
                  text("x is ") << name_of(x.type) << "; a transform is of complex numbers: "
                                << (is_inverse ? "write complex(x, 0 * x)" : "write rfft, or complex(x, 0 * x)"));
  if (x.shape.count > most_transform_dims)
    return g.fail(at, op, mistake::rank,
                  text("x is ") << shape_text(x.shape) << "; a transform is of tensors of at most " << most_transform_dims
                                << " dims: reshape it");
  if (dim < 0 || dim >= x.shape.count)
    return g.fail(at, op, mistake::dim,
                  text("dim ") << dim << " is not a dim of " << shape_text(x.shape) << "; dims count from 0");
  if (x.shape[dim] == 0)
    return g.fail(at, op, mistake::extent,
                  text("dim ") << dim << " of " << shape_text(x.shape) << " has no elements; give it at least one");
  node n = source(code_of<fft_op>, x.type, x.shape, at);
  n.operands.push_back(operand);
  fft_way{dim, is_inverse}.keep(n);
  return g.add(n);
}

/// The known sharding of a value before a transform.
struct transformed_before {
  dim_places dims;     // the dims of the transforms that made the value, the last one first
  dim_mask split = 0;  // the split dims, from an annotation of the value, or of an operand of the transforms

  static constexpr transformed_before of(const graph& g, int x) {
    transformed_before found;
    for (int at = x, next = x; next >= 0 && found.split == 0; at = next) {
      const node& n = g.nodes[static_cast<std::size_t>(at)];
      if (n.annotated)
        for (const auto& use : n.annotation.layout.splits) found.split |= dim_bit(use.dim);
      if (n.op == code_of<fft_op> && found.dims.count < most_transform_dims)
        found.dims.push_back(static_cast<std::int8_t>(fft_way::of(n).dim));
      next = -1;
      for (int k = 0; k < n.operands.count && next < 0; ++k) {
        const node& from = g.nodes[static_cast<std::size_t>(n.operands[k])];
        if (from.shape == n.shape && from.type == n.type) next = n.operands[k];
      }
    }
    return found;
  }
};

/// Returns `dims` in the order of their transforms. Whole dims are first and split dims last, so that the plan moves
/// the split once, between transforms, and not after them.
///
/// If x was made by transforms, the dim that was transformed last is whole and therefore first. The largest other dim
/// is assumed to be split, because plans move a split there. If an annotation splits several dims, these transforms are
/// undone in reverse order, which sends least. If nothing is known, the last dim is first, because slabs and pencils
/// are split along leading dims. An inverse transform begins with the first of `dims`, because a forward transform
/// leaves that dim whole.
///   [64,32,32], all dims, nothing known: 2, 1, 0; inverse: 0, 2, 1
constexpr dim_places transform_order(const graph& g, int x, dim_mask dims, bool is_inverse) {
  const extents& shape = g.nodes[static_cast<std::size_t>(x)].shape;
  const auto before = transformed_before::of(g, x);
  dim_places order;
  dim_mask left = dims;
  const auto take = [&](int d) {
    if ((left & dim_bit(d)) == 0) return;
    order.push_back(static_cast<std::int8_t>(d));
    left &= ~dim_bit(d);
  };
  int whole = before.dims.count > 0 ? before.dims[0] : -1;
  if (before.dims.count == 0 && before.split == 0 && is_inverse)
    for (whole = 0; (dims >> whole & 1U) == 0;) ++whole;
  dim_mask split = before.split;
  if (whole >= 0) {
    if ((split & (split - 1)) != 0)
      for (const auto d : before.dims) take(d);
    take(whole);
    int largest = -1;
    for (int d = 0; d < shape.count; ++d)
      if (d != whole && (largest < 0 || shape[d] > shape[largest])) largest = d;
    split = largest < 0 ? 0 : dim_bit(largest);
  }
  for (const bool is_split : {false, true})
    for (int k = 0; k < shape.count; ++k)
      if (const int d = is_inverse ? k : shape.count - 1 - k; ((split & dim_bit(d)) != 0) == is_split) take(d);
  return order;
}

/// Adds the transforms along several dims.
constexpr int add_fft(graph& g, int x, dim_mask dims, bool is_inverse, location at) {
  if (x < 0) return -1;
  const int rank = g.nodes[static_cast<std::size_t>(x)].shape.count;
  if ((dims >> rank) != 0) return add_fft(g, x, rank, is_inverse, at);  // reports a dim that does not exist
  if (dims == 0) return x;
  for (const auto d : transform_order(g, x, dims, is_inverse)) x = add_fft(g, x, int{d}, is_inverse, at);
  return x;
}

}  // namespace gspmd::detail
