// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/kernels/parts.hpp"

namespace gspmd::detail {

/// Returns true if elements change their indices.
constexpr bool is_mapped(const plan_step& s) {
  constexpr auto first = kernel_number<kernels::move>, last = kernel_number<kernels::finish_move>;
  static_assert(last - first == 3, "the kernels that move are adjacent in the list");
  const auto number = s.kernel.name->number;
  return s.spec >= 0 && number >= first && number <= last;
}
/// Returns true for a movement of a single value to its own memory, or a reduction of a single value. The step can then
/// run concurrently with other steps (start_move, start_combine).
constexpr bool may_be_started(const plan_step& s) {
  return (is<kernels::move>(s) || is<kernels::combine>(s)) && s.operands.count == 1 && s.results.count == 1 && s.bytes_sent > 0;
}
/// Returns true for a movement into a range of its second operand. The other elements of the result are those of this
/// operand.
constexpr bool writes_into_operand(const plan_step& s) { return is<kernels::move>(s) && s.operands.count == 2; }

namespace kernels {

/// A slice (no axes), all_gather, all_to_all or collective_permute; a movement with a map, which can send nothing; a
/// copy to the memory of an output.
struct move : plain_step, without_scratch, not_by_rows, runs_on_one_thread {
  using tables = mp11::mp_list<kernel_table<index_map, entries::one_per_movement>>;
  static constexpr step_work work = step_work::moves;
  static constexpr element_kinds handles = element_kinds::all;

  static constexpr bool works_in_place(const plan_step& s) { return writes_into_operand(s); }
  static constexpr void mark_kept(const table_views&, const plan_step&, std::uint8_t* kept) { kept[0] = 1; }
  static constexpr axis_mask axes(const auto& p, const plan_step& s) { return movement_of(p, s).axes; }
  static constexpr std::int64_t messages(const auto& p, const plan_step& s) {
    const auto members = p.mesh->size_of(axes(p, s));
    return is_mapped(s) && members > 1 ? traffic_of(p, s).messages : messages_of(s.collective, members);
  }
  static constexpr detail::packing packing(const auto& p, const plan_step& s) { return packing_of(*p.mesh, movement_of(p, s)); }
  static constexpr ring_rounds_kind rounds(const plan_view&, const plan_step&) { return ring_rounds_kind::none; }

  static constexpr movement prepare(const auto& p, const plan_step& s) { return numbered(*p.mesh, movement_of(p, s)); }
  template <class T, class Comm>
  static void run(const movement& m, const plan_view& p, const plan_step& s, Comm& comm, const devices_here& devices);
};

/// Movements that share one message to each other device. With maps these are a margin and the corners around it, which
/// have the same neighbours. Without maps these are equal collectives over the same axes.
using joint_movements = inline_vec<movement, most_moved_together>;
/// Reductions that share one message to each other device.
using joint_reductions = inline_vec<reduction, most_moved_together>;

struct moves_together : plain_step, never_in_place, without_scratch, not_by_rows, runs_on_one_thread {
  using tables = mp11::mp_list<kernel_table<index_map, entries::one_per_movement>>;
  static constexpr element_kinds handles = element_kinds::all;
  static constexpr ring_rounds_kind rounds(const plan_view&, const plan_step&) { return ring_rounds_kind::none; }
  static constexpr joint_movements prepare(const auto& p, const plan_step& s) {
    joint_movements all;
    for (int k = 0; k < s.results.count; ++k) all.push_back(numbered(*p.mesh, movement_of(p, s, k)));
    return all;
  }
};
struct begins_moving {
  static constexpr step_work work = step_work::moves;
  static constexpr axis_mask axes(const auto& p, const plan_step& s) { return move::axes(p, s); }
  /// Returns the messages of the widest margins to each side, because all margins have the same neighbours. Without
  /// maps, returns the messages of a single movement.
  static constexpr std::int64_t messages(const auto& p, const plan_step& s) {
    if (!is_mapped(s)) return messages_of(s.collective, p.mesh->size_of(axes(p, s)));
    index_map all = map_of(p, s, 0);
    for (int k = 1; k < s.results.count; ++k) {
      const index_map& own = map_of(p, s, k);
      if (own.low > all.low) all.low = own.low;
      if (own.high > all.high) all.high = own.high;
      for (int side = 0; side < 2; ++side)
        if (own.dims[side].beyond == continuation::round) all.dims[side].beyond = continuation::round;
    }
    const auto& from = p.operand(s, 0);
    return traffic_of(*p.mesh, from.global, p.result(s, 0).global, from.layout, all).messages;
  }
  static constexpr detail::packing packing(const auto& p, const plan_step& s) {
    detail::packing sum;
    for (int k = 0; k < s.results.count; ++k) {
      const movement m = movement_of(p, s, k);
      const auto own = is_mapped(s) ? packing_of(*p.mesh, m) : joint_packing_of(*p.mesh, m);
      sum.send_elems += own.send_elems;
      sum.receive_elems += own.receive_elems;
    }
    return sum;
  }
};
/// The second half of a collective of Base. The first half counts its traffic.
template <class Base>
struct ending : Base {
  static constexpr step_work work = step_work::ends_moving;
  static constexpr axis_mask axes(const plan_view&, const plan_step&) { return 0; }
  static constexpr std::int64_t messages(const plan_view&, const plan_step&) { return 0; }
  static constexpr detail::packing packing(const plan_view&, const plan_step&) { return {}; }
  template <class T, class Descriptor, class Comm>
  static void run(const inline_vec<Descriptor, most_moved_together>& all, const plan_view& p, const plan_step& s, Comm& comm,
                  const devices_here& devices);
};
struct move_together : moves_together, begins_moving {
  template <class T, class Comm>
  static void run(const joint_movements& all, const plan_view& p, const plan_step& s, Comm& comm, const devices_here& devices);
};
/// The same as move_together, or one movement with a map, in two steps. Between the steps the movement is in progress:
/// no step writes its operands or accesses its results. Both steps have the operands, results and maps; the first one
/// counts as the collective. If a communicator cannot start collectives, it executes everything in the first step.
struct start_move : moves_together, begins_moving {
  template <class T, class Comm>
  static void run(const joint_movements& all, const plan_view& p, const plan_step& s, Comm& comm, const devices_here& devices);
};
struct finish_move : ending<moves_together> {};

/// Returns a reduction of complex elements as the reduction of their parts that `run` executes.
constexpr reduction by_parts(reduction r, dtype type) {
  if (is_complex(type)) r.global.push_back(2);
  return r;
}
/// reduce_scatter or all_reduce of a single value, or all_reduce of several values that are contiguous in memory.
struct combine : without_scratch, not_by_rows, runs_on_one_thread {
  using tables = mp11::mp_list<>;
  static constexpr step_work work = step_work::moves;
  static constexpr step_role role = step_role::joins_operands;
  static constexpr element_kinds handles = element_kinds::all;

