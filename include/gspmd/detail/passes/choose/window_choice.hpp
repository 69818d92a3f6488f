// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/einsum.hpp"
#include "gspmd/detail/passes/choose/use_plans.hpp"

namespace gspmd::detail {

/// Which operand of an einsum is not gathered but goes round a ring, one shard at a time (GShard 3.3.2, Fig. 4c; GSPMD 4.4).
///
/// Asked for by a bound on what a gather may leave on a device. Of an operand that would be larger than that:
/// 1. the axes that the gather would take away split one of its dims, behind those that stay: the ring form. This is what is
///    there already, or one exchange of shards away from it;
/// 2. the parts of that dim visit every device. Each is multiplied with the same part of the other operand, if that has the
///    letter, and is added to the result or is a part of it.
///   ab,bc->ac   [a/x, b] and [b, c/x], result [a/x, c]: parts of c, each fills columns of the result
///               [a/x, b] and [b/x, c], result [a/x, c]: parts of b, with columns of the first; the products are added up
///
/// Products are added up in the order in which the parts come by, another one on each device. Devices that hold the same part of
/// the result would hold different roundings of it, and what they decide by it would differ: so every axis of such a ring splits
/// the result (or leaves it partial), and no value that counts as equal on several devices is such a sum.
///   ab,bc->ac   [a, b/x] and [b, c], result [a, c]: no ring; [a, b/x] and [b, c/x], result [a, c/x]: a ring
class window_choice : public use_plans {
 public:
  using use_plans::use_plans;

 protected:
  struct window {
    ring_window how;
    sharding form;           // of the operand that goes round
    std::int64_t bytes = 0;  // that one device sends for it
  };

  [[nodiscard]] constexpr window window_of(const node& n, const use_plan& p) const {
    window best;
    if (!facts_of(n.op).may_go_round_ring(n) || n.forbid_reshard) return best;
    for (int k = 0; k < 2; ++k) {
      if (!is_gathered(n, p, k)) continue;
      if (best.how.operand >= 0) {
        best.how.beyond_limit = true;  // the other one is gathered all the same
        return best;
      }
      find_ring(n, p, k, best);
      if (best.how.operand < 0) {
        best.how.beyond_limit = true;
        return best;
      }
    }
    return best;
  }

 private:
  /// The axes that split `from` and not `to`; those of size 1 do not count.
  [[nodiscard]] constexpr axis_mask lost_axes(const sharding& from, const sharding& to) const {
    axis_mask lost = 0;
    for (const auto& use : from.splits)
      if (mesh_.sizes[use.axis] > 1) lost |= axis_bit(use.axis);
    return lost & ~to.split_axes();
  }
  [[nodiscard]] constexpr std::int64_t shard_bytes(int i, const sharding& s) const {
    return local_elements(mesh_, shape_of(i), s) * bytes_of(at(i).type);
  }

  /// True when operand `k` is to be gathered to more than the limit.
  [[nodiscard]] constexpr bool is_gathered(const node& n, const use_plan& p, int k) const {
    const int i = n.operands[k];
    if (shard_bytes(i, p.wanted[k]) <= n.gather_limit) return false;
    std::int64_t bytes = 0;
    const int v = best_form(i, p.wanted[k], bytes);
    if (v < 0 || bytes == 0) return false;
    const sharding& from = program.value(v).layout;
    return lost_axes(from, p.wanted[k]) != 0 && shard_bytes(i, from) < shard_bytes(i, p.wanted[k]);  // not what is no larger
  }

  /// True when what the parts of a dim give is added up, and rounded.
  [[nodiscard]] constexpr bool adds_up(const node& n, int k, int dim) const {
    return is_floating(n.type) && letters_of(graph_, n, n.operands.count).find(letters_of(graph_, n, k)[dim]) < 0;
  }

  constexpr void find_ring(const node& n, const use_plan& p, int k, window& best) const {
    const int i = n.operands[k];
    std::int64_t bytes = 0;
    const sharding from = program.value(best_form(i, p.wanted[k], bytes)).layout;
    const axis_mask lost = lost_axes(from, p.wanted[k]);
    const axis_mask one_order = ~(p.result.split_axes() | p.result.partial);  // along these, devices must agree to the bit
    for (int dim = 0; dim < shape_of(i).count; ++dim)
      for (const bool all : {false, true}) {  // the axes of this dim, the others being gathered; all of them
        window trial;
        trial.form = p.wanted[k];
        trial.form.open = 0;
        for (const bool own : {true, false})
          for (const auto& use : from.splits) {
            if ((lost & axis_bit(use.axis)) == 0 || (use.dim == dim) != own || (!own && !all)) continue;
            trial.form.add_split(use.axis, dim);
            ++trial.how.axes;
          }
        if (trial.how.axes == 0 || from.axes_of(dim) == 0) continue;
        if (!nests(split_change_of(mesh_, trial.form, p.wanted[k], dim), shape_of(i)[dim])) continue;
        const auto shard = shard_bytes(i, trial.form);
        if ((lost & ~trial.form.split_axes()) != 0 && shard > n.gather_limit) continue;
        trial.how.operand = static_cast<std::int8_t>(k);
        trial.how.dim = static_cast<std::int8_t>(dim);
        const ring around = ring_of(trial.how, trial.form);
        if ((around.mask() & one_order) != 0 && adds_up(n, k, dim)) continue;
        const auto members = around.size(mesh_);
        trial.how.both_ways = members > 2 && ring_rounds(members, true).buffers() * shard <= n.gather_limit;
        if (best_form(i, trial.form, trial.bytes) < 0) continue;
        trial.bytes += (members - 1) * shard;
        if (best.how.operand < 0 || trial.bytes < best.bytes) best = trial;
      }
  }
};

}  // namespace gspmd::detail
