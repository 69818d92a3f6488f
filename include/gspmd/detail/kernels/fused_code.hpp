// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/fused_group.hpp"
#include "gspmd/detail/ir/inner_part.hpp"
#include "gspmd/detail/kernels/fused_kernels.hpp"
#include "gspmd/detail/support/tuning.hpp"

/// A fused group, prepared for its interpreter: all decisions that do not depend on addresses.
namespace gspmd::detail {

inline constexpr std::int64_t fused_alignment = 64;

enum class load_kind : unsigned char {
  dense,     // can be read in place
  scalar,    // one element
  periodic,  // varies along the last dim only
  strided,   // any other strides; also if the caller's strides, known at run time, apply
  at_offset  // strided, with elements from a halo buffer at the ends of the loop
};

constexpr load_kind kind_of_load(const extents& loop, const extents& strides) {
  if (is_dense(loop, strides)) return load_kind::dense;
  bool is_scalar = true;
  bool is_periodic = true;
  for (int d = loop.count - 1; d >= 0; --d) {
    if (loop[d] == 1) continue;
    is_scalar = is_scalar && strides[d] == 0;
    is_periodic = is_periodic && (d == loop.count - 1 || strides[d] == 0);
  }
  return is_scalar ? load_kind::scalar : is_periodic ? load_kind::periodic : load_kind::strided;
}

constexpr load_kind kind_of_load(const extents& loop, const scalar_op& load) {
  if (load.given != 0) return load_kind::strided;
  return load.is_at_offset() ? load_kind::at_offset : kind_of_load(loop, load.strides);
}

constexpr std::int64_t align_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// Divides the row-major elements of a loop into blocks. A block is either several whole rows or a part of one row.
struct fused_blocks {
  std::int64_t row = 1;    // elements of the last dim; of the whole loop if nothing needs an index
  std::int64_t elems = 1;  // elements of a block
  bool has_whole_rows = false;

  constexpr fused_blocks() = default;
  /// `is_single`: one kernel computes the whole group. `has_equal_rows`: an operand is constant along each row. For
  /// such an operand, long rows are processed one by one, so that fewer copies of its elements are needed.
  constexpr fused_blocks(const extents& loop, bool needs_index, bool is_single = false, bool has_equal_rows = false) {
    const std::int64_t total = gspmd::detail::elements(loop);
    row = !needs_index ? total : loop.count == 0 ? 1 : loop[loop.count - 1];
    if (row < 1) row = 1;
    has_whole_rows = is_single && has_equal_rows ? 2 * row < interpreted_block_elems : row <= interpreted_block_elems;
    if (!has_whole_rows) {
      const std::int64_t most = is_single ? single_kernel_block_elems : interpreted_block_elems;
      const std::int64_t parts = (row + most - 1) / most;
      elems = align_up((row + parts - 1) / parts, 64);
      if (elems > row) elems = row;
      return;
    }
    // Choose a number of rows whose elements are a multiple of 64 (see for_each_index), if the block does not get too
    // long.
    std::int64_t unit = row;
    while (unit % 64 != 0 && 2 * unit <= interpreted_block_elems) unit *= 2;
    if (unit % 64 != 0) unit = row;
    elems = (is_single ? single_kernel_block_elems / 2 : interpreted_block_elems) / unit * unit;  // operands are copied
  }
  [[nodiscard]] constexpr bool lie_in_one_row() const { return elems <= row; }
};

/// A register that is a part of an input or output and advances with the blocks.
struct fused_stream {
  std::byte* begin;
  std::int64_t elem_bytes;
  std::int32_t op;
};

/// A fused group as instructions on registers, one instruction per op.
///
///   1. Dense loads are read in place. Elements that are equal in all blocks are filled once per run. Elements that are
///      constant along a row are filled once per row, if a block is part of one row. Other loads and iotas are filled
///      once per block.
///   2. Each op is an instruction, unless it is fused into its only user.
///   3. A result is computed directly into the output if no later instruction reads the overwritten data. Otherwise it
///      is copied.
///
/// The loop can be a part of a larger loop: `box` is the part of `whole`, the elements that exist. The outputs have
/// extents `room`, so their rows can have gaps between them.
struct fused_code {
  struct source {  // a load, a constant or an iota
    std::int16_t op;
    std::int16_t last_use;  // the op that reads it last; the number of ops if it is stored
    load_kind kind;
  };
  fused_group group;
  extents whole, begin;  // the loop that contains this part, and the position of the part in it
  extents out_strides;   // of all outputs except outputs with the caller's strides
  bool has_gaps = false;
  fused_blocks blocks;
  std::vector<source> dense, once, each_row, each;  // read in place; filled once per run; per row; per block
  std::vector<fused_instruction> instructions;
  fused_sum_kernel sum = nullptr;  // of the last instruction, whose result need not be stored to `summed`
  std::int16_t summed = -1;
  std::vector<char> repeats;       // by op: not 0 if the block holds only for_each_index_step equal elements
  std::vector<std::int64_t> home;  // by op: the offset of its block in the memory of run_fused; 0 if it has none
  std::int64_t tables_bytes = 0;   // bytes that run_fused uses before the blocks
  std::int64_t scratch_bytes = 0;  // bytes of memory that run_fused needs

