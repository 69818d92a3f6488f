// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "gspmd/detail/ir/kernels/local_function.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/ops/own/local_rule.hpp"
#include "gspmd/detail/ops/reduce.hpp"
#include "gspmd/detail/support/span.hpp"

namespace gspmd::detail {

/// Returns the entry for operands of these types, or -1 if the function does not accept them.
template <class TypeOf>
constexpr int local_entry_of(const local_function& f, TypeOf type_of) {
  for (int e = 0; e < f.entry_count; ++e) {
    bool fits = true;
    for (int k = 0; k < f.rule.operand_count(); ++k) fits = fits && f.entries[e].operands[k] == type_of(k);
    if (fits) return e;
  }
  return -1;
}

/// Adds an operator of the user. At run time the law of the operator is tested here, unless the compiler has tested it.
constexpr int add_local_op(graph& g, const local_function& f, span<const int> operands, location at);

/// An operator of the user: a function of blocks, with a rule.
///
/// **Shapes.** As in the rule's text: `bt,t->b`. **Splits.** Letters in brackets are whole. Other letters of a result
/// may be split, and split the result. If a split letter is missing in a result, the result is partial with the rule's
/// monoid.
struct local_operator : plain_operator, reduced_first, without_movements, reads_shards, outside_of_loops, dims_by_number {
  static constexpr const char* name = "local_op";
  static constexpr leading_dim leading{.is = leading_dim::way::refused};
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 1, .backward = 1};
  static constexpr bool uniform = false;
  static constexpr bool keeps_slices = false;

  /// The rule is parsed from the text of the operator.
  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    const local_rule& own = n.local->rule;
    rule.reduced_by = n.reduced_by;
    extents by_letter(own.letters.count, 1);
    for (int k = 0; k < n.operands.count; ++k)
      for (int d = 0; d < own.tensors[k].count; ++d) by_letter[own.tensors[k][d]] = operand_of(g, n, k).shape[d];
    for (int l = 0; l < own.letters.count; ++l)
      rule.add_factor(own.letters[l].stated ? own.stated_extent(l, by_letter) : by_letter[l], own.letters[l].kind);
    for (const auto& letters : own.tensors) {
      tensor_map map;
      for (const auto l : letters) {
        map.begin_dim();
        map.add_factor(l);
      }
      rule.maps.push_back(map);
    }
  }
  /// The operator's stated flops (default 1) for each combination of the local indices of all letters.
  static constexpr std::int64_t flops(const graph& g, const mesh_shape&, const local_program& p, const instruction& op) {
    const node& n = g.nodes[static_cast<std::size_t>(op.node)];
    std::int64_t total = n.local->flops;
    const local_rule& rule = n.local->rule;
    for (int l = 0; l < rule.letters.count; ++l) {
      std::int64_t extent = 1;
      for (int k = 0; k < rule.tensors.count; ++k)
        for (int d = 0; d < rule.tensors[k].count; ++d)
          if (rule.tensors[k][d] == l) extent = p.value(value_of_tensor(op, k)).local[d];
      total = saturating_multiply(total, extent);
    }
    return total;
  }
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    graph& g = b.program();
    if (n.local->gradient == nullptr) {
      g.fail(n.at, name_of(n.op), mistake::no_derivative, "has no gradient; pass with_gradient(f, g) instead of f");
      return;
    }
    int gradients[max_local_operands]{};
    int results[max_results]{}, dy[max_results]{};
    for (int r = 0; r < n.results; ++r) {
      results[r] = b.visited() + r;
      dy[r] = b.by(results[r]);
    }
    n.local->gradient(n.local->gradient_object, g, n.operands.begin(), results, dy, gradients);
    for (int k = 0; k < n.operands.count && !g.failed(); ++k) {
      if (gradients[k] < 0) continue;  // value{}: the function returned no gradient for this operand
      const node& given = b.at(gradients[k]);
      const node& operand_is = b.at(n.operands[k]);
      if (!(given.shape == operand_is.shape) || (given.type != operand_is.type && is_floating(operand_is.type)))
        g.fail(n.at, name_of(n.op), mistake::extent,
               text("the gradient by operand ")
                   << k << " is " << name_of(given.type) << shape_text(given.shape) << ", the operand is "
                   << name_of(operand_is.type) << shape_text(operand_is.shape));
      else b.send(k, gradients[k]);
    }
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    const node& n = l.node_of(op);
    const int entry = local_entry_of(*n.local, [&](int k) { return operand_of(l.g, n, k).type; });
    vec<int> results(1, op.result);
    for (const int v : op.further_results) results.push_back(v);
    add_step<kernels::local>(l, op, entry, l.all_operands(op), results).local = n.local;
  }
  static void describe(std::string& t, const plan_view&, const plan_step* step) {
    if (step != nullptr) t += ' ' + std::string(local_rule_text(step->local->rule).view());
  }

 private:
  /// Returns the value of tensor k of the text: operands first, then results.
  static constexpr int value_of_tensor(const instruction& op, int k) {
    if (k < op.operands.count) return op.operands[k];
    return k == op.operands.count ? op.result : op.further_results[k - op.operands.count - 1];
  }
};

