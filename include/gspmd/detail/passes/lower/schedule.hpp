// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/element_bits.hpp"
#include "gspmd/detail/passes/lower/lowering.hpp"
#include "gspmd/detail/passes/lower/region_steps.hpp"
#include "gspmd/detail/passes/lower/row_blocks.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Orders the local program into steps and fuses its elementwise operators.
///
/// Elementwise operators wait until an output, or an operator that is not elementwise, needs their value. Then all
/// waiting operators of the same shape that the value depends on become one loop. Operators that read only values in
/// memory or values of the loop join it. Constants, iotas and broadcasts are never computed on their own: the loops
/// read them through strides. Reshapes of shards, and shards that are the same under two shardings, are aliases of the
/// same memory. A loop has at most loop_group::most_registers operators; more operators become several loops.
///
///   h = relu(x * w + b)     one einsum, one loop: load x*w, load b with stride 0, add, maximum, store
class scheduler {
 public:
  constexpr explicit scheduler(step_state& state) : s_(state), loops_(s_), regions_(s_, loops_) {}

  constexpr void run() {
    go_on(s_.program_.ops.size());
    finish();
  }
  /// Processes the next `most` operators, or all that are left.
  constexpr void go_on(std::size_t most) {
    const auto end = s_.program_.ops.size() - s_.next_ > most ? s_.next_ + most : s_.program_.ops.size();
    std::size_t i = s_.next_;
    for (; i < end; ++i) {
      const instruction op = s_.program_.ops[i];  // a copy: fusing adds values, not operators
      if (op.what == instruction_kind::control) {
        regions_.emit_control(static_cast<int>(i), op);
      } else if (op.what == instruction_kind::copy) {
        regions_.emit_copy(static_cast<int>(i), op);
      } else if (s_.is_lazy(op)) {
        if (s_.step_[op.result] >= 0) continue;  // the previous step has computed it
        s_.waiting_[op.result] = 1;
        if (s_.out.is_checked && !s_.is_virtual(op)) loops_.need(op.result);  // the check reads it from memory
      } else if (const auto* read = s_.offsets.read_of(op.result); read != nullptr) {
        read_at_offset(op, *read);
      } else if (is_alias(*s_.graph_, s_.out.mesh, s_.program_, op)) {
        s_.base[op.result] = s_.base[op.operands[0]];
      } else if (i + 1 < s_.program_.ops.size() && s_.program_.ops[i + 1].joined) {
        i = emit_joined(i);
      } else {
        lower(s_, loops_, op);
      }
    }
    s_.next_ = i;
    s_.is_done_ = i == s_.program_.ops.size();
  }
  /// Ends the schedule after the last operator.
  constexpr void finish() {
    for (const int o : s_.program_.outputs) loops_.need(o);
    place_outputs();
    for (std::size_t v = 0; v < s_.program_.values.size(); ++v) {
      const auto& from = s_.program_.values[v];
      const bool is_padded = padded_dims(s_.out.mesh, from.global, from.layout) != 0;
      s_.out.values.push_back(
          planned_value{from.node, from.type, from.global, from.layout, from.local, {}, s_.step_[v], is_padded});
      s_.out.values[v].order = from.order;
    }
    s_.out.inputs = s_.program_.inputs;
  }

