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

/// The rows of the table that, applied to one operand, make the rule accept: cheapest first, three at most.
constexpr std::vector<text> remedies(const mesh_info& mesh, const op_rule* rule, const axis_rule& along,
                                     const operands_on_axis& in, const inline_vec<held_operand, max_map_arity>& held, int axis) {
  struct way {
    int operand = 0, row = 0;
    axis_state to;
    std::int64_t sent = 0, sent_back = 0;
    [[nodiscard]] constexpr bool is_cheaper_than(const way& o) const {
      return sent + sent_back != o.sent + o.sent_back ? sent + sent_back < o.sent + o.sent_back : sent < o.sent;
    }
  };
  inline_vec<way, 3> best;
  const auto n = mesh.shape.sizes[axis];
  const auto consider = [&](int k, int row, axis_state to, int factor) {
    operands_on_axis trial = in;
    trial[k] = {to, static_cast<std::int8_t>(factor)};
    if (along.of(trial).broken != mode_mistake::none) return;
    const auto& t = transitions[row];
    std::int64_t before = elements(held[k].shape), after = before;
    if (rule != nullptr) {
      sharding s = held[k].layout;
      before = local_elements(mesh.shape, held[k].shape, s);
      inline_vec<axis_use, max_axes> kept;
      for (const auto& use : s.splits)
        if (use.axis != axis) kept.push_back(use);
      s.splits = kept;
      if (to.is == state::shard) s.add_split(axis, to.dim);
      after = local_elements(mesh.shape, held[k].shape, s);
    } else if (t.forward == deed::gather) {
      after = before * n;
    }
    way w{k, row, to, bytes_of(t.forward, n, before * held[k].elem_bytes, after * held[k].elem_bytes),
          bytes_of(t.backward, n, after * held[k].elem_bytes, before * held[k].elem_bytes)};
    int at = 0;
    while (at < best.count && !w.is_cheaper_than(best[at])) ++at;
    if (at == best.capacity) return;
    if (best.count == best.capacity) best.pop_back();
    best.insert(at, w);
  };
  for (int k = 0; k < in.count; ++k)
    for (int row = 0; row < transition_count; ++row) {
      const auto& t = transitions[row];
      const bool is_from = in[k].is.is == t.from || (t.from == state::shard && in[k].is.is == state::varying) ||
                           (rule == nullptr && t.from == state::varying && in[k].is.is == state::shard);
      if (!is_from || t.is_for_experts || t.by == verb::permute) continue;
      if (t.to != state::shard) {
        if (rule != nullptr && t.to == state::varying) continue;
        consider(k, row, {t.to}, -1);
      } else if (rule != nullptr) {
        for (int d = 0; d < held[k].shape.count; ++d) {
          const tensor_map& map = rule->operand(k);
          if (in[k].is == shard_of(d) || (!rule->uniform && map.begin(d) == map.end(d))) continue;
          consider(k, row, shard_of(d), rule->uniform ? d : map.factors[map.begin(d)]);
        }
      }
    }
  std::vector<text> texts;
  for (const auto& w : best) {
    const auto& t = transitions[w.row];
    text words(name_of(t.by));
    words << " operand " << w.operand << " from " << short_text(in[w.operand].is) << " to " << short_text(w.to) << " over `"
          << axes_text(mesh, axis_bit(axis)) << "`: ";
    const auto say = [&](deed d, std::int64_t bytes, std::string_view where) {
      if (!collective_of(d).empty()) words << collective_of(d) << ", ";
      words << bytes << " bytes " << where;
    };
    say(t.forward, w.sent, "forward, ");
    say(t.backward, w.sent_back, "backward");
    texts.push_back(words);
  }
  return texts;
}

}  // namespace gspmd::detail
