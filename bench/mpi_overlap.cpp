// SPDX-License-Identifier: Apache-2.0
// A training step of a multilayer perceptron. The devices that split the batch also split the weights (FSDP), planned
// automatically. Run with one collective after another, and overlapped. Compared with hand-written code with
// MPI_Iallgather and MPI_Ireduce_scatter_block. Two processes communicate through a network that is as slow as the
// computation (bench/slow_network):
//
//   bench/slow_network 4gbit 2 build/bench/bench/mpi_overlap [rounds, 15]
#include "gspmd/mpi.hpp"

#include <cblas.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <tuple>
#include <vector>

#include <gspmd/detail/kernels/blas_threads.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/plan/network.hpp>
#include <gspmd/plan/overlap.hpp>

#include "race.hpp"

namespace {
using namespace gspmd;

constexpr std::int64_t devices = 2, rows = 1024, width = 512, part = width / devices;  // rows: of one device
constexpr std::size_t layers = 4;
constexpr float rate = 1e-5F;

constexpr auto train = [](auto x, auto w1, auto w2, auto w3, auto w4) {
  auto h = relu(einsum<"bd,df->bf">(x, w1));
  h = relu(einsum<"bd,df->bf">(h, w2));
  h = relu(einsum<"bd,df->bf">(h, w3));
  const auto y = einsum<"bd,df->bf">(h, w4);
  const auto [g1, g2, g3, g4] = grad(0.5 * sum(y * y), std::tuple{w1, w2, w3, w4});
  const double r = rate;
  return std::tuple{w1 - r * g1, w2 - r * g2, w3 - r * g3, w4 - r * g4};
};
using pod = mesh<axis<"data", devices>>;
constexpr network slow(50e9, 250e6, 50e-6);  // the operations of one second, and the bytes that 2gbit sends in one second
using weight = input<float, shape<width, width>, split<"data", _>>;
template <options Options = options{}>
using step = compile<train, pod, with<Options>, input<float, shape<devices * rows, width>, split<"data", _>>, weight, weight,
                     weight, weight>;

using matrix = std::vector<float>;
using weights = std::array<matrix, layers>;

void product(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
             const float* b, float* c) {
  cblas_sgemm(CblasRowMajor, ta, tb, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), 1, a,
              static_cast<int>(ta == CblasNoTrans ? k : m), b, static_cast<int>(tb == CblasNoTrans ? n : k), 0, c,
              static_cast<int>(n));
}

/// The same, hand-written. A weight is gathered during the previous product, and a gradient is reduced during the next
/// product. If `overlaps` is false, each collective is blocking.
class by_hand {
 public:
  explicit by_hand(bool overlaps) : overlaps_(overlaps) {
    for (auto& h : h_) h.resize(rows * width);
    for (auto& w : whole_) w.resize(width * width);
    for (auto& g : g_) g.resize(width * width);
    for (auto& s : sums_) s.resize(part * width);
    d_.resize(rows * width);
    before_.resize(rows * width);
    under_way_.fill(MPI_REQUEST_NULL);
  }
  void operator()(const matrix& x, weights& w) {
    const auto input = [&](std::size_t k) { return k == 0 ? x.data() : h_[k - 1].data(); };
    gather(w, 0);
    for (std::size_t k = 0; k < layers; ++k) {
      MPI_Wait(&under_way_[k], MPI_STATUS_IGNORE);
      if (k + 1 < layers) gather(w, k + 1);
      auto& out = k + 1 == layers ? d_ : h_[k];
      product(CblasNoTrans, CblasNoTrans, rows, width, width, input(k), whole_[k].data(), out.data());
      go_on();
      if (k + 1 == layers) break;
      for (auto& e : out) e = e > 0 ? e : 0;
    }
    for (std::size_t k = layers; k-- > 0;) {
      product(CblasTrans, CblasNoTrans, width, width, rows, input(k), d_.data(), g_[k].data());
      go_on();
      MPI_Ireduce_scatter_block(g_[k].data(), sums_[k].data(), static_cast<int>(part * width), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                                &under_way_[k]);
      if (!overlaps_) MPI_Wait(&under_way_[k], MPI_STATUS_IGNORE);
      if (k == 0) break;
      product(CblasNoTrans, CblasTrans, rows, width, width, d_.data(), whole_[k].data(), before_.data());
      go_on();
      const float* const h = input(k);
      for (std::size_t i = 0; i < before_.size(); ++i) d_[i] = h[i] > 0 ? before_[i] : 0;
    }
    for (std::size_t k = layers; k-- > 0;) {
      MPI_Wait(&under_way_[k], MPI_STATUS_IGNORE);
      for (std::size_t i = 0; i < w[k].size(); ++i) w[k][i] -= rate * sums_[k][i];
    }
  }

