// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "table.hpp"

/// Draws the program of every device as a graph for Graphviz, with a colour for each kind of collective.
namespace plan_tool {

inline std::string dot_text(std::string_view s) {
  std::string t = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\') t += '\\';
    t += c;
  }
  return t + '"';
}
inline const char* dot_colour(const std::string& kind) {
  static const std::map<std::string, const char*> colours = {{"all_reduce", "#f4a6a6"},
                                                             {"reduce_scatter", "#f7cf9e"},
                                                             {"all_gather", "#f5ee9e"},
                                                             {"all_to_all", "#b7d7f5"},
                                                             {"collective_permute", "#d9c2f0"}};
  const auto it = colours.find(kind);
  return it == colours.end() ? "#ffffff" : it->second;
}

/// The program of one device. The nodes of a scope are in a frame. Consecutive scopes with equal contents, such as the
/// layers of a network, are drawn once: their nodes are those of the first one, and an edge from one layer to the next
/// is dashed.
class dot_picture {
 public:
  dot_picture(const planned_program& p, gspmd::number_form form)
      : p_(p), form_(form), paths_(p.plan.scopes()), names_(p.plan.common_scopes()) {
    list_nodes();
    fold();
  }

  [[nodiscard]] std::string text() const {
    std::string t =
        "digraph plan {\n  graph [ranksep=0.15, nodesep=0.2, fontname=\"sans-serif\", fontsize=10];\n"
        "  node [shape=box, style=filled, fillcolor=\"#ffffff\", fontname=\"sans-serif\", fontsize=9, height=0.2, "
        "margin=\"0.08,0.03\"];\n";
    frame all;
    for (const auto& n : nodes_)
      if (drawn_as(n.id) == n.id) all.at(n.path).lines.push_back(n.id + " [" + n.look + "];");
    int count = 0;
    write(all, "", "  ", count, t);
    std::set<std::string> written;
    for (const auto& e : edges_) {
      const std::string from = drawn_as(e.from), to = drawn_as(e.to);
      const bool is_between = outer_of(e.from) != outer_of(e.to) && !outer_of(to).empty() && outer_of(from) == outer_of(to);
      const std::string line = "  " + from + " -> " + to + (is_between ? " [style=dashed, constraint=false]" : "") + ";\n";
      if (written.insert(line).second) t += line;
    }
    return t + "}\n";
  }

