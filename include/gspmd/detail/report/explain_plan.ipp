// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/report/excess.hpp"
#include "gspmd/detail/report/explain_plan.hpp"
#include "gspmd/detail/report/scope_names.hpp"
#include "gspmd/detail/report/text_table.hpp"
#include "gspmd/plan/budget.hpp"

namespace gspmd::detail {

/// Returns `1.234 ms`.
[[gnu::cold]] inline std::string time_text(std::int64_t picoseconds) {
  const std::int64_t unit = picoseconds >= 1'000'000'000 ? 1'000'000'000 : 1'000'000;
  const std::string thousandths = std::to_string(picoseconds % unit / (unit / 1000) + 1000);
  return std::to_string(picoseconds / unit) + '.' + thousandths.substr(1) + (unit > 1'000'000 ? " ms" : " us");
}

class plan_explainer {
 public:
  plan_explainer(const plan_view& plan, const mesh_info& mesh, const explained_part& part = {})
      : plan_(plan), mesh_(mesh), part_(part), scopes_(plan, part.scope) {
    sends_.resize(plan.nodes.size(), false);
    for (const auto& s : plan.steps)
      if (communicates(s)) sends_[static_cast<std::size_t>(s.node)] = true;
    all_bytes_ = count_traffic(plan).bytes;
    int loops = 0;
    for (const auto& s : plan.steps)
      loop_.push_back(facts_of(s).role == step_role::fuses_operators && !is_rim(plan, s) ? ++loops : 0);
  }

  [[nodiscard, gnu::cold]] std::string text() const { return heading() + rows() + bill(); }

 private:
  /// Returns true if a node is inside the part, whether or not it communicates.
  [[nodiscard, gnu::cold]] bool is_inside(int i) const {
    if (!scopes_.is_shown(i)) return false;
    if (!part_.has_lines()) return true;
    for (; i >= 0; i = plan_.nodes[static_cast<std::size_t>(i)].region)
      if (part_.holds(plan_.nodes[static_cast<std::size_t>(i)].at)) return true;
    return false;
  }
  [[nodiscard, gnu::cold]] traffic_count count(const collective_filter& which = {}) const {
    return fold_over_run(plan_, traffic_count{}, [&](traffic_count& total, const plan_step& s) {
      if (which.holds(s) && is_inside(s.node)) total.add(sent_by(s), s.times);
    });
  }

  [[gnu::cold]] static std::string str(const detail::text& t) { return std::string(t.view()); }
  [[gnu::cold]] static std::string bytes(std::int64_t n) { return std::to_string(n) + (n == 1 ? " byte" : " bytes"); }
  [[gnu::cold]] static std::string times_text(std::int64_t n) {
    if (n == unknown_trips) return "while its condition holds; costs are those of one trip";
    return std::to_string(n) + (n == 1 ? " time" : " times");
  }
  /// Returns the indentation of a row: two spaces for each loop or conditional around it.
  [[nodiscard, gnu::cold]] std::string indent(int region) const {
    std::string t;
    for (; region >= 0; region = plan_.nodes[static_cast<std::size_t>(region)].region) t += "  ";
    return t;
  }
  /// Returns the name of a value: the number of the last node before `user` that has it as a result.
  [[nodiscard, gnu::cold]] std::string called(int value, int user) const {
    const int node = node_called(value, user);
    if (node < 0) return "a loop-carried value";  // has no row
    if (!is_listed(node)) not_listed_.insert(node);
    return '#' + std::to_string(node);
  }
  [[nodiscard, gnu::cold]] int node_called(int value, int user) const {
    int node = plan_.value(value).node;
    for (int i = node + 1; i < user; ++i)
      if (plan_.nodes[static_cast<std::size_t>(i)].value == value) node = i;
    return plan_.nodes[static_cast<std::size_t>(node)].value < 0 ? -1 : node;
  }
  /// Returns true if a node has a row.
  [[nodiscard, gnu::cold]] bool is_listed(int i) const {
    return plan_.nodes[static_cast<std::size_t>(i)].value >= 0 && is_inside(i) &&
           (!part_.collectives_only || sends_[static_cast<std::size_t>(i)]);
  }
  [[nodiscard, gnu::cold]] bool is_costly(const plan_step& s) const {
    return s.bytes_sent > 0 && saturating_multiply(s.bytes_sent, s.times) >= (all_bytes_ + 3) / 4;
  }
  /// Adds a line about a movement. `>` marks a line that sends. In colours it is yellow, or red if it sends at least a
  /// quarter of all bytes.
  [[gnu::cold]] void add_line(text_table& table, const plan_step& s, const std::string& words) const {
    any_message_ = any_message_ || communicates(s);
    const std::string t = (communicates(s) ? "   > " : "   - ") + words;
    const char* const code = !part_.colours ? nullptr : !communicates(s) ? "\033[2m" : is_costly(s) ? "\033[1;31m" : "\033[33m";
    table.add({code == nullptr ? t : code + t + "\033[0m"});
  }

