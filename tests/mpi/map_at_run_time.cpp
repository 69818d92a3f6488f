// SPDX-License-Identifier: Apache-2.0
// labels: any_mpi
// ranks: 1 2 3
// group: run
#include <doctest/doctest.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/index.hpp"
#include "gspmd/mpi.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/windows.hpp"

// Every rank has its own function object, with the same type and state. The number of devices is the number of ranks.
TEST_CASE("map with state over MPI, static shapes on a mesh as large as the communicator") {
  using namespace gspmd;
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const dynamic::mesh m({{"x", ranks}});
  const double limit = 2.5;
  const auto program = dynamic::compile(
      [&](auto a, auto b) {
        const auto rows = [limit](const double* x, const double* y, double* out, std::int64_t n) {
          for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] * y[i] < limit ? x[i] * y[i] : limit;
        };
        auto clipped = map(by_rows<double>(rows), a, b);
        return std::tuple{map([limit](double x) { return x - limit; }, clipped), sum(clipped)};
      },
      m, input<double, shape<7>, split<"x">>{}, dynamic::input<double>({7}, {""}));
  std::vector<double> a(7);
  std::vector<double> b(7, 0.5);
  for (std::size_t i = 0; i < 7; ++i) a[i] = static_cast<double>(i);
  const auto result = program.run(mpi{MPI_COMM_WORLD}, a, b);
  double total = 0;
  for (std::size_t i = 0; i < 7; ++i) {
    const double clipped = a[i] * b[i] < limit ? a[i] * b[i] : limit;
    CHECK(result[0].data<double>()[i] == clipped - limit);
    total += clipped;
  }
  CHECK(result[1].data<double>()[0] == total);
}

namespace {
/// Maps x -> a x + b of numbers below 97, applied in order. The order matters.
struct affine_maps {
  using values = std::tuple<std::int32_t, std::int64_t>;
  static constexpr values identity() { return {1, 0}; }
  static constexpr values combine(values first, values then) {
    return {std::get<0>(first) * std::get<0>(then) % 97, (std::get<1>(first) * std::get<0>(then) + std::get<1>(then)) % 97};
  }
};
}  // namespace

TEST_CASE("monoids of one's own, lookups and sorts over MPI give what one device gives, of extents 0 and 1 too") {
  using namespace gspmd;
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const dynamic::mesh m({{"x", ranks}}), one({{"x", 1}});
  for (const std::int64_t n : {0, 1, 2, 5, 40}) {
    const auto program = [&](value a, value b, value table, value ids) {
      std::vector<value> made;
      for (const value v : reduce_by<affine_maps>({a, b}, 0)) made.push_back(v);
      for (const value v : scan_by<affine_maps>({a, b}, 0, {.exclusive = true})) made.push_back(v);
      made.push_back(take(table, ids, 0));
      made.push_back(scatter_add(table, ids, take(table, ids, 0)));
      made.push_back(segment_sum(b, ids, 4));
      made.push_back(sort(a, 0));
      made.push_back(top_k(einsum("ij->ji", a), n < 2 ? n : 2).second);
      made.push_back(cumsum(b, 0, {.reverse = true}));
      return made;
    };
    const auto compiled = [&](const dynamic::mesh& on) {
      dynamic::builder b(on);
      const value x = b.input(dynamic::input<std::int32_t>({n, 2}, {"x", ""})),
                  y = b.input(dynamic::input<std::int64_t>({n, 2}, {"x", ""}));
      const value table = b.input(dynamic::input<std::int32_t>({5, 3}, {"x", ""})),
                  ids = b.input(dynamic::input<std::int32_t>({n}, {"x"}));
      for (const value v : program(x, y, table, ids)) b.output(v);
      return b.compile();
    };
    std::vector<std::int32_t> x, table, ids;
    std::vector<std::int64_t> y;
    for (int i = 0; i < 2 * n + 1; ++i) x.push_back(1 + i * 7 % 13), y.push_back(i * 5 % 11);
    for (int i = 0; i < 15; ++i) table.push_back(i * i);
    for (int i = 0; i < n + 1; ++i) ids.push_back(i * 3 % 7 - 1);  // -1 and 5 are clipped
    const std::vector<const void*> inputs{x.data(), y.data(), table.data(), ids.data()};
    const auto want = compiled(one).run(serial{}, inputs);
    for (const bool shares_memory : {true, false}) {
      mpi backend;
      backend.options.shared_memory = shares_memory;
      const auto got = compiled(m).run(backend, inputs);
      CAPTURE(n);
      REQUIRE(got.size() == want.size());
      for (std::size_t k = 0; k < got.size(); ++k) {
        CAPTURE(k);
        CHECK(got[k].bytes == want[k].bytes);
      }
    }
  }
}

TEST_CASE("complex tensors over MPI: a product of parts, sums, rows that are looked up, and another split") {
  using namespace gspmd;
  using number = std::complex<double>;
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const dynamic::mesh m({{"x", ranks}});
  const auto program = dynamic::compile(
      [&](value a, value b, value i) {
        const value y = einsum("ij,jk->ik", a, b);
        return std::tuple{y, sum(conj(a), {1}), reshard(a, split<"x", _>{}), take(b, i, 0), cumsum(a, 1)};
      },
      m, dynamic::input<number>({5, 7}, {"", "x"}), dynamic::input<number>({7, 3}, {"x", ""}), dynamic::input<std::int32_t>({2}));
  std::vector<number> a, b;
  for (int i = 0; i < 35; ++i) a.emplace_back(i % 5, i % 3 - 1);
  for (int i = 0; i < 21; ++i) b.emplace_back(i % 4, i % 2);
  const auto result = program.run(mpi{MPI_COMM_WORLD}, a, b, std::vector<std::int32_t>{6, 1});
  int wrong = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    number row{};
    for (std::size_t j = 0; j < 7; ++j) {
      row += a[i * 7 + j];
      wrong += result[2].data<number>()[i * 7 + j] != a[i * 7 + j] || result[4].data<number>()[i * 7 + j] != row;
    }
    wrong += result[1].data<number>()[i] != std::conj(row);
    for (std::size_t k = 0; k < 3; ++k) {
      number product{};
      for (std::size_t j = 0; j < 7; ++j) product += a[i * 7 + j] * b[j * 3 + k];
      wrong += result[0].data<number>()[i * 3 + k] != product;
    }
  }
  for (std::size_t k = 0; k < 3; ++k)
    wrong += result[3].data<number>()[k] != b[18 + k] || result[3].data<number>()[3 + k] != b[3 + k];
  CHECK(wrong == 0);
}
