// SPDX-License-Identifier: Apache-2.0
// labels: threads
// group: map
#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/dynamic/session.hpp"
#include "gspmd/index.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/transform/grad.hpp"
#include "gspmd/windows.hpp"
#include "support/error_of.hpp"

// Functions that are known when the program runs, given to `map`.

namespace {

using namespace gspmd;
using caught::contains;
using caught::error_of;

template <class T>
std::vector<T> counted(std::int64_t n) {
  std::vector<T> a(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) a[static_cast<std::size_t>(i)] = static_cast<T>(i % 7 - 2);
  return a;
}
const int unknown = std::atoi("3");  // no compiler computes it

double cube(double x) { return x * x * x; }
void halve(const float* x, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] / 2;
}

template <class T, class Backend>
void check_captures(const Backend& backend, std::int64_t devices, std::int64_t rows) {
  const auto limit = static_cast<T>(unknown);
  const dynamic::mesh m({{"x", devices}});
  const auto program = dynamic::compile(
      [&](auto x, auto y, auto column) {
        auto clipped = map([limit](T a) { return a < limit ? a : limit; }, x + 1);
        return std::tuple{map([limit](T a, T b, T c) { return a * b + c - limit; }, clipped, y, column), clipped};
      },
      m, dynamic::input<T>({rows, 5}, {"x", ""}), dynamic::input<T>({rows, 5}, {"", "x"}), dynamic::input<T>({rows, 1}));
  const auto x = counted<T>(rows * 5);
  const auto y = counted<T>(rows * 5);
  const auto column = counted<T>(rows);
  const auto result = program.run(backend, x, y, column);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const T clipped = static_cast<T>(x[i] + 1) < limit ? static_cast<T>(x[i] + 1) : limit;
    CHECK(result[1].template data<T>()[i] == clipped);
    CHECK(result[0].template data<T>()[i] == static_cast<T>(clipped * y[i] + column[i / 5] - limit));
  }
}

}  // namespace

TEST_CASE_TEMPLATE("a lambda with captures on every backend, element type and size", T, float, double, std::int32_t,
                   std::int64_t) {
  for (const std::int64_t rows : {0, 1, 2, 7, 130}) {
    check_captures<T>(serial{}, 1, rows);
    for (const std::int64_t devices : {1, 2, 3, 8}) check_captures<T>(simulated{}, devices, rows);
    check_captures<T>(threads{}, 3, rows);
  }
}

TEST_CASE("bool, a pointer to a function, a conversion of the result, eight arguments") {
  const dynamic::mesh m({{"x", 3}});
  const bool turn = unknown == 3;
  double (*const pointer)(double) = unknown == 3 ? cube : nullptr;
  const auto program = dynamic::compile(
      [&](auto p, auto x) {
        return std::tuple{map([turn](bool a) { return a != turn; }, p), map(pointer, x),
                          map([k = unknown](float a, float b, float c, float d, float e, float f, float g,
                                            float h) { return a + b + c + d + e + f + g + h + static_cast<float>(k); },
                              x, x, 1, x, x, 2, x, x)};
      },
      m, dynamic::input<bool>({10}, {"x"}), dynamic::input<float>({10}, {"x"}));
  bool p[10];
  for (int i = 0; i < 10; ++i) p[i] = i % 3 == 0;
  const auto x = counted<float>(10);
  const auto y = program.run(simulated{}, static_cast<const bool*>(p), x);
  for (std::size_t i = 0; i < 10; ++i) {
    CHECK(y[0].data<bool>()[i] == !p[i]);
    CHECK(y[1].data<float>()[i] == x[i] * x[i] * x[i]);
    CHECK(y[2].data<float>()[i] == 6 * x[i] + 6);
  }
}

