// SPDX-License-Identifier: Apache-2.0
// group: dynamic
#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "gspmd/dynamic.hpp"
#include "gspmd/dynamic/session.hpp"
#include "gspmd/gspmd.hpp"
#include "support/equal_plans.hpp"
#include "support/error_of.hpp"

// Mesh, extents and shardings known at run time.

namespace {

using namespace gspmd;
using caught::contains;
using caught::error_of;

constexpr auto mlp = [](auto x, auto w1, auto w2) {
  auto h = relu(einsum<"bd,df->bf">(x, w1));
  return std::tuple{einsum<"bf,fd->bd">(h, w2), sum(h)};
};

array<float> counted(std::initializer_list<std::int64_t> shape) {
  array<float> a(shape);
  for (std::int64_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 5) - 2;
  return a;
}

}  // namespace

TEST_CASE("the same callable, compiled and at run time: one plan, one result") {
  using pod = mesh<axis<"data", 2>, axis<"model", 3>>;
  using step = gspmd::compile<mlp, pod, input<float, shape<7, 5>, split<"data", _>>, input<float, shape<5, 8>, split<_, "model">>,
                              input<float, shape<8, 4>>>;
  const dynamic::mesh m({{"data", 2}, {"model", 3}});
  const auto program = dynamic::compile(mlp, m, dynamic::input<float>({7, 5}, {"data", ""}),
                                        dynamic::input<float>({5, 8}, {"", "model"}), dynamic::input<float>({8, 4}));
  CHECK(reference::difference(step::view, program.view()) == "");
  CHECK(program.traffic().bytes == step::traffic.bytes);
  CHECK(program.peak_bytes_per_device() == step::peak_bytes_per_device);
  REQUIRE(program.collectives().size() == step::collectives.count);
  for (std::size_t i = 0; i < step::collectives.count; ++i) CHECK(program.collectives()[i] == step::collectives.items[i]);

  const auto x = counted({7, 5});
  const auto w1 = counted({5, 8});
  const auto w2 = counted({8, 4});
  const auto [y, total] = run<step>(simulated{}, x, w1, w2);
  const auto on_threads = program.run(threads{}, x, w1, w2);
  REQUIRE(on_threads.size() == 2);
  CHECK(on_threads[0].shape == std::vector<std::int64_t>{7, 4});
  for (std::int64_t i = 0; i < y.size(); ++i) CHECK(on_threads[0].data<float>()[i] == y[i]);
  CHECK(on_threads[1].data<float>()[0] == total[0]);
  CHECK_THROWS_AS(static_cast<void>(on_threads[0].data<double>()), error);
}

TEST_CASE("any mesh size, the extents from outside, one callable") {
  for (const std::int64_t devices : {1, 2, 3, 5, 8})
    for (const std::int64_t rows : {0, 1, 4, 9}) {
      const dynamic::mesh m({{"x", devices}});
      const auto program =
          dynamic::compile([](auto a, auto b) { return einsum("ij,ij->i", a, b) + 1; }, m,
                           dynamic::input<double>({rows, 6}, {"x", "_"}), dynamic::input<double>({rows, 6}, {"", "x"}));
      std::vector<double> a(static_cast<std::size_t>(rows * 6), 2.0);
      const auto result = program.run(simulated{}, a, a);
      for (std::int64_t i = 0; i < rows; ++i) CHECK(result[0].data<double>()[i] == 25);
    }
}

TEST_CASE("a program is a value: a session keeps its scratch, other data go through it") {
  const dynamic::mesh m({{"x", 4}});
  dynamic::builder b(m);
  auto x = b.input(dynamic::input<float>({10}, {"x"}));
  b.output(b.reshard(x * 2, {""}));
  const auto program = b.compile();
  const auto copy = program;
  launch(threads{}, 4, [&](auto& comm) {
    dynamic::session steps(copy);
    for (int round = 1; round < 4; ++round) {
      std::vector<float> shard(3, static_cast<float>(round));
      std::vector<float> whole(10);
      const void* inputs[] = {shard.data()};
      void* outputs[] = {whole.data()};
      steps.run(comm, inputs, outputs);
      for (const float e : whole)
        if (e != static_cast<float>(2 * round)) throw error("wrong element");
    }
  });
}

