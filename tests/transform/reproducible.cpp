// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// alone: yes
// timeout: 600
// slow: under AddressSanitizer every added node moves the list of nodes
// Functions whose results have the same bits with every plan, and their accuracy.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/strict_program.hpp>
#include <gspmd/fft.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/modes.hpp>
#include <gspmd/nn/attention.hpp>
#include <gspmd/transform/recompute.hpp>
#include <gspmd/transform/reproducible.hpp>
#include <gspmd/transform/vmap.hpp>

#include "support/any_backend.hpp"
#include "support/error_of.hpp"
#include "support/random_program.hpp"

using namespace gspmd;
using std::int64_t;

namespace {

using bytes = std::vector<unsigned char>;
using results = std::array<value, 6>;
using function = std::function<results(value x, value w)>;

results all_of(const std::vector<value>& list) {
  results r;
  for (std::size_t k = 0; k < r.size(); ++k) r[k] = list[std::min(k, list.size() - 1)];
  return r;
}

constexpr int64_t rows = 61, columns = 22, features = 7;

/// Returns numbers of many sizes, so that the order of additions matters.
std::vector<double> numbers(std::size_t count, std::uint64_t seed) {
  reference::random_numbers random(seed);
  std::vector<double> x(count);
  for (auto& e : x) e = std::ldexp(random.between(-9999, 9999) / 7.0, random.between(-9, 3));
  return x;
}

struct of_mesh {
  std::vector<int> sizes;
  std::string x[2], w[2];  // by dim, the axis
};

template <class T>
std::vector<bytes> run_on(const function& f, const of_mesh& on, const reference::any_backend& backend) {
  std::vector<dynamic::mesh::axis> list;
  for (std::size_t k = 0; k < on.sizes.size(); ++k) list.push_back({std::string(1, static_cast<char>('a' + k)), on.sizes[k]});
  const auto p = dynamic::compile(f, dynamic::mesh(list), dynamic::input<T>({rows, columns}, {on.x[0], on.x[1]}),
                                  dynamic::input<T>({columns, features}, {on.w[0], on.w[1]}));
  const auto a = numbers(rows * columns, 1), b = numbers(columns * features, 2);
  std::vector<T> x, w;
  for (const double e : a) x.push_back(T(static_cast<float>(e)));
  for (const double e : b) w.push_back(T(static_cast<float>(e)));
  std::vector<bytes> all;
  for (const auto& out : backend.run(p, {x.data(), w.data()})) {
    const auto* const begin = reinterpret_cast<const unsigned char*>(out.bytes.data());
    all.emplace_back(begin, begin + out.bytes.size());
  }
  return all;
}

/// Returns the meshes of up to `most` devices, each with some shardings.
std::vector<of_mesh> meshes(int most) {
  std::vector<of_mesh> all;
  for (int p = 1; p <= most; ++p) {
    all.push_back({{p}, {"a", ""}, {"", ""}});
    all.push_back({{p}, {"", "a"}, {"a", ""}});
    all.push_back({{p}, {"a", ""}, {"", "a"}});
  }
  for (const auto& sizes : {std::vector{2, 2}, std::vector{2, 3}, std::vector{3, 2}, std::vector{2, 4}}) {
    all.push_back({sizes, {"a", "b"}, {"b", ""}});
    all.push_back({sizes, {"b", ""}, {"", "a"}});
    all.push_back({sizes, {"", "b"}, {"a", ""}});
  }
  all.push_back({{2, 2, 2}, {"c", "a"}, {"b", "c"}});
  return all;
}

struct program {
  const char* name;
  function f;
};

std::vector<program> programs() {
  return {
      {"sums",
       [](value x, value) {
         return all_of({sum(x), sum(x, 0), sum(x, 1), mean(x, 0), norm(x), norm(x, 1, {1})});
       }},
      {"products",
       [](value x, value w) {
         const value y = einsum<"ab,bc->ac">(x, w);
         return all_of({y, einsum<"ab,ab->b">(x, x), einsum<"ab,ac->bc">(x, y), einsum<"ab->b">(x), einsum<"ab->">(y)});
       }},
      {"softmax",
       [](value x, value w) {
         return all_of({softmax(einsum<"ab,bc->ac">(x, w) * 1e-4, 1), softmax(x * 1e-3, 0)});
       }},
      {"gradients",
       [](value x, value w) {
         const value y = tanh(einsum<"ab,bc->ac">(x, w) * 1e-5);
         const value loss = mean(y * y) + sum(log_softmax(y, 1)) * 1e-3;
         const auto [dx, dw] = grad(loss, std::tuple{x, w});
         return all_of({loss, dx, dw});
       }},
      {"gradients outside", [](value x, value) { return all_of({grad(reproducible_sum(x * x * x) + sum(tanh(x)), x)}); }},
      {"loops",
       [](value x, value v) {
         const value w = cast<float>(v);
         const auto y = fori_loop(
             3,
             [&](value i, value u) {
               return tanh(u * 1e-3 + einsum<"ab,cb->ac">(einsum<"ab,bc->ac">(u, w), w) * 1e-7) + cast<float>(i);
             },
             cast<float>(x));
         return all_of({y, grad(sum(y * y), w),
                        cond(
                            sum(x) > 0, [](value u) { return sum(u, 0); }, [](value u) { return sum(u, 0) * 2; }, y)});
       }},
      {"windows",
       [](value x, value w) {
         const value k = reshape(slice(w, {0, 0}, {5, 1}), {5}), y = allow_replication(einsum<"(a+w)b,w->ab">(x, k));
         return all_of({cumsum(x, 0), cumsum(x, 1), sum_pool(x, {3, 4}, {2, 3}), y, grad(sum(y), k)});
       }},
      {"lookups",
       [](value x, value w) {
         const value ids = iota<int>(x, {rows}, 0) * 5;
         const value low = ids - ids / 7 * 7;
         return all_of({segment_sum(x, low, 7), take(w, low, 0), reduce(x * 0.0, monoid::max, 0)});
       }},
      {"many examples and again",
       [](value x, value w) {
         return all_of({vmap<0, not_mapped>([](value row, value m) { return sum(einsum<"b,bc->c">(row, m)); })(x, w),
                        grad(sum(recompute([](value u, value m) { return tanh(einsum<"ab,bc->ac">(u, m) * 1e-5); })(x, w)), w)});
       }},
  };
}

template <class T>
int different(const program& p, bool is_plain, const std::vector<of_mesh>& on, const reference::any_backend& backend) {
  const function f = is_plain ? p.f : function([&](value x, value w) { return reproducible(p.f)(x, w); });
  const auto first = run_on<T>(f, on[0], simulated{});
  int count = 0;
  for (const auto& m : on) count += run_on<T>(f, m, backend) == first ? 0 : 1;
  return count;
}

}  // namespace

