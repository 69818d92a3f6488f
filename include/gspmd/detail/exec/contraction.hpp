// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "gspmd/detail/exec/contraction_plan.hpp"
#include "gspmd/detail/exec/gemm.hpp"
#include "gspmd/detail/exec/permute.hpp"
#include "gspmd/detail/exec/reduce.hpp"

/// The local einsum of two operands.
namespace gspmd::detail {

/// out[v] = the sum over `sums` of lhs[... + v] * rhs[... + v] for a few vectors at once, so that the result is written once.
/// A buffer that is not a vector here is a scalar. `accumulate`: out[v] += the sum.
template <bool LhsIsVector, bool RhsIsVector, class U>
inline void multiply_vectors(const contraction_loop& vector, const contraction_loop* sums, int sum_count, const U* a, const U* b,
                             U* c, bool accumulate) {
  constexpr int lanes = simd_lanes<U>;
  const auto operand = [](const U* from, auto is_vector) {
    if constexpr (is_vector.value) return load_simd(from);
    else return broadcast_simd(*from);
  };
  const std::bool_constant<LhsIsVector> is_a;
  const std::bool_constant<RhsIsVector> is_b;
  std::int64_t v = 0;
  for (; v + 4 * lanes <= vector.extent; v += 4 * lanes) {
    const U* av = a + (LhsIsVector ? v : 0);
    const U* bv = b + (RhsIsVector ? v : 0);
    simd<U> acc[4] = {};
    if (accumulate)
      for (int i = 0; i < 4; ++i) acc[i] = load_simd(c + v + i * lanes);
    for_each_offset<3>(sums, sum_count, [&](const std::int64_t* at) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i)
        acc[i] +=
            operand(av + at[0] + (LhsIsVector ? i * lanes : 0), is_a) * operand(bv + at[1] + (RhsIsVector ? i * lanes : 0), is_b);
    });
    for (int i = 0; i < 4; ++i) store_simd(c + v + i * lanes, acc[i]);
  }
  for (; v + lanes <= vector.extent; v += lanes) {
    simd<U> acc{};
    if (accumulate) acc = load_simd(c + v);
    for_each_offset<3>(sums, sum_count, [&](const std::int64_t* at) {
      acc += operand(a + at[0] + (LhsIsVector ? v : 0), is_a) * operand(b + at[1] + (RhsIsVector ? v : 0), is_b);
    });
    store_simd(c + v, acc);
  }
  for (; v < vector.extent; ++v) {
    U acc = accumulate ? c[v] : U{};
    for_each_offset<3>(sums, sum_count, [&](const std::int64_t* at) {
      acc += a[at[0] + (LhsIsVector ? v : 0)] * b[at[1] + (RhsIsVector ? v : 0)];
    });
    c[v] = acc;
  }
}

template <class U>
inline void contract_vector(const contraction_loop& vector, const contraction_loop* sums, int sum_count, const U* a, const U* b,
                            U* c, bool accumulate) {
  const auto as = vector.stride[0], bs = vector.stride[1];
  if (as == 1 && bs == 1) return multiply_vectors<true, true>(vector, sums, sum_count, a, b, c, accumulate);
  if (as == 1 && bs == 0) return multiply_vectors<true, false>(vector, sums, sum_count, a, b, c, accumulate);
  if (as == 0 && bs == 1) return multiply_vectors<false, true>(vector, sums, sum_count, a, b, c, accumulate);
  for (std::int64_t v = 0; v < vector.extent; ++v) {
    U acc = accumulate ? c[v] : U{};
    for_each_offset<3>(sums, sum_count, [&](const std::int64_t* at) { acc += a[at[0] + v * as] * b[at[1] + v * bs]; });
    c[v] = acc;
  }
}

/// The sums of a contraction with their bounds, and the part of them that is the K of one product.
struct bounded_sums {
  contraction_loop loops[max_rank];
  int count = 0;
  std::int64_t k = 1;

  inline bounded_sums(const contraction_plan& p, const std::int64_t* valid) : count(p.sums.count) {
    for (int i = 0; i < count; ++i) {
      loops[i] = p.sums[i];
      loops[i].extent = valid[p.sum_letter[i]];
    }
    if (p.merged_sums == 0) return;
    const int first = count - p.merged_sums;
    do {
      --count;
      k *= loops[count].extent;
    } while (count > first && loops[count].extent == p.sums[count].extent);
  }
};

