// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "gspmd/detail/ops/flip.hpp"
#include "gspmd/detail/ops/modes/local_zeros.hpp"
#include "gspmd/detail/ops/placed.hpp"
#include "gspmd/detail/ops/roll.hpp"
#include "gspmd/detail/ops/shift.hpp"
#include "gspmd/detail/passes/typed/find_types.hpp"
#include "gspmd/detail/support/precompiled.hpp"

namespace gspmd::detail {

/// Rewrites manual regions into a form that can be planned, after types are found. Every value of a region keeps its
/// layout (local_view.hpp). A collective uses the value in the global view while it moves. There the collective is an
/// ordinary movement or reduction:
///
///   all_reduce        x of the local view, as a partial sum, resharded to be whole
///   all_gather, S(d)  as the chunks of dim d, resharded to be whole; reduce_scatter, all_to_all and the own chunk
///                     likewise
///   permute           stacked along a new dim 0, one row per device, then rolled, shifted, reversed or placed
///   zeros             computed from the place of the device; for a maximum, the least number
class region_planner {
 public:
  /// `noted`: the same program, with the types of the rest of the program recorded.
  constexpr region_planner(const graph& written, const graph& noted, const program_typer& typer)
      : written_(written), old_(noted), typer_(typer) {
    made_ = noted;
    made_.nodes.clear();
    made_.has_manual_regions = false;
    const axis_mask all = made_.mesh->shape.wide_axes();
    for (const auto& n : old_.nodes)
      leaves_axes_ = leaves_axes_ || (!noted.is_explicit && n.local_axes != 0 && (all & ~n.local_axes) != 0);
  }

  constexpr graph run() {
    vec<int> number(old_.nodes.size(), -1);
    for (int i = 0; i < static_cast<int>(old_.nodes.size()); ++i) {
      node n = old_.nodes[i];
      for (auto& o : n.operands) o = number[o];
      if (cotangent_of(written_.nodes[i]) == cotangent::found) {  // it has recorded the layout of its parts
        number[i] = n.operands[0];
        if (n.tag >= 0) made_.also_tagged.push_back({n.tag, i});
        continue;
      }
      n.region = n.region < 0 ? -1 : number[n.region];
      made_.open_region = n.region;
      made_.open_local = n.local_axes;
      made_.open_scope = n.scope;
      if (n.local_axes != 0 && !leaves_axes_) {
        n.annotated = true;
        n.annotation = lies(i);
      }
      if (facts_of(n.op).made == origin::viewed) {
        n.annotated = true;
        n.annotation = lies(i);
        const bool leaves = !region_border::of(n).enters;
        if (!made_.is_explicit && (n.local_axes == 0 || (leaves_axes_ && leaves)))
          n.annotation = written_.nodes[i].annotation.layout.planned();
        n.attributes.clear();
      }
      const node& was = written_.nodes[i];
      const bool is_written = facts_of(n.op).made == origin::renamed && state_change::is_local(was);
      const auto before = made_.nodes.size();
      number[i] = is_written ? expanded(n, i) : push(n);
      if (number[i] < 0) break;
      for (auto k = before; k < made_.nodes.size(); ++k) {
        made_.nodes[k].tag = n.tag;
        made_.nodes[k].is_started = n.is_started;
        if (leaves_axes_) leave_axes(static_cast<int>(k), is_written ? planned_axes(n) : 0);
      }
      // A value that a collective computes in the global view has the layout of its node. The type describes the value
      // that replaces it in the local view.
      const bool is_sent = is_written && !collective_of(transitions[state_change::of(was).row()].forward).empty();
      for (auto k = static_cast<int>(before); k < static_cast<int>(made_.nodes.size()); ++k)
        made_.nodes[k].annotation.layout.varying = k == number[i] ? varying(i) : is_sent ? 0 : n.local_axes;
    }
    for (auto* const list : {&made_.inputs, &made_.outputs})
      for (auto& i : *list) i = made_.failed() ? 0 : number[i];
    for (auto& also : made_.also_tagged) also.node = made_.failed() ? 0 : number[also.node];
    made_.open_region = -1;
    made_.open_local = 0;
    made_.open_scope = -1;
    return std::move(made_);
  }

