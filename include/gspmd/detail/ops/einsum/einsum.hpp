// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/broadcast.hpp"
#include "gspmd/detail/ops/einsum/einsum_equation.hpp"
#include "gspmd/detail/ops/einsum/einsum_steps.hpp"
#include "gspmd/detail/ops/einsum/letters.hpp"
#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/elementwise_node.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/ops/reduce.hpp"

namespace gspmd::detail {

/// Returns true if an equation fits the tensors of a call. Otherwise records the mistake.
constexpr bool fits_operands(graph& g, const einsum_equation& e, std::initializer_list<int> operands, location at) {
  const auto refuse = [&](mistake rule, const text& what) { return g.fail(at, "einsum", rule, what) >= 0; };
  if (static_cast<int>(operands.size()) != e.operands.count)
    return refuse(mistake::operand_count, text("the equation ")
                                              << equation_text(e) << " has " << e.operands.count << " operands, the call has "
                                              << static_cast<int>(operands.size()));
  if (!g.may_read(operands, at, "einsum")) return false;
  const node* given[2]{};
  int k = 0;
  for (const int o : operands) {
    if (o < 0) return false;
    const node& x = g.nodes[static_cast<std::size_t>(o)];
    const auto& letters = e.operands[k];
    if (x.shape.count != letters.count)
      return refuse(mistake::rank, text("operand ")
                                       << k << " of " << equation_text(e) << " has " << letters.count
                                       << " letters, the tensor is " << shape_text(x.shape) << " of rank " << x.shape.count);
    if (x.type == dtype::pred) return refuse(mistake::type, text("operand ") << k << " is pred; convert it to a number first");
    given[k++] = &x;
  }
  if (k < 2) return true;
  const node &lhs = *given[0], &rhs = *given[1];
  if (rhs.type != lhs.type)
    return refuse(mistake::type, text("operand 0 is ") << name_of(lhs.type) << " and operand 1 is " << name_of(rhs.type)
                                                       << "; convert one operand");
  for (int i = 0; i < lhs.shape.count; ++i)
    for (int j = 0; j < rhs.shape.count; ++j)
      if (e.operands[0][i] == e.operands[1][j] && lhs.shape[i] != rhs.shape[j])
        return refuse(mistake::extent, text("dim `")
                                           << e.operands[0][i] << "` of " << equation_text(e) << " is " << lhs.shape[i]
                                           << " in operand 0 and " << rhs.shape[j] << " in operand 1; a letter has one extent");
  return true;
}

/// Adds an einsum without windows, whose equation is parsed. The attributes of the node are the letters of the
/// operands, then of the result. `integer` is 1 if the operands have a narrower type than the result (keep_sum_wide).
constexpr int add_einsum(graph& g, const einsum_equation& e, std::initializer_list<int> operands, location at);

/// Makes the last added einsum compute its sums in `type`, so that the sums are not rounded to the type of
/// the operands. Changes nothing if both types are equal. Returns false if `type` is another type.
constexpr bool keep_sum_wide(graph& g, int id, dtype type, location at);

/// A product of two tensors, or one tensor, summed over the letters that the result lacks.
///
/// **Shapes.** `mk,kn->mn`: [m, k], [k, n] -> [m, n]; [m/x, n/y] on each device, if m is split over x and n over y.
/// **Splits.** Every letter may be split. A split letter of the result splits the result; a split summed letter leaves
/// it partial.
struct einsum_op : without_exchange, without_movements, reads_shards, outside_of_loops {
  static constexpr const char* name = "einsum";
  static constexpr leading_dim leading{.is = leading_dim::way::letters};
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 1, .backward = 1};
  static constexpr bool uniform = false;
  static constexpr bool keeps_slices = false;
  static constexpr replication_words replication = ordinary_replication;

