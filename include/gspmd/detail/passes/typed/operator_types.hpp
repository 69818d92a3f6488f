// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/compositions/positive_number.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/passes/request/value_uses.hpp"
#include "gspmd/detail/passes/typed/local_sums.hpp"
#include "gspmd/detail/passes/typed/operator_mistakes.hpp"
#include "gspmd/detail/passes/typed/written_steps.hpp"

namespace gspmd::detail {

/// Types an operator. On each axis, the states of its operands must be compatible. In the global view, the operands
/// must be split in the same way, and no element may move.
class operator_typer {
 public:
  explicit constexpr operator_typer(program_typer& t) : t_(t) {}

  constexpr void visit(int i) {
    const node& n = t_.at(i);
    op_rule rule;
    const bool is_tracked = knows_parts(n);
    if (!t_.is_all_local() || is_tracked) rule_of(t_.program, n, rule);
    const axis_rule locally(n, nullptr, n.in_gradient), globally(n, &rule, n.in_gradient);
    const auto count = t_.mistakes.size();
    value_type result = value_type::all_constant(t_.mesh());
    t_.further.clear();
    for (int r = 1; r < n.results; ++r) {
      t_.further.push_back(result);
      t_.further[r - 1].is_known = false;
    }
    for (int a = 0; a < t_.mesh().axis_count(); ++a) {
      const axis_rule& along = t_.is_local(a) ? locally : globally;
      operands_on_axis in;
      for (int k = 0; k < n.operands.count; ++k) in.push_back(operand_on(n, rule, k, a));
      const axis_result found = along.of(in);
      if (found.broken != mode_mistake::none) {
        complain(t_, i, rule, along, in, a, found);
        continue;
      }
      // Axes that split a dim count as varying until lay_out finds the dims.
      const auto hold = [a](value_type& t, const axis_state& is, dtype type) {
        const axis_state s = is.is == state::shard ? axis_state{state::varying} : is;
        t.hold(a, is_floating(type) ? s : without_gradient(s));
      };
      hold(result, found.is, n.type);
      for (int r = 1; r < n.results; ++r) hold(t_.further[r - 1], along.of(in, r).is, t_.at(i + r).type);
    }
    local_sums sums(t_, i, rule);
    if (t_.mistakes.size() != count || (is_tracked && !sums.are_read_right())) return;
    if (!t_.is_all_local() && !lay_out(i, rule, result)) return;
    for (auto& t : t_.further) t.is_known = true;
    if (is_tracked) {
      pass_parts(n, rule, result);
      result.parts.terms = sums.terms_of_result() & result.layout.varying;
    }
    t_.type(i) = result;
  }

