// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Dims that are added, taken away, stretched and cut, triangles; and the gradients of elementwise functions, against
// differences.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

#include "support/error_of.hpp"

using namespace gspmd;

namespace {

/// f of the numbers 0, 1, ... as a tensor of this shape and sharding.
template <class T = float>
std::vector<T> of_counted(auto f, const dynamic::mesh& m, std::vector<std::int64_t> shape, std::vector<std::string> sharding) {
  std::vector<T> x(1);
  for (const auto e : shape) x.resize(x.size() * static_cast<std::size_t>(e));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(i);
  const auto y = dynamic::compile(f, m, dynamic::input<T>(shape, sharding)).run(simulated{}, {x.data()});
  return {y[0].template data<T>(), y[0].template data<T>() + y[0].bytes.size() / sizeof(T)};
}
using floats = std::vector<float>;

}  // namespace

TEST_CASE("dims are added, taken away, stretched, stacked and cut; triangles") {
  const dynamic::mesh one({{"x", 1}}), three({{"x", 3}}), grid({{"x", 2}, {"y", 2}});
  for (const auto& m : {one, three, grid}) {
    CHECK(of_counted(
              [](value x) {
                return broadcast_to(expand_dims(x, -1), {3, 2});
              },
              m, {3}, {"x"}) == floats{0, 0, 1, 1, 2, 2});
    CHECK(of_counted([](value x) { return expand_dims(expand_dims(x, 0), 2); }, m, {2}, {"x"}) == floats{0, 1});
    CHECK(of_counted([](value x) { return squeeze(x, 0); }, m, {1, 3}, {"x", ""}) == floats{0, 1, 2});
    CHECK(of_counted(
              [](value x) {
                return broadcast_to(x, {2, 2, 3});
              },
              m, {2, 1}, {"x", ""}) == floats{0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1});
    CHECK(of_counted([](value x) { return stack({x, x * 10.0}, -1); }, m, {3}, {"x"}) == floats{0, 0, 1, 10, 2, 20});
    CHECK(of_counted([](value x) { return std::get<1>(split_into<2>(x, 0)) - std::get<0>(split_into<2>(x, 0)); }, m, {4, 2},
                     {"", "x"}) == floats{4, 4, 4, 4});
    CHECK(of_counted([](value x) { return tril(x); }, m, {3, 3}, {"x", ""}) == floats{0, 0, 0, 3, 4, 0, 6, 7, 8});
    CHECK(of_counted([](value x) { return triu(x, 1); }, m, {3, 3}, {"", "x"}) == floats{0, 1, 2, 0, 0, 5, 0, 0, 0});
    CHECK(of_counted([](value x) { return clip(x, 1.0, 2.5); }, m, {5}, {"x"}) == floats{1, 1, 2, 2.5, 2.5});
    CHECK(of_counted([](value x) { return where(isfinite(1.0 / (x - 1.0)), x, -1.0); }, m, {4}, {"x"}) == floats{0, -1, 2, 3});
    CHECK(of_counted<std::int32_t>([](value x) { return right_shift(left_shift(x, 4) % 40, 1) - bitwise_xor(x, 1); }, m, {5},
                                   {"x"}) == std::vector<std::int32_t>{-1, 8, 13, 2, 7});
  }
  const auto said = [&](auto f) { return caught::refusal([&] { dynamic::compile(f, three, dynamic::input<float>({3, 2})); }); };
  CHECK(caught::contains(said([](value x) { return expand_dims(x, 4); }), "dim 4 is not a dim of the result of rank 3"));
  CHECK(caught::contains(said([](value x) { return squeeze(x, 0); }), "dim 0 of [3,2] is no dim of extent 1"));
  CHECK(caught::contains(said([](value x) {
                           return broadcast_to(x, {2, 2});
                         }),
                         "the tensor is [3,2] and does not stretch to [2,2]"));
  CHECK(caught::contains(said([](value x) { return split_into<2>(x, 0)[0]; }), "dim 0 of [3,2] is not cut into 2 equal parts"));
  CHECK(caught::contains(said([](value x) { return tril(sum(x, 0)); }), "a triangle is one of the last two dims"));
  CHECK(caught::contains(said([](value x) { return left_shift(x, 1); }), "left_shift at dims.cpp"));
}

TEST_CASE("gradients of elementwise functions are their slopes") {
  const dynamic::mesh two({{"x", 2}});
  const auto functions = [](value x) {
    return std::array{expm1(x),
                      log1p(x),
                      erf(x),
                      erf_inv(x),
                      cbrt(x),
                      atan2(x, 0.5),
                      atan2(0.25, x),
                      fmod(x, 0.3),
                      fmod(2.0, x),
                      clip(x, 0.2, 0.6),
                      stop_gradient(x) * x};
  };
  const auto values = dynamic::compile(functions, two, dynamic::input<double>({3}, {"x"}));
  const auto slopes = dynamic::compile(
      [&](value x) {
        auto y = functions(x);
        for (auto& each : y) each = grad(sum(each), x);
        return y;
      },
      two, dynamic::input<double>({3}, {"x"}));
  const std::vector<double> x{0.11, 0.47, 0.83};
  const double by = 1e-6;
  std::vector<double> above = x, below = x;
  for (auto& each : above) each += by;
  for (auto& each : below) each -= by;
  const auto high = values.run(simulated{}, {above.data()}), low = values.run(simulated{}, {below.data()}),
             slope = slopes.run(simulated{}, {x.data()});
  for (std::size_t f = 0; f < slope.size(); ++f)
    for (std::size_t i = 0; i < 3; ++i) {
      CAPTURE(f);
      const double difference = (high[f].data<double>()[i] - low[f].data<double>()[i]) / (2 * by);
      const double wanted = f == 10 ? x[i] : difference;  // half of x * x has no slope
      CHECK(slope[f].data<double>()[i] == doctest::Approx(wanted).epsilon(1e-6));
    }
}
