// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/detail/support/text.hpp"
#include "gspmd/detail/support/vec.hpp"

/// Compares the facts of each operator of a program on its first node. A contradiction would otherwise give a wrong
/// plan without a message.
namespace gspmd::detail {

/// Compares the facts of an operator that depend on a node. The facts that are constants are compared in
/// checked_operator.
class operator_trial {
 public:
  constexpr operator_trial(const graph& g, int i) : g_(g), i_(i), n_(g.nodes[i]), facts_(facts_of(n_.op)) {}

  /// Returns the first contradiction, with both facts. Returns an empty text if the facts agree.
  constexpr text contradiction() {
    const int operands = n_.operands.count, reads = facts_.reads(n_), moves = facts_.movements(n_), tiles = facts_.tiles(n_);
    if (reads < 0 || reads > operands) return text("reads() is ") << reads << counted(", and the node has ", operands, "operand");
    if (tiles < 0 || tiles > operands) return text("tiles() is ") << tiles << counted(", and the node has ", operands, "operand");
    if (facts_.composes && moves != 1) return text("movements() is ") << moves << ", and `composes` says that it is one";
    if (moves < 0 || moves > operands)
      return text("movements() is ") << moves << counted(", and the node has ", operands, "operand");
    rule_of(g_, n_, rule_);
    if (text wrong = dims_contradiction(); !wrong.empty()) return wrong;
    if (text wrong = lost_shards(); !wrong.empty()) return wrong;
    return reduction_contradiction();
  }

 private:
  static constexpr text counted(const char* before, int count, const char* what) {
    return text(before) << count << ' ' << what << (count == 1 ? "" : "s");
  }
  /// Returns the shape of tensor `t`. The operands come first, then the results.
  [[nodiscard]] constexpr const extents& shape(int t) const {
    const int operands = n_.operands.count;
    return t < operands ? operand_of(g_, n_, t).shape : g_.nodes[i_ + t - operands].shape;
  }
  [[nodiscard]] constexpr text name(int t) const {
    if (t < n_.operands.count) return text("operand ") << t;
    if (n_.results == 1) return "the result";
    return text("result ") << t - n_.operands.count;
  }

  [[nodiscard]] constexpr text dims_contradiction() const {
    if (rule_.uniform) {
      for (int k = 0; k < facts_.reads(n_); ++k)
        if (shape(k).count != n_.shape.count)
          return text("rule() is uniform, and operand ")
                 << k << " is " << shape_text(shape(k)) << " where the result is " << shape_text(n_.shape);
      return {};
    }
    if (facts_.uniform) return "`uniform` is true, and rule() has a map for each tensor; call uniform_rule in it";
    const int tensors = n_.operands.count + n_.results;
    if (rule_.maps.count != tensors)
      return counted("rule() has ", rule_.maps.count, "map")
             << counted(", and the node has ", n_.operands.count, "operand") << counted(" and ", n_.results, "result")
             << "; it has a map for each operand, then one for each result";
    for (int t = 0; t < tensors; ++t) {
      const tensor_map& map = rule_.maps[t];
      if (map.first.count != shape(t).count)
        return counted("rule() has ", map.first.count, "dim") << " for " << name(t) << ", which is " << shape_text(shape(t));
      if (t < facts_.tiles(n_) || t < facts_.movements(n_)) continue;  // a movement may change the extent
      for (int d = 0; d < map.first.count; ++d)
        if (const auto size = split_size(map, d); size >= 0 && size != shape(t)[d])
          return text("rule() has factors of ") << size << " for dim " << d << " of " << name(t) << ", which is "
                                                << shape_text(shape(t)) << "; a factor has one size in all tensors";
    }
    return {};
  }
  /// Returns the product of the factors of a dim. Returns -1 if the dim has no factor, or a factor that is never split.
  [[nodiscard]] constexpr std::int64_t split_size(const tensor_map& map, int dim) const {
    std::int64_t size = 1;
    for (int at = map.begin(dim); at < map.end(dim); ++at) {
      const factor& f = rule_.factors[map.factors[at]];
      if (f.kind == factor_kind::whole) return -1;
      size = saturating_multiply(size, f.size);
    }
    return map.begin(dim) == map.end(dim) ? -1 : size;
  }

