// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "gspmd/detail/ops/compositions/softmax_gradient.hpp"
#include "gspmd/detail/ops/modes/transition.hpp"
#include "gspmd/detail/ops/regions.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/ops/rows.hpp"
#include "gspmd/detail/ops/set_policy.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Reverse-mode differentiation. Adds the nodes that compute the gradient of a scalar with respect to other nodes,
/// last node first. The gradients from all users of a node are summed before they are passed on. `first`: the first
/// node for which a gradient is requested; earlier nodes are not visited.
class differentiator {
 public:
  constexpr differentiator(graph& g, int scalar, int first) : graph_(g), gradients_(g) {
    const node seed = at(scalar);
    if (seed.shape.count != 0 || !is_floating(seed.type) || is_complex(seed.type)) {
      g.fail(seed.at, "grad", mistake::no_scalar_loss,
             text("the value to differentiate is ")
                 << name_of(seed.type) << shape_text(seed.shape) << "; it must be a float of rank 0, a loss: "
                 << (is_complex(seed.type) ? "take real(x) or abs(x), and sum or mean it" : "sum or mean it"));
      return;
    }
    gradients_.slot(scalar) = add_constant(g, seed.type, seed.shape, 1, 1, seed.at);
    if (g.is_explicit || seed.local_axes != 0)
      gradients_.slot(scalar) = add_cotangent(g, gradients_.slot(scalar), scalar, seed.at, cotangent::seed);
    const axis_mask before = g.open_local;
    walk(first, scalar);
    g.open_local = before;
  }
  /// Returns the gradient with respect to a node; zero if the scalar does not depend on the node. For a complex node
  /// it is the conjugate of the value that operators pass on: see abs_op::gradient.
  [[nodiscard]] constexpr int by(int i) {
    const int gradient = gradients_.by(i);
    if (gradient < 0 || !is_complex(at(gradient).type)) return gradient;
    return conjugate(graph_, gradient, at(i).at);
  }
  /// Returns the gradient for the user. In a manual region it has the parts of the node, which collectives on it must
  /// know about.
  [[nodiscard]] constexpr int found(int i) {
    const int gradient = by(i);
    const axis_mask local = at(i).local_axes;
    return local == 0 || local != graph_.open_local ? gradient : add_cotangent(graph_, gradient, i, at(i).at, cotangent::found);
  }

