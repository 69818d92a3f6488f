// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/lower/schedule_state.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// One loop of elementwise operators while it is made: its registers, what it loads and stores.
class loop_group : public schedule_state {
 public:
  using schedule_state::schedule_state;

  struct group_builder {
    vec<scalar_op> ops;
    vec<int> same_input;  // by register: of a load, the one before it of the same input; else -1
    vec<int> inputs;
    vec<int> last_load;  // by input: its last load
    vec<int> results;
    vec<fused_store> stores;
    vec<fused_margin> margins;
    vec<bound> offsets;
  };

  /// As entry_of, for a group and its tables.
  constexpr int entry_of_group(planned_group& planned, const group_builder& group) {
    auto& groups = table_of<planned_group>(out);
    auto& ops = table_of<scalar_op>(out);
    auto& stores = table_of<fused_store>(out);
    auto& margins = table_of<fused_margin>(out);
    const std::size_t first = groups.size() < looked_at ? 0 : groups.size() - looked_at;
    for (std::size_t i = groups.size(); i-- > first;)
      if (is_same_group(groups[i], planned, group)) return static_cast<int>(i);
    planned.ops = {static_cast<int>(ops.size()), static_cast<int>(group.ops.size())};
    planned.stores = {static_cast<int>(stores.size()), static_cast<int>(group.stores.size())};
    planned.margins = {static_cast<int>(margins.size()), static_cast<int>(group.margins.size())};
    for (const auto& o : group.ops) ops.push_back(o);
    for (const auto& m : group.margins) margins.push_back(m);
    for (const auto& s : group.stores) stores.push_back(s);
    groups.push_back(planned);
    return static_cast<int>(groups.size()) - 1;
  }
  [[nodiscard]] constexpr bool is_same_group(const planned_group& known, const planned_group& made,
                                             const group_builder& group) const {
    if (known.ops.count != static_cast<int>(group.ops.size()) || known.stores.count != static_cast<int>(group.stores.size()) ||
        known.margins.count != static_cast<int>(group.margins.size()) || !(known.loop == made.loop) || known.cut != made.cut)
      return false;
    const auto& margins = table_of<fused_margin>(out);
    for (std::size_t i = 0; i < group.margins.size(); ++i)
      if (!(margins[static_cast<std::size_t>(known.margins.begin) + i] == group.margins[i])) return false;
    const auto& stores = table_of<fused_store>(out);
    const auto& ops = table_of<scalar_op>(out);
    for (std::size_t i = 0; i < group.stores.size(); ++i)
      if (!(stores[static_cast<std::size_t>(known.stores.begin) + i] == group.stores[i])) return false;
    for (std::size_t i = 0; i < group.ops.size(); ++i)
      if (!(ops[static_cast<std::size_t>(known.ops.begin) + i] == group.ops[i])) return false;
    return true;
  }

  /// Registers are numbered by int16.
  static constexpr std::size_t most_registers = 32'767;

  static constexpr int add_op(group_builder& group, const scalar_op& op, int same_input = -1) {
    group.ops.push_back(op);
    group.same_input.push_back(same_input);
    return static_cast<int>(group.ops.size()) - 1;
  }

  constexpr void compute(int v, const extents& loop, group_builder& group) {
    const instruction& op = maker(v);
    const node& n = node_of(op);
    scalar_op s = facts_of(n.op).in_loop(graph_, n);
    for (const int o : op.operands) s.args.push_back(static_cast<std::int16_t>(read(o, loop, group)));
    register_[v] = add_op(group, s);
  }

  constexpr int read(int v, const extents& loop, group_builder& group) {
    if (waits(v) && register_[v] >= 0) return register_[v];  // of this group: what others computed does not wait
    return waits_virtual(v) ? read_virtual(v, loop, group, identity_dims(loop)) : load(v, loop, group, identity_dims(loop));
  }

  static constexpr dim_places identity_dims(const extents& loop) {
    dim_places dims;
    for (int d = 0; d < loop.count; ++d) dims.push_back(static_cast<std::int8_t>(d));
    return dims;
  }

  /// `dims`: along which loop dim each dim of the value lies; -1 for a dim that is stretched.
  constexpr int read_virtual(int v, const extents& loop, group_builder& group, const dim_places& dims) {
    const instruction& op = maker(v);
    const node& n = node_of(op);
    const auto& facts = facts_of(n.op);
    if (facts.made == origin::source) {
      scalar_op s = facts.in_loop(graph_, n);
      if (s.is_index()) {
        const std::int8_t own = s.dim;
        if (dims[own] < 0) return add_op(group, scalar_op::constant(n.type, 0, 0));
        s.dim = dims[own];
        s.slot = static_cast<std::int16_t>(group.offsets.size());
        group.offsets.push_back(bound{0, v, own});
      }
      return add_op(group, s);
    }
    const int source = op.operands[0];
    dim_places source_dims;
    for (const auto to : facts.lies_along(graph_, n)) source_dims.push_back(to < 0 ? to : dims[to]);
    return waits_virtual(source) ? read_virtual(source, loop, group, source_dims) : load(source, loop, group, source_dims);
  }

  constexpr int load(int v, const extents& loop, group_builder& group, const dim_places& dims) {
    const auto& local = program_.value(v).local;
    scalar_op s = scalar_op::load(program_.value(v).type, 0);
    s.strides = extents(loop.count, 0);
    std::int64_t stride = 1;
    for (int d = local.count - 1; d >= 0; --d) {
      if (dims[d] >= 0) s.strides[dims[d]] = stride;
      stride *= local[d];
    }
    const offset_read* const from = offsets.read_of(v);
    if (from != nullptr) {
      s.dim = from->dim;
      s.integer = from->offset;
    }
    const int slot = slot_in(group, v);
    const int same_input = group.last_load[slot];
    for (int r = same_input; r >= 0; r = group.same_input[r])
      if (group.ops[r].strides == s.strides && group.ops[r].dim == s.dim && group.ops[r].integer == s.integer) return r;
    s.slot = static_cast<std::int16_t>(slot);
    const int made = group.last_load[slot] = add_op(group, s, same_input);
    if (s.is_at_offset()) add_margin(group, made, offsets.margins_of(*from), loop);
    return made;
  }
  constexpr int slot_in(group_builder& group, int v) {
    int& slot = slot_[base[v]];
    if (slot >= 0) return slot;
    slot = static_cast<int>(group.inputs.size());
    group.inputs.push_back(v);
    group.last_load.push_back(-1);
    return slot;
  }
  /// Where a load at an offset goes on. What is the same along a dim has extent 1 there.
  constexpr void add_margin(group_builder& group, int load, const shard_margins& margins, const extents& loop) {
    fused_margin m{static_cast<std::int16_t>(load), static_cast<std::int16_t>(slot_in(group, margins.value)), margins.low,
                   extents(loop.count, 0)};
    const auto& local = program_.value(margins.value).local;
    std::int64_t stride = 1;
    for (int d = loop.count - 1; d >= 0; --d) {
      if (local[d] != 1) m.strides[d] = stride;
      stride *= local[d];
    }
    group.margins.push_back(m);
  }
};

}  // namespace gspmd::detail
