// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gspmd/error.hpp"
#include "gspmd/io/detail/array_file.hpp"
#include "gspmd/io/detail/check_arrays.hpp"
#include "gspmd/io/detail/exchanging_group.hpp"
#include "gspmd/io/detail/gathered_writes.hpp"
#include "gspmd/io/detail/posix_file.hpp"
#include "gspmd/io/detail/replaced_file.hpp"
#include "gspmd/io/detail/stored_array.hpp"

namespace gspmd::detail {

/// The bytes of a file before the arrays, and the first byte of each array.
struct file_layout {
  std::string header;
  std::vector<std::int64_t> begins;
};

struct write_header {
  void operator()(posix_file& file, const std::vector<stored_array>&, file_layout& layout) const {
    file.write(layout.header.data(), layout.header.size());
  }
};

/// Writes arrays to a file. Collective.
///
/// `describe()` returns the arrays. `lay_out(arrays)` returns a file_layout, and throws if the format cannot store an
/// array. `begin(file, arrays, layout)` writes all bytes except the elements. It may set the first bytes of the arrays.
///  1. The process of device 0 makes the file, under a name that no reader uses, and calls `begin`.
///  2. Each process writes its parts, and waits until they are on the disk. Arrays with short rows are gathered first.
///  3. The process of device 0 gives the file its name.
/// After each step, all processes agree whether all succeeded. If not, all throw, and the process of device 0 removes
/// the written file.
template <class Describe, class LayOut, class Begin = write_header>
void save_file(const exchanging_group& devices, const std::string& path, Describe describe, LayOut lay_out, Begin begin = {}) {
  std::vector<stored_array> arrays;
  std::vector<std::vector<written_part>> parts;
  file_layout layout;
  devices.together([&] {
    if (path.empty()) throw error("the name of the file is empty");
    arrays = describe();
    check_arrays(arrays, devices);
    for (const auto& a : arrays) parts.push_back(checked_parts(a, devices.device_count()));
    layout = lay_out(arrays);
  });
  check_alike(arrays, "save " + path + '\n' + layout.header, "files or options", devices);

  std::optional<replaced_file> saving;
  devices.together([&] {
    if (!devices.is_first()) return;
    saving.emplace(path);
    begin(saving->file(), arrays, layout);
  });
  if (!devices.is_first()) layout.begins.assign(arrays.size(), 0);
  devices.all_reduce(layout.begins.data(), arrays.size(), monoid::add);
  std::optional<posix_file> file;
  std::vector<gathered_write> gathered;
  gathered_memory memory;
  devices.together([&] {
    file.emplace(posix_file::write_to(partial_name(path)));
    for (std::size_t k = 0; k < arrays.size(); ++k) {
      if (devices.can_exchange() && gathered_write::is_worth_it(arrays[k], parts[k])) {
        gathered.emplace_back(devices, arrays[k], parts[k], layout.begins[k]).reserve(memory);
        continue;
      }
      for (std::size_t i = 0; i < devices.held().size(); ++i)
        for (const auto& p : parts[k])
          if (p.device == devices.held()[i]) write_to_file(*file, layout.begins[k], arrays[k], p, arrays[k].shards[i]);
    }
    if (!gathered.empty()) memory.allocate(devices.held().size());
  });
  std::optional<error> failure;
  for (const auto& g : gathered) g.run(*file, memory, failure);
  devices.together([&] {
    if (failure) throw *failure;
    file->finish();
  });
  devices.together([&] {
    if (saving) saving->commit();
  });
}

}  // namespace gspmd::detail
