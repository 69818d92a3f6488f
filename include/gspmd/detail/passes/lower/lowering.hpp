// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/complex_parts.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/passes/lower/loop_fuser.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// What an operator's `lower` adds its steps with. Whatever a step reads is computed before it.
class lowering {
 public:
  constexpr lowering(step_state& state, loop_fuser& loops)
      : g(state.graph_), out(state.out), state_(state), loops_(loops), wide_(state) {}

  const graph& g;
  plan& out;

  [[nodiscard]] constexpr const node& node_of(const instruction& op) const { return g.nodes[static_cast<std::size_t>(op.node)]; }
  [[nodiscard]] constexpr const local_value& value(int v) const { return state_.program_.value(v); }
  [[nodiscard]] constexpr std::int64_t bytes_of(const instruction& op) const {
    return detail::bytes_of(out.mesh, state_.program_, op);
  }
  constexpr int add_value(const local_value& v) { return state_.add_value(v); }
  constexpr void add_bound(plan_step& s, int index, int v, int dim) { state_.add_bound(s, index, v, dim); }
  constexpr plan_step& add_step(action what, const instruction& op, int spec, const vec<int>& operands, const vec<int>& results) {
    for (const int o : operands) loops_.need(o);
    return state_.add_step(what, op, spec, operands, results);
  }
  /// The operator that makes a value, if it waits for a loop to be computed in and one step alone reads it; null if not.
  [[nodiscard]] constexpr const instruction* waiting(int v) const {
    return state_.waits(v) && !state_.waits_virtual(v) && state_.uses_[v] == 1 ? &state_.maker(v) : nullptr;
  }
  [[nodiscard]] constexpr bool lies_in_memory(int v) const {
    return !state_.waits(v) && !state_.waits(state_.base[v]) && state_.offsets.read_of(v) == nullptr;
  }
  /// Whether another operator like this one reads `v`, and waits or comes later: one loop may serve both. Not of a value that many read.
  [[nodiscard]] constexpr bool is_read_alike(const instruction& op, int v) const {
    constexpr int most_looked_at = 64;
    if (state_.readers_from_[v + 1] - state_.readers_from_[v] > most_looked_at) return false;
    const node& n = node_of(op);
    for (int r = state_.readers_from_[v]; r < state_.readers_from_[v + 1]; ++r) {
      const int w = state_.readers_[r];
      if (w < 0 || w == op.result) continue;
      const node& other = node_of(state_.maker(w));
      if (other.op == n.op && other.attributes == n.attributes &&
          (state_.waits(w) || state_.maker_[w] > state_.maker_[op.result]))
        return true;
    }
    return false;
  }
  /// Nobody computes a waiting value: its reader does without.
  constexpr void forget(int v) {
    state_.waiting_[v] = 0;
    --state_.uses_[v];
    for (const int o : state_.maker(v).operands) --state_.uses_[o];
  }

  constexpr int planned(const contraction& c) { return state_.planned(c); }

  /// A value that kernels compute with: `v` itself, or of a narrow type its elements as the type that they are computed as.
  constexpr int widened(const instruction& op, int v) {
    loops_.reduce_all();
    return loops_.widened(op, v);
  }
  /// Where a kernel leaves what becomes `result` by narrowed(): the result itself, or of a narrow type a wider value.
  constexpr int wide_result(int result) { return wide_.like(result); }
  /// `saturates`: an integer that is out of range becomes the nearest one that is not.
  constexpr void narrowed(const instruction& op, int from, int result, bool saturates = false) {
    if (from != result) wide_.convert(op, from, result, saturates);
  }

  /// A complex value x as [2, ...]: x, and after it i x. See add_both_turns.
  constexpr int both_turns(const instruction& op, int x) {
    loops_.need(x);
    local_value both = value(x);
    both.global = both.local;
    both.layout = sharding{};
    both.global.insert(0, 2);
    both.local.insert(0, 2);
    const int to = add_value(both);
    extents loop(2, 2);
    loop[1] = elements(value(x).local);
    loop_group group(state_, loop);
    group.stores.push_back(fused_store{static_cast<std::int16_t>(add_both_turns(group, value(x).type)), 0});
    planned_group planned;
    planned.loop = group.loop;
    auto& s = state_.add_step(action::fused, op, group.entry_for(planned), {x}, {to});
    state_.add_bound(s, 0, to, 0);
    return to;
  }

