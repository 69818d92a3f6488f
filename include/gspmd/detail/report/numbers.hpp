// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>

#include "gspmd/detail/support/language.hpp"

/// Bytes, flops and times as reports print them.
namespace gspmd {

/// The form of the numbers in reports: three significant digits (`44.1 MB`, `15.1 GFLOP`, `810 us`), or every digit.
enum class number_form : std::uint8_t { rounded, exact };

namespace detail {

/// Returns a short time text: `1.5 ms`, `0.35 ns`.
[[gnu::cold]] inline std::string short_time(double seconds) {
  constexpr const char* units[] = {"s", "ms", "us", "ns", "ps"};
  if (seconds <= 0) return "0 s";
  std::size_t unit = 0;
  for (; unit + 1 < std::size(units) && seconds < 0.9995; ++unit) seconds *= 1000;
  char digits[40];
  std::snprintf(digits, sizeof digits, seconds < 999.5 ? "%.3g %s" : "%.0f %s", seconds, units[unit]);
  return digits;
}
/// Returns a time with three decimals, so that two similar times differ: `34.603 us`.
[[gnu::cold]] inline std::string exact_time(double seconds) {
  char text[40];
  const char* const unit = seconds >= 1 ? "s" : seconds >= 1e-3 ? "ms" : "us";
  std::snprintf(text, sizeof text, "%.3f %s", seconds * (seconds >= 1 ? 1 : seconds >= 1e-3 ? 1e3 : 1e6), unit);
  return text;
}
/// Returns `44.1 M`, with three significant digits. Numbers below 1,000 are exact: `896 `.
[[gnu::cold]] inline std::string with_prefix(std::int64_t n) {
  constexpr const char* prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  if (n < 1000) return std::to_string(n) + ' ';
  auto number = static_cast<double>(n);
  std::size_t prefix = 0;
  for (; prefix + 1 < std::size(prefixes) && number >= 999.5; ++prefix) number /= 1000;
  char digits[40];
  std::snprintf(digits, sizeof digits, "%.*f %s", number < 9.995 ? 2 : number < 99.95 ? 1 : 0, number, prefixes[prefix]);
  return digits;
}

}  // namespace detail

/// Returns `44.1 MB`, `896 bytes`, or exactly `44100000 bytes`. One MB is 1,000,000 bytes.
[[gnu::cold]] inline std::string format_bytes(std::int64_t n, number_form form = number_form::rounded) {
  if (n == 1) return "1 byte";
  return form == number_form::exact || n < 1000 ? std::to_string(n) + " bytes" : detail::with_prefix(n) + 'B';
}
/// Returns `15.1 GFLOP`, `250 FLOP`, or exactly `15100000000 FLOP`.
[[gnu::cold]] inline std::string format_flops(std::int64_t n, number_form form = number_form::rounded) {
  return form == number_form::exact ? std::to_string(n) + " FLOP" : detail::with_prefix(n) + "FLOP";
}
/// Returns `810 us`, or `809.876 us` with number_form::exact.
[[gnu::cold]] inline std::string format_time(double seconds, number_form form = number_form::rounded) {
  return form == number_form::exact ? detail::exact_time(seconds) : detail::short_time(seconds);
}

namespace detail {

/// The numbers of one report.
struct number_format {
  number_form form = number_form::rounded;
  [[nodiscard, gnu::cold]] std::string bytes(std::int64_t n) const { return format_bytes(n, form); }
  [[nodiscard, gnu::cold]] std::string flops(std::int64_t n) const { return format_flops(n, form); }
  [[nodiscard, gnu::cold]] std::string time(double seconds) const { return format_time(seconds, form); }
};

}  // namespace detail
}  // namespace gspmd
