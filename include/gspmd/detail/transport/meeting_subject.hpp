// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ir/ring.hpp"
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/text.hpp"
#include "gspmd/error.hpp"

/// The collective for which the members of a group synchronise. A member reads the buffers of other members by its
/// own descriptor, so it must not read a member that arrived for another collective. The number of a subject is part
/// of each arrival (meeting.hpp). The text of a subject is made only when two numbers differ.
namespace gspmd::detail {

/// A hash of the kind, the descriptor and the source line of a collective. It does not depend on the device, so all
/// members compute the same number.
class subject_number {
 public:
  constexpr explicit subject_number(std::uint64_t kind) { add(kind); }
  constexpr void add(std::uint64_t word) {  // the products are independent, so the processor computes them in parallel
    factor_ += 2 * (odd >> 8);
    sum_ += word * factor_;
  }
  constexpr void add(const mesh_shape& mesh, axis_mask axes, const collective_origin& origin) {
    for (const auto n : mesh.sizes) add(static_cast<std::uint64_t>(n));
    add(axes);
    add(origin.op.id << 32 ^ static_cast<std::uint64_t>(origin.line));
  }
  constexpr void add(const extents& shape) {
    for (const auto n : shape) add(static_cast<std::uint64_t>(n));
  }
  constexpr void add(const extents& operand, const index_map& map) {
    add(operand);
    for (const auto& d : map.dims) {
      add(static_cast<std::uint64_t>(d.dim * 8 + static_cast<int>(d.beyond)));
      for (const auto n : {d.from_first, d.from_step, d.to_first, d.to_step, d.tile.outputs, d.tile.stride, d.tile.span,
                           d.tile.begin, d.tile.every, d.tile.width, d.tile.windows})
        add(static_cast<std::uint64_t>(n));
    }
    add(static_cast<std::uint64_t>(map.outside) * 2 + (map.reshapes ? 1 : 0));
    for (const auto i : map.placed) add(static_cast<std::uint64_t>(i + 2));
    if (map.places()) add(static_cast<std::uint64_t>(map.placed_dim));
    add(map.fill);
    add(map.high_fill);
    add(static_cast<std::uint64_t>(map.low));
    add(static_cast<std::uint64_t>(map.high));
  }
  template <class Descriptor>
  constexpr void add_tiles(const extents& global, const Descriptor& d) {
    add(global);
    for (const auto* side : {&d.from, &d.to}) {
      add(static_cast<std::uint64_t>(side->splits.count));
      for (const auto& use : side->splits) add(static_cast<std::uint64_t>(use.axis * 64 + use.dim + 1));
    }
  }
  /// Returns the number, which is never 0.
  [[nodiscard]] constexpr std::uint32_t value() const { return static_cast<std::uint32_t>(sum_ * odd >> 32) | 1; }

 private:
  static constexpr std::uint64_t odd = 0x9e3779b97f4a7c15U;
  std::uint64_t sum_ = 0, factor_ = odd;
};

constexpr std::uint32_t number_of(const mesh_shape& mesh, const movement& m) {
  if (m.number != 0) return m.number;
  subject_number n(1);
  n.add(mesh, m.axes, m.origin);
  n.add_tiles(m.to_global, m);
  if (m.is_mapped) n.add(m.from_global, *m.map);
  for (const auto d : m.from_order) n.add(static_cast<std::uint64_t>(d) + 1);
  return n.value();
}
constexpr std::uint32_t number_of(const mesh_shape& mesh, const reduction& r) {
  if (r.number != 0) return r.number;
  subject_number n(2 + static_cast<std::uint64_t>(r.reduced_by));
  n.add(mesh, r.axes, r.origin);
  n.add_tiles(r.global, r);
  return n.value();
}
/// Returns the descriptor with its number, so that the number is computed once and not in each run.
template <class Descriptor>
constexpr Descriptor numbered(const mesh_shape& mesh, Descriptor d) {
  d.number = number_of(mesh, d);
  return d;
}

/// A subject, as stored by one member while the collective runs.
struct meeting_subject {
  using description = std::string (*)(const mesh_shape* mesh, dtype type, const void* descriptor);

  std::uint32_t number = 0;
  const mesh_shape* mesh = nullptr;
  const void* descriptor = nullptr;
  const collective_origin* origin = nullptr;
  description describe = nullptr;
  dtype type = dtype::f32;  // of the elements

