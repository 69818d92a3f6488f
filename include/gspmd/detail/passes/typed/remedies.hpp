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
  bool is_stretched = false;  // by the operator: a user has what it was before
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

/// What brings an operand of a manual region to a state, as a user writes it; nothing: no function does.
///
///   local::all_reduce<`x`, state::replica>(operand 0)   local::to_varying<`x`>(local::to_replica<`x`>(operand 1))
constexpr text local_call_text(const text& axis, verb by, const axis_state& from, const axis_state& to, int operand) {
  const auto call = [&](const char* name, const char* parameter, const text& of, const text& rest) {
    return text("local::") << name << "<`" << axis << '`' << parameter << ">(" << of << rest << ')';
  };
  const text x = text("operand ") << operand;
  const char* const as_replica = to.is == state::replica ? ", state::replica" : "";
  text kind;
  if (from.is == state::partial && from.reduced_by != monoid::add) kind << ", monoid::" << name_of(from.reduced_by);
  if (by == verb::all_reduce) return call("all_reduce", as_replica, x, kind);
  if (by == verb::all_gather) return call("all_gather", as_replica, x, ", dim");
  if (to.is == state::replica) return call("to_replica", "", x, {});
  if (to.is == state::varying && from.is == state::invariant) return call("to_varying", "", call("to_replica", "", x, {}), {});
  if (to.is == state::varying) return call("to_varying", "", x, {});
  if (to.is == state::partial && to.reduced_by == monoid::add)
    return call("to_partial", from.is == state::replica ? ", state::replica" : "", x, {});
  return {};
}

/// `24 bytes (all_gather) forward`
constexpr void say_bytes(text& words, deed d, std::int64_t bytes, std::string_view where) {
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
      if (t.forward == deed::gather) after = before * n;
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
  [[nodiscard]] constexpr std::vector<text> texts() const {
    std::vector<text> list;
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

/// The rows of the table that, applied to one operand, make the rule accept.
constexpr std::vector<text> remedies(const mesh_info& mesh, const op_rule* rule, const axis_rule& along,
                                     const operands_on_axis& in, const inline_vec<held_operand, max_map_arity>& held, int axis,
                                     bool is_called) {
  remedy_list list(mesh, axis, rule == nullptr, is_called);
  const auto consider = [&](int k, int row, axis_state to, int factor) {
    operands_on_axis trial = in;
    trial[k] = {to, static_cast<std::int8_t>(factor)};
    trial[k].repeated = in[k].repeated;
    if (along.of(trial).broken == mode_mistake::none) list.add(k, row, in[k].is, to, held[k]);
  };
  for (int k = 0; k < in.count; ++k)
    for (int row = 0; row < transition_count; ++row) {
      const auto& t = transitions[row];
      const bool varies = in[k].is.is == state::varying || in[k].is.is == state::shard;
      bool is_from = in[k].is.is == t.from;
      if (rule == nullptr && varies)  // chunks are nothing but values that vary; a shape does not change
        is_from = t.from == state::varying || t.by == verb::all_gather;
      if (!is_from || t.is_for_experts || t.by == verb::permute) continue;
      if (is_called && local_call_text({}, t.by, in[k].is, {t.to}, k).view().empty()) continue;
      if (t.to != state::shard) {
        if (rule == nullptr || t.to != state::varying) consider(k, row, {t.to}, -1);
      } else if (rule != nullptr && !held[k].is_stretched) {
        for (int d = 0; d < held[k].shape.count; ++d) {
          const tensor_map& map = rule->operand(k);
          if (in[k].is == shard_of(d) || (!rule->uniform && map.begin(d) == map.end(d))) continue;
          consider(k, row, shard_of(d), rule->uniform ? d : map.factors[map.begin(d)]);
        }
      }
    }
  return list.texts();
}

/// The ways to have an operand whole along an axis that splits it.
constexpr std::vector<text> ways_to_gather(const mesh_info& mesh, int k, const axis_state& is, const held_operand& held,
                                           int axis) {
  remedy_list list(mesh, axis, false);
  for (int row = 0; row < transition_count; ++row)
    if (transitions[row].by == verb::all_gather) list.add(k, row, is, {transitions[row].to}, held);
  return list.texts();
}

}  // namespace gspmd::detail
