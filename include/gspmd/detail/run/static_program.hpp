// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <utility>

#include "gspmd/detail/kernels/fused_static.hpp"
#include "gspmd/detail/kernels/unrolled_product.hpp"
#include "gspmd/detail/run/checked_run.hpp"
#include "gspmd/detail/run/frozen_step.hpp"
#include "gspmd/detail/run/joint_step.hpp"
#include "gspmd/detail/run/local_step.hpp"
#include "gspmd/detail/run/loop_reduction_step.hpp"
#include "gspmd/detail/run/runner.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/support/span.hpp"

/// The static path: one function for each step, with the decisions of the plan as constants. `Program` is a type with
/// the plan: `static constexpr plan_view view`. The parameters of a function are the facts of its computation, not
/// the program or the step. So steps with the same computation on shards of the same extents share one function, in
/// all programs and meshes.
namespace gspmd::detail {

/// The descriptions of kernels as types.
template <class Program, std::size_t Index>
struct contraction_constant {
  constexpr const contraction_plan& operator()() const { return table_of<contraction_plan>(Program::view)[Index]; }
};

template <class In, class Permutation>
struct permutation_constant;
template <std::int64_t... In, int... Permutation>
struct permutation_constant<std::integer_sequence<std::int64_t, In...>, std::integer_sequence<int, Permutation...>> {
  static constexpr permutation_plan plan = [] {
    permutation_spec s;
    (s.in.push_back(In), ...);
    (s.permutation.push_back(static_cast<std::int8_t>(Permutation)), ...);
    return plan_permutation(s);
  }();
};

/// Returns true for a product that needs only GEMM calls. Its function takes the extents at run time.
constexpr bool is_plain(const contraction_plan& p) {
  return !p.lhs.reduced && !p.lhs.packed && !p.rhs.reduced && !p.rhs.packed && !p.unpacked && !p.has_phases && !p.is_vector;
}

/// Returns the last dim of a loop if the loop has so few rows that the threads of a device compute parts of rows.
constexpr dim_mask cut_by_parts(const extents& loop) {
  const int last = loop.count - 1;
  return last >= 0 && loop[last] > 0 && elements(loop) / loop[last] < least_rows_of_parts ? dim_bit(last) : 0;
}
/// The same program, if the threads of a device compute parts of loops (run/parts/).
template <class Program>
struct in_parts : Program {};
template <class Program>
inline constexpr bool is_in_parts = false;
template <class Program>
inline constexpr bool is_in_parts<in_parts<Program>> = true;

template <class Program, int G>
struct static_group {
  static constexpr const planned_group& group = table_of<planned_group>(Program::view)[static_cast<std::size_t>(G)];
  static constexpr const extents& loop = group.loop;
  static constexpr dim_mask cut = group.cut | (is_in_parts<Program> ? cut_by_parts(loop) : 0);
  static constexpr span<const scalar_op> ops{table_of<scalar_op>(Program::view).data() + group.ops.begin,
                                             static_cast<std::size_t>(group.ops.count)};
  static constexpr span<const fused_store> stores{table_of<fused_store>(Program::view).data() + group.stores.begin,
                                                  static_cast<std::size_t>(group.stores.count)};
  static constexpr span<const fused_margin> margins{table_of<fused_margin>(Program::view).data() + group.margins.begin,
                                                    static_cast<std::size_t>(group.margins.count)};
};

/// Runs the loop of a fused step. `inputs`, `outputs` and `offsets` must have memory for its operands, results and
/// bounds. `stream` computes the same with streaming stores. It may be null, and is used only if no result overwrites
/// an operand. `Part` is `once`, or a type that selects the part of a box that this thread computes.
template <class Part = once>
[[gnu::noinline]] void run_fused_step(const plan_view& plan, const plan_step& s, const device_memory& device,
                                      fused_rows_function compute, fused_rows_function stream, const fused_rows& at,
                                      const void** inputs, void** outputs, std::int64_t* offsets) {
  for (int k = 0; k < s.operands.count; ++k) inputs[k] = device.read(plan.operand(s, k).where);
  for (int k = 0; k < s.results.count; ++k) outputs[k] = device.write(plan.result(s, k).where);
  find_offsets(plan, s, device, offsets);
  const auto& group = group_of_step(plan, s);
  for (int k = 0; stream != nullptr && k < s.operands.count * s.results.count; ++k)
    if (inputs[k / s.results.count] == outputs[k % s.results.count]) stream = nullptr;
  if (stream != nullptr) compute = stream;
  const extents loop = group.cut == 0 ? group.loop : existing_loop(plan, s, device);
  for_each_box<Part>(plan, s, loop, device, [&](const loop_box& box) {
    run_fused_rows(group_of(plan, s), loop, box, compute, at, inputs, outputs, offsets, device.given);
  });
  if (stream != nullptr) fence_streams();
  if (group.cut != 0 && !is_inner_part(plan, s) && device.part == 0) clear_results(plan, s, device);
}
/// Returns the function that streams the results of a group. Returns null if the results or rows are small, or if
/// there are too many results for the first-level cache.
template <class Group, class Row>
constexpr fused_rows_function streaming_of() {
  constexpr auto& facts = fused_plan<Row>::facts;
  constexpr auto stores = static_cast<std::int64_t>(fused_plan<Row>::store_count);
  if constexpr (can_stream && !facts.has_map && !facts.has_own && stores <= 16 &&
                elements(Group::loop) >= stream_from_bytes / stored_bytes<Row>() &&
                inner_elems<Group>() >= least_streamed_row_bytes * stores / stored_bytes<Row>())
    return stream_rows<Row>;
  else return nullptr;
}
template <class Row, int Operands, int Results, int Bounds, class Part = once>
struct constant_loop {
  fused_rows_function stream = nullptr;