  explicit fused_code(const fused_group& given) : fused_code(given, given.loop) {}
  fused_code(const fused_group& given, const extents& room) : fused_code(given, room, loop_box(given.loop)) {}
  fused_code(const fused_group& given, const extents& room, const loop_box& box)
      : group(given), whole(given.loop), begin(box.begin), out_strides(room.count, 0) {
    group.loop = box.size();
    std::int64_t stride = 1;
    for (int d = room.count - 1; d >= 0; --d) {
      out_strides[d] = stride;
      stride *= room[d];
    }
    has_gaps = kind_of_load(group.loop, out_strides) != load_kind::dense;
    for (const auto& s : group.stores) has_gaps = has_gaps || s.given != 0;
    bool needs_index = has_gaps;
    for (const auto& o : group.ops) {
      const bool is_load = o.op == opcode::parameter;
      const auto kind = is_load ? kind_of_load(group.loop, o) : load_kind::dense;
      needs_index = needs_index || o.op == opcode::iota || kind >= load_kind::periodic;
    }
    join();
    bool is_single = instructions.size() == 1, has_equal_rows = false;
    for (const auto& o : group.ops) {
      has_equal_rows = has_equal_rows || is_equal_in_row(o);
      is_single = is_single && !o.is_at_offset();  // in long rows, only the blocks at both ends are copied
    }
    blocks = fused_blocks(group.loop, needs_index, is_single, has_equal_rows);
    if (!needs_index && instructions.size() == 1) blocks.elems = single_kernel_block_elems;
    assign_blocks();
  }
  /// Prepares to reduce the values of store `slot` while they are computed, `at_once` elements per step. Does nothing
  /// if that is not possible.
  void add_up(std::int16_t slot, std::int64_t at_once) {
    sum = nullptr;
    if (instructions.empty() || blocks.has_whole_rows) return;
    if (group.loop.count > 1 && blocks.row % at_once != 0) return;
    int stores = 0;
    bool is_last = false;
    for (const auto& s : group.stores) {
      if (s.op != instructions.back().result) continue;
      ++stores;
      is_last = is_last || s.slot == slot;
    }
    if (is_last) sum = fused_sum_kernel_for(instructions.back().kernel, stores > 1);
    summed = slot;
  }

  /// Returns the offset of the part from the begin of the whole loop, in elements.
  [[nodiscard]] std::int64_t begin_at(const extents& strides) const {
    std::int64_t at = 0;
    for (int d = 0; d < begin.count; ++d) at += begin[d] * strides[d];
    return at;
  }
  [[nodiscard]] const scalar_op& op(std::int64_t k) const { return group.ops[static_cast<std::size_t>(k)]; }
  [[nodiscard]] std::int32_t op_count() const { return static_cast<std::int32_t>(group.ops.size()); }

