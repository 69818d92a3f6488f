// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

/// Functions for the examples with options.
namespace command_line {

/// A mistake on the command line.
struct usage_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Returns the number that the command line gives for an option.
template <class Number>
Number number(const std::string& option, std::string_view text, Number least, Number most) {
  Number result{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), result);
  if (problem != std::errc{} || end != text.data() + text.size() || !(result >= least) || !(result <= most))
    throw usage_error(option + ' ' + std::string(text) + ": not a number from " + std::to_string(least) + " to " +
                      std::to_string(most));
  return result;
}

/// Calls `body` and returns its status. After a wrong command line returns 2, and prints the text and the usage if `prints`.
template <class F>
int report_usage_errors(const char* usage, bool prints, F&& body) {
  try {
    return body();
  } catch (const usage_error& mistake) {
    if (prints) std::fprintf(stderr, "%s\n%s", mistake.what(), usage);
    return 2;
  }
}

/// Calls the body of main. Prints errors on stderr. Returns 2 for errors of the command line and 1 for all other
/// errors.
template <class F>
int report_errors(const char* usage, F&& body) {
  try {
    return report_usage_errors(usage, true, body);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "\n%s\n", failure.what());
    return 1;
  }
}

}  // namespace command_line