  void run(const plan_view& plan, const plan_step& s, const device_memory& device) const {
    const void* inputs[Operands + 1];
    void* outputs[Results];
    std::int64_t offsets[Bounds + 1];
    fused_memory<Row> memory;
    run_fused_step<Part>(plan, s, device, compute_rows<Row>, stream, memory.rows(), inputs, outputs, offsets);
  }
};

/// A loop that reduces its results. Long rows are computed in pieces. A single row may be long enough to be reduced
/// while it is computed. Then the elements after the last whole step of the vectors are computed separately, so the
/// function of the row takes any length.
template <class Group>
struct reduced_group {
  static constexpr std::int64_t row = Group::loop.count == 0 ? 1 : Group::loop[Group::loop.count - 1];
  static constexpr bool in_parts = row > (Group::loop.count == 1 ? least_accumulated_elems - 1 : fused_block_elems);
  static constexpr const extents& loop = Group::loop;
  static constexpr dim_mask cut = in_parts ? Group::cut | dim_bit(Group::loop.count - 1) : Group::cut;
  static constexpr const auto& ops = Group::ops;
  static constexpr const auto& stores = Group::stores;
  static constexpr const auto& margins = Group::margins;
};

/// Calls visit(box) for boxes that together are the elements [first, last) of a loop, in row-major order.
///
///   loop [3, 1000], elements [0, 1472): [0..1, 0..1000] and [1..2, 0..472]
template <class Visit>
inline void for_each_box_of_range(const extents& loop, std::int64_t first, std::int64_t last, Visit visit) {
  if (loop.count == 0 && first < last) return visit(loop_box(loop));
  while (first < last) {
    loop_box box(loop);
    std::int64_t size = 1, left = first;
    int d = loop.count - 1;  // the box has several indices along this dim, and all indices along later dims
    for (; d > 0 && left % loop[d] == 0 && size * loop[d] <= last - first; --d) {
      size *= loop[d];
      left /= loop[d];
    }
    const auto index = left % loop[d], rest = loop[d] - index, n = (last - first) / size;
    box.begin[d] = index;
    box.end[d] = index + (n < rest ? n : rest);
    first += (box.end[d] - index) * size;
    for (left /= loop[d--]; d >= 0; left /= loop[d--]) {
      box.begin[d] = left % loop[d];
      box.end[d] = box.begin[d] + 1;
    }
    visit(box);
  }
}

template <class Part = void>
[[gnu::noinline]] void run_reduced_step(const plan_view& plan, const plan_step& s, const device_memory& device,
                                        fused_rows_function compute, bool is_for_any_length, fused_rows_function accumulate,
                                        const fused_rows& at, const void** inputs, void** outputs, std::int64_t* offsets,
                                        const reduction_kernel* const* kernels, const Part* part = nullptr) {
  for (int k = 0; k < s.operands.count; ++k) inputs[k] = device.read(plan.operand(s, k).where);
  for (int k = 0; k < s.results.count; ++k) outputs[k] = device.write(plan.result(s, k).where);
  find_offsets(plan, s, device, offsets);
  struct reduced_loop {
    fused_group group;
    fused_rows_function compute, accumulate;
    const fused_rows& at;
    const void** inputs;
    std::int64_t* offsets;
    void** outputs;
    const loop_reduction& first;
    const given_rows* given;
  } reduced{group_of(plan, s), compute, accumulate, at, inputs, offsets, outputs, reductions_of(plan, s)[0], device.given};
  const auto cut = group_of_step(plan, s).cut;
  if (cut != 0) reduced.group.loop = existing_loop(plan, s, device);  // reductions read the existing elements densely
  const extents& loop = reduced.group.loop;
  const auto row = loop.count == 0 ? 1 : loop[loop.count - 1];
  const auto run = [](void* context, std::int64_t first, std::int64_t last, void* const* to) {
    const auto& r = *static_cast<reduced_loop*>(context);
    for_each_box_of_range(r.group.loop, first, last, [&](const loop_box& box) {
      run_fused_rows(r.group, r.group.loop, box, r.compute, r.at, r.inputs, to, r.offsets, r.given);
    });
  };
  const auto add_up = [](void* context, std::int64_t first, std::int64_t last, partial_reductions& partial) {
    const auto& r = *static_cast<reduced_loop*>(context);
    for_each_box_of_range(r.group.loop, first, last, [&](const loop_box& box) {
      r.outputs[r.first.slot] = before(reinterpret_cast<std::byte*>(&partial), first * bytes_of(r.first.type));
      first += elements(box.size());
      run_fused_rows(r.group, r.group.loop, box, r.accumulate, r.at, r.inputs, r.outputs, r.offsets, r.given);
    });
  };
  // If the loop has several rows, each row must be a multiple of the elements that are combined at a time.
  const auto unit = 4 * kernels[0]->lanes;
  const bool accumulates = accumulate != nullptr && (loop.count == 1 || (loop.count == 2 && row % unit == 0));
  // Short rows are computed whole, which gives fewer boxes. Rows of a constant length must be computed whole.
  const bool in_whole_rows = row > 0 && row <= fused_block_elems && !(is_for_any_length && loop.count == 1);
  run_loop_reductions(plan, s, device, loop, in_whole_rows ? row : 1, kernels,
                      {run, &reduced, accumulates ? +add_up : nullptr, loop.count == 1 ? 1 : unit}, outputs, part);
  if (cut != 0 && device.part == 0) clear_results(plan, s, device);
}
template <class Row, int Operands, int Results, int Bounds>
struct constant_reduced_loop {
  const reduction_kernel* kernels[most_loop_reductions]{};
  fused_rows_function accumulate = nullptr;

