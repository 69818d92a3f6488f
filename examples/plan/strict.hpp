// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gspmd/modes.hpp>

#include "mesh.hpp"

/// Documents that write their own communication: `"mode": "explicit"` and `"mode": "manual"`.
namespace plan_tool {

using gspmd::axis_state;
using gspmd::state;
using gspmd::dynamic::strict_program;
using gspmd::dynamic::value_states;

/// What is found of such a document.
struct strict_answer {
  struct named {
    std::string name;
    dtype type = dtype::f32;
    integer_list shape;
    std::optional<value_states> is;  // nothing: refused
  };
  std::vector<named> values;
  std::vector<gspmd::dynamic::written_collective> forward, backward;
  std::vector<gspmd::dynamic::mode_error> errors;
  std::deque<std::string> names;  // by label; a deque: operators point to them
  std::vector<std::string> axes;  // of the mesh
  bool is_manual = false;
  bool has_backward = false;

  [[nodiscard]] std::string name(int label) const { return label < 0 ? "" : names[static_cast<std::size_t>(label)]; }
};

/// `C`, `S(1)`, `P<max>`
inline std::string state_text(const axis_state& s) {
  switch (s.is) {
    case state::constant: return "C";
    case state::replica: return "R";
    case state::invariant: return "I";
    case state::varying: return "V";
    case state::shard: return "S(" + std::to_string(s.dim) + ')';
    case state::partial: break;
  }
  if (s.reduced_by == monoid::add) return "P";
  if (s.reduced_by == monoid::maximum) return "P<max>";
  if (s.reduced_by == monoid::minimum) return "P<min>";
  return std::string("P<") + gspmd::name_of(s.reduced_by) + '>';
}
inline std::optional<axis_state> state_named(std::string_view s) {
  if (s == "C") return axis_state{state::constant};
  if (s == "R") return axis_state{state::replica};
  if (s == "I") return axis_state{state::invariant};
  if (s == "V") return axis_state{state::varying};
  if (s == "P") return axis_state{state::partial};
  if (s.starts_with("P<") && s.ends_with(">")) {
    const auto name = s.substr(2, s.size() - 3);
    const auto kind = name == "max" ? monoid::maximum : name == "min" ? monoid::minimum : monoid_named(name);
    if (kind) return axis_state{state::partial, 0, *kind};
  }
  if (s.starts_with("S(") && s.ends_with(")") && s.size() > 3 && s.size() < 7) {
    int dim = 0;
    for (const char c : s.substr(2, s.size() - 3)) {
      if (c < '0' || c > '9') return {};
      dim = 10 * dim + (c - '0');
    }
    return axis_state{state::shard, static_cast<std::int8_t>(std::min(dim, 127)), monoid::add};
  }
  return {};
}

class strict_reader {
 public:
  strict_reader(const json& document, error_list& errors) : document_(document), errors_(errors) {}

  /// Nothing where the document cannot be read at all; else what is found of it, mistakes among that.
  std::optional<strict_answer> run() {
    object_reader top(document_, root_, errors_);
    if (!top.is_object()) return {};
    const auto mode = top.text("mode", "\"explicit\" or \"manual\"");
    if (const auto* j = top.require("mesh", "an object with `axes`")) {
      mesh_reader reader(errors_);
      mesh_ = reader.read(*j, path(root_, "mesh"));
      if (reader.memory != 0)
        errors_.add("mesh.memory_per_device",
                    "is a limit of what is planned; a document of this mode says itself what is held and sent: leave it out");
    }
    const auto* inputs = top.require("inputs", "a list");
    const auto* ops = top.find("ops");
    const auto* outputs = top.require("outputs", "a list");
    const auto* loss = top.find("loss");
    const auto* cotangent = top.find("cotangent");
    top.refuse_unknown();
    if (mode && *mode != "explicit" && *mode != "manual")
      errors_.add("mode", "is " + in_quotes(*mode) + "; it is \"explicit\" or \"manual\", or absent");
    for (const auto* list : {inputs, ops, outputs})
      if (list != nullptr && !list->is_array()) errors_.add("", "inputs, ops and outputs are lists");
    if (!errors_.empty()) return {};
    answer_.is_manual = *mode == "manual";
    std::string all;
    for (const auto& a : mesh_->axes()) {
      answer_.axes.push_back(a.name);
      all += (all.empty() ? "" : ",") + a.name;
    }
    builder_.emplace(*mesh_);
    program_.emplace(*builder_, answer_.is_manual ? all : "");
    manual_ = answer_.is_manual ? answer_.axes : std::vector<std::string>{};
    for (std::size_t i = 0; i < inputs->size(); ++i) read_input((*inputs)[i], path(path_inputs_, i));
    if (ops != nullptr) read_ops(*ops, path_ops_);
    read_outputs(*outputs);
    for (const auto* of : {loss, cotangent})
      if (of != nullptr) differentiate(*of, of == loss ? "loss" : "cotangent");
    collect();
    return std::move(answer_);
  }

