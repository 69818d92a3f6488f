// SPDX-License-Identifier: Apache-2.0
#include "gravity.hpp"

#include <gspmd/dynamic.hpp>

#include <cmath>
#include <cstdio>
#include <numbers>
#include <random>

#include "../command_line.hpp"
#include "../pgm.hpp"
#include "../worst.hpp"

namespace nbody {
namespace {

using numbers = std::vector<double>;

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
void write_picture(const bodies& b, const std::filesystem::path& path) {
  constexpr std::int64_t side = 256;
  numbers pixels(side * side);
  for (std::size_t i = 0; i < b.mass.size(); ++i) {
    const auto row = static_cast<std::int64_t>((b.of[1][i] + 2) / 4 * side),
               column = static_cast<std::int64_t>((b.of[0][i] + 2) / 4 * side);
    if (row >= 0 && row < side && column >= 0 && column < side) pixels[static_cast<std::size_t>(row * side + column)] += 1;
  }
  pgm::write(path.string(), pixels.data(), side, side, 0.0, 3.0);
}

}  // namespace

options parse(int argc, char** argv, bool takes_devices) {
  using command_line::number, command_line::usage_error;
  options o;
  o.out = std::filesystem::path(argv[0]).parent_path() / "nbody-frames";
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--help" || i + 1 == argc) throw usage_error(option == "--help" ? "" : option + " needs a value");
    const std::string given = argv[i + 1];
    if (option == "--bodies") o.bodies = number<std::int64_t>(option, given, 2, 1 << 20);
    else if (option == "--steps") o.steps = number(option, given, 1, 1 << 20);
    else if (option == "--frames") o.frames = number(option, given, 1, 999);
    else if (option == "--out") o.out = given;
    else if (option == "--devices" && takes_devices) o.devices = number<std::int64_t>(option, given, 1, 64);
    else throw usage_error("unknown option " + option);
  }
  return o;
}

int simulate(const options& o, const runner& run) {
  const auto vector = dynamic::input<double>({o.bodies}, {"devices"});
  const auto compiled = [&](int count) {
    return dynamic::compile(
        [&](value x, value y, value z, value u, value v, value w, value mass) {
          return steps({x, y, z}, {u, v, w}, mass, count, o.dt);
        },
        dynamic::mesh({{"devices", o.devices}}), vector, vector, vector, vector, vector, vector, vector);
  };
  const auto program = compiled(o.steps);
  std::printf(
      "%lld bodies on %lld devices: a device sends %lld bytes a step, and needs %.2f MB; all pairs have %.1f MB a number\n",
      static_cast<long long>(o.bodies), static_cast<long long>(o.devices),
      static_cast<long long>(program.traffic().bytes / o.steps), static_cast<double>(program.peak_bytes_per_device()) / 1e6,
      static_cast<double>(o.bodies * o.bodies) * 8e-6);
  bodies now(o.bodies), wanted = now;
  const double first = *run(compiled(0), now.pointers())[6].data<double>();
  double energy = first, worst = 0;
  if (!o.out.empty()) std::filesystem::create_directories(o.out);
  for (int frame = 1; frame <= o.frames; ++frame) {
    const auto next = run(program, now.pointers());
    for (std::size_t c = 0; c < 6; ++c) now.of[c].assign(next[c].data<double>(), next[c].data<double>() + o.bodies);
    energy = *next[6].data<double>();
    if (frame == 1) {
      wanted.go_on(o.steps, o.dt);
      for (std::size_t c = 0; c < 6; ++c)
        for (std::size_t i = 0; i < now.mass.size(); ++i) worst = worse(worst, now.of[c][i], wanted.of[c][i]);
    }
    char name[32];
    std::snprintf(name, sizeof name, "nbody-%03d.pgm", frame);
    if (!o.out.empty()) write_picture(now, o.out / name);
    const auto marks = static_cast<std::size_t>(frame * 30 / o.frames);
    std::printf("\r[%s%s] frame %d of %d, energy %.6f, drift %+.1e", std::string(marks, '#').c_str(),
                std::string(30 - marks, '.').c_str(), frame, o.frames, energy, (energy - first) / std::fabs(first));
    std::fflush(stdout);
  }
  if (!o.out.empty()) std::printf("\nframes are in %s", o.out.string().c_str());
  std::printf("\nafter the first frame positions and velocities are %.1e off a loop over pairs on one device\n", worst);
  return worst < 1e-9 && std::fabs(energy - first) < 1e-2 * std::fabs(first) ? 0 : 1;
}

}  // namespace nbody
