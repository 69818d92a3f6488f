// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "gspmd/detail/support/text.hpp"
#include "gspmd/detail/transport/device_memory.hpp"
#include "gspmd/error.hpp"
#include "gspmd/io/detail/crc32c.hpp"
#include "gspmd/io/detail/device_group.hpp"
#include "gspmd/io/detail/json_text.hpp"
#include "gspmd/io/detail/stored_array.hpp"

namespace gspmd::detail {

inline std::string stored_shape_text(const std::vector<std::int64_t>& shape) {
  return json_list(shape, ",", [](std::int64_t n) { return std::to_string(n); });
}

/// Throws gspmd::error if an array can be neither saved nor restored. Gives each whole array the devices of the
/// communicator.
inline void check_arrays(std::vector<stored_array>& arrays, const device_group& devices) {
  if (arrays.empty()) throw error("it has no arrays; add them first");
  std::set<std::string> names;
  for (auto& a : arrays) {
    if (a.is_whole) {
      a.devices = devices.device_count();
      a.shards.resize(devices.held().size(), a.shards[0]);
    }
    const auto of_it = "`" + a.name + "` ";
    const bool is_printable =
        std::none_of(a.name.begin(), a.name.end(), [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; });
    if (!is_printable || a.name.empty() || a.name.size() > 255)
      throw error("a name has 1 to 255 bytes, and no control characters");
    if (!names.insert(a.name).second) throw error(of_it + "is the name of two arrays");
    if (a.devices != devices.device_count())
      throw error(of_it + "is on a mesh of " + std::to_string(a.devices) + (a.devices == 1 ? " device" : " devices") +
                  " and the communicator has " + std::to_string(devices.device_count()));
    if (a.shards.size() != devices.held().size())
      throw error(of_it + "has shards for " + std::to_string(a.shards.size()) + " and this process holds " +
                  counted(static_cast<int>(devices.held().size()), "device"));
    if (a.is_partial) throw error(of_it + "is partial, so devices hold partial values of it; reshard it in a program first");
  }
}

/// Throws gspmd::error if an array can be saved but not restored.
inline void check_writable(const std::vector<stored_array>& arrays) {
  for (const auto& a : arrays)
    if (a.is_constant) throw error('`' + a.name + "` was added as a const object, and is to be restored");
}

/// Throws gspmd::error on all processes unless all pass the same arrays and the same `call`. `words` names the contents
/// of `call` in the error.
inline void check_alike(const std::vector<stored_array>& arrays, const std::string& call, const char* words,
                        const device_group& devices) {
  auto text = call;
  for (const auto& a : arrays) {
    text += '\n' + json_text(a.name) + stored_type(a.type) + stored_shape_text(a.global) + stored_shape_text(a.local);
    text += json_list(a.sharding, ",", [](const std::string& s) { return s; });
  }
  const std::int64_t mine = crc32c(text.data(), text.size());
  std::int64_t most[] = {mine, -mine};
  devices.all_reduce(most, 2, monoid::max);
  if (most[0] != -most[1])
    throw error(devices.subject() + ": processes come with different arrays, " + words + "; give all the same");
}

/// Returns the entry with a name in the file or directory `place`. Throws gspmd::error if there is no such entry.
template <class Entry>
const Entry& entry_named(const std::string& name, const std::vector<Entry>& entries, const std::string& place) {
  std::string names;
  for (const auto& e : entries) {
    if (e.name == name) return e;
    if (names.size() < 400) names += (names.empty() ? "`" : ", `") + e.name + '`';
    else if (!names.ends_with("...")) names += ", ...";
  }
  throw error('`' + place + "` has no array `" + name + "`; it has " + (names.empty() ? "none" : names));
}

/// Throws gspmd::error unless an array has the same type and shape as in `place`. The types are in the notation of the
/// file.
inline void check_given(const stored_array& a, const std::string& given_type, const std::string& type,
                        const std::vector<std::int64_t>& shape, const std::string& place) {
  const auto differs = [&](const std::string& stored, const std::string& given) {
    return error('`' + a.name + "` is " + stored + " in `" + place + "` and the array given is " + given);
  };
  if (type != given_type) throw differs(type, given_type);
  if (shape != a.global)
    throw differs(stored_shape_text(shape),
                  stored_shape_text(a.global) + std::string(differing_dim_text(shape, a.global).view()));
}

/// Copies the shards that were read to the user's shards.
inline void give_shards(const std::vector<aligned_bytes>& fresh, const std::vector<stored_array>& arrays) {
  auto from = fresh.begin();
  for (const auto& a : arrays)
    for (auto* shard : a.shards) std::memcpy(shard, (from++)->get(), static_cast<std::size_t>(a.local_bytes()));
}

/// Returns the parts of an array that is saved. Throws gspmd::error unless they contain each element once.
inline std::vector<written_part> checked_parts(const stored_array& a, std::int64_t devices) {
  auto parts = written_parts(a, devices);
  std::vector<const stored_box*> boxes;
  for (const auto& p : parts) boxes.push_back(&p.box);
  if (!is_tiling(a.global, boxes)) throw error("some element of `" + a.name + "` is held by no device, or by two");
  return parts;
}

}  // namespace gspmd::detail
