// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

#include "gspmd/detail/run/equality_check.hpp"
#include "gspmd/detail/run/plan_runner.hpp"

/// Runs whose steps are timed.
namespace gspmd::detail {

/// The checks of a traced run, which read the clock before and after each step. `Checks` are the checks of the
/// program.
template <class Log, class Checks>
class step_clock {
 public:
  static constexpr bool look = true;

  step_clock(const plan_view& plan, const mesh_info& mesh, Log& log, Checks& checks)
      : plan_(plan), log_(log), checks_(checks), first_(log.labels_of(plan, mesh)) {}

  step_clock(const step_clock&) = delete;
  step_clock& operator=(const step_clock&) = delete;
  /// If a step has thrown, ends the markers of this step and of the loops and conditionals around it.
  ~step_clock() {
    while (open_ > 0) end_marked();
  }

  void begin(const plan_step& s) {
    ++open_;
    if (log_.marker.begin) log_.marker.begin(log_.labels[static_cast<std::size_t>(label(s))].name.c_str());
    begun_ = now();
  }
  void look_at_results(const plan_step& s) {
    keep(s, begun_);
    end_marked();
    if constexpr (Checks::look) checks_.look_at_results(s);
  }
  /// Begins the loop or conditional at step `i`. Its time includes the time of its steps.
  auto enter(int i) {
    struct entered {
      int step;
      std::int64_t begin;
      axis_mask together;
    } e{i, begun_, 0};
    if constexpr (Checks::look) e.together = checks_.enter(i);
    return e;
  }
  template <class Entered>
  void leave(const Entered& e) {
    if constexpr (Checks::look) checks_.leave(e.together);
    keep(plan_.steps[static_cast<std::size_t>(e.step)], e.begin);
    end_marked();
  }

 private:
  static std::int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  [[nodiscard]] int label(const plan_step& s) const { return first_ + static_cast<int>(&s - plan_.steps.data()); }
  void end_marked() {
    --open_;
    if (log_.marker.end) log_.marker.end();
  }
  void keep(const plan_step& s, std::int64_t begin) {
    if (log_.times.size() < log_.most) log_.times.push_back({label(s), log_.device, begin, now()});
    else ++log_.left_out;
  }

  const plan_view& plan_;
  Log& log_;
  Checks& checks_;
  int first_;
  std::int64_t begun_ = 0;
  int open_ = 0;  // steps that have begun and not ended
};

/// Runs a plan, with its checks if it is checked, and records the times of its steps in `log`.
template <class Log>
void run_plan_traced(const plan_view& plan, const mesh_info& mesh, const ready_step* ready, const devices_here& devices,
                     ready_step::joint_function move, Log& log) {
  if (plan.is_checked) {
    equality_check<> checks(plan, mesh, devices, move);
    checks.look_at_inputs();
    step_clock clock(plan, mesh, log, checks);
    return run_plan(plan, ready, devices, clock);
  }
  no_checks none;
  step_clock clock(plan, mesh, log, none);
  run_plan(plan, ready, devices, clock);
}

}  // namespace gspmd::detail
