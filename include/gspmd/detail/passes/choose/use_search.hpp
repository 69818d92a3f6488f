// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>

#include "gspmd/detail/ir/opcode.hpp"
#include "gspmd/detail/ir/rule.hpp"
#include "gspmd/detail/passes/choose/cost.hpp"
#include "gspmd/detail/support/saturating.hpp"

namespace gspmd::detail {

/// One tensor of an operator in a search for the uses of the mesh axes: an operand or, last, the result.
struct use_tensor {
  std::int64_t elem_bytes = 0;  // 0: its reshards are free, as for a constant
  std::int64_t elems = 0;       // operand: elements of the shard that a device holds; result: of the shard that it must hold
  int shared_by = 1;            // number of operators that share its reshard
  inline_vec<std::int8_t, max_axes> factor_of{};  // by axis: the factor that it splits now, or must split; -1: none
};

/// Proposes joint uses of all mesh axes by the factors of an operator's rule. Each axis splits one factor, major or
/// minor to the other axes of this factor, or splits nothing.
///
///   bd,df->bf on x, y: b over x; b over x and f over y; b over x then y; b over y then x; d over x; ...
///
/// 1. Before a proposal is made, the extents of its shards give a lower bound of its communication. If the bound
///    exceeds the best cost so far, the proposal is dropped. Most proposals are dropped, so planning stays cheap.
/// 2. If more than `most_joint_uses` joint uses exist, axes that no tensor of the operator prefers stay unused.
/// 3. If the rest are still too many (many axes, and tensors with different preferences), axes are changed one at a
///    time, from several starts. An axis then only splits factors that a tensor prefers for it.
///
/// The bound: a device receives the elements that it needs and does not hold, over the fastest link.
///     operand    needed - held elements; if an axis must leave its factor, needed (n-1)/n: other devices hold the rest
///     result     the same; every element if the operator leaves the result partial
class use_search {
 public:
  static constexpr int most_joint_uses = 256;
  static constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();
  using preferences = inline_vec<factor_splits, 2 * max_map_arity + max_results>;  // of the result, of the operands, and more
  using use_tensors = inline_vec<use_tensor, max_map_arity + 1>;                   // the operands, then the result
  using axis_factors = inline_vec<std::int8_t, max_axes>;                          // by axis: the factor that it splits; -1: none

  static constexpr preferences no_preferences{};

  constexpr use_search(const mesh_shape& mesh, const network_rates& net, const op_rule& rule, const preferences& asked)
      : mesh_(mesh), rule_(rule), asked_(asked), fastest_per_kib_(net.fastest_per_kib()) {}

  /// Sets the tensors, and whether all factors are tried that no tensor prefers. Call this before `run` and
  /// `memory_of`.
  constexpr void know(const use_tensors& tensors, bool tries_all) {
    tensors_ = tensors;
    tries_all_ = tries_all;
    for (int f = 0; f < rule_.factors.count; ++f) {
      std::uint32_t in = 0;
      for (int t = 0; t < tensors.count; ++t) {
        const bool holds = rule_.uniform || rule_.maps[t].holds(f);
        if (holds) in |= 1U << t;
      }
      in_.push_back(in);
    }
    simple_ = true;
    for (const auto& map : rule_.maps)
      for (int d = 0; d < map.first.count; ++d) simple_ = simple_ && map.end(d) - map.begin(d) <= 1;
  }

  /// Calls `visit(uses, memory, limit)` for each proposal. `visit` returns the cost, or any cost with a time above
  /// `limit` if the proposal takes longer. `best` is the best cost that is known already. `memory` is the bytes of all
  /// shards of the operator.
  template <class Visit>
  constexpr void run(const cost& best, Visit visit) {
    best_ = best.limit();
    axis_mask wanted = 0;
    for (const auto& splits : asked_)
      for (const auto& use : splits) wanted |= axis_bit(use.axis);
    const auto factors = candidates();
    for (const axis_mask axes : {~axis_mask{0}, wanted}) {
      axes_.clear();
      std::int64_t joint = 1;
      for (const axis_mask part : {wanted, axes & ~wanted})  // the preferred axes decide most, so they are first
        for (int a = 0; a < mesh_.axis_count(); ++a) {
          if (mesh_.sizes[a] == 1 || (part & axis_bit(a)) == 0) continue;
          if (joint <= most_joint_uses) joint *= 1 + factors.count + axes_.count;
          axes_.push_back(static_cast<std::int8_t>(a));
        }
      if (joint > most_joint_uses) continue;
      local_.clear();
      for (int f = 0; f < rule_.factors.count; ++f) local_.push_back(rule_.factors[f].size);
      shards_.clear();
      for (int t = 0; t < tensors_.count; ++t) {
        std::int64_t elems = 1;
        for (int f = 0; f < rule_.factors.count; ++f)
          if ((in_[f] >> t & 1U) != 0) elems *= rule_.factors[f].size;
        shards_.push_back(elems);
      }
      chosen_ = axis_factors(mesh_.axis_count(), std::int8_t{-1});
      uses_.clear();
      extend(0, factors, visit);
      return;
    }
    descend(visit);
  }

