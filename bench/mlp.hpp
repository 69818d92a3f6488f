// SPDX-License-Identifier: Apache-2.0
// One training step of an MLP (batch 256, 1024 -> 4096 -> 1024, float): forward pass, backward pass and update.
// Compiled by gspmd, and hand-written for only this mesh with the same GEMM and the same collectives.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "gspmd/detail/kernels/blas_threads.hpp"
#include "gspmd/gspmd.hpp"
#include "race.hpp"

namespace bench {

using namespace gspmd;
inline constexpr std::int64_t batch = 256, in_dim = 1024, hidden = 4096, out_dim = 1024;
inline constexpr float rate = 0.01f;

inline constexpr auto train = [](auto x, auto target, auto w1, auto w2) {
  auto h = relu(einsum<"bd,df->bf">(x, w1));
  auto difference = einsum<"bf,fo->bo">(h, w2) - target;
  auto loss = mean(difference * difference);
  auto [g1, g2] = grad(loss, std::array{w1, w2});
  return std::tuple{loss, w1 - rate * g1, w2 - rate * g2};
};

using data_parallel = mesh<axis<"data", 2>>;
using data_step =
    compile<train, data_parallel, input<float, shape<batch, in_dim>, split<"data", _>>, input<float, shape<batch, out_dim>>,
            input<float, shape<in_dim, hidden>, split<_, _>>, input<float, shape<hidden, out_dim>, split<_, _>>>;
using model_parallel = mesh<axis<"model", 2>>;
using model_step =
    compile<train, model_parallel, input<float, shape<batch, in_dim>, split<_, _>>, input<float, shape<batch, out_dim>>,
            input<float, shape<in_dim, hidden>, split<_, "model">>, input<float, shape<hidden, out_dim>, split<"model", _>>>;
// Less than the all_reduce of both gradients in by_hand: each device computes half of each gradient and gathers the
// other half.
static_assert(data_step::traffic.bytes < 4 * (in_dim * hidden + hidden * out_dim));
static_assert(model_step::collectives == collectives{all_reduce<"model">});

struct by_hand {
  std::int64_t rows, columns;  // of this device: of the batch, of the hidden layer
  bool split_batch;
  std::vector<float> h, difference, dh, g1, g2;

  explicit by_hand(bool over_batch)
      : rows(over_batch ? batch / 2 : batch),
        columns(over_batch ? hidden : hidden / 2),
        split_batch(over_batch),
        h(size(rows, columns)),
        difference(size(rows, out_dim)),
        dh(size(rows, columns)),
        g1(size(in_dim, columns)),
        g2(size(columns, out_dim)) {}
  static std::size_t size(std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); }

  template <class Comm>
  static void sum(Comm& comm, float* data, std::int64_t elems) {
    static const detail::mesh_shape mesh = [] {
      detail::mesh_shape m;
      m.sizes.push_back(2);
      return m;
    }();
    detail::reduction r;
    r.global.push_back(elems);
    r.from.partial = r.axes = 1;
    const float* in[] = {data};
    float* out[] = {data};
    comm.reduce(mesh, r, in, out);
  }

