// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "gspmd/detail/exec/fused_collapse.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/ops/einsum.hpp"
#include "gspmd/detail/ops/reduce.hpp"

namespace gspmd::detail {

/// Orders the local program into steps and fuses its elementwise operators.
///
/// Elementwise operators wait until something that is not elementwise, or an output, needs their value. Then all waiting
/// operators of the same shape that lead to it, and those that only read what is there or is computed with it, become one
/// loop. Constants, iotas and broadcasts are never computed on their own: the loops read them through strides. Reshapes of
/// shards, and shards that are the same under two shardings, are other names for the same memory.
///
///   h = relu(x * w + b)     one einsum, one loop: load x*w, load b with stride 0, add, maximum, store
class scheduler {
 public:
  constexpr scheduler(const graph& g, const mesh_shape& mesh, local_program p) : graph_(g), program_(std::move(p)) {
    out.mesh = mesh;
    const auto count = program_.values.size();
    base.resize(count, 0);
    maker_.resize(count, -1);
    uses_.resize(count, 0);
    waiting_.resize(count, 0);
    seen_.resize(count, 0);
    step_.resize(count, -1);
    for (std::size_t v = 0; v < count; ++v) base[v] = static_cast<int>(v);
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      maker_[at(program_.ops[i].result)] = static_cast<int>(i);
      for (const int o : program_.ops[i].operands) ++uses_[at(o)];
    }
    for (const int o : program_.outputs) ++uses_[at(o)];
  }

  constexpr void run() {
    for (const auto& op : program_.ops) {
      if (is_lazy(op)) {
        waiting_[at(op.result)] = 1;
        if (!is_virtual(op)) queue_.push_back(op.result);
      } else if (is_alias(op)) {
        base[at(op.result)] = base[at(op.operands[0])];
      } else {
        for (const int o : op.operands) need(o);
        emit(op);
      }
    }
    for (const int o : program_.outputs) need(o);
    place_outputs();
    for (std::size_t v = 0; v < program_.values.size(); ++v) {
      const auto& from = program_.values[v];
      out.values.push_back(planned_value{from.node, from.type, from.global, from.layout, from.local, {}, step_[v]});
    }
    out.inputs = program_.inputs;
  }

  plan out;
  std::vector<int> base;  // by value: the value whose memory it names

 private:
  static constexpr std::size_t at(int i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] constexpr const node& node_of(const local_op& op) const { return graph_.nodes[at(op.node)]; }
  [[nodiscard]] constexpr bool is_virtual(const local_op& op) const {
    const auto code = node_of(op).op;
    return op.what == local_kind::compute &&
           (code == opcode::constant || code == opcode::iota || code == opcode::broadcast_in_dim);
  }
  [[nodiscard]] constexpr bool is_lazy(const local_op& op) const {
    return op.what == local_kind::compute && (is_elementwise(node_of(op).op) || is_virtual(op));
  }
  [[nodiscard]] constexpr bool is_alias(const local_op& op) const {
    if (op.what == local_kind::slice) {  // the same shard under another name
      const auto& from = program_.value(op.operands[0]);
      return same_data(out.mesh, from.global, from.layout, program_.value(op.result).layout);
    }
    return op.what == local_kind::compute && node_of(op).op == opcode::reshape;
  }
  [[nodiscard]] constexpr const local_op& maker(int v) const { return program_.ops[at(maker_[at(v)])]; }
  [[nodiscard]] constexpr bool waits(int v) const { return waiting_[at(v)] != 0; }
  [[nodiscard]] constexpr bool waits_virtual(int v) const { return waits(v) && is_virtual(maker(v)); }

  // ---- steps ----

  constexpr table_range add_slots(const std::vector<int>& values) {
    const table_range range{static_cast<int>(out.slots.size()), static_cast<int>(values.size())};
    for (const int v : values) out.slots.push_back(v);
    return range;
  }