 private:
  /// Makes the value an alias of its operand, which loops read at offsets. The elements outside of the shard are
  /// fetched once for all users.
  constexpr void read_at_offset(const instruction& op, const offset_read& read) {
    loops_.need(op.operands[0]);
    s_.base[op.result] = s_.base[op.operands[0]];
    for (const int k : read.margins)
      if (s_.offsets.margins[k].value < 0) return bring_all_margins(op, k);
  }
  /// Fetches the margins around a value for all its users in this body, one dim after the other. Margins around the
  /// shards along a dim are fetched together with the margins along that dim around earlier margins, the corners. The
  /// margins of other values are fetched too if these values have the same sharding and are in memory. Their users may
  /// follow later: overlap_moves joins all messages to the same neighbours.
  ///
  ///   a box along two dims      one message to each neighbour along dim 0, then one to each along dim 1
  constexpr void bring_all_margins(const instruction& op, int like) {
    const auto& all = s_.offsets.margins;
    vec<int> missing;  // in this body
    const auto add_margins_of = [&](int v) {
      for (int k = s_.offsets.first_of(v); k >= 0; k = all[k].next)
        if (all[k].value < 0 && all[k].region == all[like].region) missing.push_back(k);
    };
    add_margins_of(all[like].of);
    const local_value& first = s_.program_.value(all[like].of);
    for (int k = like + 1; k < static_cast<int>(all.size()) && k <= like + most_looked_ahead; ++k) {
      const int v = all[k].of;
      const local_value& other = s_.program_.value(v);
      if (v != all[like].of && s_.offsets.first_of(v) == k && other.type == first.type && other.layout == first.layout &&
          is_there(v, op))
        add_margins_of(v);
    }
    const auto is_ready = [&](int k) { return all[k].inner < 0 || all[all[k].inner].value >= 0; };
    for (;;) {
      int best = -1;  // if possible, along a dim whose margins can all be fetched
      bool is_whole = false;
      for (std::size_t i = 0; i < missing.size() && !is_whole; ++i) {
        const int k = missing[i];
        if (all[k].value >= 0 || !is_ready(k)) continue;
        bool whole = true;
        for (const int other : missing)
          if (all[other].value < 0 && all[other].dim == all[k].dim) whole = whole && is_ready(other);
        if (best < 0 || whole) best = k;
        is_whole = whole;
      }
      if (best < 0) return;
      const int dim = all[best].dim;
      vec<int> sent;
      for (const int k : missing) {
        if (all[k].value >= 0 || all[k].dim != dim || !is_ready(k)) continue;
        if (is_sent(k)) sent.push_back(k);
        else s_.offsets.margins[k].value = bring_margins(op, k);
      }
      for (std::size_t k = 0, count = 0; k < sent.size(); k += count) {
        count = 1;
        while (k + count < sent.size() && count < most_moved_together && all[sent[k + count]].of == all[sent[k]].of) ++count;
        if (count == 1) s_.offsets.margins[sent[k]].value = bring_margins(op, sent[k]);
        else bring_together(op, sent.data() + k, count);
      }
    }
  }
  // Margins: nine fields in two dims have 27. The limit keeps a chain of shifts linear even if no shift is in memory
  // before the last shift.
  static constexpr int most_looked_ahead = 64;
  /// Returns true if a value is in memory before `op`. A carried value is in memory within the loop, although a copy
  /// at the end of the body computes it.
  [[nodiscard]] constexpr bool is_there(int v, const instruction& op) const {
    const auto is_made = [&](int w) {
      if (s_.maker_[w] < 0 || (s_.maker_[w] < s_.maker_[op.result] && !s_.waits(w))) return true;
      const node& n = s_.graph_->nodes[static_cast<std::size_t>(s_.program_.value(w).node)];
      if (s_.maker(w).what != instruction_kind::copy || n.op != opcode::carry) return false;
      int body = s_.node_of(op).region;
      while (body >= 0 && body != n.region) body = s_.graph_->nodes[static_cast<std::size_t>(body)].region;
      return body >= 0;
    };
    return is_made(v) && is_made(s_.base[v]);
  }
  [[nodiscard]] constexpr int surrounded(int k) const {
    const auto& m = s_.offsets.margins[k];
    return m.inner < 0 ? m.of : s_.offsets.margins[m.inner].value;
  }
  /// Returns true if margins hold one constant everywhere: along a dim that is not split, around the shards or around
  /// margins that hold this constant.
  [[nodiscard]] constexpr bool is_uniform(int k) const {
    const auto& m = s_.offsets.margins[k];
    if (m.inner < 0) return m.is_constant() && parts_of(s_.out.mesh, s_.program_.value(m.of).layout, m.dim) == 1;
    const auto goes_on_alike = [&](const margin_side& side) {
      return side.width == 0 || side.beyond != continuation::none || side.fill == constant_in(m.inner);
    };
    return is_uniform(m.inner) && goes_on_alike(m.low) && goes_on_alike(m.high);
  }
  [[nodiscard]] constexpr std::uint64_t constant_in(int k) const {
    const auto& m = s_.offsets.margins[k];
    if (m.inner >= 0) return constant_in(m.inner);
    return m.low.width > 0 ? m.low.fill : m.high.fill;
  }
  [[nodiscard]] constexpr bool is_sent(int k) const {
    if (is_uniform(k)) return false;
    const auto& from = s_.program_.value(surrounded(k));
    const auto& m = s_.offsets.margins[k];
    extents to = from.global;
    to[m.dim] = (m.low.width + m.high.width) * parts_of(s_.out.mesh, from.layout, m.dim);
    return traffic_of(s_.out.mesh, from.global, to, from.layout, m.map()).elems() > 0;
  }
  constexpr void bring_together(const instruction& op, const int* margins, std::size_t count) {
    vec<int> from, to;
    std::int64_t bytes = 0;
    auto& maps = table_of<index_map>(s_.out);
    const int spec = static_cast<int>(maps.size());
    for (std::size_t i = 0; i < count; ++i) {
      auto& m = s_.offsets.margins[margins[i]];
      from.push_back(surrounded(margins[i]));
      const index_map map = m.map();
      local_value v = s_.program_.value(from.back());
      const extents before = v.global;
      v.local[m.dim] = m.low.width + m.high.width;
      v.global[m.dim] = v.local[m.dim] * parts_of(s_.out.mesh, v.layout, m.dim);
      bytes += traffic_of(s_.out.mesh, before, v.global, v.layout, map).elems() * bytes_of(v.type);
      m.value = s_.add_value(v);
      to.push_back(m.value);
      maps.push_back(map);
    }
    auto& s = s_.add_step(id_of<kernels::move_together>, op, spec, from, to);
    s.collective = collective_kind::collective_permute;
    s.bytes_sent = bytes;
  }
  constexpr int bring_margins(const instruction& op, int k) {
    const shard_margins around = s_.offsets.margins[k];
    const int from = surrounded(k);
    const auto width = around.low.width + around.high.width;
    const int d = around.dim;
    local_value v = s_.program_.value(from);
    const auto parts = parts_of(s_.out.mesh, v.layout, d);
    v.global[d] = width * parts;
    v.local[d] = width;
    if (is_uniform(k)) {
      if (around.inner < 0 && !s_.offsets.is_surrounded(k)) {  // one index is enough; a row is read element by element
        for (int dim = 0; dim <= d; ++dim) v.local[dim] = 1;
        if (elements(v.local) == 1) v.local[d] = width;
        v.global = v.local;
        v.layout = {};
      }
      const int made = s_.add_value(v);
      loop_group group(s_, extents(1, elements(v.local)));
      group.add_op(constant_of(v.type, constant_in(k)));
      group.stores.push_back(fused_store{});
      planned_group planned;
      planned.loop = group.loop;
      s_.add_step(id_of<kernels::fused>, op, group.entry_for(planned), {}, {made});
      return made;
    }
    const index_map map = around.map();
    const int made = s_.add_value(v);
    const auto& t = s_.program_.value(from);
    auto& s = s_.add_step(id_of<kernels::move>, op, entry_of(table_of<index_map>(s_.out), map), {from}, {made});
    s.collective = collective_kind::collective_permute;
    s.bytes_sent = traffic_of(s_.out.mesh, t.global, v.global, t.layout, map).elems() * bytes_of(t.type);
    return made;
  }

