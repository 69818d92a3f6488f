// SPDX-License-Identifier: Apache-2.0
// The collectives of the threads backend on two devices, compared with hand-written code of an expert for only this
// collective, and with one memcpy of the buffer on both threads concurrently. All variants of a row run interleaved in
// the same launch. Prints medians in microseconds, and the median and middle half of ratios of times measured next to
// each other.
//
//   collectives [largest size in MiB, 64]
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "gspmd/comm/threads.hpp"
#include "gspmd/detail/transport/meeting_subject.hpp"
#include "race.hpp"

namespace {

using namespace gspmd::detail;
using bench::quantile;

/// Hand-written: two threads that spin briefly, then yield, and can access each other's buffers.
class two_threads {
 public:
  void barrier(int me) {
    const auto now = ++count_[me].value;
    arrived_[me].value.store(now, std::memory_order_release);
    for (int i = 0; arrived_[1 - me].value.load(std::memory_order_acquire) < now; ++i)
      if (i < 20) __builtin_ia32_pause();
      else std::this_thread::yield();
  }

 private:
  struct alignas(64) flag {
    std::atomic<std::int64_t> value{0};
  };
  struct alignas(64) number {
    std::int64_t value = 0;
  };
  flag arrived_[2];
  number count_[2];
};

using buffer = std::unique_ptr<float, void (*)(void*)>;
buffer make_buffer(std::int64_t elems) {
  const auto bytes = (static_cast<std::size_t>(elems) * sizeof(float) + 4095) / 4096 * 4096;
  auto* p = static_cast<float*>(std::aligned_alloc(4096, bytes));
  if (p == nullptr) throw std::bad_alloc();
  for (std::int64_t i = 0; i < elems; ++i) p[i] = static_cast<float>(i % 7);
  return {p, std::free};
}

sharding split(int axis, int dim) {
  sharding s;
  s.add_split(axis, dim);
  return s;
}
extents shape_of(std::int64_t rows, std::int64_t columns) {
  extents shape;
  shape.push_back(rows);
  shape.push_back(columns);
  return shape;
}

using variant = std::function<void(int me)>;

/// Times the variants one after another, round by round, and in reverse in every other round. Order matters: if the
/// previous variant has the same access pattern, the data is in the right caches, which makes a variant up to 20 times
/// as fast. The barrier around each variant makes both threads start together.
std::vector<std::vector<double>> interleaved(int me, const std::function<void()>& meet, const std::vector<variant>& variants,
                                             std::int64_t bytes) {
  const int repeats = bytes <= 4096 ? 2000 : bytes <= (1 << 18) ? 300 : bytes <= (1 << 21) ? 40 : 1;
  const int rounds = bytes <= (1 << 21) ? 16 : bytes <= (1 << 24) ? 30 : 12;
  std::vector<std::vector<double>> times(variants.size());
  for (int round = -1; round < rounds; ++round)
    for (std::size_t k = 0; k < variants.size(); ++k) {
      const auto v = round % 2 == 0 ? k : variants.size() - 1 - k;
      meet();
      const double begin = bench::now_ms();
      for (int i = 0; i < repeats; ++i) variants[v](me);
      meet();
      if (round >= 0) times[v].push_back((bench::now_ms() - begin) / repeats);
    }
  return times;
}

void print(const char* name, std::int64_t bytes, const std::vector<std::vector<double>>& times) {
  const std::string row = std::string(name) + ", " + bench::bytes_text(bytes);
  bench::race_times{times[0], times[1]}.print(row);
  bench::race_times{times[0], times[2]}.print(row, "memcpy");
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t largest = (argc > 1 ? std::atoll(argv[1]) : 64) << 20;
  mesh_shape mesh;
  mesh.sizes.push_back(2);
  two_threads hand;
  std::vector<std::int64_t> sizes{8};
  for (std::int64_t bytes = 1024; bytes <= largest; bytes *= 4) sizes.push_back(bytes);

  gspmd::launch(gspmd::threads{}, 2, [&](gspmd::threads_communicator& comm) {
    static float *in_of[2], *out_of[2];
    const int me = comm.device(0);
    for (const auto bytes : sizes) {
      const std::int64_t n = bytes / 4;  // of the local buffer, as in performance.md: the larger of in and out
      const auto a = make_buffer(n), b = make_buffer(n);
      in_of[me] = a.get();
      out_of[me] = b.get();
      comm.barrier();
      float *const x = in_of[0], *const y = in_of[1];
      const auto copy = [&](int) { std::memcpy(b.get(), a.get(), static_cast<std::size_t>(bytes)); };
      const auto half = static_cast<std::size_t>(bytes) / 2;
      const auto report = [&](const char* name, const variant& ours, const variant& theirs) {
        const auto times = interleaved(
            me, [&] { hand.barrier(me); }, {ours, theirs, copy}, bytes);
        if (me == 0) print(name, bytes, times);
      };
      const float* const in = a.get();
      float* const out = b.get();
      float* const place = a.get();

      {
        sharding partial;
        partial.partial = 1;
        const auto r = numbered(mesh, reduction{shape_of(1, n), partial, {}, 1, gspmd::monoid::add});
        const auto by_hand = [&](int i) {
          hand.barrier(i);
          const auto from = i == 0 ? std::int64_t{0} : n / 2, to = i == 0 ? n / 2 : n;
#pragma GCC ivdep
          for (std::int64_t k = from; k < to; ++k) {
            const float sum = x[k] + y[k];
            x[k] = sum;
            y[k] = sum;
          }
          hand.barrier(i);
        };
        report(
            "all_reduce in place", [&](int) { comm.reduce(mesh, r, &in, &place); }, by_hand);
        for (std::int64_t k = 0; k < n; ++k) a.get()[k] = 1.0F;
        if (n >= 2) {
          float *const p = out_of[0], *const q = out_of[1];
          report(
              "all_reduce", [&](int) { comm.reduce(mesh, r, &in, &out); },
              [&](int i) {
                hand.barrier(i);
                const auto from = i == 0 ? std::int64_t{0} : n / 2, to = i == 0 ? n / 2 : n;
#pragma GCC ivdep
                for (std::int64_t k = from; k < to; ++k) {
                  const float sum = x[k] + y[k];
                  p[k] = sum;
                  q[k] = sum;
                }
                hand.barrier(i);
              });
        }
      }
      if (bytes < 1024) continue;
      {
        sharding partial;
        partial.partial = 1;
        const auto r = numbered(mesh, reduction{shape_of(n, 1), partial, split(0, 0), 1, gspmd::monoid::add});
        report(
            "reduce_scatter", [&](int) { comm.reduce(mesh, r, &in, &out); },
            [&](int i) {
              hand.barrier(i);
              const auto from = i == 0 ? std::int64_t{0} : n / 2;
              float* const result = out;
#pragma GCC ivdep
              for (std::int64_t k = 0; k < n / 2; ++k) result[k] = x[from + k] + y[from + k];
              hand.barrier(i);
            });
      }
      {
        const auto shape = shape_of(n, 1);
        const auto m = numbered(mesh, movement{shape, split(0, 0), {}, 1});
        report(
            "all_gather", [&](int) { comm.move(mesh, m, &in, &out); },
            [&](int i) {
              hand.barrier(i);
              std::memcpy(out + (i == 0 ? 0 : n / 2), in, half);
              std::memcpy(out + (i == 0 ? n / 2 : 0), in_of[1 - i], half);
              hand.barrier(i);
            });
      }
      {
        // rows to columns of a square matrix whose shard has n elements
        std::int64_t side = 1;
        while (2 * side * side <= n) side *= 2;
        const std::int64_t rows = side, columns = 2 * n / side;
        const auto shape = shape_of(rows, columns);
        const auto m = numbered(mesh, movement{shape, split(0, 0), split(0, 1), 1});
        report(
            "all_to_all", [&](int) { comm.move(mesh, m, &in, &out); },
            [&](int i) {
              hand.barrier(i);
              const auto width = columns / 2;
              for (int p : {i, 1 - i})
                for (std::int64_t r = 0; r < rows / 2; ++r)
                  std::memcpy(out + (p * rows / 2 + r) * width, in_of[p] + r * columns + i * width,
                              static_cast<std::size_t>(width) * sizeof(float));
              hand.barrier(i);
            });
        // the transposed matrix, split by rows again; in the hand-written code, each thread transposes a block of each
        // shard
        movement turned{shape_of(columns, rows), split(0, 1), split(0, 0), 1};
        for (const int d : {1, 0}) turned.from_order.push_back(static_cast<std::int8_t>(d));
        turned = numbered(mesh, turned);
        report(
            "transpose", [&](int) { comm.move(mesh, turned, &in, &out); },
            [&](int i) {
              hand.barrier(i);
              const bool streams = bytes >= stream_from_bytes;
              for (int p : {i, 1 - i})
                transpose_plane(rows / 2, columns / 2, in_of[p] + i * columns / 2, columns, out + p * rows / 2, rows, streams);
              if (streams) fence_streams();
              hand.barrier(i);
            });
      }
    }
  });

  // A permutation needs four devices: two axes of one dim are exchanged, so the middle two devices exchange their
  // shards.
  mesh_shape square;
  square.sizes.push_back(2);
  square.sizes.push_back(2);
  gspmd::launch(gspmd::threads{}, 4, [&](gspmd::threads_communicator& comm) {
    static float* in_of[4];
    const int me = comm.device(0);
    for (std::int64_t bytes = 1 << 16; bytes <= largest; bytes *= 4) {
      const std::int64_t n = bytes / 4;
      const auto a = make_buffer(n), b = make_buffer(n);
      in_of[me] = a.get();
      const float* const in = a.get();
      float* const out = b.get();
      auto from = split(0, 0), to = split(1, 0);
      from.add_split(1, 0);
      to.add_split(0, 0);
      const auto m = numbered(square, movement{shape_of(4 * n, 1), from, to, 3});
      const int peer = me == 1 ? 2 : me == 2 ? 1 : me;
      const std::vector<variant> variants{[&](int) { comm.move(square, m, &in, &out); },
                                          [&](int) {
                                            comm.barrier();
                                            std::memcpy(out, in_of[peer], static_cast<std::size_t>(bytes));
                                            comm.barrier();
                                          },
                                          [&](int) { std::memcpy(out, in, static_cast<std::size_t>(bytes)); }};
      const auto times = interleaved(
          me, [&] { comm.barrier(); }, variants, bytes);
      if (me == 0) print("permute, 4 threads", bytes, times);
      comm.barrier();
    }
  });
}
