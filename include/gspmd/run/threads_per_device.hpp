// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/detail/run/parts/shared_run.hpp"
#include "gspmd/detail/transport/forwarding_communicator.hpp"
#include "gspmd/run/run.hpp"

/// Several threads for each device, with the backends `mpi`, `threads` and `serial`. Costs nothing in programs that do
/// not use it.
namespace gspmd {

template <communicator Comm>
class teamed_communicator;

/// The threads of a device: the thread that makes this object, and `count` - 1 helpers. The helpers wait for the steps
/// of this thread and end with this object.
///
/// The helpers compute each step in the floating-point environment that the caller has when it runs the step: rounding
/// mode, flush-to-zero and trapped exceptions. Exception flags that helpers raise stay in the helpers, so fetestexcept
/// does not see them. A BLAS that starts its own threads keeps their environment, and gspmd cannot set it.
/// The first run of a program by a team allocates memory; later runs do not.
/// For a run from whole arrays: `run<step>(threads_per_device(2, mpi{MPI_COMM_WORLD}), x, w)`.
///
/// **Errors.** Throws gspmd::error: fewer than one thread, or a thread that cannot be started.
/// **Threads.** Only the thread that makes this object may use it, like its communicator.
/// **Example.**
///
///     launch(mpi{MPI_COMM_WORLD}, 4, [&](auto& comm) {
///       device_threads own(comm, 2);
///       auto both = own.of(comm);
///       step(both, x, w, y);
///     });
class device_threads {
 public:
  /// Starts the helpers. A step with fewer operations than `least_shared_work` is done by one thread. Operations are
  /// elements computed, read and written.
  template <communicator Comm>
  device_threads(const Comm& comm, int count, std::int64_t least_shared_work = detail::least_shared_work)
      : team_(count, static_cast<unsigned>(count * comm.device_count()) <= std::thread::hardware_concurrency()),
        least_work_(least_shared_work) {}

  /// Returns a communicator that does the same as `comm` and shares the steps of programs among these threads. It must
  /// not outlive `comm` or this object.
  ///
  /// **Communication.** None.
  template <communicator Comm>
  [[nodiscard]] teamed_communicator<Comm> of(Comm& comm) {
    return {comm, *this};
  }
  [[nodiscard]] int count() const { return team_.count(); }

 private:
  template <communicator Comm>
  friend class teamed_communicator;
  struct known_plan {
    std::unique_ptr<detail::shared_plan> (*steps)(int threads, std::int64_t least_work);
    std::unique_ptr<detail::shared_plan> shared;
  };

  static std::uint64_t next_serial() {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
  }
  detail::thread_team team_;
  std::int64_t least_work_;
  std::uint64_t serial_ = next_serial();
  std::list<known_plan> compiled_;
};

/// The communicator of devices with several threads: `Comm`, which only the first thread of a device calls. Made by
/// device_threads::of.
template <communicator Comm>
class teamed_communicator : public detail::forwarding_communicator<Comm> {
  using detail::forwarding_communicator<Comm>::comm_;

 public:
  static_assert(
      !requires { typename Comm::traced; }, "gspmd: threads_per_device: a traced run has one thread for each device");
  static_assert(
      !requires { typename Comm::teamed; }, "gspmd: threads_per_device: this communicator has several threads already");
  using teamed = Comm;

  teamed_communicator(Comm& comm, device_threads& threads) : detail::forwarding_communicator<Comm>(comm), threads_(threads) {}

  /// Returns a number other than that of `Comm`, because arenas are larger.
  [[nodiscard]] std::uint64_t serial() const {
    std::uint64_t own = 0;
    if constexpr (requires { comm_.serial(); }) own = comm_.serial();
    return (threads_.serial_ << 32) + own;
  }

  // Called by steps and sessions.
  [[nodiscard]] Comm& of_devices() { return comm_; }
  [[nodiscard]] std::int64_t arena_bytes(const detail::plan_view& plan) const {
    return detail::own_memory(plan).arena_bytes(threads_.count());
  }
  template <class Program>
  void run_compiled(const detail::device_memory* devices, const void** from, void** to) {
    if constexpr (Program::view.is_checked) {
      detail::run_static<Program>(comm_, devices, from, to);
    } else {
      const auto steps = &detail::share_compiled<Program, Comm>;  // its address identifies the program
      auto known = threads_.compiled_.begin();
      while (known != threads_.compiled_.end() && known->steps != steps) ++known;
      if (known == threads_.compiled_.end())
        known = threads_.compiled_.insert(known, {steps, steps(threads_.count(), threads_.least_work_)});
      detail::run_shared(*known->shared, threads_.team_,
                         {devices, comm_.local_count(), from, to, &comm_, detail::go_on_of<Comm>(Program::view)});
    }
  }
  /// `kept` belongs to the session, which can run with several teams one after another.
  void run_session(const detail::plan_view& plan, const std::vector<detail::ready_step>& ready, std::shared_ptr<void>& kept,
                   const detail::devices_here& here) {
    struct kept_plan {
      std::uint64_t serial;
      std::unique_ptr<detail::shared_plan> shared;
    };
    if (!kept || static_cast<kept_plan*>(kept.get())->serial != threads_.serial_)
      kept = std::make_shared<kept_plan>(threads_.serial_, detail::share_session(plan, threads_.count(), threads_.least_work_));
    auto& shared = *static_cast<kept_plan*>(kept.get())->shared;
    for (std::size_t i = 0; i < ready.size(); ++i) shared.threads[0]->ready[i].joint = ready[i].joint;
    detail::run_shared(shared, threads_.team_, here);
  }

 private:
  device_threads& threads_;
};

/// A backend whose devices have several threads. Made by `threads_per_device`.
template <class Backend>
struct backend_with_threads {
  int threads;
  Backend backend;
};

/// Returns `backend` with `threads` threads for each device.
///
/// **Example.**
///
///     auto y = run<step>(threads_per_device(2, serial{}), x, w1, w2);
template <class Backend>
[[nodiscard]] backend_with_threads<Backend> threads_per_device(int threads, const Backend& backend) {
  return {threads, backend};
}

/// Calls `f(comm)` as the backend does, with a communicator that shares its steps among the threads of its device.
template <class Backend, class F>
void launch(const backend_with_threads<Backend>& on, int devices, F&& f) {
  launch(on.backend, devices, [&](auto& comm) {
    device_threads own(comm, on.threads);
    auto teamed = own.of(comm);
    f(teamed);
  });
}
template <class Backend>
auto agree(const backend_with_threads<Backend>& on, const error* failure) -> decltype(agree(on.backend, failure)) {
  return agree(on.backend, failure);
}

}  // namespace gspmd
