// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/exec/contraction_planner.hpp"
#include "gspmd/detail/exec/message_plan.hpp"
#include "gspmd/detail/ops/einsum.hpp"
#include "gspmd/detail/ops/local.hpp"
#include "gspmd/detail/ops/reduce.hpp"
#include "gspmd/detail/passes/fuse_loops.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// The steps of operators that are no loops of elementwise ones: einsum, reduce, transpose, rows, the user's, collectives.
class operator_steps : public fuse_loops {
 protected:
  using fuse_loops::fuse_loops;

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
    vec<int> operands;
    for (const int o : op.operands) operands.push_back(o);
    const int entry = local_entry_of(*n.local, [&](int k) { return graph_.nodes[n.operands[k]].type; });
    add_step(action::local, op, entry, operands, {op.result}).local = n.local;
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
    w.scratch_elems = buffer_elems(out.contractions[spec].scratch_elems);
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
    c.padded = 0;
    inline_vec<std::int8_t, max_letters> letters;
    const auto number_of = [&letters](std::int8_t letter) {
      int i = 0;
      while (i < letters.count && letters[i] != letter) ++i;
      if (i == letters.count) letters.push_back(letter);
      return static_cast<std::int8_t>(i);
    };
    for (int k = 0; k < 2; ++k) {
      const auto dims = letters_of(graph_, n, k);
      const auto& operand = program_.value(op.operands[k]);
      const auto& local = operand.local;
      const auto padded = padded_dims(out.mesh, operand.global, operand.layout);
      for (int d = 0; d < dims.count; ++d) {
        const auto i = number_of(dims[d]);
        if ((padded & dim_bit(d)) != 0) c.padded |= std::uint64_t{1} << i;
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

  vec<contraction> contractions_;  // what out.contractions were planned for
};

}  // namespace gspmd::detail
