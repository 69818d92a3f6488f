// SPDX-License-Identifier: Apache-2.0
// Products with sparse matrices on two threads, compared with the same loops and the same exchange, hand-written.
// Matrices: a 5-point Laplacian on 1500 x 1500 points, a matrix with random columns (9 entries in a row, all near the
// diagonal), and blocks of 3 x 3. A x and A^T y. In the hand-written code, x has space for the elements of the other
// device after its own elements, and rows are processed in one plain loop. Runs alternate; medians, and the median and
// middle half of the ratios of neighbouring runs.
//
//   sparse [rounds, 15]
#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <tuple>
#include <utility>
#include <vector>

#include "race.hpp"
#include "sparse.hpp"

namespace {

using namespace gspmd;
using namespace bench;

/// The rows of a device, hand-written: the columns of its own part of x, then the received columns.
struct by_hand {
  int64_t rows = 0, block = 1;
  std::vector<std::int32_t> start{0}, column, sends;
  doubles values, x, y, sent, t;

  by_hand(const compressed& a, int me) : rows(a.rows / 2), block(a.block) {
    const auto first = me * rows;
    std::vector<std::int32_t> place(static_cast<std::size_t>(a.rows), -1);
    const auto mark = [&](int64_t from, auto f) {
      std::vector<bool> reads(static_cast<std::size_t>(a.rows));
      for (auto k = a.row_start[static_cast<std::size_t>(from)]; k < a.row_start[static_cast<std::size_t>(from + rows)]; ++k)
        reads[static_cast<std::size_t>(a.column[static_cast<std::size_t>(k)])] = true;
      for (int64_t c = 0; c < a.rows; ++c)
        if ((c < from || c >= from + rows) && reads[static_cast<std::size_t>(c)]) f(c);
    };
    std::int32_t behind = static_cast<std::int32_t>(rows);
    mark(first, [&](int64_t c) { place[static_cast<std::size_t>(c)] = behind++; });
    mark(rows - first, [&](int64_t c) { sends.push_back(static_cast<std::int32_t>(c - first)); });
    for (int64_t r = first; r < first + rows; ++r) {
      for (auto k = a.row_start[static_cast<std::size_t>(r)]; k < a.row_start[static_cast<std::size_t>(r + 1)]; ++k) {
        const auto c = a.column[static_cast<std::size_t>(k)];
        column.push_back(c >= first && c < first + rows ? static_cast<std::int32_t>(c - first)
                                                        : place[static_cast<std::size_t>(c)]);
        for (int64_t i = 0; i < block * block; ++i) values.push_back(a.values[static_cast<std::size_t>(k * block * block + i)]);
      }
      start.push_back(static_cast<std::int32_t>(column.size()));
    }
    x.resize(static_cast<std::size_t>(behind * block));
    t.resize(x.size());
    y.resize(static_cast<std::size_t>(rows * block));
    sent.resize(sends.size() * static_cast<std::size_t>(block));
  }
  /// Copies the elements that the other device needs to `sent`.
  void pack() {
    const auto b = static_cast<std::size_t>(block);
    for (std::size_t i = 0; i < sends.size(); ++i)
      for (std::size_t j = 0; j < b; ++j) sent[i * b + j] = x[static_cast<std::size_t>(sends[i]) * b + j];
  }
  template <int Block>
  void multiply() {
    for (int64_t r = 0; r < rows; ++r) {
      double sum[static_cast<std::size_t>(Block)]{};
      for (auto k = start[static_cast<std::size_t>(r)]; k < start[static_cast<std::size_t>(r + 1)]; ++k) {
        const double* const from = x.data() + static_cast<int64_t>(column[static_cast<std::size_t>(k)]) * Block;
        const double* const v = values.data() + static_cast<int64_t>(k) * Block * Block;
        for (int i = 0; i < Block; ++i)
          for (int j = 0; j < Block; ++j) sum[i] += v[i * Block + j] * from[j];
      }
      for (int i = 0; i < Block; ++i) y[static_cast<std::size_t>(r * Block + i)] = sum[i];
    }
  }
  void multiply_transposed() {
    std::fill(t.begin(), t.end(), 0.0);
    for (int64_t r = 0; r < rows; ++r)
      for (auto k = start[static_cast<std::size_t>(r)]; k < start[static_cast<std::size_t>(r + 1)]; ++k)
        t[static_cast<std::size_t>(column[static_cast<std::size_t>(k)])] +=
            values[static_cast<std::size_t>(k)] * y[static_cast<std::size_t>(r)];
  }
};

constexpr auto product = [](auto a, auto x) { return multiply(a, x); };
constexpr auto transposed = [](auto a, auto y) { return multiply_transposed(a, y); };
template <const sparse_layout& Layout>
using vector_of = input<double, shape<Layout.rows>, split<"x">>;
template <const sparse_layout& Layout>
using blocks_of = input<double, shape<Layout.rows, Layout.block>, split<"x", _>>;
template <auto Program, const sparse_layout& Layout, class Vector = vector_of<Layout>>
using step_of = compile<Program, mesh<axis<"x", 2>>, sparse_input<double, Layout, "x">, Vector>;

template <class Step, const sparse_layout& Layout, int Block, bool IsTransposed>
void race(const char* what, const compressed& a, int rounds) {
  const sparse_matrix<double> m(Layout, a.row_start, a.column, a.values);
  std::barrier<> both{2};
  by_hand hands[2] = {{a, 0}, {a, 1}};
  launch(threads{}, 2, [&](auto& comm) {
    const int me = comm.device(0);
    auto &hand = hands[me], &other = hands[1 - me];
    const auto own = static_cast<std::size_t>(hand.rows * Block);
    doubles x(own), result(own);
    for (std::size_t i = 0; i < own; ++i) x[i] = static_cast<double>((i * 7 + static_cast<std::size_t>(me)) % 16);
    std::copy(x.begin(), x.end(), hand.x.begin());
    hand.y = x;
    std::vector<const void*> in;
    std::apply([&](const auto&... part) { (in.push_back(part.data() + part.size() / 2 * me), ...); }, m.parts());
    in.push_back(x.data());
    void* const out[] = {result.data()};
    Step step;
    race_times times;
    for (int round = -2; round < rounds; ++round) {
      both.arrive_and_wait();
      const double begin = now_ms();
      step.run(comm, in.data(), out);
      both.arrive_and_wait();
      const double middle = now_ms();
      if constexpr (IsTransposed) {
        hand.multiply_transposed();
        both.arrive_and_wait();
        for (std::size_t i = 0; i < hand.sends.size(); ++i) hand.t[static_cast<std::size_t>(hand.sends[i])] += other.t[own + i];
      } else {
        hand.pack();
        both.arrive_and_wait();
        std::copy(other.sent.begin(), other.sent.end(), hand.x.begin() + static_cast<std::ptrdiff_t>(own));
        hand.template multiply<Block>();
      }
      both.arrive_and_wait();
      const double end = now_ms();
      if (round >= 0) times.add(middle - begin, end - middle);
    }
    const double* const expected = IsTransposed ? hand.t.data() : hand.y.data();
    for (std::size_t i = 0; i < own; ++i)
      if (expected[i] != result[i]) {
        std::printf("WRONG: %s\n", what);
        break;
      }
    if (me == 0) times.print(what);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  const auto grid = laplacian(1500, 1500, 1), near = scattered(1'000'000), blocks = laplacian(500, 500, 3);
  race<step_of<product, five_points>, five_points, 1, false>("A x, 5 points, 1500 x 1500", grid, rounds);
  race<step_of<transposed, five_points>, five_points, 1, true>("A^T y, 5 points, 1500 x 1500", grid, rounds);
  race<step_of<product, at_random>, at_random, 1, false>("A x, 9 columns at random, 10^6 rows", near, rounds);
  race<step_of<product, in_blocks, blocks_of<in_blocks>>, in_blocks, 3, false>("A x, 5 points, 500 x 500, blocks of 3", blocks,
                                                                               rounds);
}
