// SPDX-License-Identifier: Apache-2.0
#include "plasma.hpp"

#include <gspmd/dynamic.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

#include "../common/check.hpp"
#include "../common/command_line.hpp"
#include "../common/picture.hpp"
#include "../common/progress.hpp"

namespace pic {
namespace {

using numbers = std::vector<double>;

struct options {
  std::int64_t particles = 20'000, points = 64, devices = 4;
  int frames = 100;
  std::filesystem::path out = "pic-frames";
};

options parse(int argc, char** argv, const examples::machine& machine) {
  options o;
  examples::command_line line("pic", "Simulates a plasma by particles in cells, and checks its frequency and its momentum.");
  line.option("--particles", o.particles, 1000, 1 << 26, "number of particles")
      .option("--points", o.points, 16, 1 << 16, "points of the grid")
      .option("--frames", o.frames, 60, 999, "number of frames, of 0.25 time units each; the period of the plasma is 6.28 units")
      .path("--out", o.out, "folder of the frames, PNG files");
  if (machine.processes == 0) line.option("--devices", o.devices, 1, 64, "number of devices, each a thread");
  line.parse(argc, argv);
  if (machine.processes > 0) o.devices = machine.processes;
  return o;
}

/// The particles of a run, and the field that last moved them.
struct plasma {
  numbers x, v, field;

  void go_on(const dynamic::program& p, const examples::machine& machine) {
    const auto next = machine.run(p, {x.data(), v.data()});
    int k = 0;
    for (numbers* const part : {&x, &v, &field}) {
      const auto& from = next[static_cast<std::size_t>(k++)];
      part->assign(from.data<double>(), from.data<double>() + from.shape[0]);
    }
  }
  /// Returns the amplitude of sin(x) in the field.
  [[nodiscard]] double wave() const {
    double sum = 0;
    for (std::size_t i = 0; i < field.size(); ++i)
      sum += field[i] * std::sin(length * static_cast<double>(i) / static_cast<double>(field.size()));
    return 2 * sum / static_cast<double>(field.size());
  }
  [[nodiscard]] double momentum() const {
    double sum = 0;
    for (const double u : v) sum += u;
    return sum / static_cast<double>(v.size());
  }
  [[nodiscard]] double field_energy() const {
    double sum = 0;
    for (const double e : field) sum += e * e;
    return sum / static_cast<double>(field.size());
  }
};

/// Returns evenly distributed particles, slightly displaced by a wave.
plasma spread(std::int64_t count, double moved, double speed) {
  plasma p;
  for (std::int64_t i = 0; i < count; ++i) {
    const double x = length * (static_cast<double>(i) + 0.5) / static_cast<double>(count), at = x + moved * std::sin(x);
    p.x.push_back(at - length * std::floor(at / length));
    p.v.push_back(i % 2 == 0 ? speed : -speed);
  }
  return p;
}

/// Draws positions from left to right, velocities upwards.
void write_picture(const plasma& p, const options& o, int frame) {
  constexpr std::int64_t side = 256;
  numbers pixels(side * side);
  for (std::size_t i = 0; i < p.x.size(); ++i) {
    const auto row = static_cast<std::int64_t>((1.5 - p.v[i]) / 3 * side),
               column = static_cast<std::int64_t>(p.x[i] / length * side);
    if (row >= 0 && row < side && column >= 0 && column < side) pixels[static_cast<std::size_t>(row * side + column)] += 1;
  }
  examples::write_frame(o.out, "pic", frame, {.rows = side, .columns = side, .most = 2}, pixels.data());
}

}  // namespace

int simulate(int argc, char** argv, const examples::machine& machine) {
  const options o = parse(argc, argv, machine);
  constexpr double dt = 0.05;
  constexpr int between = 5;
  const auto vector = dynamic::input<double>({o.particles}, {"devices"});
  const auto program = dynamic::compile([&](value x, value v) { return steps(x, v, between, dt, o.points); },
                                        dynamic::mesh({{"devices", o.devices}}), vector, vector);
  std::printf("%lld particles on %lld devices, a grid of %lld points on each\n", static_cast<long long>(o.particles),
              static_cast<long long>(o.devices), static_cast<long long>(o.points));
  std::printf("a device sends %lld bytes per step\n", static_cast<long long>(program.traffic().bytes / between));

  // Cold: half a period passes between two zeros of the field's wave.
  plasma cold = spread(o.particles, 0.01, 0);
  double first = 0, last = 0, before = 0;
  int crossings = 0;
  for (int frame = 1; frame <= o.frames; ++frame) {
    cold.go_on(program, machine);
    const double now = cold.wave();
    if (frame > 1 && (now < 0) != (before < 0)) {
      last = between * dt * (frame - now / (now - before));
      if (crossings++ == 0) first = last;
    }
    before = now;
  }
  const double frequency = std::numbers::pi * (crossings - 1) / (last - first);

  // Two counter-streaming beams carry waves that grow until they trap the particles.
  plasma streams = spread(o.particles, 0.001, 0.5);
  const double momentum_before = streams.momentum();
  double at_first = 0, most = 0;
  examples::progress progress("frame", static_cast<double>(o.particles) * between);
  for (int frame = 1; frame <= o.frames; ++frame) {
    streams.go_on(program, machine);
    const double energy = streams.field_energy();
    if (frame == 1) at_first = energy;
    most = energy <= most ? most : energy;
    write_picture(streams, o, frame);
    progress.show(frame, o.frames);
  }
  std::printf("a cold plasma oscillates at %.4f of the plasma frequency\n", frequency);
  std::printf("the energy of the field between two beams grows to %.0f times its initial value\n", most / at_first);
  std::printf("pictures of positions (to the right) and velocities (upwards): %s/pic-*.png\n", o.out.c_str());
  const bool is_right = examples::check_at_most("the frequency differs from theory by", std::fabs(frequency - 1), 0.005);
  const bool is_conserved = examples::check_at_most("the mean momentum of the beams changed by",
                                                    examples::worse(0, streams.momentum(), momentum_before), 1e-9);
  const bool grows = examples::check("the beams are unstable, and the field is bounded", most > 100 * at_first && most < 1);
  return is_right && is_conserved && grows ? 0 : 1;
}

}  // namespace pic
