// SPDX-License-Identifier: Apache-2.0
// Runs two implementations of the same work alternately and compares their times.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

namespace bench {

inline double quantile(std::vector<double> v, double q) {
  std::sort(v.begin(), v.end());
  return v[static_cast<std::size_t>(q * static_cast<double>(v.size() - 1) + 0.5)];
}
inline double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
/// Returns the processor time of this thread. Other processes of the machine change it less than elapsed time.
inline double thread_ms() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

/// The rows of a program whose ratio of times is above its target.
class targets {
 public:
  /// `ratio`: the median of a row.
  void add(const std::string& name, double ratio, double target) {
    ++rows_;
    if (!(ratio <= target)) above_.push_back({name, ratio, target});
  }
  /// Call it at the end of a program.
  void print() const {
    std::printf("%zu of %zu rows above their target%s\n", above_.size(), rows_, above_.empty() ? "" : ":");
    for (const auto& r : above_) std::printf("  %-56s %.2f, target %.2f\n", r.name.c_str(), r.ratio, r.target);
  }

 private:
  struct missed {
    std::string name;
    double ratio, target;
  };
  std::vector<missed> above_;
  std::size_t rows_ = 0;
};
inline targets all_targets;

/// Times of the library and of hand-written code, round by round.
struct race_times {
  std::vector<double> ours, by_hand;

  void print(const std::string& row, double target, const char* other = "by hand") const {
    std::vector<double> ratio;
    for (std::size_t i = 0; i < ours.size(); ++i) ratio.push_back(ours[i] / by_hand[i]);
    const auto median = quantile(ratio, 0.5);
    std::printf("%-56s %9.3f ms  %s %9.3f ms  %5.2f (%.2f-%.2f)\n", row.c_str(), quantile(ours, 0.5), other,
                quantile(by_hand, 0.5), median, quantile(ratio, 0.25), quantile(ratio, 0.75));
    all_targets.add(row, median, target);
  }
};
/// Calls both alternately, with `meet` in between. The first rounds are not stored.
template <class Ours, class ByHand, class Meet>
race_times race_in_turns(int rounds, Ours ours, ByHand by_hand, Meet meet) {
  race_times t;
  for (int round = -2; round < rounds; ++round) {
    meet();
    const double start = thread_ms();
    ours();
    const double middle = thread_ms();
    meet();
    const double again = thread_ms();
    by_hand();
    const double end = thread_ms();
    if (round < 0) continue;
    t.ours.push_back(middle - start);
    t.by_hand.push_back(end - again);
  }
  return t;
}

}  // namespace bench
