// SPDX-License-Identifier: Apache-2.0
// labels: native
#include "gspmd/detail/kernels/reduce.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

using namespace gspmd::detail;
using gspmd::monoid;

namespace {

constexpr monoid all_kinds[] = {monoid::add, monoid::multiply, monoid::max, monoid::min, monoid::and_, monoid::or_};

// Padding may hold this: the value that would spoil this reduction.
template <class T>
T garbage(monoid kind) {
  if constexpr (std::is_same_v<T, bool>) return kind == monoid::or_ || kind == monoid::max;
  else if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::quiet_NaN();
  else
    return kind == monoid::min    ? std::numeric_limits<T>::min()
           : kind == monoid::and_ ? T{}
           : kind == monoid::or_  ? static_cast<T>(-1)
                                  : std::numeric_limits<T>::max();
}

template <class T>
T draw(std::mt19937& random, monoid kind) {
  if constexpr (std::is_same_v<T, bool>) {
    const bool rare = random() % 16 == 0;
    return kind == monoid::or_ || kind == monoid::max ? rare : !rare;
  } else if constexpr (std::is_floating_point_v<T>) {
    if (kind == monoid::multiply) {  // powers of two near 1, so that products are exact in any order
      const auto dice = random() % 400;
      return dice == 0 ? T(2) : dice == 1 ? T(0.5) : dice % 2 == 0 ? T(1) : T(-1);
    }
    const auto dice = random() % 200;
    if (dice == 0 && kind != monoid::add) return std::numeric_limits<T>::quiet_NaN();
    if (dice == 1) return std::numeric_limits<T>::infinity();
    return static_cast<T>(static_cast<int>(random() % 201) - 100);
  } else {
    return static_cast<T>(static_cast<std::uint64_t>(random()) << 32 | random());
  }
}

// The definition, element by element and independent of monoid_ops.
template <class T>
T apply(monoid kind, T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return kind == monoid::and_ || kind == monoid::min ? a && b : a || b;
  } else if constexpr (std::is_floating_point_v<T>) {
    if (kind == monoid::add) return a + b;
    if (kind == monoid::multiply) return a * b;
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
    return kind == monoid::max ? std::max(a, b) : std::min(a, b);
  } else {
    using u = std::make_unsigned_t<T>;
    switch (kind) {
      case monoid::add: return static_cast<T>(static_cast<u>(a) + static_cast<u>(b));
      case monoid::multiply: return static_cast<T>(static_cast<u>(a) * static_cast<u>(b));
      case monoid::max: return std::max(a, b);
      case monoid::min: return std::min(a, b);
      case monoid::and_: return a & b;
      case monoid::or_: return a | b;
    }
    return a;
  }
}
template <class T>
T neutral(monoid kind) {
  using limits = std::numeric_limits<T>;
  switch (kind) {
    case monoid::add:
    case monoid::or_: return T(0);
    case monoid::multiply: return T(1);
    case monoid::and_: return std::is_same_v<T, bool> ? T(1) : static_cast<T>(-1);
    case monoid::max: return std::is_floating_point_v<T> ? -limits::infinity() : limits::lowest();
    case monoid::min: return std::is_floating_point_v<T> ? limits::infinity() : limits::max();
  }
  return T{};
}

template <class T>
bool same(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    if (std::isnan(a) && std::isnan(b)) return true;
  return a == b;
}

template <class T>
void check(const reduction_spec& s, const std::vector<std::int64_t>& valid, std::mt19937& random) {
  const auto size = static_cast<std::size_t>(elements(s.in));
  std::size_t out_size = 1;
  for (int d = 0; d < s.in.count; ++d)
    if ((s.dims & dim_bit(d)) == 0) out_size *= static_cast<std::size_t>(s.in[d]);
  constexpr std::size_t guard = 4;
  const std::unique_ptr<T[]> in(new T[size + 1]), out(new T[out_size + guard]), expected(new T[out_size + 1]);
  for (std::size_t i = 0; i < out_size; ++i) expected[i] = neutral<T>(s.reduced_by);
  for (std::size_t i = 0; i < out_size + guard; ++i) out[i] = garbage<T>(s.reduced_by);
  for (std::size_t i = 0; i < size; ++i) {
    std::size_t rest = i, to = 0, to_stride = 1;
    bool counts = true;
    for (int d = s.in.count - 1; d >= 0; --d) {
      const auto n = static_cast<std::size_t>(s.in[d]);
      const auto at = rest % n;
      rest /= n;
      if ((s.dims & dim_bit(d)) != 0) counts = counts && static_cast<std::int64_t>(at) < valid[static_cast<std::size_t>(d)];
      else {
        to += at * to_stride;
        to_stride *= n;
      }
    }
    in[i] = counts ? draw<T>(random, s.reduced_by) : garbage<T>(s.reduced_by);
    if (counts) expected[to] = apply(s.reduced_by, expected[to], in[i]);
  }
  gspmd::detail::reduce(reduction_kernel_for<T>(s.reduced_by), plan_reduction(s), valid.data(), in.get(), out.get());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < out_size; ++i) wrong += same(out[i], expected[i]) ? 0U : 1U;
  for (std::size_t i = out_size; i < out_size + guard; ++i) wrong += same(out[i], garbage<T>(s.reduced_by)) ? 0U : 1U;
  if (wrong != 0) {
    std::string text = gspmd::detail::name_of(s.reduced_by);
    for (int d = 0; d < s.in.count; ++d) {
      text += ' ';
      text += std::to_string(s.in[d]);
      if ((s.dims & dim_bit(d)) == 0) continue;
      text += '*';
      text += std::to_string(valid[static_cast<std::size_t>(d)]);
    }
    FAIL_CHECK(text << ": " << wrong << " wrong elements");
  }
}

