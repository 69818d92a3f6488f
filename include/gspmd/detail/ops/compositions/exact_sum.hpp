// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "gspmd/detail/ops/compositions/exact_parts.hpp"
#include "gspmd/detail/ops/concatenate.hpp"
#include "gspmd/detail/ops/einsum/convolution.hpp"
#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/placed.hpp"
#include "gspmd/detail/ops/rows.hpp"
#include "gspmd/detail/ops/set_policy.hpp"
#include "gspmd/detail/ops/shift.hpp"
#include "gspmd/detail/ops/transpose.hpp"
#include "gspmd/index/detail/gather_op.hpp"
#include "gspmd/index/detail/scan_op.hpp"
#include "gspmd/index/detail/scatter_op.hpp"
#include "gspmd/index/detail/sort_op.hpp"
#include "gspmd/windows/detail/reduce_window_op.hpp"

/// Operators that sum floats, computed so that the order of the additions does not change the result.
namespace gspmd::detail {

/// The effect of the order of additions on the result of an operator.
enum class adds_up : std::uint8_t {
  nothing,   // none: each element is computed from the same elements in the same way, on every plan
  in_terms,  // none, but devices may hold partial values: only one is not 0, or equal maxima are 0 and -0
  sums,      // the operator sums elements, or products of elements of two operands
  unknown,
};

/// The sums of an operator.
struct exact_terms {
  inline_vec<int, 2> operands;                 // the operands whose elements, or products of elements, are summed
  dim_mask along[2]{};                         // by entry of `operands`: the dims whose elements are divided by one number
  inline_vec<std::int8_t, max_rank> place[2];  // by entry of `operands`: for each other dim, the dim of the result
  std::int64_t terms = 1;                      // the largest number of terms of an element of the result
  bool is_by_row = true;                       // `along` has the summed dims, not all dims
};

class exact_sum {
  // Defined before its callers: Clang does not evaluate a member template as a constant if its body follows the caller.
  template <class... Ops>
  static constexpr bool is_one_of(const node& n) {
    return ((n.op == code_of<Ops>) || ...);
  }

 public:
  constexpr explicit exact_sum(graph& g) : g_(g) {}

  [[nodiscard]] constexpr adds_up class_of(const node& n) const {
    if (n.op == opcode::result || !has_floats(n)) return adds_up::nothing;
    if (is_floating(n.type) && is_sum(n)) return adds_up::sums;
    if (is_one_of<reduce_op>(n)) return is_order(n.reduced_by) ? adds_up::in_terms : adds_up::unknown;
    if (is_one_of<scan_op, reduce_window_op, scatter_op>(n)) return is_order(n.reduced_by) ? adds_up::in_terms : adds_up::unknown;
    if (is_one_of<gather_op, row_op, set_row_op, add_row_op, scatter_set_op>(n)) return adds_up::in_terms;
    const auto& facts = facts_of(n.op);
    const bool moves = is_one_of<concatenate_op, placed_op, shift_op, sort_op, top_k_op, transpose_op>(n) || facts.composes;
    return facts.runs != realisation::steps || facts.made != origin::shards || moves ? adds_up::nothing : adds_up::unknown;
  }

  /// Adds a sum whose operands are in the program. Returns the result, which has the same bits for every order of
  /// additions.
  constexpr int add(const node& n) {
    if (is_complex(n.type)) return add_complex(n);
    exact_terms t = terms_of(n);
    if (t.terms > most_exact_terms)
      return g_.fail(n.at, "reproducible", mistake::size,
                     text("adds up ") << t.terms << " terms, more than 2^40; sum parts of the terms, then the sums of the parts");
    const auto first = g_.nodes.size();
    const int id = t.terms <= 1 ? add_without_terms(g_.add(n)) : add_parts(n, t);
    set_policy(g_, first, policy_of(n));
    return id;
  }
  /// Adds 0 to a value. Devices reduce their partial values before this addition.
  constexpr int add_without_terms(int id) {
    if (id < 0) return -1;
    const node n = at(id);
    const int zero = add_constant(g_, n.type, n.shape, 0, 0, n.at);
    return add_elementwise(g_, code_of<add_op>, {id, zero}, n.at);
  }
  /// Marks the sums from node `first` on that are exact already: the operands of an exact total, and the sums that they
  /// consist of.
  constexpr void find_exact(int first, constant_vector<int>& is_exact) const {
    constant_vector<int> open;
    for (int i = first; i < static_cast<int>(g_.nodes.size()); ++i)
      if (is_one_of<exact_sum_op, exact_product_op>(at(i))) open.push_back(at(i).operands[0]);
    while (!open.empty()) {
      const int i = open.back();
      open.pop_back();
      if (i < first) continue;
      is_exact[static_cast<std::size_t>(i - first)] = 1;
      if (at(i).op == code_of<add_op>)
        for (const int o : at(i).operands) open.push_back(o);
    }
  }

