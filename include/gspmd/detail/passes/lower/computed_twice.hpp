// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/lower/step_state.hpp"
#include "gspmd/detail/support/tuning.hpp"

namespace gspmd::detail {

/// Finds reduced operands that later loops compute a second time, so that no memory holds them.
///
///   argmax of x[i] - y[j], j split    one loop for the maximum, all_reduce, one loop for the index: both loops read x
///                                     and y
///
/// The second loop reads no more than it would read of the stored operand, and its bits are the same.
class computed_twice {
 public:
  constexpr explicit computed_twice(const step_state& state) : s_(state) {}

  /// Returns true if `v` is such an operand. `made`: the operators that compute it, `v` last. `reductions`: those of
  /// the loop.
  [[nodiscard]] constexpr bool contains(int v, const vec<int>& made, const vec<waiting_reduction>& reductions) const {
    const auto& operand = s_.program_.value(v);
    return saturating_multiply(elements(operand.local), bytes_of(operand.type)) >= least_recomputed_bytes &&
           !is_row_by_row(v, reductions) && has_only_loops(v, reductions) && is_cheap(v, made);
  }

 private:
  /// The most work for an element, in additions. If only reductions use `v`, no loop stores an array of its size, and
  /// 32 additions take as long as writing and reading an element (4096 x 4096 floats on one core).
  static constexpr int most_work = 8, most_work_of_reduced = 32;

  /// Returns true if a run of row blocks can hold the operand (row_blocks.hpp): no reduction is over the outermost
  /// dim, and `compute` instructions read the results.
  [[nodiscard]] constexpr bool is_row_by_row(int v, const vec<waiting_reduction>& reductions) const {
    const extents& loop = s_.program_.value(v).local;
    int outermost = 0;
    while (outermost + 1 < loop.count && loop[outermost] == 1) ++outermost;
    for (const auto& f : reductions) {
      if ((f.dims & dim_bit(outermost)) != 0) return false;
      vec<int> names(1, f.result);  // all values that share the memory of the result
      for (std::size_t k = 0; k < names.size(); ++k)
        for (int r = s_.readers_from_[names[k]]; r < s_.readers_from_[names[k] + 1]; ++r) {
          const int w = s_.readers_[r];
          if (w < 0) continue;
          if (s_.maker(w).what != instruction_kind::compute) return false;
          if (realisation_of(*s_.graph_, s_.maker(w)) == realisation::alias) names.push_back(w);
        }
    }
    return true;
  }
  /// Returns true if all users except these reductions are loops over the same elements that are not computed yet.
  [[nodiscard]] constexpr bool has_only_loops(int v, const vec<waiting_reduction>& reductions) const {
    int readers = 0, others = 0;
    for (int r = s_.readers_from_[v]; r < s_.readers_from_[v + 1]; ++r) {
      const int w = s_.readers_[r];
      if (w >= 0 && s_.step_[w] >= 0) continue;  // already computed
      ++readers;
      bool is_reduced = false;
      for (const auto& f : reductions) is_reduced = is_reduced || f.result == w;
      if (is_reduced) continue;
      ++others;
      if (w < 0 || !s_.is_lazy(s_.maker(w)) || s_.is_virtual(s_.maker(w)) ||
          !(s_.program_.value(w).local == s_.program_.value(v).local))
        return false;
    }
    return others > 0 && readers == s_.uses_[v];
  }
  /// Returns true if each value that loops compute from `v` is used only by loops and reductions to fewer elements.
  [[nodiscard]] constexpr bool is_only_reduced(int v) const {
    constexpr std::size_t most_looked_at = 32;
    vec<int> open(1, v);
    for (std::size_t k = 0; k < open.size(); ++k)
      for (int r = s_.readers_from_[open[k]]; r < s_.readers_from_[open[k] + 1]; ++r) {
        const int w = s_.readers_[r];
        if (w < 0 || s_.maker(w).what != instruction_kind::compute) return false;
        if (s_.is_lazy(s_.maker(w))) {
          if (is_one_of(open, w)) continue;
          if (open.size() == most_looked_at) return false;
          open.push_back(w);
        } else if (s_.maker(w).operands.count != 1 ||
                   elements(s_.program_.value(w).local) >= elements(s_.program_.value(v).local)) {
          return false;
        }
      }
    return true;
  }
  /// Returns true if little work computes `v` from values in memory. At most one of these values has more than 1/8 of
  /// the elements of `v`, and that value is an input.
  [[nodiscard]] constexpr bool is_cheap(int v, const vec<int>& made) const {
    const int most = is_only_reduced(v) ? most_work_of_reduced : most_work;
    int large = -1, work = 0;
    for (const int m : made) {
      const instruction& op = s_.maker(m);
      if ((work += additions_of(s_.node_of(op).op)) > most) return false;
      int uses = 0;
      for (const int reader : made)
        for (const int o : s_.maker(reader).operands) uses += o == m ? 1 : 0;
      if (m != v && s_.uses_[m] != uses) return false;
      for (int o : op.operands) {
        if (is_one_of(made, o)) continue;
        while (s_.waits_virtual(o) && s_.maker(o).operands.count > 0) o = s_.maker(o).operands[0];
        if (s_.waits(o)) continue;  // a constant or an iota
        if (s_.offsets.read_of(o) != nullptr) return false;
        const int in = s_.base[o];
        if (8 * elements(s_.program_.value(in).local) <= elements(s_.program_.value(v).local) || in == large) continue;
        if (large >= 0 || !is_input(in)) return false;
        large = in;
      }
    }
    return true;
  }
  [[nodiscard]] static constexpr bool is_one_of(const vec<int>& list, int v) {
    for (const int m : list)
      if (m == v) return true;
    return false;
  }
  [[nodiscard]] constexpr bool is_input(int v) const {
    for (const int i : s_.program_.inputs)
      if (i == v) return true;
    return false;
  }

  const step_state& s_;
};

}  // namespace gspmd::detail