  constexpr plan_step& add_step(action what, const local_op& op, int spec, const std::vector<int>& operands,
                                const std::vector<int>& results) {
    plan_step s;
    s.what = what;
    s.node = op.node;
    s.spec = spec;
    s.type = program_.value(results[0]).type;
    s.operands = add_slots(operands);
    s.results = add_slots(results);
    for (const int v : results) step_[at(v)] = static_cast<int>(out.steps.size());
    s.bounds.begin = static_cast<int>(out.bounds.size());
    s.forced = op.forced;
    out.steps.push_back(s);
    return out.steps.back();
  }

  /// Notes how much of a dim of a shard is data, which may differ between devices.
  constexpr void add_bound(plan_step& s, int index, int value, int dim) {
    out.bounds.push_back(bound{static_cast<std::int8_t>(index), value, static_cast<std::int8_t>(dim)});
    ++s.bounds.count;
  }

  // Before its first use: Clang instantiates a member template too late for constant evaluation if its body comes later.
  template <class Permutation>
  constexpr void emit_permute(const local_op& op, int operand, int result, const Permutation& permutation) {
    permutation_spec spec;
    spec.in = program_.value(operand).local;
    for (const auto d : permutation) spec.permutation.push_back(d);
    out.permutations.push_back(spec);
    add_step(action::permute, op, static_cast<int>(out.permutations.size()) - 1, {operand}, {result});
  }

  constexpr void emit(const local_op& op) {
    if (op.what != local_kind::compute) {
      auto& s = add_step(op.what == local_kind::reduce ? action::combine : action::move, op, 0, {op.operands[0]}, {op.result});
      s.collective = op.collective;
      s.bytes_sent = bytes_of(out.mesh, program_, op);
      return;
    }
    const node& n = node_of(op);
    if (n.op == opcode::transpose) {
      emit_permute(op, op.operands[0], op.result, n.attributes);
    } else if (n.op == opcode::reduce) {
      emit_reduce(op, op.operands[0], op.result, reduced_dims(n), n.kind);
    } else if (n.operands.count == 2) {
      emit_contract(op);
    } else {
      emit_unary_einsum(op);
    }
  }

  constexpr void emit_reduce(const local_op& op, int operand, int result, dim_mask dims, monoid kind) {
    out.reductions.push_back(reduction_spec{program_.value(operand).local, dims, kind});
    auto& s = add_step(action::reduce, op, static_cast<int>(out.reductions.size()) - 1, {operand}, {result});
    for (int d = 0; d < program_.value(operand).local.count; ++d)
      if ((dims & dim_bit(d)) != 0) add_bound(s, d, operand, d);
  }

  constexpr void emit_contract(const local_op& op) {
    const node& n = node_of(op);
    contraction c;
    inline_vec<std::int8_t, max_letters> letters;
    const auto number_of = [&letters](std::int8_t letter) {
      int i = 0;
      while (i < letters.count && letters[i] != letter) ++i;
      if (i == letters.count) letters.push_back(letter);
      return static_cast<std::int8_t>(i);
    };
    for (int k = 0; k < 2; ++k) {
      const auto dims = letters_of(graph_, n, k);
      const auto& local = program_.value(op.operands[k]).local;
      for (int d = 0; d < dims.count; ++d) {
        const auto i = number_of(dims[d]);
        if (i == c.extent.count) c.extent.push_back(local[d]);
        (k == 0 ? c.lhs : c.rhs).push_back(i);
      }
    }
    const auto result = letters_of(graph_, n, 2);
    for (int d = 0; d < result.count; ++d) c.out.push_back(number_of(result[d]));
    out.contractions.push_back(plan_contraction(c));
    auto& s = add_step(action::contract, op, static_cast<int>(out.contractions.size()) - 1, {op.operands[0], op.operands[1]},
                       {op.result});
    for (int k = 0; k < 2; ++k) {
      const auto dims = letters_of(graph_, n, k);
      for (int d = 0; d < dims.count; ++d)
        if (result.find(dims[d]) < 0) add_bound(s, number_of(dims[d]), op.operands[k], d);
    }
  }