TEST_CASE("by_rows: one call for many elements, no overlap, a pointer as from dlsym") {
  constexpr std::int64_t n = 10'000;
  std::atomic<int> calls = 0;
  std::atomic<std::int64_t> elems = 0;
  const dynamic::mesh m({{"x", 3}});
  void (*const kernel)(const float*, float*, std::int64_t) = halve;
  const auto program = dynamic::compile(
      [&](auto x, auto y) {
        const auto rows = [&](const float* a, const float* b, float* out, std::int64_t count) {
          ++calls;
          elems += count;
          for (std::int64_t i = 0; i < count; ++i) out[i] = 0;  // wrong if `out` overlaps an argument
          for (std::int64_t i = 0; i < count; ++i) out[i] += 10 * a[i] + b[i] + static_cast<float>(unknown);
        };
        return map(by_rows<float>(kernel), map(by_rows<float>(rows), x, y));
      },
      m, dynamic::input<float>({n}, {"x"}), dynamic::input<float>({n}, {"x"}));
  const auto x = counted<float>(n);
  const auto y = counted<float>(n);
  const auto result = program.run(threads{}, x, y);
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(result[0].data<float>()[i] == (10 * x[i] + y[i] + 3) / 2);
  CHECK(elems == n);  // no padding among them
  CHECK(calls < n / 100);

  // the output in the memory of the input, as a step may be given it
  dynamic::builder b(dynamic::mesh({{"x", 1}}));
  auto w = b.input(dynamic::input<float>({1000}));
  b.output(map(by_rows<float>([](const float* a, float* out, std::int64_t count) {
                 for (std::int64_t i = 0; i < count; ++i) out[i] = -1;
                 for (std::int64_t i = 0; i < count; ++i) out[i] = a[i] + 1;
               }),
               w));
  const auto update = b.compile();
  REQUIRE(update.view().shared_inputs[0] == 0);
  auto memory = counted<float>(1000);
  launch(serial{}, 1, [&](auto& comm) {
    dynamic::session s(update);
    const void* in[] = {memory.data()};
    void* out[] = {memory.data()};
    s.run(comm, in, out);
  });
  const auto before = counted<float>(1000);
  for (std::size_t i = 0; i < 1000; ++i) CHECK(memory[i] == before[i] + 1);
}

TEST_CASE("the program keeps the function, and nobody else has to") {
  auto state = std::make_shared<double>(2.5);
  const std::weak_ptr<double> watched = state;
  std::vector<dynamic::program> programs;
  {
    dynamic::builder b(dynamic::mesh({{"x", 2}}));
    auto x = b.input(dynamic::input<double>({5}, {"x"}));
    b.output(map([state](double a) { return a * *state; }, x));
    programs.push_back(b.compile());
  }
  state.reset();
  programs.push_back(programs[0]);
  programs.erase(programs.begin());
  REQUIRE_FALSE(watched.expired());
  {
    dynamic::session steps(programs[0]);
    programs.clear();
    launch(simulated{}, 2, [&](auto& comm) {
      const std::vector<double> shard{1, 2, 3};
      std::vector<double> out0(3), out1(3);
      const void* inputs[] = {shard.data(), shard.data()};
      void* outputs[] = {out0.data(), out1.data()};
      steps.run(comm, inputs, outputs);
      CHECK(out0 == std::vector<double>{2.5, 5, 7.5});
      CHECK(out1[1] == 5);
    });
  }
  CHECK(watched.expired());
}

TEST_CASE("element types are checked when the program is made") {
  const dynamic::mesh m({{"x", 2}});
  const auto with = [&](auto f, auto in) {
    return error_of([&] { static_cast<void>(dynamic::compile([&](auto x) { return map(f, x); }, m, in)); });
  };
  const auto rows = by_rows<float>([](const float*, float*, std::int64_t) {});
  CHECK(with(rows, dynamic::input<float>({4})) == "no error");
  const auto text = with(rows, dynamic::input<double>({4}));
  CHECK(contains(text, "map at map.cpp:"));
  CHECK(contains(text,
                 "is not defined for f64, which the function does not take or would cut off, only for f32; convert the operand, "
                 "cast<float>(x)"));
  struct only_floats {
    int state;
    float operator()(float x) const { return x; }
    float operator()(double) const = delete;
    float operator()(std::int32_t) const = delete;
    float operator()(std::int64_t) const = delete;
    float operator()(bool) const = delete;
  };
  CHECK(with(only_floats{1}, dynamic::input<float>({4})) == "no error");
  CHECK(contains(with(only_floats{1}, dynamic::input<std::int32_t>({4})),
                 "is not defined for s32, which the function does not take or would cut off, only for f32"));
  const auto shapes = error_of([&] {
    static_cast<void>(dynamic::compile(
        [&](auto x, auto y) { return map([k = unknown](float a, float) { return a + static_cast<float>(k); }, x, y); }, m,
        dynamic::input<float>({4}), dynamic::input<float>({3})));
  });
  CHECK(contains(shapes, "map at map.cpp:"));
  CHECK(contains(shapes, "operand 1 is [3] and operand 0 is [4]; slice the longer operand, or correct the extents"));
}

