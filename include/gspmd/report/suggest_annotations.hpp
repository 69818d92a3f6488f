// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gspmd/detail/passes/list/make_plan.hpp"
#include "gspmd/detail/report/cost_report.hpp"
#include "gspmd/report/explain_sharding.hpp"
#include "gspmd/report/inspect.hpp"
#include "gspmd/report/network.hpp"
#include "gspmd/run/compile.hpp"

/// The most expensive collectives of a program, and annotations that avoid each: found by planning the program again.
namespace gspmd {

/// The language of the suggested annotations: C++, or the documents of gspmd-plan.
enum class annotation_form : std::uint8_t { cpp, document };

namespace detail {

/// Plans a program again with changed annotations that may cause a collective.
///
/// First the existing annotations of the operator, and of the values that it reads through operators without
/// annotation. Each annotation is omitted, replaced by the sharding that the collective makes, or loses the axes of the
/// collective. Then new annotations, of the operator's result and its operands: split differently along these axes.
class annotation_trials {
 public:
  /// `request`: the requests to the planner; `plan`: the plan that resulted.
  annotation_trials(const graph& g, const plan_view& plan, const mesh_info& mesh, const plan_request& request, const network& net,
                    annotation_form form = annotation_form::cpp)
      : graph_(g), plan_(plan), mesh_(mesh), request_(request), net_(net), form_(form), now_(price_of(plan)) {}

  /// Returns the annotations that avoid the collective, each with the time of the step, fastest first. Then returns the
  /// alternative ways to run the operator.
  [[nodiscard, gnu::cold]] std::vector<std::string> remarks(const plan_step& s) {
    auto text_lines = of(s);
    if (graph_.states_communication()) return text_lines;
    if (!why_) why_.emplace(graph_, mesh_, request_);
    for (auto& line : why_->cheapest(s.node, most_ways)) text_lines.push_back(std::move(line));
    return text_lines;
  }

  struct change {
    int node = 0;
    bool is_annotated = false;
    sharding lies;
    std::string text;
    bool is_new = false;  // an annotation for a value that has none
  };
  /// Returns new annotations for the operator's result and its operands.
  [[nodiscard, gnu::cold]] std::vector<change> unwritten(const plan_step& s) const {
    std::vector<change> changes;
    for (const int i : made_near(s.node)) add_annotations(i, s, changes);
    return changes;
  }

 private:
  /// Returns the lines about annotations. Example: "with split<_, _> for input 1 the step takes 0.020 us instead of
  /// 0.244 us and sends 0 bytes instead of 224". For a document: "with "sharding": [[],[]] in w1 the step takes ...".
  [[nodiscard, gnu::cold]] std::vector<std::string> of(const plan_step& s) {
    if (graph_.states_communication()) return {"the program says so itself"};
    std::vector<change> changes;
    for (const int i : annotated_near(s.node)) add_changes(i, s, changes);
    for (auto& c : unwritten(s)) changes.push_back(std::move(c));
    struct gain {
      price cost;
      const change* by = nullptr;
    };
    std::vector<gain> better;  // if times are equal: in the order of the changes
    std::size_t tried = 0;
    for (const auto& c : changes) {
      const auto found = price_with(c);
      if (!found) continue;
      ++tried;
      if (found->seconds < now_.seconds * (1 - 1e-9)) better.push_back({*found, &c});
    }
    std::sort(better.begin(), better.end(), [](const gain& x, const gain& y) {
      return x.cost.seconds != y.cost.seconds ? x.cost.seconds < y.cost.seconds : x.by < y.by;
    });
    std::vector<std::string> text_lines;
    std::vector<int> shown;  // of each node only the best
    bool is_new_shown = false;
    for (const auto& [cost, by] : better) {
      if (text_lines.size() >= most_shown && (is_new_shown || !by->is_new)) continue;  // shows at least one new annotation
      if (std::find(shown.begin(), shown.end(), by->node) != shown.end()) continue;
      is_new_shown = is_new_shown || by->is_new;
      shown.push_back(by->node);
      text_lines.push_back("with " + by->text + " the step takes " + cost_report::time_text(cost.seconds) + " instead of " +
                           cost_report::time_text(now_.seconds) + " and sends " + std::to_string(cost.bytes) +
                           " bytes instead of " + std::to_string(now_.bytes));
    }
    if (text_lines.empty())
      text_lines.push_back(tried == 0
                               ? "no annotation leads to it"
                               : "of " + std::to_string(tried) + (tried == 1 ? " other annotation" : " other annotations") +
                                     " near it none makes the step faster");
    return text_lines;
  }

  struct price {
    double seconds = 0;
    std::int64_t bytes = 0;
  };
  static constexpr std::size_t most_shown = 2, most_near = 6, most_walked = 64, most_trials = 48, least_trials = 4, most_ways = 3;
  static constexpr std::size_t most_planned = 80'000;  // operators in all trials: 1,680 operators (40 layers) take 20 ms