TEST_CASE("reproducible: the same bits on all meshes of up to 8 devices") {
  const auto all = meshes(8);
  for (const auto& p : programs()) {
    CAPTURE(p.name);
    CHECK(different<float>(p, false, all, simulated{}) == 0);
    CHECK(different<double>(p, false, {all[0], all[7], all[10], all.back()}, threads{}) == 0);
  }
  for (const std::size_t k : {std::size_t{0}, std::size_t{1}, std::size_t{3}})
    CHECK(different<float>(programs()[k], true, all, simulated{}) > 0);  // without reproducible() the results differ
}

TEST_CASE("reproducible: narrow and complex elements") {
  const std::vector<of_mesh> some = {meshes(8)[0], meshes(8)[4], meshes(8)[9], meshes(8).back()};
  for (const auto& p : {programs()[0], programs()[1]}) {
    CHECK(different<bf16>(p, false, some, simulated{}) == 0);
    CHECK(different<f16>(p, false, some, simulated{}) == 0);
  }
  const program turned{"complex", [](value x, value w) {
                         return all_of({sum(x, 0), einsum<"ab,bc->ac">(x, w), einsum<"ab->b">(x), cumsum(x, 0)});
                       }};
  CHECK(different<c64>(turned, false, some, simulated{}) == 0);
}

// ---- how near ----

