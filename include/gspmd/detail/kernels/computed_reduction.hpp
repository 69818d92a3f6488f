// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "gspmd/detail/ir/loop_reduction.hpp"
#include "gspmd/detail/kernels/reduce.hpp"
#include "gspmd/detail/support/target.hpp"

/// Reductions of values that a loop computes, block by block, without storing them.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// The addresses of the results of several reductions.
struct loop_results {
  std::byte* of[most_loop_reductions]{};

  friend loop_results operator+(loop_results r, std::int64_t bytes) {
    for (auto& p : r.of)
      if (p != nullptr) p += bytes;
    return r;
  }
  loop_results& operator+=(std::int64_t bytes) { return *this = *this + bytes; }
};

/// The elements of a loop in row-major order, computed on demand by a reduction (compare stored_elements). For each
/// reduction, a block holds the elements [block_begin, block_end). A loop that also stores other results stores each
/// element once. A loop that stores nothing else recomputes elements if a reduction moves back.
struct computed_elements {
  /// Computes elements [first, last) and writes them to `to`, one address for each reduction. `first` and `last` are
  /// multiples of `unit`; `last` may also be the end of the loop.
  void (*compute)(void* context, std::int64_t first, std::int64_t last, std::byte* const* to) = nullptr;
  /// Reduces elements [first, last) while they are computed, run by run. Null if that is not compiled, or not for these
  /// rows.
  void (*accumulate_range)(void* context, std::int64_t first, std::int64_t last, partial_reductions& partial) = nullptr;
  std::int64_t accumulated_unit = 1;  // runs begin at multiples of this number of elements
  void* context = nullptr;
  const reduction_kernel* const* kernels = nullptr;
  std::byte* blocks[most_loop_reductions]{};
  bool owns[most_loop_reductions]{};  // false: the block belongs to an earlier reduction
  int count = 0;
  std::int64_t total = 0;        // number of elements of the loop
  std::int64_t block_elems = 0;  // capacity of a block
  std::int64_t unit = 1;         // elements are computed in multiples of this number: whole rows, if rows are short
  std::int64_t block_begin = 0, block_end = 0;
  partial_reductions partial;                        // of the current run
  std::int64_t run_rest = 0;                         // number of elements of a run after its last whole vector step
  loop_results run_out;                              // addresses of the results of the current run
  std::int64_t first = 0, together = 0, period = 0;  // elements that a reduction reads consecutively; 0: unknown

  using position = std::int64_t;  // in bytes
  using results = loop_results;
  template <std::int64_t Bytes>
  struct room {
    alignas(cache_line_bytes) std::byte bytes[most_loop_reductions][Bytes];
    results get() { return {{bytes[0], bytes[1], bytes[2], bytes[3]}}; }
  };
  static_assert(most_loop_reductions == 4);

  [[nodiscard]] std::int64_t elem_bytes() const { return kernels[0]->elem_bytes; }
  [[nodiscard]] std::int64_t lanes() const { return kernels[0]->lanes; }
  [[nodiscard]] std::int64_t piece() const { return std::max(unit, reduced_piece_bytes / elem_bytes() / unit * unit); }
  void lie_together(std::int64_t begin, std::int64_t bytes, std::int64_t all) {
    first = begin / elem_bytes();
    together = bytes / elem_bytes();
    period = all / elem_bytes();
  }

  void runs(position in, std::int64_t outer, std::int64_t, std::int64_t n, results out) {
    const bool is_whole = n % (4 * lanes()) == 0;  // otherwise the rest is computed separately, and it is not a multiple of
                                                   // `unit`
    if (accumulate_range != nullptr && n >= 16 * lanes() && (in / elem_bytes()) % accumulated_unit == 0 &&
        (is_whole || (outer == 1 && unit == 1)))
      return accumulate_runs(in / elem_bytes(), outer, n, out);
    if (n > part_elems()) {
      for (std::int64_t o = 0; o < outer; ++o) long_run(in / elem_bytes() + o * n, n, out + o * elem_bytes());
      return;
    }
    const auto at_once = std::max(std::int64_t{1}, part_elems() / n);
    for (std::int64_t o = 0; o < outer; o += at_once) {
      const auto some = std::min(at_once, outer - o);
      const auto at = bring(in / elem_bytes() + o * n, some * n);
      for (int k = 0; k < count; ++k) kernels[k]->runs(block(k, at), some, n, n, out.of[k] + o * elem_bytes());
    }
  }