 private:
  struct variable {
    value is;  // not valid: refused
    int label = -1;
  };
  using scope = std::map<std::string, variable>;

  /// A mistake of the document's form, or one that the operators of all modes have.
  void complain(const path& at, const std::string& what) { errors_.add(at.str(), what); }
  void complain_as(const char* kind, const path& at, int label, const std::string& what, const std::string& axis = {}) {
    value none;
    program_->refuse(kind, none, -1, axis, at.str() + ": " + what);
    kinds_.emplace_back(program_->error_count() - 1, label);
  }

  // ---- states ----

  [[nodiscard]] bool is_manual(const std::string& axis) const {
    return std::find(manual_.begin(), manual_.end(), axis) != manual_.end();
  }
  [[nodiscard]] int number_of(const std::string& axis) const {
    for (std::size_t a = 0; a < answer_.axes.size(); ++a)
      if (answer_.axes[a] == axis) return static_cast<int>(a);
    return -1;
  }
  std::optional<int> read_axis(const std::string& axis, const path& at, int label, std::vector<bool>& used) {
    const int a = number_of(axis);
    if (a < 0) {
      complain_as("unbound_axis", at, label, in_quotes(axis) + " is not an axis of the mesh");
      return {};
    }
    if (used[static_cast<std::size_t>(a)]) {
      complain_as("axis_used_twice", at, label, "the axis " + in_quotes(axis) + " is named twice", axis);
      return {};
    }
    used[static_cast<std::size_t>(a)] = true;
    return a;
  }

  /// `state`, `sharding`, `partial`, `replica`, of a value with so many dims; an axis that is named nowhere is invariant.
  std::optional<value_states> read_states(object_reader& from, int rank, int label) {
    value_states s;
    s.on.assign(answer_.axes.size(), axis_state{state::invariant});
    std::vector<bool> used(answer_.axes.size(), false);
    bool is_right = true;
    const auto note = [&](const std::string& name, const path& at, axis_state is, bool wants_manual) {
      const auto a = read_axis(name, at, label, used);
      if (!a) is_right = false;
      else if (is_manual(name) != wants_manual) {
        complain_as("axis_mode", at, label,
                    wants_manual ? in_quotes(name) + " is no manual axis here; write sharding, partial or replica"
                                 : in_quotes(name) + " is a manual axis here; write its state",
                    name);
        is_right = false;
      } else if (is.is == state::shard && is.dim >= rank) {
        complain_as("dim_out_of_range", at, label,
                    "dim " + std::to_string(is.dim) + " of a value of rank " + std::to_string(rank), name);
        is_right = false;
      } else {
        s.on[static_cast<std::size_t>(*a)] = is;
        if (is.is == state::shard && !wants_manual) s.order.emplace_back(*a, is.dim);
      }
    };
    const auto is_object = [&](const json& j, const char* key) {
      if (j.is_object()) return true;
      complain(path(from.at(), key), "is " + found(j) + ", not an object from axes");
      return is_right = false;
    };
    if (const auto* j = from.find("state"); j != nullptr && is_object(*j, "state"))
      for (const auto& [name, word] : j->items()) {
        const path at_state = path_of(from, "state"), at(at_state, name);
        const auto is = word.is_string() ? state_named(word.get_ref<const std::string&>()) : std::nullopt;
        if (is) note(name, at, *is, true);
        else complain(at, "is " + found(word) + ", not one of C R I V S(d) P P<max> P<min>"), is_right = false;
      }
    if (const auto* j = from.find("sharding"); j != nullptr) {
      const path at = path_of(from, "sharding");
      if (!j->is_array() || (static_cast<int>(j->size()) != rank)) {
        complain_as("rank_mismatch", at, label, "is no list with the axes of each of " + std::to_string(rank) + " dims");
        return {};
      }
      for (std::size_t d = 0; d < j->size(); ++d) {
        if (!(*j)[d].is_array()) return complain(path(at, d), "is no list of axes"), std::nullopt;
        for (const auto& name : (*j)[d]) {
          if (!name.is_string()) return complain(path(at, d), "is no list of axes"), std::nullopt;
          note(name.get<std::string>(), path(at, d), axis_state{state::shard, static_cast<std::int8_t>(d), monoid::add}, false);
        }
      }
    }
    if (const auto* j = from.find("partial"); j != nullptr && is_object(*j, "partial"))
      for (const auto& [name, word] : j->items()) {
        const path at_partial = path_of(from, "partial"), at(at_partial, name);
        if (const auto kind = read_monoid(word, at, errors_)) note(name, at, axis_state{state::partial, 0, *kind}, false);
        else is_right = false;
      }
    if (const auto* j = from.find("replica"); j != nullptr) {
      const path at = path_of(from, "replica");
      if (!j->is_array()) return complain(at, "is " + found(*j) + ", not a list of axes"), std::nullopt;
      for (const auto& name : *j)
        if (name.is_string()) note(name.get<std::string>(), at, axis_state{state::replica}, false);
    }
    if (!is_right) return {};
    return s;
  }
  std::optional<value_states> read_spec(const json& j, const path& at, int rank, int label) {
    object_reader reader(j, at, errors_);
    if (!reader.is_object()) return {};
    const auto s = read_states(reader, rank, label);
    reader.refuse_unknown();
    return s;
  }
  static path path_of(const object_reader& from, std::string_view key) { return {from.at(), key}; }

