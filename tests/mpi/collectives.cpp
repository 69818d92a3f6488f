// ranks: 2 3 4 8
// two nodes: 4
// labels: exhaustive
// SPDX-License-Identifier: Apache-2.0
#include "gspmd/mpi.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "../support/collective_oracle.hpp"
#include "gspmd/detail/ir/monoid_ops.hpp"
#include "gspmd/detail/transport/message_route.hpp"
#include "gspmd/detail/transport/mpi/large_reduction.hpp"
#include "gspmd/detail/transport/mpi/messages.hpp"

using namespace oracle;

static_assert(gspmd::communicator<gspmd::mpi_communicator>);

namespace {

std::int64_t largest_total = 0;  // the largest number of elements of one call below, counted over all members

void count_total(std::int64_t on_each, MPI_Comm comm) {
  int n = 0;
  MPI_Comm_size(comm, &n);
  largest_total = std::max(largest_total, on_each * n);
}

}  // namespace

// Counts the library's calls to MPI through MPI's profiling interface.
extern "C" {
int MPI_Allgather(const void* in, int count, MPI_Datatype type, void* out, int received, MPI_Datatype out_type, MPI_Comm comm) {
  if (type == MPI_INT32_T) count_total(count, comm);  // do not count the data that processes exchange about themselves
  return PMPI_Allgather(in, count, type, out, received, out_type, comm);
}
int MPI_Alltoall(const void* in, int count, MPI_Datatype type, void* out, int received, MPI_Datatype out_type, MPI_Comm comm) {
  count_total(count, comm);
  return PMPI_Alltoall(in, count, type, out, received, out_type, comm);
}
int MPI_Reduce_scatter_block(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  count_total(count, comm);
  return PMPI_Reduce_scatter_block(in, out, count, type, op, comm);
}
int MPI_Reduce_scatter(const void* in, void* out, const int* counts, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  int n = 0;
  MPI_Comm_size(comm, &n);
  largest_total = std::max(largest_total, std::accumulate(counts, counts + n, std::int64_t{0}));
  return PMPI_Reduce_scatter(in, out, counts, type, op, comm);
}
}