  /// The equation is the rule. Each letter is a factor: parallel if the result has it, otherwise a reduction by add.
  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    rule.reduced_by = monoid::add;
    inline_vec<std::int8_t, 2 * max_rank> letters;  // by factor
    const auto result = letters_of(g, n, n.operands.count);
    for (int k = 0; k <= n.operands.count; ++k) {
      const auto dims = letters_of(g, n, k);
      tensor_map map;
      for (int d = 0; d < dims.count; ++d) {
        int f = 0;
        while (f < letters.count && letters[f] != dims[d]) ++f;
        if (f == letters.count) {
          letters.push_back(dims[d]);
          rule.add_factor(g.nodes[static_cast<std::size_t>(n.operands[k])].shape[d],
                          result.find(dims[d]) >= 0 ? factor_kind::parallel : factor_kind::reduction);
        }
        map.begin_dim();
        map.add_factor(f);
      }
      rule.maps.push_back(map);
    }
  }
  /// Only one operand may be partial, because a product of two sums is not the sum of the products.
  static constexpr operator_class meets(const node&, monoid kind) {
    return {kind == monoid::add ? partial_class::one : partial_class::none};
  }
  static constexpr int reads(const node& n) { return n.operands.count; }
  static constexpr bool is_made_again(const node&) { return false; }
  static constexpr bool may_go_round_ring(const node& n) {
    return n.operands.count == 2 && !is_narrow(n.type) && !is_complex(n.type) && n.integer == 0;
  }

  /// With two operands: 2 flops for each combination of local indices, a multiplication and an addition, or 8 for
  /// complex elements. With one operand: 1 flop for each summed element.
  static constexpr std::int64_t flops(const graph& g, const mesh_shape& mesh, const local_program& p, const instruction& op) {
    const node& n = g.nodes[static_cast<std::size_t>(op.node)];
    if (n.operands.count == 1) return flops_of_sum(p, op);
    const auto lhs = letters_of(g, n, 0);
    const auto rhs = letters_of(g, n, 1);
    const auto extent = [&](int k, int d) {
      const auto& v = p.value(op.operands[k]);
      if (k != op.ring.operand || d != op.ring.dim) return v.local[d];
      std::int64_t parts = 1;  // the number of parts without the ring: the local extent covers all shards that rotate
      for (const auto& use : v.layout.splits)
        if (use.dim == d && (ring_of(op.ring, v.layout).mask() & axis_bit(use.axis)) == 0) parts *= mesh.sizes[use.axis];
      return shard_extent(v.global[d], parts);
    };
    std::int64_t total = is_complex(n.type) ? 8 : 2;
    for (int d = 0; d < lhs.count; ++d) total = saturating_multiply(total, extent(0, d));
    for (int d = 0; d < rhs.count; ++d)
      if (lhs.find(rhs[d]) < 0) total = saturating_multiply(total, extent(1, d));
    return total;
  }

  static constexpr void name_dim(text& t, const graph& g, const node& n, int k, int dim) {
    t << " (dim `" << static_cast<char>(letters_of(g, n, k)[dim]) << "`)";
  }

  /// The gradient of an operand is the einsum of dy with the other operand. If only this operand has a letter, the
  /// letter was summed, and the gradient is equal for all its indices.
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    graph& g = b.program();
    const int dy = b.dy().id();
    const int count = n.operands.count;
    const auto as = [&](int id, dtype type) {
      return id < 0 || b.at(id).type == type ? id : add_elementwise(g, code_of<cast_op>, {id}, n.at, type);
    };
    const auto letters = [&](int k) {
      inline_vec<char, max_rank> list;
      const auto from = letters_of(g, n, k);
      for (int d = 0; d < from.count; ++d) list.push_back(static_cast<char>(from[d]));
      return list;
    };
    const auto result = letters(count);
    for (int k = 0; k < count; ++k) {
      const auto own = letters(k);
      const auto other = count == 2 ? letters(1 - k) : inline_vec<char, max_rank>{};
      einsum_equation e;
      inline_vec<std::int8_t, max_rank> kept;
      for (int d = 0; d < own.count; ++d)
        if (holds(result, own[d]) || (count == 2 && holds(other, own[d]))) {
          e.result.push_back(own[d]);
          kept.push_back(static_cast<std::int8_t>(d));
        }
      int id = -1;
      if (count == 2) {  // dy replaces the operand, so that the kernel gets the operands in the user's order
        e.operands.push_back(k == 0 ? result : other);
        e.operands.push_back(k == 0 ? other : result);
        id = k == 0 ? add_einsum(g, e, {dy, as(n.operands[1], n.type)}, n.at)
                    : add_einsum(g, e, {as(n.operands[0], n.type), dy}, n.at);
        id = as(id, b.at(n.operands[k]).type);
      } else {
        e.operands.push_back(result);
        id = e.result == result ? dy : add_einsum(g, e, {dy}, n.at);
      }
      const extents shape = b.at(n.operands[k]).shape;
      if (kept.count != own.count) id = add_broadcast(g, id, shape, kept, n.at);
      b.send(k, id);
    }
  }

  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    if (op.operands.count == 2) add_contraction(l, op);
    else add_unary_einsum(l, op);
  }
  static void describe(std::string&, const plan_view&, const plan_step*) {}
};

constexpr bool keep_sum_wide(graph& g, int id, dtype type, location at) {
  node& n = g.nodes[static_cast<std::size_t>(id)];
  if (n.type == type) return true;
  if (n.op != code_of<einsum_op> || n.operands.count != 2 || computed_as(n.type) != type) {
    g.fail(at, "einsum", mistake::type,
           text("of ") << name_of(n.type) << " cannot give " << name_of(type)
                       << "; it gives the type of its operands, or of two narrow ones " << name_of(computed_as(n.type))
                       << ": convert the operands or the result");
    return false;
  }
  n.type = type;
  n.integer = 1;
  return g.is_countable(n, "einsum");
}

constexpr int add_einsum(graph& g, const einsum_equation& e, std::initializer_list<int> operands, location at) {
  if (!fits_operands(g, e, operands, at)) return -1;
  node n;
  n.op = code_of<einsum_op>;
  n.at = at;
  for (const int o : operands) {
    for (const char c : e.operands[n.operands.count]) n.attributes.push_back(c);
    n.operands.push_back(o);
  }
  n.type = g.nodes[static_cast<std::size_t>(n.operands[0])].type;
  for (const char c : e.result) {
    n.attributes.push_back(c);
    const int o = holds(e.operands[0], c) ? 0 : 1;
    int i = 0;
    while (e.operands[o][i] != c) ++i;
    n.shape.push_back(g.nodes[static_cast<std::size_t>(n.operands[o])].shape[i]);
  }
  return g.add_sized(n);
}

}  // namespace gspmd::detail
