// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/ops/linear.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/passes/reshard.hpp"
#include "gspmd/detail/passes/use_search.hpp"

namespace gspmd::detail {

/// Turns a completed graph into the program that every device runs (GSPMD 4.1-4.5).
///
/// For every operator, in order:
/// 1. every mesh axis is given to one factor of the operator's rule, or to none: the joint use of all axes that sends the
///    fewest bytes for the operands and the result; ties go to fewer collectives, then to smaller shards. Work that all devices
///    would repeat is not free: past the first million flops, `flops_per_byte` of them weigh as much as a byte;
/// 2. operands are brought to the sharding this needs; a form of a value that was made before is used again;
/// 3. the operator runs on shards. Axes given to a reduction factor leave the result partial;
/// 4. a partial result stays so until a user of it needs the sum (linear operators pass it on).
class partitioner {
 public:
  constexpr partitioner(const graph& g, const mesh_shape& mesh, std::span<const sharding> completed)
      : graph_(g), mesh_(mesh), completed_(completed.begin(), completed.end()) {
    forms_.resize(g.nodes.size(), std::vector<int>{});
    results_.resize(g.nodes.size(), -1);
    for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) roots_.push_back(i);
  }

  constexpr void run() {
    std::vector<std::uint8_t> needed(graph_.nodes.size(), 0);  // what no output depends on is not computed
    readers_.resize(graph_.nodes.size(), std::vector<int>{});
    program.results.resize(graph_.nodes.size(), -1);
    for (const int o : graph_.outputs) {
      needed[static_cast<std::size_t>(o)] = 1;
      readers_[static_cast<std::size_t>(o)].push_back(o);
    }
    for (std::size_t i = graph_.nodes.size(); i-- > 0;) {
      const node& n = graph_.nodes[i];
      if (is_region_result(n.op)) share_need(static_cast<int>(i), needed);
      if (needed[i] != 0 && n.region >= 0) needed[static_cast<std::size_t>(n.region)] = 1;
      if (needed[i] != 0)
        for (const int o : data_operands(graph_.nodes[i])) {
          needed[static_cast<std::size_t>(o)] = 1;
          readers_[static_cast<std::size_t>(o)].push_back(static_cast<int>(i));
        }
    }
    narrow_wishes(needed);
    for (int i = 0; i < static_cast<int>(graph_.nodes.size()); ++i) {
      const node& n = graph_.nodes[static_cast<std::size_t>(i)];
      if (n.op == opcode::parameter) {
        program.inputs.push_back(add_value(i, completed_of(i)));
        forms_[static_cast<std::size_t>(i)].push_back(program.inputs.back());  // wherever it stands, it is there from the start
        program.results[static_cast<std::size_t>(i)] = program.inputs.back();
      } else if (needed[static_cast<std::size_t>(i)] == 0 || is_source(n)) {
        continue;
      } else if (n.op == opcode::reshard || n.op == opcode::shard_alike) {
        roots_[static_cast<std::size_t>(i)] = root_of(n.operands[0]);
        results_[static_cast<std::size_t>(i)] = form_of(n.operands[0], completed_of(i), i);
      } else if (n.op >= opcode::loop) {
        emit_region(i);
      } else {
        emit(i);
      }
    }
    for (const int o : graph_.outputs) {
      sharding wanted = completed_of(o);
      wanted.partial = 0;
      program.outputs.push_back(form_of(o, wanted, o, false, true));
    }
    drop_unused();
    for (std::size_t i = 0; i < forms_.size(); ++i) {
      if (results_[i] >= 0) program.results[i] = results_[i];
      else if (!forms_[i].empty()) program.results[i] = forms_[i].front();
    }
  }

  local_program program;

 private:
  /// Where every reader of a value takes the same slice of it, the slice is all that is made: all_reduce and slice become
  /// reduce_scatter, through any elementwise operators in between.
  constexpr void narrow_wishes(const std::vector<std::uint8_t>& needed) {
    for (std::size_t i = graph_.nodes.size(); i-- > 0;) {
      if (needed[i] == 0 || graph_.nodes[i].op == opcode::parameter || readers_[i].empty()) continue;
      bool alike = true;
      sharding slice = completed_[i];
      for (std::size_t r = 0; r < readers_[i].size() && alike; ++r) {
        const int reader = readers_[i][r];
        const node& user = graph_.nodes[static_cast<std::size_t>(reader)];
        const auto& wish = completed_of(reader).splits;
        alike = false;
        if (static_cast<std::size_t>(reader) == i) break;  // an output
        sharding asked = slice;
        if (facts_of(user.op).uniform) {
          asked.splits = wish;
        } else if (user.op == opcode::transpose) {
          asked.splits.clear();
          for (const auto& use : wish) asked.add_split(use.axis, user.attributes[use.dim]);
        } else {
          break;
        }
        alike = r == 0 || asked.splits == slice.splits;
        slice = asked;
      }
      if (alike && !(slice.splits == completed_[i].splits) && lies_inside(mesh_, graph_.nodes[i].shape, completed_[i], slice))
        completed_[i].splits = slice.splits;
    }
  }

