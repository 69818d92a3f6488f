// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ir/contraction_plan.hpp"
#include "gspmd/detail/ir/spec.hpp"
#include "gspmd/detail/kernels/convolution_onednn.hpp"
#include "gspmd/detail/kernels/gemm.hpp"
#include "gspmd/detail/kernels/permute.hpp"
#include "gspmd/detail/kernels/reduce.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/support/target.hpp"

/// The local einsum of two operands.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Calls body(offset in operand `first`, offset in the other operand) for each term of a sum.
template <class Body>
inline void for_each_term(const contraction_loop* sums, int sum_count, int first, const Body& body) {
  if (sum_count == 0) return body(0, 0);
  const auto& last = sums[sum_count - 1];  // a separate loop: an odometer step would cost more than a multiplication
  const auto step = last.stride[first], other_step = last.stride[1 - first];
  for (odometer<3> at(sums, sum_count - 1); at.is_there; at.step()) {
    std::int64_t left = at.offset[first], right = at.offset[1 - first];
    for (std::int64_t k = 0; k < last.extent; ++k, left += step, right += other_step) body(left, right);
  }
}

/// Loads a vector of `Bytes` bytes, or broadcasts one element to a vector.
template <bool IsVector, int Bytes, class U>
inline typename short_vector<U, Bytes>::type load_factor(const U* from) {
  typename short_vector<U, Bytes>::type v{};
  if constexpr (IsVector) std::memcpy(&v, from, sizeof v);
  else v = *from - v;
  return v;
}

/// A multiplication along a vector of the result. The elements of operand `first`, which is `a`, are contiguous. The
/// other operand is contiguous too, or a scalar. `accumulate`: adds to c[v].
template <class U>
struct vector_product {
  std::int64_t extent;
  const contraction_loop* sums;
  int sum_count, first;
  const U *a, *b;
  U* c;
  bool accumulate;

  /// Computes c[v] = the sum of a[... + v] * b[... + v] for `Count` vectors of `Bytes` bytes at a time, starting at
  /// `v`. Repeats this while that many elements are left. Each result is written once.
  template <int Count, int Bytes, bool BothAreVectors>
  void some(std::int64_t& v) const {
    constexpr int lanes = Bytes / static_cast<int>(sizeof(U));
    for (; v + Count * lanes <= extent; v += Count * lanes) {
      const U* av = a + v;
      const U* bv = b + (BothAreVectors ? v : 0);
      typename short_vector<U, Bytes>::type acc[Count] = {};
      if (accumulate)
        for (int i = 0; i < Count; ++i) std::memcpy(&acc[i], c + v + i * lanes, sizeof acc[i]);
      for_each_term(sums, sum_count, first, [&](std::int64_t left, std::int64_t right) {
#pragma GCC unroll 4
        for (int i = 0; i < Count; ++i)
          acc[i] += load_factor<true, Bytes>(av + left + i * lanes) *
                    load_factor<BothAreVectors, Bytes>(bv + right + (BothAreVectors ? i * lanes : 0));
      });
      for (int i = 0; i < Count; ++i) std::memcpy(c + v + i * lanes, &acc[i], sizeof acc[i]);
    }
  }
  /// Computes with several vector registers at a time, then one register, then shorter vectors. Integers use one
  /// register only. Returns the number of computed elements.
  template <bool BothAreVectors>
  std::int64_t whole_vectors() const {
    std::int64_t v = 0;
    if constexpr (std::is_floating_point_v<U>) some<4, simd_bytes, BothAreVectors>(v);
    some<1, simd_bytes, BothAreVectors>(v);
    if constexpr (std::is_floating_point_v<U>) {
      if constexpr (simd_bytes > 32) some<1, 32, BothAreVectors>(v);
      if constexpr (simd_bytes > 16) some<1, 16, BothAreVectors>(v);
    }
    return v;
  }
};

