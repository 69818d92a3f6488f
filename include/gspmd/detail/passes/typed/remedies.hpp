// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "gspmd/detail/ops/modes/local_view.hpp"
#include "gspmd/detail/passes/choose/written_steps.hpp"
#include "gspmd/detail/passes/typed/axis_rule.hpp"

namespace gspmd::detail {

/// The shape and the layout of an operand on the devices.
struct held_operand {
  extents shape;    // in the local view: of the shard
  sharding layout;  // empty in the local view
  std::int64_t elem_bytes = 1;
};

/// Returns the text of the reshard that brings a value to a state on an axis. `after`: the layout after the reshard.
///
///   reshard<replica<`data`>>   reshard<split<`data`, `model`>>
constexpr text reshard_text(const mesh_info& mesh, const sharding& after, int rank, int axis, const axis_state& to) {
  text t("reshard<");
  if (to.is != state::shard) {
    t << (to.is == state::replica ? "replica" : to.is == state::partial ? "partial" : "invariant");
    t << "<`" << axes_text(mesh, axis_bit(axis)) << '`';
    if (to.is == state::partial && to.reduced_by != monoid::add) t << ", monoid::" << name_of(to.reduced_by);
    return t << ">>";
  }
  t << "split<";
  for (int d = 0; d < rank; ++d) {
    if (d > 0) t << ", ";
    bool is_first = true;
    for (const auto& use : after.splits) {
      if (use.dim != d) continue;
      t << (is_first ? "`" : ",") << axes_text(mesh, axis_bit(use.axis));
      is_first = false;
    }
    t << (is_first ? "_" : "`");
  }
  return t << ">>";
}

/// Returns the text of the calls that bring an operand of a manual region to a state; empty if no function does so.
///
///   local::all_reduce<`x`, state::replica>(operand 0)   local::to_varying<`x`>(local::to_replica<`x`>(operand 1))
constexpr text local_call_text(const text& axis, transition_kind by, const axis_state& from, const axis_state& to, int operand) {
  const auto call = [&](const char* name, const char* parameter, const text& of, const text& rest) {
    return text("local::") << name << "<`" << axis << '`' << parameter << ">(" << of << rest << ')';
  };
  const text x = text("operand ") << operand;
  const char* const as_replica = to.is == state::replica ? ", state::replica" : "";
  text kind;
  if (from.is == state::partial && from.reduced_by != monoid::add) kind << ", monoid::" << name_of(from.reduced_by);
  if (by == transition_kind::all_reduce) return call("all_reduce", as_replica, x, kind);
  if (by == transition_kind::all_gather) return call("all_gather", as_replica, x, ", dim");
  if (to.is == state::replica) return call("to_replica", "", x, {});
  if (to.is == state::varying && from.is == state::invariant) return call("to_varying", "", call("to_replica", "", x, {}), {});
  if (to.is == state::varying) return call("to_varying", "", x, {});
  if (to.is == state::partial && to.reduced_by == monoid::add)
    return call("to_partial", from.is == state::replica ? ", state::replica" : "", x, {});
  return {};
}

/// The collectives of a reshard, and the bytes that a device sends in them.
struct reshard_bill {
  std::int64_t bytes = 0;
  inline_vec<std::string_view, 4> sends;

  constexpr void add(std::string_view collective, std::int64_t sent) {
    bytes = saturating_add(bytes, sent);
    if (sent == 0 || sends.count == sends.capacity) return;
    for (const auto s : sends)
      if (s == collective) return;
    sends.push_back(collective);
  }
  /// Returns the bill of a reshard along the axes that are not in `closed`.
  static constexpr reshard_bill of(const mesh_info& mesh, const held_operand& x, const sharding& to, axis_mask closed) {
    const mesh_shape typed = along_types(mesh);
    reshard_bill bill;
    for_each_reshard_step(typed, mesh.request.network, x.shape, x.layout, to, closed | mesh.automatic_axes, x.elem_bytes,
                          [&](const sharding& at, const reshard_step& step) {
                            if (step.axes != 0)
                              bill.add(name_of(kind_of_step(typed, x.shape, at, step)),
                                       step_bytes(typed, x.shape, at, step, x.elem_bytes));
                          });
    return bill;
  }
  /// Adds, for example, the text `24 bytes (all_gather) forward`.
  constexpr void say(text& words, std::string_view where) const {
    words << bytes << " bytes ";
    for (int k = 0; k < sends.count; ++k) words << (k == 0 ? "(" : ", ") << sends[k];
    words << (sends.empty() ? "" : ") ") << where;
  }
};

/// A remedy: one operand is brought to another state.
struct remedy {
  int operand = 0, row = 0;
  axis_state from, to;
  sharding after;  // in the global view
  int rank = 0;
  reshard_bill sent, sent_back;

