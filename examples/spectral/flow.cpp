// SPDX-License-Identifier: Apache-2.0
#include "flow.hpp"

#include <gspmd/dynamic.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>

#include "../command_line.hpp"
#include "../pgm.hpp"
#include "../worst.hpp"

namespace spectral {
namespace {

using field = std::vector<double>;

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

options parse(int argc, char** argv, bool takes_devices) {
  using command_line::number, command_line::usage_error;
  options o;
  o.out = std::filesystem::path(argv[0]).parent_path() / "spectral-frames";
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--help" || i + 1 == argc) throw usage_error(option == "--help" ? "" : option + " needs a value");
    const std::string given = argv[i + 1];
    if (option == "--points") o.points = number<std::int64_t>(option, given, 8, 1 << 13);
    else if (option == "--steps") o.steps = number(option, given, 1, 1 << 20);
    else if (option == "--frames") o.frames = number(option, given, 1, 999);
    else if (option == "--out") o.out = given;
    else if (option == "--devices" && takes_devices) o.devices = number<std::int64_t>(option, given, 1, 64);
    else throw usage_error("unknown option " + option);
  }
  return o;
}

int simulate(const options& o, const runner& run) {
  const auto n = o.points;
  // Stable: advection at a third of the highest wave number, and diffusion at the highest, are each below 2.7 per step.
  const double side = static_cast<double>(n), dt = std::min(0.01, 2 / side), most_viscosity = 5 / (dt * side * side);
  const auto compiled = [&](double viscosity) {
    return dynamic::compile([&](value w) { return steps(w, o.steps, dt, viscosity); }, dynamic::mesh({{"slabs", o.devices}}),
                            dynamic::input<double>({n, n}, {"slabs", ""}));
  };
  const auto go_on = [&](const dynamic::program& p, field& w) {
    const auto next = run(p, {w.data()});
    w.assign(next[0].data<double>(), next[0].data<double>() + w.size());
  };
  const auto flows = compiled(std::min(1e-3, most_viscosity));
  std::printf("%lldx%lld points on %lld devices: %lld all_to_alls a step; a device sends %lld bytes\n", static_cast<long long>(n),
              static_cast<long long>(n), static_cast<long long>(o.devices),
              static_cast<long long>(flows.traffic().in(collective_kind::all_to_all).collectives / o.steps),
              static_cast<long long>(flows.traffic().bytes / o.steps));

  // Taylor and Green: the flow moves these vortices along themselves, so they only decay.
  const double thick = std::min(0.05, most_viscosity);
  const auto vortices = [](double x, double y) { return 2 * std::cos(x) * std::cos(y); };
  field w = made(n, vortices);
  const field first = w;
  go_on(compiled(thick), w);
  const double left = std::exp(-2 * thick * dt * o.steps);
  double worst = 0;
  for (std::size_t k = 0; k < w.size(); ++k) worst = worse(worst, w[k], left * first[k]);
  std::printf("Taylor and Green's vortices fall to %.4f of their initial strength, %.1e off the exact solution\n", left, worst);

  // Two shear layers, slightly perturbed: they roll up into vortices.
  w = made(n, [](double x, double y) {
    const auto layer = [](double at) { return 1 / (std::cosh(at * 6) * std::cosh(at * 6)); };
    return 6 * (layer(x - std::numbers::pi / 2) - layer(x - 3 * std::numbers::pi / 2)) + 0.2 * std::cos(2 * y) * std::sin(x);
  });
  double before = sum_of_squares(w);
  bool is_falling = true;
  if (!o.out.empty()) std::filesystem::create_directories(o.out);
  for (int frame = 1; frame <= o.frames; ++frame) {
    go_on(flows, w);
    const double now = sum_of_squares(w);
    is_falling = is_falling && now <= before;  // without viscosity, the energy would be constant
    before = now;
    char name[32];
    std::snprintf(name, sizeof name, "spectral-%03d.pgm", frame);
    if (!o.out.empty()) pgm::write((o.out / name).string(), w.data(), n, n, -6.0, 6.0);
    const auto marks = static_cast<std::size_t>(frame * 30 / o.frames);
    std::printf("\r[%s%s] frame %d of %d, enstrophy %.4f", std::string(marks, '#').c_str(), std::string(30 - marks, '.').c_str(),
                frame, o.frames, 0.5 * now / static_cast<double>(n * n));
    std::fflush(stdout);
  }
  if (!o.out.empty()) std::printf("\nframes are in %s", o.out.string().c_str());
  std::printf("\n");
  return worst < 1e-8 && is_falling ? 0 : 1;
}

}  // namespace spectral
