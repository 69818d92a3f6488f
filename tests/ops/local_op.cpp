// SPDX-License-Identifier: Apache-2.0
// group: map
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gspmd/comm/threads.hpp"
#include "gspmd/dynamic.hpp"
#include "gspmd/index.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/transform/grad.hpp"
#include "gspmd/windows.hpp"

// Custom operators: on random meshes and shardings, the results equal the function on the whole arrays.

namespace {

using namespace gspmd;
using std::int64_t;

const int unknown = std::atoi("3");  // unknown at compile time

// ---- the functions ----

constexpr auto running_sum = [](auto x, auto y) {
  for (int64_t i = 0; i < x.extent(0); ++i)
    for (int64_t j = 0; j < x.extent(1); ++j) y(i, j) = j == 0 ? x(i, j) : y(i, j - 1) + x(i, j);
};
constexpr auto second_difference = [](auto x, auto y) {  // u = t - 2
  for (int64_t j = 0; j < y.extent(0); ++j)
    for (int64_t i = 0; i < y.extent(1); ++i) y(j, i) = x(i, j) - 2 * x(i, j + 1) + x(i, j + 2);
};
constexpr auto matrix_product = [](auto x, auto w, auto y) {
  for (int64_t b = 0; b < y.extent(0); ++b)
    for (int64_t o = 0; o < y.extent(1); ++o) {
      y(b, o) = 0;
      for (int64_t i = 0; i < x.extent(1); ++i) y(b, o) += x(b, i) * w(i, o);
    }
};
constexpr auto weighted = [](auto a, auto x, auto c, auto y) {
  for (int64_t k = 0; k < y.extent(0); ++k)
    for (int64_t q = 0; q < y.extent(1); ++q)
      for (int64_t d = 0; d < y.extent(2); ++d) y(k, q, d) = a() * x(q, k) + c(d, k);
};
constexpr auto attention = [](auto q, auto k, auto v, auto scale, auto y) {  // without its softmax
  for (int64_t i = 0; i < q.extent(0); ++i)
    for (int64_t e = 0; e < y.extent(1); ++e) {
      y(i, e) = 0;
      for (int64_t j = 0; j < k.extent(0); ++j)
        for (int64_t d = 0; d < q.extent(1); ++d) y(i, e) += q(i, d) * k(j, d) * v(j, e) * scale();
    }
};
constexpr auto row_maximum = [](auto x, auto y) {
  for (int64_t i = 0; i < x.extent(0); ++i) {
    y(i) = x(i, 0);
    for (int64_t j = 1; j < x.extent(1); ++j)
      if (x(i, j) > y(i)) y(i) = x(i, j);
  }
};
constexpr auto place_of_maximum = [](auto x, auto y) {
  for (int64_t i = 0; i < x.extent(0); ++i) {
    y(i) = 0;
    for (int64_t j = 1; j < x.extent(1); ++j)
      if (x(i, j) > x(i, y(i))) y(i) = j;
  }
};
constexpr auto histogram = [](auto x, auto y) {  // k = 5
  for (int64_t k = 0; k < y.extent(0); ++k) y(k) = 0;
  for (int64_t i = 0; i < x.extent(0); ++i) ++y(((x(i) % 5) + 5) % 5);
};
constexpr auto maximum_and_place = [](auto x, auto largest, auto place) {
  for (int64_t i = 0; i < x.extent(0); ++i) {
    place(i) = 0;
    for (int64_t j = 1; j < x.extent(1); ++j)
      if (x(i, j) > x(i, place(i))) place(i) = j;
    largest(i) = x(i, place(i));
  }
};
constexpr auto doubled_with_sums = [](auto x, auto y, auto rows, auto all) {
  all() = 0;
  for (int64_t i = 0; i < x.extent(0); ++i) {
    rows(i) = 0;
    for (int64_t j = 0; j < x.extent(1); ++j) {
      y(i, j) = 2 * x(i, j);
      rows(i) += x(i, j);
      all() += x(i, j);
    }
  }
};
constexpr auto sums_both_ways = [](auto x, auto w, auto rows, auto columns) {
  for (int64_t j = 0; j < x.extent(1); ++j) columns(j) = 0;
  for (int64_t i = 0; i < x.extent(0); ++i) {
    rows(i) = 0;
    for (int64_t j = 0; j < x.extent(1); ++j) {
      rows(i) += x(i, j) * w(j);
      columns(j) += x(i, j) * w(j);
    }
  }
};
constexpr auto any_of = [](auto x, auto y) {
  y() = false;
  for (int64_t i = 0; i < x.extent(0); ++i) y() = y() || x(i);
};

// ---- random programs of one operator ----

struct random_source {
  std::mt19937_64 engine;
  int64_t between(int64_t a, int64_t b) { return a + static_cast<int64_t>(engine() % static_cast<std::uint64_t>(b - a + 1)); }
};

dynamic::mesh random_mesh(random_source& r) {
  for (;;) {
    std::vector<dynamic::mesh::axis> axes;
    int64_t devices = 1;
    for (int64_t a = r.between(1, 3); a > 0; --a) {
      axes.push_back({std::string(1, static_cast<char>('w' + a)), r.between(1, 4)});
      devices *= axes.back().size;
    }
    if (devices <= 8) return dynamic::mesh(axes);
  }
}

/// Every axis splits some dim, or none.
std::vector<std::string> random_sharding(random_source& r, const dynamic::mesh& m, std::size_t rank) {
  std::vector<std::string> dims(rank);
  if (rank == 0) return dims;
  for (int a = 0; a < m.info().shape.axis_count(); ++a) {
    const auto d = r.between(0, static_cast<int64_t>(rank));
    if (d == static_cast<int64_t>(rank)) continue;
    auto& dim = dims[static_cast<std::size_t>(d)];
    dim += (dim.empty() ? "" : ",") + std::string(m.info().name(a));
  }
  return dims;
}

/// Returns result k, for an operator with a single result or several.
value nth(const value& y, std::size_t) { return y; }
template <std::size_t N>
value nth(const std::array<value, N>& y, std::size_t k) {
  return y[k];
}
/// Returns the number of elements that differ from the expected ones.
template <class R>
int count_wrong(const R* got, const R* expected, int64_t count) {
  int wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    const R a = got[i], e = expected[i];
    if constexpr (std::is_floating_point_v<R>) wrong += a != e && !(std::abs(a - e) <= R(1e-5) * std::max(R(1), std::abs(e)));
    else wrong += a != e;
  }
  return wrong;
}

