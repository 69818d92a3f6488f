// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "gspmd/detail/ops/einsum.hpp"
#include "gspmd/ops.hpp"

namespace gspmd::detail {

/// Reverse-mode differentiation: adds to a graph the nodes that compute the gradient of one scalar by the others, last node
/// first. What a node receives from its users is added up before it is passed on.
class differentiator {
 public:
  constexpr differentiator(graph& g, int scalar) : graph_(g), gradients_(g.nodes.size(), -1) {
    const node seed = at(scalar);
    if (seed.shape.count != 0 || !is_floating(seed.type)) {
      g.fail(seed.at, "grad", mistake::no_scalar_loss,
             text("the value to differentiate is ")
                 << name_of(seed.type) << shape_text(seed.shape) << "; it must be a float of rank 0, a loss: sum or mean it");
      return;
    }
    gradients_[static_cast<std::size_t>(scalar)] = add_constant(g, seed.type, seed.shape, 1, 1, seed.at);
    walk(0, scalar);
  }

  /// The gradient by a node; zero where the scalar does not depend on it.
  [[nodiscard]] constexpr int by(int i) {
    if (graph_.failed() || i < 0) return -1;
    if (i < static_cast<int>(gradients_.size()) && gradients_[static_cast<std::size_t>(i)] >= 0)
      return gradients_[static_cast<std::size_t>(i)];
    return add_constant(graph_, at(i).type, at(i).shape, 0, 0, at(i).at);
  }

 private:
  [[nodiscard]] constexpr const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr value tensor(int i) const { return {&graph_, i}; }

  constexpr void give(int i, value gradient) {
    if (!gradient.is_valid() || !is_floating(at(i).type)) return;
    auto& g = gradient_slot(i);
    g = g < 0 ? gradient.id() : (operand(tensor(g), gradient.node().at) + operand(gradient, gradient.node().at)).id();
  }

  constexpr int& gradient_slot(int i) {
    if (static_cast<std::size_t>(i) >= gradients_.size()) gradients_.resize(graph_.nodes.size(), -1);
    return gradients_[static_cast<std::size_t>(i)];
  }

  constexpr void walk(int first, int last) {
    for (int i = last; i >= first && !graph_.failed(); --i) {
      const auto before = graph_.nodes.size();
      if (is_region_result(at(i).op)) visit_region(i);
      else if (gradient_slot(i) >= 0) visit(i);
      if (at(i).allow_replication)  // its gradient moves the same data back
        for (auto k = before; k < graph_.nodes.size(); ++k) graph_.nodes[k].allow_replication = true;
      if (at(i).gather_limit >= 0)
        for (auto k = before; k < graph_.nodes.size(); ++k)
          if (graph_.nodes[k].op == opcode::einsum && graph_.nodes[k].operands.count == 2)
            graph_.nodes[k].gather_limit = at(i).gather_limit;
    }
  }

