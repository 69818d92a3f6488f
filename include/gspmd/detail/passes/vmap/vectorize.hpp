// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gspmd/detail/ops/compositions/leading.hpp"
#include "gspmd/detail/ops/regions.hpp"

namespace gspmd::detail {

/// Rewrites a function of a single example as a function of many examples. The function is traced for one example, a
/// row of each mapped argument. Then its nodes are visited in order. Each node that depends on the example is added
/// again with an additional dim for all examples:
///
///   h = einsum(x, w)        x is a row, w is not mapped     einsum with one more letter in x and h
///   y = h + b                                               b, which all examples share, is repeated
///   c = sum(w)              does not depend on an example   c, once
///
/// A loop runs its iterations for all examples together. If iterations read and write a carried value row by row, its
/// dim of examples follows the rows, so that a row stays one row. If a predicate depends on the example, a conditional
/// computes both branches and selects. A while_loop continues while any example does; finished examples keep their
/// values.
class vectorizer {
 public:
  constexpr vectorizer(graph& g, std::int64_t size, location at)
      : g_(g),
        at_(at),
        size_(size),
        calls_(g.calls.size()),
        recomputed_(g.recomputed.size()),
        first_(static_cast<int>(g.nodes.size())) {
    index_ = add_constant(g, dtype::s64, {}, 0, 0, at);  // the number of an example
  }

  /// Adds the value of the traced example, while the function is traced: row `index` of an argument along its dim
  /// `dim`.
  constexpr int add_example(int argument, int leading, int dim) {
    const int row = add_dynamic_index(g_, leading, index_, at_);
    if (row >= 0) examples_.push_back({row, leading, dim == 1 ? argument : -1});
    return row;
  }

  /// Returns true if a result of the function depends on an example. Call after `run`.
  [[nodiscard]] constexpr bool depends(int i) const { return mapped(i); }
  /// Returns a result for all examples, with the examples as dim 0. Call after `run`.
  constexpr int stacked(int i) { return form(i, 0); }
  /// Returns a result that does not depend on the examples, once for all of the examples. Call after `run`.
  [[nodiscard]] constexpr int shared(int i) const { return i < first_ ? i : number_[place(i)]; }

  constexpr void run(const constant_vector<int>& results) {
    last_ = static_cast<int>(g_.nodes.size());
    const auto count = place(last_);
    needed_.resize(count, 0);
    mapped_.resize(count, 0);
    at_dim_.resize(count, 0);
    number_.resize(count, -1);
    region_.resize(count, -1);
    chosen_.resize(count, -1);
    end_of_.resize(count, -1);
    begins_.resize(count, -1);
    for (auto& f : forms_) f.resize(static_cast<std::size_t>(last_), -1);
    find_needed(results);
    find_mapped();
    for (int i = first_; i < last_ && !g_.failed(); ++i) {
      begins_[place(i)] = static_cast<int>(g_.nodes.size());
      if (needed_[place(i)] != 0) emit(i);
    }
    renumber_calls();
  }
  /// Removes the nodes of the one example. After that, the values of the function are invalid.
  constexpr void finish() {
    leave_nothing(g_, first_, last_, at_);
    g_.typer = types_so_far{};
  }

 private:
  struct example {
    int row, leading,
        behind_rows;  // nodes: of the function; the argument with the examples as dim 0, and as dim 1 if it was passed so
  };
  using node_list = inline_vec<int, max_map_arity>;

