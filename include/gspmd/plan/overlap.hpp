// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/order/hide_collectives.hpp"
#include "gspmd/plan/options.hpp"

/// The option `overlap`: devices compute while collectives are under way. Include this header to use it.
///
/// A collective starts after its operand exists, and finishes before the first user of its result. The work between
/// start and finish takes at most about as long as the collective. Its time is estimated on the network of the plan
/// (the option `network`, or the default network). Users of the result wait while other work continues. Split weights
/// are gathered before the layer that uses them. Gradients are reduced while the gradients of earlier layers are
/// computed.
///
/// Plans send the same bytes. Results have the same bits, except for reductions between nodes, because MPI's own calls
/// do the blocking ones. A collective under way needs memory, which `peak_bytes_per_device` includes.
/// Overlap saves time between nodes. If devices share memory, the processor itself does the work of a collective, and
/// nothing is hidden.
///
/// **Example.**
///
///     using step = compile<train, pod, with<options{.overlap = true}>, input<float, shape<64, 4096>>, ...>;
///     const auto p = dynamic::compile(train, m, {.overlap = true}, x, w);
///
/// **Source.** GSPMD, section 4.6, hides halos in the same way.
namespace gspmd::detail {

template <>
struct overlap_header<bool> {
  static constexpr bool is_included = true;
  static constexpr hide_function hide = hide_collectives;
};

}  // namespace gspmd::detail