  /// What carries a value round a loop, or ends a branch, is kept.
  [[nodiscard]] static constexpr bool is_wanted(const local_op& op, const std::vector<std::uint8_t>& is_read) {
    return op.what == local_kind::control || op.what == local_kind::copy || is_read[static_cast<std::size_t>(op.result)] != 0;
  }
  /// Takes out the operators whose result nobody reads: a broadcast that was only needed in another sharding, say.
  constexpr void drop_unused() {
    std::vector<std::uint8_t> is_read(program.values.size(), 0);
    for (const int v : program.outputs) is_read[static_cast<std::size_t>(v)] = 1;
    std::size_t at = program.ops.size();
    bool any = false;
    while (at-- > 0) {
      const auto& op = program.ops[at];
      if (!is_wanted(op, is_read)) any = true;
      else
        for (const int o : op.operands) is_read[static_cast<std::size_t>(o)] = 1;
    }
    if (!any) return;
    std::vector<local_op> kept;
    for (const auto& op : program.ops)
      if (is_wanted(op, is_read)) kept.push_back(op);
    program.ops = std::move(kept);
    for (auto& forms : forms_) {
      std::vector<int> left;
      for (const int v : forms)
        if (is_read[static_cast<std::size_t>(v)] != 0) left.push_back(v);
      if (!left.empty()) forms = std::move(left);
    }
    for (auto& v : results_)
      if (v >= 0 && is_read[static_cast<std::size_t>(v)] == 0) v = -1;
  }

