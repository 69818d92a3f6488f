// SPDX-License-Identifier: Apache-2.0
// Plans a program document, and runs it. docs/reference/gspmd_plan.md has an example.
// output: gspmd-plan
// package: nlohmann_json
// args: --help
// optimise: -O0
// precompiled: yes

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include <gspmd/program/printable.hpp>

#include "application.hpp"

using namespace plan_tool;

constexpr const char* usage =
    "usage: gspmd-plan FILE [--json] [--run DIR --out DIR] [--backend serial|threads|simulated] [--check]\n"
    "                  [--checked] [--explain VALUE] [--collectives] [--from VALUE] [--to VALUE] [--scope PATH]\n"
    "                  [--all] [--bytes] [--compare OTHER] [--dot FILE] [--svg FILE [--value NAME]]\n"
    "                  [--report most-expensive|summary|outline|memory] [--timeline FILE] [--layers FILE] [--html FILE]\n"
    "                  [--network FILE] [--work N] [--seconds N]\n"
    "                  [--search [--anew] [--devices N] [--plans N] [--annotated FILE]]\n"
    "  --backend B       one device in this thread, a thread for each device, or all devices in one thread (simulated)\n";

int main(int argc, char** argv) {
  options o;
  if (const int done = answer_usage(usage, argc, argv, o, true); done >= 0) return done;
  if (o.backend.empty()) o.backend = "simulated";
  if (o.backend != "serial" && o.backend != "threads" && o.backend != "simulated") {
    std::fprintf(stderr, "--backend %s: there are serial, threads and simulated\n%s", gspmd::printable(o.backend).c_str(), usage);
    return 2;
  }
  surroundings here;
  here.most_devices = o.backend == "threads" ? most_threads : 4096;
  here.is_terminal = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  here.shows_progress = isatty(STDERR_FILENO) != 0;
  here.launch = [&o](const auto& program, const auto& inputs) { return run_on(o.backend, program, inputs); };
  here.agree = [](bool sound) { return sound; };
  return say(run_application(o, here));
}