 private:
  friend class recomputation;
  [[nodiscard]] constexpr const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }

  /// Returns true if the scalar depends on any result of an operator.
  constexpr bool has_gradient(int i) {
    bool any = gradients_.slot(i) >= 0;
    for (int r = 1; r < at(i).results; ++r) any = any || gradients_.slot(i + r) >= 0;
    return any;
  }
  constexpr void visit(int i) {
    const node n = at(i);  // a copy: the graph grows
    gradients_.visit(i);
    if (!give_softmax(gradients_)) facts_of(n.op).gradient(gradients_, n);
  }

  constexpr void walk(int first, int last) {
    const int scope_before = graph_.open_scope;
    for (int i = last; i >= first && !graph_.failed(); --i) {
      const auto before = graph_.nodes.size();
      graph_.open_local = at(i).local_axes;
      graph_.open_scope = at(i).scope >= 0 ? at(i).scope : scope_before;
      const int call = i == last ? -1 : recomputed_to(i, first);
      if (call >= 0) graph_.recomputed[call].go_back(*this, call);
      else if (is_region_result(at(i).op)) visit_region(i);
      else if (has_gradient(i)) visit(i);
      const char* const of = call < 0 ? name_of(at(i).op) : nullptr;
      for (auto k = before; k < graph_.nodes.size(); ++k) {
        graph_.nodes[k].in_gradient = true;
        if (graph_.nodes[k].gradient_of == nullptr) graph_.nodes[k].gradient_of = of;
      }
      if (call >= 0) {
        i = graph_.recomputed[call].begin;
        continue;
      }
      // The policy of an operator also holds for its gradient, which moves the same data back.
      if (const policy said = policy_of(at(i)); said != policy{}) set_policy(graph_, before, said);
      if (const axis_mask axes = at(i).exchange_axes; axes != 0) allow_exchange(graph_, before, axes);
    }
    graph_.open_scope = scope_before;
  }

  /// Returns the outermost recomputed call whose last node is `i`; -1 if no call qualifies. A call that ends with the
  /// last node of the walk is not recomputed: its values were computed just before.
  [[nodiscard]] constexpr int recomputed_to(int i, int first) const {
    for (std::size_t k = graph_.recomputed.size(); k-- > 0;)
      if (graph_.recomputed[k].end - 1 == i && graph_.recomputed[k].begin >= first && graph_.is_visible(i))
        return static_cast<int>(k);
    return -1;
  }

  // Forward, a loop also stacks the carried values at the start of every iteration. Backward, a loop runs from the
  // last iteration to the first. It reads the carried values from the stack and recomputes the body. It carries the
  // gradients with respect to the carried values, and the summed gradients with respect to outside values that the
  // body reads. canonical_order drops all nodes that are not needed. A conditional gets another conditional with the
  // same predicate, whose bodies recompute the branch and compute its gradients.

  /// A body that is copied to the place where it is recomputed.
  struct copied_body {
    constant_vector<int> nodes;    // of the body, in order
    constant_vector<int> outside;  // floats that it reads from outside
    constant_vector<int> number;   // by node: its copy, or itself
  };

  constexpr void find_body(copied_body& body, int start, const constant_vector<int>& given) const {
    const auto note = [&](int o) {
      if (o == start || graph_.is_inside(o, start) || !is_floating(at(o).type)) return;
      for (const int x : body.outside)
        if (x == o) return;
      body.outside.push_back(o);
    };
    for (int i = 0; i < static_cast<int>(graph_.nodes.size()); ++i) {
      if (!graph_.is_inside(i, start)) continue;
      const node& n = at(i);
      if (n.op == opcode::carry && n.region == start) continue;
      body.nodes.push_back(i);
      for (const int o : n.operands) note(o);
    }
    for (const int o : given) note(o);
    body.number.resize(graph_.nodes.size(), -1);
  }
  [[nodiscard]] static constexpr int copy_in(const copied_body& body, int i) {
    const int n = static_cast<std::size_t>(i) < body.number.size() ? body.number[static_cast<std::size_t>(i)] : -1;
    return n < 0 ? i : n;
  }
  /// Copies a body into the open region and differentiates the copy, starting from the gradients of the results.
  constexpr void copy_and_walk(copied_body& body, int start, const constant_vector<int>& given,
                               const constant_vector<int>& gradients) {
    const int first = static_cast<int>(graph_.nodes.size());
    for (const int i : body.nodes) {
      node n = at(i);
      for (auto& o : n.operands) o = copy_in(body, o);
      n.region = n.region == start ? graph_.open_region : copy_in(body, n.region);
      n.tag = -1;
      body.number[static_cast<std::size_t>(i)] = static_cast<int>(graph_.nodes.size());
      graph_.nodes.push_back(n);
    }
    const int last = static_cast<int>(graph_.nodes.size()) - 1;
    for (std::size_t k = 0, known = graph_.recomputed.size(); k < known; ++k) {
      recomputed_call c = graph_.recomputed[k];
      if (c.region != start && (c.region < 0 || !graph_.is_inside(c.region, start))) continue;
      c.region = c.region == start ? graph_.open_region : copy_in(body, c.region);
      for (int* const at : {&c.begin, &c.end})
        *at = first + static_cast<int>(std::lower_bound(body.nodes.begin(), body.nodes.end(), *at) - body.nodes.begin());
      graph_.recomputed.push_back(c);
    }
    for (std::size_t k = 0; k < given.size(); ++k)
      if (gradients[k] >= 0) gradients_.give(copy_in(body, given[k]), gradients[k]);
    walk(first, last);
  }

  /// Returns the results of the loop or conditional that node `i` is a result of, if `i` is its first result. Otherwise
  /// the list is empty. At the first result, the gradients of all results are known.
  [[nodiscard]] constexpr constant_vector<int> results_with(int i) const {
    const auto start_of = [this](const node& n) {
      return n.op == opcode::loop_result ? at(n.operands[0]).region : n.operands[0];
    };
    const int start = start_of(at(i));
    constant_vector<int> results;
    for (int k = 0; k < static_cast<int>(graph_.nodes.size()); ++k) {
      if (!is_region_result(at(k).op) || start_of(at(k)) != start) continue;
      if (k < i) return {};
      results.push_back(k);
    }
    return results;
  }

  constexpr void visit_region(int i) {
    const constant_vector<int> results = results_with(i);
    bool any = false;
    for (const int r : results) any = any || gradients_.slot(r) >= 0;
    if (!any) return;
    if (at(i).op == opcode::loop_result) visit_loop(results);
    else visit_cond(results);
  }

  constexpr void visit_loop(const constant_vector<int>& results) {
    const int loop = at(at(results[0]).operands[0]).region;
    const node start = at(loop);
    const location where = start.at;
    if (ghost_sweeps(start) != 1) set_ghost_sweeps(graph_.nodes[static_cast<std::size_t>(loop)], 1);  // every iteration is stored
    if (is_while(start)) {
      for (const int r : results)
        if (gradients_.slot(r) >= 0)
          graph_.fail(where, "while_loop", mistake::no_derivative,
                      "has no gradient: it would store the carried values of every iteration, and the number of iterations is "
                      "unknown; use fori_loop with a number of iterations, or stop_gradient on its results");
      return;
    }
    copied_body body;
    constant_vector<int> carries;
    constant_vector<int> nexts;
    constant_vector<int> gradients;  // of the carried values; -1: no gradient
    for (const int r : results) {
      carries.push_back(at(r).operands[0]);
      nexts.push_back(at(r).operands[1]);
    }
    find_body(body, loop, nexts);
    constant_vector<int> stacks;
    for (const int c : carries) stacks.push_back(stack(loop, c));
    constant_vector<int> sums;
    for (const int r : results) {
      int g = -1;
      if (is_floating(at(r).type)) g = gradients_.slot(r) >= 0 ? gradients_.slot(r) : gradients_.zero_like(r);
      gradients.push_back(g);
    }
    for (const int x : body.outside) sums.push_back(gradients_.zero_like(x));

    const int before = graph_.open_region;
    const int back = open_loop(graph_, start.integer, where);
    for (auto& g : gradients) g = g < 0 ? -1 : add_carry(graph_, g, where);
    for (auto& s : sums) s = add_carry(graph_, s, where);
    const int last = add_constant(graph_, dtype::s64, {}, 0, start.integer - 1, where);
    const int index = (term(graph_, last, where) - term(graph_, back, where)).id();
    body.number[static_cast<std::size_t>(loop)] = index;
    for (std::size_t k = 0; k < carries.size(); ++k)
      body.number[static_cast<std::size_t>(carries[k])] = add_dynamic_index(graph_, stacks[k], index, where);
    constant_vector<int> kept;  // the gradients from outside this loop
    for (std::size_t k = 0; k < sums.size(); ++k) {
      kept.push_back(gradients_.slot(body.outside[k]));
      gradients_.slot(body.outside[k]) = sums[k];
    }
    copy_and_walk(body, loop, nexts, gradients);
    if (graph_.failed()) return;
    constant_vector<int> found;
    for (std::size_t k = 0; k < carries.size(); ++k)
      found.push_back(gradients[k] < 0 ? -1
                                       : add_loop_result(graph_, gradients[k], gradients_.by(copy_in(body, carries[k])), where));
    for (std::size_t k = 0; k < sums.size(); ++k) {
      const int x = body.outside[k];
      sums[k] = add_loop_result(graph_, sums[k], gradients_.slot(x), where);
      gradients_.slot(x) = kept[k];
    }
    graph_.open_region = before;
    for (std::size_t k = 0; k < carries.size(); ++k)
      if (found[k] >= 0) gradients_.give(at(carries[k]).operands[0], found[k]);
    for (std::size_t k = 0; k < sums.size(); ++k) gradients_.give(body.outside[k], sums[k]);
  }

  /// Returns the values that a carried value has at the start of every iteration of a loop, stacked.
  constexpr int stack(int loop, int carry) {
    const node held = at(carry);
    const node start = at(loop);
    extents shape = held.shape;
    if (shape.count == max_rank) {
      graph_.fail(start.at, "grad", mistake::rank, "a carried value is stacked for the gradient and may have at most 31 dims");
      return -1;
    }
    shape.insert(0, start.integer);
    int empty = -1;
    {
      const region_scope outside(graph_, start.region);
      empty = add_constant(graph_, held.type, shape, 0, 0, start.at);
    }
    const region_scope inside(graph_, loop);
    const int rows = add_carry(graph_, empty, start.at);
    return add_loop_result(graph_, rows, add_dynamic_update<set_row_op>(graph_, rows, carry, loop, start.at), start.at);
  }

  constexpr void visit_cond(const constant_vector<int>& results) {
    const int otherwise = at(results[0]).operands[0];
    const int branch = at(otherwise).operands[0];
    const int pred = at(branch).operands[0];
    const location where = at(branch).at;
    constant_vector<int> on_true;
    constant_vector<int> on_false;
    constant_vector<int> gradients;
    for (const int r : results) {
      on_true.push_back(at(r).operands[1]);
      on_false.push_back(at(r).operands[2]);
      gradients.push_back(is_floating(at(r).type) ? gradients_.slot(r) : -1);
    }
    copied_body first;
    find_body(first, branch, on_true);
    copied_body second;
    find_body(second, otherwise, on_false);
    constant_vector<int> outside = first.outside;
    for (const int x : second.outside) {
      bool known = false;
      for (const int y : outside) known = known || x == y;
      if (!known) outside.push_back(x);
    }
    if (outside.empty()) return;
    constant_vector<int> kept;
    for (const int x : outside) kept.push_back(gradients_.slot(x));
    const int before = graph_.open_region;
    const auto go_back = [&](copied_body& body, int start, const constant_vector<int>& given) {
      for (const int x : outside) gradients_.slot(x) = -1;
      copy_and_walk(body, start, given, gradients);
      constant_vector<int> found;
      for (const int x : outside) found.push_back(by(x));
      return found;
    };
    const int back = open_branch(graph_, pred, where);
    const constant_vector<int> a = go_back(first, branch, on_true);
    const int back_otherwise = open_otherwise(graph_, back, where);
    const constant_vector<int> b = go_back(second, otherwise, on_false);
    graph_.open_region = before;
    if (graph_.failed()) return;
    for (std::size_t k = 0; k < outside.size(); ++k) gradients_.slot(outside[k]) = kept[k];
    for (std::size_t k = 0; k < outside.size(); ++k)
      gradients_.give(outside[k], add_cond_result(graph_, back_otherwise, a[k], b[k], where));
  }

  graph& graph_;
  gradient_builder gradients_;
};

}  // namespace gspmd::detail
