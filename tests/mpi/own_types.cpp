// SPDX-License-Identifier: Apache-2.0
// labels: once
// ranks: 3
// two nodes: 3
// A user's element types: MPI transfers them as bytes, and the library adds them.
#include <doctest/doctest.h>

#include "support/own_numbers.hpp"

#include "gspmd/mpi.hpp"

TEST_CASE("programs of the user's own element types over MPI") {
  using namespace own_numbers;
  using three = mesh<axis<"x", 3>>;
  const mpi world{MPI_COMM_WORLD};
  const residue_case residues;
  CHECK(residues.wrong(run<residue_step<three, split<"x", _>, split<_, "x">>>(world, residues.x.of, residues.w.of, residues.rows,
                                                                              residues.updates.of)) == 0);
  const dual_case duals;
  CHECK(duals.wrong(run<dual_step<three, split<_, "x", _>, split<"x", _>>>(world, duals.x.of, duals.w.of)) == 0);
}
