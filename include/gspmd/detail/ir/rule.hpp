// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/ir/opcode.hpp"
#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/error.hpp"

namespace gspmd::detail {

/// The kind of a factor. It determines the data of the devices if mesh axes split the factor.
enum class factor_kind : std::uint8_t {
  parallel,   // shards of the operands give shards of the result
  reduction,  // shards of the operands give partial results
  // accessed by index. In an operand: the owner of an element provides it and the other devices provide zeros, so the
  // result is partial. In a result: the owner of an element writes it
  indexed,
  exchanged,  // of an operand: its devices exchange their results, and each device gets the whole result
  whole,      // must not be split: tensors are gathered along it
};

/// Has no initialisers, like axis_use.
struct factor {
  std::int64_t size;
  factor_kind kind;
};

/// The factors of the dims of one tensor, major to minor. A dim of extent 1 can have no factor.
struct tensor_map {
  inline_vec<std::int8_t, 2 * max_rank> factors;
  inline_vec<std::int8_t, max_rank> first;  // by dim: the position of its first factor

  constexpr void begin_dim() { first.push_back(static_cast<std::int8_t>(factors.count)); }
  constexpr void add_factor(int f) { factors.push_back(static_cast<std::int8_t>(f)); }
  [[nodiscard]] constexpr int begin(int dim) const { return first[dim]; }
  [[nodiscard]] constexpr int end(int dim) const { return dim + 1 < first.count ? first[dim + 1] : factors.count; }
  [[nodiscard]] constexpr bool holds(int f) const {
    for (auto g : factors)
      if (g == f) return true;
    return false;
  }
};

[[noreturn, gnu::cold]] inline void refuse_rule_without_monoid() {
  throw error("the rule of an operator leaves a partial result and sets no rule.reduced_by: set the monoid that joins the parts");
}

/// The monoid that combines the partial values of a result. It has no default: a rule sets it.
class result_monoid {
 public:
  constexpr result_monoid() = default;                                // not set
  constexpr result_monoid(monoid kind) : is_set_(true), is_(kind) {}  // NOLINT: implicit on purpose

  [[nodiscard]] constexpr bool is_set() const { return is_set_; }
  constexpr operator monoid() const {  // NOLINT: implicit on purpose
    if (!is_set_) refuse_rule_without_monoid();
    return is_;
  }

 private:
  bool is_set_ = false;
  monoid is_ = monoid::add;
};

/// The correspondence between the dims of an operator's operands and result (einsum notation, GSPMD 4.4). Every dim is
/// a product of factors. Every factor has a kind. Completion, partitioning and the cost model use no other facts of an
/// operator.
struct op_rule {
  inline_vec<factor, 2 * max_rank> factors;
  // the operands, then the results; a single map for all tensors if `uniform`
  inline_vec<tensor_map, max_map_arity + max_results> maps;
  std::int8_t results = 1;  // results of the node; set by rule_of
  bool uniform = false;     // every tensor has the same dims, one factor each
  // if a split cuts the factors of operand and result unevenly, a movement corrects the shards
  bool is_moved_unevenly = false;
  result_monoid reduced_by;  // required if a factor leaves a result partial: see leaves_partial

