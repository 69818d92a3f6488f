// SPDX-License-Identifier: Apache-2.0
// Runs two implementations of the same work alternately and compares their times.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
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
inline std::string bytes_text(long long bytes) {
  if (bytes >= 1 << 20) return std::to_string(bytes >> 20) + " MiB";
  return bytes >= 1 << 10 ? std::to_string(bytes >> 10) + " KiB" : std::to_string(bytes) + " bytes";
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

/// Prints one row of a comparison: two medians, and the median and the middle half of the ratios. Returns the median
/// ratio. If the environment variable GSPMD_BENCH_ROWS names a file, also appends the row to it, as a line of JSON for
/// bench/report. `row` and `other` contain no quotes.
inline double print_row(const std::string& row, const char* unit, double ours, const char* other, double theirs,
                        const std::vector<double>& ratios) {
  const double ratio = quantile(ratios, 0.5), low = quantile(ratios, 0.25), high = quantile(ratios, 0.75);
  std::printf("%-56s %9.3f %s  %s %9.3f %s  %5.2f (%.2f-%.2f)\n", row.c_str(), ours, unit, other, theirs, unit, ratio, low, high);
  std::fflush(stdout);
  if (const char* const path = std::getenv("GSPMD_BENCH_ROWS"))
    if (std::FILE* const file = std::fopen(path, "a")) {
      std::fprintf(
          file,
          R"({"row": "%s", "unit": "%s", "gspmd": %.6g, "other": "%s", "time": %.6g, "ratio": [%.4g, %.4g, %.4g], "rounds": %zu})"
          "\n",
          row.c_str(), unit, ours, other, theirs, ratio, low, high, ratios.size());
      std::fclose(file);
    }
  return ratio;
}

/// Milliseconds of the library and of other code for the same work, round by round.
struct race_times {
  std::vector<double> ours, by_hand;

  void add(double our_ms, double other_ms) {
    ours.push_back(our_ms);
    by_hand.push_back(other_ms);
  }
  /// `other`: the name of the other code.
  double print(const std::string& row, const char* other = "hand-written") const {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < ours.size(); ++i) ratios.push_back(ours[i] / by_hand[i]);
    const double our_ms = quantile(ours, 0.5), other_ms = quantile(by_hand, 0.5);
    if (std::min(our_ms, other_ms) >= 1) return print_row(row, "ms", our_ms, other, other_ms, ratios);
    return print_row(row, "us", 1000 * our_ms, other, 1000 * other_ms, ratios);
  }
  /// The same, for a row whose median ratio must be at most `target`.
  void print(const std::string& row, double target, const char* other = "hand-written") const {
    all_targets.add(row, print(row, other), target);
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
    if (round >= 0) t.add(middle - start, end - again);
  }
  return t;
}

}  // namespace bench
