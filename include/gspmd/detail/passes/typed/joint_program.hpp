// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/choose/reshard.hpp"
#include "gspmd/detail/passes/typed/along_automatic.hpp"
#include "gspmd/detail/passes/typed/value_type.hpp"

namespace gspmd::detail {

/// A program that is typed along all axes, during its construction from a program with typed explicit axes and a plan
/// for the automatic axes. Each value has the layout of its type and of that plan. Each change of a layout is a
/// reshard. Nothing is sent along explicit axes for it.
struct joint_program {
  constexpr joint_program(const graph& typed, const along_automatic& along)
      : automatic(typed.mesh->automatic_axes),
        seen(without_explicit_axes(*typed.mesh)),
        made(typed.without_nodes()),
        typed_(typed),
        along_(along),
        mesh_(typed.mesh->shape) {
    number.resize(typed.nodes.size(), -1);
  }

  axis_mask automatic;
  mesh_shape seen;  // the mesh as automatic axes see it
  graph made;
  vec<int> number;            // by node of the typed program: the node that replaces it
  bool is_forced = false;     // the reshard is for an operator whose automatic split cannot be combined with its typed split
  int region = -1, tag = -1;  // of the next node; the tag names the user's value for which it is added

  [[nodiscard]] constexpr const node& at(int x) const { return made.nodes[static_cast<std::size_t>(x)]; }
  /// Returns the sharding of an added value by its type.
  [[nodiscard]] constexpr sharding by_types(int x) const { return part_along(at(x).annotation.layout, ~automatic); }
  [[nodiscard]] constexpr sharding layout_at(int x) const { return at(x).annotation.layout.planned(); }
  /// Returns the layout of node `t` of the typed program if its sharding along the automatic axes is `along`.
  [[nodiscard]] constexpr sharding lies(int t, const sharding& along) const {
    return put_behind(mesh_, typed_.nodes[t].shape, along_.by_types(t), along);
  }
  constexpr int push(node n, const sharding& layout, int within) {
    const axis_mask varying = n.annotation.layout.varying;
    n.annotated = true;
    n.annotation = layout;
    n.annotation.layout.varying = varying;
    n.region = within;
    made.nodes.push_back(n);
    return static_cast<int>(made.nodes.size()) - 1;
  }
  constexpr int clone(int t, const sharding& layout, int within) { return number[t] = push(typed_.nodes[t], layout, within); }

  /// Brings a value to a layout. For a change along automatic axes, it moves over these axes only. For a change along
  /// explicit axes, each device keeps a part of equal data. Automatic splits of the same dim are removed before that.
  constexpr int brought(int x, const sharding& to, location where) {
    if (layout_at(x) == to) return x;
    for (const auto& known : brought_)
      if (known.from == x && known.region == region && layout_at(known.is) == to) return known.is;
    const int from = x;
    if (facts_of(at(x).op).made == origin::source) {
      node again = at(x);
      sharding whole = to;
      whole.partial = 0;
      x = push(again, whole, region);
    } else {
      const sharding is = by_types(x), wanted = part_along(to, ~automatic);
      if (!(is.splits == wanted.splits)) {
        sharding rest = part_along(at(x).annotation.layout, automatic);
        for (int k = rest.splits.count - 1; k >= 0; --k)
          if (const int d = rest.splits[k].dim; is.axes_of(d) != wanted.axes_of(d)) {
            for (int j = k; j + 1 < rest.splits.count; ++j) rest.splits[j] = rest.splits[j + 1];
            rest.splits.pop_back();
          }
        x = sent(x, rest, where);
        x = stepped(x, {device_action::keep_own, wanted.split_axes() & ~is.split_axes()},
                    put_behind(mesh_, at(x).shape, wanted, rest), where);
      }
      x = sent(x, part_along(to, automatic), where);
    }
    brought_.push_back({from, x, region});
    return x;
  }

 private:
  /// Adds a reshard of `x` by one step, in the open region.
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
    n.tag = tag;
    n.scope = at(x).scope;
    n.allow_replication = step.is_forced;  // the plan reports it, and planning continues
    step.keep(n);
    return push(n, to, region);
  }
  /// Brings a value to a layout along the automatic axes. No step may cut the parts of explicit axes unevenly. If a
  /// step would do so, the value is reduced without moving, and then moved in one exchange. If the required layout is
  /// partial and the value is not, the first device keeps the whole value.
  constexpr int sent(int x, const sharding& wanted, location where) {
    const extents shape = at(x).shape;
    const sharding begins = part_along(at(x).annotation.layout, automatic), is = by_types(x);
    sharding along = wanted;
    if (along.reduced_by != begins.reduced_by) along.partial = 0;
    along.partial &= begins.partial;
    vec<reshard_step> steps;
    bool is_even = true;
    for_each_step(seen, typed_.mesh->request.network, shape, begins, along, bytes_of(at(x).type),
                  [&](const sharding&, const reshard_step& step) {
                    steps.push_back(step);
                    is_even = is_even && unevenly_cut(mesh_, shape, is, step.to) < 0;
                  });
    if (!is_even) {
      sharding summed = begins;
      summed.partial = along.partial;
      steps.clear();
      if (summed.partial != begins.partial)
        steps.push_back({reshard_step::kind::reduce, summed, begins.partial & ~summed.partial});
      if (summed != along) steps.push_back({reshard_step::kind::move, along, automatic});
    }
    for (const auto& step : steps) {
      const device_action does = step.what == reshard_step::kind::reduce ? device_action::sum
                                 : step.what == reshard_step::kind::move ? device_action::exchange
                                                                         : device_action::keep_own;
      x = stepped(x, {does, step.axes, true, is_forced && does == device_action::exchange}, put_behind(mesh_, shape, is, step.to),
                  where);
    }
    if (wanted.partial == along.partial) return x;
    return stepped(x, {device_action::keep_first, wanted.partial & ~along.partial, true}, put_behind(mesh_, shape, is, wanted),
                   where);
  }

  const graph& typed_;
  const along_automatic& along_;
  const mesh_shape& mesh_;
  struct known_form {
    int from, is, region;
  };
  vec<known_form> brought_;
};

}  // namespace gspmd::detail
