// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/broadcast.hpp"
#include "gspmd/detail/ops/composed.hpp"
#include "gspmd/detail/ops/concatenate.hpp"
#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/ops/shift.hpp"
#include "gspmd/detail/support/vec.hpp"
#include "gspmd/extend/pass.hpp"

namespace gspmd::detail {

/// Gives staggered fields one common extent. Fields are staggered if their dims differ by a few elements, because some
/// fields are slices, paddings and concatenations of others. After alignment, the shards of all fields begin at the
/// same index on each device. A slice becomes a read at an offset (lower/offset_reads.hpp). A padding or concatenation
/// becomes a selection by index. One loop computes them all, and their halos share the messages of the other fields.
///
///   e[n+1], h[n]:  h - c * (slice(e, 1, n+1) - slice(e, 0, n))              h' - c * (shift(e, 1) - e), h' with n+1
///                                                                           elements
///                  e + c * pad(slice(h, 1, n) - slice(h, 0, n-1), 1, 1)     e + c * (0 < i < n ? h' - shift(h', -1) :
///                                                                           0)
///
/// Elements of an aligned dim outside of the original value are arbitrary, and nothing reads them. Inputs and the
/// results of other operators are padded once, before a loop that carries them. Outputs and the operands of other
/// operators are sliced to the original extent. Fields are aligned only if that moves fewer elements than the slices,
/// paddings and concatenations.
class field_aligner {
 public:
  constexpr explicit field_aligner(const graph& g) : g_(g), out_(g.without_nodes()) {}

  /// Returns true if alignment saves element moves. The new program is then in `result()`.
  constexpr bool run() {
    if (!classify()) return false;
    join_dims();
    if (!is_worth_it()) return false;
    rebuild();
    return true;
  }
  [[nodiscard]] constexpr graph& result() { return out_; }
  /// Returns true if a slice, padding or concatenation is 1 to 8 elements longer or shorter than an operand. The users
  /// of the value and the savings do not matter: a `map`, a reshard and an einsum of slices also read staggered fields.
  [[nodiscard]] constexpr bool is_staggered() const {
    for (const auto& n : g_.nodes) {
      if (!facts_of(n.op).composes && n.op != code_of<concatenate_op>) continue;
      for (const int o : n.operands)
        for (int d = 0; d < n.shape.count && n.shape.count == at(o).shape.count; ++d) {
          const auto apart = n.shape[d] < at(o).shape[d] ? at(o).shape[d] - n.shape[d] : n.shape[d] - at(o).shape[d];
          if (apart > 0 && apart <= most_apart) return true;
        }
    }
    return false;
  }

 private:
  /// The operator that makes a value, classified by how the extents of its dims can change.
  enum class part : std::uint8_t { none, source, pointwise, moved, joined, spread, carried };
  static constexpr std::int64_t most_apart = 8;  // the largest difference of extents within one dim

