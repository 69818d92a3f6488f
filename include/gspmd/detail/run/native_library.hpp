// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

extern "C" char** environ;

/// Compiles a source by the system's compiler, loads the library that it makes, and keeps it for the next time.
///
///   1. the key is a hash of the source, of all headers of gspmd that it includes, of the compiler's words about its version, of the
///      flags and of the processor: a directory may be shared by unequal machines
///   2. <directory>/<key>.so is loaded if it is there; the directory belongs to the user alone, else nothing is read or written
///   3. else it is compiled under a lock, so that of several processes one does, to another name, and renamed: nobody sees a part of it
namespace gspmd::detail {

/// Why there is no library.
struct native_refusal {
  std::string why;
};

inline std::vector<std::string> split_words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), std::istream_iterator<std::string>()};
}

/// Runs a program and returns what it writes; `ok`: whether it ended well. No shell looks at the words.
inline std::string run_program(const std::vector<std::string>& words, bool& ok) {
  ok = false;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::strerror(errno);
  std::vector<char*> arguments;
  for (const auto& w : words) arguments.push_back(const_cast<char*>(w.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, ends[1], 1);
  posix_spawn_file_actions_adddup2(&files, ends[1], 2);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, arguments[0], &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  close(ends[1]);
  std::string output;
  if (failed != 0) {
    close(ends[0]);
    return std::strerror(failed);
  }
  char part[4096];
  for (ssize_t n = 0; (n = read(ends[0], part, sizeof part)) > 0 || (n < 0 && errno == EINTR);)
    if (n > 0) output.append(part, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  pid_t waited = 0;
  while ((waited = waitpid(child, &status, 0)) < 0 && errno == EINTR) {
  }
  // Where the program has its children reaped by the system, the loader decides.
  ok = waited < 0 ? errno == ECHILD : WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return output;
}

/// 128 bits of FNV-1a, by two numbers that begin differently.
class native_key {
 public:
  void add(const std::string& text) {
    for (const char c : text + '\0')
      for (auto& h : of_) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  [[nodiscard]] std::string text() const {
    char digits[33];
    std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(of_[0]),
                  static_cast<unsigned long long>(of_[1]));
    return digits;
  }

 private:
  std::uint64_t of_[2] = {0xcbf29ce484222325U, 0x9ae16a3b2f90404fU};
};

/// Adds a header of gspmd, and those that it includes, to the key.
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

/// Returns the lines about the processor that -march=native depends on.
inline std::string processor_text() {
  std::ifstream file("/proc/cpuinfo");
  std::string text;
  for (std::string line; std::getline(file, line) && !line.empty();)
    for (const char* const begin : {"model name", "flags", "Features", "CPU part", "isa"})
      if (line.compare(0, std::strlen(begin), begin) == 0) text += line + '\n';
  return text;
}

/// Makes the directory where it is missing; throws native_refusal unless it is the user's, and no one else may read or write it.
inline void require_own_directory(const std::string& path) {
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
    mkdir(path.substr(0, at).c_str(), 0700);
  mkdir(path.c_str(), 0700);
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0)
    throw native_refusal{"the directory `" + path + "` cannot be made: " + std::strerror(errno)};
  if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid() || (found.st_mode & 077U) != 0)
    throw native_refusal{"`" + path + "` is not a directory of yours that nobody else may read or write (mode 0700)"};
}

/// A file that one process at a time holds; where the file system knows no locks, none does.
class native_lock {
 public:
  explicit native_lock(const std::string& path) : file_(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)) {
    while (file_ >= 0 && flock(file_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  native_lock(const native_lock&) = delete;
  native_lock& operator=(const native_lock&) = delete;
  ~native_lock() {
    if (file_ >= 0) close(file_);
  }

 private:
  int file_;
};

/// A file that is gone when this is.
struct native_temporary {
  std::string path;
  explicit native_temporary(std::string p) : path(std::move(p)) {}
  native_temporary(const native_temporary&) = delete;
  native_temporary& operator=(const native_temporary&) = delete;
  ~native_temporary() { unlink(path.c_str()); }
};

class native_library {
 public:
  bool was_cached = false;

  /// `compiler` and `flags` are words, with spaces between them. Throws native_refusal.
  native_library(const std::string& source, const std::string& header, const std::string& include, const std::string& compiler,
                 const std::string& flags, const std::string& directory) {
    auto words = split_words(compiler);
    if (words.empty()) throw native_refusal{"no compiler is named"};
    native_key key;
    std::set<std::string> seen;
    add_headers(include, header, seen, key);
    bool ok = false;
    auto version = words;
    version.emplace_back("--version");
    const auto about = run_program(version, ok);
    if (!ok) throw native_refusal{"the compiler `" + compiler + "` does not run: " + about};
    for (const auto& part : {source, compiler, about, flags, processor_text()}) key.add(part);
    require_own_directory(directory);
    const auto name = directory + '/' + key.text(), library = name + ".so";
    was_cached = load(library);
    if (was_cached) return;
    const native_lock only(name + ".lock");
    was_cached = load(library);
    if (was_cached) return;
    const native_temporary text(unique_source(name)), made(text.path.substr(0, text.path.size() - 4) + ".so");
    if (!(std::ofstream(text.path) << source << std::flush)) throw native_refusal{"`" + text.path + "` cannot be written"};
    for (const auto& w : split_words(flags)) words.push_back(w);
    for (const auto& w :
         {std::string("-std=c++20"), std::string("-shared"), std::string("-fPIC"), std::string("-fvisibility=hidden"),
          std::string("-w"), "-I" + include, std::string("-o"), made.path, text.path})
      words.push_back(w);
    const auto said = run_program(words, ok);
    if (!ok) throw native_refusal{"`" + compiler + "` does not compile the loops: " + said.substr(0, 2000)};
    if (rename(made.path.c_str(), library.c_str()) != 0)
      throw native_refusal{"`" + library + "` cannot be written: " + std::strerror(errno)};
    if (!load(library)) throw native_refusal{"`" + library + "` cannot be loaded: " + why_};
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
  /// Returns a new file of a name that no other process has, of this machine or another one.
  static std::string unique_source(const std::string& name) {
    std::string path = name + ".XXXXXX.cpp";
    const int file = mkstemps(path.data(), 4);
    if (file < 0) throw native_refusal{"`" + path + "` cannot be made: " + std::strerror(errno)};
    close(file);
    return path;
  }
  bool load(const std::string& path) {
    if (access(path.c_str(), R_OK) != 0) return false;
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) why_ = dlerror();
    return handle_ != nullptr;
  }
  void* handle_ = nullptr;
  std::string why_;
};

}  // namespace gspmd::detail