constexpr int add_local_op(graph& g, const local_function& f, span<const int> operands, location at) {
  const char* const op = name_of(code_of<local_operator>);
  const local_rule& rule = f.rule;
  node n;
  n.op = code_of<local_operator>;
  n.at = at;
  n.local = &f;
  n.reduced_by = rule.reduced_by;
  for (const int o : operands) {
    if (o < 0) return -1;
    n.operands.push_back(o);
  }
  if (!g.may_read(operands, at, op)) return -1;
  const auto operand = [&](int k) -> const node& { return g.nodes[static_cast<std::size_t>(n.operands[k])]; };
  extents by_letter(rule.letters.count, -1);
  for (int k = 0; k < n.operands.count; ++k) {
    const auto& letters = rule.tensors[k];
    if (operand(k).shape.count != letters.count)
      return g.fail(at, op, mistake::rank,
                    text("operand ") << k << " of " << local_rule_text(rule) << " has " << letters.count
                                     << " letters, the tensor is " << shape_text(operand(k).shape) << " of rank "
                                     << operand(k).shape.count);
    for (int d = 0; d < letters.count; ++d) {
      auto& extent = by_letter[letters[d]];
      if (extent >= 0 && extent != operand(k).shape[d])
        return g.fail(at, op, mistake::extent,
                      text("dim `") << rule.letters[letters[d]].name << "` of " << local_rule_text(rule) << " is "
                                    << operand(k).shape[d] << " in operand " << k << " and " << extent
                                    << " in another one; a letter has one extent");
      extent = operand(k).shape[d];
    }
  }
  for (int l = 0; l < rule.letters.count; ++l) {
    const auto& letter = rule.letters[l];
    if (!letter.stated) continue;
    const auto stated = rule.stated_extent(l, by_letter);
    if (stated < 0 || (letter.in_operand && by_letter[l] != stated))
      return g.fail(at, op, mistake::extent,
                    stated < 0 ? text("the extent that ") << local_rule_text(rule) << " states for `" << letter.name << "` is "
                                                          << stated << "; give it larger operands"
                               : text("dim `") << letter.name << "` of " << local_rule_text(rule) << " is " << by_letter[l]
                                               << " and the rule states " << stated);
    by_letter[l] = stated;
  }
  const auto shape_of = [&](int r) {
    extents shape;
    for (const auto l : rule.result(r)) shape.push_back(by_letter[l]);
    return shape;
  };
  n.shape = shape_of(0);
  const int e = local_entry_of(f, [&](int k) { return operand(k).type; });
  if (e < 0) {
    text t("the function of ");
    t << local_rule_text(rule) << " does not take blocks of";
    for (int k = 0; k < n.operands.count; ++k) t << (k > 0 ? ", " : " ") << name_of(operand(k).type);
    t << "; it takes";
    for (int i = 0; i < f.entry_count; ++i) {
      t << (i > 0 ? " or " : " ");
      for (int k = 0; k < n.operands.count; ++k) t << (k > 0 ? ", " : "") << name_of(f.entries[i].operands[k]);
    }
    return g.fail(at, op, mistake::type, t);
  }
  const auto& types = f.entries[e].results;
  n.type = types[0];
  for (int r = 0; r < rule.results; ++r)
    if (rule.has_reduction(r) && !is_defined(rule.reduced_by, types[r]))
      return g.fail(at, op, mistake::type,
                    text("the reductions of ") << local_rule_text(rule) << " are " << name_of(rule.reduced_by)
                                               << ", which is not defined for " << name_of(types[r]));
  if (!std::is_constant_evaluated())
    if (f.entries[e].law != nullptr)
      if (const text broken = f.entries[e].law(f.object); !broken.empty()) return g.fail(at, op, mistake::law, broken);
  const int id = g.add_sized(n);
  for (int r = 1; r < rule.results && id >= 0; ++r)
    if (g.add_result(types[r], shape_of(r)) < 0) return -1;
  return id;
}

}  // namespace gspmd::detail
