// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include <cstdio>
#include <string>
#include <utility>

#include "../command_line.hpp"
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

options parse(int argc, char** argv) {
  if (argc < 3) throw command_line::usage_error("a kernel and a class are missing");
  options o;
  const std::string wanted = argv[1], name = argv[2];
  std::string known;
  for (const auto& k : all_kernels) {
    known += std::string(known.empty() ? "" : ", ") + k.name;
    if (wanted == k.name || wanted == "all") o.kernels.emplace_back(k.name);
  }
  if (o.kernels.empty()) throw command_line::usage_error(wanted + ": there is no such kernel; there are " + known + ", and all");
  if (name != "S" && name != "W" && name != "A") throw command_line::usage_error(name + ": the classes are S, W and A");
  o.name = name[0];
  o.is_native = argc > 3 && std::string(argv[3]) == "native";
  if (o.is_native) ++o.read;
  return o;
}

int run_kernels(const options& o, const machine& m) {
  bool passes = true;
  for (const auto& wanted : o.kernels)
    for (const auto& k : all_kernels)
      if (wanted == k.name)
        passes = print(wanted + ' ' + o.name + " on " + std::to_string(m.devices) + (m.devices == 1 ? " device" : " devices"),
                       k.run(o.name, m)) &&
                 passes;
  return passes ? 0 : 1;
}

}  // namespace npb