  /// Call it once, before the first run, if accumulate_range is set.
  void begin_accumulating() {
    for (int k = 0; k < count; ++k) {
      std::byte* const neutral = partial.neutral[k].bytes;
      std::memcpy(neutral, kernels[k]->neutral.data(), static_cast<std::size_t>(elem_bytes()));
      for (auto bytes = static_cast<std::size_t>(elem_bytes()); bytes < sizeof(partial_reductions::vectors); bytes *= 2)
        std::memcpy(neutral + bytes, neutral, bytes);
    }
    partial.context = this;
    partial.end_run = [](void* own) { static_cast<computed_elements*>(own)->end_run(); };
  }

  /// Reduces rows, in blocks. Blocks end where reduce_few_rows has processed groups of four rows, so results do not
  /// depend on the blocks.
  void rows(position in, std::int64_t rows, std::int64_t step, std::int64_t n, results out, bool accumulate) {
    const auto begin = in / elem_bytes();
    if (are_short_rows(lanes(), step, n) && rows >= 4 * lanes())
      return reduce_block(bring(begin, rows * n), rows, n, n, out, accumulate);
    const bool is_dense = step == n;
    const auto width = is_dense ? n : n + lanes();  // so that the rows are not treated as short rows
    const auto most = part_elems() / width;
    for (std::int64_t i = 0, some = 0; i < rows; i += some) {
      const bool adds = accumulate || i > 0;
      some = std::min(rows - i, rows - i <= most ? rows - i
                                : !adds          ? 1 + std::max(most - 1, std::int64_t{0}) / 4 * 4
                                : most < 4       ? 4
                                                 : most / 4 * 4);
      if (is_dense) {
        reduce_block(bring(begin + i * n, some * n), some, n, n, out, adds);
        continue;
      }
      block_begin = block_end = 0;
      for (std::int64_t r = 0; r < some; ++r) compute_to(begin + (i + r) * step, n, r * width);
      reduce_block(0, some, width, n, out, adds);
    }
  }
  void combine(results out, results with, std::int64_t n) const {
    for (int k = 0; k < count; ++k) kernels[k]->combine(out.of[k], out.of[k], out.of[k], with.of[k], n);
  }

 private:
  /// Number of elements that stay in the first-level cache between their computation and their reduction.
  [[nodiscard]] std::int64_t part_elems() const { return computed_part_bytes / elem_bytes(); }
  void accumulate_runs(std::int64_t begin, std::int64_t outer, std::int64_t n, results out) {
    run_rest = n % (4 * lanes());
    run_out = out;
    block_begin = block_end = 0;
    partial.run = partial.left = n - run_rest;
    partial.is_whole = run_rest == 0;
    accumulate_range(context, begin, begin + outer * n - run_rest, partial);
    if (partial.is_whole) return;
    compute_to(begin + n - run_rest, run_rest, 0);
    end_run();
  }
  void end_run() {
    for (int k = 0; k < count; ++k) kernels[k]->part(blocks[k], run_rest, partial.now[k].bytes, false, run_out.of[k]);
    run_out += elem_bytes();
  }
  void long_run(std::int64_t begin, std::int64_t n, results out) {
    for (std::int64_t i = 0; i < n; i += part_elems()) {
      const auto some = std::min(part_elems(), n - i);
      const auto at = bring(begin + i, some);
      for (int k = 0; k < count; ++k)
        kernels[k]->part(block(k, at), some, partial.now[k].bytes, i == 0, i + some == n ? out.of[k] : nullptr);
    }
  }
  [[nodiscard]] std::byte* block(int k, std::int64_t at) const { return blocks[k] + at * elem_bytes(); }
  void reduce_block(std::int64_t at, std::int64_t rows, std::int64_t step, std::int64_t n, results out, bool accumulate) const {
    for (int k = 0; k < count; ++k) kernels[k]->rows(block(k, at), rows, step, n, out.of[k], accumulate);
  }
  void compute_to(std::int64_t begin, std::int64_t n, std::int64_t at) {
    std::byte* to[most_loop_reductions]{};
    for (int k = 0; k < count; ++k) to[k] = block(k, at);
    compute(context, begin, begin + n, to);
  }

