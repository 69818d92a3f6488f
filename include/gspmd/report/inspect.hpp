// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/passes/complete/complete.hpp"
#include "gspmd/detail/passes/list/pass_list.hpp"
#include "gspmd/detail/report/scope_names.hpp"
#include "gspmd/dynamic/builder.hpp"
#include "gspmd/dynamic/placed_tensor.hpp"
#include "gspmd/dynamic/program.hpp"

/// The result of each stage of the planner, for tools that display it: the sharding of every value with its origin, and
/// the program that every device runs. Values are identified by the labels of builder::label.
namespace gspmd::dynamic {

/// A value of the program that every device runs: the result of a labelled operator, with one sharding.
struct device_value {
  int label = -1;  // -1: made by the library, or no label
  placed_tensor tensor;
};

/// An instruction of the program that every device runs.
struct instruction {
  std::string kind;           // operator, collective, `all_slice` (keeps a part of the data), `copy`, or `end`
                              // of the body that the labelled operator began
  int label = -1;             // of the value that is computed or moved
  int sake = -1;              // of the value that needs the movement; of the value itself if it is computed
  std::vector<int> operands;  // indices of device values
  int result = -1;            // index of a device value
  bool moves = false;         // changes the sharding from that of the operand to that of the result
  bool communicates = false;
  bool is_halo = false;                // sends for the next instruction, which has the result: elements across shard boundaries,
  bool is_inside = false;              // or intermediate values inside that operator
  bool forced = false;                 // a gather that the operator needs because it cannot work on the split
  bool joined = false;                 // is sent in the message of the previous collective
  std::string axes{};                  // of the communication: "data,model"
  int dim = -1;                        // the gathered or scattered dim, if it is a single one
  std::int64_t bytes = 0;              // sent by each device
  int loop = 0;                        // operators with the same number are one fused loop; 0: no loop
  std::vector<int> further_results{};  // device values, of an operator with several results (sort, eigh)
};

/// The origin of a split: an annotation, and the operators through which it was propagated.
struct split_way {
  struct hop {
    enum class direction : std::uint8_t { forward, back, across };  // to the result, to an operand, from one operand to another
    direction to;
    std::string op;
    int label;  // of the operator's result
  };
  int annotated = -1;     // label of the annotated value
  std::vector<hop> hops;  // from the annotation to the value
};

/// The shardings that completion finds for the values of a program that is still being built.
///
/// **Example.**
///
///     const auto s = completion_of(b).of(x);
class completion_of {
 public:
  explicit completion_of(const builder& b) : mesh_(b.mesh()), canonical_of_(b.graph().nodes.size(), -1) {
    detail::graph g = b.graph();
    for (std::size_t i = 0; i < g.nodes.size(); ++i) g.nodes[i].tag = static_cast<int>(i);
    graph_ = detail::canonical_order(g);
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i)
      canonical_of_[static_cast<std::size_t>(graph_.nodes[i].tag)] = static_cast<int>(i);
    for (const auto& also : graph_.also_tagged) canonical_of_[static_cast<std::size_t>(also.tag)] = also.node;
    completed_ = detail::result_at_run_time<detail::complete_pass>(graph_, mesh_.info().shape, mesh_.info().request).of;
  }
  /// Returns the sharding of a value, or nothing if no output needs it.
  [[nodiscard]] std::optional<placed_tensor> of(value x) const {
    const int i = canonical_of_[static_cast<std::size_t>(x.id())];
    if (i < 0) return {};
    const auto& n = graph_.nodes[static_cast<std::size_t>(i)];
    return placed_tensor(mesh_.shared_info(), n.type, n.shape, completed_[static_cast<std::size_t>(i)]);
  }

 private:
  dynamic::mesh mesh_;
  detail::graph graph_;
  std::vector<int> canonical_of_;  // by node of the builder
  detail::vec<detail::sharding> completed_;
};

