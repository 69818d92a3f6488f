// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Scans, maxima and their positions, compared with loops over lines on random meshes and shardings; with few bytes
// sent.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <tuple>
#include <type_traits>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/index/value_monoid.hpp>
#include <gspmd/transform/grad.hpp>

#include "support/any_backend.hpp"
#include "support/random_split.hpp"

namespace {

using namespace gspmd;
using reference::any_backend;
using reference::draws;
using reference::random_split;
using std::int64_t;

template <class T>
T number(draws& r, bool has_nan) {
  if constexpr (std::is_same_v<T, bool>) return r.below(2) == 1;
  else if constexpr (std::is_integral_v<T>)
    return r.below(9) == 0 ? std::numeric_limits<T>::min() : static_cast<T>(r.below(12) - 6);
  else return has_nan && r.below(12) == 0 ? std::numeric_limits<T>::quiet_NaN() : static_cast<T>(r.below(12) - 6) / T(8);
}
template <class T>
T combined(monoid kind, T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    if (kind != monoid::add && (a != a || b != b)) return std::numeric_limits<T>::quiet_NaN();
  if (kind == monoid::max) return std::max(a, b);
  if (kind == monoid::min) return std::min(a, b);
  if constexpr (std::is_same_v<T, bool>) return a || b;
  else if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  else return a + b;
}

template <class T>
void try_once(std::uint64_t seed, const dynamic::mesh& m, const any_backend& backend) {
  CAPTURE(seed);
  draws r{std::mt19937_64(seed)};
  const int64_t sizes[] = {1, 2, 3, 5, 8, 13, 0};
  std::vector<int64_t> shape;
  for (int64_t d = 1 + r.below(3); d > 0; --d) shape.push_back(sizes[r.below(d == 1 ? 6 : 7)]);
  const int rank = static_cast<int>(shape.size());
  const auto what = r.below(3);
  const auto dim = what == 1 ? shape.size() - 1 : static_cast<std::size_t>(r.below(rank));
  if (shape[dim] == 0) shape[dim] = 4;
  const monoid kinds[] = {std::is_same_v<T, bool> ? monoid::or_ : monoid::add, monoid::max, monoid::min};
  const monoid kind = kinds[r.below(3)];
  const scan_options how{.exclusive = r.below(2) == 0, .reverse = r.below(2) == 0};
  const int64_t k = r.below(shape[dim] + 1);
  const auto size = static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()));
  std::unique_ptr<T[]> x(new T[size + 1]);
  for (std::size_t i = 0; i < size; ++i) x[i] = number<T>(r, true);

  dynamic::builder b(m);
  const value in = b.input(dynamic::input<T>(shape, random_split(r, m, shape.size())));
  value made, indices;
  if (what == 0) made = scan_along(in, kind, static_cast<int>(dim), how);
  else if (what == 1) std::tie(made, indices) = top_k(in, k);
  else made = argmax(in, static_cast<int>(dim)), indices = argmin(in, static_cast<int>(dim));
  b.output(r.below(2) == 0 ? made : b.reshard(made, random_split(r, m, static_cast<std::size_t>(made.rank()))));
  if (what != 0) b.output(indices);
  const auto p = b.compile();
  const auto results = backend.run(p, std::vector<const void*>{x.get()});

  int64_t inner = 1, outer = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) (d < dim ? outer : inner) *= d == dim ? 1 : shape[d];
  const int64_t n = shape[dim];
  bool same = true;
  const auto is_same = [](T a, T c) { return a == c || (a != a && c != c); };
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t j = 0; j < inner; ++j) {
      const auto at = [&](int64_t i) { return static_cast<std::size_t>((o * n + i) * inner + j); };
      if (what == 0) {
        T sum = detail::identity<T>(kind);
        for (int64_t step = 0; step < n; ++step) {
          const auto i = at(how.reverse ? n - 1 - step : step);
          const T with = combined(kind, sum, x[i]);
          same = same && is_same(results[0].data<T>()[i], how.exclusive ? sum : with);
          sum = with;
        }
        continue;
      }
      std::vector<int64_t> order(static_cast<std::size_t>(n));
      std::iota(order.begin(), order.end(), 0);
      const auto sort = [&](bool largest) {
        std::sort(order.begin(), order.end(), [&](int64_t a, int64_t c) {
          const T p_ = x[at(a)], q = x[at(c)];
          if (p_ != p_ && q != q) return a < c;
          if (p_ != p_ || q != q) return p_ != p_;
          if (p_ == q) return a < c;
          return largest ? p_ > q : p_ < q;
        });
      };
      sort(true);
      if (what == 1) {
        for (int64_t i = 0; i < k; ++i) {
          const auto to = static_cast<std::size_t>(o * k + i),
                     best = static_cast<std::size_t>(order[static_cast<std::size_t>(i)]);
          same = same && is_same(results[0].data<T>()[to], x[at(static_cast<int64_t>(best))]) &&
                 results[1].data<std::int32_t>()[to] == static_cast<std::int32_t>(best);
        }
      } else {
        const auto to = static_cast<std::size_t>(o * inner + j);
        same = same && results[0].data<std::int32_t>()[to] == order[0];
        std::iota(order.begin(), order.end(), 0);
        sort(false);
        same = same && results[1].data<std::int32_t>()[to] == order[0];
      }
    }
  CHECK(same);
}

