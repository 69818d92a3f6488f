// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gspmd/detail/report/explain_plan.hpp"
#include "gspmd/detail/run/runner.hpp"
#include "gspmd/report/network.hpp"

/// What the steps of a run took, written down by the device that ran them.
namespace gspmd::detail {

/// The words for a step of a plan: equal for steps that a table of times puts into one row.
struct step_label {
  std::string name, over, op, line;  // `over`: the axes of a collective; empty: the step computes
  std::int64_t bytes = 0;            // that one device sends
  double estimated = 0;              // seconds on the network of the plan, of a collective
  friend bool operator==(const step_label&, const step_label&) = default;
};

/// A step that ran: nanoseconds of the steady clock.
struct timed_step {
  std::int32_t label;
  std::int32_t device;
  std::int64_t begin, end;
};

/// What a user's profiler is told: the words of a step before it runs, and that it has run. Called by the thread of the device.
struct step_marker {
  std::function<void(const char* name)> begin;
  std::function<void()> end;
};

/// The steps that one object of a communicator ran, by its own thread; others read it when that has ended its run.
struct step_log {
  int device = 0;
  std::size_t most = 0;  // steps that are kept
  std::int64_t left_out = 0;
  std::vector<step_label> labels;
  std::vector<timed_step> times;
  step_marker marker;

  /// The number of the label of the first step of `plan`; those of its other steps follow.
  int labels_of(const plan_view& plan, const mesh_info& mesh) {
    // A plan may lie where another one lay.
    const auto mark = mark_of(plan);
    for (const auto& k : known_)
      if (k.mark == mark) return k.first;
    known_.push_back({mark, static_cast<int>(labels.size())});
    for (const auto& s : plan.steps) labels.push_back(label_of(plan, mesh, s));
    return known_.back().first;
  }

 private:
  struct known_plan {
    std::uint64_t mark;
    int first;
  };
  static std::uint64_t mark_of(const plan_view& plan) {
    std::uint64_t mark = plan.steps.size();
    const auto take = [&](std::uint64_t word) { mark = (mark ^ word) * 0x9e3779b97f4a7c15U, mark ^= mark >> 29; };
    for (const auto& s : plan.steps) {
      const auto& n = plan.nodes[static_cast<std::size_t>(s.node)];
      take(static_cast<std::uint64_t>(s.kernel) << 32 | static_cast<std::uint64_t>(s.collective));
      take(static_cast<std::uint64_t>(s.bytes_sent));
      take(static_cast<std::uint64_t>(s.axes));
      take(static_cast<std::uint64_t>(n.at.line) << 32 | static_cast<std::uint64_t>(s.node));
      for (const char c : std::string_view(name_of(n.op))) take(static_cast<unsigned char>(c));
    }
    return mark;
  }
  [[gnu::cold]] static step_label label_of(const plan_view& plan, const mesh_info& mesh, const plan_step& s) {
    const auto& n = plan.nodes[static_cast<std::size_t>(s.node)];
    step_label l;
    l.op = name_of(n.op);
    l.line = n.at.is_input() ? std::string(graph::input_text(n.at).view())
                             : std::string(graph::base_name(n.at.file)) + (n.at.line > 0 ? ':' + std::to_string(n.at.line) : "");
    if (!communicates(s)) {
      l.name = l.op;
      return l;
    }
    l.name = name_of(s.collective);
    l.over = axes_text(mesh, s.axes).view();
    l.bytes = s.bytes_sent;
    for (const auto t : step_times(mesh.request.network, plan, mesh.shape, s)) l.estimated += seconds_of(t);
    return l;
  }
  std::vector<known_plan> known_;
};

/// The looks of a traced run: the clock is read before and after each step. `Checks`: those that the program itself has.
template <class Checks>
class step_clock {
 public:
  static constexpr bool look = true;

  step_clock(const plan_view& plan, const mesh_info& mesh, step_log& log, Checks& checks)
      : plan_(plan), log_(log), checks_(checks), first_(log.labels_of(plan, mesh)) {}

  void begin(const plan_step& s) {
    if (log_.marker.begin) log_.marker.begin(log_.labels[static_cast<std::size_t>(label(s))].name.c_str());
    begun_ = now();
  }
  void look_at_results(const plan_step& s) {
    keep(s, begun_);
    if (log_.marker.end) log_.marker.end();
    if constexpr (Checks::look) checks_.look_at_results(s);
  }
  /// The loop or conditional that begins at step `i`, as a whole: its steps are in it.
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
    if (log_.marker.end) log_.marker.end();
  }

 private:
  static std::int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  [[nodiscard]] int label(const plan_step& s) const { return first_ + static_cast<int>(&s - plan_.steps.data()); }
  void keep(const plan_step& s, std::int64_t begin) {
    if (log_.times.size() < log_.most) log_.times.push_back({label(s), log_.device, begin, now()});
    else ++log_.left_out;
  }

  const plan_view& plan_;
  step_log& log_;
  Checks& checks_;
  int first_;
  std::int64_t begun_ = 0;
};

/// Runs a plan, a checked one with its checks, and writes down in `log` what its steps took.
inline void run_plan_traced(const plan_view& plan, const mesh_info& mesh, const ready_step* ready, const devices_here& devices,
                            ready_step::joint_function move, step_log& log) {
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
