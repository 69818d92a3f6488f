// SPDX-License-Identifier: Apache-2.0
// Indices, order and random numbers over MPI on two processes, compared with hand-written code with MPI's own calls:
// see lookups.hpp.
//
//   mpirun -n 2 mpi_lookups [rounds, 15] [embedding, sums, along or order]
#include "gspmd/mpi.hpp"

#include <cstddef>
#include <cstdlib>
#include <vector>

#include "lookups.hpp"

namespace {

struct by_messages {
  static constexpr const char* where = ", MPI";
  int me;
  std::vector<std::byte> received = {};

  void meet() const { MPI_Barrier(MPI_COMM_WORLD); }
  template <class T>
  const T* others(const T* x, std::int64_t n) {
    const auto bytes = static_cast<std::size_t>(n) * sizeof(T);
    if (received.size() < bytes) received.resize(bytes);
    MPI_Sendrecv(x, static_cast<int>(bytes), MPI_BYTE, 1 - me, 0, received.data(), static_cast<int>(bytes), MPI_BYTE, 1 - me, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return reinterpret_cast<const T*>(received.data());
  }
  void sum_halves(const float* part, std::int64_t n, float* half) const {
    MPI_Reduce_scatter_block(part, half, static_cast<int>(n), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  void sum(const float* part, std::int64_t n, float* all) const {
    MPI_Allreduce(part, all, static_cast<int>(n), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  gspmd::launch(gspmd::mpi{}, 2, [&](auto& comm) {
    by_messages hand{comm.device(0)};
    bench::look_up_all(comm, hand, argc > 1 ? std::atoi(argv[1]) : 15, argc > 2 ? argv[2] : "");
  });
  MPI_Finalize();
}
