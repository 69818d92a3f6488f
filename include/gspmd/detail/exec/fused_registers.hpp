// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gspmd/detail/exec/fused_group.hpp"
#include "gspmd/detail/exec/fused_kernels.hpp"

/// Which op of an interpreted group gets which block of the scratch memory.
namespace gspmd::detail {

/// Elements per block: long enough that the dispatch does not show, short enough that a dozen blocks stay in the first cache.
inline constexpr std::int64_t fused_block_elems = 512;

/// Constants fill their block once per run as long as there are few of them.
inline constexpr int most_lasting_blocks = 16;

inline constexpr std::int64_t fused_alignment = 64;

enum class load_kind : unsigned char { dense, scalar, strided };

constexpr load_kind kind_of_load(const extents& loop, const scalar_op& o) {
  bool is_dense = true;
  bool is_scalar = true;
  std::int64_t expected = 1;
  for (int d = loop.count - 1; d >= 0; --d) {
    if (loop[d] == 1) continue;
    is_dense = is_dense && o.strides[d] == expected;
    is_scalar = is_scalar && o.strides[d] == 0;
    expected *= loop[d];
  }
  return is_dense ? load_kind::dense : is_scalar ? load_kind::scalar : load_kind::strided;
}

/// Where to keep the answers, one element per op.
struct block_tables {
  std::int32_t* last_use;  // the op that uses it last; the number of ops if it is stored
  std::int32_t* block;     // -1: needs none
  std::int32_t* free;      // of no use afterwards
  bool* lasts;             // filled once per run
};

/// Fills the tables and returns the number of blocks.
constexpr std::int32_t assign_blocks(const fused_group& group, const block_tables& t) {
  const auto count = static_cast<std::int32_t>(group.ops.size());
  for (std::int32_t k = 0; k < count; ++k) {
    t.last_use[k] = k;
    for (const auto a : group.ops[static_cast<std::size_t>(k)].args) t.last_use[a] = k;
  }
  for (const auto& s : group.stores) t.last_use[s.op] = count;

  std::int32_t blocks = 0;
  std::int32_t free = 0;
  int lasting = 0;
  for (std::int32_t k = 0; k < count; ++k) {
    const scalar_op& o = group.ops[static_cast<std::size_t>(k)];
    const bool is_load = o.op == opcode::parameter;
    const auto kind = is_load ? kind_of_load(group.loop, o) : load_kind::strided;
    t.lasts[k] = (o.op == opcode::constant || (is_load && kind == load_kind::scalar)) && lasting < most_lasting_blocks;
    t.block[k] = -1;
    if (t.lasts[k]) {
      t.block[k] = blocks++;
      ++lasting;
      continue;
    }
    // a dense load that is stored is copied when the output of another op may be written over it
    if (is_load && kind == load_kind::dense && t.last_use[k] != count) continue;
    t.block[k] = free > 0 ? t.free[--free] : blocks++;
    // Not before: the result must not lie over an operand of another width.
    for (int i = 0; i < o.args.count; ++i) {
      const auto a = o.args[i];
      bool is_first = true;
      for (int j = 0; j < i; ++j) is_first = is_first && o.args[j] != a;
      if (is_first && t.last_use[a] == k && t.block[a] >= 0 && !t.lasts[a]) t.free[free++] = t.block[a];
    }
    if (t.last_use[k] == k) t.free[free++] = t.block[k];
  }
  return blocks;
}

constexpr std::int64_t align_up(std::int64_t bytes) { return (bytes + fused_alignment - 1) / fused_alignment * fused_alignment; }

/// The scratch memory: a register and the tables per op, then the blocks.
struct fused_scratch_layout {
  std::int64_t ops;

  [[nodiscard]] constexpr std::int64_t last_use() const { return ops * static_cast<std::int64_t>(sizeof(fused_register)); }
  [[nodiscard]] constexpr std::int64_t block() const { return last_use() + ops * 4; }
  [[nodiscard]] constexpr std::int64_t free() const { return block() + ops * 4; }
  [[nodiscard]] constexpr std::int64_t lasts() const { return free() + ops * 4; }
  [[nodiscard]] constexpr std::int64_t blocks() const { return align_up(lasts() + ops); }
};

constexpr std::int64_t fused_block_bytes(const fused_group& group) {
  std::int64_t most = 1;
  for (const auto& o : group.ops) most = bytes_of(o.type) > most ? bytes_of(o.type) : most;
  return most * fused_block_elems;
}

/// How much scratch memory run_fused needs for `group`.
constexpr std::int64_t fused_scratch_bytes(const fused_group& group) {
  const std::size_t n = group.ops.size();
  std::vector<std::int32_t> last_use(n), block(n), free(n);
  bool* const lasts = new bool[n + 1]{};
  const auto blocks = assign_blocks(group, {last_use.data(), block.data(), free.data(), lasts});
  delete[] lasts;
  const fused_scratch_layout layout{static_cast<std::int64_t>(n)};
  return layout.blocks() + blocks * fused_block_bytes(group) + fused_alignment;
}

}  // namespace gspmd::detail
