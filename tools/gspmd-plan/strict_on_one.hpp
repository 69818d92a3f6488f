// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "strict_on_mesh.hpp"

namespace plan_tool {

/// Builds a document as a program for one device, without states and layouts. A value of the local view becomes one
/// value for each device, and operators are applied to each. A collective computes each device's result from the values
/// of its devices. The results on the mesh are compared with those of this program.
class on_one_device {
 public:
  on_one_device(gspmd::dynamic::builder& b, const gspmd::dynamic::mesh& written) : b_(b), mesh_(written) {}

  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] const std::vector<std::size_t>& active() const { return active_; }
  [[nodiscard]] std::vector<std::vector<std::size_t>> groups(const std::string& parting) const {
    std::vector<std::vector<std::size_t>> list;
    const auto axes = local_numbers(parting);
    for (const auto k : active_) {
      auto* found = static_cast<std::vector<std::size_t>*>(nullptr);
      for (auto& g : list) {
        const auto is_same = [&](int a) { return coordinate(g[0], a) == coordinate(k, a); };
        if (std::all_of(axes.begin(), axes.end(), is_same)) found = &g;
      }
      if (found == nullptr) found = &list.emplace_back();
      found->push_back(k);
    }
    return list;
  }
  /// The following calls apply to these devices.
  void go(const std::vector<std::size_t>& devices) { active_ = devices; }

  void input(value, const value_states&) {}
  template <class F>
  void exchanging(const std::string&, const std::vector<copies>& operands, F f) {
    f(operands);
  }
  void output(value x, gspmd::location at) { b_.output(same({x}, at)[0]); }

  copies transition(const copies& x, const written_transition& t, gspmd::location at) {
    const auto axes = local_numbers(t.axes);
    copies made(count_);
    if (axes.empty()) {
      std::int64_t n = 1;
      for (const auto& name : names_in(t.axes)) n *= mesh_.size_of(name);
      const bool is_equal = t.from.is == state::constant || t.from.is == state::replica || t.from.is == state::invariant;
      const bool is_times =
          t.by == gspmd::transition_kind::reinterpret && t.to.is == state::partial && is_equal;  // a partial value on each device
      for (const auto k : active_) made[k] = is_times ? times(x[k], n, t.to.reduced_by, at) : same({x[k]}, at)[0];
      return made;
    }
    using gspmd::device_action;
    const device_action does = gspmd::dynamic::action_of(t.by, t.from, t.to);
    for (const auto k : active_) {
      copies group;  // the values of the devices that communicate, by position
      std::int64_t place = 0;
      for (const auto other : peers(k, axes)) {
        if (other == k) place = static_cast<std::int64_t>(group.size());
        group.push_back(x[other]);
      }
      const auto n = static_cast<std::int64_t>(group.size());
      const auto chunk = [&](value v, int dim) { return part(v, dim, place, n, at); };
      const auto own = [&](value v) {
        return t.to.is == state::varying ? without_first_dim(chunk(v, 0), at) : chunk(v, t.to.dim);
      };
      const auto sum = [&] { return folded(group, t.from.reduced_by, at); };
      switch (does) {
        case device_action::nothing: made[k] = same({x[k]}, at)[0]; break;
        case device_action::keep_own: made[k] = own(x[k]); break;
        case device_action::keep_first: made[k] = place == 0 ? same({x[k]}, at)[0] : neutral(x[k], t.to.reduced_by, at); break;
        case device_action::pad_zeros: {
          copies parts(group.size(), neutral(x[k], t.to.reduced_by, at));
          if (t.to.reduced_by == monoid::add || t.to.reduced_by == monoid::multiply)
            parts[static_cast<std::size_t>(place)] = x[k];
          else parts = group;  // with a maximum, every device may have all parts
          made[k] = t.from.is == state::varying ? stacked(parts, at) : gspmd::concatenate(parts, t.from.dim, at);
          break;
        }
        case device_action::gather:
          made[k] = t.from.is == state::varying ? stacked(group, at) : gspmd::concatenate(group, t.from.dim, at);
          break;
        case device_action::gather_sum: made[k] = own(sum()); break;
        case device_action::sum: made[k] = sum(); break;
        case device_action::exchange: {
          copies parts;
          for (const auto v : group) parts.push_back(chunk(v, t.to.dim));
          made[k] = gspmd::concatenate(parts, t.from.dim, at);
          break;
        }
        case device_action::permute: {
          made[k] = gspmd::zeros_like(x[k], at);
          for (const auto& [from, to] : t.pairs)
            if (to == place) made[k] = same({group[static_cast<std::size_t>(from)]}, at)[0];
          break;
        }
      }
    }
    return made;
  }
  copies axis_index(const std::string& axis, gspmd::location at) {
    copies made(count_);
    const auto axes = local_numbers(axis);
    for (const auto k : active_) made[k] = b_.constant(dtype::s32, {}, coordinate(k, axes[0]), at);
    return made;
  }
  copies bring(const copies& x, const value_states&, gspmd::location at) { return same(x, at); }
  copies same(const copies& x, gspmd::location at) {
    copies made(x.size());
    for (std::size_t k = 0; k < x.size(); ++k)
      if (x[k].is_valid()) made[k] = b_.reshard(x[k], std::vector<std::string>(static_cast<std::size_t>(x[k].rank()), "?"), at);
    return made;
  }