  // ---- values ----

  variable* define(const std::optional<std::string>& name, const path& at) {
    if (!name) return nullptr;
    const auto [it, is_new] = names_.try_emplace(*name);
    if (!is_new) return complain(path(at, "name"), "a second value is called " + in_quotes(*name)), nullptr;
    it->second.label = static_cast<int>(answer_.names.size());
    answer_.names.push_back(*name);
    shown_.push_back({*name, {}});
    return &it->second;
  }
  void keep(variable& v, value is) {
    v.is = is;
    builder_->label(v.label);
    if (is.is_valid()) builder_->label(is, v.label);
    shown_[static_cast<std::size_t>(v.label)].second = is;
  }

  void read_input(const json& j, const path& at) {
    object_reader reader(j, at, errors_);
    if (!reader.is_object()) return;
    auto* v = define(reader.text("name", "the name of the input"), at);
    const auto type = read_dtype(reader);
    const auto shape = read_shape(reader, type.value_or(dtype::f32));
    if (v == nullptr || !type || !shape) return;
    const auto s = read_states(reader, static_cast<int>(shape->size()), v->label);
    const auto* grad = reader.find("grad");
    reader.refuse_unknown();
    if (!s) return;
    const auto is = builder_->input({*type, *shape, {}, false, {}, monoid::add});
    program_->input(is, *s, grad == nullptr || *grad != false);
    keep(*v, is);
  }
  void read_ops(const json& ops, const path& at) {
    for (std::size_t i = 0; i < ops.size(); ++i) read_op(ops[i], path(at, i));
  }

  /// Where it is false nothing more is said of the op: an operand of it was refused.
  bool read_operands(const json* j, const path& at, std::vector<value>& operands) {
    if (j == nullptr) return true;
    if (!j->is_array()) return complain(at, "is " + found(*j) + ", not a list of names"), false;
    bool is_sound = true;
    for (std::size_t k = 0; k < j->size(); ++k) {
      const auto it = (*j)[k].is_string() ? names_.find((*j)[k].get<std::string>()) : names_.end();
      if (it == names_.end()) {
        complain(path(at, k), "no value before it is called so: " + found((*j)[k]));
        is_sound = false;
      } else {
        operands.push_back(it->second.is);
        is_sound = is_sound && it->second.is.is_valid() && program_->states(it->second.is).has_value();
      }
    }
    return is_sound;
  }

  void read_op(const json& j, const path& at) {
    object_reader reader(j, at, errors_);
    if (!reader.is_object()) return;
    const auto name = reader.text("name", "the name of the result");
    const auto op = reader.text("op", "the operator");
    static const json nothing = json::object();
    const auto* given = reader.find("attrs");
    const path at_attrs(at, "attrs");
    object_reader attrs(given != nullptr ? *given : nothing, at_attrs, errors_);
    std::vector<value> operands;
    const bool is_sound = read_operands(reader.find("operands"), path(at, "operands"), operands);
    const auto* out = reader.find("out");
    const auto* body = reader.find("body");
    const auto* condition = reader.find("while");
    const auto* branches = reader.find("branches");
    reader.refuse_unknown();
    if (!name || !op || !attrs.is_object()) return;
    if (*op == "loop" || *op == "cond" || *op == "manual") {
      if (!is_sound)
        return refuse_results(*name,
                              body != nullptr                                                     ? body
                              : branches != nullptr && branches->is_array() && !branches->empty() ? &(*branches)[0]
                                                                                                  : nullptr,
                              at);
      if (*op == "loop") return read_loop(*name, operands, body, condition, attrs, at);
      if (*op == "cond") return read_cond(*name, operands, branches, at);
      return read_manual(*name, operands, body, attrs, at);
    }
    auto* v = define(name, at);
    if (v == nullptr || !is_sound) return;
    label_ = v->label;
    std::vector<std::pair<std::string, value>> further;
    const auto before = program_->error_count();
    const value made = build(*op, operands, attrs, out, at, further);
    if (const auto mistake = builder_->take_mistake(); !mistake.empty()) {
      program_->refuse("document", {}, -1, "", mistake);
      kinds_.emplace_back(program_->error_count() - 1, v->label);
      program_->skip();
      return;
    }
    builder_->label(v->label);
    if (!made.is_valid() || program_->error_count() != before) return program_->skip();
    if (out != nullptr) {
      const auto s = read_spec(*out, path(at, "out"), made.rank(), v->label);
      if (!s) return program_->skip();
      program_->want(made, *s);
    }
    program_->check();
    keep(*v, made);
    for (const auto& [suffix, is] : further)
      if (auto* second = define(*name + suffix, at); second != nullptr) keep(*second, is);
  }

