// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// The narrow and the unsigned element types: exhaustive tests of their conversions, and random programs on random
// meshes, compared with loops over single elements.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/program/dtype.hpp>

#include "support/any_backend.hpp"
#include "support/random_split.hpp"
#include "support/slow_operators.hpp"

namespace {

using namespace gspmd;
using reference::any_backend;
using reference::draws;
using reference::random_split;
using std::int64_t;
namespace slow = slow_operators;

/// Returns the value of a bit pattern from its fields.
double value_of(unsigned bits, int fraction, int bias) {
  const unsigned exponents = (1U << (15 - fraction)) - 1, exponent = (bits >> fraction) & exponents,
                 rest = bits & ((1U << fraction) - 1);
  const double sign = (bits & 0x8000U) != 0 ? -1 : 1;
  if (exponent == exponents) return rest != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(rest, 1 - bias - fraction);
  return sign * std::ldexp(rest + (1U << fraction), static_cast<int>(exponent) - bias - fraction);
}

template <class T>
void check_all_patterns(int fraction, int bias) {
  int wrong = 0;
  const auto is = [&](bool holds) { wrong += holds ? 0 : 1; };
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const T x = T::of_bits(static_cast<std::uint16_t>(bits));
    const double exact = value_of(bits, fraction, bias);
    const float wide = x;
    if (std::isnan(exact)) {
      is(std::isnan(wide));
      is(std::isnan(static_cast<float>(T(wide))));
      continue;
    }
    is(static_cast<double>(wide) == exact && std::signbit(wide) == std::signbit(exact));
    is(T(wide).bits == bits && T(static_cast<double>(wide)).bits == bits);
    // Between a number and the next one away from 0: the middle rounds to the even number, other numbers to the nearer
    // one.
    const unsigned size = bits & 0x7fffU, sign = bits & 0x8000U, infinity = (0x7fffU >> fraction) << fraction;
    if (size >= infinity) continue;
    const double next = size + 1 == infinity ? std::copysign(std::ldexp(1.0, (1 << (14 - fraction))), sign != 0 ? -1.0 : 1.0)
                                             : value_of(bits + 1, fraction, bias);
    const double middle = (exact + next) / 2;
    const unsigned even = (size & 1U) == 0 ? bits : bits + 1;
    is(T(middle).bits == even && T(static_cast<float>(middle)).bits == even);
    is(T(std::nextafter(middle, 0.0)).bits == bits && T(std::nextafter(middle, 2 * next)).bits == bits + 1);
    is(T(std::nextafter(static_cast<float>(middle), 0.0F)).bits == bits);
    is(T(std::nextafter(static_cast<float>(middle), sign != 0 ? -3.4e38F : 3.4e38F)).bits == bits + 1);
  }
  CHECK(wrong == 0);
}

template <class T>
T number(draws& r) {
  if constexpr (std::is_integral_v<T>) {
    using limits = std::numeric_limits<T>;
    const T special[] = {limits::min(), limits::max(), T(0), T(1), T(limits::max() / 2)};
    return r.below(3) == 0 ? special[r.below(5)] : static_cast<T>(r.below(200) - (limits::is_signed ? 100 : 0));
  } else {
    return T(static_cast<float>(r.below(2001) - 1000) / 64.0F);
  }
}

template <class T>
slow::value as_value(T x) {
  std::byte bytes[8]{};
  std::memcpy(bytes, &x, sizeof x);
  return slow::read(detail::dtype_of<T>(), bytes, 0);
}

/// (a + b) * a - c, a maximum, a comparison, a selection and divisions, each rounded to the type.
template <class T>
std::vector<slow::value> naive_elementwise(slow::value a, slow::value b) {
  using namespace detail;
  const auto of = [](const scalar_code& op, const slow::value& x, const slow::value& y) { return slow::naive_binary(op, x, y); };
  const auto sum = of(scalar_code_of<add_op>, a, b), product = of(scalar_code_of<multiply_op>, sum, a),
             least = of(scalar_code_of<min_op>, product, b);
  const auto is_less = of(scalar_code_of<compare_lt_op>, a, b);
  return {of(scalar_code_of<subtract_op>, product, b), is_less.integer != 0 ? least : a, of(scalar_code_of<divide_op>, a, b),
          of(scalar_code_of<fmod_op>, b, a)};
}

