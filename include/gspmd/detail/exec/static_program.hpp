// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <exception>
#include <string>
#include <utility>

#include "gspmd/detail/exec/fused_static.hpp"
#include "gspmd/detail/exec/local_step.hpp"
#include "gspmd/detail/exec/meeting_subject.hpp"
#include "gspmd/detail/exec/windowed.hpp"
#include "gspmd/error.hpp"

/// The static path: a function per step, without decisions that the plan has made. `Program` is a type that holds the plan:
/// `static constexpr plan_view view`. Functions are parameterised by what the step computes, not by whose step it is, so that
/// steps that do the same on shards of the same extents share one, whatever the program and the mesh.
namespace gspmd::detail {

template <class Program, int G>
struct static_group {
  static constexpr const planned_group& group = Program::view.groups[static_cast<std::size_t>(G)];
  static constexpr const extents& loop = group.loop;
  static constexpr dim_mask cut = group.cut;
  static constexpr auto ops =
      Program::view.scalar_ops.subspan(static_cast<std::size_t>(group.ops.begin), static_cast<std::size_t>(group.ops.count));
  static constexpr auto stores =
      Program::view.stores.subspan(static_cast<std::size_t>(group.stores.begin), static_cast<std::size_t>(group.stores.count));
};

inline fused_group group_of(const plan_view& plan, const plan_step& s) {
  const auto& g = group_of_step(plan, s);
  return {g.loop, plan.scalar_ops.subspan(static_cast<std::size_t>(g.ops.begin), static_cast<std::size_t>(g.ops.count)),
          plan.stores.subspan(static_cast<std::size_t>(g.stores.begin), static_cast<std::size_t>(g.stores.count))};
}

/// The descriptions of kernels as types.
template <class Program, std::size_t I>
struct contraction_constant {
  constexpr const contraction_plan& operator()() const { return Program::view.contractions[I]; }
};
template <monoid Kind, dim_mask Dims, std::int64_t... In>
struct reduction_constant {
  static constexpr reduction_spec value = [] {
    reduction_spec s;
    (s.in.push_back(In), ...);
    s.dims = Dims;
    s.kind = Kind;
    return s;
  }();
  constexpr const reduction_spec& operator()() const { return value; }
};
template <class In, class Permutation>
struct permutation_constant;
template <std::int64_t... In, int... Permutation>
struct permutation_constant<std::integer_sequence<std::int64_t, In...>, std::integer_sequence<int, Permutation...>> {
  static constexpr permutation_spec value = [] {
    permutation_spec s;
    (s.in.push_back(In), ...);
    (s.permutation.push_back(static_cast<std::int8_t>(Permutation)), ...);
    return s;
  }();
  constexpr const permutation_spec& operator()() const { return value; }
};

template <class Program, std::size_t I>
struct static_reduction {
  static constexpr const reduction_spec& value = Program::view.reductions[I];
  template <std::size_t... D>
  static auto find(std::index_sequence<D...>) -> reduction_constant<value.kind, value.dims, value.in[static_cast<int>(D)]...>;
  using type = decltype(find(std::make_index_sequence<static_cast<std::size_t>(value.in.count)>{}));
};
template <class Program, std::size_t I>
struct static_permutation {
  static constexpr const permutation_spec& value = Program::view.permutations[I];
  template <std::size_t... D>
  static auto find(std::index_sequence<D...>)
      -> permutation_constant<std::integer_sequence<std::int64_t, value.in[static_cast<int>(D)]...>,
                              std::integer_sequence<int, value.permutation[static_cast<int>(D)]...>>;
  using type = decltype(find(std::make_index_sequence<static_cast<std::size_t>(value.in.count)>{}));
};

/// A step with the description of its kernel.
template <class Spec>
struct described_step {
  const plan_view& view;
  const plan_step& s;
  Spec spec;