 private:
  /// Returns true if facts about the parts of an operand are known: the axes that cut its dims, or that it is a sum
  /// over a dim in parts.
  [[nodiscard]] constexpr bool knows_parts(const node& n) const {
    if (t_.local_here == 0 || n.in_gradient) return false;
    for (const int o : n.operands)
      if (!t_.types[static_cast<std::size_t>(o)].parts.empty()) return true;
    return false;
  }
  constexpr void pass_parts(const node& n, const op_rule& rule, value_type& result) const {
    for (int k = 0; k < n.operands.count; ++k)
      t_.type(n.operands[k]).parts.pass(n, rule, t_.at(n.operands[k]).shape, k, facts_of(n.op).exchanges(n), result.parts);
    result.parts.keep_axes(result.layout.varying);
  }
  [[nodiscard]] constexpr operand_on_axis operand_on(const node& n, const op_rule& rule, int k, int a) {
    const value_type& t = t_.type(n.operands[k]);
    operand_on_axis operand{t.on(a), -1, t_.may_be_zeros(n.operands[k]), is_positive_number(t_.program, n.operands[k])};
    if (!is_floating(t_.at(n.operands[k]).type)) operand.is = without_gradient(operand.is);
    if (!t_.is_local(a)) operand.repeated = repeated(rule, k, t_.at(n.operands[k]));
    if (t_.is_local(a) || operand.is.is != state::shard) return operand;
    operand.factor = -2;
    for (const auto& use : to_factors(t_.mesh(), rule, rule.operand(k), t.layout.splits))
      if (use.axis == a) operand.factor = use.dim;
    return operand;
  }
  /// Returns the factors of the dims along which a broadcast repeats every element of x.
  [[nodiscard]] constexpr std::uint64_t repeated(const op_rule& rule, int k, const node& x) const {
    const dim_mask dims = repeated_dims(t_.program, x);
    const tensor_map& map = rule.operand(k);
    std::uint64_t factors = 0;
    for (int d = 0; d < x.shape.count; ++d)
      for (int at = map.begin(d); at < map.end(d) && (dims & dim_bit(d)) != 0; ++at)
        factors |= std::uint64_t{1} << map.factors[at];
    return factors;
  }
  /// Finds the order of the axes on every factor from the operands, and the layout of the results. Returns false if
  /// the operands have different orders, or if elements would move.
  constexpr bool lay_out(int i, const op_rule& rule, value_type& result) {
    const node& n = t_.at(i);
    factor_splits uses;
    for (int k = 0; k < n.operands.count; ++k) {
      for (const auto& use : to_factors(t_.mesh(), rule, rule.operand(k), t_.type(n.operands[k]).layout.splits)) {
        bool is_there = false;
        for (const auto& u : uses) is_there = is_there || u.axis == use.axis;
        if (!is_there) add_factor_split(uses, use.axis, use.dim);
      }
    }
    for (int k = 0; k < n.operands.count; ++k) {
      const value_type& t = t_.type(n.operands[k]);
      inline_vec<axis_use, max_axes> own;  // without the splits that a constant is cut for
      for (const auto& use : to_dims(t_.mesh(), rule, rule.operand(k), uses))
        if ((t.layout.split_axes() & axis_bit(use.axis)) != 0) own.push_back(use);
      if (own == t.layout.splits) {
        if (is_cut_in_place(i, k, {to_dims(t_.mesh(), rule, rule.operand(k), uses)})) continue;
        return false;
      }
      t_.refuse(mode_mistake::axis_order, i, k, -1,
                text("operand ") << k << " is " << t_.words_of(t, t_.at(n.operands[k]).shape.count)
                                 << ", and another operand has the axes of a dim in another order; reshard one operand");
      return false;
    }
    for (int r = 0; r < n.results; ++r) {
      sharding& layout = (r == 0 ? result : t_.further[r - 1]).layout;
      layout.splits = to_dims(t_.mesh(), rule, rule.result(r), uses);
      layout.varying &= ~layout.split_axes();
    }
    for (int a = 0; a < t_.mesh().axis_count(); ++a) {
      if (t_.is_local(a) || (result.layout.varying & axis_bit(a)) == 0) continue;
      t_.refuse(mode_mistake::needs_communication, i, 0, a,
                text("the result ") << shape_text(n.shape) << " cannot keep the split of operand 0, "
                                    << t_.words_of(t_.type(n.operands[0]), t_.at(n.operands[0]).shape.count)
                                    << ": elements would move over `" << axes_text(t_.on_mesh, axis_bit(a)) << '`');
      if (!t_.is_trying) t_.mistakes.back().remedies = remedy_search(t_, i, a).run();
      return false;
    }
    return lies_there(i, rule, uses, result);
  }
  /// Returns true if an operand that is equal along an axis can be cut to match the other operands without elements of
  /// other devices.
  constexpr bool is_cut_in_place(int i, int k, const sharding& cut) {
    const int operand = t_.at(i).operands[k];
    const value_type& is = t_.type(operand);
    const extents& shape = t_.at(operand).shape;
    if (cut.splits == is.layout.splits) return true;
    const axis_mask over = movement_axes(t_.mesh(), shape, sharding{is.layout.splits}, cut);
    if (over == 0) return true;
    t_.refuse(mode_mistake::needs_communication, i, k, -1,
              text("operand ") << k << ' ' << shape_text(shape) << " is " << t_.words_of(is, shape.count)
                               << " and would be cut to " << sharding_text(t_.on_mesh, cut, shape.count)
                               << " for the other ones: elements would move over `" << axes_text(t_.on_mesh, over)
                               << "`; reshard it first, or the other ones");
    return false;
  }

