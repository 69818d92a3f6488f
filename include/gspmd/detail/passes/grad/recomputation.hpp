// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "gspmd/detail/ops/barrier.hpp"
#include "gspmd/detail/passes/grad/grad.hpp"

namespace gspmd::detail {

/// Differentiates a call of a function that is recomputed. Adds the nodes of the call again and differentiates these
/// copies. The copies read outside values through barriers.
///
///   y = f(x, w)                                          the call; dy is the gradient with respect to y
///   x2 = barrier(x, dy), w2 = barrier(w, dy)             after dy: not before they are needed
///   y2 = f(x2, w2), and its gradient                     reads no intermediate value of f(x, w)
///
/// Constants, and values that an enclosing loop reads from outside, have no barrier: they are computed or stored there
/// anyway.
class recomputation {
 public:
  static constexpr void go_back(differentiator& d, int call) { recomputation(d, call).run(); }

 private:
  constexpr recomputation(differentiator& d, int call)
      : d_(d), g_(d.graph_), gradients_(d.gradients_), index_(call), call_(d.graph_.recomputed[call]) {}

  [[nodiscard]] constexpr const node& at(int i) const { return g_.nodes[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr std::size_t place(int i) const { return static_cast<std::size_t>(i - call_.begin); }

  constexpr void run() {
    constant_vector<int> given, after;
    for (int i = call_.begin; i < call_.end; ++i) {
      const int gradient = gradients_.slot(i);
      if (gradient < 0 || !is_in(i)) continue;
      given.push_back(i);
      if (facts_of(at(gradient).op).made != origin::source) after.push_back(gradient);
    }
    if (!given.empty()) again(given, after);
    for (int i = call_.end - 1; i >= call_.begin && !g_.failed(); --i)
      if (!is_in(i)) d_.walk(i, i);
  }
  constexpr void again(const constant_vector<int>& given, const constant_vector<int>& after) {
    number_.resize(static_cast<std::size_t>(call_.end - call_.begin), -1);
    outside_.resize(g_.nodes.size(), -1);
    const int first = static_cast<int>(g_.nodes.size());
    for (int i = call_.begin; i < call_.end; ++i)
      if (is_in(i)) add_outside(node(at(i)), after);
    for (int i = call_.begin; i < call_.end && !g_.failed(); ++i)
      if (is_in(i)) add_copy(i);
    if (g_.failed()) return;
    copy_inner_calls();
    const int last = static_cast<int>(g_.nodes.size()) - 1;
    for (const int i : given) gradients_.give(copy_of(i), int{gradients_.slot(i)});
    d_.walk(first, last);
    for (int i = call_.begin; i < call_.end && !g_.failed(); ++i)
      if (is_in(i)) gradients_.slot(i) = int{gradients_.slot(copy_of(i))};
  }

  /// Returns true if a node belongs to the call. A node that the call added in the region of a value that it reads
  /// does not belong to the call.
  [[nodiscard]] constexpr bool is_in(int i) const {
    if (i < call_.begin || i >= call_.end) return false;
    int r = at(i).region;
    while (r >= call_.begin && r < call_.end) r = at(r).region;
    return r == call_.region;
  }
  [[nodiscard]] constexpr int copy_of(int i) const { return is_in(i) ? number_[place(i)] : i; }

  /// Returns true if the innermost loop around the added nodes reads the value from outside.
  [[nodiscard]] constexpr bool is_held_by_loop(int i) const {
    int r = g_.open_region;
    while (r >= 0 && at(r).op != opcode::loop) r = at(r).region;
    return r >= 0 && !g_.is_inside(i, r);
  }
  constexpr void add_outside(const node& reader, const constant_vector<int>& after) {
    for (const int o : reader.operands) {
      if (is_in(o) || outside_[static_cast<std::size_t>(o)] >= 0) continue;
      int& now = outside_[static_cast<std::size_t>(o)];
      now = o;
      if (facts_of(at(o).op).made == origin::source || is_held_by_loop(o)) continue;
      const axis_mask before = g_.open_local;
      g_.open_local = at(o).local_axes;
      now = add_barrier(g_, o, span<const int>(after.data(), after.size()), reader.at);
      g_.open_local = before;
    }
  }
  constexpr void add_copy(int i) {
    node n = at(i);
    for (auto& o : n.operands) o = is_in(o) ? number_[place(o)] : outside_[static_cast<std::size_t>(o)];
    n.region = n.region == call_.region ? g_.open_region : number_[place(n.region)];
    n.tag = -1;
    number_[place(i)] = static_cast<int>(g_.nodes.size());
    g_.nodes.push_back(n);
  }
  constexpr void copy_inner_calls() {
    for (int k = 0; k < index_; ++k) {
      recomputed_call c = g_.recomputed[k];
      if (c.begin < call_.begin || c.end > call_.end) continue;
      c.region = c.region == call_.region ? g_.open_region : number_[place(c.region)];
      c.begin = first_copy_from(c.begin);
      c.end = first_copy_from(c.end);
      g_.recomputed.push_back(c);
    }
  }
  [[nodiscard]] constexpr int first_copy_from(int i) const {
    for (; i < call_.end; ++i)
      if (number_[place(i)] >= 0) return number_[place(i)];
    return static_cast<int>(g_.nodes.size());
  }

  differentiator& d_;
  graph& g_;
  gradient_builder& gradients_;
  int index_;
  recomputed_call call_;
  constant_vector<int> number_;   // by node of the call: its copy
  constant_vector<int> outside_;  // by node: the value that the copies read instead
};

}  // namespace gspmd::detail