  constexpr void visit(int i) {
    const node n = at(i);  // a copy: the graph grows
    const location where = n.at;
    const value y = tensor(i);
    const value dy = tensor(gradients_[static_cast<std::size_t>(i)]);
    const auto in = [&](int k) { return tensor(n.operands[k]); };
    const auto o = [&](auto x) { return operand(x, where); };
    const auto send = [&](int k, value gradient) { give(n.operands[k], gradient); };
    switch (n.op) {
      case opcode::abs: send(0, o(dy) * o(sign(in(0), where))); break;
      case opcode::negate: send(0, -o(dy)); break;
      case opcode::exponential: send(0, o(dy) * o(y)); break;
      case opcode::log: send(0, o(dy) / o(in(0))); break;
      case opcode::sqrt: send(0, o(o(dy) * o(0.5)) / o(y)); break;
      case opcode::rsqrt: send(0, o(o(dy) * o(-0.5)) * o(o(y) / o(in(0)))); break;
      case opcode::tanh: send(0, o(dy) * o(o(1.0) - o(o(y) * o(y)))); break;
      case opcode::logistic: send(0, o(dy) * o(o(y) * o(o(1.0) - o(y)))); break;
      case opcode::relu: send(0, select(o(o(y) > o(0.0)), o(dy), o(0.0))); break;  // y > 0 where x > 0, and x need not live on
      case opcode::sine: send(0, o(dy) * o(cosine(in(0), where))); break;
      case opcode::cosine: send(0, -o(o(dy) * o(sine(in(0), where)))); break;
      case opcode::convert: send(0, convert_to(dy, at(n.operands[0]).type, where)); break;
      case opcode::shard_alike: send(0, dy); break;
      case opcode::reshard: send(0, {&graph_, add_reshard(graph_, dy.id(), n.annotation, where)}); break;
      case opcode::add:
        send(0, dy);
        send(1, dy);
        break;
      case opcode::subtract:
        send(0, dy);
        send(1, -o(dy));
        break;
      case opcode::multiply:
        send(0, o(dy) * o(in(1)));
        send(1, o(dy) * o(in(0)));
        break;
      case opcode::divide:
        send(0, o(dy) / o(in(1)));
        send(1, -o(o(o(dy) * o(y)) / o(in(1))));
        break;
      case opcode::maximum:
      case opcode::minimum: {  // where both are equal each gets half
        const bool is_max = n.op == opcode::maximum;
        const value half = select(o(equal(o(in(0)), o(in(1)))), o(o(dy) * o(0.5)), o(0.0));
        send(0, select(o(is_max ? o(in(0)) > o(in(1)) : o(in(0)) < o(in(1))), o(dy), o(half)));
        send(1, select(o(is_max ? o(in(1)) > o(in(0)) : o(in(1)) < o(in(0))), o(dy), o(half)));
        break;
      }
      case opcode::power: {
        const value slope = o(in(1)) * o(power(o(in(0)), o(o(in(1)) - o(1.0))));
        const bool is_never_0 = at(n.operands[1]).op == opcode::constant && at(n.operands[1]).real != 0;
        send(0, o(dy) * o(is_never_0 ? slope : select(o(equal(o(in(1)), o(0.0))), o(0.0), o(slope))));  // 0 * 0^-1 is no number
        const value logarithm = select(o(o(in(0)) > o(0.0)), o(log(in(0), where)), o(0.0));
        send(1, o(dy) * o(o(y) * o(logarithm)));
        break;
      }
      case opcode::select:
        send(1, select(o(in(0)), o(dy), o(0.0)));
        send(2, select(o(in(0)), o(0.0), o(dy)));
        break;
      case opcode::map: visit_map(n, dy); break;
      case opcode::local_op: visit_local(n, y, dy); break;
      case opcode::einsum: visit_einsum(n, dy); break;
      case opcode::reduce: visit_reduce(n, y, dy); break;
      case opcode::broadcast_in_dim: visit_broadcast(n, dy); break;
      case opcode::reshape: send(0, {&graph_, add_reshape(graph_, dy.id(), at(n.operands[0]).shape, where)}); break;
      case opcode::shift: send(0, {&graph_, add_shift(graph_, dy.id(), n.attributes[0], -n.integer, where)}); break;
      case opcode::transpose: {
        inline_vec<std::int8_t, max_rank> inverse(n.attributes.count, 0);
        for (int d = 0; d < n.attributes.count; ++d) inverse[n.attributes[d]] = static_cast<std::int8_t>(d);
        send(0, {&graph_, add_transpose(graph_, dy.id(), inverse, where)});
        break;
      }
      case opcode::dynamic_index: give_row(n.operands[0], dy, n.operands[1], where); break;
      case opcode::dynamic_update: {
        const node row = at(n.operands[1]);
        const int nothing = add_constant(graph_, row.type, row.shape, 0, 0, where);
        send(0, {&graph_, add_dynamic_update(graph_, dy.id(), nothing, n.operands[2], where)});
        send(1, {&graph_, add_dynamic_index(graph_, dy.id(), n.operands[2], where)});
        break;
      }
      default: break;  // sources, and what is constant almost everywhere: floor, ceil, sign, comparisons
    }
  }

  [[nodiscard]] constexpr value convert_to(value x, dtype type, location where) {
    return {&graph_, add_elementwise(graph_, opcode::convert, {x.id()}, where, type)};
  }

  constexpr void visit_map(const node& n, value dy) {
    if (n.function->derivatives == nullptr) {
      graph_.fail(n.at, "map", mistake::no_derivative, "has no derivative; pass with_derivative(f, df...) instead of f");
      return;
    }
    for (int k = 0; k < n.operands.count; ++k) {
      const value slope{
          &graph_, add_elementwise(graph_, opcode::map,
                                   std::span<const int>(n.operands.begin(), static_cast<std::size_t>(n.operands.count)), n.at,
                                   dtype::f32, n.function->derivatives[k])};
      give(n.operands[k], operand(dy, n.at) * operand(slope, n.at));
    }
  }

