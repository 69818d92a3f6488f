// SPDX-License-Identifier: Apache-2.0
// main() of the MPI tests. Every rank runs every test case. The first failure on any rank ends all ranks, because
// other ranks may wait in a collective for the failed rank.
#define DOCTEST_CONFIG_IMPLEMENT
#define DOCTEST_CONFIG_NO_POSIX_SIGNALS  // MPI_Abort ends other ranks by a signal; only the first failure matters
#include <doctest/doctest.h>
#include <mpi.h>

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  doctest::Context context(argc, argv);
  context.setOption("abort-after", 1);
  if (rank != 0) context.setOption("minimal", true);  // prints only what fails
  if (int const failed = context.run(); failed != 0) MPI_Abort(MPI_COMM_WORLD, failed);
  MPI_Finalize();
}
