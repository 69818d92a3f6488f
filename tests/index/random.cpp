// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Random numbers: the generator against its published vectors, numbers against loops that make them one by one, the
// same on every mesh, and nothing sent.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/index/random.hpp>

#include "support/error_of.hpp"

namespace {

using namespace gspmd;
using detail::threefry2x32;

// kat_vectors of Random123, threefry2x32 20: counter, key, result.
static_assert(threefry2x32(0, 0) == 0x6b20015999ba4efe);
static_assert(threefry2x32(~std::uint64_t{0}, ~std::uint64_t{0}) == 0x1cb996fcbb002be7);
static_assert(threefry2x32(0x243f6a8885a308d3, 0x13198a2e03707344) == 0xc4923a9c483df7a0);

constexpr std::uint64_t seed = 0x123456789abcdefU;
std::uint32_t naive_bits(std::uint64_t key, std::uint64_t i) {
  const auto words = threefry2x32(i, key);
  return static_cast<std::uint32_t>(words >> 32) ^ static_cast<std::uint32_t>(words);
}

const auto all_kinds = [](value x) {
  const value key = random::key(x, seed);
  const std::vector<std::int64_t> shape{5, 3, 7};
  const auto [a, b] = random::split<2>(key);
  return std::array{random::bits(key, shape),
                    random::uniform<float>(key, shape),
                    random::uniform<double>(a, shape),
                    random::uniform<bf16>(a, shape),
                    random::normal<float>(b, shape),
                    random::bernoulli(b, 0.25, shape),
                    random::randint<std::int32_t>(key, -5, 17, shape),
                    random::randint<std::uint64_t>(key, 3, 10'000'000'000'000, shape),
                    random::bits(random::fold_in(random::fold_in(key, 3), cast<std::int32_t>(x)), {})};
};

}  // namespace

TEST_CASE("random: what a loop over the elements makes, the same bits on every mesh and sharding, and nothing sent") {
  std::vector<std::vector<std::byte>> first;
  const dynamic::mesh one({{"x", 1}}), grid({{"x", 2}, {"y", 3}}), line({{"x", 8}});
  const auto run = [&](const dynamic::mesh& m, const auto& backend, const std::vector<std::string>& sharding) {
    dynamic::builder b(m);
    const value x = b.input(dynamic::input<float>({}, {}));
    for (const value y : all_kinds(x)) b.output(y.rank() == 3 ? b.reshard(y, sharding) : y);
    const auto p = b.compile();
    CHECK(p.traffic().bytes == 0);
    const float nine = 9;
    const auto y = p.run(backend, {&nine});
    if (first.empty())
      for (const auto& tensor : y) first.push_back(tensor.bytes);
    for (std::size_t k = 0; k < y.size(); ++k) CHECK(y[k].bytes == first[k]);
    return y;
  };
  const auto y = run(one, serial{}, {"", "", ""});
  run(grid, simulated{}, {"x", "", "y"});
  run(grid, threads{}, {"", "y,x", ""});
  run(line, simulated{}, {"", "", "x"});

  const auto a = threefry2x32(0, seed), b = threefry2x32(1, seed);
  bool same = true;
  for (std::uint64_t i = 0; i < 105; ++i) {
    const auto bits = naive_bits(seed, i);
    same = same && y[0].data<std::uint32_t>()[i] == bits;
    same = same && y[1].data<float>()[i] == static_cast<float>(bits >> 9) / 8388608.0F;
    same = same && y[2].data<double>()[i] == static_cast<double>(threefry2x32(i, a) >> 12) / 0x1p52;
    same = same && static_cast<double>(y[3].data<bf16>()[i]) == ((naive_bits(a, i) & 0xffffU) >> 9) / 128.0;
    const double u = 2 * ((naive_bits(b, i) >> 9) / 0x1p23) - 1, x = y[4].data<float>()[i];
    same = same && std::fabs(std::erf(x / std::sqrt(2.0)) - u) < 1e-6;
    same = same && y[5].data<bool>()[i] == ((naive_bits(b, i) >> 9) / 0x1p23 < 0.25);
    const std::uint32_t high = naive_bits(threefry2x32(0, seed), i) % 22, low = naive_bits(threefry2x32(1, seed), i) % 22;
    same = same && y[6].data<std::int32_t>()[i] == static_cast<std::int32_t>((high * (0x100000000U % 22) + low) % 22) - 5;
    same = same && y[7].data<std::uint64_t>()[i] >= 3 && y[7].data<std::uint64_t>()[i] < 10'000'000'000'000;
  }
  CHECK(same);
  CHECK(y[8].data<std::uint32_t>()[0] == naive_bits(threefry2x32(9, threefry2x32(3, seed)), 0));
}

