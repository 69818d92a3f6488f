// SPDX-License-Identifier: Apache-2.0
// The same over MPI, one device per process: mpirun -n 4 digits-mpi --devices 2x2
// args: --expect 96 --compare
// ranks: 1 2 4

#include "tasks.hpp"

#include <gspmd/mpi.hpp>

using namespace digits;

constexpr const char* usage =
    "usage: mpirun -n RANKS digits-mpi [--devices DxM] [--epochs N] [--expect PERCENT] [--compare]\n"
    "  --devices DxM      D ranks share the batch, M the hidden layer (the first mesh of RANKS devices)\n"
    "  --epochs N         how often every row is used (40)\n"
    "  --expect PERCENT   fail if the test accuracy is less (0)\n"
    "  --compare          then show that MPI and one device agree after 50 steps\n";

std::string first_mesh_of(int ranks) {
  std::string name;
  for_each_mesh([&]<class Mesh>(std::type_identity<Mesh>) {
    if (name.empty() && Mesh::device_count == ranks) name = name_of_mesh<Mesh>();
  });
  if (name.empty()) throw error("no mesh of " + std::to_string(ranks) + " devices is compiled in; there are " + all_meshes());
  return name;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (rank != 0 && std::freopen("/dev/null", "w", stdout) == nullptr) MPI_Abort(MPI_COMM_WORLD, 1);  // only one process prints

  const int result = report_errors(usage, [&] {
    const digits::options o = parse(argc, argv);
    if (o.asks_for_help) return help(usage);
    if (!o.backend.empty()) throw usage_error("--backend: digits-mpi has only MPI");
    return with_mesh(o.devices.empty() ? first_mesh_of(ranks) : o.devices, [&]<class Mesh>(std::type_identity<Mesh>) {
      const digits_data data = read_digits(GSPMD_EXAMPLE_DIR "/digits.csv");
      const mpi backend{MPI_COMM_WORLD};
      return run_all<Mesh>(o, backend, data, [&](comparison& c) { c.add<Mesh>("mpi", backend, data); });
    });
  });
  MPI_Finalize();
  return result;
}