  /// Einsum of one operand: its missing letters are reduced, the others brought into order.
  constexpr void emit_unary_einsum(const local_op& op) {
    const node& n = node_of(op);
    const auto from = letters_of(graph_, n, 0);
    const auto to = letters_of(graph_, n, 1);
    dim_mask summed = 0;
    inline_vec<std::int8_t, max_rank> kept;
    inline_vec<std::int8_t, max_rank> permutation;
    for (int d = 0; d < from.count; ++d) {
      if (to.find(from[d]) < 0) summed |= dim_bit(d);
      else kept.push_back(from[d]);
    }
    bool in_order = true;
    for (int d = 0; d < to.count; ++d) {
      int i = 0;
      while (kept[i] != to[d]) ++i;
      permutation.push_back(static_cast<std::int8_t>(i));
      in_order = in_order && i == d;
    }
    int operand = op.operands[0];
    if (summed != 0 && !in_order) {
      local_value v = program_.value(operand);
      local_value part = program_.value(op.result);
      part.local.clear();
      for (int d = 0; d < from.count; ++d)
        if ((summed & dim_bit(d)) == 0) part.local.push_back(v.local[d]);
      part.global = part.local;
      part.layout = sharding{};
      const int t = add_value(part);
      emit_reduce(op, operand, t, summed, monoid::add);
      operand = t;
      summed = 0;
    }
    if (summed != 0) emit_reduce(op, operand, op.result, summed, monoid::add);
    else emit_permute(op, operand, op.result, permutation);
  }

  constexpr int add_value(const local_value& v) {
    program_.values.push_back(v);
    base.push_back(static_cast<int>(base.size()));
    maker_.push_back(-1);
    uses_.push_back(1);
    seen_.push_back(0);
    waiting_.push_back(0);
    step_.push_back(-1);
    return static_cast<int>(program_.values.size()) - 1;
  }

  // ---- fusion ----

  constexpr void need(int v) {
    v = base[at(v)];
    if (waits(v)) flush(v);
  }

  /// Makes everything that the waiting operators of one shape that lead to `v` read from memory.
  constexpr void prepare(int v, const extents& loop, int stamp) {
    if (seen_[at(v)] == stamp) return;
    seen_[at(v)] = stamp;
    for (const int o : maker(v).operands) {
      if (!waits(o)) need(o);
      else if (waits_virtual(o)) prepare_virtual(o);
      else if (program_.value(o).local == loop) prepare(o, loop, stamp);
      else need(o);
    }
  }
  constexpr void prepare_virtual(int v) {
    for (const int o : maker(v).operands) {
      if (waits_virtual(o)) prepare_virtual(o);
      else need(o);
    }
  }

  constexpr void collect(int v, std::vector<int>& members, int stamp) {
    if (seen_[at(v)] == stamp) return;
    seen_[at(v)] = stamp;
    for (const int o : maker(v).operands)
      if (waits(o) && !waits_virtual(o)) collect(o, members, stamp);
    members.push_back(v);
  }

  /// Whether an operator that waits can join: it reads something of the group, and nothing that still waits elsewhere.
  [[nodiscard]] constexpr bool can_join(int v, int stamp) const {
    const auto& op = maker(v);
    if (is_virtual(op)) return false;
    bool reads_group = false;
    for (const int o : op.operands) reads_group = reads_group || seen_[at(o)] == stamp;
    if (!reads_group) return false;
    for (const int o : op.operands)
      if (seen_[at(o)] != stamp && !is_ready(o)) return false;
    return true;
  }
  [[nodiscard]] constexpr bool is_ready(int v) const {
    if (!waits(v)) return !waits(base[at(v)]);
    if (!is_virtual(maker(v))) return false;
    for (const int o : maker(v).operands)
      if (!is_ready(o)) return false;
    return true;
  }

