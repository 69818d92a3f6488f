// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <ostream>
#include <random>
#include <streambuf>
#include <string>
#include <system_error>

namespace plan_tool {

/// A stream buffer that writes to a std::FILE. Unlike a std::ofstream, a std::FILE can be opened with the condition
/// that the file is new.
class file_buffer : public std::streambuf {
 public:
  explicit file_buffer(std::FILE* file) : file_(file) {}

 protected:
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    return std::fputc(traits_type::to_char_type(c), file_) == EOF ? traits_type::eof() : c;
  }
  std::streamsize xsputn(const char* text, std::streamsize count) override {
    return static_cast<std::streamsize>(std::fwrite(text, 1, static_cast<std::size_t>(count), file_));
  }
  int sync() override { return std::fflush(file_); }

 private:
  std::FILE* file_;
};

/// Opens a new file with a random name in the directory of `file`, and returns the name in `part`. Never writes to an
/// existing file and never follows a link, also if another process makes it meanwhile.
inline std::FILE* open_part(const std::filesystem::path& file, std::filesystem::path& part) {
  std::random_device random;
  for (int tries = 0; tries < 100; ++tries) {
    char name[40];
    std::snprintf(name, sizeof name, ".gspmd-plan-%08x%08x", random(), random());
    part = file.parent_path() / name;
    errno = 0;
    std::FILE* const opened = std::fopen(part.c_str(), "wbx");
    if (opened != nullptr || errno != EEXIST) return opened;
  }
  return nullptr;
}

/// The origin of a file name. A name from the user may be a link or a pipe, such as /dev/stdout, which is written in
/// place. A name in a directory of results may not: another user with write access to the directory can put a link or a
/// pipe there.
enum class chosen_by { user, program };

/// Lets `write(stream)` fill a file. The file gets its name when it is complete. If writing fails, for example on a
/// full disk, a previous file stays. Returns the reason of a failure, or an empty text.
template <class Write>
std::string write_whole_file(const std::string& file, chosen_by chooser, Write write) {
  namespace fs = std::filesystem;
  std::error_code failed;
  const auto type = fs::symlink_status(file, failed).type();
  const bool in_place = type != fs::file_type::not_found && type != fs::file_type::regular;
  if (in_place && chooser == chosen_by::program)
    return type == fs::file_type::symlink ? "it is a link, which is not followed; remove it" : "it is no file; remove it";
  const auto error_now = [] { return std::error_code(errno != 0 ? errno : EIO, std::generic_category()); };
  fs::path part = file;
  errno = 0;
  std::FILE* const opened = in_place ? std::fopen(file.c_str(), "wb") : open_part(file, part);
  if (opened == nullptr) return error_now().message();
  failed.clear();
  file_buffer buffer(opened);
  std::ostream out(&buffer);
  errno = 0;
  try {
    write(out);
  } catch (...) {
    std::fclose(opened);
    std::error_code ignored;
    if (!in_place) fs::remove(part, ignored);
    throw;
  }
  if (!out) failed = error_now();
  if (std::fclose(opened) != 0 && !failed) failed = error_now();
  if (in_place) return failed ? failed.message() : std::string();
  if (!failed) fs::rename(part, file, failed);
  if (!failed) return {};
  std::error_code ignored;
  fs::remove(part, ignored);
  return failed.message();
}

}  // namespace plan_tool
