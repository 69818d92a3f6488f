// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Whole arrays in and out where some devices hold nothing.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

using namespace gspmd;

TEST_CASE("devices beyond the last element neither read nor write") {
  const dynamic::mesh m({{"x", 2}, {"y", 3}});
  const std::vector<std::vector<std::int64_t>> shapes = {{2, 3, 5}, {9, 2, 2}, {3, 1, 4}, {1, 3, 5},
                                                         {0, 3, 5}, {5, 0, 3}, {4, 3, 0}};
  const std::vector<std::vector<std::string>> splits = {
      {"x,y", "", ""}, {"y,x", "", ""}, {"", "x,y", ""}, {"y", "", "x"}, {"", "y", "x"}};
  for (const auto& shape : shapes)
    for (const auto& from : splits)
      for (const auto& to : splits) {
        dynamic::builder b(m);
        auto x = b.input(dynamic::input<std::int32_t>(shape, from));
        b.output(b.reshard(x, to));
        b.output(-operand(x));
        const auto step = b.compile();
        std::vector<std::int32_t> data(static_cast<std::size_t>(shape[0] * shape[1] * shape[2]));
        std::iota(data.begin(), data.end(), 1);
        const auto check = [&](const std::vector<dynamic::any_array>& result) {
          bool same = true;
          for (std::size_t i = 0; i < data.size(); ++i)
            same = same && result[0].data<std::int32_t>()[i] == data[i] && result[1].data<std::int32_t>()[i] == -data[i];
          CHECK(same);
        };
        check(step.run(simulated{}, data));
        check(step.run(threads{}, data));
      }
}

TEST_CASE("an operator without a line is called by its name") {
  const dynamic::mesh m({{"x", 2}});
  dynamic::builder b(m);
  auto x = b.input(dynamic::input<float>({4, 6}));
  static_cast<void>(detail::add_reshape(b.graph(), x.id(), detail::extents_of(std::vector<std::int64_t>{5}), {"folded", 0}));
  std::string text;
  try {
    static_cast<void>(b.compile());
  } catch (const error& e) {
    text = e.what();
  }
  CHECK(text == "gspmd: reshape `folded`: the operand [4,6] has 24 elements, the result [5] has 5");
  CHECK(std::string(error("it broke").with_op("reshape", "folded", 0).what()) == "gspmd: reshape `folded`: it broke");
}

TEST_CASE("an array is made of the shape of a program's input, whatever holds it") {
  dynamic::builder b(dynamic::mesh({{"x", 2}}));
  const value x = b.input(dynamic::input<float>({3, 5, 1}, {"x", "", ""}));
  b.output(x + x);
  const auto step = b.compile();
  array<float> a(step.input(0).global_shape());
  a.fill(1.5F);
  CHECK(a.size() == 15);
  CHECK(step.run(simulated{}, a)[0].data<float>()[14] == 3.0F);
  const std::int64_t extents[] = {0, 5};
  CHECK(array<float>(extents).shape() == detail::extents{0, 5});
  CHECK(array<float>({0, 5}).shape() == detail::extents{0, 5});
  CHECK(array<float>(std::array<std::int64_t, 0>{}).size() == 1);
  CHECK_THROWS_AS(array<float>(std::vector<std::int64_t>{2, -1}), error);
  CHECK_THROWS_AS(array<float>(std::vector<std::int64_t>(33, 1)), error);
}