  value build(const std::string& op, const std::vector<value>& operands, object_reader& attrs, const json* out, const path& at,
              std::vector<std::pair<std::string, value>>& further) {
    const gspmd::location where{answer_.names[static_cast<std::size_t>(label_)].c_str(), 0};
    const auto takes = [&](std::size_t n) {
      if (operands.size() == n) return true;
      complain(path(at, "operands"), op + " takes " + std::to_string(n) + (n == 1 ? " operand" : " operands"));
      return false;
    };
    value result;
    if (op == "transition") {
      if (takes(1)) result = build_transition(operands[0], attrs, where);
    } else if (op == "axis_index") {
      const auto axis = attrs.text("axis", "an axis of the mesh");
      if (takes(0) && axis && number_of(*axis) >= 0) result = program_->axis_index(*axis, where);
      else if (axis && number_of(*axis) < 0)
        complain_as("unbound_axis", path(attrs.at(), "axis"), label_, in_quotes(*axis) + " is not an axis of the mesh");
    } else if (op == "detach") {
      if (takes(1)) result = gspmd::elementwise("stop_gradient", operands, where);
    } else if (op == "random" || op == "opaque") {
      const auto type = read_dtype(attrs);
      const auto shape = read_shape(attrs, type.value_or(dtype::f32));
      using kind = strict_program::opaque_class;
      auto is = op == "random" ? kind::selects : kind::nonlinear;
      if (const auto* j = attrs.find("class"); j != nullptr && op == "opaque") {
        if (*j == "linear") is = kind::linear;
        else if (*j == "multilinear") is = kind::multilinear;
        else if (*j != "nonlinear")
          complain(path(attrs.at(), "class"), "is " + found(*j) + ", not nonlinear, linear or multilinear");
      }
      if (type && shape && (op == "opaque" || takes(1)) && operands.size() <= 8)
        result = program_->opaque(*type, *shape, operands, is, where);
      else if (operands.size() > 8) complain(path(at, "operands"), "an opaque function has at most 8 operands");
    } else if (op == "reshard") {
      if (out == nullptr) complain(path(at, "out"), "is missing; it is what a reshard is for");
      else if (takes(1))
        result = builder_->reshard(operands[0], std::vector<std::string>(static_cast<std::size_t>(operands[0].rank())), where);
    } else {
      operation o{*builder_, operands, attrs, where, op};
      o.further = &further;
      return build_operator(o, at);
    }
    attrs.refuse_unknown();
    return result;
  }

  value build_transition(value x, object_reader& attrs, gspmd::location where) {
    const auto word = attrs.text("verb", "one of convert reinterpret all_gather all_to_all permute all_reduce reduce_scatter");
    const auto from_word = attrs.text("from", "a state"), to_word = attrs.text("to", "a state");
    const auto* axes = attrs.require("axes", "a list of axes");
    const auto* pairs = attrs.find("pairs");
    if (!word || !from_word || !to_word || axes == nullptr) return {};
    using gspmd::verb;
    static const std::pair<const char*, verb> verbs[] = {{"convert", verb::convert},
                                                         {"reinterpret", verb::reinterpret},
                                                         {"all_gather", verb::all_gather},
                                                         {"all_to_all", verb::all_to_all},
                                                         {"permute", verb::permute},
                                                         {"all_reduce", verb::all_reduce},
                                                         {"reduce_scatter", verb::reduce_scatter}};
    std::optional<verb> by;
    for (const auto& [name, is] : verbs)
      if (*word == name) by = is;
    const auto from = state_named(*from_word), to = state_named(*to_word);
    if (!by) complain(path(attrs.at(), "verb"), "is " + in_quotes(*word) + ", no verb of a transition");
    if (!from) complain(path(attrs.at(), "from"), "is " + in_quotes(*from_word) + ", no state");
    if (!to) complain(path(attrs.at(), "to"), "is " + in_quotes(*to_word) + ", no state");
    if (!axes->is_array() || axes->empty()) return complain(path(attrs.at(), "axes"), "is no list of axes"), value{};
    std::string list;
    std::vector<bool> used(answer_.axes.size(), false);
    for (const auto& axis : *axes) {
      if (!axis.is_string()) return complain(path(attrs.at(), "axes"), "is no list of axes"), value{};
      if (!read_axis(axis.get<std::string>(), path(attrs.at(), "axes"), label_, used)) return {};
      list += (list.empty() ? "" : ",") + axis.get<std::string>();
    }
    std::vector<std::pair<std::int64_t, std::int64_t>> sends;
    if (pairs != nullptr) {
      if (!pairs->is_array()) return complain(path(attrs.at(), "pairs"), "is no list of pairs"), value{};
      for (const auto& p : *pairs) {
        if (!p.is_array() || p.size() != 2 || !p[0].is_number_integer() || !p[1].is_number_integer())
          return complain(path(attrs.at(), "pairs"), "is no list of pairs of devices"), value{};
        sends.emplace_back(p[0].get<std::int64_t>(), p[1].get<std::int64_t>());
      }
    }
    if (!by || !from || !to) return {};
    return program_->transition(x, *by, list, *from, *to, sends, where);
  }

