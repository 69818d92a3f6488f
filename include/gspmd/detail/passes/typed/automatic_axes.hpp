// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include "gspmd/detail/passes/canonical.hpp"
#include "gspmd/detail/passes/make_plan.hpp"
#include "gspmd/detail/passes/typed/along_automatic.hpp"
#include "gspmd/detail/passes/typed/value_type.hpp"

namespace gspmd::detail {

/// Writes the plan of the automatic axes into a program whose explicit axes are typed: every value lies as its type and that plan say, and what
/// the plan sends is a reshard of its own. It is a program then that is typed along all axes, and planned as such.
///
/// The plan is gone through as choose made it (form_walk.hpp); of each form there is a node. Along explicit axes nothing is sent for it, so
/// where an automatic axis would cut what explicit ones leave unevenly, or the factors of a dim give no way to put both on it, an operator
/// works on what is whole along the automatic axes.
class automatic_writer {
 public:
  constexpr automatic_writer(const graph& typed, const along_automatic& along, const choice_table& table)
      : typed_(typed),
        along_(along),
        mesh_(typed.mesh->shape),
        seen_(without_explicit_axes(mesh_)),
        by_types_(along_types(mesh_)),
        automatic_(mesh_.automatic_axes),
        table_(table),
        book_(along.program),
        walk_(along.program, seen_, book_, given_, *this),
        made_(typed.without_nodes()) {
    number_.resize(typed.nodes.size(), -1);
    book_.as_written = table.as_written;
  }

  constexpr graph run() {
    const graph& g = along_.program;
    const value_uses uses = uses_of(g);
    for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i)
      if (chooser::is_visited(g, uses, i)) walk_.visit(i);
    for (std::size_t k = 0; k < g.outputs.size(); ++k) {
      const int o = g.outputs[k], form = walk_.bring(o, table_.outputs[k], {o, false, true});
      tag_ = typed_of(o).tag;
      made_.outputs.push_back(brought(node_of_[form], lies(along_.typed[o], table_.outputs[k]), typed_of(o).at));
    }
    for (const auto& also : typed_.also_tagged)
      if (number_[also.node] >= 0) made_.also_tagged.push_back({also.tag, number_[also.node]});
    return canonical_order(made_);
  }

  // ---- what form_walk asks ----
  constexpr const sharding& layout_of(int i) const { return table_.nodes[i].result; }
  constexpr const node_choice& choice_for(int i) {
    moved_.clear();
    return *(choice_ = &table_.nodes[i]);
  }
  constexpr const sharding& wanted(int i, int k) const { return table_.wanted[table_.nodes[i].wanted + k]; }
  constexpr const reshard_path& next_path(int, const sharding&) { return table_.paths[next_path_++]; }
  constexpr const reshard_step& step(const reshard_path& way, int k) const { return table_.steps[way.step + k]; }