/// Maps x -> a x + b of the numbers below 97, one after the other: the order counts.
struct affine_maps {
  using values = std::tuple<std::int32_t, int64_t>;
  static constexpr values identity() { return {1, 0}; }
  static constexpr values combine(values first, values then) {
    const auto [a, b] = first;
    const auto [c, d] = then;
    return {a * c % 97, (b * c + d) % 97};
  }
};
/// The largest number and where it is first.
struct largest_and_where {
  using values = std::tuple<float, std::int32_t>;
  static constexpr values identity() {
    return {-std::numeric_limits<float>::infinity(), std::numeric_limits<std::int32_t>::max()};
  }
  static constexpr values combine(values a, values b) {
    return std::get<0>(b) > std::get<0>(a) || (std::get<0>(b) == std::get<0>(a) && std::get<1>(b) < std::get<1>(a)) ? b : a;
  }
};

template <class M>
void try_monoid(std::uint64_t seed, const dynamic::mesh& m, const any_backend& backend) {
  CAPTURE(seed);
  using first = std::tuple_element_t<0, typename M::values>;
  using second = std::tuple_element_t<1, typename M::values>;
  draws r{std::mt19937_64(seed)};
  const int64_t sizes[] = {1, 2, 3, 5, 8, 13, 0};
  std::vector<int64_t> shape;
  for (int64_t d = 1 + r.below(3); d > 0; --d) shape.push_back(sizes[r.below(7)]);
  const auto dim = static_cast<std::size_t>(r.below(static_cast<int64_t>(shape.size())));
  const scan_options how{.exclusive = r.below(2) == 0, .reverse = r.below(2) == 0};
  const auto size = static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()));
  std::vector<first> x(size + 1);
  std::vector<second> y(size + 1);
  for (std::size_t i = 0; i < size; ++i) x[i] = static_cast<first>(r.below(20)), y[i] = static_cast<second>(r.below(20));
  dynamic::builder b(m);
  const value a = b.input(dynamic::input<first>(shape, random_split(r, m, shape.size())));
  const value c = b.input(dynamic::input<second>(shape, random_split(r, m, shape.size())));
  for (const value v : reduce_by<M>({a, c}, static_cast<int>(dim))) b.output(v);
  for (const value v : scan_by<M>({a, c}, static_cast<int>(dim), how)) b.output(v);
  const auto results = backend.run(b.compile(), std::vector<const void*>{x.data(), y.data()});

  int64_t inner = 1, outer = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) (d < dim ? outer : inner) *= d == dim ? 1 : shape[d];
  const int64_t n = shape[dim];
  bool same = true;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t j = 0; j < inner; ++j) {
      const auto at = [&](int64_t i) { return static_cast<std::size_t>((o * n + i) * inner + j); };
      const auto is = [&](std::size_t result, std::size_t e, const typename M::values& wanted) {
        same = same && results[result].data<first>()[e] == std::get<0>(wanted) &&
               results[result + 1].data<second>()[e] == std::get<1>(wanted);
      };
      auto sum = M::identity();
      for (int64_t i = 0; i < n; ++i) sum = M::combine(sum, {x[at(i)], y[at(i)]});
      is(0, static_cast<std::size_t>(o * inner + j), sum);
      sum = M::identity();
      for (int64_t step = 0; step < n; ++step) {
        const auto i = at(how.reverse ? n - 1 - step : step);
        const auto with = how.reverse ? M::combine({x[i], y[i]}, sum) : M::combine(sum, {x[i], y[i]});
        is(2, i, how.exclusive ? sum : with);
        sum = with;
      }
    }
  CHECK(same);
}

void try_all(const any_backend& backend, const std::vector<dynamic::mesh>& meshes, std::uint64_t count) {
  for (std::uint64_t seed = 0; seed < count; ++seed)
    for (const auto& m : meshes) {
      try_once<double>(5 * seed, m, backend);
      try_once<float>(5 * seed + 1, m, backend);
      try_once<std::int32_t>(5 * seed + 2, m, backend);
      try_once<int64_t>(5 * seed + 3, m, backend);
      try_once<bool>(5 * seed + 4, m, backend);
    }
}

