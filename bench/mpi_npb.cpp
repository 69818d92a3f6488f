// SPDX-License-Identifier: Apache-2.0
// Kernels of the NAS Parallel Benchmarks in class W over MPI: the programs of examples/npb, planned at run time, with
// native code, on shards. Compared with hand-written MPI code on the same processes, alternately. Medians over the
// slower rank; both must give the published numbers.
//
//   mpirun -n 2 mpi_npb [rounds, 5]
#include "gspmd/mpi.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "../examples/npb/cg.hpp"
#include "../examples/npb/ep.hpp"
#include "../examples/npb/ft.hpp"
#include "../examples/npb/is.hpp"
#include "../examples/npb/mg.hpp"
#include "gspmd/dynamic/session.hpp"
#include "gspmd/native/native_code.hpp"
#include "npb_by_hand.hpp"
#include "race_over_mpi.hpp"

namespace {

using namespace gspmd;
using std::int64_t;
using doubles = std::vector<double>;

int rank_here = 0, ranks = 0;

void check(const char* what, double computed, double published, double tolerance) {
  if (std::fabs(computed - published) <= tolerance * std::fabs(published)) return;
  std::printf("WRONG: %s: %.15g, published %.15g\n", what, computed, published);
  MPI_Abort(MPI_COMM_WORLD, 1);
}
dynamic::mesh all_ranks() { return dynamic::mesh({{"devices", ranks}}); }
dynamic::native_code native(const dynamic::program& program) {
  dynamic::native_code code(program);
  if (!code.is_used() && rank_here == 0) std::printf("no native code: %s\n", code.why_not().c_str());
  return code;
}

// ---- ep: a batch of numbers, then its pairs ----

struct ep_sums {
  double x = 0, y = 0;
  int64_t counts[10]{};
};
ep_sums ep_by_hand(int log_pairs) {
  constexpr int64_t batch = 1 << 12;
  const int64_t batches = (int64_t{1} << log_pairs) / batch / ranks;
  ep_sums mine;
  std::vector<double> numbers(2 * batch);
  std::uint64_t seed =
      271'828'183 * npb::power_of_multiplier(static_cast<std::uint64_t>(2 * batch * batches * rank_here)) % npb::modulus;
  for (int64_t b = 0; b < batches; ++b) {
    for (double& u : numbers) {
      seed = seed * npb::multiplier % npb::modulus;
      u = 2.0 * (static_cast<double>(seed) / static_cast<double>(npb::modulus)) - 1.0;
    }
    for (std::size_t i = 0; i < numbers.size(); i += 2) {
      const double u = numbers[i], v = numbers[i + 1], t = u * u + v * v;
      if (t > 1.0) continue;
      const double factor = std::sqrt(-2.0 * std::log(t) / t), x = u * factor, y = v * factor;
      ++mine.counts[static_cast<std::size_t>(std::max(std::fabs(x), std::fabs(y)))];
      mine.x += x;
      mine.y += y;
    }
  }
  double sums[] = {mine.x, mine.y};
  MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, mine.counts, 10, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  mine.x = sums[0];
  mine.y = sums[1];
  return mine;
}
void race_ep(int rounds) {
  const auto p = npb::ep::of_class('W');
  const auto program = dynamic::compile(npb::ep::program(p.log_pairs), all_ranks(), dynamic::input<std::uint64_t>({}));
  const auto code = native(program);
  launch(mpi{MPI_COMM_WORLD}, ranks, [&](auto& comm) {
    dynamic::session session(program, code);
    const std::uint64_t seed = 271'828'183;
    double x = 0, y = 0;
    std::int32_t counts[10];
    const void* const in[] = {&seed};
    void* const out[] = {&x, &y, counts};
    ep_sums hand;
    bench::race_over_mpi(
        "NPB EP, class W", rounds, 1.05, "hand-written", [&] { session.run(comm, in, out); },
        [&] { hand = ep_by_hand(p.log_pairs); });
    for (const double sum : {x, hand.x}) check("ep's sum of x", sum, p.sum_x, 1e-8);
    for (const double sum : {y, hand.y}) check("ep's sum of y", sum, p.sum_y, 1e-8);
  });
}

// ---- cg: rows of a rank; the multiplied vector is gathered ----

double cg_by_hand(const npb::cg::problem& p, const npb::cg::compressed_rows& a) {
  const auto rows = static_cast<std::size_t>(p.n / ranks), first = rows * static_cast<std::size_t>(rank_here);
  const auto sum_of = [&](const doubles& v, const doubles& w) {
    double sum = std::inner_product(v.begin(), v.end(), w.begin(), 0.0);
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum;
  };
  doubles x(rows, 1.0), z(rows), r(rows), d(rows), q(rows), whole(static_cast<std::size_t>(p.n));
  double zeta = 0;
  for (int64_t step = 0; step < npb::cg::steps; ++step) {
    std::fill(z.begin(), z.end(), 0.0);
    r = d = x;
    double rho = sum_of(r, r);
    for (int64_t trip = 0; trip < npb::cg::trips; ++trip) {
      MPI_Allgather(d.data(), static_cast<int>(rows), MPI_DOUBLE, whole.data(), static_cast<int>(rows), MPI_DOUBLE,
                    MPI_COMM_WORLD);
      for (std::size_t i = 0; i < rows; ++i) {
        double sum = 0;
        for (auto k = static_cast<std::size_t>(a.row_start[first + i]); k < static_cast<std::size_t>(a.row_start[first + i + 1]);
             ++k)
          sum += a.values[k] * whole[static_cast<std::size_t>(a.columns[k])];
        q[i] = sum;
      }
      const double alpha = rho / sum_of(d, q);
      for (std::size_t i = 0; i < rows; ++i) {
        z[i] += alpha * d[i];
        r[i] -= alpha * q[i];
      }
      const double next = sum_of(r, r), beta = next / rho;
      for (std::size_t i = 0; i < rows; ++i) d[i] = r[i] + beta * d[i];
      rho = next;
    }
    zeta = p.shift + 1.0 / sum_of(x, z);
    const double norm = std::sqrt(sum_of(z, z));
    for (std::size_t i = 0; i < rows; ++i) x[i] = z[i] / norm;
  }
  return zeta;
}
void race_cg(int rounds) {
  const auto p = npb::cg::of_class('W');
  const auto rows = npb::cg::matrix(p);
  const sparse_matrix<double> a(p.n, p.n, rows.row_start, rows.columns, rows.values, ranks);
  const auto program =
      dynamic::compile(npb::cg::program(p), all_ranks(), a.input<"devices">(), dynamic::input<double>({p.n}, {"devices"}));
  const auto code = native(program);
  launch(mpi{MPI_COMM_WORLD}, ranks, [&](auto& comm) {
    dynamic::session session(program, code);
    const doubles ones(static_cast<std::size_t>(p.n / ranks), 1.0);
    std::vector<const void*> in;
    const auto parts = static_cast<std::size_t>(ranks), mine = static_cast<std::size_t>(rank_here);
    std::apply([&](const auto&... part) { (in.push_back(part.data() + part.size() / parts * mine), ...); }, a.parts());
    in.push_back(ones.data());
    double zeta = 0, hand = 0;
    void* const out[] = {&zeta};
    bench::race_over_mpi(
        "NPB CG, class W", rounds, 1.05, "hand-written", [&] { session.run(comm, in.data(), out); },
        [&] { hand = cg_by_hand(p, rows); });
    for (const double found : {zeta, hand}) check("cg's zeta", found, p.zeta, 1e-10);
  });
}

// ---- is: each rank counts its keys; the counts are summed ----

void race_is(int rounds) {
  const auto p = npb::is::of_class('W');
  const int64_t count = int64_t{1} << p.log_keys, most = int64_t{1} << p.log_most, own = count / ranks;
  const auto program = dynamic::compile(npb::is::ranking(p), all_ranks(), dynamic::input<std::int32_t>({count}, {"devices"}),
                                        dynamic::input<std::int32_t>({5}, {""}));
  const auto code = native(program);
  const auto keys = npb::is::keys(p);
  launch(mpi{MPI_COMM_WORLD}, ranks, [&](auto& comm) {
    dynamic::session session(program, code);
    auto found = make_result<std::int32_t>(comm, program, 0), last = make_result<std::int32_t>(comm, program, 1),
         up_to = make_result<std::int32_t>(comm, program, 2);
    const std::vector<std::int32_t> mine(keys.begin() + own * rank_here, keys.begin() + own * (rank_here + 1));
    const void* const in[] = {mine.data(), p.places.data()};
    void* const out[] = {found.data(0), last.data(0), up_to.data(0)};
    std::vector<std::int32_t> now, counts(static_cast<std::size_t>(most)), ranks_by_hand(5 * npb::is::iterations);
    const auto by_hand = [&] {
      now = mine;
      const auto set = [&](int64_t place, int64_t key) {
        if (place / own == rank_here) now[static_cast<std::size_t>(place % own)] = static_cast<std::int32_t>(key);
      };
      for (int64_t i = 1; i <= npb::is::iterations; ++i) {
        set(i, i);
        set(i + npb::is::iterations, most - i);
        std::int32_t asked[5];
        for (std::size_t k = 0; k < 5; ++k)
          asked[k] = p.places[k] / own == rank_here ? now[static_cast<std::size_t>(p.places[k] % own)] : 0;
        MPI_Allreduce(MPI_IN_PLACE, asked, 5, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD);
        std::fill(counts.begin(), counts.end(), 0);
        for (const auto key : now) ++counts[static_cast<std::size_t>(key)];
        MPI_Allreduce(MPI_IN_PLACE, counts.data(), static_cast<int>(most), MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD);
        for (std::size_t k = 1; k < counts.size(); ++k) counts[k] += counts[k - 1];
        for (std::size_t k = 0; k < 5; ++k)
          ranks_by_hand[static_cast<std::size_t>(5 * (i - 1)) + k] =
              asked[k] == 0 ? 0 : counts[static_cast<std::size_t>(asked[k] - 1)];
      }
    };
    bench::race_over_mpi(
        "NPB IS, class W", rounds, 1.05, "hand-written", [&] { session.run(comm, in, out); }, by_hand);
    const auto whole = collect(comm, found);
    for (std::size_t k = 0; k < ranks_by_hand.size(); ++k)
      check("a rank of is", static_cast<double>(whole[static_cast<int64_t>(k)]), ranks_by_hand[k], 0);
    for (std::size_t k = 0; k < p.rising; ++k)
      check("a rank of is", ranks_by_hand[k], static_cast<double>(p.ranks[k] + 1 - p.late), 0);
  });
}

// ---- mg, ft: npb_by_hand.hpp ----

void race_mg(int rounds) {
  const auto p = npb::mg::of_class('W');
  const auto n = p.n, planes = n / ranks;
  const auto program = dynamic::compile(npb::mg::program, all_ranks(), dynamic::input<double>({n, n, n}, {"devices", "", ""}));
  const auto code = native(program);
  const auto charges = npb::mg::charges(n);
  launch(mpi{MPI_COMM_WORLD}, ranks, [&](auto& comm) {
    dynamic::session session(program, code);
    const double* const own = charges.data() + planes * rank_here * n * n;
    double norm = 0, by_hand = 0;
    const void* const in[] = {own};
    void* const out[] = {&norm};
    bench::mg_by_hand hand(static_cast<int>(n), ranks, rank_here);
    bench::race_over_mpi(
        "NPB MG, class W", rounds, 1.05, "hand-written", [&] { session.run(comm, in, out); },
        [&] { by_hand = hand.run(own, static_cast<int>(npb::mg::cycles)); });
    for (const double found : {norm, by_hand}) check("mg's residual", found, p.residual, 1e-8);
  });
}
void race_ft(int rounds) {
  const auto p = npb::ft::of_class('W');
  const auto program = dynamic::compile(npb::ft::program(p), all_ranks(), dynamic::input<std::uint64_t>({}));
  const auto code = native(program);
  launch(mpi{MPI_COMM_WORLD}, ranks, [&](auto& comm) {
    dynamic::session session(program, code);
    constexpr std::uint64_t seed = 314'159'265;
    std::array<npb::ft::number, npb::ft::times> sums{}, by_hand{};
    const void* const in[] = {&seed};
    void* const out[] = {sums.data()};
    bench::ft_by_hand hand(static_cast<int>(p.z), static_cast<int>(p.y), static_cast<int>(p.x), ranks, rank_here);
    const auto initial = [&](npb::ft::number* u) {
      const int64_t own = p.z * p.y * p.x / ranks;
      std::uint64_t x = seed * npb::power_of_multiplier(static_cast<std::uint64_t>(2 * own * rank_here)) % npb::modulus;
      const auto next = [&] {
        x = x * npb::multiplier % npb::modulus;
        return static_cast<double>(x) / static_cast<double>(npb::modulus);
      };
      for (int64_t i = 0; i < own; ++i) {
        const double re = next();
        u[i] = {re, next()};
      }
    };
    bench::race_over_mpi(
        "NPB FT, class W", rounds, 1.05, "hand-written", [&] { session.run(comm, in, out); },
        [&] { hand.run(initial, by_hand); });
    for (std::size_t t = 0; t < p.sums.size(); ++t)
      for (const auto found : {sums[t], by_hand[t]}) {
        check("a sum of ft", found.real(), p.sums[t].real(), 1e-12);
        check("a sum of ft", found.imag(), p.sums[t].imag(), 1e-12);
      }
  });
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_here);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  race_ep(rounds);
  race_cg(rounds);
  race_is(rounds);
  if (ranks <= 2) {  // the coarsest grid of mg has two planes
    race_mg(rounds);
    race_ft(rounds);
  } else if (rank_here == 0) {
    std::puts("mg, ft: on one or two ranks");
  }
  if (rank_here == 0) bench::all_targets.print();
  MPI_Finalize();
  return 0;
}