  constexpr int add_factor(std::int64_t size, factor_kind factor_is = factor_kind::parallel) {
    factors.push_back(factor{size, factor_is});
    return factors.count - 1;
  }
  [[nodiscard]] constexpr const tensor_map& operand(int k) const { return maps[uniform ? 0 : k]; }
  [[nodiscard]] constexpr const tensor_map& result(int r = 0) const { return maps[uniform ? 0 : maps.count - results + r]; }
  /// Returns true if result `r` is partial along the axes that split factor `f`. The results of one operator can
  /// differ.
  [[nodiscard]] constexpr bool leaves_partial(int f, int r = 0) const {
    switch (factors[f].kind) {
      case factor_kind::reduction: return true;
      case factor_kind::indexed: return !result(r).holds(f);
      case factor_kind::parallel: return results > 1 && !result(r).holds(f);
      case factor_kind::exchanged:
      case factor_kind::whole: break;
    }
    return false;
  }
};

/// Sets one factor per dim, shared by all tensors of the operator.
constexpr void uniform_rule(const extents& shape, op_rule& rule) {
  rule.uniform = true;
  tensor_map map;
  for (int d = 0; d < shape.count; ++d) {
    map.begin_dim();
    map.add_factor(rule.add_factor(shape[d]));
  }
  rule.maps.push_back(map);
}

/// Returns the sizes of the factors by dim. If the tensors differ in an extent, the size is the smallest extent.
constexpr extents uniform_extents(const op_rule& rule) {
  extents sizes;
  for (const auto& f : rule.factors) sizes.push_back(f.size);
  return sizes;
}

/// The mesh axes that split each factor: like the splits of a sharding, with factors instead of dims.
using factor_splits = inline_vec<axis_use, max_axes>;

constexpr void add_factor_split(factor_splits& splits, int axis, int f) {
  int at = 0;
  while (at < splits.count && splits[at].dim <= f) ++at;
  splits.insert(at, axis_use{static_cast<std::int8_t>(axis), static_cast<std::int8_t>(f)});
}

/// Returns true if uneven shards of a factor are at most a quarter larger than even shards. The factor has `size`
/// indices of `below` elements each, cut into `parts`.
///   30 of 20 elements over 4: 160 instead of 150      6 of 2 over 4: 4 instead of 3, no
constexpr bool rounds_well(std::int64_t size, std::int64_t below, std::int64_t parts) {
  return 4 * shard_extent(size, parts) * below <= 5 * shard_extent(size * below, parts);
}

/// Assigns the axes of `splits` from `begin` to before `end`, which split one dim of several factors, to factors in
/// another order. The new order cuts all factors evenly. The tiles have the same size but are on other devices. Returns
/// true if `result` changed; this happens only if the original order cuts badly.
///   [12] = (a:3)(b:4) over y:2, x:3 -> a over x, b over y
constexpr bool add_reordered(const mesh_shape& mesh, const op_rule& rule, const tensor_map& map, int dim,
                             const inline_vec<axis_use, max_axes>& splits, int begin, int end, factor_splits& result) {
  inline_vec<std::int64_t, 2 * max_rank> left;  // by factor of the dim
  std::int64_t below = 1;
  for (int f = map.begin(dim); f < map.end(dim); ++f) {
    left.push_back(rule.factors[map.factors[f]].size);
    if (f > map.begin(dim)) below *= left[left.count - 1];
  }
  int f = 0;
  std::int64_t rest = left[0], parts = 1;
  for (int i = begin; i < end; ++i) {
    while (parts == 1 && rest == 1 && f + 1 < left.count) {
      rest = left[++f];
      if (rest > 0) below /= rest;
    }
    parts *= mesh.sizes[splits[i].axis];
    if (rest % parts != 0) continue;  // stays indivisible to the end
    rest /= parts;
    parts = 1;
  }
  if (parts == 1 || rounds_well(rest, below, parts)) return false;
  factor_splits found = result;
  for (int i = begin; i < end; ++i) {
    const auto size = mesh.sizes[splits[i].axis];
    for (f = 0; f < left.count && left[f] % size != 0;) ++f;
    if (f == left.count) return false;
    left[f] /= size;
    add_factor_split(found, splits[i].axis, map.factors[map.begin(dim) + f]);
  }
  result = found;
  return true;
}

/// Returns the factors that a tensor's splits cut. A dim of several factors assigns its axes to its factors major to
/// minor, if each axis fills a factor exactly:
///   [6] = (a:2)(b:3) split over x:2        -> a over x
///   [8] = (a:4)(b:2) split over x:2, y:2   -> a over x, y
///   [6] = (a:2)(b:3) split over z:3        -> nothing: 3 does not divide 2
/// If a movement corrects the shards, the axes can have another order (add_reordered) or split a factor unevenly:
///   [6] = (a:2)(b:3) split over z:3        -> b over z
///   [30] = (a:15)(b:2) split over y:2      -> a over y
constexpr factor_splits to_factors(const mesh_shape& mesh, const op_rule& rule, const tensor_map& map,
                                   const inline_vec<axis_use, max_axes>& splits, bool may_move = false) {
  if (rule.uniform) return splits;
  factor_splits result;
  for (int i = 0; i < splits.count;) {
    const int dim = splits[i].dim;
    const int begin = map.begin(dim);
    const int end = map.end(dim);
    int f = begin;
    std::int64_t parts = 1;
    if (may_move && end - begin > 1) {
      int last = i;
      while (last < splits.count && splits[last].dim == dim) ++last;
      if (add_reordered(mesh, rule, map, dim, splits, i, last, result)) i = last;
    }
    for (; i < splits.count && splits[i].dim == dim; ++i) {
      if (f == end) continue;
      if (end - begin > 1) {
        while (f < end && parts == rule.factors[map.factors[f]].size) {
          ++f;
          parts = 1;
        }
        if (f == end) continue;
        const auto size = rule.factors[map.factors[f]].size;
        const bool is_full = parts >= size;
        parts *= mesh.sizes[splits[i].axis];
        if (size % parts != 0 && (is_full || !may_move)) {
          f = end;
          continue;
        }
      }
      add_factor_split(result, splits[i].axis, map.factors[f]);
    }
  }
  return result;
}

/// Returns the splits of a tensor from the splits of its factors. A dim of several factors omits the splits that
/// it cannot express. A factor can be split only if all earlier factors of the dim are cut into single elements. The
/// cuts must be even unless a movement corrects the shards.
///   [6] = (a:2)(b:3): a over x:2 -> x     b over z:3 -> nothing, because a is whole
constexpr inline_vec<axis_use, max_axes> to_dims(const mesh_shape& mesh, const op_rule& rule, const tensor_map& map,
                                                 const factor_splits& splits, bool may_move = false) {
  if (rule.uniform) return splits;
  inline_vec<axis_use, max_axes> result;
  if (splits.empty()) return result;
  for (int dim = 0; dim < map.first.count; ++dim) {
    const int begin = map.begin(dim);
    const int end = map.end(dim);
    bool open = true;
    for (int at = begin; at < end && open; ++at) {
      const int f = map.factors[at];
      std::int64_t parts = 1;
      for (int i = 0; i < splits.count && open; ++i) {
        if (splits[i].dim != f) continue;
        const auto more = parts * mesh.sizes[splits[i].axis];
        if (!may_move && end - begin > 1 && rule.factors[f].size % more != 0) {
          open = false;
          break;
        }
        parts = more;
        result.push_back(axis_use{splits[i].axis, static_cast<std::int8_t>(dim)});
      }
      if (parts != rule.factors[f].size) open = false;
    }
  }
  return result;
}

}  // namespace gspmd::detail