  // ---- regions ----

  /// NAME, or NAME.0, NAME.1, ...
  static std::string result_name(const std::string& name, std::size_t k, std::size_t count) {
    return count == 1 ? name : name + '.' + std::to_string(k);
  }
  void refuse_results(const std::string& name, const json* region, const path& at) {
    std::size_t count = 1;
    if (region != nullptr && region->is_object() && region->contains("outputs") && (*region)["outputs"].is_array())
      count = (*region)["outputs"].size();
    for (std::size_t k = 0; k < count; ++k) define(result_name(name, k, count), at);
  }
  /// The results of a region whose inputs stand for `operands` and come in these states; nothing where it was refused.
  std::optional<std::vector<value>> read_region(const json* region, const std::vector<value>& operands,
                                                const std::vector<value_states>& types, const path& at,
                                                std::vector<value>* arguments = nullptr,
                                                const std::vector<integer_list>* shapes = nullptr) {
    if (region == nullptr || !region->is_object())
      return complain(at, "is no region: {\"inputs\": [], \"ops\": [], \"outputs\": []}"), std::nullopt;
    object_reader reader(*region, at, errors_);
    const auto* inputs = reader.require("inputs", "a list of names");
    const auto* ops = reader.find("ops");
    const auto* outputs = reader.require("outputs", "a list of names");
    reader.refuse_unknown();
    if (inputs == nullptr || outputs == nullptr || !inputs->is_array() || !outputs->is_array() ||
        (ops != nullptr && !ops->is_array()))
      return complain(at, "has inputs, ops and outputs that are lists"), std::nullopt;
    if (inputs->size() != operands.size())
      return complain(path(at, "inputs"),
                      "has " + std::to_string(inputs->size()) + " names for " + std::to_string(operands.size()) + " operands"),
             std::nullopt;
    scope outside;
    std::swap(outside, names_);
    std::optional<std::vector<value>> results{std::in_place};
    for (std::size_t k = 0; k < operands.size(); ++k) {
      auto* v = (*inputs)[k].is_string() ? define((*inputs)[k].get<std::string>(), at) : nullptr;
      if (v == nullptr) continue;
      const auto x = builder_->input(
          {operands[k].type(), shapes != nullptr ? (*shapes)[k] : shape_of(operands[k]), {}, false, {}, monoid::add});
      program_->input(x, types[k]);
      program_->stands_for(x, operands[k]);
      keep(*v, x);
      if (arguments != nullptr) arguments->push_back(x);
    }
    if (ops != nullptr) read_ops(*ops, path(at, "ops"));
    for (std::size_t k = 0; k < outputs->size(); ++k) {
      const auto it = (*outputs)[k].is_string() ? names_.find((*outputs)[k].get<std::string>()) : names_.end();
      if (it == names_.end())
        complain(path(path(at, "outputs"), k), "no value of the region is called so: " + found((*outputs)[k]));
      if (it == names_.end() || !it->second.is.is_valid() || !program_->states(it->second.is)) results.reset();
      else if (results) results->push_back(it->second.is);
      if (!results) break;
    }
    std::swap(outside, names_);
    return results;
  }
  /// A result of a region, outside of it.
  void give(const std::string& name, value of, const value_states& s, const integer_list& shape, const path& at) {
    auto* v = define(name, at);
    if (v == nullptr) return;
    const auto x = builder_->input({of.type(), shape, {}, false, {}, monoid::add});
    program_->input(x, s);
    program_->stands_for(x, of);
    keep(*v, x);
  }
  [[nodiscard]] std::string varying_axes(value x) const {
    std::string list;
    const auto s = program_->states(x);
    for (std::size_t a = 0; s && a < s->on.size(); ++a)
      if (s->on[a].is == state::varying || s->on[a].is == state::shard) list += (list.empty() ? "" : ",") + answer_.axes[a];
    return list;
  }
  [[nodiscard]] static std::string both(const std::string& a, const std::string& b) {
    std::string all = a;
    for (const auto& name : names_in(b)) {
      const auto known = names_in(all);
      if (std::find(known.begin(), known.end(), name) == known.end()) all += (all.empty() ? "" : ",") + name;
    }
    return all;
  }
  /// A scalar pred, or s32 for several branches.
  bool check_predicate(value p, bool may_count, const path& at) {
    const bool is_right = p.rank() == 0 && (p.type() == dtype::pred || (may_count && p.type() == dtype::s32));
    if (!is_right) complain(at, may_count ? "the predicate is a scalar, pred or s32" : "the predicate is a scalar pred");
    return is_right;
  }