  [[nodiscard, gnu::cold]] std::string text() const {
    const std::string what = describe(mesh, type, descriptor);
    if (origin == nullptr || !origin->is_known) return what;
    if (origin->file == nullptr) return what + " (input " + std::to_string(origin->line) + ')';
    return what + " (" + name_of(origin->op) + " at " + origin->file + ':' + std::to_string(origin->line) + ')';
  }
};

[[gnu::cold]] inline std::string describe_movement(const mesh_shape* mesh, dtype type, const void* descriptor) {
  const auto& m = *static_cast<const movement*>(descriptor);
  return std::string(name_of(classify(*mesh, m))) + " of " + name_of(type) + ' ' + std::string(shape_text(m.to_global).view());
}
[[gnu::cold]] inline std::string describe_reduction(const mesh_shape* mesh, dtype type, const void* descriptor) {
  const auto& r = *static_cast<const reduction*>(descriptor);
  return std::string(name_of(classify(*mesh, r))) + " by " + name_of(r.reduced_by) + " of " + name_of(type) + ' ' +
         std::string(shape_text(r.global).view());
}
[[gnu::cold]] inline std::string describe_ring(const mesh_shape*, dtype, const void* descriptor) {
  return "collective_permute of " + std::to_string(static_cast<const ring*>(descriptor)->bytes) + " bytes";
}

/// Returns the subject of a collective. The mesh and the descriptor must outlive the subject.
inline meeting_subject subject_of(const mesh_shape& mesh, const movement& m, dtype type) {
  return {number_of(mesh, m) ^ static_cast<std::uint32_t>(type) << 1, &mesh, &m, &m.origin, describe_movement, type};
}
inline meeting_subject subject_of(const mesh_shape& mesh, const reduction& r, dtype type) {
  return {number_of(mesh, r) ^ static_cast<std::uint32_t>(type) << 1, &mesh, &r, &r.origin, describe_reduction, type};
}
inline meeting_subject subject_of(const mesh_shape& mesh, const ring& r) {
  subject_number n(16);
  n.add(mesh, r.mask(), r.origin);
  for (const auto a : r.axes) n.add(static_cast<std::uint64_t>(a));
  n.add(static_cast<std::uint64_t>(r.bytes));
  return {n.value(), &mesh, &r, &r.origin, describe_ring};
}

/// Returns the error text if `rank` synchronises with `other`, which arrived for another collective.
[[gnu::cold]] inline std::string different_collectives(int rank, const std::string& subject, int other,
                                                       const std::string& others_subject) {
  const bool first = rank < other;
  return "the ranks of a group met in different collectives: rank " + std::to_string(first ? rank : other) + " in " +
         (first ? subject : others_subject) + ", rank " + std::to_string(first ? other : rank) + " in " +
         (first ? others_subject : subject) + "; all must call the same steps in the same order";
}

/// Returns the error text if `from` sends `to` a block of another size than `to` receives.
[[gnu::cold]] inline std::string different_blocks(int from, std::int64_t sent, int to, std::int64_t received,
                                                  std::size_t elem_bytes) {
  const auto bytes = [elem_bytes](std::int64_t n) {
    return std::to_string(n * static_cast<std::int64_t>(elem_bytes)) + " bytes";
  };
  return "the ranks disagree on an exchange of blocks: rank " + std::to_string(from) + " sends " + bytes(sent) + " to rank " +
         std::to_string(to) + ", which receives " + bytes(received) + "; all must give the same layouts and widths";
}

/// Returns the error text if a rank waits for `rank`, which has called MPI_Finalize.
[[gnu::cold]] inline std::string never_starts(int rank) {
  return "waits in run or launch for rank " + std::to_string(rank) +
         ", which has called MPI_Finalize; all ranks must call run and launch equally often";
}
/// Returns the error text if a rank waits for `rank`, which has finished and calls no further collective.
[[gnu::cold]] inline std::string never_comes(int rank) {
  return "waits in a collective for rank " + std::to_string(rank) +
         ", which has finished; all ranks of a group must call the same collectives";
}
/// Returns `failure` with the user's source line of the collective.
[[gnu::cold]] inline error located(const error& failure, const meeting_subject& subject) {
  const auto* at = subject.origin;
  return at != nullptr && at->is_known && at->file != nullptr ? failure.with_op(name_of(at->op), at->file, at->line) : failure;
}

}  // namespace gspmd::detail