  template <class Permutation>
  constexpr void permute(const instruction& op, int operand, int result, const Permutation& permutation) {
    permutation_spec spec;
    spec.in = value(operand).local;
    for (const auto d : permutation) spec.permutation.push_back(static_cast<std::int8_t>(d));
    const dtype type = value(operand).type;
    const bool by_parts = is_complex(type);
    if (by_parts) {
      spec.permutation.push_back(static_cast<std::int8_t>(spec.in.count));
      spec.in.push_back(2);
    }
    auto& s = add_step(action::permute, op, step_state::entry_of(table_of<permutation_spec>(out), spec), {operand}, {result});
    if (by_parts) s.type = part_of(type);
  }
  constexpr void reduce(const instruction& op, int operand, int result, dim_mask dims, monoid kind) {
    loops_.need(operand);
    loops_.reduce_stored({op, operand, result, dims, kind});
  }
  /// The same of an operand that the operator reads nowhere else: the loop that computes it may reduce it, and with it others that read
  /// it.
  constexpr void reduce_once(const instruction& op, int operand, int result, dim_mask dims, monoid kind) {
    const auto all = elements(value(operand).local), left = elements(value(result).local);
    const bool is_computed = state_.waits(operand) && !state_.waits_virtual(operand);
    if (left < all && !is_complex(value(operand).type) && (is_computed || (lies_in_memory(operand) && state_.uses_[operand] > 1)))
      loops_.wait({op, operand, result, dims, kind});
    else reduce(op, operand, result, dims, kind);
  }
  /// The elements of a value as its `strides` along the dims of the result find them.
  constexpr void copy(const instruction& op, int from, const extents& strides) {
    loops_.need(from);
    if (elements(value(op.result).local) == elements(value(from).local) && from != op.operands[0] &&
        is_dense(value(op.result).local, strides)) {  // nobody else's: another name for it
      state_.base[op.result] = state_.base[from];
      return;
    }
    loop_group group(state_, value(op.result).local);
    scalar_op load = scalar_op::load(value(from).type, 0);
    load.strides = strides;
    group.stores.push_back(fused_store{static_cast<std::int16_t>(group.add_op(load)), 0});
    planned_group planned;
    planned.loop = group.loop;
    state_.add_step(action::fused, op, group.entry_for(planned), {from}, {op.result});
  }
  /// A movement of an operator that consists of them; one after the first one goes on with what the last one left.
  constexpr void move(const instruction& op) {
    const node& n = node_of(op);
    const int map = step_state::entry_of(table_of<index_map>(out), facts_of(n.op).map(g, n, op.movement));
    auto& s = add_step(action::move, op, map, all_operands(op), {op.result});
    s.collective = op.collective;
    s.bytes_sent = bytes_of(op);
  }
  /// A value that an operator reads in the place of its operand, and by dim where in it index 0 of the operator's own tile is.
  struct placed_tile {
    int value = 0;
    extents at;
  };
  /// What an operator reads of operand k: a tile that a movement fills for all that read of it, or the shard itself.
  constexpr placed_tile tile(const instruction& op, int k) {
    const int from = op.operands[k];
    placed_tile read{from, extents(value(from).global.count, 0)};
    shared_tile* const shared = state_.tiles.read_of(op.result, k);
    if (shared == nullptr) return read;
    const index_map own = facts_of(node_of(op).op).tile(g, node_of(op), k);
    for (int i = 0; i < own.dims.count; ++i) lies_alike(own.dims[i], shared->map.dims[i], read.at[own.dims[i].dim]);
    if (shared->value < 0) {
      local_value v = value(from);
      const auto bytes = traffic_of_tiles(out.mesh, v.global, v.layout, shared->map).elems() * detail::bytes_of(v.type);
      v.global = shared->map.tile_global(out.mesh, v.layout, v.global);
      v.local = shared->map.tile_local(out.mesh, v.layout, v.local);
      shared->value = add_value(v);
      auto& s = add_step(action::move, op, step_state::entry_of(table_of<index_map>(out), shared->map), {from}, {shared->value});
      s.collective = collective_kind::collective_permute;
      s.bytes_sent = bytes;
    }
    read.value = shared->value;
    return read;
  }
  /// No output is computed that is not there: the tile holds nothing for it.
  constexpr void reduce_window(const instruction& op, const window_reduction& w, int tile) {
    const int from = widened(op, tile), to = wide_result(op.result);
    auto& s = add_step(action::reduce_window, op, step_state::entry_of(table_of<window_reduction>(out), w), {from}, {to});
    note_padded(op, s);
    narrowed(op, to, op.result, has_ends(w.reduced_by));
  }
  constexpr void select_and_scatter(const instruction& op, const window_selection& w, int in, int by) {
    const int from = widened(op, in), added = widened(op, by), to = wide_result(op.result);
    auto& s =
        add_step(action::select_and_scatter, op, step_state::entry_of(table_of<window_selection>(out), w), {from, added}, {to});
    note_padded(op, s);
    narrowed(op, to, op.result);
  }
  constexpr void gather(const instruction& op, const indexed_access& a) {
    const int spec = step_state::entry_of(table_of<indexed_access>(out), a);
    note_indexed(a, op.operands[0], op.result, add_step(action::gather, op, spec, all_operands(op), {op.result}));
  }
  constexpr void scatter(const instruction& op, indexed_access a) {
    if (is_complex(value(op.result).type)) {  // the parts, which every slice has both of
      a.dims.push_back({2, 2, -1, static_cast<std::int8_t>(a.slices.count), true});
      a.lookup.push_back(-1);
      a.table.push_back(2);
      a.slices.push_back(2);
    }
    const int spec = step_state::entry_of(table_of<indexed_access>(out), a);
    const int updates = widened(op, op.operands[1]), to = wide_result(op.result);
    auto& s = add_step(action::scatter, op, spec, {op.operands[0], updates}, {to});
    s.type = part_of(s.type);
    note_indexed(a, op.result, op.operands[1], s);
    narrowed(op, to, op.result, has_ends(a.combined_by));
  }
  constexpr void scatter_set(const instruction& op, const indexed_access& a) {
    const int spec = step_state::entry_of(table_of<indexed_access>(out), a);
    note_indexed(a, op.result, op.operands[2], add_step(action::scatter_set, op, spec, all_operands(op), {op.result}));
  }
  /// `totals`: of the parts of x; -1: there is one.
  constexpr void scan(const instruction& op, scan_spec spec, int x, int totals) {
    if (is_complex(value(x).type)) spec.shape.push_back(2);
    vec<int> operands(1, x);
    if (totals >= 0) operands.push_back(totals);
    const int to = wide_result(op.result);
    auto& s = add_step(action::scan, op, step_state::entry_of(table_of<scan_spec>(out), spec), operands, {to});
    s.type = part_of(s.type);
    if (totals >= 0) add_bound(s, 0, op.operands[0], spec.dim);
    narrowed(op, to, op.result, has_ends(spec.combined_by));
  }
  /// `numbers`: where the elements of x are; -1: they are its own.
  constexpr void top_k(const instruction& op, const top_k_spec& spec, int x, int numbers, int best, int at) {
    vec<int> operands(1, x);
    if (numbers >= 0) operands.push_back(numbers);
    auto& s = add_step(action::top_k, op, step_state::entry_of(table_of<top_k_spec>(out), spec), operands, {best, at});
    const int last = value(x).global.count - 1;
    if (value(x).layout.axes_of(last) != 0) add_bound(s, 0, x, last);
  }
  constexpr void fold(const instruction& op, const fold_spec& spec, const vec<int>& operands, const vec<int>& results) {
    add_step(action::fold, op, step_state::entry_of(table_of<fold_spec>(out), spec), operands, results).local = node_of(op).local;
  }
  constexpr void sort(const instruction& op, const sort_spec& spec, const vec<int>& operands, const vec<int>& results, int dim) {
    const int x = operands[0];
    auto& s = add_step(action::sort, op, step_state::entry_of(table_of<sort_spec>(out), spec), operands, results);
    if (dim >= 0) add_bound(s, 0, x, dim);
  }
  /// `others`: of each operand what the neighbours sent.
  constexpr void sort_ends(const instruction& op, const sort_ends_spec& spec, const vec<int>& operands, const vec<int>& others,
                           const vec<int>& results, int dim) {
    vec<int> all = operands;
    for (const int v : others) all.push_back(v);
    auto& s = add_step(action::sort_ends, op, step_state::entry_of(table_of<sort_ends_spec>(out), spec), all, results);
    add_bound(s, 0, operands[0], dim);
  }
  /// The same elements in another layout.
  constexpr int redistribute(const instruction& op, int from, const sharding& layout) {
    local_value v = value(from);
    const movement m{v.global, v.layout, layout, movement_axes(out.mesh, v.global, v.layout, layout)};
    const movement back{v.global, layout, v.layout, movement_axes(out.mesh, v.global, layout, v.layout)};
    v.layout = layout;
    v.local = local_extents(out.mesh, v.global, layout);
    const int to = add_value(v);
    auto& s = add_step(action::move, op, -1, {from}, {to});
    s.collective = classify(out.mesh, m);
    const auto received = bytes_sent(out.mesh, m, detail::bytes_of(v.type));
    const auto sent = s.collective == collective_kind::all_to_all ? bytes_sent(out.mesh, back, detail::bytes_of(v.type)) : 0;
    s.bytes_sent = sent > received ? sent : received;  // uneven parts: some send more than anyone receives
    return to;
  }
  /// What a map makes of a value: `v`, in the same splits.
  constexpr int mapped(const instruction& op, int from, local_value v, const index_map& map) {
    const extents before = value(from).global;
    const int to = add_value(v);
    auto& s = add_step(action::move, op, step_state::entry_of(table_of<index_map>(out), map), {from}, {to});
    s.collective = collective_kind::collective_permute;
    s.bytes_sent = traffic_of(out.mesh, before, v.global, v.layout, map).elems() * detail::bytes_of(v.type);
    return to;
  }
  /// Another order of the dims of a shard, which are `in` whatever the value says of them.
  constexpr void permute_as(const instruction& op, int operand, int result, const permutation_spec& spec) {
    add_step(action::permute, op, step_state::entry_of(table_of<permutation_spec>(out), spec), {operand}, {result});
  }
  /// A value that is split along `dim`, whole along it: an all_gather.
  constexpr int gather_parts(const instruction& op, int from, int dim) {
    sharding whole;
    for (const auto& use : value(from).layout.splits)
      if (use.dim != dim) whole.splits.push_back(use);
    return redistribute(op, from, whole);
  }
  constexpr void row(const instruction& op) { note_rows(op, add_step(action::row, op, 0, all_operands(op), {op.result})); }
  constexpr void set_row(const instruction& op) {
    note_rows(op, add_step(action::set_row, op, 0, all_operands(op), {op.result}));
  }
  constexpr void add_row(const instruction& op) {
    note_rows(op, add_step(action::add_row, op, 0, all_operands(op), {op.result}));
  }
  /// A user's function of blocks, `entry` of those that take the operands' types.
  constexpr void local(const instruction& op, int entry) {
    vec<int> results(1, op.result);
    for (const int v : op.further_results) results.push_back(v);
    add_step(action::local, op, entry, all_operands(op), results).local = node_of(op).local;
  }
  /// Data that moves or is reduced for an operator.
  constexpr void communicate(const instruction& op) {
    if (op.what == instruction_kind::terms) {
      add_step(action::terms, op, 0, {op.operands[0]}, {op.result});
      return;
    }
    const bool reduces = op.what == instruction_kind::reduce;
    auto& s = add_step(reduces ? action::combine : action::move, op, reduces ? 0 : -1, {op.operands[0]}, {op.result});
    s.collective = op.collective;
    s.bytes_sent = bytes_of(op);
  }

