// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/element_bits.hpp"
#include "gspmd/detail/passes/lower/step_state.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Builds one loop of elementwise operators: its registers, loads and stores.
class loop_group {
 public:
  constexpr loop_group(step_state& state, const extents& over) : loop(over), s_(state) {}

  extents loop;
  vec<scalar_op> ops;
  vec<int> inputs;
  vec<int> results;
  vec<fused_store> stores;
  vec<fused_margin> margins;
  vec<loop_reduction> reductions;
  vec<bound> index_offsets;

  /// Like entry_of, for a group and its tables.
  constexpr int entry_for(planned_group& planned) {
    auto& groups = table_of<planned_group>(s_.out);
    auto& all_ops = table_of<scalar_op>(s_.out);
    auto& all_stores = table_of<fused_store>(s_.out);
    auto& all_margins = table_of<fused_margin>(s_.out);
    auto& all_reductions = table_of<loop_reduction>(s_.out);
    const std::size_t first = groups.size() < entries_looked_at ? 0 : groups.size() - entries_looked_at;
    for (std::size_t i = groups.size(); i-- > first;)
      if (is_same(groups[i], planned)) return static_cast<int>(i);
    planned.ops = {static_cast<int>(all_ops.size()), static_cast<int>(ops.size())};
    planned.stores = {static_cast<int>(all_stores.size()), static_cast<int>(stores.size())};
    planned.margins = {static_cast<int>(all_margins.size()), static_cast<int>(margins.size())};
    planned.reductions = {static_cast<int>(all_reductions.size()), static_cast<int>(reductions.size())};
    for (const auto& f : reductions) all_reductions.push_back(f);
    for (const auto& o : ops) all_ops.push_back(o);
    for (const auto& m : margins) all_margins.push_back(m);
    for (const auto& s : stores) all_stores.push_back(s);
    groups.push_back(planned);
    return static_cast<int>(groups.size()) - 1;
  }
  /// Registers have int16 numbers.
  static constexpr std::size_t most_registers = 32'767;
  /// The most operators that one operator adds to a group: loads and conversions of all its operands, itself, and the
  /// conversion of its result.
  static constexpr std::size_t most_of_one = 2 * max_map_arity + 8;

  constexpr int add_op(const scalar_op& op, int load_before = -1) {
    ops.push_back(op);
    same_input_.push_back(load_before);
    around_.push_back({});
    carried_.push_back(-1);
    return static_cast<int>(ops.size()) - 1;
  }

  constexpr void compute(int v) {
    const instruction& op = s_.maker(v);
    const node& n = s_.node_of(op);
    scalar_op s = facts_of(n.op).in_loop(*s_.graph_, n);
    inline_vec<int, max_map_arity> from;
    for (const int o : op.operands) from.push_back(read(o));
    s_.register_[v] = s.is_conversion() ? converted(from[0], s.type) : computed(s, from);
  }
  /// Returns the register of an operator's result: see computing_types.
  constexpr int computed(scalar_op s, const inline_vec<int, max_map_arity>& from) {
    const dtype type = s.type;
    for (const int r : from) s.args.push_back(static_cast<std::int16_t>(carried(r)));
    s.type = computed_as(s.type);
    s.operand_type = computed_as(s.operand_type);
    const int made = add_op(s);
    return is_narrow(type) ? converted_directly(made, type) : made;
  }
  /// Returns a register with the elements in the type that kernels compute with. A load of the carrier of a narrow
  /// value already has that type.
  constexpr int carried(int r) {
    const scalar_op from = ops[r];
    if (!is_narrow(from.type)) return r;
    if (carried_[r] >= 0) return carried_[r];
    const dtype to = computed_as(from.type);
    // No conversion operator for a constant: the wider constant has the same value.
    const int made = from.is_constant() ? add_op(constant_of(to, widened_bits(from))) : converted_directly(r, to);
    return carried_[r] = made;
  }
  /// Returns a register with the elements converted to another type. A float is limited to the range of a narrow
  /// integer before it is converted. An integer becomes a narrow float by way of f64, a bool by way of f32.
  constexpr int converted(int r, dtype to, bool saturates = false) {
    if (ops[r].type == to) return r;
    r = carried(r);
    const dtype from = ops[r].type;
    if (from == to) return r;
    if (!is_narrow(to)) return converted_directly(r, to);
    if (is_floating(to))
      return converted_directly(is_floating(from) ? r : converted_directly(r, from == dtype::pred ? dtype::f32 : dtype::f64), to);
    if (is_floating(from) || saturates) {
      const auto ends = facts_of(to);
      r = bounded(r, true, ends.least);
      r = bounded(r, false, ends.most);
    }
    return converted_directly(from == computed_as(to) ? r : converted_directly(r, computed_as(to)), to);
  }

