// SPDX-License-Identifier: Apache-2.0
// The Navier-Stokes equations in two dims on a torus, by Fourier transforms.
#pragma once

#include <gspmd/fft.hpp>
#include <gspmd/gspmd.hpp>

#include "../common/machine.hpp"

namespace spectral {

using namespace gspmd;

/// Returns the wave number of each element of a spectrum [n, n] along a dim: 0, 1, ..., n/2, ..., -2, -1.
constexpr value wave_number(value spectrum, int dim) {
  const auto n = spectrum.shape()[0];
  const value i = iota<double>(spectrum, {n, n}, dim);
  return where(i > static_cast<double>(n / 2), i - static_cast<double>(n), i);
}
/// Returns i k. A derivative multiplies a spectrum by i k.
constexpr value times_i(value k) { return complex(zeros_like(k), k); }

/// Returns the rate of change of the spectrum of the vorticity w: -(u . grad) w + viscosity * laplace w. The stream
/// function gives the velocity u. Products are computed in space. Waves above two thirds are removed, which prevents
/// aliasing.
constexpr value rate(value w, double viscosity) {
  const auto n = w.shape()[0];
  const value kx = wave_number(w, 0), ky = wave_number(w, 1), squared = kx * kx + ky * ky;
  const value stream = w / cast<c128>(max(squared, 1.0));  // wave 0, a uniform wind, is 0
  const auto in_space = [](value spectrum) { return real(ifft(spectrum, {0, 1})); };
  const value u = in_space(times_i(ky) * stream), v = in_space(times_i(-kx) * stream);
  const value carried = u * in_space(times_i(kx) * w) + v * in_space(times_i(ky) * w);
  const double most = static_cast<double>(n) / 3;
  const value is_kept = bitwise_and(abs(kx) < most, abs(ky) < most);
  const value kept = where(is_kept, constant<double>(kx, {n, n}, 1), constant<double>(kx, {n, n}, 0));
  return -(cast<c128>(kept) * fft(cast<c128>(carried), {0, 1})) - cast<c128>(viscosity * squared) * w;
}
/// Computes `count` steps of the Runge-Kutta method of fourth order, from vorticity in space to vorticity in space.
constexpr value steps(value vorticity, int count, double dt, double viscosity) {
  const auto body = [dt, viscosity](value, value w) {
    const auto by = [](double x, value y) { return x * y; };
    const value a = rate(w, viscosity), b = rate(w + by(dt / 2, a), viscosity);
    const value c = rate(w + by(dt / 2, b), viscosity), d = rate(w + by(dt, c), viscosity);
    return w + by(dt / 6, a + by(2, b) + by(2, c) + d);
  };
  return real(ifft(fori_loop(count, body, fft(cast<c128>(vorticity), {0, 1})), {0, 1}));
}

/// Compares Taylor-Green vortices with their exact decay, and draws frames of shear layers that roll up. Returns 0 if
/// the vortices are right and the enstrophy of the flow falls.
examples::example simulate;

}  // namespace spectral
