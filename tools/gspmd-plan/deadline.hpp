// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <string_view>
#include <utility>

namespace plan_tool {

/// A limit of the process's processor time during the lifetime of this object. If the process exceeds it, it prints
/// these texts and ends with status 1: the planner cannot be stopped in between, and some documents take hours.
class deadline {
 public:
  deadline(int seconds, std::string out, std::string err) {
    said_out = std::move(out);
    said_err = std::move(err);
    struct sigaction action = {};
    action.sa_handler = [](int) {
      say(STDERR_FILENO, said_err);
      say(STDOUT_FILENO, said_out);
      _exit(1);
    };
    sigaction(SIGPROF, &action, &before_);
    set(seconds);
  }
  ~deadline() {
    set(0);
    sigaction(SIGPROF, &before_, nullptr);
  }
  deadline(const deadline&) = delete;
  deadline& operator=(const deadline&) = delete;

 private:
  static void set(int seconds) {
    itimerval time = {};
    time.it_value.tv_sec = seconds;
    setitimer(ITIMER_PROF, &time, nullptr);
  }
  static void say(int to, std::string_view text) {  // called in a signal handler: no stream, no allocation
    while (!text.empty()) {
      const auto n = write(to, text.data(), text.size());
      if (n <= 0) return;
      text.remove_prefix(static_cast<std::size_t>(n));
    }
  }

  static inline std::string said_out, said_err;
  struct sigaction before_ = {};
};

}  // namespace plan_tool
