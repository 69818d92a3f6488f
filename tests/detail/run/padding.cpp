// SPDX-License-Identifier: Apache-2.0
// group: map
#include <doctest/doctest.h>

#include <cfenv>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"

// Nothing is computed for elements that do not exist: a user's function does not see them, and they raise no
// floating-point exception.

namespace {

using namespace gspmd;

bool met_zero = false;  // simulated devices share a thread
constexpr auto hundredth = [](auto x) {
  using number = decltype(x);
  met_zero = met_zero || x == number{};
  return x == number{} ? x : static_cast<number>(100 / x);
};
void hundredths(const std::int32_t* x, std::int32_t* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = hundredth(x[i]);
}

template <class T>
std::vector<T> from_one(std::int64_t n) {
  std::vector<T> a(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) a[static_cast<std::size_t>(i)] = static_cast<T>(i + 1);
  return a;
}
template <class T>
bool are_hundredths(const T* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    if (y[i] != static_cast<T>(100 / static_cast<T>(i + 1))) return false;
  return true;
}

const dynamic::mesh grid({{"x", 2}, {"y", 4}});

/// Tests map on x, which has no zeros, under one sharding. The result is read or computed in several ways.
void check_map(std::initializer_list<std::int64_t> shape, const std::vector<std::string>& split,
               const std::vector<std::string>& other) {
  std::int64_t n = 1;
  for (const auto extent : shape) n *= extent;
  const int last = static_cast<int>(shape.size()) - 1;
  const std::int64_t columns = *(shape.end() - 1);
  const auto program = dynamic::compile(
      [&](auto x, auto y) {
        const value counted = y + iota<std::int32_t>(y, shape, last);  // 1 and the column
        const value row = map(hundredth, y * 2);
        return std::tuple{map(hundredth, x), map(by_rows<std::int32_t>(hundredths), x), map(hundredth, counted) + row,
                          map(hundredth, sum(x, {0})), cast<double>(map(hundredth, x * y))};
      },
      grid, dynamic::input<std::int32_t>(shape, split), dynamic::input<std::int32_t>(shape, other));
  met_zero = false;
  const auto x = from_one<std::int32_t>(n);
  const std::vector<std::int32_t> ones(x.size(), 1);
  for (int repeat = 0; repeat < 2; ++repeat) {  // the second time with a used arena
    const auto result = program.run(simulated{}, x, ones);
    CHECK(are_hundredths(result[0].data<std::int32_t>(), n));
    CHECK(are_hundredths(result[1].data<std::int32_t>(), n));
    for (std::int64_t i = 0; i < n; ++i) CHECK(result[2].data<std::int32_t>()[i] == 100 / (1 + i % columns) + 50);
    for (std::int64_t i = 0; i < n; ++i) CHECK(result[4].data<double>()[i] == static_cast<double>(100 / (1 + i)));
  }
  CHECK_FALSE(met_zero);
}

}  // namespace

TEST_CASE("map is called for the elements that exist, and for no others") {
  check_map({5}, {"x"}, {"y"});
  check_map({5}, {"y"}, {""});  // the last device has nothing
  check_map({3, 5}, {"", "y"}, {"y", ""});
  check_map({3, 5}, {"x", "y"}, {"y", "x"});
  check_map({1, 9}, {"y", "x"}, {"", "y"});
  check_map({3, 3000}, {"y", "x"}, {"x", "y"});  // rows in several blocks
  check_map({2, 3, 7}, {"x", "y", ""}, {"", "x", "y"});
}

namespace {
constexpr auto divided = [](auto x, auto w) {
  const value y = x / w;
  const value scaled = softmax(x, 1) * log(y) / sqrt(y);
  return std::tuple{scaled, einsum<"ab,cb->ac">(y, scaled), mean(1.0 / x, {0}), map(hundredth, y + w)};
};
using pod = mesh<axis<"x", 4>>;
using in_rows = input<float, shape<5, 7>, split<"x", _>>;
using in_columns = input<float, shape<5, 7>, split<_, "x">>;
}  // namespace

TEST_CASE("padding raises no floating-point exception") {
  std::vector<float> x = from_one<float>(35), w(35, 0.5f);
  const auto raises = [](auto run) {
    std::feclearexcept(FE_ALL_EXCEPT);
    for (int repeat = 0; repeat < 2; ++repeat) run();
    return std::fetestexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW) != 0;
  };
  met_zero = false;
  CHECK_FALSE(raises([&] { run<compile<divided, pod, in_rows, in_rows>>(simulated{}, x, w); }));
  CHECK_FALSE(raises([&] { run<compile<divided, pod, in_columns, in_columns>>(simulated{}, x, w); }));
  for (const auto& split : {std::vector<std::string>{"x", "y"}, {"y", "x"}, {"y", ""}, {"", "y"}}) {
    const auto program = dynamic::compile(divided, grid, dynamic::input<float>({5, 7}, split),
                                          dynamic::input<float>({5, 7}, {split[1], split[0]}));
    CHECK_FALSE(raises([&] { program.run(simulated{}, x, w); }));
  }
  CHECK_FALSE(met_zero);
}
