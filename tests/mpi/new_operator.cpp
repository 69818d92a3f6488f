// SPDX-License-Identifier: Apache-2.0
// labels: once
// group: compiled
// ranks: 4
#include "extend/new_operator/program.hpp"

#include <doctest/doctest.h>

#include "gspmd/mpi.hpp"

TEST_CASE("an operator of the tests' own runs over MPI") { CHECK(new_operator::wrong_elements(gspmd::mpi{}) == 0); }