TEST_CASE("what is a compile error on the static path is an exception with the same words") {
  const dynamic::mesh m({{"data", 2}, {"model", 2}});
  const auto with = [&](std::vector<std::string> sharding) {
    return error_of([&] {
      static_cast<void>(dynamic::compile([](auto x) { return x; }, m, dynamic::input<float>({4, 4}, std::move(sharding))));
    });
  };
  CHECK(contains(with({"nope", ""}), "`nope` is not an axis of the mesh; its axes are data,model"));
  CHECK(contains(with({"data", "data"}), "axis `data` is used twice"));
  CHECK(contains(with({"data"}), "the sharding names 1 dim and the tensor has 2"));
  CHECK(contains(with({std::string(70, 'x'), ""}), "is not an axis of the mesh"));
  const auto einsum_of_4x5_and_6x7 = [&](const char* equation) {
    return error_of([&] {
      static_cast<void>(dynamic::compile([&](auto x, auto y) { return einsum(equation, x, y); }, m, dynamic::input<float>({4, 5}),
                                         dynamic::input<float>({6, 7})));
    });
  };
  CHECK(contains(einsum_of_4x5_and_6x7("ab,bc->ac"), "einsum at compile.cpp:"));
  CHECK(contains(einsum_of_4x5_and_6x7("ab,bc->ac"), "dim `b` of `ab,bc->ac` is 5 in operand 0 and 6 in operand 1"));
  CHECK(contains(einsum_of_4x5_and_6x7("ab,cd->xy"), "column 8"));
  CHECK(contains(einsum_of_4x5_and_6x7("abc,cd->ad"), "has 3 letters"));
  CHECK(contains(error_of([&] {
                   static_cast<void>(dynamic::compile([](auto x, auto y) { return forbid_reshard(x + y); }, m,
                                                      dynamic::input<float>({4}, {"data"}),
                                                      dynamic::input<float>({4}, {"model"})));
                 }),
                 "which forbid_reshard does not allow"));
}

TEST_CASE("bad meshes, shapes and data are refused") {
  CHECK(contains(error_of([] { dynamic::mesh({{"x", 0}}); }), "at least one"));
  CHECK(contains(error_of([] { dynamic::mesh({{"x", 2}, {"x", 2}}); }), "two axes have one name"));
  CHECK(contains(error_of([] { dynamic::mesh({{"a b", 2}}); }), "letters, digits"));
  CHECK(contains(error_of([] { dynamic::mesh({{"x", 1 << 20}, {"y", 1 << 20}}); }), "more than 2^30 devices"));
  CHECK(contains(error_of([] { dynamic::mesh({{"x", 3}}, {0, 1, 1}); }), "device_order must name every device id"));
  CHECK(contains(error_of([] { dynamic::mesh(std::vector<dynamic::mesh::axis>(17, {"x", 1})); }), "at most 16 axes"));
  const dynamic::mesh m({{"x", 2}});
  const auto of_shape = [&](std::vector<std::int64_t> shape) {
    return error_of([&] { static_cast<void>(dynamic::compile([](auto x) { return x; }, m, dynamic::input<float>(shape))); });
  };
  CHECK(contains(of_shape({-1}), "an extent of [-1] is negative"));
  CHECK(contains(of_shape({std::int64_t{1} << 40, std::int64_t{1} << 40}), "more than 2^60 bytes"));
  CHECK(contains(of_shape(std::vector<std::int64_t>(33, 1)), "at most 32 dims"));
  const auto program = dynamic::compile([](auto x) { return x; }, m, dynamic::input<float>({4}));
  CHECK(contains(error_of([&] { static_cast<void>(program.run(threads{}, std::vector<float>(3))); }),
                 "4 elements and the array given has 3"));
  CHECK(contains(error_of([&] { static_cast<void>(program.run(threads{}, std::vector<double>(4))); }),
                 "input 0 is float [4] and the array passed for it is of double; pass an array of float"));
  CHECK(contains(error_of([&] { static_cast<void>(program.run(serial{}, std::vector<float>(4))); }), "the mesh has 2 devices"));
}

TEST_CASE("a tensor of integers takes no number that no integer is near") {
  const dynamic::mesh m({{"x", 2}});
  const auto plus = [&m](double number) {
    return error_of([&] {
      static_cast<void>(dynamic::compile([number](auto x) { return x + number; }, m, dynamic::input<std::int32_t>({4})));
    });
  };
  CHECK(contains(plus(std::numeric_limits<double>::quiet_NaN()), "the number nan is no value of s32"));
  CHECK(contains(plus(-1e300), " is no value of s32"));
  CHECK(plus(2.0) == "no error");
}
