// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "gspmd/detail/support/sort_in_order.hpp"
#include "gspmd/detail/support/text.hpp"
#include "gspmd/search/detail/input_groups.hpp"
#include "gspmd/search/detail/input_layout.hpp"
#include "gspmd/search/detail/plan_price.hpp"
#include "gspmd/search/detail/planned_layouts.hpp"

namespace gspmd::detail {

/// Searches annotations of the inputs of a program on one mesh.
///
///   1. starts       no annotations; all replicated; all split; each input along dim 0, the other inputs replicated
///                   (data) or split (FSDP)
///   2. groups       for one group at a time, the largest first, tries each annotation; then exchanges two axes;
///                   repeats this while the price improves
///   3. pairs        changes two groups at a time, along one axis
///   4. every other  splits a group into every other member, for example two layers of one shape, one split by columns
///                   and one by rows
///
/// With a larger budget the search continues from the same result, because earlier prices are known.
///
/// `Plans` provides prices. `of(groups, layouts)` is the price of a program with these annotations, or nothing if the
/// program is refused or the budget is spent. `known` is the price if it has been computed already. `lies` returns the
/// shardings that the planner chooses for the inputs of a program with these annotations. `shape` is the mesh. If
/// `is_waiting`, all further results of the search are ignored.
template <class Plans>
class input_search {
 public:
  static constexpr std::size_t usual_descents = 6;  // of a search on one mesh

  struct start {
    text name;
    group_layouts layouts;
    std::optional<plan_price> price;
  };
  struct found_layouts {
    constant_vector<input_group> groups;
    group_layouts layouts;
    plan_price price;
  };

  constexpr input_search(constant_vector<input_group> groups, Plans& plans) : first_{std::move(groups), {}, {}}, plans_(plans) {}

  /// Runs until the search ends or the budget is spent. Descends from at most `most_descents` starts.
  constexpr void run(std::size_t most_descents) {
    begin();
    if (plans_.is_waiting()) return;
    constant_vector<const start*> order;
    for (const auto& s : starts_)
      if (s.price) order.push_back(&s);
    sort_in_order(order, [](const start* a, const start* b) { return *a->price < *b->price; });
    if (order.size() > most_descents) order.resize(most_descents);
    for (const auto* s : order) {
      found_layouts f{first_.groups, s->layouts, *s->price};
      descend(f);
      keep(f);
    }
    if (!best_) return;
    found_layouts f = *best_;
    while (improve_pair(f) || improve_every_other(f)) descend(f);
    keep(f);
  }
  /// Annotates the remaining inputs with the shardings that the planner chose, if the price does not increase.
  constexpr void say_explicitly() {
    if (best_) write_found(*best_);
  }

  [[nodiscard]] constexpr const constant_vector<start>& starts() const { return starts_; }
  [[nodiscard]] constexpr const std::optional<found_layouts>& best() const { return best_; }

  /// Returns the cheapest other annotation of group k that was tried while all other groups had the annotations of the
  /// best plan.
  [[nodiscard]] constexpr std::optional<std::pair<input_layout, plan_price>> next_best(std::size_t k) const {
    std::optional<std::pair<input_layout, plan_price>> found;
    auto layouts = best_->layouts;
    for (const auto& l : candidates(plans_.shape(), best_->groups[k].shape, best_->layouts[k])) {
      layouts[k] = l;
      const auto price = l == best_->layouts[k] || l.empty() ? std::nullopt : plans_.known(best_->groups, layouts);
      if (price && (!found || *price < found->second)) found = {l, *price};
    }
    return found;
  }

 private:
  constexpr void keep(const found_layouts& f) {
    if (!best_ || f.price < best_->price) best_ = f;
  }
  /// Adds a start. The returned reference is valid until the next call.
  constexpr const start& add_start(const text& name, group_layouts layouts) {
    for (const auto& s : starts_)
      if (s.layouts == layouts) return s;
    starts_.push_back({name, std::move(layouts), {}});
    auto& s = starts_.back();
    if (!plans_.is_waiting()) s.price = plans_.of(first_.groups, s.layouts);
    return s;
  }
  [[nodiscard]] constexpr input_layout replicated() const { return input_layout(plans_.shape().axis_count(), -1); }

  constexpr void begin() {
    starts_.clear();
    const auto& groups = first_.groups;
    const auto n = groups.size();
    add_start("nothing annotated", group_layouts(n));
    if (n == 0) return;
    add_start("all replicated", group_layouts(n, replicated()));
    group_layouts all_split;
    for (const auto& g : groups) all_split.push_back(split_over_all(plans_.shape(), g.shape));
    add_start("all split over all devices", all_split);
    // The batch is the input that gives the fastest step when it is split along dim 0.
    std::optional<std::pair<std::size_t, plan_price>> batch;
    for (std::size_t k = 0; k < n && k < most_batches; ++k) {
      const auto rows = split_over_all(plans_.shape(), groups[k].shape, 0);
      if (rows == replicated()) continue;
      group_layouts layouts(n, replicated());
      layouts[k] = rows;
      const auto& s = add_start(input_name(k) << " along dim 0, all else replicated", std::move(layouts));
      if (s.price && (!batch || *s.price < batch->second)) batch = {k, *s.price};
    }
    if (!batch) return;
    const auto b = batch->first;
    auto fsdp = all_split;
    fsdp[b] = split_over_all(plans_.shape(), groups[b].shape, 0);
    add_start(input_name(b) << " along dim 0, all else split over all devices", std::move(fsdp));
    for (const auto& l : candidates(plans_.shape(), groups[b].shape, {})) {
      if (l.empty()) continue;
      group_layouts layouts(n);
      layouts[b] = l;
      add_start("", layouts);
    }
  }
  [[nodiscard]] constexpr text input_name(std::size_t k) const { return text("input ") << first_.groups[k].members.front(); }

