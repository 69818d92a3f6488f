// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The bytes that one device sends in a collective of `n` devices, for a tensor of `bytes` in whole (Chan et al. 2007,
/// "Collective communication: theory, practice, and experience", the lower bounds of section 3).
namespace zoo {

constexpr double all_gather_bytes(double bytes, double n) { return bytes * (n - 1) / n; }
constexpr double reduce_scatter_bytes(double bytes, double n) { return bytes * (n - 1) / n; }
constexpr double all_reduce_bytes(double bytes, double n) { return 2 * bytes * (n - 1) / n; }
/// Each device has the n-th part of the tensor, and keeps the n-th part of its part.
constexpr double all_to_all_bytes(double bytes, double n) { return bytes / n * (n - 1) / n; }

/// A number of four bytes, partial on every device: the loss.
constexpr double loss_bytes(double n) { return all_reduce_bytes(4, n); }

}  // namespace zoo