namespace {

template <class T>
T sum_of(const std::vector<T>& x, int devices = 1) {
  const auto n = static_cast<int64_t>(x.size());
  const auto p = dynamic::compile([](value v) { return reproducible_sum(v); }, dynamic::mesh({{"a", devices}}),
                                  dynamic::input<T>({n}, {"a"}));
  return p.run(simulated{}, {x.data()})[0].template data<T>()[0];
}
/// Neumaier's sum, in long doubles.
template <class T>
long double nearly_exact(const std::vector<T>& x) {
  long double sum = 0, rest = 0;
  for (const long double e : x) {
    const long double t = sum + e;
    rest += std::fabs(sum) >= std::fabs(e) ? (sum - t) + e : (e - t) + sum;
    sum = t;
  }
  return sum + rest;
}
template <class T>
void check_near(const std::vector<T>& x) {
  constexpr long double unit = std::numeric_limits<T>::epsilon() / 2;
  long double largest = 0;
  for (const long double e : x) largest = std::max(largest, std::fabs(e));
  const T one = sum_of(x), three = sum_of(x, 3);
  CHECK(std::memcmp(&one, &three, sizeof(T)) == 0);
  const long double exact = nearly_exact(x), error = std::fabs(static_cast<long double>(one) - exact);
  CHECK(error <= unit * largest + (unit * 1.01L) * std::fabs(exact) + std::numeric_limits<T>::denorm_min());
}
template <class T>
void check_near_numbers() {
  using limits = std::numeric_limits<T>;
  reference::random_numbers random(7);
  for (const std::size_t n : {1U, 2U, 3U, 40U, 1000U, 20000U}) {
    CAPTURE(n);
    std::vector<T> x(n);
    const auto fill = [&](auto f) {
      for (auto& e : x) e = f();
      check_near(x);
    };
    const auto between = [&] { return T(random.between(-1000000, 1000000)) / T(3); };
    fill(between);
    fill([&] { return std::ldexp(between(), random.between(-60, 40)); });
    fill([] { return T(0.1); });
    fill([&] { return limits::denorm_min() * T(random.between(-5, 100)); });
    fill([&] { return random.chance(50) ? limits::min() * T(1.5) : limits::denorm_min(); });
    for (std::size_t i = 0; i < n; ++i) x[i] = i % 2 == 0 ? between() : -x[i - 1];  // the remaining sum is small
    x.back() = T(0.37);
    check_near(x);
    for (std::size_t i = 0; i < n; ++i)
      x[i] = i % 4 < 2 ? limits::max() / 2 + T(random.between(0, 9)) * (limits::max() / 32) : -x[i - 2];
    if (n % 4 == 0) check_near(x);  // most orders overflow
  }
}

}  // namespace

TEST_CASE("reproducible: a sum loses less than the last digit of its largest element") {
  check_near_numbers<float>();
  check_near_numbers<double>();
}

TEST_CASE("reproducible: zeros, infinities, and what is no number") {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const int p : {1, 2, 5}) {
    CHECK(std::bit_cast<std::uint32_t>(sum_of<float>({}, p)) == 0);
    CHECK(std::bit_cast<std::uint32_t>(sum_of<float>({-0.0F}, p)) == 0);
    CHECK(std::bit_cast<std::uint32_t>(sum_of<float>({-0.0F, -0.0F, -0.0F}, p)) == 0);
    CHECK(sum_of<float>({1, inf, 3}, p) == inf);
    CHECK(sum_of<float>({1, -inf, -inf}, p) == -inf);
    CHECK(std::isnan(sum_of<float>({1, -inf, 3, inf}, p)));
    CHECK(std::isnan(sum_of<float>({1, nan, inf}, p)));
    CHECK(sum_of<float>({3e38F, 3e38F}, p) == inf);
    CHECK(sum_of<double>({1.7e308, 1.7e308, -1.7e308}, p) == 1.7e308);
    CHECK(sum_of<double>({1, std::numeric_limits<double>::infinity()}, p) == std::numeric_limits<double>::infinity());
    CHECK(sum_of<double>({1.7e308, 1.7e308}, p) == std::numeric_limits<double>::infinity());
  }
}

namespace {

using limits_of_float = std::numeric_limits<float>;

/// Returns the results of `f` itself, and then reproducibly on 1, 2 and 3 devices.
template <class T = float>
std::vector<std::vector<T>> results_of(const std::function<value(value)>& f, const std::vector<T>& x,
                                       const std::vector<int64_t>& shape) {
  std::vector<std::vector<T>> all;
  const auto add = [&](const std::function<value(value)>& g, int devices) {
    std::vector<std::string> by(shape.size());
    by[0] = "a";
    const auto p = dynamic::compile(g, dynamic::mesh({{"a", devices}}), dynamic::input<T>(shape, by));
    const auto out = p.run(simulated{}, {x.data()});
    const auto* const begin = out[0].template data<T>();
    all.emplace_back(begin, begin + out[0].bytes.size() / sizeof(T));
  };
  add(f, 1);
  for (const int devices : {1, 2, 3}) add([&](value v) { return reproducible(f)(v); }, devices);
  return all;
}
bool are_same(const std::vector<float>& a, const std::vector<float>& b) {
  bool same = a.size() == b.size();
  for (std::size_t i = 0; same && i < a.size(); ++i) same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
  return same;
}
void check_as_plain(const std::function<value(value)>& f, const std::vector<float>& x, const std::vector<int64_t>& shape,
                    const std::vector<float>& want) {
  for (const auto& got : results_of(f, x, shape)) CHECK(are_same(got, want));
}

}  // namespace

