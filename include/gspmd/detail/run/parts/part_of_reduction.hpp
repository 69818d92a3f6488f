// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gspmd/detail/kernels/computed_reduction.hpp"
#include "gspmd/detail/run/local_step.hpp"
#include "gspmd/detail/run/parts/part_of_units.hpp"
#include "gspmd/detail/run/static_program.hpp"

/// Reductions that the threads of a device share. Each result has the bits that one thread computes, for any number
/// of threads: long sums are divided as one thread divides them, and added in its order.
///
///   way to share    part of a thread                                            example
///   results         some results along the dims before the reduced dims         [64, 1000] -> [64]
///   columns         some results along the dims after the reduced dims, for     [100, 4096] -> [4096]
///                   elements in memory
///   terms           some nodes of the tree of a long sum; the first thread      [1000000] -> []
///                   then adds the sums of all nodes
namespace gspmd::detail {

/// The tree of a long sum, down to two levels. Threads reduce its nodes.
///
///   40 leaves -> 2 parts of 32 and 8 leaves: 32 and 8 nodes
///   2,000 leaves -> 2 parts of 1,024 and 976 leaves: 32 and 31 nodes
struct sum_tree {
  static constexpr int levels = 2;
  std::int64_t leaf;

  /// Calls visit(begin, size) for each node of n terms, from left to right.
  template <class Visit>
  void for_each_node(std::int64_t n, Visit visit, std::int64_t begin = 0, int level = 0) const {
    if (level == levels || n <= leaf) return visit(begin, n);
    const auto part = part_size(n, leaf);
    for (std::int64_t i = 0; i < n; i += part) for_each_node(std::min(part, n - i), visit, begin + i, level + 1);
  }
  [[nodiscard]] std::int64_t count_nodes(std::int64_t n) const {
    std::int64_t count = 0;
    for_each_node(n, [&](std::int64_t, std::int64_t) { ++count; });
    return count;
  }
  /// Adds the results of all nodes in the order of one thread. Each result has `width` elements. The sum is stored at
  /// `sums`.
  template <class Source, class Results>
  void add_up(const Source& source, std::int64_t n, std::int64_t width, Results sums, std::int64_t& node, int level = 0) const {
    const auto own = sums + node * width * source.elem_bytes();
    if (level == levels || n <= leaf) {
      ++node;
      return;
    }
    const auto part = part_size(n, leaf);
    for (std::int64_t i = 0; i < n; i += part) {
      const auto next = sums + node * width * source.elem_bytes();
      add_up(source, std::min(part, n - i), width, sums, node, level + 1);
      if (i > 0) source.combine(own, next, width);
    }
  }
};

/// The method for sharing a reduction among the threads of a device.
struct shared_reduction {
  enum way : std::int8_t { none, results, cols, terms };
  way how = none;
  std::int64_t outer = 1, rows = 1, step = 1, inner = 1;  // [outer, rows, inner], where a result has `rows` terms
  sum_tree tree{1};

  shared_reduction() = default;
  /// The part of a thread may begin at multiples of `boundary` elements. `room_bytes` is the size of the memory for
  /// the results of nodes.
  template <class Source>
  shared_reduction(const Source& source, const reduction_plan& p, const std::int64_t* valid, bool is_in_memory,
                   std::int64_t boundary, int parts, std::int64_t room_bytes) {
    if (!p.is_simple || p.first_reduced < 0 || p.out_elems == 0) return;
    for (int i = 0; i < p.reduced.count; ++i)
      if (valid[p.reduced[i]] <= 0) return;
    for (int i = p.first_reduced + 1; i < p.loops.count; ++i)
      if (p.loop_dim[i] >= 0 && valid[p.loop_dim[i]] != p.loops[i].extent) return;
    outer = p.outer;
    inner = p.inner;
    rows = valid[p.loop_dim[p.first_reduced]] * p.row;
    step = p.outermost * p.row * p.inner;
    if (outer >= parts && step % boundary == 0) {
      how = results;
    } else if (is_in_memory && inner >= columns_at_once * parts) {
      how = cols;
    } else if (outer == 1 && inner <= source.piece()) {
      tree.leaf = inner == 1 ? most_in_turn * 4 * source.lanes() : rows_in_turn(source.lanes(), inner, inner);
      if (rows > tree.leaf && tree.leaf * inner % boundary == 0 && tree.count_nodes(rows) >= parts &&
          tree.count_nodes(rows) * inner * source.elem_bytes() <= room_bytes)
        how = terms;
    }
  }
  static constexpr std::int64_t columns_at_once = 64;