namespace {
/// The names of the types for which F is compiled.
template <class F>
std::set<std::string>& types_of() {
  static std::set<std::string> types;
  return types;
}
template <class F, class T>
const bool is_compiled = types_of<F>().insert(typeid(T).name()).second;

struct doubled {
  template <class T>
  T operator()(T x) const {
    static_cast<void>(&is_compiled<doubled, T>);
    return static_cast<T>(x + x);
  }
};
struct doubled_lines {
  void operator()(auto x, auto y) const {
    using T = std::remove_cvref_t<decltype(y(0))>;
    static_cast<void>(&is_compiled<doubled_lines, T>);
    for (std::int64_t i = 0; i < y.extent(0); ++i) y(i) = static_cast<T>(x(i) + x(i));
  }
};
}  // namespace

TEST_CASE("a function with a type parameter is compiled for every element type, used or not") {
  const auto program = dynamic::compile([](auto x) { return local_op<"b->b">(doubled_lines{})(map(doubled{}, x)); },
                                        dynamic::mesh({{"x", 2}}), dynamic::input<float>({4}, {"x"}));
  CHECK(program.run(simulated{}, counted<float>(4))[0].data<float>()[0] == -8);
  const std::set<std::string> lines{typeid(float).name(), typeid(double).name(), typeid(std::int32_t).name(),
                                    typeid(std::int64_t).name()};
  std::set<std::string> elements{typeid(bool).name(), typeid(std::uint32_t).name(), typeid(std::uint64_t).name()};
  elements.insert(lines.begin(), lines.end());
  CHECK(types_of<doubled>() == elements);
  CHECK(types_of<doubled_lines>() == lines);
}

TEST_CASE("what a function throws reaches the caller with the operator's line") {
  const dynamic::mesh m({{"x", 4}});
  const auto picky = [k = unknown](float a) {
    if (a == 60 + static_cast<float>(k)) throw std::runtime_error("an unlucky number");
    return a;
  };
  const auto apply = [&](auto x) { return map(picky, x); };
  const int line = __LINE__ - 1;
  const auto program = dynamic::compile(apply, m, dynamic::input<float>({100}, {"x"}));
  std::vector<float> x(100);
  for (std::size_t i = 0; i < 100; ++i) x[i] = static_cast<float>(i);
  const auto text = error_of([&] { static_cast<void>(program.run(threads{}, x)); });
  CHECK(contains(text, "map at "));
  CHECK(contains(text, "map.cpp:" + std::to_string(line) + " on rank 2: an unlucky number"));
}

TEST_CASE("gradients: derivatives with state") {
  const dynamic::mesh m({{"x", 3}});
  const double k = unknown;
  const auto program = dynamic::compile(
      [&](auto x, auto y) {
        const auto f =
            with_derivative([k](double a, double b) { return k * a * a * b; }, [k](double a, double b) { return 2 * k * a * b; },
                            [k](double a, double) { return k * a * a; });
        // a constant derivative next to a function with state
        const auto g = with_derivative([k](double a) { return a + k; }, [](auto) { return 1; });
        auto loss = sum(map(g, map(f, x, y)));
        return std::tuple{loss, grad(loss, x), grad(loss, y)};
      },
      m, dynamic::input<double>({7}, {"x"}), dynamic::input<double>({7}, {"x"}));
  const auto x = counted<double>(7);
  const auto y = counted<double>(7);
  const auto result = program.run(simulated{}, x, y);
  double loss = 0;
  for (std::size_t i = 0; i < 7; ++i) {
    loss += k * x[i] * x[i] * y[i] + k;
    CHECK(result[1].data<double>()[i] == 2 * k * x[i] * y[i]);
    CHECK(result[2].data<double>()[i] == k * x[i] * x[i]);
  }
  CHECK(result[0].data<double>()[0] == loss);
  CHECK(contains(error_of([&] {
                   static_cast<void>(
                       dynamic::compile([&](auto a) { return grad(sum(map([k](double e) { return e * k; }, a)), a); }, m,
                                        dynamic::input<double>({7})));
                 }),
                 "with_derivative"));
}
