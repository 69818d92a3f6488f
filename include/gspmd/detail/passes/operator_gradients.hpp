// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "gspmd/detail/ops/einsum.hpp"
#include "gspmd/detail/passes/softmax_match.hpp"
#include "gspmd/ops.hpp"

namespace gspmd::detail {

/// The gradient of every operator: what a node gives to its operands.
class operator_gradients {
 public:
  /// The gradient by a node; zero where the scalar does not depend on it.
  [[nodiscard]] constexpr int by(int i) {
    if (graph_.failed() || i < 0) return -1;
    if (i < static_cast<int>(gradients_.size()) && gradients_[static_cast<std::size_t>(i)] >= 0)
      return gradients_[static_cast<std::size_t>(i)];
    return add_constant(graph_, at(i).type, at(i).shape, 0, 0, at(i).at);
  }

 protected:
  constexpr explicit operator_gradients(graph& g) : graph_(g), gradients_(g.nodes.size(), -1) {}

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

  constexpr void visit(int i) {
    const node n = at(i);  // a copy: the graph grows
    const location where = n.at;
    const value y = tensor(i);
    const value dy = tensor(gradients_[static_cast<std::size_t>(i)]);
    const auto in = [&](int k) { return tensor(n.operands[k]); };
    const auto o = [&](auto x) { return operand(x, where); };
    const auto send = [&](int k, value gradient) { give(n.operands[k], gradient); };
    if (give_softmax(i, y, dy)) return;
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

  /// The gradient of a softmax or its logarithm as one; false where node `i` is none.
  constexpr bool give_softmax(int i, value y, value dy) {
    const softmax_match m = softmax_matcher(graph_, i).result;
    if (!m.found()) return false;
    const node total = at(m.sum);
    const location where = at(i).at;
    const auto o = [&](auto x) { return operand(x, where); };
    const auto sum_of = [&](value x) {
      return value{&graph_, add_reduce(graph_, x.id(), reduced_dims(total), monoid::add, where)};
    };
    if (at(i).op == opcode::divide) {
      const value mean = spread(sum_of(o(y) * o(dy)), total);
      give(m.source, o(y) * o(o(dy) - o(mean)));
    } else {
      const value share = spread(o(sum_of(dy)) / o(tensor(m.sum)), total);
      give(m.source, o(dy) - o(o(tensor(m.exponential)) * o(share)));
    }
    return true;
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

  graph& graph_;
  std::vector<int> gradients_;  // by node; -1: none yet
};

}  // namespace gspmd::detail