/// A compiled program with the results of all passes. The object is independent of the builder.
///
/// **Example.**
///
///     b.label(7);  ...  const inspection p(b);  p.find(7)->text()   p.instructions()   p.program().traffic().bytes
class inspection {
 public:
  /// Compiles the program of the builder. Throws gspmd::error as builder::compile does.
  explicit inspection(const builder& b) : inspection(b.mesh(), b.canonical_graph(), b.functions()) { written_ = b.graph(); }

  [[nodiscard]] const dynamic::program& program() const { return program_; }
  /// Returns the mesh of the plan, with axes cut if reshapes needed it.
  [[nodiscard]] const dynamic::mesh& mesh() const { return mesh_; }
  [[nodiscard]] const std::vector<instruction>& instructions() const { return instructions_; }
  /// Return the device values that instructions refer to, and the indices of the inputs and of the outputs among them.
  [[nodiscard]] const std::vector<device_value>& values() const { return values_; }
  [[nodiscard]] std::vector<int> inputs() const { return {local_.inputs.begin(), local_.inputs.end()}; }
  [[nodiscard]] std::vector<int> outputs() const { return {local_.outputs.begin(), local_.outputs.end()}; }

  /// Returns all passes, in the order of execution for programs of all modes, with their results for this program.
  [[nodiscard]] std::vector<pass_made> passes() const {
    return detail::list_of_passes(written_, graph_, mesh_.info().shape, request());
  }

  /// Returns the sharding of a value: for an input at the start, for an output at the end, and for another value as its
  /// operator computes it. If the operator and its users are one movement, it is the sharding that the operator would
  /// compute. Axes of size 1 are listed as in the annotation. Returns nothing if no output needs the value.
  [[nodiscard]] std::optional<placed_tensor> find(int label) const {
    if (const int i = node_of(label); i >= 0)
      return placed_tensor(mesh_.shared_info(), node(i).type, node(i).shape, sharding_of(i));
    const auto it = unmade_.find(label);
    if (it == unmade_.end()) return {};
    const auto& c = graph_.composed[at(it->second.composed)];
    return placed_tensor(mesh_.shared_info(), c.type, c.shape, sharding_of(it->second.reader));
  }
  /// Returns the label of a user of a value that is not materialised, because its operator and its users are one
  /// movement. Returns -1 if the value is materialised.
  [[nodiscard]] int moved_with(int label) const {
    const auto it = unmade_.find(label);
    return it == unmade_.end() ? -1 : node(it->second.reader).tag;
  }
  /// Returns the sharding from completion, which the planner may have replaced.
  [[nodiscard]] std::optional<placed_tensor> completed(int label) const {
    const int i = node_of(label);
    if (i < 0) return {};
    return placed_tensor(mesh_.shared_info(), node(i).type, node(i).shape,
                         program_.view().completed[static_cast<std::size_t>(i)]);
  }
  /// Returns true if the value is annotated and no dim is open.
  [[nodiscard]] bool is_fixed(int label) const {
    const int i = node_of(label);
    return i >= 0 && node(i).annotated && node(i).annotation.open == 0;
  }
  /// Returns the name of its operator. An annotation on a result is a `reshard` after it. Throws gspmd::error if no
  /// output needs the value.
  [[nodiscard]] std::string operator_of(int label) const {
    if (node_of(label) < 0) throw error("no output needs the value with the label " + std::to_string(label));
    return detail::name_of(node(node_of(label)).op);
  }
  /// Returns the path of the scope for each label whose operator has a scope: `layer[3]/attention`, see `named`.
  [[nodiscard]] std::map<int, std::string> scopes() const { return scope_texts(&detail::scope_names::path); }
  /// Returns for the same labels the common name of all calls of the scope: `layer/attention`.
  [[nodiscard]] std::map<int, std::string> common_scopes() const { return scope_texts(&detail::scope_names::name); }
  /// Returns the labels of the values in scopes whose path ends with `scope`. Throws gspmd::error if no scope matches.
  [[nodiscard]] std::vector<int> labels_in(std::string_view scope) const {
    const detail::scope_names names(program_.view(), scope);
    std::vector<int> found;
    for (const auto& [label, i] : nodes_)
      if (names.is_shown(i)) found.push_back(label);
    return found;
  }
  /// Returns the index in values() of its operator's result, or -1 if it is not computed.
  [[nodiscard]] int result_of(int label) const {
    const int i = node_of(label);
    return i < 0 ? -1 : local_.results[static_cast<std::size_t>(i)];
  }
  /// Returns the origin of the split of a value along an axis of mesh().axes().
  [[nodiscard]] split_way way(int label, std::string_view axis) const {
    split_way result;
    int at = node_of(label);
    const int a = mesh_.info().find(axis);
    const auto leads_to = [&](const detail::split_origin& o) { return o.node == at && o.use.axis == a; };
    for (auto it = std::find_if(origins_.begin(), origins_.end(), leads_to); it != origins_.end();
         it = std::find_if(origins_.begin(), origins_.end(), leads_to)) {
      using direction = split_way::hop::direction;
      const auto to = it->from == it->via ? direction::back : it->node == it->via ? direction::forward : direction::across;
      if (node(it->from).tag != node(at).tag)  // an annotation on an operator's result is an identity node after it
        result.hops.insert(result.hops.begin(), {to, detail::name_of(node(it->via).op), node(it->via).tag});
      at = it->from;
    }
    result.annotated = at < 0 ? -1 : node(at).tag;
    return result;
  }

