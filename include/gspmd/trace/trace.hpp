// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/detail/transport/forwarding_communicator.hpp"
#include "gspmd/trace/detail/step_clock.hpp"
#include "gspmd/trace/detail/trace_report.hpp"

/// Traced runs: the time of each step and of each collective, next to the planner's estimate. Costs nothing in programs
/// that are not traced.
namespace gspmd {

/// The communicator of a traced run: `Comm`, with the times of its steps recorded in a run_trace. Made by
/// run_trace::of.
template <communicator Comm>
class traced_communicator : public detail::forwarding_communicator<Comm> {
  using detail::forwarding_communicator<Comm>::comm_;

 public:
  static_assert(
      !requires { typename Comm::teamed; }, "gspmd: trace: a traced run has one thread for each device");
  using traced = Comm;

  traced_communicator(Comm& comm, detail::step_log& log) : detail::forwarding_communicator<Comm>(comm), log_(log) {}

  /// Called by steps and sessions. The plan runs on `Comm` itself.
  void run(const detail::plan_view& plan, const detail::mesh_info& mesh, const detail::ready_step* ready,
           const detail::device_memory* devices, const void** from, void** to, detail::ready_step::joint_function move_words) {
    const detail::devices_here here{devices, comm_.local_count(), from, to, &comm_, detail::go_on_of<Comm>(plan)};
    detail::run_plan_traced(plan, mesh, ready, here, move_words, log_);
  }

 private:
  friend class run_trace;
  detail::step_log& log_;
};

/// Records the times of the steps of traced runs, on all devices of this process. It can record one or several
/// programs, compiled ones and programs planned at run time.
///
/// A traced step reads the clock twice and appends 24 bytes. Each run scans the steps of its plan once, and the first
/// run of a program also makes the texts for its steps. If a step runs between start and finish of a collective, the
/// step, the start and the finish are three events. The event of a loop or conditional contains the events of its body.
/// To trace a run from whole arrays: `run<step>(traced(threads{}, watched), x, w)`.
///
/// **Threads.** All devices may call `of` concurrently. Call the other functions after the devices have ended.
/// **Example.**
///
///     run_trace watched;
///     launch(threads{}, 4, [&](auto& comm) {
///       auto traced = watched.of(comm);
///       step(traced, x, w, y);
///     });
///     std::cout << watched.table();
///     std::ofstream("run.json") << watched.json();   // chrome://tracing, ui.perfetto.dev
class run_trace {
 public:
  /// Keeps the first `most_steps` steps of each device. left_out() returns the number of later steps.
  explicit run_trace(std::size_t most_steps = 1'000'000) : most_steps_(most_steps) {}
  run_trace(const run_trace&) = delete;
  run_trace& operator=(const run_trace&) = delete;

  /// Returns a communicator that does the same as `comm` and records its steps here. It must not outlive `comm` or this
  /// object.
  ///
  /// **Communication.** None.
  template <communicator Comm>
  [[nodiscard]] traced_communicator<Comm> of(Comm& comm) {
    return {comm, log_of(comm.device(0))};
  }

  /// Sets functions for the markers of a profiler (LIKWID, NVTX, Score-P). The thread of the device calls `begin` with
  /// the step's name before each step, and `end` after it. Applies to runs that start after this call.
  ///
  /// **Example.**
  ///
  ///     watched.mark([](const char* name) { likwid_markerStartRegion(name); }, ...);
  void mark(std::function<void(const char* name)> begin, std::function<void()> end) {
    const std::lock_guard lock(mutex_);
    marker_ = {std::move(begin), std::move(end)};
    for (auto& log : logs_) log.marker = marker_;
  }

  /// Moves the records of all processes to the process of device 0. A barrier sets their clocks to the clock of device
  /// 0. The other processes are then empty. Needed for `mpi`; does nothing if threads share this object.
  ///
  /// **Communication.** Collective: every process calls it, outside or inside of launch, with a communicator over all
  /// processes. Each process sends its steps to device 0, about 40 bytes for each step.
  template <communicator Comm>
    requires(!requires { typename Comm::traced; })
  void collect([[maybe_unused]] Comm& comm) {
    if constexpr (!traced_communicator<Comm>::shares_memory)
      if (comm.device_count() > 1) detail::gather_logs(comm, logs_);
  }
  template <communicator Comm>
  void collect(traced_communicator<Comm>& comm) {
    collect(comm.comm_);
  }

  /// Returns a table with a line for each kind of step, the most expensive first. A line has the number of times and of
  /// devices, and the least, the median and the sum of the times. For a collective it also has the bytes that each
  /// device sends, the planner's estimate, and the ratio of the median to the estimate.
  [[nodiscard]] std::string table(std::size_t most_rows = 40) const { return detail::trace_table(logs_, most_rows); }

  /// Returns the events in the format of chrome://tracing and Perfetto: a track for each device, in microseconds since
  /// the first event.
  [[nodiscard]] std::string json() const { return detail::trace_json(logs_); }

  /// Returns the number of steps that are kept, of all devices.
  [[nodiscard]] std::size_t size() const {
    std::size_t n = 0;
    for (const auto& log : logs_) n += log.times.size();
    return n;
  }
  /// Returns the number of steps that were not kept because `most_steps` was reached.
  [[nodiscard]] std::int64_t left_out() const {
    std::int64_t n = 0;
    for (const auto& log : logs_) n += log.left_out;
    return n;
  }
  /// Discards all steps and keeps their memory.
  void clear() {
    for (auto& log : logs_) {
      log.times.clear();
      log.left_out = 0;
    }
  }

 private:
  detail::step_log& log_of(int device) {
    const std::lock_guard lock(mutex_);
    for (auto& log : logs_)
      if (log.device == device) return log;
    auto& log = logs_.emplace_back();
    log.device = device;
    log.most = most_steps_;
    log.marker = marker_;
    return log;
  }

  std::size_t most_steps_;
  std::mutex mutex_;
  detail::step_marker marker_;
  std::deque<detail::step_log> logs_;  // addresses stay valid
};

/// A backend whose runs are recorded in a run_trace. Made by `traced`.
template <class Backend>
struct traced_backend {
  Backend backend;
  run_trace& watched;
};

/// Returns `backend` with its runs recorded in `watched`.
///
/// **Example.**
///
///     auto y = run<step>(traced(threads{}, watched), x, w1, w2);
template <class Backend>
[[nodiscard]] traced_backend<Backend> traced(const Backend& backend, run_trace& watched) {
  return {backend, watched};
}

/// Calls `f(comm)` as the backend does, with a traced communicator.
template <class Backend, class F>
void launch(const traced_backend<Backend>& on, int devices, F&& f) {
  launch(on.backend, devices, [&](auto& comm) {
    auto watched = on.watched.of(comm);
    f(watched);
  });
}
template <class Backend>
auto agree(const traced_backend<Backend>& on, const error* failure) -> decltype(agree(on.backend, failure)) {
  return agree(on.backend, failure);
}

}  // namespace gspmd
