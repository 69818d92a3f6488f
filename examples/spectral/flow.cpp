// SPDX-License-Identifier: Apache-2.0
#include "flow.hpp"

#include <gspmd/dynamic.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <vector>

#include "../common/check.hpp"
#include "../common/command_line.hpp"
#include "../common/picture.hpp"
#include "../common/progress.hpp"

namespace spectral {
namespace {

using field = std::vector<double>;

struct options {
  std::int64_t points = 128, devices = 4;
  int steps = 50, frames = 10;
  std::filesystem::path out = "spectral-frames";
};

options parse(int argc, char** argv, const examples::machine& machine) {
  options o;
  examples::command_line line("spectral",
                              "Simulates a turbulent flow by Fourier transforms, and checks vortices of known decay.");
  line.option("--points", o.points, 8, 1 << 13, "points along each side")
      .option("--steps", o.steps, 1, 1 << 20, "steps from frame to frame")
      .option("--frames", o.frames, 1, 999, "number of frames")
      .path("--out", o.out, "folder of the frames, PNG files");
  if (machine.processes == 0) line.option("--devices", o.devices, 1, 64, "number of devices, each a thread");
  line.parse(argc, argv);
  if (machine.processes > 0) o.devices = machine.processes;
  return o;
}

template <class F>
field made(std::int64_t n, F f) {
  field w;
  const double apart = 2 * std::numbers::pi / static_cast<double>(n);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) w.push_back(f(apart * static_cast<double>(i), apart * static_cast<double>(j)));
  return w;
}
double sum_of_squares(const field& w) {
  double sum = 0;
  for (const double x : w) sum += x * x;
  return sum;
}

}  // namespace

int simulate(int argc, char** argv, const examples::machine& machine) {
  const options o = parse(argc, argv, machine);
  const auto n = o.points;
  // Stable: advection at a third of the highest wave number, and diffusion at the highest, are each below 2.7 per step.
  const double side = static_cast<double>(n), dt = std::min(0.01, 2 / side), most_viscosity = 5 / (dt * side * side);
  const auto compiled = [&](double viscosity) {
    return dynamic::compile([&](value w) { return steps(w, o.steps, dt, viscosity); }, dynamic::mesh({{"slabs", o.devices}}),
                            dynamic::input<double>({n, n}, {"slabs", ""}));
  };
  const auto go_on = [&](const dynamic::program& p, field& w) {
    const auto next = machine.run(p, {w.data()});
    w.assign(next[0].data<double>(), next[0].data<double>() + w.size());
  };
  const auto flows = compiled(std::min(1e-3, most_viscosity));
  std::printf("%lldx%lld points in slabs on %lld devices\n", static_cast<long long>(n), static_cast<long long>(n),
              static_cast<long long>(o.devices));
  std::printf("a device sends %lld bytes per step, in %lld all_to_alls\n",
              static_cast<long long>(flows.traffic().bytes / o.steps),
              static_cast<long long>(flows.traffic().in(collective_kind::all_to_all).collectives / o.steps));

  // Taylor and Green: the flow moves these vortices along themselves, so they only decay.
  const double thick = std::min(0.05, most_viscosity);
  const auto vortices = [](double x, double y) { return 2 * std::cos(x) * std::cos(y); };
  field w = made(n, vortices);
  const field first = w;
  go_on(compiled(thick), w);
  const double left = std::exp(-2 * thick * dt * o.steps);
  double worst = 0;
  for (std::size_t k = 0; k < w.size(); ++k) worst = examples::worse(worst, w[k], left * first[k]);

  // Two shear layers, slightly perturbed: they roll up into vortices.
  w = made(n, [](double x, double y) {
    const auto layer = [](double at) { return 1 / (std::cosh(at * 6) * std::cosh(at * 6)); };
    return 6 * (layer(x - std::numbers::pi / 2) - layer(x - 3 * std::numbers::pi / 2)) + 0.2 * std::cos(2 * y) * std::sin(x);
  });
  const double at_first = sum_of_squares(w);
  double before = at_first;
  bool is_falling = true;
  examples::progress progress("frame", side * side * o.steps);
  for (int frame = 1; frame <= o.frames; ++frame) {
    go_on(flows, w);
    const double now = sum_of_squares(w);
    is_falling = is_falling && now <= before;  // without viscosity, the energy would be constant
    before = now;
    examples::write_frame(
        o.out, "spectral", frame,
        {.rows = n, .columns = n, .least = -6, .most = 6, .map = examples::colours::around_zero, .row_shards = o.devices},
        w.data());
    progress.show(frame, o.frames);
  }
  std::printf("after %d steps the shear layers have rolled up; %.1f %% of the enstrophy is left\n", o.frames * o.steps,
              100 * before / at_first);
  std::printf("pictures of the vorticity: %s/spectral-*.png\n", o.out.c_str());
  const bool is_right = examples::check_at_most("Taylor-Green vortices differ from their exact decay by", worst, 1e-8);
  return examples::check("the enstrophy falls from each frame to the next", is_falling) && is_right ? 0 : 1;
}

}  // namespace spectral
