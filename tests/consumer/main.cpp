// SPDX-License-Identifier: Apache-2.0
#include <gspmd/gspmd.hpp>
#ifdef CONSUMER_USES_MPI
#include <gspmd/comm/mpi.hpp>
#endif

int main() {}
