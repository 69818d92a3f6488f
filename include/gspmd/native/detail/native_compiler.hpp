// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "gspmd/error.hpp"

extern "C" char** environ;

/// Runs the system's compiler, with limits of time and output.
namespace gspmd::detail {

/// The reason why native code is not available.
struct native_refusal {
  std::string why;
};

inline std::vector<std::string> split_words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), std::istream_iterator<std::string>()};
}

/// Returns the value of the first environment variable in the list that is set, or an empty text.
inline std::string first_set(std::initializer_list<const char*> names) {
  for (const char* const n : names)
    if (const char* const value = secure_getenv(n); value != nullptr && *value != 0) return value;
  return {};
}

/// Returns the begin of a compiler's output for an error message: at most 2,000 bytes, whole characters, each line
/// safe to print.
inline std::string shown_output(std::string text) {
  constexpr std::size_t most = 2000;
  if (text.size() > most) {
    std::size_t end = most;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) --end;  // inside of a UTF-8 character
    text.resize(end);
  }
  std::replace(text.begin(), text.end(), '\t', ' ');
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    shown += printable(std::string_view(text).substr(at, end - at));
    if (end < text.size()) shown += '\n';
    at = end + 1;
  }
  return shown;
}

using native_clock = std::chrono::steady_clock;

/// A program that runs in a separate process group, and its output. No shell reads the words.
class running_program {
 public:
  explicit running_program(const std::vector<std::string>& words) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      failure_ = errno;
      return;
    }
    std::vector<char*> arguments;
    for (const auto& w : words) arguments.push_back(const_cast<char*>(w.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, ends[1], 1);
    posix_spawn_file_actions_adddup2(&files, ends[1], 2);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes, 0);
    failure_ = posix_spawnp(&child_, arguments[0], &files, &attributes, arguments.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    close(ends[1]);
    output_end_ = ends[0];
  }
  running_program(const running_program&) = delete;
  running_program& operator=(const running_program&) = delete;
  ~running_program() {
    if (output_end_ >= 0) close(output_end_);
  }

  /// Returns an errno if the program could not be started, otherwise 0.
  [[nodiscard]] int failure() const { return failure_; }
  [[nodiscard]] std::string& output() { return output_; }

  /// Waits for the end of the program. Returns false if the program still runs at the deadline. Does not wait for
  /// background processes of the program.
  bool wait_until(native_clock::time_point deadline) {
    for (bool is_open = true;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - native_clock::now()).count();
      if (left <= 0) return false;
      const bool has_ended = has_program_ended();  // checked before the output is read for the last time
      pollfd output{output_end_, POLLIN, 0};
      constexpr decltype(left) tick = 50;
      const bool has_output = is_open && poll(&output, 1, has_ended ? 0 : static_cast<int>(std::min(left, tick))) > 0;
      if (has_output) is_open = read_output();
      else if (has_ended) return true;
      else if (!is_open) usleep(200);  // the program has closed its output and will end
    }
  }
  /// Ends the whole process group. Compilers remove their temporary files at SIGTERM. Takes at most two seconds.
  void kill_group() {
    for (const int signal : {SIGTERM, SIGKILL}) {
      kill(-child_, signal);
      for (int turns = 0; turns < 1000 && !has_program_ended(); ++turns) usleep(1000);
    }
  }
  /// Returns the status of waitpid, or -1 if the system reaps the children of this process.
  int status() const {
    int status = 0;
    while (waitpid(child_, &status, WNOHANG) < 0)
      if (errno != EINTR) return -1;
    return status;
  }

 private:
  static constexpr std::size_t most_output = std::size_t{64} << 10;

  /// Returns true if the program has ended. Does not reap the process, so no other process gets its number or the
  /// number of its group.
  [[nodiscard]] bool has_program_ended() const {
    siginfo_t ended{};
    return waitid(P_PID, static_cast<id_t>(child_), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ? errno != EINTR
                                                                                              : ended.si_pid != 0;
  }
  /// Returns false at the end of the output.
  bool read_output() {
    char part[4096];
    const ssize_t n = read(output_end_, part, sizeof part);
    if (n > 0) output_.append(part, std::min(static_cast<std::size_t>(n), most_output - output_.size()));
    return n > 0 || (n < 0 && errno == EINTR);
  }

  pid_t child_ = 0;
  int output_end_ = -1, failure_ = 0;
  std::string output_;
};

/// Runs a program and returns its output. Sets `ok` to true if the program ended without failure before the deadline.
/// If a signal ended the program, or it failed without output, the text says so.
inline std::string run_program(const std::vector<std::string>& words, native_clock::time_point deadline, bool& ok) {
  ok = false;
  running_program program(words);
  if (program.failure() != 0) return std::strerror(program.failure());
  if (!program.wait_until(deadline)) {
    program.kill_group();
    static_cast<void>(program.status());
    return "it was ended because it took too long (native_options::most_seconds)\n" + program.output();
  }
  const int status = program.status();
  auto& output = program.output();
  ok = status == -1 || (WIFEXITED(status) && WEXITSTATUS(status) == 0);  // -1: unknown; the loader checks the result
  if (ok) return output;
  if (WIFSIGNALED(status)) return "killed by signal " + std::to_string(WTERMSIG(status)) + '\n' + output;
  return output.empty() ? "it ended with status " + std::to_string(WEXITSTATUS(status)) : output;
}

}  // namespace gspmd::detail
