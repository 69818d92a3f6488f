// SPDX-License-Identifier: Apache-2.0
#include "command_line.hpp"

#include <CLI/CLI.hpp>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace examples {
namespace {

bool is_first = true;

std::string joined(const std::vector<std::int64_t>& extents) {
  std::string text;
  for (const auto extent : extents) text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text;
}

/// Reads 240x320. Returns an empty list if the text is no list of extents from 1 to `most`.
std::vector<std::int64_t> extents_of(const std::string& text, std::int64_t most) {
  std::vector<std::int64_t> result;
  const char* begin = text.data();
  const char* const end = begin + text.size();
  while (true) {
    std::int64_t extent = 0;
    const auto [next, problem] = std::from_chars(begin, end, extent);
    if (problem != std::errc{} || extent < 1 || extent > most || (next != end && *next != 'x')) return {};
    result.push_back(extent);
    if (next == end) break;
    begin = next + 1;
  }
  return result;
}

}  // namespace

struct command_line::library {
  CLI::App app;
  std::vector<std::function<void()>> after;  // conversions of parsed words
  std::vector<std::unique_ptr<std::string>> words;

  template <class T>
  CLI::Option* add(const char* name, T& variable, const std::string& about) {
    auto* const option = app.add_option(name, variable, about);
    if constexpr (!requires { variable.empty(); }) option->capture_default_str();
    return option;
  }
  template <class Numbers, class T>
  void add_number(const char* name, Numbers& number, T least, T most, const char* about) {
    CLI::Range range(least, most);
    range.description("");  // otherwise `--help` prints the range between the name and the default
    add(name, number, about)->type_name("N")->check(range);
  }
};

command_line::command_line(const char* program, const char* about) : library_(std::make_unique<library>()) {
  library_->app.name(program);
  library_->app.description(about);
  library_->app.get_formatter()->column_width(32);
}
command_line::~command_line() = default;

command_line& command_line::option(const char* name, std::int64_t& number, std::int64_t least, std::int64_t most,
                                   const char* about) {
  library_->add_number(name, number, least, most, about);
  return *this;
}
command_line& command_line::option(const char* name, int& number, int least, int most, const char* about) {
  library_->add_number(name, number, least, most, about);
  return *this;
}
command_line& command_line::option(const char* name, double& number, double least, double most, const char* about) {
  library_->add_number(name, number, least, most, about);
  return *this;
}
command_line& command_line::option(const char* name, std::vector<std::int64_t>& numbers, std::int64_t least, std::int64_t most,
                                   const char* about) {
  library_->add_number(name, numbers, least, most, about);
  return *this;
}

command_line& command_line::extents(const char* name, std::vector<std::int64_t>& extents, std::size_t least_dims,
                                    std::size_t most_dims, std::int64_t most, const char* about) {
  auto& text = *library_->words.emplace_back(std::make_unique<std::string>(joined(extents)));
  auto* const option = library_->app.add_option(name, text, about)->type_name("NxM");
  if (!text.empty()) option->capture_default_str();
  option->check([=](const std::string& word) {
    const auto dims = extents_of(word, most).size();
    if (dims >= least_dims && dims <= most_dims) return std::string();
    return word + " is not " + std::to_string(least_dims) + (least_dims == most_dims ? "" : " to " + std::to_string(most_dims)) +
           " numbers from 1 to " + std::to_string(most) + " with x between them";
  });
  library_->after.emplace_back([&text, &extents, most] {
    if (!text.empty()) extents = extents_of(text, most);
  });
  return *this;
}

command_line& command_line::word(const char* name, std::string& word, const std::vector<std::string>& choices,
                                 const char* about) {
  auto* const option = library_->app.add_option(name, word, about);
  if (!word.empty()) option->capture_default_str();
  if (name[0] != '-' && word.empty()) option->required();
  if (choices.empty()) return option->type_name("WORD"), *this;
  CLI::IsMember one_of(choices);
  std::string list;
  for (const auto& choice : choices) list += (list.empty() ? "" : "|") + choice;
  one_of.description("");
  option->type_name(list)->check(one_of);
  return *this;
}

command_line& command_line::path(const char* name, std::filesystem::path& path, const char* about, bool must_exist) {
  auto& text = *library_->words.emplace_back(std::make_unique<std::string>(path.string()));
  auto* const option = library_->app.add_option(name, text, about)->type_name(must_exist ? "FILE" : "PATH");
  if (!must_exist && !text.empty()) option->capture_default_str();
  if (must_exist)
    option->check([](const std::string& file) {
      return std::filesystem::is_regular_file(file) ? std::string() : "the file " + file + " does not exist";
    });
  library_->after.emplace_back([&text, &path] { path = text; });
  return *this;
}

command_line& command_line::flag(const char* name, bool& is_set, const char* about) {
  library_->app.add_flag(name, is_set, about);
  return *this;
}

void command_line::parse(int argc, char** argv) {
  try {
    library_->app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(library_->app.help().c_str(), stdout);
    throw help_printed();
  } catch (const CLI::ParseError& mistake) {
    throw usage_error(library_->app.get_name() + ": " + mistake.what() + "; --help lists the options");
  }
  for (const auto& convert : library_->after) convert();
}

void no_options(int argc, char** argv, const char* program, const char* about) { command_line(program, about).parse(argc, argv); }

int run_main(const std::function<int()>& body) {
  try {
    return body();
  } catch (const help_printed&) {
    return 0;
  } catch (const usage_error& mistake) {
    if (is_first) std::fprintf(stderr, "%s\n", mistake.what());
    return 2;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
}

bool is_first_process() { return is_first; }
void set_first_process(bool value) {
  is_first = value;
  if (!is_first && std::freopen("/dev/null", "w", stdout) == nullptr) std::abort();
}

}  // namespace examples
