// SPDX-License-Identifier: Apache-2.0
#include "plasma.hpp"

#include <gspmd/dynamic.hpp>

#include <cmath>
#include <cstdio>

#include "../command_line.hpp"
#include "../pgm.hpp"
#include "../worst.hpp"

namespace pic {
namespace {

using numbers = std::vector<double>;

/// The particles of a run, and the field that last moved them.
struct plasma {
  numbers x, v, field;

  void go_on(const dynamic::program& p, const runner& run) {
    const auto next = run(p, {x.data(), v.data()});
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
void write_picture(const plasma& p, const std::filesystem::path& path) {
  constexpr std::int64_t side = 256;
  numbers pixels(side * side);
  for (std::size_t i = 0; i < p.x.size(); ++i) {
    const auto row = static_cast<std::int64_t>((1.5 - p.v[i]) / 3 * side),
               column = static_cast<std::int64_t>(p.x[i] / length * side);
    if (row >= 0 && row < side && column >= 0 && column < side) pixels[static_cast<std::size_t>(row * side + column)] += 1;
  }
  pgm::write(path.string(), pixels.data(), side, side, 0.0, 2.0);
}

}  // namespace

options parse(int argc, char** argv, bool takes_devices) {
  using command_line::number, command_line::usage_error;
  options o;
  o.out = std::filesystem::path(argv[0]).parent_path() / "pic-frames";
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--help" || i + 1 == argc) throw usage_error(option == "--help" ? "" : option + " needs a value");
    const std::string given = argv[i + 1];
    if (option == "--particles") o.particles = number<std::int64_t>(option, given, 1000, 1 << 26);
    else if (option == "--points") o.points = number<std::int64_t>(option, given, 16, 1 << 16);
    else if (option == "--frames") o.frames = number(option, given, 60, 999);
    else if (option == "--out") o.out = given;
    else if (option == "--devices" && takes_devices) o.devices = number<std::int64_t>(option, given, 1, 64);
    else throw usage_error("unknown option " + option);
  }
  return o;
}

int simulate(const options& o, const runner& run) {
  constexpr double dt = 0.05;
  constexpr int between = 5;
  const auto vector = dynamic::input<double>({o.particles}, {"devices"});
  const auto program = dynamic::compile([&](value x, value v) { return steps(x, v, between, dt, o.points); },
                                        dynamic::mesh({{"devices", o.devices}}), vector, vector);
  std::printf("%lld particles on %lld devices: a device sends %lld bytes a step, of a grid of %lld\n",
              static_cast<long long>(o.particles), static_cast<long long>(o.devices),
              static_cast<long long>(program.traffic().bytes / between), static_cast<long long>(o.points * 8));

  // Cold: half a period passes between two zeros of the field's wave.
  plasma cold = spread(o.particles, 0.01, 0);
  double first = 0, last = 0, before = 0;
  int crossings = 0;
  for (int frame = 1; frame <= o.frames; ++frame) {
    cold.go_on(program, run);
    const double now = cold.wave();
    if (frame > 1 && (now < 0) != (before < 0)) {
      last = between * dt * (frame - now / (now - before));
      if (crossings++ == 0) first = last;
    }
    before = now;
  }
  const double frequency = std::numbers::pi * (crossings - 1) / (last - first);
  std::printf("a cold plasma oscillates at %.4f of the plasma frequency\n", frequency);

  // Two counter-streaming beams carry waves that grow until they trap the particles.
  plasma streams = spread(o.particles, 0.001, 0.5);
  if (!o.out.empty()) std::filesystem::create_directories(o.out);
  const double momentum_before = streams.momentum();
  double at_first = 0, most = 0;
  for (int frame = 1; frame <= o.frames; ++frame) {
    streams.go_on(program, run);
    const double energy = streams.field_energy();
    if (frame == 1) at_first = energy;
    most = energy <= most ? most : energy;
    char name[32];
    std::snprintf(name, sizeof name, "pic-%03d.pgm", frame);
    if (!o.out.empty()) write_picture(streams, o.out / name);
    const auto marks = static_cast<std::size_t>(frame * 30 / o.frames);
    std::printf("\r[%s%s] frame %d of %d, energy of the field %.1e", std::string(marks, '#').c_str(),
                std::string(30 - marks, '.').c_str(), frame, o.frames, energy);
    std::fflush(stdout);
  }
  const double momentum = worse(0, streams.momentum(), momentum_before);
  if (!o.out.empty()) std::printf("\nframes are in %s", o.out.string().c_str());
  std::printf("\nthe streams' field has grown to %.0f times its initial value; their momentum has changed by %.1e\n",
              most / at_first, momentum);
  return worse(0, frequency, 1) < 0.005 && momentum < 1e-9 && most > 100 * at_first && most < 1 ? 0 : 1;
}

}  // namespace pic
