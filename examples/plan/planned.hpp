// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "build.hpp"

/// A document with its plan, in the document's words.
namespace plan_tool {

inline const char* name_in_document(ir::opcode op) { return op == ir::code_of<ir::roll_op> ? "rotate" : ir::name_of(op); }

/// One line of the program that every device runs.
struct instruction {
  std::string kind;  // the operator, the collective, `all_slice` (a device keeps a part of what it holds) or `copy`
  int value = 0;     // the value that is computed or moved
  int sake = 0;      // the value for whose sake it is moved; itself where it is computed
  bool communicates = false;
  ir::axis_mask axes = 0;
  int dim = -1;  // the dim that is gathered or scattered, where it is one
  std::int64_t bytes = 0;
  ir::sharding from, to;  // of what is moved
  bool moves = false;
  bool is_halo = false;  // what lies across the boundaries of shards
  bool forced = false;
  bool joined = false;        // goes in the message of the all_reduce before it
  int loop = 0;               // operators with the same number are one loop; 0: none
  std::vector<int> operands;  // local values
  int result = -1;            // local value
};

struct planned_program {
  built_program built;
  std::vector<ir::split_origin> origins;
  std::vector<ir::sharding> completed;  // by node
  ir::local_program local;
  std::optional<gspmd::dynamic::program> program;
  std::vector<instruction> instructions;

  [[nodiscard]] const ir::mesh_info& mesh() const { return built.mesh_info(); }
  [[nodiscard]] const ir::plan_view& view() const { return program->view(); }
  [[nodiscard]] const named_value& value(int v) const { return built.values[static_cast<std::size_t>(v)]; }
  [[nodiscard]] int tag_of(int node) const { return built.graph.nodes[static_cast<std::size_t>(node)].tag; }
  [[nodiscard]] int tag_of_local(int local_value) const { return tag_of(local.value(local_value).node); }

  /// The number of the value with this name; -1.
  [[nodiscard]] int find(std::string_view name) const {
    for (std::size_t i = 0; i < built.values.size(); ++i)
      if (built.values[i].name == name) return static_cast<int>(i);
    return -1;
  }
  /// The sharding a value has: an input as it is given, an output as it is left in the end, others as their operator leaves
  /// them. Axes of size 1, which the planner drops, stand where the user wrote them.
  [[nodiscard]] ir::sharding sharding_of(int v) const {
    const auto node = static_cast<std::size_t>(value(v).node);
    const ir::sharding* s = &completed[node];
    if (local.results[node] >= 0) s = &local.value(local.results[node]).layout;
    for (std::size_t k = 0; k < built.outputs.size() && !value(v).is_input; ++k)
      if (built.outputs[k] == v) s = &local.value(local.outputs[k]).layout;
    const auto& n = built.graph.nodes[node];
    if (!n.annotated) return *s;
    ir::sharding written = n.annotation;
    written.splits.clear();
    for (const auto& use : n.annotation.splits)
      if (mesh().shape.sizes[use.axis] > 1) written.splits.push_back(use);
    if (!(written.splits == s->splits)) return *s;
    ir::sharding result = *s;
    result.splits = n.annotation.splits;
    return result;
  }
};

/// Lists the local program in the order of the plan's steps. Operators of one loop stand one after the other; what takes no
/// step of its own (constants, iotas, broadcasts, reshapes) stands before the first that reads it.
class instruction_lister {
 public:
  explicit instruction_lister(planned_program& p)
      : p_(p), maker_(p.local.values.size(), -1), done_(p.local.values.size(), false) {
    for (std::size_t i = 0; i < p.local.ops.size(); ++i) maker_[at(p.local.ops[i].result)] = static_cast<int>(i);
  }