TEST_CASE("reproducible: an infinity or a NaN is in the results that it is added to, and in no other") {
  constexpr float inf = limits_of_float::infinity(), nan = limits_of_float::quiet_NaN();
  const auto running = [](value x) { return cumsum(x, 0); };
  check_as_plain(running, {1, 2, inf, 4, 5}, {5}, {1, 3, inf, inf, inf});
  check_as_plain(running, {1, 2, -inf, 4, inf, 5}, {6}, {1, 3, -inf, -inf, nan, nan});
  check_as_plain(running, {1, nan, 4}, {3}, {1, nan, nan});
  const auto pairs = [](value x) { return sum_pool(x, {2}, {1}); };
  check_as_plain(pairs, {1, 2, inf, 4, 5, 6, nan}, {7}, {3, inf, inf, 9, 11, nan});
  // The rows are 0, 5, 3, 1, 6, 4. Two updates are out of range for the table of 5 and are dropped. They are the
  // largest of all.
  const auto added = [](value x) {
    const value i = iota<int>(x, {6}, 0) * 5;
    return segment_sum(x, i - i / 7 * 7, 5);
  };
  check_as_plain(added, {1, inf, 2, 3, 1e30F, 4}, {6}, {1, 3, 0, 2, 4});
  check_as_plain(added, {1, nan, 2, inf, 1e30F, nan}, {6}, {1, inf, 0, 2, nan});
}

namespace {

std::vector<double> gradient_outside(const std::vector<double>& x, double dy, int kind) {
  const auto n = static_cast<int64_t>(x.size());
  const auto p = dynamic::compile(
      [&](value v) {
        const value s = kind == 0 ? reproducible_sum(v) : reproducible([](value u) { return cumsum(u, 0); })(v);
        return grad(kind == 0 ? s * dy : sum(s) * dy, v);
      },
      dynamic::mesh({{"a", 2}}), dynamic::input<double>({n}, {"a"}));
  const auto out = p.run(simulated{}, {x.data()});
  return {out[0].data<double>(), out[0].data<double>() + n};
}

}  // namespace

TEST_CASE("reproducible: a gradient from outside has all its digits, whatever the size of what was summed") {
  for (const double size : {0.0, 1e-320, 1e-300, 1.0, 1e300})
    for (const double dy : {1.0, 1e-16, 1e-200 / 3, 1e200 / 3}) {
      CAPTURE(size);
      CAPTURE(dy);
      CHECK(gradient_outside({size, 0, size, -size}, dy, 0) == std::vector<double>(4, dy));
      CHECK(gradient_outside({size, 0, size, -size}, dy, 1) == std::vector<double>{4 * dy, 3 * dy, 2 * dy, dy});
    }
  CHECK(gradient_outside({1, std::numeric_limits<double>::infinity(), 2}, 0.5, 0) == std::vector<double>(3, 0.5));
}

TEST_CASE("reproducible: what is reproducible already is left as it is") {
  const auto f = [](value x, value w) {
    const value y = einsum<"ab,bc->ac">(x, w);
    return std::tuple{sum(x), y, cumsum(x, 0), einsum<"ab,ab->b">(x, x)};
  };
  const auto planned = [&](auto g) {
    return dynamic::compile(g, dynamic::mesh({{"a", 3}}), dynamic::input<double>({rows, columns}, {"a", ""}),
                            dynamic::input<double>({columns, features}));
  };
  const auto once = planned(reproducible(f)),
             twice = planned(reproducible([&](value x, value w) { return reproducible(f)(x, w); }));
  CHECK(once.traffic().bytes == twice.traffic().bytes);
  CHECK(once.traffic().messages == twice.traffic().messages);
  const auto x = numbers(rows * columns, 1), w = numbers(columns * features, 2);
  const auto a = once.run(simulated{}, {x.data(), w.data()}), b = twice.run(simulated{}, {x.data(), w.data()});
  for (std::size_t k = 0; k < a.size(); ++k) CHECK(std::memcmp(a[k].bytes.data(), b[k].bytes.data(), a[k].bytes.size()) == 0);
}

