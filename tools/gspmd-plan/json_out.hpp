// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planned.hpp"

/// The plan as JSON: one line per value and per instruction.
namespace plan_tool {

inline std::string dumped(const nlohmann::ordered_json& j) {
  return j.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

inline nlohmann::ordered_json value_json(const planned_program& p, int v) {
  nlohmann::ordered_json j;
  const auto placed = p.placed(v);
  if (!placed) {  // no output depends on it, so it has no sharding
    j["sharding"] = nullptr;
    j["partial"] = nlohmann::ordered_json::object();
    j["local_shape"] = nullptr;
    j["unused"] = true;
    return j;
  }
  auto dims = nlohmann::ordered_json::array();
  for (const auto& axes : placed->sharding()) dims.push_back(names_in(axes));
  auto partial = nlohmann::ordered_json::object();
  for (const auto& name : names_in(placed->partial_axes())) partial[name] = gspmd::name_of(placed->partial_kind());
  j["sharding"] = dims;
  j["partial"] = partial;
  j["local_shape"] = placed->local_shape();
  return j;
}

inline nlohmann::ordered_json instruction_json(const planned_program& p, const instruction& i) {
  nlohmann::ordered_json j;
  j["kind"] = planned_program::kind_of(i);
  j["value"] = p.value(i.label).name;
  if (i.communicates) {
    j["axes"] = names_in(i.axes);
    if (i.dim >= 0) j["dim"] = i.dim;
    j["bytes"] = i.bytes;
    if (i.joined) j["joined"] = true;
  }
  return j;
}

/// `{"a": .., "b": ..}` or `[.., ..]`, with one line per entry.
inline std::string in_lines(const std::vector<std::string>& entries, char open, char close) {
  std::string t(1, open);
  for (std::size_t i = 0; i < entries.size(); ++i) t += (i == 0 ? "\n    " : ",\n    ") + entries[i];
  return t + (entries.empty() ? "" : "\n  ") + close;
}

/// `p` may be null: the document is refused.
inline std::string plan_json(const planned_program* p, const std::vector<std::string>& errors,
                             const std::vector<std::string>& why = {}) {
  std::vector<std::string> values, instructions, wrong, reasons;
  nlohmann::ordered_json collectives = nlohmann::ordered_json::object();
  if (p != nullptr) {
    for (int v = 0; v < static_cast<int>(p->built.values.size()); ++v)
      values.push_back(dumped(p->value(v).name) + ": " + dumped(value_json(*p, v)));
    for (const auto& i : p->plan.instructions()) {
      instructions.push_back(dumped(instruction_json(*p, i)));
      if (i.communicates && !i.joined) collectives[i.kind] = collectives.value(i.kind, 0) + 1;
    }
  }
  for (const auto& e : errors) wrong.push_back(dumped(e));
  for (const auto& w : why) reasons.push_back(dumped(w));
  std::string t = "{\n  \"values\": " + in_lines(values, '{', '}');
  t += ",\n  \"instructions\": " + in_lines(instructions, '[', ']');
  t += ",\n  \"collectives\": " + dumped(collectives);
  t += ",\n  \"bytes_sent_per_device\": " + std::to_string(p != nullptr ? p->program().traffic().bytes : 0);
  t += ",\n  \"peak_bytes_per_device\": " + std::to_string(p != nullptr ? p->program().peak_bytes_per_device() : 0);
  if (const auto bound = p != nullptr ? p->program().bound() : std::nullopt)
    t += ",\n  \"seconds\": " + dumped(bound->seconds) + ",\n  \"least_seconds\": " + dumped(bound->least_seconds);
  if (!why.empty()) t += ",\n  \"explain\": " + in_lines(reasons, '[', ']');
  return t + ",\n  \"errors\": " + in_lines(wrong, '[', ']') + "\n}\n";
}

}  // namespace plan_tool
