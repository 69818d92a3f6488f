// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gspmd/detail/support/positive_limit.hpp"
#include "gspmd/detail/support/sort_in_order.hpp"
#include "gspmd/dynamic/builder.hpp"
#include "gspmd/dynamic/mesh.hpp"
#include "gspmd/report/inspect.hpp"
#include "gspmd/report/network.hpp"
#include "gspmd/search/detail/input_groups.hpp"
#include "gspmd/search/detail/input_search.hpp"
#include "gspmd/search/detail/mesh_shapes.hpp"
#include "gspmd/search/detail/priced_plans.hpp"
#include "gspmd/search/detail/value_search.hpp"
#include "gspmd/search/found_annotations.hpp"

/// Finds annotations for a program with few or no annotations, by planning it many times.
namespace gspmd {
namespace dynamic {

/// The input and the limits of a search. A limit is a positive number: `find_annotations` throws gspmd::error for 0, a
/// negative number and NaN.
struct annotation_search {
  /// The candidates. The search returns the best mesh in this list; see meshes_of.
  std::vector<dynamic::mesh> meshes;
  /// The network for which programs are planned and estimated; default_network if left out.
  std::optional<network> connected{};
  /// The bytes that a device may hold. If left out, the limit of each mesh applies (`within`).
  std::optional<std::int64_t> memory_per_device{};
  /// The search makes at most this number of plans.
  int most_plans = 1000;
  /// The search ends after the plan that exceeds this number of units; planning_limit defines a unit.
  std::int64_t most_work = 50'000'000;
  /// The processor time of the search, in seconds. If left out, time is not limited. A search that time ends may find
  /// other annotations in another run.
  std::optional<double> most_seconds{};
  /// The search calls this function before each plan.
  std::function<void(const search_progress&)> report{};
};

/// Returns the meshes of `devices` devices with one, two and three axes, for annotation_search::meshes.
///
/// For each number of axes, there are at most 16 meshes, those with the most even axes first. Axes are named x, y and
/// z, or by `names`. If you pass names, 2x4 and 4x2 are two meshes, because axes may have different networks. A mesh
/// then has at most one axis for each name.
///
/// **Errors.** Throws gspmd::error if `devices` is not from 1 to 2^30, or if a name is invalid or two names are equal.
inline std::vector<mesh> meshes_of(std::int64_t devices, const std::vector<std::string>& names = {}) {
  if (devices < 1 || devices > mesh::most_devices) throw error("meshes_of: a mesh has 1 to 2^30 devices");
  const std::vector<std::string> called = names.empty() ? std::vector<std::string>{"x", "y", "z"} : names;
  std::vector<mesh> found;
  for (const auto& sizes : detail::mesh_shapes(devices, std::min(called.size(), std::size_t{3}), !names.empty(), 16)) {
    std::vector<mesh::axis> axes;
    for (std::size_t a = 0; a < sizes.size(); ++a) axes.push_back({called[a], sizes[a]});
    found.emplace_back(axes);
  }
  return found;
}

}  // namespace dynamic
namespace detail {

/// The search of `find_annotations`.
///  1. It searches on all meshes, with a part of the plans.
///  2. It searches further on the best meshes: at most three with a plan that fits, and at most three others.
///  3. It searches annotations of values on the best mesh.
class annotation_finder {
 public:
  annotation_finder(const std::function<dynamic::builder(const dynamic::mesh&)>& program, const dynamic::annotation_search& asked)
      : program_(program),
        asked_(asked),
        net_(asked.connected.value_or(default_network)),
        budget_(asked.most_plans, asked.most_work, asked.most_seconds, [this](int made) { report(made); }) {
    if (asked.meshes.empty()) throw error("find_annotations: give at least one mesh, as meshes_of(16) does");
    const auto check_limit = [](const char* name, auto value) {
      if (const auto why = why_refused(std::string("find_annotations: ") + name, value); !why.empty()) throw error(why);
    };
    check_limit("most_plans", asked.most_plans);
    check_limit("most_work", asked.most_work);
    if (asked.most_seconds) check_limit("most_seconds", *asked.most_seconds);
    if (asked.memory_per_device) check_limit("memory_per_device", *asked.memory_per_device);
    for (const auto& m : asked.meshes)
      if (!asked.connected && m.info().request.network.is_named)
        throw error("find_annotations: the mesh names a network; give it as `connected`");
  }

  [[nodiscard]] dynamic::found_annotations run() {
    for (const auto& m : asked_.meshes) add_mesh(m);
    const int all = budget_.most(), kept_for_values = all / 5;
    std::vector<one_mesh*> order;
    for (auto& m : meshes_) order.push_back(&m);
    if (order.size() > 1) search(order, (all - kept_for_values) / 2, 2);
    sort_in_order(order, [](const one_mesh* a, const one_mesh* b) { return is_better(*a, *b); });
    int fitting = 0, others = 0;  // a mesh without a fitting plan may still become the best
    std::erase_if(order, [&](const one_mesh* m) {
      const auto& best = m->search->best();
      return (best && best->price.fits ? ++fitting : ++others) > most_searched_further;
    });
    search(order, all - kept_for_values, input_search<priced_plans>::usual_descents);
    sort_in_order(order, [](const one_mesh* a, const one_mesh* b) { return is_better(*a, *b); });
    one_mesh& best = *order.front();
    check(best);
    budget_.allow_all();
    best.search->say_explicitly();
    return result(best);
  }