  [[nodiscard, gnu::cold]] std::string heading() const {
    std::string t = "mesh";
    if (mesh_.views.empty()) {
      for (int a = 0; a < mesh_.shape.axis_count(); ++a)
        t += (a > 0 ? ", " : " ") + std::string(mesh_.name(a)) + '=' + std::to_string(mesh_.shape.sizes[a]);
    } else {
      t += ' ' + str(named_sizes_text(mesh_));
    }
    const auto devices = mesh_.shape.device_count();
    return t + ": " + std::to_string(devices) + (devices == 1 ? " device\n\n" : " devices\n\n");
  }

  [[nodiscard, gnu::cold]] std::string operator_text(const planned_node& n, const planned_value& v) const {
    if (words_of(n.op).made == origin::given) return str(graph::input_text(n.at));
    std::string t = name_of(n.op);
    if (n.op == opcode::loop) t += " (" + times_text(plan_.steps[static_cast<std::size_t>(v.step)].trips) + ')';
    if (v.step >= 0) {
      const plan_step own = own_step(v);
      words_of(n.op).describe(t, plan_, &own);
    } else {
      words_of(n.op).describe(t, plan_, nullptr);
    }
    if (v.step < 0 && n.moved_dim >= 0)
      t += "(dim " + std::to_string(n.moved_dim) + ", read at " + (n.moved_by > 0 ? "+" : "") + std::to_string(n.moved_by) + ')';
    if (n.gradient_of == nullptr) return t;
    constexpr std::size_t longest = 27;  // rows fit 120 columns
    const std::string named = (n.gradient_of == t ? "" : t + ", ") + "gradient of " + n.gradient_of;
    return named.size() <= longest ? named : t + " (gradient)";
  }
  /// Returns the step of the operator whose result is `v`. If a loop computes `v` by a reduction, the returned step
  /// describes that reduction. If the result is bf16 or f16, a separate loop rounds it. Then the operator's step is an
  /// earlier step, whose result is the wide value that this loop reads.
  [[nodiscard, gnu::cold]] plan_step own_step(const planned_value& v) const {
    plan_step s = plan_.steps[static_cast<std::size_t>(v.step)];
    const auto* const group = description_by<kernels::fused>(plan_, s);
    if (group == nullptr) return s;
    for (int i = group->reductions.begin; i < group->reductions.begin + group->reductions.count; ++i) {
      const auto& f = table_of<loop_reduction>(plan_)[static_cast<std::size_t>(i)];
      const planned_value& made = plan_.result(s, f.slot);
      if (&made != &v && (made.whole < 0 || &plan_.value(made.whole) != &v)) continue;
      s.kernel = id_of<kernels::reduce>;
      s.spec = f.reduction;
      return s;
    }
    for (int k = 0; k < s.operands.count; ++k)
      if (const planned_value& wide = plan_.operand(s, k); wide.node == v.node && wide.step >= 0 && wide.step < v.step)
        return own_step(wide);
    return s;
  }
  /// Returns the number of the loop that computes a value, or `-` if the value has no work of its own and is read in
  /// place.
  [[nodiscard, gnu::cold]] std::string loop_text(const planned_node& n, const planned_value& v) const {
    if (words_of(n.op).made == origin::given) return {};
    if (v.step < 0 || words_of(n.op).made == origin::renamed) return "-";
    const auto& step = plan_.steps[static_cast<std::size_t>(v.step)];
    if (words_of(n.op).runs == realisation::alias && !is_moved(step, v)) return "-";
    if (is_region(n.op)) return {};
    const int loop = loop_[static_cast<std::size_t>(v.step)];
    return loop > 0 ? std::to_string(loop) : std::string();
  }
  /// Returns true if a movement has replaced the operator whose result is `v`.
  [[nodiscard]] bool is_moved(const plan_step& s, const planned_value& v) const {
    return is_mapped(s) && map_of(plan_, s).reshapes && &plan_.result(s) == &v;
  }
  [[nodiscard, gnu::cold]] std::string sharding_of(const planned_value& v) const {
    return str(sharding_text(mesh_, v.layout, v.global.count));
  }
  /// Returns the row that names output `k`: the last node that has it as a result.
  [[nodiscard]] int node_of_output(std::size_t k) const {
    const int v = plan_.outputs[k];
    for (std::size_t i = plan_.nodes.size(); i-- > 0;)
      if (plan_.nodes[i].value == v) return static_cast<int>(i);
    return plan_.value(v).node;
  }

