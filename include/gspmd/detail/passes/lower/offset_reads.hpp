// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>

#include "gspmd/detail/ir/fused_group.hpp"
#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/passes/lower/body_number.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// The input or output that a value is, if it lies in the caller's layers; -1: it is none.
constexpr int given_leaf(const local_program& p, span<const given_layers> given, int v) {
  for (std::size_t k = 0; k < given.size(); ++k)
    if (given[k].is_given && (k < p.inputs.size() ? p.inputs[k] : p.outputs[k - p.inputs.size()]) == v)
      return static_cast<int>(k);
  return -1;
}

/// Places in offset_reads::margins: of a value that is read at offsets, where it goes on beyond the ends of each set of these dims
/// (fused_margin).
using read_margins = inline_vec<int, (1 << max_offset_dims) - 1>;

/// A value that is another one, further along some dims, in the order in which it was shifted.
struct offset_read {
  int of = 0;
  load_offsets along;
  read_margins margins;
};

/// How far readers go beyond one side of a shard, and what is there at the end of the tensor.
struct margin_side {
  std::int64_t width = 0;
  continuation beyond = continuation::none;
  std::uint64_t fill = 0;

  [[nodiscard]] constexpr bool is_constant() const { return width == 0 || beyond == continuation::none; }
};

/// The margins around the shards of a value along one dim, as far as its readers in one body go.
struct shard_margins {
  int of = 0;      // a value of the local program
  int inner = -1;  // the margins of it that these lie around, of a dim that was shifted before; -1: around the shards themselves
  int region = 0;  // the body
  std::int8_t dim = 0;
  margin_side low, high;
  int value = -1;  // that holds the margins; -1: none yet
  int next = -1;   // others of the same value; -1: none further

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
///   shift(shift(t, 0, -1), 1, 1)             t[-1,+1]: margins of rows, of columns, and of the margins of rows, the corners
///
/// That is so of an operator that moves all elements by one offset (shift, roll, several of them in one), whose result only loops read,
/// or others of these along other dims, and whose offsets are no larger than the smallest part of their dim that holds data: what a
/// device lacks then is at both ends of its shard, and lies next to them on its neighbours. All others are movements of their own.
class offset_reads {
 public:
  vec<shard_margins> margins;

  /// `only_read_by(v, fits)`: whether a value is no output and has readers, which are loops all, or values w for which fits(w).
  template <class OnlyReadBy>
  constexpr void find(const graph& g, const mesh_shape& mesh, const local_program& p, span<const given_layers> given,
                      OnlyReadBy only_read_by) {
    list_shifts(g, mesh, p, given);
    first_.resize(p.values.size(), -1);
    for (std::size_t k = shifts_.size(); k-- > 0;) {  // readers first
      auto& s = shifts_[k];
      s.is_read = only_read_by(s.result, [&](int w) {
        const int reader = shift_of_[w];
        return reader >= 0 && shifts_[reader].is_read && !shifts_[reader].begins;
      });
    }
    for (const auto& s : shifts_) {
      if (!s.is_read) continue;
      const offset_read* const before = read_of(s.operand);
      offset_read read = before == nullptr ? offset_read{s.operand, {}, {}} : *before;
      for (const auto& d : s.along)
        if (d.offset != 0) add_dim(read, s, d);
      by_value_.resize(p.values.size(), -1);
      by_value_[s.result] = static_cast<int>(reads_.size());
      reads_.push_back(read);
    }
  }

  /// Null where a value is no such one.
  [[nodiscard]] constexpr const offset_read* read_of(int v) const {
    return v < static_cast<int>(by_value_.size()) && by_value_[v] >= 0 ? &reads_[by_value_[v]] : nullptr;
  }
  /// The first margins of a value, which the others follow; -1: it has none.
  [[nodiscard]] constexpr int first_of(int v) const { return v < static_cast<int>(first_.size()) ? first_[v] : -1; }
  /// Whether other margins lie around these.
  [[nodiscard]] constexpr bool is_surrounded(int k) const {
    for (int other = first_of(margins[k].of); other >= 0; other = margins[other].next)
      if (margins[other].inner == k) return true;
    return false;
  }

 private:
  struct shifted_dim {
    std::int8_t dim;
    std::int64_t offset;
    continuation beyond;
  };
  /// An operator that may be one.
  struct shift {
    int operand, result, region;
    inline_vec<shifted_dim, max_offset_dims> along;
    std::uint64_t fill;
    bool in_place;  // in the caller's layers around an input
    bool begins;  // its operand must be computed: it is no shift, or has been shifted along these dims before, or along too many
    bool is_read = false;
  };
  /// The dims of a movement by one offset along each, and how far; none: it is another one.
  [[nodiscard]] static constexpr inline_vec<shifted_dim, max_offset_dims> shifted_dims(const index_map& map,
                                                                                       const extents& shape) {
    inline_vec<shifted_dim, max_offset_dims> along;
    for (const auto& d : map.dims) {
      if (d.from_step != 1 || d.to_step != 1 || along.count == max_offset_dims) return {};
      along.push_back({d.dim, offset_of(d, shape[d.dim]), d.beyond});
    }
    return along;
  }

