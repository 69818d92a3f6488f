// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/detail/transport/device_memory.hpp"
#include "gspmd/error.hpp"
#include "gspmd/io/detail/check_arrays.hpp"
#include "gspmd/io/detail/checkpoint_store.hpp"
#include "gspmd/io/detail/device_group.hpp"
#include "gspmd/io/detail/manifest.hpp"
#include "gspmd/io/detail/manifest_reader.hpp"
#include "gspmd/io/detail/part_file.hpp"
#include "gspmd/io/detail/stored_array.hpp"

namespace gspmd::detail {

/// Returns the text of a manifest. If the file is no manifest, returns its beginning, which manifest_reader rejects.
/// Throws gspmd::error if the file is longer than any manifest, or does not end as a manifest. The file is not read
/// then, and needs no memory.
inline std::string read_text(const std::string& path) {
  const auto file = posix_file::read(path);
  const auto size = file.size();
  if (size < 0) throw error("`" + path + "` is no file");
  const auto part = [&](std::int64_t from, std::int64_t bytes) {
    std::string text(static_cast<std::size_t>(bytes), '\0');
    file.read_at(from, text.data(), text.size());
    return text;
  };
  auto start = part(0, std::min(size, static_cast<std::int64_t>(manifest_start.size())));
  if (start != manifest_start) return start;
  if (size > most_manifest_bytes)
    throw error("`" + path + "` has " + std::to_string(size) + " bytes, and a manifest has at most " +
                std::to_string(most_manifest_bytes) + "; gspmd did not write it");
  if (part(size - 2, 2) != "}\n") throw error("`" + path + "` is truncated, or continues after its end");
  return part(0, size);
}

/// Restores arrays from a checkpoint. Collective. Returns the restored step: `wanted`, or the newest step. Returns
/// nothing if `wanted` is empty and the directory has no checkpoint.
///  1. The process of device 0 reads the manifest and sends it to all processes.
///  2. Each process reads the parts that it needs, to memory of its own.
///  3. If all processes have read their parts, each copies them to the user's arrays. Otherwise all throw, and no array
///     changes.
template <class Describe>
std::optional<std::int64_t> restore_checkpoint(const device_group& devices, const std::string& directory,
                                               std::optional<std::int64_t> wanted, Describe describe) {
  std::vector<stored_array> arrays;
  devices.together([&] {
    if (directory.empty()) throw error("the name of the directory is empty");
    arrays = describe();
    check_arrays(arrays, devices);
    check_writable(arrays);
  });
  check_alike(arrays, "restore " + directory + '\n' + (wanted ? std::to_string(*wanted) : ""), "directories, steps or options",
              devices);

  std::string text;
  std::int64_t number = 0;  // the step plus 1; 0 without a checkpoint
  devices.together([&] {
    if (!devices.is_first()) return;
    const auto steps = steps_in(directory);
    const bool is_there = wanted ? std::find(steps.begin(), steps.end(), *wanted) != steps.end() : !steps.empty();
    if (wanted && !is_there) {
      throw error("`" + directory + "` has no step " + std::to_string(*wanted) +
                  (steps.empty() ? ", nor any other" : "; the newest one is " + std::to_string(steps.back())));
    }
    if (!is_there) return;
    number = (wanted ? *wanted : steps.back()) + 1;
    text = read_text(directory + '/' + step_directory(number - 1) + '/' + std::string(manifest_name));
  });
  devices.all_reduce(&number, 1, monoid::add);
  if (number == 0) return {};
  text = devices.broadcast(std::move(text));

  const auto step = number - 1;
  const auto place = directory + '/' + step_directory(step);
  std::vector<aligned_bytes> fresh;
  devices.together([&] {
    const auto m = manifest_reader(text, place + '/' + std::string(manifest_name)).read();
    if (m.step != step) throw error("`" + place + "` holds step " + std::to_string(m.step));
    for (const auto& a : arrays) {
      const auto& e = entry_named(a.name, m.arrays, place);
      check_given(a, stored_type(a.type), stored_type(e.type), e.shape, place);
    }
    for (const auto& a : arrays)
      for (const auto device : devices.held()) {
        fresh.emplace_back(a.local_bytes(), "a shard that is restored");
        read_shard(place, m, entry_named(a.name, m.arrays, place), a, device, fresh.back().get());
      }
  });
  give_shards(fresh, arrays);
  return step;
}

}  // namespace gspmd::detail
