// SPDX-License-Identifier: Apache-2.0
// Norms and softmax of rows, and their gradients, on one device and on two threads that share the rows. Compared with
// hand-written loops that process one row after another and write to the same memory. Medians of the processor time of
// a thread, and the median and middle half of the ratios of neighbouring runs.
//
//   norms [rounds, 15] [words in the names of rows]
#include <gspmd/gspmd.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "race.hpp"

namespace bench {
namespace {

using namespace gspmd;
using std::int64_t;

// ---- the programs ----

constexpr auto layer_norm = [](auto x) {
  const auto centred = x - expand_dims(mean(x, 1), 1);
  return centred * expand_dims(rsqrt(mean(centred * centred, 1) + 1e-5), 1);
};
constexpr auto scaled_layer_norm = [](auto x, auto gain, auto bias) {
  const auto centred = x - expand_dims(mean(x, 1), 1);
  return centred * expand_dims(rsqrt(mean(centred * centred, 1) + 1e-5), 1) * expand_dims(gain, 0) + expand_dims(bias, 0);
};
constexpr auto rms_norm = [](auto x) { return x * expand_dims(rsqrt(mean(x * x, 1) + 1e-5), 1); };
constexpr auto softmax_of = [](auto x) { return softmax(x, 1); };
constexpr auto log_softmax_of = [](auto x) { return log_softmax(x, 1); };
/// The gradient for y = softmax(x), from the gradient by y.
constexpr auto softmax_gradient = [](auto y, auto by) { return y * (by - expand_dims(sum(y * by, 1), 1)); };
/// The gradient of layer_norm by x, from the gradient by its result.
constexpr auto layer_norm_gradient = [](auto x, auto by) { return grad(sum(layer_norm(x) * by), x); };

// ---- the same, hand-written ----

/// values[0] = the combination of all `N` values, by halves. In sequence, each combination would wait for the previous
/// one.
template <int N, class T, class F>
[[gnu::always_inline]] inline void fold(T* values, F combine) {
  if constexpr (N > 1) {
    for (int j = 0; j < N / 2; ++j) values[j] = combine(values[j], values[j + N / 2]);
    fold<N / 2>(values, combine);
  }
}
/// Returns the sum of f(i) for i < n, with 64 partial sums.
template <class T, class F>
GSPMD_LOOP_FUNCTION T sum_of(int64_t n, F f) {
  T sums[64] = {};
  for (int64_t i = 0; i < n; i += 64)
    for (int j = 0; j < 64; ++j) sums[j] += f(i + j);
  fold<64>(sums, [](T a, T b) { return a + b; });
  return sums[0];
}
#define GSPMD_ROW(...) \
  [=](int64_t i) __attribute__((always_inline)) { return __VA_ARGS__; }

template <class T>
struct statistics {
  T middle, scale;
};
template <class T>
statistics<T> statistics_of(const T* x, int64_t n) {
  const auto size = static_cast<T>(n);
  const T middle = sum_of<T>(n, GSPMD_ROW(x[i])) / size;
  return {middle, 1 / std::sqrt(sum_of<T>(n, GSPMD_ROW((x[i] - middle) * (x[i] - middle))) / size + T(1e-5))};
}
template <class T>
void layer_norm_row(const T* x, const T*, const T*, T* y, int64_t n) {
  const auto [middle, scale] = statistics_of(x, n);
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - middle) * scale;
}
template <class T>
void scaled_layer_norm_row(const T* x, const T* gain, const T* bias, T* y, int64_t n) {
  const auto [middle, scale] = statistics_of(x, n);
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - middle) * scale * gain[i] + bias[i];
}
template <class T>
void rms_norm_row(const T* x, const T*, const T*, T* y, int64_t n) {
  const T scale = 1 / std::sqrt(sum_of<T>(n, GSPMD_ROW(x[i] * x[i])) / static_cast<T>(n) + T(1e-5));
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * scale;
}
template <class T>
GSPMD_LOOP_FUNCTION T largest_of(const T* x, int64_t n) {
  T largest[64];
  for (int j = 0; j < 64; ++j) largest[j] = x[j];
  for (int64_t i = 64; i < n; i += 64)
    for (int j = 0; j < 64; ++j) largest[j] = ((largest[j] != largest[j]) | (largest[j] > x[i + j])) ? largest[j] : x[i + j];
  fold<64>(largest, [](T a, T b) { return ((a != a) | (a > b)) ? a : b; });
  return largest[0];
}
template <class T>
void softmax_row(const T* x, const T*, const T*, T* y, int64_t n) {
  const T most = largest_of(x, n), all = sum_of<T>(n, GSPMD_ROW(y[i] = detail::exponential(x[i] - most)));
  for (int64_t i = 0; i < n; ++i) y[i] = y[i] / all;
}
template <class T>
void log_softmax_row(const T* x, const T*, const T*, T* y, int64_t n) {
  const T most = largest_of(x, n), less = most + std::log(sum_of<T>(n, GSPMD_ROW(detail::exponential(x[i] - most))));
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] - less;
}
template <class T>
void softmax_gradient_row(const T* y, const T* by, const T*, T* dx, int64_t n) {
  const T less = sum_of<T>(n, GSPMD_ROW(y[i] * by[i]));
  for (int64_t i = 0; i < n; ++i) dx[i] = y[i] * (by[i] - less);
}
template <class T>
void layer_norm_gradient_row(const T* x, const T* by, const T*, T* dx, int64_t n) {
  const auto [middle, scale] = statistics_of(x, n);
  const auto size = static_cast<T>(n);
  const T shift = sum_of<T>(n, GSPMD_ROW(by[i])) / size, tilt = sum_of<T>(n, GSPMD_ROW(by[i] * (x[i] - middle))) / size;
  const T of_tilt = tilt * scale * scale;
  for (int64_t i = 0; i < n; ++i) dx[i] = (by[i] - shift - (x[i] - middle) * of_tilt) * scale;
}

