// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "gspmd/detail/exec/fused_group.hpp"
#include "gspmd/detail/exec/fused_kernels.hpp"
#include "gspmd/detail/exec/fused_registers.hpp"
#include "gspmd/detail/exec/scalar_ops.hpp"

/// Interprets a fused group that is known at run time only.
///
///   1. every op gets a block of the scratch memory, unless it is a load that can be read where it is
///   2. the loop runs over blocks of 512 elements in row-major order, however short its rows are
///   3. in a block, op by op: gather the load, or one call of the op's kernel
///   4. results are computed right into the output where no later op still reads what they overwrite; else copied
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"  // see for_each_index
#endif

namespace gspmd::detail {

/// Calls body(index of the first element, first, count) for the parts of rows that the n elements from `index` on consist of.
template <class Body>
inline void for_each_row_part(const extents& loop, const std::int64_t* index, std::int64_t n, Body body) {
  std::int64_t at[max_rank + 1];
  const int last = loop.count - 1;
  for (int d = 0; d <= last; ++d) at[d] = index[d];
  for (std::int64_t first = 0; first < n;) {
    const std::int64_t left = last < 0 ? 1 : loop[last] - at[last];
    const std::int64_t count = left < n - first ? left : n - first;
    body(static_cast<const std::int64_t*>(at), first, count);
    first += count;
    if (last < 0) continue;
    at[last] += count;
    for (int d = last; d > 0 && at[d] == loop[d]; --d) {
      at[d] = 0;
      ++at[d - 1];
    }
  }
}

inline std::int64_t offset_of(const extents& loop, const scalar_op& load, const std::int64_t* index) {
  std::int64_t offset = 0;
  for (int d = 0; d < loop.count; ++d) offset += index[d] * load.strides[d];
  return offset;
}

/// Loads n elements from `index` on into `out`. `Bits` is an integer as wide as the elements.
template <class Bits>
inline void gather_elements(const extents& loop, const scalar_op& load, const void* input, const std::int64_t* index,
                            std::byte* out, std::int64_t n) {
  const std::int64_t stride = loop.count == 0 ? 0 : load.strides[loop.count - 1];
  for_each_row_part(loop, index, n, [&](const std::int64_t* at, std::int64_t first, std::int64_t count) {
    constexpr std::int64_t size = sizeof(Bits);
    const std::byte* const from = static_cast<const std::byte*>(input) + offset_of(loop, load, at) * size;
    std::byte* const to = out + first * size;
    if (stride == 1 && count >= 32) {
      std::memcpy(to, from, static_cast<std::size_t>(count * size));
      return;
    }
    for (std::int64_t i = 0; i < count; ++i) std::memcpy(to + i * size, from + i * stride * size, size);
  });
}

inline void gather(const extents& loop, const scalar_op& load, const void* input, const std::int64_t* index, std::byte* out,
                   std::int64_t n) {
  switch (bytes_of(load.type)) {
    case 1: return gather_elements<std::uint8_t>(loop, load, input, index, out, n);
    case 4: return gather_elements<std::uint32_t>(loop, load, input, index, out, n);
    default: return gather_elements<std::uint64_t>(loop, load, input, index, out, n);
  }
}

/// Where the n elements from `index` on are, if they lie next to each other in one row that no output can be; else null.
inline std::byte* part_of_row(const extents& loop, const scalar_op& load, const void* input, const std::int64_t* index,
                              std::int64_t n) {
  const int last = loop.count - 1;
  if (last < 0 || load.strides[last] != 1 || index[last] + n > loop[last]) return nullptr;
  if (kind_of_load(loop, load) != load_kind::strided) return nullptr;
  return static_cast<std::byte*>(const_cast<void*>(input)) + offset_of(loop, load, index) * bytes_of(load.type);
}

/// Calls body(T{}) with the element type of `type`.
template <class Body>
inline void with_element(dtype type, Body body) {
  switch (type) {
    case dtype::f32: return body(float{});
    case dtype::f64: return body(double{});
    case dtype::s32: return body(std::int32_t{});
    case dtype::s64: return body(std::int64_t{});
    case dtype::pred: return body(bool{});
  }
}

inline void fill(const scalar_op& o, std::byte* out, std::int64_t n) {
  with_element(o.type, [&]<class T>(T) {
    const T value = is_floating(o.type) ? static_cast<T>(o.real) : static_cast<T>(o.integer);
    for_each_index(n, [=](std::int64_t i) { store_element(out, i, value); });
  });
}

inline void count_up(const extents& loop, const scalar_op& o, std::int64_t offset, const std::int64_t* index, std::byte* out,
                     std::int64_t n) {
  const std::int64_t step = o.dim == loop.count - 1 ? 1 : 0;
  with_element(o.type, [&]<class T>(T) {
    for_each_row_part(loop, index, n, [&](const std::int64_t* at, std::int64_t first, std::int64_t count) {
      const std::int64_t begin = offset + at[o.dim];
      for_each_index(count, [=](std::int64_t i) { store_element(out, first + i, convert_element<T>(begin + i * step)); });
    });
  });
}

/// True when the result of op `k` may go right to `output`: none of the loads from there is read by a later op.
inline bool may_write_through(const fused_group& group, const block_tables& t, std::int32_t load_count, std::int32_t k,
                              const void* output, const void* const* inputs) {
  for (std::int32_t i = 0; i < load_count; ++i) {
    const auto p = t.free[i];
    if (t.last_use[p] > k && inputs[group.ops[static_cast<std::size_t>(p)].slot] == output) return false;
  }
  return true;
}

inline bool is_output(const fused_group& group, const void* input, void* const* outputs) {
  for (const auto& s : group.stores)
    if (outputs[s.slot] == input) return true;
  return false;
}

/// Runs the group on one device. `inputs` and `outputs` by slot; an output may be the same memory as an input that is loaded
/// at equal index. `scratch` has fused_scratch_bytes(group) bytes.
template <class = void>
[[gnu::noinline]] void run_fused(const fused_group& group, const void* const* inputs, void* const* outputs,
                                 const std::int64_t* iota_offsets, std::byte* scratch) {
  const std::int64_t total = elements(group.loop);
  if (total == 0) return;
  const auto count = static_cast<std::int32_t>(group.ops.size());
  const fused_scratch_layout layout{count};
  const auto past = reinterpret_cast<std::uintptr_t>(scratch) % fused_alignment;
  std::byte* const memory = scratch + (past == 0 ? 0 : fused_alignment - past);
  auto* const registers = reinterpret_cast<fused_register*>(memory);
  std::uninitialized_default_construct_n(registers, count);
  const block_tables tables{
      reinterpret_cast<std::int32_t*>(memory + layout.last_use()), reinterpret_cast<std::int32_t*>(memory + layout.block()),
      reinterpret_cast<std::int32_t*>(memory + layout.free()), reinterpret_cast<bool*>(memory + layout.lasts())};
  assign_blocks(group, tables);
  const std::int64_t block_bytes = fused_block_bytes(group);
  const std::int64_t first_block = total < fused_block_elems ? total : fused_block_elems;
  const std::int64_t origin[max_rank]{};

  bool needs_index = false;
  std::int32_t load_count = 0;  // they are listed in tables.free, which has done its duty
  for (std::int32_t k = 0; k < count; ++k) {
    const scalar_op& o = group.ops[static_cast<std::size_t>(k)];
    fused_register& r = registers[k];
    r.home = tables.block[k] < 0 ? nullptr : memory + layout.blocks() + tables.block[k] * block_bytes;
    r.at = r.home;
    if (o.op == opcode::parameter) {
      tables.free[load_count++] = k;
      const auto kind = kind_of_load(group.loop, o);
      const bool is_overwritten =
          tables.last_use[k] == count && group.stores.size() > 1 && is_output(group, inputs[o.slot], outputs);
      if (kind == load_kind::dense && !is_overwritten && !tables.lasts[k]) {
        r.source = fused_register::in_place;
        r.home = static_cast<std::byte*>(const_cast<void*>(inputs[o.slot]));
        r.element_bytes = bytes_of(o.type);
      } else {
        r.source = fused_register::gathered;
      }
    } else if (o.op == opcode::constant) {
      r.source = fused_register::filled;
    } else if (o.op == opcode::iota) {
      r.source = fused_register::numbered;
    } else {
      r.kernel = fused_kernels<>::find(o);
    }
    if (tables.lasts[k]) {
      if (o.op == opcode::constant) fill(o, r.home, first_block);
      else gather(group.loop, o, inputs[o.slot], origin, r.home, first_block);
      r.source = fused_register::in_place;
    }
    needs_index = needs_index || r.source == fused_register::gathered || r.source == fused_register::numbered;
  }
  for (const auto& s : group.stores) {
    fused_register& r = registers[s.op];
    if (r.source == fused_register::computed && r.element_bytes == 0 &&
        may_write_through(group, tables, load_count, s.op, outputs[s.slot], inputs)) {
      r.home = static_cast<std::byte*>(outputs[s.slot]);
      r.element_bytes = bytes_of(group.ops[static_cast<std::size_t>(s.op)].type);
    }
  }

  std::int64_t index[max_rank]{};
  for (std::int64_t begin = 0; begin < total; begin += fused_block_elems) {
    const std::int64_t n = total - begin < fused_block_elems ? total - begin : fused_block_elems;
    if (needs_index) {
      std::int64_t left = begin;
      for (int d = group.loop.count - 1; d >= 0; --d) {
        index[d] = left % group.loop[d];
        left /= group.loop[d];
      }
    }
    for (std::int32_t k = 0; k < count; ++k) {
      const scalar_op& o = group.ops[static_cast<std::size_t>(k)];
      fused_register& r = registers[k];
      r.at = r.home + begin * r.element_bytes;
      switch (r.source) {
        case fused_register::in_place: break;
        case fused_register::computed: r.kernel(o, registers, r.at, n); break;
        case fused_register::gathered:
          if (std::byte* const row = part_of_row(group.loop, o, inputs[o.slot], index, n); row != nullptr) r.at = row;
          else gather(group.loop, o, inputs[o.slot], index, r.at, n);
          break;
        case fused_register::filled: fill(o, r.at, n); break;
        case fused_register::numbered: count_up(group.loop, o, iota_offsets[o.slot], index, r.at, n); break;
      }
    }
    for (const auto& s : group.stores) {
      const auto bytes = bytes_of(group.ops[static_cast<std::size_t>(s.op)].type);
      std::byte* const to = static_cast<std::byte*>(outputs[s.slot]) + begin * bytes;
      if (to != registers[s.op].at) std::memcpy(to, registers[s.op].at, static_cast<std::size_t>(n * bytes));
    }
  }
}

}  // namespace gspmd::detail

#if defined(__clang__)
#pragma clang diagnostic pop
#endif
