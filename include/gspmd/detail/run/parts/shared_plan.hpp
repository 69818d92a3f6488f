// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gspmd/detail/run/interpreter.hpp"
#include "gspmd/detail/run/parts/kernels_by_parts.hpp"
#include "gspmd/detail/run/parts/own_memory.hpp"
#include "gspmd/detail/run/static_rows.hpp"

/// A plan, as the threads of a device run it.
namespace gspmd::detail {

template <class K>
std::int64_t shared_work(const plan_view& p, const plan_step& s) {
  if constexpr (K::parts::is_one) return K::parts::work(p, s);
  else return 0;
}
inline namespace GSPMD_TARGET {
template <class K>
std::int64_t at_run_time<K>::shared_work(const plan_view& p, const plan_step& s) {
  return detail::shared_work<K>(p, s);
}
}  // namespace GSPMD_TARGET
inline std::int64_t shared_work(const plan_view& p, const plan_step& s) {
  if (!s.kernel.name->is_listed()) {
    const device_kernel_facts* const own = s.kernel.name->own;
    return own->shared_work == nullptr ? 0 : own->shared_work(p, s);
  }
  return mp11::mp_with_index<listed_kernel_count>(
      s.kernel.number(), [&](auto number) { return shared_work<mp11::mp_at_c<listed_kernels, number>>(p, s); });
}
/// Returns the work of the steps of a block of rows, for all blocks together. Returns 0 if some step does not run on
/// a single device.
inline std::int64_t work_of_rows(const plan_view& p, std::size_t begin) {
  const auto& region = p.steps[begin];
  std::int64_t work = 0;
  for (auto i = begin + 1; i < static_cast<std::size_t>(region.target); ++i) {
    const auto& s = p.steps[i];
    if (facts_of(s).work != step_work::computes) return 0;
    std::int64_t elems = 1;
    for (int k = 0; k < s.operands.count; ++k) elems = std::max(elems, elements(p.operand(s, k).local));
    work += std::max(elems, shared_work(p, s));
  }
  return region.trips * work;
}
/// Marks the steps that are worth sharing, and the first steps of blocks of rows that are worth sharing. The steps of
/// a single block whose steps run one after the other are treated like other steps. is_loop(step) returns true if the
/// steps of the block run as one loop over rows.
template <class IsLoop>
std::vector<std::uint8_t> find_shared_steps(const plan_view& p, std::int64_t least_work, IsLoop is_loop) {
  std::vector<std::uint8_t> is_shared(p.steps.size());
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    const bool is_rows = description_by<kernels::rows_begin>(p, p.steps[i]) != nullptr;
    if (is_rows && p.steps[i].trips == 1 && !is_loop(i)) continue;
    const auto work = is_rows ? work_of_rows(p, i) : shared_work(p, p.steps[i]);
    is_shared[i] = work > 0 && work >= least_work ? 1 : 0;
    if (is_rows) i = static_cast<std::size_t>(p.steps[i].target);
  }
  return is_shared;
}

/// The plan of a thread. It differs from the plan only in the separate memory of the thread.
struct plan_of_thread {
  plan_view view;
  std::vector<plan_step> steps;
  std::vector<planned_value> values;
  std::vector<ready_step> ready;
  prepared_objects objects;  // of a session
  step_memory memory;

  plan_of_thread(const plan_view& p, int thread, const std::vector<std::uint8_t>& is_shared)
      : view(p), steps(p.steps.begin(), p.steps.end()), values(p.values.begin(), p.values.end()) {
    if (thread > 0) move_to_own_memory(p, thread, is_shared, steps, values);
    view.steps = {steps.data(), steps.size()};
    view.values = {values.data(), values.size()};
  }
};

/// The plans of the threads. Made once for a program and a team, so a run allocates nothing.
struct shared_plan {
  std::vector<std::unique_ptr<plan_of_thread>> threads;
  std::vector<std::uint8_t> is_shared;          // by step
  std::vector<ready_step::alone_function> end;  // by step: ends a shared step in the first thread; null: not needed
  std::vector<aligned_bytes> rooms;             // by step: memory that threads share

  shared_plan(const plan_view& p, int count, std::vector<std::uint8_t> shared)
      : is_shared(std::move(shared)), end(p.steps.size()), rooms(p.steps.size()) {
    for (int k = 0; k < count; ++k) threads.push_back(std::make_unique<plan_of_thread>(p, k, is_shared));
  }
  [[nodiscard]] int count() const { return static_cast<int>(threads.size()); }
};

template <class Prepared>
void run_by_parts(const void* prepared, const plan_view& p, const plan_step& s, const device_memory& device) {
  static_cast<const Prepared*>(prepared)->run(p, s, device);
}