  [[nodiscard]] const plan_view& plan() const { return view; }
  [[nodiscard]] const plan_step& step() const { return s; }
  [[nodiscard]] Spec contraction() const { return spec; }
  [[nodiscard]] Spec reduction() const { return spec; }
  [[nodiscard]] Spec permutation() const { return spec; }
};

/// Runs a step on one device.
using static_kernel = void (*)(const plan_view& plan, const plan_step& s, const device_memory& device);

template <class T, class Spec>
void run_static_contract(const plan_view& plan, const plan_step& s, const device_memory& device) {
  run_contract<T>(described_step<Spec>{plan, s, {}}, device);
}
/// A product that needs no more than GEMM calls: these take their extents at run time.
template <class T>
void run_plain_contract(const plan_view& plan, const plan_step& s, const device_memory& device) {
  const plain_spec spec{&plan.contractions[static_cast<std::size_t>(s.spec)]};
  run_contract<T>(described_step<plain_spec<contraction_plan>>{plan, s, spec}, device);
}
template <class T, class Spec>
void run_static_reduce(const plan_view& plan, const plan_step& s, const device_memory& device) {
  run_reduce<T>(described_step<Spec>{plan, s, {}}, device);
}
template <class T, class Spec>
void run_static_permute(const plan_view& plan, const plan_step& s, const device_memory& device) {
  run_permute<T>(described_step<Spec>{plan, s, {}}, device);
}
/// A fused step; `inputs`, `outputs` and `offsets` have room for its operands, results and bounds.
[[gnu::noinline]] inline void run_fused_step(const plan_view& plan, const plan_step& s, const device_memory& device,
                                             fused_rows_function compute, const fused_rows& at, const void** inputs,
                                             void** outputs, std::int64_t* offsets) {
  for (int k = 0; k < s.operands.count; ++k) inputs[k] = device.read(plan.operand(s, k).where);
  for (int k = 0; k < s.results.count; ++k) outputs[k] = device.write(plan.result(s, k).where);
  find_offsets(plan, s, device, offsets);
  const auto& group = group_of_step(plan, s);
  if (group.cut == 0) return run_fused_rows(group_of(plan, s), group.loop, compute, at, inputs, outputs, offsets);
  run_fused_rows(group_of(plan, s), existing_loop(plan, s, device), compute, at, inputs, outputs, offsets);
  clear_results(plan, s, device);
}
template <class Row, int Operands, int Results, int Bounds>
void run_static_fused(const plan_view& plan, const plan_step& s, const device_memory& device) {
  const void* inputs[Operands + 1];
  void* outputs[Results];
  std::int64_t offsets[Bounds + 1];
  fused_memory<Row> memory;
  run_fused_step(plan, s, device, compute_rows<Row>, memory.rows(), inputs, outputs, offsets);
}
inline void run_nothing(const plan_view&, const plan_step&, const device_memory&) {}

constexpr bool is_plain(const contraction_plan& p) {
  return !p.lhs.reduced && !p.lhs.packed && !p.rhs.reduced && !p.rhs.packed && !p.unpacked && !p.is_vector;
}

template <class Program, int I>
constexpr static_kernel kernel_of_step() {
  constexpr const plan_step& s = Program::view.steps[static_cast<std::size_t>(I)];
  constexpr auto spec = static_cast<std::size_t>(s.spec);
  constexpr dtype type = s.type;
  using T = element_t<type>;
  if constexpr (s.what == action::contract) {
    if constexpr (is_plain(Program::view.contractions[spec])) return run_plain_contract<T>;
    else return run_static_contract<T, contraction_constant<Program, spec>>;
  } else if constexpr (s.what == action::reduce) {
    return run_static_reduce<T, typename static_reduction<Program, spec>::type>;
  } else if constexpr (s.what == action::permute) {
    return run_static_permute<T, typename static_permutation<Program, spec>::type>;
  } else if constexpr (s.what == action::copy || s.what == action::row || s.what == action::set_row) {
    return run_copy;
  } else if constexpr (s.what == action::local) {
    return run_local_function;
  } else if constexpr (s.what == action::fused) {
    using group = static_group<Program, s.spec>;
    // up to 8 of each, or exactly so many
    constexpr int few = 8, operands = s.operands.count, results = s.results.count, bounds = s.bounds.count;
    if constexpr (elements(group::loop) == 0) return run_nothing;
    else
      return run_static_fused<typename row_of_group<group>::type, (operands < few ? few : operands),
                              (results < few ? few : results), (bounds < few ? few : bounds)>;
  } else {
    return nullptr;
  }
}

/// What `move` and `combine` steps hand to the communicator.
template <class Program, int I>
struct static_communication {
  static constexpr const plan_step& s = Program::view.steps[static_cast<std::size_t>(I)];
  static constexpr auto value = [] {
    if constexpr (s.what == action::move) return numbered(*Program::view.mesh, movement_of(Program::view, s));
    else return numbered(*Program::view.mesh, reduction_of(Program::view, s));
  }();
};

template <class Comm>
using static_collective = void (*)(Comm& comm, const mesh_shape& mesh, const void* description, const void* const* from,
                                   void* const* to);

template <class T, class Comm>
void run_static_move(Comm& comm, const mesh_shape& mesh, const void* description, const void* const* from, void* const* to) {
  comm.template move<T>(mesh, *static_cast<const movement*>(description), reinterpret_cast<const T* const*>(from),
                        reinterpret_cast<T* const*>(to));
}
template <class T, class Comm>
void run_static_combine(Comm& comm, const mesh_shape& mesh, const void* description, const void* const* from, void* const* to) {
  comm.template reduce<T>(mesh, *static_cast<const struct reduction*>(description), reinterpret_cast<const T* const*>(from),
                          reinterpret_cast<T* const*>(to));
}

/// Runs a step that is both: computation while shards go round a ring.
template <class Comm>
using static_windowed = void (*)(const plan_view& plan, const plan_step& s, Comm& comm, const device_memory* devices);

template <class T, class Spec, class Comm>
void run_static_windowed(const plan_view& plan, const plan_step& s, Comm& comm, const device_memory* devices) {
  run_windowed<T>(described_step<Spec>{plan, s, {}}, comm, devices);
}

/// A step as the functions that run it; steps of loops and conditionals have none.
template <class Comm>
struct static_action {
  static_kernel kernel = nullptr;
  static_collective<Comm> collective = nullptr;
  const void* description = nullptr;  // of the collective
  static_windowed<Comm> windowed = nullptr;
};

template <class Program, int I, class Comm>
constexpr static_action<Comm> action_of_step() {
  constexpr const plan_step& s = Program::view.steps[static_cast<std::size_t>(I)];
  constexpr dtype type = s.type;
  using T = element_t<type>;
  if constexpr (s.what == action::move)
    return {nullptr, run_static_move<T, Comm>, &static_communication<Program, I>::value, nullptr};
  else if constexpr (s.what == action::combine)
    return {nullptr, run_static_combine<T, Comm>, &static_communication<Program, I>::value, nullptr};
  else if constexpr (s.what == action::windowed) {
    constexpr auto spec = static_cast<std::size_t>(window_of(Program::view, s).contraction);
    return {nullptr, nullptr, nullptr, run_static_windowed<T, contraction_constant<Program, spec>, Comm>};
  } else {
    return {kernel_of_step<Program, I>(), nullptr, nullptr, nullptr};
  }
}

template <class Program, class Comm>
struct static_actions {
  template <int... I>
  static constexpr auto make(std::integer_sequence<int, I...>) {
    return std::array<static_action<Comm>, sizeof...(I)>{action_of_step<Program, I, Comm>()...};
  }
  static constexpr auto list = make(std::make_integer_sequence<int, static_cast<int>(Program::view.steps.size())>{});
};

/// Says which operator of the user's program failed.
[[gnu::cold]] inline error at_step(const error& e, const plan_view& plan, int step) {
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

/// Runs the steps of [begin, end) on the devices that `comm` holds; `current` is always the one that runs.
template <class Comm>
void run_static_steps(const plan_view& plan, const static_action<Comm>* actions, Comm& comm, const device_memory* devices,
                      const void** from, void** to, int begin, int end, int& current) {
  const int count = comm.local_count();
  for (int i = begin; i < end; i = step_after(plan, i)) {
    current = i;
    const plan_step& s = plan.steps[static_cast<std::size_t>(i)];
    const static_action<Comm>& a = actions[i];
    if (a.kernel != nullptr) {
      for (int d = 0; d < count; ++d) a.kernel(plan, s, devices[d]);
    } else if (a.collective != nullptr) {
      for (int d = 0; d < count; ++d) {
        from[d] = devices[d].read(plan.operand(s, 0).where);
        to[d] = devices[d].write(plan.result(s).where);
        keep_operand(plan, s, devices[d]);
      }
      a.collective(comm, *plan.mesh, a.description, from, to);
      for (int d = 0; d < count; ++d) clear_results(plan, s, devices[d]);
    } else if (a.windowed != nullptr) {
      a.windowed(plan, s, comm, devices);
      for (int d = 0; d < count; ++d) clear_results(plan, s, devices[d]);
    } else if (s.what == action::loop_begin) {
      for (std::int64_t t = 0; t < s.trips; ++t) {
        set_counter(plan, s, devices, count, t);
        run_static_steps(plan, actions, comm, devices, from, to, i + 1, s.target, current);
      }
    } else if (s.what == action::branch) {
      const int join = plan.steps[static_cast<std::size_t>(s.target)].target;
      if (holds(plan, s, devices, count)) run_static_steps(plan, actions, comm, devices, from, to, i + 1, s.target, current);
      else run_static_steps(plan, actions, comm, devices, from, to, s.target + 1, join, current);
    }
  }
}

/// Runs all steps. `from` and `to` have room for a pointer per device.
template <class Comm>
void run_static_plan(const plan_view& plan, const static_action<Comm>* actions, Comm& comm, const device_memory* devices,
                     const void** from, void** to) {
  int current = 0;
  try {
    run_static_steps(plan, actions, comm, devices, from, to, 0, static_cast<int>(plan.steps.size()), current);
  } catch (const error& e) {
    throw at_step(e, plan, current);
  } catch (const std::exception& e) {  // from a user's map, or a communicator of the user's
    throw at_step(error(e.what()), plan, current);
  }
}

template <class Program, class Comm>
void run_static(Comm& comm, const device_memory* devices, const void** from, void** to) {
  run_static_plan(Program::view, static_actions<Program, Comm>::list.data(), comm, devices, from, to);
}

}  // namespace gspmd::detail