  void read_loop(const std::string& name, const std::vector<value>& operands, const json* body, const json* condition,
                 object_reader& attrs, const path& at) {
    static_cast<void>(attrs.find("trips"));
    attrs.refuse_unknown();
    std::vector<value_states> types;
    for (const auto& o : operands) types.push_back(*program_->states(o));
    const auto first_label = answer_.names.size();
    const auto mark = program_->here();
    for (std::size_t round = 0; round < 4 * answer_.axes.size() * operands.size() + 4; ++round) {
      program_->back_to(mark);
      kinds_.erase(
          std::remove_if(kinds_.begin(), kinds_.end(), [&](const auto& k) { return k.first >= mark.mistakes + mark.found; }),
          kinds_.end());
      answer_.names.resize(first_label);
      shown_.resize(first_label);
      const auto before = errors_.count();
      std::string diverging;
      if (condition != nullptr) {
        const auto predicate = read_region(condition, operands, types, path(at, "while"));
        if (!predicate || predicate->size() != 1) {
          if (predicate) complain(path(at, "while"), "has one result, the predicate");
          return refuse_results(name, body, at);
        }
        if (!check_predicate((*predicate)[0], false, path(at, "while"))) return refuse_results(name, body, at);
        diverging = varying_axes((*predicate)[0]);
        bool changed = false;
        for (const auto& axis : names_in(diverging)) {
          const auto a = static_cast<std::size_t>(number_of(axis));
          for (std::size_t k = 0; k < types.size(); ++k) {
            auto& on = types[k].on[a];
            if (on.is == state::constant || on.is == state::replica) {
              on = {state::varying};
              changed = true;
            } else if (on.is == state::invariant || on.is == state::partial) {
              complain_loop(on.is == state::invariant ? "state_conflict" : "partial_varying_mix", name, k, axis,
                            "devices make different numbers of trips, and what is carried is " + state_text(on));
              return refuse_results(name, body, at);
            }
          }
        }
        if (changed) continue;
      }
      const auto were = program_->set_diverging("");
      program_->set_diverging(both(were, diverging));
      std::vector<value> arguments;
      const auto results = read_region(body, operands, types, path(at, "body"), &arguments);
      program_->set_diverging(were);
      if (!results || errors_.count() != before) return refuse_results(name, body, at);
      if (results->size() != operands.size()) {
        complain(path(at, "body"),
                 "gives " + std::to_string(results->size()) + " values and the loop carries " + std::to_string(operands.size()));
        return refuse_results(name, body, at);
      }
      bool changed = false;
      for (std::size_t k = 0; k < results->size(); ++k) {
        const value r = (*results)[k];
        if (r.type() != operands[k].type() || shape_of(r) != shape_of(operands[k])) {
          complain_loop("carry_mismatch", name, k, "",
                        "is " + std::string(gspmd::name_of(operands[k].type())) + shape_text(shape_of(operands[k])) +
                            " before and " + gspmd::name_of(r.type()) + shape_text(shape_of(r)) + " after an iteration");
          return refuse_results(name, body, at);
        }
        const auto found = *program_->states(r);
        for (std::size_t a = 0; a < answer_.axes.size(); ++a) {
          const auto is = found.on[a];
          auto& carried = types[k].on[a];
          const bool is_manual_axis = is_manual(answer_.axes[a]);
          const bool is_same = is == carried || (is_manual_axis && carried.is == state::varying && is.is == state::shard);
          const bool goes_in = (is.is == state::constant && carried.is != state::partial) ||
                               (is.is == state::replica && carried.is == state::varying) || is_same;
          if (goes_in) continue;
          const bool may_be =
              (carried.is == state::constant && (is.is != state::partial || strict_program::is_zero(operands[k]))) ||
              (is_manual_axis && carried.is == state::replica && is.is == state::varying) ||
              (is_manual_axis && carried.is == state::replica && is.is == state::shard);
          if (!may_be) {
            complain_loop("carry_mismatch", name, k, answer_.axes[a],
                          "is " + state_text(carried) + " before and " + state_text(is) +
                              " after an iteration; bring the first value to " + state_text(is) + ", or the last one to " +
                              state_text(carried));
            return refuse_results(name, body, at);
          }
          carried = is_manual_axis && is.is == state::shard ? axis_state{state::varying} : is;
          if (is.is == state::shard && !is_manual_axis) types[k].order = found.order;
          changed = true;
        }
      }
      if (changed) continue;
      for (std::size_t k = 0; k < results->size(); ++k) program_->stands_for(arguments[k], (*results)[k]);
      for (std::size_t k = 0; k < results->size(); ++k)
        give(result_name(name, k, results->size()), (*results)[k], types[k], shape_of((*results)[k]), at);
      return;
    }
  }
  void complain_loop(const char* kind, const std::string& name, std::size_t k, const std::string& axis, const std::string& what) {
    program_->refuse(kind, {}, static_cast<int>(k), axis,
                     "loop `" + name + "`: what it carries as operand " + std::to_string(k) +
                         (axis.empty() ? "" : ", over `" + axis + "`,") + ' ' + what);
    kinds_.emplace_back(program_->error_count() - 1, label_of_region(name));
  }

