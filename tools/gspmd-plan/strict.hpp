// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strict_build.hpp"
#include "strict_manual.hpp"

namespace plan_tool {

/// Reads documents that write their own communication: `"mode": "explicit"` and `"mode": "manual"`.
class strict_reader {
 public:
  strict_reader(const json& document, error_list& errors) : document_(document), d_(errors) {
    d_.read_ops = [this](const json& ops, const path& at) { read_ops(ops, at); };
  }

  /// Returns nullopt if the document cannot be read at all. Otherwise returns the results of the check, including
  /// mistakes.
  std::optional<strict_answer> run() {
    object_reader top(document_, root_, d_.errors);
    if (!top.is_object()) return {};
    const auto mode = top.text("mode", "\"explicit\" or \"manual\"");
    bool is_searched = false;
    if (const auto* j = top.require("mesh", "an object with `axes`")) {
      mesh_reader reader(d_.errors);
      d_.mesh = reader.read(*j, path(root_, "mesh"));
      network_ = reader.network;
      is_searched = reader.is_searched || reader.is_solved;
      if (reader.memory != 0)
        d_.errors.add("mesh.memory_per_device",
                      "is a limit for planned programs; a document of this mode determines its memory and communication itself: "
                      "leave it out");
    }
    const auto* typed_axes = top.find("explicit");
    if (typed_axes != nullptr) read_explicit(*typed_axes, mode.value_or("") == "explicit");
    else if (is_searched)
      d_.errors.add("mesh.searched", "is for axes that are left to the planner, and this document leaves it none: leave it out");
    const auto* inputs = top.require("inputs", "a list");
    const auto* ops = top.find("ops");
    const auto* outputs = top.require("outputs", "a list");
    const auto* loss = top.find("loss");
    const auto* cotangent = top.find("cotangent");
    top.find("$schema");  // for editors
    top.refuse_unknown();
    if (mode && *mode != "explicit" && *mode != "manual")
      d_.errors.add("mode", "is " + in_quotes(*mode) + "; it is \"automatic\", \"explicit\" or \"manual\"");
    for (const auto* list : {inputs, ops, outputs})
      if (list != nullptr && !list->is_array()) d_.errors.add("", "inputs, ops and outputs are lists");
    if (!d_.errors.empty()) return {};
    d_.answer.is_manual = *mode == "manual";
    std::string all;
    for (const auto& a : d_.mesh->axes()) {
      d_.answer.axes.push_back(a.name);
      all += (all.empty() ? "" : ",") + a.name;
    }
    d_.builder.emplace(*d_.mesh);
    d_.program.emplace(*d_.builder, d_.answer.is_manual ? all : "");
    d_.manual = d_.answer.is_manual ? d_.answer.axes : std::vector<std::string>{};
    for (std::size_t i = 0; i < inputs->size(); ++i) read_input((*inputs)[i], path(path_inputs_, i));
    if (ops != nullptr) read_ops(*ops, path_ops_);
    read_outputs(*outputs);
    for (const auto* of : {loss, cotangent})
      if (of != nullptr) differentiate(*of, of == loss ? "loss" : "cotangent");
    collect();
    return d_.answer;  // `built` needs it too
  }
  /// Returns the program that `run` found without a mistake, ready to be planned, on the mesh or on one device.
  std::optional<built_program> built(devices on) {
    const auto& mesh = *d_.mesh;
    auto b = on == devices::one ? strict_builder<on_one_device>(document_, d_, mesh, d_.errors).build(mesh.with_one_device())
                                : strict_builder<on_mesh>(document_, d_, mesh, d_.errors).build(mesh);
    if (b) b->network = network_;
    return b;
  }