  /// Returns the splits that give each axis its chosen factor. Their order is that of the first tensor with this
  /// preference.
  [[nodiscard]] constexpr factor_splits assemble(const axis_factors& chosen) const {
    factor_splits uses;
    axis_mask done = 0;
    for (const auto& splits : asked_)
      for (const auto& use : splits) {
        if (chosen[use.axis] != use.dim || (done & axis_bit(use.axis)) != 0) continue;
        done |= axis_bit(use.axis);
        add_factor_split(uses, use.axis, use.dim);
      }
    return legal(uses);
  }

  /// Removes the uses that a tensor with the factor cannot express, and the splits of whole factors.
  [[nodiscard]] constexpr factor_splits legal(factor_splits uses) const {
    if (rule_.uniform) return uses;
    for (int at = uses.count - 1; at >= 0; --at) {
      bool fits = rule_.factors[uses[at].dim].kind != factor_kind::whole;
      if (!simple_)
        for (int m = 0; m < rule_.maps.count && fits; ++m) {
          if (!rule_.maps[m].holds(uses[at].dim)) continue;
          const auto back = to_factors(mesh_, rule_, rule_.maps[m], to_dims(mesh_, rule_, rule_.maps[m], uses));
          bool found = false;
          for (const auto& use : back) found = found || use == uses[at];
          fits = found;
        }
      if (fits) continue;
      for (int i = at; i + 1 < uses.count; ++i) uses[i] = uses[i + 1];
      uses.pop_back();
      at = uses.count;  // axes that were minor to it may not fit any more
    }
    return uses;
  }

 private:
  /// Returns the factors that may be split: the factors that a tensor prefers. Adds other factors: the largest factor
  /// of each group with the same tensors and kind, or all factors.
  [[nodiscard]] constexpr inline_vec<std::int8_t, 2 * max_rank> candidates() const {
    dim_mask asked = 0;
    for (const auto& splits : asked_)
      for (const auto& use : splits) asked |= dim_bit(use.dim);
    inline_vec<std::int8_t, 2 * max_rank> result;
    for (int f = 0; f < rule_.factors.count; ++f) {
      if (rule_.factors[f].kind == factor_kind::whole) continue;
      if ((asked & dim_bit(f)) == 0) {
        bool best = rule_.factors[f].size > 1;
        for (int g = 0; g < rule_.factors.count && best && !tries_all_; ++g)
          if (g != f && in_[g] == in_[f] && (asked & dim_bit(g)) == 0 && rule_.factors[g].kind == rule_.factors[f].kind)
            best = rule_.factors[g].size < rule_.factors[f].size || (rule_.factors[g].size == rule_.factors[f].size && f < g);
        if (!best) continue;
      }
      result.push_back(static_cast<std::int8_t>(f));
    }
    return result;
  }

  template <class Visit>
  constexpr void extend(int at, const inline_vec<std::int8_t, 2 * max_rank>& factors, Visit& visit) {
    if (least(at) > best_) return;
    if (at == axes_.count) {
      propose(visit);
      return;
    }
    extend(at + 1, factors, visit);
    const std::int8_t axis = axes_[at];
    for (const auto f : factors) {
      std::int64_t parts = mesh_.sizes[axis];
      int first = 0;
      while (first < uses_.count && uses_[first].dim < f) ++first;
      int last = first;
      for (; last < uses_.count && uses_[last].dim == f; ++last) parts *= mesh_.sizes[uses_[last].axis];
      const auto before = local_[f];
      const auto after = shard_extent(rule_.factors[f].size, parts);
      const auto shards = shards_;
      for (int t = 0; t < shards_.count; ++t)
        if ((in_[f] >> t & 1U) != 0 && before != 0) shards_[t] = shards_[t] / before * after;
      local_[f] = after;
      chosen_[axis] = f;
      for (int where = first; where <= last; ++where) {
        const auto uses = uses_;
        uses_.insert(where, axis_use{axis, f});
        extend(at + 1, factors, visit);
        uses_ = uses;
      }
      chosen_[axis] = -1;
      local_[f] = before;
      shards_ = shards;
    }
  }

