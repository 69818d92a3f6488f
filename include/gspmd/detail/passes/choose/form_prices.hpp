// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/passes/choose/cost.hpp"
#include "gspmd/detail/passes/choose/form_book.hpp"
#include "gspmd/detail/passes/choose/reshard.hpp"
#include "gspmd/detail/passes/request/save_memory.hpp"
#include "gspmd/detail/passes/request/value_uses.hpp"
#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/detail/support/span.hpp"

namespace gspmd::detail {

/// Computes the sharding of a single operand that gives the operator a result sharded as `wanted`. Returns
/// false if no such sharding exists.
constexpr bool is_made_from(const graph& g, const mesh_shape& mesh, const node& n, const sharding& wanted, sharding& operand) {
  op_rule rule;
  rule_of(g, n, rule);
  const auto uses = to_factors(mesh, rule, rule.result(), wanted.splits);
  operand.splits = to_dims(mesh, rule, rule.operand(0), uses);
  return to_dims(mesh, rule, rule.result(), uses) == wanted.splits;
}

/// The inputs of the choice for one operator: the program, the preferred sharding of every value and the existing
/// forms.
struct form_prices {
  const graph& program;
  const mesh_shape& mesh;
  const plan_request& request;
  const value_uses& uses;
  span<const sharding> preferred;
  const form_book& book;
  axis_mask hidden = 0;  // axes that `mesh` lacks: layouts along them are unknown in the local view

  [[nodiscard]] constexpr const network_rates& net() const { return request.network; }
  /// Returns the mesh without the hidden axes of node `i`. The values of node `i` are planned on it.
  [[nodiscard]] constexpr mesh_shape mesh_of(int i) const {
    mesh_shape visible = mesh;
    for (int a = 0; a < visible.axis_count(); ++a)
      if ((at(i).hidden_axes & axis_bit(a)) != 0) visible.sizes[a] = 1;
    return visible;
  }
  /// Returns these inputs on the mesh `visible`.
  [[nodiscard]] constexpr form_prices inside(int i, const mesh_shape& visible) const {
    return {program, visible, request, uses, preferred, book, at(i).hidden_axes};
  }
  [[nodiscard]] constexpr bool has_hidden_axes(int i) const { return at(i).hidden_axes != 0 && hidden == 0; }

  [[nodiscard]] constexpr const node& at(int i) const { return program.nodes[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr const extents& shape_of(int i) const { return at(i).shape; }
  [[nodiscard]] constexpr const sharding& preferred_of(int i) const { return preferred[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr span<const int> readers_of(int i) const { return uses.readers(i); }
  /// Returns true if an operator or an output reads the value. Some results of an operator with several results may be
  /// unread.
  [[nodiscard]] constexpr bool is_read(int i) const { return !readers_of(i).empty(); }
  /// Returns the sharding that the operator of node `i` brings its result to. If the only user of an unannotated
  /// result is elementwise, this is the preferred sharding of that user. Otherwise it is the preferred sharding of the
  /// result.
  [[nodiscard]] constexpr const sharding& wanted_of(int i) const {
    const auto readers = readers_of(i);
    const bool is_for_one = readers.size() == 1 && readers[0] != i && !at(i).annotated && facts_of(at(readers[0]).op).uniform;
    return preferred_of(is_for_one ? readers[0] : i);
  }
  [[nodiscard]] constexpr int level_of(int i) const { return book.level_of(program, i); }

  /// The form that is the cheapest start for bringing a value to a sharding. `value` is -1 if the value is computed
  /// again instead: always for a source; for an operator that is_made_again, if bringing its operand is cheaper than
  /// bringing its result.
  struct priced_form {
    int value = -1;
    reshard_price price;  // of bringing the form, or the operand of a value that is recomputed
  };
  [[nodiscard]] constexpr priced_form best_form(int i, const sharding& wanted) const {
    if (has_hidden_axes(i)) return inside(i, mesh_of(i)).best_form(i, wanted);
    const int root = book.root_of(i);
    const node& n = at(root);
    priced_form best;
    for (const bool is_whole : {false, true})  // a reduced form is made partial only if no other form exists
      for (int v = best.value < 0 ? book.first_of(i) : -1; v >= 0; v = book.values[v].next) {
        const sharding& layout = book.values[v].layout;
        if (layout == wanted) return {v, {}};
        if (((wanted.partial & ~layout.partial) != 0) != is_whole) continue;
        const auto price = price_of_reshard(mesh, net(), n.shape, layout, wanted, bytes_of(n.type));
        if (best.value < 0 || price.is_less_than(best.price)) best = {v, price};
      }
    if (best.value < 0 || wanted.partial != 0) return best;
    const auto& facts = facts_of(n.op);
    if (facts.made == origin::source) return {};
    // A slice sends nothing, but its operand must be in memory. A loop reads a broadcast in place.
    const bool is_free = best.price.bytes == 0;
    if (!facts.is_made_again(n) || (is_free && facts.runs != realisation::strides)) return best;
    sharding operand;
    if (!is_made_from(program, mesh, n, wanted, operand)) return best;
    auto again = best_form(n.operands[0], operand).price;
    again.messages = 0;
    if (again.is_less_than(best.price) || (is_free && again.bytes == 0)) best = {-1, again};
    return best;
  }

  /// Returns `bytes` times the iterations of all loops among the first `level` open bodies.
  [[nodiscard]] constexpr std::int64_t in_all_trips(std::int64_t bytes, int level) const {
    for (int k = 0; k < level; ++k) {
      const node& start = at(book.open[k]);
      if (start.op == opcode::loop && start.integer > 1) bytes = saturating_multiply(bytes, start.integer);
    }
    return bytes < most_counted_bytes ? bytes : most_counted_bytes;
  }
  [[nodiscard]] constexpr std::int64_t time_in_all_trips(std::int64_t time, int level) const {
    for (int k = 0; k < level; ++k) {
      const node& start = at(book.open[k]);
      if (start.op == opcode::loop && start.integer > 1) time = multiply_time(time, start.integer);
    }
    return time;
  }

  /// Returns true if an earlier operand has the same root as operand `k` and, if `wanted` is not null, the same
  /// required sharding. Then one reshard serves both.
  template <class Wanted>
  [[nodiscard]] constexpr bool is_again(const node& n, int k, const Wanted* wanted) const {
    for (int o = 0; o < k; ++o)
      if (book.root_of(n.operands[o]) == book.root_of(n.operands[k]) && (wanted == nullptr || (*wanted)[o] == (*wanted)[k]))
        return true;
    return false;
  }
};

}  // namespace gspmd::detail