  [[nodiscard]] const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }
  /// Returns the dims as C++ has them: `"data", _`.
  [[nodiscard, gnu::cold]] std::string dims_text(const sharding& s, int rank) const {
    std::string dims;
    for (int d = 0; d < rank; ++d) {
      text axes;
      const bool is_split = write_dim(axes, mesh_, s, d);
      dims += (d > 0 ? ", " : "") + (is_split ? '"' + std::string(axes.view()) + '"' : std::string("_"));
    }
    return dims;
  }
  /// Returns the member of a document: `"sharding": [["data"],[]] in w1`. Null: `no "sharding" in w1`.
  [[nodiscard, gnu::cold]] std::string document_text(const node& n, const sharding* s) const {
    const std::string name = n.at.is_input() ? n.at.name() : n.at.file;
    if (s == nullptr) return "no \"sharding\" in " + name;
    std::string dims;
    for (int d = 0; d < n.shape.count; ++d) {
      text axes;
      dims += d > 0 ? "," : "";
      if (!write_dim(axes, mesh_, *s, d)) {
        dims += "[]";
        continue;
      }
      std::string list(axes.view());
      for (auto comma = list.find(','); comma != std::string::npos; comma = list.find(',', comma + 3))
        list.replace(comma, 1, "\",\"");
      dims += "[\"" + list + "\"]";
    }
    return "\"sharding\": [" + dims + "] in " + name;
  }
  /// Returns true if the user can annotate a node. In a document, an op has a name for its last node only. Loops and
  /// conditionals have no annotation.
  [[nodiscard, gnu::cold]] bool is_writable(int i) const {
    if (form_ == annotation_form::cpp) return true;
    if (is_region(at(i).op) || at(i).tag < 0) return false;
    for (int later = i + 1; later < static_cast<int>(graph_.nodes.size()); ++later)
      if (at(later).tag == at(i).tag && !at(later).annotated) return false;
    return true;
  }
  [[nodiscard, gnu::cold]] price price_of(const plan_view& p) const {
    return {estimate_plan(p, mesh_, net_).total(), traffic(p, mesh_).bytes};
  }

  /// Returns the nodes whose annotations affect an operator: annotations of its result, which are identity nodes after
  /// it, and annotations of the values that it depends on.
  [[nodiscard, gnu::cold]] std::vector<int> annotated_near(int i) const {
    std::vector<int> found, walk{i};
    for (int reader = i + 1; reader < static_cast<int>(graph_.nodes.size()) && found.size() < most_near / 2; ++reader)
      for (const int o : at(reader).operands)
        if (o == i && at(reader).annotated && (found.empty() || found.back() != reader)) found.push_back(reader);
    for (std::size_t k = 0; k < walk.size() && k < most_walked && found.size() < most_near; ++k) {
      const node& n = at(walk[k]);
      if (n.annotated) found.push_back(walk[k]);
      if (n.annotated && walk[k] != i) continue;
      for (const int o : n.operands)
        if (std::find(walk.begin(), walk.end(), o) == walk.end()) walk.push_back(o);
    }
    return found;
  }
  [[gnu::cold]] void add_changes(int i, const plan_step& s, std::vector<change>& changes) const {
    const node& n = at(i);
    const sharding written = n.annotation.layout.planned();
    if (!is_writable(i)) return;
    const std::string name(graph::place(n.at, name_of(n.op)).view());
    const auto add = [&](bool is_annotated, const sharding& lies) {
      std::string text = "split<" + dims_text(lies, n.shape.count) + (n.at.is_input() ? "> for " : "> in the ") + name;
      if (lies.partial != 0) text = name + " as " + std::string(sharding_text(mesh_, lies, n.shape.count).view());
      if (!is_annotated) text = "no annotation of " + name;
      if (form_ == annotation_form::document) text = document_text(n, is_annotated ? &lies : nullptr);
      for (const auto& c : changes)
        if (c.text == text) return;
      if (!is_annotated || lies != written) changes.push_back({i, is_annotated, lies, std::move(text)});
    };
    for (int k = 0; k < s.operands.count && k < s.results.count; ++k) {
      const auto& from = plan_.operand(s, k);
      const auto& to = plan_.result(s, k);
      if (from.global == n.shape && to.global == n.shape && to.layout.partial == 0 && from.layout == written)
        add(true, to.layout);
      if (from.global == n.shape && from.layout.partial == 0 && from.layout != written) add(true, from.layout);
    }
    sharding without = written;
    without.splits.clear();
    for (const auto& use : written.splits)
      if ((s.axes & axis_bit(use.axis)) == 0) without.splits.push_back(use);
    if (written.partial == 0) add(true, without);
    add(false, {});
  }

