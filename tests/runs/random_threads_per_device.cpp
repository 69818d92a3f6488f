// SPDX-License-Identifier: Apache-2.0
// labels: threads
// group: random
// alone: yes
// Random programs on devices with several threads are right, and have the bits of one thread.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/detail/kernels/blas_threads.hpp"
#include "gspmd/run/threads_per_device.hpp"
#include "support/run_random_on_threads.hpp"

namespace {

/// Every step that threads can share is shared, for any size.
constexpr std::int64_t all_work = 1;

/// Returns the outputs of the first device, whose bits are compared. Adds the mistakes of all devices to `wrong`.
template <class Backend>
std::vector<std::vector<std::byte>> random_outputs(const Backend& backend, const reference::random_program& program,
                                                   const gspmd::detail::plan_view& plan, int count, std::string& wrong) {
  std::vector<std::vector<std::byte>> all;
  std::mutex mutex;
  launch(backend, program.device_count(), [&](auto& comm) {
    gspmd::device_threads own(comm, count, all_work);
    auto teamed = own.of(comm);
    reference::bound_program bound(teamed, program, plan);
    for (int repeat = 0; repeat < 2; ++repeat) bound.run(teamed);
    const auto found = reference::run_and_check(teamed, program, plan);
    const std::lock_guard lock(mutex);
    wrong += found;
    if (teamed.device(0) == 0) all = bound.outputs();
  });
  return all;
}

}  // namespace

TEST_CASE("threads of a device: random programs have the bits of one thread") {
  const auto first = reference::setting("GSPMD_SEED", 1);
  // Under ThreadSanitizer a program takes seconds, with up to 24 threads on few cores.
  const auto count = std::min<std::uint64_t>(reference::programs(400) / 8, reference::is_sanitized ? 16 : 1000000);
  std::uint64_t shared = 0;
  const int of_blas = gspmd::detail::set_blas_threads(1);  // otherwise BLAS would use the threads for products
  for (auto seed = first; seed < first + count; ++seed) {
    reference::random_options options;
    options.lookups = seed % 2 == 0;  // most programs have few lookups
    const reference::random_program program(seed, options);
    const auto plan = gspmd::detail::plan_at_run_time(program.g, program.mesh, {});
    const gspmd::detail::plan_view view(plan);
    for (const auto is_shared : gspmd::detail::find_shared_steps(view, all_work, [](std::size_t) { return false; }))
      shared += is_shared;
    std::string wrong;
    const int most = 2 + static_cast<int>(seed % 3);
    const auto expected = random_outputs(gspmd::simulated{}, program, view, 1, wrong);
    const auto outputs = random_outputs(gspmd::simulated{}, program, view, most, wrong);
    if (program.device_count() <= 4 && seed % 4 == 0)
      static_cast<void>(random_outputs(gspmd::threads{}, program, view, most, wrong));
    CHECK_MESSAGE(wrong.empty(), "seed ", seed, ", ", most, " threads: ", wrong);
    CHECK_MESSAGE(outputs == expected, "seed ", seed, ", ", most, " threads: other bits\n", program.describe());
  }
  CHECK(shared > count);
  gspmd::detail::set_blas_threads(of_blas);
}

TEST_CASE("threads of a device: parts of a permutation are the whole, where a line more than some is left over too") {
  using namespace gspmd::detail;
  for (const std::int64_t rows : {1, 2, 3, 65, 129})
    for (const std::int64_t columns : {1, 2, 64, 65, 128, 129, 193})
      for (const std::int64_t depth : {1, 2}) {
        permutation_spec s;
        for (const auto extent : {rows, depth, columns}) s.in.push_back(extent);
        for (const int d : {2, 1, 0}) s.permutation.push_back(static_cast<std::int8_t>(d));
        const auto plan = plan_permutation(s);
        std::vector<std::uint16_t> in(static_cast<std::size_t>(plan.elems)), whole(in.size()), made(in.size());
        for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint16_t>(i + 1);
        permute<std::uint16_t>(plan, in.data(), whole.data());
        for (const int parts : {2, 3, 4}) {
          made.assign(in.size(), 0);
          for (int k = 0; k < parts; ++k) {
            const permutation_cut cut(plan, k, parts);
            permute<std::uint16_t>(cut.plan, in.data() + cut.in, made.data() + cut.out);
          }
          CHECK_MESSAGE(made == whole, "[", rows, ", ", depth, ", ", columns, "] by ", parts);
        }
      }
}