 private:
  /// Leaves axes to the planner, in a program with a region that does not take all axes. A value has the written
  /// layout along the axes of the region. Completion finds its layout along the other axes. Values in a region are
  /// hidden along its axes. During a transition they are visible along the axes `visible`.
  constexpr void leave_axes(int i, axis_mask visible) {
    node& n = made_.nodes[i];
    const bool is_border = facts_of(n.op).made == origin::viewed;
    const node* const x = n.operands.count > 0 ? &made_.nodes[n.operands[0]] : nullptr;
    n.hidden_axes = n.local_axes;
    if (visible != 0 && x != nullptr) {
      const bool is_visible = x->hidden_axes != x->local_axes;
      if (is_border != is_visible) n.hidden_axes &= ~visible;  // it enters the global view, or stays in it
    } else if (!n.annotation.layout.splits.empty()) {
      n.hidden_axes &= ~visible;  // the places of the devices
    }
    n.annotation.closed |= n.local_axes;
    if (is_border) n.annotation.closed |= x->local_axes;
    if (n.annotated && (visible != 0 || is_border)) n.annotation.open = ~dim_mask{0};
  }
  /// Returns the axes along which a transition is planned in the global view.
  [[nodiscard]] static constexpr axis_mask planned_axes(const node& n) {
    const state_change c = state_change::of(n);
    const bool is_sent = n.operands.count > 0 && !collective_of(transitions[c.row()].forward).empty();
    return is_sent ? n.local_axes : c.axes;
  }
  /// Returns the layout of a value of a region along the other axes.
  [[nodiscard]] constexpr sharding lies(int i) const {
    sharding s = typer_.types[static_cast<std::size_t>(i)].layout.planned();
    s.partial &= ~old_.nodes[i].local_axes;
    return s;
  }
  /// Returns the local axes along which devices may hold different data.
  [[nodiscard]] constexpr axis_mask varying(int i) const {
    const value_type& t = typer_.types[static_cast<std::size_t>(i)];
    return old_.nodes[i].local_axes & (t.is_known ? t.cut_axes() | t.layout.partial : ~axis_mask{0});
  }
  [[nodiscard]] constexpr extents shape(int i) const { return made_.nodes[i].shape; }
  constexpr int push(const node& n) {
    made_.nodes.push_back(n);
    return static_cast<int>(made_.nodes.size()) - 1;
  }
  constexpr int laid(int i, const sharding& s) {
    if (i < 0) return i;
    made_.nodes[i].annotated = true;
    made_.nodes[i].annotation = s;
    return i;
  }
  /// Returns true if the other axes evenly cut each dim that the region's axes cut. The region's axes are major.
  /// Otherwise fails.
  constexpr bool is_even(const extents& shape, const sharding& s, axis_mask local) {
    const sharding outer = part_along(s, local), inner = part_along(s, ~local);
    const int dim = leaves_axes_ ? -1 : unevenly_cut(made_.mesh->shape, shape, outer, inner);
    if (dim >= 0)
      made_.fail(at_, "manual", mistake::states, text("nested_order: ") << uneven_text(*made_.mesh, shape, outer, inner, dim));
    return dim < 0;
  }
  /// Adds an alias of the same memory with another shape and layout.
  constexpr int with_shape(int x, const extents& shape, const sharding& s) {
    return laid(add_with_shape(made_, x, shape, at_), s);
  }
  constexpr int brought(int x, const sharding& s) { return add_reshard(made_, x, s, at_); }

  /// Returns a layout with dim `d` split by the axes before other axes.
  [[nodiscard]] static constexpr sharding chunks(const sharding& rest, axis_mask axes, int d) {
    sharding s = rest;
    s.splits.clear();
    bool is_done = false;
    const auto add = [&] {
      for (int a = 0; a < max_axes && !is_done; ++a)
        if ((axes & axis_bit(a)) != 0) s.splits.push_back(axis_use{static_cast<std::int8_t>(a), static_cast<std::int8_t>(d)});
      is_done = true;
    };
    for (const auto& use : rest.splits) {
      if (use.dim >= d) add();
      s.splits.push_back(use);
    }
    add();
    return s;
  }
  [[nodiscard]] static constexpr sharding behind_new_dim(const sharding& rest, int at) {
    sharding s = rest;
    for (auto& use : s.splits)
      if (use.dim >= at) ++use.dim;
    return s;
  }
  [[nodiscard]] static constexpr sharding partial_over(const sharding& rest, axis_mask axes, monoid kind) {
    sharding s = rest;
    s.partial |= axes;
    s.reduced_by = kind;
    return s;
  }
  [[nodiscard]] static constexpr extents joined(extents shape, int d, std::int64_t n) {
    shape[d] *= n;
    return shape;
  }
  [[nodiscard]] static constexpr extents stacked(extents shape, int d, std::int64_t n) {
    shape.insert(d, n);
    return shape;
  }

