// SPDX-License-Identifier: Apache-2.0
#include "cavity.hpp"

#include <gspmd/dynamic.hpp>

#include <cmath>
#include <cstdio>
#include <numbers>
#include <vector>

#include "../common/check.hpp"
#include "../common/command_line.hpp"
#include "../common/picture.hpp"
#include "../common/progress.hpp"

namespace yee {
namespace {

using grid = std::vector<double>;

struct options {
  std::vector<std::int64_t> cells{240, 320}, mesh{2, 2};
  int steps = 40, frames = 10;
  std::filesystem::path out = "yee-frames";

  [[nodiscard]] std::int64_t rows() const { return cells[0]; }
  [[nodiscard]] std::int64_t columns() const { return cells[1]; }
};

/// The same scheme as loops over the cells of a single device.
struct by_hand {
  std::int64_t n, m;
  grid ez, hx, hy;

  by_hand(std::int64_t rows, std::int64_t columns)
      : n(rows),
        m(columns),
        ez(static_cast<std::size_t>((n + 1) * (m + 1))),
        hx(static_cast<std::size_t>((n + 1) * m)),
        hy(static_cast<std::size_t>(n * (m + 1))) {}
  double& e(std::int64_t i, std::int64_t j) { return ez[static_cast<std::size_t>(i * (m + 1) + j)]; }
  double& x(std::int64_t i, std::int64_t j) { return hx[static_cast<std::size_t>(i * m + j)]; }
  double& y(std::int64_t i, std::int64_t j) { return hy[static_cast<std::size_t>(i * (m + 1) + j)]; }
  void step() {
    for (std::int64_t i = 0; i <= n; ++i)
      for (std::int64_t j = 0; j < m; ++j) x(i, j) -= courant * (e(i, j + 1) - e(i, j));
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j <= m; ++j) y(i, j) += courant * (e(i + 1, j) - e(i, j));
    for (std::int64_t i = 1; i < n; ++i)
      for (std::int64_t j = 1; j < m; ++j) e(i, j) += courant * (y(i, j) - y(i - 1, j) - (x(i, j) - x(i, j - 1)));
  }
};

dynamic::program compiled(const options& o, double middle) {
  const dynamic::mesh mesh({{"x", o.mesh[0]}, {"y", o.mesh[1]}});
  const auto field = [](std::int64_t i, std::int64_t j) { return dynamic::input<double>({i, j}, {"x", "y"}); };
  return dynamic::compile([&](value ez, value hx, value hy,
                              value first) { return steps(ez, hx, hy, first, o.steps, o.rows() / 3, o.columns() / 4, middle); },
                          mesh, field(o.rows() + 1, o.columns() + 1), field(o.rows() + 1, o.columns()),
                          field(o.rows(), o.columns() + 1), dynamic::input<std::int64_t>({}));
}

/// Returns a mesh of all devices along both dims, as square as possible.
std::vector<std::int64_t> square_mesh(std::int64_t devices) {
  std::int64_t rows = 1;
  for (std::int64_t r = 1; r * r <= devices; ++r)
    if (devices % r == 0) rows = r;
  return {rows, devices / rows};
}

options parse(int argc, char** argv, const examples::machine& machine) {
  options o;
  examples::command_line line("yee",
                              "Simulates a radio pulse in a metal box on Yee's grid, and checks a wave of known frequency.");
  line.extents("--cells", o.cells, 2, 2, 1 << 14, "cells along the dims, at least 4x4")
      .option("--steps", o.steps, 1, 1 << 20, "steps from frame to frame")
      .option("--frames", o.frames, 1, 999, "number of frames")
      .path("--out", o.out, "folder of the frames, PNG files");
  if (machine.processes == 0) line.extents("--mesh", o.mesh, 2, 2, 64, "devices along the dims, each a thread");
  line.parse(argc, argv);
  if (o.rows() < 4 || o.columns() < 4) throw examples::usage_error("yee: --cells: at least 4x4");
  if (machine.processes > 0) o.mesh = square_mesh(machine.processes);
  return o;
}

/// Returns the largest difference between ez, in a box that oscillates in its mode (2, 1), and its cosine, after the
/// steps of a frame.
double largest_error_of_mode(const options& o, const dynamic::program& program, const examples::machine& machine) {
  const auto n = o.rows(), m = o.columns();
  const double pi = std::numbers::pi, k_i = 2 * pi / static_cast<double>(n), k_j = pi / static_cast<double>(m);
  // The frequency of the discrete scheme: sin^2(w dt / 2) = dt^2 (sin^2(ki / 2) + sin^2(kj / 2)). It is close to
  // Maxwell's w^2 = ki^2 + kj^2.
  const double half = std::asin(courant * std::hypot(std::sin(k_i / 2), std::sin(k_j / 2)));
  by_hand f(n, m);
  for (std::int64_t i = 0; i <= n; ++i)
    for (std::int64_t j = 0; j <= m; ++j)
      f.e(i, j) = std::sin(k_i * static_cast<double>(i)) * std::sin(k_j * static_cast<double>(j));
  // At time 0, the magnetic field is 0. So half a step earlier, it is minus half of its change in the first step.
  for (std::int64_t i = 0; i <= n; ++i)
    for (std::int64_t j = 0; j < m; ++j) f.x(i, j) = courant / 2 * (f.e(i, j + 1) - f.e(i, j));
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j <= m; ++j) f.y(i, j) = -courant / 2 * (f.e(i + 1, j) - f.e(i, j));
  const std::int64_t first = 1 << 30;  // long after the antenna's pulse
  const auto out = machine.run(program, {f.ez.data(), f.hx.data(), f.hy.data(), &first});
  const double* const ez = out[0].data<double>();
  double worst = 0;
  for (std::size_t k = 0; k < f.ez.size(); ++k) worst = examples::worse(worst, ez[k], f.ez[k] * std::cos(2 * half * o.steps));
  std::printf("the standing wave (2, 1) has the frequency %.6f; Maxwell's equations without a grid: %.6f\n", 2 * half / courant,
              std::hypot(k_i, k_j));
  return worst;
}

}  // namespace

