// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "gspmd/detail/passes/rewrite/canonical.hpp"
#include "gspmd/transform/vmap.hpp"
#include "support/evaluate_program.hpp"
#include "support/traced.hpp"

/// A program for several examples together, and the same program for each example alone.
namespace reference {

/// Returns row `i` of an array along its dim 0.
inline host_array row_of(const host_array& x, std::size_t i) {
  host_array row(x.type, std::vector<std::int64_t>(x.shape.begin() + 1, x.shape.end()));
  for (std::size_t e = 0; e < row.reals.size(); ++e) row.reals[e] = x.reals[i * row.reals.size() + e];
  for (std::size_t e = 0; e < row.imags.size(); ++e) row.imags[e] = x.imags[i * row.imags.size() + e];
  for (std::size_t e = 0; e < row.ints.size(); ++e) row.ints[e] = x.ints[i * row.ints.size() + e];
  return row;
}
inline host_array stacked(const std::vector<host_array>& rows) {
  std::vector<std::int64_t> shape = rows[0].shape;
  shape.insert(shape.begin(), static_cast<std::int64_t>(rows.size()));
  host_array all(rows[0].type, shape);
  std::size_t at = 0;
  for (const auto& r : rows) {
    for (std::size_t e = 0; e < r.size(); ++e, ++at) {
      if (!r.reals.empty()) all.reals[at] = r.reals[e];
      if (!r.imags.empty()) all.imags[at] = r.imags[e];
      if (!r.ints.empty()) all.ints[at] = r.ints[e];
    }
  }
  return all;
}
/// Returns the same elements in another order, as another example.
inline host_array turned(const host_array& x, std::size_t by) {
  host_array t = x;
  const auto turn = [by](auto& list) {
    if (!list.empty()) std::rotate(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(by % list.size()), list.end());
  };
  turn(t.reals);
  turn(t.imags);
  turn(t.ints);
  return t;
}

/// Returns the outputs of a program by the naive evaluator.
inline std::vector<host_array> outputs_of(const graph& traced, const std::vector<host_array>& inputs) {
  const graph g = ir::canonical_order(traced);
  const evaluation e(g, inputs);
  std::vector<host_array> found;
  for (const int o : g.outputs) found.push_back(e.values[static_cast<std::size_t>(o)]);
  return found;
}

/// Returns the first difference between two arrays that is larger than `part` of their magnitude, or "". NaN equals
/// NaN.
inline std::string unlike(const host_array& got, const host_array& want, double part) {
  if (got.type != want.type || got.shape != want.shape) return "types or shapes differ";
  double largest = 0;
  for (const auto* list : {&want.reals, &want.imags})
    for (const double r : *list)
      if (std::isfinite(r)) largest = std::max(largest, std::fabs(r));
  const auto compare = [&](const std::vector<double>& a, const std::vector<double>& b) -> std::string {
    for (std::size_t e = 0; e < b.size(); ++e)
      if (!(a[e] == b[e] || (std::isnan(a[e]) && std::isnan(b[e])) || std::fabs(a[e] - b[e]) <= part * largest))
        return "element " + std::to_string(e) + " is " + number_text(a[e]) + ", not " + number_text(b[e]);
    return {};
  };
  if (const auto wrong = compare(got.reals, want.reals); !wrong.empty()) return wrong;
  if (const auto wrong = compare(got.imags, want.imags); !wrong.empty()) return wrong;
  for (std::size_t e = 0; e < want.ints.size(); ++e)
    if (got.ints[e] != want.ints[e])
      return "element " + std::to_string(e) + " is " + std::to_string(got.ints[e]) + ", not " + std::to_string(want.ints[e]);
  return {};
}

/// The program of graph `one`, which is for one example, for `n` examples. Inputs with `is_mapped` have one value per
/// example.
class mapped_program {
 public:
  traced program;
  std::vector<bool> is_mapped;
  std::string mistake;

  mapped_program(const graph& one, const std::vector<int>& mesh_sizes, const std::vector<bool>& mapped, std::size_t n,
                 const std::vector<host_array>& inputs)
      : program(mesh_sizes), is_mapped(mapped) {
    graph& g = program.g;
    std::vector<int> leading(one.nodes.size(), -1), number(one.nodes.size(), -1);
    for (std::size_t k = 0; k < one.inputs.size(); ++k) {
      host_array given = inputs[k];
      if (mapped[k]) {
        std::vector<host_array> rows;
        for (std::size_t e = 0; e < n; ++e) rows.push_back(turned(inputs[k], e));
        given = stacked(rows);
      }
      const auto i = static_cast<std::size_t>(one.inputs[k]);
      leading[i] = program.input(given).id();
      ir::node& in = g.nodes.back();
      in.annotated = one.nodes[i].annotated;
      in.annotation = one.nodes[i].annotation;
      if (mapped[k]) ir::leading_attributes::annotate(in, 0);
    }
    ir::vectorizer examples(g, static_cast<std::int64_t>(n), ir::location::current());
    for (std::size_t k = 0; k < one.inputs.size(); ++k) {
      const auto i = static_cast<std::size_t>(one.inputs[k]);
      number[i] = mapped[k] ? examples.add_example(leading[i], leading[i], 0) : leading[i];
    }
    g.has_regions = one.has_regions;
    for (std::size_t i = 0; i < one.nodes.size(); ++i) {
      ir::node m = one.nodes[i];
      if (m.op == ir::opcode::parameter) continue;
      for (auto& o : m.operands) o = number[static_cast<std::size_t>(o)];
      if (m.region >= 0) m.region = number[static_cast<std::size_t>(m.region)];
      number[i] = static_cast<int>(g.nodes.size());
      g.nodes.push_back(m);
    }
    std::vector<int> results;
    for (const int o : one.outputs) results.push_back(number[static_cast<std::size_t>(o)]);
    examples.run(results);
    for (const int r : results)
      if (!g.failed()) g.outputs.push_back(examples.stacked(r));
    mistake = std::string(g.error.view());
    if (!g.failed()) examples.finish();
  }
};

/// Returns the results of the program for each example alone.
inline std::vector<host_array> one_by_one(const graph& one, const std::vector<bool>& mapped, std::size_t n,
                                          const std::vector<host_array>& inputs) {
  std::vector<std::vector<host_array>> rows(one.outputs.size());
  for (std::size_t e = 0; e < n; ++e) {
    std::vector<host_array> given = inputs;
    for (std::size_t k = 0; k < given.size(); ++k)
      if (mapped[k]) given[k] = turned(inputs[k], e);
    const auto found = outputs_of(one, given);
    for (std::size_t k = 0; k < found.size(); ++k) rows[k].push_back(found[k]);
  }
  std::vector<host_array> all;
  for (const auto& r : rows) all.push_back(stacked(r));
  return all;
}

}  // namespace reference
