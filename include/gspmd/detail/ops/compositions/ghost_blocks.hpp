// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/reshape.hpp"
#include "gspmd/detail/ops/reshard.hpp"
#include "gspmd/detail/ops/shift.hpp"
#include "gspmd/detail/ops/slice.hpp"
#include "gspmd/detail/support/span.hpp"

/// Overlapping blocks. A device computes several sweeps of a stencil on its block without its neighbours. The pass
/// passes/ghost/ghost_zones.hpp adds these operators; users do not write them.
namespace gspmd::detail {

/// A dim in blocks. Block p has the indices from p * size - low to before p * size + size + high: its own, and ghosts
/// around them.
///   9 in 3 blocks, low 1 and high 2:    -,0,1,2,3,4 | 2,3,4,5,6,7 | 5,6,7,8,-,-
struct ghost_blocks {
  int dim = 0;
  std::int64_t extent = 0, parts = 1;
  std::int64_t low = 0, high = 0;
  continuation beyond = continuation::none;  // round, or none: elements beyond the dim are arbitrary
  struct ghosts {
    std::int64_t low = 0, high = 0;
  } brought = {};  // the widths of the ghosts that are exchanged, next to the block's own elements; other ghosts are arbitrary

  [[nodiscard]] constexpr std::int64_t size() const { return shard_extent(extent, parts); }
  [[nodiscard]] constexpr std::int64_t width() const { return low + size() + high; }

  constexpr void keep(node& n) const { add_attributes(n, dim, extent, parts, low, high, beyond, brought.low, brought.high); }
  static constexpr ghost_blocks of(const node& n) {
    const auto& a = n.attributes;
    return {static_cast<int>(a[0]), a[1], a[2], a[3], a[4], static_cast<continuation>(a[5]), {a[6], a[7]}};
  }
};

/// Adds the blocks of a dim. The dim becomes two dims: [..., extent, ...] becomes [..., parts, width, ...].
constexpr int add_ghost_blocks(graph& g, int operand, const ghost_blocks& b, location at);

/// The blocks of a dim, with ghosts.
///
/// **Shapes.** [n] -> [parts, width]. **Splits.** The dim of parts has the splits of the dim of the operand, one block
/// for each shard. Devices get the ghosts from the devices that hold them. The dim of the width is whole.
struct ghost_blocks_op : plain_operator, reduced_first, without_movements, without_arithmetic, outside_of_loops, dims_by_number {
  static constexpr const char* name = "ghost_blocks";
  static constexpr leading_dim leading{.is = leading_dim::way::refused};
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 0, .backward = 0};
  static constexpr bool uniform = false;
  static constexpr bool keeps_slices = false;

  static constexpr void rule(const graph& g, const node& n, op_rule& r) {
    const auto b = ghost_blocks::of(n);
    const extents& from = operand_of(g, n, 0).shape;
    tensor_map in, out;
    for (int d = 0; d < from.count; ++d) {
      in.begin_dim();
      out.begin_dim();
      const int f = r.add_factor(d == b.dim ? b.parts : from[d]);
      in.add_factor(f);
      out.add_factor(f);
      if (d != b.dim) continue;
      out.begin_dim();
      out.add_factor(r.add_factor(b.width(), factor_kind::whole));
    }
    r.maps.push_back(in);
    r.maps.push_back(out);
  }
  static constexpr int tiles(const node&) { return 1; }
  static constexpr index_map tile(const graph&, const node& n, int) {
    const auto b = ghost_blocks::of(n);
    index_map map;
    map.dims.push_back(dim_map::tile_of(b.dim, window_dim{b.width(), b.size(), 1, -b.low, 1}, b.parts));
    auto& d = map.dims[0];
    d.beyond = b.beyond;
    d.tile.begin = b.low - b.brought.low;
    d.tile.every = b.size();
    d.tile.width = b.brought.low + b.size() + b.brought.high;
    d.tile.windows = b.parts;
    return map;
  }
  /// Has no gradient: gradients are added before the pass that adds this operator.
  static constexpr void gradient(gradient_builder&, const node&) {}
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    const auto b = ghost_blocks::of(l.node_of(op));
    const int tile = l.tile(op, 0).value;
    const extents& from = l.value(tile).local;
    extents strides(from.count, 1);
    for (int d = from.count - 2; d >= 0; --d) strides[d] = strides[d + 1] * from[d + 1];
    strides.insert(b.dim, b.size() * strides[b.dim]);
    l.copy(op, tile, strides);
  }
  static void describe(std::string&, const plan_view&, const plan_step*) {}
};

constexpr int add_ghost_blocks(graph& g, int operand, const ghost_blocks& b, location at) {
  if (operand < 0) return -1;
  node n;
  n.op = code_of<ghost_blocks_op>;
  n.type = g.nodes[static_cast<std::size_t>(operand)].type;
  n.shape = g.nodes[static_cast<std::size_t>(operand)].shape;
  n.shape[b.dim] = b.width();
  if (n.shape.count == max_rank)
    return g.fail(at, "ghost", mistake::rank,
                  "needs another dim for each split one that a stencil reads along; a tensor has at most 32");
  n.shape.insert(b.dim, b.parts);
  n.at = at;
  n.operands.push_back(operand);
  b.keep(n);
  return g.add_sized(n);
}

