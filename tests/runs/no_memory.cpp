// SPDX-License-Identifier: Apache-2.0
// labels: once
// Failed allocations: one error with the number of bytes, the purpose and the device. No device waits for the device
// that has no memory.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "gspmd/layouts/placed_array.hpp"
#include "support/error_of.hpp"

extern "C" void* __libc_memalign(std::size_t, std::size_t);  // NOLINT: glibc's own name of the function that this file replaces

namespace no_memory {

/// Allocations of this size or more fail on this thread.
thread_local std::size_t limit = std::size_t{1} << 40;

}  // namespace no_memory

extern "C" [[gnu::noinline]] void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  return bytes < no_memory::limit ? __libc_memalign(alignment, bytes) : nullptr;
}

namespace {

using namespace gspmd;
using caught::contains;
using caught::error_of;

/// Its running sums are in the arena, whose size depends on `columns`.
value sums(value x, std::int64_t columns) {
  return reduce(cumsum(broadcast_in_dim(x, {x.shape()[0], columns}, {0}), 1), monoid::max, 1);
}

using shards =
    compile<[](auto x) { return sum(cumsum(x, 0)); }, mesh<axis<"x", 2>>, input<double, shape<1024, 64>, split<_, "x">>>;

}  // namespace

TEST_CASE("an arena that cannot be had") {
  const std::int64_t columns = std::int64_t{1} << 45;
  const dynamic::mesh m({{"x", 2}});
  const auto huge = dynamic::compile([&](auto x) { return sums(x, columns); }, m, dynamic::input<double>({4}, {"x"}));
  const auto peak = std::to_string(huge.peak_bytes_per_device());
  REQUIRE(huge.peak_bytes_per_device() > (std::int64_t{1} << 48));
  const std::vector<double> x{1, 2, 3, 4};
  for (const auto& text : {error_of([&] { huge.run(simulated{}, x); }), error_of([&] { huge.run(threads{}, x); })}) {
    CAPTURE(text);
    CHECK(contains(text, "gspmd: on rank "));
    CHECK(contains(text, "there is no memory for the arena of a device: "));
    CHECK(contains(text, " bytes were requested; the plan holds " + peak + " bytes on a device at its peak"));
  }
}

TEST_CASE("one device of several has none, and the others do not wait for it") {
  for (int time = 0; time < 20; ++time) {
    const auto text = error_of([&] {
      launch(threads{}, 2, [](threads_communicator& comm) {
        std::vector<double> x(shards::input_shard<0>::local_elems, 1.0), y(1);
        shards step;
        if (comm.device(0) == 1) no_memory::limit = 1 << 10;
        step(comm, x, y);
        no_memory::limit = std::size_t{1} << 40;
      });
    });
    CHECK(contains(text, "gspmd: on rank 1: there is no memory for the arena of a device: " +
                             std::to_string(shards::peak_bytes_per_device - 1024 * 32 * 8 - 8)));
  }
}

TEST_CASE("arrays and results that cannot be had") {
  const std::int64_t much = std::int64_t{1} << 50;
  CHECK(contains(error_of([&] {
                   array<double> x({4, much});
                 }),
                 "gspmd: there is no memory for an array of [4,1125899906842624]: 36028797018963968 bytes were requested"));
  const dynamic::mesh m({{"x", 2}});
  const auto wide = dynamic::compile(
      [&](auto x) {
        return broadcast_in_dim(x, {4, much}, {0});
      },
      m, dynamic::input<double>({4}, {"x"}));
  const std::vector<double> x{1, 2, 3, 4};
  CHECK(contains(error_of([&] { wide.run(simulated{}, x); }), "there is no memory for a result of [4,1125899906842624]: "));

  no_memory::limit = 1 << 10;
  array<double> whole({1024, 64});
  const auto text = error_of([&] { run<shards>(simulated{}, whole); });
  const auto of_shards = error_of([&] { launch(simulated{}, 2, [&](auto& comm) { distribute<shards, 0>(comm, whole); }); });
  no_memory::limit = std::size_t{1} << 40;
  CHECK(contains(text,
                 "gspmd: on rank 0: there is no memory for a shard of an input: 262144 bytes were requested; the plan holds "));
  CHECK(contains(of_shards, "there is no memory for a shard of a sharded_array: 262144 bytes were requested"));
  CHECK(run<shards>(simulated{}, whole)[0] == 0);  // the earlier failure leaves no state
}
