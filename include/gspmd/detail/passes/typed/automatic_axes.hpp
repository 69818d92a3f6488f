// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include "gspmd/detail/passes/list/make_plan.hpp"
#include "gspmd/detail/passes/rewrite/canonical.hpp"
#include "gspmd/detail/passes/typed/joint_program.hpp"
#include "gspmd/detail/support/precompiled.hpp"

namespace gspmd::detail {

/// Writes the plan of the automatic axes into a program whose explicit axes are typed. Each value gets the layout of
/// its type and of that plan. Each message of the plan becomes a reshard. The result is typed along all axes and is
/// planned as such.
///
/// The plan is visited as choose made it (form_walk.hpp), and each form becomes a node. The plan sends nothing along
/// explicit axes. So in two cases an operator works on values that are whole along the automatic axes. In the first
/// case, an automatic axis would cut the parts of explicit axes unevenly. In the second case, the factors of a dim do
/// not allow splits by both kinds of axes.
class automatic_writer {
 public:
  constexpr automatic_writer(const graph& typed, const along_automatic& along, const choice_table& table)
      : typed_(typed),
        along_(along),
        mesh_(typed.mesh->shape),
        out_(typed, along),
        by_types_(along_types(*typed.mesh)),
        table_(table),
        book_(along.program),
        walk_(along.program, out_.seen, 0, book_, given_, *this) {
    book_.as_written = table.as_written;
  }

  constexpr graph run() {
    const graph& g = along_.program;
    const value_uses uses = uses_of(g);
    for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i)
      if (chooser::is_visited(g, uses, i)) walk_.visit(i);
    for (std::size_t k = 0; k < g.outputs.size(); ++k) {
      const int o = g.outputs[k], form = walk_.bring(o, table_.outputs[k], {o, false, true});
      out_.tag = typed_of(o).tag;
      out_.made.outputs.push_back(out_.brought(node_of_[form], out_.lies(along_.typed[o], table_.outputs[k]), typed_of(o).at));
    }
    for (const auto& also : typed_.also_tagged)
      if (out_.number[also.node] >= 0) out_.made.also_tagged.push_back({also.tag, out_.number[also.node]});
    return canonical_order(out_.made);
  }

  // ---- queries of form_walk ----
  constexpr const sharding& layout_of(int i) const { return table_.nodes[i].result; }
  constexpr const node_choice& choice_for(int i) {
    moved_.clear();
    return *(choice_ = &table_.nodes[i]);
  }
  constexpr const sharding& wanted(int i, int k) const { return table_.wanted[table_.nodes[i].wanted + k]; }
  constexpr const reshard_path& next_path(int, const sharding&) { return table_.paths[next_path_++]; }
  constexpr const reshard_step& step(const reshard_path& way, int k) const { return table_.steps[way.step + k]; }