/// Adds the elements of blocks without their ghosts. `shape` is the shape before add_ghost_blocks. `blocks` are in
/// increasing order of dims.
constexpr int add_without_ghosts(graph& g, int x, span<const ghost_blocks> blocks, const extents& shape, location at) {
  if (x < 0) return -1;
  const extents from = g.nodes[static_cast<std::size_t>(x)].shape;
  extents begin(from.count, 0), end = from, padded = shape;
  int more = 0;
  for (const auto& b : blocks) {
    ++more;
    begin[b.dim + more] = b.low;
    end[b.dim + more] = b.low + b.size();
    padded[b.dim] = b.parts * b.size();
  }
  const auto cut = [&g, at](int of, const extents& first, const extents& limit) {
    const extents ones(first.count, 1);
    const auto all = [](const extents& e) { return span<const std::int64_t>(e.begin(), static_cast<std::size_t>(e.count)); };
    return add_slice(g, of, all(first), all(limit), all(ones), at);
  };
  x = add_reshape(g, cut(x, begin, end), padded, at);
  return padded == shape ? x : cut(x, extents(shape.count, 0), shape);
}

/// The operators of stencils on blocks: indices and shifts as on the whole field.
class block_reads {
 public:
  /// `blocks` are in increasing order of dims; `shape` is the shape of a field in blocks.
  constexpr block_reads(graph& g, span<const ghost_blocks> blocks, const extents& shape)
      : g_(g), blocks_(blocks), shape_(shape) {}

  /// Returns the dim of the blocked shape that has the indices of dim `d` of the field.
  [[nodiscard]] constexpr int place_of(int d) const {
    int more = 0;
    for (const auto& b : blocks_) more += b.dim <= d ? 1 : 0;
    return d + more;
  }
  /// Adds the index of each element along dim `d` of the field. If the dim is periodic, the index of a ghost beyond an
  /// end is that of the element that it copies.
  constexpr int index(int d, location at) {
    const int inside = add_iota(g_, dtype::s64, shape_, place_of(d), at);
    const ghost_blocks* const b = along(d);
    if (b == nullptr) return inside;
    const int first = combined(code_of<multiply_op>, add_iota(g_, dtype::s64, shape_, place_of(d) - 1, at), b->size(), at);
    const int sum = add_elementwise(g_, code_of<add_op>, {first, inside}, at);
    if (b->beyond == continuation::none) return b->low == 0 ? sum : combined(code_of<subtract_op>, sum, b->low, at);
    const auto turns = ceil_div(b->low, b->extent);  // so that the first index is not below 0
    return combined(code_of<fmod_op>, combined(code_of<add_op>, sum, turns * b->extent - b->low, at), b->extent, at);
  }
  constexpr int index_as(dtype type, int d, location at) {
    const int i = index(d, at);
    return type == dtype::s64 ? i : add_elementwise(g_, code_of<cast_op>, {i}, at, type);
  }
  /// Adds a shift of a field by `map`. Elements beyond the field are `fill` if `map` has no continuation.
  constexpr int shifted(int x, const dim_map& map, std::int64_t offset, std::uint64_t fill, location at) {
    const dtype type = g_.nodes[static_cast<std::size_t>(x)].type;
    const int d = map.dim;
    const ghost_blocks* const b = along(d);
    if (b == nullptr) {
      const int y = add_shift(g_, x, place_of(d), offset, at, map.beyond, 0);
      if (y >= 0 && map.beyond == continuation::none) set_number(g_.nodes[static_cast<std::size_t>(y)], constant_of(type, fill));
      return y;
    }
    const auto by = [&](std::int64_t n) { return n == 0 ? x : add_shift(g_, x, place_of(d), n, at); };
    int y = by(offset);
    if (map.beyond == continuation::round || offset == 0) return y;
    const int i = index(d, at);
    if (map.beyond == continuation::none) {
      node c = source(opcode::constant, type, shape_, at);
      c.real = constant_of(type, fill).real;
      c.integer = constant_of(type, fill).integer;
      const int is_inside = offset > 0 ? combined(code_of<compare_lt_op>, i, b->extent - offset, at)
                                       : combined(code_of<compare_ge_op>, i, -offset, at);
      return add_elementwise(g_, code_of<where_op>, {is_inside, y, g_.add(c)}, at);
    }
    const auto outside = beyond_ends(b->extent, offset);
    for (auto e = outside.begin; e < outside.end; ++e) {
      const int instead = by(element_at(map.beyond, b->extent, e + offset) - e);
      y = add_elementwise(g_, code_of<where_op>, {combined(code_of<compare_eq_op>, i, e, at), instead, y}, at);
    }
    return y;
  }
  /// Returns the elements of a dim whose shifted index is outside of the dim.
  static constexpr index_range beyond_ends(std::int64_t extent, std::int64_t offset) {
    if (offset < 0) return {0, -offset < extent ? -offset : extent};
    return {extent - offset > 0 ? extent - offset : 0, extent};
  }

 private:
  [[nodiscard]] constexpr const ghost_blocks* along(int d) const {
    for (const auto& b : blocks_)
      if (b.dim == d) return &b;
    return nullptr;
  }
  constexpr int combined(const operator_code& op, int x, std::int64_t n, location at) {
    return add_elementwise(g_, op, {x, add_constant(g_, dtype::s64, shape_, 0, n, at)}, at);
  }
  /// Sets the number that a shift reads beyond its ends.
  static constexpr void set_number(node& n, const scalar_op& number) {
    auto way = shift_way::of(n);
    way.integer = number.integer;
    n.real = number.real;
    n.attributes.clear();
    way.keep(n);
  }

  graph& g_;
  span<const ghost_blocks> blocks_;
  extents shape_;
};

}  // namespace gspmd::detail