  [[nodiscard]] constexpr const sharding& completed_of(int i) const { return completed_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr const extents& shape_of(int i) const { return graph_.nodes[static_cast<std::size_t>(i)].shape; }
  /// A reshard is its operand: both have the same forms.
  [[nodiscard]] constexpr int root_of(int i) const { return roots_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr const std::vector<int>& forms_of(int i) const { return forms_[static_cast<std::size_t>(root_of(i))]; }
  /// The second operand of shard_alike is only looked at.
  [[nodiscard]] static constexpr std::span<const int> data_operands(const node& n) {
    return {n.operands.begin(), n.op == opcode::shard_alike ? std::size_t{1} : static_cast<std::size_t>(n.operands.count)};
  }
  [[nodiscard]] static constexpr bool is_source(const node& n) { return n.op == opcode::constant || n.op == opcode::iota; }

  struct made_form {  // in an open body
    int node = 0;
    int value = 0;
    int level = 0;
  };

  constexpr int add_value(int i, const sharding& layout) {
    const node& n = graph_.nodes[static_cast<std::size_t>(i)];
    local_value v{i, n.type, n.shape, layout, local_extents(mesh_, n.shape, layout)};
    v.layout.open = 0;
    program.values.push_back(v);
    return static_cast<int>(program.values.size()) - 1;
  }
  constexpr int add_form(int i, const sharding& layout) {
    const int v = add_value(i, layout);
    name_form(i, v);
    return v;
  }
  constexpr void name_form(int i, int v) {
    i = root_of(i);
    forms_[static_cast<std::size_t>(i)].push_back(v);
    auto& first = program.results[static_cast<std::size_t>(i)];
    if (first < 0) first = v;
    if (!open_.empty()) note_form(i, v);
  }

  /// The cheapest form of a node's value to start from; -1 if it is made anew: constants and iotas always, conversions and
  /// broadcasts where their operand moves fewer bytes than their result.
  [[nodiscard]] constexpr int best_form(int i, const sharding& wanted, std::int64_t& bytes) const {
    int best = -1;
    bytes = 0;
    const auto& forms = forms_of(i);
    for (const int v : forms) {
      if (same_layout(program.value(v).layout, wanted)) {
        bytes = 0;
        return v;
      }
      if ((wanted.partial & ~program.value(v).layout.partial) != 0) continue;
      const auto cost = reshard_bytes(mesh_, shape_of(i), program.value(v).layout, wanted, bytes_of(program.value(v).type));
      if (best < 0 || cost < bytes) {
        best = v;
        bytes = cost;
      }
    }
    const node& n = graph_.nodes[static_cast<std::size_t>(root_of(i))];
    if (best < 0 || bytes == 0 || (n.op != opcode::convert && n.op != opcode::broadcast_in_dim)) return best;
    sharding operand;
    if (wanted.partial != 0 || !is_made_from(n, wanted, operand)) return best;
    std::int64_t again = 0;
    static_cast<void>(best_form(n.operands[0], operand, again));
    if (again >= bytes) return best;
    bytes = again;
    return -1;
  }

  /// Whether an operator of one operand can make its result in sharding `wanted`, and from what.
  [[nodiscard]] constexpr bool is_made_from(const node& n, const sharding& wanted, sharding& operand) const {
    op_rule rule;
    rule_of(graph_, n, rule);
    const auto uses = to_factors(mesh_, rule, rule.result(), wanted.splits);
    operand.splits = to_dims(mesh_, rule, rule.operand(0), uses);
    return to_dims(mesh_, rule, rule.result(), uses) == wanted.splits;
  }

  /// The local value of node `i` under `wanted`; emits what it takes to get it, for the sake of node `user`.
  constexpr int form_of(int i, const sharding& wanted, int user, bool forced = false, bool for_output = false) {
    std::int64_t bytes = 0;
    int v = best_form(i, wanted, bytes);
    const int level = level_of(i);
    if (v < 0) {
      i = root_of(i);
      const node& n = graph_.nodes[static_cast<std::size_t>(i)];
      local_op op;
      op.node = i;
      sharding operand;
      if (!is_source(n) && is_made_from(n, wanted, operand))
        op.operands.push_back(form_of(n.operands[0], operand, user, forced, for_output));
      op.result = v = add_form(i, wanted);
      add_op(op, level);
      return v;
    }
    while (true) {
      const sharding from = program.value(v).layout;
      const auto step = next_step(mesh_, shape_of(i), from, wanted);
      if (step.what == reshard_step::kind::none) return v;
      local_op op;
      op.node = user;
      op.operands.push_back(v);
      op.axes = step.axes;
      op.forced = forced;
      op.for_output = for_output;
      if (step.what == reshard_step::kind::slice) {
        op.what = local_kind::slice;
      } else if (step.what == reshard_step::kind::move) {
        op.what = local_kind::move;
        op.collective = classify(mesh_, movement{shape_of(i), from, step.to, step.axes});
      } else {
        op.what = local_kind::reduce;
        op.collective = classify(mesh_, reduction{shape_of(i), from, step.to, step.axes, from.kind});
      }
      op.result = v = add_form(i, step.to);
      add_op(op, level);
    }
  }

  /// One way to run an operator: which axes split which factors, and the shardings that this asks of its tensors.
  struct use_plan {
    factor_splits uses;
    inline_vec<sharding, max_map_arity> wanted;  // by operand
    sharding result;
  };

  // ---- loops and conditionals ----
  //
  // A carried value has one sharding, that of its carry node: it is brought to it before the loop and at the end of the body.
  // What a body needs of a value from outside is made before the loop; a conditional makes it where it is needed, and what
  // was made in a body is not there after it.

  /// At how many of the open bodies' depth a form of node `i` is made now.
  [[nodiscard]] constexpr int level_of(int i) const {
    i = root_of(i);
    int level = static_cast<int>(open_.size());
    while (level > 0) {
      const int start = open_[static_cast<std::size_t>(level) - 1];
      if (graph_.nodes[static_cast<std::size_t>(start)].op != opcode::loop || graph_.is_inside(i, start)) break;
      --level;
    }
    return level;
  }
  constexpr void note_form(int i, int v) {
    const int level = level_of(i);
    if (level > 0) made_.push_back(made_form{i, v, level});
  }
  /// Appends an operator, or puts it before the loops that it need not be in.
  constexpr void add_op(const local_op& op, int level) {
    if (level == static_cast<int>(open_.size())) {
      program.ops.push_back(op);
      return;
    }
    const int where = open_at_[static_cast<std::size_t>(level)];
    program.ops.insert(program.ops.begin() + where, op);
    for (std::size_t k = static_cast<std::size_t>(level); k < open_at_.size(); ++k) ++open_at_[k];
  }
  constexpr void add_region_op(local_kind what, int i, int operand, int result) {
    local_op op;
    op.what = what;
    op.node = i;
    if (operand >= 0) op.operands.push_back(operand);
    op.result = result;
    program.ops.push_back(op);
  }
  constexpr void open_body(int i, int operand, int result) {
    open_.push_back(i);
    open_at_.push_back(static_cast<int>(program.ops.size()));
    add_region_op(local_kind::control, i, operand, result);
  }
  constexpr void close_body() {
    const int level = static_cast<int>(open_.size());
    std::size_t kept = 0;
    for (std::size_t k = 0; k < made_.size(); ++k) {
      if (made_[k].level < level) {
        made_[kept++] = made_[k];
        continue;
      }
      auto& forms = forms_[static_cast<std::size_t>(made_[k].node)];
      for (std::size_t f = forms.size(); f-- > 0;)
        if (forms[f] == made_[k].value) forms.erase(forms.begin() + static_cast<std::ptrdiff_t>(f));
    }
    made_.resize(kept);
    open_.pop_back();
    open_at_.pop_back();
  }

  [[nodiscard]] constexpr const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr bool is_result_of(int i, opcode op, int start) const {
    if (i >= static_cast<int>(graph_.nodes.size()) || at(i).op != op) return false;
    return op == opcode::loop_result ? at(at(i).operands[0]).region == start : at(i).operands[0] == start;
  }
  /// All results of a loop or conditional are computed if any of them is needed.
  constexpr void share_need(int last, std::vector<std::uint8_t>& needed) const {
    const opcode op = at(last).op;
    const int start = op == opcode::loop_result ? at(at(last).operands[0]).region : at(last).operands[0];
    if (is_result_of(last + 1, op, start)) return;
    bool any = false;
    for (int i = last; is_result_of(i, op, start); --i) any = any || needed[static_cast<std::size_t>(i)] != 0;
    for (int i = last; any && is_result_of(i, op, start); --i) needed[static_cast<std::size_t>(i)] = 1;
  }

  /// A sum that a loop only adds to, from 0 on, stays partial with what it adds: one reduction after the loop does.
  constexpr use_plan choose_with_sums(int i, const node& n, const op_rule& rule) {
    const int k = open_.empty() ? -1 : summing_operand(i, n);
    if (k < 0) return choose(i, n, rule);
    const int carried = forms_[static_cast<std::size_t>(n.operands[k])].front();
    auto& layout = program.values[static_cast<std::size_t>(carried)].layout;
    layout.partial = program.value(forms_of(n.operands[1 - k]).back()).layout.partial;
    layout.kind = monoid::add;
    const use_plan plan = choose(i, n, rule);
    if (same_layout(plan.wanted[k], layout) && same_layout(plan.result, layout)) return plan;
    layout.partial = 0;
    return choose(i, n, rule);
  }
  /// The operand that is such a sum; -1: none is.
  [[nodiscard]] constexpr int summing_operand(int i, const node& n) const {
    const auto readers = [this](int v) { return readers_[static_cast<std::size_t>(v)].size(); };
    if (n.op != opcode::add || readers(i) != 1) return -1;
    const int reader = readers_[static_cast<std::size_t>(i)][0];
    for (int k = 0; k < 2; ++k) {
      const int carry = n.operands[k];
      const int added = n.operands[1 - k];
      if (at(carry).op != opcode::carry || at(carry).region != open_.back() || readers(carry) != 2 || readers(added) != 1)
        continue;
      if (at(reader).op != opcode::loop_result || at(reader).operands[0] != carry || at(reader).operands[1] != i) continue;
      const node& init = at(at(carry).operands[0]);
      if (init.op != opcode::constant || init.real != 0 || init.integer != 0) continue;
      const auto& forms = forms_of(added);
      bool is_partial = !forms.empty();
      for (const int v : forms) is_partial = is_partial && program.value(v).layout.partial != 0;
      if (!is_partial) continue;
      const sharding& from = program.value(forms.back()).layout;
      const sharding& sum = program.value(forms_[static_cast<std::size_t>(carry)].front()).layout;
      if (from.kind == monoid::add && from.splits == sum.splits) return k;
    }
    return -1;
  }

  [[nodiscard]] constexpr sharding whole_layout(int i) const {
    sharding s = completed_of(i);
    s.partial = 0;
    return s;
  }
  constexpr void copy_to(int result, int from, int user) {
    const sharding layout = program.value(result).layout;  // a copy: values are added
    add_region_op(local_kind::copy, user, form_of(from, layout, user), result);
  }

  constexpr void emit_region(int i) {
    const node& n = at(i);
    if (n.op == opcode::loop) {
      for (int k = i + 1; at(k).op == opcode::carry && at(k).region == i; ++k) {
        const int carried = add_value(k, whole_layout(k));
        copy_to(carried, at(k).operands[0], k);
        name_form(k, carried);
      }
      const int counter = add_form(i, {});
      open_body(i, -1, counter);
    } else if (n.op == opcode::branch) {
      open_body(i, form_of(n.operands[0], {}, i), -1);
    } else if (n.op == opcode::otherwise) {
      int first = i + 1;
      while (!is_result_of(first, opcode::cond_result, i)) ++first;
      for (int k = first; is_result_of(k, opcode::cond_result, i); ++k) {
        given_.push_back(add_value(k, whole_layout(k)));
        copy_to(given_.back(), at(k).operands[1], k);
      }
      close_body();
      open_body(i, -1, -1);
    } else if (n.op == opcode::loop_result && !open_.empty() && is_result_of(i, opcode::loop_result, open_.back())) {
      const int start = open_.back();
      std::vector<int> carried;
      for (int k = i; is_result_of(k, opcode::loop_result, start); ++k) {
        carried.push_back(forms_[static_cast<std::size_t>(at(k).operands[0])].front());
        const sharding layout = program.value(carried.back()).layout;  // a copy: values are added
        static_cast<void>(form_of(at(k).operands[1], layout, k));
      }
      for (int k = i; is_result_of(k, opcode::loop_result, start);
           ++k)  // nothing between the copies: the scheduler sees them as one
        copy_to(carried[static_cast<std::size_t>(k - i)], at(k).operands[1], k);
      add_region_op(local_kind::control, i, -1, -1);
      close_body();
      for (int k = i; is_result_of(k, opcode::loop_result, start); ++k) name_form(k, carried[static_cast<std::size_t>(k - i)]);
    } else if (n.op == opcode::cond_result && !open_.empty() && n.operands[0] == open_.back()) {
      const int start = open_.back();
      std::size_t first = given_.size();
      for (int k = i; is_result_of(k, opcode::cond_result, start); ++k) --first;
      for (int k = i; is_result_of(k, opcode::cond_result, start); ++k)
        copy_to(given_[first + static_cast<std::size_t>(k - i)], at(k).operands[2], k);
      add_region_op(local_kind::control, i, -1, -1);
      close_body();
      for (int k = i; is_result_of(k, opcode::cond_result, start); ++k)
        name_form(k, given_[first + static_cast<std::size_t>(k - i)]);
      given_.resize(first);
    }
  }

  constexpr void emit(int i) {
    const node& n = graph_.nodes[static_cast<std::size_t>(i)];
    op_rule rule;
    rule_of(graph_, n, rule);
    const use_plan plan = choose_with_sums(i, n, rule);

    local_op op;
    op.node = i;
    for (int k = 0; k < n.operands.count; ++k)
      op.operands.push_back(form_of(n.operands[k], plan.wanted[k], i, loses_a_split(n, rule, k, plan.wanted[k])));
    op.result = add_form(i, plan.result);
    program.ops.push_back(op);
  }

  [[nodiscard]] constexpr use_plan plan_of(const node& n, const op_rule& rule, const factor_splits& uses,
                                           const inline_vec<sharding, max_map_arity>& held) const {
    use_plan p;
    p.uses = uses;
    for (int k = 0; k < n.operands.count; ++k) {
      sharding s;
      s.splits = to_dims(mesh_, rule, rule.operand(k), uses);
      p.wanted.push_back(s);
    }
    p.result.splits = to_dims(mesh_, rule, rule.result(), uses);
    p.result.kind = rule.kind;
    for (const auto& use : uses)
      if (rule.factors[use.dim].kind == factor_kind::reduction) p.result.partial |= axis_bit(use.axis);
    pass_partial(n, uses, held, p.wanted, p.result);
    return p;
  }

  /// True when the operator cannot keep a split that its operand was to have, whatever it would cost.
  [[nodiscard]] constexpr bool loses_a_split(const node& n, const op_rule& rule, int k, const sharding& wanted) const {
    if (rule.uniform) return false;
    const sharding& had = completed_of(n.operands[k]);
    if ((had.split_axes() & ~wanted.split_axes()) == 0) return false;
    const use_search::wishes none;
    const use_search search(mesh_, rule, none);
    const auto kept = to_dims(mesh_, rule, rule.operand(k), search.legal(to_factors(mesh_, rule, rule.operand(k), had.splits)));
    return !(kept == had.splits);
  }

  /// Lets operands stay partial where the operator is linear in them and the sum is no smaller before than after it.
  /// `held`: the forms of operands that are partial.
  constexpr void pass_partial(const node& n, const factor_splits& uses, const inline_vec<sharding, max_map_arity>& held,
                              inline_vec<sharding, max_map_arity>& wanted, sharding& result) const {
    axis_mask used = 0;
    for (const auto& use : uses) used |= axis_bit(use.axis);
    for (int k = 0; k < n.operands.count; ++k) {
      const axis_mask axes = held[k].partial;
      const monoid kind = held[k].kind;
      if (axes == 0 || (axes & used) != 0) continue;
      if (result.partial != 0 && result.kind != kind) continue;
      const auto how = partial_rule_of(n, k, kind);
      if (how == partial_rule::any) {
        if ((result.partial & axes) != 0) continue;
        bool needed_whole = false;  // x * x needs the sum of x anyway
        for (int o = 0; o < n.operands.count; ++o) needed_whole = needed_whole || (o != k && n.operands[o] == n.operands[k]);
        if (needed_whole) continue;
        const auto before = elements(local_extents(mesh_, shape_of(n.operands[k]), wanted[k]));
        const auto after = elements(local_extents(mesh_, n.shape, result));
        if (after > before) continue;
        // No smaller: somebody else may need the whole value, and then it would be reduced twice.
        if (after == before && readers_[static_cast<std::size_t>(n.operands[k])].size() > 1) continue;
        wanted[k].partial = axes;
        wanted[k].kind = kind;
        result.partial |= axes;
        result.kind = kind;
        return;  // a product may be partial in one operand only
      }
      if (how == partial_rule::all) {
        bool alike = true;
        for (int o = 0; o < n.operands.count; ++o)
          alike = alike && held[o].partial == axes && held[o].kind == kind && partial_rule_of(n, o, kind) == partial_rule::all;
        if (!alike) continue;
        for (int o = 0; o < n.operands.count; ++o) {
          wanted[o].partial = axes;
          wanted[o].kind = kind;
        }
        result.partial |= axes;
        result.kind = kind;
        return;
      }
    }
  }

  /// By operand: its form, if the only ones it has are partial.
  [[nodiscard]] constexpr inline_vec<sharding, max_map_arity> held_partial(const node& n) const {
    inline_vec<sharding, max_map_arity> held;
    for (int k = 0; k < n.operands.count; ++k) {
      sharding s;
      const auto& forms = forms_of(n.operands[k]);
      bool has_whole = forms.empty() || level_of(n.operands[k]) < static_cast<int>(open_.size());  // reduced before the loop
      for (const int v : forms) has_whole = has_whole || program.value(v).layout.partial == 0;
      if (!has_whole) s = program.value(forms.back()).layout;
      held.push_back(s);
    }
    return held;
  }

  /// A sharding that a later reader of operand `k` will ask for, and what it would have to send for it.
  struct later_wish {
    int operand = 0;
    sharding wanted;
    std::int64_t bytes = 0;
  };

  /// True when a value is sure to be brought to the sharding that completion found: an output, or what is computed with it has
  /// the same one.
  [[nodiscard]] constexpr bool is_kept(int i) const {
    for (const int reader : readers_[static_cast<std::size_t>(i)]) {
      if (reader == i) return true;
      const auto& user = graph_.nodes[static_cast<std::size_t>(reader)];
      if (facts_of(user.op).uniform && completed_of(reader).splits == completed_of(i).splits) return true;
    }
    return false;
  }

  /// What elementwise readers after `i`, and outputs, want of its operands: a form that serves them too is worth more.
  [[nodiscard]] constexpr std::vector<later_wish> later_wishes(int i, const node& n) const {
    std::vector<later_wish> wishes;
    for (int k = 0; k < n.operands.count; ++k) {
      const int o = n.operands[k];
      const auto& forms = forms_of(o);
      const auto& readers = readers_[static_cast<std::size_t>(o)];
      bool again = false;
      for (int other = 0; other < k; ++other) again = again || root_of(n.operands[other]) == root_of(o);
      if (again || readers.size() < 2 || forms.empty()) continue;
      const std::size_t first = wishes.size();
      for (const int reader : readers) {
        const node& user = graph_.nodes[static_cast<std::size_t>(reader)];
        if ((reader <= i && reader != o) || !facts_of(user.op).uniform || !is_kept(reader)) continue;
        later_wish wish;
        wish.operand = k;
        wish.wanted.splits = completed_of(reader).splits;
        bool known = false;
        for (std::size_t w = first; w < wishes.size(); ++w) known = known || same_layout(wishes[w].wanted, wish.wanted);
        if (known) continue;
        static_cast<void>(best_form(o, wish.wanted, wish.bytes));
        if (bytes_of(user.type) < bytes_of(graph_.nodes[static_cast<std::size_t>(o)].type)) continue;  // moves its result
        if (wish.bytes > 0) wishes.push_back(wish);
      }
    }
    return wishes;
  }

  /// What the form that operand `k` is brought to saves the later readers: of those, the one that gains most.
  [[nodiscard]] constexpr std::int64_t saved(const node& n, const use_plan& p, const std::vector<later_wish>& wishes) const {
    std::int64_t total = 0;
    int operand = -1;
    std::int64_t most = 0;
    for (const auto& wish : wishes) {
      if (wish.operand != operand) {
        total += most;
        most = 0;
        operand = wish.operand;
      }
      const auto& form = p.wanted[operand];
      if ((wish.wanted.partial & ~form.partial) != 0) continue;
      const int o = n.operands[operand];
      const auto then =
          reshard_bytes(mesh_, shape_of(o), form, wish.wanted, bytes_of(graph_.nodes[static_cast<std::size_t>(o)].type));
      if (wish.bytes - then > most) most = wish.bytes - then;
    }
    return total + most;
  }

  /// Between gathering the operands of a large product on every device and adding partial ones up: a device that computes
  /// 10^12 flops/s on a network of 30 GB/s. Small operators wait for the network, whatever they compute.
  static constexpr std::int64_t flops_per_byte = 32;
  static constexpr std::int64_t free_flops = std::int64_t{1} << 20;
  static constexpr std::int64_t weight_of(std::int64_t products) {
    return products <= free_flops / 2 ? 0 : (products - free_flops / 2) / (flops_per_byte / 2);
  }

  /// The use of every mesh axis by a factor of the rule that sends the fewest bytes; then by the fewest collectives, with the
  /// smallest shards, as the result and then the operands ask for it.
  [[nodiscard]] constexpr use_plan choose(int i, const node& n, const op_rule& rule) const {
    const auto held = held_partial(n);
    use_search::wishes asked;  // the result's, then the operands'
    asked.push_back(to_factors(mesh_, rule, rule.result(), completed_of(i).splits));
    bool agree = true;
    for (int k = 0; k < n.operands.count; ++k) {
      asked.push_back(to_factors(mesh_, rule, rule.operand(k), completed_of(n.operands[k]).splits));
      if (rule.uniform) agree = agree && asked[k + 1] == asked[0];
    }
    if (rule.uniform && agree) return plan_of(n, rule, asked[0], held);

    use_search::axis_factors first(mesh_.axis_count(), std::int8_t{-1});
    for (int t = asked.count - 1; t >= 0; --t)
      for (const auto& use : asked[t])
        if (rule.factors[use.dim].kind != factor_kind::gathered) first[use.axis] = use.dim;
    use_search search(mesh_, rule, asked);
    use_plan best = plan_of(n, rule, search.assemble(first), held);
    auto best_bytes = cost_of(i, n, best);
    if (best_bytes == 0) return best;
    search.know(tensors_of(i, n, rule));
    best_bytes += weight_of(search.work_of(best.uses));
    const auto wishes = later_wishes(i, n);
    std::int64_t most_saved = 0;
    for (const auto& wish : wishes) most_saved += wish.bytes;
    best_bytes += most_saved - saved(n, best, wishes);
    auto best_memory = search.memory_of(best.uses);
    search.run(best_bytes, [&](const factor_splits& uses, std::int64_t memory) {
      if (uses == best.uses) return best_bytes;
      const use_plan trial = plan_of(n, rule, uses, held);
      const auto bytes = cost_of(i, n, trial) + weight_of(search.work_of(uses)) + most_saved - saved(n, trial, wishes);
      bool better = bytes < best_bytes;
      if (bytes == best_bytes) {
        const int more = messages_of(i, n, trial) - messages_of(i, n, best);
        better = more < 0 || (more == 0 && memory < best_memory);
      }
      if (better) {
        best = trial;
        best_bytes = bytes;
        best_memory = memory;
      }
      return bytes;
    });
    return best;
  }

  [[nodiscard]] constexpr use_search::use_tensors tensors_of(int i, const node& n, const op_rule& rule) const {
    use_search::use_tensors tensors;
    for (int k = 0; k <= n.operands.count; ++k) {
      const bool is_result = k == n.operands.count;
      const int o = is_result ? i : n.operands[k];
      const auto& forms = forms_of(o);
      use_tensor t;
      t.factor_of = use_search::axis_factors(mesh_.axis_count(), std::int8_t{-1});
      const auto know = [&](const sharding& s) {
        t.elems = elements(local_extents(mesh_, shape_of(o), s));
        for (const auto& use : to_factors(mesh_, rule, is_result ? rule.result() : rule.operand(k), s.splits))
          t.factor_of[use.axis] = use.dim;
      };
      bool again = false;  // an operand that stands twice is moved once
      for (int other = 0; other < k && !is_result; ++other) again = again || root_of(n.operands[other]) == root_of(o);
      if (is_result || !forms.empty()) t.elem_bytes = bytes_of(graph_.nodes[static_cast<std::size_t>(o)].type);
      if (is_result) know(completed_of(i));
      else if (forms.size() == 1 && !again && program.value(forms.front()).layout.partial == 0)
        know(program.value(forms.front()).layout);
      else t.elems = elements(shape_of(o));  // no bound
      tensors.push_back(t);
    }
    return tensors;
  }

  static constexpr std::int64_t never = std::int64_t{1} << 60;

  /// What bringing the operands to what they must be sends, and bringing the result to its sharding.
  [[nodiscard]] constexpr std::int64_t cost_of(int i, const node& n, const use_plan& p) const {
    std::int64_t total = 0;
    for (int k = 0; k < n.operands.count; ++k) {
      bool again = false;
      for (int o = 0; o < k; ++o)
        again = again || (root_of(n.operands[o]) == root_of(n.operands[k]) && same_layout(p.wanted[o], p.wanted[k]));
      if (again) continue;
      std::int64_t bytes = 0;
      static_cast<void>(best_form(n.operands[k], p.wanted[k], bytes));
      total += bytes;
    }
    if (n.forbid_reshard && total > 0) total += never;  // only if nothing else is possible: then it is refused
    sharding wanted = completed_of(i);
    wanted.partial = 0;
    return total + reshard_bytes(mesh_, n.shape, p.result, wanted, bytes_of(n.type));
  }

  /// How many collectives that takes.
  [[nodiscard]] constexpr int messages_of(int i, const node& n, const use_plan& p) const {
    int count = 0;
    const auto walk = [&](const extents& shape, sharding from, const sharding& to) {
      for (auto step = next_step(mesh_, shape, from, to); step.what != reshard_step::kind::none;
           step = next_step(mesh_, shape, from, to)) {
        if (step.what != reshard_step::kind::slice) ++count;
        from = step.to;
      }
    };
    for (int k = 0; k < n.operands.count; ++k) {
      std::int64_t bytes = 0;
      const int v = best_form(n.operands[k], p.wanted[k], bytes);
      if (v >= 0) walk(shape_of(n.operands[k]), program.value(v).layout, p.wanted[k]);
    }
    sharding wanted = completed_of(i);
    wanted.partial = 0;
    walk(n.shape, p.result, wanted);
    return count;
  }

  const graph& graph_;
  const mesh_shape& mesh_;
  std::vector<sharding> completed_;        // by node: what completion found, or less where nobody reads more
  std::vector<int> roots_;                 // by node: itself; of a reshard, what it reshards
  std::vector<int> results_;               // by node: the form that a reshard asked for; -1: another operator
  std::vector<std::vector<int>> forms_;    // by root: its local values
  std::vector<std::vector<int>> readers_;  // by node: those that read it; itself if it is an output
  std::vector<int> open_;                  // the nodes that opened the bodies around what is emitted now
  std::vector<int> open_at_;               // where they are in the program
  std::vector<made_form> made_;
  std::vector<int> given_;  // what the open conditionals give
};

}  // namespace gspmd::detail
