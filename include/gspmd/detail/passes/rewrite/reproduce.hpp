// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "gspmd/detail/ops/compositions/exact_sum.hpp"
#include "gspmd/detail/ops/compositions/leading.hpp"
#include "gspmd/detail/ops/registry.hpp"

namespace gspmd::detail {

/// Rewrites a part of a program so that its result has the same bits with every plan. Its nodes are added again, in
/// order, with sums of floats in exact parts (compositions/exact_sum.hpp). The old nodes are removed.
class reproducer {
 public:
  /// Rewrites the nodes from `first` on.
  constexpr reproducer(graph& g, int first)
      : g_(g), sums_(g), first_(first), last_(static_cast<int>(g.nodes.size())), recomputed_(g.recomputed.size()) {
    while (recomputed_ > 0 && g.recomputed[recomputed_ - 1].begin >= first) --recomputed_;
  }

  constexpr void run() {
    if (g_.is_explicit || g_.open_local != 0) {
      g_.fail(at(first_).at, "reproducible", mistake::region,
              "is in a program that writes its own communication (explicit or manual); use it in the automatic mode");
      return;
    }
    const std::size_t count = static_cast<std::size_t>(last_ - first_);
    number_.resize(count, -1);
    begins_.resize(count, -1);
    is_exact_.resize(count, 0);
    sums_.find_exact(first_, is_exact_);
    const int region = g_.open_region, scope = g_.open_scope;
    for (int i = first_; i < last_ && !g_.failed(); ++i) emit(i);
    g_.open_region = region;
    g_.open_scope = scope;
    if (g_.failed()) return;
    const auto begin = [this](int i) { return i < last_ ? begins_[place(i)] : static_cast<int>(g_.nodes.size()); };
    for (auto k = recomputed_; k < g_.recomputed.size(); ++k) {
      recomputed_call& c = g_.recomputed[k];
      c = {begin(c.begin), begin(c.end), now(c.region), c.go_back};
    }
    for (auto* const list : {&g_.inputs, &g_.outputs})
      for (auto& i : *list) i = now(i);
    for (auto& also : g_.also_tagged) also.node = now(also.node);
    leave_nothing(g_, first_, last_, at(last_ - 1).at);
  }
  /// Returns the new number of a node.
  [[nodiscard]] constexpr int now(int i) const { return i < first_ ? i : number_[place(i)]; }

 private:
  [[nodiscard]] constexpr const node& at(int i) const { return g_.nodes[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr std::size_t place(int i) const { return static_cast<std::size_t>(i - first_); }

  constexpr void emit(int i) {
    node n = at(i);  // a copy: the graph grows
    begins_[place(i)] = static_cast<int>(g_.nodes.size());
    refuse(n);
    if (g_.failed()) return;
    for (auto& o : n.operands) o = now(o);
    n.region = now(n.region);
    g_.open_region = n.region;
    g_.open_scope = n.scope;
    const std::size_t begin = g_.nodes.size();
    const adds_up what = is_exact_[place(i)] != 0 ? adds_up::nothing : sums_.class_of(n);
    int id = static_cast<int>(begin);
    if (what == adds_up::sums) {
      id = sums_.add(n);
    } else {
      g_.nodes.push_back(n);
      if (what == adds_up::in_terms && n.results == 1 && is_floating(n.type)) id = sums_.add_without_terms(id);
    }
    for (auto k = begin; k < g_.nodes.size(); ++k) {
      g_.nodes[k].in_gradient = n.in_gradient;
      g_.nodes[k].tag = n.tag;
    }
    number_[place(i)] = id;
  }
  /// Refuses operators whose bits depend on the plan and that have no reproducible form here.
  constexpr void refuse(const node& n) {
    const auto fail = [&](mistake rule, const text& what) { g_.fail(n.at, name_of(n.op), rule, what); };
    if (n.local_axes != 0)
      return fail(mistake::region,
                  "is in a manual region within a reproducible function, and sums parts there; write it in the global view, or "
                  "leave the region outside");
    if (sums_.class_of(n) == adds_up::unknown)
      return fail(mistake::other, text("is not reproducible: its bits may depend on the order of combining elements")
                                      << remedy_of(n));
    for (const int o : n.operands)
      if (const node& x = at(o);
          x.annotated && x.annotation.layout.partial != 0 && is_floating(x.type) && x.annotation.layout.reduced_by == monoid::add)
        return fail(mistake::other,
                    "reads floats that are partial over the devices, so their number depends on the mesh; pass them whole, or "
                    "with one more dim for the partial values, and sum over that dim");
  }
  static constexpr std::string_view remedy_of(const node& n) {
    if (is_own(n.type)) return "; write it in floats or integers, or leave it outside of reproducible";
    return "; write it with sums, products of two tensors, convolutions or maxima, or leave it outside of reproducible";
  }

  graph& g_;
  exact_sum sums_;
  int first_, last_;
  std::size_t recomputed_;
  constant_vector<int> number_, begins_;  // by node
  constant_vector<int>
      is_exact_;  // 0 or 1 by node (Clang makes no constants of vectors of bool): an exact sum of a nested reproducible function
};

}  // namespace gspmd::detail
