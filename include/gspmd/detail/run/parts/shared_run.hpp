// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gspmd/detail/run/parts/part_of_units.hpp"
#include "gspmd/detail/run/parts/shared_plan.hpp"
#include "gspmd/detail/run/plan_runner.hpp"
#include "gspmd/detail/transport/threads/thread_team.hpp"

/// Runs of a plan whose steps the threads of a device share. The first thread runs the plan like a device with a
/// single thread. At a shared step it calls the other threads, which compute their parts. The first thread continues
/// after all parts are complete.
namespace gspmd::detail {

/// The checks that plan_runner calls before each step. They run the shared steps.
struct shared_steps {
  static constexpr bool look = false;
  shared_plan& plan;
  thread_team& team;
  const devices_here& devices;

  /// Returns true if the threads have run the step.
  bool share(int step) {
    const auto i = static_cast<std::size_t>(step);
    if (plan.is_shared[i] == 0 || plan.threads[0]->ready[i].alone == nullptr) return false;
    for (int d = 0; d < devices.count; ++d) {
      team.run([&, i, d](int k) {
        device_memory own = devices.memory[d];
        own.part = k;
        own.parts = team.count();
        const auto& thread = *plan.threads[static_cast<std::size_t>(k)];
        thread.ready[i].alone(thread.ready[i].prepared, thread.view, thread.view.steps[i], own);
      });
      const auto& first = *plan.threads[0];
      if (plan.end[i] == nullptr) continue;
      device_memory whole = devices.memory[d];
      whole.parts = team.count();
      plan.end[i](first.ready[i].prepared, first.view, first.view.steps[i], whole);
    }
    if (devices.go_on != nullptr) devices.go_on(devices.communicator);
    return true;
  }
  /// Returns true if the threads have run the blocks of rows that begin with a step. Each thread runs some blocks or,
  /// if there is only one block, some of its rows.
  bool share_rows(int step) {
    const auto begin = static_cast<std::size_t>(step);
    if (plan.is_shared[begin] == 0) return false;
    const auto& first = plan.threads[0]->view;
    const plan_step& region = first.steps[begin];
    const row_blocks& blocks = *description_by<kernels::rows_begin>(first, region);
    const bool is_one = region.trips == 1 && plan.threads[0]->ready[begin].rows != nullptr;
    // The last block may overlap the block before it. Then one thread runs both blocks.
    const auto together = blocks.rows % blocks.at_once != 0 && region.trips > 1 ? 1 : 0;
    for (int d = 0; d < devices.count; ++d)
      team.run([&, d](int k) {
        device_memory own = devices.memory[d];
        if (is_one) own.part = k, own.parts = team.count();
        part_of_units part(region.trips - together, k, team.count());
        if (is_one) part = {1, 0, 1};
        else if (part.last == region.trips - together && part.first < part.last) part.last += together;
        const auto& thread = *plan.threads[static_cast<std::size_t>(k)];
        for (auto block = part.first; block < part.last; ++block) run_block(thread, begin, own, blocks.first_row(block));
      });
    if (devices.go_on != nullptr) devices.go_on(devices.communicator);
    return true;
  }

 private:
  static void run_block(const plan_of_thread& thread, std::size_t begin, const device_memory& own, std::int64_t first_row) {
    const plan_step& region = thread.steps[begin];
    std::memcpy(own.write(thread.view.result(region).where), &first_row, sizeof first_row);
    if (const auto rows = thread.ready[begin].rows) return rows(nullptr, thread.view, region, own);
    for (auto i = begin + 1; i < static_cast<std::size_t>(region.target); ++i)
      thread.ready[i].alone(thread.ready[i].prepared, thread.view, thread.steps[i], own);
  }
};

inline void run_shared(shared_plan& plan, thread_team& team, const devices_here& devices) {
  shared_steps shared{plan, team, devices};
  const auto& first = *plan.threads[0];
  run_plan(first.view, first.ready.data(), devices, shared);
}

}  // namespace gspmd::detail