namespace {

template <class T>
void check_product(int64_t n, int sizes) {
  constexpr long double unit = std::numeric_limits<T>::epsilon() / 2;
  reference::random_numbers random(11);
  std::vector<T> a(static_cast<std::size_t>(3 * n)), b(static_cast<std::size_t>(2 * n));
  for (auto* const x : {&a, &b})
    for (auto& e : *x) e = std::ldexp(T(random.between(-99999, 99999)) / T(7), random.between(-sizes, sizes));
  const auto p = dynamic::compile(reproducible([](value x, value y) { return einsum<"ab,cb->ac">(x, y); }),
                                  dynamic::mesh({{"a", 2}}), dynamic::input<T>({3, n}, {"", "a"}), dynamic::input<T>({2, n}));
  const auto out = p.run(simulated{}, {a.data(), b.data()});
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j < 2; ++j) {
      long double sum = 0, row = 0, column = 0;
      for (int64_t k = 0; k < n; ++k) {
        const long double u = a[static_cast<std::size_t>(i * n + k)], v = b[static_cast<std::size_t>(j * n + k)];
        sum += u * v;
        row = std::max(row, std::fabs(u));
        column = std::max(column, std::fabs(v));
      }
      const long double got = out[0].template data<T>()[i * 2 + j];
      CHECK(std::fabs(got - sum) <= static_cast<long double>(n) * unit * row * column + 2 * unit * std::fabs(sum));
    }
}

}  // namespace

TEST_CASE("reproducible: what a product loses") {
  for (const int64_t n : {2, 17, 300, 5000})
    for (const int sizes : {0, 8, 200}) {
      if (sizes < 100) check_product<float>(n, sizes);
      check_product<double>(n, sizes);
    }
  CHECK(detail::cut_of_products(1000, 24).parts == 2);
  CHECK(detail::cut_of_products(1000, 53).parts == 3);
  CHECK(detail::cut_of_products(1000, 8).parts == 1);
  for (int log2 = 0; log2 <= 40; ++log2)
    for (const int digits : {8, 11, 24, 53}) {
      const auto terms = int64_t{1} << log2;
      const auto s = detail::cut_of_sum(terms, digits), m = detail::cut_of_products(terms, digits);
      CHECK(log2 + s.bits <= 53);
      CHECK(s.bits <= 51);
      CHECK(log2 + detail::log2_from_above(m.parts) + 2 * m.bits <= 53);
      CHECK(m.bits > 0);
    }
}

TEST_CASE("reproducible: what is sent") {
  const auto sent = [](auto f, auto in) {
    const auto p = dynamic::compile(f, dynamic::mesh({{"a", 4}}), in);
    const auto t = p.traffic();
    return std::pair{t.bytes, t.messages};
  };
  const auto plain = [](value x) { return sum(x); };
  // An all_reduce of b bytes over 4 devices sends 2 b, or 3/2 b if it is cut. These all_reduces are not cut.
  const auto one = sent(plain, dynamic::input<float>({1000}, {"a"})),
             two = sent(reproducible(plain), dynamic::input<float>({1000}, {"a"}));
  CHECK(two.first == 4 * one.first);  // two floats and a double
  CHECK(two.second == 2 * one.second);
  const auto three = sent(reproducible(plain), dynamic::input<float>({100000}, {"a"}));
  CHECK(three.first == 6 * one.first);  // two floats and two doubles
  CHECK(three.second == 2 * one.second);
  CHECK(sent(reproducible(plain), dynamic::input<std::int32_t>({1000}, {"a"})) ==
        sent(plain, dynamic::input<std::int32_t>({1000}, {"a"})));
}

// ---- errors ----

TEST_CASE("reproducible: what has no bits of its own is refused, with the remedy") {
  const auto in = dynamic::input<float>({8, 6}, {"a", ""});
  const auto error = [&](auto f) {
    return caught::refusal([&] { static_cast<void>(dynamic::compile(f, dynamic::mesh({{"a", 2}}), in)); });
  };
  CHECK(caught::contains(error(reproducible([](value x) { return reduce(x, monoid::multiply, 0); })),
                         ": is not reproducible: its bits may depend on the order of combining elements; write it with "
                         "sums, products of two tensors, "
                         "convolutions or maxima, or leave it outside of reproducible"));
  CHECK(caught::contains(error(reproducible([](value x) { return real(fft(complex(x, x), 1)); })), "is not reproducible"));
  CHECK(caught::contains(error(reproducible([](value x) { return attention(x, x, x); })), "attention"));
  CHECK(caught::contains(
      error([](value x) { return grad(sum(reproducible([](value y) { return einsum<"ab,cb->ac">(y, y); })(x)), x); }),
      "has no gradient, because it is reproducible already; take the gradient inside"));
  CHECK(error(reproducible([](value x) { return reduce(cast<int>(x), monoid::multiply, 0); })) == "accepted");
  CHECK(error(reproducible([](value x) { return sort(x, 0); })) == "accepted");
}

