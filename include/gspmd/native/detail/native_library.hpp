// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/detail/support/positive_limit.hpp"
#include "gspmd/native/detail/native_cache.hpp"
#include "gspmd/native/detail/native_compiler.hpp"
#include "gspmd/native/detail/native_object.hpp"

/// Compiles a source with the system's compiler, loads the library, and stores it for the next process.
///
///  1. The key is a hash of the source, of all headers of gspmd that it includes, of Boost's version, of the
///     compiler's version text, of the include directories, of the flags and of the processor. So different machines
///     may share a directory.
///  2. The directory must belong to the user alone, and no other user may be able to replace it. Otherwise nothing is
///     read or written.
///  3. <directory>/<key>.so is loaded if its length and hash are right. The loader gets a copy of the checked bytes
///     in memory, not the file.
///  4. Otherwise the source is compiled under a lock, so that one of several processes compiles it. The object is
///     flushed to the disk before it gets its name.
namespace gspmd::detail {

/// Adds a header of gspmd, and the headers of gspmd that it includes, to the key.
inline void add_headers(const std::string& directory, const std::string& name, std::set<std::string>& seen, native_key& key) {
  if (!seen.insert(name).second) return;
  std::ifstream file(directory + '/' + name);
  if (!file)
    throw native_refusal{"there is no " + name + " in `" + directory +
                         "`; name the directory of gspmd's headers in native_options"};
  const std::string begin = "#include \"gspmd/";
  for (std::string line; std::getline(file, line);) {
    key.add(line);
    if (line.compare(0, begin.size(), begin) != 0) continue;
    const auto first = line.find('"') + 1;
    add_headers(directory, line.substr(first, line.rfind('"') - first), seen, key);
  }
}

/// Adds the directories that the compiler searches for other headers, and the versions of Boost there, to the key.
inline void add_other_headers(const std::string& include, const std::vector<std::string>& words, native_key& key) {
  std::vector<std::string> directories{include};
  for (const char* const name : {"CPATH", "CPLUS_INCLUDE_PATH"}) {
    const char* const listed = std::getenv(name);  // the compiler reads it too
    key.add(listed == nullptr ? "" : listed);
    std::istringstream in(listed == nullptr ? "" : listed);
    for (std::string one; std::getline(in, one, ':');) directories.push_back(one.empty() ? "." : one);
  }
  for (const auto& w : words)
    if (const auto at = w.find('/'); at != std::string::npos) directories.push_back(w.substr(at));  // -I/opt/boost/include
  directories.insert(directories.end(), {"/usr/local/include", "/usr/include"});
  for (const auto& directory : directories) {
    std::ifstream file(directory + "/boost/version.hpp");
    for (std::string line; std::getline(file, line);)
      if (line.find("define BOOST_VERSION ") != std::string::npos) key.add(line);
  }
}

/// Returns the lines about the processor that determine the effect of -march=native.
inline std::string processor_text() {
  std::ifstream file("/proc/cpuinfo");
  std::string text;
  for (std::string line; std::getline(file, line) && !line.empty();)
    for (const char* const begin : {"model name", "flags", "Features", "CPU part", "isa"})
      if (line.compare(0, std::strlen(begin), begin) == 0) text += line + '\n';
  return text;
}

/// Returns a path of an open file that differs from the paths of all libraries of this process. The loader treats two
/// libraries with the same path as one library, and the system reuses the numbers of open files. So the path contains
/// the inode number of the file, as bits: "/." and "//.".
inline std::string path_of_open_file(int file) {
  struct stat found {};
  if (fstat(file, &found) != 0) return {};
  std::string path = "/proc/self";
  for (auto n = static_cast<std::uint64_t>(found.st_ino); n != 0; n /= 2) path += n % 2 == 0 ? "/." : "//.";
  return path + "/fd/" + std::to_string(file);
}

class native_library {
 public:
  bool was_cached = false;
  /// The file name, in the compiler's messages, of the lines of a source (#line) that compile only with the program's
  /// own headers.
  static constexpr const char* conditions = "gspmd-headers";