template <class T>
void try_elementwise(draws& r, const dynamic::mesh& m, const any_backend& backend) {
  const int64_t extents[] = {1, 2, 3, 5, 8, 0, 70};
  std::vector<int64_t> shape;
  int64_t count = 1;
  for (int64_t d = r.below(3); d >= 0; --d) count *= shape.emplace_back(extents[r.below(7)]);
  std::vector<T> x, y;
  for (int64_t i = 0; i < count; ++i) {
    x.push_back(number<T>(r));
    y.push_back(number<T>(r));
  }
  const auto p = dynamic::compile(
      [](value a, value b) {
        const value product = (a + b) * a;
        return std::array{product - b,
                          where(a < b, min(product, b), a),
                          a / b,
                          fmod(b, a),
                          cast<float>(a),
                          cast<std::int8_t>(a),
                          cast<bf16>(a),
                          cast<std::uint64_t>(a),
                          cast<f16>(b),
                          cast<std::int16_t>(b),
                          cast<std::uint8_t>(b),
                          cast<bool>(b)};
      },
      m, dynamic::input<T>(shape, random_split(r, m, shape.size())), dynamic::input<T>(shape, random_split(r, m, shape.size())));
  const auto got = backend.run(p, {x.data(), y.data()});
  constexpr dtype to[] = {dtype::f32, dtype::s8, dtype::bf16, dtype::u64, dtype::f16, dtype::s16, dtype::u8, dtype::pred};
  int wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto k = static_cast<std::size_t>(i);
    auto wanted = naive_elementwise<T>(as_value(x[k]), as_value(y[k]));
    for (std::size_t c = 0; c < std::size(to); ++c) wanted.push_back(slow::naive_convert(to[c], as_value(c < 4 ? x[k] : y[k])));
    for (std::size_t o = 0; o < wanted.size(); ++o) {
      const auto is = slow::read(got[o].type, got[o].bytes.data(), i);
      if (slow::same(is, wanted[o], 0)) continue;
      if (wrong++ == 0)
        FAIL_CHECK("output ", o, " of ", detail::name_of(detail::dtype_of<T>()), " is ", is.real, " / ", is.integer, ", not ",
                   wanted[o].real, " / ", wanted[o].integer, " of ", as_value(x[k]).real, ' ', as_value(x[k]).integer, ", ",
                   as_value(y[k]).real, ' ', as_value(y[k]).integer);
    }
  }
}

