// SPDX-License-Identifier: Apache-2.0
// Loops over complex elements, many small matrix products, and gradients of max_pool, on one device. Compared with
// hand-written code that writes to the same memory: loops over real and imaginary parts; a loop compiled for the
// extents of the product, or a BLAS call for each product; all channels of a window at a time. Processor time of the
// thread.
//
//   elements [rounds, 15] [words in the names of rows]
#include <gspmd/gspmd.hpp>
#include <gspmd/windows.hpp>

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "race.hpp"

#if defined(GSPMD_HAS_CBLAS)
#include <cblas.h>
#endif

namespace bench {
namespace {

using namespace gspmd;
using std::int64_t;

struct options {
  int rounds;
  std::string words;
};

/// Compares a program of two inputs of elements T with `by_hand(x, y, result)`.
template <auto Program, class X, class Y, class T, class ByHand>
void compare(const std::string& name, const options& o, int64_t x_elems, int64_t y_elems, int64_t made, double target,
             ByHand by_hand, const char* other = "hand-written") {
  if (name.find(o.words) == std::string::npos) return;
  launch(serial{}, 1, [&](auto& comm) {
    compile<Program, mesh<axis<"x", 1>>, X, Y> run;
    std::vector<T> x(static_cast<std::size_t>(x_elems)), y(static_cast<std::size_t>(y_elems)), z(static_cast<std::size_t>(made));
    std::uint32_t bits = 1;
    const auto next = [&bits] {
      bits = bits * 1664525U + 1013904223U;
      return static_cast<float>(bits >> 20) * 0x1p-10F - 2;
    };
    for (auto* const all : {&x, &y})
      for (auto& e : *all)
        if constexpr (std::is_floating_point_v<T>) e = static_cast<T>(next());
        else e = T(next(), next());
    const int calls = static_cast<int>(std::max<int64_t>(1, (1 << 21) / made));
    const auto ours = [&] {
      for (int c = 0; c < calls; ++c) run(comm, x, y, z);
    };
    const auto hand = [&] {
      for (int c = 0; c < calls; ++c) {
        by_hand(x.data(), y.data(), z.data());
        asm volatile("" : : "r"(z.data()) : "memory");
      }
    };
    ours();
    const auto got = z;
    hand();
    for (std::size_t i = 0; i < z.size(); ++i)
      if (!(std::abs(got[i] - z[i]) <= 1e-4F * (1 + std::abs(z[i])))) {
        std::printf("WRONG: %s: element %zu\n", name.c_str(), i);
        std::exit(1);
      }
    auto t = race_in_turns(o.rounds, ours, hand, [] {});
    for (auto* const all : {&t.ours, &t.by_hand})
      for (double& time : *all) time /= calls;
    t.print(name, target, other);
  });
}

// ---- complex elements ----

constexpr auto product = [](auto x, auto y) { return x * y; };
constexpr auto conjugate_product = [](auto x, auto y) { return conj(x) * y + x; };
constexpr auto polynomial = [](auto x, auto y) { return (x * y - x) * (x + y); };

/// Computes z[i] = f(x[i], y[i]) with parts: f(a, b, c, d, re, im).
template <class P, class F>
GSPMD_LOOP_FUNCTION void by_parts(int64_t n, const std::complex<P>* from_x, const std::complex<P>* from_y, std::complex<P>* to,
                                  F f) {
  const P *const x = reinterpret_cast<const P*>(from_x), *const y = reinterpret_cast<const P*>(from_y);
  P* const z = reinterpret_cast<P*>(to);
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (int64_t i = 0; i < n; ++i) f(x[2 * i], x[2 * i + 1], y[2 * i], y[2 * i + 1], z[2 * i], z[2 * i + 1]);
}
template <class P>
void compare_complex(const options& o) {
  constexpr int64_t n = 1 << 15;
  using c = std::complex<P>;
  using line = input<c, shape<n>, split<_>>;
  const std::string type = sizeof(P) == 4 ? "c64 [32768]" : "c128 [32768]";
  compare<product, line, line, c>("x * y of " + type, o, n, n, n, 1.05, [](const c* x, const c* y, c* z) {
    by_parts(
        n, x, y, z, [](P a, P b, P u, P v, P & re, P & im) __attribute__((always_inline)) {
          re = a * u - b * v;
          im = a * v + b * u;
        });
  });
  compare<conjugate_product, line, line, c>("conj(x) * y + x of " + type, o, n, n, n, 1.05, [](const c* x, const c* y, c* z) {
    by_parts(
        n, x, y, z, [](P a, P b, P u, P v, P & re, P & im) __attribute__((always_inline)) {
          re = a * u + b * v + a;
          im = a * v - b * u + b;
        });
  });
  compare<polynomial, line, line, c>("(x * y - x) * (x + y) of " + type, o, n, n, n, 1.05, [](const c* x, const c* y, c* z) {
    by_parts(
        n, x, y, z, [](P a, P b, P u, P v, P & re, P & im) __attribute__((always_inline)) {
          const P e = a * u - b * v - a, f = a * v + b * u - b, g = a + u, h = b + v;
          re = e * g - f * h;
          im = e * h + f * g;
        });
  });
}

// ---- small products ----

constexpr auto products = [](auto x, auto y) { return einsum<"bij,bjk->bik">(x, y); };
constexpr auto products_of_turned = [](auto x, auto y) { return einsum<"bij,bkj->bik">(x, y); };

/// Rows of 4, 8 and 16 elements are vectors.
template <int N, class T>
void product_loops(int64_t count, const T* x, const T* y, T* z) {
  for (int64_t b = 0; b < count; ++b, x += N * N, y += N * N, z += N * N) {
    if constexpr ((N & (N - 1)) == 0) {
      typedef T line __attribute__((vector_size(N * sizeof(T))));
      line of_y[N];
      std::memcpy(of_y, y, sizeof of_y);
      for (int i = 0; i < N; ++i) {
        line row = {};
        for (int j = 0; j < N; ++j) row += x[i * N + j] * of_y[j];
        std::memcpy(z + i * N, &row, sizeof row);
      }
    } else {
      for (int i = 0; i < N; ++i)
        for (int k = 0; k < N; ++k) {
          T sum = 0;
          for (int j = 0; j < N; ++j) sum += x[i * N + j] * y[j * N + k];
          z[i * N + k] = sum;
        }
    }
  }
}
/// The same with the right matrices transposed.
template <int N, class T>
void turned_loops(int64_t count, const T* x, const T* y, T* z) {
  for (int64_t b = 0; b < count; ++b, x += N * N, y += N * N, z += N * N) {
    T turned[N * N];
    for (int i = 0; i < N; ++i)
      for (int j = 0; j < N; ++j) turned[j * N + i] = y[i * N + j];
    product_loops<N>(1, x, turned, z);
  }
}
#if defined(GSPMD_HAS_CBLAS)
template <int N>
void call_blas(const float* x, const float* y, float* z) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, N, N, N, 1, x, N, y, N, 0, z, N);
}
template <int N>
void call_blas(const double* x, const double* y, double* z) {
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, N, N, N, 1, x, N, y, N, 0, z, N);
}
#endif
template <int N, class T>
void compare_products(const options& o) {
  constexpr int64_t count = (1 << 17) / N / N, elems = count * N * N;
  using batch = input<T, shape<count, N, N>, split<_, _, _>>;
  const std::string name = "products " + std::to_string(N) + "x" + std::to_string(N) + "x" + std::to_string(N) +
                           (sizeof(T) == 4 ? ", floats" : ", doubles");
  compare<products, batch, batch, T>(name, o, elems, elems, elems, 1.05,
                                     [](const T* x, const T* y, T* z) { product_loops<N>(count, x, y, z); });
  if constexpr (N <= 8)
    compare<products_of_turned, batch, batch, T>(name + ", right matrices transposed", o, elems, elems, elems, 1.05,
                                                 [](const T* x, const T* y, T* z) { turned_loops<N>(count, x, y, z); });
#if defined(GSPMD_HAS_CBLAS)
  compare<products, batch, batch, T>(
      name, o, elems, elems, elems, 1.05,
      [](const T* x, const T* y, T* z) {
        for (int64_t b = 0; b < count; ++b) call_blas<N>(x + b * N * N, y + b * N * N, z + b * N * N);
      },
      "a BLAS call for each");
#endif
}

