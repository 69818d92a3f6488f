// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gspmd/dynamic.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

/// Shared by the kernels: where a program runs, and the facts of a run.
namespace npb {

using gspmd::dynamic::any_array;

/// A program, made ready to run: whole arrays in, whole arrays out.
using runner = std::function<std::vector<any_array>(const std::vector<const void*>&)>;

/// The devices, in one row, and what makes a program ready to run on them.
struct machine {
  std::int64_t devices = 1;
  std::function<runner(const gspmd::dynamic::program&)> prepare;

  [[nodiscard]] gspmd::dynamic::mesh mesh() const { return gspmd::dynamic::mesh({{"devices", devices}}); }
};

/// A number beside the one that NPB publishes.
struct check {
  std::string what;
  double computed, published, tolerance;  // of the relative error

  [[nodiscard]] double error() const { return std::fabs((computed - published) / (published == 0 ? 1 : published)); }
  [[nodiscard]] bool passes() const { return error() <= tolerance; }  // a NaN does not
};

/// `operations` as NPB counts them for its Mop/s.
struct outcome {
  std::vector<check> checks;
  double seconds = 0, operations = 0;
  std::int64_t bytes = 0, messages = 0;  // that one device sends, by the plan
};

/// The part of an outcome that the plan of a program knows.
inline outcome planned(const gspmd::dynamic::program& p) {
  outcome o;
  o.bytes = p.traffic().bytes;
  o.messages = p.traffic().messages;
  return o;
}

/// The seconds of the second of two calls, as NPB goes through each kernel before it looks at the clock. No rank's clock decides how often
/// it runs, since all ranks run a program equally often.
template <class F>
double seconds_of(F&& f) {
  f();
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace npb
