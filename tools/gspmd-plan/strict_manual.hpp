// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "strict_regions.hpp"

namespace plan_tool {

/// Reads a manual region of an explicit document: its inputs and outputs, and its body with shapes of shards.
class manual_reader {
 public:
  manual_reader(strict_document& d, region_reader& regions) : d_(d), regions_(regions) {}

  void read(const std::string& name, const std::vector<value>& operands, const json* body, object_reader& attrs, const path& at) {
    const auto* axes = attrs.require("axes", "a list of axes");
    const auto* in = attrs.find("in");
    const auto* out = attrs.require("out", "a list of objects, one for each result");
    attrs.refuse_unknown();
    const auto fail = [&] { d_.refuse_results(name, body, at); };
    const int label = d_.label_of_region(name);
    if (axes == nullptr || !axes->is_array() || out == nullptr || !out->is_array() ||
        (in != nullptr && (!in->is_array() || in->size() != operands.size()))) {
      d_.complain(at, "has axes, in and out that are lists; `in` has one entry for each operand");
      return fail();
    }
    std::vector<bool> used(d_.answer.axes.size(), false);
    std::string list;
    for (const auto& axis : *axes) {
      if (!axis.is_string()) return d_.complain(path(attrs.at(), "axes"), "is no list of axes"), fail();
      const auto word = axis.get<std::string>();
      if (!d_.read_axis(word, path(attrs.at(), "axes"), label, used)) return fail();
      if (d_.is_manual(word))
        return d_.complain_as("axis_mode", path(attrs.at(), "axes"), label, in_quotes(word) + " is manual already", word), fail();
      list += (list.empty() ? "" : ",") + word;
    }
    const auto is_new = [&](std::size_t a) { return static_cast<bool>(used[a]); };
    std::vector<value_states> inside, takes, gives;
    std::vector<integer_list> shapes;
    for (std::size_t k = 0; k < operands.size(); ++k) {
      auto is = *d_.program->states(operands[k]);
      if (in != nullptr && !(*in)[k].is_null()) {
        const path at_list(attrs.at(), "in"), at_in(at_list, k);
        const auto spec = d_.read_spec((*in)[k], at_in, operands[k].rank(), label);
        if (!spec) return fail();
        for (std::size_t a = 0; a < d_.answer.axes.size(); ++a) {
          const bool is_equal = is.on[a].is == state::constant;
          const bool is_cut = spec->on[a].is == state::shard && is.on[a].is == state::replica;
          if (is.on[a] == spec->on[a] || (is_equal && spec->on[a].is != state::partial) || is_cut) continue;
          d_.program->refuse("in_spec_mismatch", {}, static_cast<int>(k), d_.answer.axes[a],
                             "manual `" + name + "`: operand " + std::to_string(k) + " is " + state_text(is.on[a]) + " over `" +
                                 d_.answer.axes[a] + "` and `in` says " + state_text(spec->on[a]) +
                                 "; reshard it before, nothing is moved for a region");
          d_.kinds.emplace_back(d_.program->error_count() - 1, label);
          return fail();
        }
        is = *spec;
      }
      takes.push_back(is);
      auto shape = shape_of(operands[k]);
      std::vector<bool> cut_further(static_cast<std::size_t>(operands[k].rank()), false);
      for (const auto& [axis, dim] : is.order) {
        const auto d = static_cast<std::size_t>(dim);
        if (!is_new(static_cast<std::size_t>(axis))) {
          cut_further[d] = true;
          continue;
        }
        const auto size = d_.mesh->axes()[static_cast<std::size_t>(axis)].size;
        if (cut_further[d] || shape[d] % size != 0) {
          d_.program->refuse(cut_further[d] ? "nested_order" : "in_spec_mismatch", {}, static_cast<int>(k),
                             d_.answer.axes[static_cast<std::size_t>(axis)],
                             "manual `" + name + "`: dim " + std::to_string(dim) + " of operand " + std::to_string(k) +
                                 (cut_further[d] ? " is split by axes of the global view before `" : " is not divisible by `") +
                                 d_.answer.axes[static_cast<std::size_t>(axis)] + "`");
          d_.kinds.emplace_back(d_.program->error_count() - 1, label);
          return fail();
        }
        shape[d] /= size;
      }
      inside.push_back(is);
      shapes.push_back(shape);
    }
    const auto manual_before = d_.manual;
    const auto were = d_.program->set_manual("");
    d_.program->set_manual(both(were, list));
    for (const auto& word : names_in(list)) d_.manual.push_back(word);
    const auto results = regions_.read_region(body, operands, inside, path(at, "body"), nullptr, &shapes);
    d_.program->set_manual(were);
    d_.manual = manual_before;
    if (!results) return fail();
    if (results->size() != out->size()) return d_.complain(path(attrs.at(), "out"), "has one entry for each result"), fail();
    for (std::size_t k = 0; k < results->size(); ++k) {
      const auto is = *d_.program->states((*results)[k]);
      const auto spec = d_.read_spec((*out)[k], path(path(attrs.at(), "out"), k), (*results)[k].rank(), label);
      if (!spec) return fail();
      auto shape = shape_of((*results)[k]);
      for (const auto& [axis, dim] : spec->order)
        if (is_new(static_cast<std::size_t>(axis)))
          shape[static_cast<std::size_t>(dim)] *= d_.mesh->axes()[static_cast<std::size_t>(axis)].size;
      for (std::size_t a = 0; a < d_.answer.axes.size(); ++a) {
        const auto from = is.on[a], to = spec->on[a];
        const bool is_chunk = is_new(a) && to.is == state::shard && (from.is == state::varying || from.is == state::shard) &&
                              (from.is == state::varying || from.dim == to.dim);
        if (from == to || is_chunk || (from.is == state::constant && to.is != state::partial && to.is != state::shard)) continue;
        d_.program->refuse("out_spec_mismatch", {}, static_cast<int>(k), d_.answer.axes[a],
                           "manual `" + name + "`: result " + std::to_string(k) + " is " + state_text(from) + " over `" +
                               d_.answer.axes[a] + "` and `out` says " + state_text(to) +
                               "; a result leaves with the state that it has");
        d_.kinds.emplace_back(d_.program->error_count() - 1, label);
        return fail();
      }
      d_.give(result_name(name, k, results->size()), (*results)[k], *spec, shape, at);
      gives.push_back(*spec);
    }
    d_.notes[body] = {{}, {}, {}, list, std::move(takes), std::move(gives)};
  }

 private:
  strict_document& d_;
  region_reader& regions_;
};

}  // namespace plan_tool