 private:
  struct one_mesh {
    dynamic::builder program;
    std::optional<priced_plans> plans;
    std::optional<input_search<priced_plans>> search;
    bool is_done = false;  // the search ended before its budget was spent
  };
  static constexpr int most_searched_further = 3;

  void add_mesh(const dynamic::mesh& given) {
    dynamic::mesh m = asked_.connected ? given.with({.network = *asked_.connected}) : given;
    if (asked_.memory_per_device) m = m.with({.memory = *asked_.memory_per_device});
    auto& one = meshes_.emplace_back(one_mesh{program_(m), {}, {}, false});
    const graph& g = one.program.graph();
    if (g.failed()) throw error(std::string(g.error.view()));
    if (g.states_communication())
      throw error(
          "find_annotations: the program writes its own communication, by types or manual regions; nothing is left to annotate");
    one.plans.emplace(one.program, net_, budget_);
    one.search.emplace(groups_of_inputs(g), *one.plans);
  }
  /// Searches on these meshes. Each mesh gets an equal part of the first `most` plans, and of their work.
  void search(const std::vector<one_mesh*>& on, int most, std::size_t descents) {
    for (std::size_t k = 0; k < on.size(); ++k) {
      now_ = on[k];
      budget_.allow_part(most, static_cast<int>(on.size() - k));
      on[k]->search->run(descents);
      on[k]->is_done = !budget_.is_spent();
    }
  }
  [[nodiscard]] static bool is_better(const one_mesh& a, const one_mesh& b) {
    const auto &x = a.search->best(), &y = b.search->best();
    return x && (!y || x->price < y->price);
  }
  void report(int made) const {
    if (asked_.report) asked_.report({made, asked_.most_plans, now_ == nullptr ? "" : text_of(now_->plans->mesh())});
  }
  static std::string text_of(const dynamic::mesh& m) {
    std::string t;
    for (const auto& a : m.axes()) t += (t.empty() ? "" : ", ") + a.name + '=' + std::to_string(a.size);
    return t;
  }
  /// Throws gspmd::error if no program was planned, or if no plan fits.
  static void check(const one_mesh& best) {
    const auto& found = best.search->best();
    if (!found && !best.plans->refused().empty()) throw error(best.plans->refused());
    if (!found)
      throw error(
          "find_annotations: most_seconds ended the search before its first plan; allow more, or leave it out for any time");
    if (found->price.fits) return;
    const auto p = best.plans->fastest(best.plans->annotated(found->groups, found->layouts));
    const auto& view = p.view();
    struct holder {
      std::int64_t bytes = 0, largest = 0;
      std::string name;
      void add(const planned_value& v, const std::string& of) {
        const auto own = elements(v.local) * bytes_of(v.type);
        bytes += own;
        if (own > largest) {
          largest = own;
          name = of + " of " + std::string(shape_text(v.global).view()) + ", and a device has " +
                 std::string(shape_text(v.local).view());
        }
      }
    } inputs, outputs;
    for (std::size_t k = 0; k < view.inputs.size(); ++k) inputs.add(view.value(view.inputs[k]), "input " + std::to_string(k));
    for (std::size_t k = 0; k < view.outputs.size(); ++k) outputs.add(view.value(view.outputs[k]), "output " + std::to_string(k));
    const auto part = [](const char* what, const holder& h) {
      return std::string(what) + ' ' + std::to_string(h.bytes) + " bytes" +
             (h.name.empty() ? "" : " (most of them " + h.name + ')');
    };
    throw error("find_annotations: no plan was found that fits into the " + std::to_string(best.plans->most_memory()) +
                " bytes of a device. The one that holds least, on the mesh " + text_of(best.plans->mesh()) + ", holds " +
                std::to_string(found->price.memory) + ": " + part("inputs", inputs) + ", " + part("outputs", outputs) +
                ", and intermediate values " + std::to_string(view.arena_bytes) + "; use more devices" +
                (best.plans->too_large().empty() ? "" : ". Saving memory, " + best.plans->too_large()));
  }

