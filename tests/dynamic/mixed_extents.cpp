// SPDX-License-Identifier: Apache-2.0
// group: dynamic
#include <doctest/doctest.h>

#include <string>
#include <tuple>

#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "support/equal_plans.hpp"
#include "support/error_of.hpp"

// Inputs whose shapes and shardings are types, on a mesh that is known at run time.

namespace {

using namespace gspmd;
using caught::error_of;

template <class T>
struct weights {
  T w1, w2;
};
constexpr auto mlp = [](auto x, auto w) {
  auto h = relu(einsum<"bd,df->bf">(x, w.w1));
  auto loss = mean(einsum<"bf,fd->bd">(h, w.w2));
  auto g = grad(loss, w);
  return std::tuple{loss, weights<value>{w.w1 - g.w1, w.w2 - g.w2}};
};
using batch = input<double, shape<7, 5>, split<"data", _>>;
using layers = record<weights, input<double, shape<5, 9>, split<_, "model">>, input<double, shape<9, 4>, split<"model", "?">>>;

array<double> counted(std::initializer_list<std::int64_t> shape) {
  array<double> a(shape);
  for (std::int64_t i = 0; i < a.size(); ++i) a[i] = static_cast<double>(i % 5) - 2;
  return a;
}

template <int Data, int Model>
void check_on(const std::vector<std::int32_t>& order = {}) {
  const dynamic::mesh m({{"data", Data}, {"model", Model}}, order);
  const auto program = dynamic::compile(mlp, m, batch{}, layers{});
  const auto by_numbers = dynamic::compile(
      [](auto x, auto w1, auto w2) {
        return mlp(x, weights<value>{w1, w2});
      },
      m, dynamic::input<double>({7, 5}, {"data", ""}), input<double, shape<5, 9>, split<_, "model">>{},
      dynamic::input<double>({9, 4}, {"model", "?"}));
  CHECK(reference::difference(program.view(), by_numbers.view()) == "");
  if (order.empty()) {
    using step = gspmd::compile<mlp, mesh<axis<"data", Data>, axis<"model", Model>>, batch, layers>;
    CHECK(reference::difference(step::view, program.view()) == "");
  }
  const auto x = counted({7, 5});
  const weights<array<double>> w{counted({5, 9}), counted({9, 4})};
  using alone = gspmd::compile<mlp, mesh<axis<"data", 1>, axis<"model", 1>>, batch, layers>;
  const auto expected = run<alone>(serial{}, x, w);  // no structured binding: Clang 16 captures none
  const auto check = [&](const std::vector<dynamic::any_array>& result) {
    const auto& [loss, next] = expected;
    REQUIRE(result.size() == 3);
    CHECK(result[0].data<double>()[0] == doctest::Approx(loss[0]));
    for (std::int64_t i = 0; i < 45; ++i) CHECK(result[1].data<double>()[i] == doctest::Approx(next.w1[i]));
    for (std::int64_t i = 0; i < 36; ++i) CHECK(result[2].data<double>()[i] == doctest::Approx(next.w2[i]));
  };
  check(program.run(simulated{}, x, w));
  check(program.run(threads{}, x, w));
}

}  // namespace

TEST_CASE("static shapes on any mesh: the plan of the static path, the numbers of one device") {
  check_on<1, 1>();
  check_on<2, 3>();
  check_on<3, 2>();
  check_on<8, 1>();
  check_on<2, 2>({3, 1, 0, 2});
}

TEST_CASE("extents 0 and 1, more devices than elements, a partial input") {
  for (const std::int64_t devices : {1, 2, 5}) {
    const dynamic::mesh m({{"x", devices}});
    const auto empty = dynamic::compile(
        [](auto a) {
          return std::tuple{sum(a), a + 1};
        },
        m, input<float, shape<0, 3>, split<"x", _>>{});
    const auto nothing = empty.run(simulated{}, array<float>({0, 3}));
    CHECK(nothing[0].data<float>()[0] == 0);
    CHECK(nothing[1].bytes.empty());
    const auto one = dynamic::compile([](auto a, auto p) { return a + p; }, m, input<float, shape<1>, split<"x">>{},
                                      input<float, shape<1>, split<_>, partial<"x">>{});
    CHECK(one.run(simulated{}, std::vector<float>{2}, std::vector<float>{3})[0].data<float>()[0] == 5);
  }
}

