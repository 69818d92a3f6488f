// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/detail/transport/device_memory.hpp"
#include "gspmd/error.hpp"
#include "gspmd/io/detail/array_file.hpp"
#include "gspmd/io/detail/check_arrays.hpp"
#include "gspmd/io/detail/device_group.hpp"
#include "gspmd/io/detail/posix_file.hpp"
#include "gspmd/io/detail/stored_array.hpp"

namespace gspmd::detail {

/// Returns the size of a plain file. Throws gspmd::error if it is another kind of file.
inline std::int64_t plain_size(const posix_file& file) {
  const auto size = file.size();
  if (size < 0) throw error('`' + file.path() + "` is no file");
  return size;
}

/// Fills arrays from a file. Collective.
///
/// `describe()` returns the arrays. `read_header(file)` returns the bytes that describe their positions.
/// `locate(arrays, header, size)` gets the size of the file too, and throws if the header is wrong. It returns an
/// array_place for each array, or another type that an overload of read_from_file takes.
///  1. The process of device 0 reads the header and sends it to all processes.
///  2. Each process reads the parts that it needs, to memory of its own.
///  3. If all processes have all parts, each copies them to the user's arrays. Otherwise all throw, and no array
///     changes.
/// A file that is replaced during the load is an error. Each process compares the inode number with that of the first
/// process's open file.
template <class Describe, class ReadHeader, class Locate>
void load_file(const device_group& devices, const std::string& path, const std::string& options, Describe describe,
               ReadHeader read_header, Locate locate) {
  std::vector<stored_array> arrays;
  devices.together([&] {
    if (path.empty()) throw error("the name of the file is empty");
    arrays = describe();
    check_arrays(arrays, devices);
    check_writable(arrays);
  });
  check_alike(arrays, "load " + path + '\n' + options, "files or options", devices);

  std::optional<posix_file> first;
  std::string header;
  std::int64_t facts[] = {0, 0};  // size and number of the file
  devices.together([&] {
    if (!devices.is_first()) return;
    first.emplace(posix_file::read(path));
    facts[0] = plain_size(*first);
    facts[1] = first->number();
    header = read_header(*first);
  });
  devices.all_reduce(facts, 2, monoid::add);
  header = devices.broadcast(std::move(header));

  std::vector<aligned_bytes> fresh;
  devices.together([&] {
    const auto places = locate(arrays, header, facts[0]);
    const auto file = posix_file::read(path);
    if (file.number() != facts[1] || file.size() != facts[0]) throw error('`' + path + "` was replaced while it was read");
    for (std::size_t k = 0; k < arrays.size(); ++k)
      for (const auto device : devices.held()) {
        fresh.emplace_back(arrays[k].local_bytes(), "a shard that is loaded");
        read_from_file(file, places[k], arrays[k], device, fresh.back().get());
      }
  });
  give_shards(fresh, arrays);
}

}  // namespace gspmd::detail
