// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/exec/loops.hpp"
#include "gspmd/detail/exec/permute.hpp"
#include "gspmd/detail/exec/reduce.hpp"
#include "gspmd/detail/support/inline_vec.hpp"

/// What a local einsum of two operands is, and how it is done.
namespace gspmd::detail {

inline constexpr int max_letters = 2 * max_rank;

/// An einsum equation on dense row-major local arrays. Letters are small integers; no letter occurs twice in one operand,
/// and every letter of the result occurs in an operand.
struct contraction {
  inline_vec<std::int8_t, max_rank> lhs, rhs, out;
  inline_vec<std::int64_t, max_letters> extent;  // per letter, as allocated
  friend constexpr bool operator==(const contraction&, const contraction&) = default;
};

/// What happens to an operand before the product, in this order; both steps write to scratch.
struct operand_steps {
  bool reduced = false;  // letters that only this operand has are summed away
  reduction_spec reduction;
  inline_vec<std::int8_t, max_rank> letters;  // per dim of the operand, for the bounds of the reduction
  std::int64_t reduced_at = 0;
  bool packed = false;  // the dims are brought into an order that strides can express
  permutation_spec packing;
  std::int64_t packed_at = 0;
  friend constexpr bool operator==(const operand_steps&, const operand_steps&) = default;
};

/// A loop over the elements of lhs, rhs and the result around the kernel.
using contraction_loop = strided_loop<3>;

/// How a contraction is done. Example: "bshd,bthd->bhst" is loops over b and h around one product with M = s, N = t, K = d.
///
/// 1. operand_steps of both operands.
/// 2. `loops` over letters of the result that the product does not cover.
/// 3. Inside, `sums` over contracting letters, outer to inner; the last `merged_sums` of them lie in memory such that they
///    are one K, as long as all but the first of these are whole: otherwise they are looped over too, accumulating.
/// 4. Inside, the kernel: a matrix product, or multiplication along one vector of the result (for products whose innermost
///    letter is a batch letter: there is no matrix in them).
/// 5. `unpacking`: where the product writes to scratch, the dims are brought into the result's order.
struct contraction_plan {
  std::int64_t out_elems = 0;
  std::int64_t scratch_elems = 0;
  inline_vec<std::int8_t, max_letters> summed;  // letters whose bound is looked at; a bound of 0 makes zeros
  operand_steps lhs, rhs;
  bool unpacked = false;
  permutation_spec unpacking;
  std::int64_t unpacked_at = 0;

  inline_vec<contraction_loop, max_letters> loops;
  inline_vec<contraction_loop, max_rank> sums;
  inline_vec<std::int8_t, max_rank> sum_letter;
  int merged_sums = 0;

  bool is_vector = false;
  contraction_loop vector;  // the kernel along one vector; its stride in the result is 1
  bool is_swapped = false;  // the product is (op(rhs) op(lhs)): the result lies N-major
  bool transpose_first = false, transpose_second = false;
  std::int64_t m = 1, n = 1;
  std::int64_t first_ld = 1, second_ld = 1, out_ld = 1;
  friend constexpr bool operator==(const contraction_plan&, const contraction_plan&) = default;
};

/// How many matrix products a plan runs when every bound is whole; 0 for vector plans.
constexpr std::int64_t gemm_calls(const contraction_plan& plan) {
  if (plan.is_vector) return 0;
  std::int64_t calls = 1;
  for (const auto& loop : plan.loops) calls *= loop.extent;
  for (int i = 0; i < plan.sums.count - plan.merged_sums; ++i) calls *= plan.sums[i].extent;
  return calls;
}

/// The planner's state. Buffers: 0 lhs, 1 rhs, 2 the result.
struct contraction_planner {
  enum kind : std::int8_t { absent, batch, left, right, sum };  // of a letter; left and right: free letters
  static constexpr int kind_count = 5;
  using letter_list = inline_vec<std::int8_t, max_rank>;

  /// Letters that are neighbours, in one order, in every buffer that has them and is not packed: as good as one letter.
  struct group {
    kind what = absent;
    int first = 0, count = 0;  // in `sequence`
    std::int64_t extent = 1;
    bool has_unit_stride[3]{};  // in buffers that are not packed
  };

  /// One way to do it: which buffers are packed and which groups make the matrices' extents (-1: none, that is 1).
  struct choice {
    unsigned packed = 0;
    int m = -1, n = -1, k = -1;
    int vector = -1;
    double cost = 0;
  };

