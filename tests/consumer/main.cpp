// SPDX-License-Identifier: Apache-2.0
// Solves A x = b for a symmetric, diagonally dominant A by conjugate gradients. The rows are split over all devices.
#include <cmath>
#include <cstdio>

#include <gspmd/gspmd.hpp>
#ifdef CONSUMER_USES_MPI
#include <gspmd/mpi.hpp>
#endif

using namespace gspmd;

constexpr int unknowns = 30;  // not a multiple of 4

constexpr auto iterate = [](auto a, auto x, auto r, auto p) {
  auto ap = einsum<"ij,j->i">(a, p);
  auto rr = einsum<"i,i->">(r, r);
  auto alpha = rr / einsum<"i,i->">(p, ap);
  auto r_next = r - alpha * ap;
  auto rr_next = einsum<"i,i->">(r_next, r_next);
  return std::tuple{x + alpha * p, r_next, r_next + rr_next / rr * p, rr_next};
};
template <int Devices>
using step = compile<iterate, mesh<axis<"rows", Devices>>, input<double, shape<unknowns, unknowns>, split<"rows", _>>,
                     input<double, shape<unknowns>, split<"rows">>, input<double, shape<unknowns>, split<"rows">>,
                     input<double, shape<unknowns>, split<"rows">>>;
static_assert(within_budget<step<4>, max_bytes<512>, max_collectives<6>>);

template <class Step, class Backend>
int solve(const Backend& backend) {
  array<double> a({unknowns, unknowns}), b({unknowns}), x({unknowns});
  for (int i = 0; i < unknowns; ++i) {
    b[i] = std::sin(i);
    for (int j = 0; j < unknowns; ++j) a[i * unknowns + j] = i == j ? unknowns : std::cos(i + j) / 2;
  }
  array<double> r = b;
  array<double> p = b;
  for (int k = 0; k < 30 && std::sqrt(r[0] * r[0]) + std::abs(r[unknowns - 1]) > 1e-14; ++k) {
    auto [x_next, r_next, p_next, rr] = run<Step>(backend, a, x, r, p);
    x = x_next;
    r = r_next;
    p = p_next;
  }
  double worst = 0;
  for (int i = 0; i < unknowns; ++i) {
    double sum = 0;
    for (int j = 0; j < unknowns; ++j) sum += a[i * unknowns + j] * x[j];
    worst = std::fmax(worst, std::abs(sum - b[i]));
  }
  std::printf("largest residual: %.1e\n", worst);
  return worst < 1e-10 ? 0 : 1;
}

int main(int argc, char** argv) {
#ifdef CONSUMER_USES_MPI
  MPI_Init(&argc, &argv);
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int failed = ranks == 1 ? solve<step<1>>(mpi{MPI_COMM_WORLD}) : solve<step<4>>(mpi{MPI_COMM_WORLD});
  MPI_Finalize();
  return failed;
#else
  static_cast<void>(argc);
  static_cast<void>(argv);
  std::puts(explain<step<4>>().c_str());
  return solve<step<4>>(threads{}) + solve<step<4>>(simulated{}) + solve<step<1>>(serial{});
#endif
}