  [[nodiscard, gnu::cold]] std::string rows() const {
    text_table table;
    table.align_right(0);
    std::vector<std::string> head{"#", "operator", "line", "type", "global shape", "loop", "local shape", "sharding"};
    if (!scopes_.empty()) head.insert(head.begin() + 3, "scope");
    table.align_right(scopes_.empty() ? 5 : 6);
    table.add(std::move(head));
    bool any_loop = false;
    bool any_in_place = false, any_uneven = false, any_partial = false, any_split = false;
    for (int i = 0; i < static_cast<int>(plan_.nodes.size()); ++i) {
      const auto& n = plan_.nodes[static_cast<std::size_t>(i)];
      if (!is_listed(i)) continue;
      const auto& v = plan_.value(n.value);
      std::string layout = sharding_of(v) + (v.is_padded ? " uneven" : "");
      any_uneven = any_uneven || v.is_padded;
      any_partial = any_partial || v.layout.partial != 0;
      any_split = any_split || v.layout.splits.count > 0;
      for (std::size_t k = 0; k < plan_.outputs.size(); ++k)
        if (node_of_output(k) == i) layout += "  -> output " + std::to_string(k);
      const auto place =
          n.at.is_input() ? std::string() : std::string(graph::base_name(n.at.file)) + ':' + std::to_string(n.at.line);
      const auto loop = loop_text(n, v);
      any_in_place = any_in_place || loop == "-";
      any_loop = any_loop || (!loop.empty() && loop != "-");
      std::vector<std::string> row{std::to_string(i),
                                   indent(n.region) + operator_text(n, v),
                                   place,
                                   name_of(v.type),
                                   str(shape_text(v.global)),
                                   loop,
                                   str(shape_text(v.local)),
                                   layout};
      if (!scopes_.empty()) row.insert(row.begin() + 3, scopes_.path(n.scope));
      table.add(std::move(row));
      add_communication(i, table);
    }
    std::string t = table.str();
    if (!not_listed_.empty()) t += "\nin other parts of the program:\n";
    for (const int i : not_listed_) {
      const auto& n = plan_.nodes[static_cast<std::size_t>(i)];
      const auto& v = plan_.value(n.value);
      t += '#' + std::to_string(i) + "  " + operator_text(n, v) + "  " + name_of(v.type) + ' ' + str(shape_text(v.global)) +
           "  " + sharding_of(v) + '\n';
    }
    if (any_split || any_partial || any_loop || any_in_place || any_message_) t += '\n';
    const std::string axis = mesh_.names.count > 0 ? std::string(mesh_.name(mesh_.names.count - 1)) : std::string();
    if (any_split) t += "`[" + axis + ", _]`: dim 0 is split over the mesh axis " + axis + ", dim 1 is not split\n";
    if (any_partial) t += "`partial(" + axis + ": add)`: the sum over the devices along " + axis + " is the value\n";
    if (any_uneven) t += "`uneven`: the last shards have padding\n";
    if (any_loop) t += "operators with the same number under `loop` are fused into one loop\n";
    if (any_in_place) t += "`-` under `loop`: no work of its own, it is read where it is used\n";
    if (any_message_) t += "`>`: communication; `#7`: the value of row 7\n";
    for (const auto& line : excess_lines(
             plan_, [this](int value, int user) { return called(value, user); }, number_form::exact))
      t += line + '\n';
    return t;
  }

