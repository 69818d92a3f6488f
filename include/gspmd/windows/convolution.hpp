// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/ops/integers.hpp"
#include "gspmd/program/program.hpp"
#include "gspmd/windows/detail/named_convolution.hpp"

namespace gspmd {

/// The options of a convolution. The names are those of StableHLO, or shorter. A list has one number for each spatial
/// dim, in the order of the layout's result. The comments state the default of an empty list. Options own their lists,
/// so that named options can serve several layers.
struct convolution_options {
  kept_integers stride = {};             // of the window; default 1
  std::string_view padding = "valid";    // "valid": only low and high; "same": extent n becomes ceil(n / stride)
  kept_integers low = {}, high = {};     // zeros before and after the operand, negative: removed elements; default 0
  kept_integers lhs_dilation = {};       // distance of the elements of the operand; default 1
  kept_integers rhs_dilation = {};       // distance of the elements of the window; default 1
  kept_integers reverse = {};            // 1 reverses the window along this dim; default 0
  std::int64_t feature_group_count = 1;  // number of groups of features, which do not mix
  std::int64_t batch_group_count = 1;    // number of groups of the batch; each group computes its own features
};

/// Returns the convolution of `x` with the window `w`: StableHLO's `convolution`. The layout names their dims, in any
/// order. N is the batch. C is the features; the window has I, the features of the operand, and O, the features of the
/// result. Every other letter is a spatial dim, which all three tensors have. There are at most sixteen. The window is
/// not reversed unless `reverse` is set, as in other libraries.
///
/// If there are more than four spatial dims, those with the smallest windows are unfolded first. This multiplies the
/// size of each shard by the number of elements in the unfolded windows.
///
/// **Shapes.** For "NHWC,HWIO->NHWC": [n,h,w,c] and [p,q,c/g,f] -> [n,h',w',f]. h' is the number of positions of the
/// window in the padded operand: (low + (h-1) * lhs_dilation + 1 + high - (p-1) * rhs_dilation - 1) / stride + 1,
/// rounded down.
///
/// Batch, features of both tensors, groups and spatial dims may be split, in any combination. A split spatial dim of
/// the operand splits the result, and vice versa. Spatial dims of the window may be split if they are larger than
/// those of the result, as in a gradient by a window. Then the result is partial. If they are smaller, every device
/// requires the whole window. If this dim is split, an all_to_all moves the split to the features of the window. If
/// the features cannot be split, gathering the window requires allow_replication.
///
/// **Communication.** If a spatial dim is split, neighbouring devices send the elements that windows read outside of a
/// shard, by collective_permute (halo exchange). For stride 1 and "same" these are p/2 rows on each side. None if
/// stride and window are equal. The exchange ends before the computation begins. Overlap would gain little: a row of 4
/// images of 128 positions and 64 channels is 128 KiB, a thousandth of the time of 64 such rows. For small images, a
/// separate computation of the boundary costs the time that overlap gains. If the features of the operand are split,
/// the result is partial, as in an einsum. The gradients are convolutions, too. If batch or spatial dims are split, the
/// gradient with respect to the window is reduced over the devices by all_reduce.
/// **Errors.** At compile time: a wrong layout or a layout that does not fit, with its column; a list without one
/// number for each spatial dim; strides and dilations below 1; groups that do not divide batch or features; features
/// that the window does not have; a window that is larger than the padded operand.
/// **Example.**
///     // [8,64,64,3] -> [8,32,32,f]
///     auto h = convolution(x, w, "NHWC,HWIO->NHWC", {.stride = {2, 2}, .padding = "same"});
///     auto up = convolution(x, w, "NCW,OIW->NCW", {.low = {2}, .high = {2}, .lhs_dilation = {2}});
/// **Source.** GSPMD, sections 4.3 and A.2.
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