  constexpr void visit_local(const node& n, value y, value dy) {
    if (n.local->gradient == nullptr) {
      graph_.fail(n.at, name_of(n.op), mistake::no_derivative, "has no gradient; pass with_gradient(f, g) instead of f");
      return;
    }
    int gradients[max_local_operands]{};
    n.local->gradient(n.local->gradient_object, graph_, n.operands.begin(), y.id(), dy.id(), gradients);
    for (int k = 0; k < n.operands.count && !graph_.failed(); ++k) {
      if (gradients[k] < 0) continue;  // none, or a number that no gradient has
      const node& given = at(gradients[k]);
      const node& operand_is = at(n.operands[k]);
      if (!(given.shape == operand_is.shape) || (given.type != operand_is.type && is_floating(operand_is.type)))
        graph_.fail(n.at, name_of(n.op), mistake::extent,
                    text("the gradient by operand ")
                        << k << " is " << name_of(given.type) << shape_text(given.shape) << ", the operand is "
                        << name_of(operand_is.type) << shape_text(operand_is.shape));
      else give(n.operands[k], tensor(gradients[k]));
    }
  }

  /// Swaps index sets: the gradient by an operand is the einsum of dy with the other operand. A letter that only this operand
  /// has was summed away; its gradient does not depend on it.
  constexpr void visit_einsum(const node& n, value dy) {
    const int count = n.operands.count;
    const auto letters = [&](int k) {
      inline_vec<char, max_rank> list;
      const auto from = letters_of(graph_, n, k);
      for (int d = 0; d < from.count; ++d) list.push_back(static_cast<char>(from[d]));
      return list;
    };
    const auto result = letters(count);
    for (int k = 0; k < count; ++k) {
      const auto own = letters(k);
      const auto other = count == 2 ? letters(1 - k) : inline_vec<char, max_rank>{};
      parsed_equation e;
      inline_vec<std::int8_t, max_rank> kept;
      for (int d = 0; d < own.count; ++d)
        if (holds(result, own[d]) || (count == 2 && holds(other, own[d]))) {
          e.result.push_back(own[d]);
          kept.push_back(static_cast<std::int8_t>(d));
        }
      int id = -1;
      if (count == 2) {  // dy stands where its operand stood, so that the kernel sees the order the user wrote
        e.operands.push_back(k == 0 ? result : other);
        e.operands.push_back(k == 0 ? other : result);
        id = k == 0 ? add_einsum(graph_, e, {dy.id(), n.operands[1]}, n.at)
                    : add_einsum(graph_, e, {n.operands[0], dy.id()}, n.at);
      } else {
        e.operands.push_back(result);
        id = e.result == result ? dy.id() : add_einsum(graph_, e, {dy.id()}, n.at);
      }
      if (kept.count != own.count) id = add_broadcast(graph_, id, at(n.operands[k]).shape, kept, n.at);
      give(n.operands[k], {&graph_, id});
    }
  }

  [[nodiscard]] constexpr value spread(value reduced, const node& n) {
    const extents& shape = at(n.operands[0]).shape;
    const dim_mask dims = reduced_dims(n);
    inline_vec<std::int8_t, max_rank> kept;
    for (int d = 0; d < shape.count; ++d)
      if ((dims & dim_bit(d)) == 0) kept.push_back(static_cast<std::int8_t>(d));
    return {&graph_, add_broadcast(graph_, reduced.id(), extents(shape), kept, n.at)};
  }

  constexpr void visit_reduce(const node& n, value y, value dy) {
    const value x = tensor(n.operands[0]);
    const auto o = [&](auto v) { return operand(v, n.at); };
    if (n.kind == monoid::add) {
      give(n.operands[0], spread(dy, n));
    } else if (n.kind == monoid::multiply) {
      give(n.operands[0], o(spread(o(dy) * o(y), n)) / o(x));
    } else if (n.kind == monoid::maximum || n.kind == monoid::minimum) {  // shared evenly by all that are equal to it
      const value hit = convert_to(equal(o(x), o(spread(y, n))), n.type, n.at);
      const value hits{&graph_, add_reduce(graph_, hit.id(), reduced_dims(n), monoid::add, n.at)};
      give(n.operands[0], o(hit) * o(spread(o(dy) / o(hits), n)));
    }
  }