  template <class Comm>
  float operator()(Comm& comm, const float* x, const float* target, float* w1, float* w2) {
    using detail::gemm;
    gemm<float>(false, false, rows, columns, in_dim, x, in_dim, w1, columns, h.data(), columns, false);
    const auto hidden_elems = rows * columns;
    for (std::int64_t i = 0; i < hidden_elems; ++i)
      h[static_cast<std::size_t>(i)] = std::max(h[static_cast<std::size_t>(i)], 0.0f);
    gemm<float>(false, false, rows, out_dim, columns, h.data(), columns, w2, out_dim, difference.data(), out_dim, false);
    if (!split_batch) sum(comm, difference.data(), rows * out_dim);
    const auto out_elems = rows * out_dim;
    const float scale = 2.0f / static_cast<float>(batch * out_dim);
    float* d = difference.data();
    float partial[16] = {};
    for (std::int64_t i = 0; i < out_elems; i += 16)
      for (int k = 0; k < 16; ++k) {
        const float e = d[i + k] - target[i + k];
        partial[k] += e * e;
        d[i + k] = e * scale;
      }
    float loss = 0;
    for (const float p : partial) loss += p;
    gemm<float>(true, false, columns, out_dim, rows, h.data(), columns, d, out_dim, g2.data(), out_dim, false);
    gemm<float>(false, true, rows, columns, out_dim, d, out_dim, w2, out_dim, dh.data(), columns, false);
    for (std::int64_t i = 0; i < hidden_elems; ++i)
      dh[static_cast<std::size_t>(i)] = h[static_cast<std::size_t>(i)] > 0 ? dh[static_cast<std::size_t>(i)] : 0.0f;
    gemm<float>(true, false, in_dim, columns, rows, x, in_dim, dh.data(), columns, g1.data(), columns, false);
    if (split_batch) {
      sum(comm, &loss, 1);
      sum(comm, g2.data(), columns * out_dim);
      sum(comm, g1.data(), in_dim * columns);
    }
    for (std::int64_t i = 0; i < in_dim * columns; ++i) w1[i] -= rate * g1[static_cast<std::size_t>(i)];
    for (std::int64_t i = 0; i < columns * out_dim; ++i) w2[i] -= rate * g2[static_cast<std::size_t>(i)];
    return loss / static_cast<float>(batch * out_dim);
  }
};

/// Runs both steps alternately on the device that `comm` holds. Device 0 stores the times. Both start from the same
/// weights, and their losses and weights must stay equal.
template <class Step, class Comm>
void race(Comm& comm, bool over_batch, int rounds, race_times& times) {
  using x_shard = typename Step::template input_shard<0>;
  using target_shard = typename Step::template input_shard<1>;
  using w1_shard = typename Step::template input_shard<2>;
  using w2_shard = typename Step::template input_shard<3>;
  const int me = comm.device(0);
  const auto fill = [](std::vector<float>& v, unsigned seed, float scale) {
    for (auto& e : v) {
      seed = seed * 1664525u + 1013904223u;
      e = (static_cast<float>(seed >> 8) / 16777216.0f - 0.5f) * scale;
    }
  };
  std::vector<float> x(x_shard::local_elems), target(target_shard::local_elems), w1(w1_shard::local_elems),
      w2(w2_shard::local_elems);
  fill(x, over_batch ? 1u + static_cast<unsigned>(me) : 1u, 1);
  fill(target, over_batch ? 11u + static_cast<unsigned>(me) : 11u, 1);
  fill(w1, over_batch ? 21u : 21u + static_cast<unsigned>(me), 0.1f);
  fill(w2, over_batch ? 31u : 31u + static_cast<unsigned>(me), 0.1f);
  auto v1 = w1;
  auto v2 = w2;
  Step step;
  by_hand hand(over_batch);
  std::vector<float> loss(1);
  const detail::single_threaded_blas one_thread;
  for (int round = 0; round < rounds + 2; ++round) {
    double ours = 0;
    double by_hand_ms = 0;
    float hand_loss = 0;
    for (int turn = 0; turn < 2; ++turn) {
      comm.barrier();
      const double start = now_ms();
      if ((turn == 0) == (round % 2 == 0)) {
        step(comm, x, target, w1, w2, loss, w1, w2);
        comm.barrier();
        ours = now_ms() - start;
      } else {
        hand_loss = hand(comm, x.data(), target.data(), v1.data(), v2.data());
        comm.barrier();
        by_hand_ms = now_ms() - start;
      }
    }
    if (std::abs(loss[0] - hand_loss) > 1e-4f * std::abs(hand_loss))
      throw error("the losses differ: " + std::to_string(loss[0]) + " and " + std::to_string(hand_loss));
    if (me == 0 && round >= 2) times.add(ours, by_hand_ms);
  }
  for (std::size_t i = 0; i < w1.size(); i += 1001)
    if (std::abs(w1[i] - v1[i]) > 1e-4f) throw error("the weights differ");
}

}  // namespace bench
