// SPDX-License-Identifier: Apache-2.0
// Attention of floats on one device. Compares `attention` with hand-written code that processes the same blocks of
// scores, and with the same computation by einsum and softmax. Forward and with gradients, all rows and causal, and of
// one head of 32,768 rows. Medians of processor time, and the median and middle half of the ratios of neighbouring
// runs; also the arenas.
//
//   attention [rounds, 15] [short]      short: without the head of 32,768 rows
#include <gspmd/gspmd.hpp>
#include <gspmd/nn/attention.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <vector>

#include "gspmd/detail/kernels/blas_threads.hpp"
#include "race.hpp"

namespace bench {
namespace {

using namespace gspmd;

/// Returns the processor time of this process. Other processes of the machine change it less than elapsed time.
double used_ms() { return static_cast<double>(std::clock()) * 1e3 / CLOCKS_PER_SEC; }

template <std::int64_t Heads, std::int64_t Rows>
struct problem {
  static constexpr const char* name = Heads == 1 ? "attention, 1 x 32,768 rows of 64" : "attention, 64 x 512 rows of 64";
  static constexpr std::int64_t heads = Heads, rows = Rows, depth = 64, elems = Heads * Rows * depth;
  using tensor = input<float, shape<1, Heads, Rows, depth>>;
};

/// Returns the largest x[i] * scale. exponentials_by_hand: x[i] = e^(x[i] * scale - less); returns the sum of all x[i].
GSPMD_LOOP_FUNCTION float largest_by_hand(const float* x, std::int64_t n, float scale) {
  float lane[64], most = -std::numeric_limits<float>::infinity();
  for (float& l : lane) l = most;
  std::int64_t i = 0;
  for (; i + 64 <= n; i += 64)
    for (int j = 0; j < 64; ++j) lane[j] = lane[j] > x[i + j] * scale ? lane[j] : x[i + j] * scale;
  for (; i < n; ++i) most = most > x[i] * scale ? most : x[i] * scale;
  for (const float l : lane) most = l > most ? l : most;
  return most;
}
GSPMD_LOOP_FUNCTION float exponentials_by_hand(float* x, std::int64_t n, float scale, float less) {
  float lane[64] = {}, sum = 0;
  std::int64_t i = 0;
  for (; i + 64 <= n; i += 64)
    for (int j = 0; j < 64; ++j) lane[j] += x[i + j] = detail::small_exponential(x[i + j] * scale - less);
  for (; i < n; ++i) sum += x[i] = detail::small_exponential(x[i] * scale - less);
  for (const float l : lane) sum += l;
  return sum;
}

/// One head, by blocks of 64 or 128 rows and 256 columns, the fastest of the block sizes that were tried.
template <bool IsCausal>
struct by_hand {
  static constexpr std::int64_t block = IsCausal ? 64 : 128, width = 256, depth = 64;
  std::int64_t rows;
  std::vector<float> scores = std::vector<float>(block * width), more = scores,
                     logarithms = std::vector<float>(static_cast<std::size_t>(rows));

  [[nodiscard]] std::int64_t seen(std::int64_t row) const { return IsCausal ? row + 1 : rows; }