  void read_cond(const std::string& name, const std::vector<value>& operands, const json* branches, const path& at) {
    if (branches == nullptr || !branches->is_array() || branches->empty() || branches->size() > 7 || operands.empty())
      return complain(at, "has a predicate, and branches, 1 to 7");
    if (!check_predicate(operands[0], true, path(at, "operands"))) return refuse_results(name, &(*branches)[0], at);
    const std::vector<value> rest(operands.begin() + 1, operands.end());
    std::vector<value_states> types;
    for (const auto& o : rest) types.push_back(*program_->states(o));
    const auto were = program_->set_diverging("");
    program_->set_diverging(both(were, varying_axes(operands[0])));
    std::vector<std::vector<value>> results;
    bool is_sound = true;
    for (std::size_t b = 0; b < branches->size(); ++b) {
      auto r = read_region(&(*branches)[b], rest, types, path(path(at, "branches"), b));
      is_sound = is_sound && r.has_value();
      if (r) results.push_back(std::move(*r));
    }
    program_->set_diverging(were);
    if (!is_sound) return refuse_results(name, &(*branches)[0], at);
    for (std::size_t k = 0; k < results[0].size(); ++k) {
      auto* v = define(result_name(name, k, results[0].size()), at);
      if (v == nullptr) return;
      std::vector<value> of;
      bool fits = true;
      for (const auto& r : results) {
        fits = fits && r.size() == results[0].size();
        if (!fits) break;
        fits = r[k].type() == results[0][k].type() && shape_of(r[k]) == shape_of(results[0][k]);
        of.push_back(r[k]);
      }
      if (!fits) {
        complain_as("branch_mismatch", at, v->label, "the branches give values of other types or shapes");
        continue;
      }
      const auto is =
          program_->choice(operands[0], of, {v != nullptr ? answer_.names[static_cast<std::size_t>(v->label)].c_str() : "", 0});
      keep(*v, is);
    }
  }

  void read_manual(const std::string& name, const std::vector<value>& operands, const json* body, object_reader& attrs,
                   const path& at) {
    const auto* axes = attrs.require("axes", "a list of axes");
    const auto* in = attrs.find("in");
    const auto* out = attrs.require("out", "a list of objects, one for each result");
    attrs.refuse_unknown();
    const auto fail = [&] { refuse_results(name, body, at); };
    const int label = label_of_region(name);
    if (axes == nullptr || !axes->is_array() || out == nullptr || !out->is_array() ||
        (in != nullptr && (!in->is_array() || in->size() != operands.size()))) {
      complain(at, "has axes, in and out that are lists; `in` has one entry for each operand");
      return fail();
    }
    std::vector<bool> used(answer_.axes.size(), false);
    std::string list;
    for (const auto& axis : *axes) {
      if (!axis.is_string()) return complain(path(attrs.at(), "axes"), "is no list of axes"), fail();
      const auto word = axis.get<std::string>();
      if (!read_axis(word, path(attrs.at(), "axes"), label, used)) return fail();
      if (is_manual(word))
        return complain_as("axis_mode", path(attrs.at(), "axes"), label, in_quotes(word) + " is manual already", word), fail();
      list += (list.empty() ? "" : ",") + word;
    }
    const auto is_new = [&](std::size_t a) { return static_cast<bool>(used[a]); };
    std::vector<value_states> inside;
    std::vector<integer_list> shapes;
    for (std::size_t k = 0; k < operands.size(); ++k) {
      auto is = *program_->states(operands[k]);
      if (in != nullptr && !(*in)[k].is_null()) {
        const path at_list(attrs.at(), "in"), at_in(at_list, k);
        const auto spec = read_spec((*in)[k], at_in, operands[k].rank(), label);
        if (!spec) return fail();
        for (std::size_t a = 0; a < answer_.axes.size(); ++a) {
          const bool is_equal = is.on[a].is == state::constant;
          const bool is_cut = spec->on[a].is == state::shard && is.on[a].is == state::replica;
          if (is.on[a] == spec->on[a] || (is_equal && spec->on[a].is != state::partial) || is_cut) continue;
          program_->refuse("in_spec_mismatch", {}, static_cast<int>(k), answer_.axes[a],
                           "manual `" + name + "`: operand " + std::to_string(k) + " is " + state_text(is.on[a]) + " over `" +
                               answer_.axes[a] + "` and `in` says " + state_text(spec->on[a]) +
                               "; reshard it before, nothing is moved for a region");
          kinds_.emplace_back(program_->error_count() - 1, label);
          return fail();
        }
        is = *spec;
      }
      auto shape = shape_of(operands[k]);
      value_states local = is;
      local.order.clear();
      std::vector<bool> cut_further(static_cast<std::size_t>(operands[k].rank()), false);
      for (const auto& [axis, dim] : is.order) {
        const auto d = static_cast<std::size_t>(dim);
        if (!is_new(static_cast<std::size_t>(axis))) {
          cut_further[d] = true;
          local.order.emplace_back(axis, dim);
          continue;
        }
        const auto size = mesh_->axes()[static_cast<std::size_t>(axis)].size;
        if (cut_further[d] || shape[d] % size != 0) {
          program_->refuse(cut_further[d] ? "nested_order" : "in_spec_mismatch", {}, static_cast<int>(k),
                           answer_.axes[static_cast<std::size_t>(axis)],
                           "manual `" + name + "`: dim " + std::to_string(dim) + " of operand " + std::to_string(k) +
                               (cut_further[d] ? " is split by axes of the global view before `" : " is not divisible by `") +
                               answer_.axes[static_cast<std::size_t>(axis)] + "`");
          kinds_.emplace_back(program_->error_count() - 1, label);
          return fail();
        }
        shape[d] /= size;
      }
      inside.push_back(local);
      shapes.push_back(shape);
    }
    const auto manual_before = manual_;
    const auto were = program_->set_manual("");
    program_->set_manual(both(were, list));
    for (const auto& word : names_in(list)) manual_.push_back(word);
    const auto results = read_region(body, operands, inside, path(at, "body"), nullptr, &shapes);
    program_->set_manual(were);
    manual_ = manual_before;
    if (!results) return fail();
    if (results->size() != out->size()) return complain(path(attrs.at(), "out"), "has one entry for each result"), fail();
    for (std::size_t k = 0; k < results->size(); ++k) {
      const auto is = *program_->states((*results)[k]);
      const auto spec = read_spec((*out)[k], path(path(attrs.at(), "out"), k), (*results)[k].rank(), label);
      if (!spec) return fail();
      auto shape = shape_of((*results)[k]);
      for (const auto& [axis, dim] : spec->order)
        if (is_new(static_cast<std::size_t>(axis)))
          shape[static_cast<std::size_t>(dim)] *= mesh_->axes()[static_cast<std::size_t>(axis)].size;
      for (std::size_t a = 0; a < answer_.axes.size(); ++a) {
        const auto from = is.on[a], to = spec->on[a];
        const bool is_chunk = is_new(a) && to.is == state::shard && (from.is == state::varying || from.is == state::shard) &&
                              (from.is == state::varying || from.dim == to.dim);
        if (from == to || is_chunk || (from.is == state::constant && to.is != state::partial && to.is != state::shard)) continue;
        program_->refuse("out_spec_mismatch", {}, static_cast<int>(k), answer_.axes[a],
                         "manual `" + name + "`: result " + std::to_string(k) + " is " + state_text(from) + " over `" +
                             answer_.axes[a] + "` and `out` says " + state_text(to) +
                             "; a result leaves with the state that it has");
        kinds_.emplace_back(program_->error_count() - 1, label);
        return fail();
      }
      give(result_name(name, k, results->size()), (*results)[k], *spec, shape, at);
    }
  }
  /// Of mistakes about a region itself, which has no value of its own.
  int label_of_region(const std::string& name) {
    answer_.names.push_back(name);
    shown_.push_back({name, {}});
    return static_cast<int>(answer_.names.size()) - 1;
  }

