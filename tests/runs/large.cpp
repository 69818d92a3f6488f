// SPDX-License-Identifier: Apache-2.0
// labels: once exhaustive
// timeout: 600
// slow: fills up to 2.3 GiB, and computes each element
// Shards and tensors with more elements than an int can count. They use at most 2.3 GiB at a time. With less memory,
// the tests report that they are skipped.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/session.hpp>
#include <gspmd/gspmd.hpp>

#include "support/large_memory.hpp"

namespace {

using namespace gspmd;
using std::int64_t;
using std::int8_t;

constexpr int64_t n = large::elems;
using one = mesh<axis<"x", 1>>;
using two = mesh<axis<"x", 2>>;

bool is_here() {
  const auto reason = large::why_not(n + (int64_t{300} << 20));
  if (!reason.empty()) MESSAGE(reason);
  return reason.empty();
}

constexpr int64_t near = 12'345, far = (int64_t{1} << 31) + 5;
constexpr int64_t rows = 32'771, columns = 65'537;
static_assert(rows * columns > int64_t{1} << 31);

constexpr auto near_moved = [](auto x) { return shift(x, -near, along(0)); };  // the second half reads the end of the first half
constexpr auto far_moved = [](auto x) { return shift(x, far, along(0)); };
constexpr auto found = [](auto x, auto at) { return std::tuple{take(x, at, 0), slice(x, {n - 5000}, {n - 7}, {3})}; };
constexpr auto sums = [](auto m) { return std::tuple{sum(m, 0), sum(m, 1)}; };
constexpr auto more = [](auto x) { return x * 3 + 1; };
std::vector<int8_t> more_of(std::vector<int8_t> v) {
  for (auto& e : v) e = static_cast<int8_t>(e * 3 + 1);
  return v;
}

}  // namespace

TEST_CASE("large: a shard of more than 2^31 elements goes through a loop, and along the whole of it") {
  if (!is_here()) return;
  const auto once = large::pattern(1);
  const large::repeated x(once, n);
  const auto y = large::unwritten(n);
  launch(serial{}, 1, [&](auto& comm) {
    compile<more, one, input<int8_t, shape<n>>> step;
    step(comm, x.data(), y.get());
  });
  CHECK(large::is_periodic(y.get(), n, more_of(once)));
  // The same made at run time.
  std::fill_n(y.get(), n, int8_t{0});
  const auto program = dynamic::compile(more, dynamic::mesh({{"x", 1}}), dynamic::input<int8_t>({n}));
  launch(serial{}, 1, [&](auto& comm) {
    dynamic::session step(program);
    step(comm, x.data(), y.get());
  });
  CHECK(large::is_periodic(y.get(), n, more_of(once)));
}

TEST_CASE("large: a tensor of more than 2^31 elements on two threads, each with half of it") {
  if (!is_here()) return;
  const auto once = large::pattern(2);
  const large::repeated x(once, n);
  const auto y = large::unwritten(n);
  launch(threads{}, 2, [&](auto& comm) {
    compile<near_moved, two, input<int8_t, shape<n>, split<"x">>> step;
    const auto begin = comm.device(0) * (n / 2);
    step(comm, x.data() + begin, y.get() + begin);
  });
  CHECK(large::is_periodic(y.get() + near, n - near, once));
  int wrong = 0;
  for (int64_t i = 0; i < near; ++i) wrong += y[static_cast<std::size_t>(i)] != 0 ? 1 : 0;
  CHECK(wrong == 0);
}

TEST_CASE("large: elements beyond 2^31 are found by index, in slices and by shifts of more than 2^31") {
  if (!is_here()) return;
  const large::repeated x(large::pattern(3), n);
  std::vector<int64_t> at{n - 1, int64_t{1} << 31, (int64_t{1} << 31) - 1, 0, (int64_t{1} << 31) + 4097, 2'000'000'011};
  std::vector<int8_t> taken(at.size()), part((5000 - 7 + 2) / 3);
  launch(serial{}, 1, [&](auto& comm) {
    compile<found, one, input<int8_t, shape<n>>, input<int64_t, shape<6>>> step;
    step(comm, x.data(), at.data(), taken.data(), part.data());
  });
  for (std::size_t k = 0; k < at.size(); ++k) CHECK(taken[k] == large::element(3, at[k]));
  for (std::size_t k = 0; k < part.size(); ++k) REQUIRE(part[k] == large::element(3, n - 5000 + 3 * static_cast<int64_t>(k)));

  const auto y = large::unwritten(n);
  launch(serial{}, 1, [&](auto& comm) {
    compile<far_moved, one, input<int8_t, shape<n>>> step;
    step(comm, x.data(), y.get());
  });
  CHECK(large::is_periodic(y.get(), n - far, large::pattern(3), far));
  CHECK(y[static_cast<std::size_t>(n - far)] == 0);
  CHECK(y[static_cast<std::size_t>(n - 1)] == 0);
}

TEST_CASE("large: a matrix of more than 2^31 elements is summed along either dim, though its extents are small") {
  if (!is_here()) return;
  const large::repeated x(large::pattern(4), rows * columns);
  std::vector<int8_t> of_columns(columns), of_rows(rows);
  launch(serial{}, 1, [&](auto& comm) {
    compile<sums, one, input<int8_t, shape<rows, columns>>> step;
    step(comm, x.data(), of_columns.data(), of_rows.data());
  });
  std::vector<std::uint8_t> down(columns), across(rows);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      const auto e = static_cast<std::uint8_t>(x.data()[i * columns + j]);
      down[static_cast<std::size_t>(j)] = static_cast<std::uint8_t>(down[static_cast<std::size_t>(j)] + e);
      across[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(across[static_cast<std::size_t>(i)] + e);
    }
  int wrong = 0;
  for (std::size_t j = 0; j < down.size(); ++j) wrong += down[j] != static_cast<std::uint8_t>(of_columns[j]) ? 1 : 0;
  for (std::size_t i = 0; i < across.size(); ++i) wrong += across[i] != static_cast<std::uint8_t>(of_rows[i]) ? 1 : 0;
  CHECK(wrong == 0);
}
