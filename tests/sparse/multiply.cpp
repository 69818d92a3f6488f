// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// alone: yes
// Products with sparse matrices equal a loop over their entries, and send the bytes of their halo, for any split of the
// rows.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/sparse.hpp>
#include <gspmd/transform/grad.hpp>

#include "../examples/cg/poisson.hpp"
#include "support/error_of.hpp"

using namespace gspmd;
using caught::contains;
using caught::error_of;
using std::int64_t;

namespace {

/// A matrix of blocks in compressed rows.
template <class T, class Index = std::int32_t>
struct compressed {
  int64_t rows = 0, columns = 0, block = 1;
  std::vector<Index> row_start{0}, column{};
  std::vector<T> values{};

  void add(int64_t c, T v) {
    column.push_back(static_cast<Index>(c));
    for (int64_t i = 0; i < block * block; ++i) values.push_back(v + static_cast<T>(i % 3));
  }
  void end_row() { row_start.push_back(static_cast<Index>(column.size())); }

  [[nodiscard]] sparse_matrix<T> on(int64_t devices) const { return {rows, columns, row_start, column, values, devices, block}; }
  /// Calls f(row, column, value) for each number.
  template <class F>
  void each(F f) const {
    for (int64_t r = 0; r < rows; ++r)
      for (auto k = row_start[static_cast<std::size_t>(r)]; k < row_start[static_cast<std::size_t>(r) + 1]; ++k)
        for (int64_t i = 0; i < block; ++i)
          for (int64_t j = 0; j < block; ++j)
            f(r * block + i, static_cast<int64_t>(column[static_cast<std::size_t>(k)]) * block + j,
              values[static_cast<std::size_t>((static_cast<int64_t>(k) * block + i) * block + j)]);
  }
  [[nodiscard]] std::vector<T> times(const std::vector<T>& x) const {
    std::vector<T> y(static_cast<std::size_t>(rows * block));
    each([&](int64_t r, int64_t c, T v) { y[static_cast<std::size_t>(r)] += v * x[static_cast<std::size_t>(c)]; });
    return y;
  }
  [[nodiscard]] std::vector<T> transposed_times(const std::vector<T>& y) const {
    std::vector<T> x(static_cast<std::size_t>(columns * block));
    each([&](int64_t r, int64_t c, T v) { x[static_cast<std::size_t>(c)] += v * y[static_cast<std::size_t>(r)]; });
    return x;
  }
  /// Returns the bytes that a device sends: for each distance, the bytes of the fullest exchange.
  [[nodiscard]] int64_t bytes(int64_t devices) const {
    const int64_t own_rows = (rows + devices - 1) / devices, own = (columns + devices - 1) / devices;
    std::vector<std::vector<bool>> reads(static_cast<std::size_t>(devices), std::vector<bool>(static_cast<std::size_t>(columns)));
    each([&](int64_t r, int64_t c, T) {
      reads[static_cast<std::size_t>(r / block / own_rows)][static_cast<std::size_t>(c / block)] = true;
    });
    int64_t sum = 0;
    for (int64_t by = 1; by < devices; ++by) {
      int64_t most = 0;
      for (int64_t from = 0; from < devices; ++from) {
        const auto& of = reads[static_cast<std::size_t>((from + by) % devices)];
        const auto begin = std::min(from * own, columns), end = std::min((from + 1) * own, columns);
        most = std::max(most, static_cast<int64_t>(std::count(of.begin() + begin, of.begin() + end, true)));
      }
      sum += most;
    }
    return sum * block * static_cast<int64_t>(sizeof(T));
  }
};

/// Whole numbers, so that sums are exact in any order.
template <class T>
std::vector<T> some(int64_t n, int seed) {
  std::vector<T> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>((static_cast<int>(i) * 7 + seed) % 11 - 5);
  return x;
}
template <class T, class Index>
compressed<T, Index> random_matrix(int64_t rows, int64_t columns, int64_t block, int in_row, unsigned seed) {
  std::mt19937 draw(seed);
  compressed<T, Index> a{rows, columns, block};
  for (int64_t r = 0; r < rows; ++r) {
    const auto count = r % 4 == 2 ? 0 : draw() % static_cast<unsigned>(in_row + 1);  // empty rows; columns in any order and
                                                                                     // repeated
    for (unsigned k = 0; k < count; ++k)
      a.add(static_cast<int64_t>(draw() % static_cast<unsigned>(columns)), static_cast<T>(static_cast<int>(draw() % 9) - 4));
    a.end_row();
  }
  return a;
}
template <class T = double>
compressed<T> laplacian(int64_t height, int64_t width) {
  compressed<T> a{height * width, height * width};
  for (int64_t i = 0; i < height; ++i)
    for (int64_t j = 0; j < width; ++j) {
      const auto at = i * width + j;
      if (i > 0) a.add(at - width, -1);
      if (j > 0) a.add(at - 1, -1);
      a.add(at, 4);
      if (j + 1 < width) a.add(at + 1, -1);
      if (i + 1 < height) a.add(at + width, -1);
      a.end_row();
    }
  return a;
}
std::vector<int64_t> shape_of(int64_t n, int64_t block) {
  return block > 1 ? std::vector<int64_t>{n, block} : std::vector<int64_t>{n};
}
std::vector<std::string> split_of(int64_t block) {
  return block > 1 ? std::vector<std::string>{"x", ""} : std::vector<std::string>{"x"};
}
template <class T>
std::vector<T> numbers(const dynamic::any_array& a) {
  return {a.data<T>(), a.data<T>() + a.bytes.size() / sizeof(T)};
}

/// Checks A x, A^T y, and the gradients of the sum of w A x with respect to x, w and the values.
template <class T, class Index>
void check(const compressed<T, Index>& a, int64_t devices) {
  CAPTURE(devices);
  CAPTURE(a.rows);
  CAPTURE(a.columns);
  CAPTURE(a.block);
  const auto m = a.on(devices);
  const auto b = a.block;
  const auto x = some<T>(a.columns * b, 3), y = some<T>(a.rows * b, 1);
  const dynamic::mesh mesh({{"x", devices}});
  const auto step = dynamic::compile(
      [](auto matrix, auto v, auto w) {
        const value product = multiply(matrix, v), back = multiply_transposed(matrix, w);
        const auto g = grad(sum(product * w), std::tuple{v, matrix.entries});
        const auto t = grad(sum(back * v), std::tuple{w, matrix.entries});
        return std::tuple{product, back, std::get<0>(g), std::get<1>(g), std::get<0>(t), std::get<1>(t)};
      },
      mesh, m.template input<"x">(), dynamic::input<T>(shape_of(a.columns, b), split_of(b)),
      dynamic::input<T>(shape_of(a.rows, b), split_of(b)));
  const auto run = [&](const auto& backend) {
    const auto results = step.run(backend, m.parts(), x, y);
    CHECK(numbers<T>(results[0]) == a.times(x));
    CHECK(numbers<T>(results[1]) == a.transposed_times(y));
    CHECK(numbers<T>(results[2]) == a.transposed_times(y));
    // The sum of all gradients with respect to values, in the order of the parts, is that of w_r x_c over all entries.
    T found = 0, expected = 0;
    for (const T v : numbers<T>(results[3])) found += v;
    CHECK(numbers<T>(results[4]) == a.times(x));
    CHECK(numbers<T>(results[5]) == numbers<T>(results[3]));
    a.each([&](int64_t r, int64_t c, T) { expected += y[static_cast<std::size_t>(r)] * x[static_cast<std::size_t>(c)]; });
    CHECK(found == expected);
  };
  run(simulated{});
  if (devices < 4) run(threads{});
  const auto product = dynamic::compile([](auto matrix, auto v) { return multiply(matrix, v); }, mesh, m.template input<"x">(),
                                        dynamic::input<T>(shape_of(a.columns, b), split_of(b)));
  if (a.columns == 1) return;  // a dim of extent 1 is on all devices before it is split
  const auto sent = product.traffic().bytes;
  CHECK(sent == m.layout().bytes(sizeof(T)));
  if (m.layout().to_each == 0) CHECK(sent == a.bytes(devices));
  else CHECK(8 * a.bytes(devices) >= 7 * sent);
  CHECK(product.traffic().in(collective_kind::all_gather).bytes == 0);
}

/// The layout is computed at compile time.
template <int64_t Points>
constexpr auto chain_of() {
  struct {
    std::array<std::int32_t, static_cast<std::size_t>(Points) + 1> row_start{};
    std::array<std::int32_t, static_cast<std::size_t>(3 * Points - 2)> column{};
  } a;
  std::size_t at = 0;
  for (int64_t r = 0; r < Points; ++r) {
    for (int64_t c = std::max<int64_t>(r - 1, 0); c < std::min(r + 2, Points); ++c) a.column[at++] = static_cast<std::int32_t>(c);
    a.row_start[static_cast<std::size_t>(r) + 1] = static_cast<std::int32_t>(at);
  }
  return a;
}
constexpr auto chain = chain_of<18>();
constexpr sparse_layout chain_layout = sparse_layout_of(18, 18, chain.row_start, chain.column, 4);
static_assert(chain_layout.bytes(8) == 2 * 8 && chain_layout.exchange_count == 2);

/// Conjugate gradients: u with A u = b, and the number of iterations.
constexpr auto solve = [](auto a, auto b) {
  const auto dot = [](value x, value y) { return sum(x * y); };
  auto last = while_loop([](auto now) { return bitwise_and(std::get<3>(now) > 1e-20, std::get<4>(now) < 200); },
                         [&](auto now) {
                           auto [u, r, p, rr, trips] = now;
                           auto q = multiply(a, p);
                           auto alpha = rr / dot(p, q);
                           auto r2 = r - alpha * q;
                           auto rr2 = dot(r2, r2);
                           return std::tuple{u + alpha * p, r2, r2 + rr2 / rr * p, rr2, trips + 1};
                         },
                         std::tuple{0.0 * b, b, b, dot(b, b), cast<std::int32_t>(0.0 * sum(b))});
  return std::tuple{std::get<0>(last), std::get<4>(last)};
};
using chain_step =
    compile<solve, mesh<axis<"x", 4>>, sparse_input<double, chain_layout, "x">, input<double, shape<18>, split<"x">>>;
static_assert(chain_step::traffic.in(collective_kind::collective_permute).bytes == 2 * 8);
static_assert(chain_step::traffic.in(collective_kind::all_gather).bytes == 0);

}  // namespace