  /// Adds the place of a device along the axes, row-major: a scalar of the local view.
  constexpr int place(axis_mask axes) {
    extents all;
    all.push_back(made_.mesh->shape.size_of(axes));
    const int numbers = laid(add_iota(made_, dtype::s32, all, 0, at_), chunks({}, axes, 0));
    return with_shape(numbers, {}, {});
  }
  /// first_or_zeros() keeps the value on the first device; the other devices get zeros. among_zeros() puts each
  /// device's part of dim `d` among zeros.
  constexpr int first_or_zeros(int x, axis_mask axes, monoid kind, const sharding& s) {
    const int of = place(axes);
    const auto before = made_.nodes.size();
    return laid_from(before, add_first_or_zeros(made_, x, of, kind, at_), s, s);
  }
  constexpr int among_zeros(int x, axis_mask axes, int d, monoid kind, const sharding& s) {
    if (shape(x).count == max_rank)
      return made_.fail(at_, "manual", mistake::rank, "a tensor of 32 dims is not put among zeros; reshape it");
    for (const auto& use : s.splits)
      if (use.dim == d)
        return made_.fail(at_, "manual", mistake::states, "a part is put among zeros along a dim that no other axis splits");
    const int of = place(axes);
    const auto before = made_.nodes.size();
    return laid_from(before, add_among_zeros(made_, x, of, made_.mesh->shape.size_of(axes), d, kind, at_), s,
                     behind_new_dim(s, d));
  }
  /// Sets the layouts of the added nodes: `s` for nodes with the dims of the last node, `with_new_dim` for nodes with
  /// one more dim, and none for numbers.
  constexpr int laid_from(std::size_t first, int last, const sharding& s, const sharding& with_new_dim) {
    if (last < 0) return last;
    const int rank = shape(last).count;
    for (auto k = first; k < made_.nodes.size(); ++k) {
      const int has = made_.nodes[k].shape.count;
      laid(static_cast<int>(k), has == rank ? s : has > rank ? with_new_dim : sharding{});
    }
    return last;
  }
  /// A collective along some local axes while it is planned. Values may differ along the other local axes, but plans
  /// take values that are not split to be equal. So the values are stacked along a dim before the other dims, one on
  /// each device.
  struct collective_view {
    region_planner& of;
    axis_mask axes, others;

    [[nodiscard]] constexpr std::int8_t first() const { return others != 0 ? 1 : 0; }
    [[nodiscard]] constexpr extents shape(const extents& s) const {
      return others != 0 ? stacked(s, 0, of.made_.mesh->shape.size_of(others)) : s;
    }
    [[nodiscard]] constexpr sharding layout(const sharding& s) const {
      return others != 0 ? chunks(behind_new_dim(s, 0), others, 0) : s;
    }
    constexpr int enter(int x, const extents& s, const sharding& lies) const {
      return of.is_even(shape(s), layout(lies), axes) ? of.with_shape(x, shape(s), layout(lies)) : -1;
    }
    constexpr int leave(int x, const extents& s, const sharding& lies) const {
      if (x < 0) return -1;
      return of.is_even(of.shape(x), of.made_.nodes[x].annotation.layout, axes) ? of.with_shape(x, s, lies) : -1;
    }
    constexpr int bring(int x, const sharding& s) const { return of.brought(x, layout(s)); }
  };
  /// Returns a varying value as its part of a dim 0 along which it is stacked.
  constexpr int stacked_by_itself(int x, const sharding& s) {
    return with_shape(x, stacked(shape(x), 0, 1), behind_new_dim(s, 0));
  }
  constexpr int permuted(const collective_view& view, int x, const device_shift& shift, const sharding& s) {
    const extents of = shape(x);
    const sharding rows = chunks(behind_new_dim(s, 0), view.axes, 0);
    int all = view.enter(x, stacked(of, 0, made_.mesh->shape.size_of(view.axes)), rows);
    const int dim = view.first(), turned[] = {dim};
    const auto before = made_.nodes.size();
    if (shift.is == device_shift::kind::round) all = add_roll(made_, all, shift.by, dim, at_);
    else if (shift.is == device_shift::kind::ended) all = add_shift(made_, all, dim, -shift.by, at_);
    else if (shift.is == device_shift::kind::listed)
      all = add_placed(made_, all, {shift.from.begin(), static_cast<std::size_t>(shift.from.count)}, dim, at_);
    else all = add_flip(made_, all, turned, at_);
    for (auto k = before; k < made_.nodes.size(); ++k) laid(static_cast<int>(k), view.layout(rows));
    return view.leave(all, of, s);
  }

