// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "gspmd/detail/kernels/blas_threads.hpp"
#include "gspmd/detail/run/fused_step.hpp"
#include "gspmd/detail/run/parts/part_of_contraction.hpp"
#include "gspmd/detail/run/parts/part_of_loop.hpp"
#include "gspmd/detail/run/parts/part_of_permutation.hpp"
#include "gspmd/detail/run/parts/part_of_reduction.hpp"
#include "gspmd/detail/run/static_program.hpp"
#include "gspmd/index/detail/part_of_lines.hpp"
#include "gspmd/index/detail/part_of_lookup.hpp"
#include "gspmd/windows/detail/part_of_windows.hpp"

/// Kernels whose steps the threads of a device share: by_parts<K>. Each thread calls the kernel with a device_memory
/// that has the number of its part. It writes nothing that another thread reads or writes in this step.
namespace gspmd::detail {

/// The facts that a kernel states:
///
///   work(p, s)                  operations of a step, counted as for least_shared_work; 0: one thread runs the step
///   freeze<Program, Step>()     compiled programs: an object with run(p, s, device). It runs the whole step if
///                               device.parts is 1
///   adopt(prepared)             sessions: the same object, made from the object that the kernel prepared for the
///                               thread
///   of_part(object, p, s, part, parts, room)    optional: an object that replaces this object in a shared step. If it
///                               has end(p, s, device), this function ends the step after all threads have run their
///                               parts
///   has_parts(p, s)             required with of_part: returns true if this step has such objects
///   room_bytes(p, s)            optional: bytes of memory that the threads share in this step
///
/// If a kernel states nothing, one thread runs its steps.
template <class K>
struct by_parts {
  static constexpr bool is_one = false;
};

/// The part of a fused loop that reduces its results. `Loop` is the loop of a single thread.
template <class Loop>
struct reduced_loop_part {
  const Loop* whole;
  std::byte* room;
  std::int64_t room_bytes;
  bool stores;

  void run(const plan_view& p, const plan_step& s, const device_memory& device) const {
    const part_of_reduced_loop part{device, room, room_bytes, stores};
    whole->run_part(p, s, device, &part);
  }
  void end(const plan_view& p, const plan_step& s, const device_memory& device) const {
    const end_of_reduced_loop part{{device, room, room_bytes, stores}};
    whole->run_part(p, s, device, &part);
  }
};
/// A fused loop of a session.
struct shared_loops {
  const fused_loops* loops;

  void run(const plan_view& p, const plan_step& s, const device_memory& device) const { loops->run<part_of_loop>(p, s, device); }
  template <class Part>
  void run_part(const plan_view& p, const plan_step& s, const device_memory& device, const Part* part) const {
    loops->run<once>(p, s, device, part);
  }
};
/// A fused loop of a compiled program.
template <class Loop>
struct shared_constant_loop {
  Loop loop;

  void run(const plan_view& p, const plan_step& s, const device_memory& device) const { loop.run(p, s, device); }
  template <class Part>
  void run_part(const plan_view& p, const plan_step& s, const device_memory& device, const Part* part) const {
    if constexpr (requires { loop.run(p, s, device, part); }) loop.run(p, s, device, part);
    else loop.run(p, s, device);  // a loop without reductions
  }
};

/// Fused loops. Their results and reductions have the bits that one thread computes.
template <>
struct by_parts<kernels::fused> {
  static constexpr bool is_one = true;

  static std::int64_t work(const plan_view& p, const plan_step& s) {
    const auto& group = group_of_step(p, s);
    return elements(group.loop) * (group.ops.count + group.stores.count);
  }
  template <class Program, int Step>
  static constexpr auto freeze() {
    return shared_constant_loop<decltype(kernels::fused::freeze<Program, Step, part_of_loop>())>{
        kernels::fused::freeze<Program, Step, part_of_loop>()};
  }
  static auto adopt(const fused_loops& prepared) { return shared_loops{&prepared}; }
  static bool has_parts(const plan_view& p, const plan_step& s) { return group_of_step(p, s).reductions.count > 0; }
  static std::int64_t room_bytes(const plan_view& p, const plan_step& s) {
    const loop_reduction& f = reductions_of(p, s)[0];
    const auto& spec = table_of<reduction_spec>(p)[static_cast<std::size_t>(f.reduction)];
    return most_loop_reductions * room_of_reduction(plan_reduction(spec), bytes_of(f.type));
  }
  template <class Loop>
  static auto of_part(const Loop& whole, const plan_view& p, const plan_step& s, int, int, std::byte* room) {
    const auto& group = group_of_step(p, s);
    return reduced_loop_part<Loop>{&whole, room, room_bytes(p, s) / most_loop_reductions,
                                   s.results.count > group.reductions.count};
  }
};

/// Reductions of elements in memory.
template <>
struct by_parts<kernels::reduce> {
  static constexpr bool is_one = true;

