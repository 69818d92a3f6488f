// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ir/description.hpp"
#include "gspmd/detail/ir/kernels/collectives.hpp"
#include "gspmd/detail/ir/kernels/contract.hpp"
#include "gspmd/detail/ir/kernels/copies.hpp"
#include "gspmd/detail/ir/kernels/fused.hpp"
#include "gspmd/detail/ir/kernels/rearrange.hpp"
#include "gspmd/detail/ir/kernels/regions.hpp"
#include "gspmd/detail/ir/ring.hpp"
#include "gspmd/detail/support/frozen.hpp"
#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// One operator of the user's program, for messages and for `explain`.
struct planned_node {
  planned_code op;
  location at;
  int value = -1;          // its result without later reshards; -1: no output depends on it
  std::int64_t flops = 0;  // of one device, in all its steps and all iterations (flops.hpp defines the count)
  operator_work work;      // the same flops with the memory traffic: the input of time estimates
  int region = -1;         // the node whose body contains it
  int scope = -1;          // the named part of the program that it belongs to
  // If the operator moves all elements by one offset: the dim, and the distance from an element of the result to its
  // element of the operand.
  std::int8_t moved_dim = -1;
  axis_mask may_differ = 0;  // axes of a local view along which devices can hold different data, regardless of the layout
  std::int64_t moved_by = 0;
  bool is_started = false;            // a collective that the program starts and finishes
  const char* gradient_of = nullptr;  // of a node of a backward pass: the name of the operator of the forward pass
};

/// The tables that kernels fill: the tables of listed kernels without duplicates, and the descriptions of all other
/// kernels.
template <class K>
using tables_of_kernel = typename K::tables;
using kernel_tables = mp11::mp_append<
    mp11::mp_unique<mp11::mp_apply<mp11::mp_append, mp11::mp_transform<tables_of_kernel, listed_kernels>>>,
    mp11::mp_list<kernel_table<described_range, entries::shared_by_equal_steps>, kernel_table<description_word, entries::words>>>;

/// Calls `f` with all tables of a plan or of a plan view.
template <class Plan, class F>
constexpr auto lists_of_plan(Plan& p, F f) {
  return with_tables(kernel_tables{}, p, [&](auto&... table) {
    return f(p.nodes, p.completed, p.values, p.steps, p.slots, p.bounds, p.inputs, p.outputs, p.shared_inputs, p.scopes,
             table...);
  });
}

/// Everything about a compiled program, as tables of plain values. The tables are owned by these vectors (`plan`) or
/// are constants. Executors and `explain` read them through `plan_view`. Access a table that kernels fill by the type
/// of its entries: table_of<contraction_plan>(p).
struct plan : owned_tables<kernel_tables> {
  mesh_shape mesh;
  int saving = 0;           // the level of memory saving (save_memory.hpp)
  bool is_checked = false;  // runs compare the data that must be equal on several devices
  vec<planned_node> nodes;
  vec<sharding> completed;  // by node
  vec<planned_value> values;
  vec<plan_step> steps;
  vec<int> slots;
  vec<bound> bounds;
  vec<int> inputs;         // values
  vec<int> outputs;        // values
  vec<int> shared_inputs;  // by output: the input whose memory it can use; -1: no such input
  vec<scope> scopes;       // named parts of the program
  std::int64_t arena_bytes = 0;
  solved_times times;
  text error;                      // the reason if the program is refused
  mistake broken = mistake::none;  // the rule it breaks

  static constexpr auto lists(auto& s, auto f) { return lists_of_plan(s, f); }
  struct rest_members {
    mesh_shape mesh;
    int saving = 0;
    bool is_checked = false;
    std::int64_t arena_bytes = 0;
    mistake broken = mistake::none;
  };
  static constexpr auto rest(auto& s, auto f) { return f(s.mesh, s.saving, s.is_checked, s.arena_bytes, s.broken); }
};

/// The lengths of the tables, by name.
struct plan_lengths : table_lengths<kernel_tables> {
  std::size_t nodes = 0, completed = 0, values = 0, steps = 0, slots = 0, bounds = 0, inputs = 0, outputs = 0, shared_inputs = 0,
              scopes = 0;
};

struct table_views : viewed_tables<kernel_tables> {};

struct plan_view : table_views {
  const mesh_shape* mesh = nullptr;
  int saving = 0;
  bool is_checked = false;
  span<const planned_node> nodes;
  span<const sharding> completed;
  span<const planned_value> values;
  span<const plan_step> steps;
  span<const int> slots;
  span<const bound> bounds;
  span<const int> inputs;
  span<const int> outputs;
  span<const int> shared_inputs;
  span<const scope> scopes;
  std::int64_t arena_bytes = 0;
  solved_times times;

