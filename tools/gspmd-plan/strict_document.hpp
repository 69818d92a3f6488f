// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gspmd/dynamic/strict_program.hpp>

#include "strict_notes.hpp"

/// Functions for the readers of an explicit or manual document.
namespace plan_tool {

using gspmd::axis_state;
using gspmd::state;
using gspmd::dynamic::strict_program;
using gspmd::dynamic::value_states;

/// The result of the check of a document of the explicit or manual mode.
struct strict_answer {
  struct named {
    std::string name;
    dtype type = dtype::f32;
    integer_list shape;
    std::optional<value_states> is;  // nullopt: refused
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
  if (s.reduced_by == monoid::max) return "P<max>";
  if (s.reduced_by == monoid::min) return "P<min>";
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
    const auto kind = name == "max" ? monoid::max : name == "min" ? monoid::min : monoid_named(name);
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

/// NAME, or NAME.0, NAME.1, ...
inline std::string result_name(const std::string& name, std::size_t k, std::size_t count) {
  return count == 1 ? name : name + '.' + std::to_string(k);
}
inline std::string both(const std::string& a, const std::string& b) {
  std::string all = a;
  for (const auto& name : names_in(b)) {
    const auto known = names_in(all);
    if (std::find(known.begin(), known.end(), name) == known.end()) all += (all.empty() ? "" : ",") + name;
  }
  return all;
}

/// A document that is being read: its names, the program that is built from it, and the results.
struct strict_document {
  struct variable {
    value is;  // not valid: refused
    int label = -1;
  };
  using scope = std::map<std::string, variable>;

  explicit strict_document(error_list& e) : errors(e) {}
  strict_document(const strict_document&) = delete;
  strict_document& operator=(const strict_document&) = delete;

  error_list& errors;
  std::optional<gspmd::dynamic::mesh> mesh;
  std::optional<gspmd::dynamic::builder> builder;
  std::optional<strict_program> program;
  strict_answer answer;
  scope names;
  std::vector<std::pair<std::string, value>> shown;  // by label
  std::vector<std::pair<std::size_t, int>> kinds;    // errors of the reader, with the labels of their values
  std::vector<std::string> manual;                   // the axes of the local view
  op_notes notes;
  std::function<void(const json&, const path&)> read_ops;  // of a region

