// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "gspmd/detail/files/checkpoint_store.hpp"
#include "gspmd/detail/files/device_group.hpp"
#include "gspmd/detail/files/manifest.hpp"
#include "gspmd/detail/files/manifest_reader.hpp"
#include "gspmd/detail/files/part_file.hpp"
#include "gspmd/detail/files/save_checkpoint.hpp"
#include "gspmd/detail/files/stored_array.hpp"
#include "gspmd/detail/transport/device_memory.hpp"
#include "gspmd/error.hpp"

namespace gspmd::detail {

/// The whole text of a manifest.
inline std::string read_text(const std::string& path) {
  const auto file = posix_file::read(path);
  const auto size = file.size();
  if (size < 0) throw error("checkpoint: `" + path + "` is no file");
  if (size > std::int64_t{1} << 36) throw error("checkpoint: `" + path + "` is too long for a manifest");
  std::string text(static_cast<std::size_t>(size), '\0');
  file.read_at(0, text.data(), text.size());
  return text;
}

/// The entry of a manifest that an array of the user's is restored from. Throws gspmd::error: none, or of another type or shape.
inline const stored_entry& entry_of(const manifest& m, const stored_array& a, const std::string& directory) {
  std::string names;
  for (const auto& e : m.arrays) {
    if (e.name == a.name) {
      const auto differs = [&](const std::string& stored, const std::string& given) {
        return error("checkpoint: `" + a.name + "` is " + stored + " in `" + directory + "` and the array given is " + given);
      };
      if (e.type != a.type) throw differs(stored_type(e.type), stored_type(a.type));
      if (e.shape != a.global) throw differs(stored_shape_text(e.shape), stored_shape_text(a.global));
      return e;
    }
    if (names.size() < 400) names += (names.empty() ? "`" : ", `") + e.name + '`';
    else if (!names.ends_with("...")) names += ", ...";
  }
  throw error("checkpoint: `" + directory + "` has no array `" + a.name + "`; it has " + names);
}

/// Collective. Returns the step that was restored: `wanted`, or the newest one; none if there is no checkpoint and none is wanted.
///  1. The process of device 0 reads the manifest, for all.
///  2. All read the parts that they need, to memory of their own.
///  3. If all have all of it, it becomes the user's; else all throw, and nobody has any.
template <class Describe>
std::optional<std::int64_t> restore_checkpoint(const device_group& devices, const std::string& directory,
                                               std::optional<std::int64_t> wanted, Describe describe) {
  std::vector<stored_array> arrays;
  devices.together([&] {
    if (directory.empty()) throw error("checkpoint: the name of the directory is empty");
    arrays = describe();
    check_arrays(arrays, devices);
    for (const auto& a : arrays)
      if (a.is_constant) throw error("checkpoint: `" + a.name + "` was added as a const object, and is to be restored");
  });
  check_alike(arrays, "restore " + directory + '\n' + (wanted ? std::to_string(*wanted) : ""), devices);

  std::string text;
  std::int64_t number = 0;  // 1 more than the step; 0: there is none
  devices.together([&] {
    if (!devices.is_first()) return;
    const auto steps = steps_in(directory);
    const bool is_there = wanted ? std::find(steps.begin(), steps.end(), *wanted) != steps.end() : !steps.empty();
    if (wanted && !is_there) {
      throw error("checkpoint: `" + directory + "` has no step " + std::to_string(*wanted) +
                  (steps.empty() ? ", nor any other" : "; the newest one is " + std::to_string(steps.back())));
    }
    if (!is_there) return;
    number = (wanted ? *wanted : steps.back()) + 1;
    text = read_text(directory + '/' + step_directory(number - 1) + '/' + std::string(manifest_name));
  });
  devices.all_reduce(&number, 1, monoid::add);
  if (number == 0) return {};
  text = devices.broadcast(text);

  const auto step = number - 1;
  const auto place = directory + '/' + step_directory(step);
  std::vector<aligned_bytes> fresh;
  devices.together([&] {
    const auto m = manifest_reader(text, place + '/' + std::string(manifest_name)).read();
    if (m.step != step) throw error("checkpoint: `" + place + "` holds step " + std::to_string(m.step));
    for (const auto& a : arrays) static_cast<void>(entry_of(m, a, place));
    for (const auto& a : arrays)
      for (const auto device : devices.held()) {
        fresh.emplace_back(a.local_bytes(), "a shard that is restored");
        read_shard(place, m, entry_of(m, a, place), a, device, fresh.back().get());
      }
  });
  auto from = fresh.begin();
  for (const auto& a : arrays)
    for (auto* shard : a.shards) std::memcpy(shard, (from++)->get(), static_cast<std::size_t>(a.local_bytes()));
  return step;
}

}  // namespace gspmd::detail
