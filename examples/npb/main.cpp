// SPDX-License-Identifier: Apache-2.0
// The NAS Parallel Benchmarks in the global view, on threads: npb ep S threads 4
// args: all S threads 2 4
// precompiled: yes

#include "kernels.hpp"

#include "../command_line.hpp"

constexpr const char* usage =
    "usage: npb KERNEL CLASS [native] [threads N...]\n"
    "  KERNEL       its two letters, ep say, or all\n"
    "  CLASS        S, W or A\n"
    "  native       loops are made by the system's compiler, and kept\n"
    "  threads N    on N devices, 1 to 64; several numbers: one after the other (1)\n";

int main(int argc, char** argv) {
  return command_line::report_errors(usage, [&] {
    auto o = npb::parse(argc, argv);
    if (argc > o.read && std::string(argv[o.read]) != "threads")
      throw command_line::usage_error(std::string(argv[o.read]) + ": there is native, and threads");
    for (int i = o.read + 1; i < argc; ++i) o.devices.push_back(command_line::number<std::int64_t>("threads", argv[i], 1, 64));
    if (o.devices.empty()) o.devices = {1};
    int status = 0;
    for (const auto devices : o.devices) {
      const npb::machine m{
          devices, npb::preparing(o.is_native, GSPMD_EXAMPLE_DIR "/../../include",
                                  [](const auto& program, const auto& inputs) { return program.run(gspmd::threads{}, inputs); })};
      status |= npb::run_kernels(o, m);
    }
    return status;
  });
}