 private:
  /// Reads the axes that a document types, if the planner decides about other axes.
  void read_explicit(const json& j, bool is_explicit) {
    const path at(root_, "explicit");
    if (!is_explicit)
      return d_.errors.add(at.str(),
                           "names the axes of a document of the explicit mode; leave it out, or say \"mode\": \"explicit\"");
    std::vector<std::string> names;
    bool are_names = j.is_array() && !j.empty();
    if (are_names)
      for (const auto& name : j) {
        are_names = are_names && name.is_string();
        if (are_names) names.push_back(name.get<std::string>());
      }
    if (!are_names)
      return d_.errors.add(
          at.str(), "is " + found(j) + "; it is a list of axes, one or more: with none the document is of the automatic mode");
    if (!d_.mesh) return;
    for (const auto& name : names)
      if (d_.mesh->find(name).empty())
        return d_.errors.add(
            at.str(), "names " + in_quotes(name) + ", which is not an axis of the mesh; its axes are: " + d_.mesh->names());
    d_.mesh.emplace(d_.mesh->explicit_axes(names));
  }
  void read_input(const json& j, const path& at) {
    object_reader reader(j, at, d_.errors);
    if (!reader.is_object()) return;
    auto* v = d_.define(reader.text("name", "the name of the input"), at);
    const auto type = read_dtype(reader);
    const auto shape = read_shape(reader, type.value_or(dtype::f32));
    if (v == nullptr || !type || !shape) return;
    const auto s = d_.read_states(reader, static_cast<int>(shape->size()), v->label);
    const auto* grad = reader.find("grad");
    if (grad != nullptr && !grad->is_boolean()) d_.complain(path(at, "grad"), "is " + found(*grad) + ", not true or false");
    reader.refuse_unknown();
    if (!s) return;
    for (const auto& on : s->on)
      if (on.is == state::partial && !gspmd::is_defined(on.reduced_by, *type))
        return d_.complain(at, "is partial by " + std::string(gspmd::name_of(on.reduced_by)) + ", which is not defined for " +
                                   gspmd::name_of(*type));
    const auto is = d_.builder->input({*type, *shape, {}, false, {}, monoid::add});
    d_.builder->name(is, d_.answer.names[static_cast<std::size_t>(v->label)]);
    d_.program->input(is, *s, grad == nullptr || *grad != false);
    d_.keep(*v, is);
  }
  void read_ops(const json& ops, const path& at) {
    for (std::size_t i = 0; i < ops.size(); ++i) read_op(ops[i], path(at, i));
  }
  void read_op(const json& j, const path& at) {
    object_reader reader(j, at, d_.errors);
    if (!reader.is_object()) return;
    const op_scope inside(*d_.builder, j, at, d_.errors);
    const auto name = reader.text("name", "the name of the result");
    const auto op = reader.text("op", "the operator");
    static const json nothing = json::object();
    const auto* given = reader.find("attrs");
    const path at_attrs(at, "attrs");
    object_reader attrs(given != nullptr ? *given : nothing, at_attrs, d_.errors);
    std::vector<value> operands;
    const bool is_sound = d_.read_operands(reader.find("operands"), path(at, "operands"), operands);
    const bool has_body = op == "loop" || op == "manual", is_region = has_body || op == "cond";
    const auto member = [&](bool is_used, const char* key) { return is_used || !op ? reader.find(key) : nullptr; };
    const auto* out = member(!is_region, "out");
    const auto* body = member(has_body, "body");
    const auto* condition = member(op == "loop", "while");
    const auto* branches = member(op == "cond", "branches");
    const auto* exchange = member(!is_region, "exchange");
    reader.find("scope");
    reader.refuse_unknown();
    if (!name || !op || !attrs.is_object()) return;
    if (!is_sound) attrs.skip();
    if (is_region) {
      if (!is_sound)
        return d_.refuse_results(*name,
                                 body != nullptr                                                     ? body
                                 : branches != nullptr && branches->is_array() && !branches->empty() ? &(*branches)[0]
                                                                                                     : nullptr,
                                 at);
      if (*op == "loop") return regions_.read_loop(*name, operands, body, condition, attrs, at);
      if (*op == "cond") return attrs.refuse_unknown(), regions_.read_cond(*name, operands, branches, at);
      return manual_regions_.read(*name, operands, body, attrs, at);
    }
    auto* v = d_.define(name, at);
    if (v == nullptr || !is_sound) return;
    label_ = v->label;
    std::vector<std::pair<std::string, value>> further;
    const auto before = d_.program->error_count();
    auto& note = d_.notes[&j];
    note = {};
    if (exchange != nullptr && !read_exchange(*exchange, path(at, "exchange"), note.exchange)) return attrs.skip();
    value made = d_.program->with_exchange(
        note.exchange, [&](const std::vector<value>& of) { return build(*op, of, attrs, out, at, further, note); }, operands);
    if (const auto mistake = d_.builder->take_mistake(); !mistake.empty()) {
      d_.program->refuse("document", {}, -1, "", mistake);
      d_.kinds.emplace_back(d_.program->error_count() - 1, v->label);
      d_.program->skip();
      return;
    }
    d_.builder->label(v->label);
    if (!made.is_valid() || d_.program->error_count() != before) return d_.program->skip();
    if (out != nullptr && *op != "reshard") {
      const auto s = d_.read_spec(*out, path(at, "out"), made.rank(), v->label);
      if (!s) return d_.program->skip();
      note.out = s;
      const auto says_varying = [](const axis_state& on) { return on.is == state::varying; };
      if (std::any_of(s->on.begin(), s->on.end(), says_varying))
        if (const auto is = d_.program->states_of_last(made))
          for (std::size_t a = 0; a < is->on.size(); ++a)
            if (says_varying(s->on[a]) && is->on[a].is == state::constant)
              note.varies += (note.varies.empty() ? "" : ",") + d_.answer.axes[a];
      made = d_.program->want(made, *s, {d_.answer.names[static_cast<std::size_t>(v->label)].c_str(), 0});
    }
    d_.program->check();
    d_.keep(*v, made);
    for (const auto& [suffix, is] : further)
      if (auto* second = d_.define(*name + suffix, at); second != nullptr) d_.keep(*second, is);
  }
  value build(const std::string& op, const std::vector<value>& operands, object_reader& attrs, const json* out, const path& at,
              std::vector<std::pair<std::string, value>>& further, op_note& note) {
    const gspmd::location where{d_.answer.names[static_cast<std::size_t>(label_)].c_str(), 0};
    const auto takes = [&](std::size_t n) {
      if (operands.size() == n) return true;
      d_.complain(path(at, "operands"), op + " takes " + std::to_string(n) + (n == 1 ? " operand" : " operands"));
      attrs.skip();
      return false;
    };
    value result;
    if (op == "transition") {
      if (takes(1)) result = build_transition(operands[0], attrs, where, note);
    } else if (op == "axis_index") {
      const auto axis = attrs.text("axis", "an axis of the mesh");
      if (takes(0) && axis && d_.number_of(*axis) >= 0) result = d_.program->axis_index(*axis, where);
      else if (axis && d_.number_of(*axis) < 0)
        d_.complain_as("unbound_axis", path(attrs.at(), "axis"), label_, in_quotes(*axis) + " is not an axis of the mesh");
    } else if (op == "detach") {
      if (takes(1)) result = gspmd::elementwise("stop_gradient", operands, where);
    } else if (op == "random") {
      if (takes(1)) result = check_random(operands[0], attrs, where, at);
    } else if (op == "opaque") {
      const auto type = read_dtype(attrs);
      const auto shape = read_shape(attrs, type.value_or(dtype::f32));
      using kind = strict_program::opaque_class;
      auto is = kind::nonlinear;
      if (const auto* j = attrs.find("class"); j != nullptr) {
        if (*j == "linear") is = kind::linear;
        else if (*j == "multilinear") is = kind::multilinear;
        else if (*j != "nonlinear")
          d_.complain(path(attrs.at(), "class"), "is " + found(*j) + ", not nonlinear, linear or multilinear");
      }
      if (operands.size() > 8) d_.complain(path(at, "operands"), "an opaque function has at most 8 operands");
      else if (type && shape) result = d_.program->opaque(*type, *shape, operands, is, where);
    } else if (op == "reshard") {
      if (out == nullptr) d_.complain(path(at, "out"), "is missing; a reshard needs a sharding");
      else if (takes(1)) {
        const auto s = d_.read_spec(*out, path(at, "out"), operands[0].rank(), label_);
        if (s) result = d_.program->reshard(operands[0], *s, where);
        note.out = s;
      }
    } else {
      operation o{*d_.builder, operands, attrs, where, op};
      o.further = &further;
      return build_operator(o, at);
    }
    attrs.refuse_unknown();
    return result;
  }
  /// Checks random numbers in a separate program. In the document's program, they are an opaque function of the key.
  value check_random(value key, object_reader& attrs, gspmd::location where, const path& at) {
    gspmd::dynamic::builder alone(*d_.mesh);
    const operation o{alone, {alone.input({key.type(), shape_of(key), {}, false, {}, monoid::add})}, attrs, where, "random"};
    const value drawn = build_random(o);
    if (const auto mistake = alone.take_mistake(); !mistake.empty()) return d_.complain(at, mistake), value{};
    if (!drawn.is_valid()) return {};
    return d_.program->opaque(drawn.type(), shape_of(drawn), {key}, strict_program::opaque_class::selects, where);
  }
  /// Reads a list of axes, as "x,y".
  bool read_axes(const json& axes, const path& at, std::string& list) {
    std::vector<bool> used(d_.answer.axes.size(), false);
    if (!axes.is_array() || axes.empty()) return d_.complain(at, "is no list of axes"), false;
    for (const auto& axis : axes) {
      if (!axis.is_string()) return d_.complain(at, "is no list of axes"), false;
      if (!d_.read_axis(axis.get<std::string>(), at, label_, used)) return false;
      list += (list.empty() ? "" : ",") + axis.get<std::string>();
    }
    return true;
  }
  bool read_exchange(const json& axes, const path& at, std::string& list) {
    if (!read_axes(axes, at, list)) return false;
    for (const auto& axis : axes)
      if (const auto& name = axis.get_ref<const std::string&>(); d_.is_manual(name))
        return d_.complain_as("axis_mode", at, label_, in_quotes(name) + " is a manual axis here; write a permute", name), false;
    return true;
  }
  value build_transition(value x, object_reader& attrs, gspmd::location where, op_note& note) {
    const auto word = attrs.text("verb", "one of convert reinterpret all_gather all_to_all permute all_reduce reduce_scatter");
    const auto from_word = attrs.text("from", "a state"), to_word = attrs.text("to", "a state");
    const auto* axes = attrs.require("axes", "a list of axes");
    const auto* pairs = word == "permute" || !word ? attrs.find("pairs") : nullptr;
    if (!word || !from_word || !to_word || axes == nullptr) return {};
    using gspmd::transition_kind;
    static const std::pair<const char*, transition_kind> kinds[] = {{"convert", transition_kind::convert},
                                                                    {"reinterpret", transition_kind::reinterpret},
                                                                    {"all_gather", transition_kind::all_gather},
                                                                    {"all_to_all", transition_kind::all_to_all},
                                                                    {"permute", transition_kind::permute},
                                                                    {"all_reduce", transition_kind::all_reduce},
                                                                    {"reduce_scatter", transition_kind::reduce_scatter}};
    std::optional<transition_kind> by;
    for (const auto& [name, is] : kinds)
      if (*word == name) by = is;
    const auto from = state_named(*from_word), to = state_named(*to_word);
    if (!by) d_.complain(path(attrs.at(), "verb"), "is " + in_quotes(*word) + ", no kind of transition");
    if (!from) d_.complain(path(attrs.at(), "from"), "is " + in_quotes(*from_word) + ", no state");
    if (!to) d_.complain(path(attrs.at(), "to"), "is " + in_quotes(*to_word) + ", no state");
    std::string list;
    if (!read_axes(*axes, path(attrs.at(), "axes"), list)) return {};
    std::vector<std::pair<std::int64_t, std::int64_t>> sends;
    if (pairs != nullptr) {
      if (!pairs->is_array()) return d_.complain(path(attrs.at(), "pairs"), "is no list of pairs"), value{};
      for (const auto& p : *pairs) {
        if (!p.is_array() || p.size() != 2 || !p[0].is_number_integer() || !p[1].is_number_integer())
          return d_.complain(path(attrs.at(), "pairs"), "is no list of pairs of devices"), value{};
        sends.emplace_back(p[0].get<std::int64_t>(), p[1].get<std::int64_t>());
      }
    }
    if (!by || !from || !to) return {};
    note.transition = {*by, list, *from, *to, sends};
    return d_.program->transition(x, *by, list, *from, *to, sends, where);
  }

