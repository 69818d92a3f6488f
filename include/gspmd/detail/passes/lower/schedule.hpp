// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/lower/lowering.hpp"
#include "gspmd/detail/passes/lower/region_steps.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Orders the local program into steps and fuses its elementwise operators.
///
/// Elementwise operators wait until something that is not elementwise, or an output, needs their value. Then all waiting
/// operators of the same shape that lead to it, and those that only read what is there or is computed with it, become one
/// loop. Constants, iotas and broadcasts are never computed on their own: the loops read them through strides. Reshapes of
/// shards, and shards that are the same under two shardings, are other names for the same memory. A loop has at
/// most most_registers of them: what leads to more becomes several.
///
///   h = relu(x * w + b)     one einsum, one loop: load x*w, load b with stride 0, add, maximum, store
class scheduler : public region_steps {
 public:
  using region_steps::region_steps;

  constexpr void run() {
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      const instruction op = program_.ops[i];  // a copy: fusing adds values, not operators
      if (op.what == instruction_kind::control) {
        emit_control(static_cast<int>(i), op);
      } else if (op.what == instruction_kind::copy) {
        emit_copy(static_cast<int>(i), op);
      } else if (is_lazy(op)) {
        waiting_[op.result] = 1;
      } else if (const auto* read = offsets.read_of(op.result); read != nullptr) {
        read_at_offset(op, *read);
      } else if (is_alias(graph_, out.mesh, program_, op)) {
        base[op.result] = base[op.operands[0]];
      } else if (i + 1 < program_.ops.size() && program_.ops[i + 1].joined) {
        i = emit_joined(i);
      } else {
        lower(*this, op);
      }
    }
    for (const int o : program_.outputs) need(o);
    place_outputs();
    for (std::size_t v = 0; v < program_.values.size(); ++v) {
      const auto& from = program_.values[v];
      const bool is_padded = padded_dims(out.mesh, from.global, from.layout) != 0;
      out.values.push_back(planned_value{from.node, from.type, from.global, from.layout, from.local, {}, step_[v], is_padded});
    }
    out.inputs = program_.inputs;
  }

 private:
  /// The value is its operand's memory, in which loops read further on. What of that is in no shard is brought once for all readers.
  constexpr void read_at_offset(const instruction& op, const offset_read& read) {
    const int from = op.operands[0];
    need(from);
    base[op.result] = base[from];
    if (read.margins < 0 || offsets.margins_of(read).value >= 0) return;
    auto& around = offsets.margins[read.margins];
    const auto width = around.low + around.high;
    const int d = around.dim;
    local_value v = program_.value(from);
    const auto parts = parts_of(out.mesh, v.layout, d);
    if (parts == 1 && !around.wraps) {  // nothing lies there: zeros for one index are enough
      for (int k = 0; k <= d; ++k) v.local[k] = 1;
      const auto zeros = elements(v.local) == 1 ? width : elements(v.local);  // a row is read element by element
      if (elements(v.local) == 1) v.local[d] = width;
      v.global = v.local;
      v.layout = {};
      around.value = add_value(v);
      group_builder group;
      add_op(group, scalar_op::constant(v.type, 0, 0));
      group.stores.push_back(fused_store{});
      planned_group planned;
      planned.loop = extents(1, zeros);
      add_step(action::fused, op, entry_of_group(planned, group), {}, {around.value});
      return;
    }
    index_map map;
    map.dims.push_back(dim_map{around.dim, around.wraps});
    map.low = around.low;
    map.high = around.high;
    v.global[d] = width * parts;
    v.local[d] = width;
    around.value = add_value(v);
    const auto& t = program_.value(from);
    auto& s = add_step(action::move, op, entry_of(table_of<index_map>(out), map), {from}, {around.value});
    s.collective = collective_kind::collective_permute;
    s.bytes_sent = traffic_of(out.mesh, t.global, v.global, t.layout, map).elems() * bytes_of(t.type);
  }

  /// An all_reduce and those that its message carries too; the last of them.
  constexpr std::size_t emit_joined(std::size_t first) {
    vec<int> operands;
    vec<int> results;
    std::size_t last = first;
    for (; last == first || (last < program_.ops.size() && program_.ops[last].joined); ++last) {
      operands.push_back(program_.ops[last].operands[0]);
      results.push_back(program_.ops[last].result);
      need(operands.back());
    }
    --last;
    instruction op = program_.ops[first];
    for (std::size_t i = first; i <= last; ++i)
      if (op.node < program_.ops[i].node) op.node = program_.ops[i].node;  // where explain shows it
    auto& s = add_step(action::combine, op, 0, operands, results);
    s.collective = op.collective;
    for (const int v : results) is_joined_[v] = 1;
    reduction all{extents(1, 0), {}, {}, op.axes, program_.value(operands[0]).layout.kind};
    for (const int v : operands) all.global[0] += elements(program_.value(v).local);
    s.bytes_sent = bytes_sent(out.mesh, all, bytes_of(s.type));
    return last;
  }

  /// Every output gets memory of its own: what is an input, or another output too, is copied, and what came in a message with
  /// others, next to which it lies.
  constexpr void place_outputs() {
    vec<std::uint8_t> is_taken(base.size(), 0);  // by value: its memory is an input's or an output's
    for (const int i : program_.inputs) is_taken[base[i]] = 1;
    for (std::size_t v = 0; v < is_joined_.size(); ++v)
      if (is_joined_[v] != 0) is_taken[v] = 1;
    for (std::size_t k = 0; k < program_.outputs.size(); ++k) {
      int v = program_.outputs[k];
      const bool is_shared = is_taken[base[v]] != 0;
      is_taken[base[v]] = 1;
      if (is_shared) {
        const local_value copy = program_.value(v);
        instruction op;
        op.node = copy.node;
        const int to = add_value(copy);
        add_step(action::move, op, -1, {v}, {to});
        v = to;
      }
      out.outputs.push_back(v);
    }
  }
};

}  // namespace gspmd::detail
