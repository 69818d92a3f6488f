// SPDX-License-Identifier: Apache-2.0
// group: calls
// ranks: 2 3 4 8
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "../support/collective_oracle.hpp"
#include "gspmd/mpi.hpp"

// Movements that are too large for one synchronisation (small_shard_bytes), with and without shared memory: boxes with
// gaps, and permutations.

using namespace oracle;

namespace {

std::vector<mesh_shape> meshes() {
  int n = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  std::vector<mesh_shape> result{mesh_of({n})};
  if (n % 2 == 0 && n > 2) result.push_back(mesh_of({2, n / 2}));
  return result;
}
int everywhere(int wrong) {
  int sum = 0;
  MPI_Allreduce(&wrong, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return sum;
}

template <class T>
int wrong_in_movements(gspmd::mpi_communicator& comm, const mesh_shape& mesh, const extents& shape, int stride) {
  const auto shardings = all_shardings(mesh, shape.count);
  int wrong = 0, number = 0;
  for (const auto& from : shardings)
    for (const auto& to : shardings)
      if (number++ % stride == 0) wrong += wrong_after_move<T>(comm, mesh, movement_between(mesh, shape, from, to));
  return wrong;
}

}  // namespace

TEST_CASE("mpi: boxes with gaps, of one piece and of several") {
  for (const bool shared : {true, false}) {
    gspmd::mpi_communicator comm(MPI_COMM_WORLD, {.shared_memory = shared});
    for (const auto& mesh : meshes()) {
      const int stride = mesh.axis_count() == 1 ? 1 : 5;
      CHECK(everywhere(wrong_in_movements<float>(comm, mesh, shape_of({66, 257}), stride)) == 0);
      CHECK(everywhere(wrong_in_movements<double>(comm, mesh, shape_of({37, 3, 211}), 3 * stride)) == 0);
      CHECK(everywhere(wrong_in_movements<bool>(comm, mesh, shape_of({80, 1009}), stride)) == 0);
      CHECK(everywhere(wrong_in_movements<std::int64_t>(comm, mesh, shape_of({300, 801}), 3 * stride)) == 0);  // 1.9 MB
    }
  }
}

TEST_CASE("mpi: boxes with gaps, next to movements between buffers of which some are shared") {
  gspmd::mpi_communicator comm(MPI_COMM_WORLD);
  const std::int64_t n = comm.device_count(), elems = 5000 * n;
  const auto mesh = mesh_of({comm.device_count()});
  const auto shared_in_memory = comm.allocate(static_cast<std::size_t>(4 * elems));
  auto* const shared_in = reinterpret_cast<float*>(shared_in_memory.get());
  const auto shared_out_memory = comm.allocate(static_cast<std::size_t>(4 * elems));
  auto* const shared_out = reinterpret_cast<float*>(shared_out_memory.get());
  std::vector<float> own_in(static_cast<std::size_t>(elems)), own_out(own_in);
  const auto columns = movement_between(mesh, shape_of({2 * n, elems / 2}), split({{0, 0}}), split({{0, 1}}));
  const auto gather = movement_between(mesh, shape_of({2, elems / 2}), split({{0, 1}}), {});
  const auto rows = movement_between(mesh, shape_of({elems}), split({{0, 0}}), {});
  int wrong = 0;
  for (int round = 0; round < 300; ++round) {
    const bool is_private = round / 100 == 0 || (round / 100 == 1 ? round % 2 == 0 : (round + comm.device(0)) % n == 0);
    const float* in = is_private ? own_in.data() : shared_in;
    float* out = is_private ? own_out.data() : shared_out;
    std::fill_n(const_cast<float*>(in), elems, static_cast<float>(comm.device(0) + round));
    comm.move(mesh, round % 3 == 0 ? columns : round % 3 == 1 ? gather : rows, &in, &out);
    for (std::int64_t j = 0; j < n; ++j) {
      const auto block = round % 3 == 1 ? 2500 : 5000;
      wrong += out[j * block] != static_cast<float>(j + round) || out[j * block + block - 1] != static_cast<float>(j + round);
    }
  }
  CHECK(everywhere(wrong) == 0);
}

TEST_CASE("mpi: permutations of shards of which some lie in shared memory") {
  gspmd::mpi_communicator comm(MPI_COMM_WORLD);
  const int n = comm.device_count(), me = comm.device(0);
  if (n % 2 != 0 || n == 2) return;
  const auto mesh = mesh_of({2, n / 2});
  const auto from = split({{0, 0}, {1, 0}}), to = split({{1, 0}, {0, 0}});
  const int source = me % (n / 2) * 2 + me / (n / 2);  // the device that has this device's part of `to` under `from`
  const std::int64_t elems = 50'000;
  const auto swap = movement_between(mesh, shape_of({n * elems}), from, to);
  REQUIRE(classify(mesh, swap) == collective_kind::collective_permute);
  const auto shared_in_memory = comm.allocate(static_cast<std::size_t>(8 * elems));
  auto* const shared_in = reinterpret_cast<double*>(shared_in_memory.get());
  const auto shared_out_memory = comm.allocate(static_cast<std::size_t>(8 * elems));
  auto* const shared_out = reinterpret_cast<double*>(shared_out_memory.get());
  std::vector<double> own_in(static_cast<std::size_t>(elems)), own_out(own_in);
  int wrong = 0;
  for (int round = 0; round < 300; ++round) {
    const double* in = (round + me) % 3 == 0 || round < 50 ? own_in.data() : shared_in;
    double* out = (round + me) % 5 == 0 ? own_out.data() : shared_out;
    std::fill_n(const_cast<double*>(in), elems, me + 1000.0 * round);
    comm.move(mesh, swap, &in, &out);
    std::fill_n(const_cast<double*>(in), elems, -1.0);  // too late for a reader
    for (std::int64_t i = 0; i < elems; ++i) wrong += out[i] != source + 1000.0 * round;
  }
  CHECK(everywhere(wrong) == 0);
}