TEST_CASE("a running maximum and minimum have the same zeros on every mesh") {
  // Zeros of both signs, between numbers below and above them, so that totals of parts are zeros too.
  std::vector<double> x(2 * 96);
  std::mt19937 random(3);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = random() % 2 == 0 ? -0.0 : 0.0;
  for (std::size_t i = 0; i < 96; i += 5) x[i] = -1;
  for (std::size_t i = 96; i < x.size(); i += 7) x[i] = 1;
  for (const bool along_last : {false, true})
    for (const auto kind : {monoid::max, monoid::min})
      for (const bool exclusive : {false, true})
        for (const bool reversed : {false, true})
          for (const int devices : {1, 2, 3, 4}) {
            CAPTURE(along_last);
            CAPTURE(exclusive);
            CAPTURE(reversed);
            CAPTURE(devices);
            dynamic::builder p(dynamic::mesh({{"x", devices}}));
            const value in = along_last ? p.input(dynamic::input<double>({2, 96}, {"", "x"}))
                                        : p.input(dynamic::input<double>({96, 2}, {"x", ""}));
            p.output(scan_along(in, kind, along_last ? 1 : 0, {.exclusive = exclusive, .reverse = reversed}));
            const auto y = p.compile().run(simulated{}, x);
            int negative = 0;
            for (std::size_t i = 0; i < x.size(); ++i) {
              const double e = y[0].data<double>()[i];
              negative += e == 0 && std::signbit(e) ? 1 : 0;
            }
            CHECK(negative == 0);
          }
}

TEST_CASE("top_k of a tensor without elements has a gradient, which has none either") {
  for (const int devices : {1, 2}) {
    dynamic::builder p(dynamic::mesh({{"x", devices}}));
    const value beside = p.input(dynamic::input<double>({0, 3}, {"x", ""})),
                along = p.input(dynamic::input<double>({3, 0}, {"x", ""}));
    const value a = top_k(beside, 2).first, b = top_k(along, 0).first;
    for (const value g : grad(sum(a * a) + sum(b * b), std::array{beside, along})) p.output(g);
    const auto y = p.compile().run(simulated{}, std::vector<double>{}, std::vector<double>{});
    CHECK(y[0].shape == std::vector<std::int64_t>{0, 3});
    CHECK(y[1].shape == std::vector<std::int64_t>{3, 0});
  }
}

TEST_CASE("scans, top_k, argmax and argmin are what loops give, on every mesh") {
  try_all(simulated{},
          {dynamic::mesh({{"x", 2}}), dynamic::mesh({{"x", 2}, {"y", 3}}), dynamic::mesh({{"x", 8}}), dynamic::mesh({{"x", 1}})},
          40);
  try_all(threads{}, {dynamic::mesh({{"x", 2}, {"y", 2}})}, 10);
}

TEST_CASE("reductions and scans by monoids of two elements are what loops give, in order, on every mesh") {
  const dynamic::mesh meshes[] = {dynamic::mesh({{"x", 1}}), dynamic::mesh({{"x", 2}, {"y", 3}}), dynamic::mesh({{"x", 8}})};
  for (std::uint64_t seed = 0; seed < 90; ++seed) {
    try_monoid<affine_maps>(seed, meshes[seed % 3], simulated{});
    try_monoid<largest_and_where>(seed, meshes[seed % 3], simulated{});
  }
  for (std::uint64_t seed = 90; seed < 100; ++seed) try_monoid<affine_maps>(seed, dynamic::mesh({{"x", 2}, {"y", 2}}), threads{});
}

/// The same as affine_maps, written at run time.
dynamic::value_monoid written_affine_maps(const dynamic::mesh& m) {
  dynamic::builder c(m);
  const value a = c.input(dynamic::input<std::int32_t>({})), b = c.input(dynamic::input<int64_t>({}));
  const value then_a = c.input(dynamic::input<std::int32_t>({})), then_b = c.input(dynamic::input<int64_t>({}));
  const value prime = c.constant(dtype::s32, {}, int64_t{97});
  c.output(fmod(a * then_a, prime));
  c.output(fmod(b * cast<int64_t>(then_a) + then_b, cast<int64_t>(prime)));
  return {c, {{0, 1}, {0, 0}}};
}

