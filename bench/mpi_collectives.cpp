// SPDX-License-Identifier: Apache-2.0
// The collectives of the mpi backend, compared with the MPI call that an expert would write for only this collective,
// interleaved. The rows "shared" have buffers from mpi_communicator::allocate; the MPI call gets the same buffers.
// Medians in microseconds over the slower rank. The ratio is of times measured next to each other: median and middle
// half.
//
// With 4 ranks, there is also a permutation, which needs this number of ranks: two axes of one dim are exchanged. So
// ranks 1 and 2 exchange their shards and the other ranks keep their shards.
//
//   mpirun -n 2 mpi_collectives [largest size in MiB, 64]
//   mpirun -n 2 mpi_collectives messages [largest size in MiB, 64]     without memory that the ranks share, as between
//                                                                      nodes
//   mpirun -n 2 mpi_collectives joined [values, 4]     several values in one message, with copies, against one message
//                                                      for each value; most_joined_bytes (detail/support/tuning.hpp) is
//                                                      the limit that this measures
#include "gspmd/detail/transport/meeting_subject.hpp"
#include "gspmd/mpi.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <vector>

#include "race.hpp"

namespace {

using namespace gspmd::detail;

sharding split(int axis, int dim) {
  sharding s;
  s.add_split(axis, dim);
  return s;
}
extents shape_of(std::int64_t rows, std::int64_t columns) {
  extents shape;
  shape.push_back(rows);
  shape.push_back(columns);
  return shape;
}

/// `other`: the name of the second implementation.
void compare(const char* name, std::int64_t bytes, const std::function<void()>& ours, const std::function<void()>& theirs,
             const char* other = "MPI") {
  const int repeats = bytes <= 4096 ? 500 : bytes <= (1 << 18) ? 100 : bytes <= (1 << 20) ? 10 : 1;
  const int rounds = bytes <= (1 << 20) ? 16 : bytes <= (1 << 24) ? 20 : 8;
  bench::race_times times;
  for (int round = -2; round < rounds; ++round) {
    double took[2] = {};
    for (int k = 0; k < 2; ++k) {
      const int v = round % 2 == 0 ? k : 1 - k;
      MPI_Barrier(MPI_COMM_WORLD);
      const double begin = MPI_Wtime();
      for (int i = 0; i < repeats; ++i) v == 0 ? ours() : theirs();
      const double mine = (MPI_Wtime() - begin) / repeats * 1e3;
      MPI_Allreduce(&mine, &took[v], 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    }
    if (round >= 0) times.add(took[0], took[1]);
  }
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (rank == 0) times.print(std::string(name) + ", " + std::to_string(ranks) + " ranks, " + bench::bytes_text(bytes), other);
}

void run(gspmd::mpi_communicator& comm, std::int64_t largest) {
  const std::int64_t p = comm.device_count();
  mesh_shape mesh;
  mesh.sizes.push_back(static_cast<std::int32_t>(p));
  std::vector<std::int64_t> sizes{8};
  for (std::int64_t bytes = 1024; bytes <= largest; bytes *= 4) sizes.push_back(bytes);
  const auto shared_in_memory = comm.allocate(static_cast<std::size_t>(largest));
  auto* const shared_in = reinterpret_cast<float*>(shared_in_memory.get());
  const auto shared_out_memory = comm.allocate(static_cast<std::size_t>(largest));
  auto* const shared_out = reinterpret_cast<float*>(shared_out_memory.get());
  std::fill_n(shared_in, largest / 4, 0.0F);
  std::fill_n(shared_out, largest / 4, 0.0F);
  for (const auto bytes : sizes) {
    const std::int64_t n = bytes / 4;  // of the local buffer: the larger of in and out
    std::vector<float> a(static_cast<std::size_t>(n)), b(static_cast<std::size_t>(n));
    const float* in = a.data();
    float* out = b.data();
    float* place = a.data();
    const int count = static_cast<int>(n), part = static_cast<int>(n / p);
    sharding partial;
    partial.partial = 1;

    const auto all = numbered(mesh, reduction{shape_of(1, n), partial, {}, 1, gspmd::monoid::add});
    compare(
        "all_reduce in place", bytes, [&] { comm.reduce(mesh, all, &in, &place); },
        [&] { MPI_Allreduce(MPI_IN_PLACE, place, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
    if (part == 0 || bytes < 1024) continue;
    const float* const fast_in = shared_in;
    compare(
        "all_reduce, shared", bytes, [&] { comm.reduce(mesh, all, &fast_in, &shared_in); },
        [&] { MPI_Allreduce(MPI_IN_PLACE, shared_in, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
    const auto scatter = numbered(mesh, reduction{shape_of(n, 1), partial, split(0, 0), 1, gspmd::monoid::add});
    compare(
        "reduce_scatter", bytes, [&] { comm.reduce(mesh, scatter, &in, &out); },
        [&] { MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
    const auto gather = numbered(mesh, movement{shape_of(n, 1), split(0, 0), {}, 1});
    compare(
        "all_gather", bytes, [&] { comm.move(mesh, gather, &in, &out); },
        [&] { MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD); });
    compare(
        "all_gather, shared", bytes, [&] { comm.move(mesh, gather, &fast_in, &shared_out); },
        [&] { MPI_Allgather(shared_in, part, MPI_FLOAT, shared_out, part, MPI_FLOAT, MPI_COMM_WORLD); });
    const auto columns = numbered(mesh, movement{shape_of(p, n), split(0, 0), split(0, 1), 1});
    compare(
        "all_to_all, contiguous", bytes, [&] { comm.move(mesh, columns, &in, &out); },
        [&] { MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD); });
    std::int64_t side = 1;
    while (p * side * side <= n) side *= 2;
    const std::int64_t width = n / side;  // rows to columns of a matrix: side / p rows of p * width
    const auto square = numbered(mesh, movement{shape_of(side, p * width), split(0, 0), split(0, 1), 1});
    std::vector<float> packed(static_cast<std::size_t>(n));
    compare(
        "all_to_all, by columns", bytes, [&] { comm.move(mesh, square, &in, &out); },
        [&] {
          const auto rows = side / p;
          for (std::int64_t j = 0; j < p; ++j)
            for (std::int64_t r = 0; r < rows; ++r)
              std::copy_n(in + r * p * width + j * width, width, packed.data() + (j * rows + r) * width);
          MPI_Alltoall(packed.data(), part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
        });
    const auto joined = numbered(mesh, movement{shape_of(side, width), split(0, 1), {}, 1});  // columns to a whole matrix
    compare(
        "all_gather, by columns", bytes, [&] { comm.move(mesh, joined, &in, &out); },
        [&] {
          MPI_Allgather(in, part, MPI_FLOAT, packed.data(), part, MPI_FLOAT, MPI_COMM_WORLD);
          for (std::int64_t j = 0; j < p; ++j)
            for (std::int64_t r = 0; r < side; ++r)
              std::copy_n(packed.data() + (j * side + r) * (width / p), width / p, out + r * width + j * (width / p));
        });
    if (p != 4) continue;
    mesh_shape grid;
    grid.sizes.push_back(2);
    grid.sizes.push_back(2);
    auto from = split(0, 0), to = split(1, 0);
    from.add_split(1, 0);
    to.add_split(0, 0);
    const auto permutation = numbered(grid, movement{shape_of(4 * n, 1), from, to, 3});
    const int me = comm.device(0), peer = me == 1 ? 2 : 1;
    compare(
        "permute", bytes, [&] { comm.move(grid, permutation, &in, &out); },
        [&] {
          if (me == 0 || me == 3) std::copy_n(in, n, out);
          else MPI_Sendrecv(in, count, MPI_FLOAT, peer, 0, out, count, MPI_FLOAT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        });
  }
}

/// Compares one message for all values with one message for each value. `bytes` are those of one value.
void run_joined(gspmd::mpi_communicator& comm, std::int64_t values) {
  const std::int64_t p = comm.device_count();
  mesh_shape mesh;
  mesh.sizes.push_back(static_cast<std::int32_t>(p));
  constexpr const char* other = "one message for each value";
  const std::string reduced = "all_reduce of " + std::to_string(values) + " values in one message",
                    gathered = "all_gather of " + std::to_string(values) + " values in one message";
  for (std::int64_t bytes = 1024; bytes <= 256 * 1024; bytes *= 2) {
    const std::int64_t n = bytes / 4;
    std::vector<float> a(static_cast<std::size_t>(n * values)), b(a.size()), packed(a.size()), made(a.size());
    sharding partial;
    partial.partial = 1;
    const auto one = numbered(mesh, reduction{shape_of(1, n), partial, {}, 1, gspmd::monoid::add});
    const auto all = numbered(mesh, reduction{shape_of(1, n * values), partial, {}, 1, gspmd::monoid::add});
    const auto in_one = [&](std::int64_t from, std::int64_t to, auto message) {  // elements of one value before and after it
      for (std::int64_t v = 0; v < values; ++v) std::copy_n(a.data() + v * from, from, packed.data() + v * from);
      const float* in = packed.data();
      float* out = made.data();
      message(&in, &out);
      for (std::int64_t v = 0; v < values; ++v) std::copy_n(made.data() + v * to, to, b.data() + v * to);
    };
    const auto each = [&](std::int64_t from, std::int64_t to, auto message) {
      for (std::int64_t v = 0; v < values; ++v) {
        const float* in = a.data() + v * from;
        float* out = b.data() + v * to;
        message(&in, &out);
      }
    };
    compare(
        reduced.c_str(), bytes, [&] { in_one(n, n, [&](auto in, auto out) { comm.reduce(mesh, all, in, out); }); },
        [&] { each(n, n, [&](auto in, auto out) { comm.reduce(mesh, one, in, out); }); }, other);
    const auto gather_one = numbered(mesh, movement{shape_of(n, 1), split(0, 0), {}, 1});
    const auto gather_all = numbered(mesh, movement{shape_of(n * values, 1), split(0, 0), {}, 1});
    compare(
        gathered.c_str(), bytes, [&] { in_one(n / p, n, [&](auto in, auto out) { comm.move(mesh, gather_all, in, out); }); },
        [&] { each(n / p, n, [&](auto in, auto out) { comm.move(mesh, gather_one, in, out); }); }, other);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    const std::string_view what = argc > 1 ? argv[1] : "";
    const bool by_messages = what == "messages";
    gspmd::mpi_communicator comm(MPI_COMM_WORLD, {.shared_memory = !by_messages});
    if (what == "joined") run_joined(comm, argc > 2 ? std::atoll(argv[2]) : 4);
    else if (by_messages) run(comm, (argc > 2 ? std::atoll(argv[2]) : 64) << 20);
    else run(comm, (argc > 1 ? std::atoll(argv[1]) : 64) << 20);
  }
  MPI_Finalize();
}
