// SPDX-License-Identifier: Apache-2.0
// Single elements by index, counts of numbers in a list, and the largest elements of lines, on one device. Compared
// with hand-written loops that treat an index out of range in the same way: it is moved to the nearest valid index, or
// not counted. Medians of processor time, and the median and middle half of the ratios of neighbouring runs.
//
//   single_elements [rounds, 15] [words in the names of rows]
#include <gspmd/gspmd.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

#include "race.hpp"

namespace bench {
namespace {

using namespace gspmd;
using std::int32_t, std::int64_t;
using single = mesh<axis<"one", 1>>;
using floats = std::vector<float>;
using numbers = std::vector<int32_t>;

struct options {
  int rounds;
  const char* words;
};

template <class T>
void check(const std::string& row, const std::vector<T>& ours, const std::vector<T>& by_hand) {
  if (ours == by_hand) return;
  std::printf("WRONG: %s\n", row.c_str());
  std::exit(1);
}
template <class Results, class Ours, class ByHand>
void compare(const options& o, const std::string& row, double target, const Results& ours, const Results& by_hand, Ours run,
             ByHand loop) {
  if (row.find(o.words) == std::string::npos) return;
  const auto after_each = [&](auto& work, const Results& results) {
    return [&] {
      work();
      asm volatile("" : : "r"(&results) : "memory");
    };
  };
  race_in_turns(o.rounds, after_each(run, ours), after_each(loop, by_hand), [] {}).print(row, target);
  check(row, ours, by_hand);
}
/// Returns `count` unordered numbers, at least 0 and less than `below`. The first and the last number are out of range.
numbers drawn(int64_t count, int64_t below) {
  numbers ids(static_cast<std::size_t>(count));
  std::uint32_t state = 1;
  for (auto& i : ids)
    i = static_cast<int32_t>(((state = state * 1664525U + 1013904223U) >> 4) % static_cast<std::uint32_t>(below));
  ids.front() = -3;
  ids.back() = static_cast<int32_t>(below + 5);
  return ids;
}
floats filled(int64_t count) {
  floats x(static_cast<std::size_t>(count));
  std::uint32_t state = 7;
  for (auto& e : x) e = static_cast<float>((state = state * 1664525U + 1013904223U) >> 8);
  return x;
}
int64_t inside(int64_t i, int64_t below) { return std::max(std::min(i, below - 1), int64_t{0}); }

constexpr auto along_0 = [](auto x, auto ids) { return take_along_axis(x, ids, 0); };
constexpr auto along_1 = [](auto x, auto ids) { return take_along_axis(x, ids, 1); };
constexpr auto taken = [](auto x, auto ids) { return take(x, ids, 0); };
constexpr auto of_columns = [](auto x, auto ids) { return take(x, ids, 1); };
template <int64_t Bins>
constexpr auto counted = [](auto ids) { return histogram(ids, Bins); };
template <int64_t K>
constexpr auto largest = [](auto x) { return top_k(x, K); };

template <int64_t Rows, int64_t Columns>
void along(const options& o) {
  const std::string extents = " [" + std::to_string(Rows) + ", " + std::to_string(Columns) + "]";
  simulated_communicator comm{1};
  const floats x = filled(Rows * Columns);
  floats y(x.size()), hand(x.size());
  using matrix = input<float, shape<Rows, Columns>>;
  using ids_of = input<int32_t, shape<Rows, Columns>>;
  const auto by_hand = [&](const numbers& ids, auto place, int64_t below) {
    return [&, place, below] {
      const float* const from = x.data();
      const int32_t* const id = ids.data();
      float* const to = hand.data();
      for (int64_t r = 0; r < Rows; ++r)
        for (int64_t c = 0; c < Columns; ++c) to[r * Columns + c] = from[place(r, c, inside(id[r * Columns + c], below))];
    };
  };
  const numbers of_rows = drawn(Rows * Columns, Rows), of_places = drawn(Rows * Columns, Columns);
  compile<along_0, single, matrix, ids_of> first;
  compare(
      o, "take_along_axis dim 0" + extents, 1.1, y, hand, [&] { first(comm, x, of_rows, y); },
      by_hand(
          of_rows, [](int64_t, int64_t c, int64_t at) { return at * Columns + c; }, Rows));
  compile<along_1, single, matrix, ids_of> last;
  compare(
      o, "take_along_axis dim 1" + extents, 1.1, y, hand, [&] { last(comm, x, of_places, y); },
      by_hand(
          of_places, [](int64_t r, int64_t, int64_t at) { return r * Columns + at; }, Columns));
}
template <int64_t Table, int64_t Count>
void take_single(const options& o) {
  simulated_communicator comm{1};
  const floats x = filled(Table);
  const numbers ids = drawn(Count, Table);
  floats y(ids.size()), hand(ids.size());
  compile<taken, single, input<float, shape<Table>>, input<int32_t, shape<Count>>> step;
  compare(
      o, "take " + std::to_string(Count) + " of " + std::to_string(Table), 1.1, y, hand, [&] { step(comm, x, ids, y); },
      [&] {
        const float* const from = x.data();
        const int32_t* const id = ids.data();
        float* const to = hand.data();
        for (int64_t i = 0; i < Count; ++i) to[i] = from[inside(id[i], Table)];
      });
}
template <int64_t Rows, int64_t Columns, int64_t Count>
void take_columns(const options& o) {
  simulated_communicator comm{1};
  const floats x = filled(Rows * Columns);
  const numbers ids = drawn(Count, Columns);
  floats y(static_cast<std::size_t>(Rows * Count)), hand(y.size());
  compile<of_columns, single, input<float, shape<Rows, Columns>>, input<int32_t, shape<Count>>> step;
  compare(
      o, "take " + std::to_string(Count) + " columns of [" + std::to_string(Rows) + ", " + std::to_string(Columns) + "]", 1.1, y,
      hand, [&] { step(comm, x, ids, y); },
      [&] {
        const float* const from = x.data();
        const int32_t* const id = ids.data();
        float* const to = hand.data();
        for (int64_t r = 0; r < Rows; ++r)
          for (int64_t i = 0; i < Count; ++i) to[r * Count + i] = from[r * Columns + inside(id[i], Columns)];
      });
}
template <int64_t Bins, int64_t Count>
void count(const options& o) {
  simulated_communicator comm{1};
  const numbers ids = drawn(Count, Bins);
  numbers y(Bins), hand(Bins);
  compile<counted<Bins>, single, input<int32_t, shape<Count>>> step;
  compare(
      o, "histogram of " + std::to_string(Count) + " in " + std::to_string(Bins), 1.1, y, hand, [&] { step(comm, ids, y); },
      [&] {
        const int32_t* const id = ids.data();
        int32_t* const to = hand.data();
        std::fill(hand.begin(), hand.end(), 0);
        for (int64_t i = 0; i < Count; ++i)
          if (static_cast<std::uint32_t>(id[i]) < static_cast<std::uint32_t>(Bins)) ++to[id[i]];
      });
}
template <int64_t Lines, int64_t Columns, int64_t K>
void top(const options& o) {
  simulated_communicator comm{1};
  const floats x = filled(Lines * Columns);
  using found = std::pair<float, int32_t>;
  std::pair<floats, numbers> y{floats(Lines * K), numbers(Lines * K)}, hand = y;
  std::vector<found> heap;
  const auto is_before = [](const found& a, const found& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  compile<largest<K>, single, input<float, shape<Lines, Columns>>> step;
  const std::string row =
      "the " + std::to_string(K) + " largest of each row of [" + std::to_string(Lines) + ", " + std::to_string(Columns) + "]";
  if (row.find(o.words) == std::string::npos) return;
  race_in_turns(
      o.rounds, [&] { step(comm, x, y.first, y.second); },
      [&] {
        for (int64_t l = 0; l < Lines; ++l) {
          const float* const from = x.data() + l * Columns;
          heap.clear();
          for (int32_t i = 0; i < K; ++i) heap.emplace_back(from[i], i);
          std::make_heap(heap.begin(), heap.end(), is_before);
          for (int32_t i = K; i < Columns; ++i) {
            if (!(from[i] > heap.front().first)) continue;
            std::pop_heap(heap.begin(), heap.end(), is_before);
            heap.back() = {from[i], i};
            std::push_heap(heap.begin(), heap.end(), is_before);
          }
          std::sort_heap(heap.begin(), heap.end(), is_before);
          for (int64_t i = 0; i < K; ++i) {
            const auto& e = heap[static_cast<std::size_t>(i)];
            hand.first[static_cast<std::size_t>(l * K + i)] = e.first;
            hand.second[static_cast<std::size_t>(l * K + i)] = e.second;
          }
        }
      },
      [] {})
      .print(row, 1.1);
  check(row, y.first, hand.first);
  check(row, y.second, hand.second);
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const bench::options o{argc > 1 ? std::atoi(argv[1]) : 15, argc > 2 ? argv[2] : ""};
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  bench::along<2048, 512>(o);
  bench::along<65536, 16>(o);
  bench::take_single<4096, 4'000'000>(o);
  bench::take_single<1'000'000, 4'000'000>(o);
  bench::take_columns<4096, 512, 256>(o);
  bench::count<256, 4'000'000>(o);
  bench::count<1'000'000, 4'000'000>(o);
  bench::top<1, 4'000'000, 100>(o);
  bench::top<4096, 1024, 8>(o);
  bench::all_targets.print();
}