namespace sparse_products {

TEST_CASE("sparse_matrix: random patterns on 1 to 8 devices") {
  unsigned seed = 1;
  for (const int64_t devices : {1, 2, 3, 4, 5, 8}) {
    check(random_matrix<double, std::int32_t>(13, 13, 1, 4, seed++), devices);
    check(random_matrix<float, int64_t>(5, 17, 1, 6, seed++), devices);
  }
  check(random_matrix<double, int64_t>(21, 6, 1, 3, seed++), 6);
  check(random_matrix<double, std::int32_t>(16, 16, 1, 16, seed++), 4);  // all devices exchange with all others
  check(random_matrix<double, std::int32_t>(3, 2, 1, 3, seed++), 7);     // more devices than rows
  check(random_matrix<float, std::int32_t>(1, 1, 1, 2, seed++), 3);
}

TEST_CASE("sparse_matrix: blocks") {
  unsigned seed = 50;
  for (const int64_t block : {2, 3, 4, 5}) check(random_matrix<double, std::int32_t>(7, 9, block, 3, seed++), block);
  check(random_matrix<float, std::int32_t>(6, 6, 2, 2, seed++), 1);
}

TEST_CASE("sparse_matrix: a 5-point Laplacian sends the lines at its borders") {
  const auto a = laplacian(8, 6);
  for (const int64_t devices : {1, 2, 4, 8}) {
    check(a, devices);
    CHECK(a.on(devices).layout().bytes(8) == (devices == 1 ? 0 : devices == 2 ? 1 : 2) * 6 * 8);
  }
  check(laplacian(7, 3), 4);
}

TEST_CASE("sparse_matrix: one device reads everything, columns that nobody reads, no entries at all") {
  compressed<double> a{8, 8};
  for (int64_t c = 0; c < 8; ++c) a.add(c, 1);
  for (int64_t r = 0; r < 8; ++r) a.end_row();
  check(a, 4);
  CHECK(a.on(4).layout().bytes(8) == 3 * 2 * 8);
  compressed<double> one{8, 8};
  for (int64_t r = 0; r < 8; ++r) {
    one.add(3, 2);
    one.end_row();
  }
  check(one, 4);
  CHECK(one.on(4).layout().bytes(8) == 3 * 8);
  compressed<float> none{6, 4};
  for (int64_t r = 0; r < 6; ++r) none.end_row();
  check(none, 3);
}

TEST_CASE("sparse_matrix: all talk to all by one all_to_all") {
  compressed<double> a{8, 8};
  for (int64_t r = 0; r < 8; ++r) {
    for (int64_t c = 0; c < 8; ++c) a.add(c, static_cast<double>(r + c));
    a.end_row();
  }
  const auto m = a.on(4);
  CHECK(m.layout().to_each == 2);
  CHECK(m.layout().bytes(8) == 3 * 2 * 8);
  check(a, 4);
}

TEST_CASE("sparse_matrix: more than 64 devices") {
  const auto a = laplacian(70, 1);
  const auto m = a.on(70);
  const auto step = dynamic::compile([](auto matrix, auto v) { return multiply(matrix, v); }, dynamic::mesh({{"x", 70}}),
                                     m.input<"x">(), dynamic::input<double>({70}, {"x"}));
  const auto x = some<double>(70, 2);
  CHECK(numbers<double>(step.run(simulated{}, m.parts(), x)[0]) == a.times(x));
  CHECK(step.traffic().bytes == 2 * 8);
}

/// The first row has `of_second` columns of device 1 and one column of each other device. Each row has its diagonal and
/// the first column. So devices at every distance exchange.
compressed<double> arrow(int64_t devices, int64_t of_second) {
  compressed<double> a{devices * of_second, devices * of_second};
  for (int64_t r = 0; r < a.rows; ++r) {
    a.add(r, 3);
    if (r > 0) a.add(0, -1);
    else
      for (int64_t c = of_second; c < a.columns; ++c)
        if (c / of_second == 1 || c % of_second == 0) a.add(c, 2);
    a.end_row();
  }
  return a;
}
TEST_CASE("sparse_matrix: an arrow on 66 devices, of which one sends most, sends by 65 distances what is read") {
  const auto a = arrow(66, 4);
  const auto m = a.on(66);
  CHECK(m.layout().to_each == 0);
  CHECK(m.layout().exchange_count == 65);
  CHECK(m.layout().halo() == 64 + 4);  // one all_to_all would have 66 * 4
  CHECK(m.layout().bytes(8) == (64 + 4) * 8);
  CHECK(m.layout().bytes(8) == a.bytes(66));
  const auto x = some<double>(a.columns, 3), y = some<double>(a.rows, 1);
  const auto step = dynamic::compile(
      [](auto matrix, auto v, auto w) {
        return std::tuple{multiply(matrix, v), multiply_transposed(matrix, w)};
      },
      dynamic::mesh({{"x", 66}}), m.input<"x">(), dynamic::input<double>({a.columns}, {"x"}),
      dynamic::input<double>({a.rows}, {"x"}));
  const auto found = step.run(simulated{}, m.parts(), x, y);
  CHECK(numbers<double>(found[0]) == a.times(x));
  CHECK(numbers<double>(found[1]) == a.transposed_times(y));
  CHECK(step.traffic().bytes == 2 * m.layout().bytes(8));
}
TEST_CASE("sparse_matrix: of more than 64 devices permutes that save nothing, and more distances than 256, are one all_to_all") {
  const auto even = arrow(66, 1).on(66).layout();
  CHECK(even.to_each == 1);
  CHECK(even.bytes(8) == 65 * 8);
  const auto full = arrow(257, 2), wide = arrow(258, 2);
  const auto last = sparse_layout_of(full.rows, full.columns, full.row_start, full.column, 257),
             more = sparse_layout_of(wide.rows, wide.columns, wide.row_start, wide.column, 258);
  CHECK(last.exchange_count == 256);
  CHECK(last.bytes(8) == (255 + 2) * 8);
  CHECK(more.to_each == 2);
  CHECK(more.bytes(8) == 257 * 2 * 8);
}

TEST_CASE("sparse_matrix: beside another axis, and x that lies otherwise") {
  const auto a = random_matrix<double, std::int32_t>(10, 12, 1, 3, 99);
  const auto m = a.on(2);
  const auto x = some<double>(12, 2);
  for (const char* const where : {"x", "y", "x,y", ""}) {
    const auto step =
        dynamic::compile([](auto matrix, auto v) { return multiply(matrix, v); }, dynamic::mesh({{"x", 2}, {"y", 2}}),
                         m.input<"x">(), dynamic::input<double>({12}, {where}));
    CHECK(numbers<double>(step.run(simulated{}, m.parts(), x)[0]) == a.times(x));
  }
}

TEST_CASE("sparse_matrix: conjugate gradients in one program") {
  const auto a = laplacian(9, 7);
  const auto b = some<double>(63, 4);
  for (const int64_t devices : {1, 3, 4}) {
    const auto m = a.on(devices);
    const auto step =
        dynamic::compile(solve, dynamic::mesh({{"x", devices}}), m.input<"x">(), dynamic::input<double>({63}, {"x"}));
    const auto found = step.run(threads{}, m.parts(), b);
    const auto back = a.times(numbers<double>(found[0]));
    for (std::size_t i = 0; i < b.size(); ++i) CHECK(back[i] == doctest::Approx(b[i]).epsilon(1e-8));
    CHECK(numbers<std::int32_t>(found[1])[0] < 60);
  }
}

TEST_CASE("sparse_matrix: a compiled program, and room that a layout has") {
  std::vector<double> values;
  for (std::size_t r = 0; r + 1 < chain.row_start.size(); ++r)
    for (auto k = chain.row_start[r]; k < chain.row_start[r + 1]; ++k)
      values.push_back(chain.column[static_cast<std::size_t>(k)] == static_cast<std::int32_t>(r) ? 2 : -1);
  array<double> b({18});
  b.fill(1);
  const auto check_solution = [&](const sparse_matrix<double>& m) {
    const auto [u, trips] = run<chain_step>(threads{}, m.parts(), b);
    for (int64_t i = 0; i < 18; ++i) CHECK(u[i] == doctest::Approx(0.5 * static_cast<double>((i + 1) * (18 - i))));
    CHECK(trips[0] == 9);  // the right-hand side is symmetric
  };
  check_solution({chain_layout, chain.row_start, chain.column, values});
  // The same matrix without its off-diagonal entries fits into the first matrix's room; a wider matrix does not fit.
  compressed<double> diagonal{18, 18}, wide{18, 18};
  for (int64_t r = 0; r < 18; ++r) {
    diagonal.add(r, 2);
    diagonal.end_row();
    wide.add((r + 9) % 18, 1);
    wide.end_row();
  }
  const sparse_matrix<double> small(chain_layout, diagonal.row_start, diagonal.column, diagonal.values);
  CHECK(std::get<0>(run<chain_step>(simulated{}, small.parts(), b))[17] == 0.5);
  CHECK(contains(error_of([&] { sparse_matrix<double>(chain_layout, wide.row_start, wide.column, wide.values); }), "room"));
}

TEST_CASE("sparse_matrix: what is wrong with a matrix is one error that names the row") {
  const std::vector<double> values{1, 2, 3};
  const auto made = [&](const std::vector<int>& starts, const std::vector<int64_t>& columns, int64_t rows = 2) {
    return error_of([&] { sparse_matrix<double>(rows, 4, starts, columns, values, 2); });
  };
  CHECK(made({0, 2, 3}, {0, 3, 1}) == "no error");
  CHECK(made({0, 2, 3}, {0, 4, 1}) == "gspmd: sparse_matrix: row 0 has an entry in column 4, and columns are 0 to 3");
  CHECK(made({0, 2, 3}, {0, 1, -1}) == "gspmd: sparse_matrix: row 1 has an entry in column -1, and columns are 0 to 3");
  CHECK(made({0, 3, 2}, {0, 1, 1}) == "gspmd: sparse_matrix: row 1 begins at 3 and ends at 2; row pointers do not decrease");
  CHECK(made({0, 5, 3}, {0, 1, 1}) == "gspmd: sparse_matrix: row 0 ends at 5, and there are 3 entries");
  CHECK(made({0, 1, 2}, {0, 1, 1}) == "gspmd: sparse_matrix: row 1 ends at 2, and there are 3 entries");
  CHECK(made({1, 2, 3}, {0, 1, 1}) == "gspmd: sparse_matrix: row 0 begins at 0, and its row pointer is 1");
  CHECK(made({0, 3}, {0, 1, 1}) == "gspmd: sparse_matrix: 2 rows have 3 row pointers, and 2 are given");
  CHECK(made({0, 3}, {0, 1}, 1) == "gspmd: sparse_matrix: row 0 ends at 3, and there are 2 entries");
  CHECK(made({0, 2}, {0, 1}, 1) == "gspmd: sparse_matrix: 2 entries have 2 values, and 3 are given");
  CHECK(made({0}, {}, 0) == "gspmd: sparse_matrix: a matrix has at least one row, and this one has 0");
}
TEST_CASE("sparse_matrix: a device has at most 2^31 - 1 of everything, and each error says of what") {
  const std::vector<int> starts{0, 1};
  const std::vector<int64_t> columns{0};
  const std::vector<double> values{1};
  const auto layout_of = [&](int64_t rows, int64_t of_columns, int64_t devices) {
    return error_of([&] { sparse_layout_of(rows, of_columns, starts, columns, devices); });
  };
  const int64_t limit = 0x7fffffff;
  CHECK(layout_of(1, limit, 1) == "no error");
  CHECK(layout_of(1, limit + 1, 1) ==
        "gspmd: sparse_matrix: 2147483648 columns over 1 devices are 2147483648 on each, and one has at "
        "most 2147483647; split them over more devices");
  CHECK(layout_of(1, 3 * limit, 3) == "no error");
  CHECK(contains(layout_of(1, 3 * limit + 1, 3), "6442450942 columns over 3 devices are 2147483648 on each"));
  const int64_t huge = 0x7fffffffffffffff;
  CHECK(contains(layout_of(1, huge, 2), "9223372036854775807 columns over 2 devices are 4611686018427387904 on each"));
  CHECK(contains(layout_of(huge, 1, 2), "9223372036854775807 rows over 2 devices are 4611686018427387904 on each"));
  CHECK(sparse_layout{.rows = huge, .cols = huge, .devices = 2}.local_columns() == huge / 2 + 1);

  // The room of a layout is checked too, before it is used.
  const auto in_room = [&](const sparse_layout& room) {
    return error_of([&] { sparse_matrix<double>(room, starts, columns, values); });
  };
  sparse_layout room = sparse_layout_of(1, 4, starts, columns, 2);
  CHECK(in_room(room) == "no error");
  sparse_layout entries = room, permutes = room, each = room;
  entries.entries = limit + 1;
  CHECK(in_room(entries) ==
        "gspmd: sparse_matrix: the rows of a device have 2147483648 entries, and one has at most 2147483647; split the "
        "rows over more devices");
  const auto halo =
      "gspmd: sparse_matrix: a device is sent more than 2147483647 elements of x; order the rows so that devices read less of "
      "each other's columns";
  permutes.exchange_count = 2;
  permutes.exchanges[0] = {1, limit, 3};
  permutes.exchanges[1] = {2, 1, 3};
  CHECK(in_room(permutes) == halo);
  each.to_each = limit / 2 + 1;
  CHECK(in_room(each) == halo);
  each.to_each = huge;
  CHECK(in_room(each) == halo);
}
TEST_CASE("examples/cg: a residual that is not a number is an error, not a loop without end") {
  CHECK(error_of([] { cg::check_residual(1e300, 3); }) == "no error");
  CHECK(contains(error_of([] { cg::check_residual(std::nan(""), 3); }), "|r|^2 is nan after 3 iterations"));
  CHECK(contains(error_of([] { cg::check_residual(HUGE_VAL, 3); }), "|r|^2 is inf after 3 iterations"));
}

TEST_CASE("sparse_matrix: mistakes in a program") {
  const auto a = laplacian(4, 4);
  const auto planned = [](const sparse_matrix<double>& m, int64_t devices, const dynamic::input_spec& x) {
    return error_of([&] {
      dynamic::compile([](auto matrix, auto v) { return multiply(matrix, v); }, dynamic::mesh({{"x", devices}}), m.input<"x">(),
                       x);
    });
  };
  CHECK(planned(a.on(2), 2, dynamic::input<double>({16}, {"x"})) == "no error");
  CHECK(contains(planned(a.on(2), 4, dynamic::input<double>({16}, {"x"})), "the matrix is made for 2 devices, and `x` has 4"));
  CHECK(contains(planned(a.on(2), 2, dynamic::input<double>({15}, {"x"})), "x is [15]; a matrix of 16 x 16 takes [16]"));
  CHECK(contains(planned(a.on(2), 2, dynamic::input<float>({16}, {"x"})), "the matrix is f64 and x is f32"));
}

}  // namespace sparse_products
