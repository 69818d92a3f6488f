// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gspmd/detail/transport/box.hpp"
#include "gspmd/io/detail/box_runs.hpp"
#include "gspmd/io/detail/posix_file.hpp"
#include "gspmd/io/detail/stored_array.hpp"

/// Arrays that are contiguous in a single file: the reads and writes of a device.
namespace gspmd::detail {

/// The position of an array's elements: the first byte and the order. The last dim is fastest, or the first dim in
/// Fortran's order.
struct array_place {
  std::int64_t begin = 0;
  bool is_fortran_order = false;
};

/// Returns the copy of a box between the file and a shard, with rows in the order of the file.
inline placed_box place_in_file(const held_ranges& box, const std::vector<std::int64_t>& global, bool is_fortran_order,
                                const buffer_layout& shard) {
  held_ranges all;
  all.rank = box.rank;
  for (int d = 0; d < box.rank; ++d) {
    all.begin[d] = 0;
    all.end[d] = global[static_cast<std::size_t>(d)];
  }
  if (!is_fortran_order) return place(box, packed(all), shard);
  placed_box result;
  std::int64_t shard_strides[max_rank], stride = 1;
  for (int d = box.rank; d-- > 0; stride *= shard.local[d]) shard_strides[d] = stride;
  stride = 1;
  for (int d = 0; d < box.rank; stride *= all.end[d], ++d) {
    result.box.add_major_dim(box.end[d] - box.begin[d], stride, shard_strides[d]);
    result.in_offset += box.begin[d] * stride;
    result.out_offset += (shard.first[d] + box.begin[d]) * shard_strides[d];
  }
  return result;
}

/// Reads runs of a file to memory, in the order of the file. Runs with small gaps between them are read with one system
/// call.
class run_reader {
 public:
  run_reader(const posix_file& file, std::byte* to) : file_(file), to_(to) {}

  void read(std::int64_t from, std::int64_t to, std::int64_t size) {
    if (!runs_.empty() && (from - end_ > most_gap || from + size - runs_[0].from > most_bytes || runs_.size() == most_runs))
      finish();
    if (!runs_.empty() && from == end_ && to == runs_.back().to + runs_.back().size) runs_.back().size += size;
    else runs_.push_back({from, to, size});
    end_ = from + size;
  }
  void finish() {
    if (runs_.size() == 1) {
      file_.read_at(runs_[0].from, to_ + runs_[0].to, static_cast<std::size_t>(runs_[0].size));
    } else if (!runs_.empty()) {
      const auto begin = runs_[0].from;
      together_.resize(static_cast<std::size_t>(end_ - begin));
      file_.read_at(begin, together_.data(), together_.size());
      for (const auto& r : runs_) std::memcpy(to_ + r.to, together_.data() + (r.from - begin), static_cast<std::size_t>(r.size));
    }
    runs_.clear();
  }

 private:
  static constexpr std::int64_t most_gap = 4096, most_bytes = std::int64_t{1} << 20;
  static constexpr std::size_t most_runs = std::size_t{1} << 16;
  struct run {
    std::int64_t from, to, size;
  };
  const posix_file& file_;
  std::byte* to_;
  std::vector<run> runs_;
  std::int64_t end_ = 0;
  std::vector<std::byte> together_;
};

/// Sets each nonzero byte of a bool array to 1. A bool with another byte would be undefined.
inline void make_bools_true(const stored_array& a, std::byte* shard) {
  if (a.type == dtype::pred)
    std::transform(shard, shard + a.local_bytes(), shard, [](std::byte b) { return b == std::byte{0} ? b : std::byte{1}; });
}

/// Fills the shard of a device. The padding of the shard stays unchanged.
inline void read_from_file(const posix_file& file, const array_place& where, const stored_array& a, std::int64_t device,
                           std::byte* shard) {
  const auto target = a.layout_on(device);
  if (!target.held.any()) return;
  run_reader reader(file, shard);
  for_each_run(place_in_file(target.held, a.global, where.is_fortran_order, target), bytes_of(a.type),
               [&](std::int64_t from, std::int64_t to, std::int64_t size) { reader.read(where.begin + from, to, size); });
  reader.finish();
  make_bools_true(a, shard);
}

/// Writes a device's part of an array, with the last dim fastest.
inline void write_to_file(const posix_file& file, std::int64_t begin, const stored_array& a, const written_part& part,
                          const std::byte* shard) {
  for_each_run(place_in_file(part.box.ranges(), a.global, false, a.layout_on(part.device)), bytes_of(a.type),
               [&](std::int64_t to, std::int64_t from, std::int64_t size) {
                 file.write_at(begin + to, shard + from, static_cast<std::size_t>(size));
               });
}

}  // namespace gspmd::detail