  [[nodiscard]] constexpr const node& at(int i) const { return g_.nodes[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr std::size_t place(int i) const { return static_cast<std::size_t>(i - first_); }
  [[nodiscard]] constexpr bool mapped(int i) const { return i >= first_ && mapped_[place(i)] != 0; }
  [[nodiscard]] constexpr int maker(int i) const { return at(i).op == opcode::result ? at(i).operands[0] : i; }

  /// Marks the nodes that the results need. A carried value needs its next value.
  constexpr void find_needed(const constant_vector<int>& results) {
    for (int i = first_; i < last_; ++i)
      if (at(i).op == opcode::loop_result) {
        end_of_[place(at(i).operands[0])] = i;
        const int next = at(i).operands[1], loop = at(at(i).operands[0]).region;
        if (!is_while(at(loop)) || at(next).op != opcode::cond_result) continue;
        const int branch = at(at(next).operands[0]).operands[0];
        if (at(branch).region == loop) end_of_[place(branch)] = i;  // this conditional ends the loop
      }
    constant_vector<int> open;
    const auto mark = [&](int i) {
      if (i < first_ || needed_[place(i)] != 0) return;
      needed_[place(i)] = 1;
      open.push_back(i);
    };
    for (const int r : results) mark(r);
    while (!open.empty()) {
      const int i = open.back();
      open.pop_back();
      for (const int o : at(i).operands) mark(o);
      mark(at(i).region);
      if (at(i).op == opcode::carry) mark(end_of_[place(i)]);
    }
  }

  /// Finds the values that depend on an example, and the place of the dim of examples in them. A carried value depends
  /// on an example if it does so in any iteration.
  constexpr void find_mapped() {
    constant_vector<std::uint8_t> has_rows(place(last_), 0);
    for (int i = first_; i < last_; ++i)
      if (needed_[place(i)] != 0 && facts_of(at(i).op).leading.is == leading_dim::way::row)
        if (const int x = at(i).operands[0]; x >= first_) has_rows[place(x)] = 1;
    mapped_[place(index_)] = 1;
    for (const auto& e : examples_) mapped_[place(e.row)] = 1;
    for (bool changed = true; changed;) {
      changed = false;
      for (int i = first_; i < last_; ++i) {
        if (needed_[place(i)] == 0 || is_example(i)) continue;
        const bool is = depends_on_example(i);
        const std::int8_t where = is ? place_of_dim(i, has_rows) : std::int8_t{0};
        changed = changed || is != mapped(i) || where != at_dim_[place(i)];
        mapped_[place(i)] = is ? 1 : 0;
        at_dim_[place(i)] = where;
      }
    }
  }
  [[nodiscard]] constexpr bool is_example(int i) const {
    for (const auto& e : examples_)
      if (e.row == i) return true;
    return i == index_;
  }
  [[nodiscard]] constexpr bool depends_on_example(int i) const {
    const node& n = at(i);
    if (mapped(i)) return true;
    switch (n.op.code) {
      case opcode::loop:
      case opcode::branch:
      case opcode::otherwise: return false;
      case opcode::carry: return mapped(n.operands[0]) || mapped(at(end_of_[place(i)]).operands[1]) || goes_with_others(i);
      case opcode::loop_result: return mapped(n.operands[0]);
      case opcode::cond_result:
        return mapped(at(at(n.operands[0]).operands[0]).operands[0]) || mapped(n.operands[1]) || mapped(n.operands[2]);
      default: return led_operands(n) != 0;
    }
  }
  /// Returns true if another field of the loop is mapped. Fields that share an exchange for several sweeps have one
  /// shape.
  [[nodiscard]] constexpr bool goes_with_others(int carry) const {
    const node& n = at(carry);
    if (ghost_sweeps(at(n.region)) == 1) return false;
    for (int i = n.region; i < last_; ++i)
      if (at(i).op == opcode::carry && at(i).region == n.region && at(i).shape == n.shape && mapped(i)) return true;
    return false;
  }
  [[nodiscard]] constexpr std::uint32_t led_operands(const node& n) const {
    std::uint32_t led = 0;
    const int count = facts_of(n.op).leading.is == leading_dim::way::first ? 1 : n.operands.count;
    for (int k = 0; k < count; ++k)
      if (mapped(n.operands[k])) led |= std::uint32_t{1} << k;
    return led;
  }
  [[nodiscard]] constexpr std::int8_t place_of_dim(int i, const constant_vector<std::uint8_t>& has_rows) const {
    const node& n = at(i);
    const auto of = [this](int o) { return o < first_ ? std::int8_t{0} : at_dim_[place(o)]; };
    switch (n.op.code) {
      case opcode::carry: return has_rows[place(i)] != 0 ? 1 : 0;
      case opcode::loop_result: return of(n.operands[0]);
      case opcode::cond_result: return of(n.operands[mapped(n.operands[2]) ? 2 : 1]);
      case opcode::result: return of(n.operands[0]);
      default: return places_of(n, led_operands(n)).result;
    }
  }

  /// During its lifetime, nodes are added in the region, view and scope of a node of the function.
  class standing {
   public:
    constexpr standing(graph& g, int region, axis_mask local, int scope)
        : g_(g), region_(g.open_region), local_(g.open_local), scope_(g.open_scope) {
      g.open_region = region;
      g.open_local = local;
      g.open_scope = scope;
    }
    constexpr ~standing() {
      g_.open_region = region_;
      g_.open_local = local_;
      g_.open_scope = scope_;
    }
    standing(const standing&) = delete;

   private:
    graph& g_;
    int region_;
    axis_mask local_;
    int scope_;
  };
  [[nodiscard]] constexpr int region_of(int r) const { return r < first_ ? r : region_[place(r)]; }

  /// Returns a value with the examples as its dim `dim`. The nodes are added in the region of the value, outside of
  /// loops that only read it.
  constexpr int form(int i, int dim) {
    int& known = forms_[static_cast<std::size_t>(dim)][static_cast<std::size_t>(i)];
    if (known >= 0 || g_.failed()) return known;
    if (mapped(i) && at_dim_[place(i)] == dim) return number_[place(i)];
    const int from = mapped(i) ? form(i, at_dim_[place(i)]) : shared(i);
    if (from < 0) return -1;
    const node& n = at(from);
    const standing here(g_, n.op == opcode::loop ? from : n.region, n.local_axes, n.scope);
    return known = mapped(i) ? add_moved_dim(g_, from, 1 - dim, dim, at_) : add_for_examples(g_, from, size_, dim, at_);
  }
  /// Returns a value in the form of the new value of node `like`.
  constexpr int form_as(int i, int like) { return mapped(like) ? form(i, at_dim_[place(like)]) : shared(i); }

  constexpr void emit(int i) {
    const node n = at(i);  // a copy: the graph grows
    if (n.op == opcode::result) return;
    if (is_example(i)) return emit_example(i);
    const standing here(g_, region_of(n.region), n.local_axes, n.scope);
    if (is_region(n.op)) return emit_region(i, n);
    if (!mapped(i)) {
      node again = n;
      for (auto& o : again.operands) o = shared(o);
      return note(i, n, g_.add(again));
    }
    const auto places = places_of(n, led_operands(n));
    node_list operands;
    for (int k = 0; k < n.operands.count; ++k)
      operands.push_back(places.operands[k] < 0 ? shared(n.operands[k]) : form(n.operands[k], places.operands[k]));
    if (g_.failed()) return;
    note(i, n, add_led(g_, n, operands, places, size_));
    if (!g_.failed()) close_for_regions(i, n);
  }
  constexpr void emit_example(int i) {
    for (const auto& e : examples_)
      if (e.row == i) {
        number_[place(i)] = e.leading;
        forms_[0][static_cast<std::size_t>(i)] = e.leading;
        forms_[1][static_cast<std::size_t>(i)] = e.behind_rows;
      }
    extents shape;
    shape.push_back(size_);
    if (i == index_) number_[place(i)] = add_iota(g_, dtype::s64, shape, 0, at_);
  }
  /// Records the node that was added for node `i`, and adds nodes for its further results.
  constexpr void note(int i, const node& n, int id) {
    number_[place(i)] = id;
    for (int r = 1; r < n.results && id >= 0; ++r) {
      node more = at(i + r);
      more.operands[0] = id;
      if (mapped(i)) {
        more.shape.insert(at_dim_[place(i)], size_);
        leading_attributes::annotate(more, at_dim_[place(i)]);
      }
      number_[place(i + r)] = g_.add_sized(more);
    }
  }
  /// Closes the dim of examples of an argument of a manual region of all axes: the region needs it whole along all
  /// other axes.
  constexpr void close_for_regions(int i, const node& n) {
    if (facts_of(n.op).made != origin::viewed) return;
    node& argument = g_.nodes[static_cast<std::size_t>(at(number_[place(i)]).operands[0])];
    if (argument.annotated && argument.annotation.closed == 0 && !g_.is_explicit) argument.annotation.open &= ~dim_mask{1};
  }

  constexpr void emit_region(int i, node n) {
    const auto add = [&](bool opens) {
      number_[place(i)] = g_.add(n);
      if (opens) region_[place(i)] = number_[place(i)];
      if (opens) g_.has_regions = true;
    };
    switch (n.op.code) {
      case opcode::loop:
        for (int c = i; c < last_; ++c)  // before the loop: its carried values are consecutive
          if (at(c).op == opcode::carry && at(c).region == i && needed_[place(c)] != 0)
            static_cast<void>(form_as(at(c).operands[0], c));
        return add(true);
      case opcode::branch: return emit_branch(i, n);
      case opcode::otherwise:
        region_[place(i)] = g_.open_region;
        if (is_flat(n.operands[0])) return;
        n.operands[0] = number_[place(n.operands[0])];
        return add(true);
      case opcode::cond_result: return emit_cond_result(i, n);
      case opcode::carry: n.operands[0] = form_as(n.operands[0], i); break;
      default:  // loop_result
        n.operands[1] = form_as(n.operands[1], i);
        n.operands[0] = number_[place(n.operands[0])];
        break;
    }
    if (mapped(i)) n.shape.insert(at_dim_[place(i)], size_);
    if (!g_.failed()) add(false);
  }
  /// Returns true if both branches of a conditional are computed in its place.
  [[nodiscard]] constexpr bool is_flat(int branch) const { return chosen_[place(branch)] >= 0 && end_of_[place(branch)] < 0; }
  constexpr void emit_branch(int i, node n) {
    const int pred = n.operands[0];
    if (mapped(pred)) {
      chosen_[place(i)] = form(pred, 0);
      region_[place(i)] = g_.open_region;
      if (is_flat(i)) return;
      n.operands[0] = add_for_any(g_, chosen_[place(i)], n.at);
    } else {
      n.operands[0] = shared(pred);
    }
    if (g_.failed()) return;
    number_[place(i)] = region_[place(i)] = g_.add(n);
    g_.has_regions = true;
  }
  constexpr void emit_cond_result(int i, node n) {
    const int branch = at(n.operands[0]).operands[0], holds = chosen_[place(branch)];
    int on_true = form_as(n.operands[1], i);
    const int on_false = form_as(n.operands[2], i);
    if (holds >= 0 && mapped(i)) {
      const standing inside(g_, region_[place(branch)], n.local_axes, n.scope);
      on_true = add_chosen_by_example(g_, holds, on_true, on_false, at_dim_[place(i)], n.at);
    }
    if (is_flat(branch) || g_.failed()) {
      number_[place(i)] = on_true;
      return;
    }
    n.operands[0] = number_[place(n.operands[0])];
    n.operands[1] = on_true;
    n.operands[2] = on_false;
    if (mapped(i)) n.shape.insert(at_dim_[place(i)], size_);
    number_[place(i)] = g_.add(n);
  }

  /// Moves the calls of functions with several nodes, which messages name, to the nodes that were added.
  constexpr void renumber_calls() {
    const auto begin = [this](int i) { return i < last_ ? begins_[place(i)] : static_cast<int>(g_.nodes.size()); };
    for (auto k = calls_; k < g_.calls.size() && !g_.failed(); ++k) {
      written_call& c = g_.calls[k];
      c.begin = begin(c.begin);
      c.end = begin(c.end);
      for (auto& a : c.arguments) a = a < 0 ? -1 : shared(a);
    }
    for (auto k = recomputed_; k < g_.recomputed.size() && !g_.failed(); ++k) {
      recomputed_call& c = g_.recomputed[k];
      c = {begin(c.begin), begin(c.end), region_of(c.region), c.go_back};
    }
  }

  graph& g_;
  location at_;
  std::int64_t size_;
  std::size_t calls_, recomputed_;
  int first_, last_ = 0;  // nodes of the function
  int index_ = -1;
  constant_vector<example> examples_;
  constant_vector<std::uint8_t> needed_, mapped_;
  constant_vector<std::int8_t> at_dim_;  // by value that depends on an example: the dim of examples
  constant_vector<int> number_;          // by node: the node that was added
  constant_vector<int> region_;          // by node that opens a region: the new region
  constant_vector<int> chosen_;          // by branch: the bools of the examples
  constant_vector<int> end_of_;          // by carried value: its result; by branch that ends a while_loop: a result of the loop
  constant_vector<int> begins_;          // by node: the first node that was added for it
  std::array<constant_vector<int>, 2> forms_;
};

}  // namespace gspmd::detail
