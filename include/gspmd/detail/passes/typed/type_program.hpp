// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ops/transition.hpp"
#include "gspmd/detail/passes/typed/axis_rule.hpp"
#include "gspmd/detail/passes/typed/border.hpp"
#include "gspmd/detail/passes/typed/remedies.hpp"

namespace gspmd::detail {

/// Finds the type of every value of a program in the explicit mode (the global view) or the manual one (the local view) from those of its
/// inputs, inserts nothing, and says what is wrong.
///
/// 1. on each axis the operands' states meet (axis_rule);
/// 2. in the global view operands that share a dim are split alike, axes in one order, and what an operator moves by itself
///    (a slice, a window) must lie where it is needed already: that is looked at by indices, not by divisibility;
/// 3. a transition is a row of the table, from the state that the value has;
/// 4. what a loop carries has the state that its body gives it, where a constant it begins with can have that too.
class program_typer {
 public:
  /// `local`: axes that are local in all of the program; those of manual regions are besides. `only_regions`: the rest of the program has
  /// no types.
  constexpr program_typer(const graph& g, const mesh_info& mesh, axis_mask local, bool only_regions = false)
      : graph_(g), mesh_(mesh), base_local_(local), local_(local), only_regions_(only_regions) {
    types.resize(g.nodes.size(), value_type{});
    wanted_.resize(g.nodes.size(), -1);
  }

  std::vector<value_type> types;  // by node
  std::vector<typed_step> steps;
  std::vector<typed_mistake> mistakes;

  constexpr void give(int input, const value_type& t) { types[static_cast<std::size_t>(input)] = t; }
  /// What a result must be, exactly; a constant or a replica is cut for it.
  constexpr void want(int node, const value_type& t) {
    if (static_cast<std::size_t>(node) >= wanted_.size()) wanted_.resize(graph_.nodes.size(), -1);
    wanted_[static_cast<std::size_t>(node)] = static_cast<int>(wishes_.size());
    wishes_.push_back(t);
  }
  /// Types what was added to the program since the last call.
  constexpr void run() {
    types.resize(graph_.nodes.size(), value_type{});
    wanted_.resize(graph_.nodes.size(), -1);
    for (; next_ < static_cast<int>(graph_.nodes.size()); ++next_) visit(next_);
    if (graph_.type_local != nullptr && mistakes.empty())  // of a loop whose condition was typed after what it asks
      for (const auto& s : steps) refuse_if_devices_part(s);
  }
  /// Forgets what was added since: it had a mistake of another kind.
  constexpr void skip() {
    types.resize(graph_.nodes.size(), value_type{});
    wanted_.resize(graph_.nodes.size(), -1);
    next_ = static_cast<int>(graph_.nodes.size());
  }
  /// Axes of the local view: there shapes are those of shards.
  [[nodiscard]] constexpr axis_mask local() const { return base_local_; }
  constexpr void set_local(axis_mask axes) { base_local_ = axes; }
  /// Axes along which devices may go different ways from here on: nothing may be sent over them.
  [[nodiscard]] constexpr axis_mask diverging() const { return diverging_; }
  constexpr void set_diverging(axis_mask axes) { diverging_ = axes; }
  constexpr typed_mistake& refuse(mode_mistake kind, int i, int operand, int axis, const text& what) {
    mistakes.push_back(
        {kind, i, operand, axis, i < 0 ? what : text(graph::place(at(i).at, name_in_program(at(i)))) << ": " << what, {}});
    return mistakes.back();
  }
  /// What a user wrote to get a node.
  [[nodiscard]] static constexpr const char* name_in_program(const node& n) {
    if (n.op == opcode::loop_result) return "loop";
    if (n.op == opcode::cond_result) return "cond";
    if (facts_of(n.op).made == origin::viewed) return "manual";
    if (n.local_axes != 0 && facts_of(n.op).made == origin::renamed && state_change::is_one(n))
      return n.operands.count == 0 ? "axis_index" : name_of(state_change::of(n).by).data();
    if (facts_of(n.op).made != origin::renamed || state_change::is_one(n)) return name_of(n.op);
    return is_cotangent(n) ? "grad" : state_wish::is_one(n) && state_wish::of(n).is_out ? "out" : "reshard";
  }
  [[nodiscard]] static constexpr bool is_cotangent(const node& n) {
    return n.operands.count == 2 && n.attributes.count <= 1 && n.in_gradient;
  }