  constexpr int read(int v) {
    if (s_.waits(v) && s_.register_[v] >= 0) return s_.register_[v];  // of this group: values of other groups do not wait
    return s_.waits_virtual(v) ? read_virtual(v, identity_dims()) : load(v, identity_dims());
  }

  [[nodiscard]] constexpr dim_places identity_dims() const {
    dim_places dims;
    for (int d = 0; d < loop.count; ++d) dims.push_back(static_cast<std::int8_t>(d));
    return dims;
  }

  /// `dims`: the loop dim of each dim of the value; -1 for a dim that is broadcast.
  constexpr int read_virtual(int v, const dim_places& dims) {
    const instruction& op = s_.maker(v);
    const node& n = s_.node_of(op);
    const auto& facts = facts_of(n.op);
    if (facts.made == origin::source) {
      scalar_op s = facts.in_loop(*s_.graph_, n);
      if (s.is_index()) {
        const std::int8_t own = s.dim;
        if (dims[own] < 0) return add_op(scalar_op::constant(n.type, 0, 0));
        s.dim = dims[own];
        s.slot = static_cast<std::int16_t>(index_offsets.size());
        index_offsets.push_back(bound{0, v, own});
        if (is_narrow(n.type)) {
          s.type = s.operand_type = is_floating(n.type) ? dtype::f64 : dtype::s64;
          return converted(add_op(s), n.type);
        }
      }
      return add_op(s);
    }
    const int source = op.operands[0];
    dim_places source_dims;
    for (const auto to : facts.lies_along(*s_.graph_, n)) source_dims.push_back(to < 0 ? to : dims[to]);
    return s_.waits_virtual(source) ? read_virtual(source, source_dims) : load(source, source_dims);
  }