  void run() {
    const auto& view = p_.view();
    std::vector<std::vector<int>> computed(view.steps.size());
    for (std::size_t v = 0; v < p_.local.values.size(); ++v)
      if (view.values[v].step >= 0) computed[at(view.values[v].step)].push_back(static_cast<int>(v));
    int loops = 0;
    for (std::size_t i = 0; i < view.steps.size(); ++i) {
      const auto& s = view.steps[i];
      loop_ = s.what == ir::action::fused ? ++loops : 0;
      for (const int v : computed[i]) list(v);
      loop_ = 0;
      if (computed[i].empty() && s.what == ir::action::move && !ir::is_mapped(s)) list_copy(view.slots[at(s.operands.begin)]);
    }
    for (const int v : p_.local.outputs) list(v);
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  void list(int v) {
    // Explicit stack: a chain of operators may be as long as the document.
    std::vector<std::pair<int, int>> path{{v, 0}};
    while (!path.empty()) {
      const auto [value, next] = path.back();
      const int made_by = maker_[at(value)];
      if (made_by < 0 || done_[at(value)]) {
        path.pop_back();
        continue;
      }
      const auto& op = p_.local.ops[at(made_by)];
      if (next < op.operands.count) {
        ++path.back().second;
        path.emplace_back(op.operands[next], 0);
        continue;
      }
      done_[at(value)] = true;
      add(op);
      path.pop_back();
    }
  }

  void add(const ir::local_op& op) {
    instruction i;
    const auto& result = p_.local.value(op.result);
    i.result = op.result;
    for (const int o : op.operands) i.operands.push_back(o);
    i.value = p_.tag_of_local(op.result);
    i.sake = p_.tag_of(op.node);
    if (op.what == ir::local_kind::compute) {
      if (op.axes != 0) add_halo(op);
      i.kind = name_of_operator(op.node);
      i.loop = p_.view().values[at(op.result)].step >= 0 ? loop_ : 0;
    } else {
      const auto& from = p_.local.value(op.operands[0]);
      i.moves = true;
      i.from = from.layout;
      i.to = result.layout;
      i.forced = op.forced;
      i.joined = op.joined;
      i.communicates = op.what != ir::local_kind::slice;
      i.kind = i.communicates ? ir::name_of(op.collective) : "all_slice";
      i.axes = i.communicates ? op.axes : 0;
      i.bytes = ir::bytes_of(p_.mesh().shape, p_.local, op);
      const bool has_dim =
          op.collective == ir::collective_kind::all_gather || op.collective == ir::collective_kind::reduce_scatter;
      if (i.communicates && has_dim) i.dim = changed_dim(from, result.layout);
    }
    p_.instructions.push_back(std::move(i));
  }

  /// What a shift gets from other devices before it does the rest by itself.
  void add_halo(const ir::local_op& op) {
    instruction i;
    i.kind = ir::name_of(op.collective);
    i.value = p_.tag_of_local(op.operands[0]);
    i.sake = p_.tag_of(op.node);
    i.operands.push_back(op.operands[0]);
    i.communicates = i.moves = i.is_halo = true;
    i.axes = op.axes;
    i.from = i.to = p_.local.value(op.operands[0]).layout;
    i.bytes = ir::bytes_of(p_.mesh().shape, p_.local, op);
    p_.instructions.push_back(std::move(i));
  }

  void list_copy(int from) {
    if (at(from) >= p_.local.values.size()) return;
    list(from);
    instruction i;
    i.kind = "copy";
    i.value = i.sake = p_.tag_of_local(from);
    i.operands.push_back(from);
    p_.instructions.push_back(std::move(i));
  }

  /// The only dim that is split otherwise before than after; -1 if there are several.
  static int changed_dim(const ir::local_value& from, const ir::sharding& to) {
    int dim = -1;
    for (int d = 0; d < from.global.count; ++d) {
      if (from.layout.axes_of(d) == to.axes_of(d)) continue;
      if (dim >= 0) return -1;
      dim = d;
    }
    return dim;
  }

  [[nodiscard]] std::string name_of_operator(int node) const {
    const auto op = p_.built.graph.nodes[at(node)].op;
    return ir::is_compare(op) ? "compare" : name_in_document(op);
  }

  planned_program& p_;
  std::vector<int> maker_;  // by local value: the op; -1: an input
  std::vector<bool> done_;  // by local value
  int loop_ = 0;
};

/// Completes, partitions and schedules. Throws gspmd::error where the library refuses the program.
inline planned_program make_planned(built_program built) {
  planned_program p;
  p.built = std::move(built);
  while (ir::may_cut_axes(p.built.graph.nodes)) {  // as dynamic::program does it
    const auto cut = ir::find_cut(p.built.graph, ir::complete_graph(p.built.graph, p.built.mesh_info().shape));
    if (cut.axis < 0) break;
    p.built.mesh = p.built.mesh->with_cut(cut);
    ir::cut_axis(p.built.graph, p.built.mesh_info(), cut.axis);
  }
  const auto& mesh = p.built.mesh_info().shape;
  ir::completion completion(p.built.graph, mesh, &p.origins);
  completion.run();
  p.completed = std::move(completion.shardings);
  p.local = ir::partition_graph(p.built.graph, mesh, p.completed);
  p.program.emplace(*p.built.mesh, p.built.graph);
  instruction_lister(p).run();
  return p;
}

/// The document planned; empty if it is refused, and `errors` says why.
inline std::optional<planned_program> plan_document(const json& document, devices on, error_list& errors) {
  auto built = program_builder(document, on, errors).build();
  if (!built) return {};
  try {
    return make_planned(std::move(*built));
  } catch (const std::exception& e) {
    errors.add("", e.what());
    return {};
  }
}

}  // namespace plan_tool