/// Sums, maxima and products of matrices. Float adds these numbers exactly in any order. So the result of a narrow
/// float is known to the bit if one device has all of a sum.
template <class T>
void try_reductions(draws& r, const dynamic::mesh& m, const any_backend& backend) {
  const int64_t extents[] = {1, 2, 3, 5, 8, 17, 0};
  const int64_t a = extents[r.below(7)], b = extents[r.below(7)], c = extents[r.below(7)];
  const auto numbers = [&](int64_t count) {
    std::vector<T> list;
    for (int64_t i = 0; i < count; ++i)
      list.push_back(is_floating(detail::dtype_of<T>()) ? T(static_cast<float>(r.below(15) - 7)) : number<T>(r));
    return list;
  };
  const auto x = numbers(a * b), w = numbers(b * c);
  const auto p = dynamic::compile(
      [](value l, value right) {
        return std::array{einsum("ab,bc->ac", l, right), sum(l, {0}), reduce(l, monoid::max, {1}), reduce(l, monoid::min, {0, 1}),
                          sum(l)};
      },
      m, dynamic::input<T>({a, b}, random_split(r, m, 2)), dynamic::input<T>({b, c}, random_split(r, m, 2)));
  const auto got = backend.run(p, {x.data(), w.data()});
  using wide = std::conditional_t<detail::is_float_element<T>, float, std::uint64_t>;
  const auto at = [](const std::vector<T>& list, int64_t i) { return list[static_cast<std::size_t>(i)]; };
  const auto is = [&](std::size_t o, int64_t i, T wanted) {
    T own;
    std::memcpy(&own, got[o].bytes.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return own == wanted;
  };
  int wrong = 0;
  T least = detail::identity<T>(monoid::min);
  wide all{};
  for (int64_t i = 0; i < a; ++i) {
    T most = detail::identity<T>(monoid::max);
    for (int64_t k = 0; k < b; ++k) {
      most = std::max(most, at(x, i * b + k));
      least = std::min(least, at(x, i * b + k));
      all += static_cast<wide>(at(x, i * b + k));
    }
    wrong += is(2, i, most) ? 0 : 1;
    for (int64_t j = 0; j < c; ++j) {
      wide dot{};
      for (int64_t k = 0; k < b; ++k) dot += static_cast<wide>(at(x, i * b + k)) * static_cast<wide>(at(w, k * c + j));
      // Parts of a narrow float are rounded before they are added.
      if (!detail::is_float_element<T> || m.device_count() == 1) wrong += is(0, i * c + j, static_cast<T>(dot)) ? 0 : 1;
      else {
        T own;
        std::memcpy(&own, got[0].bytes.data() + (i * c + j) * static_cast<int64_t>(sizeof(T)), sizeof(T));
        wrong += std::fabs(static_cast<double>(own) - static_cast<double>(dot)) <= 6 + std::fabs(static_cast<double>(dot)) / 64
                     ? 0
                     : 1;
      }
    }
  }
  for (int64_t k = 0; k < b; ++k) {
    wide total{};
    for (int64_t i = 0; i < a; ++i) total += static_cast<wide>(at(x, i * b + k));
    wrong += is(1, k, static_cast<T>(total)) ? 0 : 1;  // at most 119: exact in every type
  }
  wrong += is(3, 0, least) ? 0 : 1;
  if (!detail::is_float_element<T> || m.device_count() == 1) wrong += is(4, 0, static_cast<T>(all)) ? 0 : 1;
  CHECK(wrong == 0);
}

/// Lookups, scatters, running reductions and maxima of small integers. Narrow floats represent all sums.
template <class T>
void try_indexing(draws& r, const dynamic::mesh& m, const any_backend& backend) {
  const int64_t extents[] = {1, 2, 3, 5, 8, 0};
  const int64_t a = extents[r.below(5)], b = extents[r.below(5)], n = extents[r.below(6)], k = r.below(static_cast<int>(b) + 1);
  const auto numbers = [&](int64_t count) {
    std::vector<T> list;
    for (int64_t i = 0; i < count; ++i) list.push_back(static_cast<T>(static_cast<float>(r.below(6))));
    return list;
  };
  const auto x = numbers(a * b), u = numbers(n * b);
  std::vector<std::int32_t> rows;
  for (int64_t i = 0; i < n; ++i) rows.push_back(static_cast<std::int32_t>(r.below(static_cast<int>(a) + 2) - 1));
  const auto p = dynamic::compile(
      [&](value vx, value vi, value vu) {
        const auto best = top_k(vx, k);
        return std::array{take(vx, vi, 0),
                          take(vx, vi, 0, out_of_range::fill, 7),
                          scatter_add(vx, vi, vu, 0),
                          scatter_add(vx, vi, vu, 0, monoid::max),
                          scatter_add(vx, vi, vu, 0, monoid::min),
                          cumsum(vx, 0),
                          scan_along(vx, monoid::max, 1, {.reverse = true}),
                          scan_along(vx, monoid::min, 0, {.exclusive = true}),
                          best.first,
                          best.second,
                          sort(vx, 1),
                          argmax(vx, 1)};
      },
      m, dynamic::input<T>({a, b}, random_split(r, m, 2)), dynamic::input<std::int32_t>({n}, random_split(r, m, 1)),
      dynamic::input<T>({n, b}, random_split(r, m, 2)));
  const auto got = backend.run(p, {x.data(), rows.data(), u.data()});
  const auto at = [](const std::vector<T>& list, int64_t i) { return list[static_cast<std::size_t>(i)]; };
  int wrong[12] = {};
  const auto is = [&](std::size_t o, int64_t i, T wanted) {
    T own;
    std::memcpy(&own, got[o].bytes.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    wrong[o] += own == wanted ? 0 : 1;
  };
  const auto is_number = [&](std::size_t o, int64_t i, int64_t wanted) {
    wrong[o] += got[o].template data<std::int32_t>()[i] == wanted ? 0 : 1;
  };
  for (int64_t j = 0; j < b; ++j) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t named = rows[static_cast<std::size_t>(i)], row = std::min(std::max(named, int64_t{0}), a - 1);
      is(0, i * b + j, at(x, row * b + j));
      is(1, i * b + j, row == named ? at(x, row * b + j) : static_cast<T>(7.0F));
    }
    double sum = 0;
    T least = detail::identity<T>(monoid::min);
    for (int64_t i = 0; i < a; ++i) {
      T most = at(x, i * b + j), fewest = most;
      double added = static_cast<double>(most);
      for (int64_t l = 0; l < n; ++l) {
        if (rows[static_cast<std::size_t>(l)] != i) continue;
        added += static_cast<double>(at(u, l * b + j));
        most = std::max(most, at(u, l * b + j));
        fewest = std::min(fewest, at(u, l * b + j));
      }
      is(2, i * b + j, static_cast<T>(added));
      is(3, i * b + j, most);
      is(4, i * b + j, fewest);
      is(5, i * b + j, static_cast<T>(sum += static_cast<double>(at(x, i * b + j))));
      is(7, i * b + j, least);
      least = std::min(least, at(x, i * b + j));
    }
  }
  for (int64_t i = 0; i < a; ++i) {
    std::vector<int64_t> order;
    for (int64_t j = 0; j < b; ++j) order.push_back(j);
    std::sort(order.begin(), order.end(), [&](int64_t s, int64_t t) {
      const T left = at(x, i * b + s), right = at(x, i * b + t);
      return left > right || (left == right && s < t);
    });
    for (int64_t j = 0; j < k; ++j) {
      is(8, i * k + j, at(x, i * b + order[static_cast<std::size_t>(j)]));
      is_number(9, i * k + j, order[static_cast<std::size_t>(j)]);
    }
    T most = detail::identity<T>(monoid::max);
    for (int64_t j = b; j-- > 0;) {
      most = std::max(most, at(x, i * b + j));
      is(6, i * b + j, most);
      is(10, i * b + b - 1 - j, at(x, i * b + order[static_cast<std::size_t>(j)]));
    }
    is_number(11, i, order[0]);
  }
  for (int o = 0; o < 12; ++o) {
    CAPTURE(o);
    CHECK(wrong[o] == 0);
  }
}

