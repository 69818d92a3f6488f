// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// A value that is another one, `offset` further along `dim`.
struct offset_read {
  std::int8_t dim = 0;
  std::int64_t offset = 0;
  int margins = -1;  // of the other value, where it goes on: a place in offset_reads::margins; -1: it does not
};

/// How far readers go beyond one side of a shard, and what is there at the end of the tensor.
struct margin_side {
  std::int64_t width = 0;
  continuation beyond = continuation::none;
  std::uint64_t fill = 0;

  [[nodiscard]] constexpr bool is_constant() const { return width == 0 || beyond == continuation::none; }
};

/// What lies around the shards of a value along one dim, as far as its readers in one body go.
struct shard_margins {
  int of = 0;      // a value of the local program
  int region = 0;  // the body
  std::int8_t dim = 0;
  margin_side low, high;
  int value = -1;  // that holds the margins; -1: none yet

  [[nodiscard]] constexpr bool is_constant() const {
    return low.is_constant() && high.is_constant() && (low.width == 0 || high.width == 0 || low.fill == high.fill);
  }
  [[nodiscard]] constexpr index_map map() const {
    index_map map;
    map.dims.push_back(dim_map{dim, low.beyond});
    map.dims.push_back(dim_map{dim, high.beyond});
    map.low = low.width;
    map.high = high.width;
    map.fill = low.fill;
    map.high_fill = high.fill;
    return map;
  }
};

/// Shifts that are not computed: loops read the operand at an offset, and its margins where its shard ends.
///
///   t + shift(t, 0, -1) + shift(t, 0, 1)     one exchange brings a row for each end; one loop reads t, t[-1] and t[+1]
///
/// That is so of an operator that moves all elements by one offset along one dim (shift, roll), whose result only loops read, and
/// whose offset is no larger than the smallest part of the dim that holds data: what a device lacks then is at both ends of its
/// shard, and lies next to them on its neighbours. All others are movements of their own.
class offset_reads {
 public:
  vec<shard_margins> margins;

  /// `only_loops_read(v)`: whether a value is no output and has readers, which are loops all.
  template <class OnlyLoopsRead>
  constexpr void find(const graph& g, const mesh_shape& mesh, const local_program& p, OnlyLoopsRead only_loops_read) {
    int region = 0, last_region = 0;
    vec<int> around;  // the bodies around this one
    for (const auto& op : p.ops) {
      const node& n = g.nodes[static_cast<std::size_t>(op.node)];
      if (op.what == instruction_kind::control) {
        const bool opens = n.op == opcode::loop || n.op == opcode::branch;
        if (opens) around.push_back(region);
        region = opens || n.op == opcode::otherwise ? ++last_region : around.back();
        if (!opens && n.op != opcode::otherwise) around.pop_back();
        continue;
      }
      if (op.what != instruction_kind::compute || op.movement != 0 || op.operands.count != 1) continue;
      const index_map map = facts_of(n.op).map(g, n, 0);
      const auto& from = p.value(op.operands[0]);
      const auto& to = p.value(op.result);
      if (!moves_all_alike(map, from, to) || !only_loops_read(op.result)) continue;
      const auto& along = map.dims[0];
      const auto offset = offset_of(along, from.global[along.dim]);
      const auto part = smallest_part(from.global[along.dim], parts_of(mesh, from.layout, along.dim));
      if (offset > part || -offset > part) continue;
      by_value_.resize(p.values.size(), -1);
      by_value_[op.result] = static_cast<int>(reads_.size());
      const int around_it = offset == 0 ? -1 : widen(op.operands[0], region, along.dim, offset, {0, along.beyond, map.fill});
      reads_.push_back(offset_read{along.dim, offset, around_it});
    }
  }

  /// Null where a value is no such one.
  [[nodiscard]] constexpr const offset_read* read_of(int v) const {
    return v < static_cast<int>(by_value_.size()) && by_value_[v] >= 0 ? &reads_[by_value_[v]] : nullptr;
  }
  [[nodiscard]] constexpr const shard_margins& margins_of(const offset_read& r) const { return margins[r.margins]; }

 private:
  static constexpr bool moves_all_alike(const index_map& map, const local_value& from, const local_value& to) {
    return map.dims.count == 1 && map.dims[0].from_step == 1 && map.dims[0].to_step == 1 && from.global == to.global &&
           same_layout(from.layout, to.layout) && elements(from.local) > 0;
  }
  /// Round the end the shorter way.
  static constexpr std::int64_t offset_of(const dim_map& map, std::int64_t extent) {
    const auto offset = map.from_first - map.to_first;
    if (map.beyond != continuation::round) return offset;
    return 2 * offset > extent ? offset - extent : 2 * offset < -extent ? offset + extent : offset;
  }
  static constexpr std::int64_t smallest_part(std::int64_t extent, std::int64_t parts) {
    const auto shard = shard_extent(extent, parts);
    return extent - (extent - 1) / shard * shard;
  }
  /// The margins of a value that have, or can have, `wanted` at the side where a read at this offset goes on.
  constexpr int widen(int of, int region, std::int8_t dim, std::int64_t offset, margin_side wanted) {
    const auto side_of = [offset](shard_margins& m) -> margin_side& { return offset < 0 ? m.low : m.high; };
    int k = 0;
    for (; k < static_cast<int>(margins.size()); ++k) {
      auto& m = margins[k];
      const auto& side = side_of(m);
      if (m.of == of && m.region == region && m.dim == dim &&
          (side.width == 0 || (side.beyond == wanted.beyond && side.fill == wanted.fill)))
        break;
    }
    if (k == static_cast<int>(margins.size())) margins.push_back({of, region, dim, {}, {}});
    auto& side = side_of(margins[k]);
    wanted.width = offset < 0 ? -offset : offset;
    if (side.width < wanted.width) side = wanted;
    return k;
  }

  vec<offset_read> reads_;
  vec<int> by_value_;  // its place in reads_; -1: none
};

}  // namespace gspmd::detail