  constexpr int load(int v, const dim_places& dims) {
    const auto& local = s_.program_.value(v).local;
    scalar_op s = scalar_op::load(s_.program_.value(v).type, 0);
    s.strides = extents(loop.count, 0);
    std::int64_t stride = 1;
    for (int d = local.count - 1; d >= 0; --d) {
      if (dims[d] >= 0) s.strides[dims[d]] += stride;  // two dims along one loop dim: a diagonal
      stride *= local[d];
    }
    const offset_read* const from = s_.offsets.read_of(v);
    read_margins around;
    if (from != nullptr) {
      s.offsets = from->along;
      around = from->margins;
    }
    const int of = from != nullptr ? from->of : v;
    const int slot = slot_in(of, loop.count > 0 && loop[0] > 1 && s.strides[0] == 0);
    if (dims == identity_dims() && local == loop) s.given = static_cast<std::int16_t>(s_.given_of(of, loop));
    if (s.given != 0)  // so that no pass treats it as dense
      for (int d = 0; d + 1 < loop.count; ++d) s.strides[d] = 0;
    const int before = last_load_[slot];
    for (int r = before; r >= 0; r = same_input_[r])
      if (ops[r].strides == s.strides && ops[r].offsets == s.offsets && around_[r] == around) return r;
    s.slot = static_cast<std::int16_t>(slot);
    const int made = last_load_[slot] = add_op(s, before);
    around_[made] = around;
    for (const int margins_of_set : around) add_margin(made, margins_of_set);
    return made;
  }
  /// Returns the slot of an operand. An operand that is read both whole for each row of the loop and row by row, as in
  /// x[j] - x[i], has two slots: see row_blocker.
  constexpr int slot_in(int v, bool for_each_row) {
    int* slot = &s_.slot_[s_.base[v]];
    if (*slot >= 0 && is_for_each_row_[*slot] != (for_each_row ? 1 : 0)) slot = &otherwise_read_[*slot];
    if (*slot >= 0) return *slot;
    const int made = *slot = static_cast<int>(inputs.size());
    inputs.push_back(v);
    last_load_.push_back(-1);
    is_for_each_row_.push_back(for_each_row ? 1 : 0);
    otherwise_read_.push_back(-1);
    return made;
  }
  /// Reduces a register. The reduced elements are stored as `result`.
  constexpr void reduce(int r, int result, const reduction_spec& spec) {
    const auto slot = static_cast<std::int16_t>(results.size()), from = static_cast<std::int16_t>(carried(r));
    auto stored = slot;
    for (const auto& s : stores)
      for (const auto& f : reductions)
        if (s.op == from && s.slot == f.slot) stored = s.slot;
    if (stored == slot) stores.push_back(fused_store{from, slot});
    const int reduction = entry_of(table_of<reduction_spec>(s_.out), spec);
    reductions.push_back(loop_reduction{slot, stored, ops[from].type, reduction});
    results.push_back(result);
  }
  /// Adds the margin that a load reads beyond the ends of some of its shifted dims. If the margin is constant
  /// along a dim, its extent there is 1.
  constexpr void add_margin(int load, int around) {
    const int value = s_.offsets.margins[around].value;
    fused_margin m{static_cast<std::int16_t>(load), static_cast<std::int16_t>(slot_in(value, false)), 0, extents(loop.count, 0)};
    const auto& local = s_.program_.value(value).local;
    std::int64_t stride = 1;
    for (int d = loop.count - 1; d >= 0; --d) {
      if (local[d] != 1) m.strides[d] = stride;
      stride *= local[d];
    }
    for (; around >= 0; around = s_.offsets.margins[around].inner) {
      const auto& side = s_.offsets.margins[around];
      m.first += side.low.width * m.strides[side.dim];
    }
    margins.push_back(m);
  }

 private:
  constexpr int converted_directly(int r, dtype to) { return add_op(scalar_op::conversion(r, ops[r].type, to)); }
  /// Returns max(r, end) or min(r, end). A NaN stays.
  constexpr int bounded(int r, bool below, std::int64_t end) {
    const dtype type = ops[r].type;
    return add_op(scalar_op::bound_of(r, add_op(scalar_op::constant(type, static_cast<double>(end), end)), type, below));
  }
  constexpr std::uint64_t widened_bits(const scalar_op& narrow) const {
    std::uint64_t bits = 0;
    with_element_type(narrow.type, [&]<class T>(T x) {
      if constexpr (is_narrow_float<T>) {
        x = T(narrow.real);
        bits = bits_of(computed_as(narrow.type), static_cast<float>(x), 0);
      } else {
        bits = bits_of(computed_as(narrow.type), 0, narrow.integer);
      }
    });
    return bits;
  }
  [[nodiscard]] constexpr bool is_same(const planned_group& known, const planned_group& made) const {
    const auto same = []<class T>(const vec<T>& all, const table_range& range, const vec<T>& own) {
      if (range.count != static_cast<int>(own.size())) return false;
      for (int i = 0; i < range.count; ++i)
        if (!(all[range.begin + i] == own[i])) return false;
      return true;
    };
    return known.loop == made.loop && known.cut == made.cut && same(table_of<fused_store>(s_.out), known.stores, stores) &&
           same(table_of<fused_margin>(s_.out), known.margins, margins) &&
           same(table_of<loop_reduction>(s_.out), known.reductions, reductions) &&
           same(table_of<scalar_op>(s_.out), known.ops, ops);
  }

  step_state& s_;
  vec<int> same_input_;       // by register: for a load, the previous load of the same input; else -1
  vec<read_margins> around_;  // by register: the margins of a load at offsets
  vec<int> carried_;    // by register of a narrow type: the register that has it as the type it is computed as; -1: none yet
  vec<int> last_load_;  // by input: its last load
  vec<std::uint8_t> is_for_each_row_;  // by input: it is read whole for each row
  vec<int> otherwise_read_;            // by input: the input of the same memory that is read in the other way; -1: none
};

}  // namespace gspmd::detail
