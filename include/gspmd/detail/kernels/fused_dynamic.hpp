// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gspmd/detail/ir/elementwise/list.hpp"
#include "gspmd/detail/kernels/fused_code.hpp"
#include "gspmd/detail/kernels/reduce_rows.hpp"
#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/support/target.hpp"

/// Interprets a fused group that is known at run time only: block by block, instruction by instruction.
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"  // see for_each_index
#endif

namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Fills `n` elements with the element at `value`. May overwrite up to one vector after them: rows are filled in order,
/// and blocks have room for it.
inline void splat(const void* value, std::int64_t elem_bytes, std::byte* to, std::int64_t n) {
  with_bits(
      elem_bytes, [=](auto bits) __attribute__((always_inline)) {
        std::memcpy(&bits, value, sizeof bits);
        if constexpr (std::is_same_v<decltype(bits), two_words>) {
          for (std::int64_t i = 0; i < n; ++i) std::memcpy(to + i * static_cast<std::int64_t>(sizeof bits), &bits, sizeof bits);
          return;
        } else {
          const auto all = broadcast_simd(bits);
          for (std::int64_t i = 0; i < n; i += simd_lanes<decltype(bits)>)
            std::memcpy(to + i * static_cast<std::int64_t>(sizeof bits), &all, sizeof all);
        }
      });
}

/// The position of a block in the loop, and its numbers of rows and columns.
struct fused_block {
  std::int64_t index[max_rank + 1];
  std::int64_t rows;
  std::int64_t cols;
};

/// Calls visit(index, rows, first) for each run of rows of a block. Row `first` of the block has the index `index`; the
/// other rows follow along the next dim.
template <class Visit>
inline void for_each_run(const extents& loop, const fused_block& b, Visit visit) {
  const int next = loop.count - 2;
  std::int64_t index[max_rank + 1];
  std::memcpy(index, b.index, sizeof index);  // copy the whole array: compilers call a function for a part
  for (std::int64_t first = 0, rows = b.rows; first < b.rows; first += rows) {
    rows = b.rows - first;
    if (next >= 0 && rows > loop[next] - index[next]) rows = loop[next] - index[next];
    visit(static_cast<const std::int64_t*>(index), rows, first);
    if (next >= 0) index[next] += rows;
    for (int d = next; d > 0 && index[d] == loop[d]; --d) {
      index[d] = 0;
      ++index[d - 1];
    }
  }
}
inline std::int64_t offset_at(const std::int64_t* index, const extents& strides) {
  std::int64_t offset = 0;
  for (int d = 0; d < strides.count; ++d) offset += index[d] * strides[d];
  return offset;
}
constexpr std::int64_t step_of_rows(const extents& strides) { return strides.count < 2 ? 0 : strides[strides.count - 2]; }

/// Elements of `rows` rows in memory. `step` is the distance between rows, `stride` the distance between columns.
struct block_part {
  const std::byte* from;
  std::int64_t rows, step, cols, stride;
};
/// Copies the elements to a block, whose rows are `row_bytes` apart.
inline void copy_part(const block_part& part, std::int64_t size, std::byte* to, std::int64_t row_bytes) {
  const auto* from = part.from;
  if (part.stride != 0 && (part.stride != 1 || part.cols < 16))
    return with_bits(size, [&](auto bits) {
      for (std::int64_t k = 0; k < part.rows; ++k, from += part.step * size, to += row_bytes)
        for (std::int64_t i = 0; i < part.cols; ++i) std::memcpy(to + i * size, from + i * part.stride * size, sizeof bits);
    });
  for (std::int64_t k = 0; k < part.rows; ++k, from += part.step * size, to += row_bytes) {
    if (part.stride == 0) splat(from, size, to, part.cols);
    else std::memcpy(to, from, static_cast<std::size_t>(part.cols * size));
  }
}

