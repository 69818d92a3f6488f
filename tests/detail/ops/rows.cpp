// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Reads and writes of a row of a tensor equal a naive loop on random meshes and shardings, and send at most a row.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

#include "support/any_backend.hpp"
#include "support/random_split.hpp"

namespace {

using namespace gspmd;
using reference::any_backend;
using reference::draws;
using reference::random_split;
using std::int64_t;

enum class kind : std::uint8_t { read, set, add };

value row_of(value x, value index) {
  return {x.graph(), detail::add_dynamic_index(*x.graph(), x.id(), index.id(), detail::location::current())};
}
value with_row(kind k, value x, value row, value index) {
  const auto here = detail::location::current();
  auto& g = *x.graph();
  return {&g, k == kind::set ? detail::add_dynamic_update<detail::set_row_op>(g, x.id(), row.id(), index.id(), here)
                             : detail::add_dynamic_update<detail::add_row_op>(g, x.id(), row.id(), index.id(), here)};
}

template <class T>
T number(draws& r) {
  if constexpr (std::is_same_v<T, bool>) {
    return r.below(2) == 1;
  } else if constexpr (std::is_integral_v<T>) {
    return r.below(9) == 0 ? std::numeric_limits<T>::min() : static_cast<T>(r.below(100) - 50);
  } else {
    using limits = std::numeric_limits<T>;
    const T special[] = {T(-0.0), limits::infinity(), -limits::infinity(), limits::quiet_NaN(), limits::denorm_min()};
    return r.below(4) == 0 ? special[r.below(5)] : static_cast<T>(r.below(100)) / T(8);
  }
}

template <class T>
T sum_of(T a, T b) {
  if constexpr (std::is_integral_v<T>)  // wraps around
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  else return a + b;
}

template <class T>
void try_once(std::uint64_t seed, const dynamic::mesh& m, const any_backend& backend) {
  CAPTURE(seed);
  draws r{std::mt19937_64(seed)};
  const auto what = static_cast<kind>(r.below(std::is_same_v<T, bool> ? 2 : 3));
  const int64_t extents[] = {1, 2, 3, 5, 8, 0};
  std::vector<int64_t> shape{extents[r.below(what == kind::read ? 5 : 6)]};
  for (int64_t d = r.below(3); d > 0; --d) shape.push_back(extents[r.below(6)]);
  const std::vector<int64_t> row_shape(shape.begin() + 1, shape.end());
  int64_t width = 1;
  for (const auto e : row_shape) width *= e;
  const int64_t rows = shape[0];

  const auto numbers = [&](int64_t count) {
    std::unique_ptr<T[]> list(new T[static_cast<std::size_t>(count) + 1]);
    for (int64_t i = 0; i < count; ++i) list[static_cast<std::size_t>(i)] = number<T>(r);
    return list;
  };
  const auto x = numbers(rows * width), row = numbers(width);

  dynamic::builder b(m);
  const value in = b.input(dynamic::input<T>(shape, random_split(r, m, shape.size())));
  const value given = b.input(dynamic::input<T>(row_shape, random_split(r, m, row_shape.size())));
  const value index = b.input(dynamic::input<int64_t>({}, {}));
  const value made = what == kind::read ? row_of(in, index) : with_row(what, in, given, index);
  const auto wanted = random_split(r, m, static_cast<std::size_t>(made.rank()));
  const bool says = r.below(2) == 0;
  if (says) b.output(b.reshard(made, wanted));
  else b.output(made);
  const auto p = b.compile();

  for (int64_t i = -2; i <= rows + 1; ++i) {
    CAPTURE(i);
    const auto at = std::max(std::min(i, rows - 1), int64_t{0});
    const auto results = backend.run(p, std::vector<const void*>{x.get(), row.get(), &i});
    const T* const got = results[0].data<T>();
    const int64_t count = what == kind::read ? width : rows * width;
    bool same = true;
    for (int64_t k = 0; k < count; ++k) {
      T expected = x[static_cast<std::size_t>(what == kind::read ? at * width + k : k)];
      if (what != kind::read && k / width == at) {
        const T own = row[static_cast<std::size_t>(k % width)];
        expected = what == kind::set ? own : sum_of(expected, own);
      }
      // a NaN may come back as another one
      same = same && (std::memcmp(&got[k], &expected, sizeof(T)) == 0 || (expected != expected && got[k] != got[k]));
    }
    CHECK(same);
  }
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

}  // namespace

TEST_CASE("rows: what a naive loop reads and writes, to the bit") {
  const dynamic::mesh one({{"x", 1}}), four({{"x", 4}}), grid({{"x", 2}, {"y", 3}}), line({{"x", 2}, {"y", 1}, {"z", 4}});
  try_all(serial{}, {one}, 10);
  try_all(simulated{}, {four, grid, line}, 40);
  try_all(threads{}, {four, grid}, 6);
}

TEST_CASE("rows: one of a large tensor is brought to all by a reduction of the row, and is written where it lies") {
  const dynamic::mesh m({{"x", 8}});
  const auto rows = dynamic::input<float>({1 << 16, 256}, {"x", ""});
  const auto i = dynamic::input<int64_t>({}, {});
  const auto read = dynamic::compile([](value x, value at) { return row_of(x, at); }, m, rows, i);
  CHECK(read.collectives() == std::vector<collective>{all_reduce<"x">});
  CHECK(read.traffic().bytes == 2 * 7 * 256 * 4 / 8);
  const auto scattered = dynamic::compile([](value x, value at) { return reshard(row_of(x, at), split<"x">{}); }, m, rows, i);
  CHECK(scattered.collectives() == std::vector<collective>{reduce_scatter<"x">});
  CHECK(scattered.traffic().bytes == 7 * 256 * 4 / 8);
  for (const auto k : {kind::set, kind::add}) {
    const auto write = [k](value x, value row, value at) { return with_row(k, x, row, at); };
    const auto here = dynamic::compile(write, m, rows, dynamic::input<float>({256}, {""}), i);
    CHECK(here.traffic().collectives == 0);
    CHECK(here.output(0).sharding() == std::vector<std::string>{"x", ""});
    const auto split_row = dynamic::compile(write, m, rows, dynamic::input<float>({256}, {"x"}), i);
    CHECK(split_row.collectives() == std::vector<collective>{all_gather<"x">});  // of the row
    CHECK(split_row.traffic().bytes == 7 * 256 * 4 / 8);
  }
}

TEST_CASE("rows: gradients of reading and writing are each other, and move at most the row") {
  const dynamic::mesh m({{"x", 4}});
  const auto rows = dynamic::input<double>({6, 3}, {"x", ""});
  const auto row = dynamic::input<double>({3}, {""});
  const auto i = dynamic::input<int64_t>({}, {});
  const auto by_both = [](kind k) {
    return [k](value x, value r, value at) {
      const value weights = cast<double>(iota<int64_t>(x, {6, 3}, 0)) + 1.0;
      const value loss = sum(with_row(k, x, r, at) * weights);
      return grad(loss, std::tuple{x, r});
    };
  };
  std::vector<double> x(18, 1), r(3, 2);
  for (const auto k : {kind::set, kind::add}) {
    const auto p = dynamic::compile(by_both(k), m, rows, row, i);
    for (int64_t at = 0; at < 6; ++at) {
      const auto g = p.run(simulated{}, std::vector<const void*>{x.data(), r.data(), &at});
      for (int64_t e = 0; e < 18; ++e) {
        const double kept = k == kind::set && e / 3 == at ? 0 : static_cast<double>(e / 3) + 1;
        CHECK(g[0].data<double>()[e] == kept);
      }
      for (int64_t e = 0; e < 3; ++e) CHECK(g[1].data<double>()[e] == static_cast<double>(at) + 1);
    }
    CHECK(p.traffic().bytes <= 2 * 3 * 8);
  }
  const auto read = dynamic::compile(
      [](value a, value at) {
        const value y = row_of(a, at);
        return grad(sum(y * y), a);
      },
      m, rows, i);
  CHECK(read.collectives() == std::vector<collective>{all_reduce<"x">});  // of y
  for (int64_t e = 0; e < 18; ++e) x[static_cast<std::size_t>(e)] = static_cast<double>(e);
  for (int64_t at = 0; at < 6; ++at) {
    const auto g = read.run(simulated{}, std::vector<const void*>{x.data(), &at});
    for (int64_t e = 0; e < 18; ++e) CHECK(g[0].data<double>()[e] == (e / 3 == at ? 2.0 * static_cast<double>(e) : 0.0));
  }
}

TEST_CASE("rows: a loop that adds rows up reduces once, after its last iteration") {
  const dynamic::mesh m({{"x", 4}});
  const auto total = [](value x) {
    return fori_loop(
        8, [&](value i, value c) { return c + row_of(x, i); }, zeros_like(sum(x, {0})));
  };
  const auto p = dynamic::compile(total, m, dynamic::input<float>({8, 1}, {"x", ""}));
  CHECK(p.collectives() == std::vector<collective>{all_reduce<"x">});
  CHECK(p.traffic().bytes == 2 * 3 * 4 / 4);
  const std::vector<float> x{1, 2, 3, 4, 5, 6, 7, 8};
  CHECK(p.run(simulated{}, std::vector<const void*>{x.data()})[0].data<float>()[0] == 36);
}

TEST_CASE("rows: one device's row is no term of a product: 0 times infinity elsewhere would be NaN") {
  const dynamic::mesh m({{"x", 4}});
  const auto p = dynamic::compile(
      [](value x, value w, value at) {
        return std::tuple{row_of(x, at) * w, -row_of(x, at) / (w - w)};
      },
      m, dynamic::input<double>({8, 1}, {"x", ""}), dynamic::input<double>({1}, {""}), dynamic::input<int64_t>({}, {}));
  const std::vector<double> x{1, 2, 3, 4, 5, 6, 7, 8};
  const double infinite = std::numeric_limits<double>::infinity(), one = 1;
  for (int64_t at = 0; at < 8; ++at) {
    CHECK(p.run(simulated{}, std::vector<const void*>{x.data(), &infinite, &at})[0].data<double>()[0] == infinite);
    CHECK(p.run(simulated{}, std::vector<const void*>{x.data(), &one, &at})[1].data<double>()[0] == -infinite);
  }
}