  // ---- the end ----

  void read_outputs(const json& outputs) {
    for (std::size_t k = 0; k < outputs.size(); ++k)
      if (!outputs[k].is_string() || names_.find(outputs[k].get<std::string>()) == names_.end())
        complain(path(path_outputs_, k), "no value is called so: " + found(outputs[k]));
  }
  void differentiate(const json& of, const char* key) {
    answer_.has_backward = true;
    const auto it = of.is_string() ? names_.find(of.get<std::string>()) : names_.end();
    if (it == names_.end()) return errors_.add(key, "no value is called so: " + found(of));
    if (!it->second.is.is_valid()) return;
    if (std::string_view(key) == "loss") program_->check_loss(it->second.is);
    for (auto& c : program_->backward_collectives(it->second.is)) answer_.backward.push_back(std::move(c));
  }
  void collect() {
    for (std::size_t k = 0; k < shown_.size(); ++k) {
      const auto& [name, v] = shown_[k];
      bool is_last = true;
      for (std::size_t later = k + 1; later < shown_.size(); ++later) is_last = is_last && shown_[later].first != name;
      if (!is_last) continue;
      strict_answer::named n{name, v.is_valid() ? v.type() : dtype::f32, v.is_valid() ? shape_of(v) : integer_list{}, {}};
      if (v.is_valid()) n.is = program_->states(v);
      answer_.values.push_back(std::move(n));
    }
    answer_.forward = program_->collectives();
    answer_.errors = program_->errors();
    for (const auto& [error, label] : kinds_)
      if (error < answer_.errors.size() && answer_.errors[error].label < 0) answer_.errors[error].label = label;
  }

  const json& document_;
  error_list& errors_;
  const path root_;
  const path path_inputs_{root_, "inputs"}, path_ops_{root_, "ops"}, path_outputs_{root_, "outputs"};
  std::optional<gspmd::dynamic::mesh> mesh_;
  std::optional<gspmd::dynamic::builder> builder_;
  std::optional<strict_program> program_;
  strict_answer answer_;
  scope names_;
  std::vector<std::pair<std::string, value>> shown_;  // by label
  std::vector<std::pair<std::size_t, int>> kinds_;    // errors of the reader, with the label of what they are about
  std::vector<std::string> manual_;
  int label_ = -1;
};

}  // namespace plan_tool