  /// Adds one step for a collective and the collectives that share its message. Returns the index of the last
  /// collective.
  constexpr std::size_t emit_joined(std::size_t first) {
    vec<int> operands;
    vec<int> results;
    std::int64_t bytes = 0;
    std::size_t last = first;
    for (; last == first || (last < s_.program_.ops.size() && s_.program_.ops[last].joined); ++last) {
      operands.push_back(s_.program_.ops[last].operands[0]);
      results.push_back(s_.program_.ops[last].result);
      bytes += bytes_of(s_.out.mesh, s_.program_, s_.program_.ops[last]);
      loops_.need(operands.back());
    }
    --last;
    instruction op = s_.program_.ops[first];
    op.node = shown_at(first, last);
    const bool moves = op.what == instruction_kind::move;
    auto& s = moves             ? s_.add_step(id_of<kernels::move_together>, op, -1, operands, results)
              : op.side_by_side ? s_.add_step(id_of<kernels::combine>, op, 0, operands, results)
                                : s_.add_step(id_of<kernels::combine_together>, op, 0, operands, results);
    s.collective = op.collective;
    s.bytes_sent = bytes;
    if (!op.side_by_side) return last;
    for (const int v : results) s_.is_joined_[v] = 1;
    reduction all{extents(1, 0), {}, {}, op.axes, s_.program_.value(operands[0]).layout.reduced_by};
    for (const int v : operands) all.global[0] += elements(s_.program_.value(v).local);
    s.bytes_sent = bytes_sent(s_.out.mesh, all, detail::bytes_of(s.type));
    return last;
  }
  /// Returns the node at which explain shows a joined message: the first operator before which all operands of the
  /// message are computed.
  [[nodiscard]] constexpr int shown_at(std::size_t first, std::size_t last) const {
    int ready = 0, shown = -1, latest = 0;
    for (std::size_t i = first; i <= last; ++i) {
      const instruction& op = s_.program_.ops[i];
      if (const int node = s_.program_.value(op.operands[0]).node; ready < node) ready = node;
      if (latest < op.node) latest = op.node;
    }
    for (std::size_t i = first; i <= last; ++i)
      if (const int node = s_.program_.ops[i].node; node >= ready && (shown < 0 || node < shown)) shown = node;
    return shown < 0 ? latest : shown;
  }

  /// Gives each output separate memory. An output is copied if it is an input or another output. It is also copied if
  /// a joined message brought it, because it is then stored next to other values.
  constexpr void place_outputs() {
    vec<std::uint8_t> is_taken(s_.base.size(), 0);  // by value: its memory is an input's or an output's
    for (const int i : s_.program_.inputs) is_taken[s_.base[i]] = 1;
    for (std::size_t v = 0; v < s_.is_joined_.size(); ++v)
      if (s_.is_joined_[v] != 0) is_taken[v] = 1;
    for (std::size_t k = 0; k < s_.program_.outputs.size(); ++k) {
      int v = s_.program_.outputs[k];
      const bool is_shared = is_taken[s_.base[v]] != 0;
      is_taken[s_.base[v]] = 1;
      if (is_shared) {
        const local_value copy = s_.program_.value(v);
        instruction op;
        op.node = copy.node;
        const int to = s_.add_value(copy);
        s_.add_step(id_of<kernels::move>, op, -1, {v}, {to});
        v = to;
      }
      s_.out.outputs.push_back(v);
    }
  }

  step_state& s_;
  loop_fuser loops_;
  region_steps regions_;
};

}  // namespace gspmd::detail
