// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/support/foreign_names.hpp"
#include "gspmd/program/along.hpp"

#define GSPMD_NO_TRUTH                                                                                         \
  "gspmd: if, while, ?:, &&, || and ! do not work on a value, which has no data while the program is traced; " \
  "choose elements with where, a branch with cond, and combine with bitwise_and, bitwise_or, bitwise_not"

namespace gspmd {

/// The line of the program that calls an operator. Each operator takes it as its last, defaulted argument.
using detail::location;

/// A tensor of the program while the program is traced. It has a global shape, as on a single device, and no data.
/// `compile` calls the callable with values; the callable combines values with operators and returns values.
///
/// **Errors.** Compile error, with the correct form in its text, for operations that need data: conversion to bool (`if
/// (x > 0)`), one element (`x[0]`), `==`, and operators under their names in other libraries (`exp`).
class value : public detail::foreign_names {
 public:
  constexpr value() = default;
  constexpr value(detail::graph* g, int id) : graph_(g), id_(id) {}

  /// Returns a copy of the global extents. A reference would dangle: tracing another operator can move the graph's
  /// nodes.
  [[nodiscard]] constexpr detail::extents shape() const { return is_valid() ? made_by().shape : detail::extents{}; }
  [[nodiscard]] constexpr int rank() const { return is_valid() ? made_by().shape.count : 0; }
  [[nodiscard]] constexpr dtype type() const { return is_valid() ? made_by().type : dtype::f32; }

  [[nodiscard]] constexpr detail::graph* graph() const { return graph_; }
  [[nodiscard]] constexpr int id() const { return id_; }
  /// Returns false if the value has no node in a graph. A refused operator returns a valid placeholder with the type
  /// and shape of its result. The program reports its first mistake.
  [[nodiscard]] constexpr bool is_valid() const { return graph_ != nullptr && id_ >= 0; }
  /// Returns a copy of the node, for the same reason as shape().
  [[nodiscard]] constexpr detail::node node() const { return made_by(); }

  template <std::same_as<bool> Truth>
#ifdef __clang__
  constexpr explicit operator Truth() const {
    static_assert(detail::written_so<Truth>, GSPMD_NO_TRUTH);
#else  // GCC instantiates an exception specification at the line of the `if`, a body when it evaluates the program
  constexpr explicit operator Truth() const noexcept(reports_truth<Truth>()) {
#endif
    note_refused();
    return false;
  }
  template <class Index>
  constexpr auto operator[](const Index&) const {
    static_assert(detail::written_so<Index>,
                  "gspmd: x[i]: a program works on whole tensors and not on their elements; iterate over rows with scan, or take "
                  "rows with slice, take or, at a computed index, dynamic_slice");
    note_refused();
    return *this;
  }

  /// Marks the program as refused. The compiler has already reported the error, so the program reports no other
  /// mistake.
  constexpr void note_refused() const {
    if (graph_ != nullptr) graph_->fail({}, "compile", detail::mistake::reported, "see the error at the call");
  }

 private:
  template <class Truth>
  static consteval bool reports_truth() {
    static_assert(detail::written_so<Truth>, GSPMD_NO_TRUTH);
    return false;
  }
  [[nodiscard]] constexpr const detail::node& made_by() const { return graph_->nodes[static_cast<std::size_t>(id_)]; }
  detail::graph* graph_ = nullptr;
  int id_ = -1;
};

namespace detail {

/// The id of a value that does not exist because of a mistake that the compiler has reported.
inline constexpr int reported_id = -2;

/// Returns the result of an operator: node `id`, or a placeholder of this type and shape if the operator was refused
/// (`id` is negative).
constexpr value made(graph& g, int id, dtype type, const extents& shape) {
  return {&g, id >= 0 ? id : g.add_stand_in(type, shape)};
}
/// The same for an operator whose result has the type and shape of its operand.
constexpr value made(int id, value operand) { return made(*operand.graph(), id, operand.type(), operand.shape()); }

}  // namespace detail
}  // namespace gspmd

#undef GSPMD_NO_TRUTH
