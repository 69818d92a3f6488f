// SPDX-License-Identifier: Apache-2.0
// A program with every kind of collective, also in loops, for many more devices than cores.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>

namespace many_devices {

using namespace gspmd;

/// Builds the program on devices / 8 by 8 devices, or on one device. No extent is divisible by an axis. Sums wrap
/// around.
inline dynamic::program program(int devices, bool on_one) {
  dynamic::builder b(on_one ? dynamic::mesh({{"x", 1}, {"y", 1}}) : dynamic::mesh({{"x", devices / 8}, {"y", 8}}));
  const value x = b.input(dynamic::input<std::uint32_t>({devices + 3, 2 * devices + 1}, {"x", "y"}));
  const value turned = b.reshard(x, {"y", "x"});
  b.output(turned);
  b.output(b.reshard(x, {"", ""}));
  b.output(b.reshard(sum(turned, 0), {"x"}));
  b.output(sum(x, 1));
  b.output(fori_loop(
      20, [](value, value h) { return shift(h, -1, along(0)) + shift(h, 1, along(1)) * h; }, x));
  b.output(fori_loop(
      50, [](value, value h) { return h + sum(h); }, turned));
  return b.compile();
}
inline std::vector<std::uint32_t> input(int devices) {
  std::vector<std::uint32_t> x(static_cast<std::size_t>(devices + 3) * static_cast<std::size_t>(2 * devices + 1));
  std::uint32_t state = 12345;
  for (auto& e : x) e = state = state * 1664525U + 1013904223U;
  return x;
}
/// Returns the difference between `backend` and one device, or "".
template <class Backend>
std::string wrong_on(const Backend& backend, int devices, int times) {
  const auto x = input(devices);
  const auto wanted = program(devices, true).run(serial{}, {x.data()});
  const auto p = program(devices, false);
  for (int k = 0; k < times; ++k) {
    const auto results = p.run(backend, {x.data()});
    if (results.size() != wanted.size()) return "outputs are missing";
    for (std::size_t r = 0; r < results.size(); ++r)
      if (results[r].bytes != wanted[r].bytes) return "run " + std::to_string(k) + ": output " + std::to_string(r) + " differs";
  }
  return "";
}

}  // namespace many_devices