TEST_CASE("reproducible: who writes the communication writes the order") {
  const auto sums = reproducible([](value x) { return sum(x, 0); });
  auto in = dynamic::input<float>({8, 6}, {"", ""});
  const dynamic::mesh two({{"a", 2}});
  dynamic::builder b(two.explicit_axes({"a"}));
  const dynamic::strict_program typed(b, "");
  static_cast<void>(sums(b.input(dynamic::input<float>({8, 6}))));
  CHECK(caught::contains(std::string(b.graph().error.view()),
                         "is in a program that writes its own communication (explicit or manual); use it in the automatic mode"));
  const auto region = [](value x) {
    return manual<"a">([](auto u) { return u + u; }, takes<split<"a", _>>{}, gives<split<"a", _>>{})(x);
  };
  CHECK(caught::contains(caught::refusal([&] { static_cast<void>(dynamic::compile(reproducible(region), two, in)); }),
                         "is in a manual region within a reproducible function"));
  in.partial_axes = "a";
  CHECK(caught::contains(caught::refusal([&] { static_cast<void>(dynamic::compile(sums, two, in)); }),
                         "reads floats that are partial over the devices"));
}

TEST_CASE("reproducible: a program that is built by calls") {
  const auto a = numbers(rows * columns, 1);
  const std::vector<float> x(a.begin(), a.end());
  std::vector<float> found;
  for (const int devices : {1, 2, 5}) {
    dynamic::builder b(dynamic::mesh({{"a", devices}}));
    const value u = b.input(dynamic::input<float>({rows, columns}, {"a", ""}));
    b.output(sum(u * u));
    make_reproducible(b);
    found.push_back(b.compile().run(simulated{}, {x.data()})[0].data<float>()[0]);
  }
  const auto same = dynamic::compile([](value u) { return reproducible_sum(u * u); }, dynamic::mesh({{"a", 3}}),
                                     dynamic::input<float>({rows, columns}, {"", "a"}));
  found.push_back(same.run(simulated{}, {x.data()})[0].data<float>()[0]);
  for (const float f : found) CHECK(std::bit_cast<std::uint32_t>(f) == std::bit_cast<std::uint32_t>(found[0]));
}

// ---- the compiled path ----

namespace {

constexpr auto training = [](value x, value w) {
  const value y = tanh(einsum<"ab,bc->ac">(x, w) * 1e-5);
  const value loss = mean(y * y);
  return std::tuple{loss, grad(loss, w), sum(x, 0)};
};
constexpr auto steady_training = reproducible(training);
template <class Mesh, class X, class W>
using compiled_step =
    compile<steady_training, Mesh, input<float, shape<rows, columns>, X>, input<float, shape<columns, features>, W>>;

template <class Step>
void check_compiled() {
  array<float> x({rows, columns}), w({columns, features});
  const auto a = numbers(rows * columns, 1), b = numbers(columns * features, 2);
  for (int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(a[static_cast<std::size_t>(i)]);
  for (int64_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(b[static_cast<std::size_t>(i)]);
  const auto p = dynamic::compile(steady_training, dynamic::mesh({{"a", 5}}), dynamic::input<float>({rows, columns}, {"a", ""}),
                                  dynamic::input<float>({columns, features}));
  const auto want = p.run(simulated{}, {x.data(), w.data()});
  const auto [loss, by_w, sums] = run<Step>(threads{}, x, w);
  CHECK(std::memcmp(loss.data(), want[0].bytes.data(), sizeof(float)) == 0);
  CHECK(std::memcmp(by_w.data(), want[1].bytes.data(), sizeof(float) * columns * features) == 0);
  CHECK(std::memcmp(sums.data(), want[2].bytes.data(), sizeof(float) * columns) == 0);
}

}  // namespace

TEST_CASE("reproducible: compiled programs have the bits of those that are planned at run time") {
  check_compiled<compiled_step<mesh<axis<"a", 3>>, split<"a", _>, split<_, _>>>();
  check_compiled<compiled_step<mesh<axis<"a", 2>, axis<"b", 2>>, split<"a", "b">, split<"b", _>>>();
}
