// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "gspmd/detail/ops/named_convolution.hpp"
#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/ops/integers.hpp"
#include "gspmd/program.hpp"

namespace gspmd {

/// How the window of a convolution goes over its operand; the names are StableHLO's, or shorter. A list has one number for each
/// spatial dim, in the order in which the layout's result has them; an empty one is what the comment says. Options keep their lists: they
/// may have a name and serve several layers.
struct convolution_options {
  kept_integers stride = {};             // of the window: 1
  std::string_view padding = "valid";    // no padding but low and high; "same": extent n becomes ceil(n / stride)
  kept_integers low = {}, high = {};     // zeros before and behind the operand, or, negative, elements taken away: 0
  kept_integers lhs_dilation = {};       // the elements of the operand are so far apart: 1
  kept_integers rhs_dilation = {};       // the elements of the window are so far apart: 1
  kept_integers reverse = {};            // 1: the window is turned round along this dim: 0
  std::int64_t feature_group_count = 1;  // the features fall into groups, which do not mix
  std::int64_t batch_group_count = 1;    // likewise the batch, each group of which makes features of its own
};

/// The convolution of `x` with the window `w`: StableHLO's `convolution`. The layout says what their dims are, in any order: N is the
/// batch, C the features, of which the window has I of the operand and O of the result; every other letter is a spatial dim that all
/// three have, sixteen at most. As in every such library the window is not turned round, unless `reverse` asks for it. Of more than four
/// spatial dims those with the smallest windows are unfolded first: a device makes its shard as many times larger as these have elements.
///
/// Global shapes: for "NHWC,HWIO->NHWC" [n,h,w,c] and [p,q,c/g,f] give [n,h',w',f], where h' is the number of places of the
/// window in the padded operand: (low + (h-1) * lhs_dilation + 1 + high - (p-1) * rhs_dilation - 1) / stride + 1, rounded down. Batch,
/// features of either tensor, groups and spatial dims may be split, all at once; spatial dims of the window where they are larger than
/// those of the result, as of a gradient by a window: the result is partial then. Where they are smaller every device needs all of the
/// window: if it is split there, the split moves to its features by all_to_all; where these have none, bringing the window to every
/// device needs allow_replication. A split spatial dim of the operand splits the result, and the other way round.
///
/// Communication: of a split spatial dim a device gets what its windows read beyond its shard from the devices next to it by
/// collective_permute (halo exchange, GSPMD 4.3 and A.2); for stride 1 and "same" p/2 rows to either side, and nothing where stride
/// and window are equal. It does so before it computes: a row of 4 images of 128 places and 64 channels is 128 KiB, a thousandth of the
/// time of 64 such rows, and of small ones to compute a rim apart costs what is won meanwhile. Split features of the operand leave the
/// result partial, as in an einsum. The gradients are convolutions too: that by the window is the sum of what the devices have, by
/// all_reduce, where batch or spatial dims are split.
///
/// Errors, at compile time: a layout that is none or does not fit, with its column, another number of numbers than spatial dims, strides
/// and dilations below 1, groups that do not divide batch or features, features that the window does not take, a window that is
/// larger than the padded operand.
///
///     auto h = convolution(x, w, "NHWC,HWIO->NHWC", {.stride = {2, 2}, .padding = "same"});   // [8,64,64,3] -> [8,32,32,f]
///     auto up = convolution(x, w, "NCW,OIW->NCW", {.low = {2}, .high = {2}, .lhs_dilation = {2}});
constexpr value convolution(value x, value w, std::string_view layout, const convolution_options& options = {},
                            location at = location::current()) {
  if (!x.is_valid() || !w.is_valid()) return {};
  detail::graph& g = *x.graph();
  const detail::one_call call(&g, "convolution", {x.id(), w.id()});
  detail::named_convolution made(g, x.id(), w.graph() == &g ? w.id() : -1, layout, options, at);
  const int id = made.add();
  return detail::made(g, id, x.type(), id >= 0 ? x.shape() : made.shape_of_refused());
}

}  // namespace gspmd
