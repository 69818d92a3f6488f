// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gspmd/error.hpp"
#include "gspmd/io/detail/check_arrays.hpp"
#include "gspmd/io/detail/checkpoint_store.hpp"
#include "gspmd/io/detail/device_group.hpp"
#include "gspmd/io/detail/manifest.hpp"
#include "gspmd/io/detail/manifest_reader.hpp"
#include "gspmd/io/detail/part_file.hpp"
#include "gspmd/io/detail/stored_array.hpp"

namespace gspmd::detail {

/// Returns the file name of a part: `0.weights.w1.2.npy`. The number of the array makes it unique; the name is for
/// readers.
inline std::string part_file_name(std::size_t array, const std::string& name, std::size_t part) {
  auto plain = name.substr(0, 64);
  for (auto& c : plain)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-')) c = '_';
  return std::to_string(array) + '.' + plain + '.' + std::to_string(part) + ".npy";
}

/// Sends the checksums that each process has of its own parts to all processes.
inline void share_checksums(manifest& m, const device_group& devices) {
  std::vector<std::int64_t> all;
  for (const auto& a : m.arrays)
    for (const auto& p : a.parts) all.insert(all.end(), p.checksums.begin(), p.checksums.end());
  devices.all_reduce(all.data(), all.size(), monoid::add);
  auto next = all.begin();
  for (auto& a : m.arrays)
    for (auto& p : a.parts)
      for (auto& sum : p.checksums) sum = static_cast<std::uint32_t>(*next++);
}

struct save_request {
  std::string directory;
  std::int64_t step, keep, block_bytes;
};

/// Saves arrays to a checkpoint. Collective.
///  1. The process of device 0 locks the directory and makes a directory for the step, under a name that no reader
///     uses.
///  2. Each process writes its parts and waits until they are on the disk.
///  3. The process of device 0 writes the manifest and gives the directory its name.
/// After each step, all processes agree whether all succeeded. If not, all throw, and the process of device 0 removes
/// the written files.
template <class Describe>
void save_checkpoint(const device_group& devices, const save_request& request, Describe describe) {
  std::vector<stored_array> arrays;
  manifest m{request.step, request.block_bytes, {}};
  std::vector<std::vector<written_part>> parts;
  devices.together([&] {
    if (request.directory.empty()) throw error("the name of the directory is empty");
    if (request.step < 0 || request.step >= std::int64_t{1} << 59)
      throw error("step " + std::to_string(request.step) + " is no number of a step; they count from 0");
    if (request.keep < 0) throw error("keep is the number of checkpoints to keep, or 0 for all");
    if (request.block_bytes < 1 || request.block_bytes > manifest_reader::most_block_bytes)
      throw error("block_bytes is " + std::to_string(request.block_bytes) + "; give 1 to 2^30");
    arrays = describe();
    check_arrays(arrays, devices);
    std::int64_t blocks_of_all = 0;
    for (const auto& a : arrays) {
      parts.push_back(checked_parts(a, devices.device_count()));
      auto& entry = m.arrays.emplace_back(stored_entry{a.name, a.type, a.global, a.sharding, {}});
      for (const auto& p : parts.back()) {
        const auto blocks = m.block_count(p.box.elems() * bytes_of(a.type));
        check_manifest_bytes(12 * (blocks_of_all += blocks));  // before memory for the checksums is allocated
        entry.parts.push_back({part_file_name(m.arrays.size() - 1, a.name, entry.parts.size()), p.box,
                               std::vector<std::uint32_t>(static_cast<std::size_t>(blocks))});
      }
    }
    if (devices.is_first()) check_manifest_bytes(static_cast<std::int64_t>(text_of(m).size()));
  });
  check_alike(arrays,
              "save " + request.directory + '\n' + std::to_string(request.step) + ' ' + std::to_string(request.keep) + ' ' +
                  std::to_string(request.block_bytes),
              "directories, steps or options", devices);

  std::optional<checkpoint_in_progress> saving;
  devices.together([&] {
    if (devices.is_first()) saving.emplace(request.directory, request.step);
  });
  devices.together([&] {
    const auto directory = request.directory + '/' + step_directory(request.step) + std::string(partial_suffix) + '/';
    for (std::size_t i = 0; i < devices.held().size(); ++i)
      for (std::size_t k = 0; k < arrays.size(); ++k)
        for (std::size_t n = 0; n < parts[k].size(); ++n)
          if (parts[k][n].device == devices.held()[i])
            m.arrays[k].parts[n].checksums = write_part(directory + m.arrays[k].parts[n].file, arrays[k], parts[k][n],
                                                        arrays[k].shards[i], request.block_bytes);
  });
  share_checksums(m, devices);
  devices.together([&] {
    if (saving) saving->commit(text_of(m));
  });
  devices.together([&] {
    if (saving && request.keep > 0) saving->keep(request.keep);
  });
}

}  // namespace gspmd::detail