  [[nodiscard]] dynamic::found_annotations result(one_mesh& best) {
    const auto& found = *best.search->best();
    dynamic::found_annotations r{best.plans->mesh(), {}, {}, {}, 0, false};
    add_inputs(r, best);
    add_compared(r, best);
    graph& g = best.program.graph();
    for (std::size_t k = 0; k < found.groups.size(); ++k)
      for (const int i : found.groups[k].members) {
        node& n = g.nodes[static_cast<std::size_t>(g.inputs[i])];
        n.annotated = !found.layouts[k].empty();
        if (n.annotated) n.annotation = annotation(sharding_of(found.layouts[k]));
      }
    const dynamic::inspection planned(best.program);
    value_search values(planned, best.program.functions(), net_, budget_);
    for (auto& v : values.run())
      r.values.push_back({std::move(v.name), std::move(v.labels), std::move(v.dims), v.before.seconds()});
    if (!r.values.empty()) {
      r.compared.insert(r.compared.begin(), row(best, "found, with annotations of values", price_of(values.plan(), net_)));
    }
    r.plans = budget_.made();
    r.is_complete = best.is_done && !budget_.is_spent();
    return r;
  }
  static void add_inputs(dynamic::found_annotations& r, const one_mesh& best) {
    const auto& found = *best.search->best();
    const auto& mesh = best.plans->mesh().info();
    const graph& g = best.program.graph();
    for (std::size_t k = 0; k < found.groups.size(); ++k) {
      const auto& group = found.groups[k];
      const auto& first = g.nodes[static_cast<std::size_t>(g.inputs[group.members.front()])];
      dynamic::found_input i{{group.members.begin(), group.members.end()},
                             std::string(graph::input_text(first.at).view()),
                             group.type,
                             {},
                             !found.layouts[k].empty(),
                             {},
                             {}};
      for (const auto e : group.shape) i.shape.push_back(e);
      i.sharding = dims_of(mesh, sharding_of(found.layouts[k]), group.shape.count);
      if (const auto next = best.search->next_best(k))
        i.otherwise = std::string(sharding_text(mesh, sharding_of(next->first), group.shape.count).view()) +
                      (next->second.fits ? ": " + cost_report::time_text(next->second.seconds()) : ": does not fit");
      r.inputs.push_back(std::move(i));
    }
    std::sort(r.inputs.begin(), r.inputs.end(), [](const auto& a, const auto& b) { return a.inputs < b.inputs; });
  }
  static dynamic::compared_plan row(const one_mesh& m, const std::string& name, const plan_price& p) {
    return {text_of(m.plans->mesh()), name, p.seconds(), p.communication, p.bytes, p.memory, p.fits};
  }
  void add_compared(dynamic::found_annotations& r, const one_mesh& best) const {
    std::vector<std::pair<plan_price, dynamic::compared_plan>> rows;
    for (const auto& m : meshes_) {
      if (&m == &best || !m.search->best()) continue;
      const auto& price = m.search->best()->price;
      rows.emplace_back(price, row(m, "found", price));
    }
    for (const auto& s : best.search->starts())
      if (!s.name.empty() && s.price) rows.emplace_back(*s.price, row(best, std::string(s.name.view()), *s.price));
    sort_in_order(rows, [](const auto& a, const auto& b) { return a.first < b.first; });
    r.compared.push_back(row(best, "found", best.search->best()->price));
    for (auto& [price, one] : rows) r.compared.push_back(std::move(one));
  }

  const std::function<dynamic::builder(const dynamic::mesh&)>& program_;
  const dynamic::annotation_search& asked_;
  network net_;
  search_budget budget_;
  std::deque<one_mesh> meshes_;  // a deque, because plans and searches point to the elements
  const one_mesh* now_ = nullptr;
};

}  // namespace detail
namespace dynamic {

/// Searches annotations that make a step fast and fit into the memory of a device. The time is the planner's estimate
/// for a network.
///
/// It searches annotations of the inputs that have none. It also annotates a value if this makes the step 1% faster.
/// Existing annotations stay. Inputs of equal layers get one annotation: they have one type and shape, their names
/// differ only in numbers, and the same operators read them. `program` builds the program on a mesh:
///
///     const auto found = dynamic::find_annotations([](const dynamic::mesh& m) {
///       dynamic::builder b(m);
///       const value x = b.input(dynamic::input<float>({4096, 1024}));
///       const value w = b.input(dynamic::input<float>({1024, 1024}));
///       b.output(relu(einsum<"bd,df->bf">(x, w)));
///       return b;
///     }, {.meshes = dynamic::meshes_of(16), .memory_per_device = 8 * GiB});
///     std::puts(found.text().c_str());   // the lines to write, and the plans that were compared
///
/// The method is coordinate descent from several starts, with at most `most_plans` plans. It does not prove an optimum,
/// and it runs no plan. An output that becomes an input of the next step has the sharding of that input only if the
/// program states it (`update`, `carried`).
///
/// **Errors.** Throws gspmd::error:
///  - there is no mesh, or a mesh names a network and `connected` is left out
///  - a limit is not positive, or time ends the search before its first plan
///  - the program has a mistake, or writes its own communication
///  - no plan fits; the error states the smallest memory that was found, and the largest tensors in it
inline found_annotations find_annotations(const std::function<builder(const mesh&)>& program, const annotation_search& asked) {
  return detail::annotation_finder(program, asked).run();
}

}  // namespace dynamic
}  // namespace gspmd
