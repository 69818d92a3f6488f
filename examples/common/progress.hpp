// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

namespace examples {

/// A line on stderr that shows the progress of a computation: its time, its rate, and an estimate of the remaining
/// time. Prints nothing if stderr is not a terminal.
class progress {
 public:
  /// A unit, for example a frame, computes `points` points.
  progress(std::string unit, double points);
  /// Removes the line of an unfinished computation.
  ~progress();
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;
  /// Shows that `done` of `total` units are done. Ends the line if all are done.
  void show(int done, int total);

 private:
  std::string unit_;
  double points_;
  bool is_shown_, has_line_ = false;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace examples