  constexpr void visit_broadcast(const node& n, value dy) {
    const extents shape = at(n.operands[0]).shape;
    dim_mask summed = dim_bit(n.shape.count) - 1;
    for (int d = 0; d < n.attributes.count; ++d)
      if (shape[d] == n.shape[n.attributes[d]]) summed &= ~dim_bit(n.attributes[d]);
    int id = dy.id();
    if (summed != 0) id = add_reduce(graph_, id, summed, monoid::add, n.at);
    if (id >= 0 && !(at(id).shape == shape)) id = add_reshape(graph_, id, shape, n.at);
    give(n.operands[0], {&graph_, id});
  }

  /// Adds the gradient of one row, in place where the gradient of the whole is carried round a loop.
  constexpr void give_row(int i, value gradient, int index, location where) {
    if (!gradient.is_valid() || !is_floating(at(i).type)) return;
    int whole = gradient_slot(i);
    value row = gradient;
    if (whole < 0) whole = zero_like(i);
    else row = operand(tensor(add_dynamic_index(graph_, whole, index, where)), where) + operand(gradient, where);
    gradient_slot(i) = add_dynamic_update(graph_, whole, row.id(), index, where);
  }
  constexpr int zero_like(int i) {
    const node n = at(i);
    return add_constant(graph_, n.type, n.shape, 0, 0, n.at);
  }

  // ---- loops and conditionals ----
  //
  // Forward, a loop also stacks what every iteration finds in the carried values. Backward, a loop runs from the last iteration
  // to the first: it takes what was found from the stack, computes the body again, and carries the gradients by the carried
  // values, and the sums of those by what the body reads from outside. What of all this nobody needs, canonical_order drops.
  // A conditional has another one with the same condition, whose bodies compute the branch again and its gradients.

  /// A body, copied to where it is computed again.
  struct copied_body {
    std::vector<int> nodes;    // of the body, in order
    std::vector<int> outside;  // floats that it reads from outside
    std::vector<int> number;   // by node: its copy, or itself
  };