  void forward(const float* q, const float* k, const float* v, float* y) {
    const float scale = 0.125F;
    for (std::int64_t r = 0; r < rows; r += block) {
      float most[block], sum[block];
      std::fill_n(most, block, -std::numeric_limits<float>::infinity());
      std::fill_n(sum, block, 0.0F);
      float* const out = y + r * depth;
      const std::int64_t all = seen(r + block - 1);
      for (std::int64_t c = 0; c < all; c += width) {
        const std::int64_t n = std::min(width, all - c);
        detail::gemm<float>(false, true, block, n, depth, q + r * depth, depth, k + c * depth, depth, scores.data(), width);
        for (std::int64_t i = 0; i < block; ++i) {
          float* const row = scores.data() + i * width;
          const std::int64_t own = std::clamp<std::int64_t>(seen(r + i) - c, 0, n);
          const float now = std::max(most[i], largest_by_hand(row, own, scale)), shrink = std::exp(most[i] - now);
          std::fill(row + own, row + n, 0.0F);
          sum[i] = sum[i] * shrink + exponentials_by_hand(row, own, scale, now);
          most[i] = now;
          for (std::int64_t d = 0; c > 0 && d < depth; ++d) out[i * depth + d] *= shrink;
        }
        detail::gemm<float>(false, false, block, depth, n, scores.data(), width, v + c * depth, depth, out, depth, c > 0);
      }
      for (std::int64_t i = 0; i < block; ++i) {
        const float share = 1 / sum[i];
        for (std::int64_t d = 0; d < depth; ++d) out[i * depth + d] *= share;
        logarithms[static_cast<std::size_t>(r + i)] = most[i] + std::log(sum[i]);
      }
    }
  }
  /// Computes the gradients of the sum of y * y / 2, so the gradient by y is y.
  void backward(const float* q, const float* k, const float* v, const float* y, float* dq, float* dk, float* dv) {
    const float scale = 0.125F;
    for (float* const gradient : {dq, dk, dv}) std::fill_n(gradient, rows * depth, 0.0F);
    for (std::int64_t c = 0; c < rows; c += width)
      for (std::int64_t r = 0; r < rows; r += block) {
        const std::int64_t n = std::min(width, seen(r + block - 1) - c);
        if (n <= 0) continue;
        const float *const by = y + r * depth, *const qs = q + r * depth;
        detail::gemm<float>(false, true, block, n, depth, qs, depth, k + c * depth, depth, scores.data(), width);
        detail::gemm<float>(false, true, block, n, depth, by, depth, v + c * depth, depth, more.data(), width);
        for (std::int64_t i = 0; i < block; ++i) {
          float *const p = scores.data() + i * width, *const s = more.data() + i * width;
          const std::int64_t own = std::clamp<std::int64_t>(seen(r + i) - c, 0, n);
          exponentials_by_hand(p, own, scale, logarithms[static_cast<std::size_t>(r + i)]);
          float less = 0;
          for (std::int64_t d = 0; d < depth; ++d) less += by[i * depth + d] * by[i * depth + d];
          for (std::int64_t j = 0; j < own; ++j) s[j] = p[j] * (s[j] - less) * scale;
          std::fill(p + own, p + n, 0.0F);
          std::fill(s + own, s + n, 0.0F);
        }
        detail::gemm<float>(true, false, n, depth, block, scores.data(), width, by, depth, dv + c * depth, depth, true);
        detail::gemm<float>(true, false, n, depth, block, more.data(), width, qs, depth, dk + c * depth, depth, true);
        detail::gemm<float>(false, false, block, depth, n, more.data(), width, k + c * depth, depth, dq + r * depth, depth, true);
      }
  }
};

template <bool IsCausal>
constexpr auto ours = [](auto q, auto k, auto v) { return attention(q, k, v, {.causal = IsCausal}); };
template <bool IsCausal>
constexpr auto written = [](auto q, auto k, auto v) {
  auto scores = einsum<"bhtk,bhsk->bhts">(q, k) * 0.125;
  if constexpr (IsCausal)
    scores = where(iota<std::int32_t>(scores, scores.shape(), 2) >= iota<std::int32_t>(scores, scores.shape(), 3), scores,
                   scores * 0.0 - 1e30);
  return einsum<"bhts,bhsv->bhtv">(softmax(scores, 3), v);
};
template <auto Forward>
constexpr auto with_gradients = [](auto q, auto k, auto v) {
  const auto y = Forward(q, k, v);
  const auto [dq, dk, dv] = grad(sum(y * y) * 0.5, std::tuple{q, k, v});
  return std::tuple{y, dq, dk, dv};
};
template <auto Program, class Problem>
using step_of =
    compile<Program, mesh<axis<"one", 1>>, typename Problem::tensor, typename Problem::tensor, typename Problem::tensor>;

/// q, k, v, y and the gradients.
struct tensors {
  std::vector<float> of[7];
  explicit tensors(std::int64_t elems) {
    int n = 0;
    for (auto& x : of) {
      x.resize(static_cast<std::size_t>(elems));
      for (auto& e : x) e = 0.01F * static_cast<float>(++n % 199 - 99);
    }
  }
};

template <class Step>
double run(Step& step, auto& comm, tensors& t) {
  const double start = used_ms();
  if constexpr (Step::output_count == 1) step(comm, t.of[0], t.of[1], t.of[2], t.of[3]);
  else step(comm, t.of[0], t.of[1], t.of[2], t.of[3], t.of[4], t.of[5], t.of[6]);
  return used_ms() - start;
}

/// Returns the memory in addition to inputs and outputs, in MB.
template <class Step, class Problem>
double arena() {
  return static_cast<double>(Step::peak_bytes_per_device -
                             static_cast<std::int64_t>(3 + Step::output_count) * 4 * Problem::elems) /
         1e6;
}

/// `IsWritten`: also measures the form written in operators.
template <class Problem, bool IsCausal, bool HasGradients, bool IsWritten>
void compare(const char* name, int rounds) {
  static constexpr auto own = [](auto q, auto k, auto v) {
    if constexpr (HasGradients) return with_gradients<ours<IsCausal>>(q, k, v);
    else return ours<IsCausal>(q, k, v);
  };
  static constexpr auto other = [](auto q, auto k, auto v) {
    if constexpr (HasGradients) return with_gradients<written<IsCausal>>(q, k, v);
    else return written<IsCausal>(q, k, v);
  };
  using own_step = step_of<own, Problem>;
  using other_step = step_of<other, Problem>;
  race_times against_loops, against_operators;
  tensors t(Problem::elems), hand = t;
  by_hand<IsCausal> one{Problem::rows};
  launch(serial{}, 1, [&](auto& comm) {
    own_step step;
    std::conditional_t<IsWritten, other_step, own_step> in_operators;
    for (int round = rounds > 3 ? -2 : 0; round < rounds; ++round) {
      double time[3]{};
      time[0] = run(step, comm, t);
      const double start = used_ms();
      for (std::int64_t h = 0; h < Problem::heads; ++h) {
        const auto at = [&](int k) { return hand.of[k].data() + h * Problem::rows * Problem::depth; };
        one.forward(at(0), at(1), at(2), at(3));
        if constexpr (HasGradients) one.backward(at(0), at(1), at(2), at(3), at(4), at(5), at(6));
      }
      time[1] = used_ms() - start;
      for (int k = 3; k < (HasGradients ? 7 : 4); ++k)
        for (std::size_t i = 0; i < t.of[k].size(); ++i)
          if (!(std::fabs(t.of[k][i] - hand.of[k][i]) < 1e-3F)) {
            std::printf("tensor %d, element %zu: %g by hand is %g\n", k, i, t.of[k][i], hand.of[k][i]);
            std::exit(1);
          }
      if (IsWritten) time[2] = run(in_operators, comm, t);
      if (round < 0) continue;
      against_loops.add(time[0], time[1]);
      against_operators.add(time[0], time[2]);
    }
  });
  const std::string row = std::string(Problem::name) + ", " + name;
  against_loops.print(row);
  if constexpr (IsWritten) {
    static constexpr const char* operators = "einsum, softmax, einsum";
    against_operators.print(row, operators);
    const double mb = arena<own_step, Problem>(), other_mb = arena<other_step, Problem>();
    print_row(row + ", arena", "MB", mb, operators, other_mb, {mb / other_mb});
  }
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  const gspmd::detail::single_threaded_blas single;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  using many = bench::problem<64, 512>;
  using one = bench::problem<1, 32768>;
  bench::compare<many, false, false, true>("forward", rounds);
  bench::compare<many, false, true, true>("with gradients", rounds);
  bench::compare<many, true, false, true>("causal", rounds);
  bench::compare<many, true, true, true>("causal, with gradients", rounds);
  if (argc > 2) return 0;
  bench::compare<one, true, false, false>("causal", (rounds + 6) / 7);
  bench::compare<one, true, true, false>("causal, with gradients", (rounds + 6) / 7);
}
