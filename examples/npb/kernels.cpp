// SPDX-License-Identifier: Apache-2.0
#include <gspmd/native/native_code.hpp>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "../common/check.hpp"
#include "../common/command_line.hpp"
#include "../common/machine.hpp"
#include "cg.hpp"
#include "ep.hpp"
#include "ft.hpp"
#include "is.hpp"
#include "mg.hpp"

namespace npb {

namespace {

struct kernel {
  const char* name;
  outcome (*run)(char, const machine&);
};
constexpr kernel all_kernels[] = {{"ep", ep::run}, {"mg", mg::run}, {"cg", cg::run}, {"is", is::run}, {"ft", ft::run}};

/// Returns a function that prepares programs for the machine. With native code, the compiler reads the headers of
/// gspmd.
std::function<runner(const gspmd::dynamic::program&)> preparing(bool is_native, const examples::machine& machine) {
  return [=](const gspmd::dynamic::program& program) -> runner {
    if (!is_native) return [=](const auto& inputs) { return machine.run(program, inputs); };
    gspmd::dynamic::native_options options;
    options.include = GSPMD_EXAMPLE_DIR "/../../include";
    const gspmd::dynamic::native_code code(program, options);
    if (!code.is_used()) std::printf("no native code: %s\n", code.why_not().c_str());
    return [=](const auto& inputs) { return machine.run_native(code, inputs); };
  };
}

bool print(const std::string& title, const outcome& o) {
  bool passes = true;
  for (const auto& c : o.checks) {
    passes = passes && c.passes();
    std::printf("  %-22s %20.13e  published %20.13e  %s\n", c.what.c_str(), c.computed, c.published,
                c.passes() ? "PASS" : "FAIL");
  }
  std::printf("%s: %s, %.3f s, %.1f Mop/s; a device sends %lld bytes in %lld messages\n", title.c_str(), passes ? "PASS" : "FAIL",
              o.seconds, o.operations / o.seconds / 1e6, static_cast<long long>(o.bytes), static_cast<long long>(o.messages));
  std::fflush(stdout);
  return passes;
}

}  // namespace

/// Runs the kernels of the command line, and prints their results next to the published results. Returns 0 if all
/// numbers are right, else 1.
int run(int argc, char** argv, const examples::machine& machine) {
  std::string wanted = "all", class_name = "S";
  bool is_native = false;
  std::vector<std::int64_t> devices{1};
  std::vector<std::string> names{"all"};
  for (const auto& k : all_kernels) names.emplace_back(k.name);
  examples::command_line line("npb", "Runs kernels of the NAS Parallel Benchmarks, and verifies them by the published numbers.");
  line.word("KERNEL", wanted, names, "a kernel by its two letters, or all")
      .word("--class", class_name, {"S", "W", "A"}, "size of the problem")
      .flag("--native", is_native, "compile the loops with the system's compiler when the program starts");
  if (machine.processes == 0)
    line.option("--devices", devices, 1, 64, "numbers of devices, each a thread; one run for each (default 1)");
  line.parse(argc, argv);
  if (machine.processes > 0) devices = {machine.processes};
  bool passes = true;
  for (const auto count : devices) {
    const npb::machine m{count, preparing(is_native, machine)};
    for (const auto& k : all_kernels)
      if (wanted == "all" || wanted == k.name)
        passes =
            print(std::string(k.name) + ' ' + class_name + " on " + std::to_string(count) + (count == 1 ? " device" : " devices"),
                  k.run(class_name[0], m)) &&
            passes;
  }
  return examples::check("all numbers equal the published numbers within NPB's tolerances", passes) ? 0 : 1;
}

}  // namespace npb
