// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "gspmd/detail/exec/fused_collapse.hpp"
#include "gspmd/detail/exec/message_plan.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/ir/same_plan.hpp"
#include "gspmd/detail/ops/einsum.hpp"
#include "gspmd/detail/ops/local.hpp"
#include "gspmd/detail/ops/reduce.hpp"
#include "gspmd/detail/passes/lazy_ops.hpp"
#include "gspmd/detail/support/saturating.hpp"

namespace gspmd::detail {

/// Orders the local program into steps and fuses its elementwise operators.
///
/// Elementwise operators wait until something that is not elementwise, or an output, needs their value. Then all waiting
/// operators of the same shape that lead to it, and those that only read what is there or is computed with it, become one
/// loop. Constants, iotas and broadcasts are never computed on their own: the loops read them through strides. Reshapes of
/// shards, and shards that are the same under two shardings, are other names for the same memory. A loop has at most most_registers of them: what leads to more becomes several.
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
    is_joined_.resize(count, 0);
    step_.resize(count, -1);
    register_.resize(count, -1);
    slot_.resize(count, -1);
    for (std::size_t v = 0; v < count; ++v) base[v] = static_cast<int>(v);
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      if (program_.ops[i].result >= 0) maker_[at(program_.ops[i].result)] = static_cast<int>(i);
      for (const int o : program_.ops[i].operands) ++uses_[at(o)];
    }
    list_readers();
    reserve_tables();
    for (const int o : program_.outputs) ++uses_[at(o)];
  }

  constexpr void run() {
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      const local_op op = program_.ops[i];  // a copy: fusing adds values, not operators
      if (op.what == local_kind::control) {
        emit_control(static_cast<int>(i), op);
      } else if (op.what == local_kind::copy) {
        emit_copy(static_cast<int>(i), op);
      } else if (is_lazy(op)) {
        waiting_[at(op.result)] = 1;
      } else if (is_alias(graph_, out.mesh, program_, op)) {
        base[at(op.result)] = base[at(op.operands[0])];
      } else if (i + 1 < program_.ops.size() && program_.ops[i + 1].joined) {
        i = emit_joined(i);
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
  [[nodiscard]] constexpr bool is_virtual(const local_op& op) const { return detail::is_virtual(graph_, op); }
  [[nodiscard]] constexpr bool is_lazy(const local_op& op) const { return detail::is_lazy(graph_, op); }
  [[nodiscard]] constexpr const local_op& maker(int v) const { return program_.ops[at(maker_[at(v)])]; }
  [[nodiscard]] constexpr bool waits(int v) const { return waiting_[at(v)] != 0; }
  [[nodiscard]] constexpr bool waits_virtual(int v) const { return waits(v) && is_virtual(maker(v)); }

  constexpr void list_readers() {
    int total = 0;
    readers_from_.resize(uses_.size() + 1, 0);
    for (std::size_t v = 0; v < uses_.size(); ++v) {
      readers_from_[v] = total;
      total += uses_[v];
    }
    readers_from_[uses_.size()] = total;
    readers_.resize(at(total), 0);
    std::vector<int> next = readers_from_;
    for (const auto& op : program_.ops)
      for (const int o : op.operands) readers_[at(next[at(o)]++)] = op.result;
  }

  /// Large tables that grow step by step would cost more than all the rest.
  constexpr void reserve_tables() {
    std::size_t contractions = 0;
    std::size_t lazy = 0;
    for (const auto& op : program_.ops) {
      if (op.what != local_kind::compute) continue;
      if (is_lazy(op)) ++lazy;
      else if (op.operands.count == 2) ++contractions;
    }
    out.values.reserve(program_.values.size() + program_.outputs.size());
    const auto count = program_.ops.size() + program_.outputs.size();
    out.steps.reserve(count);
    out.slots.reserve(3 * count);
    out.bounds.reserve(count);
    out.contractions.reserve(contractions < looked_at ? contractions : looked_at);
    out.scalar_ops.reserve(2 * lazy);
  }

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
    s.type = results.empty() ? dtype::pred : program_.value(results[0]).type;
    s.operands = add_slots(operands);
    s.results = add_slots(results);
    for (const int v : results) step_[at(v)] = static_cast<int>(out.steps.size());
    s.bounds.begin = static_cast<int>(out.bounds.size());
    s.forced = op.forced;
    s.times = times_;
    out.steps.push_back(s);
    return out.steps.back();
  }

  /// Notes how much of a dim of a shard is data, which may differ between devices.
  constexpr void add_bound(plan_step& s, int index, int value, int dim) {
    out.bounds.push_back(bound{static_cast<std::int8_t>(index), value, static_cast<std::int8_t>(dim)});
    ++s.bounds.count;
  }

  /// Where an equal entry stands in a table; if the last few are all different, it becomes one. What steps have in common is
  /// planned, stored and compiled once: the layers of a network look alike.
  // Before its first use: Clang instantiates a member template too late for constant evaluation if its body comes later.
  template <class T>
  static constexpr int entry_of(std::vector<T>& table, const T& entry) {
    const std::size_t first = table.size() < looked_at ? 0 : table.size() - looked_at;
    for (std::size_t i = table.size(); i-- > first;)
      if (table[i] == entry) return static_cast<int>(i);
    table.push_back(entry);
    return static_cast<int>(table.size()) - 1;
  }
  static constexpr std::size_t looked_at = 16;

  template <class Permutation>
  constexpr void emit_permute(const local_op& op, int operand, int result, const Permutation& permutation) {
    permutation_spec spec;
    spec.in = program_.value(operand).local;
    for (const auto d : permutation) spec.permutation.push_back(d);
    add_step(action::permute, op, entry_of(out.permutations, spec), {operand}, {result});
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
    } else if (n.op == opcode::shift) {
      auto& s = add_step(action::move, op, 0, {op.operands[0]}, {op.result});
      s.collective = op.collective;
      s.bytes_sent = bytes_of(out.mesh, program_, op);
      s.shift = op.shift;
    } else if (n.op == opcode::dynamic_index) {
      add_step(action::row, op, 0, {op.operands[0], op.operands[1]}, {op.result});
    } else if (n.op == opcode::dynamic_update) {
      add_step(action::set_row, op, 0, {op.operands[0], op.operands[1], op.operands[2]}, {op.result});
    } else if (n.op == opcode::local_op) {
      emit_local(op);
    } else if (n.op == opcode::reduce) {
      emit_reduce(op, op.operands[0], op.result, reduced_dims(n), n.kind);
    } else if (n.operands.count == 2) {
      emit_contract(op);
    } else {
      emit_unary_einsum(op);
    }
  }

  constexpr void emit_local(const local_op& op) {
    const node& n = node_of(op);
    std::vector<int> operands;
    for (const int o : op.operands) operands.push_back(o);
    const int entry = local_entry_of(*n.local, [&](int k) { return graph_.nodes[at(n.operands[k])].type; });
    add_step(action::local, op, entry, operands, {op.result}).local = n.local;
  }

  /// An all_reduce and those that its message carries too; the last of them.
  constexpr std::size_t emit_joined(std::size_t first) {
    std::vector<int> operands;
    std::vector<int> results;
    std::size_t last = first;
    for (; last == first || (last < program_.ops.size() && program_.ops[last].joined); ++last) {
      operands.push_back(program_.ops[last].operands[0]);
      results.push_back(program_.ops[last].result);
      need(operands.back());
    }
    --last;
    local_op op = program_.ops[first];
    for (std::size_t i = first; i <= last; ++i)
      if (op.node < program_.ops[i].node) op.node = program_.ops[i].node;  // where explain shows it
    auto& s = add_step(action::combine, op, 0, operands, results);
    s.collective = op.collective;
    for (const int v : results) is_joined_[at(v)] = 1;
    reduction all{extents(1, 0), {}, {}, op.axes, program_.value(operands[0]).layout.kind};
    for (const int v : operands) all.global[0] += elements(program_.value(v).local);
    s.bytes_sent = bytes_sent(out.mesh, all, bytes_of(s.type));
    return last;
  }

  constexpr void emit_reduce(const local_op& op, int operand, int result, dim_mask dims, monoid kind) {
    const reduction_spec spec{program_.value(operand).local, dims, kind};
    auto& s = add_step(action::reduce, op, entry_of(out.reductions, spec), {operand}, {result});
    for (int d = 0; d < program_.value(operand).local.count; ++d)
      if ((dims & dim_bit(d)) != 0) add_bound(s, d, operand, d);
  }

  /// An einsum `c` of one shard of an operand that goes round a ring: what scratch it takes. Parts of the other operand and of the
  /// result that do not lie in one piece are copied, and so are all parts where the last one is cut short.
  constexpr void add_window(const local_op& op, const contraction& c, int letter, int spec) {
    planned_window w;
    w.contraction = spec;
    w.operand = op.window.operand;
    w.letter = static_cast<std::int8_t>(letter);
    w.both_ways = op.window.both_ways;
    w.scratch_elems = buffer_elems(out.contractions[at(spec)].scratch_elems);
    const auto reserve = [&w](std::int64_t elems) {
      const auto from = w.scratch_elems;
      w.scratch_elems += buffer_elems(elems);
      return from;
    };
    const auto& shard = program_.value(op.operands[w.operand]);
    w.axes = ring_of(op.window, shard.layout).axes;
    const auto members = ring{w.axes}.size(out.mesh);
    w.buffers_at = w.scratch_elems;
    for (auto k = ring_rounds(members, w.both_ways).buffers(); k > 0; --k) reserve(elements(shard.local));
    const inline_vec<std::int8_t, max_rank>* lists[] = {&c.lhs, &c.rhs, &c.out};
    const int values[] = {op.operands[0], op.operands[1], op.result};
    for (int b = 0; b < 3; ++b) {
      w.dims.push_back(-1);
      for (int d = 0; d < lists[b]->count; ++d)
        if ((*lists[b])[d] == letter) w.dims[b] = static_cast<std::int8_t>(d);
      if (w.dims[b] < 0 || b == w.operand) continue;
      const auto& whole = program_.value(values[b]).local;
      if (is_major(whole, w.dims[b]) && whole[w.dims[b]] == members * c.extent[letter]) continue;
      std::int64_t elems = 1;
      for (const auto l : *lists[b]) elems *= c.extent[l];
      (b == 2 ? w.result_at : w.operand_at) = reserve(elems);
    }
    out.windows.push_back(w);
  }

  constexpr void emit_contract(const local_op& op) {
    const node& n = node_of(op);
    const bool is_windowed = op.window.operand >= 0;
    const std::int8_t round = is_windowed ? letters_of(graph_, n, op.window.operand)[op.window.dim] : std::int8_t{-1};
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
        if (i == c.extent.count)
          c.extent.push_back(dims[d] == round ? program_.value(op.operands[op.window.operand]).local[op.window.dim] : local[d]);
        (k == 0 ? c.lhs : c.rhs).push_back(i);
      }
    }
    const auto result = letters_of(graph_, n, 2);
    for (int d = 0; d < result.count; ++d) c.out.push_back(number_of(result[d]));
    int spec = entry_of(contractions_, c);
    if (spec == static_cast<int>(out.contractions.size())) out.contractions.push_back(plan_contraction(c));
    if (is_windowed) {
      add_window(op, c, number_of(round), spec);
      spec = static_cast<int>(out.windows.size()) - 1;
    }
    auto& s =
        add_step(is_windowed ? action::windowed : action::contract, op, spec, {op.operands[0], op.operands[1]}, {op.result});
    if (is_windowed) {
      s.collective = collective_kind::collective_permute;
      s.bytes_sent = bytes_of(out.mesh, program_, op);
    }
    for (int k = 0; k < 2; ++k) {
      const auto dims = letters_of(graph_, n, k);
      for (int d = 0; d < dims.count; ++d)
        if (result.find(dims[d]) < 0 && dims[d] != round) add_bound(s, number_of(dims[d]), op.operands[k], d);
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
    register_.push_back(-1);
    slot_.push_back(-1);
    return static_cast<int>(program_.values.size()) - 1;
  }

  // ---- loops and conditionals ----

  /// Steps of a body run never, once or many times: what a body reads of values that wait outside is computed before it.
  constexpr void emit_control(int i, const local_op& op) {
    const opcode what = node_of(op).op;
    const int here = static_cast<int>(out.steps.size());
    if (what == opcode::loop || what == opcode::branch) {
      if (what == opcode::branch) need(op.operands[0]);
      settle_before(i);
      open_.push_back(static_cast<int>(out.steps.size()));
      auto& s = what == opcode::loop ? add_step(action::loop_begin, op, 0, {}, {op.result})
                                     : add_step(action::branch, op, 0, {op.operands[0]}, {});
      if (what == opcode::loop) {
        s.trips = node_of(op).integer;
        times_ = saturating_multiply(times_, s.trips);
      }
      return;
    }
    auto& begin = out.steps[at(open_.back())];
    begin.target = here;
    if (what == opcode::otherwise) {
      open_.back() = here;
      add_step(action::otherwise, op, 0, {}, {});
    } else {
      if (what == opcode::loop_result) times_ = begin.times;
      const int target = open_.back();
      open_.pop_back();
      add_step(what == opcode::loop_result ? action::loop_end : action::join, op, 0, {}, {}).target = target;
    }
  }

  constexpr void settle_before(int start) {
    int depth = 0;
    for (std::size_t i = at(start); i < program_.ops.size(); ++i) {
      const local_op op = program_.ops[i];
      if (op.what == local_kind::control) {
        const opcode what = node_of(op).op;
        if (what == opcode::loop || what == opcode::branch) ++depth;
        if (is_region_result(what) && --depth == 0) return;
      }
      for (const int o : op.operands) {
        if (maker_[at(o)] > start) continue;  // in the body
        if (is_lazy(op) && waits_virtual(o)) need_sources(o);
        else need(o);
      }
    }
  }
  /// A loop of the body may read through a broadcast, but not through it what would be computed there first.
  constexpr void need_sources(int v) {
    std::vector<int> list(1, v);
    while (!list.empty()) {
      const local_op op = maker(list.back());
      list.pop_back();
      for (const int o : op.operands) {
        if (waits_virtual(o)) list.push_back(o);
        else need(o);
      }
    }
  }

  /// Copies of several values at the end of a loop's body happen as if at once: {a, b} = {b, a + b}.
  constexpr void emit_copy(int i, const local_op& op) {
    need(op.operands[0]);
    if (node_of(op).op != opcode::loop_result) {
      auto& s = add_step(action::copy, op, 0, {op.operands[0]}, {op.result});
      if (node_of(op).op == opcode::cond_result) s.target = open_.back();
      return;
    }
    const auto is_back = [&](int k) {
      return k >= 0 && k < static_cast<int>(program_.ops.size()) && program_.ops[at(k)].what == local_kind::copy &&
             node_of(program_.ops[at(k)]).op == opcode::loop_result;
    };
    if (is_back(i - 1)) return;  // done with the first
    int end = i;
    while (is_back(end)) need(program_.ops[at(end++)].operands[0]);
    std::vector<int> from;
    for (int k = i; k < end; ++k) {
      int v = program_.ops[at(k)].operands[0];
      for (int j = i; j < end; ++j)
        if (j != k && base[at(v)] == base[at(program_.ops[at(j)].result)]) {
          const local_value copy = program_.value(program_.ops[at(k)].result);
          const int saved = add_value(copy);
          add_step(action::copy, program_.ops[at(k)], 0, {v}, {saved});
          v = saved;
          break;
        }
      from.push_back(v);
    }
    for (int k = i; k < end; ++k) {
      const local_op back = program_.ops[at(k)];
      if (base[at(from[at(k - i)])] != base[at(back.result)])
        add_step(action::copy, back, 0, {from[at(k - i)]}, {back.result}).target = open_.back();
    }
  }

  // ---- fusion ----

  /// A value that a walk from a user to its operands has come to.
  struct visit {
    int value = 0;
    int next = 0;   // operand
    int stamp = 0;  // of the walk, one for each loop
    bool is_loop = false;
  };

  /// Sees to it that `v` lies in memory: makes the loop that computes it, and before that the loops whose results it reads.
  /// The path is a vector and not the call stack, because a program may be a chain of any length.
  constexpr void need(int v) {
    begin_loop(v);
    while (!path_.empty()) {
      const visit top = path_.back();
      const local_op& op = maker(top.value);
      if (top.next == op.operands.count) {
        path_.pop_back();
        if (top.is_loop) flush(top.value);
        continue;
      }
      ++path_.back().next;
      const int o = op.operands[top.next];
      if (!waits(o)) {
        begin_loop(o);
      } else if (waits_virtual(o)) {
        path_.push_back(visit{o, 0, top.stamp, false});
      } else if (!is_virtual(op) && program_.value(o).local == program_.value(top.value).local) {  // in the same loop
        if (seen_[at(o)] == top.stamp) continue;
        seen_[at(o)] = top.stamp;
        path_.push_back(visit{o, 0, top.stamp, false});
      } else {
        begin_loop(o);
      }
    }
  }
  constexpr void begin_loop(int v) {
    v = base[at(v)];
    if (!waits(v)) return;
    seen_[at(v)] = ++stamp_;
    path_.push_back(visit{v, 0, stamp_, true});
  }

  /// The waiting operators that lead to `v`, operands first.
  constexpr void collect(int v, std::vector<int>& members, int stamp) {
    std::vector<visit> path;
    seen_[at(v)] = stamp;
    path.push_back(visit{v, 0, stamp, false});
    while (!path.empty()) {
      visit& top = path.back();
      const local_op& op = maker(top.value);
      if (top.next == op.operands.count) {
        members.push_back(top.value);
        path.pop_back();
        continue;
      }
      const int o = op.operands[top.next++];
      if (!waits(o) || waits_virtual(o) || seen_[at(o)] == stamp) continue;
      seen_[at(o)] = stamp;
      path.push_back(visit{o, 0, stamp, false});
    }
  }

  /// Adds the waiting operators that only read what is there or is computed by the group, in the order of the program.
  constexpr void join(std::vector<int>& members, const extents& loop, int stamp) {
    const std::size_t collected = members.size();
    for (std::size_t m = 0; m < members.size(); ++m) {
      const std::size_t v = at(members[m]);
      for (int r = readers_from_[v]; r < readers_from_[v + 1]; ++r) {
        const int w = readers_[at(r)];
        if (w < 0 || !waits(w) || seen_[at(w)] == stamp || !can_join(w, stamp) || !(program_.value(w).local == loop)) continue;
        seen_[at(w)] = stamp;
        members.push_back(w);
      }
    }
    if (members.size() - collected > 1)
      std::sort(members.begin() + static_cast<std::ptrdiff_t>(collected), members.end(),
                [this](int a, int b) { return maker_[at(a)] < maker_[at(b)]; });
  }

  /// Whether an operator that waits and reads something of the group can join: it reads nothing that still waits elsewhere.
  [[nodiscard]] constexpr bool can_join(int v, int stamp) const {
    const auto& op = maker(v);
    if (is_virtual(op)) return false;
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
    std::vector<int> same_input;  // by register: of a load, the one before it of the same input; else -1
    std::vector<int> inputs;
    std::vector<int> last_load;  // by input: its last load
    std::vector<int> results;
    std::vector<fused_store> stores;
    std::vector<bound> offsets;
  };

  /// As entry_of, for a group and its tables.
  constexpr int entry_of_group(planned_group& planned, const group_builder& group) {
    const std::size_t first = out.groups.size() < looked_at ? 0 : out.groups.size() - looked_at;
    for (std::size_t i = out.groups.size(); i-- > first;)
      if (is_same_group(out.groups[i], planned.loop, group)) return static_cast<int>(i);
    planned.ops = {static_cast<int>(out.scalar_ops.size()), static_cast<int>(group.ops.size())};
    planned.stores = {static_cast<int>(out.stores.size()), static_cast<int>(group.stores.size())};
    for (const auto& o : group.ops) out.scalar_ops.push_back(o);
    for (const auto& s : group.stores) out.stores.push_back(s);
    out.groups.push_back(planned);
    return static_cast<int>(out.groups.size()) - 1;
  }
  [[nodiscard]] constexpr bool is_same_group(const planned_group& known, const extents& loop, const group_builder& group) const {
    if (at(known.ops.count) != group.ops.size() || at(known.stores.count) != group.stores.size() || !(known.loop == loop))
      return false;
    for (std::size_t i = 0; i < group.stores.size(); ++i)
      if (!(out.stores[at(known.stores.begin) + i] == group.stores[i])) return false;
    for (std::size_t i = 0; i < group.ops.size(); ++i)
      if (!same_scalar_op(out.scalar_ops[at(known.ops.begin) + i], group.ops[i])) return false;
    return true;
  }

  /// Registers are numbered by int16.
  static constexpr std::size_t most_registers = 32'767;

  /// Makes the loop that computes `v`, whose operands from elsewhere lie in memory.
  constexpr void flush(int v) {
    while (waits(v)) emit_loop(v);
  }

  constexpr void emit_loop(int v) {
    const extents loop = program_.value(v).local;
    const local_op op = maker(v);
    group_builder group;
    std::vector<int> members;
    if (is_virtual(op)) {
      members.push_back(v);
      waiting_[at(v)] = 0;  // for good: from now on it lies in memory
      const int reg = read_virtual(v, loop, group, identity_dims(loop));
      group.stores.push_back(fused_store{static_cast<std::int16_t>(reg), 0});
      group.results.push_back(v);
    } else {
      const int stamp = ++stamp_;  // what it needed may have been flushed meanwhile, with stamps of its own
      collect(v, members, stamp);
      join(members, loop, stamp);
      group.ops.reserve(2 * members.size());
      std::size_t count = 0;
      for (; count < members.size() && group.ops.size() + 1 + max_map_arity <= most_registers; ++count)
        compute(members[count], loop, group);
      members.resize(count, 0);  // the rest goes on waiting
      for (const int m : members) {
        waiting_[at(m)] = 0;
        step_[at(m)] = static_cast<int>(out.steps.size());
      }
      for (const int m : members)
        for (const int o : maker(m).operands) --uses_[at(o)];
      for (const int m : members) {
        if (uses_[at(m)] == 0) continue;  // nobody outside the group
        group.stores.push_back(
            fused_store{static_cast<std::int16_t>(register_[at(m)]), static_cast<std::int16_t>(group.results.size())});
        group.results.push_back(m);
      }
    }
    for (const int i : group.inputs) slot_[at(base[at(i)])] = -1;

    planned_group planned;
    planned.loop = loop;
    collapse_loop(planned.loop, group.ops);
    auto& s = add_step(action::fused, op, entry_of_group(planned, group), group.inputs, group.results);
    for (const auto& b : group.offsets) {
      out.bounds.push_back(b);
      ++s.bounds.count;
    }
  }

  static constexpr int add_op(group_builder& group, const scalar_op& op, int same_input = -1) {
    group.ops.push_back(op);
    group.same_input.push_back(same_input);
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
    register_[at(v)] = add_op(group, s);
  }

  constexpr int read(int v, const extents& loop, group_builder& group) {
    if (waits(v) && register_[at(v)] >= 0) return register_[at(v)];  // of this group: what others computed does not wait
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
      return add_op(group, s);
    }
    if (n.op == opcode::iota) {
      s.op = opcode::iota;
      s.dim = dims[n.attributes[0]];
      s.slot = static_cast<std::int16_t>(group.offsets.size());
      group.offsets.push_back(bound{static_cast<std::int8_t>(s.slot), v, n.attributes[0]});
      return add_op(group, s);
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
    int& slot = slot_[at(base[at(v)])];
    int same_input = -1;
    if (slot >= 0) {
      same_input = group.last_load[at(slot)];
      for (int r = same_input; r >= 0; r = group.same_input[at(r)])
        if (group.ops[at(r)].strides == s.strides) return r;
    } else {
      slot = static_cast<int>(group.inputs.size());
      group.inputs.push_back(v);
      group.last_load.push_back(-1);
    }
    s.slot = static_cast<std::int16_t>(slot);
    return group.last_load[at(slot)] = add_op(group, s, same_input);
  }

  // ---- outputs ----

  /// Every output gets memory of its own: what is an input, or another output too, is copied, and what came in a message with
  /// others, next to which it lies.
  constexpr void place_outputs() {
    std::vector<std::uint8_t> is_taken(base.size(), 0);  // by value: its memory is an input's or an output's
    for (const int i : program_.inputs) is_taken[at(base[at(i)])] = 1;
    for (std::size_t v = 0; v < is_joined_.size(); ++v)
      if (is_joined_[v] != 0) is_taken[v] = 1;
    for (std::size_t k = 0; k < program_.outputs.size(); ++k) {
      int v = program_.outputs[k];
      const bool is_shared = is_taken[at(base[at(v)])] != 0;
      is_taken[at(base[at(v)])] = 1;
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
  std::vector<std::uint8_t> waiting_;      // by value: a lazy op that is not done
  std::vector<visit> path_;                // see need()
  std::vector<int> readers_from_;          // by value: its first one in readers_
  std::vector<int> readers_;               // results of the operators that read a value, in order
  std::vector<std::uint8_t> is_joined_;    // by value of the local program: an all_reduce of several makes it
  std::vector<int> step_;                  // by value: the step that computes it; -1: none yet
  std::vector<int> open_;                  // the steps that opened the bodies around what is emitted now
  std::int64_t times_ = 1;                 // how often that runs
  std::vector<int> register_;              // by value: its register in the loop that computes it
  std::vector<contraction> contractions_;  // what out.contractions were planned for
  std::vector<int> slot_;                  // by memory: which input of the present loop it is; -1: none
};

}  // namespace gspmd::detail
