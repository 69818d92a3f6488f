// SPDX-License-Identifier: Apache-2.0
// Learns to read handwritten digits. The program is in model.hpp, the training loop in train.hpp.
// args: --devices 2x2 --expect 96 --compare

#include "tasks.hpp"

using namespace digits;

constexpr const char* usage =
    "usage: digits [--devices DxM] [--backend threads|simulated|serial] [--epochs N] [--expect PERCENT] [--compare]\n"
    "  --devices DxM      D devices share the batch, M the hidden layer (2x2)\n"
    "  --backend B        one thread per device, or all simulated in one thread, or serial: only one device (threads)\n"
    "  --epochs N         how often every row is used (40)\n"
    "  --expect PERCENT   fail if the test accuracy is less (0)\n"
    "  --compare          then show that serial, threads and simulated agree after 50 steps\n";

int main(int argc, char** argv) {
  return report_errors(usage, [&] {
    const digits::options o = parse(argc, argv);
    if (o.asks_for_help) return help(usage);
    return with_mesh(o.devices.empty() ? o.backend == "serial" ? "1x1" : "2x2" : o.devices,
                     [&]<class Mesh>(std::type_identity<Mesh>) {
                       const digits_data data = read_digits(GSPMD_EXAMPLE_DIR "/digits.csv");
                       const auto run_on = [&](auto backend) {
                         return run_all<Mesh>(o, backend, data, [&](comparison& c) {
                           c.add<Mesh>("threads", threads{}, data);
                           c.add<Mesh>("simulated", simulated{}, data);
                         });
                       };
                       if (o.backend.empty() || o.backend == "threads") return run_on(threads{});
                       if (o.backend == "simulated") return run_on(simulated{});
                       if (o.backend == "serial") return run_on(serial{});
                       throw usage_error("--backend " + o.backend + ": there are threads, simulated and serial");
                     });
  });
}
