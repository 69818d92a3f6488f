// SPDX-License-Identifier: Apache-2.0
#include "gravity.hpp"

#include <gspmd/dynamic.hpp>

#include <cmath>
#include <cstdio>
#include <numbers>
#include <random>
#include <vector>

#include "../common/check.hpp"
#include "../common/command_line.hpp"
#include "../common/picture.hpp"
#include "../common/progress.hpp"

namespace nbody {
namespace {

using numbers = std::vector<double>;

struct options {
  std::int64_t bodies = 2048, devices = 4;
  int steps = 20, frames = 10;
  double dt = 0.005;
  std::filesystem::path out = "nbody-frames";
};

options parse(int argc, char** argv, const examples::machine& machine) {
  options o;
  examples::command_line line("nbody", "Simulates two clusters of bodies that attract each other, and checks the energy.");
  line.option("--bodies", o.bodies, 2, 1 << 20, "number of bodies")
      .option("--steps", o.steps, 1, 1 << 20, "steps from frame to frame")
      .option("--frames", o.frames, 1, 999, "number of frames")
      .path("--out", o.out, "folder of the frames, PNG files");
  if (machine.processes == 0) line.option("--devices", o.devices, 1, 64, "number of devices, each a thread");
  line.parse(argc, argv);
  if (machine.processes > 0) o.devices = machine.processes;
  return o;
}

/// Positions and velocities by component, and masses.
struct bodies {
  std::array<numbers, 6> of;
  numbers mass;

  /// Makes two balls of evenly distributed bodies that rotate and move towards each other.
  explicit bodies(std::int64_t count) : mass(static_cast<std::size_t>(count), 1.0 / static_cast<double>(count)) {
    std::mt19937_64 random(1);
    const auto drawn = [&] { return static_cast<double>(random() >> 11U) * 0x1p-53; };
    for (std::int64_t i = 0; i < count; ++i) {
      const double radius = 0.5 * std::cbrt(drawn()), height = 2 * drawn() - 1, turn = 2 * std::numbers::pi * drawn();
      const double ring = radius * std::sqrt(1 - height * height), side = i % 2 == 0 ? -1 : 1;
      const double x = ring * std::cos(turn), y = ring * std::sin(turn);
      const double own[] = {x + side, y + 0.3 * side, radius * height, -0.8 * y - 0.4 * side, 0.8 * x, 0};
      for (std::size_t c = 0; c < 6; ++c) of[c].push_back(own[c]);
    }
  }
  [[nodiscard]] std::vector<const void*> pointers() const {
    std::vector<const void*> all;
    for (const auto& part : of) all.push_back(part.data());
    all.push_back(mass.data());
    return all;
  }

  /// Computes the same steps as a loop over pairs on one device.
  void go_on(int steps, double dt) {
    auto a = acceleration_by_hand();
    for (int t = 0; t < steps; ++t) {
      kick(a, dt / 2);
      for (std::size_t c = 0; c < 3; ++c)
        for (std::size_t i = 0; i < mass.size(); ++i) of[c][i] += dt * of[c + 3][i];
      a = acceleration_by_hand();
      kick(a, dt / 2);
    }
  }

 private:
  [[nodiscard]] std::array<numbers, 3> acceleration_by_hand() const {
    std::array<numbers, 3> a;
    for (auto& part : a) part.resize(mass.size());
    for (std::size_t i = 0; i < mass.size(); ++i)
      for (std::size_t j = 0; j < mass.size(); ++j) {
        const double to[] = {of[0][j] - of[0][i], of[1][j] - of[1][i], of[2][j] - of[2][i]};
        const double near = 1 / std::sqrt(to[0] * to[0] + to[1] * to[1] + to[2] * to[2] + softening * softening);
        for (std::size_t c = 0; c < 3; ++c) a[c][i] += mass[j] * near * near * near * to[c];
      }
    return a;
  }
  void kick(const std::array<numbers, 3>& a, double dt) {
    for (std::size_t c = 0; c < 3; ++c)
      for (std::size_t i = 0; i < mass.size(); ++i) of[c + 3][i] += dt * a[c][i];
  }
};

/// Draws the number of bodies on the line of sight of each pixel, along z.
void write_picture(const bodies& b, const options& o, int frame) {
  constexpr std::int64_t side = 256;
  numbers pixels(side * side);
  for (std::size_t i = 0; i < b.mass.size(); ++i) {
    const auto row = static_cast<std::int64_t>((b.of[1][i] + 2) / 4 * side),
               column = static_cast<std::int64_t>((b.of[0][i] + 2) / 4 * side);
    if (row >= 0 && row < side && column >= 0 && column < side) pixels[static_cast<std::size_t>(row * side + column)] += 1;
  }
  examples::write_frame(o.out, "nbody", frame, {.rows = side, .columns = side, .most = 3}, pixels.data());
}

}  // namespace

int simulate(int argc, char** argv, const examples::machine& machine) {
  const options o = parse(argc, argv, machine);
  const auto vector = dynamic::input<double>({o.bodies}, {"devices"});
  const auto compiled = [&](int count) {
    return dynamic::compile(
        [&](value x, value y, value z, value u, value v, value w, value mass) {
          return steps({x, y, z}, {u, v, w}, mass, count, o.dt);
        },
        dynamic::mesh({{"devices", o.devices}}), vector, vector, vector, vector, vector, vector, vector);
  };
  const auto program = compiled(o.steps);
  std::printf("%lld bodies on %lld devices\n", static_cast<long long>(o.bodies), static_cast<long long>(o.devices));
  std::printf("memory of a device: %.2f MB; a number for each pair of bodies would take %.1f MB\n",
              static_cast<double>(program.peak_bytes_per_device()) / 1e6, static_cast<double>(o.bodies * o.bodies) * 8e-6);
  std::printf("a device sends %lld bytes per step\n", static_cast<long long>(program.traffic().bytes / o.steps));
  bodies now(o.bodies), wanted = now;
  const double first = *machine.run(compiled(0), now.pointers())[6].data<double>();
  double energy = first, worst = 0;
  examples::progress progress("frame", static_cast<double>(o.bodies * o.bodies) * o.steps);
  for (int frame = 1; frame <= o.frames; ++frame) {
    const auto next = machine.run(program, now.pointers());
    for (std::size_t c = 0; c < 6; ++c) now.of[c].assign(next[c].data<double>(), next[c].data<double>() + o.bodies);
    energy = *next[6].data<double>();
    if (frame == 1) {
      wanted.go_on(o.steps, o.dt);
      for (std::size_t c = 0; c < 6; ++c)
        for (std::size_t i = 0; i < now.mass.size(); ++i) worst = examples::worse(worst, now.of[c][i], wanted.of[c][i]);
    }
    write_picture(now, o, frame);
    progress.show(frame, o.frames);
  }
  std::printf("after %d steps the energy of all bodies is %.6f; at the beginning it was %.6f\n", o.frames * o.steps, energy,
              first);
  std::printf("pictures: %s/nbody-*.png\n", o.out.c_str());
  const bool is_right =
      examples::check_at_most("positions and velocities after the first frame differ from a loop over pairs by", worst, 1e-9);
  const bool is_conserved =
      examples::check_at_most("the energy changed by", std::fabs((energy - first) / first), 1e-2, "of its value");
  return is_right && is_conserved ? 0 : 1;
}

}  // namespace nbody
