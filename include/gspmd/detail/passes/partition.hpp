// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/ops/linear.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/passes/reshard.hpp"

namespace gspmd::detail {

/// Turns a completed graph into the program that every device runs (GSPMD 4.1-4.5).
///
/// For every operator, in order:
/// 1. every mesh axis is given to one factor of the operator's rule, or to none: the use that sends the fewest bytes,
///    among those the shardings of operands and result ask for; ties go to the use that splits the work further;
/// 2. operands are brought to the sharding this needs; a form of a value that was made before is used again;
/// 3. the operator runs on shards. Axes given to a reduction factor leave the result partial;
/// 4. a partial result stays so until a user of it needs the sum (linear operators pass it on).
class partitioner {
 public:
  constexpr partitioner(const graph& g, const mesh_shape& mesh, std::span<const sharding> completed)
      : graph_(g), mesh_(mesh), completed_(completed) {
    forms_.resize(g.nodes.size(), std::vector<int>{});
  }

  constexpr void run() {
    std::vector<std::uint8_t> needed(graph_.nodes.size(), 0);  // what no output depends on is not computed
    users_.resize(graph_.nodes.size(), 0);
    program.results.resize(graph_.nodes.size(), -1);
    for (const int o : graph_.outputs) {
      needed[static_cast<std::size_t>(o)] = 1;
      ++users_[static_cast<std::size_t>(o)];
    }
    for (std::size_t i = graph_.nodes.size(); i-- > 0;) {
      const node& n = graph_.nodes[i];
      if (is_region_result(n.op)) share_need(static_cast<int>(i), needed);
      if (needed[i] != 0 && n.region >= 0) needed[static_cast<std::size_t>(n.region)] = 1;
      if (needed[i] != 0)
        for (const int o : graph_.nodes[i].operands) {
          needed[static_cast<std::size_t>(o)] = 1;
          ++users_[static_cast<std::size_t>(o)];
        }
    }
    for (int i = 0; i < static_cast<int>(graph_.nodes.size()); ++i) {
      const node& n = graph_.nodes[static_cast<std::size_t>(i)];
      if (n.op == opcode::parameter) {
        program.inputs.push_back(add_value(i, completed_of(i)));
        forms_[static_cast<std::size_t>(i)].push_back(program.inputs.back());  // wherever it stands, it is there from the start
        program.results[static_cast<std::size_t>(i)] = program.inputs.back();
      } else if (needed[static_cast<std::size_t>(i)] == 0 || is_source(n)) {
        continue;
      } else if (n.op == opcode::reshard) {
        name_form(i, form_of(n.operands[0], completed_of(i), i));
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
  }

  local_program program;

 private:
  [[nodiscard]] constexpr const sharding& completed_of(int i) const { return completed_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr const extents& shape_of(int i) const { return graph_.nodes[static_cast<std::size_t>(i)].shape; }
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
    forms_[static_cast<std::size_t>(i)].push_back(v);
    auto& first = program.results[static_cast<std::size_t>(i)];
    if (first < 0) first = v;
    if (!open_.empty()) note_form(i, v);
  }

  /// The cheapest form of a node's value to start from; -1 for constants and iotas, which are made in any sharding.
  [[nodiscard]] constexpr int best_form(int i, const sharding& wanted, std::int64_t& bytes) const {
    int best = -1;
    bytes = 0;
    const auto& forms = forms_[static_cast<std::size_t>(i)];
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
    return best;
  }

  /// The local value of node `i` under `wanted`; emits what it takes to get it, for the sake of node `user`.
  constexpr int form_of(int i, const sharding& wanted, int user, bool forced = false, bool for_output = false) {
    std::int64_t bytes = 0;
    int v = best_form(i, wanted, bytes);
    const int level = level_of(i);
    if (v < 0) {
      local_op op;
      op.node = i;
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

  // ---- loops and conditionals ----
  //
  // A carried value has one sharding, that of its carry node: it is brought to it before the loop and at the end of the body.
  // What a body needs of a value from outside is made before the loop; a conditional makes it where it is needed, and what
  // was made in a body is not there after it.

  /// At how many of the open bodies' depth a form of node `i` is made now.
  [[nodiscard]] constexpr int level_of(int i) const {
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
  constexpr void let_sum_wait(int i, const node& n, const factor_splits& uses,
                              const inline_vec<sharding, max_map_arity>& wanted) {
    if (n.op != opcode::add || users_[static_cast<std::size_t>(i)] != 1) return;
    for (int k = 0; k < 2; ++k) {
      const int carry = n.operands[k];
      const int added = n.operands[1 - k];
      if (at(carry).op != opcode::carry || at(carry).region != open_.back() || users_[static_cast<std::size_t>(carry)] != 2)
        continue;
      const node& init = at(at(carry).operands[0]);
      if (init.op != opcode::constant || init.real != 0 || init.integer != 0) continue;
      bool is_next = false;
      for (int r = i + 1; r < static_cast<int>(graph_.nodes.size()) && !is_next; ++r)
        is_next = at(r).op == opcode::loop_result && at(r).operands[0] == carry && at(r).operands[1] == i;
      const auto& forms = forms_[static_cast<std::size_t>(added)];
      if (!is_next || forms.empty() || users_[static_cast<std::size_t>(added)] != 1) continue;
      for (const int v : forms)
        if (program.value(v).layout.partial == 0) return;
      const sharding from = program.value(forms.back()).layout;
      axis_mask used = 0;
      for (const auto& use : uses) used |= axis_bit(use.axis);
      auto& layout = program.values[static_cast<std::size_t>(forms_[static_cast<std::size_t>(carry)].front())].layout;
      if (from.kind != monoid::add || (from.partial & used) != 0 || !(layout.splits == wanted[k].splits)) continue;
      layout.partial = from.partial;
      layout.kind = monoid::add;
      return;
    }
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
    const factor_splits uses = choose(i, n, rule);

    inline_vec<sharding, max_map_arity> wanted;
    for (int k = 0; k < n.operands.count; ++k) {
      sharding s;
      s.splits = to_dims(mesh_, rule, rule.operand(k), uses);
      wanted.push_back(s);
    }
    sharding result;
    result.splits = to_dims(mesh_, rule, rule.result(), uses);
    result.kind = rule.kind;
    for (const auto& use : uses)
      if (rule.factors[use.dim].kind == factor_kind::reduction) result.partial |= axis_bit(use.axis);
    if (!open_.empty()) let_sum_wait(i, n, uses, wanted);
    pass_partial(n, uses, wanted, result);

    local_op op;
    op.node = i;
    for (int k = 0; k < n.operands.count; ++k)
      op.operands.push_back(form_of(n.operands[k], wanted[k], i, loses_a_split(n, rule, k, wanted[k])));
    op.result = add_form(i, result);
    program.ops.push_back(op);
  }

  /// True when the operator cannot keep a split that its operand was to have, whatever it would cost.
  [[nodiscard]] constexpr bool loses_a_split(const node& n, const op_rule& rule, int k, const sharding& wanted) const {
    if (rule.uniform) return false;
    const sharding& had = completed_of(n.operands[k]);
    const auto kept = to_dims(mesh_, rule, rule.operand(k), legal(rule, to_factors(mesh_, rule, rule.operand(k), had.splits)));
    return !(kept == had.splits) && (had.split_axes() & ~wanted.split_axes()) != 0;
  }

  /// Lets operands stay partial where the operator is linear in them and the sum is no smaller before than after it.
  constexpr void pass_partial(const node& n, const factor_splits& uses, inline_vec<sharding, max_map_arity>& wanted,
                              sharding& result) const {
    axis_mask used = 0;
    for (const auto& use : uses) used |= axis_bit(use.axis);
    inline_vec<sharding, max_map_arity> held;  // the form that operand k has now
    for (int k = 0; k < n.operands.count; ++k) {
      sharding s;
      const auto& forms = forms_[static_cast<std::size_t>(n.operands[k])];
      bool has_whole =
          forms.empty() || level_of(n.operands[k]) < static_cast<int>(open_.size());  // reduced once, before the loop
      for (const int v : forms) has_whole = has_whole || program.value(v).layout.partial == 0;
      if (!has_whole) s = program.value(forms.back()).layout;
      held.push_back(s);
    }
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
        if (after == before && users_[static_cast<std::size_t>(n.operands[k])] > 1) continue;
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

  /// Keeps the uses that every tensor with the factor can express; gathered factors are not split.
  [[nodiscard]] constexpr factor_splits legal(const op_rule& rule, factor_splits uses) const {
    if (rule.uniform) return uses;
    for (int at = uses.count - 1; at >= 0; --at) {
      bool fits = rule.factors[uses[at].dim].kind != factor_kind::gathered;
      for (int m = 0; m < rule.maps.count && fits; ++m) {
        if (!rule.maps[m].holds(uses[at].dim)) continue;
        const auto back = to_factors(mesh_, rule, rule.maps[m], to_dims(mesh_, rule, rule.maps[m], uses));
        bool found = false;
        for (const auto& use : back) found = found || use == uses[at];
        fits = found;
      }
      if (fits) continue;
      for (int i = at; i + 1 < uses.count; ++i) uses[i] = uses[i + 1];
      uses.pop_back();
      at = uses.count;  // what was minor to it may not fit any more
    }
    return uses;
  }

  /// The use of every mesh axis by a factor of the rule that sends the fewest bytes.
  [[nodiscard]] constexpr factor_splits choose(int i, const node& n, const op_rule& rule) const {
    inline_vec<factor_splits, max_map_arity + 1> asked;  // the result's wish, then the operands', larger first
    asked.push_back(to_factors(mesh_, rule, rule.result(), completed_of(i).splits));
    bool agree = true;
    for (int k = 0; k < n.operands.count; ++k) {
      asked.push_back(to_factors(mesh_, rule, rule.operand(k), completed_of(n.operands[k]).splits));
      if (rule.uniform) agree = agree && asked[k + 1] == asked[0];
    }
    if (rule.uniform && agree) return asked[0];

    // What each axis may be used for: -1 is nothing.
    inline_vec<inline_vec<std::int8_t, max_map_arity + 2>, max_axes> options;
    for (int a = 0; a < mesh_.axis_count(); ++a) {
      inline_vec<std::int8_t, max_map_arity + 2> list;
      for (const auto& splits : asked)
        for (const auto& use : splits) {
          if (use.axis != a || rule.factors[use.dim].kind == factor_kind::gathered) continue;
          bool known = false;
          for (const auto f : list) known = known || f == use.dim;
          if (!known) list.push_back(use.dim);
        }
      options.push_back(list);
    }
    inline_vec<std::int8_t, max_axes> chosen;
    bool open = false;
    for (int a = 0; a < mesh_.axis_count(); ++a) {
      const auto& list = options[a];
      chosen.push_back(list.empty() ? std::int8_t{-1} : list[0]);
      if (list.empty()) continue;
      // Nothing to decide when every tensor with the factor asks for it, and no other tensor uses the axis otherwise.
      bool settled = list.count == 1;
      for (int t = 0; t < asked.count && settled; ++t) {
        const tensor_map& map = t == 0 ? rule.result() : rule.operand(t - 1);
        bool asks = false;
        for (const auto& use : asked[t]) asks = asks || (use.axis == a && use.dim == list[0]);
        settled = asks == map.holds(list[0]);
      }
      if (!settled) {
        options[a].push_back(-1);
        open = true;
      }
    }
    factor_splits best = assemble(rule, asked, chosen);
    if (!open) return best;
    auto best_cost = cost_of(i, n, rule, best);
    for (int pass = 0; pass < 2; ++pass) {
      bool improved = false;
      for (int a = 0; a < mesh_.axis_count(); ++a) {
        if (options[a].count < 2) continue;
        for (const auto f : options[a]) {
          auto trial = chosen;
          if (trial[a] == f) continue;
          trial[a] = f;
          const auto uses = assemble(rule, asked, trial);
          const auto cost = cost_of(i, n, rule, uses);
          if (cost < best_cost || (cost == best_cost && devices_used(uses) > devices_used(best))) {
            best = uses;
            best_cost = cost;
            chosen = trial;
            improved = true;
          }
        }
      }
      if (!improved) break;
    }
    return best;
  }

  [[nodiscard]] constexpr std::int64_t devices_used(const factor_splits& uses) const {
    std::int64_t n = 1;
    for (const auto& use : uses) n *= mesh_.sizes[use.axis];
    return n;
  }

  /// The splits in which every axis has its chosen factor, ordered as the first tensor that asks for it orders them.
  [[nodiscard]] constexpr factor_splits assemble(const op_rule& rule, const inline_vec<factor_splits, max_map_arity + 1>& asked,
                                                 const inline_vec<std::int8_t, max_axes>& chosen) const {
    factor_splits uses;
    axis_mask done = 0;
    for (const auto& splits : asked)
      for (const auto& use : splits) {
        if (chosen[use.axis] != use.dim || (done & axis_bit(use.axis)) != 0) continue;
        done |= axis_bit(use.axis);
        add_factor_split(uses, use.axis, use.dim);
      }
    return legal(rule, uses);
  }

  /// What bringing the operands to these uses sends, and bringing the result to its sharding.
  [[nodiscard]] constexpr std::int64_t cost_of(int i, const node& n, const op_rule& rule, const factor_splits& uses) const {
    std::int64_t total = 0;
    for (int k = 0; k < n.operands.count; ++k) {
      sharding wanted;
      wanted.splits = to_dims(mesh_, rule, rule.operand(k), uses);
      std::int64_t bytes = 0;
      static_cast<void>(best_form(n.operands[k], wanted, bytes));
      total += bytes;
    }
    sharding result;
    result.splits = to_dims(mesh_, rule, rule.result(), uses);
    result.kind = rule.kind;
    for (const auto& use : uses)
      if (rule.factors[use.dim].kind == factor_kind::reduction) result.partial |= axis_bit(use.axis);
    sharding wanted = completed_of(i);
    wanted.partial = 0;
    return total + reshard_bytes(mesh_, n.shape, result, wanted, bytes_of(n.type));
  }

  const graph& graph_;
  const mesh_shape& mesh_;
  std::span<const sharding> completed_;
  std::vector<std::vector<int>> forms_;  // by node: its local values
  std::vector<int> open_;                // the nodes that opened the bodies around what is emitted now
  std::vector<int> open_at_;             // where they are in the program
  std::vector<made_form> made_;
  std::vector<int> given_;  // what the open conditionals give
  std::vector<int> users_;  // by node: how many read it, outputs included
};

}  // namespace gspmd::detail
