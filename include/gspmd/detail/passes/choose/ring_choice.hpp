// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/einsum/einsum.hpp"
#include "gspmd/detail/passes/choose/operator_use.hpp"

namespace gspmd::detail {

/// Chooses the operand of an einsum that is not gathered but rotates around a ring, one shard at a time (GShard 3.3.2,
/// Fig. 4c; GSPMD 4.4).
///
/// A limit on the bytes that a gather may leave on a device requests this: limit_gather, or a level of saving. If a
/// gathered operand would exceed the limit:
/// 1. The axes that the gather would remove split one dim of the operand, minor to the axes that stay. This is the ring
///    form. It exists already, or one exchange of shards makes it.
/// 2. The parts of that dim visit every device. Each part is multiplied with the same part of the other operand, if
///    that operand has the letter. The product is added to the result, or is a part of the result.
///   ab,bc->ac   [a/x, b] and [b, c/x], result [a/x, c]: parts of c, each fills columns of the result
///               [a/x, b] and [b/x, c], result [a/x, c]: parts of b, with columns of the first; the products are added
///               up
///
/// Each device adds the products in another order. Devices that hold the same part of the result would round it
/// differently, and could then decide differently. Every axis of a ring that adds products must therefore split the
/// result or leave it partial. So a value that must be equal on several devices is never the sum of a ring.
///   ab,bc->ac   [a, b/x] and [b, c], result [a, c]: no ring; [a, b/x] and [b, c/x], result [a, c/x]: a ring
class ring_choice {
 public:
  struct ring_form {
    ring_einsum how;
    sharding form;        // of the rotating operand
    reshard_price price;  // of making `form` and of its rotation
  };

  constexpr ring_choice(const form_prices& known, const node& n, const operator_use& p)
      : known_(known), n_(n), p_(p), limit_(gather_limit_of(known.request, n)) {}

  [[nodiscard]] constexpr ring_form find() const {
    ring_form best;
    if (!facts_of(n_.op).may_go_round_ring(n_) || n_.forbid_reshard) return best;
    for (int k = 0; k < 2; ++k) {
      if (!is_gathered(k)) continue;
      const bool is_second = best.how.operand >= 0;
      if (!is_second) find_ring(k, best);
      if (!is_second && best.how.operand >= 0) continue;
      best.how.beyond_limit = n_.gather_limit >= 0;  // no ring exists, or the other operand is gathered too
      return best;
    }
    return best;
  }

 private:
  /// Returns the axes of size above 1 that split `from` and not `to`.
  [[nodiscard]] constexpr axis_mask lost_axes(const sharding& from, const sharding& to) const {
    return from.split_axes() & known_.mesh.wide_axes() & ~to.split_axes();
  }
  [[nodiscard]] constexpr std::int64_t shard_bytes(int i, const sharding& s) const {
    return local_elements(known_.mesh, known_.shape_of(i), s) * bytes_of(known_.at(i).type);
  }

  /// Returns true if operand `k` would be gathered to more bytes than the limit.
  [[nodiscard]] constexpr bool is_gathered(int k) const {
    const int i = n_.operands[k];
    if (shard_bytes(i, p_.wanted[k]) <= limit_) return false;
    const auto best = known_.best_form(i, p_.wanted[k]);
    if (best.value < 0 || best.price.bytes == 0) return false;
    const sharding& from = known_.book.layout_of(best.value);
    return lost_axes(from, p_.wanted[k]) != 0 && shard_bytes(i, from) < shard_bytes(i, p_.wanted[k]);  // it gets larger
  }

  /// Returns true if the products with the parts of `dim` are added, with rounding.
  [[nodiscard]] constexpr bool adds_up(int k, int dim) const {
    const graph& g = known_.program;
    return is_floating(n_.type) && letters_of(g, n_, n_.operands.count).find(letters_of(g, n_, k)[dim]) < 0;
  }

  constexpr void find_ring(int k, ring_form& best) const {
    const mesh_shape& mesh = known_.mesh;
    const int i = n_.operands[k];
    const sharding from = known_.book.layout_of(known_.best_form(i, p_.wanted[k]).value);
    const axis_mask lost = lost_axes(from, p_.wanted[k]);
    const axis_mask one_order = p_.result.equal_axes(mesh);  // along these axes, devices must agree to the bit
    for (int dim = 0; dim < known_.shape_of(i).count; ++dim)
      for (const bool all : {false, true}) {  // only the axes of this dim, with the others gathered; then all axes
        ring_form trial;
        trial.form = p_.wanted[k];
        for (const bool own : {true, false})
          for (const auto& use : from.splits) {
            if ((lost & axis_bit(use.axis)) == 0 || (use.dim == dim) != own || (!own && !all)) continue;
            trial.form.add_split(use.axis, dim);
            ++trial.how.axes;
          }
        if (trial.how.axes == 0 || from.axes_of(dim) == 0) continue;
        if (!nests(split_change_of(mesh, trial.form, p_.wanted[k], dim), known_.shape_of(i)[dim])) continue;
        const auto shard = shard_bytes(i, trial.form);
        if ((lost & ~trial.form.split_axes()) != 0 && shard > limit_) continue;
        trial.how.operand = static_cast<std::int8_t>(k);
        trial.how.dim = static_cast<std::int8_t>(dim);
        const ring around = ring_of(trial.how, trial.form);
        if ((around.mask() & one_order) != 0 && adds_up(k, dim)) continue;
        const auto members = around.size(mesh);
        trial.how.both_ways = members > 2 && ring_rounds(members, true).buffers() * shard <= limit_;
        const auto start = known_.best_form(i, trial.form);
        if (start.value < 0) continue;
        const auto sent = (members - 1) * shard;
        trial.price.bytes = start.price.bytes + sent;
        trial.price.time =
            add_times(start.price.time, time_round_ring(mesh, known_.net(), around.mask(), trial.how.both_ways, sent));
        if (best.how.operand < 0 || trial.price.is_less_than(best.price)) best = trial;
      }
  }

  const form_prices& known_;
  const node& n_;
  const operator_use& p_;
  std::int64_t limit_;
};

}  // namespace gspmd::detail
