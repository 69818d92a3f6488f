// SPDX-License-Identifier: Apache-2.0
// Rows by index, and operators along a split dim, on two devices. Compared with the same algorithm, hand-written. Rows:
// an embedding of [50,000, 512] at 8,192 indices with its rows split, and its gradient; sums of 10^7 numbers in 10^6
// bins; a running sum of 10^8 numbers; the 100 largest of 10^8; a sort of 10^7 floats (hand-written: std::sort); 10^8
// random floats. Runs alternate; medians, and the median and middle half of the ratios of neighbouring runs.
#pragma once

#include <gspmd/gspmd.hpp>
#include <gspmd/index/random.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "race.hpp"

namespace bench {

using namespace gspmd;
using pair_of_devices = mesh<axis<"x", 2>>;
using floats = std::vector<float>;
using indices = std::vector<std::int32_t>;
using std::int64_t;

constexpr int64_t rows = 50'000, width = 512, lookups = 8'192, values = 10'000'000, bins = 1'000'000, line = 100'000'000, k = 100;

constexpr auto look_up = [](auto table, auto ids) { return reshard(embedding(table, ids), split<"x", _>{}); };
constexpr auto add_up = [](auto rows_of, auto ids) { return reshard(segment_sum(rows_of, ids, rows), split<"x", _>{}); };
constexpr auto count_up = [](auto x, auto ids) { return reshard(segment_sum(x, ids, bins), split<_>{}); };
constexpr auto running = [](auto x) { return cumsum(x, 0); };
constexpr auto largest = [](auto x) { return top_k(x, k); };
constexpr auto in_order = [](auto x) { return sort(x); };
constexpr auto drawn = [](auto key) { return reshard(random::uniform<float>(key, {line}), split<"x">{}); };

using look_up_step = compile<look_up, pair_of_devices, input<float, shape<rows, width>, split<"x", _>>,
                             input<std::int32_t, shape<lookups>, split<_>>>;
using add_up_step = compile<add_up, pair_of_devices, input<float, shape<lookups, width>, split<_, _>>,
                            input<std::int32_t, shape<lookups>, split<_>>>;
using count_step =
    compile<count_up, pair_of_devices, input<float, shape<values>, split<"x">>, input<std::int32_t, shape<values>, split<"x">>>;
using running_step = compile<running, pair_of_devices, input<float, shape<line>, split<"x">>>;
using largest_step = compile<largest, pair_of_devices, input<float, shape<line>, split<"x">>>;

using sort_step = compile<in_order, pair_of_devices, input<float, shape<values>, split<"x">>>;
using draw_step = compile<drawn, pair_of_devices, input<std::uint64_t, shape<>, split<>>>;

/// The hand-written code, on each of two devices, has a `Hand` for their common work. On threads, it reads the other
/// device's memory. Over MPI, it sends (lookups.cpp, mpi_lookups.cpp).
///
///   me                             0 or 1
///   meet()                         waits for the other device
///   sum_halves(part, n, half)      half = the sum of both parts; device 0 gets the first n elements and device 1 the
///                                  other n
///   sum(part, n, all)              all = the sum of both parts, on both devices
///   others(x, n)                   the address of the other device's n elements, until the next call

inline std::uint32_t next_number(std::uint32_t& state) { return state = state * 1664525U + 1013904223U; }

template <class Hand, class Ours, class ByHand>
race_times race(int rounds, Hand& hand, Ours ours, ByHand by_hand) {
  race_times t;
  for (int round = -2; round < rounds; ++round) {
    hand.meet();
    const double start = now_ms();
    ours();
    hand.meet();
    const double middle = now_ms();
    by_hand();
    hand.meet();
    const double end = now_ms();
    if (round >= 0) t.add(middle - start, end - middle);
  }
  return t;
}
inline void expect(bool right, const char* what) {
  if (!right) std::printf("WRONG: %s\n", what);
}

/// Returns the position of row i.
inline std::size_t row(int64_t i) { return static_cast<std::size_t>(i * width); }

template <class Comm, class Hand>
void lookup(Comm& comm, Hand& hand, int rounds) {
  const int me = hand.me;
  std::uint32_t state = 1;
  indices ids(lookups);
  for (auto& i : ids) i = static_cast<std::int32_t>(next_number(state) % rows);
  const int64_t own = rows / 2, first = me * own;
  floats table(row(own)), y(lookups / 2 * width), by_hand(y.size()), part(lookups * width);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i % 1000);
  look_up_step step;
  const auto forward = race(
      rounds, hand, [&] { step(comm, table, ids, y); },
      [&] {
        for (int64_t i = 0; i < lookups; ++i) {
          const int64_t at = ids[static_cast<std::size_t>(i)] - first;
          if (at >= 0 && at < own) std::memcpy(&part[row(i)], &table[row(at)], width * sizeof(float));
          else std::fill_n(&part[row(i)], width, -0.0F);
        }
        hand.sum_halves(part.data(), lookups / 2 * width, by_hand.data());
      });
  expect(y == by_hand, "embedding");
  floats dy(lookups * width, 0.5F), g(row(own)), g_by_hand(g.size());
  add_up_step add;
  const auto backward = race(
      rounds, hand, [&] { add(comm, dy, ids, g); },
      [&] {
        std::fill(g_by_hand.begin(), g_by_hand.end(), 0.0F);
        for (int64_t i = 0; i < lookups; ++i) {
          const int64_t at = ids[static_cast<std::size_t>(i)] - first;
          if (at < 0 || at >= own) continue;
          float* const to = &g_by_hand[row(at)];
          const float* const from = &dy[row(i)];
          for (int64_t j = 0; j < width; ++j) to[j] += from[j];
        }
      });
  expect(g == g_by_hand, "gradient");
  if (me != 0) return;
  forward.print(std::string("embedding [50,000, 512] at 8,192 indices") + Hand::where);
  backward.print(std::string("gradient of embedding") + Hand::where);
}