  template <class Body>
  std::vector<copies> region(const op_note& note, const std::vector<copies>& operands, Body body, gspmd::location at) {
    const auto outside = axes_;
    const auto were = active_;
    const auto outside_count = count_;
    std::vector<int> added;
    for (const auto& name : names_in(note.axes)) added.push_back(number(name));
    std::sort(added.begin(), added.end());
    axes_.insert(axes_.end(), added.begin(), added.end());
    std::sort(axes_.begin(), axes_.end());
    count_ = 1;
    for (const int a : axes_) count_ *= static_cast<std::size_t>(size(a));
    const auto place_outside = [&](std::size_t k) {
      std::size_t at_outside = 0;
      for (const int a : outside)
        at_outside = at_outside * static_cast<std::size_t>(size(a)) + static_cast<std::size_t>(coordinate(k, a));
      return at_outside;
    };
    active_.clear();
    for (std::size_t k = 0; k < count_; ++k)
      if (std::find(were.begin(), were.end(), place_outside(k)) != were.end()) active_.push_back(k);
    std::vector<copies> inside;
    for (std::size_t o = 0; o < operands.size(); ++o) {
      inside.emplace_back(count_);
      for (const auto k : active_) inside.back()[k] = entering(operands[o][place_outside(k)], k, note.takes[o], added, at);
    }
    const auto results = body(inside);
    std::vector<copies> left;
    for (std::size_t r = 0; r < results.size(); ++r) {
      left.emplace_back(outside_count);
      for (const auto k : active_) {
        const bool is_first = std::all_of(added.begin(), added.end(), [&](int a) { return coordinate(k, a) == 0; });
        if (is_first && results[r][k].is_valid())
          left.back()[place_outside(k)] = leaving(results[r], k, note.gives[r], border_order(note.gives[r], added), 0, at);
      }
    }
    axes_ = outside;
    active_ = were;
    count_ = outside_count;
    return left;
  }

 private:
  [[nodiscard]] int number(const std::string& axis) const { return static_cast<int>(mesh_.find(axis)[0]); }
  [[nodiscard]] std::int64_t size(int a) const { return mesh_.axes()[static_cast<std::size_t>(a)].size; }
  /// Returns the axes that are local here, in the order of the mesh.
  [[nodiscard]] std::vector<int> local_numbers(const std::string& axes) const {
    std::vector<int> list;
    for (const auto& name : names_in(axes))
      if (std::find(axes_.begin(), axes_.end(), number(name)) != axes_.end()) list.push_back(number(name));
    std::sort(list.begin(), list.end());
    return list;
  }
  /// Returns the distance between the numbers of neighbouring devices along an axis.
  [[nodiscard]] std::size_t stride(int a) const {
    std::size_t n = 1;
    for (const int b : axes_)
      if (b > a) n *= static_cast<std::size_t>(size(b));
    return n;
  }
  [[nodiscard]] std::int64_t coordinate(std::size_t k, int a) const { return static_cast<std::int64_t>(k / stride(a)) % size(a); }
  [[nodiscard]] std::size_t moved(std::size_t k, int a, std::int64_t to) const {
    return k + stride(a) * static_cast<std::size_t>(to) - stride(a) * static_cast<std::size_t>(coordinate(k, a));
  }
  /// Returns the devices that differ only along these axes, row-major.
  [[nodiscard]] std::vector<std::size_t> peers(std::size_t k, const std::vector<int>& axes) const {
    std::vector<std::size_t> list{k};
    for (const int a : axes) {
      std::vector<std::size_t> further;
      for (const auto p : list)
        for (std::int64_t c = 0; c < size(a); ++c) further.push_back(moved(p, a, c));
      list = std::move(further);
    }
    return list;
  }