  // ---- results of the walk, with the numbers of forms ----
  constexpr void input(int i, int form) {
    const int id = out_.clone(along_.typed[i], out_.lies(along_.typed[i], book_.layout_of(form)), -1);
    keep(form, id);
    out_.made.inputs.push_back(id);
  }
  constexpr void named(int, int) {}
  constexpr void renamed(int i, int form) {
    out_.number[along_.typed[i]] = node_of_[form];
    if (const int tag = typed_of(i).tag; tag >= 0) out_.made.also_tagged.push_back({tag, node_of_[form]});
  }
  constexpr void made_with_last(int i, int form) { keep(form, out_.number[along_.typed[i]]); }
  constexpr void made(int root, int operand, int form, int level) {
    const int t = along_.typed[root], before = out_.region;
    out_.tag = typed_.nodes[t].tag;
    out_.region = region_at(level);
    if (operand < 0) {
      keep(form, out_.clone(t, out_.lies(t, book_.layout_of(form)), out_.region));
    } else {
      const inline_vec<int, max_map_arity> operands{operand};
      const inline_vec<sharding, max_map_arity> along{book_.layout_of(operand)};
      keep(form, computed(root, operands, along, book_.layout_of(form)));
    }
    out_.region = before;
  }
  constexpr void moved(const purpose& why, int from, const reshard_step& step, int form, int level) {
    const int before = out_.region;
    out_.region = region_at(level);
    const int x = node_of_[from];
    out_.tag = typed_of(why.user).tag;
    keep(form, out_.brought(x, put_behind(mesh_, out_.at(x).shape, out_.by_types(x), step.to), typed_of(why.user).at));
    out_.region = before;
  }
  constexpr void ran(int i, const node_choice& choice, const inline_vec<int, max_map_arity>& operands, int form) {
    out_.region = region_at(book_.depth());
    out_.tag = typed_of(i).tag;
    inline_vec<sharding, max_map_arity> along;
    for (int k = 0; k < operands.count; ++k) along.push_back(wanted(i, k));
    keep(form, is_explicit_change(along_.program.nodes[i]) ? changed(i, operands[0], along[0])
                                                           : computed(i, operands, along, choice.result));
  }
  constexpr void ran_movement(int i, int k, int operand, int, int form) {
    moved_.push_back(operand);
    if (k + 1 == movements_of(along_.program.nodes[i], choice_->moved)) ran(i, *choice_, moved_, form);
  }
  constexpr void copied(int user, int from, int to) {
    out_.region = region_at(book_.depth());
    const int t = along_.typed[user];
    out_.tag = typed_of(user).tag;
    copies_.push_back({user, out_.brought(node_of_[from], out_.lies(t, book_.layout_of(to)), typed_of(user).at), to});
  }
  constexpr void opens(int i, int operand, int form) {
    const int t = along_.typed[i];
    node n = typed_.nodes[t];
    out_.region = region_at(book_.depth() - 1);
    out_.tag = n.tag;
    n.operands.clear();
    if (operand >= 0) n.operands.push_back(out_.brought(node_of_[operand], {}, n.at));
    else if (n.op == opcode::otherwise) n.operands.push_back(out_.number[typed_.nodes[t].operands[0]]);
    const int id = out_.number[t] = out_.push(n, {}, out_.region);
    if (form >= 0) keep(form, id);
    for (std::size_t k = 0; k < copies_.size(); ++k) {
      if (along_.program.nodes[copies_[k].user].op != opcode::carry || along_.program.nodes[copies_[k].user].region != i)
        continue;
      const int carry = along_.typed[copies_[k].user];
      node c = typed_.nodes[carry];
      c.operands[0] = copies_[k].node;
      keep(copies_[k].to, out_.number[carry] = out_.push(c, out_.lies(carry, book_.layout_of(copies_[k].to)), id));
    }
    open_.push_back(id);
  }
  constexpr void ends(int i) {
    const bool is_loop = along_.program.nodes[i].op == opcode::loop_result;
    const int start = along_.program.nodes[along_.program.nodes[i].operands[0]].region;
    for (int k = i;
         is_result_of(along_.program, k, along_.program.nodes[i].op, is_loop ? start : along_.program.nodes[i].operands[0]);
         ++k) {
      const int t = along_.typed[k];
      node n = typed_.nodes[t];
      const int first = n.operands[0];
      n.operands.clear();
      n.operands.push_back(out_.number[first]);
      int to = -1;
      for (const auto& c : copies_)
        if (c.user == k) {
          n.operands.push_back(c.node);
          to = c.to;
        }
      keep(to, out_.number[t] = out_.push(n, out_.lies(t, book_.layout_of(to)), region_at(book_.depth() - 1)));
    }
  }
  constexpr void closes() { open_.pop_back(); }

 private:
  struct copy {
    int user, node, to;  // a node of the walk, an added node, a form
  };
  using places = inline_vec<int, max_map_arity>;
  using layouts_of = inline_vec<sharding, max_map_arity>;

