// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/ir/loops.hpp"
#include "gspmd/detail/ir/monoid_ops.hpp"
#include "gspmd/detail/ir/reduction_plan.hpp"
#include "gspmd/detail/ir/spec.hpp"
#include "gspmd/detail/kernels/reduce_rows.hpp"
#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/support/target.hpp"

/// Reduction of some dims of a dense local array.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Any number of runs of reduced dims, each bounded on its own, and a piece of the result: the loops, and one after the other what
/// they are about. The kept loops of a piece are dense in the result, and it has at most reduced_piece elements.
template <monoid Kind, class U>
struct nested_reduction {
  strided_loop<2> loops[max_rank];
  int count = 0;

  /// The loops from `i` on.
  void run(int i, const U* in, U* out, bool accumulate) const {
    const auto& loop = loops[i];
    const bool is_kept = loop.stride[1] != 0;
    if (i == count - 1 && !is_kept) {
      const U result = reduce_contiguous<Kind>(in, loop.extent);
      *out = accumulate ? combine<Kind>(*out, result) : result;
    } else if (i == count - 2 && !is_kept && loops[i + 1].stride[1] != 0) {
      reduce_rows<Kind>(in, loop.extent, loop.stride[0], loops[i + 1].extent, out, accumulate);
    } else if (is_kept) {
      for (std::int64_t k = 0; k < loop.extent; ++k) run(i + 1, in + k * loop.stride[0], out + k * loop.stride[1], accumulate);
    } else {
      reduce(i, loop.extent, in, out, accumulate);
    }
  }

 private:
  void reduce(int i, std::int64_t n, const U* in, U* out, bool accumulate) const {
    const auto step = loops[i].stride[0];
    if (n <= parts_in_turn) {
      for (std::int64_t k = 0; k < n; ++k) run(i + 1, in + k * step, out, accumulate || k > 0);
      return;
    }
    std::int64_t width = 1;
    for (int k = i + 1; k < count; ++k)
      if (loops[k].stride[1] != 0) width *= loops[k].extent;
    const auto part = part_size(n, parts_in_turn);
    U sum[reduced_piece<U>];
    for (std::int64_t k = 0; k < n; k += part) {
      const bool adds = accumulate || k > 0;
      reduce(i, std::min(part, n - k), in + k * step, adds ? sum : out, false);
      if (adds) combine_row<Kind>(static_cast<const U*>(sum), width, out);
    }
  }
};

/// All pieces. The kept loops are cut, inner ones first, until what is left of them is a piece.
template <monoid Kind, class U>
void reduce_nested(const reduction_plan& p, const std::int64_t* valid, const U* in, U* out) {
  nested_reduction<Kind, U> piece;
  strided_loop<2> cuts[max_rank];
  std::int64_t begin[max_rank]{};
  piece.count = p.loops.count;
  std::int64_t room = reduced_piece<U>;
  for (int i = piece.count - 1; i >= 0; --i) {
    auto& loop = piece.loops[i] = p.loops[i];
    if (p.loop_dim[i] >= 0) {
      loop.extent = valid[p.loop_dim[i]];
      continue;
    }
    loop.extent = std::min(loop.extent, room);
    room /= loop.extent;
  }
  for (int i = 0; i < piece.count; ++i) cuts[i] = piece.loops[i];
  for (int i = 0; i >= 0;) {
    const U* from = in;
    U* to = out;
    for (int k = 0; k < piece.count; ++k) {
      if (p.loop_dim[k] >= 0) continue;
      from += begin[k] * p.loops[k].stride[0];
      to += begin[k] * p.loops[k].stride[1];
      piece.loops[k].extent = std::min(cuts[k].extent, p.loops[k].extent - begin[k]);
    }
    piece.run(0, from, to, false);
    for (i = piece.count - 1; i >= 0; --i) {
      if (p.loop_dim[i] >= 0) continue;
      if ((begin[i] += cuts[i].extent) < p.loops[i].extent) break;
      begin[i] = 0;
    }
  }
}

/// One function for all reductions of a monoid and a type: constant extents would make it no faster.
template <monoid Kind, class T>
[[gnu::noinline]] void reduce_as(const reduction_plan& p, const std::int64_t* valid, const T* typed_in, T* typed_out) {
  if (p.out_elems == 0) return;
  using u = kernel_t<T, Kind == monoid::add || Kind == monoid::multiply>;
  const u* in = reinterpret_cast<const u*>(typed_in);
  u* out = reinterpret_cast<u*>(typed_out);
  bool is_empty = false, is_whole = true;  // whole: apart from the outermost reduced dim
  for (int i = 0; i < p.reduced.count; ++i) is_empty = is_empty || valid[p.reduced[i]] <= 0;
  if (is_empty) {
    std::fill_n(typed_out, p.out_elems, identity<T>(Kind));
    return;
  }
  for (int i = p.first_reduced + 1; i < p.loops.count; ++i)
    if (p.loop_dim[i] >= 0 && valid[p.loop_dim[i]] != p.loops[i].extent) is_whole = false;
  if (p.first_reduced < 0) {
    std::copy_n(in, p.out_elems, out);
  } else if (!p.is_simple || !is_whole) {
    reduce_nested<Kind>(p, valid, in, out);
  } else {
    const auto rows = valid[p.loop_dim[p.first_reduced]] * p.row;
    const auto step = p.outermost * p.row * p.inner;
    if (p.inner == 1) return reduce_each<Kind>(in, p.outer, step, rows, out);
    for (std::int64_t o = 0; o < p.outer; ++o) reduce_rows<Kind>(in + o * step, rows, p.inner, p.inner, out + o * p.inner, false);
  }
}

/// On bool a maximum is an or, and a minimum an and.
template <class T>
constexpr monoid natural_kind(monoid kind) {
  if (!std::is_same_v<T, bool>) return kind;
  return kind == monoid::maximum ? monoid::or_ : kind == monoid::minimum ? monoid::and_ : kind;
}

/// out = the reduction of `in` over s.dims, row-major over the kept dims with their allocated extents. Of a reduced dim d
/// only indices below valid[d] count; no index at all gives the identity. valid[d] of a kept dim is not read. The kind must
/// be defined on T (monoid_is_defined): a run-time description of another kind leaves `out` as it is.
template <class T, class Spec>
void reduce(const Spec& spec, const std::int64_t* valid, const T* in, T* out) {
  with_derived<plan_reduction>(spec, [&](auto plan) {
    const auto run = [&]<monoid Kind>() {
      if constexpr (monoid_is_defined<T>(Kind)) reduce_as<natural_kind<T>(Kind), T>(plan(), valid, in, out);
    };
    if constexpr (is_constant_spec<Spec>) {
      constexpr monoid kind = Spec{}().kind;
      static_assert(monoid_is_defined<T>(kind), "gspmd: this reduction is not defined on this element type");
      run.template operator()<kind>();
    } else {
      switch (spec().kind) {
        case monoid::add: return run.template operator()<monoid::add>();
        case monoid::multiply: return run.template operator()<monoid::multiply>();
        case monoid::maximum: return run.template operator()<monoid::maximum>();
        case monoid::minimum: return run.template operator()<monoid::minimum>();
        case monoid::and_: return run.template operator()<monoid::and_>();
        case monoid::or_: return run.template operator()<monoid::or_>();
      }
    }
  });
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
