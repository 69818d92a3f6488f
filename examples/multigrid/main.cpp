// SPDX-License-Identifier: Apache-2.0
// Poisson's equation on the unit square, with u = 0 at the boundary, by multigrid. The V-cycles go down to a grid of
// one point, fewer points than devices. Every mesh gives the bits of a single device.
// args: --points 63
// optimise: -O0
// precompiled: yes

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

#include <cmath>
#include <cstdio>
#include <string>
#include <tuple>
#include <vector>

#include "../common/check.hpp"
#include "../common/command_line.hpp"

namespace {

using namespace gspmd;

/// Returns f - A u. A is minus the five-point Laplacian of a grid with the spacing 1/(n+1).
value residual(value u, value f) {
  const auto n = static_cast<double>(u.shape()[0] + 1);
  return f - stencil<1, 1>([n](auto v) { return (n * n) * (4 * v(0, 0) - (v(-1, 0) + v(1, 0) + v(0, -1) + v(0, 1))); }, u);
}

/// Computes a damped Jacobi step.
value smooth(value u, value f) {
  const auto n = static_cast<double>(u.shape()[0] + 1);
  return u + 0.8 / (4 * n * n) * residual(u, f);
}

/// Restricts to the grid of every other point: the mean of nine points, with weights 4, 2 and 1.
value restricted(value fine) {
  const auto mean = stencil<1, 1>(
      [](auto v) {
        return (4 * v(0, 0) + 2 * (v(-1, 0) + v(1, 0) + v(0, -1) + v(0, 1)) + v(-1, -1) + v(-1, 1) + v(1, -1) + v(1, 1)) / 16;
      },
      fine);
  return slice(mean, {1, 1}, {fine.shape()[0], fine.shape()[1]}, {2, 2});
}

/// Prolongs to the grid with one more point between any two points: bilinear.
value prolonged(value coarse) {
  const auto spread = pad(coarse, {1, 1}, {1, 1}, 0, {1, 1});
  return stencil<1, 1>(
      [](auto v) {
        return v(0, 0) + 0.5 * (v(-1, 0) + v(1, 0) + v(0, -1) + v(0, 1)) + 0.25 * (v(-1, -1) + v(-1, 1) + v(1, -1) + v(1, 1));
      },
      spread);
}

value v_cycle(value u, value f) {
  const auto n = u.shape()[0];
  if (n == 1) return f / 16;  // 4 / (1/2)^2 times the only unknown
  u = smooth(smooth(u, f), f);
  const auto coarse_f = restricted(residual(u, f));
  u = u + prolonged(v_cycle(zeros_like(coarse_f), coarse_f));
  return smooth(smooth(u, f), f);
}

/// Returns a better u, and its largest residual.
auto cycle = [](value u, value f) {
  const auto better = v_cycle(u, f);
  return std::tuple(better, reduce(abs(residual(better, f)), monoid::max, {0, 1}));
};

struct solution {
  std::vector<double> u, residuals;
};

solution solve(int n, std::int64_t rows, std::int64_t columns, bool prints) {
  const dynamic::mesh m({{"rows", rows}, {"columns", columns}});
  const auto grid = dynamic::input<double>({n, n}, {"rows", "columns"});
  const auto program = dynamic::compile(cycle, m, grid, grid);
  solution s;
  s.u.resize(static_cast<std::size_t>(n) * static_cast<std::size_t>(n));
  std::vector<double> f = s.u;
  const double pi = std::acos(-1.0);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      f[static_cast<std::size_t>(i * n + j)] =
          2 * pi * pi * std::sin(pi * (i + 1) / (n + 1)) * std::sin(pi * (j + 1) / (n + 1)) + (i == n / 3 && j == n / 4 ? 1 : 0);
  double last = 0;
  for (const double x : f) last = std::fmax(last, std::fabs(x));
  for (int k = 1; k <= 40 && last > 1e-8; ++k) {
    const auto made = program.run(threads{}, s.u, f);
    s.u.assign(made[0].data<double>(), made[0].data<double>() + s.u.size());
    const double now = *made[1].data<double>();
    if (prints) std::printf("cycle %2d: residual %9.3e, %.3f of the one before\n", k, now, now / last);
    last = now;
    s.residuals.push_back(now);
  }
  if (prints) return s;
  std::printf("%lld x %lld devices: %zu cycles; in one cycle a device sends %lld bytes in %lld messages\n",
              static_cast<long long>(rows), static_cast<long long>(columns), s.residuals.size(),
              static_cast<long long>(program.traffic().bytes), static_cast<long long>(program.traffic().messages));
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_main([&] {
    int n = 255;
    examples::command_line line("multigrid",
                                "Solves Poisson's equation on a square by multigrid, and compares meshes bit by bit.");
    line.option("--points", n, 1, 4095, "points along each side, 2^k - 1").parse(argc, argv);
    if ((n & (n + 1)) != 0)
      throw examples::usage_error("multigrid: --points: " + std::to_string(n) + " is not 2^k - 1, as 255 is");
    const auto alone = solve(n, 1, 1, true);
    const auto cycles = static_cast<double>(alone.residuals.size() - 1);
    if (cycles > 0)
      std::printf("each cycle reduces the residual to %.3f of its value\n",
                  std::pow(alone.residuals.back() / alone.residuals.front(), 1 / cycles));
    bool is_same = true;
    for (const auto& [rows, columns] : {std::pair(2, 1), {2, 2}, {3, 2}, {1, 7}, {8, 1}}) {
      const auto other = solve(n, rows, columns, false);
      is_same = is_same && other.u == alone.u && other.residuals == alone.residuals;
    }
    const bool is_solved = examples::check_at_most("the largest residual is", alone.residuals.back(), 1e-8);
    return examples::check("every mesh gives the same bits as one device", is_same) && is_solved ? 0 : 1;
  });
}