  /// Returns a lower bound of the time to send the missing elements, if the first `decided` axes have these uses and
  /// the other axes any.
  ///
  ///   an operand split over 4 devices that is needed whole: the time of 3/4 of its bytes
  [[nodiscard]] constexpr std::int64_t least(int decided) const {
    std::int64_t rest = 1;
    for (int i = decided; i < axes_.count; ++i) rest *= mesh_.sizes[axes_[i]];
    bool is_partial = false;
    for (int i = 0; i < decided; ++i) {
      const int f = chosen_[axes_[i]];
      is_partial = is_partial || (f >= 0 && rule_.leaves_partial(f));
    }
    std::int64_t total = 0;
    for (int t = 0; t < tensors_.count; ++t) {
      const auto& tensor = tensors_[t];
      const bool is_result = t + 1 == tensors_.count;
      const auto needed = is_result ? tensor.elems : shards_[t] / rest;
      auto missing = needed - (is_result ? shards_[t] : tensor.elems);
      if (is_result && is_partial) {
        missing = needed;
      } else {
        for (int i = 0; i < decided; ++i) {
          const int a = axes_[i];
          const int now = is_result ? chosen_[a] : tensor.factor_of[a];
          const int then = is_result ? tensor.factor_of[a] : chosen_[a];
          if (now < 0 || now == then || (in_[now] >> t & 1U) == 0) continue;
          const auto absent = needed - shard_extent(needed, mesh_.sizes[a]);
          if (absent > missing) missing = absent;
        }
      }
      if (missing > 0) total += missing * tensor.elem_bytes / tensor.shared_by;
    }
    return total == 0 ? 0 : picoseconds_of(total, fastest_per_kib_);
  }

  template <class Visit>
  constexpr void propose(Visit& visit) {
    if (!simple_ && !(legal(uses_) == uses_)) return;
    std::int64_t memory = 0;
    for (int t = 0; t < tensors_.count; ++t) memory += shards_[t] * tensors_[t].elem_bytes;
    const auto limit = visit(uses_, memory, best_).limit();
    if (limit < best_) best_ = limit;
  }

  /// Changes one axis at a time, to a factor that a tensor prefers for it or to nothing, while this lowers the cost.
  /// Starts from all preferences together, from those of each tensor, and from no use.
  template <class Visit>
  constexpr void descend(Visit& visit) {
    const auto count = mesh_.axis_count();
    inline_vec<inline_vec<std::int8_t, preferences::capacity + 1>, max_axes> options;
    for (int a = 0; a < count; ++a) {
      inline_vec<std::int8_t, preferences::capacity + 1> list;
      list.push_back(-1);
      for (const auto& splits : asked_)
        for (const auto& use : splits) {
          bool known = use.axis != a;
          for (const auto f : list) known = known || f == use.dim;
          if (!known) list.push_back(use.dim);
        }
      options.push_back(list);
    }
    for (int start = -1; start <= asked_.count; ++start) {  // -1: the first preference of each axis; the last: no use
      axis_factors chosen(count, std::int8_t{-1});
      for (int s = asked_.count - 1; s >= 0; --s)
        if (start < 0 || start == s)
          for (const auto& use : asked_[s]) chosen[use.axis] = use.dim;
      const auto begin = assemble(chosen);
      cost here = visit(begin, memory_of(begin), no_limit);
      for (bool improved = true; improved;) {
        improved = false;
        for (int a = 0; a < count; ++a)
          for (const auto f : options[a]) {
            if (chosen[a] == f) continue;
            auto trial = chosen;
            trial[a] = f;
            const auto uses = assemble(trial);
            const cost price = visit(uses, memory_of(uses), no_limit);
            if (price.refused > here.refused || (price.refused == here.refused && price.time >= here.time)) continue;
            here = price;
            chosen = trial;
            improved = true;
          }
      }
    }
  }

 public:
  /// Returns the bytes of all shards of the operator.
  [[nodiscard]] constexpr std::int64_t memory_of(const factor_splits& uses) const {
    std::int64_t memory = 0;
    for (int t = 0; t < tensors_.count; ++t) {
      std::int64_t elems = 1;
      for (int f = 0; f < rule_.factors.count; ++f) {
        if ((in_[f] >> t & 1U) == 0) continue;
        std::int64_t parts = 1;
        for (const auto& use : uses)
          if (use.dim == f) parts *= mesh_.sizes[use.axis];
        elems *= shard_extent(rule_.factors[f].size, parts);
      }
      memory += elems * tensors_[t].elem_bytes;
    }
    return memory;
  }

 private:
  const mesh_shape& mesh_;
  const op_rule& rule_;
  const preferences& asked_;
  std::int64_t fastest_per_kib_;
  use_tensors tensors_;
  inline_vec<std::uint32_t, 2 * max_rank> in_;  // by factor: a bit for each tensor that has the factor
  bool simple_ = false;                         // no dim has several factors
  bool tries_all_ = false;
  std::int64_t best_ = 0;

  // The current proposal.
  inline_vec<std::int8_t, max_axes> axes_;
  axis_factors chosen_;
  factor_splits uses_;
  inline_vec<std::int64_t, 2 * max_rank> local_;        // by factor: the local extent
  inline_vec<std::int64_t, max_map_arity + 1> shards_;  // by tensor: the elements of its shard
};

}  // namespace gspmd::detail
