// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/detail/files/checkpoint_store.hpp"
#include "gspmd/detail/files/restore_checkpoint.hpp"
#include "gspmd/detail/files/save_checkpoint.hpp"
#include "gspmd/error.hpp"
#include "gspmd/named_arrays.hpp"

namespace gspmd {

/// How a checkpoint is saved; alike on all processes.
struct checkpoint_options {
  /// Checkpoints of lower steps are removed until so many are left, the new one among them; 0: none is.
  std::int64_t keep = 0;
  /// So many bytes of a file have a checksum of their own, and are read together.
  std::int64_t block_bytes = std::int64_t{1} << 20;
};

/// named_arrays that are saved together and restored together: on the mesh they were saved from, or on any other one, with another
/// sharding, backend or number of processes.
///
///     checkpoint state;
///     state.add("u", u);
///     state.add("weights", w);                                            // a struct's members become weights.w1, weights.b1
///     std::int64_t t = state.restore_latest(comm, "state").value_or(0);   // else it begins anew
///     for (; t < 1000; ++t) {
///       run(comm, u, w, next);
///       std::swap(u, next);
///       if (t % 100 == 99) state.save(comm, "state", t + 1, {.keep = 2});
///     }
///
/// Threads: each device of a launch has its own.
class checkpoint : public named_arrays {
 public:
  /// Saves all arrays as the checkpoint `step` of a directory, which is made if need be. Every device writes its part, of replicas the first
  /// one; nothing but checksums is sent. When it returns, all of it is on the disk; if it fails or is killed, wherever it is,
  /// `directory` has the checkpoints that it had before. Collective. Throws gspmd::error, the same on all processes: the step is there
  /// already, another save to the directory is under way, a file cannot be written; an array that is partial or empty, two of one name;
  /// processes that come with different ones.
  template <communicator Comm>
  void save(Comm& comm, const std::string& directory, std::int64_t step, const checkpoint_options& options = {}) const {
    detail::save_checkpoint(detail::device_group(comm, "checkpoint"), {directory, step, options.keep, options.block_bytes},
                            [this] { return described(); });
  }

  /// Fills all arrays from the checkpoint `step`, which may hold others too. Every device reads the blocks of the files that hold some of its
  /// shard, and sets its padding to zero; nothing but the manifest is sent. While it runs, there is memory for all shards twice. Collective. Throws
  /// gspmd::error, the same on all processes, and then no array has changed: no such step; a file that is missing, cut off, changed or
  /// another program's; an array that is not there, or of another type or shape.
  template <communicator Comm>
  void restore(Comm& comm, const std::string& directory, std::int64_t step) const {
    static_cast<void>(
        detail::restore_checkpoint(detail::device_group(comm, "checkpoint"), directory, step, [this] { return described(); }));
  }
  /// The same from the newest checkpoint; returns its step, or nothing where there is none.
  template <communicator Comm>
  std::optional<std::int64_t> restore_latest(Comm& comm, const std::string& directory) const {
    return detail::restore_checkpoint(detail::device_group(comm, "checkpoint"), directory, {}, [this] { return described(); });
  }
};

/// The steps whose checkpoints a directory holds, ascending; none where there is no such directory. No communication. Throws gspmd::error: it
/// cannot be read.
[[nodiscard]] inline std::vector<std::int64_t> checkpoint_steps(const std::string& directory) {
  try {
    return detail::steps_in(directory);
  } catch (const error& e) {
    throw error("checkpoint: " + e.text());
  }
}

}  // namespace gspmd