 private:
  static constexpr vec<int> all_operands(const instruction& op) { return {op.operands.begin(), op.operands.end()}; }
  /// Only the device knows how much of a padded dim of its result is there.
  constexpr void note_padded(const instruction& op, plan_step& s) {
    const local_value& v = value(op.result);
    const dim_mask padded = padded_dims(out.mesh, v.global, v.layout);
    for (int d = 0; d < v.local.count; ++d)
      if ((padded & dim_bit(d)) != 0) add_bound(s, d, op.result, d);
  }
  /// Only the device knows which part it holds of a table, and of slices.
  constexpr void note_indexed(const indexed_access& a, int table, int slices, plan_step& s) {
    for (int d = 0; d < value(table).local.count; ++d)
      if (!a.dims[d].is_aligned && value(table).layout.axes_of(d) != 0) add_bound(s, d, table, d);
    for (int d = 0; d < value(slices).local.count; ++d)
      if (value(slices).layout.axes_of(d) != 0) add_bound(s, indexed_access::of_slices + d, slices, d);
  }
  /// Only the device knows which rows it holds of operand 0, where they are split.
  constexpr void note_rows(const instruction& op, plan_step& s) {
    if (value(op.operands[0]).layout.axes_of(0) != 0) add_bound(s, 0, op.operands[0], 0);
  }

  step_state& state_;
  loop_fuser& loops_;
  widening wide_;
};

/// The steps of an operator that is no part of a loop.
constexpr void lower(step_state& state, loop_fuser& loops, const instruction& op) {
  lowering l(state, loops);
  if (op.what != instruction_kind::compute) return l.communicate(op);
  with_operator(l.node_of(op).op, [&](auto family) { decltype(family)::type::lower(l, op); });
}

}  // namespace gspmd::detail