/// `op` is local_op<Text, ...>(f), with or without state. `f` is the function for whole arrays.
template <fixed_string Text, monoid Kind, class... R, class... A, class Op, class F, class Backend>
void try_once(const Op& op, const F& f, std::tuple<R...> (*)(A...), std::uint64_t seed, const Backend& backend,
              int64_t most_devices = 8) {
  CAPTURE(seed);
  CAPTURE(std::string(Text.view()));
  random_source r{std::mt19937_64(seed)};
  constexpr auto rule = detail::parse_local_rule(Text.view(), Kind);
  static_assert(rule.error == nullptr);
  detail::extents by_letter(rule.letters.count, 0);
  for (bool fits = false; !fits;) {
    fits = true;
    for (int l = 0; l < rule.letters.count; ++l)
      by_letter[l] = rule.letters[l].kind == detail::factor_kind::whole ? r.between(1, 6) : r.between(0, 9);
    for (int l = 0; l < rule.letters.count; ++l)
      if (rule.letters[l].stated) {
        by_letter[l] = rule.stated_extent(l, by_letter);
        fits = fits && by_letter[l] >= 0;
      }
  }
  const auto shape_of = [&](int tensor) {
    std::vector<int64_t> shape;
    for (const auto l : rule.tensors[tensor]) shape.push_back(by_letter[l]);
    return shape;
  };
  const auto size_of = [](const std::vector<int64_t>& shape) {
    int64_t n = 1;
    for (const auto e : shape) n *= e;
    return n;
  };
  const auto strides_of = [](const std::vector<int64_t>& shape) {
    std::vector<int64_t> strides(shape.size() + 1, 1);
    for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
    return strides;
  };
  dynamic::mesh m = random_mesh(r);
  while (m.device_count() > most_devices) m = random_mesh(r);

  constexpr auto sequence = std::index_sequence_for<A...>{};
  [&]<std::size_t... K, std::size_t... J>(std::index_sequence<K...>, std::index_sequence<J...>) {
    constexpr auto operand_count = sizeof...(K);
    const std::vector<int64_t> shapes[] = {shape_of(static_cast<int>(K))..., shape_of(static_cast<int>(operand_count + J))...};
    const std::vector<int64_t> strides[] = {strides_of(shapes[K])..., strides_of(shapes[operand_count + J])...};
    const std::tuple<std::unique_ptr<A[]>...> arrays{std::make_unique<A[]>(static_cast<std::size_t>(size_of(shapes[K]) + 1))...};
    const auto fill = [&]<class T>(T* to, int64_t n) {
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(r.between(-4, 4) + (std::is_same_v<T, bool> ? 3 : 0));
    };
    (fill(std::get<K>(arrays).get(), size_of(shapes[K])), ...);

    // the result of the function on the whole arrays
    const std::tuple expected{std::make_unique<R[]>(static_cast<std::size_t>(size_of(shapes[operand_count + J])) + 1)...};
    bool is_empty = false;
    for (int l = 0; l < rule.letters.count; ++l)
      is_empty = is_empty || (rule.letters[l].kind != detail::factor_kind::whole && by_letter[l] == 0);
    if (is_empty) {
      (std::fill_n(std::get<J>(expected).get(), size_of(shapes[operand_count + J]), detail::identity<R>(Kind)), ...);
    } else if (((size_of(shapes[operand_count + J]) > 0) || ...)) {
      f(local_block<const A, rule.tensors[static_cast<int>(K)].count>(std::get<K>(arrays).get(), shapes[K].data(),
                                                                      strides[K].data())...,
        local_block<R, rule.result(static_cast<int>(J)).count>(std::get<J>(expected).get(), shapes[operand_count + J].data(),
                                                               strides[operand_count + J].data())...);
    }

    dynamic::builder b(m);
    const value operands[] = {(r.between(0, 4) == 0
                                   ? b.input(dynamic::input<A>(shapes[K]))
                                   : b.input(dynamic::input<A>(shapes[K], random_sharding(r, m, shapes[K].size()))))...};
    const auto made = op(operands[K]...);
    std::vector<std::size_t> asked;  // some of the results, in any order
    for (std::size_t j = 0; j < sizeof...(J); ++j)
      if (sizeof...(J) == 1 || r.between(0, 2) > 0)
        asked.insert(asked.begin() + r.between(0, static_cast<int64_t>(asked.size())), j);
    if (asked.empty()) asked.push_back(sizeof...(J) - 1);
    for (const auto j : asked) {
      value y = allow_replication(nth(made, j));
      if (r.between(0, 1) == 1) y = b.reshard(y, random_sharding(r, m, shapes[operand_count + j].size()));
      b.output(y);
    }
    const auto program = b.compile();
    INFO(explain(program));
    const std::vector<const void*> inputs{std::get<K>(arrays).get()...};
    const auto result = program.run(backend, inputs);
    const auto check = [&]<std::size_t I>(std::integral_constant<std::size_t, I>, std::size_t output) {
      if (asked[output] != I) return;
      using T = std::tuple_element_t<I, std::tuple<R...>>;
      const auto& shape = shapes[operand_count + I];
      REQUIRE(result[output].shape == shape);
      CHECK(count_wrong(result[output].template data<T>(), std::get<I>(expected).get(), size_of(shape)) == 0);
    };
    for (std::size_t output = 0; output < asked.size(); ++output) (check(std::integral_constant<std::size_t, J>{}, output), ...);
  }(sequence, std::index_sequence_for<R...>{});
}