  /// Returns the operator and its computed operands, if they have no annotation.
  [[nodiscard, gnu::cold]] std::vector<int> made_near(int i) const {
    std::vector<int> found;
    const auto add = [&](int k) {
      const auto& n = at(k);
      if (!n.annotated && facts_of(n.op).made == origin::shards && plan_.nodes[static_cast<std::size_t>(k)].value >= 0 &&
          std::find(found.begin(), found.end(), k) == found.end())
        found.push_back(k);
    };
    add(i);
    for (const int o : at(i).operands) add(o);
    return found;
  }
  /// Adds annotations that the user has not written: each axis of the collective splits another dim of the value, or no
  /// dim. Example: a value of rank 2 that is sharded [data, _], and an all_gather over data: `replicate` and
  /// `reshard<split<_, "data">>`.
  [[gnu::cold]] void add_annotations(int i, const plan_step& s, std::vector<change>& changes) const {
    const node& n = at(i);
    const sharding lies = plan_.value(plan_.nodes[static_cast<std::size_t>(i)].value).layout;
    if (!is_writable(i)) return;
    const auto add = [&](const sharding& wanted) {
      const std::string call =
          wanted.splits.count == 0 ? "replicate" : "reshard<split<" + dims_text(wanted, n.shape.count) + ">>";
      changes.push_back({i, true, wanted,
                         form_ == annotation_form::document
                             ? document_text(n, &wanted)
                             : call + '(' + std::string(graph::place(n.at, name_of(n.op)).view()) + ')',
                         true});
    };
    for (int a = 0; a < mesh_.shape.axis_count(); ++a) {
      if ((s.axes & mesh_.shape.wide_axes() & axis_bit(a)) == 0) continue;
      sharding without;
      for (const auto& use : lies.splits)
        if (use.axis != a) without.splits.push_back(use);
      if (lies.split_axes() != without.split_axes()) add(without);
      for (int d = 0; d < n.shape.count; ++d) {
        sharding wanted = without;
        wanted.add_split(a, d);
        if (n.shape[d] > 1 && wanted.splits != lies.splits) add(wanted);
      }
    }
  }
  /// Returns the price of the program with a change. Returns nothing if the program is refused, or if the limit of
  /// trials is reached.
  [[nodiscard, gnu::cold]] std::optional<price> price_with(const change& c) {
    const auto [it, is_new] = known_.try_emplace(c.text);
    if (!is_new || known_.size() > most_trials_) return it->second;
    graph other = graph_;
    node& n = other.nodes[static_cast<std::size_t>(c.node)];
    n.annotated = c.is_annotated;
    const detail::axis_mask closed = n.annotation.closed;
    n.annotation = c.lies;
    n.annotation.closed = closed;
    const plan made = plan_at_run_time(other, mesh_.shape, request_);
    if (made.error.empty()) it->second = price_of(plan_view(made));
    return it->second;
  }

  const graph& graph_;
  const plan_view& plan_;
  const mesh_info& mesh_;
  plan_request request_;
  const network& net_;
  annotation_form form_;
  price now_;
  std::size_t most_trials_ = std::clamp(most_planned / (graph_.nodes.size() + 1), least_trials, most_trials);
  std::map<std::string, std::optional<price>> known_;
  std::optional<why_text> why_;
};

}  // namespace detail

/// Returns the collectives that take longest, as in `most_expensive_collectives`, and below each the annotations that
/// make the step faster.
///
/// The annotations are near the collective: existing annotations that are changed (`split<_, "data"> for input 1`) or
/// omitted, or new annotations (`reshard<split<"data", _>>(einsum at mlp.cpp:12)`). Each line has the seconds of the
/// step and the bytes that a device sends with this annotation. They are computed by planning the whole program again
/// for each annotation: at most 48 times, and fewer if the program has more than 1,600 operators.
///
/// Then follow the cheapest ways to run the operator that needs the collective, as in `explain_sharding`, with times on
/// the mesh's own network; `>` marks the chosen way. With a `scope` only that part of the program is reported. The
/// program does not run.
///
/// **Errors.** gspmd::error if the network does not describe an axis of the mesh, or if no scope has this name.
/// **Example.**
///
///     std::puts(suggest_annotations<step>(pod).c_str());
template <class Step>
std::string suggest_annotations(const network& net = default_network, std::size_t most = 10, std::string_view scope = {},
                                number_form form = number_form::rounded) {
  const detail::graph g = Step::planned_graph();
  detail::annotation_trials trials(g, Step::view, Step::mesh_type::info, Step::request(), net);
  return detail::cost_report(Step::view, Step::mesh_type::info, net, scope, form)
      .most_expensive(most, [&](const detail::plan_step& s) { return trials.remarks(s); });
}

namespace dynamic {

/// The same for a program that was compiled at run time, with its inspection. `annotations` is the language of the
/// suggestions.
///
/// **Example.**
///
///     std::puts(suggest_annotations(inspection(b), pod).c_str());
inline std::string suggest_annotations(const inspection& plan, const network& net = default_network, std::size_t most = 10,
                                       std::string_view scope = {}, annotation_form annotations = annotation_form::cpp,
                                       number_form form = number_form::rounded) {
  const auto& program = plan.program();
  const detail::plan_view& view = program.view();
  detail::annotation_trials trials(plan.graph(), view, program.mesh_info(), plan.request(), net, annotations);
  return detail::cost_report(view, program.mesh_info(), net, scope, form).most_expensive(most, [&](const detail::plan_step& s) {
    return trials.remarks(s);
  });
}

}  // namespace dynamic
}  // namespace gspmd