  [[nodiscard]] constexpr bool is_cheaper_than(const remedy& o) const {
    const auto all = sent.bytes + sent_back.bytes, others = o.sent.bytes + o.sent_back.bytes;
    return all != others ? all < others : sent.bytes < o.sent.bytes;
  }
};

/// The cheapest remedies for a mistake on one axis, three at most.
class remedy_list {
 public:
  /// `local_axes`: the axes of the local view; a reshard of another axis sends nothing over them. `is_called`: the
  /// mistake is in a manual region, which calls functions of namespace local.
  constexpr remedy_list(const mesh_info& mesh, int axis, axis_mask local_axes, bool is_called = false)
      : mesh_(mesh), axis_(axis), local_axes_(local_axes), is_called_(is_called) {}

  constexpr void add(int k, int row, const axis_state& from, const axis_state& to, const held_operand& held) {
    const auto& t = transitions[row];
    remedy w{k, row, from, to, held.layout, held.shape.count, {}, {}};
    if (is_local()) {
      const auto n = mesh_.shape.sizes[axis_];
      const auto before = local_elements(mesh_.shape, held.shape, held.layout) * held.elem_bytes;
      const auto after = t.forward == device_action::gather ? before * n : before;
      w.sent.add(collective_of(t.forward), bytes_of(t.forward, n, before, after));
      w.sent_back.add(collective_of(t.backward), bytes_of(t.backward, n, after, before));
    } else {
      const held_operand back{held.shape, with_state(dual(held.layout), dual(to)), held.elem_bytes};
      w.after = with_state(held.layout, to);
      w.sent = reshard_bill::of(mesh_, held, w.after, local_axes_);
      w.sent_back = reshard_bill::of(mesh_, back, dual(held.layout), local_axes_);
    }
    int at = 0;
    while (at < best_.count && !w.is_cheaper_than(best_[at])) ++at;
    if (at == best_.capacity) return;
    if (best_.count == best_.capacity) best_.pop_back();
    best_.insert(at, w);
  }
  [[nodiscard]] constexpr constant_vector<text> texts() const {
    constant_vector<text> list;
    for (const auto& w : best_) {
      const auto& t = transitions[w.row];
      text words;
      if (is_called_) words << local_call_text(axes_text(mesh_, axis_bit(axis_)), t.by, w.from, w.to, w.operand);
      else if (is_local())
        words << name_of(t.by) << " operand " << w.operand << " from " << short_text(w.from) << " to " << short_text(w.to)
              << " over `" << axes_text(mesh_, axis_bit(axis_)) << '`';
      else words << reshard_text(mesh_, w.after, w.rank, axis_, w.to) << "(operand " << w.operand << ')';
      words << ": ";
      w.sent.say(words, "forward, ");
      w.sent_back.say(words, "backward");
      list.push_back(words);
    }
    return list;
  }

 private:
  [[nodiscard]] constexpr bool is_local() const { return (local_axes_ & axis_bit(axis_)) != 0; }
  /// Returns a layout with another state on the axis.
  [[nodiscard]] constexpr sharding with_state(const sharding& layout, const axis_state& is) const {
    value_type t = value_type::of(layout);
    t.set(axis_, is);
    return t.layout;
  }

  const mesh_info& mesh_;
  int axis_;
  axis_mask local_axes_;
  bool is_called_;
  inline_vec<remedy, 3> best_;
};

/// Returns the remedies for a mistake on an axis of the local view: rows of the table that make the rule accept if
/// they are applied to one operand. `numbers`: the user's numbers of the operands; -1 for operands that the user does
/// not have.
constexpr constant_vector<text> local_remedies(const mesh_info& mesh, const axis_rule& along, const operands_on_axis& in,
                                               const inline_vec<held_operand, max_map_arity>& held,
                                               const inline_vec<std::int8_t, max_map_arity>& numbers, int axis, bool is_called) {
  remedy_list list(mesh, axis, axis_bit(axis), is_called);
  for (int k = 0; k < in.count; ++k)
    for (int row = 0; row < transition_count && numbers[k] >= 0; ++row) {
      const auto& t = transitions[row];
      const bool varies = in[k].is.is == state::varying || in[k].is.is == state::shard;
      // Chunks count as varying values only, and a shape does not change.
      const bool is_from = varies ? t.from == state::varying || t.by == transition_kind::all_gather : in[k].is.is == t.from;
      if (!is_from || t.is_for_experts || t.by == transition_kind::permute || t.to == state::shard) continue;
      if (is_called && local_call_text({}, t.by, in[k].is, {t.to}, k).view().empty()) continue;
      operands_on_axis trial = in;
      trial[k] = {{t.to}};
      trial[k].repeated = in[k].repeated;
      if (along.of(trial).broken == mode_mistake::none) list.add(numbers[k], row, in[k].is, {t.to}, held[k]);
    }
  return list.texts();
}

}  // namespace gspmd::detail