int64_t seeds() {
  const char* const given = std::getenv("GSPMD_PROGRAMS");
  return given != nullptr ? std::atoll(given) : 60;
}

template <fixed_string Text, class Signature, class... Options, class F>
void try_many(F f) {
  constexpr auto kind = detail::local_options<Options...>::kind;
  using signature = typename detail::with_results<Signature>::type;
  const auto op = local_op<Text, Options...>(f);
  for (int64_t s = 0; s < seeds(); ++s)
    try_once<Text, kind>(op, f, static_cast<signature*>(nullptr), static_cast<std::uint64_t>(s), simulated{});
  for (int64_t s = 0; s < 6; ++s)
    try_once<Text, kind>(op, f, static_cast<signature*>(nullptr), static_cast<std::uint64_t>(1000 + s), threads{}, 4);
}

}  // namespace

TEST_CASE("letters in brackets are whole, the others split") {
  try_many<"b[t]->b[t]", float(float)>(running_sum);
  try_many<"b[t]->b[t]", int64_t(int64_t)>(running_sum);
  try_many<"b[t]->[u=t-2]b", double(double)>(second_difference);
  try_many<",qk,dk->kqd", float(float, float, float)>(weighted);
  try_many<"q[d],[k][d],[k][e],->q[e]", double(double, double, double, double)>(attention);
}

