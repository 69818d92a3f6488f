// SPDX-License-Identifier: Apache-2.0
// The same over MPI, one device per process: mpirun -n 4 digits-mpi --devices 2x2
// args: --expect 96 --compare
// ranks: 1 2 4

#include "tasks.hpp"

#include <gspmd/mpi.hpp>

#include "../common/processes.hpp"

using namespace digits;

std::string first_mesh_of(int ranks) {
  std::string name, all;
  for_each_mesh([&]<class Mesh>(std::type_identity<Mesh>) {
    if (name.empty() && Mesh::device_count == ranks) name = name_of_mesh<Mesh>();
    all += ' ' + name_of_mesh<Mesh>();
  });
  if (name.empty())
    throw examples::usage_error("digits-mpi: no compiled mesh has " + std::to_string(ranks) + " devices; the meshes are" + all);
  return name;
}

int main(int argc, char** argv) {
  return examples::run_processes(argc, argv, [&](int ranks) {
    const digits::options o = parse(argc, argv, "digits-mpi", true);
    return with_mesh(o.devices.empty() ? first_mesh_of(ranks) : o.devices, [&]<class Mesh>(std::type_identity<Mesh>) {
      const digits_data data = read_digits(GSPMD_EXAMPLE_DIR "/digits.csv");
      const mpi backend{MPI_COMM_WORLD};
      return run_all<Mesh>(o, backend, data, [&](comparison& c) { c.add<Mesh>("mpi", backend, data); });
    });
  });
}