template <own_element T>
void contract_vector(const contraction_loop& vector, const contraction_loop* sums, int sum_count, const T* a, const T* b, T* c,
                     bool accumulate) {
  for (std::int64_t v = 0; v < vector.extent; ++v) {
    T sum = accumulate ? c[v] : T{};
    for_each_term(sums, sum_count, 0, [&](std::int64_t left, std::int64_t right) {
      sum = static_cast<T>(sum + static_cast<T>(a[left + v * vector.stride[0]] * b[right + v * vector.stride[1]]));
    });
    c[v] = sum;
  }
}
template <class U>
[[gnu::noinline]] void contract_vector(const contraction_loop& vector, const contraction_loop* sums, int sum_count, const U* a,
                                       const U* b, U* c, bool accumulate) {
  const int first = vector.stride[0] == 1 ? 0 : 1;
  if (first == 1) std::swap(a, b);
  const auto as = vector.stride[first], bs = vector.stride[1 - first];
  const vector_product<U> product{vector.extent, sums, sum_count, first, a, b, c, accumulate};
  std::int64_t v = as != 1   ? 0
                   : bs == 1 ? product.template whole_vectors<true>()
                   : bs == 0 ? product.template whole_vectors<false>()
                             : 0;
  for (; v < vector.extent; ++v) {
    U acc = accumulate ? c[v] : U{};
    for_each_term(sums, sum_count, first,
                  [&](std::int64_t left, std::int64_t right) { acc += a[left + v * as] * b[right + v * bs]; });
    c[v] = acc;
  }
}

/// The loops over the summed letters, with valid extents. In a matrix product the last loop is K. It merges up to
/// p.merged_sums inner loops. A loop stays separate if the letter inside it is not whole on this device.
struct bounded_sums {
  contraction_loop loops[max_rank];
  int count = 0;

  inline bounded_sums(const contraction_plan& p, const std::int64_t* valid) : count(p.sums.count) {
    for (int i = 0; i < count; ++i) {
      loops[i] = p.sums[i];
      loops[i].extent = valid[p.sum_letter[i]];
    }
    for (int left = p.merged_sums; left > 1; --left) {
      auto& inner = loops[count - 1];
      const int own = p.sums.count - 1 - (p.merged_sums - left);  // the outermost of the loops that `inner` consists of
      if (valid[p.sum_letter[own]] != p.sums[own].extent) break;
      auto& outer = loops[count - 2];
      outer = {outer.extent * inner.extent, {inner.stride[0], inner.stride[1], inner.stride[2]}};
      --count;
    }
  }
};

/// A block of the result with contiguous columns.
template <class T>
struct result_piece {
  T* at;
  std::int64_t rows, cols, ld;
};
template <class T>
inline void add_piece(const result_piece<T>& from, const result_piece<T>& to) {
  if constexpr (own_element<T>) return;  // sums of own types are not cut into parts
  else
    for (std::int64_t i = 0; i < to.rows; ++i)
      combine_rows<monoid::add, kernel_t<T>>(to.at + i * to.ld, to.at + i * to.ld, to.at + i * to.ld, from.at + i * from.ld,
                                             to.cols);
}

/// Computes c = the sum of `kernel`, or adds it to c. Long sums are computed in parts, recursively up to `levels`
/// times. In the last loop, `unit` terms count as one. kernel(loops, a, b, c, accumulate) computes one part.
template <class T, class Kernel>
void sum_in_parts(int levels, const contraction_loop* loops, int count, std::int64_t unit, const T* a, const T* b,
                  const result_piece<T>& c, bool accumulate, T* scratch, const Kernel& kernel) {
  const auto cut = levels > 0 && std::is_floating_point_v<T> ? part_of_loops(loops, count, unit) : loop_part{};
  if (cut.loop < 0) return kernel(loops, a, b, c, accumulate);
  contraction_loop own[max_rank];
  std::copy_n(loops, count, own);
  const auto& whole = loops[cut.loop];
  const result_piece<T> sum{scratch, c.rows, c.cols, c.cols};
  for (std::int64_t i = 0; i < whole.extent; i += cut.size) {
    const bool adds = accumulate || i > 0;
    own[cut.loop].extent = std::min(cut.size, whole.extent - i);
    sum_in_parts(levels - 1, own, count, unit, a + i * whole.stride[0], b + i * whole.stride[1], adds ? sum : c, false,
                 scratch + c.rows * c.cols, kernel);
    if (adds) add_piece(sum, c);
  }
}

template <class T, class Spec>
inline void permute_operand(Spec spec, const T* from, T* to) {
  with_derived<plan_permutation>(spec, [&](auto plan) { permute<raw_bits<T>>(plan(), from, to); });
}
template <class T, class Spec>
const T* prepare_operand(Spec spec, const std::int64_t* valid, const T* from, T* scratch) {
  const operand_steps& s = spec();
  if constexpr (may_hold<&operand_steps::reduced, Spec>())
    if (s.reduced) {
      std::int64_t bounds[max_rank];
      for (int d = 0; d < s.letters.count; ++d) bounds[d] = valid[s.letters[d]];
      with_derived<plan_reduction>(member_of<&operand_steps::reduction>(spec), [&](auto plan) {
        reduce(reduction_kernel_of<monoid::add, T>, plan(), bounds, from, scratch + s.reduced_at);
      });
      from = scratch + s.reduced_at;
    }
  if constexpr (may_hold<&operand_steps::packed, Spec>())
    if (s.packed) {
      permute_operand<T>(member_of<&operand_steps::packing>(spec), from, scratch + s.packed_at);
      from = scratch + s.packed_at;
    }
  return from;
}