TEST_CASE("random: moments of many numbers, and no correlation of those of keys that follow each other") {
  const dynamic::mesh two({{"x", 2}});
  const auto p = dynamic::compile(
      [](value x) {
        const auto n = [&](int k) { return random::normal<double>(random::fold_in(random::key(x, 1), k), {200000}); };
        const value u = random::uniform<float>(random::key(x, 2), {200000});
        return std::array{sum(n(0)), sum(n(0) * n(0)), sum(n(0) * n(1)), cast<double>(sum(u)),
                          cast<double>(sum(cast<float>(random::bernoulli(random::key(x, 3), 0.3, {200000}))))};
      },
      two, dynamic::input<float>({}, {}));
  const float none = 0;
  const auto y = p.run(simulated{}, {&none});
  const auto at = [&](std::size_t k) { return y[k].data<double>()[0] / 200000; };
  CHECK(std::fabs(at(0)) < 0.01);
  CHECK(std::fabs(at(1) - 1) < 0.015);
  CHECK(std::fabs(at(2)) < 0.01);
  CHECK(std::fabs(at(3) - 0.5) < 0.003);
  CHECK(std::fabs(at(4) - 0.3) < 0.005);
}

TEST_CASE("random: a permutation has every number once, by the order of random words, on every mesh; a shuffle is a take by it") {
  constexpr std::int64_t n = 37;
  std::vector<std::int32_t> wanted(n);
  for (std::int32_t i = 0; i < n; ++i) wanted[static_cast<std::size_t>(i)] = i;
  std::sort(wanted.begin(), wanted.end(), [](std::int32_t a, std::int32_t b) {
    return threefry2x32(static_cast<std::uint64_t>(a), seed) < threefry2x32(static_cast<std::uint64_t>(b), seed);
  });
  const std::vector<std::int64_t> shape{2, n};
  std::vector<float> x(2 * n);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  for (const auto& m : {dynamic::mesh({{"x", 1}}), dynamic::mesh({{"x", 2}}), dynamic::mesh({{"x", 2}, {"y", 3}})}) {
    dynamic::builder b(m);
    const value in = b.input(dynamic::input<float>(shape, {"", "x"})), key = random::key(in, seed);
    b.output(b.reshard(random::permutation(key, n), {"x"}));
    b.output(random::shuffle(key, in, 1));
    const auto results = b.compile().run(simulated{}, std::vector<const void*>{x.data()});
    for (std::size_t i = 0; i < n; ++i) {
      CHECK(results[0].data<std::int32_t>()[i] == wanted[i]);
      for (std::size_t row = 0; row < 2; ++row)
        CHECK(results[1].data<float>()[row * n + i] == x[row * n + static_cast<std::size_t>(wanted[i])]);
    }
  }
}

namespace {

/// The range of the results, the drawn results, and every number of a narrow type that must occur.
template <class T>
void check_range(double low, double high, std::int64_t occurring = 0) {
  const auto p = dynamic::compile([=](value key) { return random::uniform<T>(key, low, high, {20000}); },
                                  dynamic::mesh({{"x", 2}}), dynamic::input<std::uint64_t>({}));
  const auto drawn = p.run(simulated{}, std::vector<std::uint64_t>{seed})[0];
  std::map<double, std::int64_t> count;
  double sum = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto x = static_cast<double>(drawn.template data<T>()[i]);
    CHECK_MESSAGE((low <= x && x < high), x, " of [", low, ", ", high, ")");
    ++count[x];
    sum += x;
  }
  CHECK(std::fabs(sum / 20000 - (low + high) / 2) <
        (high - low) * (occurring > 0 ? 0.5 / static_cast<double>(occurring) + 0.02 : 0.02));
  if (occurring == 0) return;
  CHECK(static_cast<std::int64_t>(count.size()) == occurring);
  const double each = 20000 / static_cast<double>(occurring);
  for (const auto& [x, n] : count) CHECK_MESSAGE(std::fabs(static_cast<double>(n) - each) < 6 * std::sqrt(each), x, ": ", n);
}

