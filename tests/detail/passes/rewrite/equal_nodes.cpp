// SPDX-License-Identifier: Apache-2.0
// group: dynamic
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

// Operators that programs need not compute: constants, and results with the bits of an operand.

namespace {

using namespace gspmd;

const dynamic::mesh one({{"x", 1}});

template <class T, class F>
std::int64_t flops_of(F f) {
  return dynamic::compile(f, one, dynamic::input<T>({8})).flops_per_device();
}
template <class F>
std::vector<float> run(F f, const std::vector<float>& x) {
  const auto p = dynamic::compile(f, one, dynamic::input<float>({static_cast<std::int64_t>(x.size())}));
  const auto bytes = p.run(simulated{}, {x.data()})[0].bytes;
  std::vector<float> y(bytes.size() / sizeof(float));
  std::memcpy(y.data(), bytes.data(), bytes.size());
  return y;
}

}  // namespace

TEST_CASE("what is an operand, with the same bits, is not computed") {
  CHECK(flops_of<float>([](auto x) { return 1.0 * x / 1.0 - 0.0 + -0.0; }) == 0);
  CHECK(flops_of<double>([](auto x) { return x * (2.0 * zeros_like(x) + 1.0); }) == 0);
  CHECK(flops_of<std::int32_t>([](auto x) { return (x + 0) * 1 - 0; }) == 0);
  CHECK(flops_of<std::int32_t>([](auto x) { return where(zeros_like(x) < 1, x, x * x); }) == 0);
  // These operators change bits: of -0.0, of NaN, or of numbers that are too large.
  CHECK(flops_of<float>([](auto x) { return x + 0.0; }) == 8);
  CHECK(flops_of<float>([](auto x) { return x - -0.0; }) == 8);
  CHECK(flops_of<float>([](auto x) { return 0.0 * x; }) == 8);
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x{0.0F, -0.0F, 1.5F, -infinity, nan, 1e-40F};
  const auto same = run([](auto v) { return 1.0 * v / 1.0 - 0.0 + -0.0; }, x);
  CHECK(std::memcmp(same.data(), x.data(), x.size() * sizeof(float)) == 0);
  const auto changed = run([](auto v) { return v + 0.0; }, x);
  CHECK(!std::signbit(changed[1]));
}

TEST_CASE("constants are folded where no bit depends on it") {
  CHECK(flops_of<float>([](auto x) { return x * (zeros_like(x) + 2.0) * ((zeros_like(x) + 3.0) * 0.1); }) == 16);
  CHECK(flops_of<std::int32_t>([](auto x) { return x + ((zeros_like(x) + 2000000000) * 3); }) == 8);
  const std::vector<float> x{1.0F, 3.0F, -7.25F};
  const auto folded = run([](auto v) { return v * ((zeros_like(v) + 3.0) * 0.1 - 1.0 / (zeros_like(v) + 3.0)); }, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    volatile float three = 3.0F, tenth = 0.1F, unit = 1.0F;
    const float product = three * tenth, quotient = unit / three;
    CHECK(folded[i] == x[i] * (product - quotient));
  }
  // A value that is no number, or too large, is computed where the program runs.
  const auto past = run([](auto v) { return v + (zeros_like(v) + 1e30) * (zeros_like(v) + 1e30); }, x);
  CHECK(past[0] == std::numeric_limits<float>::infinity());
  const auto none = run([](auto v) { return v + zeros_like(v) / zeros_like(v); }, x);
  CHECK(none[0] != none[0]);
}
