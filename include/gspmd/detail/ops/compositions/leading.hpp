// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ops/broadcast.hpp"
#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/elementwise_node.hpp"
#include "gspmd/detail/ops/modes/transition.hpp"
#include "gspmd/detail/ops/reduce.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/ops/rows.hpp"
#include "gspmd/detail/ops/transpose.hpp"
#include "gspmd/index/detail/gather_op.hpp"
#include "gspmd/index/detail/scatter_op.hpp"

/// Operators with one more dim, added by vmap: the dim of examples. The operator then computes several examples in one
/// call. Its fact `leading` states the effect of the dim.
namespace gspmd::detail {

/// The dim of examples of the tensors of an operator: dim 0, or dim 1 after the rows of a loop or after a dim that
/// devices stack. -1: the tensor lacks the dim.
struct example_places {
  inline_vec<std::int8_t, max_map_arity> operands;
  std::int8_t result = 0;
};

/// States whether a transition adds a first dim that stacks the devices' values, or removes this dim.
struct stacked_dims {
  bool makes = false, takes = false;

  static constexpr stacked_dims of(const node& n) {
    if (!state_change::is_local(n) || n.operands.empty()) return {};
    const state_change c = state_change::of(n);
    const auto is = [&](transition_kind by) {
      return c.by == by || c.by == transition_kind::all_to_all || c.by == transition_kind::convert;
    };
    return {c.from.is == state::varying && is(transition_kind::all_gather),
            c.to.is == state::varying && is(transition_kind::reduce_scatter)};
  }
};

/// Returns the dims of examples for a node, if the operands in the mask `led` have the dim.
constexpr example_places places_of(const node& n, std::uint32_t led) {
  const leading_dim& fact = facts_of(n.op).leading;
  example_places p;
  const auto has = [&](int k) { return (led >> k & 1) != 0; };
  const int last = n.operands.count - 1;
  for (int k = 0; k <= last; ++k) p.operands.push_back(0);
  switch (fact.is) {
    case leading_dim::way::letters:
      for (int k = 0; k <= last; ++k) p.operands[k] = has(k) ? 0 : -1;
      break;
    case leading_dim::way::first:
      for (int k = 1; k <= last; ++k) p.operands[k] = -1;
      break;
    case leading_dim::way::indexed:
      p.operands[fact.first] = has(fact.first) ? 0 : -1;
      if (fact.step < 0 && !has(0)) p.operands[0] = -1;  // all examples read one table
      break;
    case leading_dim::way::row:
      if (has(last)) {
        if (last == 1 && !has(0)) p.operands[0] = -1;
        break;
      }
      p.operands[0] = 1;
      p.operands[last] = -1;
      p.result = last == 1 ? 0 : 1;
      break;
    case leading_dim::way::states:
      if (const auto stacked = stacked_dims::of(n); stacked.makes != stacked.takes) {
        p.operands[0] = stacked.takes ? 1 : 0;
        p.result = stacked.makes ? 1 : 0;
      }
      break;
    default: break;
  }
  return p;
}

/// Changes the attributes and the annotation of a node for the additional dim. `n` has its new operands and its old
/// shape.
class leading_attributes {
 public:
  constexpr leading_attributes(graph& g, node& n, const example_places& places, std::int64_t size)
      : g_(g), n_(n), fact_(facts_of(n.op).leading), places_(places), size_(size) {}

  /// Returns false and records the mistake if the attributes do not fit.
  constexpr bool write() {
    auto& a = n_.attributes;
    switch (fact_.is) {
      case leading_dim::way::numbers:
        for (int i = fact_.first, k = 0; i < a.count && k < fact_.count; i += fact_.step, ++k) ++a[i];
        break;
      case leading_dim::way::in_front:
        for (auto& d : a) ++d;
        a.insert(0, 0);
        break;
      case leading_dim::way::letters:
        if (!write_letters()) return false;
        break;
      case leading_dim::way::indexed: write_indexing(); break;
      case leading_dim::way::states: write_states(); break;
      default: break;
    }
    annotate(n_, places_.result);
    return true;
  }
  /// Renumbers the dims of the annotation, which is written for one example. The new dim is open.
  static constexpr void annotate(node& n, int place) {
    if (!n.annotated) return;
    for (auto& use : n.annotation.layout.splits)
      if (use.dim >= place) ++use.dim;
    const dim_mask before = dim_bit(place) - 1;
    n.annotation.open = (n.annotation.open & before) | ((n.annotation.open & ~before) << 1) | dim_bit(place);
  }

