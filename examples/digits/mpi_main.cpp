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
  const mpi_environment env(argc, argv);
  if (env.rank() != 0 && std::freopen("/dev/null", "w", stdout) == nullptr)
    MPI_Abort(MPI_COMM_WORLD, 1);  // only one process prints

  return report_usage_errors(usage, env.rank() == 0, [&] {
    const digits::options o = parse(argc, argv);
    if (o.asks_for_help) return help(usage);
    if (!o.backend.empty()) throw usage_error("--backend: digits-mpi has only MPI");
    return with_mesh(o.devices.empty() ? first_mesh_of(env.size()) : o.devices, [&]<class Mesh>(std::type_identity<Mesh>) {
      const digits_data data = read_digits(GSPMD_EXAMPLE_DIR "/digits.csv");
      const mpi backend{MPI_COMM_WORLD};
      return run_all<Mesh>(o, backend, data, [&](comparison& c) { c.add<Mesh>("mpi", backend, data); });
    });
  });
}