/// Text of the mistake of a program that is given a key.
std::string mistake_of(value (*program)(value)) {
  return caught::refusal([&] { dynamic::compile(program, dynamic::mesh({{"x", 2}}), dynamic::input<std::uint64_t>({})); });
}

}  // namespace

TEST_CASE("random: uniform numbers of a range are in it after rounding too, and those of narrow types are equally likely") {
  check_range<float>(5, 6);
  check_range<double>(-3, 1e9);
  check_range<float>(-1, 1);
  check_range<bf16>(5, 6, 32);    // the steps of bf16 between 4 and 8
  check_range<bf16>(0, 1, 128);   // as without a range
  check_range<bf16>(-1, 1, 512);  // steps of 2^-8, though there are smaller ones near 0
  check_range<bf16>(-1, 0, 256);  // 0 is the next multiple of the step, and is excluded
  check_range<bf16>(1, 1.02, 3);  // 1, 1.0078, 1.0156
  check_range<f16>(0.7, 0.8);
  check_range<f16>(-65504, 65504);
}

TEST_CASE("random: integers of whole types, and of ranges that end with them") {
  const auto f = [](value key) {
    return std::array{random::bits<std::uint64_t>(key, {64}),
                      random::randint<std::uint64_t>(key, 0, 0x1p64, {64}),
                      random::randint<std::uint64_t>(key, 0xfffffffffffffffa, 0xffffffffffffffff, {64}),
                      random::randint<std::int32_t>(key, -2147483648, 2147483648, {64}),
                      random::bits<std::int32_t>(key, {64}),
                      random::randint<std::int8_t>(key, 100, 128, {64}),
                      random::bits<std::uint8_t>(key, {64})};
  };
  const auto y = dynamic::compile(f, dynamic::mesh({{"x", 2}}), dynamic::input<std::uint64_t>({}))
                     .run(simulated{}, std::vector<std::uint64_t>{seed});
  for (std::uint64_t i = 0; i < 64; ++i) {
    CHECK(y[0].data<std::uint64_t>()[i] == threefry2x32(i, seed));
    CHECK(y[1].data<std::uint64_t>()[i] == threefry2x32(i, seed));
    CHECK(y[2].data<std::uint64_t>()[i] >= 0xfffffffffffffffa);
    CHECK(y[2].data<std::uint64_t>()[i] < 0xffffffffffffffff);
    CHECK(y[3].data<std::int32_t>()[i] == static_cast<std::int32_t>(naive_bits(seed, i)));
    CHECK(y[4].data<std::int32_t>()[i] == static_cast<std::int32_t>(naive_bits(seed, i)));
    CHECK(y[5].data<std::int8_t>()[i] >= 100);
    CHECK(y[6].data<std::uint8_t>()[i] == static_cast<std::uint8_t>(naive_bits(seed, i)));
  }
}