 private:
  void gather(const weights& w, std::size_t k) {
    constexpr int elems = static_cast<int>(part * width);
    MPI_Iallgather(w[k].data(), elems, MPI_FLOAT, whole_[k].data(), elems, MPI_FLOAT, MPI_COMM_WORLD, &under_way_[k]);
    if (!overlaps_) MPI_Wait(&under_way_[k], MPI_STATUS_IGNORE);
  }
  void go_on() {
    int is_over = 0;
    for (auto& r : under_way_)
      if (r != MPI_REQUEST_NULL) MPI_Test(&r, &is_over, MPI_STATUS_IGNORE);
  }
  bool overlaps_;
  std::array<matrix, layers - 1> h_;
  weights whole_, g_, sums_;
  matrix d_, before_;
  std::array<MPI_Request, layers> under_way_{};
};

struct way {
  const char* name;
  std::vector<double> ms{};
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  launch(gspmd::mpi{MPI_COMM_WORLD}, devices, [&](auto& comm) {
    const auto fill = [](matrix& v, std::size_t size, unsigned seed, float scale) {
      v.resize(size);
      for (auto& e : v) {
        seed = seed * 1664525U + 1013904223U;
        e = (static_cast<float>(seed >> 8) / 16777216.0F - 0.5F) * scale;
      }
    };
    const auto me = static_cast<unsigned>(comm.device(0));
    matrix x;
    fill(x, rows * width, 1U + me, 1);
    std::array<way, 4> ways{
        {{"gspmd, blocking"}, {"gspmd, overlapped"}, {"hand-written, blocking"}, {"hand-written, overlapped"}}};
    std::array<weights, 4> w;
    for (auto& of_way : w)
      for (unsigned k = 0; k < layers; ++k) fill(of_way[k], part * width, 21U + 2 * k + me, 0.12F);
    step<> plain;
    step<options{.network = slow, .overlap = true}> hiding;
    by_hand blocking(false), starting(true);
    const detail::single_threaded_blas one_thread;
    const auto run = [&](auto& compiled, weights& v) { compiled(comm, x, v[0], v[1], v[2], v[3], v[0], v[1], v[2], v[3]); };
    for (int round = -2; round < rounds; ++round) {
      std::array<double, 4> ms{};
      for (std::size_t turn = 0; turn < ways.size(); ++turn) {
        const auto k = (turn + static_cast<std::size_t>(round + 2)) % ways.size();
        comm.barrier();
        const double begin = bench::now_ms();
        if (k == 0) run(plain, w[k]);
        else if (k == 1) run(hiding, w[k]);
        else (k == 2 ? blocking : starting)(x, w[k]);
        comm.barrier();
        ms[k] = bench::now_ms() - begin;
      }
      for (std::size_t k = 0; k < ways.size() && round >= 0; ++k) ways[k].ms.push_back(ms[k]);
    }
    for (const auto& of_way : w)
      for (std::size_t k = 0; k < layers; ++k)
        for (std::size_t i = 0; i < of_way[k].size(); i += 997)
          if (!(std::abs(of_way[k][i] - w[0][k][i]) <= 1e-4F)) throw error("the weights differ");
    if (me != 0) return;
    const std::string row = "FSDP, 4 layers of " + std::to_string(width) + ", overlapped";
    bench::race_times{ways[1].ms, ways[3].ms}.print(row, 1.05, "hand-written, overlapped");
    bench::race_times{ways[1].ms, ways[0].ms}.print(row, "gspmd, blocking");
    bench::race_times{ways[1].ms, ways[2].ms}.print(row, "hand-written, blocking");
    bench::all_targets.print();
  });
  MPI_Finalize();
}
