// SPDX-License-Identifier: Apache-2.0
#include "over_mpi.hpp"

#include <gspmd/dynamic.hpp>
#include <gspmd/mpi.hpp>

#include <cstdio>

#include "command_line.hpp"

std::vector<gspmd::dynamic::any_array> run_over_mpi(const gspmd::dynamic::program& program,
                                                    const std::vector<const void*>& inputs) {
  return program.run_pointers(gspmd::mpi{MPI_COMM_WORLD}, inputs);
}

std::vector<gspmd::dynamic::any_array> run_native_over_mpi(const gspmd::dynamic::native_code& program,
                                                           const std::vector<const void*>& inputs) {
  return program.run_pointers(gspmd::mpi{MPI_COMM_WORLD}, inputs);
}

int over_mpi(int argc, char** argv, const char* usage, const std::function<int(int, bool)>& body) {
  const gspmd::mpi_environment env(argc, argv);
  if (env.rank() != 0 && std::freopen("/dev/null", "w", stdout) == nullptr) MPI_Abort(MPI_COMM_WORLD, 1);
  return command_line::report_usage_errors(usage, env.rank() == 0, [&] { return body(env.size(), env.rank() == 0); });
}
