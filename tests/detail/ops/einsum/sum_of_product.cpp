// SPDX-License-Identifier: Apache-2.0
// group: dynamic
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/index.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/windows.hpp"

// Sums of products do not take the products through memory, where a contraction can do it as fast, and are right where
// it cannot.

namespace {

using namespace gspmd;
namespace kernels = detail::kernels;

template <class Kernel>
int count(const dynamic::program& p) {
  int n = 0;
  for (const auto& s : p.view().steps) n += detail::is<Kernel>(s) ? 1 : 0;
  return n;
}

const dynamic::mesh one({{"x", 1}});

}  // namespace

TEST_CASE("a sum of products is one contraction and no loop") {
  const auto in = dynamic::input<float>({100, 80});
  const auto check = [&](auto f, int contractions) {
    const auto p = dynamic::compile(f, one, in, in);
    CHECK(count<kernels::contract>(p) == contractions);
    CHECK(count<kernels::fused>(p) == 1 - contractions);
    CHECK(count<kernels::reduce>(p) == 1 - contractions);
    CHECK(p.flops_per_device() == 2 * 100 * 80);
  };
  check([](auto a, auto b) { return sum(a * b); }, 1);
  check([](auto a, auto b) { return sum(a * b, 1); }, 1);
  check([](auto a, auto b) { return sum(a * b, 0); }, 1);
  const auto self_product = dynamic::compile([](auto a) { return sum(a * a); }, one, in);
  CHECK(count<kernels::contract>(self_product) == 1);
  CHECK(count<kernels::fused>(self_product) == 0);
}

TEST_CASE("products that have other readers too, or are computed with their factors, stay a loop") {
  const auto in = dynamic::input<float>({100, 80});
  const auto read_twice = dynamic::compile(
      [](auto a, auto b) {
        const auto y = a * b;
        return std::tuple{sum(y), y};
      },
      one, in, in);
  CHECK(count<kernels::contract>(read_twice) == 0);
  const auto computed = dynamic::compile([](auto a, auto b) { return sum((a - 1.0) * (b - 1.0)); }, one, in, in);
  CHECK(count<kernels::contract>(computed) == 0);
  CHECK(count<kernels::fused>(computed) == 1);
  const auto few_terms = dynamic::compile([](auto a, auto b) { return sum(a * b, 1); }, one, dynamic::input<float>({100, 8}),
                                          dynamic::input<float>({100, 8}));
  CHECK(count<kernels::contract>(few_terms) == 0);
  const auto integers = dynamic::compile([](auto a, auto b) { return sum(a * b); }, one, dynamic::input<std::int32_t>({100}),
                                         dynamic::input<std::int32_t>({100}));
  CHECK(count<kernels::contract>(integers) == 0);
}

TEST_CASE("sums of products on uneven shards equal the ones written out") {
  const std::int64_t rows = 67, columns = 131;
  std::vector<double> a(static_cast<std::size_t>(rows * columns)), b(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<double>(i % 13) - 6;
    b[i] = static_cast<double>(i % 7) * 0.25;
  }
  std::vector<double> all(1), by_row(static_cast<std::size_t>(rows)), by_column(static_cast<std::size_t>(columns));
  for (std::size_t r = 0; r < by_row.size(); ++r)
    for (std::size_t c = 0; c < by_column.size(); ++c) {
      const double product = a[r * by_column.size() + c] * b[r * by_column.size() + c];
      all[0] += product;
      by_row[r] += product;
      by_column[c] += product;
    }
  const dynamic::mesh m({{"x", 3}, {"y", 2}});
  for (const auto& split : {std::vector<std::string>{"x", "y"}, {"y", "x"}, {"x,y", ""}, {"", "x,y"}, {"", "y"}}) {
    const auto in = dynamic::input<double>({rows, columns}, split);
    // Three programs: in one, the product would be one value with three readers, and no sum of a product.
    std::vector<dynamic::any_array> got;
    int contractions = 0;
    const auto run = [&](auto sum_of) {
      const auto p = dynamic::compile([&](auto x, auto y) { return sum_of(x * y); }, m, in, in);
      contractions += count<kernels::contract>(p);
      got.push_back(p.run(simulated{}, a, b)[0]);
    };
    run([](value v) { return sum(v); });
    run([](value v) { return sum(v, 1); });
    run([](value v) { return sum(v, 0); });
    CHECK(contractions >= 1);
    CHECK(got[0].data<double>()[0] == all[0]);
    for (std::size_t r = 0; r < by_row.size(); ++r) CHECK(got[1].data<double>()[r] == by_row[r]);
    for (std::size_t c = 0; c < by_column.size(); ++c) CHECK(got[2].data<double>()[c] == by_column[c]);
  }
}
