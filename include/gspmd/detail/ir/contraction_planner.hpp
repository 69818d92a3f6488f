// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/contraction_choice.hpp"
#include "gspmd/detail/ir/direct_convolution.hpp"
#include "gspmd/detail/support/tuning.hpp"

namespace gspmd::detail {

/// Writes the plan of the chosen method: offsets in scratch, loops, strides.
struct contraction_planner : contraction_choice {
  using contraction_choice::contraction_choice;

  static constexpr std::int64_t reserve(std::int64_t& scratch, double elems) {
    const auto at = scratch;
    scratch += (static_cast<std::int64_t>(elems) + 15) / 16 * 16;  // whole cache lines
    return at;
  }

  constexpr void plan_reduction_of(const letter_list& letters, operand_steps& steps, contraction_plan& plan) const {
    steps.letters = letters;
    double elems = 1;
    for (int d = 0; d < letters.count; ++d) {
      const int l = letters[d];
      steps.reduction.in.push_back(c.extent[l]);
      if (kind_of[l] == absent && c.extent[l] != 1 && !is_phased_inner(l)) {
        steps.reduction.dims |= dim_bit(d);
        steps.reduced = true;
      } else {
        elems *= static_cast<double>(c.extent[l]);
      }
    }
    if (steps.reduced) steps.reduced_at = reserve(plan.scratch_elems, elems);
  }

  constexpr void plan_packing(int buffer, int a, int b, letter_list (&laid_out)[3], operand_steps& steps,
                              contraction_plan& plan) const {
    laid_out[buffer] = packed_order(buffer, a, b);
    steps.packed = true;
    steps.packed_at = reserve(plan.scratch_elems, size[buffer]);
    permute_dims(buffer, dims[buffer], laid_out[buffer], steps.packing);
  }
  constexpr void permute_dims(int buffer, const letter_list& from, const letter_list& to, permutation_spec& spec) const {
    std::int8_t place[max_letters]{};
    for (int i = 0; i < from.count; ++i) {
      place[from[i]] = static_cast<std::int8_t>(i);
      spec.in.push_back(extent_of_dim(buffer, from[i]));
    }
    for (const auto letter : to) spec.permutation.push_back(place[letter]);
  }

  constexpr contraction_plan plan() {
    contraction_plan p = outline();
    for (const auto l : p.summed)
      if (c.extent[l] == 0) return p;  // the result is zeros
    if (p.out_elems == 0) return p;
    complete(p, choose());
    if (!c.windows.empty()) p.direct = find_direct_convolution(c);
    return p;
  }

  /// Returns the best plan that packs exactly these buffers, at any cost: for tests.
  constexpr contraction_plan plan_as(unsigned packed) {
    contraction_plan p = outline();
    choice best;
    best.cost = -1;
    make_groups(packed);
    consider_gemms(packed, best);
    complete(p, best);
    return p;
  }

  constexpr contraction_plan outline() const {
    contraction_plan p;
    p.out_elems = 1;
    bool is_listed[max_letters]{};
    for (const auto l : c.out) {
      p.out_elems *= c.extent[l];
      is_listed[l] = true;
    }
    for (const auto* operand : {&c.lhs, &c.rhs})
      for (const auto l : *operand)
        if (!is_listed[l]) {
          p.summed.push_back(l);
          is_listed[l] = true;
        }
    return p;
  }