  /// The program as it was planned. node_of returns the node of a label in it, or -1.
  [[nodiscard]] const detail::graph& graph() const { return graph_; }
  /// The program as it was written.
  [[nodiscard]] const detail::graph& written() const { return written_; }
  /// Returns the requests to the planner, with the level of saving at which the plan fits into the memory of a device.
  [[nodiscard]] detail::plan_request request() const {
    auto asked = mesh_.info().request;
    asked.saving = program_.view().saving;
    return asked;
  }
  [[nodiscard]] int node_of(int label) const {
    const auto it = nodes_.find(label);
    return it == nodes_.end() ? -1 : it->second;
  }

 private:
  inspection(dynamic::mesh m, detail::graph g, std::shared_ptr<const detail::kept_functions> functions,
             std::optional<detail::graph> refined = {})
      : plan_(detail::planned(m, g, refined)),
        mesh_(std::move(m)),
        graph_(refined ? std::move(*refined) : std::move(g)),
        program_(mesh_, plan_, std::move(functions)) {
    for (int i = 0; i < static_cast<int>(graph_.nodes.size()); ++i) {  // of an operator its last node, of an input the input
      const auto [it, is_new] = nodes_.emplace(node(i).tag, i);
      if (!is_new && detail::facts_of(node(it->second).op).made != detail::origin::given) it->second = i;
    }
    nodes_.erase(-1);
    for (const auto& also : graph_.also_tagged) nodes_[also.tag] = also.node;
    list_unmade();
    for (std::size_t k = 0; k < graph_.outputs.size(); ++k) output_[node(graph_.outputs[k]).tag] = k;
    local_ = detail::result_at_run_time<detail::emit_pass>(graph_, mesh_.info().shape, request(), &origins_);
    for (const auto& v : local_.values)
      values_.push_back({node(v.node).tag, placed_tensor(mesh_.shared_info(), v.type, v.global, v.layout)});
    list_instructions();
  }
  /// Finds, for each value that is not materialised, the node that reads its operand instead. The user of this value
  /// may itself not be materialised.
  void list_unmade() {
    std::map<int, int> composed;  // by label
    for (int k = 0; k < static_cast<int>(graph_.composed.size()); ++k)
      if (node_of(graph_.composed[at(k)].tag) < 0) composed.emplace(graph_.composed[at(k)].tag, k);
    std::vector<int> labels;
    for (const auto& [label, k] : composed) {
      int last = label;
      for (; node_of(last) < 0 && unmade_.count(last) == 0; last = graph_.composed[at(composed.at(last))].reader)
        labels.push_back(last);
      const int reader = node_of(last) < 0 ? unmade_.at(last).reader : node_of(last);
      for (const int l : labels) unmade_[l] = {composed.at(l), reader};
      labels.clear();
    }
  }
  [[nodiscard]] detail::sharding sharding_of(int i) const {
    const auto& n = node(i);
    detail::sharding s = program_.view().completed[at(i)];
    if (const int v = local_.results[at(i)]; v >= 0) s = local_.value(v).layout;
    if (const auto it = output_.find(n.tag); it != output_.end() && detail::facts_of(n.op).made != detail::origin::given)
      s = local_.value(local_.outputs[it->second]).layout;
    detail::sharding written = s;
    written.splits.clear();
    for (const auto& use : n.annotation.layout.splits)
      if (mesh_.info().shape.sizes[use.axis] > 1) written.splits.push_back(use);
    if (n.annotated && written.splits == s.splits) s.splits = n.annotation.layout.splits;
    return s;
  }
  [[nodiscard]] std::map<int, std::string> scope_texts(const std::string& (detail::scope_names::*text)(int) const) const {
    const detail::scope_names names(program_.view());
    std::map<int, std::string> found;
    for (const auto& [label, i] : nodes_)
      if (node(i).scope >= 0) found.emplace(label, (names.*text)(node(i).scope));
    return found;
  }
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] const detail::node& node(int i) const { return graph_.nodes[at(i)]; }
  /// Returns the label of a value, or -1 for no value, as at the end of a body.
  [[nodiscard]] int label_of(int v) const { return v < 0 ? -1 : values_[at(v)].label; }

  // ---- instructions ----

  /// Lists the instructions in the order of the plan's steps. Operators of one loop follow each other. An operator
  /// without a step (constant, iota, broadcast, reshape) precedes its first user. A program with bodies is listed as it
  /// was written, because its carried values form a cycle.
  void list_instructions() {
    tiles_.find(graph_, mesh_.info().shape, local_);
    const auto& view = program_.view();
    std::vector<int> loop_of(view.steps.size(), 0);
    int loops = 0;
    for (std::size_t i = 0; i < view.steps.size(); ++i)
      if (detail::facts_of(view.steps[i]).role == detail::step_role::fuses_operators && !detail::is_rim(view, view.steps[i]))
        loop_of[i] = ++loops;
    const auto loop_with = [&](int v) {
      const int step = v < 0 ? -1 : view.values[at(v)].step;
      return step < 0 ? 0 : loop_of[at(step)];
    };
    if (graph_.has_regions) {
      for (const auto& op : local_.ops) add(op, loop_with(op.result));
      return;
    }
    listing l{std::vector<int>(values_.size(), -1), std::vector<bool>(values_.size(), false)};
    for (std::size_t i = 0; i < local_.ops.size(); ++i) l.maker[at(local_.ops[i].result)] = static_cast<int>(i);
    std::vector<std::vector<int>> computed(view.steps.size());
    for (std::size_t v = 0; v < values_.size(); ++v)
      if (view.values[v].step >= 0) computed[at(view.values[v].step)].push_back(static_cast<int>(v));
    for (std::size_t i = 0; i < view.steps.size(); ++i) {
      const auto& s = view.steps[i];
      l.loop = loop_of[i];
      for (const int v : computed[i]) list(l, v);
      l.loop = 0;
      if (computed[i].empty() && detail::facts_of(s).work == detail::step_work::moves && !detail::is_mapped(s)) {
        const int from = view.slots[at(s.operands.begin)];
        if (at(from) >= values_.size()) continue;
        list(l, from);
        instructions_.push_back({"copy", label_of(from), label_of(from), {from}});
      }
    }
    for (const int v : local_.outputs) list(l, v);
  }
  struct listing {
    std::vector<int> maker;  // by value: its operator; -1: an input
    std::vector<bool> done;  // by value
    int loop = 0;
  };
  /// Lists the operator that computes a value, after the operators of its operands.
  void list(listing& l, int target) {
    std::vector<std::pair<int, int>> path{{target, 0}};  // no recursion: a chain of operators may be as long as the program
    while (!path.empty()) {
      const auto [v, next] = path.back();
      const int made_by = l.maker[at(v)];
      if (made_by < 0 || l.done[at(v)]) {
        path.pop_back();
        continue;
      }
      const auto& op = local_.ops[at(made_by)];
      if (next < op.operands.count) {
        ++path.back().second;
        path.emplace_back(op.operands[next], 0);
        continue;
      }
      l.done[at(v)] = true;
      add(op, program_.view().values[at(v)].step >= 0 ? l.loop : 0);
      path.pop_back();
    }
  }
  void add(const detail::instruction& op, int loop) {
    using detail::instruction_kind;
    instruction i;
    i.result = op.result;
    i.operands.assign(op.operands.begin(), op.operands.end());
    i.further_results.assign(op.further_results.begin(), op.further_results.end());
    i.label = label_of(op.result);
    i.sake = node(op.node).tag;
    i.bytes = detail::bytes_of(mesh_.info().shape, local_, op);
    const auto axes = std::string(detail::axes_text(mesh_.info(), op.axes).view());
    if (op.what == instruction_kind::compute || op.what == instruction_kind::control || op.what == instruction_kind::copy) {
      i.kind = op.what == instruction_kind::copy ? "copy" : op.result < 0 ? "end" : detail::name_of(node(op.node).op);
      if (op.result < 0) i.label = i.sake;
      i.loop = loop;
      for (int k = 0; op.what == instruction_kind::compute && k < op.operands.count; ++k) add_tile(op, k);
      if (op.what == instruction_kind::compute) add_exchanges(op);
      if (op.result >= 0 && program_.view().values[at(op.result)].step < 0) {  // the first shift sends for several users
        i.bytes = 0;
        add_margins(op);
      } else if (op.axes != 0) {  // elements of other devices arrive first
        instruction halo{detail::name_of(op.collective), label_of(op.operands[0]), i.sake, {op.operands[0]}};
        halo.moves = halo.communicates = halo.is_halo = true;
        halo.axes = axes;
        halo.bytes = std::exchange(i.bytes, 0);
        instructions_.push_back(std::move(halo));
      }
    } else {
      i.moves = true;
      i.forced = op.forced;
      i.joined = op.joined;
      i.communicates = op.what == instruction_kind::move || op.what == instruction_kind::reduce;
      i.kind = i.communicates ? detail::name_of(op.collective) : op.what == instruction_kind::terms ? "terms" : "all_slice";
      if (i.communicates) i.axes = axes;
      const bool has_dim = op.collective == collective_kind::all_gather || op.collective == collective_kind::reduce_scatter;
      if (i.communicates && has_dim) i.dim = changed_dim(local_.value(op.operands[0]), local_.value(op.result).layout);
    }
    instructions_.push_back(std::move(i));
  }
  /// Adds the movement that fills the tile of operand k, unless an earlier operator reads the same tile.
  void add_tile(const detail::instruction& op, int k) {
    detail::shared_tile* const tile = tiles_.read_of(op.result, k);
    if (tile == nullptr || tile->value >= 0) return;
    tile->value = op.operands[k];  // marks the tile as listed
    const auto& from = local_.value(op.operands[k]);
    const auto traffic = detail::traffic_of_tiles(mesh_.info().shape, from.global, from.layout, tile->map);
    if (traffic.axes == 0) return;
    instruction halo{detail::name_of(detail::collective_kind::collective_permute),
                     label_of(op.operands[k]),
                     node(op.node).tag,
                     {op.operands[k]}};
    halo.moves = halo.communicates = halo.is_halo = true;
    halo.axes = std::string(detail::axes_text(mesh_.info(), traffic.axes).view());
    halo.bytes = traffic.elems() * detail::bytes_of(from.type);
    instructions_.push_back(std::move(halo));
  }
  /// Adds the halo exchange of a movement that loops read at an offset. Counts only halo buffers that no earlier
  /// movement has filled.
  void add_margins(const detail::instruction& op) {
    const auto& plan = program_.view();
    for (const auto& s : plan.steps) {
      if (s.node != op.node || !detail::is_mapped(s) || !communicates(s)) continue;
      instruction halo{detail::name_of(s.collective), label_of(op.operands[0]), node(op.node).tag, {}};
      for (int k = 0; k < s.operands.count; ++k) {  // several for one loop; no corner halo buffers
        const int v = plan.slots[at(s.operands.begin + k)];
        if (at(v) < values_.size() && std::find(halo.operands.begin(), halo.operands.end(), v) == halo.operands.end())
          halo.operands.push_back(v);
      }
      halo.moves = halo.communicates = halo.is_halo = true;
      halo.axes = std::string(detail::axes_text(mesh_.info(), s.axes).view());
      halo.bytes = s.bytes_sent;
      instructions_.push_back(std::move(halo));
    }
  }
  /// Adds the collectives of an operator on its own intermediate values. A transposing movement reads its operand in
  /// another order. This operand is not an intermediate value: the movement is listed already.
  void add_exchanges(const detail::instruction& op) {
    const auto& facts = facts_of(node(op.node).op);
    if (facts.tiles(node(op.node)) > 0 || facts.movements(node(op.node)) > 0) return;  // halo buffers: add_tile, halo
    const auto& plan = program_.view();
    if (exchanges_.empty()) {
      exchanges_.resize(graph_.nodes.size());
      for (const auto& s : plan.steps)
        if (s.operands.count == 1 && plan.operand(s, 0).order.empty() &&
            plan.slots[static_cast<std::size_t>(s.operands.begin)] >= static_cast<int>(local_.values.size()) && communicates(s))
          exchanges_[static_cast<std::size_t>(s.node)].push_back(&s);
    }
    for (const auto* s : exchanges_[static_cast<std::size_t>(op.node)]) {
      instruction sent{detail::name_of(s->collective), label_of(op.operands[0]), node(op.node).tag, {op.operands[0]}};
      sent.moves = sent.communicates = sent.is_halo = sent.is_inside = true;
      sent.axes = std::string(detail::axes_text(mesh_.info(), s->axes).view());
      sent.bytes = s->bytes_sent;
      instructions_.push_back(std::move(sent));
    }
  }
  /// Returns the only dim whose split changes, or -1 if several change.
  static int changed_dim(const detail::local_value& from, const detail::sharding& to) {
    int dim = -1;
    for (int d = 0; d < from.global.count; ++d) {
      if (from.layout.axes_of(d) == to.axes_of(d)) continue;
      if (dim >= 0) return -1;
      dim = d;
    }
    return dim;
  }

  detail::graph written_;
  std::shared_ptr<const detail::plan> plan_;
  dynamic::mesh mesh_;   // of the plan, with the axes that the plan cuts
  detail::graph graph_;  // canonical
  dynamic::program program_;
  std::map<int, int> nodes_;           // by label
  std::map<int, std::size_t> output_;  // output number by label
  struct unmade_value {
    int composed, reader;  // index in graph_.composed; the node that reads its operand
  };
  std::map<int, unmade_value> unmade_;  // by label: values that are not materialised, see compose_movements
  std::vector<detail::split_origin> origins_;
  detail::local_program local_;
  std::vector<device_value> values_;
  std::vector<instruction> instructions_;
  detail::tile_reads tiles_;
  std::vector<std::vector<const detail::plan_step*>> exchanges_;  // by node
};

}  // namespace gspmd::dynamic
