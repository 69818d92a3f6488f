// SPDX-License-Identifier: Apache-2.0
#include "poisson.hpp"

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/sparse.hpp>

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <tuple>

#include "../command_line.hpp"
#include "../pgm.hpp"

namespace cg {
namespace {

using namespace gspmd;

/// Continues conjugate gradients until |r|^2 is below the goal, or for at most `most` iterations.
constexpr auto trips = [](auto a, auto goal, auto state, int most) {
  const auto dot = [](value x, value y) { return sum(x * y); };
  return while_loop([&](auto now) { return bitwise_and(std::get<3>(now) > goal, std::get<4>(now) < most); },
                    [&](auto now) {
                      auto [u, r, p, rr, trip] = now;
                      const value q = multiply(a, p), alpha = rr / dot(p, q);
                      const value left = r - alpha * q, next = dot(left, left);
                      return std::tuple{u + alpha * p, left, left + next / rr * p, next, trip + 1};
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

void write_picture(const poisson& problem, const double* u, const std::filesystem::path& path) {
  std::vector<double> picture(problem.number.size());
  for (std::size_t i = 0; i < picture.size(); ++i) picture[i] = problem.number[i] < 0 ? 0 : u[problem.number[i]];
  const double most = *std::max_element(picture.begin(), picture.end());
  pgm::write(path.string(), picture.data(), problem.side, problem.side, 0.0, most > 0 ? most : 1.0);
}

}  // namespace

options parse(int argc, char** argv, bool takes_devices) {
  using command_line::number, command_line::usage_error;
  options o;
  o.out = std::filesystem::path(argv[0]).parent_path() / "cg.pgm";
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--help" || i + 1 == argc) throw usage_error(option == "--help" ? "" : option + " needs a value");
    const std::string given = argv[i + 1];
    if (option == "--side") o.side = number<std::int64_t>(option, given, 8, 1 << 13);
    else if (option == "--between") o.between = number(option, given, 1, 1 << 20);
    else if (option == "--out") o.out = given;
    else if (option == "--devices" && takes_devices) o.devices = number<std::int64_t>(option, given, 1, 64);
    else throw usage_error("unknown option " + option);
  }
  return o;
}

int solve(const options& o, const runner& run) {
  const poisson problem(o.side);
  const auto n = problem.points;
  const sparse_matrix<double> a(n, n, problem.row_start, problem.column, problem.values, o.devices);
  const auto vector = dynamic::input<double>({n}, {"devices"});
  const auto program = dynamic::compile(
      [&](auto matrix, auto limit, auto u, auto r, auto p, auto rr) {
        return trips(matrix, limit, std::tuple{u, r, p, rr}, o.between);
      },
      dynamic::mesh({{"devices", o.devices}}), a.input<"devices">(), dynamic::input<double>({}), vector, vector, vector,
      dynamic::input<double>({}));
  std::printf("%lld points, %lld entries on %lld devices: a product sends %lld bytes, x has %lld\n", static_cast<long long>(n),
              static_cast<long long>(problem.column.size()), static_cast<long long>(o.devices),
              static_cast<long long>(a.layout().bytes(sizeof(double))), static_cast<long long>(n) * 8);

  // f = 1, and adjacent points have distance 1. u = 0 at first, so the residual is b.
  const std::vector<double> b(static_cast<std::size_t>(n), 1.0), zeros(b.size());
  const double first = static_cast<double>(n), goal = first * o.tolerance * o.tolerance;
  std::vector<const void*> inputs;
  std::apply([&](const auto&... part) { (inputs.push_back(part.data()), ...); }, a.parts());
  const auto with_state = [&](const void* u, const void* r, const void* p, const void* rr) {
    auto all = inputs;
    for (const void* const more : {static_cast<const void*>(&goal), u, r, p, rr}) all.push_back(more);
    return run(program, all);
  };
  auto now = with_state(zeros.data(), b.data(), b.data(), &first);
  for (int count = 0;;) {
    const double rr = *now[3].data<double>();
    count += *now[4].data<std::int32_t>();
    check_residual(rr, count);
    const double done = std::clamp(std::log(rr / first) / std::log(goal / first), 0.0, 1.0);
    const auto marks = static_cast<std::size_t>(done * 30);
    std::printf("\r[%s%s] trip %d, |r| / |b| = %.1e", std::string(marks, '#').c_str(), std::string(30 - marks, '.').c_str(),
                count, std::sqrt(rr / first));
    std::fflush(stdout);
    if (rr <= goal) break;
    if (count > 20 * o.side) throw std::runtime_error("conjugate gradients do not come to an end");
    now = with_state(now[0].bytes.data(), now[1].bytes.data(), now[2].bytes.data(), now[3].bytes.data());
  }
  const double* const u = now[0].data<double>();
  if (!o.out.empty()) write_picture(problem, u, o.out);
  const double left = largest_residual(problem, b, u);
  std::printf("\nb - A u is %.1e at most; the picture is %s\n", left, o.out.string().c_str());
  return left < 1e-6 ? 0 : 1;
}

}  // namespace cg