int simulate(int argc, char** argv, const examples::machine& machine) {
  const options o = parse(argc, argv, machine);
  const double middle = 30;
  const auto program = compiled(o, middle);
  std::printf("%lldx%lld cells on %lldx%lld devices\n", static_cast<long long>(o.rows()), static_cast<long long>(o.columns()),
              static_cast<long long>(o.mesh[0]), static_cast<long long>(o.mesh[1]));
  std::printf("a device sends %.1f messages per step, %lld bytes\n", static_cast<double>(program.traffic().messages) / o.steps,
              static_cast<long long>(program.traffic().bytes / o.steps));

  by_hand wanted(o.rows(), o.columns());
  grid ez = wanted.ez, hx = wanted.hx, hy = wanted.hy;
  examples::progress progress("frame", static_cast<double>(o.rows() * o.columns()) * o.steps);
  for (int frame = 1; frame <= o.frames; ++frame) {
    const std::int64_t first = static_cast<std::int64_t>(frame - 1) * o.steps;
    const auto next = machine.run(program, {ez.data(), hx.data(), hy.data(), &first});
    int k = 0;
    for (grid* const f : {&ez, &hx, &hy}) {
      const double* const from = next[static_cast<std::size_t>(k++)].data<double>();
      f->assign(from, from + f->size());
    }
    examples::write_frame(o.out, "yee", frame,
                          {.rows = o.rows() + 1,
                           .columns = o.columns() + 1,
                           .least = -0.1,
                           .most = 0.1,
                           .map = examples::colours::around_zero,
                           .row_shards = o.mesh[0],
                           .column_shards = o.mesh[1]},
                          ez.data());
    progress.show(frame, o.frames);
  }
  for (int t = 0; t < o.frames * o.steps; ++t) {
    wanted.step();
    const double since = t - middle;
    wanted.e(o.rows() / 3, o.columns() / 4) += std::exp(since * since * (-4.0 / (middle * middle)));
  }
  double worst = 0;
  for (std::size_t k = 0; k < ez.size(); ++k) worst = examples::worse(worst, ez[k], wanted.ez[k]);
  std::printf("the pulse has crossed %.0f cells in %d steps\n", courant * o.frames * o.steps, o.frames * o.steps);
  std::printf("pictures of ez: %s/yee-*.png\n", o.out.c_str());
  const double of_mode = largest_error_of_mode(o, program, machine);
  const bool is_right = examples::check_at_most("ez differs from a loop on one device by", worst, 1e-11);
  return examples::check_at_most("the standing wave differs from its cosine by", of_mode, 1e-10) && is_right ? 0 : 1;
}

}  // namespace yee