  /// Makes n elements from `begin` on available. Returns their position in the blocks. Keeps elements that are already
  /// in a block.
  std::int64_t bring(std::int64_t begin, std::int64_t n) {
    if (begin >= block_begin && begin + n <= block_end) return begin - block_begin;
    if (begin > block_begin && begin < block_end) {
      for (int k = 0; k < count; ++k)
        if (owns[k])
          std::memmove(blocks[k], block(k, begin - block_begin), static_cast<std::size_t>((block_end - begin) * elem_bytes()));
      block_begin = begin;
    } else if (begin != block_begin || block_end <= begin) {
      block_begin = block_end = begin / unit * unit;
    }
    auto end = begin + n;
    if (together > 0) {  // the reduction will read this number of elements next
      const auto rest = begin - (begin % period - first) + together;
      end = std::max(end, std::min(rest, block_begin + std::min(block_elems, part_elems() + unit) - unit));
    }
    end = std::min(total, (end + unit - 1) / unit * unit);
    compute_to(block_end, end - block_end, block_end - block_begin);
    block_end = end;
    return begin - block_begin;
  }
};

/// Returns the begin of an array whose first `bytes` bytes do not exist. `at` is the address of the first existing
/// element. Nothing accesses the memory before `at`.
inline std::byte* before(std::byte* at, std::int64_t bytes) {
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(at) - static_cast<std::uintptr_t>(bytes));
}

/// Moves results without padding, dense over `from`, to their positions in arrays of extents `to`. Starts with the last
/// row. Example: from [2,3] to [2,4], a b c d e f becomes a b c . d e f, where `.` is not written.
inline void spread(const extents& from, const extents& to, std::int64_t elem_bytes, std::byte* results) {
  if (from == to || elements(from) == 0) return;
  const int last = from.count - 1;
  const auto bytes = static_cast<std::size_t>(from[last] * elem_bytes);
  for (auto row = elements(from) / from[last]; row-- > 0;) {
    std::int64_t at = 0, left = row, stride = to[last];
    for (int d = last - 1; d >= 0; --d) {
      at += left % from[d] * stride;
      left /= from[d];
      stride *= to[d];
    }
    std::memmove(results + at * elem_bytes, results + row * from[last] * elem_bytes, bytes);
  }
}

/// Reduces the elements that a loop computes. Elements outside of the extents `valid` are padding. The results have
/// gaps for the padding. If several threads share the work, `part` is the work of this thread.
template <class Part = void>  // programs without such loops do not instantiate it
void reduce_computed(computed_elements& source, const reduction_spec& whole, const extents& valid, loop_results out,
                     const Part* part = nullptr) {
  reduction_spec spec = whole;
  spec.in = valid;
  const auto plan = plan_reduction(spec);
  extents kept, room;
  bool is_empty = false;
  for (int d = 0; d < valid.count; ++d) {
    if ((whole.dims & dim_bit(d)) != 0) {
      is_empty = is_empty || valid[d] <= 0;
    } else {
      kept.push_back(valid[d]);
      room.push_back(whole.in[d]);
    }
  }
  if (plan.out_elems == 0) return;
  if constexpr (!std::is_void_v<Part>)
    if (part->reduce(source, plan, valid, kept == room, out)) return;
  const auto bytes = source.elem_bytes();
  if (is_empty) {
    for (int k = 0; k < source.count; ++k)
      for (std::int64_t i = 0; i < plan.out_elems; ++i)
        std::memcpy(out.of[k] + i * bytes, source.kernels[k]->identity.data(), static_cast<std::size_t>(bytes));
  } else if (plan.first_reduced < 0) {  // the reduced dims have extent 1
    for (std::int64_t i = 0; i < plan.out_elems; i += source.piece())
      source.runs(i * bytes, std::min(source.piece(), plan.out_elems - i), 1, 1, out + i * bytes);
  } else {
    std::int64_t existing[max_rank];
    for (int d = 0; d < valid.count; ++d) existing[d] = valid[d];
    reduce_some(source, plan, existing, std::int64_t{0}, out);
  }
  for (int k = 0; k < source.count; ++k) spread(kept, room, bytes, out.of[k]);
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