  static std::int64_t work(const plan_view& p, const plan_step& s) { return 2 * elements(p.operand(s, 0).local); }
  template <class Program, int Step>
  static constexpr auto freeze() {
    return shared_stored_reduction{kernels::reduce::freeze<Program, Step>()};
  }
  static auto adopt(const prepared_reduction& prepared) { return shared_stored_reduction{prepared}; }
  static bool has_parts(const plan_view&, const plan_step&) { return true; }
  static std::int64_t room_bytes(const plan_view& p, const plan_step& s) {
    return room_of_reduction(plan_reduction(table_of<reduction_spec>(p)[static_cast<std::size_t>(s.spec)]), bytes_of(s.type));
  }
  static auto of_part(const shared_stored_reduction& whole, const plan_view& p, const plan_step& s, int, int, std::byte* room) {
    return stored_reduction_part{whole.whole, room, room_bytes(p, s)};
  }
};

/// Permutations of dims.
template <>
struct by_parts<kernels::permute> {
  static constexpr bool is_one = true;

  static std::int64_t work(const plan_view& p, const plan_step& s) { return 2 * elements(p.result(s).local); }
  /// The plan is not a constant, because parts have other plans.
  template <class Program, int Step>
  static constexpr auto freeze() {
    return shared_permutation{{plan_permutation(entry_of_step<Program, Step, permutation_spec>),
                               permute<raw_bits<element_t<step_of<Program, Step>.type>>>}};
  }
  static auto adopt(const prepared_permutation& prepared) { return shared_permutation{prepared}; }
  static bool has_parts(const plan_view&, const plan_step&) { return true; }
  static auto of_part(const shared_permutation& all, const plan_view&, const plan_step& s, int part, int parts, std::byte*) {
    return permutation_part{permutation_cut(all.whole.plan, part, parts), all.whole, bytes_of(s.type)};
  }
};

/// Products, if the BLAS uses one thread. Otherwise the threads of the BLAS share them. Each thread has the plan of
/// its part.
template <>
struct by_parts<kernels::contract> {
  static constexpr bool is_one = true;

  static const contraction_plan& plan_of(const plan_view& p, const plan_step& s) {
    return table_of<contraction_plan>(p)[static_cast<std::size_t>(s.spec)];
  }
  static std::int64_t work(const plan_view& p, const plan_step& s) {
    const bool is_of_blas = has_gemm_library && is_floating(s.type);
    if (is_of_blas && blas_threads() > 1) return 0;
    return shared_work_of(plan_of(p, s));
  }
  /// These kernels take their plan at run time, because parts have other plans.
  template <class Program, int Step>
  static constexpr auto freeze() {
    constexpr const contraction_plan& plan = entry_of_step<Program, Step, contraction_plan>;
    if constexpr (plan.panel > 0 || is_plain(plan) || shared_work_of(plan) == 0)
      return shared_contraction{kernels::contract::freeze<Program, Step>()};
    else
      return shared_contraction{prepared_contraction{
          &plan, run_contraction<element_t<signed_of(step_of<Program, Step>.type)>, runtime_spec<contraction_plan>>}};
  }
  static auto adopt(const prepared_contraction& prepared) { return shared_contraction{prepared}; }
  static bool has_parts(const plan_view&, const plan_step&) { return true; }
  static auto of_part(const shared_contraction& whole, const plan_view& p, const plan_step& s, int part, int parts, std::byte*) {
    return contraction_part(whole.whole, p, s, part, parts);
  }
};

/// A step, as one thread runs it.
template <class K, class Prepared>
struct shared_whole {
  Prepared whole;

  void run(const plan_view& p, const plan_step& s, const device_memory& device) const { K::run(whole, p, s, device); }
};
/// A kernel with `prepare`. A Part, made from the prepared step, computes the part of a thread.
template <class K, class Prepared, class Part>
struct prepared_by_parts {
  static constexpr bool is_one = true;
  using shared = shared_whole<K, Prepared>;

