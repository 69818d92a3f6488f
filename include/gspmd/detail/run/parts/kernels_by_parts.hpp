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
#include "gspmd/detail/run/parts/prepared_by_parts.hpp"
#include "gspmd/detail/run/static_program.hpp"

/// The parts of steps of listed kernels: see run/parts/prepared_by_parts.hpp.
namespace gspmd::detail {

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
struct loops_by_parts {
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
struct reductions_by_parts {
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
struct permutations_by_parts {
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
struct products_by_parts {
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

/// Copies of a shard.
struct copies_by_parts : prepared_by_parts<kernels::copy, nothing_prepared, shared_copy_part> {
  static std::int64_t work(const plan_view& p, const plan_step& s) {
    return p.operand(s, 0).where == p.result(s).where ? 0 : 2 * elements(p.result(s).local);
  }
};

}  // namespace gspmd::detail