  /// Adds the movements and reductions that node `i` causes.
  [[gnu::cold]] void add_communication(int i, text_table& table) const {
    for (const auto& s : plan_.steps) {
      const auto work = facts_of(s).work;
      if (s.node == i && work == step_work::computes_while_moving) add_line(table, s, window_text(s));
      if (s.node != i || work != step_work::moves) continue;
      const auto& from = plan_.operand(s, 0);
      const auto& to = plan_.result(s);
      const auto name = called(plan_.slots[static_cast<std::size_t>(s.operands.begin)], i);
      const std::string repeated = s.times != 1 ? ", " + times_text(s.times) : std::string();
      std::string t;
      if (s.results.count > 1 && !is_mapped(s)) {
        add_line(table, s,
                 name_of(s.collective) + std::string(" over ") + str(axes_text(mesh_, s.axes)) + " of " + operands_text(s) +
                     ", in one message: sends " + bytes(s.bytes_sent) + repeated);
        continue;
      }
      if (is_mapped(s)) {
        if (communicates(s))
          add_line(table, s,
                   name_of(s.collective) + std::string(" over ") + str(axes_text(mesh_, s.axes)) + " of the boundaries of " +
                       operands_text(s) + ": sends " + bytes(s.bytes_sent) + repeated + overlap_text(s));
        continue;
      }
      if (from.layout == to.layout) {
        add_line(table, s, "copy of " + name + " to the memory of the output");
        continue;
      }
      const bool sends = communicates(s);
      t += sends ? name_of(s.collective) + std::string(" over ") + str(axes_text(mesh_, s.axes)) : std::string("slice");
      t += " of " + name + (from.order.empty() ? ": " : ", transposed on the way: ") + sharding_of(from) + " -> " +
           sharding_of(to);
      t += sends ? ", sends " + bytes(s.bytes_sent) + repeated : ", sends nothing";
      add_line(table, s, t);
      if (!s.forced) continue;
      const auto& of = plan_.nodes[static_cast<std::size_t>(i)].op;
      const bool is_for_reader = words_of(of).made == origin::renamed;  // for an operator that renames its operand, in a
                                                                        // program with explicit axes
      table.add({"       forced: " + std::string(is_for_reader ? "a user" : name_of(of)) + " cannot work on this split of " +
                 name + ", so the value is gathered"});
    }
  }

  /// Returns the text about the loop that is computed concurrently with a movement.
  [[nodiscard, gnu::cold]] std::string overlap_text(const plan_step& s) const {
    if (s.target < 0) return {};
    for (int i = s.target; i-- > 0;)
      if (is_inner_part(plan_, plan_.steps[static_cast<std::size_t>(i)]))
        return ", while loop " + std::to_string(loop_[static_cast<std::size_t>(i)]) + " computes its interior";
    return {};
  }

  /// Returns the text about an operand whose shards rotate around the ring.
  [[nodiscard, gnu::cold]] std::string window_text(const plan_step& s) const {
    const auto& w = planned_ring_of(plan_, s);
    const auto n = ring_of(plan_, s).size(mesh_.shape);
    const auto& shard = plan_.operand(s, w.operand);
    std::string t = "collective_permute over " + str(axes_text(mesh_, s.axes)) + " of " +
                    called(plan_.slots[static_cast<std::size_t>(s.operands.begin + w.operand)], s.node) + ": " +
                    sharding_of(shard) + ", shard by shard, not gathered: " + times_text(ring_rounds(n, w.both_ways).ahead) +
                    " round the ring" + (w.both_ways ? ", both ways" : "") + ", sends " + bytes(s.bytes_sent);
    if (s.times != 1) t += ", " + times_text(s.times);
    return t;
  }

