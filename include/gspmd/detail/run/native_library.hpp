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
#include <initializer_list>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/detail/support/language.hpp"

extern "C" char** environ;

/// Compiles a source by the system's compiler, loads the library that it makes, and keeps it for the next time.
///
///   1. the key is a hash of the source, of all headers of gspmd that it includes, of Boost's version, of the compiler's words about its
///      version, of the directories that it is told of, of the flags and of the processor: unequal machines may share a directory
///   2. <directory>/<key>.so is loaded if it is there; the directory belongs to the user alone, and nobody else may move it, else
///      nothing is read or written
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

/// The first of these variables that is set, or nothing. They name what is compiled and loaded: a program that has more rights than
/// the user who starts it takes none of them.
inline std::string first_set(std::initializer_list<const char*> names) {
  for (const char* const n : names)
    if (const char* const value = secure_getenv(n); value != nullptr && *value != 0) return value;
  return {};
}

/// Runs a program and returns what it writes; `ok`: whether it ended well. No shell looks at the words. Where a signal ended it, or it
/// failed in silence, the text says so.
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
  if (waited >= 0 && WIFSIGNALED(status)) output.insert(0, "killed by signal " + std::to_string(WTERMSIG(status)) + '\n');
  else if (!ok && output.empty()) output = "it ended with status " + std::to_string(WEXITSTATUS(status));
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

/// Adds where the compiler looks for other headers, and the versions of Boost there, to the key.
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

/// Returns the lines about the processor that -march=native depends on.
inline std::string processor_text() {
  std::ifstream file("/proc/cpuinfo");
  std::string text;
  for (std::string line; std::getline(file, line) && !line.empty();)
    for (const char* const begin : {"model name", "flags", "Features", "CPU part", "isa"})
      if (line.compare(0, std::strlen(begin), begin) == 0) text += line + '\n';
  return text;
}

/// Makes the directory where it is missing, and returns its path without links; throws native_refusal unless it is the user's, no one
/// else may read or write it, and no one else may put another one in its place or in that of a directory above it.
inline std::string require_own_directory(std::string path) {
  while (path.size() > 1 && (path.back() == '/' || path.compare(path.size() - 2, 2, "/.") == 0))
    path.pop_back();  // of `link/` lstat would see where the link leads
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
    mkdir(path.substr(0, at).c_str(), 0700);
  mkdir(path.c_str(), 0700);
  const auto status_of = [&path](const std::string& of) {
    struct stat found {};
    if (lstat(of.c_str(), &found) != 0)
      throw native_refusal{"the directory `" + path + "` cannot be made: " + std::strerror(errno)};
    return found;
  };
  const auto require_own = [&](const std::string& directory) {
    const auto found = status_of(directory);
    if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid() || (found.st_mode & 077U) != 0)
      throw native_refusal{"`" + path + "` is not a directory of yours that nobody else may read or write (mode 0700)"};
  };
  require_own(path);
  const std::unique_ptr<char, void (*)(void*)> resolved(realpath(path.c_str(), nullptr), std::free);
  if (resolved == nullptr) throw native_refusal{"the directory `" + path + "` cannot be made: " + std::strerror(errno)};
  const std::string real = resolved.get();
  require_own(real);
  for (std::string above = real; above.size() > 1;) {
    const auto end = above.rfind('/');
    above.resize(end == 0 ? 1 : end);
    const auto mode = status_of(above).st_mode;
    if ((mode & 022U) != 0 && (mode & S_ISVTX) == 0)
      throw native_refusal{"others may write in `" + above + "`, and so replace `" + path +
                           "`: take that right from them (chmod go-w), or set GSPMD_CACHE or native_options::cache"};
  }
  return real;
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
  /// The file, in the compiler's words, of those lines of a source (#line) that compile with the program's own headers only.
  static constexpr const char* conditions = "gspmd-headers";

  /// `compiler` and `flags` are words, with spaces between them. Throws native_refusal.
  native_library(const std::string& source, const std::vector<std::string>& headers, const std::string& include,
                 const std::string& compiler, const std::string& flags, const std::string& cache) {
    auto words = split_words(compiler);
    if (words.empty()) throw native_refusal{"no compiler is named"};
    native_key key;
    std::set<std::string> seen;
    for (const auto& header : headers) add_headers(include, header, seen, key);
    bool ok = false;
    auto version = words;
    version.emplace_back("--version");
    const auto about = run_program(version, ok);
    if (!ok) throw native_refusal{"the compiler `" + compiler + "` does not run: " + about};
    for (const auto& part : {source, compiler, about, flags, processor_text()}) key.add(part);
    add_other_headers(include, split_words(compiler + ' ' + flags), key);
    const auto name = require_own_directory(cache) + '/' + key.text(), library = name + ".so";
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
    if (!ok && said.find(conditions + std::string(":")) != std::string::npos)
      throw native_refusal{"the headers in `" + include +
                           "` are not those this program was compiled with: compile it again, or name the directory of those "
                           "that it was compiled with in GSPMD_INCLUDE or native_options::include"};
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