template <class Comm, class Hand>
void count(Comm& comm, Hand& hand, int rounds) {
  auto state = static_cast<std::uint32_t>(hand.me + 1);
  floats x(values / 2, 1.0F), y(bins), part(bins), by_hand(bins);
  indices ids(values / 2);
  for (auto& i : ids) i = static_cast<std::int32_t>((next_number(state) >> 4) % bins);
  count_step step;
  const auto t = race(
      rounds, hand, [&] { step(comm, x, ids, y); },
      [&] {
        std::fill(part.begin(), part.end(), 0.0F);
        for (int64_t i = 0; i < values / 2; ++i) {
          const auto at = ids[static_cast<std::size_t>(i)];
          if (at >= 0 && at < bins) part[static_cast<std::size_t>(at)] += x[static_cast<std::size_t>(i)];
        }
        hand.sum(part.data(), bins, by_hand.data());
      });
  expect(y == by_hand, "sums in bins");
  if (hand.me == 0) t.print(std::string("sums of 10^7 numbers in 10^6 bins") + Hand::where);
}

template <class Comm, class Hand>
void along(Comm& comm, Hand& hand, int rounds) {
  const int me = hand.me;
  auto state = static_cast<std::uint32_t>(me + 7);
  floats x(line / 2), y(line / 2), by_hand(line / 2);
  for (auto& e : x) e = static_cast<float>(static_cast<std::int32_t>(next_number(state) >> 20) - 2048);
  running_step step;
  const auto sums = race(
      rounds, hand, [&] { step(comm, x, y); },
      [&] {
        float parts[16]{};
        for (std::size_t i = 0; i < x.size(); i += 16)
          for (std::size_t j = 0; j < 16; ++j) parts[j] += x[i + j];
        float total = 0;
        for (const float p : parts) total += p;
        const float before = *hand.others(&total, 1);
        float sum = me == 0 ? 0.0F : before;
        for (std::size_t i = 0; i < x.size(); ++i) by_hand[i] = sum += x[i];
      });
  largest_step find;
  floats best(k);
  indices where(k);
  using found = std::pair<float, std::int32_t>;
  std::vector<found> heap, both;
  const auto is_before = [](const found& a, const found& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  const auto tops = race(
      rounds, hand, [&] { find(comm, x, best, where); },
      [&] {
        heap.clear();
        for (std::size_t i = 0; i < x.size(); ++i) {
          const found e{x[i], static_cast<std::int32_t>(me * (line / 2) + static_cast<int64_t>(i))};
          if (heap.size() < static_cast<std::size_t>(k)) {
            heap.push_back(e);
            std::push_heap(heap.begin(), heap.end(), is_before);
          } else if (is_before(e, heap.front())) {
            std::pop_heap(heap.begin(), heap.end(), is_before);
            heap.back() = e;
            std::push_heap(heap.begin(), heap.end(), is_before);
          }
        }
        const found* const theirs = hand.others(heap.data(), k);
        both = heap;
        both.insert(both.end(), theirs, theirs + k);
        std::partial_sort(both.begin(), both.begin() + k, both.end(), is_before);
      });
  bool same = true;
  for (std::size_t i = 0; i < static_cast<std::size_t>(k); ++i)
    same = same && both[i].first == best[i] && both[i].second == where[i];
  expect(same, "top_k");
  if (me != 0) return;
  sums.print(std::string("running sum of 10^8 numbers") + Hand::where);
  tops.print(std::string("the 100 largest of 10^8") + Hand::where);
}

template <class Comm, class Hand>
void order(Comm& comm, Hand& hand, int rounds) {
  const int me = hand.me;
  auto state = static_cast<std::uint32_t>(me + 3);
  floats x(values / 2), y(values / 2), own(values / 2), by_hand(values / 2);
  for (auto& e : x) e = static_cast<float>(next_number(state) >> 8);
  sort_step step;
  const auto sorts = race(
      rounds, hand, [&] { step(comm, x, y); },
      [&] {
        own = x;
        std::sort(own.begin(), own.end());
        const float* const other = hand.others(own.data(), values / 2);
        const std::size_t n = own.size();
        if (me == 0)
          for (std::size_t i = 0, j = 0, to = 0; to < n; ++to) by_hand[to] = own[i] <= other[j] ? own[i++] : other[j++];
        else
          for (std::size_t i = n, j = n, to = n; to-- > 0;) by_hand[to] = own[i - 1] >= other[j - 1] ? own[--i] : other[--j];
      });
  expect(y == by_hand, "sort");
  const std::vector<std::uint64_t> key{42};
  floats z(line / 2), z_by_hand(line / 2);
  draw_step draw;
  const auto draws = race(
      rounds, hand, [&] { draw(comm, key, z); },
      [&] {
        for (std::size_t i = 0; i < z_by_hand.size(); ++i) {
          const auto words = detail::threefry2x32(i + static_cast<std::uint64_t>(me) * (line / 2), key[0]);
          z_by_hand[i] =
              static_cast<float>((static_cast<std::uint32_t>(words >> 32) ^ static_cast<std::uint32_t>(words)) >> 9) * 0x1p-23F;
        }
      });
  expect(z == z_by_hand, "random numbers");
  if (me != 0) return;
  sorts.print(std::string("sort of 10^7 floats") + Hand::where);
  draws.print(std::string("10^8 random floats") + Hand::where);
}

/// `only`: embedding, sums, along, order, or all.
template <class Comm, class Hand>
void look_up_all(Comm& comm, Hand& hand, int rounds, std::string_view only) {
  if (only.empty() || only == "embedding") lookup(comm, hand, rounds);
  if (only.empty() || only == "sums") count(comm, hand, rounds);
  if (only.empty() || only == "along") along(comm, hand, rounds);
  if (only.empty() || only == "order") order(comm, hand, rounds);
}

}  // namespace bench
