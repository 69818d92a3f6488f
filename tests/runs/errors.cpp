// SPDX-License-Identifier: Apache-2.0
// labels: threads
// group: map
// Errors at run time, and their words.
#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include <gspmd/gspmd.hpp>

#include "support/error_of.hpp"

using namespace gspmd;

namespace {

using line4 = mesh<axis<"x", 4>>;
using caught::error_of;

constexpr auto product = [](auto x, auto w) { return einsum<"bd,df->bf">(x, w); };
using step = compile<product, line4, input<float, shape<8, 3>, split<"x", _>>, input<float, shape<3, 2>>>;

struct throws_at_7 {
  template <class T>
  T operator()(T x) const {
    if (x == static_cast<T>(7)) throw std::runtime_error("seven is not allowed");
    return x;
  }
};
constexpr auto with_map = [](auto x) { return map(throws_at_7{}, x); };
constexpr int with_map_line = __LINE__ - 1;
using mapped = compile<with_map, line4, input<float, shape<8>, split<"x">>>;

/// A communicator whose reductions fail.
struct broken_wire : simulated_communicator {
  using simulated_communicator::simulated_communicator;
  template <class T>
  void reduce(const detail::mesh_shape&, const detail::reduction&, const T* const*, T* const*) {
    throw error("the wire is broken", 2);
  }
};
constexpr auto total = [](auto x) { return sum(x); };
constexpr int total_line = __LINE__ - 1;
using summed = compile<total, line4, input<float, shape<8>, split<"x">>>;

}  // namespace

TEST_CASE("run: a wrong number of elements") {
  array<float> x({8, 3}), w({3, 3});
  CHECK(error_of([&] { run<step>(simulated{}, x, w); }) ==
        "gspmd: run: input 1 is [3,2] and the array given is [3,3]; dim 1 differs");
  CHECK(error_of([&] { run<step>(simulated{}, std::vector<float>(5), w); }) ==
        "gspmd: run: input 0 is [8,3] with 24 elements and the array given has 5");
}

// The element types and the number of arrays are compile errors (tests/compile_fail), except after a vector of arrays.
TEST_CASE("run: a wrong element type in or after a vector of arrays") {
  array<float> x({8, 3});
  array<double> w({3, 2});
  CHECK(
      error_of([&] { run<step>(threads{}, std::vector{x}, w); }) ==
      "gspmd: run: input 1 is float [3,2] and the array passed for it is of double; pass an array of float, or declare the input "
      "with elements of double");
  CHECK(
      error_of([&] {
        run<step>(threads{}, std::vector{array<std::int64_t>({8, 3}), array<std::int64_t>({3, 2})});
      }) ==
      "gspmd: run: input 0 is float [8,3] and the array passed for it is of std::int64_t; pass an array of float, or declare the "
      "input with elements of std::int64_t");
}

TEST_CASE("run: a wrong number of arrays in a vector") {
  array<float> x({8, 3}), w({3, 2});
  CHECK(error_of([&] { run<step>(simulated{}, std::vector{x}); }) ==
        "gspmd: run: the program has 2 inputs and the call passes 1 array; also pass input 1, float [3,2]");
  CHECK(error_of([&] {
          run<step>(simulated{}, std::vector{x, w}, w);
        }) == "gspmd: run: the program has 2 inputs and the call passes 3 arrays; leave out the last one");
  CHECK(error_of([&] {
          run<summed>(simulated{}, std::vector{array<float>({8}), w, w});
        }) == "gspmd: run: the program has 1 input and the call passes 3 arrays; leave out the last 2");
}

TEST_CASE("a wrong number of devices") {
  array<float> x({8, 3}), w({3, 2});
  CHECK(error_of([&] { run<step>(serial{}, x, w); }) ==
        "gspmd: the mesh has 4 devices but the communicator has 1 rank; start one rank for each device of the mesh, or give the "
        "mesh 1 device");
  CHECK(error_of([&] {
          launch(threads{}, 3, [&](auto& comm) {
            step s;
            std::vector<float> shard(6), result(4);
            s(comm, shard, w, result);
          });
        })
            .find("the mesh has 4 devices but the communicator has 3 ranks; start one rank for each device of the mesh, or give "
                  "the mesh 3 "
                  "devices") != std::string::npos);
}

TEST_CASE("a buffer that is no shard") {
  std::vector<float> buffer(7);
  using shard = shard_view<float, line4, shape<9, 2>, split<"x", _>>;
  CHECK(
      error_of([&] { static_cast<void>(shard(buffer)); }) ==
      "gspmd: a shard of [3,2] has 6 elements and the buffer has 7; every device allocates the local extents, padding included");

  const auto text = error_of([&] {
    launch(threads{}, 4, [&](auto& comm) {
      step s;
      std::vector<float> x(comm.device(0) == 2 ? 5 : 6), w(6), result(4);
      s(comm, x, w, result);
    });
  });
  CHECK(text ==
        "gspmd: on rank 2: a shard of [2,3] has 6 elements and the buffer has 5; every device allocates the local extents, "
        "padding included");
}

TEST_CASE("a map that throws: operator, line and rank reach the caller") {
  array<float> x({8});
  for (int i = 0; i < 8; ++i) x[i] = static_cast<float>(i);
  const auto place = "map at " + std::string(__FILE__) + ':' + std::to_string(with_map_line);
  CHECK(error_of([&] { run<mapped>(threads{}, x); }) == "gspmd: " + place + " on rank 3: seven is not allowed");
  CHECK(error_of([&] { run<mapped>(simulated{}, x); }) == "gspmd: " + place + ": seven is not allowed");
  x[7] = 0;
  CHECK(run<mapped>(threads{}, x)[6] == 6);
}

TEST_CASE("communication that throws: the operator it is for, its line and the rank") {
  broken_wire comm(4);
  std::vector<float> shards(8), results(4);
  const void* in[4];
  void* out[4];
  for (int d = 0; d < 4; ++d) {
    in[d] = shards.data() + 2 * d;
    out[d] = results.data() + d;
  }
  summed s;
  CHECK(error_of([&] { s.run(comm, in, out); }) ==
        "gspmd: reduce at " + std::string(__FILE__) + ':' + std::to_string(total_line) + " on rank 2: the wire is broken");
}

TEST_CASE("a device that throws between collectives stops the others") {
  const auto run = [&] {
    launch(threads{}, 4, [&](auto& comm) {
      summed s;
      std::vector<float> x(2), y(1);
      s(comm, x, y);
      if (comm.device(0) == 1) throw std::runtime_error("out of cheese");
      s(comm, x, y);
    });
  };
  CHECK_THROWS_WITH_AS(run(), "out of cheese", std::runtime_error);  // as it was thrown
}

TEST_CASE("array: more dims than a tensor may have") {
  CHECK(error_of([] {
          array<float>({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
        }) == "gspmd: array: a tensor has at most 32 dims");
}