  /// Finds a factor that the operand has and the result lacks, although the factor is no reduction: a device would
  /// compute the result from its own shard alone. A view computes nothing. Its result is the memory of its operand, so
  /// both need not share a factor. If an operator has several results, a result that lacks the factor is partial.
  [[nodiscard]] constexpr text lost_shards() const {
    if (rule_.uniform || facts_.made == origin::viewed) return {};
    for (int k = 0; k < facts_.reads(n_); ++k)
      for (const int f : rule_.operand(k).factors) {
        const auto [size, kind] = rule_.factors[f];
        if (size <= 1) continue;
        if (kind == factor_kind::parallel && rule_.results == 1 && !rule_.result().holds(f))
          return text("rule() has a parallel factor of ")
                 << size << " for " << name(k) << ", and the result does not have it; make it a reduction, or whole";
        if (kind == factor_kind::exchanged && !facts_.has_collectives)
          return text("rule() has an exchanged factor of ")
                 << size << " for " << name(k) << ", and sends is null; state the collectives of lower() in sends";
      }
    return {};
  }

  [[nodiscard]] constexpr text reduction_contradiction() const {
    bool reduces = false;
    for (int f = 0; f < rule_.factors.count; ++f) {
      reduces = reduces || rule_.factors[f].kind == factor_kind::reduction;
      for (int r = 0; r < rule_.results && !rule_.reduced_by.is_set(); ++r)
        if (rule_.leaves_partial(f, r))
          return text("rule() leaves ") << name(n_.operands.count + r) << " partial over a factor of " << rule_.factors[f].size
                                        << " and sets no reduced_by; set rule.reduced_by to the monoid that joins the parts";
    }
    for (const auto kind : {monoid::add, monoid::multiply, monoid::max, monoid::min, monoid::and_, monoid::or_}) {
      if (!reduces || kind == rule_.reduced_by) continue;
      const auto takes = facts_.meets(n_, kind).takes;
      if (takes != partial_class::none && takes != partial_class::affine)
        return text("rule() sets reduced_by to ")
               << name_of(rule_.reduced_by) << ", and meets() takes operands that are partial by " << name_of(kind)
               << "; a reduction takes those of its own monoid alone";
    }
    return {};
  }

  const graph& g_;
  int i_;
  const node& n_;
  const operator_facts& facts_;
  op_rule rule_;
};

/// Refuses a program with an operator whose facts contradict each other. A node is skipped if an earlier node has the
/// same operator, the same monoid and the same number of tensors.
constexpr void try_operators(graph& g) {
  vec<std::uint64_t> tried;
  const auto is_tried = [&tried](std::uint64_t key) {
    for (const auto k : tried)
      if (k == key) return true;
    return false;
  };
  std::uint64_t some = 0;  // a bit for the last 6 bits of each key: a key whose bit is 0 is new
  for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
    const node& n = g.nodes[i];
    if (static_cast<int>(n.op.code) < enumerated_count || is_elementwise(n.op)) continue;  // these share one rule
    const auto tensors = static_cast<std::uint64_t>(n.operands.count + 16 * n.results);
    const std::uint64_t key = n.op.listed->id + 8 * tensors + static_cast<std::uint64_t>(n.reduced_by);
    if ((some >> (key & 63U) & 1U) != 0 && is_tried(key)) continue;
    some |= std::uint64_t{1} << (key & 63U);
    tried.push_back(key);
    if (const text wrong = operator_trial(g, i).contradiction(); !wrong.empty()) {
      g.fail(n.at, name_of(n.op), mistake::facts, wrong);
      return;
    }
  }
}

}  // namespace gspmd::detail
