// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <gspmd/dynamic/written_program.hpp>

#include "strict_document.hpp"

namespace plan_tool {

/// The values of the program for a name of an explicit or manual document: on the mesh, one value; on one device, one
/// for each device of the local view.
using copies = std::vector<value>;

/// Builds a document on its mesh. Only the communication that the document writes is sent.
class on_mesh {
 public:
  on_mesh(gspmd::dynamic::builder& b, const gspmd::dynamic::mesh&) : b_(b), program_(b) {}

  [[nodiscard]] std::size_t count() const { return 1; }
  [[nodiscard]] const std::vector<std::size_t>& active() const { return active_; }
  /// Returns groups of devices that take the same branches, if branches may differ along these axes.
  [[nodiscard]] std::vector<std::vector<std::size_t>> groups(const std::string&) const { return {active_}; }
  void go(const std::vector<std::size_t>&) {}

  void input(value x, const value_states& s) { program_.input(x, s); }
  void output(value x, gspmd::location) { b_.output(x); }

  copies transition(const copies& x, const written_transition& t, gspmd::location at) {
    return {program_.transition(x[0], t.by, t.axes, t.from, t.to, t.pairs, at)};
  }
  copies axis_index(const std::string& axis, gspmd::location at) { return {program_.axis_index(axis, at)}; }
  /// Converts a value to the states that a result must have, or that a reshard requests, along the axes of the global
  /// view. Other axes need no conversion.
  copies bring(const copies& x, const value_states& s, gspmd::location at) { return {program_.bring(x[0], s, at)}; }
  /// Returns the same value as a separate value.
  copies same(const copies& x, gspmd::location at) { return {program_.same(x[0], at)}; }

  /// Adds operators that may exchange along these axes.
  template <class F>
  void exchanging(const std::string& axes, const std::vector<copies>& operands, F f) {
    program_.with_exchange(
        axes, [&](const copies&) { return f(operands), copies{}; }, only(operands));
  }
  /// Adds a manual region, and calls the body with the region's arguments.
  template <class Body>
  std::vector<copies> region(const op_note& note, const std::vector<copies>& operands, Body body, gspmd::location at) {
    const auto results = program_.region(
        note.axes, note.takes, note.gives, only(operands), [&](const copies& inside) { return only(body(each(inside))); }, at);
    return each(results);
  }

 private:
  static copies only(const std::vector<copies>& list) {
    copies values;
    for (const auto& x : list) values.push_back(x[0]);
    return values;
  }
  static std::vector<copies> each(const copies& values) {
    std::vector<copies> list;
    for (const auto v : values) list.push_back({v});
    return list;
  }

  gspmd::dynamic::builder& b_;
  gspmd::dynamic::written_program program_;
  std::vector<std::size_t> active_{0};
};

}  // namespace plan_tool
