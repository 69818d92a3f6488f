// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "command_line.hpp"

namespace examples {

progress::progress(std::string unit, double points)
    : unit_(std::move(unit)), points_(points), is_shown_(is_first_process() && ::isatty(STDERR_FILENO) != 0) {}

progress::~progress() {
  if (has_line_) std::fputs("\r\033[K", stderr);
}

void progress::show(int done, int total) {
  if (!is_shown_ || done == 0) return;
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin_;
  const double seconds = std::max(time.count(), 1e-9);
  std::fprintf(stderr, "\r\033[K%s %d of %d, %.1f s, %.3g million points/s", unit_.c_str(), done, total, seconds,
               points_ * done / seconds * 1e-6);
  has_line_ = done < total;
  if (has_line_) std::fprintf(stderr, ", about %.1f s left", seconds * (total - done) / done);
  else std::fputc('\n', stderr);
  std::fflush(stderr);
}

}  // namespace examples
