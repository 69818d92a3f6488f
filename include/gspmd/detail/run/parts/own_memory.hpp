// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/ir/plan.hpp"

/// Separate memory of the threads of a device. It follows the arena of the plan. Each thread except for the first has
/// scratch memory there. It also has memory for the values that only the steps of a block of rows read and write.
///
///   [arena of the plan, with the memory of the first thread]
///   [scratch, values of blocks: thread 1] [the same: thread 2] ...
namespace gspmd::detail {

inline constexpr std::int64_t own_alignment = 128;  // threads write no cache line of another thread, nor the line next to it
constexpr std::int64_t to_own_alignment(std::int64_t bytes) {
  return (bytes + own_alignment - 1) / own_alignment * own_alignment;
}

/// A piece of the arena, with values of a block whose memory overlaps.
struct arena_piece {
  std::int64_t begin, end;
};

/// Returns the pieces of the arena, in order, that one thread uses for the steps of a block of rows. The block begins
/// with step `begin`.
///
///   values at [0, 64), [32, 96) and [128, 192): pieces [0, 96) and [128, 192)
inline std::vector<arena_piece> pieces_of_rows(const plan_view& p, std::size_t begin) {
  std::vector<arena_piece> all;
  const auto add = [&](const planned_value& v) {
    if (v.counter < 0 && v.where.where == memory_place::kind::arena)
      all.push_back({v.where.at, v.where.at + std::max(elements(v.local) * bytes_of(v.type), std::int64_t{1})});
  };
  add(p.result(p.steps[begin]));  // the number of the first row
  for (auto i = begin + 1; i < static_cast<std::size_t>(p.steps[begin].target); ++i)
    for (int r = 0; r < p.steps[i].results.count; ++r) add(p.result(p.steps[i], r));
  std::sort(all.begin(), all.end(), [](const arena_piece& a, const arena_piece& b) { return a.begin < b.begin; });
  std::vector<arena_piece> joined;
  for (const auto& piece : all)
    if (!joined.empty() && piece.begin < joined.back().end) joined.back().end = std::max(joined.back().end, piece.end);
    else joined.push_back(piece);
  return joined;
}

/// The offsets of the separate memory of the threads, computed from the plan.
struct own_memory {
  std::int64_t arena, scratch = 0, rows = 0;  // bytes

  explicit own_memory(const plan_view& p) : arena(to_own_alignment(p.arena_bytes)) {
    for (std::size_t i = 0; i < p.steps.size(); ++i) {
      scratch = std::max(scratch, to_own_alignment(facts_of(p.steps[i]).scratch_bytes(p, p.steps[i])));
      if (description_by<kernels::rows_begin>(p, p.steps[i]) == nullptr) continue;
      std::int64_t bytes = 0;
      for (const auto& piece : pieces_of_rows(p, i)) bytes += to_own_alignment(piece.end - piece.begin);
      rows = std::max(rows, bytes);
    }
  }
  [[nodiscard]] std::int64_t begin(int thread) const { return arena + (thread - 1) * (scratch + rows); }
  [[nodiscard]] std::int64_t arena_bytes(int threads) const { return threads == 1 ? arena : begin(threads); }
};

/// Moves the separate memory of `thread`, which is not the first thread, to its place, in the steps and values of the
/// thread's plan. Blocks of rows that are not shared have no separate memory.
inline void move_to_own_memory(const plan_view& p, int thread, const std::vector<std::uint8_t>& is_shared,
                               std::vector<plan_step>& steps, std::vector<planned_value>& values) {
  const own_memory own(p);
  for (auto& s : steps) s.scratch = own.begin(thread);
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    const auto& begin = p.steps[i];
    if (is_shared[i] == 0 || description_by<kernels::rows_begin>(p, begin) == nullptr) continue;
    const auto pieces = pieces_of_rows(p, i);
    const auto counter = p.result(begin).where.at;
    const auto moved = [&](std::int64_t at) {
      auto to = own.begin(thread) + own.scratch;
      for (const auto& piece : pieces) {
        if (at >= piece.begin && at < piece.end) return to + at - piece.begin;
        to += to_own_alignment(piece.end - piece.begin);
      }
      return at;
    };
    const auto move = [&](const table_range& some) {
      for (int k = 0; k < some.count; ++k) {
        const auto v = static_cast<std::size_t>(p.slots[static_cast<std::size_t>(some.begin + k)]);
        const auto& from = p.values[v].where;
        auto& to = values[v].where;
        if (from.row_bytes != 0 && from.row_at == counter) to.row_at = moved(counter);
        if (p.values[v].counter < 0 && from.where == memory_place::kind::arena) to.at = moved(from.at);
      }
    };
    for (auto step = i; step <= static_cast<std::size_t>(begin.target); ++step) {
      if (step > i) move(p.steps[step].operands);
      move(p.steps[step].results);
    }
  }
}

}  // namespace gspmd::detail