 private:
  void join() {
    const auto count = group.ops.size();
    std::vector<std::int32_t> uses(count);
    for (const auto& o : group.ops)
      for (const auto a : o.args) ++uses[static_cast<std::size_t>(a)];
    for (const auto& s : group.stores) ++uses[static_cast<std::size_t>(s.op)];
    constexpr std::int32_t none = -1;
    std::vector<std::int32_t> at(count, none);  // the instruction of an op
    for (std::size_t k = 0; k < count; ++k) {
      const scalar_op& o = group.ops[k];
      if (!is_elementwise(o.op)) continue;
      fused_instruction made{nullptr, static_cast<std::int16_t>(k), {}, o.function};
      const bool is_square = o.args.count == 2 && o.args[0] == o.args[1];
      const auto made_of = [&](int place) { return static_cast<std::size_t>(o.args[place]); };
      const auto can_join = [&](int place) {
        const auto a = made_of(place);  // used nowhere else, and not a pair itself
        return at[a] != none && uses[a] == (is_square ? 2 : 1) &&
               instructions[static_cast<std::size_t>(at[a])].kernel == fused_kernel_for(group.ops[a]);
      };
      const auto take = [&](int place) {
        for (const auto x : group.ops[made_of(place)].args) made.from.push_back(x);  // in the original order
        instructions[static_cast<std::size_t>(at[made_of(place)])].kernel = nullptr;
        at[made_of(place)] = none;
      };
      if (is_square && can_join(0)) {
        made.kernel = fused_kernel_for(group.ops[made_of(0)], o, both_places, opcode::parameter);
        if (made.kernel != nullptr) take(0);
      } else if (o.args.count == 2 && !is_square && can_join(0) && can_join(1)) {
        made.kernel = fused_kernel_for(group.ops[made_of(0)], o, 0, group.ops[made_of(1)].op);
        if (made.kernel != nullptr) {
          take(0);
          take(1);
        }
      }
      for (int place = 0; place < o.args.count && made.kernel == nullptr && !is_square; ++place) {
        if (!can_join(place)) continue;
        made.kernel = fused_kernel_for(group.ops[made_of(place)], o, place, opcode::parameter);
        if (made.kernel == nullptr) continue;
        take(place);
        for (int other = 0; other < o.args.count; ++other)
          if (other != place) made.from.push_back(o.args[other]);
      }
      if (made.kernel == nullptr) {
        made.kernel = fused_kernel_for(o);
        for (const auto a : o.args) made.from.push_back(a);
        if (swapped(o.op) != o.op) std::swap(made.from[0], made.from[1]);
      }
      for (int n = 0; n < made.from.count; ++n) {
        const auto a = static_cast<std::size_t>(made.from[n]);
        if (at[a] == none || uses[a] != 1) continue;
        auto& other = instructions[static_cast<std::size_t>(at[a])];
        const auto chain = fused_kernel_for(other.kernel, made.kernel, n);
        if (chain == nullptr) continue;
        auto from = other.from;
        for (int m = 0; m < made.from.count; ++m)
          if (m != n) from.push_back(made.from[m]);
        made.kernel = chain;
        made.from = from;
        other.kernel = nullptr;
        at[a] = none;
        break;
      }
      at[k] = static_cast<std::int32_t>(instructions.size());
      instructions.push_back(made);
    }
    std::size_t kept = 0;
    for (const auto& i : instructions)
      if (i.kernel != nullptr) instructions[kept++] = i;
    instructions.resize(kept);
  }

  /// Returns true if all elements of an op are equal.
  [[nodiscard]] bool is_one_element(const scalar_op& o) const {
    return o.op == opcode::constant || (o.op == opcode::parameter && kind_of_load(group.loop, o) == load_kind::scalar);
  }
  /// Returns true if the elements of a source are constant along each row.
  [[nodiscard]] bool is_equal_in_row(const scalar_op& o) const {
    const int last = group.loop.count - 1;
    if (o.op == opcode::iota) return o.dim != last;
    return o.op == opcode::parameter && o.given == 0 && kind_of_load(group.loop, o) == load_kind::strided && o.strides[last] == 0;
  }

  /// Finds sources that are constant in a block and that only kernels of built-in operators read. Only one loop step of
  /// their elements is stored.
  void find_repeated() {
    repeats.assign(group.ops.size(), 0);
    for (std::size_t k = 0; k < group.ops.size(); ++k)
      repeats[k] = is_one_element(group.ops[k]) || (blocks.lie_in_one_row() && is_equal_in_row(group.ops[k]));
    for (const auto& s : group.stores) repeats[static_cast<std::size_t>(s.op)] = 0;
    for (const auto& i : instructions)
      if (i.function != nullptr)
        for (const auto a : i.from) repeats[static_cast<std::size_t>(a)] = 0;
    for (auto& i : instructions)
      for (int n = 0; n < i.from.count; ++n)
        if (repeats[static_cast<std::size_t>(i.from[n])] != 0) i.repeats |= 1U << n;
  }

