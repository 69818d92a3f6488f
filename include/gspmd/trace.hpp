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
#include "gspmd/detail/report/trace_report.hpp"
#include "gspmd/detail/run/step_clock.hpp"

/// Runs that are watched: what every step and every collective took, beside what the planner had estimated for it. A program that is not
/// traced has nothing of it.
namespace gspmd {

/// The communicator of a traced run: `Comm`, whose steps are written down in a run_trace. Made by run_trace::of.
template <communicator Comm>
class traced_communicator {
 public:
  static_assert(
      !requires { typename Comm::teamed; }, "gspmd: trace: a traced run has one thread for each device");
  using traced = Comm;
  static constexpr bool shares_memory = requires { requires Comm::shares_memory; };

  traced_communicator(Comm& comm, detail::step_log& log) : comm_(comm), log_(log) {}

  [[nodiscard]] int device_count() const { return comm_.device_count(); }
  [[nodiscard]] int local_count() const { return comm_.local_count(); }
  [[nodiscard]] int device(int i) const { return comm_.device(i); }
  void barrier() { comm_.barrier(); }
  template <class T>
  void move(const detail::mesh_shape& mesh, const detail::movement& m, const T* const* in, T* const* out) {
    comm_.move(mesh, m, in, out);
  }
  template <class T>
  void reduce(const detail::mesh_shape& mesh, const detail::reduction& r, const T* const* in, T* const* out) {
    comm_.reduce(mesh, r, in, out);
  }
  template <class T>
  void exchange(const T* const* in, const std::int64_t* const* sent, T* const* out, const std::int64_t* const* received)
    requires requires(Comm& c) { c.exchange(in, sent, out, received); }
  {
    comm_.exchange(in, sent, out, received);
  }
  [[nodiscard]] auto serial() const
    requires requires(const Comm& c) { c.serial(); }
  {
    return comm_.serial();
  }
  [[nodiscard]] auto allocate(std::size_t bytes)
    requires requires(Comm& c) { c.allocate(bytes); }
  {
    return comm_.allocate(bytes);
  }

  /// Called by steps and sessions: the plan runs on the communicator itself.
  void run(const detail::plan_view& plan, const detail::mesh_info& mesh, const detail::ready_step* ready,
           const detail::device_memory* devices, const void** from, void** to, detail::ready_step::joint_function move_words) {
    const detail::devices_here here{devices, comm_.local_count(), from, to, &comm_, detail::go_on_of<Comm>(plan)};
    detail::run_plan_traced(plan, mesh, ready, here, move_words, log_);
  }

 private:
  friend class run_trace;
  Comm& comm_;
  detail::step_log& log_;
};

/// The times of the steps of traced runs, on all devices of this process: of compiled programs and of those made at run time, one or several.
///
///     run_trace watched;
///     launch(threads{}, 4, [&](auto& comm) {
///       auto traced = watched.of(comm);
///       step(traced, x, w, y);
///     });
///     std::cout << watched.table();
///     std::ofstream("run.json") << watched.json();   // chrome://tracing, ui.perfetto.dev
///
/// In a run from whole arrays: `run<step>(traced(threads{}, watched), x, w)`.
///
/// A traced step reads the clock twice and appends 24 bytes; a run looks once through its plan, and the first run of a program makes the words for its steps too. A
/// step that lies between start and finish of a collective is an event of its own, as they are. Loops and conditionals are events that
/// contain those of their bodies.
///
/// Threads: `of` may be called by all devices at once. The rest is for when they have ended.
class run_trace {
 public:
  /// At most `most_steps` are kept of each device, the first ones; left_out() says how many there were beyond.
  explicit run_trace(std::size_t most_steps = 1'000'000) : most_steps_(most_steps) {}
  run_trace(const run_trace&) = delete;
  run_trace& operator=(const run_trace&) = delete;

  /// Returns a communicator that does what `comm` does, whose steps are written down here. It must not outlive `comm` or this object.
  /// Communicates nothing.
  template <communicator Comm>
  [[nodiscard]] traced_communicator<Comm> of(Comm& comm) {
    return {comm, log_of(comm.device(0))};
  }

  /// Before every step `begin` is called with its name, and after it `end`, by the thread of the device: for the markers of a profiler
  /// (LIKWID, NVTX, Score-P). Of runs that start after this call.
  ///
  ///     watched.mark([](const char* name) { likwid_markerStartRegion(name); }, ...);
  void mark(std::function<void(const char* name)> begin, std::function<void()> end) {
    const std::lock_guard lock(mutex_);
    marker_ = {std::move(begin), std::move(end)};
    for (auto& log : logs_) log.marker = marker_;
  }

  /// Brings what the other processes have written down to that of device 0, with the clocks of all set to its own by a barrier; theirs is
  /// gone then. For `mpi`; where threads share this object there is nothing to do. Collective: every process calls it, outside of launch
  /// or inside, with a communicator over all of them. Sends each process's steps to device 0, about 40 bytes for each.
  template <communicator Comm>
    requires(!requires { typename Comm::traced; })
  void gather([[maybe_unused]] Comm& comm) {
    if constexpr (!traced_communicator<Comm>::shares_memory)
      if (comm.device_count() > 1) detail::gather_logs(comm, logs_);
  }
  template <communicator Comm>
  void gather(traced_communicator<Comm>& comm) {
    gather(comm.comm_);
  }

  /// A line for each kind of step, dearest first: how often it ran on how many devices, the least, the median and the sum of its times, and
  /// of collectives the bytes that one device sends, the time that the planner had estimated on its network, and the median over it.
  [[nodiscard]] std::string table(std::size_t most_rows = 40) const { return detail::trace_table(logs_, most_rows); }

  /// The events in the format of chrome://tracing and Perfetto, a track for each device, microseconds since the first one.
  [[nodiscard]] std::string json() const { return detail::trace_json(logs_); }

  /// The steps that are kept, of all devices.
  [[nodiscard]] std::size_t size() const {
    std::size_t n = 0;
    for (const auto& log : logs_) n += log.times.size();
    return n;
  }
  /// The steps for which there was no room.
  [[nodiscard]] std::int64_t left_out() const {
    std::int64_t n = 0;
    for (const auto& log : logs_) n += log.left_out;
    return n;
  }
  /// Forgets all steps; memory stays.
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
  std::deque<detail::step_log> logs_;  // whose addresses stay
};

/// A backend whose runs are written down in a run_trace. Made by `traced`.
template <class Backend>
struct traced_backend {
  Backend backend;
  run_trace& watched;
};

/// Returns `backend`, whose runs are written down in `watched`.
///
///     auto y = run<step>(traced(threads{}, watched), x, w1, w2);
template <class Backend>
[[nodiscard]] traced_backend<Backend> traced(const Backend& backend, run_trace& watched) {
  return {backend, watched};
}

/// Calls `f(comm)` as the backend does, with a communicator that is traced.
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
