// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <exception>
#include <string>
#include <utility>

#include "gspmd/detail/exec/fused_static.hpp"
#include "gspmd/detail/exec/local_step.hpp"
#include "gspmd/detail/exec/windowed.hpp"
#include "gspmd/error.hpp"

/// The static path: one function per step, whose extents, strides and offsets are constants. `Program` is a type that holds
/// the plan: `static constexpr plan_view view`.
namespace gspmd::detail {

template <class Program, int I>
struct static_step {
  static constexpr const plan_step& constant = Program::view.steps[static_cast<std::size_t>(I)];
  static constexpr const plan_view& plan() { return Program::view; }
  static constexpr const plan_step& step() { return constant; }

  static constexpr auto spec = static_cast<std::size_t>(
      constant.what == action::windowed ? window_of(Program::view, constant).contraction : constant.spec);
  struct contraction_constant {
    constexpr const contraction_plan& operator()() const { return Program::view.contractions[spec]; }
  };
  struct reduction_constant {
    constexpr const reduction_spec& operator()() const { return Program::view.reductions[spec]; }
  };
  struct permutation_constant {
    constexpr const permutation_spec& operator()() const { return Program::view.permutations[spec]; }
  };
  static constexpr contraction_constant contraction() { return {}; }
  static constexpr reduction_constant reduction() { return {}; }
  static constexpr permutation_constant permutation() { return {}; }
};

template <class Program, int G>
struct static_group {
  static constexpr const planned_group& group = Program::view.groups[static_cast<std::size_t>(G)];
  static constexpr const extents& loop = group.loop;

