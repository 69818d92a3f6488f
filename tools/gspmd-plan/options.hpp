// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace plan_tool {

/// A mistake on the command line.
struct usage_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The limits of planning and of a search, in units of work.
inline constexpr std::int64_t default_work = 1'500'000, default_work_of_search = 50'000'000;

struct options {
  std::string file;
  bool json = false;
  std::string run;      // directory of the inputs
  std::string out;      // directory of the outputs
  std::string backend;  // empty: the program chooses
  bool check = false;
  bool checked = false;  // devices compare data that must be equal on all devices
  std::string explain;
  std::string dot;
  std::string svg;
  std::string value;
  std::string report;    // the name of a report, as --help lists it
  std::string timeline;  // files
  std::string layers;
  std::string html;
  std::string network;
  std::string compare;   // another document
  std::string from, to;  // values
  std::string scope;     // a part of the program
  bool collectives = false;
  bool all = false;            // equal layers are not folded
  bool bytes = false;          // exact numbers
  std::int64_t work = 0;       // of planning; 0: not specified
  int seconds = 0;             // 0: not specified
  bool search = false;         // for annotations
  bool anew = false;           // without the annotations of the document
  int devices = 0, plans = 0;  // 0: not specified
  std::string annotated;       // the file for the document with the found annotations
  bool asks_for_help = false;
  bool asks_for_version = false;
};

template <class Number>
void set_number(Number& member, const std::string& option, const std::string& value) {
  if (member != 0) throw usage_error(option + " occurs twice");
  const std::string most(sizeof(Number) > 4 ? 12 : 6, '9');
  const bool is_number =
      !value.empty() && value.size() <= most.size() && value.find_first_not_of("0123456789") == std::string::npos;
  if (!is_number || std::stoll(value) == 0) throw usage_error(option + " needs a whole number from 1 to " + most);
  member = static_cast<Number>(std::stoll(value));
}

inline options parse(int argc, char** argv) {
  options o;
  const auto set = [](std::string& member, const std::string& option, const std::string& value) {
    if (!member.empty()) throw usage_error(option + " occurs twice");
    if (value.empty()) throw usage_error(option + " needs a value");
    member = value;
  };
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const auto next = [&]() -> std::string {
      if (i + 1 == argc) throw usage_error(option + " needs a value");
      return argv[++i];
    };
    if (option == "--json") o.json = true;
    else if (option == "--check") o.check = true;
    else if (option == "--checked") o.checked = true;
    else if (option == "--help" || option == "-h") o.asks_for_help = true;
    else if (option == "--version") o.asks_for_version = true;
    else if (option == "--run") set(o.run, option, next());
    else if (option == "--out") set(o.out, option, next());
    else if (option == "--backend") set(o.backend, option, next());
    else if (option == "--explain") set(o.explain, option, next());
    else if (option == "--dot") set(o.dot, option, next());
    else if (option == "--svg") set(o.svg, option, next());
    else if (option == "--report") set(o.report, option, next());
    else if (option == "--timeline") set(o.timeline, option, next());
    else if (option == "--layers") set(o.layers, option, next());
    else if (option == "--html") set(o.html, option, next());
    else if (option == "--network") set(o.network, option, next());
    else if (option == "--compare") set(o.compare, option, next());
    else if (option == "--from") set(o.from, option, next());
    else if (option == "--to") set(o.to, option, next());
    else if (option == "--scope") set(o.scope, option, next());
    else if (option == "--collectives") o.collectives = true;
    else if (option == "--all") o.all = true;
    else if (option == "--bytes") o.bytes = true;
    else if (option == "--value") set(o.value, option, next());
    else if (option == "--work") set_number(o.work, option, next());
    else if (option == "--seconds") set_number(o.seconds, option, next());
    else if (option == "--search") o.search = true;
    else if (option == "--anew") o.anew = true;
    else if (option == "--devices") set_number(o.devices, option, next());
    else if (option == "--plans") set_number(o.plans, option, next());
    else if (option == "--annotated") set(o.annotated, option, next());
    else if (option.size() > 1 && option[0] == '-') throw usage_error("unknown option " + option);
    else if (!o.file.empty()) throw usage_error("one FILE, and there are " + o.file + " and " + option);
    else set(o.file, "FILE", option);
  }
  if (o.asks_for_help || o.asks_for_version) return o;
  if (o.file.empty()) throw usage_error("FILE is missing");
  if (!o.run.empty() && o.out.empty() && !o.check) throw usage_error("--run needs --out DIR for the outputs, or --check");
  if (!o.out.empty() && o.run.empty()) throw usage_error("--out needs --run DIR with the inputs");
  if (o.checked && o.run.empty() && !o.check) throw usage_error("--checked is about a run; it needs --run or --check");
  if (!o.report.empty() && o.report != "most-expensive" && o.report != "summary" && o.report != "outline" && o.report != "memory")
    throw usage_error("--report is one of most-expensive, summary, outline and memory, not " + o.report);
  if (!o.report.empty() && (o.json || !o.explain.empty()))
    throw usage_error("--report replaces the table, as --json and --explain do");
  if (!o.compare.empty() && (o.json || !o.explain.empty() || !o.report.empty()))
    throw usage_error("--compare replaces the table, as --json, --explain and --report do");
  if ((o.collectives || !o.from.empty() || !o.to.empty()) &&
      (o.json || !o.explain.empty() || !o.report.empty() || !o.compare.empty()))
    throw usage_error("--collectives, --from and --to select rows of the table, and there is no table");
  if (o.all && (o.json || !o.explain.empty() || !o.report.empty() || !o.compare.empty()))
    throw usage_error("--all shows every row of the table, and there is no table");
  if (!o.scope.empty() && (o.json || !o.explain.empty() || !o.compare.empty()))
    throw usage_error(
        "--scope selects a part of the table, --report, --timeline, --layers and --html, and no such output is requested");
  if (!o.scope.empty() && o.report == "memory")
    throw usage_error("--report memory is of the whole program, and not of a --scope");
  if (!o.search && (o.anew || o.devices != 0 || o.plans != 0 || !o.annotated.empty()))
    throw usage_error("--anew, --devices, --plans and --annotated are about a search, and there is no --search");
  if (o.search && (o.json || !o.explain.empty() || !o.report.empty() || !o.compare.empty() || o.collectives || !o.from.empty() ||
                   !o.to.empty() || !o.scope.empty()))
    throw usage_error("--search prints its result instead of the table; --annotated FILE writes a document for other options");
  if (!o.value.empty() && o.svg.empty()) throw usage_error("--value says what --svg draws, and there is no --svg");
  return o;
}

}  // namespace plan_tool