 private:
  /// Further results have the types of the operands.
  [[nodiscard]] constexpr bool has_floats(const node& n) const {
    bool any = is_floating(n.type);
    for (const int o : n.operands) any = any || is_floating(at(o).type);
    return any;
  }
  static constexpr bool is_order(monoid kind) { return kind == monoid::max || kind == monoid::min; }
  static constexpr bool is_sum(const node& n) {
    if (is_own(n.type)) return false;
    if (is_one_of<einsum_op, convolution_op>(n)) return true;
    return is_one_of<reduce_op, scan_op, reduce_window_op, scatter_op>(n) && n.reduced_by == monoid::add;
  }
  [[nodiscard]] constexpr const node& at(int i) const { return g_.nodes[static_cast<std::size_t>(i)]; }

  // ---- the summed elements ----

  [[nodiscard]] constexpr exact_terms terms_of(const node& n) const {
    exact_terms t;
    if (is_one_of<reduce_op>(n)) {
      t.operands.push_back(0);
      t.along[0] = reduced_dims(n);
      for (int d = 0; d < n.shape.count; ++d) t.place[0].push_back(static_cast<std::int8_t>(d));
      const extents& in = operand_of(g_, n, 0).shape;
      for (int d = 0; d < in.count; ++d)
        if ((t.along[0] & dim_bit(d)) != 0) t.terms = saturating_multiply(t.terms, in[d]);
    } else if (is_one_of<einsum_op>(n)) {
      add_letters(t, n);
    } else {
      t.is_by_row = false;
      t.operands.push_back(is_one_of<scatter_op>(n) ? 1 : 0);
      if (is_one_of<convolution_op>(n)) t.operands.push_back(1);
      for (int k = 0; k < t.operands.count; ++k) t.along[k] = dim_bit(operand_of(g_, n, t.operands[k]).shape.count) - 1;
      t.terms = terms_without_letters(n);
    }
    return t;
  }
  constexpr void add_letters(exact_terms& t, const node& n) const {
    const auto result = letters_of(g_, n, n.operands.count);
    const auto first = letters_of(g_, n, 0);
    for (int k = 0; k < n.operands.count; ++k) {
      t.operands.push_back(k);
      const auto letters = letters_of(g_, n, k);
      for (int d = 0; d < letters.count; ++d) {
        const int place = result.find(letters[d]);
        if (place >= 0) {
          t.place[k].push_back(static_cast<std::int8_t>(place));
          continue;
        }
        t.along[k] |= dim_bit(d);
        if (k == 0 || first.find(letters[d]) < 0) t.terms = saturating_multiply(t.terms, operand_of(g_, n, k).shape[d]);
      }
    }
  }
  [[nodiscard]] constexpr std::int64_t terms_without_letters(const node& n) const {
    std::int64_t terms = 1;
    if (is_one_of<scan_op>(n)) return n.shape[scan_way::of(n).dim];
    if (is_one_of<scatter_op>(n)) return saturating_elements(operand_of(g_, n, 1).shape);
    if (is_one_of<reduce_window_op>(n)) {
      for (const auto& along : windows_of(n)) terms = saturating_multiply(terms, along.window.size);
      return terms;
    }
    const auto e = windowed_einsum_of(g_, n);
    const auto extent = global_extents(g_, n, e);
    for (const auto letter : e.letters[1])  // only letters of the operand without windows can be summed
      if (place_of(e.letters[2], letter) < 0) terms = saturating_multiply(terms, extent[letter]);
    return terms;
  }

  // ---- parts ----