  [[nodiscard]] constexpr const node& at(int i) const { return g_.nodes[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr int count() const { return static_cast<int>(g_.nodes.size()); }
  [[nodiscard]] constexpr bool is_member(int i) const { return part_[i] > part::source; }

  [[nodiscard]] static constexpr index_map map_of(const graph& g, const node& n) { return facts_of(n.op).map(g, n, 0); }
  [[nodiscard]] constexpr part part_of_node(const node& n) const {
    const auto& facts = facts_of(n.op);
    if (facts.made == origin::source) return n.op == opcode::constant ? part::source : part::none;
    if (n.op == opcode::carry || n.op == opcode::loop_result) return part::carried;
    if (n.results != 1 || n.local_axes != 0 || n.forbid_reshard || n.keep_split || n.keep_partial || n.exchange_axes != 0)
      return part::none;
    if (n.op == code_of<broadcast_op>) return part::spread;
    if (facts.runs == realisation::loop && is_elementwise(n.op) && n.op != code_of<map_op>) return part::pointwise;
    if (n.op == code_of<concatenate_op>) {
      for (const int o : n.operands)
        if (facts_of(at(o).op).made != origin::source &&
            n.shape[attribute_dim(n, 0)] - at(o).shape[attribute_dim(n, 0)] > most_apart)
          return part::none;
      return part::joined;
    }
    if ((!facts.composes && n.op != code_of<shift_op>) || n.annotated) return part::none;  // its operand may replace it
    for (const auto& d : map_of(g_, n).dims)
      if (d.from_step != 1 || d.to_step != 1) return part::none;
    return part::moved;
  }
  /// Returns true if a moved value has elements that its operand lacks. A loop selects these elements.
  [[nodiscard]] constexpr bool is_filled(const node& n) const {
    for (const auto& d : map_of(g_, n).dims)
      if (!fills_nothing(d, at(n.operands[0]).shape[d.dim], n.shape[d.dim])) return true;
    return false;
  }

  /// Classifies all values. Returns false if no dim of the program changes its extent.
  constexpr bool classify() {
    bool any = false;
    for (const auto& n : g_.nodes)
      any = any || ((facts_of(n.op).composes || n.op == code_of<concatenate_op>)&&n.operands.count > 0);
    if (!any) return false;
    part_.resize(g_.nodes.size(), part::none);
    only_loops_.resize(g_.nodes.size(), 1);
    for (int i = 0; i < count(); ++i) part_[i] = part_of_node(at(i));
    for (const int o : g_.outputs) only_loops_[o] = 0;
    any = false;
    for (int i = count(); i-- > 0;) {  // users before operands
      // A movement that no loop reads stays a movement.
      if (part_[i] == part::moved && only_loops_[i] == 0 && !is_filled(at(i))) part_[i] = part::none;
      if (part_[i] == part::moved || part_[i] == part::joined) any = true;
      if (part_[i] != part::pointwise && part_[i] != part::moved && part_[i] != part::joined)
        for (const int o : at(i).operands) only_loops_[o] = 0;
    }
    return any;
  }

  // ---- dims with a common extent, and the start of each value in them ----

  /// Disjoint sets of slots. Each dim of each value is a slot. The starts of the slots of one set have known
  /// differences.
  class slot_sets {
   public:
    constexpr void add() {
      parent_.push_back(static_cast<int>(parent_.size()));
      further_.push_back(0);
    }
    [[nodiscard]] constexpr int root(int s) const {
      while (parent_[s] != s) s = parent_[s];
      return s;
    }
    /// Returns the start of a slot relative to the start of its root.
    [[nodiscard]] constexpr std::int64_t begin(int s) const {
      std::int64_t sum = 0;
      for (; parent_[s] != s; s = parent_[s]) sum += further_[s];
      return sum;
    }
    /// Records that `a` begins `by` after `b`. Does nothing if both are already in one set.
    constexpr void join(int a, int b, std::int64_t by) {
      const int to = root(b), from = root(a);
      if (from == to) return;
      const auto apart = begin(b) + by - begin(a);  // the start of root `from` relative to root `to`
      const bool is_turned = size(from) > size(to);
      const int above = is_turned ? from : to, below = is_turned ? to : from;
      further_[below] = is_turned ? -apart : apart;
      size_[above] += size(below);
      parent_[below] = above;
    }

   private:
    constexpr int& size(int s) {
      if (size_.size() < parent_.size()) size_.resize(parent_.size(), 1);
      return size_[s];
    }
    vec<int> parent_, size_;
    vec<std::int64_t> further_;
  };
  constexpr void join(int i, int d, int other, int dim) {
    if (part_[i] == part::source || part_[other] == part::source) return;
    extents_.join(first_[i] + d, first_[other] + dim, 0);
  }
  /// Records that operand `o` begins `by` after member `i` along a dim. The operand is then read without a shift.
  constexpr void place(int i, int d, int o, int dim, std::int64_t by) {
    if (part_[o] != part::source) places_.join(first_[o] + dim, first_[i] + d, by);
  }
  /// Places the operands of the members for which `is_one` is true, so that they are read without a shift. An operand
  /// whose placement contradicts an earlier one is shifted later.
  template <class IsOne>
  constexpr void place_operands(IsOne is_one) {
    for (int i = 0; i < count(); ++i) {
      const node& n = at(i);
      if (!is_member(i) || !is_one(i)) continue;
      std::int64_t begin = 0;
      for (const int o : n.operands) {
        for (int d = 0; d < at(o).shape.count; ++d) {
          const int to = part_[i] == part::spread ? attribute_dim(n, d) : d;
          if (part_[i] == part::spread && at(o).shape[d] != n.shape[to]) continue;
          std::int64_t by = part_[i] == part::joined && d == attribute_dim(n, 0) ? begin : 0;
          if (part_[i] == part::moved)
            for (const auto& map : map_of(g_, n).dims)
              if (map.dim == d) by = -offset_of(map, at(o).shape[d]);
          place(i, to, o, d, by);
        }
        if (part_[i] == part::joined) begin += at(o).shape[attribute_dim(n, 0)];
      }
    }
  }
  constexpr void join_dims() {
    first_.resize(g_.nodes.size(), 0);
    for (int i = 0, slots = 0; i < count(); slots += at(i++).shape.count) {
      first_[i] = slots;
      for (int d = 0; d < at(i).shape.count; ++d) {
        extents_.add();
        places_.add();
        extent_.push_back(at(i).shape[d]);
      }
    }
    const auto slots = static_cast<int>(extent_.size());
    for (int i = 0; i < count(); ++i) {
      const node& n = at(i);
      if (!is_member(i)) continue;
      for (int k = 0; k < n.operands.count; ++k) {
        const int o = n.operands[k];
        for (int d = 0; d < at(o).shape.count; ++d) {
          const int to = part_[i] == part::spread ? attribute_dim(n, d) : d;
          if (part_[i] != part::spread || at(o).shape[d] == n.shape[to]) join(i, to, o, d);
        }
      }
    }
    place_operands(
        [this](int i) { return part_[i] == part::pointwise || part_[i] == part::carried || part_[i] == part::spread; });
    place_operands([this](int i) { return part_[i] == part::joined || (part_[i] == part::moved && is_filled(at(i))); });
    place_operands([this](int i) {
      return part_[i] == part::moved && part_[at(i).operands[0]] == part::pointwise && only_loops_[at(i).operands[0]] != 0;
    });
    vec<std::int64_t> before(extent_.size(), 0);  // by root: the least start of its set, at most 0
    for (int s = 0; s < slots; ++s)
      if (const auto b = places_.begin(s); b < before[places_.root(s)]) before[places_.root(s)] = b;
    begin_.resize(extent_.size(), 0);
    most_.resize(extent_.size(), 0);
    least_ = extent_;
    refused_.resize(extent_.size(), 0);
    for (int s = 0; s < slots; ++s) {
      begin_[s] = places_.begin(s) - before[places_.root(s)];
      const int to = extents_.root(s);
      if (most_[to] < begin_[s] + extent_[s]) most_[to] = begin_[s] + extent_[s];
      if (least_[to] > extent_[s]) least_[to] = extent_[s];
    }
    for (int i = 0; i < count(); ++i)  // a continuation beyond an end applies only at the end of a whole field
      if (part_[i] == part::moved)
        for (const auto& d : map_of(g_, at(i)).dims)
          if (const int s = first_[i] + d.dim, to = extents_.root(s);
              d.beyond != continuation::none &&
              (at(i).shape[d.dim] != most_[to] || extent_[first_[at(i).operands[0]] + d.dim] != most_[to]))
            refused_[to] = 1;
  }
  [[nodiscard]] constexpr bool is_aligned(int i, int d) const {
    const int s = extents_.root(first_[i] + d);
    return refused_[s] == 0 && least_[s] < most_[s] && most_[s] - least_[s] <= most_apart &&
           least_[s] > 2 * (most_[s] - least_[s]);
  }
  /// Returns the start of the value within the aligned dim.
  [[nodiscard]] constexpr std::int64_t begin_of(int i, int d) const { return is_aligned(i, d) ? begin_[first_[i] + d] : 0; }
  [[nodiscard]] constexpr extents aligned_shape(int i) const {
    extents shape = at(i).shape;
    for (int d = 0; d < shape.count; ++d)
      if (is_aligned(i, d)) shape[d] = most_[extents_.root(first_[i] + d)];
    return shape;
  }

  // ---- savings ----

  [[nodiscard]] constexpr std::int64_t times(int i) const {
    std::int64_t n = 1;
    for (int r = at(i).region; r >= 0; r = at(r).region)
      if (at(r).op == opcode::loop) n = saturating_multiply(n, is_while(at(r)) ? 16 : at(r).integer);
    return n;
  }
  /// Records the values that must be padded or sliced, in `has_border_`. Returns true if alignment saves more elements
  /// than these values have.
  constexpr bool is_worth_it() {
    shape_.resize(g_.nodes.size(), extents{});
    has_border_.resize(g_.nodes.size(), 0);
    std::int64_t gained = 0;
    for (int i = 0; i < count(); ++i) shape_[i] = part_[i] == part::source ? at(i).shape : aligned_shape(i);
    const auto changes = [this](int i) { return !(shape_[i] == at(i).shape); };
    const auto note_border = [&](int i) {
      if (has_border_[i] != 0 || !changes(i) || part_[i] == part::source) return;
      has_border_[i] = 1;
      gained -= saturating_multiply(elements(at(i).shape), times(i));
    };
    for (int i = 0; i < count(); ++i) {
      const node& n = at(i);
      for (const int o : n.operands)
        if (is_member(i) != is_member(o)) note_border(o);
      bool is_freed = false;
      if (part_[i] == part::joined) is_freed = is_aligned(i, attribute_dim(n, 0));
      if (part_[i] == part::moved)
        for (const auto& d : map_of(g_, n).dims) is_freed = is_freed || (n.op != code_of<shift_op> && is_aligned(i, d.dim));
      if (is_freed) gained += saturating_multiply(elements(n.shape), times(i));
    }
    for (const int o : g_.outputs)
      if (is_member(o)) note_border(o);
    return gained > 0;
  }

  // ---- the new program ----

  constexpr void rebuild() {
    number_.resize(g_.nodes.size(), -1);
    border_.resize(g_.nodes.size(), -1);
    for (int i = 0; i < count(); ++i) {
      const node& n = at(i);
      out_.open_region = n.region < 0 ? -1 : number_[n.region];
      out_.open_scope = n.scope;
      const auto before = static_cast<int>(out_.nodes.size());
      number_[i] = make(i);
      if (number_[i] >= before) {
        node& made = out_.nodes[static_cast<std::size_t>(number_[i])];
        made.tag = n.tag;
        made.annotated = n.annotated;
        made.annotation = n.annotation;
      } else if (n.tag >= 0) {  // the node was replaced by its operand
        out_.also_tagged.push_back({n.tag, number_[i]});
      }
      if (i + 1 < count() && at(i + 1).op == opcode::result) continue;  // the results of one operator are consecutive nodes
      int first = i;
      while (at(first).op == opcode::result) --first;
      for (; first <= i; ++first)
        if (has_border_[first] != 0) border_[first] = made_border(first);
    }
    for (const int i : g_.inputs) out_.inputs.push_back(number_[i]);
    for (const int o : g_.outputs) out_.outputs.push_back(is_member(o) && border_[o] >= 0 ? border_[o] : number_[o]);
    for (const auto& also : g_.also_tagged) out_.also_tagged.push_back({also.tag, number_[also.node]});
    out_.open_region = out_.open_scope = -1;
  }
  constexpr int made_border(int i) {
    vec<dim_map> dims;
    for (int d = 0; d < at(i).shape.count; ++d)
      if (shape_[i][d] != at(i).shape[d])
        dims.push_back(dim_map::affine(d, 1, is_member(i) ? begin_of(i, d) : -begin_of(i, d), 1));
    return is_member(i) ? add_mapped(out_, code_of<slice_op>, number_[i], at(i).shape, dims, 0, at(i).at)
                        : add_mapped(out_, code_of<pad_op>, number_[i], shape_[i], dims, 0, at(i).at);
  }
  /// Returns operand `o` of a member in this shape. A constant is added again in this shape.
  constexpr int aligned(int o, const extents& shape) {
    if (part_[o] != part::source) return !is_member(o) && border_[o] >= 0 ? border_[o] : number_[o];
    if (at(o).shape == shape) return number_[o];
    node n = at(o);
    n.shape = shape;
    n.tag = -1;
    n.annotated = false;
    return out_.add(n);
  }
  constexpr int copied(int i) {
    node n = at(i);
    if (is_member(i)) n.shape = shape_[i];
    for (auto& o : n.operands) {
      if (!is_member(i)) o = is_member(o) && border_[o] >= 0 ? border_[o] : number_[o];
      else o = aligned(o, part_[i] == part::spread ? spread_shape(i, o) : operand_shape(i, o));
    }
    n.region = out_.open_region;
    out_.nodes.push_back(n);
    return static_cast<int>(out_.nodes.size()) - 1;
  }
  /// Returns the shape of an operand of a concatenation or movement. In dims that are not aligned, the operand keeps
  /// its own extents. In the other dims it has the extents of the result.
  [[nodiscard]] constexpr extents operand_shape(int i, int o) {
    extents shape = shape_[i];
    if (part_[o] != part::source) return shape_[o];
    for (int d = 0; d < shape.count; ++d)
      if (!is_aligned(i, d)) shape[d] = at(o).shape[d];
    return shape;
  }
  /// Returns the shape of the operand of a broadcast. Dims that the broadcast stretches keep their extents.
  [[nodiscard]] constexpr extents spread_shape(int i, int o) {
    if (part_[o] != part::source) return shape_[o];
    extents shape = at(o).shape;
    for (int d = 0; d < shape.count; ++d)
      if (const int to = attribute_dim(at(i), d); shape[d] == at(i).shape[to]) shape[d] = shape_[i][to];
    return shape;
  }
  constexpr int make(int i) {
    if (shape_[i] == at(i).shape) {
      bool is_same = true;
      for (const int o : at(i).operands)
        is_same = is_same && (!is_member(i) || part_[o] == part::source || shape_[o] == at(o).shape);
      if (is_same) return copied(i);
    }
    if (part_[i] == part::joined && is_aligned(i, attribute_dim(at(i), 0))) return joined(i);
    if (part_[i] == part::moved) return moved(i);
    return copied(i);
  }
  /// Returns `v` shifted along `d`, so that element k + offset of the value `o` is at element k of the value `i`. `v`
  /// is `o` in the aligned shape.
  constexpr int put(int i, int o, int d, std::int64_t offset, int v) {
    const auto by = offset + begin_of(o, d) - begin_of(i, d);
    return part_[o] == part::source || by == 0 ? v : add_shift(out_, v, d, by, at(i).at);
  }
  constexpr int joined(int i) {
    const node& n = at(i);
    const int d = attribute_dim(n, 0);
    std::int64_t begin = 0;
    int result = -1;
    for (const int o : n.operands) {
      int piece = aligned(o, shape_[i]);
      if (result >= 0) {
        piece = put(i, o, d, -begin, piece);
        result = chosen(n, d, code_of<compare_lt_op>, begin_of(i, d) + begin, result, piece);
      } else {
        result = put(i, o, d, 0, piece);
      }
      begin += at(o).shape[d];
    }
    return result;
  }
  constexpr int moved(int i) {
    const node& n = at(i);
    const int from = n.operands[0];
    const bool is_chosen = only_loops_[i] == 0;
    node rest = n;  // along the dims that are not aligned
    rest.op = n.op == code_of<shift_op> ? n.op : code_of<composed_op>;
    if (rest.op == code_of<composed_op>) rest.attributes.clear();
    rest.shape = shape_[from];
    rest.operands[0] = aligned(from, operand_shape(i, from));
    rest.region = out_.open_region;
    bool any = false;
    const auto maps = map_of(g_, n).dims;
    for (const auto& map : maps) {
      if (is_aligned(i, map.dim)) continue;
      any = true;
      rest.shape[map.dim] = n.shape[map.dim];
      if (rest.op == code_of<composed_op>) keep_map(rest, map);
    }
    int v = rest.operands[0];
    if (any) {
      out_.nodes.push_back(rest);
      v = static_cast<int>(out_.nodes.size()) - 1;
    }
    const written_number fill = number_of(n);
    for (const auto& map : maps) {
      if (!is_aligned(i, map.dim)) continue;
      const auto extent = at(from).shape[map.dim], to = n.shape[map.dim], whole = shape_[i][map.dim];
      const auto first = begin_of(from, map.dim), begin = begin_of(i, map.dim);
      const auto by = offset_of(map, extent) + first - begin;  // element k of the result is element k + by of the operand
      if (by != 0) v = add_shift(out_, v, map.dim, by, n.at, map.beyond, fill);
      if (map.beyond != continuation::none) continue;
      const auto low = first - by, high = low + extent;  // the range of indices with an element to read
      if (high < begin + to && (first + extent < whole || is_chosen || by == 0))
        v = chosen(n, map.dim, code_of<compare_lt_op>, high, v, filled(n, shape_[i]));
      if (low > begin && (first > 0 || is_chosen || by == 0))
        v = chosen(n, map.dim, code_of<compare_ge_op>, low, v, filled(n, shape_[i]));
    }
    for (const auto& map : at_places(i)) v = map.from_first == 0 ? v : add_shift(out_, v, map.dim, map.from_first, n.at);
    return v;
  }
  /// Returns shifts along dims that the operator does not move, if operand and result begin at different indices there.
  [[nodiscard]] constexpr vec<dim_map> at_places(int i) const {
    vec<dim_map> dims;
    const int from = at(i).operands[0];
    for (int d = 0; d < at(i).shape.count; ++d) {
      bool is_mapped = false;
      for (const auto& map : map_of(g_, at(i)).dims) is_mapped = is_mapped || map.dim == d;
      if (!is_mapped && begin_of(from, d) != begin_of(i, d))
        dims.push_back({static_cast<std::int8_t>(d), continuation::none, begin_of(from, d) - begin_of(i, d)});
    }
    return dims;
  }
  [[nodiscard]] static constexpr written_number number_of(const node& n) {
    const auto integer = n.op == code_of<shift_op> ? shift_way::of(n).integer : n.integer;
    return is_floating(n.type) || is_complex(n.type) ? written_number(n.real) : written_number(integer);
  }
  constexpr int filled(const node& n, const extents& shape) {
    const auto fill = number_of(n);
    return add_constant(out_, n.type, shape, fill.real, fill.integer, n.at);
  }
  /// Returns `yes` for elements whose index along `d` is less than `number` (or not less, by `compare`), and `no` for
  /// the others.
  constexpr int chosen(const node& n, int d, const operator_code& compare, std::int64_t number, int yes, int no) {
    const extents shape = out_.nodes[static_cast<std::size_t>(yes)].shape;
    const dtype type = bytes_of(n.type) <= 4 && shape[d] < (std::int64_t{1} << 31) ? dtype::s32 : dtype::s64;
    const int index = add_iota(out_, type, shape, d, n.at);
    const int is_it = add_elementwise(out_, compare, {index, add_constant(out_, type, shape, 0, number, n.at)}, n.at);
    return add_elementwise(out_, code_of<where_op>, {is_it, yes, no}, n.at);
  }

  const graph& g_;
  graph out_;
  vec<part> part_;                    // by node
  vec<std::uint8_t> only_loops_;      // by node: 1 if only loops read it and it is no output
  vec<int> first_;                    // by node: the first of its slots, one for each dim
  slot_sets extents_, places_;        // the slots with a common extent; the starts of the slots in it
  vec<std::int64_t> extent_, begin_;  // by slot
  vec<std::int64_t> most_, least_;    // by root: the common extent of a set of slots, and the smallest original extent
  vec<std::uint8_t> refused_;         // by root
  vec<extents> shape_;                // by node: the aligned shape
  vec<std::uint8_t> has_border_;      // by node: 1 if the value exists in both shapes
  vec<int> number_, border_;          // by node: its number in the new program; its number in the other shape, or -1
};

/// Gives staggered fields one extent, in the automatic mode. The other modes state their communication, so nothing
/// changes there. Fails if no field is staggered.
struct align_fields_pass {
  static constexpr const char* name = "align fields";
  static constexpr pass_position position = pass_position::composed;
  static constexpr bool reads_movements = true;
  static constexpr bool applies(const graph& g) { return !g.states_communication(); }
  static constexpr node_order run(graph& g) {
    field_aligner aligner(g);
    if (aligner.run()) g = std::move(aligner.result());
    else if (!aligner.is_staggered())
      g.fail({}, "staggered", mistake::extent,
             "no slice, padding or concatenation here is 1 to 8 elements longer or shorter than its operand, so no field is "
             "staggered; call the function itself");
    return node_order::changed;
  }
};

}  // namespace gspmd::detail