namespace {

int world_size() {
  int n = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  return n;
}

/// Returns true if sums are added in the order of the members. Between nodes, MPI reduces and chooses the order.
bool keeps_order(bool shares_memory = true) { return shares_memory && std::getenv("GSPMD_RANKS_PER_NODE") == nullptr; }

/// Returns meshes over all ranks.
std::vector<mesh_shape> meshes() {
  const int n = world_size();
  std::vector<mesh_shape> result{mesh_of({n}), mesh_of({1, n})};
  if (n % 2 == 0 && n > 2) result.push_back(mesh_of({2, n / 2}));
  if (n % 2 == 0 && n > 4) result.push_back(mesh_of({n / 2, 2}));
  if (n == 8) result.push_back(mesh_of({2, 2, 2}));
  return result;
}

/// Returns the sum over all ranks, so that all ranks fail together.
int everywhere(int wrong) {
  int sum = 0;
  MPI_Allreduce(&wrong, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return sum;
}

const extents& operand_of(const movement& m) { return m.from_global; }
const extents& result_of(const movement& m) { return m.to_global; }
const extents& operand_of(const reduction& r) { return r.global; }
const extents& result_of(const reduction& r) { return r.global; }

/// Carries out collectives on buffers from mpi_communicator::allocate.
struct through_shared_memory {
  gspmd::mpi_communicator& comm;
  std::byte* in_memory;
  std::byte* out_memory;

  [[nodiscard]] int device_count() const { return comm.device_count(); }
  [[nodiscard]] int local_count() const { return 1; }
  [[nodiscard]] int device(int i) const { return comm.device(i); }

  template <class T, class Collective>
  void run(const mesh_shape& mesh, const Collective& c, const T* in, T* out, bool in_place, auto call) {
    const auto in_bytes = static_cast<std::size_t>(elements(local_extents(mesh, operand_of(c), c.from))) * sizeof(T);
    const auto out_bytes = static_cast<std::size_t>(elements(local_extents(mesh, result_of(c), c.to))) * sizeof(T);
    T* const shared_in = reinterpret_cast<T*>(in_memory);
    T* const shared_out = in_place ? shared_in : reinterpret_cast<T*>(out_memory);
    std::memcpy(shared_in, in, in_bytes);
    if (!in_place) std::memcpy(shared_out, out, out_bytes);
    const T* const const_in = shared_in;
    call(&const_in, &shared_out);
    std::memcpy(out, shared_out, out_bytes);
  }
  template <class T>
  void move(const mesh_shape& mesh, const movement& m, const T* const* in, T* const* out) {
    run(mesh, m, in[0], out[0], false, [&](auto i, auto o) { comm.move(mesh, m, i, o); });
  }
  template <class T>
  void reduce(const mesh_shape& mesh, const reduction& r, const T* const* in, T* const* out) {
    run(mesh, r, in[0], out[0], in[0] == out[0], [&](auto i, auto o) { comm.reduce(mesh, r, i, o); });
  }
};

/// A large all_reduce over all ranks, on the path for ranks that have a core each.
struct by_messages {
  gspmd::mpi_communicator& comm;
  mpi_workspace work{};
  growing_buffer memory{};

  [[nodiscard]] int device_count() const { return comm.device_count(); }
  [[nodiscard]] int local_count() const { return 1; }
  [[nodiscard]] int device(int i) const { return comm.device(i); }
  template <class T>
  void reduce(const mesh_shape&, const reduction& r, const T* const* in, T* const* out) {
    mpi_channel channel;
    channel.comm = MPI_COMM_WORLD;
    for (int k = 0; k < device_count(); ++k) channel.ranks.push_back(k);
    const auto op = combiner_of<T>(r.reduced_by);
    all_reduce_by_messages({channel, work, work.requests}, memory, {dtype_of<T>(), r.reduced_by, op}, device_count(), device(0),
                           elements(r.global), reinterpret_cast<const std::byte*>(in[0]), reinterpret_cast<std::byte*>(out[0]));
  }
};

/// An axis of one device moves nothing, so only 9 of 121 pairs of shardings of two dims differ in effect. If waiting is
/// slow, GSPMD_STRIDE skips more pairs: with a sanitizer, or with more ranks than cores and MPICH, which does not yield
/// the core.
int stride_of(const mesh_shape& mesh) {
  const char* const further = std::getenv("GSPMD_STRIDE");
  const int given = further == nullptr ? 1 : std::atoi(further);
  if (mesh.axis_count() == 3) return 199 * given;
  const bool has_axis_of_one = mesh.axis_count() == 2 && mesh.sizes[0] == 1;
  return (mesh.device_count() > 4 ? 17 : 3) * (has_axis_of_one ? 3 : 1) * given;
}

}  // namespace

/// Several collectives in one call, in buffers from mpi_communicator::allocate while it has space.
struct together_through_shared_memory {
  gspmd::mpi_communicator& comm;
  std::byte* memory;
  std::size_t room;
  std::vector<std::byte*> shared{};  // the operands' memory in the shared buffers