template <class T, class Spec>
const T* prepare_operand(Spec spec, const std::int64_t* valid, const T* from, T* scratch) {
  const operand_steps& s = spec();
  if constexpr (may_hold<&operand_steps::reduced, Spec>())
    if (s.reduced) {
      std::int64_t bounds[max_rank];
      for (int d = 0; d < s.letters.count; ++d) bounds[d] = valid[s.letters[d]];
      const auto reduction = member_of<&operand_steps::reduction>(spec);
      with_derived<plan_reduction>(reduction,
                                   [&](auto plan) { reduce_as<monoid::add, T>(plan(), bounds, from, scratch + s.reduced_at); });
      from = scratch + s.reduced_at;
    }
  if constexpr (may_hold<&operand_steps::packed, Spec>())
    if (s.packed) {
      permute<T>(member_of<&operand_steps::packing>(spec), from, scratch + s.packed_at);
      from = scratch + s.packed_at;
    }
  return from;
}

/// out = the products that `contract` is about, or out += with `adds`, in the order in which the plan's kernel leaves them.
template <class T, class Spec>
void add_products(Spec spec, const std::int64_t* valid, const T* a, const T* b, T* out, T* scratch, bool adds) {
  const contraction_plan& p = spec();
  a = prepare_operand(member_of<&contraction_plan::lhs>(spec), valid, a, scratch);
  b = prepare_operand(member_of<&contraction_plan::rhs>(spec), valid, b, scratch);
  const bounded_sums sums(p, valid);

  if (may_hold<&contraction_plan::is_vector, Spec>() && p.is_vector) {
    using u = kernel_t<T>;
    for_each_offset<3>(p.loops.items, p.loops.count, [&](const std::int64_t* at) {
      contract_vector(p.vector, sums.loops, sums.count, reinterpret_cast<const u*>(a) + at[0],
                      reinterpret_cast<const u*>(b) + at[1], reinterpret_cast<u*>(out) + at[2], adds);
    });
  } else {
    for_each_offset<3>(p.loops.items, p.loops.count, [&](const std::int64_t* at) {
      bool accumulate = adds;
      for_each_offset<3>(sums.loops, sums.count, [&](const std::int64_t* sum_at) {
        const T* left = a + at[0] + sum_at[0];
        const T* right = b + at[1] + sum_at[1];
        gemm(p.transpose_first, p.transpose_second, p.m, p.n, sums.k, p.is_swapped ? right : left, p.first_ld,
             p.is_swapped ? left : right, p.second_ld, out + at[2], p.out_ld, accumulate);
        accumulate = true;
      });
    });
  }
}

/// c = the einsum of a and b that `plan` was made for; `scratch` has plan.scratch_elems elements. Of a letter that is
/// summed only indices below valid[letter] take part; the rest of the operands there may hold anything. Of the other letters
/// valid is not read, and results that come from elements past the end of a shard are arbitrary as well.
///
/// A sum may be made in parts: `adds` says that this part is not the first, and only the `last` one leaves it in c; the calls
/// share c and scratch.
template <class T, class Spec>
void contract(Spec spec, const std::int64_t* valid, const T* a, const T* b, T* c, T* scratch, bool adds = false,
              bool last = true) {
  static_assert(!std::is_same_v<T, bool>, "gspmd: einsum is not defined on bool");
  const contraction_plan& p = spec();
  if (p.out_elems == 0) return;
  T* out = p.unpacked ? scratch + p.unpacked_at : c;
  bool is_empty = false;
  for (const auto letter : p.summed) is_empty = is_empty || valid[letter] <= 0;
  if (!is_empty) add_products(spec, valid, a, b, out, scratch, adds);
  else if (!adds) std::fill_n(out, p.out_elems, T{});
  if constexpr (may_hold<&contraction_plan::unpacked, Spec>())
    if (p.unpacked && last) permute<T>(member_of<&contraction_plan::unpacking>(spec), out, c);
}

}  // namespace gspmd::detail