template <class T>
void check_random(unsigned seed, int cases, int most_rank, std::int64_t most_extent) {
  std::mt19937 random(seed);
  for (int i = 0; i < cases; ++i) {
    reduction_spec s;
    std::vector<std::int64_t> valid;
    const int rank = static_cast<int>(random() % static_cast<unsigned>(most_rank + 1));
    for (int d = 0; d < rank; ++d) {
      const auto dice = random() % 24;
      s.in.push_back(dice == 0   ? 0
                     : dice <= 3 ? 1
                                 : 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(most_extent)));
      const bool is_reduced = random() % 2 == 0;
      if (is_reduced) s.dims |= dim_bit(d);
      valid.push_back(!is_reduced         ? -99
                      : random() % 2 == 0 ? s.in[d]
                                          : static_cast<std::int64_t>(random() % static_cast<unsigned>(s.in[d] + 1)));
    }
    for (const auto kind : all_kinds) {
      if (!monoid_is_defined<T>(kind)) continue;
      s.reduced_by = kind;
      check<T>(s, valid, random);
    }
  }
}

constexpr reduction_spec make(std::initializer_list<std::int64_t> in, dim_mask dims, monoid kind) {
  reduction_spec s;
  for (const auto n : in) s.in.push_back(n);
  s.dims = dims;
  s.reduced_by = kind;
  return s;
}

}  // namespace

TEST_CASE("reduce: random shapes, dims and bounds agree with the definition") {
  check_random<float>(1, 1500, 5, 6);
  check_random<double>(2, 1000, 5, 6);
  check_random<std::int32_t>(3, 1000, 5, 6);
  check_random<std::int64_t>(4, 1000, 5, 6);
  check_random<bool>(5, 1500, 5, 6);
}

TEST_CASE("reduce: long dims, past the vectors and the chunks") {
  check_random<float>(6, 60, 2, 700);
  check_random<double>(7, 60, 3, 60);
  check_random<std::int32_t>(8, 60, 2, 500);
  check_random<std::int64_t>(9, 60, 3, 60);
  check_random<bool>(10, 60, 2, 700);
  std::mt19937 random(11);
  const auto wide = make({9, 5000}, 1, monoid::add), flat = make({20011}, 1, monoid::max), thin = make({5000, 3}, 1, monoid::add);
  check<float>(wide, {8, -99}, random);
  check<double>(flat, {20001}, random);
  check<float>(thin, {4999, -99}, random);
}

TEST_CASE("reduce: a NaN wins a maximum and a minimum wherever it stands, and nothing else makes one") {
  for (const auto kind : {monoid::max, monoid::min})
    for (const std::int64_t n : {1, 5, 40, 200}) {
      const auto s = make({n}, 1, kind);
      for (std::int64_t at = -1; at < n; ++at) {
        std::vector<float> in(static_cast<std::size_t>(n), 3.0F);
        if (at >= 0) in[static_cast<std::size_t>(at)] = std::nanf("");
        float out = 0;
        gspmd::detail::reduce(reduction_kernel_for<float>(kind), plan_reduction(s), &n, in.data(), &out);
        if (at >= 0) CHECK(std::isnan(out));
        else CHECK(out == 3.0F);
      }
    }
  CHECK(combine(monoid::max, -1.0F, 2.0F) == 2.0F);
  CHECK(std::isnan(combine(monoid::min, 1.0, std::nan(""))));
  CHECK(combine(monoid::add, std::numeric_limits<std::int32_t>::max(), 1) == std::numeric_limits<std::int32_t>::min());
}

namespace {
// Returns the error of the sum over `dims` of equal numbers, whose roundings do not cancel.
double error_of_sum(std::initializer_list<std::int64_t> shape, dim_mask dims) {
  reduction_spec spec;
  std::vector<std::int64_t> valid;
  std::int64_t terms = 1, kept = 1;
  for (const auto n : shape) {
    ((dims & dim_bit(spec.in.count)) != 0 ? terms : kept) *= n;
    spec.in.push_back(n);
    valid.push_back(n);
  }
  spec.dims = dims;
  const std::vector<float> in(static_cast<std::size_t>(terms * kept), 0.1f);
  std::vector<float> out(static_cast<std::size_t>(kept));
  reduce(reduction_kernel_for<float>(spec.reduced_by), plan_reduction(spec), valid.data(), in.data(), out.data());
  double worst = 0;
  for (const float x : out)
    worst = std::max(worst, std::fabs(static_cast<double>(x) / (static_cast<double>(0.1f) * static_cast<double>(terms)) - 1));
  return worst;
}
}  // namespace

TEST_CASE("reduce: long sums are as exact as short ones") {
  constexpr double most = 2e-5;
  CHECK(error_of_sum({1 << 22}, 1) < most);
  CHECK(error_of_sum({3, (1 << 21) + 5}, 2) < most);
  CHECK(error_of_sum({1 << 20, 3}, 1) < most);      // rows shorter than a vector
  CHECK(error_of_sum({1 << 18, 20}, 1) < most);     // and longer
  CHECK(error_of_sum({1 << 14, 3, 40}, 5) < most);  // two runs of reduced dims
  CHECK(error_of_sum({1 << 16, 2, 5, 3}, 5) < most);
  CHECK(error_of_sum({40, 3000, 30, 2}, 5) < most);  // of a result in several pieces
}
