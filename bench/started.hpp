// SPDX-License-Identifier: Apache-2.0
// The backward pass of a multilayer perceptron, data parallel. The sum of each layer's gradients is in progress while
// the gradients of the previous layers are computed.
#pragma once

#include <cblas.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <tuple>
#include <utility>
#include <vector>

#include <gspmd/comm/communicator.hpp>
#include <gspmd/detail/kernels/blas_threads.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/modes/manual.hpp>

#include "race.hpp"

namespace bench {
using namespace gspmd;

inline constexpr std::int64_t devices = 2, rows = 256, width = 768;  // rows: of one device
inline constexpr int layers = 4;
inline constexpr float rate = 1e-4F;

/// The gradients of the loss sum(y * y) / 2, and the update.
template <bool Starts>
constexpr auto backward = [](auto x, auto w1, auto w2, auto w3, auto w4) {
  const auto sum_of = [](value terms) {
    const value all = local::all_reduce<"data", state::replica>(terms);
    if constexpr (Starts) return local::start(all);
    else return all;
  };
  const auto of = [](auto it) {
    if constexpr (Starts) return local::finish(std::move(it));
    else return it;
  };
  auto h1 = relu(einsum<"bd,df->bf">(x, w1));
  auto h2 = relu(einsum<"bd,df->bf">(h1, w2));
  auto h3 = relu(einsum<"bd,df->bf">(h2, w3));
  auto d4 = einsum<"bd,df->bf">(h3, w4);
  auto g4 = sum_of(einsum<"bd,bf->df">(h3, d4));
  auto d3 = sign(h3) * einsum<"bf,df->bd">(d4, w4);
  auto g3 = sum_of(einsum<"bd,bf->df">(h2, d3));
  auto d2 = sign(h2) * einsum<"bf,df->bd">(d3, w3);
  auto g2 = sum_of(einsum<"bd,bf->df">(h1, d2));
  auto d1 = sign(h1) * einsum<"bf,df->bd">(d2, w2);
  auto g1 = sum_of(einsum<"bd,bf->df">(x, d1));
  const double r = rate;
  return std::tuple{w1 - r * of(std::move(g1)), w2 - r * of(std::move(g2)), w3 - r * of(std::move(g3)),
                    w4 - r * of(std::move(g4))};
};
template <bool Starts>
constexpr auto train = [](auto x, auto w1, auto w2, auto w3, auto w4) {
  using batch = held<split<"data", _>>;
  using weight = held<replica<"data">>;
  return manual<"data">(backward<Starts>, takes<batch, weight, weight, weight, weight>{},
                        gives<weight, weight, weight, weight>{})(x, w1, w2, w3, w4);
};
using weight_in = input<float, shape<width, width>>;
template <bool Starts>
using step = compile<train<Starts>, mesh<axis<"data", devices>>, input<float, shape<devices * rows, width>, split<"data", _>>,
                     weight_in, weight_in, weight_in, weight_in>;

using matrix = std::vector<float>;

/// The same, hand-written. `sum(g, k)` sums the gradient of layer k over the devices, or starts the sum. `went_on()`
/// lets the messages progress between two products. `wait(k)` returns when the sum is finished.
template <class Sum, class GoOn, class Wait>
class by_hand {
 public:
  by_hand(Sum sum, GoOn go_on, Wait wait) : sum_(sum), go_on_(go_on), wait_(wait) {
    for (auto& a : h_) a.resize(rows * width);
    for (auto& g : gradients) g.resize(width * width);
    d_.resize(rows * width);
    before_.resize(rows * width);
  }
  void operator()(const matrix& x, std::array<matrix, layers>& w) {
    const auto input = [&](int k) { return k == 0 ? x.data() : h_[static_cast<std::size_t>(k - 1)].data(); };
    for (int k = 0; k < layers; ++k) {
      auto& out = k == layers - 1 ? d_ : h_[static_cast<std::size_t>(k)];
      product(CblasNoTrans, CblasNoTrans, rows, width, width, input(k), w[static_cast<std::size_t>(k)].data(), out.data());
      if (k < layers - 1)
        for (auto& e : out) e = e > 0 ? e : 0;
    }
    for (int k = layers - 1; k >= 0; --k) {
      auto& g = gradients[static_cast<std::size_t>(k)];
      product(CblasTrans, CblasNoTrans, width, width, rows, input(k), d_.data(), g.data());
      sum_(g, k);
      if (k == 0) break;
      product(CblasNoTrans, CblasTrans, rows, width, width, d_.data(), w[static_cast<std::size_t>(k)].data(), before_.data());
      go_on_();
      const float* const h = input(k);
      for (std::size_t i = 0; i < before_.size(); ++i) d_[i] = h[i] > 0 ? before_[i] : 0;
    }
    for (int k = layers - 1; k >= 0; --k) {
      wait_(k);
      auto& of = w[static_cast<std::size_t>(k)];
      const auto& g = gradients[static_cast<std::size_t>(k)];
      for (std::size_t i = 0; i < of.size(); ++i) of[i] -= rate * g[i];
    }
  }
  std::array<matrix, layers> gradients;

