// SPDX-License-Identifier: Apache-2.0
// labels: any_mpi
// ranks: 2 4
// group: run
// Manual regions over MPI, on a user's communicator, give the same values and gradients as on simulated devices.
#include "gspmd/modes/manual.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "gspmd/mpi.hpp"
#include "gspmd/run/run.hpp"

using namespace gspmd;

namespace manual_over_mpi {

/// A communicator with the ranks in another order than in MPI_COMM_WORLD. `each` consecutive ranks share a
/// communicator.
struct own_communicator {
  MPI_Comm is = MPI_COMM_NULL;
  explicit own_communicator(int each) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank / each, -rank, &is);
  }
  ~own_communicator() { MPI_Comm_free(&is); }
  own_communicator(const own_communicator&) = delete;
  own_communicator& operator=(const own_communicator&) = delete;
};

/// Every collective that a region can write, on a field of rows.
constexpr auto all_kinds = [](auto x, auto w) {
  auto whole = local::all_gather<"x", state::replica>(w, 0);
  auto y = tanh(einsum<"bd,df->bf">(local::halo<"x">(x, 1, 1, along(0)), whole));
  auto sent = local::start(local::rotate<"x">(local::reduce_scatter<"x">(y, 1)));
  auto turned = local::start(local::all_to_all<"x">(x, 0, 1));
  auto products = einsum<"bd,bd->">(x, x);
  auto z = local::finish(std::move(sent));
  auto added = local::start(local::all_reduce<"x", state::replica>(y));
  auto part = local::start(local::reduce_scatter<"x">(einsum<"bd,bf->df">(x, einsum<"bd,df->bf">(x, whole)), 0));
  auto gram = einsum<"bf,cf->bc">(y, y);
  auto further = einsum<"bf,cf->">(y, local::to_varying<"x">(local::finish(std::move(added)))) + einsum<"bc->">(gram) +
                 einsum<"df->">(local::finish(std::move(part)));
  return local::all_reduce<"x">(einsum<"bf,bf->">(z, z) + products + further) +
         local::all_reduce<"x">(einsum<"ab->">(local::finish(std::move(turned))));
};
constexpr auto with_gradients = [](auto x, auto w) {
  auto y = manual<"x">(all_kinds, takes<split<"x", _>, split<"x", _>>{}, gives<held<>>{})(x, w);
  auto g = grad(y, std::tuple{x, w});
  return std::tuple{y, std::get<0>(g), std::get<1>(g)};
};
std::vector<double> some(std::size_t n, int seed) {
  std::vector<double> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<double>((static_cast<int>(i) * 5 + seed) % 9 - 4) / 8;
  return v;
}

TEST_CASE("manual regions over MPI, planned at run time") {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const own_communicator comm(ranks);
  const auto check = [&](const dynamic::mesh& m, const dynamic::input_spec& of_x, const dynamic::input_spec& of_w) {
    const auto program = dynamic::compile(with_gradients, m, of_x, of_w);
    CHECK(program.traffic().bytes > 0);
    const auto x = some(32, 1), w = some(16, 2);
    const auto expected = program.run(simulated{}, x, w), found = program.run(mpi{comm.is}, x, w);
    for (std::size_t k = 0; k < 3; ++k)
      for (std::size_t i = 0; i < expected[k].bytes.size() / sizeof(double); ++i)
        CHECK(found[k].data<double>()[i] == doctest::Approx(expected[k].data<double>()[i]).epsilon(1e-12));
    return program.traffic().over("y").bytes;
  };
  check(dynamic::mesh({{"x", ranks}, {"y", 1}}), dynamic::input<double>({8, 4}), dynamic::input<double>({4, 4}));
  if (ranks != 4) return;
  // The planner splits the data of the region along the other axis.
  const auto sent_along_y = check(dynamic::mesh({{"x", 2}, {"y", 2}}), dynamic::input<double>({8, 4}, {"x", "y"}),
                                  dynamic::input<double>({4, 4}, {"x", "y"}));
  CHECK(sent_along_y > 0);
}

using two = mesh<axis<"x", 2>>;
using step = compile<with_gradients, two, with<options{.checked = true}>, input<double, shape<8, 4>, split<"x", _>>,
                     input<double, shape<4, 4>, split<"x", _>>>;

TEST_CASE("manual regions over MPI, planned when compiling, on each pair of ranks") {
  const own_communicator pair(2);
  array<double> x({8, 4}), w({4, 4});
  for (std::int64_t i = 0; i < x.size(); ++i) x[i] = some(32, 1)[static_cast<std::size_t>(i)];
  for (std::int64_t i = 0; i < w.size(); ++i) w[i] = some(16, 2)[static_cast<std::size_t>(i)];
  const auto expected = run<step>(simulated{}, x, w), found = run<step>(mpi{pair.is}, x, w);
  const auto are_equal = [](const auto& a, const auto& b) {
    for (std::int64_t i = 0; i < a.size(); ++i) CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-12));
  };
  CHECK(std::get<0>(found)[0] == doctest::Approx(std::get<0>(expected)[0]));
  are_equal(std::get<1>(found), std::get<1>(expected));
  are_equal(std::get<2>(found), std::get<2>(expected));
}

}  // namespace manual_over_mpi
