// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gspmd/dynamic.hpp>

/// Runs a plan. Each backend has an interpreter and kernels, which are most of the code to compile. So they are in
/// separate translation units: backends.cpp and, with MPI, mpi_main.cpp.
namespace plan_tool {

using gspmd::dynamic::any_array;

/// Runs a program on whole arrays and returns its outputs. Throws gspmd::error.
using launcher = std::function<std::vector<any_array>(const gspmd::dynamic::program&, const std::vector<const void*>&)>;

inline constexpr std::int64_t most_threads = 1024;

/// `backend` is serial, threads or simulated.
std::vector<any_array> run_on(const std::string& backend, const gspmd::dynamic::program& program,
                              const std::vector<const void*>& inputs);

inline std::vector<const void*> pointers_to(const std::vector<any_array>& arrays) {
  std::vector<const void*> pointers;
  for (const auto& a : arrays) pointers.push_back(a.bytes.data());
  return pointers;
}

}  // namespace plan_tool