/// Splits a block into the parts that a load at an offset reads from one buffer. Calls visit(part, at) for each part;
/// `at` is the position in the block. If a row has two parts, the longer part is visited first.
template <class Visit>
inline void for_each_part(const fused_code& code, std::int16_t load, const void* const* inputs, const fused_block& b,
                          Visit visit) {
  const extents& loop = code.whole;
  const scalar_op& o = code.op(load);
  const fused_margin* margin = code.group.margins.data();
  while (margin->op != load) ++margin;
  const int last = loop.count - 1;
  for_each_run(code.group.loop, b, [&](const std::int64_t* begin, std::int64_t all, std::int64_t first) {
    std::int64_t index[max_rank];
    for (int d = 0; d <= last; ++d) index[d] = code.begin[d] + begin[d];
    const auto first_column = code.begin[last] + begin[last];
    const auto until = [&](int d, std::int64_t most) {  // this number of consecutive indices along d is in one buffer
      for (const auto& along : o.offsets) {
        const auto i = index[along.dim] + along.by, end = i < 0 ? 0 : loop[along.dim];
        if (along.dim == d && i < end && most > end - i) most = end - i;
      }
      return most;
    };
    for (std::int64_t r = 0, rows = 0; r < all; r += rows) {
      rows = until(last - 1, all - r);
      const auto visit_columns = [&](std::int64_t column, std::int64_t cols) {
        index[last] = first_column + column;
        const auto found = find_load(o, margin, loop, index);
        const auto* const from = static_cast<const std::byte*>(inputs[found.slot]);
        visit(block_part{from + (found.offset + offset_at(index, *found.strides)) * bytes_of(o.type), rows,
                         step_of_rows(*found.strides), cols, 1},
              (first + r) * b.cols + column);
      };
      index[last] = first_column;
      const auto cols = until(last, b.cols), others = b.cols - cols;  // at most one end of a row is in a halo buffer
      if (cols > others) visit_columns(0, cols);
      if (others > 0) visit_columns(cols, others);
      if (cols <= others) visit_columns(0, cols);
      if (last > 0) index[last - 1] += rows;
    }
  });
}

/// Returns true if a block's elements that a load at an offset reads are contiguous, and no element is in a halo
/// buffer.
inline bool is_in_one_piece(const fused_code& code, const scalar_op& o, const fused_block& b) {
  const int last = code.whole.count - 1;
  for (const auto& along : o.offsets) {
    const auto n = along.dim == last ? b.cols : along.dim == last - 1 ? b.rows : 1;
    const auto first = code.begin[along.dim] + b.index[along.dim] + along.by;
    if (first < 0 || first + n > code.whole[along.dim]) return false;
  }
  return b.rows == 1 || (step_of_rows(o.strides) == b.cols && b.index[last - 1] + b.rows <= code.group.loop[last - 1]);
}

/// Loads the elements of a block into `out`.
inline void gather(const extents& loop, const extents& strides, std::int64_t size, const void* input, const fused_block& b,
                   std::byte* out) {
  const auto stride = loop.count == 0 ? 0 : strides[loop.count - 1], row_bytes = b.cols * size;
  for_each_run(loop, b, [&](const std::int64_t* index, std::int64_t rows, std::int64_t first) {
    const auto* const from = static_cast<const std::byte*>(input) + offset_at(index, strides) * size;
    copy_part({from, rows, step_of_rows(strides), b.cols, stride}, size, out + first * row_bytes, row_bytes);
  });
}

/// Writes the elements of a block to their rows in an output.
inline void store_rows(const extents& loop, const extents& strides, std::int64_t elem_bytes, const std::byte* from,
                       const fused_block& b, std::byte* output) {
  for_each_run(loop, b, [&](const std::int64_t* index, std::int64_t rows, std::int64_t first) {
    copy_part({from + first * b.cols * elem_bytes, rows, b.cols, b.cols, 1}, elem_bytes,
              output + offset_at(index, strides) * elem_bytes, step_of_rows(strides) * elem_bytes);
  });
}