  const contraction& c;
  letter_list order[3]{};  // letters left after summing and leaving out those of extent 1
  std::int8_t place[3][max_letters]{};
  kind kind_of[max_letters]{};
  double total = 1;  // multiplications
  double size[3] = {1, 1, 1};
  letter_list list_of_kind[kind_count]{};
  inline_vec<std::int8_t, max_letters> sequence{};
  inline_vec<group, max_letters> groups{};

  static constexpr unsigned buffers_of(kind what) {
    constexpr unsigned sets[kind_count] = {0, 7, 5, 6, 3};
    return sets[what];
  }

  constexpr explicit contraction_planner(const contraction& what) : c(what) {
    bool in[3][max_letters]{};
    const letter_list* lists[3] = {&c.lhs, &c.rhs, &c.out};
    for (int b = 0; b < 3; ++b)
      for (const auto letter : *lists[b]) in[b][letter] = true;
    for (int l = 0; l < c.extent.count; ++l) {
      if (c.extent[l] == 1) continue;
      if (in[2][l]) kind_of[l] = in[0][l] ? (in[1][l] ? batch : left) : right;
      else if (in[0][l] && in[1][l]) kind_of[l] = sum;
      if (kind_of[l] != absent) total *= static_cast<double>(c.extent[l]);
    }
    for (int b = 0; b < 3; ++b)
      for (const auto letter : *lists[b])
        if (kind_of[letter] != absent) {
          place[b][letter] = static_cast<std::int8_t>(order[b].count);
          order[b].push_back(letter);
          size[b] *= static_cast<double>(c.extent[letter]);
        }
  }

  constexpr bool are_neighbours(unsigned buffers, int a, int b) const {
    for (int buffer = 0; buffer < 3; ++buffer)
      if ((buffers >> buffer & 1U) != 0 && place[buffer][b] != place[buffer][a] + 1) return false;
    return true;
  }

  constexpr void make_groups(unsigned packed) {
    groups.count = 0;
    sequence.count = 0;
    for (const auto what : {batch, left, right, sum}) {
      const unsigned fixed = buffers_of(what) & ~packed;
      const unsigned reference = fixed != 0 ? fixed : buffers_of(what);
      const auto& letters = order[(reference & 4U) != 0 ? 2 : (reference & 1U) != 0 ? 0 : 1];
      int previous = -1;
      for (const auto letter : letters) {
        if (kind_of[letter] != what) continue;
        if (previous < 0 || !are_neighbours(fixed, previous, letter)) {
          group fresh;
          fresh.what = what;
          fresh.first = sequence.count;
          groups.push_back(fresh);
        }
        sequence.push_back(letter);
        auto& g = groups[groups.count - 1];
        ++g.count;
        g.extent *= c.extent[letter];
        previous = letter;
      }
    }
    for (auto& g : groups)
      for (int b = 0; b < 3; ++b) {
        const int last = sequence[g.first + g.count - 1];
        g.has_unit_stride[b] =
            (buffers_of(g.what) >> b & 1U) != 0 && (packed >> b & 1U) == 0 && place[b][last] == order[b].count - 1;
      }
  }

  constexpr double extent_of(int g) const { return g < 0 ? 1.0 : static_cast<double>(groups[g].extent); }
  constexpr bool has_unit_stride(int g, int buffer) const { return g < 0 || groups[g].has_unit_stride[buffer]; }

  /// A matrix needs a unit stride in one of its two directions; a vector may have any.
  constexpr bool is_matrix(int a, int b, int buffer, unsigned packed) const {
    return (packed >> buffer & 1U) != 0 || a < 0 || b < 0 || has_unit_stride(a, buffer) || has_unit_stride(b, buffer);
  }

  // Costs are in multiplications at the peak of a matrix product, some 60 per ns: moving an element costs 10 to 40 of them.
  constexpr double gemm_cost(double m, double n, double k) const {
    const double work = m * n * k;
    if (work <= 512) return total / work * (100 + work * 16);
    if (m == 1 || n == 1 || k == 1) return total / work * (4000 + work * 8);
    return total / work * (6000 + work + 12 * (m * k + k * n) + 24 * m * n);
  }
  constexpr double packing_cost(unsigned packed) const {
    double cost = 0;
    for (int b = 0; b < 3; ++b)
      if ((packed >> b & 1U) != 0) cost += 400 + 40 * size[b];
    return cost;
  }