template <class T>
void try_type(std::uint64_t seed, const dynamic::mesh& m, const any_backend& backend) {
  CAPTURE(seed);
  CAPTURE(detail::name_of(detail::dtype_of<T>()));
  draws r{std::mt19937_64(seed)};
  try_elementwise<T>(r, m, backend);
  try_reductions<T>(r, m, backend);
  try_indexing<T>(r, m, backend);
}
void try_all(std::uint64_t count, const std::vector<dynamic::mesh>& meshes, const any_backend& backend) {
  for (std::uint64_t seed = 0; seed < count; ++seed)
    for (const auto& m : meshes) {
      try_type<bf16>(seed, m, backend);
      try_type<f16>(seed, m, backend);
      try_type<std::int8_t>(seed, m, backend);
      try_type<std::uint8_t>(seed, m, backend);
      try_type<std::int16_t>(seed, m, backend);
      try_type<std::uint32_t>(seed, m, backend);
      try_type<std::uint64_t>(seed, m, backend);
    }
}

}  // namespace

TEST_CASE("bf16 and f16: every pattern is its value, and every number goes to the nearest, half-way to the even one") {
  static_assert(sizeof(bf16) == 2 && sizeof(f16) == 2 && std::is_trivially_copyable_v<bf16> && std::is_trivially_copyable_v<f16>);
  static_assert(static_cast<float>(bf16(1.0F)) == 1.0F && f16(65520.0).bits == 0x7c00 && f16(65519.0).bits == 0x7bff);
  check_all_patterns<bf16>(7, 127);
  check_all_patterns<f16>(10, 15);
}

