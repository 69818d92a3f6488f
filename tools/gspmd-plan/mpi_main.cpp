// SPDX-License-Identifier: Apache-2.0
// The same over MPI, one device per process: mpirun -n 8 gspmd-plan-mpi FILE --run in --out out
// output: gspmd-plan-mpi
// package: nlohmann_json
// args: --help
// ranks: 2

#include <cstdio>

#include <gspmd/dynamic/program.hpp>
#include <gspmd/mpi.hpp>
#include <gspmd/program/printable.hpp>

#include "application.hpp"

using namespace plan_tool;

constexpr const char* usage =
    "usage: mpirun -n RANKS gspmd-plan-mpi FILE [--json] [--run DIR --out DIR] [--check] [--checked]\n"
    "                                      [--explain VALUE] [--collectives] [--from VALUE] [--to VALUE] [--scope PATH]\n"
    "                                      [--all] [--bytes] [--compare OTHER] [--dot FILE] [--svg FILE [--value NAME]]\n"
    "                                      [--report most-expensive|summary|outline|memory] [--timeline FILE] [--layers FILE]\n"
    "                                      [--html FILE] [--network FILE] [--work N] [--seconds N]\n"
    "  a run needs one rank for each device of the mesh; every process reads the inputs, the first process writes\n";

/// Returns the lowest process that is not sound, or the number of processes if all are sound.
int first_failed(bool sound, int rank, int ranks) {
  int mine = sound ? ranks : rank;
  int lowest = ranks;
  MPI_Allreduce(&mine, &lowest, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return lowest;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  options o;
  int status = answer_usage(usage, argc, argv, o, rank == 0);
  if (status < 0 && !o.backend.empty() && o.backend != "mpi") {
    if (rank == 0)
      std::fprintf(stderr, "--backend %s: gspmd-plan-mpi has only mpi\n%s", gspmd::printable(o.backend).c_str(), usage);
    status = 2;
  }
  if (status < 0 && o.search) {
    if (rank == 0) std::fputs("--search would end at another plan on each process; run gspmd-plan --search first\n", stderr);
    status = 2;
  }
  if (status < 0 && o.file == "-") {
    if (rank == 0) std::fprintf(stderr, "the standard input reaches one process only; give a file\n%s", usage);
    status = 2;
  }
  if (status < 0) {
    o.backend = "mpi";
    surroundings here;  // no colours: under mpirun, a process cannot see whether there is a terminal
    here.devices_here = 1;
    here.most_devices = ranks;
    here.writes = rank == 0;
    here.launch = [](const gspmd::dynamic::program& p, const std::vector<const void*>& inputs) {
      return p.run(gspmd::mpi{MPI_COMM_WORLD}, inputs);
    };
    here.agree = [&](bool sound) { return first_failed(sound, rank, ranks) == ranks; };
    const report r = run_application(o, here);
    // Only one process prints: the first one that failed, or else process 0.
    const int failed = first_failed(r.status == 0, rank, ranks);
    status = failed < ranks ? 1 : 0;
    if (rank == (failed < ranks ? failed : 0)) status = say(r);
  }
  MPI_Finalize();
  return status;
}
