// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gspmd/dynamic.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

/// Shared by the kernels: the machine that runs a program, and the facts of a run.
namespace npb {

using gspmd::dynamic::any_array;

/// A program that is ready to run, from whole arrays to whole arrays.
using runner = std::function<std::vector<any_array>(const std::vector<const void*>&)>;

/// The devices, in one row, and a function that prepares programs for them.
struct machine {
  std::int64_t devices = 1;
  std::function<runner(const gspmd::dynamic::program&)> prepare;

  [[nodiscard]] gspmd::dynamic::mesh mesh() const { return gspmd::dynamic::mesh({{"devices", devices}}); }
};

/// A number next to the number that NPB publishes.
struct check {
  std::string what;
  double computed, published, tolerance;  // of the relative error

  [[nodiscard]] double error() const { return std::fabs((computed - published) / (published == 0 ? 1 : published)); }
  [[nodiscard]] bool passes() const { return error() <= tolerance; }  // a NaN does not
};

/// `operations` are counted as in NPB's Mop/s.
struct outcome {
  std::vector<check> checks;
  double seconds = 0, operations = 0;
  std::int64_t bytes = 0, messages = 0;  // sent by one device, according to the plan
};

/// Returns the part of an outcome that the program's plan states.
inline outcome planned(const gspmd::dynamic::program& p) {
  outcome o;
  o.bytes = p.traffic().bytes;
  o.messages = p.traffic().messages;
  return o;
}

/// Returns the seconds of the second of two calls. NPB also runs each kernel once before it measures. All ranks call f equally
/// often, because no rank's clock determines the number of calls.
template <class F>
double seconds_of(F&& f) {
  f();
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace npb
