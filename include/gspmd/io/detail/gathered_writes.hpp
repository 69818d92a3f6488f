// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "gspmd/detail/transport/box.hpp"
#include "gspmd/detail/transport/device_memory.hpp"
#include "gspmd/error.hpp"
#include "gspmd/io/detail/array_file.hpp"
#include "gspmd/io/detail/exchanging_group.hpp"
#include "gspmd/io/detail/posix_file.hpp"
#include "gspmd/io/detail/stored_array.hpp"

/// Arrays with short rows in the file: devices gather stretches of the file in memory, and write each stretch with one
/// system call.
namespace gspmd::detail {

/// Stretches of a file. Each is a box of the array: one index of the dims before `along_`, some indices of that dim,
/// and all later dims.
///
///     [3,1000] of f64, at most 4096 bytes -> 6 stretches of 500 elements
class file_stretches {
 public:
  file_stretches(const std::vector<std::int64_t>& global, std::int64_t elem_bytes, std::int64_t largest)
      : global_(global), elem_bytes_(elem_bytes), along_(global.size() - 1) {
    for (; along_ > 0 && behind_ * global[along_] * elem_bytes <= largest; --along_) behind_ *= global[along_];
    const auto extent = global[along_], most = std::max(std::int64_t{1}, largest / (behind_ * elem_bytes));
    per_index_ = (extent + most - 1) / most;
    rows_ = (extent + per_index_ - 1) / per_index_;
    count_ = per_index_;
    for (std::size_t d = 0; d < along_; ++d) count_ *= global[d];
  }
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::int64_t largest() const { return rows_ * behind_ * elem_bytes_; }
  /// Returns the box of a stretch. The box is empty if `number` is too large.
  [[nodiscard]] held_ranges box(std::int64_t number) const {
    held_ranges b;
    b.rank = static_cast<int>(global_.size());
    for (std::size_t d = 0; d < global_.size(); ++d) {
      b.begin[d] = 0;
      b.end[d] = number < count_ ? global_[d] : 0;
    }
    if (number >= count_) return b;
    const auto part = number % per_index_;
    b.begin[along_] = std::min(part * rows_, global_[along_]);
    b.end[along_] = std::min(b.begin[along_] + rows_, global_[along_]);
    auto before = number / per_index_;
    for (std::size_t d = along_; d-- > 0; before /= global_[d]) b.end[d] = (b.begin[d] = before % global_[d]) + 1;
    return b;
  }
  /// Returns the first byte of a box among the bytes of the array.
  [[nodiscard]] std::int64_t begin_byte(const held_ranges& b) const {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < global_.size(); ++d) at = at * global_[d] + b.begin[d];
    return at * elem_bytes_;
  }

 private:
  const std::vector<std::int64_t>& global_;
  std::int64_t elem_bytes_, behind_ = 1, per_index_, rows_, count_;
  std::size_t along_;
};

/// The memory of a process for arrays that are gathered, one array after the other.
struct gathered_memory {
  std::int64_t sent_bytes = 0, stretch_bytes = 0;  // the largest of a device
  std::vector<aligned_bytes> sent, received;       // by device of this process
  aligned_bytes stretch;

  void allocate(std::size_t devices) {
    constexpr const char* what = "an array that is saved";
    stretch = aligned_bytes(stretch_bytes, what);
    for (std::size_t i = 0; i < devices; ++i) {
      sent.emplace_back(sent_bytes, what);
      received.emplace_back(stretch_bytes, what);
    }
  }
};

/// A gathered write of an array. In each round, each device gathers one of its stretches. The stretches of a device are
/// adjacent in the file.
class gathered_write {
 public:
  /// A system call takes about as long as moving this many bytes three more times.
  static constexpr std::int64_t short_row_bytes = 4096, most_stretch_bytes = std::int64_t{4} << 20;

  /// Returns true if a device has several rows to write and the rows are short.
  [[nodiscard]] static bool is_worth_it(const stored_array& a, const std::vector<written_part>& parts) {
    return std::any_of(parts.begin(), parts.end(), [&](const written_part& p) {
      const auto row = place_in_file(p.box.ranges(), a.global, false, a.layout_on(p.device)).box.row();
      return row != p.box.elems() && row * bytes_of(a.type) < short_row_bytes;
    });
  }

  gathered_write(const exchanging_group& devices, const stored_array& a, const std::vector<written_part>& parts,
                 std::int64_t begin, std::int64_t largest = most_stretch_bytes)
      : devices_(devices),
        array_(a),
        begin_(begin),
        boxes_(static_cast<std::size_t>(devices.device_count())),
        stretches_(a.global, bytes_of(a.type), stretch_bytes(a, devices.device_count(), largest)),
        rounds_((stretches_.count() + devices.device_count() - 1) / devices.device_count()) {
    for (const auto& p : parts) boxes_[static_cast<std::size_t>(p.device)] = p.box.ranges();
  }