  void assign_blocks() {
    const auto count = op_count();
    std::vector<std::int16_t> last_use(group.ops.size(), -1);
    for (const auto& i : instructions)
      for (const auto a : i.from) last_use[static_cast<std::size_t>(a)] = i.result;
    for (const auto& s : group.stores) last_use[static_cast<std::size_t>(s.op)] = static_cast<std::int16_t>(count);

    find_repeated();
    std::vector<std::int32_t> block(group.ops.size(), -1);
    std::vector<bool> lasts(group.ops.size());
    std::vector<std::int32_t> free;
    std::int32_t made = 0, made_short = 0;
    const auto take = [&] {
      if (free.empty()) return made++;
      const auto b = free.back();
      free.pop_back();
      return b;
    };
    // Assign blocks to sources first, because sources are filled before any instruction runs.
    for (std::int32_t k = 0; k < count; ++k) {
      const scalar_op& o = op(k);
      if (is_elementwise(o.op) || last_use[static_cast<std::size_t>(k)] < 0) continue;
      const bool is_load = o.op == opcode::parameter;
      const source s{static_cast<std::int16_t>(k), last_use[static_cast<std::size_t>(k)],
                     is_load ? kind_of_load(group.loop, o) : load_kind::strided};
      if (is_load && s.kind == load_kind::dense) {
        dense.push_back(s);
        // A stored source is copied if the output of another op may overwrite it.
        if (s.last_use == count) block[static_cast<std::size_t>(k)] = made++;
        continue;
      }
      const bool is_short = repeats[static_cast<std::size_t>(k)] != 0;
      const bool is_equal_in_blocks =
          is_one_element(o) ||
          (blocks.has_whole_rows && (is_load ? s.kind == load_kind::periodic : o.dim == group.loop.count - 1));
      const bool stays =
          is_short || (is_equal_in_blocks && once.size() < most_lasting_blocks + static_cast<std::size_t>(made_short));
      lasts[static_cast<std::size_t>(k)] = stays;
      (!stays ? each : is_equal_in_blocks ? once : each_row).push_back(s);
      block[static_cast<std::size_t>(k)] = is_short ? made_short++ : made++;
    }
    for (const auto& i : instructions) {
      const auto k = static_cast<std::size_t>(i.result);
      block[k] = take();
      // Free the operands only now, because the result must not overlap an operand of another width.
      for (int n = 0; n < i.from.count; ++n) {
        const auto a = static_cast<std::size_t>(i.from[n]);
        bool is_first = true;
        for (int m = 0; m < n; ++m) is_first = is_first && i.from[m] != i.from[n];
        if (is_first && last_use[a] == i.result && block[a] >= 0 && !lasts[a]) free.push_back(block[a]);
      }
      if (last_use[k] < 0) free.push_back(block[k]);
    }
    std::int64_t widest = 1;
    for (const auto& o : group.ops) widest = bytes_of(o.type) > widest ? bytes_of(o.type) : widest;
    // One lane more than needed, for splat.
    const std::int64_t block_bytes = align_up(widest * blocks.elems, fused_alignment) + fused_alignment;
    const std::int64_t short_bytes = align_up(widest * for_each_index_step, fused_alignment);
    tables_bytes =
        align_up(count * static_cast<std::int64_t>(sizeof(std::byte*)), fused_alignment) +
        align_up(static_cast<std::int64_t>((dense.size() + group.stores.size()) * sizeof(fused_stream)), fused_alignment);
    const auto blocks_begin = tables_bytes + made_short * short_bytes;
    for (std::size_t k = 0; k < block.size(); ++k)
      home.push_back(block[k] < 0      ? 0
                     : repeats[k] != 0 ? tables_bytes + block[k] * short_bytes
                                       : blocks_begin + block[k] * block_bytes);
    scratch_bytes = fused_alignment + blocks_begin + made * block_bytes;
  }
};

}  // namespace gspmd::detail