  // ---- what the walk makes, with the numbers of forms ----
  constexpr void input(int i, int form) {
    const int id = clone(along_.typed[i], lies(along_.typed[i], book_.layout_of(form)), -1);
    keep(form, id);
    made_.inputs.push_back(id);
  }
  constexpr void named(int, int) {}
  constexpr void renamed(int i, int form) {
    number_[along_.typed[i]] = node_of_[form];
    if (const int tag = typed_of(i).tag; tag >= 0) made_.also_tagged.push_back({tag, node_of_[form]});
  }
  constexpr void made_with_last(int i, int form) { keep(form, number_[along_.typed[i]]); }
  constexpr void made(int root, int operand, int form, int level) {
    const int t = along_.typed[root], before = region_;
    tag_ = typed_.nodes[t].tag;
    region_ = region_at(level);
    if (operand < 0) {
      keep(form, clone(t, lies(t, book_.layout_of(form)), region_));
    } else {
      const inline_vec<int, max_map_arity> operands{operand};
      const inline_vec<sharding, max_map_arity> along{book_.layout_of(operand)};
      keep(form, computed(root, operands, along, book_.layout_of(form)));
    }
    region_ = before;
  }
  constexpr void moved(const purpose& why, int from, const reshard_step& step, int form, int level) {
    const int before = region_;
    region_ = region_at(level);
    const int x = node_of_[from];
    tag_ = typed_of(why.user).tag;
    keep(form, brought(x, put_behind(mesh_, at(x).shape, by_types(x), step.to), typed_of(why.user).at));
    region_ = before;
  }
  constexpr void ran(int i, const node_choice& choice, const inline_vec<int, max_map_arity>& operands, int form) {
    region_ = region_at(book_.depth());
    tag_ = typed_of(i).tag;
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
    region_ = region_at(book_.depth());
    const int t = along_.typed[user];
    tag_ = typed_of(user).tag;
    copies_.push_back({user, brought(node_of_[from], lies(t, book_.layout_of(to)), typed_of(user).at), to});
  }
  constexpr void opens(int i, int operand, int form) {
    const int t = along_.typed[i];
    node n = typed_.nodes[t];
    region_ = region_at(book_.depth() - 1);
    tag_ = n.tag;
    n.operands.clear();
    if (operand >= 0) n.operands.push_back(brought(node_of_[operand], {}, n.at));
    else if (n.op == opcode::otherwise) n.operands.push_back(number_[typed_.nodes[t].operands[0]]);
    const int id = number_[t] = push(n, {}, region_);
    if (form >= 0) keep(form, id);
    for (std::size_t k = 0; k < copies_.size(); ++k) {
      if (along_.program.nodes[copies_[k].user].op != opcode::carry || along_.program.nodes[copies_[k].user].region != i)
        continue;
      const int carry = along_.typed[copies_[k].user];
      node c = typed_.nodes[carry];
      c.operands[0] = copies_[k].node;
      keep(copies_[k].to, number_[carry] = push(c, lies(carry, book_.layout_of(copies_[k].to)), id));
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
      n.operands.push_back(number_[first]);
      int to = -1;
      for (const auto& c : copies_)
        if (c.user == k) {
          n.operands.push_back(c.node);
          to = c.to;
        }
      keep(to, number_[t] = push(n, lies(t, book_.layout_of(to)), region_at(book_.depth() - 1)));
    }
  }
  constexpr void closes() { open_.pop_back(); }

 private:
  struct copy {
    int user, node, to;  // a node of the walk, one that is made, a form
  };
  using places = inline_vec<int, max_map_arity>;
  using layouts_of = inline_vec<sharding, max_map_arity>;

  [[nodiscard]] constexpr const node& at(int x) const { return made_.nodes[static_cast<std::size_t>(x)]; }
  [[nodiscard]] constexpr const node& typed_of(int i) const { return typed_.nodes[along_.typed[i]]; }
  [[nodiscard]] constexpr int region_at(int level) const { return level == 0 ? -1 : open_[static_cast<std::size_t>(level) - 1]; }
  constexpr void keep(int form, int x) {
    if (static_cast<std::size_t>(form) >= node_of_.size()) node_of_.resize(static_cast<std::size_t>(form) + 1, -1);
    node_of_[form] = x;
  }
  /// How a value that was made lies by its type.
  [[nodiscard]] constexpr sharding by_types(int x) const { return part_along(at(x).annotation.layout, ~automatic_); }
  [[nodiscard]] constexpr sharding layout_at(int x) const { return at(x).annotation.layout.planned(); }
  /// How node `t` of the typed program lies where the automatic axes have it so.
  [[nodiscard]] constexpr sharding lies(int t, const sharding& along) const {
    return put_behind(mesh_, typed_.nodes[t].shape, along_.by_types(t), along);
  }
  constexpr int push(node n, const sharding& layout, int region) {
    const axis_mask varying = n.annotation.layout.varying;
    n.annotated = true;
    n.annotation = layout;
    n.annotation.layout.varying = varying;
    n.region = region;
    made_.nodes.push_back(n);
    return static_cast<int>(made_.nodes.size()) - 1;
  }
  constexpr int clone(int t, const sharding& layout, int region) { return number_[t] = push(typed_.nodes[t], layout, region); }

  // ---- reshards ----

