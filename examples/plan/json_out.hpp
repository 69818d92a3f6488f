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

/// The names of axes in this order; parts of an axis that stand together are one.
inline std::vector<std::string> axis_names(const ir::mesh_info& mesh, ir::axis_list axes, bool any_order = false) {
  std::vector<std::string> names;
  while (!axes.empty()) {
    ir::text name;
    mesh.write_first(name, axes, any_order);
    names.emplace_back(name.view());
  }
  return names;
}
inline std::vector<std::string> axis_names(const ir::mesh_info& mesh, ir::axis_mask axes) {
  ir::axis_list list;
  for (int a = 0; a < mesh.shape.axis_count(); ++a)
    if ((axes & ir::axis_bit(a)) != 0) list.push_back(static_cast<std::int8_t>(a));
  return axis_names(mesh, list, true);
}

inline nlohmann::ordered_json axes_json(const ir::mesh_info& mesh, ir::axis_mask axes) {
  auto list = nlohmann::ordered_json::array();
  for (auto& name : axis_names(mesh, axes)) list.push_back(std::move(name));
  return list;
}
inline nlohmann::ordered_json sharding_json(const ir::mesh_info& mesh, const ir::sharding& s, int rank) {
  auto dims = nlohmann::ordered_json::array();
  for (int d = 0; d < rank; ++d) {
    ir::axis_list axes;
    for (const auto& use : s.splits)
      if (use.dim == d) axes.push_back(use.axis);
    auto list = nlohmann::ordered_json::array();
    for (auto& name : axis_names(mesh, axes)) list.push_back(std::move(name));
    dims.push_back(std::move(list));
  }
  return dims;
}
inline nlohmann::ordered_json partial_json(const ir::mesh_info& mesh, const ir::sharding& s) {
  auto partial = nlohmann::ordered_json::object();
  for (const auto& name : axis_names(mesh, s.partial)) partial[name] = ir::name_of(s.kind);
  return partial;
}
inline nlohmann::ordered_json shape_json(const ir::extents& shape) {
  auto list = nlohmann::ordered_json::array();
  for (const auto e : shape) list.push_back(e);
  return list;
}

inline nlohmann::ordered_json value_json(const planned_program& p, int v) {
  nlohmann::ordered_json j;
  if (p.value(v).node < 0) {  // no output depends on it, so nobody asks where it should lie
    j["sharding"] = nullptr;
    j["partial"] = nlohmann::ordered_json::object();
    j["local_shape"] = nullptr;
    j["unused"] = true;
    return j;
  }
  const auto s = p.sharding_of(v);
  const auto& shape = p.value(v).shape;
  j["sharding"] = sharding_json(p.mesh(), s, shape.count);
  j["partial"] = partial_json(p.mesh(), s);
  j["local_shape"] = shape_json(ir::local_extents(p.mesh().shape, shape, s));
  return j;
}

inline nlohmann::ordered_json instruction_json(const planned_program& p, const instruction& i) {
  nlohmann::ordered_json j;
  j["kind"] = i.kind;
  j["value"] = p.value(i.value).name;
  if (i.communicates) {
    j["axes"] = axes_json(p.mesh(), i.axes);
    if (i.dim >= 0) j["dim"] = i.dim;
    j["bytes"] = i.bytes;
  }
  return j;
}

/// `{"a": .., "b": ..}` or `[.., ..]` over as many lines as there are entries.
inline std::string in_lines(const std::vector<std::string>& entries, char open, char close) {
  std::string t(1, open);
  for (std::size_t i = 0; i < entries.size(); ++i) t += (i == 0 ? "\n    " : ",\n    ") + entries[i];
  return t + (entries.empty() ? "" : "\n  ") + close;
}

/// `p` may be null: the document was refused.
inline std::string plan_json(const planned_program* p, const std::vector<std::string>& errors,
                             const std::vector<std::string>& why = {}) {
  std::vector<std::string> values, instructions, wrong, reasons;
  nlohmann::ordered_json collectives = nlohmann::ordered_json::object();
  if (p != nullptr) {
    for (int v = 0; v < static_cast<int>(p->built.values.size()); ++v)
      values.push_back(dumped(p->value(v).name) + ": " + dumped(value_json(*p, v)));
    for (const auto& i : p->instructions) {
      instructions.push_back(dumped(instruction_json(*p, i)));
      if (i.communicates) collectives[i.kind] = collectives.value(i.kind, 0) + 1;
    }
  }
  for (const auto& e : errors) wrong.push_back(dumped(e));
  for (const auto& w : why) reasons.push_back(dumped(w));
  std::string t = "{\n  \"values\": " + in_lines(values, '{', '}');
  t += ",\n  \"instructions\": " + in_lines(instructions, '[', ']');
  t += ",\n  \"collectives\": " + dumped(collectives);
  t += ",\n  \"bytes_sent_per_device\": " + std::to_string(p != nullptr ? p->program->traffic().bytes : 0);
  t += ",\n  \"peak_bytes_per_device\": " + std::to_string(p != nullptr ? p->program->peak_bytes_per_device() : 0);
  if (!why.empty()) t += ",\n  \"why\": " + in_lines(reasons, '[', ']');
  return t + ",\n  \"errors\": " + in_lines(wrong, '[', ']') + "\n}\n";
}

}  // namespace plan_tool
