// SPDX-License-Identifier: Apache-2.0
// labels: threads
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../support/collective_oracle.hpp"
#include "gspmd/comm/simulated.hpp"
#include "gspmd/comm/threads.hpp"

using namespace oracle;

static_assert(gspmd::communicator<gspmd::threads_communicator>);

namespace {

/// Runs `check(comm)` on every device and returns the sum of what they count.
template <class Check>
int wrong_on_threads(const mesh_shape& mesh, Check check) {
  std::atomic<int> wrong{0};
  gspmd::launch(gspmd::threads{}, static_cast<int>(mesh.device_count()), [&](auto& comm) { wrong += check(comm); });
  return wrong;
}

/// The text of the error that a launch ends with.
template <class F>
std::string failure_of(int devices, F f) {
  try {
    gspmd::launch(gspmd::threads{}, devices, f);
  } catch (const gspmd::error& e) {
    return e.what();
  }
  return "no error";
}

template <class T, class Comm>
void all_reduce(Comm& comm, const mesh_shape& mesh, std::vector<T>& values, axis_mask axes) {
  const auto r = reduction_between(shape_of({static_cast<std::int64_t>(values.size())}), {}, {}, axes, gspmd::monoid::add);
  const T* in = values.data();
  T* out = values.data();
  comm.reduce(mesh, r, &in, &out);
}

}  // namespace