  constexpr void complete(contraction_plan& p, const choice& best) const {
    plan_reduction_of(c.lhs, p.lhs, p);
    plan_reduction_of(c.rhs, p.rhs, p);
    letter_list laid_out[3] = {dims[0], dims[1], dims[2]};
    if ((best.packed & 1U) != 0) plan_packing(0, best.m, best.k, laid_out, p.lhs, p);
    if ((best.packed & 2U) != 0) plan_packing(1, best.k, best.n, laid_out, p.rhs, p);
    if ((best.packed & 4U) != 0) {
      laid_out[2] = packed_order(2, best.m, best.n);
      p.unpacked = true;
      p.unpacked_at = reserve(p.scratch_elems, size[2]);
      permute_dims(2, laid_out[2], dims[2], p.unpacking);
    }

    std::int64_t strides[3][max_letters]{};
    for (int b = 0; b < 3; ++b) set_strides(b, laid_out[b], strides[b]);
    if (!c.windows.empty()) {
      std::int64_t elems = 1;
      for (int i = laid_out[0].count - 1; i >= 0; --i) {
        const int letter = laid_out[0][i];
        if (has_window(letter)) p.lhs_first += c.windows[window_of[letter] - 1].first * elems;
        elems *= extent_of_dim(0, letter);
      }
    }
    const auto loop_of = [&](std::int64_t extent, int l) {
      return contraction_loop{extent, {strides[0][l], strides[1][l], strides[2][l]}};
    };
    const auto loop_of_group = [&](int g) { return loop_of(groups[g].extent, sequence[groups[g].first + groups[g].count - 1]); };
    const auto add_sums = [&](int g) {
      for (int i = 0; i < groups[g].count; ++i) {
        const int l = sequence[groups[g].first + i];
        p.sums.push_back(loop_of(c.extent[l], l));
        p.sum_letter.push_back(static_cast<std::int8_t>(l));
      }
    };
    // Loops are outer to inner in the order of the result in memory if possible. The groups of a kind are in the order
    // of the result.
    for (int g = 0; g < groups.count; ++g) {
      if (groups[g].what == sum && g != best.k) add_sums(g);
      if (groups[g].what != sum && g != best.m && g != best.n && g != best.vector) p.loops.push_back(loop_of_group(g));
    }
    const auto add_phases = [&](const choice& made) {
      for (const auto& w : c.windows) {
        if (w.base == 1) continue;
        contraction_phase phase;
        phase.inner = loop_of(c.extent[w.inner], w.inner);
        phase.outer = loop_of(c.extent[w.letter], w.letter);
        phase.first = w.first - w.held;
        phase.step = w.step;
        phase.inner_step = w.inner_step;
        phase.base = phase.period = w.base;
        for (std::int64_t n = 1; n < w.base; ++n)
          if (w.step * n % w.base == 0 && n < phase.period) phase.period = n;
        phase.letter = w.letter;
        phase.inner_letter = w.inner;
        for (const auto l : p.summed) phase.sums_inner = phase.sums_inner || l == w.inner;
        for (int i = 0; i < p.sums.count; ++i)
          if (p.sum_letter[i] == w.letter) {
            phase.where = contraction_phase::in_sums;
            phase.number = static_cast<std::int8_t>(i);
          }
        int loop = 0;
        for (int g = 0; g < groups.count; ++g) {
          const bool is_looped = groups[g].what != sum && g != made.m && g != made.n && g != made.vector;
          if (is_phased_group(g) && sequence[groups[g].first] == w.letter && groups[g].what != sum) {
            phase.where = is_looped ? contraction_phase::in_loops : contraction_phase::in_rows;
            phase.number = static_cast<std::int8_t>(loop);
          }
          loop += is_looped ? 1 : 0;
        }
        p.phases.push_back(phase);
        p.has_phases = true;
      }
    };
    const auto add_parts = [&](std::int64_t elems) {
      p.levels = summing_levels(p, c.padded);
      if (p.levels > 0) p.parts_at = reserve(p.scratch_elems, static_cast<double>(p.levels * elems));
    };
    if (best.vector >= 0) {
      p.is_vector = true;
      p.vector = loop_of_group(best.vector);
      add_parts(p.vector.extent);
      add_phases(best);
      return;
    }
    contraction_loop m, n, k;  // extent 1 if the group does not exist
    if (best.m >= 0) m = loop_of_group(best.m);
    if (best.n >= 0) n = loop_of_group(best.n);
    if (best.k >= 0) {
      k = loop_of_group(best.k);
      add_sums(best.k);
      p.merged_sums = groups[best.k].count;
    }
    p.is_swapped = best.n >= 0 && n.stride[2] != 1;
    const auto& rows = p.is_swapped ? n : m;
    const auto& cols = p.is_swapped ? m : n;
    const int first = p.is_swapped ? 1 : 0, second = 1 - first;
    p.m = rows.extent;
    p.n = cols.extent;
    // If a matrix has one row or column, its stride becomes the leading dimension, so it can be any stride.
    const auto orient = [](const contraction_loop& r, const contraction_loop& col, int b, bool& transpose, std::int64_t& ld) {
      transpose = r.extent == 1 || (col.extent != 1 && col.stride[b] != 1);
      ld = transpose ? (col.extent == 1 ? r.extent : col.stride[b]) : (r.extent == 1 ? col.extent : r.stride[b]);
    };
    orient(rows, k, first, p.transpose_first, p.first_ld);
    orient(k, cols, second, p.transpose_second, p.second_ld);
    p.out_ld = rows.extent == 1 ? cols.extent : rows.stride[2];
    if (has_panels(p, k.extent)) {
      p.panel = k.extent < narrow_panel_terms ? k.extent : narrow_panel_terms;
      p.panels_at = reserve(p.scratch_elems, static_cast<double>(p.m + p.n) * static_cast<double>(p.panel));
      return;
    }
    add_parts(p.m * p.n);
    add_phases(best);
  }

  /// Returns true if narrow operands are widened panel by panel: the product is large and reads both operands in place.
  /// Panels are added in sequence, so their number is limited.
  [[nodiscard]] constexpr bool has_panels(const contraction_plan& p, std::int64_t terms) const {
    return c.is_narrow && c.windows.empty() && p.merged_sums > 0 && !p.lhs.reduced && !p.lhs.packed && !p.rhs.reduced &&
           !p.rhs.packed && !p.unpacked && terms <= 64 * narrow_panel_terms && terms > 0 &&
           p.m + p.n >= worth_panels_elems / terms;
  }
};

/// Returns the plan of a contraction, with little copying and few, large matrix products.
constexpr contraction_plan plan_contraction(const contraction& c) { return contraction_planner(c).plan(); }

}  // namespace gspmd::detail
