// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace plan_tool {

/// Lets `write(stream)` fill a file, which gets its name once it is whole: where that fails, as on a full disk, there is no file,
/// or the one that was there before. What is no plain file (a pipe, a link like /dev/stdout) is written in place. Returns what
/// went wrong; empty if nothing did.
template <class Write>
std::string write_whole_file(const std::string& file, Write write) {
  namespace fs = std::filesystem;
  std::error_code failed;
  const auto type = fs::symlink_status(file, failed).type();
  const bool in_place = type != fs::file_type::not_found && type != fs::file_type::regular;
  const auto part = in_place ? file : file + ".part";
  errno = 0;
  std::ofstream out(part, std::ios::binary | std::ios::trunc);
  if (out) write(out);
  out.close();
  failed = out ? std::error_code() : std::error_code(errno, std::generic_category());
  if (in_place) return out ? std::string() : failed.message();
  if (out) fs::rename(part, file, failed);
  if (out && !failed) return {};
  std::error_code ignored;
  fs::remove(part, ignored);
  return failed.message();
}

}  // namespace plan_tool
