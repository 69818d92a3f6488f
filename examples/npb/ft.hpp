// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gspmd/fft.hpp>
#include <gspmd/gspmd.hpp>

#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <string>
#include <vector>

#include "benchmark.hpp"
#include "random.hpp"

/// FT, a Fourier transform in three dims: a diffusion equation, solved in the space of frequencies, and the sum of 1024
/// elements at each of six times (NPB report RNR-94-007, section 2.2.4).
namespace npb::ft {

using gspmd::value;
using number = std::complex<double>;

/// Verification values of NPB 3.4, ft.f90. Arrays are [z, y, x].
struct problem {
  std::int64_t z, y, x;
  std::array<number, 6> sums;
};
inline problem of_class(char name) {
  if (name == 'S')
    return {64,
            64,
            64,
            {{{554.6087004964, 484.5363331978},
              {554.6385409189, 486.5304269511},
              {554.6148406171, 488.3910722336},
              {554.5423607415, 490.1273169046},
              {554.4255039624, 491.7475857993},
              {554.2683411902, 493.2597244941}}}};
  if (name == 'W')
    return {32,
            128,
            128,
            {{{567.3612178944, 529.3246849175},
              {563.1436885271, 528.2149986629},
              {559.4024089970, 527.0996558037},
              {556.0698047020, 526.0027904925},
              {553.0898991250, 524.9400845633},
              {550.4159734538, 523.9212247086}}}};
  return {128,
          256,
          256,
          {{{504.6735008193, 511.4047905510},
            {505.9412319734, 509.8809666433},
            {506.9376896287, 509.8144042213},
            {507.7892868474, 510.1336130759},
            {508.5233095391, 510.4914655194},
            {509.1487099959, 510.7917842803}}}};
}
inline constexpr std::int64_t times = 6;

/// Numbers 2k + 1 and 2k + 2 are element k, row-major.
inline value initial(value seed, const problem& p) {
  const auto along = [&](int dim, std::int64_t extent, std::int64_t numbers) {
    std::vector<std::int64_t> shape(3, 1);
    shape[static_cast<std::size_t>(dim)] = extent;
    const value index = gspmd::iota<std::uint64_t>(seed, shape, dim);
    return powers_of_multiplier(index * numbers, 25);
  };
  const value z = reshard(along(0, p.z, 2 * p.y * p.x), gspmd::split<"devices", gspmd::_, gspmd::_>{});
  const value first = seed * z * (along(1, p.y, 2 * p.x) * multiplier) * along(2, p.x, 2);
  return complex(uniform(first), uniform(first * multiplier));
}

/// Returns e^(-4 pi^2 10^-6 k^2) of the frequencies k. The frequencies of the upper half are negative.
inline value decay(value like, const problem& p) {
  const std::array shape{p.z, p.y, p.x};
  value squares;
  for (int d = 0; d < 3; ++d) {
    std::vector<std::int64_t> alone(3, 1);
    const auto n = alone[static_cast<std::size_t>(d)] = shape[static_cast<std::size_t>(d)];
    const value k = gspmd::iota<std::int64_t>(like, alone, d), frequency = where(k >= n / 2, k - n, k);
    squares = d == 0 ? frequency * frequency : squares + frequency * frequency;
  }
  return exp(gspmd::cast<double>(squares) * (-4e-6 * std::acos(-1.0) * std::acos(-1.0)));
}

inline auto program(const problem& p) {
  return [p](value seed) {
    const value j = gspmd::iota<std::int64_t>(seed, {1024, 1}, 0) + 1;
    const value places = gspmd::concatenate({5 * j % p.z, 3 * j % p.y, j % p.x}, 1);
    const value factor = gspmd::cast<number>(decay(seed, p));
    const auto [last, sums] = gspmd::scan(
        [&](value u, value) {
          const value now = u * factor;
          const value some =
              gather(gspmd::ifft(now, {0, 1, 2}), places,
                     {.collapsed_slice_dims = {0, 1, 2}, .start_index_map = {0, 1, 2}, .index_vector_dim = 1}, {1, 1, 1});
          return std::tuple(now, sum(some));
        },
        gspmd::fft(initial(seed, p), {0, 1, 2}), gspmd::iota<std::int64_t>(seed, {times}, 0));
    return sums;
  };
}

inline outcome run(char name, const machine& m) {
  const auto p = of_class(name);
  const auto step = gspmd::dynamic::compile(program(p), m.mesh(), gspmd::dynamic::input<std::uint64_t>({}));
  const std::uint64_t seed = 314'159'265;
  std::vector<any_array> made;
  outcome o = planned(step);
  const auto run_step = m.prepare(step);
  o.seconds = seconds_of([&] { made = run_step({&seed}); });
  const auto elements = static_cast<double>(p.z * p.y * p.x);
  o.operations = elements * (14.8157 + 7.19641 * std::log(elements) + (5.23518 + 7.21113 * std::log(elements)) * times);
  for (std::size_t t = 0; t < p.sums.size(); ++t) {
    const number sum = made[0].data<number>()[t];
    o.checks.push_back({"real part, time " + std::to_string(t + 1), sum.real(), p.sums[t].real(), 1e-12});
    o.checks.push_back({"imaginary, time " + std::to_string(t + 1), sum.imag(), p.sums[t].imag(), 1e-12});
  }
  return o;
}

}  // namespace npb::ft