 private:
  [[nodiscard]] constexpr int rank_before(int k) const {
    return g_.nodes[static_cast<std::size_t>(n_.operands[k])].shape.count - (places_.operands[k] >= 0 ? 1 : 0);
  }
  constexpr bool write_letters() {
    const auto old = n_.attributes;
    std::int64_t letter = 0;
    for (const char c : std::string_view("nmlkjihgfedcbazyxwvutsrqpoNMLKJIHGFEDCBAZYXWVUTSRQPO")) {
      bool is_free = true;
      for (const auto l : old) is_free = is_free && l != c;
      if (is_free && letter == 0) letter = c;
    }
    int more = 1;
    for (const auto p : places_.operands) more += p >= 0 ? 1 : 0;
    if (letter == 0 || old.count + more > old.capacity) {
      g_.fail(n_.at, name_of(n_.op), mistake::rank, "is in a vmap, which adds a dim, and already has the largest number of dims");
      return false;
    }
    n_.attributes.clear();
    int next = 0;
    for (int k = 0; k <= n_.operands.count; ++k) {
      const bool is_result = k == n_.operands.count;
      if (is_result || places_.operands[k] >= 0) n_.attributes.push_back(letter);
      for (int d = is_result ? n_.shape.count : rank_before(k); d > 0; --d) n_.attributes.push_back(old[next++]);
    }
    while (next < old.count) n_.attributes.push_back(old[next++]);
    return true;
  }
  constexpr void write_indexing() {
    const int slices = fact_.step < 0 ? n_.shape.count : rank_before(fact_.step);
    indexing ix = indexing::of(n_, slices);
    const bool many_indices = places_.operands[fact_.first] >= 0, many_tables = fact_.step >= 0 || places_.operands[0] >= 0;
    if (many_indices) {
      if (ix.vector_dim >= 0) ++ix.vector_dim;
      for (auto& t : ix.table)
        if (t.index_batch >= 0) ++t.index_batch;
      for (auto& l : ix.lookup)
        if (l >= 0) ++l;
    }
    ix.lookup.insert(0, static_cast<std::int8_t>(many_indices ? 0 : -1));
    if (many_tables && many_indices) ix.table.insert(0, {1, -1, 0, 0});  // each example reads its own table
    else if (many_tables) ix.table.insert(0, {size_, -1, 0, -1});        // a slice covers all tables
    ix.keep(n_);
  }
  constexpr void write_states() {
    if (!state_change::is_one(n_)) return;
    state_change c = state_change::of(n_);
    const device_shift shift = device_shift::of(n_);
    const auto stacked = stacked_dims::of(n_);
    for (auto* const s : {&c.from, &c.to})  // dims after a stacked one, which stays first
      if (s->is == state::shard && (stacked.makes == stacked.takes || s->dim > 0)) ++s->dim;
    n_.attributes.clear();
    c.keep(n_);
    if (shift.is != device_shift::kind::none) shift.keep(n_);
  }

