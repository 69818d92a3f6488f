// SPDX-License-Identifier: Apache-2.0
// Stencils over MPI, compared with hand-written code with MPI_Isend and MPI_Irecv that computes the interior during the
// exchange. See stencil.cpp.
//
//   mpirun -n 2 mpi_stencil [rounds, 15]        with 4 processes, also meshes of 2 x 2
#include "gspmd/mpi.hpp"

#include "stencil.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const auto run = [&]<class Problem>(int count, const auto& visit) {
    if (rank >= count) return false;
    MPI_Comm some = MPI_COMM_NULL;
    MPI_Comm_create_group(
        MPI_COMM_WORLD,
        [&] {
          MPI_Group all, first;
          MPI_Comm_group(MPI_COMM_WORLD, &all);
          int range[1][3] = {{0, count - 1, 1}};
          MPI_Group_range_incl(all, 1, range, &first);
          MPI_Group_free(&all);
          return first;
        }(),
        0, &some);
    launch(gspmd::mpi{some}, count, [&](auto& comm) {
      const auto exchange = [&](bench::block<Problem>& own) {
        struct {
          MPI_Request of[8];
          int count;
        } begun;
        auto& requests = begun.of;
        MPI_Datatype types[2];
        int n = 0;
        for (int dim = 0; dim < 2; ++dim) {
          const auto layer = own.layer_of(dim, 0);
          MPI_Type_vector(static_cast<int>(layer.pieces), static_cast<int>(layer.length), static_cast<int>(layer.step),
                          MPI_DOUBLE, &types[dim]);
          MPI_Type_commit(&types[dim]);
          for (const int side : {-1, 1}) {
            const int peer = own.neighbour(dim, side);
            if (peer < 0) continue;
            double* const field = own.field[own.now].data();
            const auto ghost = own.layer_of(dim, side < 0 ? -1 : own.n[dim]),
                       edge = own.layer_of(dim, side < 0 ? 0 : own.n[dim] - 1);
            MPI_Irecv(field + ghost.begin, 1, types[dim], peer, dim, some, &requests[n++]);
            MPI_Isend(field + edge.begin, 1, types[dim], peer, dim, some, &requests[n++]);
          }
        }
        for (auto& type : types) MPI_Type_free(&type);
        begun.count = n;
        return [begun]() mutable { MPI_Waitall(begun.count, begun.of, MPI_STATUSES_IGNORE); };
      };
      visit(comm, exchange);
    });
    MPI_Comm_free(&some);
    return rank == 0;
  };
  bench::compare_all("MPI", ranks, rounds, run);
  MPI_Finalize();
}