  /// Adds the identity on `x` by one step, in the region that is open.
  constexpr int stepped(int x, const written_step& step, const sharding& to, location where) {
    node n;
    n.type = at(x).type;
    n.shape = at(x).shape;
    n.at = where;
    n.operands.push_back(x);
    make_reshard(n);
    n.local_axes = at(x).local_axes;
    n.annotation.layout.varying = at(x).annotation.layout.varying;
    n.in_gradient = at(x).in_gradient;
    n.tag = tag_;
    n.scope = at(x).scope;
    step.keep(n);
    return push(n, to, region_);
  }
  /// Brings a value to a layout: along automatic axes by a way that they alone go, and along explicit axes by keeping parts of equal data,
  /// for which the automatic ones make way.
  constexpr int brought(int x, const sharding& to, location where) {
    if (layout_at(x) == to) return x;
    for (const auto& known : brought_)
      if (known.from == x && known.region == region_ && layout_at(known.is) == to) return known.is;
    const int from = x;
    if (facts_of(at(x).op).made == origin::source) {
      node again = at(x);
      sharding whole = to;
      whole.partial = 0;
      x = push(again, whole, region_);
    } else {
      const sharding is = by_types(x), wanted = part_along(to, ~automatic_);
      if (!(is.splits == wanted.splits)) {
        sharding rest = part_along(at(x).annotation.layout, automatic_);
        for (int k = rest.splits.count - 1; k >= 0; --k)
          if (const int d = rest.splits[k].dim; is.axes_of(d) != wanted.axes_of(d)) {
            for (int j = k; j + 1 < rest.splits.count; ++j) rest.splits[j] = rest.splits[j + 1];
            rest.splits.pop_back();
          }
        x = sent(x, rest, where);
        x = stepped(x, {device_action::keep_own, wanted.split_axes() & ~is.split_axes()},
                    put_behind(mesh_, at(x).shape, wanted, rest), where);
      }
      x = sent(x, part_along(to, automatic_), where);
    }
    brought_.push_back({from, x, region_});
    return x;
  }
  /// Brings a value to a layout along the automatic axes. Of steps on the way to it none may cut unevenly what explicit axes leave: then it
  /// is added up where it lies, and sent at once. What is whole, as an operator worked on it so, and was to be a sum, is one of which the first
  /// device has all.
  constexpr int sent(int x, const sharding& wanted, location where) {
    const extents shape = at(x).shape;
    const sharding begins = part_along(at(x).annotation.layout, automatic_), is = by_types(x);
    sharding along = wanted;
    if (along.reduced_by != begins.reduced_by) along.partial = 0;
    along.partial &= begins.partial;
    vec<reshard_step> steps;
    bool is_even = true;
    for_each_step(seen_, shape, begins, along, bytes_of(at(x).type), [&](const sharding&, const reshard_step& step) {
      steps.push_back(step);
      is_even = is_even && unevenly_cut(mesh_, shape, is, step.to) < 0;
    });
    if (!is_even) {
      sharding summed = begins;
      summed.partial = along.partial;
      steps.clear();
      if (summed.partial != begins.partial)
        steps.push_back({reshard_step::kind::reduce, summed, begins.partial & ~summed.partial});
      if (summed != along) steps.push_back({reshard_step::kind::move, along, automatic_});
    }
    for (const auto& step : steps) {
      const device_action does = step.what == reshard_step::kind::reduce ? device_action::sum
                                 : step.what == reshard_step::kind::move ? device_action::exchange
                                                                         : device_action::keep_own;
      x = stepped(x, {does, step.axes, true}, put_behind(mesh_, shape, is, step.to), where);
    }
    if (wanted.partial == along.partial) return x;
    return stepped(x, {device_action::keep_first, wanted.partial & ~along.partial, true}, put_behind(mesh_, shape, is, wanted),
                   where);
  }
  /// A reshard of explicit axes: `along` splits no dim that they move.
  constexpr int changed(int i, int operand, const sharding& along) {
    const int t = along_.typed[i];
    node n = typed_.nodes[t];
    const int x = brought(node_of_[operand], lies(n.operands[0], along), n.at);
    const auto steps = n.attributes;
    n.operands[0] = x;
    make_reshard(n);
    n.attributes = steps;
    return number_[t] = push(n, lies(t, part_along(at(x).annotation.layout, automatic_)), region_);
  }

  // ---- operators ----