TEST_CASE("a monoid that is written at run time gives what one that is a type does, by rows and by elements") {
  const dynamic::mesh m({{"x", 2}, {"y", 3}});
  for (const int dim : {0, 1})
    for (const auto& extents : {std::vector<int64_t>{5, 3}, {7, 150}, {1, 4}, {0, 3}, {2, 0}})
      for (const scan_options how :
           {scan_options{}, {.exclusive = true}, {.reverse = true}, {.exclusive = true, .reverse = true}}) {
        CAPTURE(dim);
        dynamic::builder b(m);
        const value a = b.input(dynamic::input<std::int32_t>(extents, {"x", "y"})), c = b.input(dynamic::input<int64_t>(extents));
        const auto maps = written_affine_maps(m);
        for (const value v : reduce_by<affine_maps>({a, c}, dim)) b.output(v);
        for (const value v : scan_by<affine_maps>({a, c}, dim, how)) b.output(v);
        for (const value v : reduce_by(maps, std::vector{a, c}, dim)) b.output(v);
        for (const value v : scan_by(maps, std::vector{a, c}, dim, how)) b.output(v);
        const auto size = static_cast<std::size_t>(extents[0] * extents[1]);
        std::vector<std::int32_t> x(size + 1);
        std::vector<int64_t> y(size + 1);
        for (std::size_t i = 0; i < size; ++i)
          x[i] = static_cast<std::int32_t>(i * 7 % 13), y[i] = static_cast<int64_t>(i * 5 % 11);
        const auto results = b.compile().run(simulated{}, std::vector<const void*>{x.data(), y.data()});
        const auto reduced = static_cast<std::size_t>(extents[dim == 0 ? 1 : 0]);
        const auto equal = [&](std::size_t r, std::size_t n) {
          return std::equal(results[r].data<std::int32_t>(), results[r].data<std::int32_t>() + n,
                            results[r + 4].data<std::int32_t>()) &&
                 std::equal(results[r + 1].data<int64_t>(), results[r + 1].data<int64_t>() + n, results[r + 5].data<int64_t>());
        };
        CHECK(equal(0, reduced));
        CHECK(equal(2, size));
      }
}

TEST_CASE("a monoid that is written at run time is checked") {
  const dynamic::mesh m({{"x", 2}});
  dynamic::builder c(m);
  const value left = c.input(dynamic::input<float>({})), right = c.input(dynamic::input<float>({}));
  c.output(left + right - left * right);
  CHECK_NOTHROW(dynamic::value_monoid(c, {{0.0, 0}}));
  CHECK_THROWS_WITH_AS(
      dynamic::value_monoid(c, {{1.0, 0}}),
      "gspmd: reduce_by: combine(x, identity()) or combine(identity(), x) is not x for a sample of this monoid; correct "
      "identity(), or state samples() that occur",
      error);
  CHECK_THROWS_WITH_AS(dynamic::value_monoid(c, {}), "gspmd: reduce_by: identity() has 0 numbers and the monoid 1 elements",
                       error);
  dynamic::builder b(m);
  const value x = b.input(dynamic::input<std::int32_t>({4}));
  reduce_by(dynamic::value_monoid(c, {{0.0, 0}}), std::vector{x}, 0);
  CHECK(b.take_mistake().find("tensor 0 is s32 and element 0 of the monoid is f32; convert it") != std::string::npos);
}

TEST_CASE("norms are roots of sums of powers: one all_reduce of a split vector") {
  dynamic::builder b(dynamic::mesh({{"x", 2}, {"y", 3}}));
  const value x = b.input(dynamic::input<double>({2, 7}, {"", "x,y"}));
  for (const double p : {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) b.output(norm(x, p, along(1)));
  const auto program = b.compile();
  CHECK(program.traffic().bytes == (2 * 48 - 2 * 48 / 6) + (2 * 16 - 2 * 16 / 6));  // three sums in one message, and the maximum
  const std::vector<double> numbers{3, 0, 0, -4, 0, 0, 0, 1, -1, 1, -1, 1, -1, 1};
  const auto norms = program.run(simulated{}, std::vector<const void*>{numbers.data()});
  const double wanted[][2] = {{7, 7}, {5, std::sqrt(7.0)}, {std::cbrt(91.0), std::cbrt(7.0)}, {4, 1}};
  for (std::size_t k = 0; k < 4; ++k)
    for (std::size_t i = 0; i < 2; ++i) CHECK(norms[k].data<double>()[i] == doctest::Approx(wanted[k][i]));
}

TEST_CASE("a split dim is never gathered: the totals of the parts, and k elements of each, are sent") {
  const dynamic::mesh m({{"x", 4}});
  const auto bytes = [&](auto make) {
    dynamic::builder b(m);
    b.output(make(b.input(dynamic::input<float>({3, 1024}, {"", "x"}))));
    return b.compile().traffic().bytes;
  };
  CHECK(bytes([](value x) { return cumsum(x, 1); }) == 3 * (3 * 4));  // (n - 1) elements for each of 3 lines
  CHECK(bytes([](value x) { return top_k(x, 5).first; }) == 3 * (3 * 5 * (4 + 4)));
  CHECK(bytes([](value x) {
          return reduce_by<largest_and_where>({x, iota<std::int32_t>(x, x.shape(), 1)}, 1)[1];
        }) == 3 * (3 * (4 + 4)));
}

}  // namespace