  /// Reduces the part of thread `part`: into the result, or the results of nodes into `room`.
  template <class Source>
  void reduce(Source& source, typename Source::position in, typename Source::results out, typename Source::results room, int part,
              int parts) const {
    const auto bytes = source.elem_bytes();
    if (how == results) {
      const part_of_units own(outer, part, parts);
      if (own.first == own.last) return;
      source.lie_together(own.first * step * bytes, (own.last - own.first) * step * bytes, outer * step * bytes);
      if (inner == 1)
        return reduce_each(source, in + own.first * step * bytes, own.last - own.first, step, rows, out + own.first * bytes);
      for (auto o = own.first; o < own.last; ++o)
        reduce_rows(source, in + o * step * bytes, rows, inner, inner, out + o * inner * bytes, false);
    } else if (how == cols) {
      const part_of_units own((inner + columns_at_once - 1) / columns_at_once, part, parts);
      const auto first = own.first * columns_at_once, last = std::min(own.last * columns_at_once, inner);
      if (first >= last) return;
      for (std::int64_t o = 0; o < outer; ++o)
        reduce_rows(source, in + (o * step + first) * bytes, rows, inner, last - first, out + (o * inner + first) * bytes, false);
    } else if (how == terms) {
      const part_of_units own(tree.count_nodes(rows), part, parts);
      std::int64_t node = 0, first = 0, last = 0;
      tree.for_each_node(rows, [&](std::int64_t begin, std::int64_t n) {
        if (node == own.first) first = begin;
        if (node++ < own.last) last = begin + n;
      });
      source.lie_together(first * inner * bytes, (last - first) * inner * bytes, rows * inner * bytes);
      node = 0;
      tree.for_each_node(rows, [&](std::int64_t begin, std::int64_t n) {
        const auto to = room + node * inner * bytes;
        if (node++ < own.first || node > own.last) return;
        if (inner == 1) reduce_contiguous(source, in + begin * bytes, n, to);
        else reduce_piece_of_rows(source, in + begin * inner * bytes, n, inner, inner, to, false);
      });
    }
  }
  /// Adds the results of the nodes, in the first thread, after all threads have reduced their nodes. The sum is
  /// stored at the begin of `room`.
  template <class Source>
  void end(const Source& source, typename Source::results room) const {
    std::int64_t node = 0;
    tree.add_up(source, rows, inner, room, node);
  }
};

/// Returns an upper bound of the bytes of the results of nodes. Each node has at least 4 * most_in_turn terms.
inline std::int64_t room_of_reduction(const reduction_plan& p, std::int64_t elem_bytes) {
  constexpr std::int64_t leaf = 4 * most_in_turn;
  const auto nodes = std::min((p.outermost * p.row + leaf - 1) / leaf, parts_in_turn * parts_in_turn);
  return p.is_simple && p.outer == 1 && p.inner * elem_bytes <= 2 * reduced_piece_bytes ? nodes * p.inner * elem_bytes : 0;
}

/// A reduction of elements in memory.
struct shared_stored_reduction {
  prepared_reduction whole;

  void run(const plan_view& p, const plan_step& s, const device_memory& device) const {
    kernels::reduce::run(whole, p, s, device);
  }
};
struct stored_reduction_part {
  prepared_reduction whole;
  std::byte* room;
  std::int64_t room_bytes;

  void run(const plan_view& p, const plan_step& s, const device_memory& device) const {
    std::int64_t valid[max_rank];
    kernels::read_valid(p, s, device, valid);
    stored_elements source{*whole.kernel};
    const shared_reduction shared(source, whole.plan, valid, true, 1, device.parts, room_bytes);
    if (shared.how != shared_reduction::none)
      shared.reduce(source, static_cast<const std::byte*>(device.read(p.operand(s, 0).where)),
                    static_cast<std::byte*>(device.write(p.result(s).where)), room, device.part, device.parts);
    else if (device.part == 0) kernels::reduce::run(whole, p, s, device);
  }
  void end(const plan_view& p, const plan_step& s, const device_memory& device) const {
    std::int64_t valid[max_rank];
    kernels::read_valid(p, s, device, valid);
    const stored_elements source{*whole.kernel};
    const shared_reduction shared(source, whole.plan, valid, true, 1, device.parts, room_bytes);
    if (shared.how != shared_reduction::terms) return;
    shared.end(source, room);
    std::memcpy(device.write(p.result(s).where), room, static_cast<std::size_t>(shared.inner * source.elem_bytes()));
  }
};

/// The part of a loop that reduces its results; reduce_computed calls `reduce` first. Elements that are also stored
/// are computed once. So, if rows are computed whole, the part of a thread begins with a row.
struct part_of_reduced_loop {
  const device_memory& device;
  std::byte* room;
  std::int64_t room_bytes;  // for one reduction
  bool stores;              // other results than its reductions

  [[nodiscard]] loop_results sums() const {
    loop_results all;
    for (int k = 0; k < most_loop_reductions; ++k) all.of[k] = room + k * room_bytes;
    return all;
  }
  template <class Source>
  [[nodiscard]] shared_reduction shared(const Source& source, const reduction_plan& plan, const extents& valid,
                                        bool is_dense) const {
    std::int64_t existing[max_rank];
    for (int d = 0; d < valid.count; ++d) existing[d] = valid[d];
    if (!is_dense) return {};
    return shared_reduction(source, plan, existing, false, stores ? source.unit : 1, device.parts, room_bytes);
  }
  /// Runs the part of the thread. Returns false if the thread must reduce everything instead. `is_dense`: the results
  /// have no gaps.
  bool reduce(computed_elements& source, const reduction_plan& plan, const extents& valid, bool is_dense,
              loop_results out) const {
    if (device.parts == 1) return false;
    const auto how = shared(source, plan, valid, is_dense);
    if (how.how == shared_reduction::none) return device.part > 0;
    how.reduce(source, std::int64_t{0}, out, sums(), device.part, device.parts);
    return true;
  }
};
/// The end of a loop with reductions, after all threads have run their parts: the first thread adds the results of
/// the nodes.
struct end_of_reduced_loop : part_of_reduced_loop {
  bool reduce(computed_elements& source, const reduction_plan& plan, const extents& valid, bool is_dense,
              loop_results out) const {
    const auto how = shared(source, plan, valid, is_dense);
    if (how.how != shared_reduction::terms) return true;
    how.end(source, sums());
    for (int k = 0; k < source.count; ++k)
      std::memcpy(out.of[k], sums().of[k], static_cast<std::size_t>(how.inner * source.elem_bytes()));
    return true;
  }
};

}  // namespace gspmd::detail