inline void fill(const scalar_op& o, std::byte* out, std::int64_t n) {
  std::byte value[16];
  with_element_type(o.type, [&]<class T>(T x) {
    x = is_floating(o.type) ? static_cast<T>(o.real) : static_cast<T>(o.integer);
    std::memcpy(value, &x, sizeof x);
  });
  splat(value, bytes_of(o.type), out, n);
}

/// Computes the elements of an iota, in pieces that are converted from 64-bit indices.
inline void count_up(const extents& loop, const scalar_op& o, std::int64_t first, const fused_block& b, std::byte* out) {
  extents strides(loop.count, 0);
  strides[o.dim] = 1;  // of the "array" of indices
  constexpr std::int64_t most = 64;
  std::int64_t indices[most];
  const std::byte* const registers[] = {reinterpret_cast<const std::byte*>(indices)};
  fused_instruction convert{fused_kernel_of_indices(o.type), 1, {}, nullptr};
  convert.from.push_back(0);
  for_each_run(loop, b, [&](const std::int64_t* index, std::int64_t rows, std::int64_t from) {
    for (std::int64_t k = 0; k < rows; ++k)
      for (std::int64_t begin = 0; begin < b.cols; begin += most) {
        const std::int64_t n = b.cols - begin < most ? b.cols - begin : most;
        for (std::int64_t i = 0; i < n; ++i)
          indices[i] = first + offset_at(index, strides) + k * step_of_rows(strides) + (begin + i) * strides[loop.count - 1];
        convert.kernel(convert, registers, out + ((from + k) * b.cols + begin) * bytes_of(o.type), n);
      }
  });
}

inline bool is_output(const fused_group& group, const void* input, void* const* outputs) {
  for (const auto& s : group.stores)
    if (outputs[s.slot] == input) return true;
  return false;
}

/// Fills a register from its source. Returns the address of its elements.
inline std::byte* read_source(const fused_code& code, const fused_code::source& s, const void* const* inputs,
                              const std::int64_t* iota_offsets, const given_rows* given, const fused_block& b, std::byte* home) {
  const scalar_op& o = code.op(s.op);
  const extents& loop = code.group.loop;
  const auto n = b.rows * b.cols;
  if (o.op == opcode::constant) {
    fill(o, home, n);
  } else if (o.op == opcode::iota) {
    count_up(loop, o, iota_offsets[o.slot] + code.begin[o.dim], b, home);
  } else if (s.kind == load_kind::at_offset) {
    std::byte* at = home;
    const auto bytes = bytes_of(o.type);
    if (s.last_use < code.op_count() && is_in_one_piece(code, o, b)) {
      auto from = code.begin_at(o.strides) + offset_at(b.index, o.strides);
      for (const auto& along : o.offsets) from += along.by * o.strides[along.dim];
      return static_cast<std::byte*>(const_cast<void*>(inputs[o.slot])) + from * bytes;
    }
    for_each_part(code, s.op, inputs, b, [&](const block_part& part, std::int64_t to) {
      const bool follow_each_other = part.rows == 1 || part.step == b.cols;  // the rows, in memory
      if (part.cols == b.cols && part.rows == b.rows && follow_each_other && s.last_use < code.op_count())
        at = const_cast<std::byte*>(part.from);
      else if (2 * part.cols > b.cols && follow_each_other)  // it also overwrites gaps between rows, but the other part,
                                                             // copied later, fills these
        std::memcpy(home + to * bytes, part.from, static_cast<std::size_t>(((part.rows - 1) * b.cols + part.cols) * bytes));
      else copy_part(part, bytes, home + to * bytes, b.cols * bytes);
    });
    return at;
  } else {
    const auto bytes = bytes_of(o.type);
    const extents& strides = o.given == 0 ? o.strides : given->strides[o.given - 1];
    auto first = code.begin_at(strides);
    for (const auto& along : o.offsets) first += along.by * strides[along.dim];
    auto* const from = static_cast<std::byte*>(const_cast<void*>(inputs[o.slot])) + first * bytes;
    if (s.kind == load_kind::scalar) splat(from, bytes, home, n);
    // In one row. If an output overlaps the input, the elements read here are not needed any more.
    else if (!code.blocks.has_whole_rows && strides[loop.count - 1] == 1 && s.last_use < code.op_count())
      return from + offset_at(b.index, strides) * bytes;
    else if (b.rows == 1 && loop.count > 0 && strides[loop.count - 1] == 0)
      splat(from + offset_at(b.index, strides) * bytes, bytes, home, n);
    else gather(loop, strides, bytes, from, b, home);
  }
  return home;
}

