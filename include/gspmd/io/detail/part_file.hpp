// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gspmd/detail/transport/box.hpp"
#include "gspmd/io/detail/box_runs.hpp"
#include "gspmd/io/detail/crc32c.hpp"
#include "gspmd/io/detail/manifest.hpp"
#include "gspmd/io/detail/npy_header.hpp"
#include "gspmd/io/detail/posix_file.hpp"
#include "gspmd/io/detail/stored_array.hpp"

/// The .npy file of a part of an array.
namespace gspmd::detail {

/// Writes a part of a shard to a new file, block by block. Returns the checksums of the blocks when the file is on the
/// disk.
inline std::vector<std::uint32_t> write_part(const std::string& path, const stored_array& a, const written_part& part,
                                             const std::byte* shard, std::int64_t block_bytes) {
  auto file = posix_file::create(path);
  const auto header = npy_header(a.type, part.box.size);
  file.write(header.data(), header.size());
  std::vector<std::uint32_t> checksums;
  const auto bytes = part.box.elems() * bytes_of(a.type);
  std::vector<std::byte> block(static_cast<std::size_t>(std::min(bytes, block_bytes)));
  std::size_t filled = 0;
  const auto write_block = [&](const std::byte* data, std::size_t size) {
    checksums.push_back(crc32c(data, size));
    file.write(data, size);
    filled = 0;
  };
  const auto ranges = part.box.ranges();
  const auto placed = place(ranges, a.layout_on(part.device), packed(ranges));
  for_each_run(placed, bytes_of(a.type), [&](std::int64_t from, std::int64_t, std::int64_t size) {
    for (const auto* in = shard + from; size > 0;) {
      const auto n = std::min(block.size() - filled, static_cast<std::size_t>(size));
      if (n == block.size()) {  // the whole block is contiguous
        write_block(in, n);
      } else {
        std::memcpy(block.data() + filled, in, n);
        filled += n;
        if (filled == block.size()) write_block(block.data(), filled);
      }
      in += n;
      size -= static_cast<std::int64_t>(n);
    }
  });
  if (filled > 0) write_block(block.data(), filled);
  file.finish();
  return checksums;
}

/// Reads and checks the blocks of a part that are needed. If the reads are in the order of the file, each block is read
/// once.
class part_reader {
 public:
  part_reader(const std::string& path, const manifest& m, const stored_entry& a, const stored_part& part)
      : file_(posix_file::read(path)),
        part_(part),
        block_bytes_(m.block_bytes),
        bytes_(part.box.elems() * bytes_of(a.type)),
        block_(static_cast<std::size_t>(std::min(m.block_bytes, bytes_))) {
    const auto header = npy_header(a.type, part.box.size);
    begin_ = static_cast<std::int64_t>(header.size());
    const auto there = file_.size();
    if (there < 0) throw error("`" + path + "` is no file");
    if (there != begin_ + bytes_)
      throw error("`" + path + "` is " + (there < begin_ + bytes_ ? "cut off" : "too long") + ": it has " +
                  std::to_string(there) + " bytes where " + std::to_string(begin_ + bytes_) + " were written");
    std::string found(header.size(), '\0');
    file_.read_at(0, found.data(), found.size());
    if (found != header) throw error("`" + path + "` was changed after it was written: its header is another one");
  }

  /// Reads bytes `from` to `from + size` of the elements.
  void read(std::int64_t from, std::byte* to, std::int64_t size) {
    while (size > 0) {
      const auto number = from / block_bytes_, at = from % block_bytes_;
      const auto n = std::min(size, block_bytes_ - at);
      if (n == block_bytes_) {  // the whole block, to contiguous memory
        load(number, to);
      } else {
        if (number != loaded_) load(number, block_.data());
        loaded_ = number;
        std::memcpy(to, block_.data() + at, static_cast<std::size_t>(n));
      }
      from += n;
      to += n;
      size -= n;
    }
  }

 private:
  void load(std::int64_t number, std::byte* to) {
    const auto from = number * block_bytes_;
    const auto size = static_cast<std::size_t>(std::min(block_bytes_, bytes_ - from));
    file_.read_at(begin_ + from, to, size);
    if (crc32c(to, size) != part_.checksums[static_cast<std::size_t>(number)])
      throw error("`" + file_.path() + "` was changed after it was written: bytes " + std::to_string(begin_ + from) + " to " +
                  std::to_string(begin_ + from + static_cast<std::int64_t>(size) - 1) + " have another checksum");
  }

  posix_file file_;
  const stored_part& part_;
  std::int64_t block_bytes_, bytes_, begin_ = 0, loaded_ = -1;
  std::vector<std::byte> block_;
};

/// Fills the shard of a device from the parts in `directory` that contain some of its elements.
inline void read_shard(const std::string& directory, const manifest& m, const stored_entry& stored, const stored_array& a,
                       std::int64_t device, std::byte* shard) {
  const auto target = a.layout_on(device);
  if (!target.held.any()) return;
  for (const auto& part : stored.parts) {
    const auto box = part.box.ranges();
    const auto both = intersect(box, target.held);
    if (!both.any()) continue;
    part_reader reader(directory + '/' + part.file, m, stored, part);
    for_each_run(place(both, packed(box), target), bytes_of(a.type),
                 [&](std::int64_t from, std::int64_t to, std::int64_t size) { reader.read(from, shard + to, size); });
  }
}

}  // namespace gspmd::detail
