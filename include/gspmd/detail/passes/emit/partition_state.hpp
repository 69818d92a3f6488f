// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// What the partitioner knows after some of the nodes, besides what follows from the graph: another evaluation may go on from
/// there.
struct partition_state {
  local_program program;
  vec<int> roots, results;  // by node
  vec<int> form_count;      // by root
  vec<int> forms;           // of all roots
  vec<int> open, open_at, given;
  vec<int> made_node, made_value, made_level;
  int next = 0;              // node
  bool is_finished = false;  // then the program is all there is

  static constexpr std::size_t list_count = 13;
  template <class State, class F>
  static constexpr void for_each_list(State& s, F visit) {
    visit(s.program.inputs);
    visit(s.program.outputs);
    visit(s.program.results);
    visit(s.roots);
    visit(s.results);
    visit(s.form_count);
    visit(s.forms);
    visit(s.open);
    visit(s.open_at);
    visit(s.given);
    visit(s.made_node);
    visit(s.made_value);
    visit(s.made_level);
  }
};

struct partition_sizes {
  std::size_t values = 0, ops = 0, ints = 0;
  std::size_t movements = 0;  // among the ops, those with a map
};

/// The same as a constant. What exceeds the capacity is left out, and `fits()` says so.
template <partition_sizes Capacity>
struct constant_partition_state {
  std::array<local_value, Capacity.values> values{};
  std::array<local_op, Capacity.ops> ops{};
  std::array<int, Capacity.ints> ints{};
  std::array<std::size_t, partition_state::list_count> counts{};
  partition_sizes sizes;
  int next;
  bool is_finished;

  constexpr explicit constant_partition_state(const partition_state& s)
      : sizes{s.program.values.size(), s.program.ops.size(), 0, 0}, next(s.next), is_finished(s.is_finished) {
    copy(s.program.values.data(), sizes.values, values.data(), Capacity.values);
    copy(s.program.ops.data(), sizes.ops, ops.data(), Capacity.ops);
    const local_op* const all = s.program.ops.data();
    for (std::size_t i = 0; i < sizes.ops; ++i) sizes.movements += all[i].movement >= 0 ? 1 : 0;
    std::size_t list = 0;
    partition_state::for_each_list(s, [&](const vec<int>& from) {
      counts[list++] = from.size();
      if (sizes.ints < Capacity.ints) copy(from.data(), from.size(), ints.data() + sizes.ints, Capacity.ints - sizes.ints);
      sizes.ints += from.size();
    });
  }
  [[nodiscard]] constexpr bool fits() const {
    return sizes.values <= Capacity.values && sizes.ops <= Capacity.ops && sizes.ints <= Capacity.ints;
  }
  [[nodiscard]] constexpr partition_state thaw() const {
    partition_state s;
    s.program.values.assign(values.data(), values.data() + sizes.values);
    s.program.ops.assign(ops.data(), ops.data() + sizes.ops);
    std::size_t list = 0;
    const int* from = ints.data();
    partition_state::for_each_list(s, [&](vec<int>& to) {
      to.assign(from, from + counts[list]);
      from += counts[list++];
    });
    s.next = next;
    s.is_finished = is_finished;
    return s;
  }

 private:
  // By pointers: calls count against the limits of an evaluation.
  template <class T>
  static constexpr void copy(const T* from, std::size_t count, T* to, std::size_t room) {
    if (room < count) count = room;
    for (std::size_t i = 0; i < count; ++i) to[i] = from[i];
  }
};

}  // namespace gspmd::detail