  struct group_builder {
    std::vector<scalar_op> ops;
    std::vector<int> value;  // by register: the value it computes; -1 for loads and the like
    std::vector<int> inputs;
    std::vector<int> results;
    std::vector<fused_store> stores;
    std::vector<bound> offsets;
  };

  constexpr void flush(int v) {
    const extents loop = program_.value(v).local;
    const local_op op = maker(v);
    group_builder group;
    std::vector<int> members;
    if (is_virtual(op)) {
      prepare_virtual(v);
      members.push_back(v);
      waiting_[at(v)] = 0;  // for good: from now on it lies in memory
      const int reg = read_virtual(v, loop, group, identity_dims(loop));
      group.stores.push_back(fused_store{static_cast<std::int16_t>(reg), 0});
      group.results.push_back(v);
    } else {
      prepare(v, loop, ++stamp_);
      const int stamp = ++stamp_;  // what it needed may have been flushed meanwhile, with stamps of its own
      collect(v, members, stamp);
      for (const int w : queue_)
        if (waits(w) && seen_[at(w)] != stamp && can_join(w, stamp) && program_.value(w).local == loop) {
          seen_[at(w)] = stamp;
          members.push_back(w);
        }
      for (const int m : members) compute(m, loop, group);
      for (const int m : members) {
        waiting_[at(m)] = 0;
        step_[at(m)] = static_cast<int>(out.steps.size());
      }
      for (const int m : members)
        for (const int o : maker(m).operands) --uses_[at(o)];
      for (const int m : members) {
        if (uses_[at(m)] == 0) continue;  // nobody outside the group
        group.stores.push_back(
            fused_store{static_cast<std::int16_t>(register_of(m, group)), static_cast<std::int16_t>(group.results.size())});
        group.results.push_back(m);
      }
    }
    std::vector<int> rest;
    for (const int w : queue_)
      if (waits(w)) rest.push_back(w);
    queue_ = rest;

    planned_group planned;
    planned.loop = loop;
    collapse_loop(planned.loop, group.ops);
    planned.ops = {static_cast<int>(out.scalar_ops.size()), static_cast<int>(group.ops.size())};
    planned.stores = {static_cast<int>(out.stores.size()), static_cast<int>(group.stores.size())};
    for (const auto& o : group.ops) out.scalar_ops.push_back(o);
    for (const auto& s : group.stores) out.stores.push_back(s);
    out.groups.push_back(planned);
    auto& s = add_step(action::fused, op, static_cast<int>(out.groups.size()) - 1, group.inputs, group.results);
    for (const auto& b : group.offsets) {
      out.bounds.push_back(b);
      ++s.bounds.count;
    }
  }

  static constexpr int register_of(int v, const group_builder& group) {
    for (std::size_t i = 0; i < group.value.size(); ++i)
      if (group.value[i] == v) return static_cast<int>(i);
    return -1;
  }
  static constexpr int add_op(group_builder& group, const scalar_op& op, int value) {
    group.ops.push_back(op);
    group.value.push_back(value);
    return static_cast<int>(group.ops.size()) - 1;
  }

  constexpr void compute(int v, const extents& loop, group_builder& group) {
    const local_op& op = maker(v);
    const node& n = node_of(op);
    scalar_op s;
    s.op = n.op;
    s.type = n.type;
    s.operand_type = graph_.nodes[at(n.operands[n.op == opcode::select ? 1 : 0])].type;
    s.function = n.function;
    for (const int o : op.operands) s.args.push_back(static_cast<std::int16_t>(read(o, loop, group)));
    add_op(group, s, v);
  }

  constexpr int read(int v, const extents& loop, group_builder& group) {
    const int known = register_of(v, group);
    if (known >= 0) return known;
    return waits_virtual(v) ? read_virtual(v, loop, group, identity_dims(loop)) : load(v, loop, group, identity_dims(loop));
  }

  using dim_list = inline_vec<std::int8_t, max_rank>;
  static constexpr dim_list identity_dims(const extents& loop) {
    dim_list dims;
    for (int d = 0; d < loop.count; ++d) dims.push_back(static_cast<std::int8_t>(d));
    return dims;
  }

