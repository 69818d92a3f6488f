// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ops/registry.hpp"

namespace gspmd::detail {

/// The user's numbers of the values around a node. If the user wrote a single operator, these are its operands. If the
/// user called a function that consists of several operators (ops/one_call.hpp), these are its arguments.
class user_names {
 public:
  constexpr user_names(const graph& g, int node) : graph_(g), node_(node) {
    for (const auto& c : g.calls)
      if (node >= c.begin && node < c.end) call_ = &c;
  }
  [[nodiscard]] constexpr bool is_in_call() const { return call_ != nullptr; }
  [[nodiscard]] constexpr const char* function() const { return call_->name; }
  /// begin() and end() return the range of the nodes that are added together with this node.
  [[nodiscard]] constexpr int begin() const { return is_in_call() ? call_->begin : node_; }
  [[nodiscard]] constexpr int end() const { return is_in_call() ? call_->end : node_ + n().results; }

  /// count() returns the number of the user's operands or arguments. held() returns the node of an operand; -1 for a
  /// scalar or a value of the library.
  [[nodiscard]] constexpr int count() const { return is_in_call() ? call_->arguments.count : n().operands.count; }
  [[nodiscard]] constexpr int held(int number) const {
    if (is_in_call()) return call_->arguments[number];
    const int o = n().operands[number];
    for (const auto& c : graph_.calls)
      if (c.is_inner(o)) return -1;
    return o;
  }
  /// Returns the user's number of operand k. Returns -1 if several arguments determine the operand, or if it is more
  /// than a broadcast of an argument.
  [[nodiscard]] constexpr int number_of(int k) const {
    if (!is_in_call()) return k;
    int o = n().operands[k];
    while (call_->is_inner(o) && at(o).operands.count == 1 && facts_of(at(o).op).runs == realisation::strides)
      o = at(o).operands[0];
    if (k < count() && (call_->arguments[k] == o || (call_->arguments[k] < 0 && reached(o) == 0))) return k;
    for (int a = 0; a < count(); ++a)
      if (call_->arguments[a] == o) return a;
    return -1;
  }
  /// Returns `operand 1`, or `its result from operands 0 and 2`.
  [[nodiscard]] constexpr text operand(int k) const {
    if (const int number = number_of(k); number >= 0) return text("operand ") << number;
    const std::uint32_t of = reached(n().operands[k]);
    if (of == 0) return "a number of its own";
    text t("its result from operand");
    int left = 0, written = 0;
    for (int a = 0; a < count(); ++a) left += (of >> a & 1U) != 0 ? 1 : 0;
    if (left > 1) t << 's';
    for (int a = 0; a < count(); ++a)
      if ((of >> a & 1U) != 0) {
        t << (written == 0 ? " " : left == 1 ? " and " : ", ") << a;
        ++written;
        --left;
      }
    return t;
  }

 private:
  [[nodiscard]] constexpr const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr const node& n() const { return at(node_); }
  /// Returns the arguments that a node of the call depends on, as bits.
  [[nodiscard]] constexpr std::uint32_t reached(int o) const {
    std::uint32_t found = 0;
    for (int a = 0; a < count(); ++a)
      if (call_->arguments[a] == o) found |= std::uint32_t{1} << a;
    if (found != 0 || o < call_->begin || o >= call_->end) return found;
    for (const int x : at(o).operands) found |= reached(x);
    return found;
  }

  const graph& graph_;
  int node_;
  const written_call* call_ = nullptr;
};

}  // namespace gspmd::detail
