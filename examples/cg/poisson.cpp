// SPDX-License-Identifier: Apache-2.0
#include "poisson.hpp"

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/sparse.hpp>

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <tuple>

#include "../common/check.hpp"
#include "../common/command_line.hpp"
#include "../common/picture.hpp"
#include "../common/progress.hpp"

namespace cg {
namespace {

using namespace gspmd;

struct options {
  std::int64_t side = 240, devices = 4;
  int between = 25;
  double tolerance = 1e-10;
  std::filesystem::path out = "cg.png";
};

options parse(int argc, char** argv, const examples::machine& machine) {
  options o;
  examples::command_line line("cg", "Solves Poisson's equation on a gear by conjugate gradients, and checks the solution.");
  line.option("--side", o.side, 8, 1 << 13, "points along each side of the square around the gear")
      .option("--between", o.between, 1, 1 << 20, "iterations in one run of the program")
      .path("--out", o.out, "picture of the solution, a PNG file");
  if (machine.processes == 0) line.option("--devices", o.devices, 1, 64, "number of devices, each a thread");
  line.parse(argc, argv);
  if (machine.processes > 0) o.devices = machine.processes;
  return o;
}

/// Continues conjugate gradients until |r|^2 is below the goal, or for at most `most` iterations.
constexpr auto iterations = [](auto a, auto goal, auto state, int most) {
  const auto dot = [](value x, value y) { return sum(x * y); };
  return while_loop([&](auto now) { return bitwise_and(std::get<3>(now) > goal, std::get<4>(now) < most); },
                    [&](auto now) {
                      auto [u, r, p, rr, count] = now;
                      const value q = multiply(a, p), alpha = rr / dot(p, q);
                      const value left = r - alpha * q, next = dot(left, left);
                      return std::tuple{u + alpha * p, left, left + next / rr * p, next, count + 1};
                    },
                    std::tuple_cat(state, std::tuple{constant<std::int32_t>(goal, {}, 0)}));
};

/// Returns the largest difference between b and A u, by a loop over the entries.
double largest_residual(const poisson& problem, const std::vector<double>& b, const double* u) {
  double largest = 0;
  for (std::size_t r = 0; r < b.size(); ++r) {
    double left = b[r];
    for (auto k = problem.row_start[r]; k < problem.row_start[r + 1]; ++k)
      left -= problem.values[static_cast<std::size_t>(k)] * u[problem.column[static_cast<std::size_t>(k)]];
    largest = std::max(largest, std::fabs(left));
  }
  return largest;
}

void write_picture(const poisson& problem, const options& o, const double* u) {
  std::vector<double> picture(problem.number.size());
  for (std::size_t i = 0; i < picture.size(); ++i) picture[i] = problem.number[i] < 0 ? 0 : u[problem.number[i]];
  const auto of_shard = (problem.points + o.devices - 1) / o.devices;
  examples::write_png(
      o.out,
      {.rows = problem.side,
       .columns = problem.side,
       .most = *std::max_element(picture.begin(), picture.end()),
       .shard_of = [&](std::int64_t i, std::int64_t j) { return problem.at(i, j) < 0 ? -1 : problem.at(i, j) / of_shard; }},
      picture.data());
}

}  // namespace

int solve(int argc, char** argv, const examples::machine& machine) {
  const options o = parse(argc, argv, machine);
  const poisson problem(o.side);
  const auto n = problem.points;
  const sparse_matrix<double> a(n, n, problem.row_start, problem.column, problem.values, o.devices);
  const auto vector = dynamic::input<double>({n}, {"devices"});
  const auto program = dynamic::compile(
      [&](auto matrix, auto limit, auto u, auto r, auto p, auto rr) {
        return iterations(matrix, limit, std::tuple{u, r, p, rr}, o.between);
      },
      dynamic::mesh({{"devices", o.devices}}), a.input<"devices">(), dynamic::input<double>({}), vector, vector, vector,
      dynamic::input<double>({}));
  std::printf("%lld unknowns, a matrix of %lld entries, %lld devices\n", static_cast<long long>(n),
              static_cast<long long>(problem.column.size()), static_cast<long long>(o.devices));
  std::printf("a device sends %lld bytes per product; the whole vector has %lld\n",
              static_cast<long long>(a.layout().bytes(sizeof(double))), static_cast<long long>(n) * 8);

  // f = 1, and adjacent points have distance 1. u = 0 at first, so the residual is b.
  const std::vector<double> b(static_cast<std::size_t>(n), 1.0), zeros(b.size());
  const double first = static_cast<double>(n), goal = first * o.tolerance * o.tolerance;
  std::vector<const void*> inputs;
  std::apply([&](const auto&... part) { (inputs.push_back(part.data()), ...); }, a.parts());
  const auto with_state = [&](const void* u, const void* r, const void* p, const void* rr) {
    auto all = inputs;
    for (const void* const more : {static_cast<const void*>(&goal), u, r, p, rr}) all.push_back(more);
    return machine.run(program, all);
  };
  auto now = with_state(zeros.data(), b.data(), b.data(), &first);
  int count = 0;
  examples::progress progress("iteration", static_cast<double>(n));
  for (;;) {
    const double rr = *now[3].data<double>();
    count += *now[4].data<std::int32_t>();
    check_residual(rr, count);
    const double digits = std::clamp(std::log(rr / first) / std::log(goal / first), 0.0, 1.0);  // of the required ones
    if (digits > 0) progress.show(count, static_cast<int>(std::lround(count / digits)));
    if (rr <= goal) break;
    if (count > 20 * o.side) throw std::runtime_error("conjugate gradients do not come to an end");
    now = with_state(now[0].bytes.data(), now[1].bytes.data(), now[2].bytes.data(), now[3].bytes.data());
  }
  const double* const u = now[0].data<double>();
  write_picture(problem, o, u);
  std::printf("solved in %d iterations; the largest value is %.4g\n", count, *std::max_element(u, u + n));
  std::printf("picture of the solution: %s\n", o.out.c_str());
  return examples::check_at_most("the largest residual |b - A u|, by a loop on one device, is", largest_residual(problem, b, u),
                                 1e-6)
             ? 0
             : 1;
}

}  // namespace cg