TEST_CASE("every element type: elementwise operators, conversions, reductions and products, on any sharding") {
  const dynamic::mesh one({{"x", 1}}), four({{"x", 4}}), grid({{"x", 2}, {"y", 3}}), line({{"x", 2}, {"y", 1}, {"z", 4}});
  try_all(6, {one}, serial{});
  try_all(20, {four, grid, line}, simulated{});
  try_all(4, {four, grid}, threads{});
}

TEST_CASE("bf16 sends half the bytes, and what several devices have is added up in float and rounded once") {
  const dynamic::mesh m({{"x", 8}});
  const auto total = [](value x) { return sum(x, {0}); };
  const auto p = dynamic::compile(total, m, dynamic::input<bf16>({8, 1000}, {"x", ""}));
  CHECK(p.collectives() == std::vector<collective>{all_reduce<"x">});
  CHECK(p.traffic().bytes == dynamic::compile(total, m, dynamic::input<float>({8, 1000}, {"x", ""})).traffic().bytes / 2);
  // 256 + 7 times 1: bf16 has a step of 2 from 256 on, so a sequential sum would stay 256.
  std::vector<bf16> x(8000, bf16(1.0F));
  std::fill_n(x.begin(), 1000, bf16(256.0F));
  const auto check = [&](const any_backend& backend) {
    const auto y = backend.run(p, {x.data()});
    CHECK(std::all_of(y[0].data<bf16>(), y[0].data<bf16>() + 1000, [](bf16 v) { return static_cast<float>(v) == 264.0F; }));
  };
  check(simulated{});
  check(threads{});
}

TEST_CASE("an einsum of bf16 may keep its sums as floats, on several devices too") {
  const dynamic::mesh m({{"x", 4}});
  const auto p = dynamic::compile(
      [](value x, value w) {
        const value y = einsum_as<float, "bd,df->bf">(x, w);
        return std::tuple{y, grad(sum(y), x)};
      },
      m, dynamic::input<bf16>({2, 8}, {"", "x"}), dynamic::input<bf16>({8, 3}, {"x", ""}));
  CHECK(p.output(0).type() == dtype::f32);
  CHECK(p.output(1).type() == dtype::bf16);
  CHECK(p.traffic().bytes == 2 * 3 * 6 * 4 / 4);
  std::vector<bf16> x(16, bf16(1.0F)), w(24, bf16(1.0F));
  x[0] = bf16(256.0F);
  const auto y = p.run(threads{}, {x.data(), w.data()});
  CHECK(y[0].data<float>()[0] == 263);
  CHECK(static_cast<float>(y[1].data<bf16>()[3]) == 3);
  CHECK_THROWS_WITH(dynamic::compile([](value a, value b) { return einsum_as<double, "ab,bc->ac">(a, b); }, m,
                                     dynamic::input<bf16>({2, 2}), dynamic::input<bf16>({2, 2})),
                    doctest::Contains("of bf16 cannot give f64; it gives the type of its operands, or of two narrow ones f32"));
}

