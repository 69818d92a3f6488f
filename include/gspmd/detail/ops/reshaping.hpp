// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <numeric>

#include "gspmd/detail/exec/collective.hpp"
#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/rule.hpp"

/// The operators that move elements without computing: broadcast_in_dim, transpose, reshape, shift, reshard.
namespace gspmd::detail {

/// Adds a broadcast: dim `d` of the operand becomes dim `dims[d]` of the result; an extent of 1 is stretched.
constexpr int add_broadcast(graph& g, int operand, const extents& shape, const inline_vec<std::int8_t, max_rank>& dims,
                            location at) {
  if (operand < 0) return -1;
  const node& x = g.nodes[static_cast<std::size_t>(operand)];
  if (dims.count != x.shape.count)
    return g.fail(at, "broadcast_in_dim", mistake::rank,
                  text("names ") << dims.count << " dims for an operand " << shape_text(x.shape)
                                 << "; name one dim of the result for each dim of the operand");
  node n;
  n.op = opcode::broadcast_in_dim;
  n.type = x.type;
  n.shape = shape;
  n.at = at;
  n.operands.push_back(operand);
  int previous = -1;
  for (int d = 0; d < dims.count; ++d) {
    if (dims[d] < 0 || dims[d] >= shape.count)
      return g.fail(at, "broadcast_in_dim", mistake::dim,
                    text("dim ") << dims[d] << " is not a dim of the result " << shape_text(shape) << "; dims count from 0");
    if (dims[d] <= previous)
      return g.fail(at, "broadcast_in_dim", mistake::dim, "the dims must increase; transpose the operand first");
    previous = dims[d];
    if (x.shape[d] != 1 && x.shape[d] != shape[dims[d]])
      return g.fail(at, "broadcast_in_dim", mistake::extent,
                    text("dim ") << d << " of the operand " << shape_text(x.shape) << " does not fit dim " << dims[d]
                                 << " of the result " << shape_text(shape) << "; it must be equal or 1");
    n.attributes.push_back(dims[d]);
  }
  return g.add_sized(n);
}

/// `b->ab`: every dim of the result is a parallel factor; the operand has those it is not stretched along.
constexpr void broadcast_rule(const graph& g, const node& n, op_rule& rule) {
  const extents& in = g.nodes[static_cast<std::size_t>(n.operands[0])].shape;
  tensor_map operand;
  tensor_map result;
  for (int d = 0; d < n.shape.count; ++d) {
    result.begin_dim();
    result.add_factor(rule.add_factor(n.shape[d]));
  }
  for (int d = 0; d < in.count; ++d) {
    operand.begin_dim();
    if (in[d] == n.shape[n.attributes[d]]) operand.add_factor(n.attributes[d]);
  }
  rule.maps.push_back(operand);
  rule.maps.push_back(result);
}

/// Adds a transpose: dim `d` of the result is dim `permutation[d]` of the operand.
constexpr int add_transpose(graph& g, int operand, const inline_vec<std::int8_t, max_rank>& permutation, location at) {
  if (operand < 0) return -1;
  const node& x = g.nodes[static_cast<std::size_t>(operand)];
  dim_mask seen = 0;
  for (const auto d : permutation)
    if (d >= 0 && d < x.shape.count) seen |= dim_bit(d);
  if (permutation.count != x.shape.count || seen != dim_bit(x.shape.count) - 1)
    return g.fail(at, "transpose", mistake::dim,
                  text("the permutation must name each dim of the operand ") << shape_text(x.shape) << " once");
  node n;
  n.op = opcode::transpose;
  n.type = x.type;
  n.at = at;
  n.operands.push_back(operand);
  for (const auto d : permutation) {
    n.attributes.push_back(d);
    n.shape.push_back(x.shape[d]);
  }
  return g.add(n);
}

constexpr void transpose_rule(const graph& g, const node& n, op_rule& rule) {
  tensor_map operand;
  tensor_map result;
  for (const auto e : g.nodes[static_cast<std::size_t>(n.operands[0])].shape) {
    operand.begin_dim();
    operand.add_factor(rule.add_factor(e));
  }
  for (const auto d : n.attributes) {
    result.begin_dim();
    result.add_factor(d);
  }
  rule.maps.push_back(operand);
  rule.maps.push_back(result);
}

/// The shape with the extent that is -1 in place of it: what the others leave of the operand's elements. Where none fits, or
/// more than one would, the shape as it is, for add_reshape to refuse.
///   [64,32]: {8,-1} -> {8,256}      {-1} -> {2048}      {7,-1}, {-1,-1}: as they are
constexpr extents inferred_shape(const extents& operand, extents shape) {
  int open = -1;
  std::int64_t others = 1;
  for (int d = 0; d < shape.count; ++d) {
    if (shape[d] == -1 && open < 0) open = d;
    else if (shape[d] <= 0 || others > std::numeric_limits<std::int64_t>::max() / shape[d]) return shape;
    else others *= shape[d];
  }
  if (open >= 0 && elements(operand) % others == 0) shape[open] = elements(operand) / others;
  return shape;
}

/// Adds a reshape: the same elements in row-major order under another shape.
constexpr int add_reshape(graph& g, int operand, const extents& shape, location at) {
  if (operand < 0) return -1;
  const node& x = g.nodes[static_cast<std::size_t>(operand)];
  for (const auto e : shape)
    if (e < 0)
      return g.fail(at, "reshape", mistake::element_count,
                    text("no extent can stand for the negative one in ")
                        << shape_text(shape) << ": the operand " << shape_text(x.shape) << " has " << elements(x.shape)
                        << " elements; one extent may be -1, and the others must divide them");
  node n;
  n.op = opcode::reshape;
  n.type = x.type;
  n.shape = shape;
  n.at = at;
  n.operands.push_back(operand);
  if (!g.is_countable(n, "reshape")) return -1;
  if (elements(x.shape) != elements(shape))
    return g.fail(at, "reshape", mistake::element_count,
                  text("the operand ") << shape_text(x.shape) << " has " << elements(x.shape) << " elements, the result "
                                       << shape_text(shape) << " has " << elements(shape));
  return g.add(n);
}

/// `(ab)->ab`: walks both shapes and closes a block wherever the products of the extents meet.
///   [6] -> [2,3]: (ab)->ab      [2,6] -> [4,3]: a(bc)->(ab)c      [2,3] -> [3,2]: no common factor, gathered
/// In a block where one side has a single dim (extents of 1 do not count), the other side's dims are its factors. Otherwise
/// both sides share, major to minor, the greatest common divisors of what is left of their dims; after the first dims that
/// leave a rest on both sides nothing lines up any more.
constexpr void reshape_rule(const graph& g, const node& n, op_rule& rule) {
  const extents& in = g.nodes[static_cast<std::size_t>(n.operands[0])].shape;
  const extents& out = n.shape;
  tensor_map operand;
  tensor_map result;
  int i = 0;
  int j = 0;
  const auto whole_dims = [&rule](const extents& shape, int begin, int end, tensor_map& map, factor_kind kind) {
    for (int d = begin; d < end; ++d) {
      map.begin_dim();
      if (shape[d] != 1) map.add_factor(rule.add_factor(shape[d], kind));
    }
  };
  const auto from_factors = [](const extents& shape, int begin, int end, tensor_map& map, int first, int last) {
    for (int d = begin; d < end; ++d) {
      map.begin_dim();
      if (shape[d] != 1)
        for (int f = first; f < last; ++f) map.add_factor(f);
    }
  };
  while (i < in.count || j < out.count) {
    const int in_begin = i;
    const int out_begin = j;
    std::int64_t in_size = 1;
    std::int64_t out_size = 1;
    do {  // an extent of 0 makes every product meet only at the end
      if (i < in.count && (in_size <= out_size || j == out.count)) in_size *= in[i++];
      else out_size *= out[j++];
    } while ((in_size != out_size || in_size == 0) && (i < in.count || j < out.count));
    int in_long = 0;
    int out_long = 0;
    for (int d = in_begin; d < i; ++d) in_long += in[d] != 1 ? 1 : 0;
    for (int d = out_begin; d < j; ++d) out_long += out[d] != 1 ? 1 : 0;
    const int first = rule.factors.count;
    if (out_long <= 1) {
      whole_dims(in, in_begin, i, operand, factor_kind::parallel);
      from_factors(out, out_begin, j, result, first, rule.factors.count);
    } else if (in_long <= 1) {
      whole_dims(out, out_begin, j, result, factor_kind::parallel);
      from_factors(in, in_begin, i, operand, first, rule.factors.count);
    } else if (in_size == 0) {
      whole_dims(in, in_begin, i, operand, factor_kind::gathered);
      whole_dims(out, out_begin, j, result, factor_kind::gathered);
    } else {
      std::int64_t in_left = 1;  // of the dim before `a`
      std::int64_t out_left = 1;
      bool is_aligned = true;
      for (int a = in_begin, b = out_begin;;) {
        for (; in_left == 1 && a < i; ++a) operand.begin_dim(), in_left = in[a];
        for (; out_left == 1 && b < j; ++b) result.begin_dim(), out_left = out[b];
        if (in_left == 1 && out_left == 1) break;
        if (is_aligned) {
          const auto shared = std::gcd(in_left, out_left);
          // one factor for each dim that is left always has room; where both dims leave a rest, this would be one more
          const int needed = in.count - a + out.count - b + 3;
          if (shared > 1 && (shared == in_left || shared == out_left || rule.factors.count + needed <= rule.factors.capacity)) {
            const int f = rule.add_factor(shared);
            operand.add_factor(f);
            result.add_factor(f);
            in_left /= shared;
            out_left /= shared;
          }
          is_aligned = in_left == 1 || out_left == 1;
          if (is_aligned) continue;
        }
        if (in_left != 1) operand.add_factor(rule.add_factor(in_left, factor_kind::gathered));
        if (out_left != 1) result.add_factor(rule.add_factor(out_left, factor_kind::gathered));
        in_left = out_left = 1;
      }
    }
  }
  rule.maps.push_back(operand);
  rule.maps.push_back(result);
}

/// Adds a shift: element i of the result along `dim` is element i + offset of the operand, or zero.
constexpr int add_shift(graph& g, int operand, int dim, std::int64_t offset, location at) {
  if (operand < 0) return -1;
  const node& x = g.nodes[static_cast<std::size_t>(operand)];
  if (dim < 0 || dim >= x.shape.count)
    return g.fail(at, "shift", mistake::dim,
                  text("dim ") << dim << " is not a dim of " << shape_text(x.shape) << "; dims count from 0");
  const auto size = x.shape[dim];
  node n;
  n.op = opcode::shift;
  n.type = x.type;
  n.shape = x.shape;
  n.at = at;
  n.operands.push_back(operand);
  n.attributes.push_back(static_cast<std::int8_t>(dim));
  n.integer = offset < -size ? -size : offset > size ? size : offset;  // all of it is zero from there on
  return g.add(n);
}
constexpr element_shift shift_of(const node& n) {
  element_shift s;
  if (n.op != opcode::shift) return s;
  s.dim = n.attributes[0];
  s.by = n.integer;
  return s;
}

/// Adds the identity on `operand`, sharded as `other` is: completion passes splits between the two (F47).
constexpr int add_shard_alike(graph& g, int operand, int other, location at) {
  if (operand < 0 || other < 0) return -1;
  const node& a = g.nodes[static_cast<std::size_t>(operand)];
  const node& b = g.nodes[static_cast<std::size_t>(other)];
  if (!(a.shape == b.shape))
    return g.fail(at, "shard_alike", mistake::extent,
                  text("the tensors are ") << shape_text(a.shape) << " and " << shape_text(b.shape)
                                           << "; only tensors of one shape can be sharded alike");
  node n;
  n.op = opcode::shard_alike;
  n.type = a.type;
  n.shape = a.shape;
  n.at = at;
  n.operands.push_back(operand);
  n.operands.push_back(other);
  return g.add(n);
}

/// Adds the identity with an annotation on its result: the paper's XlaSharding operator (GSPMD 3.1, 3.6).
constexpr int add_reshard(graph& g, int operand, const sharding& annotation, location at) {
  if (operand < 0) return -1;
  node n;
  n.op = opcode::reshard;
  n.type = g.nodes[static_cast<std::size_t>(operand)].type;
  n.shape = g.nodes[static_cast<std::size_t>(operand)].shape;
  n.at = at;
  n.annotated = true;
  n.annotation = annotation;
  n.operands.push_back(operand);
  return g.add(n);
}

}  // namespace gspmd::detail