TEST_CASE("mistakes have the words of the static path") {
  using pod = mesh<axis<"data", 2>, axis<"model", 2>>;
  const dynamic::mesh m({{"data", 2}, {"model", 2}});
  const auto same = [&]<class Constant, class... Inputs>(Constant, Inputs... inputs) {
    const auto graph = detail::trace_program<Constant::value, pod, Inputs...>();
    CHECK(graph.failed());
    const auto text = error_of([&] { static_cast<void>(dynamic::compile(Constant::value, m, inputs...)); });
    CHECK(text == "gspmd: " + std::string(graph.error.view()));
    return text;
  };
  constexpr auto sum_of_two = [](auto x, auto y) { return x + y; };
  const std::integral_constant<decltype(sum_of_two), sum_of_two> both;
  using good = input<float, shape<4, 4>>;
  CHECK(same(both, good{}, input<float, shape<4, 4>, split<"nope", _>>{}) ==
        "gspmd: input 1: `nope` is not an axis of the mesh; its axes are data,model");
  CHECK(same(both, input<float, shape<4, 4>, split<"data", "data">>{}, good{}).find("axis `data` is used twice") !=
        std::string::npos);
  CHECK(same(both, input<float, shape<4, 4>, split<"data">>{}, good{}).find("input 0: the sharding names 1 dim") !=
        std::string::npos);
  CHECK(same(both, input<float, shape<4, 5>>{}, good{})
            .find("operand 1 is [4,4] and operand 0 is [4,5]; dim 1 differs; slice the longer operand, or correct the extents") !=
        std::string::npos);
  CHECK(same(both, input<double, shape<4, 4>>{}, good{}).find("operand 1 is f32 and must be f64") != std::string::npos);

  // a part that the mesh does not have, and one of no axis
  const auto by_part = [&](const char* part) {
    return error_of([&] {
      static_cast<void>(
          dynamic::compile([](auto x) { return -x; }, dynamic::mesh({{"x", 4}}), dynamic::input<float>({8}, {part})));
    });
  };
  CHECK(by_part("x:(2)2") ==
        "gspmd: input 0: `x:(2)2` is not an axis of the mesh; its axes are x; it has a part of an axis that is "
        "written as two axes, or that m.with_parts({...}) names");
  CHECK(by_part("y:(2)2") == "gspmd: input 0: `y:(2)2` is not an axis of the mesh; its axes are x");

  // the same mistake, said by numbers
  CHECK(error_of([&] {
          static_cast<void>(dynamic::compile(sum_of_two, m, good{}, dynamic::input<float>({4, 4}, {"nope", ""})));
        }) == "gspmd: input 1: `nope` is not an axis of the mesh; its axes are data,model");
  using huge = input<float, shape<(std::int64_t{1} << 40), (std::int64_t{1} << 40)>>;
  CHECK(error_of([&] {
          static_cast<void>(dynamic::compile([](auto x) { return x; }, m, huge{}));
        }).find("more than 2^60 bytes") != std::string::npos);
}

TEST_CASE("a result that is no value of the program is refused, not dropped") {
  const dynamic::mesh m({{"x", 2}});
  dynamic::builder other(m);
  const auto foreign = other.input(input<float, shape<4>>{});
  CHECK(error_of([&] {
          static_cast<void>(dynamic::compile([](auto x) { return std::tuple{x, value{}}; }, m, input<float, shape<4>>{}));
        }).find("this is no value of this program") != std::string::npos);
  dynamic::builder b(m);
  b.output(b.input(dynamic::input<float>({4})));
  b.output(foreign);
  CHECK(error_of([&] { static_cast<void>(b.compile()); }).find("output at mixed_extents.cpp:") != std::string::npos);
}