  /// The candidates for M, N or K among the groups of a kind: those with a unit stride somewhere, and the largest; and none.
  constexpr inline_vec<int, 5> candidates(kind what) const {
    inline_vec<int, 5> list;
    int largest = -1;
    for (int g = 0; g < groups.count; ++g) {
      if (groups[g].what != what) continue;
      if (groups[g].has_unit_stride[0] || groups[g].has_unit_stride[1] || groups[g].has_unit_stride[2]) list.push_back(g);
      if (largest < 0 || groups[g].extent > groups[largest].extent) largest = g;
    }
    bool listed = largest < 0;
    for (const auto g : list) listed = listed || g == largest;
    if (!listed) list.push_back(largest);
    list.push_back(-1);
    return list;
  }

  constexpr void consider_gemms(unsigned packed, choice& best) const {
    const auto ms = candidates(left), ns = candidates(right), ks = candidates(sum);
    const double packing = packing_cost(packed);
    for (const auto m : ms)
      for (const auto n : ns)
        for (const auto k : ks) {
          if (!is_matrix(m, k, 0, packed) || !is_matrix(k, n, 1, packed) || !is_matrix(m, n, 2, packed)) continue;
          // One product without any copy is what cannot be improved on; never leave it for a guess about small sizes.
          const bool is_all = packed == 0 && k >= 0 && (m >= 0) + (n >= 0) + 1 == groups.count;
          const double cost = is_all ? 0 : packing + gemm_cost(extent_of(m), extent_of(n), extent_of(k));
          if (best.cost < 0 || cost < best.cost) best = {packed, m, n, k, -1, cost};
        }
  }

  constexpr void consider_vector(choice& best) const {
    for (int g = 0; g < groups.count; ++g) {
      if (!groups[g].has_unit_stride[2]) continue;
      bool is_smooth = true;
      for (int b = 0; b < 2; ++b)
        if ((buffers_of(groups[g].what) >> b & 1U) != 0 && !groups[g].has_unit_stride[b]) is_smooth = false;
      const double cost = total * (is_smooth ? 8 : 40) + total / extent_of(g) * 30;
      if (best.cost < 0 || cost < best.cost) best = {0, -1, -1, -1, g, cost};
    }
  }

  /// The order of a buffer's letters when it is packed: what the product does not cover outermost, its matrix innermost,
  /// and of the matrix that dim last that was last before, for that keeps rows whole.
  constexpr letter_list packed_order(int buffer, int a, int b) const {
    const int last = order[buffer][order[buffer].count - 1];
    if (a >= 0)
      for (int i = 0; i < groups[a].count; ++i)
        if (sequence[groups[a].first + i] == last) {
          const int other = a;
          a = b;
          b = other;
          break;
        }
    letter_list result;
    for (int g = 0; g < groups.count; ++g)
      if (g != a && g != b && (buffers_of(groups[g].what) >> buffer & 1U) != 0) append(result, g);
    if (a >= 0) append(result, a);
    if (b >= 0) append(result, b);
    return result;
  }
  constexpr void append(letter_list& to, int g) const {
    for (int i = 0; i < groups[g].count; ++i) to.push_back(sequence[groups[g].first + i]);
  }

  static constexpr std::int64_t reserve(std::int64_t& scratch, double elems) {
    const auto at = scratch;
    scratch += (static_cast<std::int64_t>(elems) + 15) / 16 * 16;  // whole cache lines
    return at;
  }

  constexpr choice choose() {
    choice best;
    best.cost = -1;
    make_groups(0);
    consider_gemms(0, best);
    if (best.cost == 0) return best;
    consider_vector(best);
    bool has_matrices = false;  // else packing cannot make any
    for (const auto& g : groups) has_matrices = has_matrices || g.what != batch;
    for (unsigned packed = 1; has_matrices && packed < 8; ++packed) {
      if (best.cost <= packing_cost(packed)) continue;
      bool is_sensible = true;
      for (int b = 0; b < 3; ++b)
        if ((packed >> b & 1U) != 0 && order[b].count < 2) is_sensible = false;
      if (!is_sensible) continue;
      make_groups(packed);
      consider_gemms(packed, best);
    }
    make_groups(best.packed);
    return best;
  }

