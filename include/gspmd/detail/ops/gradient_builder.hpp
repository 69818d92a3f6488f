// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <span>

#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/elementwise_node.hpp"
#include "gspmd/detail/ops/sources.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// A tensor in the expression of a gradient: `dy * x`, `0.5 * dy`. All tensors of an expression have one shape and
/// type.
class term {
 public:
  constexpr term(graph& g, int id, location at) : graph_(&g), id_(id), at_(at) {}

  [[nodiscard]] constexpr int id() const { return id_; }

  friend constexpr term operator+(term a, term b) { return of(code_of<add_op>, a, b); }
  friend constexpr term operator-(term a, term b) { return of(code_of<subtract_op>, a, b); }
  friend constexpr term operator-(double a, term b) { return of(code_of<subtract_op>, b.number(a), b); }
  friend constexpr term operator-(term a, double b) { return of(code_of<subtract_op>, a, a.number(b)); }
  friend constexpr term operator-(term a) { return of(code_of<negative_op>, a); }
  friend constexpr term operator*(term a, term b) { return of(code_of<multiply_op>, a, b); }
  friend constexpr term operator*(term a, double b) { return of(code_of<multiply_op>, a, a.number(b)); }
  friend constexpr term operator/(term a, term b) { return of(code_of<divide_op>, a, b); }

  /// Adds an elementwise operator with these operands.
  template <class O, class... More>
  static constexpr term of(term first, More... more) {
    return of(code_of<O>, first, more...);
  }
  template <class... More>
  static constexpr term of(const operator_code& op, term first, More... more) {
    return {*first.graph_, add_elementwise(*first.graph_, op, {first.id_, more.id_...}, first.at_), first.at_};
  }
  /// Adds a number as a tensor of the shape and type of this term.
  [[nodiscard]] constexpr term number(double n) const {
    if (id_ < 0) return *this;
    const node& like = graph_->nodes[static_cast<std::size_t>(id_)];
    const dtype type = like.type;
    const extents shape = like.shape;
    return {*graph_, add_number(*graph_, n, type, shape, "grad", at_), at_};
  }

 private:
  graph* graph_;
  int id_;
  location at_;
};

constexpr int conjugate(graph& g, int complex, location at) { return add_elementwise(g, code_of<conj_op>, {complex}, at); }

/// The gradients of one scalar with respect to the nodes of a graph, during their computation. Operators send gradients
/// to their operands. The gradients that a node receives from its users are added.
class gradient_builder {
 public:
  constexpr explicit gradient_builder(graph& g) : graph_(g), gradients_(g.nodes.size(), -1) {}

  [[nodiscard]] constexpr graph& program() const { return graph_; }
  [[nodiscard]] constexpr const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }

  // ---- for the `gradient(b, n)` of operators; `n` is a copy, because the graph grows ----

  [[nodiscard]] constexpr term y() const { return as_term(visited_); }                        // the result
  [[nodiscard]] constexpr term dy() { return as_term(slot(visited_)); }                       // the gradient of the result
  [[nodiscard]] constexpr term in(int k) const { return as_term(at(visited_).operands[k]); }  // the operand
  [[nodiscard]] constexpr dtype in_type(int k) const { return at(at(visited_).operands[k]).type; }
  [[nodiscard]] constexpr term as_term(int id) const { return {graph_, id, at(visited_).at}; }
  [[nodiscard]] constexpr int visited() const { return visited_; }
  /// Converts the elements of `x` to `type`.
  [[nodiscard]] constexpr term converted(term x, dtype type) const {
    return as_term(add_elementwise(graph_, code_of<cast_op>, {x.id()}, at(visited_).at, type));
  }
  /// Adds to the gradient of operand `k`.
  constexpr void send(int k, term gradient) { give(at(visited_).operands[k], gradient.id()); }
  constexpr void send(int k, int gradient) { give(at(visited_).operands[k], gradient); }

  // ---- for the walk over the graph ----

  /// Sets the operator that sends gradients next.
  constexpr void visit(int i) { visited_ = i; }
  /// Returns the gradient of a node, or zeros if the scalar does not depend on the node.
  [[nodiscard]] constexpr int by(int i) {
    if (graph_.failed() || i < 0) return -1;
    if (i < static_cast<int>(gradients_.size()) && gradients_[static_cast<std::size_t>(i)] >= 0)
      return gradients_[static_cast<std::size_t>(i)];
    return zero_like(i);
  }
  constexpr int zero_like(int i) {
    const node n = at(i);
    return add_constant(graph_, n.type, n.shape, 0, 0, n.at);
  }
  constexpr void give(int i, int gradient) {
    if (gradient < 0 || !is_floating(at(i).type)) return;
    const int before = slot(i);
    const axis_mask local = graph_.open_local;
    graph_.open_local = at(i).local_axes;
    const auto add = [&](int a, int b) { return add_elementwise(graph_, code_of<add_op>, {a, b}, at(gradient).at); };
    // For a carried value c, (c + a) + b becomes c + (a + b). So the loop adds to the carried value once, and partial
    // values are reduced after their sum.
    const bool is_summed_up = before >= 0 && at(before).op == code_of<add_op> && at(at(before).operands[0]).op == opcode::carry;
    const int sum = before < 0     ? gradient
                    : is_summed_up ? add(int{at(before).operands[0]}, add(int{at(before).operands[1]}, gradient))
                                   : add(before, gradient);
    graph_.open_local = local;
    slot(i) = sum;
  }
  /// Returns the gradient of a node as computed so far; -1: none yet.
  constexpr int& slot(int i) {
    if (static_cast<std::size_t>(i) >= gradients_.size()) gradients_.resize(graph_.nodes.size(), -1);
    return gradients_[static_cast<std::size_t>(i)];
  }

 private:
  graph& graph_;
  constant_vector<int> gradients_;  // by node
  int visited_ = 0;
};

}  // namespace gspmd::detail

#include "gspmd/detail/ops/elementwise_gradients.hpp"  // gradients consist of elementwise operators, whose gradients are defined here