  template <class Program, int Step>
  static constexpr auto freeze() {
    if constexpr (requires { K::template freeze<Program, Step>(); }) return adopt(K::template freeze<Program, Step>());
    else return adopt(K::prepare(Program::view, step_of<Program, Step>));
  }
  static constexpr shared adopt(const Prepared& prepared) { return {prepared}; }
  static bool has_parts(const plan_view&, const plan_step&) { return true; }
  static Part of_part(const shared& all, const plan_view&, const plan_step&, int part, int parts, std::byte*) {
    return Part(all.whole, part, parts);
  }
};

/// Gathers. Each thread copies some slices.
template <>
struct by_parts<kernels::gather> : prepared_by_parts<kernels::gather, prepared_gather, gather_part> {
  static std::int64_t work(const plan_view& p, const plan_step& s) {
    return shared_dim_of_slices(kernels::access_of(p, s)).dim < 0 ? 0 : 2 * elements(p.result(s).local);
  }
};
template <class K>
struct scatters_by_parts : prepared_by_parts<K, prepared_scatter, scatter_part<K>> {
  static std::int64_t work(const plan_view& p, const plan_step& s) {
    return shared_work_of_scatter(kernels::access_of(p, s), p.result(s));
  }
};
template <>
struct by_parts<kernels::scatter> : scatters_by_parts<kernels::scatter> {};
template <>
struct by_parts<kernels::scatter_set> : scatters_by_parts<kernels::scatter_set> {};

/// Sorts of lines. The work of a line is n log n.
template <>
struct by_parts<kernels::sort> : prepared_by_parts<kernels::sort, prepared_sort, sort_part> {
  static std::int64_t work(const plan_view& p, const plan_step& s) {
    const auto& spec = table_of<sort_spec>(p)[static_cast<std::size_t>(s.spec)];
    std::int64_t rounds = 2;
    for (auto n = spec.sorted_length; n > 1; n /= 2) ++rounds;
    return spec.outer * spec.inner < 2 ? 0 : spec.outer * spec.inner * spec.sorted_length * rounds * s.results.count;
  }
};

/// Scans, if the scanned dim has dims before it.
template <>
struct by_parts<kernels::scan> : prepared_by_parts<kernels::scan, prepared_scan, scan_part> {
  static std::int64_t work(const plan_view& p, const plan_step& s) {
    const auto& spec = table_of<scan_spec>(p)[static_cast<std::size_t>(s.spec)];
    const auto elems = elements(p.result(s).local);
    return outer_of_scan(spec) < 2 || elements(spec.shape) != elems ? 0 : 3 * elems;
  }
};

/// Lines of a top_k.
template <>
struct by_parts<kernels::top_k> : prepared_by_parts<kernels::top_k, prepared_top_k, top_part> {
  static std::int64_t work(const plan_view& p, const plan_step& s) {
    const auto& spec = table_of<top_k_spec>(p)[static_cast<std::size_t>(s.spec)];
    return top_part::lines_of(spec) < 2 ? 0 : 2 * elements(spec.shape);
  }
};

/// Pools, and gradients of maximum and minimum pools.
template <>
struct by_parts<kernels::reduce_window> : prepared_by_parts<kernels::reduce_window, prepared_window_reduction, window_part> {
  static std::int64_t work(const plan_view& p, const plan_step& s) {
    return work_of_windows(table_of<window_reduction>(p)[static_cast<std::size_t>(s.spec)]);
  }
};
template <>
struct by_parts<kernels::select_and_scatter>
    : prepared_by_parts<kernels::select_and_scatter, prepared_window_selection, selection_part> {
  static std::int64_t work(const plan_view& p, const plan_step& s) {
    return work_of_selection(table_of<window_selection>(p)[static_cast<std::size_t>(s.spec)]);
  }
};

/// Copies of a shard.
template <>
struct by_parts<kernels::copy> : prepared_by_parts<kernels::copy, nothing_prepared, shared_copy_part> {
  static std::int64_t work(const plan_view& p, const plan_step& s) {
    return p.operand(s, 0).where == p.result(s).where ? 0 : 2 * elements(p.result(s).local);
  }
};

}  // namespace gspmd::detail
