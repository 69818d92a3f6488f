// SPDX-License-Identifier: Apache-2.0
// labels: once exhaustive any_mpi
// ranks: 2
// timeout: 600
// slow: sends messages of more than 2^31 bytes
// Messages of more than 2^31 bytes, and collectives of more elements than an int can count. Both ranks together use at
// most 4.4 GiB. On a machine with less memory, the test prints that it skips.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gspmd/gspmd.hpp>
#include <gspmd/mpi.hpp>

#include "../support/large_memory.hpp"

namespace {

using namespace gspmd;
using std::int64_t;
using std::int8_t;

constexpr int64_t n = large::elems;
using pair_of_ranks = mesh<axis<"x", 2>>;

constexpr auto whole = [](auto x) { return replicate(x); };
constexpr auto next_row = [](auto x) { return shift(x, -1, along(0)); };
using gathered = compile<whole, pair_of_ranks, input<int8_t, shape<n>, split<"x">>>;
using moved = compile<next_row, pair_of_ranks, input<int8_t, shape<2, n>, split<"x", _>>>;
using summed = compile<whole, pair_of_ranks, input<int8_t, shape<n>, split<_>, partial<"x">>>;
static_assert(moved::traffic.bytes > int64_t{1} << 31 && moved::traffic.messages == 1);
static_assert(summed::collectives == collectives{all_reduce<"x">} && gathered::collectives == collectives{all_gather<"x">});
// Collectives write into the results, so no arena holds a second copy.
static_assert(gathered::view.arena_bytes == 0 && moved::view.arena_bytes == 0 && summed::view.arena_bytes == 0);

/// Returns the same value on all ranks, because all ranks must take part in a collective.
bool is_here() {
  const auto reason = large::why_not(2 * n + (int64_t{400} << 20));
  int is_short = reason.empty() ? 0 : 1;
  MPI_Allreduce(MPI_IN_PLACE, &is_short, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (is_short != 0) MESSAGE((reason.empty() ? std::string("skipped: another rank has too little memory") : reason));
  return is_short == 0;
}

template <class Step>
void run(mpi_communicator& comm, const int8_t* x, int8_t* y) {
  Step step;
  step(comm, x, y);
}

}  // namespace

TEST_CASE("large: an all_gather to more than 2^31 elements, through shared memory and by messages") {
  if (!is_here()) return;
  for (const bool shared_memory : {true, false}) {
    mpi_communicator comm(MPI_COMM_WORLD, {.shared_memory = shared_memory});
    const large::repeated x(large::pattern(comm.device(0)), n / 2);
    const auto y = large::unwritten(n);
    run<gathered>(comm, x.data(), y.get());
    for (int rank = 0; rank < 2; ++rank) CHECK(large::is_periodic(y.get() + rank * (n / 2), n / 2, large::pattern(rank)));
  }
}

TEST_CASE("large: a shard of more than 2^31 bytes goes to another rank") {
  if (!is_here()) return;
  mpi_communicator comm(MPI_COMM_WORLD);  // the message is too long for shared memory
  const large::repeated x(large::pattern(comm.device(0)), n);
  const auto y = large::unwritten(n);
  run<moved>(comm, x.data(), y.get());
  const auto once = comm.device(0) == 0 ? std::vector<int8_t>(static_cast<std::size_t>(large::period)) : large::pattern(0);
  CHECK(large::is_periodic(y.get(), n, once));  // no row precedes the first row
}

TEST_CASE("large: an all_reduce of more than 2^31 elements, whose sums wrap around") {
  if (!is_here()) return;
  mpi_communicator comm(MPI_COMM_WORLD);
  const large::repeated x(large::pattern(comm.device(0)), n);
  const auto y = large::unwritten(n);
  run<summed>(comm, x.data(), y.get());
  auto once = large::pattern(0);
  const auto other = large::pattern(1);
  for (std::size_t i = 0; i < once.size(); ++i) once[i] = static_cast<int8_t>(once[i] + other[i]);
  CHECK(large::is_periodic(y.get(), n, once));
}
