// SPDX-License-Identifier: Apache-2.0
// group: calls
// ranks: 2 3 4
// two nodes: 4
// Started reductions give the same bits as blocking reductions, in the order of the members, for every kind of
// transport. Any number of reductions can be in progress, and other work in between gives right results.
#include "gspmd/mpi.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../support/sanitized.hpp"
#include "../support/started_reductions.hpp"

using namespace oracle;

namespace {

int world_size() {
  int n = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  return n;
}
std::vector<mesh_shape> meshes() {
  const int n = world_size();
  std::vector<mesh_shape> result{mesh_of({n}), mesh_of({1, n})};
  if (n == 4) result.push_back(mesh_of({2, 2}));
  return result;
}
int everywhere(int wrong) {
  int sum = 0;
  MPI_Allreduce(&wrong, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return sum;
}
using options = gspmd::mpi_options;
/// Messages in pieces, the window of a node, and shards that are all too large for the window.
const std::vector<options> ways{options{false}, options{false, 50}, options{true}, options{true, 1000, 0}};

}  // namespace

TEST_CASE("mpi: started reductions between all shardings, of every element type and monoid") {
  for (const auto& how : ways) {
    gspmd::mpi_communicator comm(MPI_COMM_WORLD, how);
    by_starting<gspmd::mpi_communicator> started{comm};
    for (const auto& mesh : meshes()) {
      const int stride = (mesh.axis_count() == 1 ? 3 : 11) * (reference::is_sanitized ? 3 : 1);
      for (const auto& shape : {shape_of({0}), shape_of({1}), shape_of({7}), shape_of({64})})
        CHECK(everywhere(wrong_in_all_pairs<std::int64_t>(started, mesh, shape, stride)) == 0);
      for (const auto& shape : {shape_of({5, 4}), shape_of({3, 3}), shape_of({80, 100})})
        CHECK(everywhere(wrong_in_all_pairs<float>(started, mesh, shape, 3 * stride, 1, !how.shared_memory)) == 0);
    }
    const auto line = mesh_of({world_size()});
    CHECK(everywhere(wrong_in_all_monoids<float>(started, line, !how.shared_memory)) == 0);
    CHECK(everywhere(wrong_in_all_monoids<double>(started, line, !how.shared_memory)) == 0);
    CHECK(everywhere(wrong_in_all_monoids<std::int32_t>(started, line)) == 0);
    CHECK(everywhere(wrong_in_all_monoids<bool>(started, line)) == 0);
    CHECK(everywhere(wrong_in_all_monoids<gspmd::bf16>(started, line)) == 0);
    CHECK(everywhere(wrong_in_all_monoids<std::uint8_t>(started, line)) == 0);
    CHECK(everywhere(wrong_in_all_monoids<std::uint32_t>(started, line)) == 0);
  }
}

TEST_CASE("mpi: several started reductions at once, with other collectives between") {
  for (const auto& how : ways) {
    gspmd::mpi_communicator comm(MPI_COMM_WORLD, how);
    constexpr std::size_t room = 400'000;
    const auto shared = comm.allocate(room);
    for (unsigned seed = 0; seed < (reference::is_sanitized ? 6U : 15U); ++seed)
      for (const auto& mesh : meshes()) {
        CAPTURE(seed);
        // the buffers are shared, not shared, or shared while memory is left
        const std::size_t places = seed % 3 == 0 ? room : seed % 3 == 1 ? 0 : 20'000;
        CHECK(everywhere(wrong_of_several<std::int64_t>(comm, mesh, seed, {shared.get(), places})) == 0);
        if (!how.shared_memory) CHECK(everywhere(wrong_of_several<double>(comm, mesh, 1000 + seed, {shared.get(), places})) == 0);
      }
  }
}