  /// Enlarges the sizes in `memory` if this array needs more.
  void reserve(gathered_memory& memory) const {
    memory.stretch_bytes = std::max(memory.stretch_bytes, stretches_.largest());
    for (const auto me : devices_.held())
      for (std::int64_t round = 0; round < rounds_; ++round) {
        std::int64_t bytes = 0;
        for (int to = 0; to < devices_.device_count(); ++to) bytes += shared_bytes(round, me, to);
        memory.sent_bytes = std::max(memory.sent_bytes, bytes);
      }
  }

  /// Writes the array unless there is a `failure`, and stores the first failure. It does not throw, because other
  /// devices would wait forever in an exchange. Collective.
  void run(const posix_file& file, const gathered_memory& memory, std::optional<error>& failure) const {
    const auto count = static_cast<std::size_t>(devices_.device_count()), held = devices_.held().size();
    const auto bytes = bytes_of(array_.type);
    std::vector<std::vector<std::int64_t>> sent(held, std::vector<std::int64_t>(count)), received = sent;
    std::vector<const exchanging_group::byte*> from;
    std::vector<exchanging_group::byte*> to;
    std::vector<const std::int64_t*> sent_of, received_of;
    for (std::size_t i = 0; i < held; ++i) {
      from.push_back(reinterpret_cast<const exchanging_group::byte*>(memory.sent[i].get()));
      to.push_back(reinterpret_cast<exchanging_group::byte*>(memory.received[i].get()));
      sent_of.push_back(sent[i].data());
      received_of.push_back(received[i].data());
    }
    for (std::int64_t round = 0; round < rounds_; ++round) {
      for (std::size_t i = 0; i < held; ++i) {
        const auto me = devices_.held()[i];
        const auto shard = array_.layout_on(me);
        auto* next = memory.sent[i].get();
        for (std::size_t k = 0; k < count; ++k) {
          const auto other = static_cast<int>(k);
          const auto piece = shared(round, me, other);
          if (piece.any()) copy_box(next, array_.shards[i], place(piece, shard, packed(piece)), bytes);
          next += sent[i][k] = shared_bytes(round, me, other);
          received[i][k] = shared_bytes(round, other, me);
        }
      }
      devices_.exchange(from.data(), sent_of.data(), to.data(), received_of.data());
      for (std::size_t i = 0; i < held && !failure; ++i) {
        const auto me = devices_.held()[i];
        const auto all = stretch(round, me);
        if (!all.any()) continue;
        const auto* next = memory.received[i].get();
        for (std::size_t k = 0; k < count; next += received[i][k++])
          if (const auto piece = shared(round, static_cast<int>(k), me); piece.any())
            copy_box(memory.stretch.get(), next, place(piece, packed(piece), packed(all)), bytes);
        try {
          file.write_at(begin_ + stretches_.begin_byte(all), memory.stretch.get(), static_cast<std::size_t>(all.elems() * bytes));
        } catch (const error& e) {
          failure.emplace(e);
        }
      }
    }
  }

 private:
  static std::int64_t stretch_bytes(const stored_array& a, std::int64_t devices, std::int64_t most) {
    auto bytes = bytes_of(a.type);
    for (const auto n : a.global) bytes *= n;
    return std::min(std::max((bytes + devices - 1) / devices, std::int64_t{1} << 16), most);
  }
  [[nodiscard]] held_ranges stretch(std::int64_t round, int device) const { return stretches_.box(device * rounds_ + round); }
  /// Returns the elements of device `from` in the stretch of device `to`.
  [[nodiscard]] held_ranges shared(std::int64_t round, int from, int to) const {
    const auto& box = boxes_[static_cast<std::size_t>(from)];
    if (box.rank == 0) return {.rank = 1, .begin = {0}, .end = {0}};  // device `from` writes nothing
    return intersect(box, stretch(round, to));
  }
  [[nodiscard]] std::int64_t shared_bytes(std::int64_t round, int from, int to) const {
    return shared(round, from, to).elems() * bytes_of(array_.type);
  }

  const exchanging_group& devices_;
  const stored_array& array_;
  std::int64_t begin_;
  std::vector<held_ranges> boxes_;  // that each device writes; of rank 0 if the device writes nothing
  file_stretches stretches_;
  std::int64_t rounds_;
};

}  // namespace gspmd::detail
