// SPDX-License-Identifier: Apache-2.0
// Learns to read handwritten digits. The program is in model.hpp, the training loop in train.hpp.
// args: --devices 2x2 --expect 96 --compare

#include "tasks.hpp"

using namespace digits;

int main(int argc, char** argv) {
  return examples::run_main([&] {
    digits::options o = parse(argc, argv, "digits", false);
    if (o.devices.empty()) o.devices = o.backend == "serial" ? "1x1" : "2x2";
    if (o.backend == "serial" && o.devices != "1x1") throw examples::usage_error("digits: --backend serial has one device, 1x1");
    return with_mesh(o.devices, [&]<class Mesh>(std::type_identity<Mesh>) {
      const digits_data data = read_digits(GSPMD_EXAMPLE_DIR "/digits.csv");
      const auto run_on = [&](auto backend) {
        return run_all<Mesh>(o, backend, data, [&](comparison& c) {
          c.add<Mesh>("threads", threads{}, data);
          c.add<Mesh>("simulated", simulated{}, data);
        });
      };
      if (o.backend == "simulated") return run_on(simulated{});
      if (o.backend == "serial") return run_on(serial{});
      return run_on(threads{});
    });
  });
}
