// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "gspmd/detail/passes/typed/axis_rule.hpp"

namespace gspmd::detail {

/// An operand as devices hold it.
struct held_operand {
  extents shape;    // of the local view: the shard's
  sharding layout;  // nothing in the local view
  std::int64_t elem_bytes = 1;
};

/// The reshard that brings a value to a state on an axis, as a user writes it; `after`: the splits that it has then.
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

/// The calls that bring an operand of a manual region to a state, as a user writes them; empty: no function does.
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

/// `24 bytes (all_gather) forward`
constexpr void say_bytes(text& words, device_action d, std::int64_t bytes, std::string_view where) {
  words << bytes << " bytes ";
  if (bytes > 0) words << '(' << collective_of(d) << ") ";
  words << where;
}

/// One operand brought to another state.
struct remedy {
  int operand = 0, row = 0;
  axis_state from, to;
  sharding after;  // of the global view
  int rank = 0;
  std::int64_t sent = 0, sent_back = 0;

  [[nodiscard]] constexpr bool is_cheaper_than(const remedy& o) const {
    return sent + sent_back != o.sent + o.sent_back ? sent + sent_back < o.sent + o.sent_back : sent < o.sent;
  }
};

/// Whether a value may be brought to another state on one axis of the global view: the axis is the innermost of its dim, and no uneven part
/// needs elements that it does not bring.
constexpr bool may_be_brought(const mesh_shape& mesh, const extents& shape, const value_type& from, const value_type& to,
                              int axis, device_action does) {
  if (cut_further(from.layout.splits, axis_bit(axis)) >= 0) return false;
  const axis_mask over = movement_axes(mesh, shape, sharding{from.layout.splits}, sharding{to.layout.splits});
  return (over & ~(does == device_action::keep_own ? 0 : axis_bit(axis))) == 0;
}

/// The cheapest ways out of a mistake on one axis, three at most.
class remedy_list {
 public:
  /// `is_called`: of a manual region, in which functions of namespace local are called.
  constexpr remedy_list(const mesh_info& mesh, int axis, bool is_local, bool is_called = false)
      : mesh_(mesh), axis_(axis), is_local_(is_local), is_called_(is_called) {}

  constexpr void add(int k, int row, const axis_state& from, const axis_state& to, const held_operand& held) {
    const auto& t = transitions[row];
    const auto n = mesh_.shape.sizes[axis_];
    std::int64_t before = local_elements(mesh_.shape, held.shape, held.layout), after = before;
    sharding s = held.layout;
    if (is_local_) {
      if (t.forward == device_action::gather) after = before * n;
    } else {
      inline_vec<axis_use, max_axes> kept;
      for (const auto& use : s.splits)
        if (use.axis != axis_) kept.push_back(use);
      s.splits = kept;
      if (to.is == state::shard) s.add_split(axis_, to.dim);
      after = local_elements(mesh_.shape, held.shape, s);
    }
    before *= held.elem_bytes;
    after *= held.elem_bytes;
    const remedy w{
        k, row, from, to, s, held.shape.count, bytes_of(t.forward, n, before, after), bytes_of(t.backward, n, after, before)};
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
      else if (is_local_)
        words << name_of(t.by) << " operand " << w.operand << " from " << short_text(w.from) << " to " << short_text(w.to)
              << " over `" << axes_text(mesh_, axis_bit(axis_)) << '`';
      else words << reshard_text(mesh_, w.after, w.rank, axis_, w.to) << "(operand " << w.operand << ')';
      words << ": ";
      say_bytes(words, t.forward, w.sent, "forward, ");
      say_bytes(words, t.backward, w.sent_back, "backward");
      list.push_back(words);
    }
    return list;
  }

 private:
  const mesh_info& mesh_;
  int axis_;
  bool is_local_, is_called_;
  inline_vec<remedy, 3> best_;
};

/// Returns for a mistake on an axis of the local view the rows of the table that, applied to one operand, make the rule accept. `numbers`:
/// what the user calls the operands, -1 for what he has not.
constexpr constant_vector<text> local_remedies(const mesh_info& mesh, const axis_rule& along, const operands_on_axis& in,
                                               const inline_vec<held_operand, max_map_arity>& held,
                                               const inline_vec<std::int8_t, max_map_arity>& numbers, int axis, bool is_called) {
  remedy_list list(mesh, axis, true, is_called);
  for (int k = 0; k < in.count; ++k)
    for (int row = 0; row < transition_count && numbers[k] >= 0; ++row) {
      const auto& t = transitions[row];
      const bool varies = in[k].is.is == state::varying || in[k].is.is == state::shard;
      // Chunks are nothing but values that vary; a shape does not change.
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
