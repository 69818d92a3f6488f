// SPDX-License-Identifier: Apache-2.0
// Rows by their numbers and what runs along a split dim, on two threads, against the same algorithm by hand: an embedding of [50,000, 512] at
// 8,192 indices with its rows split, and the gradient of it; sums of 10^7 numbers in 10^6 bins; a running sum of 10^8 numbers; the 100 largest
// of 10^8; 10^7 floats in order, by hand with std::sort; 10^8 random floats. Runs take turns; medians, and the median and middle half of the ratios of neighbouring runs.
//
//   lookups [rounds, 15] [embedding, sums, along or order]
#include <gspmd/gspmd.hpp>
#include <gspmd/random.hpp>

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "race.hpp"

namespace bench {
namespace {

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

using look_up_step =
    compile<look_up, pair_of_devices, in<float, dims<rows, width>, split<"x", _>>, in<std::int32_t, dims<lookups>, split<_>>>;
using add_up_step =
    compile<add_up, pair_of_devices, in<float, dims<lookups, width>, split<_, _>>, in<std::int32_t, dims<lookups>, split<_>>>;
using count_step =
    compile<count_up, pair_of_devices, in<float, dims<values>, split<"x">>, in<std::int32_t, dims<values>, split<"x">>>;
using running_step = compile<running, pair_of_devices, in<float, dims<line>, split<"x">>>;
using largest_step = compile<largest, pair_of_devices, in<float, dims<line>, split<"x">>>;

using sort_step = compile<in_order, pair_of_devices, in<float, dims<values>, split<"x">>>;
using draw_step = compile<drawn, pair_of_devices, in<std::uint64_t, dims<>, split<>>>;

/// What both threads see of each other.
struct meeting {
  std::barrier<> both{2};
  const void* at[2]{};
  float total[2]{};
};

std::uint32_t next_number(std::uint32_t& state) { return state = state * 1664525U + 1013904223U; }

struct times {
  std::vector<double> ours, hand, ratio;
};
template <class Ours, class Hand>
void race(int rounds, int me, meeting& m, times& t, Ours ours, Hand hand) {
  for (int round = -2; round < rounds; ++round) {
    m.both.arrive_and_wait();
    const double start = now_ms();
    ours();
    m.both.arrive_and_wait();
    const double middle = now_ms();
    hand();
    m.both.arrive_and_wait();
    const double end = now_ms();
    if (me != 0 || round < 0) continue;
    t.ours.push_back(middle - start);
    t.hand.push_back(end - middle);
    t.ratio.push_back(t.ours.back() / t.hand.back());
  }
}
void print(const char* what, const times& t) {
  std::printf("%-44s gspmd %7.2f ms   by hand %7.2f ms   ratio %.3f [%.3f, %.3f]\n", what, quantile(t.ours, 0.5),
              quantile(t.hand, 0.5), quantile(t.ratio, 0.5), quantile(t.ratio, 0.25), quantile(t.ratio, 0.75));
}
void expect(bool right, const char* what) {
  if (!right) std::printf("WRONG: %s\n", what);
}

void lookup(int rounds) {
  meeting m;
  times forward, backward;
  launch(threads{}, 2, [&](auto& comm) {
    const int me = comm.device(0);
    std::uint32_t state = 1;
    indices ids(lookups);
    for (auto& i : ids) i = static_cast<std::int32_t>(next_number(state) % rows);
    const int64_t own = rows / 2, first = me * own;
    floats table(own * width), y(lookups / 2 * width), by_hand(y.size()), part(lookups * width);
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i % 1000);
    look_up_step step;
    race(
        rounds, me, m, forward, [&] { step(comm, table, ids, y); },
        [&] {
          for (int64_t i = 0; i < lookups; ++i) {
            const int64_t at = ids[static_cast<std::size_t>(i)] - first;
            if (at >= 0 && at < own) std::memcpy(&part[i * width], &table[at * width], width * sizeof(float));
            else std::fill_n(&part[i * width], width, -0.0F);
          }
          m.at[me] = part.data();
          m.both.arrive_and_wait();
          const auto* const other = static_cast<const float*>(m.at[1 - me]) + me * lookups / 2 * width;
          const auto* const mine = part.data() + me * lookups / 2 * width;
          for (int64_t i = 0; i < lookups / 2 * width; ++i) by_hand[i] = mine[i] + other[i];
        });
    expect(y == by_hand, "embedding");
    floats dy(lookups * width, 0.5F), g(own * width), g_by_hand(g.size());
    add_up_step add;
    race(
        rounds, me, m, backward, [&] { add(comm, dy, ids, g); },
        [&] {
          std::fill(g_by_hand.begin(), g_by_hand.end(), 0.0F);
          for (int64_t i = 0; i < lookups; ++i) {
            const int64_t at = ids[static_cast<std::size_t>(i)] - first;
            if (at < 0 || at >= own) continue;
            float* const to = &g_by_hand[at * width];
            const float* const from = &dy[i * width];
            for (int64_t j = 0; j < width; ++j) to[j] += from[j];
          }
        });
    expect(g == g_by_hand, "gradient");
  });
  print("embedding [50,000, 512] at 8,192 indices", forward);
  print("its gradient", backward);
}

void count(int rounds) {
  meeting m;
  times t;
  launch(threads{}, 2, [&](auto& comm) {
    const int me = comm.device(0);
    auto state = static_cast<std::uint32_t>(me + 1);
    floats x(values / 2, 1.0F), y(bins), part(bins), by_hand(bins);
    indices ids(values / 2);
    for (auto& i : ids) i = static_cast<std::int32_t>((next_number(state) >> 4) % bins);
    static float* results[2];
    results[me] = by_hand.data();
    count_step step;
    race(
        rounds, me, m, t, [&] { step(comm, x, ids, y); },
        [&] {
          std::fill(part.begin(), part.end(), 0.0F);
          for (int64_t i = 0; i < values / 2; ++i) {
            const auto at = ids[static_cast<std::size_t>(i)];
            if (at >= 0 && at < bins) part[static_cast<std::size_t>(at)] += x[static_cast<std::size_t>(i)];
          }
          m.at[me] = part.data();
          m.both.arrive_and_wait();
          const auto* const other = static_cast<const float*>(m.at[1 - me]);
          for (int64_t i = me * bins / 2; i < (me + 1) * bins / 2; ++i)
            results[0][i] = results[1][i] = part[static_cast<std::size_t>(i)] + other[i];
        });
    expect(y == by_hand, "sums in bins");
  });
  print("sums of 10^7 numbers in 10^6 bins", t);
}

void along(int rounds) {
  meeting m;
  times sums, tops;
  launch(threads{}, 2, [&](auto& comm) {
    const int me = comm.device(0);
    auto state = static_cast<std::uint32_t>(me + 7);
    floats x(line / 2), y(line / 2), by_hand(line / 2);
    for (auto& e : x) e = static_cast<float>(static_cast<std::int32_t>(next_number(state) >> 20) - 2048);
    running_step step;
    race(
        rounds, me, m, sums, [&] { step(comm, x, y); },
        [&] {
          float parts[16]{};
          for (std::size_t i = 0; i < x.size(); i += 16)
            for (std::size_t j = 0; j < 16; ++j) parts[j] += x[i + j];
          float total = 0;
          for (const float p : parts) total += p;
          m.total[me] = total;
          m.both.arrive_and_wait();
          float sum = me == 0 ? 0.0F : m.total[0];
          for (std::size_t i = 0; i < x.size(); ++i) by_hand[i] = sum += x[i];
        });
    largest_step find;
    floats best(k);
    indices where(k);
    std::vector<std::pair<float, std::int32_t>> heap;
    static std::vector<std::pair<float, std::int32_t>> found[2];
    const auto is_before = [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    };
    race(
        rounds, me, m, tops, [&] { find(comm, x, best, where); },
        [&] {
          heap.clear();
          for (std::size_t i = 0; i < x.size(); ++i) {
            const std::pair<float, std::int32_t> e{x[i], static_cast<std::int32_t>(me * (line / 2) + static_cast<int64_t>(i))};
            if (heap.size() < static_cast<std::size_t>(k)) {
              heap.push_back(e);
              std::push_heap(heap.begin(), heap.end(), is_before);
            } else if (is_before(e, heap.front())) {
              std::pop_heap(heap.begin(), heap.end(), is_before);
              heap.back() = e;
              std::push_heap(heap.begin(), heap.end(), is_before);
            }
          }
          found[me] = heap;
          m.both.arrive_and_wait();
          heap.insert(heap.end(), found[1 - me].begin(), found[1 - me].end());
          std::partial_sort(heap.begin(), heap.begin() + k, heap.end(), is_before);
        });
    for (std::size_t i = 0; i < static_cast<std::size_t>(k); ++i)
      if (heap[i].first != best[i] || heap[i].second != where[i]) return expect(false, "top_k");
  });
  print("running sum of 10^8 numbers", sums);
  print("the 100 largest of 10^8", tops);
}

void order(int rounds) {
  meeting m;
  times sorts, draws;
  launch(threads{}, 2, [&](auto& comm) {
    const int me = comm.device(0);
    auto state = static_cast<std::uint32_t>(me + 3);
    floats x(values / 2), y(values / 2), own(values / 2), by_hand(values / 2);
    for (auto& e : x) e = static_cast<float>(next_number(state) >> 8);
    sort_step step;
    race(
        rounds, me, m, sorts, [&] { step(comm, x, y); },
        [&] {
          own = x;
          std::sort(own.begin(), own.end());
          m.at[me] = own.data();
          m.both.arrive_and_wait();
          const auto* const other = static_cast<const float*>(m.at[1 - me]);
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
    race(
        rounds, me, m, draws, [&] { draw(comm, key, z); },
        [&] {
          for (std::size_t i = 0; i < z_by_hand.size(); ++i) {
            const auto words = detail::threefry2x32(i + static_cast<std::uint64_t>(me) * (line / 2), key[0]);
            z_by_hand[i] =
                static_cast<float>((static_cast<std::uint32_t>(words >> 32) ^ static_cast<std::uint32_t>(words)) >> 9) * 0x1p-23F;
          }
        });
    expect(z == z_by_hand, "random numbers");
  });
  print("10^7 floats in order", sorts);
  print("10^8 random floats", draws);
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  const std::string_view only = argc > 2 ? argv[2] : "";
  if (only.empty() || only == "embedding") bench::lookup(rounds);
  if (only.empty() || only == "sums") bench::count(rounds);
  if (only.empty() || only == "along") bench::along(rounds);
  if (only.empty() || only == "order") bench::order(rounds);
}