  constexpr int expanded(const node& n, int i) {
    at_ = n.at;
    const state_change c = state_change::of(n);
    const sharding after = lies(i);
    if (n.operands.count == 0) return place(c.axes);
    const int x = n.operands[0];
    const device_action does = transitions[c.row()].forward;
    const bool is_sent = !collective_of(does).empty();
    const collective_view view{*this, c.axes, planned_axes(n) & ~c.axes};
    if (shape(x).count + 2 > max_rank && is_sent)
      return made_.fail(at_, name_of(c.by), mistake::rank,
                        "in a manual region a tensor that is sent has at most 30 dims; reshape it");
    const auto parts = made_.mesh->shape.size_of(c.axes);
    const sharding rest = made_.nodes[x].annotation.layout;
    const auto chunked = [&](int d) { return chunks(rest, c.axes, d); };
    // A varying value is stacked. Joined along its first dim, its elements have the same order as along a dim before
    // it. A scalar has no dim to join along, so it gets a dim.
    const auto whole = [&](int d) {
      return view.enter(x, shape(x).count == 0 ? stacked(shape(x), 0, parts) : joined(shape(x), d, parts), chunked(d));
    };
    const auto terms = [&] { return view.enter(x, shape(x), partial_over(rest, c.axes, c.from.reduced_by)); };
    const auto left = [&](int y) { return view.leave(y, n.shape, after); };
    switch (does) {
      case device_action::nothing: return brought(x, after);
      case device_action::keep_own: return left(view.bring(leaves_axes_ ? view.enter(x, shape(x), rest) : x, chunked(c.to.dim)));
      case device_action::keep_first: return first_or_zeros(x, c.axes, c.to.reduced_by, after);
      case device_action::pad_zeros:
        return among_zeros(c.from.is == state::varying ? stacked_by_itself(x, rest) : x, c.axes, c.from.dim, c.to.reduced_by,
                           after);
      case device_action::gather: return left(view.bring(whole(c.from.dim), rest));
      case device_action::gather_sum: return left(view.bring(terms(), chunked(c.to.dim)));
      case device_action::sum: return left(view.bring(terms(), after));
      case device_action::exchange: return left(view.bring(whole(c.from.dim), chunked(c.to.dim)));
      case device_action::permute: return permuted(view, x, device_shift::of(n), after);
    }
    return -1;
  }

  const graph& written_;
  const graph& old_;
  const program_typer& typer_;
  graph made_;
  location at_;
  bool leaves_axes_ = false;  // a region of an automatic program does not take all axes
};

/// Finds the states in manual regions, or records the first mistake. If `annotate` is set, also rewrites the regions
/// for the planner.
constexpr void type_regions(graph& g, bool annotate) {
  program_typer typer(g, *g.mesh, 0, !g.is_explicit);
  if (g.is_explicit) give_inputs(typer, g);
  typer.run();
  if (!typer.mistakes.empty()) {
    if (g.error.empty()) g.error << first_mistake(typer);
    g.broken = mistake::states;
    return;
  }
  if (!annotate) return;
  graph noted = g;
  if (g.is_explicit && !note_types(noted, typer)) {
    g = std::move(noted);
    return;
  }
  graph planned = region_planner(g, noted, typer).run();
  g = std::move(planned);
  if (g.is_explicit && !g.failed()) plan_automatic_axes(g);
}

struct of_programs_with_regions : plain_pass {
  static constexpr bool applies(const graph& g) { return g.has_manual_regions; }
};
/// Finds a mistake in manual regions, and in the types around them, while the operators are as they were written.
struct check_regions_pass : of_programs_with_regions {
  static constexpr const char* name = "check regions";
  static constexpr pass_position position = pass_position::as_written;
  static constexpr node_order run(graph& g) { return type_regions(g, false), node_order::kept; }
};
/// Turns manual regions into a program that can be planned, and the types around them into annotations.
struct regions_pass : of_programs_with_regions {
  static constexpr const char* name = "regions";
  static constexpr pass_position position = pass_position::in_order;
  static constexpr node_order run(graph& g) { return type_regions(g, true), node_order::changed; }
};

/// Allows manual regions in a program.
constexpr void allow_manual_regions(graph& g) {
  g.has_manual_regions = true;
  add_pass<check_regions_pass>(g);
  add_pass<regions_pass>(g);
}

}  // namespace gspmd::detail

#if defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/passes/typed/manual_regions_instances.ipp"
#endif