  constexpr void list_shifts(const graph& g, const mesh_shape& mesh, const local_program& p, span<const given_layers> given) {
    body_number body;
    vec<dim_mask> dims;  // by shift: those of a run of shifts that ends with it
    shift_of_.resize(p.values.size(), -1);
    for (const auto& op : p.ops) {
      const node& n = g.nodes[static_cast<std::size_t>(op.node)];
      if (body.passes(g, op)) continue;
      if (op.what != instruction_kind::compute || op.movement != 0 || op.operands.count != 1) continue;
      const index_map map = facts_of(n.op).map(g, n, 0);
      const auto& from = p.value(op.operands[0]);
      const auto& to = p.value(op.result);
      const auto along = shifted_dims(map, from.global);
      if (along.count == 0 || from.global != to.global || from.layout != to.layout) continue;
      if (elements(from.local) == 0) continue;
      const int before = shift_of_[op.operands[0]];
      dim_mask own = 0, shifted = before < 0 ? 0 : dims[before];
      for (const auto& d : along) own |= dim_bit(d.dim);
      bool begins = before < 0 || (shifted & own) != 0 || std::popcount(shifted | own) > max_offset_dims;
      int leaf = -1;
      if (before < 0 || (!begins && shifts_[before].in_place))
        leaf = given_leaf(p, given, before < 0 ? op.operands[0] : root_of(before));
      if (leaf >= static_cast<int>(p.inputs.size())) leaf = -1;  // nobody fills the layers of a result
      bool in_place = leaf >= 0, fits = true;
      for (const auto& d : along) {
        in_place = in_place && given[static_cast<std::size_t>(leaf)].reaches(d.dim, d.offset);
        const auto part = smallest_part(from.global[d.dim], parts_of(mesh, from.layout, d.dim));
        fits = fits && d.offset <= part && -d.offset <= part;
      }
      begins = begins || (leaf >= 0 && !in_place);
      if (!in_place && (!fits || (leaf >= 0 && before < 0))) continue;
      shift_of_[op.result] = static_cast<int>(shifts_.size());
      dims.push_back(begins ? own : static_cast<dim_mask>(shifted | own));
      shifts_.push_back({op.operands[0], op.result, body.now(), along, map.fill, in_place, begins});
    }
  }
  /// The value that a run of shifts reads.
  [[nodiscard]] constexpr int root_of(int k) const {
    while (!shifts_[k].begins) k = shift_of_[shifts_[k].operand];
    return shifts_[k].operand;
  }
  /// Beyond the ends of the new dim lie margins of the value, and of all margins that it has.
  constexpr void add_dim(offset_read& read, const shift& s, const shifted_dim& d) {
    const auto sets = read.margins;
    read.along.push_back({d.dim, d.offset});
    if (s.in_place) return;
    read.margins.push_back(widen(read.of, -1, s, d));
    for (const int inner : sets) read.margins.push_back(widen(read.of, inner, s, d));
  }
  static constexpr std::int64_t smallest_part(std::int64_t extent, std::int64_t parts) {
    const auto shard = shard_extent(extent, parts);
    return extent - (extent - 1) / shard * shard;
  }
  /// The margins of a value, or around margins of it, that have, or can have, at one side what a shift needs there.
  constexpr int widen(int of, int inner, const shift& s, const shifted_dim& d) {
    const auto side_of = [&d](shard_margins& m) -> margin_side& { return d.offset < 0 ? m.low : m.high; };
    const margin_side wanted{d.offset < 0 ? -d.offset : d.offset, d.beyond, s.fill};
    int k = first_of(of), last = -1;
    for (; k >= 0; k = margins[k].next) {
      auto& m = margins[k];
      const auto& side = side_of(m);
      if (m.inner == inner && m.region == s.region && m.dim == d.dim &&
          (side.width == 0 || (side.beyond == wanted.beyond && side.fill == wanted.fill)))
        break;
      last = k;
    }
    if (k < 0) {
      k = static_cast<int>(margins.size());
      (last < 0 ? first_[of] : margins[last].next) = k;
      margins.push_back({of, inner, s.region, d.dim, {}, {}});
    }
    auto& side = side_of(margins[k]);
    if (side.width < wanted.width) side = wanted;
    return k;
  }

  friend struct step_state;  // which freezes what follows
  vec<int> first_;           // by value: its first margins; -1: none
  vec<offset_read> reads_;
  vec<int> by_value_;  // its place in reads_; -1: none

  vec<shift> shifts_;  // while they are found
  vec<int> shift_of_;  // by value: its place in shifts_; -1: none
};

}  // namespace gspmd::detail
