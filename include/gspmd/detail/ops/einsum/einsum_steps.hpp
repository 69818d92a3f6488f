// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/contraction_planner.hpp"
#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/ir/message_plan.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/ops/einsum/letters.hpp"

/// The steps of an einsum on shards: a contraction, a contraction that rotates shards around a ring, or a reduction and
/// a permutation.
namespace gspmd::detail {

/// Plans an einsum whose operand rotates around a ring, and its scratch. `c` is the einsum on a single rotating shard.
/// A part of the other operand or of the result is copied to scratch if it is not contiguous. If the last part is
/// shorter, all parts are copied.
template <class Lowering>
constexpr void add_ring(Lowering& l, const instruction& op, const contraction& c, int letter, int spec) {
  planned_ring w;
  w.contraction = spec;
  w.operand = op.ring.operand;
  w.letter = static_cast<std::int8_t>(letter);
  w.both_ways = op.ring.both_ways;
  w.scratch_elems = buffer_elems(table_of<contraction_plan>(l.out)[spec].scratch_elems);
  const auto reserve = [&w](std::int64_t elems) {
    const auto from = w.scratch_elems;
    w.scratch_elems += buffer_elems(elems);
    return from;
  };
  const auto& shard = l.value(op.operands[w.operand]);
  w.axes = ring_of(op.ring, shard.layout).axes;
  const auto members = ring{w.axes}.size(l.out.mesh);
  w.buffers_at = w.scratch_elems;
  for (auto k = ring_rounds(members, w.both_ways).buffers(); k > 0; --k) reserve(elements(shard.local));
  const inline_vec<std::int8_t, max_rank>* lists[] = {&c.lhs, &c.rhs, &c.out};
  const int values[] = {op.operands[0], op.operands[1], op.result};
  for (int b = 0; b < 3; ++b) {
    w.dims.push_back(-1);
    for (int d = 0; d < lists[b]->count; ++d)
      if ((*lists[b])[d] == letter) w.dims[b] = static_cast<std::int8_t>(d);
    if (w.dims[b] < 0 || b == w.operand) continue;
    const auto& whole = l.value(values[b]).local;
    if (is_major(whole, w.dims[b]) && whole[w.dims[b]] == members * c.extent[letter]) continue;
    std::int64_t elems = 1;
    for (const auto own : *lists[b]) elems *= c.extent[own];
    (b == 2 ? w.result_at : w.operand_at) = reserve(elems);
  }
  table_of<planned_ring>(l.out).push_back(w);
}

template <class Lowering>
constexpr void add_contraction(Lowering& l, const instruction& op) {
  const node& n = l.node_of(op);
  const bool goes_round = op.ring.operand >= 0;
  const std::int8_t round = goes_round ? letters_of(l.g, n, op.ring.operand)[op.ring.dim] : std::int8_t{-1};
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
    const auto dims = letters_of(l.g, n, k);
    const auto& operand = l.value(op.operands[k]);
    const auto& local = operand.local;
    const auto padded = padded_dims(l.out.mesh, operand.global, operand.layout);
    for (int d = 0; d < dims.count; ++d) {
      const auto i = number_of(dims[d]);
      if ((padded & dim_bit(d)) != 0) c.padded |= std::uint64_t{1} << i;
      if (i == c.extent.count)
        c.extent.push_back(dims[d] == round ? l.value(op.operands[op.ring.operand]).local[op.ring.dim] : local[d]);
      (k == 0 ? c.lhs : c.rhs).push_back(i);
    }
  }
  const auto result = letters_of(l.g, n, 2);
  for (int d = 0; d < result.count; ++d) c.out.push_back(number_of(result[d]));
  const bool by_parts = is_complex(n.type);
  const auto part = static_cast<std::int8_t>(c.extent.count);  // the letter of the summed real and imaginary parts
  const int turned = by_parts && elements(l.value(op.operands[0]).local) < elements(l.value(op.operands[1]).local) ? 0 : 1;
  if (by_parts) {
    const auto own = static_cast<std::int8_t>(part + 1);
    c.extent.push_back(2);
    c.extent.push_back(2);
    auto& with_both = turned == 0 ? c.lhs : c.rhs;
    with_both.insert(0, part);
    with_both.push_back(own);
    (turned == 0 ? c.rhs : c.lhs).push_back(part);
    c.out.push_back(own);
  }
  c.is_narrow = is_narrow(l.value(op.operands[0]).type) && !goes_round;
  int spec = l.planned(c);
  const bool by_panels = !goes_round && table_of<contraction_plan>(l.out)[spec].panel > 0;
  if (goes_round) {
    add_ring(l, op, c, number_of(round), spec);
    spec = static_cast<int>(table_of<planned_ring>(l.out).size()) - 1;
  }
  const auto read = [&](int k) {
    if (by_panels) return op.operands[k];
    return by_parts && turned == k ? l.both_turns(op, op.operands[k]) : l.widened(op, op.operands[k]);
  };
  const int lhs = read(0), rhs = read(1), sum = l.wide_result(op.result);
  auto& s = l.add_step(goes_round ? id_of<kernels::contract_round_ring> : id_of<kernels::contract>, op, spec, {lhs, rhs}, {sum});
  s.type = part_of(s.type);
  if (goes_round) {
    s.collective = collective_kind::collective_permute;
    s.bytes_sent = l.bytes_of(op);
  }
  for (int k = 0; k < 2; ++k) {
    const auto dims = letters_of(l.g, n, k);
    for (int d = 0; d < dims.count; ++d)
      if (result.find(dims[d]) < 0 && dims[d] != round) l.add_bound(s, number_of(dims[d]), op.operands[k], d);
  }
  if (by_parts) l.add_bound(s, part, turned == 0 ? lhs : rhs, 0);
  l.narrowed(op, sum, op.result);
}

/// Adds the steps of a one-operand einsum: a reduction of the letters that the result lacks, then a permutation.
template <class Lowering>
constexpr void add_unary_einsum(Lowering& l, const instruction& op) {
  const node& n = l.node_of(op);
  const auto from = letters_of(l.g, n, 0);
  const auto to = letters_of(l.g, n, 1);
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
    local_value v = l.value(operand);
    local_value part = l.value(op.result);
    part.local.clear();
    for (int d = 0; d < from.count; ++d)
      if ((summed & dim_bit(d)) == 0) part.local.push_back(v.local[d]);
    part.global = part.local;
    part.layout = sharding{};
    const int t = l.add_value(part);
    l.reduce(op, operand, t, summed, monoid::add);
    operand = t;
    summed = 0;
  }
  if (summed != 0) l.reduce_once(op, operand, op.result, summed, monoid::add);
  else l.permute(op, operand, op.result, permutation);
}

}  // namespace gspmd::detail
