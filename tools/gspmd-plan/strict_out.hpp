// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "json_out.hpp"
#include "strict.hpp"

/// The result of the check of an explicit or manual document, as JSON and as text.
namespace plan_tool {

inline nlohmann::ordered_json states_json(const strict_answer& answer, const strict_answer::named& v) {
  nlohmann::ordered_json j;
  if (!v.is) {
    j[answer.is_manual ? "state" : "sharding"] = nullptr;
    return j;
  }
  const auto& on = v.is->on;
  if (answer.is_manual) {
    j["state"] = nlohmann::ordered_json::object();
    for (std::size_t a = 0; a < on.size(); ++a) j["state"][answer.axes[a]] = state_text(on[a]);
  } else {
    auto dims = nlohmann::ordered_json::array();
    for (std::size_t d = 0; d < v.shape.size(); ++d) dims.push_back(nlohmann::ordered_json::array());
    for (const auto& [axis, dim] : v.is->order)
      dims[static_cast<std::size_t>(dim)].push_back(answer.axes[static_cast<std::size_t>(axis)]);
    auto partial = nlohmann::ordered_json::object();
    auto replica = nlohmann::ordered_json::array(), constant = replica, varying = replica;
    for (std::size_t a = 0; a < on.size(); ++a) {
      if (on[a].is == state::partial) partial[answer.axes[a]] = gspmd::name_of(on[a].reduced_by);
      if (on[a].is == state::replica) replica.push_back(answer.axes[a]);
      if (on[a].is == state::constant) constant.push_back(answer.axes[a]);
      if (on[a].is == state::varying) varying.push_back(answer.axes[a]);
    }
    j["sharding"] = dims;
    j["partial"] = partial;
    j["replica"] = replica;
    if (!constant.empty()) j["constant"] = constant;
    if (!varying.empty()) j["varying"] = varying;
  }
  j["shape"] = v.shape;
  return j;
}

inline std::vector<std::string> collectives_json(const strict_answer& answer,
                                                 const std::vector<gspmd::dynamic::written_collective>& list) {
  std::vector<std::string> lines;
  for (const auto& c : list) {
    nlohmann::ordered_json j;
    j["kind"] = c.kind;
    j["value"] = answer.name(c.label);
    j["axes"] = names_in(c.axes);
    j["bytes"] = c.bytes;
    lines.push_back(dumped(j));
  }
  return lines;
}

/// `answer` may be null: the document cannot be read.
inline std::string strict_json(const strict_answer* answer, const std::vector<std::string>& errors) {
  std::vector<std::string> values, forward, backward, wrong;
  std::int64_t bytes = 0;
  if (answer != nullptr) {
    for (const auto& v : answer->values) values.push_back(dumped(v.name) + ": " + dumped(states_json(*answer, v)));
    forward = collectives_json(*answer, answer->forward);
    backward = collectives_json(*answer, answer->backward);
    for (const auto& c : answer->forward) bytes += c.bytes;
  }
  for (const auto& e : errors) {
    nlohmann::ordered_json j;
    j["kind"] = "document";
    j["text"] = e;
    wrong.push_back(dumped(j));
  }
  if (answer != nullptr)
    for (const auto& e : answer->errors) {
      nlohmann::ordered_json j;
      j["kind"] = e.kind;
      j["value"] = answer->name(e.label);
      if (e.operand >= 0) j["operand"] = e.operand;
      if (!e.axis.empty()) j["axis"] = e.axis;
      j["text"] = e.text;
      j["remedies"] = e.remedies;
      wrong.push_back(dumped(j));
    }
  std::string t = "{\n  \"values\": " + in_lines(values, '{', '}');
  t += ",\n  \"collectives\": " + in_lines(forward, '[', ']');
  if (answer != nullptr && answer->has_backward) t += ",\n  \"backward_collectives\": " + in_lines(backward, '[', ']');
  t += ",\n  \"bytes_sent_per_device\": " + std::to_string(bytes);
  return t + ",\n  \"errors\": " + in_lines(wrong, '[', ']') + "\n}\n";
}

/// Returns one line for each mistake, with its remedies.
inline std::vector<std::string> strict_errors(const strict_answer& answer) {
  std::vector<std::string> lines;
  for (const auto& e : answer.errors) {
    std::string line = e.text;
    for (std::size_t k = 0; k < e.remedies.size(); ++k) line += (k == 0 ? "; write " : "; or ") + e.remedies[k];
    lines.push_back(line);
  }
  return lines;
}

/// Returns a line for each value, and one for each collective.
inline std::string strict_table(const strict_answer& answer) {
  std::string t;
  for (const auto& v : answer.values) {
    t += gspmd::printable(v.name) + "  " + gspmd::name_of(v.type) + shape_text(v.shape) + "  ";
    if (!v.is) t += "refused";
    else t += dumped(states_json(answer, v)[answer.is_manual ? "state" : "sharding"]);
    for (std::size_t a = 0; v.is && !answer.is_manual && a < answer.axes.size(); ++a) {
      const auto& s = v.is->on[a];
      if (s.is == state::partial || s.is == state::replica) t += ' ' + state_text(s) + '(' + answer.axes[a] + ')';
    }
    t += '\n';
  }
  const auto add = [&](const char* when, const auto& list) {
    for (const auto& c : list)
      t += std::string("  >> ") + when + c.kind + " over " + c.axes + " of " + gspmd::printable(answer.name(c.label)) + ", " +
           std::to_string(c.bytes) + " bytes\n";
  };
  add("", answer.forward);
  add("backward: ", answer.backward);
  return t;
}

}  // namespace plan_tool