 private:
  struct node {
    std::string id, look;
    std::string path, name;  // of its scope
    std::string alike;       // equal for the same node of another layer
    bool is_input = false;
  };
  struct edge {
    std::string from, to;
  };
  /// A scope with its nodes and the scopes in it.
  struct frame {
    std::string name;
    std::vector<std::string> lines;
    std::vector<frame> inner;
    frame& at(std::string_view path) {
      if (path.empty()) return *this;
      const auto slash = path.find('/');
      const std::string own(path.substr(0, slash));
      auto it = std::find_if(inner.begin(), inner.end(), [&](const auto& f) { return f.name == own; });
      if (it == inner.end()) it = inner.insert(inner.end(), frame{own, {}, {}});
      return it->at(slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1));
    }
  };

  void write(const frame& f, const std::string& path, const std::string& indent, int& count, std::string& t) const {
    for (const auto& line : f.lines) t += indent + line + '\n';
    for (const auto& inside : f.inner) {
      const std::string inner_path = path.empty() ? inside.name : path + '/' + inside.name;
      const auto folded = last_of_.find(inner_path);
      t += indent + "subgraph cluster" + std::to_string(count++) + " {\n" + indent + "  label=" +
           dot_text(folded == last_of_.end() ? inside.name
                                             : inside.name + " to " + folded->second.first + ": " +
                                                   std::to_string(folded->second.second) + " times, all equal") +
           ";\n" + indent + "  style=rounded;\n";
      write(inside, inner_path, indent + "  ", count, t);
      t += indent + "}\n";
    }
  }

  static std::string without_digits(std::string text) {
    std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
    return text;
  }
  static std::string id_of(int local_value) { return 'v' + std::to_string(local_value); }
  static std::string label(const std::string& a, const std::string& b) {
    auto first = dot_text(a), second = dot_text(b);
    first.pop_back();
    return "label=" + first + "\\n" + second.substr(1);
  }
  [[nodiscard]] std::string type_of(int local_value) const {
    const auto& v = p_.on_device(local_value).tensor;
    return std::string(gspmd::name_of(v.type())) + ' ' + shape_text(v.local_shape()) + ' ' + v.text();
  }
  void add(const std::string& id, const std::string& look, const std::string& title, int local_value, int label_of_scope,
           bool is_input) {
    const auto find = [&](const std::map<int, std::string>& all) {
      const auto it = all.find(label_of_scope);
      return it == all.end() ? std::string() : it->second;
    };
    nodes_.push_back({id, look + label(title, type_of(local_value)), find(paths_), find(names_),
                      look + without_digits(title) + type_of(local_value), is_input});
  }

  void list_nodes() {
    for (const int v : p_.plan.inputs()) {
      const int l = p_.on_device(v).label;
      add(id_of(v), "shape=ellipse, fillcolor=\"#e6e6e6\", ", p_.value(l).name, v, -1, true);
    }
    std::vector<const instruction*> halos;  // of the next instruction
    for (const auto& i : p_.plan.instructions()) {
      if (i.is_halo) halos.push_back(&i);
      if (i.result < 0) continue;
      std::string title = planned_program::kind_of(i) + ' ' + p_.value(i.label).name;
      const auto message = [this](const instruction& sends) {
        return " over " + sends.axes + ", " + gspmd::format_bytes(sends.bytes, form_);
      };
      if (i.communicates) title += message(i);
      for (const instruction* halo : halos) title += ", " + halo->kind + message(*halo);
      const instruction& sends = halos.empty() ? i : *halos.back();
      halos.clear();
      add(id_of(i.result), sends.communicates ? std::string("fillcolor=\"") + dot_colour(sends.kind) + "\", " : "", title,
          i.result, i.sake >= 0 ? i.sake : i.label, false);
      for (const int o : i.operands) edges_.push_back({id_of(o), id_of(i.result)});
      for (const int r : i.further_results) {
        add(id_of(r), "", p_.value(p_.on_device(r).label).name, r, i.label, false);
        edges_.push_back({id_of(i.result), id_of(r)});
      }
    }
    const auto outputs = p_.plan.outputs();
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      const std::string id = "out" + std::to_string(k);
      nodes_.push_back(
          {id, "shape=ellipse, peripheries=2, label=" + dot_text(p_.value(p_.built.outputs[k]).name), "", "", id, false});
      edges_.push_back({id_of(outputs[k]), id});
    }
  }

  /// Returns the path and the common name of the outermost numbered scope around a node: `net/layer[3]` and `net/layer`
  /// for `net/layer[3]/attention`. Both are empty if no scope has a number.
  static std::pair<std::string, std::string> numbered(const node& n) {
    std::size_t p = 0, q = 0;
    while (p < n.path.size() && q < n.name.size()) {
      const auto p_end = std::min(n.path.find('/', p), n.path.size()), q_end = std::min(n.name.find('/', q), n.name.size());
      if (n.path.substr(p, p_end - p) != n.name.substr(q, q_end - q)) return {n.path.substr(0, p_end), n.name.substr(0, q_end)};
      p = p_end + 1;
      q = q_end + 1;
    }
    return {};
  }
  /// Maps the nodes of each numbered scope to the nodes of the previous scope, if both scopes have equal nodes.
  void fold() {
    struct call {
      std::string path, name;
      std::vector<const node*> nodes;
    };
    std::vector<call> calls;
    for (const auto& n : nodes_) {
      const auto [path, name] = numbered(n);
      if (path.empty()) continue;
      outer_.emplace(n.id, path);
      auto it = std::find_if(calls.begin(), calls.end(), [&](const call& c) { return c.path == path; });
      if (it == calls.end()) it = calls.insert(calls.end(), {path, name, {}});
      it->nodes.push_back(&n);
    }
    const call* first = nullptr;
    for (const auto& c : calls) {
      const bool is_same = first != nullptr && c.name == first->name &&
                           std::equal(c.nodes.begin(), c.nodes.end(), first->nodes.begin(), first->nodes.end(),
                                      [](const node* a, const node* b) { return a->alike == b->alike && a->name == b->name; });
      if (!is_same) {
        first = &c;
        continue;
      }
      auto& last = last_of_.try_emplace(first->path, "", 1).first->second;
      last = {c.path, last.second + 1};
      for (std::size_t k = 0; k < c.nodes.size(); ++k) as_.emplace(c.nodes[k]->id, first->nodes[k]->id);
    }
    fold_inputs();
  }
  /// Maps an input of a folded node to the input of the node that is drawn instead.
  void fold_inputs() {
    std::map<std::string, const node*> inputs;
    for (const auto& n : nodes_)
      if (n.is_input) inputs.emplace(n.id, &n);
    std::map<std::pair<std::string, std::string>, std::string> drawn;  // by user and look of the input
    for (const auto& e : edges_)
      if (const auto it = inputs.find(e.from); it != inputs.end() && as_.count(e.to) == 0)
        drawn.emplace(std::pair(e.to, it->second->alike), e.from);
    for (const auto& e : edges_) {
      const auto it = inputs.find(e.from);
      const auto user = as_.find(e.to);
      if (it == inputs.end() || user == as_.end()) continue;
      if (const auto found = drawn.find({user->second, it->second->alike}); found != drawn.end() && found->second != e.from)
        as_.emplace(e.from, found->second);
    }
  }
  /// Returns the outermost numbered scope of a node.
  [[nodiscard]] std::string outer_of(const std::string& id) const {
    const auto it = outer_.find(id);
    return it == outer_.end() ? std::string() : it->second;
  }
  [[nodiscard]] std::string drawn_as(const std::string& id) const {
    const auto it = as_.find(id);
    return it == as_.end() ? id : it->second;
  }

  const planned_program& p_;
  gspmd::number_form form_;
  std::map<int, std::string> paths_, names_;  // of scopes, by value
  std::vector<node> nodes_;
  std::vector<edge> edges_;
  std::map<std::string, std::string> outer_;                    // the outermost numbered scopes, by node
  std::map<std::string, std::string> as_;                       // a folded node: the node that is drawn instead
  std::map<std::string, std::pair<std::string, int>> last_of_;  // a scope that is drawn: the last equal one, and their number
};

inline std::string dot_graph(const planned_program& p, gspmd::number_form form) { return dot_picture(p, form).text(); }

}  // namespace plan_tool