  static value part(value x, int dim, std::int64_t place, std::int64_t n, gspmd::location at) {
    auto first = integer_list(static_cast<std::size_t>(x.rank()), 0), last = shape_of(x);
    const auto d = static_cast<std::size_t>(dim);
    const auto extent = last[d] / n;
    first[d] = place * extent;
    last[d] = first[d] + extent;
    return gspmd::slice(x, first, last, {}, at);
  }
  static value without_first_dim(value x, gspmd::location at) {
    auto shape = shape_of(x);
    shape.erase(shape.begin());
    return gspmd::reshape(x, shape, at);
  }
  static value stacked(const copies& list, gspmd::location at) {
    copies rows;
    for (const auto v : list) {
      auto shape = shape_of(v);
      shape.insert(shape.begin(), 1);
      rows.push_back(gspmd::reshape(v, shape, at));
    }
    return gspmd::concatenate(rows, 0, at);
  }
  static value folded(const copies& list, monoid kind, gspmd::location at) {
    return gspmd::reduce(stacked(list, at), kind, {0}, at);
  }
  /// Returns the value that does not change a reduction. If equal values do not change it, such as for a maximum,
  /// returns the value itself.
  value neutral(value x, monoid kind, gspmd::location at) {
    if (kind == monoid::add) return gspmd::zeros_like(x, at);
    if (kind == monoid::multiply) return b_.constant(x.type(), shape_of(x), 1.0, at);
    return same({x}, at)[0];
  }
  value times(value x, std::int64_t n, monoid kind, gspmd::location at) {
    if (kind == monoid::add)
      return gspmd::elementwise("multiply", copies{x, b_.constant(x.type(), shape_of(x), static_cast<double>(n), at)}, at);
    value product = same({x}, at)[0];
    if (kind != monoid::multiply) return product;
    for (std::int64_t k = 1; k < n; ++k) product = gspmd::elementwise("multiply", copies{product, x}, at);
    return product;
  }

  [[nodiscard]] static std::vector<std::pair<int, int>> border_order(const value_states& s, const std::vector<int>& added) {
    std::vector<std::pair<int, int>> list;  // axis, dim; -1: it splits no dim
    for (const auto& [axis, dim] : s.order)
      if (std::find(added.begin(), added.end(), axis) != added.end()) list.emplace_back(axis, dim);
    for (const int a : added)
      if (std::none_of(list.begin(), list.end(), [&](const auto& l) { return l.first == a; })) list.emplace_back(a, -1);
    return list;
  }
  value entering(value x, std::size_t k, const value_states& s, const std::vector<int>& added, gspmd::location at) {
    for (const auto& [axis, dim] : border_order(s, added)) {
      const auto& is = s.on[static_cast<std::size_t>(axis)];
      if (dim >= 0) x = part(x, dim, coordinate(k, axis), size(axis), at);
      else if (is.is == state::partial && coordinate(k, axis) != 0) x = neutral(x, is.reduced_by, at);
    }
    return x;
  }
  value leaving(const copies& x, std::size_t k, const value_states& s, const std::vector<std::pair<int, int>>& order,
                std::size_t done, gspmd::location at) {
    if (done == order.size()) return x[k];
    const auto [axis, dim] = order[done];
    const auto& is = s.on[static_cast<std::size_t>(axis)];
    copies parts;
    for (std::int64_t c = 0; c < (dim >= 0 || is.is == state::partial ? size(axis) : 1); ++c)
      parts.push_back(leaving(x, moved(k, axis, c), s, order, done + 1, at));
    if (parts.size() == 1) return parts[0];
    return dim >= 0 ? gspmd::concatenate(parts, dim, at) : folded(parts, is.reduced_by, at);
  }

  gspmd::dynamic::builder& b_;
  gspmd::dynamic::mesh mesh_;
  std::vector<int> axes_;  // the local axes, in the order of the mesh; devices are numbered row-major over them
  std::size_t count_ = 1;
  std::vector<std::size_t> active_{0};
};

}  // namespace plan_tool
