// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Random numbers: the generator against its published vectors, numbers against loops that make them one by one, the same on every mesh,
// and nothing sent.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
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
                    random::bits(random::fold_in(random::fold_in(key, 3), convert<std::int32_t>(x)), {})};
};

}  // namespace

TEST_CASE("random: what a loop over the elements makes, the same bits on every mesh and sharding, and nothing sent") {
  std::vector<std::vector<std::byte>> first;
  const dynamic::mesh one({{"x", 1}}), grid({{"x", 2}, {"y", 3}}), line({{"x", 8}});
  const auto run = [&](const dynamic::mesh& m, const auto& backend, const std::vector<std::string>& sharding) {
    dynamic::builder b(m);
    const value x = b.input(dynamic::in<float>({}, {}));
    for (const value y : all_kinds(x)) b.output(y.rank() == 3 ? b.reshard(y, sharding) : y);
    const auto p = b.compile();
    CHECK(p.traffic().bytes == 0);
    const float nine = 9;
    const auto y = p.run_pointers(backend, {&nine});
    if (first.empty())
      for (const auto& tensor : y) first.push_back(tensor.bytes);
    for (std::size_t k = 0; k < y.size(); ++k) CHECK(y[k].bytes == first[k]);
    return y;
  };
  const auto y = run(one, self{}, {"", "", ""});
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
        return std::array{sum(n(0)), sum(n(0) * n(0)), sum(n(0) * n(1)), convert<double>(sum(u)),
                          convert<double>(sum(convert<float>(random::bernoulli(random::key(x, 3), 0.3, {200000}))))};
      },
      two, dynamic::in<float>({}, {}));
  const float none = 0;
  const auto y = p.run_pointers(simulated{}, {&none});
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
    const value in = b.input(dynamic::in<float>(shape, {"", "x"})), key = random::key(in, seed);
    b.output(b.reshard(random::permutation(key, n), {"x"}));
    b.output(random::shuffle(key, in, 1));
    const auto results = b.compile().run_pointers(simulated{}, std::vector<const void*>{x.data()});
    for (std::size_t i = 0; i < n; ++i) {
      CHECK(results[0].data<std::int32_t>()[i] == wanted[i]);
      for (std::size_t row = 0; row < 2; ++row)
        CHECK(results[1].data<float>()[row * n + i] == x[row * n + static_cast<std::size_t>(wanted[i])]);
    }
  }
}

TEST_CASE("random: a key of another type, and a range without integers, are refused") {
  const dynamic::mesh two({{"x", 2}});
  const auto said = [&](auto f) { return caught::refusal([&] { dynamic::compile(f, two, dynamic::in<float>({3}, {"x"})); }); };
  CHECK(caught::contains(said([](value x) { return random::bits(x, {4}); }),
                         "the key is f32[3]; a key is a u64 scalar: random::key(x, 42), an input, or what fold_in makes"));
  CHECK(caught::contains(said([](value x) { return random::fold_in(x, 4); }), "random::fold_in at random_numbers.cpp"));
  CHECK(caught::contains(said([](value x) { return random::randint<std::int32_t>(random::key(x, 1), 4, 4, {2}); }),
                         "there is no integer from 4 to 4, which is excluded; low is less than high"));
}
