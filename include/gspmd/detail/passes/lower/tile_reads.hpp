// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/passes/lower/body_number.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// A tile of a value that contains all tiles that the operators of a body read.
struct shared_tile {
  int of = 0;      // a value of the local program
  int region = 0;  // the body
  index_map map;
  int value = -1;  // the value that holds it; -1: none yet
};

/// Computes how far index 0 of the tile `wide` is before index 0 of the tile `narrow` along a dim. Returns false if
/// the tiles do not arrange the same elements in the same way.
constexpr bool lies_alike(const dim_map& narrow, const dim_map& wide, std::int64_t& shift) {
  const window_tile &a = narrow.tile, &b = wide.tile;
  if (narrow.dim != wide.dim || narrow.beyond != wide.beyond || narrow.from_step != wide.from_step ||
      narrow.to_step != wide.to_step || narrow.from_step == 0 || a.outputs != b.outputs || a.stride != b.stride)
    return false;
  const auto moved = wide.to_step * (wide.from_first - narrow.from_first);
  if (moved % wide.from_step != 0) return false;
  shift = wide.to_first - narrow.to_first - moved / wide.from_step;
  return true;
}

/// Widens `wide` so that it also contains `other`. Returns false and changes nothing if the result would be no tile.
constexpr bool widen(index_map& wide, const index_map& other) {
  if (wide == other) return true;
  if (wide.fill != other.fill || wide.high_fill != other.high_fill || wide.dims.count != other.dims.count) return false;
  index_map both = wide;
  for (int i = 0; i < both.dims.count; ++i) {
    std::int64_t shift = 0;
    dim_map& d = both.dims[i];
    if (d.tile.width != 0 || other.dims[i].tile.width != 0 || !lies_alike(other.dims[i], d, shift)) return false;
    const auto begin = shift < 0 ? shift : 0;
    const auto end = shift + other.dims[i].tile.span > d.tile.span ? shift + other.dims[i].tile.span : d.tile.span;
    d.to_first -= begin;
    d.tile.span = end - begin;
  }
  wide = both;
  return true;
}

/// Decides which tiles are fetched for which operators. Windows of other sizes over one value share one exchange if it
/// is no larger than the separate exchanges together.
///
///   sum_pool(x, {3}) and sum_pool(x, {5}), both padded to the extent of x      one exchange of two elements to either
///                                                                              side
class tile_reads {
 public:
  vec<shared_tile> tiles;

  constexpr void find(const graph& g, const mesh_shape& mesh, const local_program& p) {
    body_number body;
    for (const auto& op : p.ops) {
      const node& n = g.nodes[static_cast<std::size_t>(op.node)];
      if (body.passes(g, op)) continue;
      if (op.what != instruction_kind::compute) continue;
      for (int k = 0; k < facts_of(n.op).tiles(n); ++k) {
        const auto& v = p.value(op.operands[k]);
        const index_map map = needed_tile(g, mesh, n, k, v.global, v.layout);
        if (!map.dims.empty()) reads_.push_back({op.result, k, map, place_for(mesh, v, {op.operands[k], body.now(), map})});
      }
    }
  }

  /// Returns the tile of operand k of the operator that computes `result`; null if the operator reads the shard.
  [[nodiscard]] constexpr shared_tile* read_of(int result, int k) {
    for (const auto& r : reads_)
      if (r.result == result && r.operand == k) return &tiles[r.tile];
    return nullptr;
  }

 private:
  struct read {
    int result = 0, operand = 0;
    index_map map;
    int tile = 0;
  };
  constexpr int place_for(const mesh_shape& mesh, const local_value& v, const shared_tile& wanted) {
    const auto elems = [&](const index_map& map) { return traffic_of_tiles(mesh, v.global, v.layout, map).elems(); };
    for (std::size_t t = 0; t < tiles.size(); ++t) {
      if (tiles[t].of != wanted.of || tiles[t].region != wanted.region) continue;
      index_map both = tiles[t].map;
      if (!widen(both, wanted.map) || (!(both == tiles[t].map) && elems(both) > elems(tiles[t].map) + elems(wanted.map)))
        continue;
      tiles[t].map = both;
      return static_cast<int>(t);
    }
    tiles.push_back(wanted);
    return static_cast<int>(tiles.size()) - 1;
  }

  friend struct step_state;  // it saves tiles and reads_
  vec<read> reads_;
};

}  // namespace gspmd::detail
