// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <exception>
#include <string>

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/run/padding.hpp"
#include "gspmd/detail/run/ready_step.hpp"
#include "gspmd/error.hpp"

/// Runs the steps of a plan one after the other, for compiled programs and sessions. Interprets loops and
/// conditionals.
namespace gspmd::detail {

/// Returns the error with the operator of the user's program that failed.
[[gnu::cold]] inline error at_step(const error& e, const plan_view& plan, int step) {
  const auto& n = plan.nodes[static_cast<std::size_t>(plan.steps[static_cast<std::size_t>(step)].node)];
  if (n.at.is_input()) return e.with_op(std::string(graph::input_text(n.at).view()));
  return e.with_op(name_of(n.op), n.at.file, n.at.line);
}

/// Returns true if the devices take the first branch. Their predicates must be equal, because devices in different
/// branches would wait forever in their collectives. A communicator that holds several devices detects a difference.
inline bool holds(const plan_view& plan, const plan_step& s, const devices_here& devices) {
  bool first = false;
  for (int d = 0; d < devices.count; ++d) {
    bool own = false;
    std::memcpy(&own, devices.memory[d].read(plan.operand(s, 0).where), sizeof own);
    if (d == 0) first = own;
    else if (own != first)
      throw error("the condition differs between devices; those that go different ways run on threads or over MPI");
  }
  return first;
}

inline void set_counter(const plan_view& plan, const plan_step& s, const devices_here& devices, std::int64_t i) {
  for (int d = 0; d < devices.count; ++d) std::memcpy(devices.memory[d].write(plan.result(s).where), &i, sizeof i);
}

/// The checks of a program that is not checked: no step is observed.
struct no_checks {
  static constexpr bool look = false;
};

template <class Checks>
struct plan_runner {
  const plan_view& plan;
  const ready_step* ready;
  const devices_here& devices;
  Checks& checks;
  int current = 0;  // the step that runs
  // The condition of the conditional that ended last. The body of a while loop is one conditional, so this is also
  // the condition of the loop.
  bool held = false;

  /// Runs the steps [begin, end).
  void run(int begin, int end) {
    for (int i = begin; i < end; ++i) {
      current = i;
      const plan_step& s = plan.steps[static_cast<std::size_t>(i)];
      const ready_step& r = ready[i];
      if constexpr (Checks::look) checks.begin(s);
      if constexpr (requires { checks.share(i); })
        if (checks.share(i)) continue;
      if (r.alone != nullptr) {
        run_alone(r.alone, r.prepared, s);
      } else if (r.joint != nullptr) {
        r.joint(r.prepared, plan, s, devices);
        for (int d = 0; d < devices.count; ++d) clear_results(plan, s, devices.memory[d]);
      } else {
        i = run_region(i, s);
        continue;
      }
      if constexpr (Checks::look) checks.look_at_results(s);
    }
  }

  /// Finishes, after a failure in a step, the movements that were started before this step and would finish after it.
  /// Until then other devices may read the buffers of this device.
  [[gnu::cold]] void finish_moves() {
    for (int start = 0; start < current; ++start) {
      const plan_step& s = plan.steps[static_cast<std::size_t>(start)];
      if (facts_of(s).work != step_work::moves || s.target <= current) continue;
      try {
        ready[s.target].joint(ready[s.target].prepared, plan, plan.steps[static_cast<std::size_t>(s.target)], devices);
      } catch (...) {  // the first failure is reported
        continue;
      }
    }
  }

 private:
  void run_alone(ready_step::alone_function function, const void* prepared, const plan_step& s) {
    for (int d = 0; d < devices.count; ++d) function(prepared, plan, s, devices.memory[d]);
    if (devices.go_on != nullptr) devices.go_on(devices.communicator);
  }
  /// Runs the loop or conditional that begins at step `i`. Returns its last step.
  int run_region(int i, const plan_step& s) {
    if constexpr (Checks::look) {
      const auto together = checks.enter(i);
      const int last = run_body(i, s);
      checks.leave(together);
      return last;
    } else {
      return run_body(i, s);
    }
  }
  int run_body(int i, const plan_step& s) {
    if (const auto* const blocks = description_by<kernels::rows_begin>(plan, s)) {
      if constexpr (requires { checks.share_rows(i); })
        if (checks.share_rows(i)) return s.target;
      for (std::int64_t block = 0; block < s.trips; ++block) {
        set_counter(plan, s, devices, blocks->first_row(block));
        if (ready[i].rows != nullptr) run_alone(ready[i].rows, nullptr, s);
        else run(i + 1, s.target);
      }
      return s.target;
    }
    if (facts_of(s).role == step_role::loop_begin) {
      std::int64_t t = 0;
      for (bool goes_on = s.trips != 0; goes_on; goes_on = s.trips == unknown_trips ? held : t < s.trips) {
        set_counter(plan, s, devices, t++);
        run(i + 1, s.target);
      }
      set_counter(plan, s, devices, t);  // values that alternate between two buffers are in the buffer of the last iteration
      return s.target;
    }
    const int join = plan.steps[static_cast<std::size_t>(s.target)].target;
    const bool own = holds(plan, s, devices);
    if (own) run(i + 1, s.target);
    else run(s.target + 1, join);
    held = own;
    return join;
  }
};

template <class Checks>
void run_plan(const plan_view& plan, const ready_step* ready, const devices_here& devices, Checks& checks) {
  plan_runner<Checks> runner{plan, ready, devices, checks};
  try {
    runner.run(0, static_cast<int>(plan.steps.size()));
  } catch (const error& e) {
    runner.finish_moves();
    throw at_step(e, plan, runner.current);
  } catch (const std::exception& e) {  // from a user's function or communicator
    runner.finish_moves();
    throw at_step(error(e.what()), plan, runner.current);
  } catch (...) {
    runner.finish_moves();
    throw;
  }
}

}  // namespace gspmd::detail
