// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <unistd.h>

#include "backends.hpp"
#include "npy.hpp"
#include "planned.hpp"

/// Runs a planned document on whole arrays.
namespace plan_tool {

inline std::string file_of(const std::string& directory, const std::string& name) {
  return (std::filesystem::path(directory) / (name + ".npy")).string();
}
/// Returns false if a name cannot be a file name: it would denote a file outside of the directory.
inline bool is_file_name(const std::string& name) { return name.find('/') == std::string::npos; }

/// Reads DIRECTORY/NAME.npy for every input. Adds mistakes in the files to `errors`.
inline std::vector<any_array> read_inputs(const planned_program& p, const std::string& directory, error_list& errors) {
  std::vector<any_array> arrays;
  for (const int v : p.built.inputs) {
    const auto& value = p.value(v);
    arrays.push_back({});
    if (!is_file_name(value.name)) {
      errors.add("--run", "the input " + in_quotes(value.name) + " has a name that no file can have");
      continue;
    }
    const auto file = file_of(directory, value.name);
    try {
      arrays.back() = npy::read(file);
      const auto& a = arrays.back();
      if (a.type != value.type || a.shape != value.shape)
        errors.add(file, std::string("is ") + gspmd::name_of(a.type) + ' ' + shape_text(a.shape) + " and the input " +
                             in_quotes(value.name) + " is " + gspmd::name_of(value.type) + ' ' + shape_text(value.shape));
    } catch (const std::exception& e) {
      errors.add(file, e.what());
    }
  }
  return arrays;
}

inline void write_outputs(const planned_program& p, const std::vector<any_array>& arrays, const std::string& directory,
                          error_list& errors, std::vector<std::string>& written) {
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  if (failed) return errors.add(directory, "cannot be made: " + failed.message());
  for (std::size_t k = 0; k < arrays.size(); ++k) {
    const auto& value = p.value(p.built.outputs[k]);
    if (!is_file_name(value.name)) {
      errors.add("--out", "the output " + in_quotes(value.name) + " has a name that no file can have");
      continue;
    }
    const auto file = file_of(directory, value.name);
    try {
      npy::write(file, arrays[k]);
      written.push_back("wrote " + file + ": " + gspmd::name_of(value.type) + ' ' + shape_text(value.shape));
    } catch (const std::exception& e) {
      errors.add(file, e.what());
    }
  }
}

inline std::int64_t elements_of(const integer_list& shape) {
  std::int64_t n = 1;
  for (const auto e : shape) n *= e;
  return n;
}

/// Returns small integers, the same every time, for a program without data.
inline std::vector<any_array> made_inputs(const planned_program& p) {
  std::vector<any_array> arrays;
  std::uint32_t state = 1;
  for (const int v : p.built.inputs) {
    const auto& value = p.value(v);
    any_array a{value.type, value.shape, {}};
    const auto count = elements_of(value.shape);
    a.bytes.resize(static_cast<std::size_t>(count * gspmd::bytes_of(value.type)));
    gspmd::with_real_type(gspmd::part_of(value.type), [&](auto element) {
      using T = decltype(element);
      auto* data = reinterpret_cast<T*>(a.bytes.data());
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(a.bytes.size() / sizeof(T)); ++i) {
        state = state * 1664525u + 1013904223u;
        const int n = static_cast<int>(state >> 28) - 8;
        if constexpr (std::is_same_v<T, bool>) data[i] = n < 0;
        else if constexpr (std::is_integral_v<T>) data[i] = static_cast<T>(n);
        else data[i] = static_cast<T>(static_cast<float>(n) / 4);
      }
    });
    arrays.push_back(std::move(a));
  }
  return arrays;
}

/// Returns the reason if a program cannot be run here: too many devices or too little memory. Otherwise returns an
/// empty text.
inline std::string cannot_run(const planned_program& p, std::int64_t devices_here, std::int64_t most_devices,
                              const std::string& backend) {
  if (devices_here > most_devices)
    return "the mesh has " + std::to_string(devices_here) + " devices; " + backend + " runs at most " +
           std::to_string(most_devices);
  long double bytes = static_cast<long double>(p.program().peak_bytes_per_device()) * static_cast<long double>(devices_here);
  for (const auto* list : {&p.built.inputs, &p.built.outputs})
    for (const int v : *list)
      bytes +=
          static_cast<long double>(elements_of(p.value(v).shape)) * static_cast<long double>(gspmd::bytes_of(p.value(v).type));
  const auto there = static_cast<long double>(sysconf(_SC_PHYS_PAGES)) * static_cast<long double>(sysconf(_SC_PAGE_SIZE));
  if (bytes <= there) return {};
  return "a run would take " + std::to_string(static_cast<std::int64_t>(bytes / 0x1p30L) + 1) + " GiB and this machine has " +
         std::to_string(static_cast<std::int64_t>(there / 0x1p30L));
}

/// Returns the difference of two arrays as a line. Sets `agree` to whether rounding explains the difference.
inline std::string comparison(const any_array& a, const any_array& b, bool& agree) {
  if (a.bytes == b.bytes) return "equal to the bit";
  std::string line;
  gspmd::with_real_type(gspmd::part_of(a.type), [&](auto element) {
    using T = decltype(element);
    if constexpr (!std::is_integral_v<T>) {
      const auto* x = reinterpret_cast<const T*>(a.bytes.data());
      const auto* y = reinterpret_cast<const T*>(b.bytes.data());
      const auto count = a.bytes.size() / sizeof(T);
      double largest = 0, difference = 0;
      for (std::size_t i = 0; i < count; ++i)
        if (std::isfinite(y[i])) largest = std::max(largest, std::abs(static_cast<double>(y[i])));
      for (std::size_t i = 0; i < count; ++i) {
        if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
        const double d = std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
        difference = std::isfinite(d) ? std::max(difference, d) : HUGE_VAL;
      }
      agree = agree && difference <= largest * (sizeof(T) == 2 ? 0.03 : sizeof(T) == 4 ? 1e-4 : 1e-10);
      char text[80];
      std::snprintf(text, sizeof text, "differs by at most %.3g where the largest is %.3g", difference, largest);
      line = text;
    } else {
      agree = false;
      std::size_t i = 0;
      while (a.bytes[i] == b.bytes[i]) ++i;
      line = "differs, first at element " + std::to_string(i / sizeof(T));
    }
  });
  return line;
}

}  // namespace plan_tool