 private:
  static void product(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
                      const float* b, float* c) {
    const auto lead = [](CBLAS_TRANSPOSE t, std::int64_t r, std::int64_t columns) {
      return static_cast<int>(t == CblasNoTrans ? columns : r);
    };
    cblas_sgemm(CblasRowMajor, ta, tb, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), 1, a, lead(ta, m, k), b,
                lead(tb, k, n), 0, c, static_cast<int>(n));
  }
  Sum sum_;
  GoOn go_on_;
  Wait wait_;
  std::array<matrix, layers - 1> h_;
  matrix d_, before_;
};

/// Runs the variants alternately on the device that `comm` holds, each with separate weights, and compares the weights.
/// Device 0 prints the medians, and quartiles of the ratio to the first variant. `others(x, w)`: hand-written steps,
/// with names.
struct way {
  const char* name;
  std::vector<double> ms{};
};
template <class Comm, class... Hand>
void race(Comm& comm, int rounds, const char* where, std::vector<way> ways, Hand&&... hand) {
  const int me = comm.device(0);
  const auto fill = [](matrix& v, unsigned seed, float scale) {
    for (auto& e : v) {
      seed = seed * 1664525U + 1013904223U;
      e = (static_cast<float>(seed >> 8) / 16777216.0F - 0.5F) * scale;
    }
  };
  matrix x(rows * width);
  fill(x, 1U + static_cast<unsigned>(me), 1);
  std::vector<std::array<matrix, layers>> weights(ways.size());
  for (auto& w : weights)
    for (std::size_t k = 0; k < w.size(); ++k) {
      w[k].resize(width * width);
      fill(w[k], 21U + static_cast<unsigned>(k), 0.12F);
    }
  step<true> starting;
  step<false> blocking;
  const detail::single_threaded_blas one_thread;
  const auto run = [&](auto& compiled, auto& w) { compiled(comm, x, w[0], w[1], w[2], w[3], w[0], w[1], w[2], w[3]); };
  const auto run_way = [&](std::size_t number) {
    auto& w = weights[number];
    if (number == 0) return run(blocking, w);
    if (number == 1) return run(starting, w);
    std::size_t next = 2;
    (static_cast<void>(next++ == number ? hand(x, w) : void()), ...);
  };
  for (int round = 0; round < rounds + 2; ++round) {
    std::vector<double> ms(ways.size());
    for (std::size_t turn = 0; turn < ways.size(); ++turn) {
      const auto number = (turn + static_cast<std::size_t>(round)) % ways.size();
      comm.barrier();
      const double begin = now_ms();
      run_way(number);
      comm.barrier();
      ms[number] = now_ms() - begin;
    }
    for (std::size_t k = 0; k < ways.size() && round >= 2; ++k) ways[k].ms.push_back(ms[k]);
  }
  for (const auto& w : weights)
    for (std::size_t k = 0; k < w.size(); ++k)
      for (std::size_t i = 0; i < w[k].size(); i += 1001)
        if (!(std::abs(w[k][i] - weights[0][k][i]) <= 1e-4F)) throw error("the weights differ");
  for (std::size_t k = 0; k < ways.size() && me == 0; ++k)
    if (k != 1) race_times{ways[1].ms, ways[k].ms}.print(std::string("backward pass, gradients started, ") + where, ways[k].name);
}

}  // namespace bench
