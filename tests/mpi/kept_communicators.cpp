// SPDX-License-Identifier: Apache-2.0
// group: compiled
// ranks: 2 3
#include <doctest/doctest.h>
#include <mpi.h>

#include <vector>

#include "gspmd/index.hpp"
#include "gspmd/mpi.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/run/compile.hpp"
#include "gspmd/run/run.hpp"
#include "gspmd/windows.hpp"

// launch stores its MPI objects with the user's communicator. MPI's functions have a second name (PMPI_*), so a program
// that defines the first name can call them.

namespace {
int made = 0, freed = 0;  // communicators
}

extern "C" {
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* made_comm) {
  ++made;
  return PMPI_Comm_dup(comm, made_comm);
}
int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* made_comm) {
  ++made;
  return PMPI_Comm_create_group(comm, group, tag, made_comm);
}
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* made_comm) {
  ++made;
  return PMPI_Comm_split_type(comm, type, key, info, made_comm);
}
int MPI_Comm_free(MPI_Comm* comm) {
  ++freed;
  return PMPI_Comm_free(comm);
}
}

using namespace gspmd;

constexpr auto program = [](auto x) { return sum(x * 2.0); };
using total_of_two = compile<program, mesh<axis<"x", 2>>, input<double, shape<12>, split<"x">>>;
using total_of_three = compile<program, mesh<axis<"x", 3>>, input<double, shape<12>, split<"x">>>;

double total(int ranks, const mpi& backend) {
  const std::vector<double> x(12, 1.0);
  return ranks == 2 ? *run<total_of_two>(backend, x).data() : *run<total_of_three>(backend, x).data();
}

TEST_CASE("launch keeps what it makes until the communicator is freed") {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm own = MPI_COMM_NULL;
  PMPI_Comm_dup(MPI_COMM_WORLD, &own);
  for (const bool shares_memory : {true, false}) {
    const mpi backend{own, {.shared_memory = shares_memory}};
    made = 0;
    CHECK(total(ranks, backend) == 24.0);
    CHECK(made > 0);
    made = 0;
    for (int i = 0; i < 3; ++i) CHECK(total(ranks, backend) == 24.0);
    CHECK(made == 0);
  }
  MPI_Comm copy = MPI_COMM_NULL;
  PMPI_Comm_dup(own, &copy);
  freed = 0;
  PMPI_Comm_free(&copy);  // stores nothing of gspmd
  CHECK(freed == 0);
  PMPI_Comm_free(&own);
  CHECK(freed == 6);  // two duplicates and a group for each set of options
  made = 0;
  CHECK(total(ranks, mpi{MPI_COMM_WORLD}) == 24.0);  // MPI_Finalize frees the objects of this call
  CHECK(made > 0);
}