namespace {
/// Products of narrow elements with more terms than a panel, on uneven shards, batches and sums of two letters.
template <class T>
void try_long_products(const dynamic::mesh& m, std::uint64_t seed) {
  draws r{std::mt19937_64(seed)};
  const int64_t a = 5, k = 131, h = 9, b = 7, n = 2;  // 1179 terms
  std::vector<T> x, w;
  for (int64_t i = 0; i < n * a * k * h; ++i) x.push_back(T(static_cast<float>(r.below(3) - 1)));
  for (int64_t i = 0; i < n * k * h * b; ++i) w.push_back(T(static_cast<float>(r.below(3) - 1)));
  const auto p = dynamic::compile(
      [](value vx, value vw) {
        const value y = einsum_as<std::conditional_t<std::is_integral_v<T>, std::int32_t, float>, "nakh,nkhb->nab">(vx, vw);
        const value turned = einsum_as<std::conditional_t<std::is_integral_v<T>, std::int32_t, float>, "nakh,nkhb->nba">(vx, vw);
        return std::array{y, turned};
      },
      m, dynamic::input<T>({n, a, k, h}, random_split(r, m, 4)), dynamic::input<T>({n, k, h, b}, random_split(r, m, 4)));
  const auto check = [&](const any_backend& backend) {
    const auto got = backend.run(p, {x.data(), w.data()});
    int wrong = 0;
    for (int64_t i = 0; i < n * a * b; ++i) {
      const auto in = i / (a * b), ia = i / b % a, ib = i % b;
      float sum = 0;
      for (int64_t t = 0; t < k * h; ++t)
        sum += static_cast<float>(x[static_cast<std::size_t>((in * a + ia) * k * h + t)]) *
               static_cast<float>(w[static_cast<std::size_t>((in * k * h + t) * b + ib)]);
      with_real_type(got[0].type, [&]<class Sum>(Sum) {
        wrong += static_cast<float>(got[0].template data<Sum>()[i]) == sum ? 0 : 1;
        wrong += static_cast<float>(got[1].template data<Sum>()[(in * b + ib) * a + ia]) == sum ? 0 : 1;
      });
    }
    CHECK(wrong == 0);
  };
  check(simulated{});
  check(threads{});
}
}  // namespace

TEST_CASE("long products of narrow elements, panel by panel") {
  const dynamic::mesh meshes[] = {dynamic::mesh({{"x", 1}}), dynamic::mesh({{"x", 2}, {"y", 2}}), dynamic::mesh({{"x", 3}})};
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    for (const auto& m : meshes) {
      try_long_products<bf16>(m, seed);
      if (seed == 0) try_long_products<f16>(m, 10);
      if (seed == 0) try_long_products<std::int8_t>(m, 11);
    }
}

TEST_CASE("bf16: gradients, loops, rows and a map") {
  const dynamic::mesh m({{"x", 4}});
  const auto p = dynamic::compile(
      [](value x, value w) {
        const value h = einsum("bd,df->bf", x, w);
        const value loss = sum(relu(h) * h, {0, 1});
        return std::tuple{grad(loss, w), map([](auto v) { return v * v + v; }, x)};
      },
      m, dynamic::input<bf16>({8, 4}, {"x", ""}), dynamic::input<bf16>({4, 4}));
  std::vector<bf16> x, w;
  for (int i = 0; i < 32; ++i) x.push_back(bf16(static_cast<float>(i % 5 - 2)));
  for (int i = 0; i < 16; ++i) w.push_back(bf16(static_cast<float>(i % 3)));
  const auto y = p.run(simulated{}, {x.data(), w.data()});
  CHECK(y[0].type == dtype::bf16);
  for (std::size_t d = 0; d < 4; ++d)
    for (std::size_t f = 0; f < 4; ++f) {
      float wanted = 0;
      for (std::size_t b = 0; b < 8; ++b) {
        float h = 0;
        for (std::size_t k = 0; k < 4; ++k) h += x[b * 4 + k] * w[k * 4 + f];
        wanted += h > 0 ? 2 * h * x[b * 4 + d] : 0;
      }
      CHECK(static_cast<float>(y[0].data<bf16>()[d * 4 + f]) == wanted);
    }
  CHECK(std::equal(x.begin(), x.end(), y[1].data<bf16>(), [](bf16 a, bf16 b) { return a * a + a == static_cast<float>(b); }));
}