TEST_CASE("random: probabilities and ranges that are none are refused") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  const auto has = [](value (*program)(value), const char* text) {
    CHECK_MESSAGE(caught::contains(mistake_of(program), text), text);
  };
  has([](value k) { return random::bernoulli(k, 1.5, {2}); }, "random::bernoulli at random.cpp");
  has([](value k) { return random::bernoulli(k, 1.5, {2}); }, "the probability is 1.5; it is from 0 to 1");
  has([](value k) { return random::bernoulli(k, -1, {2}); }, "the probability is -1; it is from 0 to 1");
  has([](value k) { return random::bernoulli(k, nan, {2}); }, "the probability is nan; it is from 0 to 1");
  has([](value k) { return random::uniform<float>(k, 5, 5, {2}); },
      "the range is from 5 to 5, without its end, and has no float; low is less than high");
  has([](value k) { return random::uniform<bf16>(k, 1.001, 1.002, {2}); }, "has no gspmd::bf16; low is less than high");
  has([](value k) { return random::uniform<double>(k, 0, infinity, {2}); },
      "the range is from 0 to inf, which is too wide for double; both ends and their difference are finite numbers of the type");
  has([](value k) { return random::uniform<float>(k, nan, 1, {2}); }, "the range is from nan to 1, which is too wide for float");
  has([](value k) { return random::uniform<float>(k, -3e38, 3e38, {2}); }, "from -3.0e38 to 3.0e38, which is too wide");
  has([](value k) { return random::randint<std::uint32_t>(k, -1, 5, {2}); },
      "low is -1; write a number that std::uint32_t holds");
  has([](value k) { return random::randint<std::int32_t>(k, 0.5, 5, {2}); },
      "low is 0.5; write a number that std::int32_t holds");
  has([](value k) { return random::randint<std::int32_t>(k, 0, 2147483649, {2}); },
      "high is 2147483649; write a number that std::int32_t holds, or one more than its largest");
  has([](value k) { return random::randint<std::uint64_t>(k, 0xffffffffffffffff, 5, {2}); },
      "there is no integer from 18446744073709551615 to 5, which is excluded; low is less than high");
}

TEST_CASE("numbers of u64 beyond 2^63 - 1 are written as integers and as floats that are integers") {
  constexpr std::uint64_t large = 0xfffffffffffff801;
  const auto f = [](value x) {
    return std::array{x + large,
                      max(x, large),
                      cast<std::uint64_t>(x < 0x1p63),
                      cast<std::uint64_t>(x >= large),
                      constant<std::uint64_t>(x, {3}, 0x1.8p63),
                      pad(x, {0}, {0}, large) + pad(slice(x, {0}, {2}), {1}, {0}, large),
                      cast<std::uint64_t>(equal(x, large)),
                      fmod(constant<std::uint64_t>(x, {3}, large), 1000)};
  };
  const std::vector<std::uint64_t> x{1, large, 0x8000000000000000};
  const auto y = dynamic::compile(f, dynamic::mesh({{"x", 2}}), dynamic::input<std::uint64_t>({3}, {"x"})).run(simulated{}, x);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto at = [&](std::size_t k) { return y[k].data<std::uint64_t>()[i]; };
    CHECK(at(0) == x[i] + large);
    CHECK(at(1) == std::max(x[i], large));
    CHECK(at(2) == (x[i] < 0x8000000000000000 ? 1U : 0U));
    CHECK(at(3) == (x[i] >= large ? 1U : 0U));
    CHECK(at(4) == 0xc000000000000000);
    CHECK(at(5) == x[i] + (i == 0 ? large : x[i - 1]));
    CHECK(at(6) == (x[i] == large ? 1U : 0U));
    CHECK(at(7) == large % 1000);
  }
  CHECK(caught::contains(
      caught::refusal([&] {
        dynamic::compile([](value v) { return v + 0x1p64; }, dynamic::mesh({{"x", 2}}), dynamic::input<std::uint64_t>({3}));
      }),
      "the number 1.8e19 is no value of u64"));
}

TEST_CASE("random: a key of another type, and a range without integers, are refused") {
  const dynamic::mesh two({{"x", 2}});
  const auto said = [&](auto f) { return caught::refusal([&] { dynamic::compile(f, two, dynamic::input<float>({3}, {"x"})); }); };
  CHECK(caught::contains(said([](value x) { return random::bits(x, {4}); }),
                         "the key is f32[3]; a key is a u64 scalar: random::key(x, 42), an input, or what fold_in makes"));
  CHECK(caught::contains(said([](value x) { return random::fold_in(x, 4); }), "random::fold_in at random.cpp"));
  CHECK(caught::contains(said([](value x) { return random::randint<std::int32_t>(random::key(x, 1), 4, 4, {2}); }),
                         "there is no integer from 4 to 4, which is excluded; low is less than high"));
}
