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
#include "gspmd/run.hpp"

/// Several threads for each device, with the backends `mpi`, `threads` and `self`. Costs nothing in programs that do not use it.
namespace gspmd {

template <communicator Comm>
class teamed_communicator;

/// The threads of a device: the thread that makes this object, and `count` - 1 helpers, which wait for its steps and end with it.
///
/// Helpers compute each step in the floating-point environment that the caller has when it runs the step: rounding mode, flush-to-zero and
/// trapped exceptions. The flags of exceptions that helpers raise stay in the helpers (fetestexcept does not see them). A BLAS that starts
/// threads of its own keeps their environment; gspmd cannot set it.
///
///     launch(mpi{MPI_COMM_WORLD}, 4, [&](auto& comm) {
///       device_threads own(comm, 2);
///       auto both = own.of(comm);
///       step(both, x, w, y);
///     });
///
/// In a run from whole arrays: `run<step>(threads_per_device(2, mpi{MPI_COMM_WORLD}), x, w)`.
///
/// The first run of a program by a team allocates; later ones do not. Throws gspmd::error: fewer than one thread; one cannot be started.
/// Threads: belongs to the thread that makes it, as its communicator does.
class device_threads {
 public:
  /// `least_shared_work`: a step of fewer operations (what it computes, reads and writes, by element) is done by one thread.
  template <communicator Comm>
  device_threads(const Comm& comm, int count, std::int64_t least_shared_work = detail::least_shared_work)
      : team_(count, static_cast<unsigned>(count * comm.device_count()) <= std::thread::hardware_concurrency()),
        least_work_(least_shared_work) {}

  /// Returns a communicator that does what `comm` does, on which the steps of programs are shared by these threads. It must not outlive `comm`
  /// or this object. Communicates nothing.
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

/// The communicator of devices that have several threads: `Comm`, which the first of them calls. Made by device_threads::of.
template <communicator Comm>
class teamed_communicator {
 public:
  static_assert(
      !requires { typename Comm::traced; }, "gspmd: threads_per_device: a traced run has one thread for each device");
  static_assert(
      !requires { typename Comm::teamed; }, "gspmd: threads_per_device: this communicator has several threads already");
  using teamed = Comm;
  static constexpr bool shares_memory = requires { requires Comm::shares_memory; };

  teamed_communicator(Comm& comm, device_threads& threads) : comm_(comm), threads_(threads) {}

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
  /// Another one than that of `Comm`, since arenas are larger.
  [[nodiscard]] std::uint64_t serial() const {
    std::uint64_t own = 0;
    if constexpr (requires { comm_.serial(); }) own = comm_.serial();
    return (threads_.serial_ << 32) + own;
  }
  [[nodiscard]] auto allocate(std::size_t bytes)
    requires requires(Comm& c) { c.allocate(bytes); }
  {
    return comm_.allocate(bytes);
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
      const auto steps = &detail::share_compiled<Program, Comm>;  // its address tells programs apart
      auto known = threads_.compiled_.begin();
      while (known != threads_.compiled_.end() && known->steps != steps) ++known;
      if (known == threads_.compiled_.end())
        known = threads_.compiled_.insert(known, {steps, steps(threads_.count(), threads_.least_work_)});
      detail::run_shared(*known->shared, threads_.team_,
                         {devices, local_count(), from, to, &comm_, detail::go_on_of<Comm>(Program::view)});
    }
  }
  /// `kept`: of the session, which runs with one team after the other.
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
  Comm& comm_;
  device_threads& threads_;
};

/// A backend whose devices have several threads. Made by `threads_per_device`.
template <class Backend>
struct backend_with_threads {
  int threads;
  Backend backend;
};

/// Returns `backend`, whose devices have `threads` threads each.
///
///     auto y = run<step>(threads_per_device(2, self{}), x, w1, w2);
template <class Backend>
[[nodiscard]] backend_with_threads<Backend> threads_per_device(int threads, const Backend& backend) {
  return {threads, backend};
}

/// Calls `f(comm)` as the backend does, with a communicator whose steps are shared by the threads of its device.
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
