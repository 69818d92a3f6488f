// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

/// Functions that the examples share.
namespace examples {

/// A mistake on the command line: one sentence. `run_main` prints it and returns 2.
struct usage_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The options of an example. CLI11 parses them, and prints `--help` with the default of each option.
class command_line {
 public:
  /// `about` is one sentence on the program.
  command_line(const char* program, const char* about);
  ~command_line();

  /// A number from `least` to `most`. The variable holds the default.
  command_line& option(const char* name, std::int64_t& number, std::int64_t least, std::int64_t most, const char* about);
  command_line& option(const char* name, int& number, int least, int most, const char* about);
  command_line& option(const char* name, double& number, double least, double most, const char* about);
  /// One or more numbers.
  command_line& option(const char* name, std::vector<std::int64_t>& numbers, std::int64_t least, std::int64_t most,
                       const char* about);
  /// An extent for each of `least_dims` to `most_dims` dims: 240x320. The variable holds the default, which may be
  /// empty.
  command_line& extents(const char* name, std::vector<std::int64_t>& extents, std::size_t least_dims, std::size_t most_dims,
                        std::int64_t most, const char* about);
  /// A word. If `choices` is not empty, one of its words. A name without dashes is an argument by position; it is
  /// required if the variable has no default.
  command_line& word(const char* name, std::string& word, const std::vector<std::string>& choices, const char* about);
  /// A folder or a file. If `must_exist` is true, a file that exists.
  command_line& path(const char* name, std::filesystem::path& path, const char* about, bool must_exist = false);
  command_line& flag(const char* name, bool& is_set, const char* about);

  /// Parses the command line. Throws help_printed after `--help`, and usage_error after a mistake.
  void parse(int argc, char** argv);

 private:
  struct library;
  std::unique_ptr<library> library_;
};

/// Thrown after `--help`. `run_main` returns 0.
struct help_printed {};

/// Parses a command line without options.
void no_options(int argc, char** argv, const char* program, const char* about);

/// Calls the body of main, and returns its status. Prints the text of an exception on stderr. Returns 2 for a
/// usage_error, and 1 for other exceptions.
int run_main(const std::function<int()>& body);

/// Returns true on threads, and on rank 0 over MPI. Only this process prints and writes files.
bool is_first_process();
/// Sets the result of is_first_process. If it is false, this process prints nothing on stdout from now on.
void set_first_process(bool is_first);

}  // namespace examples