  static constexpr bool works_in_place(const plan_step& s) {
    return s.collective == collective_kind::all_reduce && s.operands.count == 1;
  }
  static constexpr void mark_kept(const table_views&, const plan_step&, std::uint8_t*) {}
  static constexpr axis_mask axes(const auto& p, const plan_step& s) { return reduction_of(p, s).axes; }
  static constexpr std::int64_t messages(const auto& p, const plan_step& s) {
    return messages_of(s.collective, p.mesh->size_of(axes(p, s)));
  }
  static constexpr detail::packing packing(const auto& p, const plan_step& s) {
    return packing_of(*p.mesh, list_reduction_of(p, s));
  }
  static constexpr ring_rounds_kind rounds(const plan_view&, const plan_step&) { return ring_rounds_kind::none; }

  static constexpr reduction prepare(const auto& p, const plan_step& s) {
    return numbered(*p.mesh, by_parts(list_reduction_of(p, s), s.type));
  }
  template <class T, class Comm>
  static void run(const reduction& r, const plan_view& p, const plan_step& s, Comm& comm, const devices_here& devices);
};
/// Equal reductions over the same axes, of values anywhere in memory, with one message to each other device.
struct combine_together : plain_step, never_in_place, without_scratch, not_by_rows, runs_on_one_thread {
  using tables = mp11::mp_list<>;
  static constexpr step_work work = step_work::moves;
  static constexpr element_kinds handles = element_kinds::all;
  static constexpr axis_mask axes(const auto& p, const plan_step& s) { return combine::axes(p, s); }
  static constexpr std::int64_t messages(const auto& p, const plan_step& s) { return combine::messages(p, s); }
  static constexpr detail::packing packing(const auto& p, const plan_step& s) {
    detail::packing sum;
    for (int k = 0; k < s.results.count; ++k) {
      sum.send_elems += elements(p.operand(s, k).local);
      sum.receive_elems += elements(p.result(s, k).local);
    }
    return sum;
  }
  static constexpr ring_rounds_kind rounds(const plan_view&, const plan_step&) { return ring_rounds_kind::none; }

  static constexpr joint_reductions prepare(const auto& p, const plan_step& s) {
    joint_reductions all;
    for (int k = 0; k < s.results.count; ++k) all.push_back(numbered(*p.mesh, by_parts(reduction_of(p, s, k), s.type)));
    return all;
  }
  template <class T, class Comm>
  static void run(const joint_reductions& all, const plan_view& p, const plan_step& s, Comm& comm, const devices_here& devices);
};
/// A reduction in two steps, like start_move. An all_reduce can have its result in the memory of its operand, because
/// no step accesses it in between.
struct start_combine : combine_together {
  template <class T, class Comm>
  static void run(const joint_reductions& all, const plan_view& p, const plan_step& s, Comm& comm, const devices_here& devices);
};
struct finish_combine : ending<combine_together> {};

}  // namespace kernels

}  // namespace gspmd::detail