// ---- the gradient of max_pool ----

constexpr int64_t images = 8, extent = 56, channels = 64, half = extent / 2;

constexpr auto pool_2 = [](auto x, auto u) { return grad(sum(max_pool(x, {1, 2, 2, 1}) * u), x); };
constexpr auto pool_3 = [](auto x, auto u) {
  return grad(sum(max_pool(x, {1, 3, 3, 1}, {1, 2, 2, 1}, {0, 1, 1, 0}, {0, 1, 1, 0}) * u), x);
};
constexpr auto pool_planes = [](auto x, auto u) { return grad(sum(max_pool(x, {1, 1, 2, 2}) * u), x); };

[[gnu::always_inline]] constexpr bool is_better(float next, float best) {
  return (next > best) | ((next != next) & (best == best));
}

/// The window of Size x Size at 2h - Pad, 2w - Pad: all channels at a time.
template <int Size, int Pad>
GSPMD_LOOP_FUNCTION void window_by_hand(const float* x, const float* u, float* dx, int64_t h, int64_t w) {
  float best[channels];
  std::int32_t taken[channels];
  const auto place_of = [&](int tap) {
    const auto row = 2 * h + tap / Size - Pad, column = 2 * w + tap % Size - Pad;
    return row < 0 || column < 0 || row >= extent || column >= extent ? -1 : (row * extent + column) * channels;
  };
  bool is_first = true;
  for (int tap = 0; tap < Size * Size; ++tap) {
    const auto place = place_of(tap);
    if (place < 0) continue;
    const float* const from = x + place;
    if (is_first) {
      is_first = false;
      std::memcpy(best, from, sizeof best);
      for (auto& t : taken) t = tap;
    } else {
      for (int64_t c = 0; c < channels; ++c) {
        const bool takes = is_better(from[c], best[c]);
        best[c] = takes ? from[c] : best[c];
        taken[c] = takes ? tap : taken[c];
      }
    }
  }
  for (int tap = 0; tap < Size * Size; ++tap)
    if (const auto place = place_of(tap); place >= 0) {
#if !defined(__clang__)
#pragma GCC ivdep
#endif
      for (int64_t c = 0; c < channels; ++c) dx[place + c] += taken[c] == tap ? u[c] : 0;
    }
}
template <int Size, int Pad>
void pool_by_hand(const float* x, const float* u, float* dx) {
  constexpr auto image = extent * extent * channels;
  std::memset(dx, 0, static_cast<std::size_t>(images * image) * sizeof(float));
  for (int64_t b = 0; b < images; ++b, x += image, dx += image)
    for (int64_t h = 0; h < half; ++h)
      for (int64_t w = 0; w < half; ++w, u += channels) window_by_hand<Size, Pad>(x, u, dx, h, w);
}
void pool_planes_by_hand(const float* x, const float* u, float* dx) {
  for (int64_t p = 0; p < images * channels; ++p)
    for (int64_t h = 0; h < half; ++h, x += 2 * extent, dx += 2 * extent)
      for (int64_t w = 0; w < half; ++w, ++u) {
        const float* const from = x + 2 * w;
        const int64_t places[] = {0, 1, extent, extent + 1};
        int64_t taken = 0;
        for (const auto place : places)
          if (is_better(from[place], from[taken])) taken = place;
        for (const auto place : places) dx[2 * w + place] = place == taken ? *u : 0;
      }
}
void compare_pools(const options& o) {
  using rows = input<float, shape<images, extent, extent, channels>>;
  using row_windows = input<float, shape<images, half, half, channels>>;
  using planes = input<float, shape<images, channels, extent, extent>>;
  using plane_windows = input<float, shape<images, channels, half, half>>;
  constexpr auto elems = images * extent * extent * channels;
  compare<pool_2, rows, row_windows, float>("gradient of max_pool 2x2, stride 2, channels last", o, elems, elems / 4, elems, 1.0,
                                            pool_by_hand<2, 0>);
  compare<pool_3, rows, row_windows, float>("gradient of max_pool 3x3, stride 2, channels last", o, elems, elems / 4, elems, 1.0,
                                            pool_by_hand<3, 1>);
  compare<pool_planes, planes, plane_windows, float>("gradient of max_pool 2x2, stride 2, planes", o, elems, elems / 4, elems,
                                                     1.0, pool_planes_by_hand);
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const bench::options o{argc > 1 ? std::atoi(argv[1]) : 15, argc > 2 ? argv[2] : ""};
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  bench::compare_complex<float>(o);
  bench::compare_complex<double>(o);
  bench::compare_products<3, float>(o);
  bench::compare_products<4, float>(o);
  bench::compare_products<8, float>(o);
  bench::compare_products<16, float>(o);
  bench::compare_products<4, double>(o);
  bench::compare_products<8, double>(o);
  bench::compare_pools(o);
  bench::all_targets.print();
}