  /// Reports a mistake in the form of the document, or a mistake with an operator that all modes have.
  void complain(const path& at, const std::string& what) { errors.add(at.str(), what); }
  void complain_as(const char* kind, const path& at, int label, const std::string& what, const std::string& axis = {}) {
    value none;
    program->refuse(kind, none, -1, axis, at.str() + ": " + what);
    kinds.emplace_back(program->error_count() - 1, label);
  }
  [[nodiscard]] bool is_manual(const std::string& axis) const {
    return std::find(manual.begin(), manual.end(), axis) != manual.end();
  }
  [[nodiscard]] int number_of(const std::string& axis) const {
    for (std::size_t a = 0; a < answer.axes.size(); ++a)
      if (answer.axes[a] == axis) return static_cast<int>(a);
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
  /// Reads `state`, `sharding`, `partial` and `replica` of a value of this rank. Axes that these members do not name
  /// are invariant.
  std::optional<value_states> read_states(object_reader& from, int rank, int label) {
    value_states s;
    s.on.assign(answer.axes.size(), axis_state{state::invariant});
    std::vector<bool> used(answer.axes.size(), false);
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
    const auto *given_state = from.find("state"), *given_sharding = from.find("sharding"), *given_partial = from.find("partial"),
               *given_replica = from.find("replica");
    if (const auto* j = given_state; j != nullptr && is_object(*j, "state"))
      for (const auto& [name, word] : j->items()) {
        const path at_state = path_of(from, "state"), at(at_state, name);
        const auto is = word.is_string() ? state_named(word.get_ref<const std::string&>()) : std::nullopt;
        if (is) note(name, at, *is, true);
        else complain(at, "is " + found(word) + ", not one of C R I V S(d) P P<max> P<min>"), is_right = false;
      }
    if (const auto* j = given_sharding; j != nullptr) {
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
    if (const auto* j = given_partial; j != nullptr && is_object(*j, "partial"))
      for (const auto& [name, word] : j->items()) {
        const path at_partial = path_of(from, "partial"), at(at_partial, name);
        if (const auto kind = read_monoid(word, at, errors)) note(name, at, axis_state{state::partial, 0, *kind}, false);
        else is_right = false;
      }
    if (const auto* j = given_replica; j != nullptr) {
      const path at = path_of(from, "replica");
      if (!j->is_array()) return complain(at, "is " + found(*j) + ", not a list of axes"), std::nullopt;
      for (std::size_t k = 0; k < j->size(); ++k)
        if ((*j)[k].is_string()) note((*j)[k].get<std::string>(), at, axis_state{state::replica}, false);
        else complain(path(at, k), "is " + found((*j)[k]) + ", not the name of an axis"), is_right = false;
    }
    if (!is_right) return {};
    return s;
  }
  std::optional<value_states> read_spec(const json& j, const path& at, int rank, int label) {
    object_reader reader(j, at, errors);
    if (!reader.is_object()) return {};
    const auto s = read_states(reader, rank, label);
    reader.refuse_unknown();
    return s;
  }
  static path path_of(const object_reader& from, std::string_view key) { return {from.at(), key}; }

  variable* define(const std::optional<std::string>& name, const path& at) {
    if (!name) return nullptr;
    const auto [it, is_new] = names.try_emplace(*name);
    if (!is_new) return complain(path(at, "name"), "a second value is called " + in_quotes(*name)), nullptr;
    it->second.label = static_cast<int>(answer.names.size());
    answer.names.push_back(*name);
    shown.push_back({*name, {}});
    return &it->second;
  }
  void keep(variable& v, value is) {
    v.is = is;
    builder->label(v.label);
    if (is.is_valid()) builder->label(is, v.label);
    shown[static_cast<std::size_t>(v.label)].second = is;
  }
  /// If it returns false, no further error of the op is reported: an operand of the op is refused.
  bool read_operands(const json* j, const path& at, std::vector<value>& operands) {
    if (j == nullptr) return true;
    if (!j->is_array()) return complain(at, "is " + found(*j) + ", not a list of names"), false;
    bool is_sound = true;
    for (std::size_t k = 0; k < j->size(); ++k) {
      const auto it = (*j)[k].is_string() ? names.find((*j)[k].get<std::string>()) : names.end();
      if (it == names.end()) {
        complain(path(at, k), "no value before it is called so: " + found((*j)[k]));
        is_sound = false;
      } else {
        operands.push_back(it->second.is);
        is_sound = is_sound && it->second.is.is_valid() && program->states(it->second.is).has_value();
      }
    }
    return is_sound;
  }
  void refuse_results(const std::string& name, const json* region, const path& at) {
    std::size_t count = 1;
    if (region != nullptr && region->is_object() && region->contains("outputs") && (*region)["outputs"].is_array())
      count = (*region)["outputs"].size();
    for (std::size_t k = 0; k < count; ++k) define(result_name(name, k, count), at);
  }
  /// Adds a result of a region to the names outside of the region.
  void give(const std::string& name, value of, const value_states& s, const integer_list& shape, const path& at) {
    auto* v = define(name, at);
    if (v == nullptr) return;
    const auto x = builder->input({of.type(), shape, {}, false, {}, monoid::add});
    program->input(x, s);
    program->stands_for(x, of);
    keep(*v, x);
  }
  [[nodiscard]] std::string varying_axes(value x) const {
    std::string list;
    const auto s = program->states(x);
    for (std::size_t a = 0; s && a < s->on.size(); ++a)
      if (s->on[a].is == state::varying || s->on[a].is == state::shard) list += (list.empty() ? "" : ",") + answer.axes[a];
    return list;
  }
  /// Returns whether `p` is a scalar pred, or an integer that counts branches.
  bool check_predicate(value p, bool may_count, const path& at) {
    const bool is_right = p.rank() == 0 && (p.type() == dtype::pred || (may_count && is_integer(p.type())));
    if (!is_right) complain(at, may_count ? "the predicate is a scalar, pred or an integer" : "the predicate is a scalar pred");
    return is_right;
  }
  /// Returns a label for mistakes in a region itself. A region has no value.
  int label_of_region(const std::string& name) {
    answer.names.push_back(name);
    shown.push_back({name, {}});
    return static_cast<int>(answer.names.size()) - 1;
  }
};

}  // namespace plan_tool