  constexpr int add_parts(const node& n, const exact_terms& t) {
    const bool is_product = t.operands.count == 2;
    const exact_cut how = is_product ? cut_of_products(t.terms, digits_of(n.type)) : cut_of_sum(t.terms, digits_of(n.type));
    exact_operand cut[2];
    for (int k = 0; k < t.operands.count && !g_.failed(); ++k)
      cut[k] = cut_of(n, exact_parts(g_, n.operands[t.operands[k]], t.along[k], n.at), how, is_product, t.is_by_row);
    if (g_.failed()) return -1;
    term total(g_, -1, n.at);
    int last = -1;
    for (int k = how.parts; k-- > 0 && !g_.failed();) {  // smallest parts first
      const int sum = is_product ? add_products(n, cut, k) : add_total<exact_sum_op>(of_parts(n, t, {cut[0].parts[k]}), n.at);
      if (total.id() < 0) last = sum;
      total = total.id() < 0 ? term(g_, sum, n.at) : total + term(g_, sum, n.at);
    }
    const auto spread = [&](int k, int x) {
      const bool is_there = t.place[k].count == n.shape.count && !(k == 1 || is_one_of<einsum_op>(n));
      return term(g_, is_there ? x : add_broadcast(g_, x, n.shape, t.place[k], n.at), n.at);
    };
    for (int k = 0; k < t.operands.count; ++k) total = total * spread(k, cut[k].scale);
    for (int k = 0; k < t.operands.count; ++k)
      if (cut[k].further_scale >= 0) total = total * spread(k, cut[k].further_scale);
    if (cut[0].is_finite >= 0) total = term::of<where_op>(spread(0, cut[0].is_finite), total, spread(0, cut[0].if_not));
    const int id = converted(converted(total.id(), is_narrow(n.type) ? dtype::f32 : n.type, n.at), n.type, n.at);
    return is_product ? id : add_exact_link(g_, id, last, n.at);
  }
  constexpr exact_operand cut_of(const node& n, exact_parts parts, const exact_cut& how, bool is_product, bool is_by_row) {
    if (is_product) return parts.cut_factor(how);
    if (is_by_row) return parts.cut_rows(how);
    return parts.cut_all(how, is_one_of<scatter_op>(n) ? add_is_added(n) : -1);
  }
  /// Returns the node of the bools that are true for the updates of a scatter inside the table; -1: all are inside.
  constexpr int add_is_added(const node& n) {
    if (indexing::beyond_of(n) != out_of_range::fill) return -1;
    const extents updates = operand_of(g_, n, 1).shape;  // a copy: the graph grows
    const int all = add_constant(g_, dtype::pred, n.shape, 0, 1, n.at);
    return add_gather_like(g_, n, all, n.operands[0], updates, n.at);
  }
  /// Adds the operator on parts.
  constexpr int of_parts(const node& like, const exact_terms& t, std::initializer_list<int> parts) {
    node n = like;
    n.type = dtype::f64;
    n.integer = 0;  // the operands have the type of the result
    n.annotated = false;
    int k = 0;
    for (const int p : parts) n.operands[t.operands[k++]] = p;
    return g_.add_sized(n);
  }
  template <class Op>
  constexpr int add_total(int sum, location at) {
    return add_exact_total<Op>(g_, sum, at);
  }
  /// Adds the products of parts i and j with i + j = level. They have one grid.
  constexpr int add_products(const node& n, const exact_operand (&cut)[2], int level) {
    exact_terms both;
    both.operands.push_back(0);
    both.operands.push_back(1);
    int sum = -1;
    for (int i = 0; i <= level; ++i) {
      const int product = of_parts(n, both, {cut[0].parts[i], cut[1].parts[level - i]});
      sum = sum < 0 ? product : add_elementwise(g_, code_of<add_op>, {sum, product}, n.at);
    }
    return add_total<exact_product_op>(sum, n.at);
  }
  constexpr int converted(int id, dtype type, location where) {
    if (id < 0 || at(id).type == type) return id;
    return add_elementwise(g_, code_of<cast_op>, {id}, where, type);
  }

  // ---- complex numbers ----

  constexpr int add_complex(const node& n) {
    const auto part = [&](const operator_code& which, int k) { return add_elementwise(g_, which, {n.operands[k]}, n.at); };
    const auto of = [&](std::initializer_list<int> operands) {
      node real = n;
      real.type = part_of(n.type);
      real.annotated = false;
      int k = 0;
      for (const int o : operands) real.operands[k++] = o;
      return add(real);
    };
    const int last = is_one_of<scatter_op>(n) ? 1 : 0;
    if (!is_one_of<einsum_op, convolution_op>(n) || n.operands.count == 1) {
      const int re = part(code_of<real_op>, last), im = part(code_of<imag_op>, last);
      const int parts[]{last == 0 ? of({re}) : of({n.operands[0], re}), last == 0 ? of({im}) : of({n.operands[0], im})};
      return add_elementwise(g_, code_of<complex_op>, {parts[0], parts[1]}, n.at);
    }
    const int a = part(code_of<real_op>, 0), b = part(code_of<imag_op>, 0), c = part(code_of<real_op>, 1),
              d = part(code_of<imag_op>, 1);
    const int ac = of({a, c}), bd = of({b, d}), ad = of({a, d}), bc = of({b, c});
    const int re = add_elementwise(g_, code_of<subtract_op>, {ac, bd}, n.at);
    const int im = add_elementwise(g_, code_of<add_op>, {ad, bc}, n.at);
    return add_elementwise(g_, code_of<complex_op>, {re, im}, n.at);
  }

  graph& g_;
};

}  // namespace gspmd::detail