  /// Compiles and loads `source`, or loads it from the cache. `compiler` and `flags` are words with spaces between
  /// them. Takes at most `most_seconds` and a little longer. Throws native_refusal.
  native_library(const std::string& source, const std::vector<std::string>& headers, const std::string& include,
                 const std::string& compiler, const std::string& flags, const std::string& cache, double most_seconds) {
    require_equal_rights();
    if (auto why = why_refused("native_options::most_seconds", most_seconds); !why.empty()) throw native_refusal{std::move(why)};
    constexpr double most = 1e9;  // the clock overflows above this value
    const auto deadline =
        native_clock::now() +
        std::chrono::milliseconds(static_cast<std::int64_t>(1000 * (most_seconds < most ? most_seconds : most)));
    auto words = split_words(compiler);
    if (words.empty()) throw native_refusal{"no compiler is named"};
    native_key hash;
    std::set<std::string> seen;
    for (const auto& header : headers) add_headers(include, header, seen, hash);
    bool ok = false;
    auto version = words;
    version.emplace_back("--version");
    const auto about = run_program(version, deadline, ok);
    if (!ok) throw native_refusal{"the compiler `" + compiler + "` does not run: " + shown_output(about)};
    for (const auto& part : {source, compiler, about, flags, processor_text()}) hash.add(part);
    add_other_headers(include, split_words(compiler + ' ' + flags), hash);
    const auto directory = require_own_directory(cache), key = hash.text(), name = directory + '/' + key;
    was_cached = load_stored(name + ".so", key);
    if (was_cached) return;
    const native_lock only(name + ".lock", deadline);
    was_cached = load_stored(name + ".so", key);
    if (was_cached) return;
    if (only.is_held()) remove_old_temporaries(directory, key);
    const native_temporary text(write_source(name, source)), made(text.path.substr(0, text.path.size() - 4) + ".so");
    for (const auto& w : split_words(flags)) words.push_back(w);
    for (const auto& w :
         {std::string("-std=c++20"), std::string("-shared"), std::string("-fPIC"), std::string("-fvisibility=hidden"),
          std::string("-w"), "-I" + include, std::string("-o"), made.path, text.path})
      words.push_back(w);
    const auto output = run_program(words, deadline, ok);
    if (!ok && output.find(conditions + std::string(":")) != std::string::npos)
      throw native_refusal{"the headers in `" + include +
                           "` are not those this program was compiled with: compile it again, or name the directory of those "
                           "that it was compiled with in GSPMD_INCLUDE or native_options::include"};
    if (!ok) throw native_refusal{"`" + compiler + "` does not compile the loops: " + shown_output(output)};
    std::string object;
    if (!read_own_file(made.path, object)) throw native_refusal{"`" + compiler + "` has written no `" + made.path + '`'};
    if (!load(object)) throw native_refusal{"the output of `" + compiler + "` cannot be loaded: " + shown_output(why_)};
    store_object(directory, key, object);  // if this fails, the next process compiles again
  }
  native_library(const native_library&) = delete;
  native_library& operator=(const native_library&) = delete;
  ~native_library() {
    if (handle_ != nullptr) dlclose(handle_);
  }

  [[nodiscard]] void* symbol(const char* name) const {
    void* const found = dlsym(handle_, name);
    if (found == nullptr) throw native_refusal{std::string("the library has no ") + name};
    return found;
  }

 private:
  /// Throws if the program has more rights than its user: it would run a compiler from the PATH of that user with
  /// these rights.
  static void require_equal_rights() {
    if (getauxval(AT_SECURE) != 0)
      throw native_refusal{
          "the program has more rights than its user (set-user-ID, set-group-ID or capabilities of its file), so "
          "it neither runs a compiler nor loads code"};
  }
  /// Writes the source to a file whose name is unique among the processes of all machines, and returns the path.
  static std::string write_source(const std::string& name, const std::string& source) {
    std::string path = name + ".XXXXXX.cpp";
    const int file = mkstemps(path.data(), 4);
    if (file < 0) throw native_refusal{"`" + path + "` cannot be made: " + std::strerror(errno)};
    const bool is_written = write_all(file, source);
    const int failure = errno;
    close(file);
    if (is_written) return path;
    unlink(path.c_str());
    throw native_refusal{"`" + path + "` cannot be written: " + std::strerror(failure)};
  }
  bool load_stored(const std::string& path, const std::string& key) {
    std::string object;
    return read_object(path, key, object) && load(object);
  }
  /// Loads these bytes from a sealed file in memory, so they cannot change between the check and the loader.
  bool load(const std::string& object) {
    const int file = memfd_create("gspmd-loops", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const bool is_written = file >= 0 && write_all(file, object) &&
                            fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0;
    if (!is_written) why_ = std::strerror(errno);
    else if (handle_ = dlopen(path_of_open_file(file).c_str(), RTLD_NOW | RTLD_LOCAL); handle_ == nullptr) why_ = dlerror();
    if (file >= 0) close(file);
    return handle_ != nullptr;
  }
  void* handle_ = nullptr;
  std::string why_;
};

}  // namespace gspmd::detail