  void read_outputs(const json& outputs) {
    for (std::size_t k = 0; k < outputs.size(); ++k)
      if (!outputs[k].is_string() || d_.names.find(outputs[k].get<std::string>()) == d_.names.end())
        d_.complain(path(path_outputs_, k), "no value is called so: " + found(outputs[k]));
  }
  void differentiate(const json& of, const char* key) {
    d_.answer.has_backward = true;
    const auto it = of.is_string() ? d_.names.find(of.get<std::string>()) : d_.names.end();
    if (it == d_.names.end()) return d_.errors.add(key, "no value is called so: " + found(of));
    if (!it->second.is.is_valid()) return;
    if (std::string_view(key) == "loss") d_.program->check_loss(it->second.is);
    for (auto& c : d_.program->backward_collectives(it->second.is)) d_.answer.backward.push_back(std::move(c));
  }
  void collect() {
    std::map<std::string_view, std::size_t> last;  // of the values with one name
    for (std::size_t k = 0; k < d_.shown.size(); ++k) last[d_.shown[k].first] = k;
    for (std::size_t k = 0; k < d_.shown.size(); ++k) {
      const auto& [name, v] = d_.shown[k];
      if (last.at(name) != k) continue;
      strict_answer::named n{name, v.is_valid() ? v.type() : dtype::f32, v.is_valid() ? shape_of(v) : integer_list{}, {}};
      if (v.is_valid()) n.is = d_.program->states(v);
      d_.answer.values.push_back(std::move(n));
    }
    d_.answer.forward = d_.program->collectives();
    d_.answer.errors = d_.program->errors();
    for (const auto& [error, label] : d_.kinds)
      if (error < d_.answer.errors.size() && d_.answer.errors[error].label < 0) d_.answer.errors[error].label = label;
  }

  const json& document_;
  std::optional<gspmd::network> network_;
  const path root_;
  const path path_inputs_{root_, "inputs"}, path_ops_{root_, "ops"}, path_outputs_{root_, "outputs"};
  strict_document d_;
  region_reader regions_{d_};
  manual_reader manual_regions_{d_, regions_};
  int label_ = -1;
};

}  // namespace plan_tool
