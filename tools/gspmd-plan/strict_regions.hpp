// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strict_document.hpp"

namespace plan_tool {

/// Reads the loops and conditionals of an explicit or manual document.
class region_reader {
 public:
  explicit region_reader(strict_document& d) : d_(d) {}

  /// Returns the results of a region whose inputs denote `operands` and have these states. Returns nullopt if the
  /// region is refused.
  std::optional<std::vector<value>> read_region(const json* region, const std::vector<value>& operands,
                                                const std::vector<value_states>& types, const path& at,
                                                std::vector<value>* arguments = nullptr,
                                                const std::vector<integer_list>* shapes = nullptr,
                                                const std::vector<bool>& are_zeros = {}) {
    if (region == nullptr || !region->is_object())
      return d_.complain(at, "is no region: {\"inputs\": [], \"ops\": [], \"outputs\": []}"), std::nullopt;
    object_reader reader(*region, at, d_.errors);
    const auto* inputs = reader.require("inputs", "a list of names");
    const auto* ops = reader.find("ops");
    const auto* outputs = reader.require("outputs", "a list of names");
    reader.refuse_unknown();
    if (inputs == nullptr || outputs == nullptr || !inputs->is_array() || !outputs->is_array() ||
        (ops != nullptr && !ops->is_array()))
      return d_.complain(at, "has inputs, ops and outputs that are lists"), std::nullopt;
    if (inputs->size() != operands.size())
      return d_.complain(path(at, "inputs"),
                         "has " + std::to_string(inputs->size()) + " names for " + std::to_string(operands.size()) + " operands"),
             std::nullopt;
    strict_document::scope outside;
    std::swap(outside, d_.names);
    std::optional<std::vector<value>> results{std::in_place};
    for (std::size_t k = 0; k < operands.size(); ++k) {
      auto* v = (*inputs)[k].is_string() ? d_.define((*inputs)[k].get<std::string>(), at) : nullptr;
      if (v == nullptr) continue;
      const auto x = d_.builder->input(
          {operands[k].type(), shapes != nullptr ? (*shapes)[k] : shape_of(operands[k]), {}, false, {}, monoid::add});
      d_.program->input(x, types[k]);
      d_.program->stands_for(x, operands[k]);
      if (k < are_zeros.size() && are_zeros[k]) d_.program->believe_zeros(x);
      d_.keep(*v, x);
      if (arguments != nullptr) arguments->push_back(x);
    }
    if (ops != nullptr) d_.read_ops(*ops, path(at, "ops"));
    for (std::size_t k = 0; k < outputs->size(); ++k) {
      const auto it = (*outputs)[k].is_string() ? d_.names.find((*outputs)[k].get<std::string>()) : d_.names.end();
      if (it == d_.names.end())
        d_.complain(path(path(at, "outputs"), k), "no value of the region is called so: " + found((*outputs)[k]));
      if (it == d_.names.end() || !it->second.is.is_valid() || !d_.program->states(it->second.is)) results.reset();
      else if (results) results->push_back(it->second.is);
      if (!results) break;
    }
    std::swap(outside, d_.names);
    return results;
  }