  constexpr void find_body(copied_body& body, int start, const std::vector<int>& given) const {
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
  /// Copies a body into the open region and goes back through it, from the gradients of what it gives.
  constexpr void copy_and_walk(copied_body& body, int start, const std::vector<int>& given, const std::vector<int>& gradients) {
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
    for (std::size_t k = 0; k < given.size(); ++k)
      if (gradients[k] >= 0) give(copy_in(body, given[k]), tensor(gradients[k]));
    walk(first, last);
  }

  /// The results of the loop or conditional that node `i` is a result of; empty but for the first of them: the others' gradients
  /// are known by then.
  [[nodiscard]] constexpr std::vector<int> results_with(int i) const {
    const auto start_of = [this](const node& n) {
      return n.op == opcode::loop_result ? at(n.operands[0]).region : n.operands[0];
    };
    const int start = start_of(at(i));
    std::vector<int> results;
    for (int k = 0; k < static_cast<int>(graph_.nodes.size()); ++k) {
      if (!is_region_result(at(k).op) || start_of(at(k)) != start) continue;
      if (k < i) return {};
      results.push_back(k);
    }
    return results;
  }

  constexpr void visit_region(int i) {
    const std::vector<int> results = results_with(i);
    bool any = false;
    for (const int r : results) any = any || gradient_slot(r) >= 0;
    if (!any) return;
    if (at(i).op == opcode::loop_result) visit_loop(results);
    else visit_cond(results);
  }

  constexpr void visit_loop(const std::vector<int>& results) {
    const int loop = at(at(results[0]).operands[0]).region;
    const node start = at(loop);
    const location where = start.at;
    copied_body body;
    std::vector<int> carries;
    std::vector<int> nexts;
    std::vector<int> gradients;  // of what is carried; -1: it has none
    for (const int r : results) {
      carries.push_back(at(r).operands[0]);
      nexts.push_back(at(r).operands[1]);
    }
    find_body(body, loop, nexts);
    std::vector<int> stacks;
    for (const int c : carries) stacks.push_back(stack(loop, c));
    std::vector<int> sums;
    for (const int r : results) {
      int g = -1;
      if (is_floating(at(r).type)) g = gradient_slot(r) >= 0 ? gradient_slot(r) : zero_like(r);
      gradients.push_back(g);
    }
    for (const int x : body.outside) sums.push_back(zero_like(x));

    const int before = graph_.open_region;
    const int back = open_loop(graph_, start.integer, where);
    for (auto& g : gradients) g = g < 0 ? -1 : add_carry(graph_, g, where);
    for (auto& s : sums) s = add_carry(graph_, s, where);
    const int last = add_constant(graph_, dtype::s64, {}, 0, start.integer - 1, where);
    const int index = (operand(tensor(last), where) - operand(tensor(back), where)).id();
    body.number[static_cast<std::size_t>(loop)] = index;
    for (std::size_t k = 0; k < carries.size(); ++k)
      body.number[static_cast<std::size_t>(carries[k])] = add_dynamic_index(graph_, stacks[k], index, where);
    std::vector<int> kept;  // the gradients from outside this loop
    for (std::size_t k = 0; k < sums.size(); ++k) {
      kept.push_back(gradient_slot(body.outside[k]));
      gradient_slot(body.outside[k]) = sums[k];
    }
    copy_and_walk(body, loop, nexts, gradients);
    if (graph_.failed()) return;
    std::vector<int> found;
    for (std::size_t k = 0; k < carries.size(); ++k)
      found.push_back(gradients[k] < 0 ? -1 : add_loop_result(graph_, gradients[k], by(copy_in(body, carries[k])), where));
    for (std::size_t k = 0; k < sums.size(); ++k) {
      const int x = body.outside[k];
      sums[k] = add_loop_result(graph_, sums[k], gradient_slot(x), where);
      gradient_slot(x) = kept[k];
    }
    graph_.open_region = before;
    for (std::size_t k = 0; k < carries.size(); ++k)
      if (found[k] >= 0) give(at(carries[k]).operands[0], tensor(found[k]));
    for (std::size_t k = 0; k < sums.size(); ++k) give(body.outside[k], tensor(sums[k]));
  }

  /// What every iteration of a loop finds in a carried value, stacked.
  constexpr int stack(int loop, int carry) {
    const node held = at(carry);
    const node start = at(loop);
    extents shape = held.shape;
    if (shape.count == max_rank) {
      graph_.fail(start.at, "grad", mistake::rank, "what a loop carries is stacked and may have at most 31 dims");
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
    return add_loop_result(graph_, rows, add_dynamic_update(graph_, rows, carry, loop, start.at), start.at);
  }

  constexpr void visit_cond(const std::vector<int>& results) {
    const int otherwise = at(results[0]).operands[0];
    const int branch = at(otherwise).operands[0];
    const int pred = at(branch).operands[0];
    const location where = at(branch).at;
    std::vector<int> on_true;
    std::vector<int> on_false;
    std::vector<int> gradients;
    for (const int r : results) {
      on_true.push_back(at(r).operands[1]);
      on_false.push_back(at(r).operands[2]);
      gradients.push_back(is_floating(at(r).type) ? gradient_slot(r) : -1);
    }
    copied_body first;
    find_body(first, branch, on_true);
    copied_body second;
    find_body(second, otherwise, on_false);
    std::vector<int> outside = first.outside;
    for (const int x : second.outside) {
      bool known = false;
      for (const int y : outside) known = known || x == y;
      if (!known) outside.push_back(x);
    }
    if (outside.empty()) return;
    std::vector<int> kept;
    for (const int x : outside) kept.push_back(gradient_slot(x));
    const int before = graph_.open_region;
    const auto go_back = [&](copied_body& body, int start, const std::vector<int>& given) {
      for (const int x : outside) gradient_slot(x) = -1;
      copy_and_walk(body, start, given, gradients);
      std::vector<int> found;
      for (const int x : outside) found.push_back(by(x));
      return found;
    };
    const int back = open_branch(graph_, pred, where);
    const std::vector<int> a = go_back(first, branch, on_true);
    const int back_otherwise = open_otherwise(graph_, back, where);
    const std::vector<int> b = go_back(second, otherwise, on_false);
    graph_.open_region = before;
    if (graph_.failed()) return;
    for (std::size_t k = 0; k < outside.size(); ++k) gradient_slot(outside[k]) = kept[k];
    for (std::size_t k = 0; k < outside.size(); ++k)
      give(outside[k], tensor(add_cond_result(graph_, back_otherwise, a[k], b[k], where)));
  }

  graph& graph_;
  std::vector<int> gradients_;  // by node; -1: none yet
};

}  // namespace gspmd::detail
