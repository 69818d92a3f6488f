// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <time.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/detail/support/planning_work.hpp"
#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/dynamic/builder.hpp"
#include "gspmd/report/network.hpp"
#include "gspmd/search/detail/input_groups.hpp"
#include "gspmd/search/detail/input_layout.hpp"
#include "gspmd/search/detail/plan_price.hpp"
#include "gspmd/search/detail/planned_layouts.hpp"

/// Plans of one program with different annotations, and their prices.
namespace gspmd::detail {

inline plan_price price_of(const dynamic::program& p, const network& net) {
  return price_of(p.view(), p.mesh_info(), rates_on(net, p.mesh_info()));
}

/// The remaining budget of a search. It counts plans and work, so that every run finds the same result. A time limit is
/// optional.
class search_budget {
 public:
  search_budget(int plans, std::int64_t work, std::optional<double> seconds, std::function<void(int)> report)
      : most_(plans),
        work_(work),
        first_work_(planning_work::done),
        last_work_(saturating_add(planning_work::done, work)),
        seconds_(seconds),
        report_(std::move(report)),
        begin_(now()) {}

  /// Uses one plan of the budget. Returns false if the budget is spent.
  bool take() {
    if (is_spent()) return false;
    ++made_;
    if (report_) report_(made_);
    return true;
  }
  [[nodiscard]] bool is_spent() {
    if (seconds_ && !is_late_) is_late_ = now() - begin_ > *seconds_;
    return is_late_ || made_ >= most_now_ || planning_work::done > last_work_;
  }
  /// Allows all remaining plans and all remaining work.
  void allow_all() {
    most_now_ = most_;
    last_work_ = saturating_add(first_work_, work_);
  }
  /// Allows one of `parts` equal parts of the remaining plans among the first `plans`, and of their work.
  void allow_part(int plans, int parts) {
    const auto done = planning_work::done, left = work_ / most_ * plans - (done - first_work_);
    most_now_ = made_ + (plans - made_) / parts;
    last_work_ = saturating_add(done, (left > 0 ? left : 0) / parts);
  }
  [[nodiscard]] int made() const { return made_; }
  [[nodiscard]] int most() const { return most_; }

 private:
  /// Returns the processor time of this thread in seconds. It does not include other work on the machine.
  static double now() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
  int most_, most_now_ = 0, made_ = 0;
  std::int64_t work_, first_work_, last_work_;
  std::optional<double> seconds_;
  bool is_late_ = false;
  std::function<void(int)> report_;
  double begin_;
};

/// Plans a program on one mesh with annotations of its inputs, and stores the prices.
class priced_plans {
 public:
  priced_plans(const dynamic::builder& program, const network& net, search_budget& budget)
      : program_(program),
        mesh_(program.mesh()),
        net_(net),
        most_memory_(mesh_.info().request.most_memory),
        budget_(budget),
        trials_(most_memory_) {}

  [[nodiscard]] const dynamic::mesh& mesh() const { return mesh_; }
  [[nodiscard]] std::int64_t most_memory() const { return most_memory_; }
  [[nodiscard]] const mesh_shape& shape() const { return mesh_.info().shape; }

  [[nodiscard]] static constexpr bool is_waiting() { return false; }

  /// Returns the price of the program with these annotations. Returns nothing if the program is refused or the budget
  /// is spent.
  std::optional<plan_price> of(const constant_vector<input_group>& groups, const group_layouts& layouts) {
    const auto key = key_of(groups, layouts);
    if (const auto it = known_.find(key); it != known_.end()) return it->second;
    if (!budget_.take()) return {};
    auto& price = known_[key];
    try {
      price = priced(annotated(groups, layouts));
    } catch (const error& e) {
      if (planning_work::is_exceeded()) throw;
      if (refused_.empty()) refused_ = e.text();
    }
    return price;
  }
  /// Returns the price if it has been computed already.
  [[nodiscard]] std::optional<plan_price> known(const constant_vector<input_group>& groups, const group_layouts& layouts) const {
    const auto it = known_.find(key_of(groups, layouts));
    return it == known_.end() ? std::nullopt : it->second;
  }
  /// Returns the program with these annotations, as it is planned.
  [[nodiscard]] graph annotated(const constant_vector<input_group>& groups, const group_layouts& layouts) const {
    graph g = program_.graph();
    for (std::size_t k = 0; k < groups.size(); ++k)
      for (const int i : groups[k].members) {
        node& n = g.nodes[static_cast<std::size_t>(g.inputs[i])];
        n.annotated = !layouts[k].empty();
        if (n.annotated) n.annotation = annotation(sharding_of(layouts[k]));
      }
    return dynamic::builder::canonical_graph(g);
  }
  /// fastest() returns the fastest plan regardless of memory; planned() returns the plan within the memory of a device.
  [[nodiscard]] dynamic::program fastest(const graph& g) const {
    return {mesh_.with({.memory = most_bytes}), g, program_.functions()};
  }
  [[nodiscard]] dynamic::program planned(const graph& g) const { return {mesh_, g, program_.functions()}; }
  /// Returns the planner's shardings of the inputs, by group, for these annotations. Returns nothing if the program is
  /// refused or if the planner cuts an axis, because inputs may be sharded along a part of this axis.
  [[nodiscard]] std::optional<group_layouts> lies(const constant_vector<input_group>& groups,
                                                  const group_layouts& layouts) const {
    try {
      const auto p = planned(annotated(groups, layouts));
      if (p.mesh_info().shape.axis_count() != shape().axis_count()) return {};
      return planned_layouts(p.view(), shape(), groups, layouts);
    } catch (const error&) {
      if (planning_work::is_exceeded()) throw;
      return {};
    }
  }
  /// Returns the error of the first program that was refused.
  [[nodiscard]] const std::string& refused() const { return refused_; }
  /// Returns the error of the program that holds the least memory among the programs that do not fit.
  [[nodiscard]] const std::string& too_large() const { return too_large_; }

 private:
  [[nodiscard]] static std::string key_of(const constant_vector<input_group>& groups, const group_layouts& layouts) {
    std::map<int, const input_layout*> by_input;
    for (std::size_t k = 0; k < groups.size(); ++k)
      for (const int i : groups[k].members) by_input[i] = &layouts[k];
    std::string key;
    for (const auto& [input, l] : by_input) {
      for (const int d : l->dims) key += static_cast<char>('0' + d);
      key += l->from_last ? '<' : '>';
    }
    return key;
  }
  /// Returns the price of the fastest plan or, if that does not fit, of the plan within the memory.
  plan_price priced(const graph& g) {
    const auto p = fastest(g);
    auto price = price_of(p, net_);
    const auto inputs = bytes_of_inputs(p.view());
    if (trials_.is_worth_trying(price, inputs)) {
      try {
        price = price_of(planned(g), net_);
      } catch (const error& e) {
        if (planning_work::is_exceeded()) throw;
        if (trials_.failed(price, inputs)) too_large_ = e.text();
      }
    }
    trials_.add(price);
    return price;
  }
  const dynamic::builder& program_;
  dynamic::mesh mesh_;
  const network& net_;
  std::int64_t most_memory_;
  search_budget& budget_;
  memory_trials trials_;
  std::map<std::string, std::optional<plan_price>> known_;
  std::string refused_, too_large_;
};

}  // namespace gspmd::detail
