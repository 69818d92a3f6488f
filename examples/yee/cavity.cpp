// SPDX-License-Identifier: Apache-2.0
#include "cavity.hpp"

#include <gspmd/dynamic.hpp>

#include <cmath>
#include <cstdio>
#include <numbers>

#include "../command_line.hpp"
#include "../pgm.hpp"
#include "../worst.hpp"

namespace yee {
namespace {

using grid = std::vector<double>;

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
                              value first) { return steps(ez, hx, hy, first, o.steps, o.rows / 3, o.columns / 4, middle); },
                          mesh, field(o.rows + 1, o.columns + 1), field(o.rows + 1, o.columns), field(o.rows, o.columns + 1),
                          dynamic::input<std::int64_t>({}));
}

/// Returns a mesh of all devices along both dims, as square as possible.
std::vector<std::int64_t> square_mesh(std::int64_t devices) {
  std::int64_t rows = 1;
  for (std::int64_t r = 1; r * r <= devices; ++r)
    if (devices % r == 0) rows = r;
  return {rows, devices / rows};
}

std::vector<std::int64_t> two_numbers(const std::string& option, std::string_view text, std::int64_t most) {
  const auto x = text.find('x');
  if (x == std::string_view::npos) throw command_line::usage_error(option + ": two numbers, as in 2x2");
  return {command_line::number<std::int64_t>(option, text.substr(0, x), 1, most),
          command_line::number<std::int64_t>(option, text.substr(x + 1), 1, most)};
}

/// Returns the largest difference between ez, in a box that oscillates in its mode (2, 1), and its cosine, after the
/// steps of a frame.
double largest_error_of_mode(const options& o, const dynamic::program& program, const runner& run) {
  const auto n = o.rows, m = o.columns;
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
  const auto out = run(program, {f.ez.data(), f.hx.data(), f.hy.data(), &first});
  const double* const ez = out[0].data<double>();
  double worst = 0;
  for (std::size_t k = 0; k < f.ez.size(); ++k) worst = worse(worst, ez[k], f.ez[k] * std::cos(2 * half * o.steps));
  std::printf("mode (2, 1) after %d steps: %.1e off its cosine, whose frequency is %.6f (Maxwell's %.6f)\n", o.steps, worst,
              2 * half / courant, std::hypot(k_i, k_j));
  return worst;
}

}  // namespace

options parse(int argc, char** argv, bool takes_mesh) {
  using command_line::number, command_line::usage_error;
  options o;
  o.out = std::filesystem::path(argv[0]).parent_path() / "yee-frames";
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--help" || i + 1 == argc) throw usage_error(option == "--help" ? "" : option + " needs a value");
    const std::string given = argv[i + 1];
    if (option == "--cells") {
      const auto cells = two_numbers(option, given, 1 << 14);
      o.rows = cells[0];
      o.columns = cells[1];
      if (o.rows < 4 || o.columns < 4) throw usage_error("--cells: at least 4x4");
    } else if (option == "--steps") o.steps = number(option, given, 1, 1 << 20);
    else if (option == "--frames") o.frames = number(option, given, 1, 999);
    else if (option == "--out") o.out = given;
    else if (option == "--mesh" && takes_mesh) o.mesh = two_numbers(option, given, 64);
    else throw usage_error("unknown option " + option);
  }
  return o;
}

int simulate(options o, std::int64_t devices, const runner& run) {
  if (o.mesh.empty()) o.mesh = square_mesh(devices);
  const double middle = 30;
  const auto program = compiled(o, middle);
  std::printf(
      "%lldx%lld cells on %lldx%lld devices: a device sends %.1f messages of %lld bytes a step\n", static_cast<long long>(o.rows),
      static_cast<long long>(o.columns), static_cast<long long>(o.mesh[0]), static_cast<long long>(o.mesh[1]),
      static_cast<double>(program.traffic().messages) / o.steps,
      program.traffic().messages == 0 ? 0LL : static_cast<long long>(program.traffic().bytes / program.traffic().messages));

  by_hand wanted(o.rows, o.columns);
  grid ez = wanted.ez, hx = wanted.hx, hy = wanted.hy;
  if (!o.out.empty()) std::filesystem::create_directories(o.out);
  for (int frame = 1; frame <= o.frames; ++frame) {
    const std::int64_t first = static_cast<std::int64_t>(frame - 1) * o.steps;
    const auto next = run(program, {ez.data(), hx.data(), hy.data(), &first});
    int k = 0;
    for (grid* const f : {&ez, &hx, &hy}) {
      const double* const from = next[static_cast<std::size_t>(k++)].data<double>();
      f->assign(from, from + f->size());
    }
    if (!o.out.empty()) {
      char name[32];
      std::snprintf(name, sizeof name, "yee-%03d.pgm", frame);
      pgm::write((o.out / name).string(), ez.data(), o.rows + 1, o.columns + 1, -0.1, 0.1);
    }
    std::printf("\r[%s%s] frame %d of %d", std::string(static_cast<std::size_t>(frame * 30 / o.frames), '#').c_str(),
                std::string(static_cast<std::size_t>(30 - frame * 30 / o.frames), '.').c_str(), frame, o.frames);
    std::fflush(stdout);
  }
  for (int t = 0; t < o.frames * o.steps; ++t) {
    wanted.step();
    const double since = t - middle;
    wanted.e(o.rows / 3, o.columns / 4) += std::exp(since * since * (-4.0 / (middle * middle)));
  }
  double worst = 0;
  for (std::size_t k = 0; k < ez.size(); ++k) worst = worse(worst, ez[k], wanted.ez[k]);
  if (!o.out.empty()) std::printf("\nframes are in %s", o.out.string().c_str());
  std::printf("\nafter %d steps ez is %.1e off a loop on one device\n", o.frames * o.steps, worst);
  return worst < 1e-11 && largest_error_of_mode(o, program, run) < 1e-10 ? 0 : 1;
}

}  // namespace yee