  /// Adds an operator, with its further results; `along`: how its operands lie along automatic axes, and `result`.
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
      wanted.push_back(put_behind(mesh_, at(node_of_[forms[k]]).shape, s, along[k]));
    }
    sharding made = lies(t, result);
    const bool fits =
        forms.count == n.operands.count && choice_fits(i, rule, wanted, made) && has_one_sum(wanted, along, result, t);
    if (!fits) {
      wanted = typed;
      made = along_.by_types(t);
    }
    for (int k = 0; k < forms.count; ++k) n.operands[k] = brought(node_of_[forms[k]], wanted[k], n.at);
    const int id = number_[t] = push(n, made, region_);
    for (int r = 1; r < n.results; ++r) {
      node more = typed_.nodes[t + r];
      more.operands[0] = id;
      number_[t + r] = push(more, fits ? lies(t + r, table_.nodes[i + r].result) : along_.by_types(t + r), region_);
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
  /// Whether an operator with such operands has that result: on the mesh of all axes, as typed programs are planned.
  [[nodiscard]] constexpr bool choice_fits(int i, const op_rule& rule, const layouts_of& wanted, const sharding& result) const {
    if (facts_of(typed_of(i).op).made == origin::viewed) return crosses_alike(i, wanted[0], result);
    factor_splits uses;
    for (int k = 0; k < wanted.count; ++k) add_uses(mesh_, rule, k, wanted[k].splits, uses);
    for (int k = 0; k < wanted.count; ++k)
      if (!(to_dims(mesh_, rule, rule.operand(k), uses) == wanted[k].splits)) return false;
    sharding found;
    found.splits = to_dims(mesh_, rule, rule.result(), uses);
    if (!(part_along(found, automatic_).splits == part_along(result, automatic_).splits)) return false;
    return is_sum_of(rule, uses, wanted, 0, result) && are_sums_of(i, rule, uses, wanted);
  }
  /// Whether result `r` is a sum along the automatic axes that make it one, as they split a factor of it or as an operand is one.
  [[nodiscard]] constexpr bool is_sum_of(const op_rule& rule, const factor_splits& uses, const layouts_of& wanted, int r,
                                         const sharding& result) const {
    axis_mask axes = 0;
    for (const auto& use : uses)
      if (rule.leaves_partial(use.dim, r)) axes |= axis_bit(use.axis);
    for (const auto& operand : wanted) axes |= operand.partial;
    return ((axes ^ result.partial) & automatic_) == 0;
  }
  [[nodiscard]] constexpr bool are_sums_of(int i, const op_rule& rule, const factor_splits& uses,
                                           const layouts_of& wanted) const {
    bool all = true;
    for (int r = 1; r < typed_of(i).results; ++r) all = all && is_sum_of(rule, uses, wanted, r, table_.nodes[i + r].result);
    return all;
  }
  /// Over the border of a manual region the automatic axes split both sides alike.
  [[nodiscard]] constexpr bool crosses_alike(int i, const sharding& operand, const sharding& result) const {
    op_rule rule;
    rule_of(along_.program, along_.program.nodes[i], rule);
    const auto before = part_along(operand, automatic_).splits, after = part_along(result, automatic_).splits;
    const auto uses = to_factors(seen_, rule, rule.operand(0), before);
    return uses.count == before.count && to_dims(seen_, rule, rule.result(), uses) == after;
  }
  /// Whether what is a sum along both kinds of axes is one by one function.
  [[nodiscard]] constexpr bool has_one_sum(const layouts_of& wanted, const layouts_of& along, const sharding& result,
                                           int t) const {
    const auto is_one = [&](const sharding& typed, const sharding& other) {
      return typed.partial == 0 || other.partial == 0 || typed.reduced_by == other.reduced_by;
    };
    bool all = is_one(along_.by_types(t), result);
    for (int k = 0; k < wanted.count; ++k) all = all && is_one(part_along(wanted[k], ~automatic_), along[k]);
    return all;
  }

  const graph& typed_;
  const along_automatic& along_;
  const mesh_shape& mesh_;
  mesh_shape seen_, by_types_;  // the mesh as automatic axes see it, and as types do
  axis_mask automatic_;
  const choice_table& table_;
  form_book book_;
  vec<int> given_;
  form_walk<automatic_writer> walk_;
  int next_path_ = 0;
  graph made_;
  vec<int> node_of_;  // by form
  vec<int> number_;   // by node of the typed program: one that stands for it
  vec<int> open_;     // the nodes that opened the bodies around this point
  vec<copy> copies_;
  int region_ = -1, tag_ = -1;  // of what is made next: it is for the sake of the user's value that this tag names
  struct known_form {
    int from, is, region;
  };
  vec<known_form> brought_;
  const node_choice* choice_ = nullptr;
  places moved_;
};

/// The program of the explicit axes with a plan for the automatic ones, or refused as that plan is.
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

/// Plans the automatic axes of a program whose types are noted, if it has any. While compiling it is left to modes/explicit_axes.hpp: it may
/// take longer than one evaluation.
constexpr void plan_automatic_axes(graph& g) {
  if (g.mesh->shape.automatic_axes == 0 || std::is_constant_evaluated()) return;
  const along_automatic along(g);
  const mesh_shape mesh = without_explicit_axes(g.mesh->shape);
  g = with_automatic_plan(g, along, pass_results(along.program, mesh));
}

}  // namespace gspmd::detail
