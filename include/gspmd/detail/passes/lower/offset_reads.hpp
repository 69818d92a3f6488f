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

/// Returns the index of the input or output `v` if its memory has the caller's ghost layers; -1 otherwise.
constexpr int given_leaf(const local_program& p, span<const given_layers> given, int v) {
  for (std::size_t k = 0; k < given.size(); ++k)
    if (given[k].is_given && (k < p.inputs.size() ? p.inputs[k] : p.outputs[k - p.inputs.size()]) == v)
      return static_cast<int>(k);
  return -1;
}

/// Indices in offset_reads::margins of a value that is read at offsets: for each set of the shifted dims, the margins
/// beyond the ends of that set (fused_margin).
using read_margins = inline_vec<int, (1 << max_offset_dims) - 1>;

/// A value that equals another value read at offsets along some dims, in the order of the shifts.
struct offset_read {
  int of = 0;
  load_offsets along;
  read_margins margins;
};

/// The width that users read beyond one side of a shard, and the elements beyond the end of the tensor.
struct margin_side {
  std::int64_t width = 0;
  continuation beyond = continuation::none;
  std::uint64_t fill = 0;

  [[nodiscard]] constexpr bool is_constant() const { return width == 0 || beyond == continuation::none; }
};

/// The margins around the shards of a value along one dim, as wide as its users in one body need.
struct shard_margins {
  int of = 0;      // a value of the local program
  int inner = -1;  // the margins of `of` that these surround, of a dim that was shifted before; -1: around the shards
  int region = 0;  // the body
  std::int8_t dim = 0;
  margin_side low, high;
  int value = -1;  // the value that holds the margins; -1: none yet
  int next = -1;   // the next margins of the same value; -1: none

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

/// Finds shifts that are not materialised: loops read the operand at an offset, and read its margins beyond the ends
/// of its shard.
///
///   t + shift(t, -1, along(0)) + shift(t, 1, along(0))   one exchange brings a row for each end; one loop reads t,
///                                                        t[-1] and t[+1]
///   shift(shift(t, -1, along(0)), 1, along(1))           t[-1,+1]: margins of rows, of columns, and of the margins of
///                                                        rows, the corners
///
/// The operator must move all elements by one offset: shift, roll, or several shifts in one. Only loops, or other such
/// operators along other dims, may read its result. Its offsets must be at most the smallest part of the dim that
/// holds data. Then the elements that a device lacks are at both ends of its shard, and its direct neighbours have
/// them. All other shifts are separate movements.
class offset_reads {
 public:
  vec<shard_margins> margins;

  /// `only_read_by(v, fits)`: returns true if `v` is no output and has users, and each user is a loop or a value w
  /// with fits(w).
  template <class OnlyReadBy>
  constexpr void find(const graph& g, const mesh_shape& mesh, const local_program& p, span<const given_layers> given,
                      OnlyReadBy only_read_by) {
    list_shifts(g, mesh, p, given);
    first_.resize(p.values.size(), -1);
    for (std::size_t k = shifts_.size(); k-- > 0;) {  // users first
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

  /// Returns null if a value is not read at offsets.
  [[nodiscard]] constexpr const offset_read* read_of(int v) const {
    return v < static_cast<int>(by_value_.size()) && by_value_[v] >= 0 ? &reads_[by_value_[v]] : nullptr;
  }
  /// Returns the first margins of a value, which link to its other margins; -1 if it has none.
  [[nodiscard]] constexpr int first_of(int v) const { return v < static_cast<int>(first_.size()) ? first_[v] : -1; }
  /// Returns true if other margins surround margins `k`.
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
  /// An operator that may be read at offsets.
  struct shift {
    int operand, result, region;
    inline_vec<shifted_dim, max_offset_dims> along;
    std::uint64_t fill;
    bool in_place;  // in the caller's ghost layers around an input
    bool begins;    // the operand must be computed: it is no shift, was shifted along these dims, or along too many
    bool is_read = false;
  };
  /// Returns the dims of a movement by one offset along each dim, and the offsets. Returns no dims for another
  /// movement.
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
    vec<dim_mask> dims;  // by shift: the dims of the run of shifts that ends with it
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
      if (leaf >= static_cast<int>(p.inputs.size())) leaf = -1;  // the ghost layers of a result are not filled
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
  /// Returns the value that a run of shifts reads.
  [[nodiscard]] constexpr int root_of(int k) const {
    while (!shifts_[k].begins) k = shift_of_[shifts_[k].operand];
    return shifts_[k].operand;
  }
  /// Adds a shifted dim to a read, and margins along that dim around the value and around all its margins.
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
  /// Returns the margins along a dim, around a value or around its margins `inner`, that are as wide as a shift needs.
  /// Widens margins or adds new ones.
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

  friend struct step_state;  // it saves margins and the lists up to by_value_
  vec<int> first_;           // by value: its first margins; -1: none
  vec<offset_read> reads_;
  vec<int> by_value_;  // its index in reads_; -1: none

  vec<shift> shifts_;  // used in find() only
  vec<int> shift_of_;  // by value: its index in shifts_; -1: none
};

}  // namespace gspmd::detail