 private:
  [[nodiscard]] constexpr const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr value_type& type(int i) { return types[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr const mesh_shape& mesh() const { return mesh_.shape; }

  [[nodiscard]] constexpr bool is_local(int a) const { return (local_ & axis_bit(a)) != 0; }
  [[nodiscard]] constexpr bool is_all_local() const { return local_ == axis_bit(mesh().axis_count()) - 1; }
  [[nodiscard]] constexpr text words_of(const value_type& t, int rank) const { return type_text(mesh_, t, rank, local_); }

  constexpr void visit(int i) {
    const node& n = at(i);
    const origin made = facts_of(n.op).made;
    local_ = base_local_ | n.local_axes;
    if (only_regions_ && n.local_axes == 0 && made != origin::viewed) {
      type(i) = value_type::all(mesh(), {state::constant});
      return;
    }
    if (made != origin::given)
      for (const int o : n.operands)
        if (!type(o).is_known) return;
    switch (made) {
      case origin::given: break;
      case origin::source: type(i) = value_type::all(mesh(), {state::constant}); break;
      case origin::renamed:
        if (state_change::is_one(n)) visit_transition(i);
        else if (is_cotangent(n)) visit_cotangent(i);
        else if (wanted_[static_cast<std::size_t>(i)] >= 0)
          return reshard_to(i, wishes_[static_cast<std::size_t>(wanted_[static_cast<std::size_t>(i)])]);
        else if (n.annotated) visit_reshard(i);
        else type(i) = type(n.operands[0]);
        break;
      case origin::viewed: visit_border(i); break;
      case origin::shards: visit_operator(i); break;
      case origin::result:
        if (further_.count >= i - n.operands[0]) type(i) = further_[i - n.operands[0] - 1];
        break;
      case origin::region: visit_region(i); break;
    }
    if (const int w = wanted_[static_cast<std::size_t>(i)]; w >= 0 && type(i).is_known)
      cut_for(i, wishes_[static_cast<std::size_t>(w)]);
  }

  // ---- the border of a manual region ----

  constexpr void visit_border(int i) {
    const node& n = at(i);
    const bool enters = border_spec::enters(n);
    border_crossing found;  // of a conditional expression GCC 12 frees the text
    if (enters) found = enter(mesh_, n, type(n.operands[0]));
    else found = leave(mesh_, n, type(n.operands[0]));
    if (found.broken != mode_mistake::none) {
      refuse(found.broken, i, 0, found.axis, found.what);
      return;
    }
    if (enters && !only_regions_ && !n.in_gradient)  // an argument comes as it is taken: nothing is sent for it
      for (const auto& s : steps) {
        if (s.node != n.operands[0]) continue;
        if (collective_of(transitions[s.row].forward).empty() && collective_of(transitions[s.row].backward).empty()) continue;
        int a = 0;
        while ((s.axes & axis_bit(a)) == 0) ++a;
        refuse(mode_mistake::in_spec_mismatch, i, 0, a,
               text("the argument is ") << long_text(s.from) << " over `" << axes_text(mesh_, s.axes) << "` and is taken as "
                                        << long_text(s.to) << "; reshard it first, or take it as it is");
        return;
      }
    type(i) = found.is;
  }

  // ---- loops and conditionals ----

  constexpr void visit_region(int i) {
    const node& n = at(i);
    if (n.op == opcode::loop) {
      loops_.push_back({i, mistakes.size(), steps.size()});
      type(i) = value_type::all(mesh(), {state::constant});
    } else if (n.op == opcode::carry) {
      for (const auto& c : carried_)
        if (c.carry == i) type(i) = c.is;
      if (!type(i).is_known) type(i) = type(n.operands[0]);
    } else if (n.op == opcode::loop_result) {
      end_loop(i);
    } else if (n.op == opcode::cond_result) {
      value_type joined = type(n.operands[1]);
      if (join(i, 1, joined, type(n.operands[2]), false, mode_mistake::branch_mismatch) >= 0 &&
          chosen_by(i, at(n.operands[0]).operands[0], joined))
        type(i) = joined;
    } else {
      type(i) = value_type::all(mesh(), {state::constant});
    }
  }
  /// The devices along these axes may go different ways in a body: those along which the predicate of a conditional around it varies.
  [[nodiscard]] constexpr axis_mask varying_predicate(int branch) const {
    axis_mask axes = 0;
    const value_type& p = types[static_cast<std::size_t>(at(branch).operands[0])];
    for (int a = 0; a < p.on.count; ++a)
      if (p.on[a].is == state::varying) axes |= axis_bit(a);
    return axes;
  }
  [[nodiscard]] constexpr axis_mask diverging_at(int i) const {
    axis_mask axes = diverging_;
    for (int r = at(i).region; r >= 0; r = at(r).region) {
      if (at(r).op == opcode::branch) axes |= varying_predicate(r);
      if (at(r).op == opcode::otherwise) axes |= varying_predicate(at(r).operands[0]);
      if (is_while(at(r)))  // its body is one conditional: where trips end on some devices only, they end for these
        for (int k = r + 1; k < static_cast<int>(types.size()); ++k)
          if (at(k).op == opcode::branch && at(k).region == r && types[static_cast<std::size_t>(at(k).operands[0])].is_known)
            axes |= varying_predicate(k);
    }
    return axes;
  }
  /// What a predicate that varies chooses varies, or is no value that can be differentiated.
  constexpr bool chosen_by(int i, int branch, value_type& joined) {
    const axis_mask axes = varying_predicate(branch);
    for (int a = 0; a < mesh().axis_count(); ++a) {
      if ((axes & axis_bit(a)) == 0) continue;
      const auto is = joined.on[a].is;
      if (is == state::invariant || is == state::partial) {
        refuse(is == state::partial ? mode_mistake::partial_varying_mix : mode_mistake::state_conflict, i, 1, a,
               text("the result is ")
                   << long_text(joined.on[a]) << " and the predicate varies over `" << axes_text(mesh_, axis_bit(a))
                   << "`: devices would differ in a value that is one to all; make it varying or a replica first");
        return false;
      }
      joined.on[a] = {state::varying};
    }
    return true;
  }
  /// What a loop carries is what its body gives it: where that is more than it began with, the body is typed again.
  constexpr void end_loop(int i) {
    const int carry = at(i).operands[0], loop = at(carry).region;
    value_type carried = type(carry);
    const int more =
        join(i, 1, carried, type(at(i).operands[1]), is_zero(at(at(carry).operands[0])), mode_mistake::carry_mismatch);
    if (more < 0) return;
    type(i) = carried;
    const bool was_trusted = may_be_zeros(carry) && has_constant(carried);
    if (more == 0 && !was_trusted) return;
    carried_value* kept = nullptr;
    for (auto& c : carried_)
      if (c.carry == carry) kept = &c;
    if (kept == nullptr) kept = &carried_.emplace_back();
    *kept = {carry, carried, more == 0};
    for (std::size_t k = loops_.size(); k-- > 0;) {
      if (loops_[k].loop != loop) continue;
      mistakes.resize(loops_[k].mistakes);
      steps.resize(loops_[k].steps);
      loops_.resize(k);
      break;
    }
    for (int k = loop; k <= i; ++k) type(k).is_known = false;
    next_ = loop - 1;
  }
  [[nodiscard]] constexpr bool has_constant(const value_type& t) const {
    for (const auto& on : t.on)
      if (on.is == state::constant) return true;
    return false;
  }
  /// Whether a value is nothing but zeros, or is carried round a loop that begins with zeros and may turn out to carry a partial sum: that
  /// is believed until the loop has been gone through.
  [[nodiscard]] constexpr bool may_be_zeros(int i) const {
    const node& n = at(i);
    if (n.op != opcode::carry) return is_zero(n);
    for (const auto& c : carried_)
      if (c.carry == i && c.is_settled) return false;
    return is_zero(at(n.operands[0]));
  }
  /// Makes `known` what it is together with `other`, of which constants may become anything, and zeros a partial sum too. 1: it has
  /// changed; 0: not; -1: they do not go together, which is a mistake.
  constexpr int join(int i, int operand, value_type& known, const value_type& other, bool is_zeros, mode_mistake kind) {
    int changed = 0;
    for (int a = 0; a < mesh().axis_count(); ++a) {
      const auto &is = known.on[a], &to = other.on[a];
      if (is_local(a) && at(i).in_gradient) {  // terms of one gradient
        const bool varies = is.is == state::varying, partial = is.is == state::partial;
        if ((varies && to.is == state::partial) || (partial && (to.is == state::varying || to.is == state::constant))) {
          changed = changed > 0 || varies ? 1 : 0;
          known.on[a] = {state::partial};
          continue;
        }
      }
      if (is == to || (to.is == state::constant && is.is != state::partial)) continue;
      if (is.is == state::constant && (to.is != state::partial || is_zeros)) {
        known.set(a, to);
        changed = 1;
        continue;
      }
      text what(kind == mode_mistake::carry_mismatch ? "what it carries is " : "what it gives is ");
      what << long_text(is) << " over `" << axes_text(mesh_, axis_bit(a)) << '`';
      what << (kind == mode_mistake::carry_mismatch ? " before an iteration and " : " in one branch and ") << long_text(to)
           << (kind == mode_mistake::carry_mismatch ? " after it" : " in the other one") << "; reshard one of them";
      refuse(kind, i, operand, a, what);
      return -1;
    }
    if (!(known.splits == other.splits) && changed == 0 && known.splits.count == other.splits.count) {
      refuse(kind, i, operand, -1,
             text("the value is ") << words_of(known, at(i).shape.count) << " and " << words_of(other, at(i).shape.count)
                                   << ": axes split a dim in another order; reshard one of them");
      return -1;
    }
    return changed;
  }

  // ---- operators ----

  [[nodiscard]] constexpr operand_on_axis seen(const node& n, const op_rule& rule, int k, int a) {
    const value_type& t = type(n.operands[k]);
    operand_on_axis seen{t.on[a], -1, may_be_zeros(n.operands[k]), is_positive_number(graph_, n.operands[k])};
    if (!is_floating(at(n.operands[k]).type)) seen.is = without_gradient(seen.is);
    if (is_local(a) || seen.is.is != state::shard) return seen;
    seen.factor = -2;
    for (const auto& use : to_factors(mesh(), rule, rule.operand(k), t.splits))
      if (use.axis == a) seen.factor = use.dim;
    return seen;
  }

  constexpr void visit_operator(int i) {
    const node& n = at(i);
    op_rule rule;
    if (!is_all_local()) rule_of(graph_, n, rule);
    const axis_rule locally(n, nullptr, n.in_gradient), globally(n, &rule, n.in_gradient);
    const auto count = mistakes.size();
    value_type result = value_type::all(mesh(), {state::constant});
    further_.clear();
    for (int r = 1; r < n.results; ++r) {
      further_.push_back(result);
      further_[r - 1].is_known = false;
    }
    for (int a = 0; a < mesh().axis_count(); ++a) {
      const axis_rule& along = is_local(a) ? locally : globally;
      operands_on_axis in;
      for (int k = 0; k < n.operands.count; ++k) in.push_back(seen(n, rule, k, a));
      const axis_result found = along.of(in);
      if (found.broken != mode_mistake::none) {
        complain(i, rule, along, in, a, found);
        continue;
      }
      result.on[a] = is_floating(n.type) ? found.is : without_gradient(found.is);
      for (int r = 1; r < n.results; ++r) {
        further_[r - 1].on[a] = along.of(in, r).is;
        if (!is_floating(at(i + r).type)) further_[r - 1].on[a] = without_gradient(further_[r - 1].on[a]);
      }
    }
    if (mistakes.size() != count) return;
    if (!is_all_local() && !lay_out(i, rule, result)) return;
    for (auto& t : further_) t.is_known = true;
    type(i) = result;
  }

  /// The order of axes on every factor, as the operands have it; whether it is one order, and nothing has to move.
  constexpr bool lay_out(int i, const op_rule& rule, value_type& result) {
    const node& n = at(i);
    factor_splits uses;
    for (int k = 0; k < n.operands.count; ++k) {
      for (const auto& use : to_factors(mesh(), rule, rule.operand(k), type(n.operands[k]).splits)) {
        bool is_there = false;
        for (const auto& u : uses) is_there = is_there || u.axis == use.axis;
        if (!is_there) add_factor_split(uses, use.axis, use.dim);
      }
    }
    for (int k = 0; k < n.operands.count; ++k) {
      const value_type& t = type(n.operands[k]);
      inline_vec<axis_use, max_axes> own;  // without those that a constant is cut for
      for (const auto& use : to_dims(mesh(), rule, rule.operand(k), uses))
        if (t.on[use.axis].is == state::shard) own.push_back(use);
      if (own == t.splits) continue;
      refuse(mode_mistake::axis_order, i, k, -1,
             text("operand ") << k << " is " << words_of(t, at(n.operands[k]).shape.count)
                              << ", and another operand has the axes of a dim in another order; reshard one of them");
      return false;
    }
    result.splits = to_dims(mesh(), rule, rule.result(), uses);
    for (int r = 1; r < n.results; ++r) further_[r - 1].splits = to_dims(mesh(), rule, rule.result(r), uses);
    for (int a = 0; a < mesh().axis_count(); ++a) {
      if (is_local(a) || result.on[a].is != state::shard || (sharding{result.splits}.split_axes() & axis_bit(a)) != 0) continue;
      refuse(mode_mistake::needs_communication, i, 0, a,
             text("the result ") << shape_text(n.shape) << " cannot keep the split of operand 0, "
                                 << words_of(type(n.operands[0]), at(n.operands[0]).shape.count) << ": elements would move over `"
                                 << axes_text(mesh_, axis_bit(a)) << "`; reshard the operand first");
      return false;
    }
    return lies_there(i, rule, uses, result);
  }

  /// Movements and windows: every element must lie where it is needed.
  constexpr bool lies_there(int i, const op_rule& rule, const factor_splits& uses, const value_type& result) {
    const node& n = at(i);
    const auto& facts = facts_of(n.op);
    const sharding to{result.splits};
    for (int k = 0; k < n.operands.count; ++k) {
      const sharding from{to_dims(mesh(), rule, rule.operand(k), uses)};
      const extents& shape = at(n.operands[k]).shape;
      axis_mask axes = 0;
      if (k < facts.movements(n)) axes = traffic_of(graph_, mesh(), n, k, from, to).axes;
      else if (const index_map map = needed_tile(graph_, mesh(), n, k, shape, from); map.dims.count > 0)
        axes = traffic_of_tiles(mesh(), shape, from, map).axes;
      if (axes == 0) continue;
      int axis = 0;
      while ((axes & axis_bit(axis)) == 0) ++axis;
      int dim = 0;
      for (const auto& use : from.splits)
        if (use.axis == axis) dim = use.dim;
      text what("operand ");
      what << k << ' ' << shape_text(shape) << " is split along dim " << dim << " over `" << axes_text(mesh_, axes)
           << "` and the result is " << shape_text(n.shape);
      say_which_moves(what, n, k, dim, from, to);
      what << "; reshard the operand so that dim " << dim << " is not split, or cut it where parts begin";
      refuse(mode_mistake::needs_communication, i, k, axis, what).remedies =
          ways_to_gather(mesh_, k, shard_of(dim), held(n, k), axis);
      return false;
    }
    return true;
  }
  /// `: element 4 moves from part 1 to part 0`
  constexpr void say_which_moves(text& what, const node& n, int k, int dim, const sharding& from, const sharding& to) const {
    const auto& facts = facts_of(n.op);
    if (k >= facts.movements(n)) {
      what << ": parts need elements of their neighbours";
      return;
    }
    const index_map map = facts.map(graph_, n, k);
    const auto parts = parts_of(mesh(), from, dim), parts_to = parts_of(mesh(), to, dim);
    const auto extent = at(n.operands[k]).shape[dim];
    const auto size = shard_extent(extent, parts), size_to = shard_extent(n.shape[dim], parts_to);
    for (const auto& d : map.dims) {
      if (d.dim != dim || d.from_step == 0) continue;
      auto e = d.from_first;
      auto t = d.to_first;
      for (int count = 0; count < 4096 && t < n.shape[dim]; ++count, e += d.from_step, t += d.to_step) {
        if (t < 0 || e < 0 || e >= extent || e / size == t / size_to) continue;
        what << ": element " << e << " moves from part " << e / size << " to part " << t / size_to;
        return;
      }
    }
  }

  constexpr void complain(int i, const op_rule& rule, const axis_rule& along, const operands_on_axis& in, int a,
                          const axis_result& found) {
    const node& n = at(i);
    const text axis = axes_text(mesh_, axis_bit(a));
    typed_mistake& m = refuse(found.broken, i, found.operand, a, why(n, rule, in, axis, found));
    inline_vec<held_operand, max_map_arity> operands;
    for (int k = 0; k < n.operands.count; ++k) operands.push_back(held(n, k));
    m.remedies = remedies(mesh_, is_local(a) ? nullptr : &rule, along, in, operands, a, (n.local_axes & axis_bit(a)) != 0);
  }
  [[nodiscard]] constexpr held_operand held(const node& n, int k) const {
    return {at(n.operands[k]).shape, types[static_cast<std::size_t>(n.operands[k])].layout(), bytes_of(at(n.operands[k]).type)};
  }
  [[nodiscard]] static constexpr text why(const node& n, const op_rule& rule, const operands_on_axis& in, const text& axis,
                                          const axis_result& found) {
    const int k = found.operand;
    int other = k == 0 ? 1 : 0;  // one that it does not go with
    for (int o = in.count - 1; o >= 0; --o)
      if (o != k && in[o].is.is != state::constant && !(in[o].is == in[k].is)) other = o;
    text t("operand ");
    t << k << " is " << long_text(in[k].is) << " over `" << axis << '`';
    const auto beside = [&] {
      if (other < in.count) t << ", operand " << other << " is " << long_text(in[other].is);
    };
    switch (found.broken) {
      case mode_mistake::state_conflict:
        for (int o = 0; o < in.count; ++o)
          if (in[o].is.is == state::varying || in[o].is.is == state::shard) other = o;
        beside();
        if (other < in.count && in[other].is.is == state::partial)
          return t << ": equal data would be counted once on every device";
        return t << ": the gradient of operand " << k << " would miss a sum over `" << axis << '`';
      case mode_mistake::partial_varying_mix:
        beside();
        return t << ": terms of a sum and values of single devices do not go together";
      case mode_mistake::partial_nonlinear:
        return t << ", and what " << name_of(n.op) << " makes of its terms are not the terms of the result";
      case mode_mistake::partial_affine:
        if (in[k].is.is == state::partial)
          return t << ", and the number that the operator puts in would be counted on every device";
        for (int o = 0; o < in.count; ++o)
          if (in[o].is.is == state::partial) other = o;
        beside();
        return t << ": it would be counted once on every device";
      case mode_mistake::partial_product: return t << ", and so is another one: a product of sums is not the sum of the products";
      case mode_mistake::partial_denominator: return t << ": a quotient by a sum is not the sum of quotients";
      case mode_mistake::axis_used_twice: beside(); return t << ": the axis would split two dims of the result";
      case mode_mistake::op_on_whole_dim: return t << ", and the operator works on that dim as a whole";
      case mode_mistake::needs_communication: return t << ", and the result cannot keep that split: elements would move";
      default:
        beside();
        t << ": a dim that both have is split in one of them only";
        if (in[k].is.is == state::shard) t << ", or otherwise";
        return rule.uniform || found.broken != mode_mistake::ambiguous_contraction ? t : t << ", and it is summed";
    }
  }

  // ---- transitions ----

  constexpr void visit_transition(int i) {
    const node& n = at(i);
    const state_change c = state_change::of(n);
    if ((c.axes & ~local_) != 0 && only_regions_) {
      refuse(mode_mistake::unbound_axis, i, 0, -1,
             text("`") << axes_text(mesh_, c.axes & ~local_) << "` is no axis of this manual region");
      return;
    }
    if (n.operands.count == 0) {
      value_type place = value_type::all(mesh(), {state::constant});
      for (int a = 0; a < mesh().axis_count(); ++a)
        if ((c.axes & axis_bit(a)) != 0) place.on[a] = {state::varying};
      if ((c.axes & ~local_) == 0) type(i) = place;
      else refuse(mode_mistake::axis_mode, i, -1, -1, "the place of a device on an axis is a thing of the local view");
      return;
    }
    const value_type& from = type(n.operands[0]);
    const bool is_inside = c.axes != 0 && (c.axes & ~local_) == 0;
    if (!is_inside && (c.axes & local_) != 0) {
      refuse(
          mode_mistake::axis_mode, i, 0, -1,
          text("`") << axes_text(mesh_, c.axes) << "` are axes of the local view and of the global one; write two transitions");
      return;
    }
    const int rank = at(n.operands[0]).shape.count;
    const text axes = axes_text(mesh_, c.axes);
    for (int a = 0; a < mesh().axis_count(); ++a) {
      if ((c.axes & axis_bit(a)) == 0 || is_named(from.on[a], c.from, at(n.operands[0]).type, is_inside, n)) continue;
      text what(name_of(c.by));
      what << " from " << short_text(c.from) << " to " << short_text(c.to) << " over `" << axes << "`: the operand is "
           << long_text(from.on[a]) << " over `" << axes_text(mesh_, axis_bit(a)) << '`';
      if (c.from.is == state::partial && (from.on[a].is == state::replica || from.on[a].is == state::invariant))
        what << ", and a sum of equal data is so many times the value";
      refuse(mode_mistake::wrong_source, i, 0, a, what << "; name the state that it has");
      return;
    }
    for (const auto& [is, which] : {std::pair{c.from, 0}, std::pair{c.to, 1}})
      if (is.is == state::shard && (is.dim < 0 || is.dim >= (is_inside && which == 1 ? n.shape.count : rank))) {
        refuse(mode_mistake::dim_out_of_range, i, 0, -1,
               text("dim ") << is.dim << " is not a dim of " << shape_text(at(n.operands[0]).shape) << "; dims count from 0");
        return;
      }
    if (!is_inside && (c.from.is == state::varying || c.to.is == state::varying)) {
      refuse(mode_mistake::axis_mode, i, 0, -1, "a value of the global view does not vary; name the dim that is sharded, S(d)");
      return;
    }
    int row = c.row();
    if (row >= 0 && c.by == verb::all_to_all && c.from.dim == c.to.dim) row = -1;
    if (c.from.is == state::constant && c.to.is == state::constant) row = -1;
    extents shape = at(n.operands[0]).shape;
    if (row < 0 || (is_inside && !change_local_shape(c, mesh().size_of(c.axes), shape))) {
      bool any = false;
      const state is = c.from.is == state::varying ? state::shard : c.from.is;
      for (const auto& t : transitions) any = any || (t.by == c.by && (t.from == is || t.from == c.from.is));
      const mode_mistake kind =
          row >= 0 || any || c.from.is == state::constant ? mode_mistake::wrong_target : mode_mistake::wrong_source;
      text what(name_of(c.by));
      what << " from " << short_text(c.from) << " to " << short_text(c.to);
      if (row >= 0)
        what << " of " << shape_text(at(n.operands[0]).shape) << " cuts a dim into " << mesh().size_of(c.axes)
             << " parts, which it has not";
      else what << " is no transition";
      refuse(kind, i, 0, -1, what << "; " << known_rows(c.by));
      return;
    }
    value_type to = from;
    if (is_inside) {
      for (int a = 0; a < mesh().axis_count(); ++a)
        if ((c.axes & axis_bit(a)) != 0) to.on[a] = c.to;
      const auto before = local_elements(mesh(), at(n.operands[0]).shape, from.layout());
      const auto after = local_elements(mesh(), n.shape, from.layout());
      note(i, row, c, sent(transitions[row].forward, i, c.axes, before, after),
           sent(transitions[row].backward, i, c.axes, after, before));
    } else if (!change(i, row, c, from, to)) {
      return;
    }
    if (!is_floating(n.type))
      for (int a = 0; a < mesh().axis_count(); ++a) to.on[a] = without_gradient(to.on[a]);
    type(i) = to;
  }
  /// Whether a value is in the state that a transition names. A constant is in every state of equal data; what varies may be taken for
  /// chunks of a dim in the local view, as nothing else is known of it there.
  [[nodiscard]] constexpr bool is_named(const axis_state& is, const axis_state& named, dtype type, bool is_inside,
                                        const node& n) const {
    if (is == named) return true;
    if (n.local_axes != 0 && is_inside) {  // of a manual region: a sum of what varies is asked for, and a gradient is of terms
      if (named.is == state::partial && (is.is == state::varying || is.is == state::shard)) return true;
      if (n.in_gradient && is.is == state::constant) return true;
      if (n.in_gradient && is.is == state::replica && (named.is == state::varying || named.is == state::shard)) return true;
    }
    if (is_inside && (named.is == state::varying || named.is == state::shard))
      return is.is == state::varying || is.is == state::shard || (is.is == state::constant && named.is == state::varying);
    const bool is_equal = is.is == state::constant || (!is_floating(type) && without_gradient(is).is == state::constant);
    return is_equal && (named.is == state::constant || named.is == state::replica || named.is == state::invariant);
  }
  [[nodiscard]] static constexpr text known_rows(verb by) {
    text t(name_of(by));
    t << " leads";
    bool is_first = true;
    for (const auto& row : transitions) {
      if (row.by != by) continue;
      t << (is_first ? " from " : ", ") << short_text({row.from}).view().substr(0, 1) << " to "
        << short_text({row.to}).view().substr(0, 1);
      is_first = false;
    }
    return t;
  }
  /// What a device sends for a deed between these types of the global view: what plans count.
  [[nodiscard]] constexpr std::int64_t sent(deed d, int i, axis_mask axes, const value_type& from, const value_type& to) const {
    const extents& shape = at(i).shape;
    const sharding before{from.splits}, after{to.splits};
    const auto size = bytes_of(at(i).type);
    if (d == deed::sum || d == deed::gather_sum) return bytes_sent(mesh(), reduction{shape, before, after, axes}, size);
    if (d != deed::gather && d != deed::exchange) return 0;
    return bytes_sent(mesh(), movement(shape, before, after, movement_axes(mesh(), shape, before, after)), size);
  }
  /// The same of the local view, from the elements that a device holds.
  [[nodiscard]] constexpr std::int64_t sent(deed d, int i, axis_mask axes, std::int64_t before, std::int64_t after) const {
    return bytes_of(d, mesh().size_of(axes), before * bytes_of(at(i).type), after * bytes_of(at(i).type));
  }
  constexpr void note(int i, int row, const state_change& c, std::int64_t forward, std::int64_t backward) {
    typed_step s{i, row, c.axes, c.from, c.to, forward, 0};
    const bool has_gradient = is_floating(at(i).type) && (c.from.is != state::partial || c.from.reduced_by == monoid::add) &&
                              (c.to.is != state::partial || c.to.reduced_by == monoid::add);
    const deed back = has_gradient ? transitions[row].backward : deed::nothing;
    s.is_sent_back = !collective_of(back).empty();
    refuse_if_devices_part(s);
    if (has_gradient) s.sent_back = backward;
    steps.push_back(s);
  }
  constexpr void refuse_if_devices_part(const typed_step& s) {
    const std::string_view sent = collective_of(transitions[s.row].forward);
    if (sent.empty() && !s.is_sent_back) return;
    const axis_mask parting = diverging_at(s.node) & s.axes;
    if (parting == 0) return;
    int a = 0;
    while ((parting & axis_bit(a)) == 0) ++a;
    refuse(
        mode_mistake::predicate_varying, s.node, 0, a,
        text("devices along `") << axes_text(mesh_, axis_bit(a)) << "` may go different ways here, and "
                                << (sent.empty() ? "the gradient of this" : "this") << " is an "
                                << (sent.empty() ? collective_of(transitions[s.row].backward) : sent)
                                << " of all of them: some would wait for ever; make it outside, or let the predicate be the same "
                                   "on all of them");
  }
  /// Sets axes to one state: those that split a dim then, minor to those that do so already and among them as `order` has them.
  constexpr void set_all(value_type& t, axis_mask axes, const axis_state& is, const value_type* order) const {
    for (int a = 0; a < mesh().axis_count(); ++a)
      if ((axes & axis_bit(a)) != 0) t.set(a, is);
    if (order == nullptr || is.is != state::shard) return;
    for (const auto& use : order->splits)
      if ((axes & axis_bit(use.axis)) != 0) t.set(use.axis, is);
  }
  /// The same in the global view: the axes that leave a dim must be the last ones of it.
  constexpr bool change(int i, int row, const state_change& c, const value_type& from, value_type& to,
                        const value_type* order = nullptr) {
    set_all(to, c.axes, c.to, order);
    if (c.from.is == state::shard) {
      bool is_rest = true;
      for (int k = from.splits.count - 1; k >= 0; --k) {
        if (from.splits[k].dim != c.from.dim) continue;
        const bool leaves = (c.axes & axis_bit(from.splits[k].axis)) != 0;
        if (leaves && !is_rest) {
          refuse(mode_mistake::axis_order, i, 0, from.splits[k].axis,
                 text("dim ") << c.from.dim << " is split " << words_of(from, at(i).shape.count)
                              << ", and other axes cut the parts of `" << axes_text(mesh_, axis_bit(from.splits[k].axis))
                              << "` further; begin with the last ones");
          return false;
        }
        is_rest = is_rest && leaves;
      }
    }
    const axis_mask over = movement_axes(mesh(), at(i).shape, sharding{from.splits}, sharding{to.splits});
    if (const axis_mask others = transitions[row].forward == deed::keep_own ? over : over & ~c.axes; others != 0) {
      refuse(mode_mistake::needs_communication, i, 0, -1,
             text("of ") << shape_text(at(i).shape) << " the uneven parts of " << words_of(to, at(i).shape.count)
                         << " do not lie inside those of " << words_of(from, at(i).shape.count) << ": elements would move over `"
                         << axes_text(mesh_, others) << "` too; bring it to another dim, or make it whole first");
      return false;
    }
    note(i, row, c, sent(transitions[row].forward, i, c.axes, from, to), sent(transitions[row].backward, i, c.axes, to, from));
    return true;
  }

  /// A reshard of the global view: one row for each way that axes change, those first that leave less. What it does not name stays.
  constexpr void visit_reshard(int i) {
    const node& n = at(i);
    const state_wish wish = state_wish::is_one(n) ? state_wish::of(n) : state_wish{n.annotation, 0, 0, true};
    const axis_mask named = wish.layout.split_axes() | wish.layout.partial | wish.replica | wish.invariant;
    if ((named & n.local_axes) != 0) {
      refuse(mode_mistake::axis_mode, i, 0, -1,
             text("names `") << axes_text(mesh_, named & n.local_axes)
                             << "`, which is local here: a collective, or a state, is written in a manual region");
      return;
    }
    value_type wanted = type(n.operands[0]);
    if (wish.has_splits) {
      for (int a = 0; a < mesh().axis_count(); ++a)
        if (wanted.on[a].is == state::shard) wanted.set(a, {state::invariant});
      for (const auto& use : wish.layout.splits) wanted.set(use.axis, shard_of(use.dim));
    }
    for (int a = 0; a < mesh().axis_count(); ++a) {
      if ((wish.layout.partial & axis_bit(a)) != 0) wanted.set(a, partial_by(wish.layout.reduced_by));
      if ((wish.replica & axis_bit(a)) != 0) wanted.set(a, {state::replica});
      if ((wish.invariant & axis_bit(a)) != 0) wanted.set(a, {state::invariant});
    }
    if (!wish.is_out || fits_out(i, wanted)) reshard_to(i, wanted);
  }
  /// Whether an operator's result may leave it as `wanted`: a partial sum as the program likes, other axes as they are or cut.
  constexpr bool fits_out(int i, const value_type& wanted) {
    const value_type& is = type(at(i).operands[0]);
    const int rank = at(i).shape.count;
    for (int a = 0; a < mesh().axis_count(); ++a) {
      const auto &from = is.on[a], &to = wanted.on[a];
      const bool is_cut =
          (from.is == state::constant && to.is != state::partial) || (from.is == state::replica && to.is == state::shard);
      if (from == to || from.is == state::partial || is_cut) continue;
      typed_mistake& m = refuse(mode_mistake::out_spec_mismatch, i, -1, a,
                                text("the result is ") << words_of(is, rank) << ", and `out` asks for " << words_of(wanted, rank)
                                                       << ": it says what becomes of a partial sum, and moves nothing else");
      m.remedies.push_back(reshard_text(mesh_, wanted.layout(), rank, a, to) << "(the result)");
      return false;
    }
    return true;
  }
  /// A gradient on its way back through a transition: in the dual state of what it is the gradient of.
  constexpr void visit_cotangent(int i) {
    const value_type& of = type(at(i).operands[1]);
    if (is_seed(at(i)))
      for (int a = 0; a < mesh().axis_count(); ++a) {
        if (of.on[a].is != state::replica && of.on[a].is != state::varying &&
            !(of.on[a].is == state::partial && of.on[a].reduced_by != monoid::add))
          continue;
        refuse(mode_mistake::loss_state, i, 1, a,
               text("the loss is ")
                   << long_text(of.on[a]) << " over `" << axes_text(mesh_, axis_bit(a))
                   << "`: begun with 1 on each device, its gradient would be another one; make it a partial sum, or "
                      "invariant");
        return;
      }
    for (int a = 0; a < mesh().axis_count(); ++a) {
      if (of.on[a].is != state::partial || of.on[a].reduced_by == monoid::add) continue;
      refuse(mode_mistake::partial_nonlinear, i, 1, a,
             text("what is ") << long_text(of.on[a]) << " over `" << axes_text(mesh_, axis_bit(a))
                              << "` has no gradient: which device's term was taken is not known; stop_gradient it");
      return;
    }
    value_type wanted = of;
    for (int a = 0; a < mesh().axis_count(); ++a)
      if (of.on[a].is != state::constant) wanted.on[a] = dual(of.on[a]);
    for (int a = 0; a < mesh().axis_count(); ++a)
      if (type(at(i).operands[0]).on[a].is == state::constant && wanted.on[a].is != state::partial &&
          wanted.on[a].is != state::shard)
        wanted.on[a] = {state::constant};
    reshard_to(i, wanted);
  }
  constexpr void reshard_to(int i, const value_type& wanted) {
    const int operand = at(i).operands[0];
    value_type now = type(operand);
    constexpr deed order[] = {deed::nothing, deed::keep_own, deed::keep_first, deed::gather_sum,
                              deed::sum,     deed::exchange, deed::gather,     deed::pad_zeros};
    for (const deed d : order) {
      for (int a = 0; a < mesh().axis_count(); ++a) {
        if (now.on[a] == wanted.on[a]) continue;
        state_change c{verb::convert, 0, now.on[a], wanted.on[a]};
        const int row = row_between(now.on[a], wanted.on[a]);
        if (row < 0) {
          refuse(mode_mistake::wrong_target, i, 0, a,
                 text("from ") << short_text(now.on[a]) << " to " << short_text(wanted.on[a]) << " no transition leads");
          return;
        }
        if (transitions[row].forward != d) continue;
        c.by = transitions[row].by;
        for (int b = a; b < mesh().axis_count(); ++b)
          if (now.on[b] == c.from && wanted.on[b] == c.to) c.axes |= axis_bit(b);
        value_type next = now;
        if (now.on[a].is == state::constant) {
          set_all(next, c.axes, c.to, &wanted);
          if (c.to.is == state::partial) note(i, row, c, 0, 0);
        } else if (!change(i, row, c, now, next, &wanted)) {
          return;
        }
        now = next;
      }
    }
    if (!(now.splits == wanted.splits)) {
      refuse(mode_mistake::axis_order, i, 0, -1,
             text("the operand is ") << words_of(type(operand), at(i).shape.count) << ", and what is asked for, "
                                     << words_of(wanted, at(i).shape.count)
                                     << ", has the axes of a dim in an order that no step leads to; write two reshards");
      return;
    }
    type(i) = now;
  }
  [[nodiscard]] static constexpr int row_between(const axis_state& from, const axis_state& to) {
    const state is = from.is == state::constant ? (to.is == state::replica ? state::invariant : state::replica) : from.is;
    for (const verb by :
         {verb::convert, verb::all_gather, verb::all_to_all, verb::all_reduce, verb::reduce_scatter, verb::reinterpret})
      if (const int row = row_of(by, is, to.is); row >= 0) return row;
    return -1;
  }

  [[nodiscard]] constexpr text way_for_result(int row, const axis_state& is, const axis_state& to, const value_type& wanted,
                                              int rank, int a) const {
    if (!is_local(a)) return reshard_text(mesh_, wanted.layout(), rank, a, to) << "(the result)";
    return text(name_of(transitions[row].by)) << " the result from " << short_text(is) << " to " << short_text(to) << " over `"
                                              << axes_text(mesh_, axis_bit(a)) << '`';
  }
  /// What must be of a result: nothing is sent for it.
  constexpr void cut_for(int i, const value_type& wanted) {
    value_type& t = type(i);
    value_type cut = t;
    for (int a = 0; a < mesh().axis_count(); ++a) {
      const auto &is = t.on[a], &to = wanted.on[a];
      const bool is_equal = is.is == state::constant || (!is_floating(at(i).type) && without_gradient(is).is == state::constant);
      const bool is_same = is == to || (is_local(a) && is.is == state::shard && to.is == state::varying);
      const bool is_chunk = is_local(a) && is.is == state::varying && to.is == state::shard;
      const bool is_free =
          (is_equal && to.is != state::partial) || (!is_local(a) && is.is == state::replica && to.is == state::shard);
      if (!is_same && !is_free && !is_chunk) {
        typed_mistake& m =
            refuse(mode_mistake::out_spec_mismatch, i, -1, a,
                   text("the result is ") << words_of(t, at(i).shape.count) << ", not " << words_of(wanted, at(i).shape.count)
                                          << ": only equal data without a sum in its gradient is cut for that");
        if (const int row = row_between(is, to); row >= 0)
          m.remedies.push_back(way_for_result(row, is, to, wanted, at(i).shape.count, a));
        t.is_known = false;
        return;
      }
      if (is_local(a)) cut.on[a] = is_equal && to.is == state::shard ? is : to;
      else if (!(is == to)) cut.set(a, to);
    }
    if (!(cut.splits == wanted.splits)) {
      refuse(mode_mistake::axis_order, i, -1, -1,
             text("the result is ") << words_of(cut, at(i).shape.count) << ", not " << words_of(wanted, at(i).shape.count)
                                    << ": axes split a dim in another order");
      t.is_known = false;
      return;
    }
    t = cut;
  }

  const graph& graph_;
  const mesh_info& mesh_;
  axis_mask base_local_;  // axes of the local view, everywhere
  axis_mask local_;       // and where the node stands that is visited
  bool only_regions_;
  axis_mask diverging_ = 0;
  int next_ = 0;
  struct typed_loop {
    int loop = 0;
    std::size_t mistakes = 0, steps = 0;  // before its body
  };
  std::vector<typed_loop> loops_;
  struct carried_value {
    int carry = 0;
    value_type is;
    bool is_settled = false;  // it is constant for good
  };
  std::vector<carried_value> carried_;
  std::vector<int> wanted_;  // by node
  std::vector<value_type> wishes_;
  inline_vec<value_type, max_results> further_;  // of the operator typed last
};

}  // namespace gspmd::detail
