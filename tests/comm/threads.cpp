// SPDX-License-Identifier: Apache-2.0
// labels: exhaustive threads
#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/comm/threads.hpp"
#include "support/all_operators.hpp"
#include "support/collective_oracle.hpp"
#include "support/count_allocations.hpp"

using namespace oracle;

static_assert(gspmd::communicator<gspmd::threads_communicator>);

namespace {

/// Runs `check(comm)` on every device and returns the sum of the returned numbers.
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

TEST_CASE("threads: several collectives at once") {
  for (auto mesh : {mesh_of({2}), mesh_of({3}), mesh_of({2, 2}), mesh_of({1, 2})})
    CHECK(wrong_on_threads(mesh, [&](auto& comm) {
            return wrong_in_joint_pairs<std::int32_t>(comm, mesh, {shape_of({0}), shape_of({1}), shape_of({7}), shape_of({5, 4})},
                                                      3) +
                   wrong_in_joint_pairs<bool>(comm, mesh, {shape_of({3}), shape_of({2, 5})}, 5);
          }) == 0);
}

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
    // Each pair with some of the shapes: `first` differs from shape to shape. unit.simulated has all pairs and shapes.
    const int stride = mesh.axis_count() == 3 ? 211 : mesh.device_count() > 4 ? 23 : 7;
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

TEST_CASE("threads: movements that are carried out again, and others of the same extents that take their places") {
  for (auto mesh : {mesh_of({2}), mesh_of({3}), mesh_of({2, 2})})
    CHECK(wrong_on_threads(mesh, [&](auto& comm) {
            int wrong = 0;
            const auto all = all_shardings(mesh, 2);
            for (const auto& shape : {shape_of({5, 7}), shape_of({1, 4}), shape_of({130, 70})})
              for (std::size_t k = 0; k + 1 < all.size(); k += 2) {
                const auto m = movement_between(mesh, shape, all[k], all[all.size() - 1 - k]);
                const auto back = movement_between(mesh, shape, all[all.size() - 1 - k], all[k]);
                for (int i = 0; i < 3; ++i) {
                  wrong += wrong_after_move<float>(comm, mesh, m) + wrong_after_move<float>(comm, mesh, back);
                  wrong += wrong_after_move<double>(comm, mesh, m) + wrong_after_move<float>(comm, mesh, m);
                }
                auto twin = back;  // numbers are no names: two may have the same one
                twin.number = m.number;
                wrong += wrong_after_move<double>(comm, mesh, twin) + wrong_after_move<double>(comm, mesh, m);
              }
            return wrong;
          }) == 0);
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

TEST_CASE("threads: no allocation after the first collectives") {
  const std::int32_t order[] = {2, 3, 0, 1};
  auto mesh = mesh_of({2, 2});
  mesh.order = mesh.position = order;
  const auto shape = shape_of({40, 50});
  std::vector<float> buffers[4][2];
  for (auto& pair : buffers)
    for (auto& buffer : pair) buffer.resize(2000);
  std::size_t before = 0, after = 0;
  gspmd::launch(gspmd::threads{}, 4, [&](auto& comm) {
    auto& mine = buffers[comm.device(0)];
    const float* in = mine[0].data();
    float* out = mine[1].data();
    const auto collectives = [&] {
      comm.move(mesh, movement_between(mesh, shape, split({{0, 0}}), split({{0, 1}})), &in, &out);
      comm.move(mesh, movement_between(mesh, shape, split({{1, 0}, {0, 1}}), {}), &in, &out);
      comm.reduce(mesh, reduction_between(shape, {}, split({{1, 1}}), 2, gspmd::monoid::add), &in, &out);
      comm.reduce(mesh, reduction_between(shape, {}, {}, 3, gspmd::monoid::max), &in, &out);
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
  CHECK((before > 0) == counts_allocations);
  CHECK(after == before);
}

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

TEST_CASE("threads: who catches the error and goes on is stopped again") {
  std::atomic<int> caught{0};
  CHECK(failure_of(3, [&](auto& comm) {
          if (comm.device(0) == 0) throw gspmd::error("first");
          for (int i = 0; i < 3; ++i) {
            try {
              comm.barrier();
            } catch (const gspmd::error&) {
              ++caught;
            }
          }
          throw gspmd::error("second");
        }) == "gspmd: on rank 0: first");
  CHECK(caught == 6);
}

TEST_CASE("threads: who was stopped reads and writes nothing of peers that had started with it, as they may be gone") {
  const auto mesh = mesh_of({2, 2});  // devices 0 and 1 are a group of axis 1
  const auto r = reduction_between(shape_of({400}), {}, {}, 2, gspmd::monoid::add);
  const gspmd::detail::span<const gspmd::detail::reduction> list(&r, 1);
  std::vector<double> shown[2], sums[2];
  for (int d = 0; d < 2; ++d) shown[d].assign(400, 1), sums[d].assign(400, -1);
  std::atomic<int> started{0};
  std::atomic<bool> is_gone{false}, is_stopped_again{false};
  CHECK(failure_of(4, [&](auto& comm) {
          const int me = comm.device(0);
          if (me >= 2) {
            while (started < 2) std::this_thread::yield();
            throw gspmd::error("it broke");
          }
          const double* const in = shown[me].data();
          double* const out = sums[me].data();
          comm.start(mesh, list, &in, &out);
          ++started;
          try {
            comm.barrier();
          } catch (const gspmd::error&) {
            if (me == 0) is_gone = true;
            while (!is_gone) std::this_thread::yield();
            if (me == 0) throw;
          }
          try {
            comm.finish(mesh, list, &in, &out);
          } catch (const gspmd::error&) {
            is_stopped_again = true;
            throw;
          }
        }).find("it broke") != std::string::npos);
  CHECK(is_stopped_again);
  for (const auto& of_device : sums) CHECK(of_device == std::vector<double>(400, -1));
}

TEST_CASE("threads: a rank that leaves early does not hang the others") {
  const auto text = failure_of(3, [&](auto& comm) {
    if (comm.device(0) != 1) comm.barrier();
  });
  CHECK(text.find("waits in a collective for rank 1, which has finished") != std::string::npos);
}

TEST_CASE("threads: ranks that meet in different collectives get an error that names both, and read nothing") {
  const auto mesh = mesh_of({3});
  auto sum = reduction_between(shape_of({5000}), {}, {}, 1, gspmd::monoid::add);
  sum.origin = {true, code_of<reduce_op>, "program.cpp", 12};
  auto larger = sum;
  larger.global[0] = 500'000;
  auto few = sum, maximum = sum, other_line = sum;
  few.global[0] = 4;
  maximum.reduced_by = gspmd::monoid::max;
  other_line.origin.line = 13;
  const auto gather = movement_between(mesh, shape_of({5000}), split({{0, 0}}), {});
  const auto failure = [&](int odd_one, auto call) {
    return failure_of(3, [&](auto& comm) {
      std::vector<float> from(5000), to(5000);
      const float* in = from.data();
      float* out = to.data();
      for (int i = 0; i < 20; ++i) comm.reduce(mesh, sum, &in, &out);
      if (comm.device(0) == odd_one) call(comm, in, out);
      else comm.reduce(mesh, sum, &in, &out);
    });
  };
  const std::string rule = "the ranks of a group met in different collectives: ";
  const std::string usual = " in all_reduce by add of f32 [5000] (reduce at program.cpp:12)";
  const auto check = [&](const std::string& text, int odd_one, const std::string& what) {
    INFO(text);
    CHECK(text.find(rule) != std::string::npos);
    CHECK(text.find(usual) != std::string::npos);
    CHECK(text.find("rank " + std::to_string(odd_one) + " in " + what) != std::string::npos);
    CHECK(text.find("; all must call the same steps in the same order") != std::string::npos);
  };
  for (int odd_one = 0; odd_one < 3; ++odd_one) {
    const auto reduces = [&](const reduction& r) {
      return failure(odd_one, [&](auto& comm, const float* in, float* out) { comm.reduce(mesh, r, &in, &out); });
    };
    check(reduces(larger), odd_one, "all_reduce by add of f32 [500000] (reduce at program.cpp:12)");
    check(reduces(few), odd_one, "all_reduce by add of f32 [4] (");
    check(reduces(maximum), odd_one, "all_reduce by max of f32 [5000] (");
    check(reduces(other_line), odd_one, "all_reduce by add of f32 [5000] (reduce at program.cpp:13)");
    check(failure(odd_one, [&](auto& comm, const float* in, float* out) { comm.move(mesh, gather, &in, &out); }), odd_one,
          "all_gather of f32 [5000]");
    check(failure(odd_one,
                  [&](auto& comm, const float* in, float* out) {
                    const auto* whole = reinterpret_cast<const std::int32_t*>(in);
                    auto* result = reinterpret_cast<std::int32_t*>(out);
                    comm.reduce(mesh, sum, &whole, &result);
                  }),
          odd_one, "all_reduce by add of s32 [5000] (");
    check(failure(odd_one, [&](auto& comm, const float*, float*) { comm.barrier(); }), odd_one, "a barrier");
  }
}

TEST_CASE("threads: an exchange whose devices disagree on a block reads nothing and says both sizes") {
  for (const std::int64_t received : {std::int64_t{1}, std::int64_t{100'000'000}}) {  // far after the peer's buffer
    const auto text = failure_of(3, [&](auto& comm) {
      const int me = comm.device(0);
      std::vector<double> from(6, me + 1.0), to(6, 0.0);
      std::vector<std::int64_t> sent(3, 2), expected(3, 2);
      const double* in = from.data();
      double* out = to.data();
      const std::int64_t* const sent_at = sent.data();
      const std::int64_t* const expected_at = expected.data();
      comm.exchange(&in, &sent_at, &out, &expected_at);
      if (to != std::vector<double>{1, 1, 2, 2, 3, 3}) throw gspmd::error("other blocks arrived");
      if (me == 2) expected[1] = received;
      comm.exchange(&in, &sent_at, &out, &expected_at);
    });
    CHECK(text ==
          "gspmd: on rank 2: the ranks disagree on an exchange of blocks: rank 1 sends 16 bytes to rank 2, which receives " +
              std::to_string(8 * received) + " bytes; all must give the same layouts and widths");
  }
}

TEST_CASE("threads: ranks that each call something else") {
  const auto mesh = mesh_of({4});
  for (int round = 0; round < 50; ++round) {
    const auto text = failure_of(4, [&](auto& comm) {
      std::vector<double> values(static_cast<std::size_t>(100 * (1 + comm.device(0))), 1.0);
      all_reduce(comm, mesh, values, 1);
    });
    CHECK(text.find("met in different collectives") != std::string::npos);
  }
}

TEST_CASE("threads: all ranks throw at once") {
  CHECK(failure_of(8, [&](auto&) { throw gspmd::error("all"); }).find("all") != std::string::npos);
}

TEST_CASE("require_devices: the same words on every backend") {
  const std::string words =
      "the mesh has 8 devices but the communicator has 2 ranks; start one rank for each device of the mesh, or give the mesh 2 "
      "devices";
  const auto check = [](auto& comm) { gspmd::require_devices(comm, 8); };
  CHECK(failure_of(2, check).find(words) != std::string::npos);
  gspmd::simulated_communicator comm(2);
  CHECK_THROWS_WITH_AS(gspmd::require_devices(comm, 8), ("gspmd: " + words).c_str(), gspmd::error);
}
