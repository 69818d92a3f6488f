// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/error.hpp"
#include "gspmd/io/detail/checkpoint_store.hpp"
#include "gspmd/io/detail/restore_checkpoint.hpp"
#include "gspmd/io/detail/save_checkpoint.hpp"
#include "gspmd/io/named_arrays.hpp"

namespace gspmd {

/// Options of checkpoint::save. All processes pass the same options.
struct checkpoint_options {
  /// The number of checkpoints to keep, the new one included. Checkpoints of lower steps are removed, the oldest first.
  /// 0 keeps all checkpoints.
  std::int64_t keep = 0;
  /// The size of the blocks of a file. Each block has its own checksum, and a block is read as a whole.
  std::int64_t block_bytes = std::int64_t{1} << 20;
};

/// named_arrays that are saved and restored together. They can be restored on any mesh, with any sharding, backend and
/// number of processes.
///
///     checkpoint state;
///     state.add("u", u);
///     // a struct's members become weights.w1, weights.b1
///     state.add("weights", w);
///     std::int64_t t = state.restore_latest(comm, "state").value_or(0);  // 0 if there is no checkpoint
///     for (; t < 1000; ++t) {
///       run(comm, u, w, next);
///       std::swap(u, next);
///       if (t % 100 == 99) state.save(comm, "state", t + 1, {.keep = 2});
///     }
///
/// **Threads.** Each device of a `launch` needs its own checkpoint object.
class checkpoint : public named_arrays {
 public:
  /// Saves all arrays as checkpoint `step` of a directory, and creates the directory if necessary.
  ///
  /// Each device writes its part; if the parts are replicas, the first device writes. When the call returns, all files
  /// are on the disk. If the call fails or the program is killed before that, `directory` still has its previous
  /// checkpoints.
  ///
  /// **Communication.** Collective. The checksums of the parts, and a few integers.
  /// **Errors.** Throws gspmd::error with the same text on all processes:
  ///  - the directory already has this step, another save to it is in progress, or a file cannot be written
  ///  - there is no array, an array is partial or empty, a name is invalid, or two arrays have one name
  ///  - `step` or an option is out of range
  ///  - processes pass different arrays, steps or options
  template <communicator Comm>
  void save(Comm& comm, const std::string& directory, std::int64_t step, const checkpoint_options& options = {}) const {
    detail::save_checkpoint(detail::device_group(comm, "checkpoint"), {directory, step, options.keep, options.block_bytes},
                            [this] { return described(); });
  }

  /// Fills all arrays from checkpoint `step`, which may contain other arrays too.
  ///
  /// Each device reads the blocks of the files that contain elements of its shard, and sets its padding to zero. During
  /// the call, memory for all shards is needed twice.
  ///
  /// **Communication.** Collective. The manifest, and a few integers.
  /// **Errors.** Throws gspmd::error with the same text on all processes, and changes no array:
  ///  - the directory does not have this step
  ///  - a file is missing, cut off or changed, or another program wrote it
  ///  - an array is not in the checkpoint, or has another type or shape there
  ///  - an array is partial, empty or const, or processes pass different arguments
  template <communicator Comm>
  void restore(Comm& comm, const std::string& directory, std::int64_t step) const {
    static_cast<void>(
        detail::restore_checkpoint(detail::device_group(comm, "checkpoint"), directory, step, [this] { return described(); }));
  }
  /// Fills all arrays from the newest checkpoint, as `restore` does. Returns its step, or nothing if the directory has
  /// no checkpoint.
  template <communicator Comm>
  std::optional<std::int64_t> restore_latest(Comm& comm, const std::string& directory) const {
    return detail::restore_checkpoint(detail::device_group(comm, "checkpoint"), directory, {}, [this] { return described(); });
  }
};

/// Returns the steps of the checkpoints in a directory, ascending. Returns no steps if the directory does not exist.
///
/// **Communication.** None.
/// **Errors.** Throws gspmd::error if the directory cannot be read.
[[nodiscard]] inline std::vector<std::int64_t> checkpoint_steps(const std::string& directory) {
  try {
    return detail::steps_in(directory);
  } catch (const error& e) {
    throw error("checkpoint: " + e.text());
  }
}

}  // namespace gspmd