  constexpr void plan_reduction_of(const letter_list& letters, operand_steps& steps, contraction_plan& plan) const {
    steps.letters = letters;
    double elems = 1;
    for (int d = 0; d < letters.count; ++d) {
      const int l = letters[d];
      steps.reduction.in.push_back(c.extent[l]);
      if (kind_of[l] == absent && c.extent[l] != 1) {
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
    for (const auto letter : order[buffer]) steps.packing.in.push_back(c.extent[letter]);
    for (const auto letter : laid_out[buffer]) steps.packing.permutation.push_back(place[buffer][letter]);
  }

  constexpr contraction_plan plan() {
    contraction_plan p = outline();
    for (const auto l : p.summed)
      if (c.extent[l] == 0) return p;  // zeros, whatever the rest
    if (p.out_elems != 0) complete(p, choose());
    return p;
  }

  /// The best plan that packs just these buffers, whatever it costs: for tests.
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
    letter_list laid_out[3] = {order[0], order[1], order[2]};
    if ((best.packed & 1U) != 0) plan_packing(0, best.m, best.k, laid_out, p.lhs, p);
    if ((best.packed & 2U) != 0) plan_packing(1, best.k, best.n, laid_out, p.rhs, p);
    if ((best.packed & 4U) != 0) {
      laid_out[2] = packed_order(2, best.m, best.n);
      p.unpacked = true;
      p.unpacked_at = reserve(p.scratch_elems, size[2]);
      std::int8_t packed_place[max_letters]{};
      for (int i = 0; i < laid_out[2].count; ++i) {
        packed_place[laid_out[2][i]] = static_cast<std::int8_t>(i);
        p.unpacking.in.push_back(c.extent[laid_out[2][i]]);
      }
      for (const auto letter : order[2]) p.unpacking.permutation.push_back(packed_place[letter]);
    }

    std::int64_t stride[3][max_letters]{};
    for (int b = 0; b < 3; ++b) {
      std::int64_t s = 1;
      for (int i = laid_out[b].count - 1; i >= 0; --i) {
        stride[b][laid_out[b][i]] = s;
        s *= c.extent[laid_out[b][i]];
      }
    }
    const auto loop_of = [&](std::int64_t extent, int l) {
      return contraction_loop{extent, {stride[0][l], stride[1][l], stride[2][l]}};
    };
    const auto loop_of_group = [&](int g) { return loop_of(groups[g].extent, sequence[groups[g].first + groups[g].count - 1]); };
    const auto add_sums = [&](int g) {
      for (int i = 0; i < groups[g].count; ++i) {
        const int l = sequence[groups[g].first + i];
        p.sums.push_back(loop_of(c.extent[l], l));
        p.sum_letter.push_back(static_cast<std::int8_t>(l));
      }
    };
    // Outer to inner as the result lies in memory where possible; the groups are listed in the result's order per kind.
    for (int g = 0; g < groups.count; ++g) {
      if (groups[g].what == sum && g != best.k) add_sums(g);
      if (groups[g].what != sum && g != best.m && g != best.n && g != best.vector) p.loops.push_back(loop_of_group(g));
    }
    if (best.vector >= 0) {
      p.is_vector = true;
      p.vector = loop_of_group(best.vector);
      return;
    }
    contraction_loop m, n, k;  // extent 1 where there is none
    if (best.m >= 0) m = loop_of_group(best.m);
    if (best.n >= 0) n = loop_of_group(best.n);
    if (best.k >= 0) {
      k = loop_of_group(best.k);
      add_sums(best.k);
      p.merged_sums = groups[best.k].count;
    }
    p.is_swapped = best.n >= 0 && n.stride[2] != 1;
    const auto& rows = p.is_swapped ? n : m;
    const auto& columns = p.is_swapped ? m : n;
    const int first = p.is_swapped ? 1 : 0, second = 1 - first;
    p.m = rows.extent;
    p.n = columns.extent;
    // Of a matrix with one row or column the stride goes into the leading dimension, so that it may be any.
    const auto orient = [](const contraction_loop& r, const contraction_loop& col, int b, bool& transpose, std::int64_t& ld) {
      transpose = r.extent == 1 || (col.extent != 1 && col.stride[b] != 1);
      ld = transpose ? (col.extent == 1 ? r.extent : col.stride[b]) : (r.extent == 1 ? col.extent : r.stride[b]);
    };
    orient(rows, k, first, p.transpose_first, p.first_ld);
    orient(k, columns, second, p.transpose_second, p.second_ld);
    p.out_ld = rows.extent == 1 ? columns.extent : rows.stride[2];
  }
};

/// How to do a contraction, with little copying and few, large matrix products.
constexpr contraction_plan plan_contraction(const contraction& c) { return contraction_planner(c).plan(); }

}  // namespace gspmd::detail