  template <class Part = void>
  void run(const plan_view& plan, const plan_step& s, const device_memory& device, const Part* part = nullptr) const {
    const void* inputs[Operands + 1];
    void* outputs[Results];
    std::int64_t offsets[Bounds + 1];
    fused_memory<Row> memory;
    run_reduced_step(plan, s, device, compute_rows<Row>, computes_any_length<Row>, accumulate, memory.rows(), inputs, outputs,
                     offsets, kernels, part);
  }
};
struct empty_loop {
  static void run(const plan_view&, const plan_step&, const device_memory&) {}
};

template <class Program, int F>
constexpr const reduction_kernel* kernel_of_reduction() {
  constexpr const loop_reduction& f = table_of<loop_reduction>(Program::view)[static_cast<std::size_t>(F)];
  constexpr dtype type = f.type;  // GCC 12 accepts no member of `f` as a template argument
  using element = element_t<type>;
  constexpr monoid kind =
      natural_kind<element>(table_of<reduction_spec>(Program::view)[static_cast<std::size_t>(f.reduction)].reduced_by);
  static_assert(monoid_is_defined<element>(kind), "gspmd: this reduction is not defined on this element type");
  return &reduction_kernel_of<kind, element>;
}

/// Returns the functions that reduce while they compute. They exist for sums, maxima and minima of floats, if vectors
/// are so long that compilers recognise the loop.
template <class Program, class Group, class Row>
constexpr auto find_accumulation() {
  constexpr auto& reductions = Group::group.reductions;
  constexpr const auto* all = table_of<loop_reduction>(Program::view).data() + reductions.begin;
  constexpr bool can = [] {
    if (all[0].type != dtype::f32 && all[0].type != dtype::f64) return false;
    if (Group::group.margins.count > 0) return false;  // rows are computed in pieces
    for (int k = 0; k < reductions.count; ++k) {
      const monoid kind = table_of<reduction_spec>(Program::view)[static_cast<std::size_t>(all[k].reduction)].reduced_by;
      if (all[k].type != all[0].type || (kind != monoid::add && kind != monoid::max && kind != monoid::min)) return false;
    }
    for (const auto& o : Row::ops)
      if (o.op == scalar_code_of<map_op>) return false;
    return 4 * simd_bytes / bytes_of(all[0].type) >= 32;
  }();
  if constexpr (can) {
    return []<int... K>(std::integer_sequence<int, K...>) {
      constexpr auto store_of = [](int k) {
        std::size_t store = 0;
        while (Group::stores[store].slot != all[k].stored) ++store;
        return store;
      };
      return accumulation<
          Row, accumulated<store_of(K),
                           table_of<reduction_spec>(Program::view)[static_cast<std::size_t>(all[K].reduction)].reduced_by>...>{};
    }(std::make_integer_sequence<int, reductions.count>{});
  } else {
    return no_accumulation{};
  }
}
template <class Program, class Group, class Row>
using accumulation_of = decltype(find_accumulation<Program, Group, Row>());

namespace kernels {

template <class Program, int Step, class Part>
constexpr auto fused::freeze() {
  constexpr const plan_step& s = step_of<Program, Step>;
  using group = static_group<Program, s.spec>;
  // Arrays of 8 entries, or of the exact number if it is larger, so that steps share functions.
  constexpr int few = 8, operands = s.operands.count, results = s.results.count, bounds = s.bounds.count;
  if constexpr (elements(group::loop) == 0) return empty_loop{};
  else if constexpr (group::group.reductions.count > 0) {
    using reduced_row = typename row_of_group<reduced_group<group>>::type;
    constant_reduced_loop<reduced_row, (operands < few ? few : operands), (results < few ? few : results),
                          (bounds < few ? few : bounds)>
        loop{};
    loop.accumulate = accumulation_of<Program, group, reduced_row>::rows;
    [&]<int... K>(std::integer_sequence<int, K...>) {
      ((loop.kernels[K] = kernel_of_reduction<Program, group::group.reductions.begin + K>()), ...);
    }(std::make_integer_sequence<int, group::group.reductions.count>{});
    return loop;
  } else {
    using group_row = typename row_of_group<group>::type;
    return constant_loop<group_row, (operands < few ? few : operands), (results < few ? few : results),
                         (bounds < few ? few : bounds), Part>{streaming_of<group, group_row>()};
  }
}
template <class Program, int Step>
constexpr auto contract::freeze() {
  using element = element_t<signed_of(step_of<Program, Step>.type)>;
  constexpr const contraction_plan& plan = entry_of_step<Program, Step, contraction_plan>;
  if constexpr (plan.panel > 0) {
    constexpr dtype stored = Program::view.operand(step_of<Program, Step>, 0).type;
    return prepared_contraction{&plan, run_narrow_contraction<element_t<stored>>};
  } else if constexpr (is_unrolled<element>(plan)) {
    return prepared_contraction{&plan, run_unrolled<element, product_shape_of(plan, plan.sums[0].extent)>};
  } else {
    using spec = std::conditional_t<is_plain(plan), plain_spec<contraction_plan>,
                                    contraction_constant<Program, static_cast<std::size_t>(step_of<Program, Step>.spec)>>;
    return prepared_contraction{&plan, run_contraction<element, spec>};
  }
}
template <class Program, int Step>
constexpr auto contract_round_ring::freeze() {
  constexpr auto spec = static_cast<std::size_t>(planned_ring_of(Program::view, step_of<Program, Step>).contraction);
  return prepared_contraction{
      &table_of<contraction_plan>(Program::view)[spec],
      run_contraction<element_t<signed_of(step_of<Program, Step>.type)>, contraction_constant<Program, spec>>};
}
template <class Program, int Step>
constexpr auto reduce::freeze() {
  using element = element_t<step_of<Program, Step>.type>;
  constexpr const reduction_spec& spec = entry_of_step<Program, Step, reduction_spec>;
  constexpr monoid kind = natural_kind<element>(spec.reduced_by);
  static_assert(monoid_is_defined<element>(kind), "gspmd: this reduction is not defined on this element type");
  return prepared_reduction{plan_reduction(spec), &reduction_kernel_of<kind, element>};
}
template <class Program, int Step>
constexpr auto permute::freeze() {
  return []<int... D>(std::integer_sequence<int, D...>) {
    constexpr const permutation_spec& spec = entry_of_step<Program, Step, permutation_spec>;
    using constant = permutation_constant<std::integer_sequence<std::int64_t, spec.in[D]...>,
                                          std::integer_sequence<int, spec.permutation[D]...>>;
    return prepared_permutation{constant::plan,
                                permute_constant<raw_bits<element_t<step_of<Program, Step>.type>>, constant::plan>};
  }(std::make_integer_sequence<int, entry_of_step<Program, Step, permutation_spec>.in.count>{});
}

}  // namespace kernels

/// Returns the function of the blocks of rows that begin with a step, or null if their steps are not one loop
/// (run/static_rows.hpp).
template <class Program, int Begin>
constexpr ready_step::alone_function block_of_rows();

template <class Program, int Step, class Comm>
constexpr ready_step freeze_step() {
  using K = kernel_of_step<Program, Step>;
  if constexpr (K::work == step_work::controls) {
    return {};
  } else {
    constexpr dtype type = step_of<Program, Step>.type;
    using element = std::conditional_t<K::handles == element_kinds::bytes, std::byte, element_t<type>>;
    using prepared = decltype(freeze_by<Program, Step, K>());
    const void* kept = nullptr;
    if constexpr (!std::is_empty_v<prepared>) kept = &frozen_by<Program, Step, K>;
    if constexpr (runs_alone<K>) return {run_alone<K, element, prepared>, nullptr, kept};
    else return {nullptr, run_jointly<K, element, prepared, Comm>, kept};
  }
}

template <class Program, int Step>
constexpr ready_step::alone_function rows_from() {
  if constexpr (description_by<kernels::rows_begin>(Program::view, step_of<Program, Step>) != nullptr)
    return block_of_rows<Program, Step>();
  else return nullptr;
}
template <class Program>
inline constexpr auto rows_from_steps = []<int... Step>(std::integer_sequence<int, Step...>) {
  return std::array<ready_step::alone_function, sizeof...(Step)>{rows_from<Program, Step>()...};
}(std::make_integer_sequence<int, static_cast<int>(Program::view.steps.size())>{});
/// Returns true if a step is inside a block of rows that is one loop.
template <class Program>
constexpr bool is_in_rows(int step) {
  for (int begin = step; begin-- > 0;)
    if (rows_from_steps<Program>[static_cast<std::size_t>(begin)] != nullptr)
      return step < Program::view.steps[static_cast<std::size_t>(begin)].target;
  return false;
}
template <class Program>
constexpr bool has_rows() {
  for (const auto& s : Program::view.steps)
    if (description_by<kernels::rows_begin>(Program::view, s) != nullptr) return true;
  return false;
}
template <class Program, int Step, class Comm, bool InRows>
constexpr ready_step freeze_step_or_rows() {
  if constexpr (InRows && has_rows<Program>()) {
    constexpr auto rows = rows_from_steps<Program>[Step];
    if constexpr (rows != nullptr) return {nullptr, nullptr, nullptr, rows};
    else if constexpr (is_in_rows<Program>(Step)) return {};
    else return freeze_step<Program, Step, Comm>();
  } else {
    return freeze_step<Program, Step, Comm>();
  }
}
/// `InRows`: steps that are one loop over rows run as this loop. False if a run observes single steps.
template <class Program, class Comm, bool InRows>
struct frozen_steps {
  template <int... Step>
  static constexpr auto make(std::integer_sequence<int, Step...>) {
    return std::array<ready_step, sizeof...(Step)>{freeze_step_or_rows<Program, Step, Comm, InRows>()...};
  }
  static constexpr auto list = make(std::make_integer_sequence<int, static_cast<int>(Program::view.steps.size())>{});
};

template <class Program, class Comm>
void run_static(Comm& comm, const device_memory* devices, const void** from, void** to) {
  if constexpr (requires { typename Comm::teamed; }) return comm.template run_compiled<Program>(devices, from, to);
  else if constexpr (requires { typename Comm::traced; })
    return comm.run(Program::view, Program::mesh::info, frozen_steps<Program, typename Comm::traced, false>::list.data(), devices,
                    from, to, run_jointly<kernels::move, std::int64_t, movement, typename Comm::traced>);
  static constexpr auto go_on = go_on_of<Comm>(Program::view);
  const devices_here here{devices, comm.local_count(), from, to, &comm, go_on};
  if constexpr (Program::view.is_checked)
    run_plan_checked(Program::view, Program::mesh::info, frozen_steps<Program, Comm, false>::list.data(), here,
                     run_jointly<kernels::move, std::int64_t, movement, Comm>);
  else run_plan(Program::view, frozen_steps<Program, Comm, true>::list.data(), here);
}

}  // namespace gspmd::detail

#if defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/run/static_program_instances.ipp"
#endif
