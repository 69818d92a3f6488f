// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ops/registry.hpp"

namespace gspmd::detail {

/// The user's names of the values around a node: who wrote one operator has its operands, and who called a function that is several of them
/// (ops/one_call.hpp) has its arguments.
class user_names {
 public:
  constexpr user_names(const graph& g, int node) : graph_(g), node_(node) {
    for (const auto& c : g.calls)
      if (node >= c.begin && node < c.end) call_ = &c;
  }
  [[nodiscard]] constexpr bool is_in_call() const { return call_ != nullptr; }
  [[nodiscard]] constexpr const char* function() const { return call_->name; }
  /// The nodes that are made together with this one.
  [[nodiscard]] constexpr int begin() const { return is_in_call() ? call_->begin : node_; }
  [[nodiscard]] constexpr int end() const { return is_in_call() ? call_->end : node_ + n().results; }

  /// The number of values that the user has, operands or arguments; and the node of each, -1: a scalar, or a value of the library's.
  [[nodiscard]] constexpr int count() const { return is_in_call() ? call_->arguments.count : n().operands.count; }
  [[nodiscard]] constexpr int held(int number) const {
    if (is_in_call()) return call_->arguments[number];
    const int o = n().operands[number];
    for (const auto& c : graph_.calls)
      if (c.is_inner(o)) return -1;
    return o;
  }
  /// The number of what operand k is, or -1: it is made of several, or of one in another way than by repeating it.
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
  /// `operand 1`, or `what it makes of operands 0 and 2`.
  [[nodiscard]] constexpr text operand(int k) const {
    if (const int number = number_of(k); number >= 0) return text("operand ") << number;
    const std::uint32_t of = reached(n().operands[k]);
    if (of == 0) return "a number of its own";
    text t("what it makes of operand");
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
  /// The arguments that a node of the call is made of.
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