  [[nodiscard]] constexpr const node& typed_of(int i) const { return typed_.nodes[along_.typed[i]]; }
  [[nodiscard]] constexpr int region_at(int level) const { return level == 0 ? -1 : open_[static_cast<std::size_t>(level) - 1]; }
  constexpr void keep(int form, int x) {
    if (static_cast<std::size_t>(form) >= node_of_.size()) node_of_.resize(static_cast<std::size_t>(form) + 1, -1);
    node_of_[form] = x;
  }
  /// Adds a reshard along explicit axes. `along` splits no dim that these axes move.
  constexpr int changed(int i, int operand, const sharding& along) {
    const int t = along_.typed[i];
    node n = typed_.nodes[t];
    const int x = out_.brought(node_of_[operand], out_.lies(n.operands[0], along), n.at);
    const auto steps = n.attributes;
    n.operands[0] = x;
    make_reshard(n);
    n.attributes = steps;
    return out_.number[t] = out_.push(n, out_.lies(t, part_along(out_.at(x).annotation.layout, out_.automatic)), out_.region);
  }

  // ---- operators ----

  /// Adds an operator with its further results. `along`, `result`: the layouts of its operands and its result along
  /// automatic axes.
  constexpr int computed(int i, const places& forms, const layouts_of& along, const sharding& result) {
    const int t = along_.typed[i];
    node n = typed_.nodes[t];
    op_rule rule;
    rule_of(typed_, n, rule);
    factor_splits uses;
    for (int k = 0; k < forms.count; ++k) add_uses(by_types_, rule, k, along_.by_types(n.operands[k]).splits, uses);
    layouts_of typed, wanted;
    for (int k = 0; k < forms.count; ++k) {
      sharding s = along_.by_types(n.operands[k]);
      if (forms.count == n.operands.count) s.splits = to_dims(by_types_, rule, rule.operand(k), uses);
      typed.push_back(s);
      wanted.push_back(put_behind(mesh_, out_.at(node_of_[forms[k]]).shape, s, along[k]));
    }
    sharding made = out_.lies(t, result);
    const bool fits =
        forms.count == n.operands.count && choice_fits(i, rule, wanted, made) && has_one_sum(wanted, along, result, t);
    if (!fits) {
      wanted = typed;
      made = along_.by_types(t);
    }
    out_.is_forced = !fits || !keeps_splits(wanted, along);
    for (int k = 0; k < forms.count; ++k) n.operands[k] = out_.brought(node_of_[forms[k]], wanted[k], n.at);
    out_.is_forced = false;
    const int id = out_.number[t] = out_.push(n, made, out_.region);
    for (int r = 1; r < n.results; ++r) {
      node more = typed_.nodes[t + r];
      more.operands[0] = id;
      out_.number[t + r] =
          out_.push(more, fits ? out_.lies(t + r, table_.nodes[i + r].result) : along_.by_types(t + r), out_.region);
    }
    return id;
  }
  static constexpr void add_uses(const mesh_shape& mesh, const op_rule& rule, int k, const inline_vec<axis_use, max_axes>& splits,
                                 factor_splits& uses) {
    for (const auto& f : to_factors(mesh, rule, rule.operand(k), splits)) {
      bool is_there = false;
      for (const auto& u : uses) is_there = is_there || u.axis == f.axis;
      if (!is_there) add_factor_split(uses, f.axis, f.dim);
    }
  }
  /// Returns true if an operator with these operands has that result on the mesh of all axes, as typed programs are
  /// planned.
  [[nodiscard]] constexpr bool choice_fits(int i, const op_rule& rule, const layouts_of& wanted, const sharding& result) const {
    if (facts_of(typed_of(i).op).made == origin::viewed) return crosses_alike(i, wanted[0], result);
    factor_splits uses;
    for (int k = 0; k < wanted.count; ++k) add_uses(mesh_, rule, k, wanted[k].splits, uses);
    for (int k = 0; k < wanted.count; ++k)
      if (!(to_dims(mesh_, rule, rule.operand(k), uses) == wanted[k].splits)) return false;
    sharding found;
    found.splits = to_dims(mesh_, rule, rule.result(), uses);
    if (!(part_along(found, out_.automatic).splits == part_along(result, out_.automatic).splits)) return false;
    return is_sum_of(rule, uses, wanted, 0, result) && are_sums_of(i, rule, uses, wanted);
  }
  /// Returns true if result `r` is partial along exactly those automatic axes that split a reduced factor, or along
  /// which an operand is partial.
  [[nodiscard]] constexpr bool is_sum_of(const op_rule& rule, const factor_splits& uses, const layouts_of& wanted, int r,
                                         const sharding& result) const {
    axis_mask axes = 0;
    for (const auto& use : uses)
      if (rule.leaves_partial(use.dim, r)) axes |= axis_bit(use.axis);
    for (const auto& operand : wanted) axes |= operand.partial;
    return ((axes ^ result.partial) & out_.automatic) == 0;
  }
  [[nodiscard]] constexpr bool are_sums_of(int i, const op_rule& rule, const factor_splits& uses,
                                           const layouts_of& wanted) const {
    bool all = true;
    for (int r = 1; r < typed_of(i).results; ++r) all = all && is_sum_of(rule, uses, wanted, r, table_.nodes[i + r].result);
    return all;
  }
  /// Returns true if the automatic axes split both sides of the border of a manual region in the same way.
  [[nodiscard]] constexpr bool crosses_alike(int i, const sharding& operand, const sharding& result) const {
    op_rule rule;
    rule_of(along_.program, along_.program.nodes[i], rule);
    const auto before = part_along(operand, out_.automatic).splits, after = part_along(result, out_.automatic).splits;
    const auto uses = to_factors(out_.seen, rule, rule.operand(0), before);
    return uses.count == before.count && to_dims(out_.seen, rule, rule.result(), uses) == after;
  }
  /// Returns true if all automatic splits are kept next to the explicit splits of their dims.
  [[nodiscard]] constexpr bool keeps_splits(const layouts_of& wanted, const layouts_of& along) const {
    bool all = true;
    for (int k = 0; k < wanted.count; ++k) all = all && part_along(wanted[k], out_.automatic).splits == along[k].splits;
    return all;
  }
  /// Returns true if values that are partial along both kinds of axes have one monoid.
  [[nodiscard]] constexpr bool has_one_sum(const layouts_of& wanted, const layouts_of& along, const sharding& result,
                                           int t) const {
    const auto is_one = [&](const sharding& typed, const sharding& other) {
      return typed.partial == 0 || other.partial == 0 || typed.reduced_by == other.reduced_by;
    };
    bool all = is_one(along_.by_types(t), result);
    for (int k = 0; k < wanted.count; ++k) all = all && is_one(part_along(wanted[k], ~out_.automatic), along[k]);
    return all;
  }