  constexpr plan_view() = default;
  constexpr explicit plan_view(const plan& p)
      : mesh(&p.mesh), saving(p.saving), is_checked(p.is_checked), arena_bytes(p.arena_bytes), times(p.times) {
    lists_of_plan(*this, [&](auto&... view) {
      lists_of_plan(
          p, [&](const auto&... list) { ((view = std::remove_reference_t<decltype(view)>(list.data(), list.size())), ...); });
    });
  }
  template <list_sizes<plan> Room>
  constexpr explicit plan_view(const frozen<plan, Room>& p)
      : mesh(&p.rest.mesh), saving(p.rest.saving), is_checked(p.rest.is_checked), arena_bytes(p.rest.arena_bytes) {
    p.view_lists(*this);
  }

  [[nodiscard]] constexpr const planned_value& value(int i) const { return values[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr const planned_value& operand(const plan_step& s, int k) const {
    return value(slots[static_cast<std::size_t>(s.operands.begin + k)]);
  }
  [[nodiscard]] constexpr const planned_value& result(const plan_step& s, int k = 0) const {
    return value(slots[static_cast<std::size_t>(s.results.begin + k)]);
  }
};

constexpr collective_origin origin_of(const plan_view& p, const plan_step& s) {
  const auto& n = p.nodes[static_cast<std::size_t>(s.node)];
  return {true, n.op, n.at.is_input() ? nullptr : n.at.file, n.at.is_input() ? n.at.number() : n.at.line};
}
/// Returns the map of a movement. A step can contain several movements; movement `k` has operand `k`, result `k` and
/// map `k`.
constexpr const index_map& map_of(const plan_view& p, const plan_step& s, int k = 0) {
  return table_of<index_map>(p)[static_cast<std::size_t>(s.spec + k)];
}
constexpr movement movement_of(const plan_view& p, const plan_step& s, int k = 0) {
  const auto& from = p.operand(s, k);
  const auto& to = p.result(s, k);
  if (is_mapped(s)) return {*p.mesh, from.global, from.layout, to.global, to.layout, map_of(p, s, k), origin_of(p, s)};
  movement m{from.global, from.layout, to.layout, movement_axes(*p.mesh, from.global, from.layout, to.layout), origin_of(p, s)};
  m.from_order = from.order;
  return m;
}
/// Returns the traffic of a movement with a map.
constexpr map_traffic traffic_of(const plan_view& p, const plan_step& s, int k = 0) {
  const auto& from = p.operand(s, k);
  const auto& to = p.result(s, k);
  return traffic_of(*p.mesh, from.global, from.layout, to.global, to.layout, map_of(p, s, k));
}
constexpr const planned_ring& planned_ring_of(const plan_view& p, const plan_step& s) {
  return table_of<planned_ring>(p)[static_cast<std::size_t>(s.spec)];
}
constexpr ring ring_of(const plan_view& p, const plan_step& s) {
  const auto& w = planned_ring_of(p, s);
  const auto& shard = p.operand(s, w.operand);
  return {w.axes, elements(shard.local) * bytes_of(shard.type), origin_of(p, s)};
}
constexpr reduction reduction_of(const plan_view& p, const plan_step& s, int k = 0) {
  const auto& from = p.operand(s, k);
  const auto& to = p.result(s, k);
  return {from.global, from.layout, to.layout, from.layout.partial & ~to.layout.partial, from.layout.reduced_by, origin_of(p, s)};
}
/// Returns the reduction of a step whose operands are contiguous in memory, as one list of elements.
constexpr reduction list_reduction_of(const plan_view& p, const plan_step& s) {
  const reduction first = reduction_of(p, s);
  if (s.operands.count == 1) return first;
  reduction all{extents(1, 0), {}, {}, first.axes, first.reduced_by, first.origin};
  for (int k = 0; k < s.operands.count; ++k) all.global[0] += elements(p.operand(s, k).local);
  all.from.partial = all.axes;
  all.from.reduced_by = all.reduced_by;
  return all;
}

/// Returns the bytes of inputs, outputs and the arena, per device.
constexpr std::int64_t peak_bytes(const plan_view& p) {
  std::int64_t total = p.arena_bytes;
  for (const auto* list : {&p.inputs, &p.outputs})
    for (const int v : *list) total = saturating_add(total, elements(p.value(v).local) * bytes_of(p.value(v).type));
  return total;
}

}  // namespace gspmd::detail
