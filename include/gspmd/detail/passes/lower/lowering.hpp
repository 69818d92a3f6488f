// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/ops/einsum/complex_parts.hpp"
#include "gspmd/detail/ops/lowering.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/passes/lower/diagonals.hpp"
#include "gspmd/detail/passes/lower/loop_fuser.hpp"
#include "gspmd/detail/support/vec.hpp"

#include <utility>

namespace gspmd::detail {

/// The `times` of the step that replaces the steps of a refused operator.
inline constexpr int never_runs = -1;

/// Refuses the plan because of the steps of `op`. The `spec` of the added step is 0 if `op` adds no steps. Otherwise
/// it is 1 plus the number of the monoid that the steps reduce by.
constexpr void refuse_steps(step_state& state, const instruction& op, int operand, int spec) {
  state.out.broken = mistake::facts;
  state.add_step(id_of<kernels::terms>, op, spec, {operand}, {op.result}).times = never_runs;
}

/// Implements the functions that operators call to add their steps.
class step_lowering final : public lowering {
 public:
  constexpr step_lowering(step_state& state, loop_fuser& loops)
      : lowering(*state.graph_, state.out), state_(state), loops_(loops) {}

  constexpr const local_value& value(int v) const final { return state_.program_.value(v); }
  constexpr std::int64_t bytes_of(const instruction& op) const final { return detail::bytes_of(out.mesh, state_.program_, op); }
  constexpr int add_value(const local_value& v) final { return state_.add_value(v); }
  constexpr void add_bound(plan_step& s, int index, int v, int dim) final { state_.add_bound(s, index, v, dim); }
  constexpr plan_step& add_step(kernel_id kernel, const instruction& op, int spec, const vec<int>& operands,
                                const vec<int>& results) final {
    for (const int o : operands) loops_.need(o);
    return state_.add_step(kernel, op, spec, operands, results);
  }
  constexpr const instruction* waiting(int v) const final {
    return state_.waits(v) && !state_.waits_virtual(v) && state_.uses_[v] == 1 ? &state_.maker(v) : nullptr;
  }
  constexpr bool lies_in_memory(int v) const final {
    return !state_.waits(v) && !state_.waits(state_.base[v]) && state_.offsets.read_of(v) == nullptr;
  }
  constexpr bool is_read_alike(const instruction& op, int v) const final {
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
  constexpr bool transposes_on_the_way(const instruction& op, const inline_vec<std::int8_t, max_rank>& permutation) final {
    const int from = op.operands[0], to = op.result;
    if (out.is_checked) return false;
    // uses_ also counts outputs; readers_from_ also counts users in loops that are already added. Both are 1 if the
    // transpose is the only user.
    if (state_.uses_[from] == 1 && state_.readers_from_[from + 1] == state_.readers_from_[from] + 1 &&
        state_.is_brought(from, to) && state_.base[from] == from && state_.step_[from] >= 0) {
      auto& s = out.steps[state_.step_[from]];
      const int x = out.slots[s.operands.begin];
      if (facts_of(s).work != step_work::moves || s.operands.count != 1 || !value(x).order.empty()) return false;
      const int y = add_value(transposed(value(x), permutation));
      state_.base[y] = state_.base[x];
      out.slots[s.operands.begin] = y;
      out.slots[s.results.begin] = to;
      state_.step_[to] = std::exchange(state_.step_[from], -1);
      return true;
    }
    const int first = state_.readers_from_[to];
    if (state_.readers_from_[to + 1] != first + 1 || state_.uses_[to] != 1 || !state_.is_brought(state_.readers_[first], to))
      return false;
    loops_.need(from);
    if (!lies_in_memory(from) || !value(from).order.empty()) return false;
    state_.program_.values[to].order = transposed(value(from), permutation).order;
    state_.base[to] = state_.base[from];
    return true;
  }
  constexpr void forget(int v) final {
    state_.waiting_[v] = 0;
    --state_.uses_[v];
    for (const int o : state_.maker(v).operands) --state_.uses_[o];
  }
  constexpr int one_element(const instruction& op, int v) final {
    int from = v;
    while (state_.waits_virtual(from) && facts_of(node_of(state_.maker(from)).op).made != origin::source)
      from = state_.maker(from).operands[0];
    const dtype type = value(v).type;
    if (!state_.waits_virtual(v) || is_complex(type) || is_own(type) || state_.offsets.read_of(from) != nullptr) return -1;
    if (!state_.waits_virtual(from)) return elements(value(from).local) == 1 ? from : -1;
    const node& n = node_of(state_.maker(from));
    const scalar_op constant = facts_of(n.op).in_loop(g, n);
    if (!constant.is_constant()) return -1;
    local_value one = value(from);
    one.global = one.local = extents(1, 1);
    one.layout = sharding{};
    const int made = add_value(one);
    loop_group group(state_, one.local);
    group.stores.push_back(fused_store{static_cast<std::int16_t>(group.add_op(constant)), 0});
    planned_group planned;
    planned.loop = group.loop;
    state_.add_step(id_of<kernels::fused>, op, group.entry_for(planned), {}, {made});
    return made;
  }
  constexpr combination combined_next(const instruction& op, const operator_code& combine) final {
    const int v = op.result, at = state_.maker_[v] + 1;
    if (state_.uses_[v] != 1 || at == static_cast<int>(state_.program_.ops.size()) || out.is_checked) return {};
    const instruction& next = state_.program_.ops[at];
    if (next.what != instruction_kind::compute || !(node_of(next).op == combine)) return {};
    if (next.operands[0] != v && next.operands[1] != v) return {};
    const int with = next.operands[next.operands[0] == v ? 1 : 0];
    const auto lies_alike = [&](const local_value& other) {
      return other.type == value(v).type && other.local == value(v).local && other.layout == value(v).layout;
    };
    if (is_narrow(value(v).type) || !lies_alike(value(with)) || !lies_alike(value(next.result))) return {};
    if (state_.offsets.read_of(with) != nullptr) return {};
    loops_.need(with);  // read already here, before the step that `next` would have added
    for (const int o : next.operands) --state_.uses_[o];
    return {with, next.result};
  }
  constexpr int planned(const contraction& c) final { return state_.planned(c); }
  constexpr int widened(const instruction& op, int v) final {
    loops_.reduce_all();
    return loops_.widened(op, v);
  }
  constexpr int wide_result(int result) final { return widening(state_).like(result); }
  constexpr void narrowed(const instruction& op, int from, int result, bool saturates) final {
    if (from != result) widening(state_).convert(op, from, result, saturates);
  }
  constexpr int both_turns(const instruction& op, int x) final {
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
    auto& s = state_.add_step(id_of<kernels::fused>, op, group.entry_for(planned), {x}, {to});
    state_.add_bound(s, 0, to, 0);
    return to;
  }
  constexpr void reduce(const instruction& op, int operand, int result, dim_mask dims, monoid kind) final {
    if (refuses(op, operand, result, kind)) return;
    if (kind == monoid::add && add_sum_of_diagonal(state_, loops_, op, operand, result, dims)) return;
    loops_.need(operand);
    loops_.reduce_stored({op, operand, result, dims, kind});
  }
  constexpr void reduce_once(const instruction& op, int operand, int result, dim_mask dims, monoid kind) final {
    if (refuses(op, operand, result, kind)) return;
    const auto all = elements(value(operand).local), left = elements(value(result).local);
    if (kind == monoid::add && add_sum_of_diagonal(state_, loops_, op, operand, result, dims)) return;
    if (left < all && !is_complex(value(operand).type) &&
        (state_.waits(operand) || (lies_in_memory(operand) && state_.uses_[operand] > 1)))
      loops_.wait({op, operand, result, dims, kind});
    else reduce(op, operand, result, dims, kind);
  }
  constexpr void copy(const instruction& op, int from, const extents& strides) final {
    loops_.need(from);
    if (elements(value(op.result).local) == elements(value(from).local) && from != op.operands[0] &&
        is_dense(value(op.result).local, strides)) {  // no other operator uses `from`: an alias
      state_.base[op.result] = state_.base[from];
      return;
    }
    loop_group group(state_, value(op.result).local);
    scalar_op load = scalar_op::load(value(from).type, 0);
    load.strides = strides;
    group.stores.push_back(fused_store{static_cast<std::int16_t>(group.add_op(load)), 0});
    planned_group planned;
    planned.loop = group.loop;
    state_.add_step(id_of<kernels::fused>, op, group.entry_for(planned), {from}, {op.result});
  }
  constexpr void move(const instruction& op) final {
    const node& n = node_of(op);
    const int map = entry_of(table_of<index_map>(out), facts_of(n.op).map(g, n, op.movement));
    auto& s = add_step(id_of<kernels::move>, op, map, all_operands(op), {op.result});
    s.collective = op.collective;
    s.bytes_sent = bytes_of(op);
  }
  constexpr placed_tile tile(const instruction& op, int k) final {
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
      auto& s = add_step(id_of<kernels::move>, op, entry_of(table_of<index_map>(out), shared->map), {from}, {shared->value});
      s.collective = collective_kind::collective_permute;
      s.bytes_sent = bytes;
    }
    read.value = shared->value;
    return read;
  }
  constexpr int redistribute(const instruction& op, int from, const sharding& layout) final {
    local_value v = value(from);
    const movement m{v.global, v.layout, layout, movement_axes(out.mesh, v.global, v.layout, layout)};
    const movement back{v.global, layout, v.layout, movement_axes(out.mesh, v.global, layout, v.layout)};
    v.layout = layout;
    v.local = local_extents(out.mesh, v.global, layout);
    const int to = add_value(v);
    auto& s = add_step(id_of<kernels::move>, op, -1, {from}, {to});
    s.collective = classify(out.mesh, m);
    const auto received = bytes_sent(out.mesh, m, detail::bytes_of(v.type));
    const auto sent = s.collective == collective_kind::all_to_all ? bytes_sent(out.mesh, back, detail::bytes_of(v.type)) : 0;
    s.bytes_sent = sent > received ? sent : received;  // uneven parts: some devices send more than any device receives
    return to;
  }
  constexpr int mapped(const instruction& op, int from, local_value v, const index_map& map) final {
    const extents before = value(from).global;
    const int to = add_value(v);
    auto& s = add_step(id_of<kernels::move>, op, entry_of(table_of<index_map>(out), map), {from}, {to});
    s.collective = collective_kind::collective_permute;
    s.bytes_sent = traffic_of(out.mesh, before, v.global, v.layout, map).elems() * detail::bytes_of(v.type);
    return to;
  }
  constexpr int gather_parts(const instruction& op, int from, int dim) final {
    sharding whole;
    for (const auto& use : value(from).layout.splits)
      if (use.dim != dim) whole.splits.push_back(use);
    return redistribute(op, from, whole);
  }
  constexpr void communicate(const instruction& op) final {
    if (op.what == instruction_kind::terms) {
      add_step(id_of<kernels::terms>, op, 0, {op.operands[0]}, {op.result});
      return;
    }
    const bool reduces = op.what == instruction_kind::reduce;
    auto& s =
        add_step(reduces ? id_of<kernels::combine> : id_of<kernels::move>, op, reduces ? 0 : -1, {op.operands[0]}, {op.result});
    s.collective = op.collective;
    s.bytes_sent = bytes_of(op);
  }