  /// Returns the operands of a step, each once, for example `#1, #2 and #5`.
  [[nodiscard, gnu::cold]] std::string operands_text(const plan_step& s) const {
    std::vector<std::string> names;
    for (int k = 0; k < s.operands.count; ++k) {
      names.push_back(called(plan_.slots[static_cast<std::size_t>(s.operands.begin + k)], s.node));
      for (std::size_t other = 0; other + 1 < names.size(); ++other)
        if (names[other] == names.back()) {
          names.pop_back();
          break;
        }
    }
    std::string t;
    for (std::size_t k = 0; k < names.size(); ++k) t += (k == 0 ? "" : k + 1 < names.size() ? ", " : " and ") + names[k];
    return t;
  }

  [[nodiscard, gnu::cold]] std::string bill() const {
    text_table table;
    table.align_right(1);
    table.add({part_.is_any() ? "\none device sends for these operators" : "\none device sends"});
    const auto total = count();
    for (int k = 0; k <= static_cast<int>(collective_kind::collective_permute); ++k) {
      const auto kind = static_cast<collective_kind>(k);
      const auto part = count(of_kind(kind));
      if (part.collectives > 0) table.add({"  in " + std::to_string(part.collectives) + ' ' + name_of(kind), bytes(part.bytes)});
    }
    const auto add_over = [&](std::string_view name, axis_mask axes) {
      if (const auto sent = count(over_axes(axes)).bytes; sent > 0) table.add({"  over " + std::string(name), bytes(sent)});
    };
    if (mesh_.views.empty())
      for (int a = 0; a < mesh_.shape.axis_count(); ++a) add_over(mesh_.name(a), axis_bit(a));
    else mesh_.for_each_named([&](std::string_view name, axis_mask axes, std::int64_t) { add_over(name, axes); });
    table.add({"  in total", bytes(total.bytes)});
    table.add({"", std::to_string(total.messages) + (total.messages == 1 ? " message" : " messages")});
    table.add({"one device computes"});
    std::int64_t flops = total_flops(plan_);
    if (part_.is_any()) {
      flops = 0;
      for (std::size_t i = 0; i < plan_.nodes.size(); ++i)
        if (is_inside(static_cast<int>(i))) flops = saturating_add(flops, plan_.nodes[i].flops);
    }
    table.add({"  in total", std::to_string(flops) + (flops == 1 ? " flop" : " flops")});
    if (part_.is_any()) return table.str();
    const auto sum = [&](auto& list) {
      std::int64_t n = 0;
      for (const int v : list) n += elements(plan_.value(v).local) * bytes_of(plan_.value(v).type);
      return n;
    };
    table.add({"one device holds"});
    table.add({"  inputs", bytes(sum(plan_.inputs))});
    table.add({"  outputs", bytes(sum(plan_.outputs))});
    table.add({"  arena", bytes(plan_.arena_bytes)});
    table.add({"  in total", bytes(peak_bytes(plan_))});
    if (plan_.times.least >= 0)
      table.add({"one step takes " + time_text(plan_.times.plan) + "; no plan over these shardings takes less than " +
                 time_text(plan_.times.least)});
    return table.str();
  }

  const plan_view& plan_;
  const mesh_info& mesh_;
  explained_part part_;
  scope_names scopes_;
  std::vector<bool> sends_;           // by node: it causes communication
  std::vector<int> loop_;             // by step: the number of the loop, from 1; 0: no loop
  std::int64_t all_bytes_ = 0;        // sent by a device
  mutable std::set<int> not_listed_;  // nodes without a row that a line refers to
  mutable bool any_message_ = false;
};

template <class Once>
[[gnu::cold]] std::string explain_plan(const plan_view& plan, const mesh_info& mesh, const explained_part& part) {
  return plan_explainer(plan, mesh, part).text();
}
GSPMD_COMPILED_ONCE(std::string explain_plan<once>(const plan_view&, const mesh_info&, const explained_part&));

}  // namespace gspmd::detail