  template <class T, std::size_t N>
  static constexpr std::array<T, N> copy(std::span<const T> from, int begin) {
    std::array<T, N> result{};
    for (std::size_t i = 0; i < N; ++i) result[i] = from[static_cast<std::size_t>(begin) + i];
    return result;
  }
  static constexpr auto ops =
      copy<scalar_op, static_cast<std::size_t>(group.ops.count)>(Program::view.scalar_ops, group.ops.begin);
  static constexpr auto stores =
      copy<fused_store, static_cast<std::size_t>(group.stores.count)>(Program::view.stores, group.stores.begin);
};

/// Out of line: the same for every communicator.
template <class Program, int I>
[[gnu::noinline]] void run_static_local(const device_memory& device) {
  using source = static_step<Program, I>;
  constexpr const plan_step& s = source::constant;
  using T = element_t<source::constant.type>;
  if constexpr (s.what == action::contract) {
    run_contract<T>(source{}, device);
  } else if constexpr (s.what == action::reduce) {
    run_reduce<T>(source{}, device);
  } else if constexpr (s.what == action::permute) {
    run_permute<T>(source{}, device);
  } else if constexpr (s.what == action::copy || s.what == action::row || s.what == action::set_row) {
    run_copy(Program::view, s, device);
  } else {
    const void* inputs[s.operands.count + 1]{};
    void* outputs[s.results.count];
    std::int64_t offsets[s.bounds.count + 1]{};
    for (int k = 0; k < s.operands.count; ++k) inputs[k] = device.read(Program::view.operand(s, k).where);
    for (int k = 0; k < s.results.count; ++k) outputs[k] = device.write(Program::view.result(s, k).where);
    for (int b = 0; b < s.bounds.count; ++b)
      offsets[b] = first_index(Program::view, Program::view.bounds[static_cast<std::size_t>(s.bounds.begin + b)], device.at);
    run_fused<static_group<Program, s.spec>>(inputs, outputs, offsets);
  }
}

template <class Program, int I, class Comm>
void run_static_step(Comm& comm, const device_memory* devices, const void** from, void** to) {
  using source = static_step<Program, I>;
  constexpr const plan_step& s = source::constant;
  const int count = comm.local_count();
  if constexpr (s.what == action::move || s.what == action::combine) {
    using T = element_t<source::constant.type>;
    for (int d = 0; d < count; ++d) {
      from[d] = devices[d].read(Program::view.operand(s, 0).where);
      to[d] = devices[d].write(Program::view.result(s).where);
    }
    const auto* in = reinterpret_cast<const T* const*>(from);
    auto* out = reinterpret_cast<T* const*>(to);
    if constexpr (s.what == action::move) {
      static constexpr movement m = movement_of(Program::view, s);
      comm.template move<T>(*Program::view.mesh, m, in, out);
    } else {
      static constexpr struct reduction r = reduction_of(Program::view, s);
      comm.template reduce<T>(*Program::view.mesh, r, in, out);
    }
  } else if constexpr (s.what == action::windowed) {
    run_windowed<element_t<source::constant.type>>(source{}, comm, devices);
  } else {
    for (int d = 0; d < count; ++d) run_static_local<Program, I>(devices[d]);
  }
}

/// Says which operator of the user's program failed.
inline error at_step(const error& e, const plan_view& plan, int step) {
  const auto& n = plan.nodes[static_cast<std::size_t>(plan.steps[static_cast<std::size_t>(step)].node)];
  if (n.at.is_input()) return e.with_op("input " + std::to_string(n.at.line));
  return e.with_op(name_of(n.op), n.at.file, n.at.line);
}

/// The step after step `i`, and, if that opens a body, after all of the loop or conditional.
constexpr int step_after(const plan_view& p, int i) {
  const plan_step& s = p.steps[static_cast<std::size_t>(i)];
  if (s.what == action::branch) return p.steps[static_cast<std::size_t>(s.target)].target + 1;
  return (s.what == action::loop_begin ? s.target : i) + 1;
}

/// The steps of [Begin, End) that stand in no body inside it; a loop or conditional is one of them, its first step.
template <class Program, int Begin, int End>
struct static_run {
  static constexpr int count = [] {
    int n = 0;
    for (int i = Begin; i < End; i = step_after(Program::view, i)) ++n;
    return n;
  }();
  static constexpr auto steps = [] {
    std::array<int, static_cast<std::size_t>(count)> list{};
    int n = 0;
    for (int i = Begin; i < End; i = step_after(Program::view, i)) list[static_cast<std::size_t>(n++)] = i;
    return list;
  }();
};

template <class Program, int Begin, int End, class Comm>
void run_static_steps(Comm& comm, const device_memory* devices, const void** from, void** to, int& current);

template <class Program, int I, class Comm>
void run_static_item(Comm& comm, const device_memory* devices, const void** from, void** to, int& current) {
  constexpr const plan_step& s = static_step<Program, I>::constant;
  current = I;
  if constexpr (s.what == action::loop_begin) {
    for (std::int64_t i = 0; i < s.trips; ++i) {
      set_counter(Program::view, s, devices, comm.local_count(), i);
      run_static_steps<Program, I + 1, s.target>(comm, devices, from, to, current);
    }
  } else if constexpr (s.what == action::branch) {
    constexpr int join = Program::view.steps[static_cast<std::size_t>(s.target)].target;
    if (holds(Program::view, s, devices, comm.local_count()))
      run_static_steps<Program, I + 1, s.target>(comm, devices, from, to, current);
    else run_static_steps<Program, s.target + 1, join>(comm, devices, from, to, current);
  } else {
    run_static_step<Program, I>(comm, devices, from, to);
  }
}

template <class Program, int Begin, int End, class Comm>
void run_static_steps(Comm& comm, const device_memory* devices, const void** from, void** to, int& current) {
  // In chunks: Clang limits the depth of a fold expression.
  using run = static_run<Program, Begin, End>;
  constexpr int count = run::count;
  constexpr int chunk = 64;
  const auto run_chunk = [&]<int First, int... Is>(std::integral_constant<int, First>, std::integer_sequence<int, Is...>) {
    (run_static_item<Program, run::steps[static_cast<std::size_t>(First + Is)]>(comm, devices, from, to, current), ...);
  };
  [&]<int... Chunks>(std::integer_sequence<int, Chunks...>) {
    (run_chunk(std::integral_constant<int, Chunks * chunk>{},
               std::make_integer_sequence<int, (count - Chunks * chunk < chunk ? count - Chunks * chunk : chunk)>{}),
     ...);
  }(std::make_integer_sequence<int, (count + chunk - 1) / chunk>{});
}

/// Runs all steps on the devices that `comm` holds. `from` and `to` have room for a pointer per device.
template <class Program, class Comm>
void run_static(Comm& comm, const device_memory* devices, const void** from, void** to) {
  constexpr int count = static_cast<int>(Program::view.steps.size());
  int current = 0;
  try {
    run_static_steps<Program, 0, count>(comm, devices, from, to, current);
  } catch (const error& e) {
    throw at_step(e, Program::view, current);
  } catch (const std::exception& e) {  // from a user's map, or a communicator of the user's
    throw at_step(error(e.what()), Program::view, current);
  }
}

}  // namespace gspmd::detail