  /// Returns true if every element that a movement or window reads is on the device that needs it. Elements may also
  /// come over axes along which the program permits an exchange.
  constexpr bool lies_there(int i, const op_rule& rule, const factor_splits& uses, const value_type& result) {
    const node& n = t_.at(i);
    const mesh_shape asked = with_two_of_each(t_.mesh());
    for (int k = 0; k < n.operands.count; ++k) {
      const tile_or_part part{n, k, {to_dims(t_.mesh(), rule, rule.operand(k), uses)}, {result.layout.splits}};
      const axis_mask axes = traffic(asked, part).axes;
      if (axes == 0) continue;
      const auto bytes = traffic(t_.mesh(), part).elems() * bytes_of(n.type);
      if ((axes & ~n.exchange_axes) == 0) {
        step_writer(t_).note_exchange(i, axes, bytes);
        continue;
      }
      refuse_to_move(i, part, asked, axes, bytes);
      return false;
    }
    return true;
  }
  /// The part or tile of an operand with layout `from` that an operator reads for a result with layout `to`.
  struct tile_or_part {
    const node& n;
    int operand;
    sharding from, to;
  };
  /// Returns the mesh with two devices along each axis that has one. A program that is right with one device along an
  /// axis must be right with more.
  static constexpr mesh_shape with_two_of_each(mesh_shape mesh) {
    for (auto& size : mesh.sizes) size = size == 1 ? 2 : size;
    return mesh;
  }
  [[nodiscard]] constexpr map_traffic traffic(const mesh_shape& mesh, const tile_or_part& part) const {
    const auto& [n, k, from, to] = part;
    if (k < facts_of(n.op).movements(n)) return traffic_of(t_.program, mesh, n, k, from, to);
    const extents& shape = t_.at(n.operands[k]).shape;
    const index_map map = needed_tile(t_.program, mesh, n, k, shape, from);
    return map.dims.count > 0 ? traffic_of_tiles(mesh, shape, from, map) : map_traffic{};
  }
  constexpr void refuse_to_move(int i, const tile_or_part& part, const mesh_shape& asked, axis_mask axes, std::int64_t bytes) {
    const auto& [n, k, from, to] = part;
    const extents& shape = t_.at(n.operands[k]).shape;
    int dim = 0, axis = -1;  // the last axis, which leaves a dim first
    for (const auto& use : from.splits)
      if ((axes & axis_bit(use.axis)) != 0 && (axis < 0 || use.dim == dim)) {
        dim = use.dim;
        axis = use.axis;
      }
    const user_names names(t_.program, i);
    text what = names.operand(k);
    what << ' ' << shape_text(shape) << " is split along dim " << dim << " over `" << axes_text(t_.on_mesh, axes)
         << "` and the result is " << shape_text(n.shape);
    say_which_moves(what, part, dim, asked);
    t_.refuse(mode_mistake::needs_communication, i, names.number_of(k), axis, what);
    text exchange("with_exchange<`");
    exchange << axes_text(t_.on_mesh, axes) << "`>(f, ...) around this "
             << (names.is_in_call() ? names.function() : name_of(n.op)) << ": ";
    reshard_bill sent;
    sent.add(collective_of(device_action::permute), bytes);
    sent.say(exchange, "forward, ");
    sent.say(exchange, "backward");
    t_.mistakes.back().remedies.push_back(exchange);
    if (t_.is_trying) return;
    constant_vector<text> gathers = remedy_search(t_, i, axis).run(true);
    for (const auto& way : gathers) t_.mistakes.back().remedies.push_back(way);
  }
  /// Adds the text `: element 4 moves from part 1 to part 0`.
  constexpr void say_which_moves(text& what, const tile_or_part& part, int dim, const mesh_shape& asked) const {
    const auto& [n, k, from, to] = part;
    const auto& facts = facts_of(n.op);
    if (k >= facts.movements(n)) {
      what << ": parts need elements of their neighbours";
      return;
    }
    const index_map map = facts.map(t_.program, n, k);
    const auto parts = parts_of(asked, from, dim), parts_to = parts_of(asked, to, dim);
    const auto extent = t_.at(n.operands[k]).shape[dim];
    const auto size = shard_extent(extent, parts), size_to = shard_extent(n.shape[dim], parts_to);
    for (const auto& d : map.dims) {
      if (d.dim != dim || d.from_step == 0) continue;
      auto e = d.from_first;
      auto t = d.to_first;
      for (int count = 0; count < 4096 && t < n.shape[dim]; ++count, e += d.from_step, t += d.to_step) {
        if (t < 0 || e < 0 || e >= extent || e / size == t / size_to) continue;
        what << ": element " << e << " moves from part " << e / size << " to part " << t / size_to;
        if (parts != parts_of(t_.mesh(), from, dim)) what << " where each axis has two devices";
        return;
      }
    }
  }

  program_typer& t_;
};

}  // namespace gspmd::detail