// Counts what collectives allocate. Sanitizers replace these operators by their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define COUNTS_ALLOCATIONS
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
namespace {
std::atomic<long> allocations{0};
}
void* operator new(std::size_t size) {
  ++allocations;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
#endif

TEST_CASE("threads: all pairs of shardings of one dim") {
  for (auto mesh : {mesh_of({1}), mesh_of({2}), mesh_of({3}), mesh_of({8}), mesh_of({2, 2}), mesh_of({2, 3}), mesh_of({4, 2})})
    CHECK(wrong_on_threads(mesh, [&](auto& comm) {
            int wrong = 0;
            for (std::int64_t n : {0, 1, 4, 7, 9}) wrong += wrong_in_all_pairs<std::int64_t>(comm, mesh, shape_of({n}));
            return wrong;
          }) == 0);
}

TEST_CASE("threads: all pairs of shardings of two dims") {
  for (auto mesh : {mesh_of({2}), mesh_of({5}), mesh_of({2, 2}), mesh_of({3, 2}), mesh_of({2, 4}), mesh_of({2, 2, 2})}) {
    const int stride = mesh.device_count() > 4 ? (mesh.axis_count() == 3 ? 53 : 5) : 1;
    CHECK(wrong_on_threads(mesh, [&](auto& comm) {
            int wrong = 0;
            for (std::int64_t rows = 1; rows <= 7; ++rows)
              for (std::int64_t columns = 1; columns <= 7; ++columns)
                wrong += wrong_in_all_pairs<float>(comm, mesh, shape_of({rows, columns}), stride,
                                                   static_cast<int>(rows * 7 + columns));
            return wrong;
          }) == 0);
  }
}

TEST_CASE("threads: every element type and monoid") {
  for (auto mesh : {mesh_of({2}), mesh_of({3})})
    CHECK(wrong_on_threads(mesh, [&](auto& comm) {
            return wrong_in_all_monoids<float>(comm, mesh) + wrong_in_all_monoids<double>(comm, mesh) +
                   wrong_in_all_monoids<std::int32_t>(comm, mesh) + wrong_in_all_monoids<std::int64_t>(comm, mesh) +
                   wrong_in_all_monoids<bool>(comm, mesh);
          }) == 0);
}

TEST_CASE("threads: a permuted device order, and two meshes over the same devices") {
  const std::int32_t order[] = {3, 0, 5, 2, 4, 1};
  std::int32_t position[6];
  for (int p = 0; p < 6; ++p) position[order[p]] = p;
  const auto plain = mesh_of({3, 2});
  auto permuted = plain;
  permuted.order = order;
  permuted.position = position;
  CHECK(wrong_on_threads(plain, [&](auto& comm) {
          int wrong = 0;
          for (int i = 0; i < 5; ++i)
            for (const auto& mesh : {plain, permuted, mesh_of({6}), mesh_of({2, 3})})
              wrong += wrong_in_all_pairs<float>(comm, mesh, shape_of({5, 4}), 37, i);
          return wrong;
        }) == 0);
}

TEST_CASE("threads: a mesh whose device order changes in place is not mistaken for the one before") {
  std::int32_t order[] = {0, 1, 2, 3};
  std::int32_t position[] = {0, 1, 2, 3};
  auto mesh = mesh_of({2, 2});
  mesh.order = order;
  mesh.position = position;
  const auto m = movement_between(mesh, shape_of({8}), split({{1, 0}}), {});
  CHECK(wrong_on_threads(mesh, [&](auto& comm) {
          int wrong = wrong_after_move<float>(comm, mesh, m);
          comm.barrier();
          if (comm.device(0) == 0) {
            order[1] = position[1] = 2;
            order[2] = position[2] = 1;
          }
          comm.barrier();
          wrong += wrong_after_move<float>(comm, mesh, m);
          return wrong;
        }) == 0);
}

TEST_CASE("threads: large enough to be written around the caches") {
  const auto mesh = mesh_of({2});
  const auto shape = shape_of({2001, 3001});
  const auto rows = split({{0, 0}}), columns = split({{0, 1}});
  CHECK(wrong_on_threads(mesh, [&](auto& comm) {
          return wrong_after_move<float>(comm, mesh, movement_between(mesh, shape, rows, columns)) +
                 wrong_after_move<float>(comm, mesh, movement_between(mesh, shape, columns, {})) +
                 wrong_after_reduce<float>(comm, mesh, reduction_between(shape, {}, rows, 1, gspmd::monoid::add), false);
        }) == 0);
}

TEST_CASE("threads: as simulated, to the bit, whatever the order in which threads arrive") {
  const auto mesh = mesh_of({7});
  for (std::size_t n : {std::size_t{3}, std::size_t{1001}}) {
    std::vector<std::vector<float>> serial(7), parallel(7);
    for (std::size_t d = 0; d < 7; ++d) {
      for (std::size_t i = 0; i < n; ++i)
        serial[d].push_back(element_at<float>(static_cast<std::int64_t>(i), static_cast<std::int64_t>(d)));
      parallel[d] = serial[d];
    }
    gspmd::launch(gspmd::simulated{}, 7, [&](auto& comm) {
      std::vector<const float*> in;
      std::vector<float*> out;
      for (auto& values : serial) in.push_back(values.data()), out.push_back(values.data());
      const auto r = reduction_between(shape_of({static_cast<std::int64_t>(n)}), {}, {}, 1, gspmd::monoid::add);
      comm.reduce(mesh, r, in.data(), out.data());
    });
    gspmd::launch(gspmd::threads{}, 7,
                  [&](auto& comm) { all_reduce(comm, mesh, parallel[static_cast<std::size_t>(comm.device(0))], 1); });
    CHECK(serial == parallel);
    CHECK(serial[0] == serial[6]);
  }
}

TEST_CASE("threads: collectives over different axes and sizes follow each other") {
  const auto mesh = mesh_of({2, 2});
  CHECK(wrong_on_threads(mesh, [&](auto& comm) {
          int wrong = 0;
          for (int round = 0; round < 300; ++round) {
            const std::size_t n = round % 3 == 0 ? 1 : round % 3 == 1 ? 20 : 3000;
            std::vector<double> values(n, comm.device(0) + round);
            const axis_mask axes = static_cast<axis_mask>(1 + round % 3);
            all_reduce(comm, mesh, values, axes);
            const int d = comm.device(0);
            const double expected = axes == 1   ? 2.0 * round + d % 2 * 2 + 2
                                    : axes == 2 ? 2.0 * round + d / 2 * 4 + 1
                                                : 4.0 * round + 6;
            for (double value : values) wrong += value != expected;
            if (round % 50 == 0) comm.barrier();
          }
          return wrong;
        }) == 0);
}

#ifdef COUNTS_ALLOCATIONS
TEST_CASE("threads: no allocation after the first collectives") {
  const std::int32_t order[] = {2, 3, 0, 1};
  auto mesh = mesh_of({2, 2});
  mesh.order = mesh.position = order;
  const auto shape = shape_of({40, 50});
  std::vector<float> buffers[4][2];
  for (auto& pair : buffers)
    for (auto& buffer : pair) buffer.resize(2000);
  long before = 0, after = 0;
  gspmd::launch(gspmd::threads{}, 4, [&](auto& comm) {
    auto& mine = buffers[comm.device(0)];
    const float* in = mine[0].data();
    float* out = mine[1].data();
    const auto collectives = [&] {
      comm.move(mesh, movement_between(mesh, shape, split({{0, 0}}), split({{0, 1}})), &in, &out);
      comm.move(mesh, movement_between(mesh, shape, split({{1, 0}, {0, 1}}), {}), &in, &out);
      comm.reduce(mesh, reduction_between(shape, {}, split({{1, 1}}), 2, gspmd::monoid::add), &in, &out);
      comm.reduce(mesh, reduction_between(shape, {}, {}, 3, gspmd::monoid::maximum), &in, &out);
      comm.reduce(mesh, reduction_between(shape_of({4}), {}, {}, 3, gspmd::monoid::add), &in, &out);
      comm.barrier();
    };
    collectives();
    comm.barrier();
    if (comm.device(0) == 0) before = allocations;
    comm.barrier();
    for (int i = 0; i < 10; ++i) collectives();
    comm.barrier();
    if (comm.device(0) == 0) after = allocations;
    comm.barrier();
  });
  CHECK(before > 0);
  CHECK(after == before);
}
#endif

TEST_CASE("threads: the first rank that throws stops the others, and its error arrives") {
  const auto mesh = mesh_of({2, 2});
  for (int thrower = 0; thrower < 4; ++thrower) {
    std::atomic<int> stopped{0};
    const auto text = failure_of(4, [&](auto& comm) {
      for (int round = 0; round < 100; ++round) {
        // each round has buffers of its own, which must outlive those that read them
        auto values = std::make_unique<std::vector<double>>(4000, 1.0);
        if (round == 57 && comm.device(0) == thrower) throw gspmd::error("it broke").with_op("sort", "program.cpp", 12);
        try {
          all_reduce(comm, mesh, *values, static_cast<axis_mask>(1 + round % 3));
        } catch (const gspmd::error&) {
          ++stopped;
          throw;
        }
      }
    });
    CHECK(text == "gspmd: sort at program.cpp:12 on rank " + std::to_string(thrower) + ": it broke");
    CHECK(stopped == 3);
  }
}

TEST_CASE("threads: other exceptions arrive with their text") {
  CHECK(failure_of(2, [](auto& comm) {
          if (comm.device(0) == 1) throw std::runtime_error("out of cheese");
          comm.barrier();
        }) == "gspmd: on rank 1: out of cheese");
  CHECK(failure_of(3, [](auto& comm) {
          if (comm.device(0) == 2) throw 7;
          comm.barrier();
        }) == "gspmd: on rank 2: an exception that is not a std::exception");
}

TEST_CASE("threads: who catches the error and goes on is stopped again") {
  std::atomic<int> caught{0};
  CHECK(failure_of(3, [&](auto& comm) {
          if (comm.device(0) == 0) throw std::runtime_error("first");
          for (int i = 0; i < 3; ++i) {
            try {
              comm.barrier();
            } catch (const gspmd::error&) {
              ++caught;
            }
          }
          throw std::runtime_error("second");
        }) == "gspmd: on rank 0: first");
  CHECK(caught == 6);
}

TEST_CASE("threads: a rank that leaves early does not hang the others") {
  const auto text = failure_of(3, [&](auto& comm) {
    if (comm.device(0) != 1) comm.barrier();
  });
  CHECK(text.find("waits in a collective for rank 1, which has finished") != std::string::npos);
}

TEST_CASE("threads: all ranks throw at once") {
  CHECK(failure_of(8, [&](auto&) { throw std::runtime_error("all"); }).find("all") != std::string::npos);
}

TEST_CASE("require_devices: the same words on every backend") {
  const std::string words =
      "the mesh has 8 devices but the communicator has 2 ranks; start as many ranks as the mesh has devices, or give the "
      "mesh 2 devices";
  const auto check = [](auto& comm) { gspmd::require_devices(comm, 8); };
  CHECK(failure_of(2, check).find(words) != std::string::npos);
  gspmd::simulated_communicator comm(2);
  CHECK_THROWS_WITH_AS(gspmd::require_devices(comm, 8), ("gspmd: " + words).c_str(), gspmd::error);
}