  void read_loop(const std::string& name, const std::vector<value>& operands, const json* body, const json* condition,
                 object_reader& attrs, const path& at) {
    const auto* trips = condition == nullptr ? attrs.find("trips") : nullptr;
    attrs.refuse_unknown();
    const path at_attrs(at, "attrs"), at_trips(at_attrs, "trips");
    if (trips == nullptr && condition == nullptr) d_.complain(at_trips, "is missing; it is how often the loop runs");
    if (trips != nullptr) read_integer(*trips, at_trips, d_.errors, 0, std::numeric_limits<std::int32_t>::max());
    std::vector<value_states> types;
    std::vector<bool> are_zeros;
    for (const auto& o : operands) {
      types.push_back(*d_.program->states(o));
      are_zeros.push_back(d_.program->may_be_zeros(o));
    }
    const auto first_label = d_.answer.names.size();
    const auto mark = d_.program->here();
    for (std::size_t round = 0; round < (4 * d_.answer.axes.size() + 1) * operands.size() + 4; ++round) {
      d_.program->back_to(mark);
      d_.kinds.erase(
          std::remove_if(d_.kinds.begin(), d_.kinds.end(), [&](const auto& k) { return k.first >= mark.mistakes + mark.found; }),
          d_.kinds.end());
      d_.answer.names.resize(first_label);
      d_.shown.resize(first_label);
      const auto before = d_.errors.count();
      std::string diverging;
      if (condition != nullptr) {
        const auto predicate = read_region(condition, operands, types, path(at, "while"));
        if (!predicate || predicate->size() != 1) {
          if (predicate) d_.complain(path(at, "while"), "has one result, the predicate");
          return d_.refuse_results(name, body, at);
        }
        if (!d_.check_predicate((*predicate)[0], false, path(at, "while"))) return d_.refuse_results(name, body, at);
        diverging = d_.varying_axes((*predicate)[0]);
        d_.notes[condition].axes = diverging;
        bool changed = false;
        for (const auto& axis : names_in(diverging)) {
          const auto a = static_cast<std::size_t>(d_.number_of(axis));
          for (std::size_t k = 0; k < types.size(); ++k) {
            auto& on = types[k].on[a];
            if (on.is == state::constant || on.is == state::replica) {
              on = {state::varying};
              changed = true;
            } else if (on.is == state::invariant || on.is == state::partial) {
              complain_loop(on.is == state::invariant ? "state_conflict" : "partial_varying_mix", name, k, axis,
                            "devices have different numbers of iterations, and the carried value is " + state_text(on));
              return d_.refuse_results(name, body, at);
            }
          }
        }
        if (changed) continue;
      }
      const auto were = d_.program->set_diverging("");
      d_.program->set_diverging(both(were, diverging));
      std::vector<value> arguments;
      const auto results = read_region(body, operands, types, path(at, "body"), &arguments, nullptr, are_zeros);
      d_.program->set_diverging(were);
      if (!results || d_.errors.count() != before) return d_.refuse_results(name, body, at);
      if (results->size() != operands.size()) {
        d_.complain(path(at, "body"), "gives " + std::to_string(results->size()) + " values and the loop carries " +
                                          std::to_string(operands.size()));
        return d_.refuse_results(name, body, at);
      }
      bool changed = false, was_believed = false;
      for (std::size_t k = 0; k < results->size(); ++k) {
        const value r = (*results)[k];
        if (r.type() != operands[k].type() || shape_of(r) != shape_of(operands[k])) {
          complain_loop("carry_mismatch", name, k, "",
                        "is " + std::string(gspmd::name_of(operands[k].type())) + shape_text(shape_of(operands[k])) +
                            " before and " + gspmd::name_of(r.type()) + shape_text(shape_of(r)) + " after an iteration");
          return d_.refuse_results(name, body, at);
        }
        const auto found = *d_.program->states(r);
        for (std::size_t a = 0; a < d_.answer.axes.size(); ++a) {
          const auto is = found.on[a];
          auto& carried = types[k].on[a];
          const bool is_manual_axis = d_.is_manual(d_.answer.axes[a]);
          const bool is_same = is == carried || (is_manual_axis && carried.is == state::varying && is.is == state::shard);
          const bool goes_in = (is.is == state::constant && carried.is != state::partial) ||
                               (is.is == state::replica && carried.is == state::varying) || is_same;
          if (goes_in) continue;
          const bool may_be =
              (carried.is == state::constant && (is.is != state::partial || d_.program->may_be_zeros(operands[k]))) ||
              (is_manual_axis && carried.is == state::replica && is.is == state::varying) ||
              (is_manual_axis && carried.is == state::replica && is.is == state::shard);
          if (!may_be) {
            complain_loop("carry_mismatch", name, k, d_.answer.axes[a],
                          "is " + state_text(carried) + " before and " + state_text(is) +
                              " after an iteration; bring the first value to " + state_text(is) + ", or the last one to " +
                              state_text(carried));
            return d_.refuse_results(name, body, at);
          }
          carried = is_manual_axis && is.is == state::shard ? axis_state{state::varying} : is;
          if (is.is == state::shard && !is_manual_axis) types[k].order = found.order;
          changed = true;
        }
      }
      for (std::size_t k = 0; k < types.size() && !changed; ++k) {
        const auto is_constant = [](const auto& on) { return on.is == state::constant; };
        if (!are_zeros[k] || std::none_of(types[k].on.begin(), types[k].on.end(), is_constant)) continue;
        are_zeros[k] = false;  // on that axis it has no sum
        was_believed = true;
      }
      if (changed || was_believed) continue;
      for (std::size_t k = 0; k < results->size(); ++k) d_.program->stands_for(arguments[k], (*results)[k]);
      for (std::size_t k = 0; k < results->size(); ++k)
        d_.give(result_name(name, k, results->size()), (*results)[k], types[k], shape_of((*results)[k]), at);
      return;
    }
  }
  void read_cond(const std::string& name, const std::vector<value>& operands, const json* branches, const path& at) {
    if (branches == nullptr || !branches->is_array() || branches->empty() || branches->size() > 7 || operands.empty())
      return d_.complain(at, "has a predicate, and branches, 1 to 7");
    if (!d_.check_predicate(operands[0], true, path(at, "operands"))) return d_.refuse_results(name, &(*branches)[0], at);
    const std::vector<value> rest(operands.begin() + 1, operands.end());
    std::vector<value_states> types;
    for (const auto& o : rest) types.push_back(*d_.program->states(o));
    const auto were = d_.program->set_diverging("");
    d_.notes[branches].axes = d_.varying_axes(operands[0]);
    d_.program->set_diverging(both(were, d_.notes[branches].axes));
    std::vector<std::vector<value>> results;
    bool is_sound = true;
    for (std::size_t b = 0; b < branches->size(); ++b) {
      auto r = read_region(&(*branches)[b], rest, types, path(path(at, "branches"), b));
      is_sound = is_sound && r.has_value();
      if (r) results.push_back(std::move(*r));
    }
    d_.program->set_diverging(were);
    if (!is_sound) return d_.refuse_results(name, &(*branches)[0], at);
    for (std::size_t k = 0; k < results[0].size(); ++k) {
      auto* v = d_.define(result_name(name, k, results[0].size()), at);
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
        d_.complain_as("branch_mismatch", at, v->label, "the branches give values of other types or shapes");
        continue;
      }
      const auto is = d_.program->choice(operands[0], of,
                                         {v != nullptr ? d_.answer.names[static_cast<std::size_t>(v->label)].c_str() : "", 0});
      d_.keep(*v, is);
    }
  }

 private:
  void complain_loop(const char* kind, const std::string& name, std::size_t k, const std::string& axis, const std::string& what) {
    d_.program->refuse(kind, {}, static_cast<int>(k), axis,
                       "loop `" + name + "`: its carried operand " + std::to_string(k) +
                           (axis.empty() ? "" : ", over `" + axis + "`,") + ' ' + what);
    d_.kinds.emplace_back(d_.program->error_count() - 1, d_.label_of_region(name));
  }

  strict_document& d_;
};

}  // namespace plan_tool
