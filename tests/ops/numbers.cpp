// SPDX-License-Identifier: Apache-2.0
// group: map
// Numbers next to tensors whose type does not hold them: refused, not cut.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gspmd/gspmd.hpp>

#include "gspmd/dynamic.hpp"
#include "support/error_of.hpp"

using namespace gspmd;

namespace {

using caught::contains;
using caught::refusal;

const dynamic::mesh two({{"x", 2}});

/// Returns the error of f(x) for x of this type, or "accepted".
template <class T>
std::string said(auto f) {
  return refusal([&] { static_cast<void>(dynamic::compile(f, two, dynamic::input<T>({4}, {"x"}))); });
}
template <class T, class R>
std::vector<R> computed(auto f, const std::vector<T>& x) {
  const auto y = dynamic::compile(f, two, dynamic::input<T>({static_cast<std::int64_t>(x.size())}, {"x"})).run(simulated{}, x);
  return {y[0].template data<R>(), y[0].template data<R>() + x.size()};
}

}  // namespace

TEST_CASE("integers take the numbers that they hold, and no others") {
  const auto text = said<std::int32_t>([](value x) { return x < 4.5; });
  CHECK(contains(text, "compare_lt at numbers.cpp:"));
  CHECK(contains(text, "the number 4.5 is no value of s32; write cast<float>(x) for the tensor, or a number that it holds"));
  CHECK(contains(said<std::int32_t>([](value x) { return x * 0.5; }), "multiply at numbers.cpp:"));
  CHECK(contains(said<std::int32_t>([](value x) { return x * -2.25; }), "the number -2.25 is no value of s32"));
  CHECK(contains(said<std::int32_t>([](value x) { return 1.0 / 3.0 + x; }), "the number 0.333333... is no value of s32"));
  CHECK(contains(said<std::int64_t>([](value x) { return pow(x, 0.5); }), "write cast<double>(x)"));
  CHECK(contains(said<std::int32_t>([](value x) { return max(x, 3'000'000'000); }), "write cast<std::int64_t>(x)"));
  CHECK(said<std::int64_t>([](value x) { return max(x, 3'000'000'000); }) == "accepted");
  CHECK(contains(said<std::int64_t>([](value x) { return x + std::uint64_t{18446744073709551615U}; }), "no value of s64"));
  CHECK(contains(said<std::int64_t>([](value x) { return x + 0x1p63; }), "no value of s64"));
  CHECK(said<std::int64_t>([](value x) { return x + -0x1p63; }) == "accepted");
  for (const double no_number : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    CHECK(contains(said<std::int32_t>([=](value x) { return x + no_number; }), "no value of s32"));
    CHECK(said<float>([=](value x) { return x + no_number; }) == "accepted");
  }
  CHECK(contains(said<std::int32_t>([](value x) { return where(x > 0, x, 0.1); }), "where at numbers.cpp:"));
  CHECK(contains(said<bool>([](value x) { return equal(x, 2); }), "the number 2 is no value of pred"));
  CHECK(contains(said<float>([](value x) { return x + constant<std::int32_t>(x, {4}, 2.5); }), "constant at numbers.cpp:"));
  CHECK(contains(said<float>([](value x) { return x * 1e39; }), "too large for f32; write cast<double>(x)"));
  CHECK(said<double>([](value x) { return x * 1e39; }) == "accepted");
  CHECK(computed<std::int32_t, std::int32_t>([](value x) { return x * 2 + 3.0; }, {4, 5}) == std::vector<std::int32_t>{11, 13});
  CHECK(computed<float, float>([](value x) { return x * 0.5 + constant(x, {2}, 1.5F); }, {4, 5}) == std::vector<float>{3.5, 4});
}

TEST_CASE("the mean and the norm of integers and bool are double") {
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();  // the sum of the elements is no int
  const auto means = [](value x) { return constant(x, {4}, 0.0) + mean(x); };
  const auto norms = [](value x) { return constant(x, {4}, 0.0) + norm(x); };
  CHECK(computed<std::int32_t, double>(means, {most, 0, most, most - 2})[0] == 1610612734.75);
  CHECK(computed<std::int32_t, double>(norms, {most, 0, most, -most})[0] == doctest::Approx(std::sqrt(3.0) * most));
  CHECK(computed<std::uint8_t, double>(means, {255, 0, 255, 1})[3] == 127.75);
  CHECK(computed<std::uint8_t, double>(norms, {255, 0, 255, 0})[3] == std::sqrt(2.0 * 255 * 255));
  CHECK(computed<std::int32_t, double>([&](value x) { return means(x > 1); }, {4, 5, 0, 7})[0] == 0.75);
  CHECK(computed<std::int32_t, double>([](value x) { return constant(x, {4}, 0.0) + norm(x, HUGE_VAL, {}); }, {4, -5, 0, 3})[0] ==
        5);
  CHECK(contains(said<std::int32_t>([](value x) { return norm(x, 0.5, {}); }), "p is less than 1"));
}

TEST_CASE("a map neither takes nor gives numbers that it would cut") {
  const int one = static_cast<int>(two.device_count()) - 1;  // a function with state is another path
  const auto half = [](auto e) { return static_cast<double>(e) * 0.5; };
  const auto less = [one](double e) { return e - one; };
  CHECK(contains(said<std::int64_t>([&](value x) { return map(half, x); }), "map at numbers.cpp:"));
  CHECK(contains(
      said<std::int64_t>([&](value x) { return map(half, x); }),
      "is not defined for s64, which the function does not take or would cut off, only for f32, f64; convert the operand, "
      "cast<double>(x), or the result of the function"));
  CHECK(contains(said<std::int32_t>([&](value x) { return map(less, x); }), "is not defined for s32"));
  CHECK(contains(said<bool>([&](value x) { return map(half, x); }), "is not defined for pred"));
  CHECK(contains(said<std::int32_t>([](value x) { return map([](std::int32_t e) { return std::int64_t{e} << 20; }, x); }),
                 "would cut off"));
  CHECK(contains(said<float>([](value x) { return map([](int e) { return e + 1; }, x); }), "is not defined for f32"));
  CHECK(contains(said<double>([](value x) { return map([](float e) { return e; }, x); }), "only for f32"));
  CHECK(contains(said<double>([&](value x) { return map([one](float e) noexcept { return e + static_cast<float>(one); }, x); }),
                 "only for f32"));
  CHECK(contains(said<double>([](value x) { return map(static_cast<float (*)(float)>([](float e) { return e; }), x); }),
                 "only for f32"));
  // values that are rounded or widened are right
  CHECK(computed<float, float>([&](value x) { return map(half, x); }, {4, 5}) == std::vector<float>{2, 2.5F});
  CHECK(computed<float, float>([&](value x) { return map(less, x); }, {4, 5}) == std::vector<float>{3, 4});
  CHECK(computed<std::int32_t, std::int32_t>([](value x) { return map([](std::int32_t e) { return e > 4; }, x); }, {4, 5}) ==
        std::vector<std::int32_t>{0, 1});
  CHECK(computed<std::int64_t, std::int64_t>(
            [](value x) { return map([](std::int64_t e) { return static_cast<int>(e % 3); }, x); }, {4, 5}) ==
        std::vector<std::int64_t>{1, 2});
}
