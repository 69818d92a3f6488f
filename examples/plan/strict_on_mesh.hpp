// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <gspmd/manual.hpp>

#include "strict_document.hpp"

namespace plan_tool {

/// What a name of an explicit or manual document stands for in the program that is built: on the mesh one value; on one device one for each
/// device of the local view.
using copies = std::vector<value>;

/// Builds what such a document says, on its mesh: nothing is sent but what it writes.
class on_mesh {
 public:
  on_mesh(gspmd::dynamic::builder& b, const gspmd::dynamic::mesh& written) : b_(b), typed_(b, ""), mesh_(written) {}

  [[nodiscard]] std::size_t count() const { return 1; }
  [[nodiscard]] const std::vector<std::size_t>& active() const { return active_; }
  /// The devices that go one way where they may part along these axes.
  [[nodiscard]] std::vector<std::vector<std::size_t>> groups(const std::string&) const { return {active_}; }
  void go(const std::vector<std::size_t>&) {}

  void input(value x, const value_states& s) { typed_.input(x, s); }
  void output(value x, gspmd::location) { b_.output(x); }

  copies transition(const copies& x, const written_transition& t, gspmd::location at) {
    const auto axes = mask(t.axes);
    const gspmd::detail::state_change c{t.by, axes, t.from, t.to};
    gspmd::detail::device_shift shift{};
    if (t.by == gspmd::verb::permute) {
      const auto n = mesh().shape.size_of(axes);
      if (n > gspmd::detail::max_placed) {
        b_.graph().fail(at, "permute", gspmd::detail::mistake::states,
                        gspmd::detail::text("a list names ")
                            << int{gspmd::detail::max_placed} << " devices at most, and along these axes there are " << n);
        return x;
      }
      shift.is = gspmd::detail::device_shift::kind::listed;
      for (std::int64_t i = 0; i < n; ++i) shift.from.push_back(-1);
      for (const auto& [from, to] : t.pairs) shift.from[static_cast<int>(to)] = static_cast<std::int8_t>(from);
    }
    const bool is_local = axes != 0 && (axes & ~b_.graph().open_local) == 0;
    return {of(gspmd::detail::add_transition(b_.graph(), x[0].id(), c, is_local, at, shift))};
  }
  copies axis_index(const std::string& axis, gspmd::location at) {
    int a = 0;
    while ((mask(axis) & gspmd::detail::axis_bit(a)) == 0) ++a;
    return {of(gspmd::detail::add_axis_index(b_.graph(), a, at))};
  }
  /// What a result must be, or a reshard asks for: of the axes of the global view; of the others there is nothing to do.
  copies bring(const copies& x, const value_states& s, gspmd::location at) {
    return {of(gspmd::detail::add_state_wish(b_.graph(), x[0].id(), wish(s, b_.graph().open_local), at))};
  }
  /// The same value as one of its own.
  copies same(const copies& x, gspmd::location at) {
    return {of(gspmd::detail::add_state_wish(b_.graph(), x[0].id(), {{}, 0, 0, false, true}, at))};
  }

  /// A manual region, whose body is called with its arguments.
  template <class Body>
  std::vector<copies> region(const op_note& note, const std::vector<copies>& operands, Body body, gspmd::location at) {
    auto& g = b_.graph();
    const auto axes = mask(note.axes);
    g.type_local = &gspmd::detail::type_local;
    std::vector<copies> inside;
    for (std::size_t k = 0; k < operands.size(); ++k) {
      const auto border = border_of(note.takes[k], axes);
      const int brought = gspmd::detail::add_state_wish(g, operands[k][0].id(), wish(note.takes[k], g.open_local), at);
      inside.push_back({of(gspmd::detail::add_enter(g, brought, border, at))});
      b_.label(operands[k][0].node().tag);  // on the other side of the border it is the same value
    }
    std::vector<copies> results = [&] {
      const gspmd::detail::local_scope local(g, g.open_local | axes);
      return body(inside);
    }();
    for (std::size_t k = 0; k < results.size(); ++k)
      if (results[k][0].is_valid())
        results[k] = {of(gspmd::detail::add_leave(g, results[k][0].id(), border_of(note.gives[k], axes), at))};
    return results;
  }

 private:
  [[nodiscard]] const gspmd::detail::mesh_info& mesh() const { return b_.mesh().info(); }
  [[nodiscard]] value of(int id) { return id < 0 ? value{} : value{&b_.graph(), id}; }
  [[nodiscard]] gspmd::detail::axis_mask mask(const std::string& axes) const {
    gspmd::detail::axis_mask m = 0;
    for (const auto& name : names_in(axes))
      for (const auto a : mesh_.find(name)) m |= gspmd::detail::axis_bit(static_cast<int>(a));
    return m;
  }
  /// What splits the dims, along axes of `of` only.
  [[nodiscard]] static gspmd::detail::sharding layout(const value_states& s, gspmd::detail::axis_mask of) {
    gspmd::detail::sharding l;
    for (int d = 0; d < gspmd::max_rank; ++d)
      for (const auto& [axis, dim] : s.order)
        if (dim == d && (of & gspmd::detail::axis_bit(axis)) != 0)
          l.splits.push_back({static_cast<std::int8_t>(axis), static_cast<std::int8_t>(dim)});
    for (std::size_t a = 0; a < s.on.size(); ++a)
      if (s.on[a].is == state::partial && (of & gspmd::detail::axis_bit(static_cast<int>(a))) != 0) {
        l.partial |= gspmd::detail::axis_bit(static_cast<int>(a));
        l.reduced_by = s.on[a].reduced_by;
      }
    return l;
  }
  [[nodiscard]] static gspmd::detail::axis_mask axes_with(const value_states& s, state is) {
    gspmd::detail::axis_mask m = 0;
    for (std::size_t a = 0; a < s.on.size(); ++a)
      if (s.on[a].is == is) m |= gspmd::detail::axis_bit(static_cast<int>(a));
    return m;
  }
  [[nodiscard]] static gspmd::detail::state_wish wish(const value_states& s, gspmd::detail::axis_mask local) {
    return {layout(s, ~local), axes_with(s, state::replica) & ~local, axes_with(s, state::invariant) & ~local, true};
  }
  [[nodiscard]] static gspmd::detail::border_spec border_of(const value_states& s, gspmd::detail::axis_mask axes) {
    return {layout(s, axes), axes, axes_with(s, state::replica) & axes};
  }

  gspmd::dynamic::builder& b_;
  strict_program typed_;
  gspmd::dynamic::mesh mesh_;
  std::vector<std::size_t> active_{0};
};

}  // namespace plan_tool