  [[nodiscard]] int device(int i) const { return comm.device(i); }
  template <class T, class Collective>
  void show(const mesh_shape& mesh, std::span<const Collective> all, const T* const* in) {
    shared.clear();
    std::byte* next = memory;
    for (std::size_t k = 0; k < all.size(); ++k) {
      const auto bytes = static_cast<std::size_t>(elements(local_extents(mesh, operand_of(all[k]), all[k].from))) * sizeof(T);
      if (next + bytes > memory + room) throw std::length_error("room");
      std::memcpy(next, in[k], bytes);
      shared.push_back(next);
      next += (bytes + 63) / 64 * 64;
    }
  }
  template <class T>
  void start(const mesh_shape& mesh, std::span<const movement> all, const T* const* in, T* const* out) {
    show(mesh, all, in);
    comm.start(mesh, all, reinterpret_cast<const T* const*>(shared.data()), out);
  }
  template <class T>
  void finish(const mesh_shape& mesh, std::span<const movement> all, const T* const* in, T* const* out) {
    comm.finish(mesh, all, in, out);
  }
  template <class T>
  void reduce(const mesh_shape& mesh, const reduction& r, const T* const* in, T* const* out) {
    comm.reduce(mesh, r, in, out);
  }
  template <class T>
  void reduce_together(const mesh_shape& mesh, std::span<const reduction> all, const T* const* in, T* const* out) {
    show(mesh, all, in);
    comm.reduce_together(mesh, all, reinterpret_cast<const T* const*>(shared.data()), out);
  }
};

TEST_CASE("mpi: several collectives at once") {
  const std::vector<extents> small{shape_of({0}), shape_of({1}), shape_of({7}), shape_of({5, 4})}, large{shape_of({60, 70})};
  for (const auto& how : {gspmd::mpi_options{true}, gspmd::mpi_options{false, 50}, gspmd::mpi_options{true, 1000, 0}}) {
    gspmd::mpi_communicator comm(MPI_COMM_WORLD, how);
    for (const auto& mesh : meshes()) {
      if (mesh.axis_count() == 3) continue;
      const int stride = 1 + stride_of(mesh);
      CHECK(everywhere(wrong_in_joint_pairs<std::int32_t>(comm, mesh, small, stride)) == 0);
      CHECK(everywhere(wrong_in_joint_pairs<std::uint8_t>(comm, mesh, small, 3 * stride)) == 0);
      CHECK(everywhere(wrong_in_joint_pairs<std::int64_t>(comm, mesh, large, 5 * stride)) == 0);
    }
    constexpr std::size_t room = 1 << 20;
    const auto memory = comm.allocate(room);
    together_through_shared_memory shared{comm, memory.get(), room};
    for (const auto& mesh : meshes()) {
      if (mesh.axis_count() == 3) continue;
      CHECK(everywhere(wrong_in_joint_pairs<std::int64_t>(shared, mesh, small, 7 * stride_of(mesh))) == 0);
      CHECK(everywhere(wrong_in_joint_pairs<std::int64_t>(shared, mesh, large, 5 * stride_of(mesh))) == 0);
    }
  }
}

TEST_CASE("mpi: pairs of shardings of one dim") {
  for (const bool shared : {true, false}) {
    gspmd::mpi_communicator comm(MPI_COMM_WORLD, {.shared_memory = shared});
    for (const auto& mesh : meshes())
      for (std::int64_t n : {0, 1, 4, 7, 8, 9, 16})
        CHECK(everywhere(wrong_in_all_pairs<std::int64_t>(comm, mesh, shape_of({n}), 1, 0, shared)) == 0);
  }
}

TEST_CASE("mpi: pairs of shardings of two dims") {
  for (const bool shared : {true, false}) {
    gspmd::mpi_communicator comm(MPI_COMM_WORLD, {.shared_memory = shared});
    for (const auto& mesh : meshes())
      for (std::int64_t rows = 1; rows <= 8; ++rows)
        for (std::int64_t columns = 1; columns <= 8; ++columns) {
          if ((rows + columns / 2) % 2 != 0) continue;  // combine each extent with half of the other extents, of both parities
          CHECK(everywhere(wrong_in_all_pairs<float>(comm, mesh, shape_of({rows, columns}), stride_of(mesh),
                                                     static_cast<int>(rows * 7 + columns + shared), keeps_order(shared))) == 0);
        }
  }
}

TEST_CASE("mpi: buffers of several pieces go through shared memory") {
  gspmd::mpi_communicator comm(MPI_COMM_WORLD);
  for (const auto& mesh : meshes()) {
    const axis_mask axes = axis_bit(mesh.axis_count()) - 1;
    for (std::int64_t n : {65536, 65537, 200001}) {
      const auto shape = shape_of({n});
      CHECK(everywhere(wrong_after_reduce<float>(comm, mesh, reduction_between(shape, {}, {}, axes, gspmd::monoid::add), true,
                                                 keeps_order())) == 0);
      CHECK(everywhere(wrong_after_reduce<float>(comm, mesh, reduction_between(shape, {}, {}, 1, gspmd::monoid::add), false,
                                                 keeps_order())) == 0);
      const auto scatter = reduction_between(shape, {}, split({{mesh.axis_count() - 1, 0}}), axes, gspmd::monoid::add);
      CHECK(everywhere(wrong_after_reduce<double>(comm, mesh, scatter, false, keeps_order())) == 0);
    }
  }
}

TEST_CASE("mpi: buffers in shared memory") {
  gspmd::mpi_communicator comm(MPI_COMM_WORLD);
  const auto in = comm.allocate(140'000), out = comm.allocate(140'000);
  through_shared_memory shared{comm, in.get(), out.get()};
  for (const auto& mesh : meshes()) {
    for (std::int64_t rows = 1; rows <= 8; ++rows) {
      CHECK(everywhere(wrong_in_all_pairs<float>(shared, mesh, shape_of({rows, 7}), stride_of(mesh), static_cast<int>(rows),
                                                 keeps_order())) == 0);
    }
    CHECK(everywhere(wrong_in_all_pairs<float>(shared, mesh, shape_of({8, 4200}), 31 * stride_of(mesh), 0, keeps_order())) ==
          0);  // not small
    CHECK(everywhere(wrong_in_all_pairs<float>(comm, mesh, shape_of({9}), stride_of(mesh), 0, keeps_order())) ==
          0);  // buffers that are not shared
  }
  CHECK(everywhere(wrong_in_all_monoids<double>(shared, mesh_of({world_size()}), keeps_order())) == 0);
}

TEST_CASE("mpi: some buffers in shared memory and some not") {
  gspmd::mpi_communicator comm(MPI_COMM_WORLD);
  const auto mesh = mesh_of({world_size()});
  const auto shared_memory = comm.allocate(4000);
  auto* const shared = reinterpret_cast<float*>(shared_memory.get());
  std::vector<float> own(1000);
  for (int owner = 0; owner < world_size(); ++owner) {
    float* const values = comm.device(0) == owner ? own.data() : shared;
    const float* const in = values;
    std::fill_n(values, 1000, 1.0F);
    comm.reduce(mesh, reduction_between(shape_of({1000}), {}, {}, 1, gspmd::monoid::add), &in, &values);
    CHECK(values[0] == static_cast<float>(world_size()));
    CHECK(values[999] == static_cast<float>(world_size()));
  }
}

TEST_CASE("mpi: a rank whose buffers are not shared does not wait for those that ask") {
  gspmd::mpi_communicator comm(MPI_COMM_WORLD);
  const std::int64_t n = world_size(), elems = 5000 * n;
  const auto mesh = mesh_of({world_size()});
  const auto shared_in_memory = comm.allocate(static_cast<std::size_t>(4 * elems));
  auto* const shared_in = reinterpret_cast<float*>(shared_in_memory.get());
  const auto shared_out_memory = comm.allocate(static_cast<std::size_t>(4 * elems));
  auto* const shared_out = reinterpret_cast<float*>(shared_out_memory.get());
  std::vector<float> own_in(static_cast<std::size_t>(elems)), own_out(own_in);
  const auto gather = movement_between(mesh, shape_of({elems}), split({{0, 0}}), {});
  const auto transpose = movement_between(mesh, shape_of({n, elems}), split({{0, 0}}), split({{0, 1}}));
  const auto columns = movement_between(mesh, shape_of({2 * n, elems / 2}), split({{0, 0}}), split({{0, 1}}));
  int wrong = 0;
  for (int round = 0; round < 200; ++round) {
    // The ranks with private buffers change. In the middle third of the rounds, no rank or every rank has private
    // buffers.
    const bool is_private = round / 67 == 1 ? round % 2 == 0 : (round + comm.device(0)) % n == 0;
    const float* in = is_private ? own_in.data() : shared_in;
    float* out = is_private ? own_out.data() : shared_out;
    const auto me = static_cast<float>(comm.device(0) + round);
    std::fill_n(const_cast<float*>(in), elems, me);
    comm.move(mesh, round % 3 == 0 ? gather : round % 3 == 1 ? transpose : columns, &in, &out);
    for (std::int64_t j = 0; j < n; ++j)
      wrong += out[j * 5000] != static_cast<float>(j + round) || out[j * 5000 + 4999] != static_cast<float>(j + round);
  }
  CHECK(everywhere(wrong) == 0);
}

TEST_CASE("mpi: a permuted shard that is sent, and the address of the next one, arrive in this order") {
  if (world_size() != 4) return;
  gspmd::mpi_communicator comm(MPI_COMM_WORLD, {.small_shard_bytes = 0});  // a small shard would be sent immediately
  const auto mesh = mesh_of({2, 2});
  const auto swapped = movement_between(mesh, shape_of({400}), split({{0, 0}, {1, 0}}), split({{1, 0}, {0, 0}}));
  const auto memory = comm.allocate(400);
  auto* const shared = reinterpret_cast<float*>(memory.get());
  std::vector<float> own(100), result(100);
  float* const out = result.data();
  const int me = comm.device(0), from = me == 1 ? 2 : me == 2 ? 1 : me;
  const delayed_meetings delays;
  int wrong = 0;
  for (int round = 0; round < 200; ++round) {
    float* const values = round % 2 == 0 ? own.data() : shared;
    const float* const in = values;
    std::fill_n(values, 100, static_cast<float>(4 * round + me));
    comm.move(mesh, swapped, &in, &out);
    wrong += static_cast<int>(std::count(out, out + 100, static_cast<float>(4 * round + from)) != 100);
  }
  CHECK(everywhere(wrong) == 0);
}

TEST_CASE("mpi: large all_reduce, with more ranks than cores and without") {
  gspmd::mpi_communicator comm(MPI_COMM_WORLD);
  const auto mesh = mesh_of({world_size()});
  const auto sum = reduction_between(shape_of({1'100'001}), {}, {}, 1, gspmd::monoid::add);  // in two pieces
  const auto most = reduction_between(shape_of({262'144}), {}, {}, 1, gspmd::monoid::max);
  CHECK(everywhere(wrong_after_reduce<float>(comm, mesh, sum, true, keeps_order())) == 0);
  CHECK(everywhere(wrong_after_reduce<std::int64_t>(comm, mesh, most, false)) == 0);
  by_messages messages{comm};
  messages.work.largest_count = largest_mpi_count;
  CHECK(everywhere(wrong_after_reduce<float>(messages, mesh, sum, true)) == 0);
  CHECK(everywhere(wrong_after_reduce<std::int64_t>(messages, mesh, most, false)) == 0);
}

TEST_CASE("mpi: all members get the same bits of an all_reduce, NaN and zeros too, whichever way it goes") {
  const int n = world_size();
  const auto value = [n](std::int64_t i, int rank) {
    if (i == 0 && rank == n - 1) return std::numeric_limits<float>::quiet_NaN();
    if (i == 1) return rank % 2 == 0 ? 0.0F : -0.0F;
    return 1.0F / static_cast<float>(3 + i % 97 + 5 * rank);
  };
  for (const bool shared : {true, false}) {
    gspmd::mpi_communicator comm(MPI_COMM_WORLD, {.shared_memory = shared});
    for (const std::size_t elems : {2UL, 300UL, 3000UL, 300000UL})
      for (const auto kind : {gspmd::monoid::add, gspmd::monoid::max, gspmd::monoid::min}) {
        std::vector<float> mine, in_order;
        for (std::size_t i = 0; i < elems; ++i) {
          const auto at = static_cast<std::int64_t>(i);
          mine.push_back(value(at, comm.device(0)));
          in_order.push_back(value(at, 0));
          for (int rank = 1; rank < n; ++rank) in_order.back() = combine(kind, in_order.back(), value(at, rank));
        }
        const float* in = mine.data();
        float* out = mine.data();
        const auto shape = shape_of({static_cast<std::int64_t>(elems)});
        comm.reduce(mesh_of({n}), reduction_between(shape, {}, {}, 1, kind), &in, &out);
        std::vector<float> first = mine;
        MPI_Bcast(first.data(), static_cast<int>(elems), MPI_FLOAT, 0, MPI_COMM_WORLD);
        const auto same = [&](const std::vector<float>& other) {
          return std::memcmp(mine.data(), other.data(), elems * sizeof(float)) == 0;
        };
        CAPTURE(elems);
        CAPTURE(shared);
        CHECK(everywhere(same(first) ? 0 : 1) == 0);
        if (kind != gspmd::monoid::add || elems <= 300) CHECK(everywhere(same(in_order) ? 0 : 1) == 0);
        CHECK(everywhere(std::isnan(mine[0]) ? 0 : 1) == 0);
      }
  }
}

TEST_CASE("mpi: three dims of which one has extent 1") {
  gspmd::mpi_communicator comm(MPI_COMM_WORLD);
  for (const auto& mesh : meshes())
    for (const auto& shape : {shape_of({1, 8, 8}), shape_of({8, 1, 6}), shape_of({8, 8, 1}), shape_of({})})
      CHECK(everywhere(wrong_in_all_pairs<double>(comm, mesh, shape, 7 * stride_of(mesh), 0, false)) == 0);
}

TEST_CASE("mpi: what is longer than MPI can count is sent in pieces, or by messages") {
  for (std::int64_t largest : {1, 3, 7, 40}) {
    gspmd::mpi_communicator comm(MPI_COMM_WORLD, {.shared_memory = largest == 3, .largest_count = largest});
    largest_total = 0;
    for (const auto& mesh : meshes())
      for (const auto& shape : {shape_of({8, 8}), shape_of({7, 5}), shape_of({64})})
        CHECK(everywhere(wrong_in_all_pairs<std::int32_t>(comm, mesh, shape, 11 * stride_of(mesh), 3, false)) == 0);
    CHECK(largest_total <= largest);
  }
}

TEST_CASE("mpi: what is not few goes by calls of MPI that can count it") {
  const auto mesh = mesh_of({world_size()});
  for (std::int64_t largest : {1000, 10'000}) {
    gspmd::mpi_communicator comm(MPI_COMM_WORLD, {.shared_memory = false, .largest_count = largest});
    largest_total = 0;
    for (const auto& shape : {shape_of({8000}), shape_of({8001})}) {
      const auto scatter = reduction_between(shape, {}, split({{0, 0}}), 1, gspmd::monoid::add);
      CHECK(everywhere(wrong_after_reduce<std::int32_t>(comm, mesh, scatter, false)) == 0);
      CHECK(everywhere(wrong_after_reduce<std::int32_t>(comm, mesh, reduction_between(shape, {}, {}, 1, gspmd::monoid::add),
                                                        true)) == 0);
    }
    CHECK(everywhere(wrong_in_all_pairs<std::int32_t>(comm, mesh, shape_of({80, 100}), 3, 3, false)) == 0);
    CHECK(largest_total <= largest);
    CHECK((largest_total > 1000) == (largest > 1000));
  }
}

TEST_CASE("mpi: every element type and monoid") {
  const auto mesh = mesh_of({world_size()});
  for (const bool shared : {true, false}) {
    gspmd::mpi_communicator comm(MPI_COMM_WORLD, {.shared_memory = shared});
    CHECK(everywhere(wrong_in_all_monoids<float>(comm, mesh, keeps_order(shared))) == 0);
    CHECK(everywhere(wrong_in_all_monoids<double>(comm, mesh, keeps_order(shared))) == 0);
    CHECK(everywhere(wrong_in_all_monoids<std::int32_t>(comm, mesh)) == 0);
    CHECK(everywhere(wrong_in_all_monoids<std::int64_t>(comm, mesh)) == 0);
    CHECK(everywhere(wrong_in_all_monoids<bool>(comm, mesh)) == 0);
    CHECK(everywhere(wrong_in_all_monoids<gspmd::bf16>(comm, mesh)) == 0);
    CHECK(everywhere(wrong_in_all_monoids<std::uint8_t>(comm, mesh)) == 0);
    CHECK(everywhere(wrong_in_all_monoids<std::uint32_t>(comm, mesh)) == 0);
  }
}

TEST_CASE("mpi: a rank that waits in shared memory lets MPI move on") {
  // The send ends only when rank 0 receives. Rank 0 waits for rank 1 in a collective.
  gspmd::mpi_communicator comm(MPI_COMM_WORLD);
  const auto mesh = mesh_of({world_size()});
  const auto r = reduction_between(shape_of({1000}), {}, {}, 1, gspmd::monoid::add);
  std::vector<char> message(8'000'000);
  MPI_Request request = MPI_REQUEST_NULL;
  const int rank = comm.device(0), bytes = static_cast<int>(message.size());
  if (rank == 0) MPI_Isend(message.data(), bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD, &request);
  if (rank == 1) MPI_Recv(message.data(), bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  CHECK(wrong_after_reduce<float>(comm, mesh, r, true, keeps_order()) == 0);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

TEST_CASE("mpi: a permuted device order") {
  const int n = world_size();
  std::vector<std::int32_t> order(static_cast<std::size_t>(n)), position(order);
  for (int p = 0; p < n; ++p) {
    order[static_cast<std::size_t>(p)] = (5 * p + 1) % n;
    position[static_cast<std::size_t>(order[static_cast<std::size_t>(p)])] = p;
  }
  gspmd::mpi_communicator comm(MPI_COMM_WORLD);
  for (auto mesh : meshes()) {
    CHECK(everywhere(wrong_in_all_pairs<float>(comm, mesh, shape_of({6, 8}), 5 * stride_of(mesh), 0, false)) == 0);
    mesh.order = order.data();
    mesh.position = position.data();
    CHECK(everywhere(wrong_in_all_pairs<float>(comm, mesh, shape_of({6, 8}), 5 * stride_of(mesh), 0, false)) == 0);
  }
}

TEST_CASE("mpi: groups may go different ways") {
  const int n = world_size();
  if (n < 4) return;
  const auto mesh = mesh_of({2, n / 2});
  gspmd::mpi_communicator comm(MPI_COMM_WORLD);
  int wrong = 0;
  if (mesh.coordinates_of(comm.device(0))[0] == 1)
    wrong = wrong_after_move<float>(comm, mesh, movement_between(mesh, shape_of({9}), split({{1, 0}}), {}));
  comm.barrier();
  CHECK(everywhere(wrong) == 0);
}

TEST_CASE("mpi: launch calls once per process; alone, it throws what the program throws") {
  int calls = 0;
  gspmd::launch(gspmd::mpi{}, world_size(), [&](gspmd::communicator auto& comm) {
    comm.barrier();
    ++calls;
  });
  CHECK(calls == 1);
  CHECK_THROWS_WITH_AS(gspmd::launch(gspmd::mpi{MPI_COMM_SELF}, 1, [](auto&) { throw gspmd::error("it broke"); }),
                       "gspmd: it broke", gspmd::error);
}

TEST_CASE("mpi: an error of MPI arrives with its text and rank") {
  CHECK_THROWS_WITH_AS(gspmd::detail::check_mpi(MPI_ERR_TRUNCATE, "MPI_Recv", 3),
                       doctest::Contains("on rank 3: MPI_Recv failed: "), gspmd::error);
}
