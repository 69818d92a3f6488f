// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "gspmd/detail/exec/loops.hpp"
#include "gspmd/detail/exec/monoid_ops.hpp"
#include "gspmd/detail/exec/reduce_rows.hpp"
#include "gspmd/detail/exec/simd.hpp"
#include "gspmd/detail/exec/spec.hpp"
#include "gspmd/detail/exec/target.hpp"
#include "gspmd/detail/ir/layout.hpp"

/// Reduction of some dims of a dense local array.
namespace gspmd::detail {

struct reduction_spec {
  extents in;         // allocated extents, dense row-major
  dim_mask dims = 0;  // those that are reduced
  monoid kind = monoid::add;
  friend constexpr bool operator==(const reduction_spec&, const reduction_spec&) = default;
};

/// How a reduction is done. Runs of neighbouring kept dims are one loop, and so are runs of reduced dims as long as all but
/// the outermost are whole; most reductions then are [outer, reduced, inner] with each part possibly absent.
struct reduction_plan {
  std::int64_t out_elems = 1;
  inline_vec<std::int8_t, max_rank> reduced;    // dims, as `valid` counts them
  inline_vec<strided_loop<2>, max_rank> loops;  // over in and out; kept runs merged, reduced dims one by one
  inline_vec<std::int8_t, max_rank> loop_dim;   // per loop: the reduced dim, or -1
  bool is_simple = true;                        // at most one run of reduced dims
  int first_reduced = -1;                       // loop
  std::int64_t outer = 1, row = 1, inner = 1;   // simple: extents; row: that of the reduced dims but the outermost
  std::int64_t outermost = 1;                   // simple: allocated extent of the outermost reduced dim
};

constexpr reduction_plan plan_reduction(const reduction_spec& s) {
  reduction_plan p;
  std::int64_t in_stride = 1;
  inline_vec<strided_loop<2>, max_rank> inside_out;
  inline_vec<std::int8_t, max_rank> dims;
  for (int d = s.in.count - 1; d >= 0; --d) {
    const bool is_reduced = (s.dims & dim_bit(d)) != 0;
    const auto n = s.in[d];
    if (is_reduced) p.reduced.push_back(static_cast<std::int8_t>(d));
    if (n != 1) {
      if (is_reduced) {
        inside_out.push_back({n, {in_stride, 0}});
        dims.push_back(static_cast<std::int8_t>(d));
      } else if (dims.count > 0 && dims[dims.count - 1] < 0) {
        inside_out[inside_out.count - 1].extent *= n;
      } else {
        inside_out.push_back({n, {in_stride, p.out_elems}});
        dims.push_back(-1);
      }
    }
    if (!is_reduced) p.out_elems *= n;
    in_stride *= n;
  }
  int runs = 0;
  for (int i = inside_out.count - 1; i >= 0; --i) {
    const auto n = inside_out[i].extent;
    if (dims[i] < 0) {
      (runs == 0 ? p.outer : p.inner) *= n;
    } else if (p.loop_dim.empty() || p.loop_dim[p.loop_dim.count - 1] < 0) {
      if (++runs == 1) {
        p.first_reduced = p.loops.count;
        p.outermost = n;
      }
    } else {
      p.row *= n;
    }
    p.loops.push_back(inside_out[i]);
    p.loop_dim.push_back(dims[i]);
  }
  p.is_simple = runs <= 1;
  return p;
}

}  // namespace gspmd::detail

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