/// Runs a group on one device, for the row-major elements [first, total). If the code has blocks of whole rows, the
/// range begins and ends with a row. `inputs` and `outputs` are indexed by slot. An output may share memory with an
/// input that is loaded at the same index. `scratch` has code.scratch_bytes bytes. `given` has the strides of buffers
/// with the caller's strides. If `partial` is not null, the last result is added to `partial` (see fused_code::add_up),
/// and `code.summed` is not stored.
template <class = void>
[[gnu::noinline]] void run_fused(const fused_code& code, const void* const* inputs, void* const* outputs,
                                 const std::int64_t* iota_offsets, std::byte* scratch, const given_rows* given,
                                 std::int64_t first, std::int64_t total, partial_reductions* partial = nullptr) {
  const fused_group& group = code.group;
  if (first >= total) return;
  const auto past = reinterpret_cast<std::uintptr_t>(scratch) % fused_alignment;
  std::byte* const memory = scratch + (past == 0 ? 0 : fused_alignment - past);
  auto** const registers = reinterpret_cast<std::byte**>(memory);  // addresses of the elements of the block, by op
  auto* const streams = reinterpret_cast<fused_stream*>(
      memory + align_up(code.op_count() * static_cast<std::int64_t>(sizeof(std::byte*)), fused_alignment));
  int stream_count = 0;
  const auto home = [&](std::int64_t k) { return memory + code.home[static_cast<std::size_t>(k)]; };

  const auto begin_of = [&code](const void* buffer, dtype type, const extents& strides) {
    return static_cast<std::byte*>(const_cast<void*>(buffer)) + code.begin_at(strides) * bytes_of(type);
  };

  fused_block b{{}, 1, total - first < code.blocks.elems ? total - first : code.blocks.elems};
  if (code.blocks.has_whole_rows) {
    b.rows = b.cols / code.blocks.row;
    b.cols = code.blocks.row;
  }
  const auto read = [&](const fused_code::source& s) {
    const auto rows = b.rows, cols = b.cols;
    if (code.repeats[static_cast<std::size_t>(s.op)] != 0) {
      b.rows = 1;
      b.cols = for_each_index_step;
    }
    registers[s.op] = read_source(code, s, inputs, iota_offsets, given, b, home(s.op));
    b.rows = rows;
    b.cols = cols;
  };
  for (const auto& s : code.once) read(s);
  for (const auto& i : code.instructions) registers[i.result] = home(i.result);
  bool copies_dense = false;
  for (const auto& s : code.dense) {
    const scalar_op& o = code.op(s.op);
    if (s.last_use == code.op_count() && group.stores.size() > 1 && is_output(group, inputs[o.slot], outputs)) {
      registers[s.op] = nullptr;
      copies_dense = true;
    } else {
      streams[stream_count++] = {begin_of(inputs[o.slot], o.type, o.strides), bytes_of(o.type), s.op};
    }
  }
  const int loads = stream_count;
  const auto is_left_out = [&](const fused_store& s) { return partial != nullptr && s.slot == code.summed; };
  for (const auto& s : group.stores) {
    if (is_left_out(s)) continue;
    bool may_write_through = is_elementwise(code.op(s.op).op) && !code.has_gaps;
    for (const auto& load : code.dense)
      if (inputs[code.op(load.op).slot] == outputs[s.slot] && load.last_use > s.op) may_write_through = false;
    for (int k = loads; k < stream_count; ++k)
      if (streams[k].op == s.op) may_write_through = false;
    if (may_write_through)
      streams[stream_count++] = {begin_of(outputs[s.slot], code.op(s.op).type, code.out_strides), bytes_of(code.op(s.op).type),
                                 s.op};
  }

  std::int64_t column = first % code.blocks.row;  // column of a block that is a part of a row
  const int last_dim = group.loop.count - 1;
  std::int64_t left = first;
  for (int d = last_dim; d >= 0; left /= group.loop[d--]) b.index[d] = left % group.loop[d];
  for (std::int64_t begin = first; begin < total;) {
    std::int64_t n = total - begin < code.blocks.elems ? total - begin : code.blocks.elems;
    if (!code.blocks.has_whole_rows && code.blocks.row - column < n) n = code.blocks.row - column;
    if (partial != nullptr && partial->left < n) n = partial->left;
    const bool begins_row = (begin == first || column == 0) && !code.each_row.empty();
    if (!code.each.empty() || code.has_gaps || begins_row) {
      if (code.blocks.has_whole_rows) b.rows = n / code.blocks.row;
      else b.cols = n;
      if (begins_row)
        for (const auto& s : code.each_row) read(s);
      for (const auto& s : code.each) read(s);
    }
    for (int k = 0; k < stream_count; ++k) registers[streams[k].op] = streams[k].begin + begin * streams[k].elem_bytes;
    if (copies_dense)
      for (const auto& s : code.dense) {
        const scalar_op& o = code.op(s.op);
        if (s.last_use != code.op_count() || !is_output(group, inputs[o.slot], outputs)) continue;
        const auto bytes = bytes_of(o.type);
        registers[s.op] = home(s.op);
        std::memcpy(home(s.op), begin_of(inputs[o.slot], o.type, o.strides) + begin * bytes, static_cast<std::size_t>(n * bytes));
      }
    const auto last = code.instructions.end() - (partial == nullptr ? 0 : 1);
    for (auto i = code.instructions.begin(); i != last; ++i) i->kernel(*i, registers, registers[i->result], n);
    if (partial != nullptr) {
      partial->begin_some(1);
      code.sum(*last, registers, registers[last->result], n, partial->now[0].bytes);
      partial->end_some(n);
    }
    for (const auto& s : group.stores) {
      if (is_left_out(s)) continue;
      const auto bytes = bytes_of(code.op(s.op).type);
      if (code.has_gaps) {
        const extents& strides = s.given == 0 ? code.out_strides : given->strides[s.given - 1];
        store_rows(group.loop, strides, bytes, registers[s.op], b, begin_of(outputs[s.slot], code.op(s.op).type, strides));
        continue;
      }
      std::byte* const to = begin_of(outputs[s.slot], code.op(s.op).type, code.out_strides) + begin * bytes;
      if (to != registers[s.op]) std::memcpy(to, registers[s.op], static_cast<std::size_t>(n * bytes));
    }
    begin += n;
    if (last_dim >= 0) b.index[last_dim] += n;
    for (int d = last_dim; d > 0 && b.index[d] >= group.loop[d]; --d) {
      b.index[d - 1] += b.index[d] / group.loop[d];
      b.index[d] %= group.loop[d];
    }
    column = column + n == code.blocks.row ? 0 : column + n;
  }
}
template <class = void>
void run_fused(const fused_code& code, const void* const* inputs, void* const* outputs, const std::int64_t* iota_offsets,
               std::byte* scratch, const given_rows* given = nullptr) {
  run_fused<void>(code, inputs, outputs, iota_offsets, scratch, given, 0, elements(code.group.loop));
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail

#if defined(__clang__)
#pragma clang diagnostic pop
#endif
