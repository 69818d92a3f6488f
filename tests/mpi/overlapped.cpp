// SPDX-License-Identifier: Apache-2.0
// labels: any_mpi
// ranks: 4
// two nodes: 4
// group: run
// A step that starts several gathers and reductions early gives the same results as a step with blocking collectives:
// by messages, within a node, and with both.
#include <doctest/doctest.h>

#include <tuple>
#include <vector>

#include <gspmd/gspmd.hpp>
#include <gspmd/plan/overlap.hpp>

#include "gspmd/mpi.hpp"

namespace overlapped_over_mpi {

using namespace gspmd;
using pod = mesh<axis<"data", 2>, axis<"model", 2>>;
constexpr auto train = [](auto x, auto w1, auto w2, auto w3) {
  const auto h1 = relu(einsum<"bd,df->bf">(x, w1));
  const auto h2 = relu(einsum<"bd,df->bf">(h1, w2));
  const auto y = einsum<"bd,df->bf">(h2, w3);
  const auto [g1, g2, g3] = grad(0.5 * sum(y * y), std::tuple{w1, w2, w3});
  return std::tuple{w1 - 0.5 * g1, w2 - 0.5 * g2, w3 - 0.5 * g3};
};
using weight = input<double, shape<64, 64>, split<"data", "model">>;
template <options Options = options{}>
using step_with = compile<train, pod, with<Options>, input<double, shape<1001, 64>, split<"data", _>>, weight, weight, weight>;

constexpr int started(const detail::plan_view& p) {
  int count = 0;
  for (const auto& s : p.steps) {
    count += detail::is<detail::kernels::start_move>(s) ? 1 : 0;
    count += detail::is<detail::kernels::start_combine>(s) ? 1 : 0;
  }
  return count;
}
static_assert(started(step_with<>::view) == 0);
static_assert(started(step_with<options{.overlap = true}>::view) >= 3);

/// The whole weights after two steps. They are integers and halves, so the order of sums has no effect.
template <class Step>
std::vector<double> trained(const mpi& backend) {
  std::vector<double> whole;
  array<double> x({1001, 64}), w[3] = {array<double>({64, 64}), array<double>({64, 64}), array<double>({64, 64})};
  unsigned seed = 3;
  const auto fill = [&](array<double>& a) {
    for (auto& e : a) e = static_cast<double>((seed = seed * 1664525U + 1013904223U) >> 30) - 1;
  };
  fill(x);
  for (auto& each : w) fill(each);
  for (int round = 0; round < 2; ++round) {
    auto [a, b, c] = run<Step>(backend, x, w[0], w[1], w[2]);
    w[0] = a, w[1] = b, w[2] = c;
    for (auto& each : w)
      for (auto& e : each) e = e - 4 * static_cast<double>(static_cast<long long>(e / 4));  // make the elements small again
  }
  for (const auto& each : w) whole.insert(whole.end(), each.begin(), each.end());
  return whole;
}

}  // namespace overlapped_over_mpi

TEST_CASE("mpi: an overlapped step is the step") {
  using namespace overlapped_over_mpi;
  std::vector<double> expected;
  for (const mpi_options& how : {mpi_options{}, mpi_options{.small_shard_bytes = 0}, mpi_options{.shared_memory = false},
                                 mpi_options{.shared_memory = false, .largest_count = 100}}) {
    const mpi backend{MPI_COMM_WORLD, how};
    const auto plain = trained<step_with<>>(backend);
    if (expected.empty()) expected = plain;
    CHECK(plain == expected);
    for (int again = 0; again < 3; ++again) CHECK(trained<step_with<options{.overlap = true}>>(backend) == expected);
  }
}