  /// Improves one group at a time, then exchanges two axes. Repeats this while the price improves.
  constexpr void descend(found_layouts& f) {
    for (bool is_better = true; is_better;) {
      is_better = false;
      for (std::size_t k = 0; k < f.groups.size(); ++k) {
        if (plans_.is_waiting()) return;
        auto layouts = f.layouts;
        for (auto& l : candidates(plans_.shape(), f.groups[k].shape, f.layouts[k])) {
          layouts[k] = std::move(l);
          is_better = take_if_better(f, f.groups, layouts) || is_better;
        }
      }
      is_better = exchange_axes(f) || is_better;
    }
  }
  /// Exchanges two axes in all groups.
  constexpr bool exchange_axes(found_layouts& f) {
    const int axes = plans_.shape().axis_count();
    for (int a = 0; a < axes; ++a)
      for (int b = a + 1; b < axes; ++b) {
        auto layouts = f.layouts;
        bool cuts = true;
        for (std::size_t k = 0; k < layouts.size(); ++k) {
          if (layouts[k].empty()) continue;
          std::swap(layouts[k][a], layouts[k][b]);
          layouts[k].from_last = layouts[k].has_order() && !layouts[k].from_last;
          cuts = cuts && each_axis_cuts(plans_.shape(), f.groups[k].shape, layouts[k]);
        }
        if (cuts && take_if_better(f, f.groups, layouts)) return true;
      }
    return false;
  }
  /// Changes two groups together, along one axis.
  constexpr bool improve_pair(found_layouts& f) {
    for (std::size_t i = 0; i < f.groups.size(); ++i)
      for (std::size_t j = i + 1; j < f.groups.size(); ++j)
        if (improve_two(f, f.groups, f.layouts, i, j)) return true;
    return false;
  }
  /// Makes every other member of a group a group of its own.
  constexpr bool improve_every_other(found_layouts& f) {
    for (std::size_t k = 0; k < f.groups.size(); ++k) {
      if (f.groups[k].members.size() < 2 || plans_.is_waiting()) continue;
      auto groups = f.groups;
      groups.push_back(groups[k]);
      for (auto* half : {&groups[k], &groups.back()}) half->members.clear();
      for (std::size_t m = 0; m < f.groups[k].members.size(); ++m)
        (m % 2 == 0 ? groups[k] : groups.back()).members.push_back(f.groups[k].members[m]);
      auto layouts = f.layouts;
      layouts.push_back(layouts[k]);
      if (improve_two(f, groups, layouts, k, groups.size() - 1)) return true;
    }
    return false;
  }
  constexpr bool improve_two(found_layouts& f, constant_vector<input_group> groups, group_layouts now, std::size_t i,
                             std::size_t j) {
    bool is_better = false;
    for (int a = 0; a < plans_.shape().axis_count(); ++a)
      for (int d = -1; d < groups[i].shape.count && plans_.shape().sizes[a] > 1; ++d)
        for (int e = -1; e < groups[j].shape.count && !plans_.is_waiting(); ++e) {
          auto layouts = now;
          for (const auto& [k, dim] : {std::pair(i, d), std::pair(j, e)}) {
            if (layouts[k].empty()) layouts[k] = replicated();
            layouts[k][a] = dim;
            layouts[k].from_last = layouts[k].from_last && layouts[k].has_order();
          }
          if (each_axis_cuts(plans_.shape(), groups[i].shape, layouts[i]) &&
              each_axis_cuts(plans_.shape(), groups[j].shape, layouts[j]))
            is_better = take_if_better(f, groups, layouts) || is_better;
        }
    return is_better;
  }
  constexpr bool take_if_better(found_layouts& f, const constant_vector<input_group>& groups, const group_layouts& layouts) {
    const auto price = plans_.of(groups, layouts);
    if (!price || !(*price < f.price)) return false;
    f = {constant_vector<input_group>(groups), group_layouts(layouts), *price};
    return true;
  }
  constexpr void write_found(found_layouts& f) {
    if (std::none_of(f.layouts.begin(), f.layouts.end(), [](const auto& l) { return l.empty(); })) return;
    const auto layouts = plans_.lies(f.groups, f.layouts);
    if (!layouts) return;
    const auto price = plans_.of(f.groups, *layouts);
    if (price && !(f.price < *price)) f = {f.groups, *layouts, *price};
  }

  static constexpr std::size_t most_batches = 8;
  found_layouts first_;  // its groups
  Plans& plans_;
  constant_vector<start> starts_;
  std::optional<found_layouts> best_;
};

}  // namespace gspmd::detail