  graph& g_;
  node& n_;
  const leading_dim& fact_;
  const example_places& places_;
  std::int64_t size_;
};

/// Adds a row operator as a gather or scatter, if each example has its row at another index. The first dim of the
/// operands is that of examples, except for a table that all examples share.
constexpr int add_led_row(graph& g, const node& like, const node& led, const example_places& places, std::int64_t size) {
  const int table = led.operands[0], index = led.operands[led.operands.count - 1];
  const bool reads = led.operands.count == 2, adds = led.op == code_of<add_row_op>;
  const extents& all = g.nodes[static_cast<std::size_t>(table)].shape;
  const int first = places.operands[0] >= 0 ? 1 : 0;  // the dim of rows
  indexing ix;
  if (first == 1) ix.table.push_back({1, -1, 0, 0});
  ix.table.push_back({1, 0, -1, -1});
  ix.lookup.push_back(0);
  for (int d = first + 1; d < all.count; ++d) {
    ix.table.push_back({all[d], -1, 0, -1});
    ix.lookup.push_back(-1);
  }
  node n = source(reads  ? code_of<gather_op>
                  : adds ? code_of<scatter_op>
                         : code_of<scatter_set_op>,
                  like.type, like.shape, like.at);
  n.shape.insert(0, size);
  n.in_gradient = like.in_gradient;
  if (!adds) n.operands.push_back(table);
  n.operands.push_back(index);
  if (!reads) n.operands.push_back(led.operands[1]);
  ix.keep(n);
  const int id = g.add_sized(n);
  return adds && id >= 0 ? add_elementwise(g, code_of<add_op>, {table, id}, like.at) : id;
}

/// Adds a node like `like`, with other operands, for `size` examples.
constexpr int add_led(graph& g, const node& like, const inline_vec<int, max_map_arity>& operands, const example_places& places,
                      std::int64_t size) {
  const auto fail = [&](mistake rule, const char* what) { return g.fail(like.at, name_of(like.op), rule, what); };
  for (const int o : operands)
    if (o < 0) return -1;
  const leading_dim& fact = facts_of(like.op).leading;
  if (fact.is == leading_dim::way::refused)
    return fail(mistake::other,
                "is in a vmap, which adds a dim to its tensors, and its function takes a fixed number of dims; give its rule a "
                "letter for the examples, and call it outside of the vmap");
  if (like.shape.count >= fact.most)
    return g.fail(like.at, name_of(like.op), mistake::rank,
                  text("is in a vmap and would have ")
                      << like.shape.count + 1 << " dims; " << (fact.most == max_rank ? "a tensor has" : "it takes") << " at most "
                      << int{fact.most});
  node n = like;
  n.operands = operands;
  if (fact.is == leading_dim::way::row && places.operands[operands.count - 1] >= 0) return add_led_row(g, like, n, places, size);
  if (!leading_attributes(g, n, places, size).write()) return -1;
  n.shape.insert(places.result, size);
  return g.add_sized(n);
}

/// Adds a copy of a shared value for each example. Dim `place` of the result is the dim of examples.
constexpr int add_for_examples(graph& g, int x, std::int64_t size, int place, location at) {
  if (x < 0) return -1;
  node n = g.nodes[static_cast<std::size_t>(x)];
  if (n.shape.count == max_rank)
    return g.fail(at, "vmap", mistake::rank,
                  text("a value ") << shape_text(n.shape) << " would have 33 dims; a tensor has at most 32");
  inline_vec<std::int8_t, max_rank> dims;
  for (int d = 0; d < n.shape.count; ++d) dims.push_back(static_cast<std::int8_t>(d < place ? d : d + 1));
  n.shape.insert(place, size);
  n.annotated = false;
  return n.op == opcode::constant ? g.add_sized(n) : add_broadcast(g, x, n.shape, dims, at);
}

/// Adds `x` with its dim `from` moved to `to`; the other dims keep their order. Returns `x` if `from` is `to`.
constexpr int add_moved_dim(graph& g, int x, int from, int to, location at) {
  if (x < 0 || from == to) return x;
  inline_vec<std::int8_t, max_rank> order;
  for (int d = 0; d < g.nodes[static_cast<std::size_t>(x)].shape.count; ++d)
    if (d != from) order.push_back(static_cast<std::int8_t>(d));
  order.insert(to, static_cast<std::int8_t>(from));
  return add_transpose(g, x, order, at);
}

/// Adds, for each example, the value that its bool selects. The bools are [examples]; dim `place` of the values is the
/// dim of examples.
constexpr int add_chosen_by_example(graph& g, int holds, int on_true, int on_false, int place, location at) {
  if (holds < 0 || on_true < 0 || on_false < 0) return -1;
  const extents shape = g.nodes[static_cast<std::size_t>(on_true)].shape;
  const int chosen = add_broadcast(g, holds, shape, {static_cast<std::int8_t>(place)}, at);
  return add_elementwise(g, code_of<where_op>, {chosen, on_true, on_false}, at);
}

/// Adds a scalar bool that is true if the bool of any example is true.
constexpr int add_for_any(graph& g, int holds, location at) { return add_reduce(g, holds, 1, monoid::or_, at); }

/// Replaces the nodes from `first` to before `last`, which were traced for one example, by an unused loop with
/// constants in its body. A value that escaped from the function is then rejected like a value that escaped from a
/// loop.
constexpr void leave_nothing(graph& g, int first, int last, location at) {
  for (int i = first; i < last; ++i) {
    node n = source(i == first ? opcode::loop : opcode::constant, dtype::s64, {}, at);
    n.integer = i == first ? 1 : 0;
    n.region = i == first ? g.open_region : first;
    n.local_axes = g.open_local;
    n.scope = g.open_scope;
    g.nodes[static_cast<std::size_t>(i)] = n;
  }
  g.has_regions = true;
}

}  // namespace gspmd::detail