  const graph& typed_;
  const along_automatic& along_;
  const mesh_shape& mesh_;
  joint_program out_;
  mesh_shape by_types_;  // the mesh as types see it
  const choice_table& table_;
  form_book book_;
  vec<int> given_;
  form_walk<automatic_writer> walk_;
  int next_path_ = 0;
  vec<int> node_of_;  // by form
  vec<int> open_;     // the nodes that opened the bodies around this point
  vec<copy> copies_;
  const node_choice* choice_ = nullptr;
  places moved_;
};

/// Returns the program of the explicit axes with a plan for the automatic axes, or with the error of that plan.
template <class Before>
constexpr graph with_automatic_plan(const graph& typed, const along_automatic& along, const Before& before) {
  const mistake broken = before.template of<refuse_pass>();
  if (broken == mistake::none)
    return automatic_writer(typed, along, before.template of<typename Before::chosen_by>().best.table).run();
  graph made = typed;
  made.error = refuse_pass::why(before);
  made.broken = broken;
  return made;
}

template <class = once>
void plan_automatic_axes_at_run_time(graph& g);

/// Plans the automatic axes, if any, of a program whose types are recorded. During compilation modes/explicit_axes.hpp
/// does that, because it may take longer than one evaluation.
constexpr void plan_automatic_axes(graph& g) {
  if (g.mesh->automatic_axes != 0 && !__builtin_is_constant_evaluated()) plan_automatic_axes_at_run_time(g);
}

}  // namespace gspmd::detail

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/passes/typed/automatic_axes.ipp"
#endif
