// SPDX-License-Identifier: Apache-2.0
// Indices, order and random numbers on two threads, compared with hand-written code: see lookups.hpp.
//
//   lookups [rounds, 15] [embedding, sums, along or order]
#include "lookups.hpp"

#include <barrier>
#include <cstdlib>

namespace {

/// The barrier and the buffers of both threads.
struct meeting {
  std::barrier<> both{2};
  const void* shown[2]{};
  float* results[2]{};
};

struct by_threads {
  static constexpr const char* where = ", threads";
  int me;
  meeting& m;

  void meet() const { m.both.arrive_and_wait(); }
  template <class T>
  const T* others(const T* x, std::int64_t) const {
    m.shown[me] = x;
    meet();
    return static_cast<const T*>(m.shown[1 - me]);
  }
  void sum_halves(const float* part, std::int64_t n, float* half) const {
    const float* const other = others(part, 2 * n) + me * n;
    for (std::int64_t i = 0; i < n; ++i) half[i] = part[me * n + i] + other[i];
  }
  void sum(const float* part, std::int64_t n, float* all) const {
    m.results[me] = all;
    const float* const other = others(part, n);
    for (std::int64_t i = me * n / 2; i < (me + 1) * n / 2; ++i) m.results[0][i] = m.results[1][i] = part[i] + other[i];
  }
};

}  // namespace

int main(int argc, char** argv) {
  meeting m;
  gspmd::launch(gspmd::threads{}, 2, [&](auto& comm) {
    by_threads hand{comm.device(0), m};
    bench::look_up_all(comm, hand, argc > 1 ? std::atoi(argv[1]) : 15, argc > 2 ? argv[2] : "");
  });
}