 private:
  /// Refuses the plan if the devices would join a partial result by one monoid and each device reduces its part by
  /// another. Returns true if it does.
  constexpr bool refuses(const instruction& op, int operand, int result, monoid kind) {
    const sharding& layout = value(result).layout;
    if (result != op.result || layout.partial == 0 || layout.reduced_by == kind) return false;
    refuse_steps(state_, op, operand, 1 + static_cast<int>(kind));
    return true;
  }

  step_state& state_;
  loop_fuser& loops_;
};

/// Returns why the steps of an operator are refused: see refuse_steps.
[[gnu::cold]] constexpr text why_refused_steps(const plan_view& p) {
  for (const auto& s : p.steps) {
    if (s.times != never_runs) continue;
    const auto& n = p.nodes[static_cast<std::size_t>(s.node)];
    text why = graph::place(n.at, name_of(n.op));
    if (s.spec == 0) return why << ": `runs` is realisation::steps, and lower() adds no step for the result";
    return why << ": rule() sets reduced_by to "
               << name_of(p.value(p.slots[static_cast<std::size_t>(s.results.begin)]).layout.reduced_by)
               << ", and lower() reduces by " << name_of(static_cast<monoid>(s.spec - 1));
  }
  return {};
}
/// Adds the steps of an operator that is not part of a loop. If its `lower` adds no step, refuses the plan and adds
/// another step instead.
constexpr void lower(step_state& state, loop_fuser& loops, const instruction& op) {
  step_lowering l(state, loops);
  if (op.what != instruction_kind::compute) return l.communicate(op);
  const auto steps = state.out.steps.size();
  facts_of(l.node_of(op).op).lower(l, op);
  if (state.out.steps.size() != steps || state.step_[op.result] >= 0 || state.base[op.result] != op.result ||
      !state.reductions_.empty() || state.waits(op.result) || op.operands.empty())
    return;
  refuse_steps(state, op, op.operands[0], 0);
}

}  // namespace gspmd::detail