/// Computes out = small products, or adds them to out if `adds`. The innermost loop is inside small_products.
template <class T>
void add_up_small(const contraction_plan& p, std::int64_t k, const T* a, const T* b, T* out, bool adds) {
  const auto& inner = p.loops[p.loops.count - 1];
  const int first = p.is_swapped ? 1 : 0, second = 1 - first;
  const T* const operands[] = {a, b};
  const small_product_steps steps{inner.extent, inner.stride[first], inner.stride[second], inner.stride[2]};
  for (odometer<3> at(p.loops.items, p.loops.count - 1); at.is_there; at.step())
    small_products(steps, p.m, p.n, k, operands[first] + at.offset[first], p.transpose_first ? 1 : p.first_ld,
                   p.transpose_first ? p.first_ld : 1, operands[second] + at.offset[second], p.second_ld, out + at.offset[2],
                   p.out_ld, adds);
}

/// Computes out = the products of a plan, or adds them to out if `adds`. The operands have the layout that the plan
/// reads. `Spec` states at compile time which plans are possible.
template <class T, class Spec>
void add_up(const contraction_plan& p, const std::int64_t* valid, const T* a, const T* b, T* out, T* parts, bool adds) {
  const bounded_sums sums(p, valid);
  if (may_hold<&contraction_plan::is_vector, Spec>() && p.is_vector) {
    const auto multiply = [&](const contraction_loop* loops, const T* left, const T* right, const result_piece<T>& c,
                              bool accumulate) {
      using u = kernel_t<T>;
      contract_vector(p.vector, loops, sums.count, reinterpret_cast<const u*>(left), reinterpret_cast<const u*>(right),
                      reinterpret_cast<u*>(c.at), accumulate);
    };
    for (odometer<3> at(p.loops.items, p.loops.count); at.is_there; at.step()) {
      const result_piece<T> c{out + at.offset[2], 1, p.vector.extent, p.vector.extent};
      sum_in_parts(p.levels, sums.loops, sums.count, terms_in_turn(p), a + at.offset[0], b + at.offset[1], c, adds, parts,
                   multiply);
    }
  } else {
    const bool has_k = p.merged_sums > 0;
    const int outer = sums.count - (has_k ? 1 : 0);
    if constexpr (std::is_floating_point_v<T>) {
      const auto k = has_k ? sums.loops[outer].extent : 1;
      if (outer == 0 && p.levels == 0 && p.loops.count > 0 && !p.transpose_second && p.m * p.n > 1 &&
          is_small_product<T>(p.m, p.n, k))
        return add_up_small(p, k, a, b, out, adds);
    }
    const auto multiply = [&](const contraction_loop* loops, const T* left, const T* right, const result_piece<T>& c,
                              bool accumulate) {
      for (odometer<3> at(loops, outer); at.is_there; at.step()) {
        const T *const l = left + at.offset[0], *const r = right + at.offset[1];
        gemm(p.transpose_first, p.transpose_second, p.m, p.n, has_k ? loops[outer].extent : 1, p.is_swapped ? r : l, p.first_ld,
             p.is_swapped ? l : r, p.second_ld, c.at, c.ld, accumulate);
        accumulate = true;
      }
    };
    for (odometer<3> at(p.loops.items, p.loops.count); at.is_there; at.step()) {
      const result_piece<T> c{out + at.offset[2], p.m, p.n, p.out_ld};
      sum_in_parts(p.levels, sums.loops, sums.count, terms_in_turn(p), a + at.offset[0], b + at.offset[1], c, adds, parts,
                   multiply);
    }
  }
}