template <class Part>
void end_step(const void* part, const plan_view& p, const plan_step& s, const device_memory& device) {
  static_cast<const Part*>(part)->end(p, s, device);
}
/// Returns `prepared`, or the object that replaces it for the part of thread k.
template <class K, class Prepared>
ready_step ready_by_parts(const Prepared& prepared, shared_plan& made, std::size_t step, int k) {
  auto& thread = *made.threads[static_cast<std::size_t>(k)];
  const auto& s = thread.steps[step];
  if constexpr (requires { K::parts::of_part(prepared, thread.view, s, 0, 1, nullptr); })
    if (made.is_shared[step] != 0 && K::parts::has_parts(thread.view, s)) {
      using part = decltype(K::parts::of_part(prepared, thread.view, s, 0, 1, nullptr));
      if constexpr (requires { K::parts::room_bytes(thread.view, s); })
        if (const auto bytes = K::parts::room_bytes(thread.view, s); bytes > 0 && k == 0)
          made.rooms[step] = aligned_bytes(bytes, "a reduction that threads share");
      const auto* const own = new part(K::parts::of_part(prepared, thread.view, s, k, made.count(), made.rooms[step].get()));
      thread.objects.emplace_back(own, [](const void* o) { delete static_cast<const part*>(o); });
      if constexpr (requires(const device_memory& device) { own->end(thread.view, s, device); }) made.end[step] = end_step<part>;
      return {run_by_parts<part>, nullptr, own};
    }
  return {run_by_parts<Prepared>, nullptr, &prepared};
}

// ---- compiled programs ----

template <class Program, int Step, class K>
inline constexpr auto frozen_by_parts = K::parts::template freeze<Program, Step>();

template <class Program, int Step, class Comm>
ready_step freeze_step_by_parts(shared_plan& made, int k) {
  using K = kernel_of_step<Program, Step>;
  constexpr ready_step::alone_function rows = rows_from_steps<Program>[Step];
  if constexpr (rows != nullptr) return {nullptr, nullptr, nullptr, rows};
  else if constexpr (is_in_rows<Program>(Step)) return {};
  else if constexpr (K::parts::is_one) return ready_by_parts<K>(frozen_by_parts<in_parts<Program>, Step, K>, made, Step, k);
  else return freeze_step<Program, Step, Comm>();
}
template <class Program, class Comm>
std::unique_ptr<shared_plan> share_compiled(int threads, std::int64_t least_work) {
  auto made = std::make_unique<shared_plan>(
      Program::view, threads,
      find_shared_steps(Program::view, least_work, [](std::size_t i) { return rows_from_steps<Program>[i] != nullptr; }));
  for (int k = 0; k < threads; ++k)
    [&]<int... Step>(std::integer_sequence<int, Step...>) {
      made->threads[static_cast<std::size_t>(k)]->ready = {freeze_step_by_parts<Program, Step, Comm>(*made, k)...};
    }(std::make_integer_sequence<int, static_cast<int>(Program::view.steps.size())>{});
  return made;
}

// ---- sessions ----

/// Replaces `ready`, a step that is ready for one thread, by the step for the part of thread k.
template <class K>
void share_ready(ready_step& ready, shared_plan& made, std::size_t step, int k) {
  if constexpr (K::parts::is_one) {
    auto& thread = *made.threads[static_cast<std::size_t>(k)];
    using prepared = decltype(K::parts::adopt(*static_cast<const prepared_by<K>*>(ready.prepared)));
    const auto* const own = new prepared(K::parts::adopt(*static_cast<const prepared_by<K>*>(ready.prepared)));
    thread.objects.emplace_back(own, [](const void* o) { delete static_cast<const prepared*>(o); });
    ready = ready_by_parts<K>(*own, made, step, k);
  }
}
inline namespace GSPMD_TARGET {
template <class K>
void at_run_time<K>::share(ready_step& ready, shared_plan& made, std::size_t step, int thread) {
  share_ready<K>(ready, made, step, thread);
}
}  // namespace GSPMD_TARGET
inline std::unique_ptr<shared_plan> share_session(const plan_view& p, int threads, std::int64_t least_work) {
  auto made = std::make_unique<shared_plan>(p, threads, find_shared_steps(p, least_work, [](std::size_t) { return false; }));
  for (int k = 0; k < threads; ++k) {
    auto& thread = *made->threads[static_cast<std::size_t>(k)];
    thread.ready = make_all_ready<>(thread.view, thread.memory, thread.objects);
    for (std::size_t i = 0; i < p.steps.size(); ++i) {
      const kernel_id kernel = p.steps[i].kernel;
      if (!kernel.name->is_listed()) {
        const device_kernel_facts* const own = kernel.name->own;
        if (own->share != nullptr) own->share(thread.ready[i], *made, i, k);
        continue;
      }
      mp11::mp_with_index<listed_kernel_count>(kernel.number(), [&](auto number) {
        share_ready<mp11::mp_at_c<listed_kernels, number>>(thread.ready[i], *made, i, k);
      });
    }
  }
  return made;
}

}  // namespace gspmd::detail