TEST_CASE("letters that the result lacks are reduced") {
  try_many<"bi,io->bo", float(float, float)>(matrix_product);
  try_many<"bi,io->bo", std::int32_t(std::int32_t, std::int32_t)>(matrix_product);
  try_many<"bt->b", float(float), reduces<monoid::max>>(row_maximum);
  try_many<"i->", bool(bool), types<bool(bool)>, reduces<monoid::or_>>(any_of);
}

TEST_CASE("element types that differ, and a result of a stated shape") {
  try_many<"b[t]->b", int64_t(float), types<int64_t(float)>>(place_of_maximum);
  try_many<"n->[k=5]", int64_t(std::int32_t), types<int64_t(std::int32_t)>>(histogram);
}

TEST_CASE("several results, some of which lack a letter that others have") {
  try_many<"b[t]->b,b", std::tuple<float, int64_t>(float), types<std::tuple<float, int64_t>(float)>>(maximum_and_place);
  try_many<"bt->bt,b,", std::tuple<double, double, double>(double)>(doubled_with_sums);
  try_many<"ab,b->a,b", std::tuple<std::int32_t, std::int32_t>(std::int32_t, std::int32_t)>(sums_both_ways);
  try_many<"[a][b],[b]->[a],[b]", std::tuple<int64_t, int64_t>(int64_t, int64_t)>(sums_both_ways);
}

TEST_CASE("gradients by several results") {
  using dynamic::input;
  constexpr auto op = local_op<"bt->bt,b">(with_gradient(
      [](auto x, auto y, auto s) {
        for (int64_t i = 0; i < x.extent(0); ++i) {
          s(i) = 0;
          for (int64_t j = 0; j < x.extent(1); ++j) {
            y(i, j) = x(i, j) * x(i, j);
            s(i) += 3 * x(i, j);
          }
        }
      },
      [](value x, value, value, value dy, value ds) {
        return 2.0 * x * dy + 3.0 * broadcast_in_dim(ds, {x.shape()[0], x.shape()[1]}, {0});
      }));
  const std::vector<double> x{1, -2, 3, 4, 5, -6};
  for (const int asked : {1, 2, 3}) {
    dynamic::builder b(dynamic::mesh(std::vector<dynamic::mesh::axis>{{"x", 2}, {"y", 2}}));
    const value a = b.input(input<double>({2, 3}, {"x", "y"}));
    const auto [y, s] = op(a);
    value loss = constant(a, {}, 0.0);
    if ((asked & 1) != 0) loss = loss + sum(y);
    if ((asked & 2) != 0) loss = loss + sum(s * s);
    b.output(grad(loss, a));
    const auto result = b.compile().run(simulated{}, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double row = i < 3 ? 3 * (1 - 2 + 3) : 3 * (4 + 5 - 6);
      CHECK(result[0].data<double>()[i] == (asked & 1) * 2 * x[i] + (asked >> 1) * 2 * row * 3);
    }
  }
}

TEST_CASE("a function with captures") {
  const float scale = static_cast<float>(unknown);
  try_many<"b[t]->b[t]", float(float)>([scale](local_block<const float, 2> x, local_block<float, 2> y) {
    for (int64_t i = 0; i < x.extent(0); ++i) {
      float total = 0;
      for (int64_t j = 0; j < x.extent(1); ++j) total += y(i, j) = std::exp(x(i, j) / scale);
      for (int64_t j = 0; j < x.extent(1); ++j) y(i, j) /= total;
    }
  });
}