/// Computes the phases of a plan from number `k` on. Modifies `p` and `valid` during the computation.
template <class T, class Spec>
void add_up_phases(int k, contraction_plan& p, std::int64_t* valid, const T* a, const T* b, T* out, T* parts) {
  // GCC 12 follows the recursion to a fifth phase, which no plan has, and warns.
  if (k == p.phases.count || k == max_windows) return add_up<T, Spec>(p, valid, a, b, out, parts, true);
  const contraction_phase& phase = p.phases[k];
  const contraction_plan before = p;
  const auto all = phase.where == contraction_phase::in_sums ? valid[phase.letter] : phase.outer.extent;
  const auto stretch = [&](contraction_loop& loop) {
    for (auto& stride : loop.stride) stride *= phase.period;
  };
  const auto places = phase.sums_inner ? valid[phase.inner_letter] : phase.inner.extent;
  for (std::int64_t w = 0; w < places; ++w) {
    std::int64_t first = 0;
    while (first < phase.period && (phase.first + phase.step * first + phase.inner_step * w) % phase.base != 0) ++first;
    const auto count = first < all ? (all - first + phase.period - 1) / phase.period : 0;
    if (first == phase.period || count == 0) continue;
    if (phase.where == contraction_phase::in_loops) {
      p.loops[phase.number].extent = count;
      stretch(p.loops[phase.number]);
    } else if (phase.where == contraction_phase::in_rows) {
      p.m = count;
      if (!p.transpose_first) p.first_ld *= phase.period;
      p.out_ld *= phase.period;
    } else if (phase.where == contraction_phase::in_sums) {
      valid[phase.letter] = count;
      p.sums[phase.number].extent = count;
      stretch(p.sums[phase.number]);
      if (p.merged_sums > 0 && phase.number == p.sums.count - 1) {
        if (p.transpose_first) p.first_ld *= phase.period;
        if (!p.transpose_second) p.second_ld *= phase.period;
      }
    }
    const auto at = [&](int buffer) { return w * phase.inner.stride[buffer] + first * phase.outer.stride[buffer]; };
    add_up_phases<T, Spec>(k + 1, p, valid, a + at(0), b + at(1), out + at(2), parts);
    p = before;
    if (phase.where == contraction_phase::in_sums) valid[phase.letter] = all;
  }
}

/// Computes out = the products of `contract`, or adds them to out if `adds`. The result has the order of the plan's
/// kernel.
template <class T, class Spec>
void add_products(Spec spec, const std::int64_t* valid, const T* a, const T* b, T* out, T* scratch, bool adds) {
  const contraction_plan& p = spec();
  a = prepare_operand(member_of<&contraction_plan::lhs>(spec), valid, a, scratch) + p.lhs_first;
  b = prepare_operand(member_of<&contraction_plan::rhs>(spec), valid, b, scratch);
  if constexpr (may_hold<&contraction_plan::has_phases, Spec>())
    if (p.has_phases) {
      if (!adds) std::fill_n(out, p.out_elems, T{});
      contraction_plan own = p;
      std::int64_t own_valid[max_letters];
      for (const auto letter : p.summed) own_valid[letter] = valid[letter];
      return add_up_phases<T, Spec>(0, own, own_valid, a, b, out, scratch + p.parts_at);
    }
  add_up<T, Spec>(p, valid, a, b, out, scratch + p.parts_at, adds);
}

/// Computes c = the einsum of a and b for which `plan` was made. `scratch` has plan.scratch_elems elements. For summed
/// letters, only indices below valid[letter] are used; the operands may hold any value at other indices. valid is not
/// read for other letters. Results that depend on elements past the end of a shard are arbitrary.
///
/// A sum can be computed in several calls that share c and scratch. `adds`: this call is not the first. `last`: this
/// call is the last one and stores the result in c.
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
    if (p.unpacked && last) permute_operand<T>(member_of<&contraction_plan::unpacking>(spec), out, c);
}

/// Returns true if a device has all elements of all summed letters.
inline bool is_whole(const contraction_plan& p, const std::int64_t* valid) {
  for (const auto letter : p.summed)
    if (valid[letter] <= 0) return false;
  for (int i = 0; i < p.sums.count; ++i)
    if (valid[p.sum_letter[i]] != p.sums[i].extent) return false;
  return true;
}

/// A contraction that is ready to run: the plan, and the function compiled for it.
struct prepared_contraction {
  const contraction_plan* plan;
  void (*run)(const contraction_plan& plan, const std::int64_t* valid, const void* a, const void* b, void* c, std::byte* scratch,
              bool adds, bool last);
};
template <class T, class Spec>
void run_contraction(const contraction_plan& plan, const std::int64_t* valid, const void* a, const void* b, void* c,
                     std::byte* scratch, bool adds, bool last) {
  if constexpr (has_convolution_library && std::is_same_v<T, float>)
    if (plan.direct.is_one && !adds && last && is_whole(plan, valid) &&
        convolve(plan.direct, static_cast<const float*>(a), static_cast<const float*>(b), static_cast<float*>(c)))
      return;
  const auto run = [&](auto spec) {
    contract(spec, valid, static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(c), reinterpret_cast<T*>(scratch),
             adds, last);
  };
  if constexpr (std::is_empty_v<Spec>) run(Spec{});
  else run(Spec{&plan});
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail

#if defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/kernels/contraction_instances.ipp"
#endif