  /// `dims`: along which loop dim each dim of the value lies; -1 for a dim that is stretched.
  constexpr int read_virtual(int v, const extents& loop, group_builder& group, const dim_list& dims) {
    const local_op& op = maker(v);
    const node& n = node_of(op);
    scalar_op s;
    s.type = s.operand_type = n.type;
    if (n.op == opcode::constant || (n.op == opcode::iota && dims[n.attributes[0]] < 0)) {
      s.op = opcode::constant;
      s.real = n.real;
      s.integer = n.integer;
      return add_op(group, s, -1);
    }
    if (n.op == opcode::iota) {
      s.op = opcode::iota;
      s.dim = dims[n.attributes[0]];
      s.slot = static_cast<std::int16_t>(group.offsets.size());
      group.offsets.push_back(bound{static_cast<std::int8_t>(s.slot), v, n.attributes[0]});
      return add_op(group, s, -1);
    }
    const int source = op.operands[0];
    dim_list source_dims;
    for (int d = 0; d < n.attributes.count; ++d) {
      const int to = n.attributes[d];
      const bool stretched = program_.value(source).global[d] != n.shape[to];
      source_dims.push_back(stretched ? std::int8_t{-1} : dims[to]);
    }
    return waits_virtual(source) ? read_virtual(source, loop, group, source_dims) : load(source, loop, group, source_dims);
  }

  constexpr int load(int v, const extents& loop, group_builder& group, const dim_list& dims) {
    const auto& local = program_.value(v).local;
    scalar_op s;
    s.op = opcode::parameter;
    s.type = s.operand_type = program_.value(v).type;
    s.strides = extents(loop.count, 0);
    std::int64_t stride = 1;
    for (int d = local.count - 1; d >= 0; --d) {
      if (dims[d] >= 0) s.strides[dims[d]] = stride;
      stride *= local[d];
    }
    const int memory = base[at(v)];
    for (std::size_t i = 0; i < group.inputs.size(); ++i) {
      if (base[at(group.inputs[i])] != memory) continue;
      s.slot = static_cast<std::int16_t>(i);
      for (std::size_t r = 0; r < group.ops.size(); ++r)
        if (group.ops[r].op == opcode::parameter && group.ops[r].slot == s.slot && group.ops[r].strides == s.strides)
          return static_cast<int>(r);
      return add_op(group, s, -1);
    }
    s.slot = static_cast<std::int16_t>(group.inputs.size());
    group.inputs.push_back(v);
    return add_op(group, s, -1);
  }

  // ---- outputs ----

  /// Every output gets memory of its own: what is an input, or another output too, is copied.
  constexpr void place_outputs() {
    for (std::size_t k = 0; k < program_.outputs.size(); ++k) {
      int v = program_.outputs[k];
      bool is_shared = false;
      for (const int i : program_.inputs) is_shared = is_shared || base[at(i)] == base[at(v)];
      for (const int o : out.outputs) is_shared = is_shared || base[at(o)] == base[at(v)];
      if (is_shared) {
        const local_value copy = program_.value(v);
        local_op op;
        op.node = copy.node;
        const int to = add_value(copy);
        add_step(action::move, op, 0, {v}, {to});
        v = to;
      }
      out.outputs.push_back(v);
    }
  }

  const graph& graph_;
  local_program program_;
  std::vector<int> maker_;  // by value: the op that makes it; -1 for inputs
  std::vector<int> uses_;   // by value: by operators that are not in a group yet
  std::vector<int> seen_;   // by value: the last walk that met it
  int stamp_ = 0;
  std::vector<std::uint8_t> waiting_;  // by value: a lazy op that is not done
  std::vector<int> queue_;             // values that wait and may join a loop, in order
  std::vector<int> step_;              // by value: the step that computes it; -1: none yet
};

}  // namespace gspmd::detail