// ---- the comparison ----

template <class T, int64_t Rows, int64_t Columns>
using matrix = input<T, shape<Rows, Columns>, split<"rows", _>>;
template <class T, int64_t Columns>
using of_columns = input<T, shape<Columns>, split<_>>;

struct options {
  int rounds;
  const char* words;
};
/// `Inputs`: matrices first, then vectors.
template <class T, auto Program, auto Row, int Devices, int64_t Rows, int64_t Columns, class... Inputs>
void compare(const char* name, const options& o) {
  const std::string row = std::string(name) + (sizeof(T) == 8 ? " of doubles [" : " [") + std::to_string(Rows) + ", " +
                          std::to_string(Columns) + "]" + (Devices > 1 ? ", two threads" : "");
  if (row.find(o.words) == std::string::npos) return;
  const auto measure = [&](auto& comm) {
    using step = compile<Program, mesh<axis<"rows", Devices>>, Inputs...>;
    step run;
    constexpr int64_t own = Rows / Devices;
    constexpr std::size_t elems = static_cast<std::size_t>(own * Columns);
    std::vector<T> in[3], y(elems);
    for (auto& v : in) v.resize(elems);
    for (std::size_t k = 0; k < 3; ++k)
      for (std::size_t i = 0; i < elems; ++i) in[k][i] = T(0.01) * static_cast<T>(((k + 7) * i + k) % 601) - T(2.5);
    in[2].resize(static_cast<std::size_t>(Columns));
    const int calls = static_cast<int>(std::max<int64_t>(1, (1 << 21) / (own * Columns)));
    const auto ours = [&] {
      for (int c = 0; c < calls; ++c)
        if constexpr (sizeof...(Inputs) == 1) run(comm, in[0], y);
        else if constexpr (sizeof...(Inputs) == 2) run(comm, in[0], in[1], y);
        else run(comm, in[0], std::vector<T>(in[2]), in[2], y);
    };
    const auto by_hand = [&] {
      for (int c = 0; c < calls; ++c) {
        const T* const second = sizeof...(Inputs) == 3 ? in[2].data() : in[1].data();
        for (int64_t r = 0; r < own; ++r)
          Row(in[0].data() + r * Columns, sizeof...(Inputs) == 2 ? second + r * Columns : second, in[2].data(),
              y.data() + r * Columns, Columns);
        asm volatile("" : : "r"(y.data()) : "memory");
      }
    };
    ours();
    const auto got = y;
    by_hand();
    for (std::size_t i = 0; i < elems; ++i)
      if (!(std::fabs(got[i] - y[i]) <= T(1e-4) * (1 + std::fabs(y[i])))) {
        std::printf("WRONG: %s: element %zu is %g, by hand %g\n", row.c_str(), i, double(got[i]), double(y[i]));
        std::exit(1);
      }
    auto t = race_in_turns(o.rounds, ours, by_hand, [&] { comm.barrier(); });
    if (comm.device(0) != 0) return;
    for (auto* all : {&t.ours, &t.by_hand})
      for (double& time : *all) time /= calls;
    t.print(row, 1.05);
  };
  if constexpr (Devices == 1) launch(serial{}, 1, measure);
  else launch(threads{}, Devices, measure);
}

template <class T, int Devices, int64_t Rows, int64_t Columns>
void compare_norms(const options& o) {
  using rows = matrix<T, Rows, Columns>;
  compare<T, layer_norm, layer_norm_row<T>, Devices, Rows, Columns, rows>("layer norm", o);
  compare<T, rms_norm, rms_norm_row<T>, Devices, Rows, Columns, rows>("RMS norm", o);
  compare<T, layer_norm_gradient, layer_norm_gradient_row<T>, Devices, Rows, Columns, rows, rows>("gradient of layer norm", o);
}
template <int Devices, int64_t Rows, int64_t Columns>
void compare_all(const options& o) {
  using rows = matrix<float, Rows, Columns>;
  using columns = of_columns<float, Columns>;
  compare_norms<float, Devices, Rows, Columns>(o);
  compare<float, scaled_layer_norm, scaled_layer_norm_row<float>, Devices, Rows, Columns, rows, columns, columns>(
      "layer norm, scaled", o);
  compare<float, softmax_of, softmax_row<float>, Devices, Rows, Columns, rows>("softmax", o);
  compare<float, log_softmax_of, log_softmax_row<float>, Devices, Rows, Columns, rows>("log_softmax", o);
  compare<float, softmax_gradient, softmax_gradient_row<float>, Devices, Rows, Columns, rows, rows>("gradient of softmax", o);
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const bench::options o{argc > 1 ? std::atoi(argv[1]) : 15, argc > 2 ? argv[2] : ""};
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  bench::compare_all<1, 8192, 1024>(o);
  bench::compare_all<2, 8192, 1024>(o);
  bench::compare_all<1, 64, 1024>(o);
  bench::compare_all<1, 4096, 256>(o);
  bench::compare_norms<float, 1, 16384, 64>(o);
  bench::compare_norms<float, 1, 128, 8192>(o);
  bench::compare_norms<double, 1, 2048, 1024>(o);
  bench::compare_norms<double, 2, 2048, 256>(o);
  bench::all_targets.print();
}
