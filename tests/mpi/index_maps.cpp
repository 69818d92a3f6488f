// SPDX-License-Identifier: Apache-2.0
// labels: exhaustive
// group: calls
// ranks: 2 3 4
// two nodes: 4
// Movements with index maps over MPI: through shared memory, in place, and by messages.
#include <doctest/doctest.h>
#include <mpi.h>

#include <random>

#include "../support/mapped_movements.hpp"
#include "../support/reshaped_movements.hpp"
#include "gspmd/mpi.hpp"

using namespace oracle;

namespace {

/// Carries out movements on buffers from mpi_communicator::allocate.
struct through_shared_memory {
  gspmd::mpi_communicator& comm;
  std::byte* in_memory;
  std::byte* out_memory;

  [[nodiscard]] int device_count() const { return comm.device_count(); }
  [[nodiscard]] int local_count() const { return 1; }
  [[nodiscard]] int device(int i) const { return comm.device(i); }

  template <class T>
  void move(const mesh_shape& mesh, const movement& m, const T* const* in, T* const* out) {
    const auto out_bytes = static_cast<std::size_t>(elements(local_extents(mesh, m.to_global, m.to))) * sizeof(T);
    std::memcpy(in_memory, in[0], static_cast<std::size_t>(elements(local_extents(mesh, m.from_global, m.from))) * sizeof(T));
    std::memcpy(out_memory, out[0], out_bytes);
    const T* const shared_in = reinterpret_cast<const T*>(in_memory);
    T* const shared_out = reinterpret_cast<T*>(out_memory);
    comm.move(mesh, m, &shared_in, &shared_out);
    std::memcpy(out[0], out_memory, out_bytes);
  }
};

}  // namespace

TEST_CASE("random maps over MPI") {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::vector<mesh_shape> meshes{mesh_of({ranks}), mesh_of({1, ranks})};
  if (ranks == 4) meshes.push_back(mesh_of({2, 2}));
  for (const bool shares_memory : {true, false})
    for (const std::int64_t small : {std::int64_t{0}, std::int64_t{16384}}) {
      gspmd::mpi_options options;
      options.shared_memory = shares_memory;
      options.small_shard_bytes = small;
      options.largest_count = 100;
      gspmd::mpi_communicator comm(MPI_COMM_WORLD, options);
      constexpr std::size_t room = 40 * 40 * 40 * 8;
      const auto in = comm.allocate(room), out = comm.allocate(room);
      through_shared_memory in_place{comm, in.get(), out.get()};
      std::string wrong;
      std::int64_t sending = 0;
      for (const auto& mesh : meshes) {
        // Each kind of transport gets its own maps.
        std::mt19937_64 random(static_cast<std::uint64_t>(ranks + (shares_memory ? 0 : 100) + (small == 0 ? 0 : 200)));
        for (int k = 0; k < 750; ++k) {
          const auto m = random_mapped_movement(random, mesh, k % 50 == 0 ? 40 : 9);
          const int bad = k % 3 == 0 ? m.wrong<bool>(comm) : k % 3 == 1 ? m.wrong<float>(comm) : m.wrong<std::int64_t>(comm);
          if (bad != 0) wrong += m.text() + "; ";
          if (shares_memory && m.wrong<double>(in_place) != 0) wrong += m.text() + ", in place; ";
          sending += traffic_of(mesh, m.from, m.to, m.s, m.map()).sent > 0 ? 1 : 0;
        }
        for (int k = 0; k < 150; ++k) {
          const auto m = random_reshape(random, mesh, k % 50 == 0 ? 1000 : 60);
          const int bad = k % 3 == 0 ? m.wrong<bool>(comm) : k % 3 == 1 ? m.wrong<float>(comm) : m.wrong<std::int64_t>(comm);
          if (bad != 0) wrong += m.text() + "; ";
          if (shares_memory && m.wrong<double>(in_place) != 0) wrong += m.text() + ", in place; ";
        }
      }
      CHECK(wrong == "");
      CHECK(sending > 200);
    }
}
