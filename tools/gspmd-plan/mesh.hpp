// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gspmd/plan/overlap.hpp>
#include <gspmd/plan/solve.hpp>

#include "operators.hpp"

namespace plan_tool {

/// Reads the mesh of a document. Returns nullopt if the mesh has a mistake.
class mesh_reader {
 public:
  explicit mesh_reader(error_list& errors) : errors_(errors) {}

  std::optional<gspmd::dynamic::mesh> read(const json& j, const path& at) {
    object_reader reader(j, at, errors_);
    const auto before = errors_.count();
    std::vector<gspmd::dynamic::mesh::axis> axes;
    std::int64_t count = 1;
    if (const auto* list = reader.require("axes", "a list like [[\"x\", 2], [\"y\", 4]]")) {
      const path at_axes(at, "axes");
      if (!list->is_array()) errors_.add(at_axes.str(), "is " + found(*list) + ", not a list");
      else if (list->size() > gspmd::dynamic::mesh::most_axes)
        errors_.add(at_axes.str(), "has " + std::to_string(list->size()) + " axes; at most 16");
      else
        for (std::size_t i = 0; i < list->size(); ++i) read_axis((*list)[i], path(at_axes, i), axes, count);
    }
    std::vector<std::int32_t> order;
    if (const auto* ids = reader.find("device_order"); ids != nullptr && errors_.count() == before)
      read_order(*ids, path(at, "device_order"), count, order);
    if (const auto* j_network = reader.find("network")) network = read_network(*j_network, path(at, "network"));
    if (const auto* bytes = reader.find("memory_per_device"); bytes != nullptr) {
      if (bytes->is_number_integer() && *bytes > 0) memory = bytes->get<std::int64_t>();
      else errors_.add(path(at, "memory_per_device").str(), "is " + found(*bytes) + ", not a positive number of bytes");
    }
    const bool is_checked = read_bool(reader, "checked"), is_overlapped = read_bool(reader, "overlapped");
    is_searched = read_bool(reader, "searched");
    is_solved = read_bool(reader, "solved");
    reader.refuse_unknown();
    if (errors_.count() != before) return {};
    try {
      gspmd::dynamic::mesh mesh(axes, order);
      if (is_checked) mesh = mesh.with({.checked = true});
      if (is_searched) mesh = mesh.with({.search = true});
      if (is_solved) mesh = mesh.with({.solve = true});
      if (is_overlapped) mesh = mesh.with({.overlap = true});
      return network ? mesh.with({.network = *network}) : mesh;
    } catch (const gspmd::error& e) {
      errors_.add(at.str(), e.text());
      return {};
    }
  }

  // The members of the mesh that dynamic::mesh does not return.
  bool is_searched = false, is_solved = false;
  std::optional<gspmd::network> network;
  std::int64_t memory = 0;  // bytes of a device; 0: no limit

 private:
  bool read_bool(object_reader& reader, std::string_view key) {
    const auto* j = reader.find(key);
    if (j == nullptr || j->is_boolean()) return j != nullptr && j->get<bool>();
    errors_.add(path(reader.at(), key).str(), "is " + found(*j) + ", not true or false");
    return false;
  }
  /// Reads one switch for all devices, or a link for each axis: {"flops_per_second": 1e12, "links": {"x": {"topology":
  /// "torus", ...}}}
  std::optional<gspmd::network> read_network(const json& j, const path& at) {
    object_reader reader(j, at, errors_);
    if (!reader.is_object()) return {};
    const auto before = errors_.count();
    const double flops = read_rate(reader, "flops_per_second", true);
    const auto* const of_memory = reader.find("memory_bytes_per_second");
    const double memory_rate = of_memory != nullptr ? read_rate(reader, "memory_bytes_per_second", true) : 0;
    std::vector<gspmd::axis_link> links;
    double bytes = 1, seconds = 0;
    if (const auto* list = reader.find("links"); list == nullptr) {
      bytes = read_rate(reader, "bytes_per_second", true);
      seconds = read_rate(reader, "seconds_per_message", false);
    } else if (const path at_links(at, "links"); !list->is_object()) {
      errors_.add(at_links.str(), "is " + found(*list) + ", not an object from axes to links");
    } else if (list->empty()) {
      errors_.add(at_links.str(), "has no link; write one for each axis of the mesh, or bytes_per_second instead");
    } else {
      for (const auto& [name, link] : list->items()) {
        const path at_link(at_links, name);
        object_reader one(link, at_link, errors_);
        if (!one.is_object()) continue;
        if (!gspmd::dynamic::mesh::is_axis_name(name)) {
          errors_.add(at_link.str(), in_quotes(name) + " is not the name of an axis");
          continue;
        }
        gspmd::axis_link made{gspmd::dim_spec(name)};
        made.bytes_per_second = read_rate(one, "bytes_per_second", true);
        made.seconds_per_message = read_rate(one, "seconds_per_message", false);
        const auto kind = one.text("topology", "\"torus\", \"switched\" or \"tapered\"");
        if (kind == "torus") made.connected = gspmd::topology::torus;
        else if (kind == "tapered") made.connected = gspmd::topology::tapered;
        else if (kind && kind != "switched")
          errors_.add(path(at_link, "topology").str(), "is " + in_quotes(*kind) + ", not `torus`, `switched` or `tapered`");
        one.refuse_unknown();
        links.push_back(made);
      }
    }
    reader.refuse_unknown();
    if (errors_.count() != before) return {};
    try {
      const auto made = links.empty() ? gspmd::network(flops, bytes, seconds) : gspmd::network(flops, links);
      return memory_rate > 0 ? made.with_memory(memory_rate) : made;
    } catch (const gspmd::error& e) {
      errors_.add(at.str(), e.text());
      return {};
    }
  }
  double read_rate(object_reader& reader, std::string_view key, bool is_positive) {
    const auto* j = is_positive ? reader.require(key, "a number") : reader.find(key);
    if (j == nullptr) return is_positive ? 1 : 0;
    const double number = j->is_number() ? j->get<double>() : -1;
    if (number > 0 || (number == 0 && !is_positive)) return number;
    errors_.add(path(reader.at(), key).str(),
                "is " + found(*j) + (is_positive ? ", not a positive number" : ", not a number from 0 on"));
    return 1;
  }

  void read_axis(const json& j, const path& at, std::vector<gspmd::dynamic::mesh::axis>& axes, std::int64_t& count) {
    constexpr auto most_devices = gspmd::dynamic::mesh::most_devices;
    if (!j.is_array() || j.size() != 2)
      return errors_.add(at.str(), "is " + found(j) + ", not a name and a size like [\"x\", 2]");
    if (!j[0].is_string()) return errors_.add(path(at, std::size_t{0}).str(), "is " + found(j[0]) + ", not a name");
    const auto& name = j[0].get_ref<const std::string&>();
    const auto size = read_integer(j[1], path(at, std::size_t{1}), errors_, 1, most_devices);
    if (!gspmd::dynamic::mesh::is_axis_name(name))
      return errors_.add(path(at, std::size_t{0}).str(),
                         "the axis name " + in_quotes(name) + " must have 1 to 31 letters, digits and _");
    for (const auto& a : axes)
      if (a.name == name) return errors_.add(path(at, std::size_t{0}).str(), "a second axis is called " + in_quotes(name));
    if (!size) return;
    if (*size > most_devices / count) return errors_.add(path(at, std::size_t{1}).str(), "the mesh has more than 2^30 devices");
    count *= *size;
    axes.push_back({name, *size});
  }

  void read_order(const json& j, const path& at, std::int64_t count, std::vector<std::int32_t>& order) {
    const auto ids = read_integers(j, at, errors_, 0, count - 1, static_cast<std::size_t>(count));
    if (!ids) return;
    if (static_cast<std::int64_t>(ids->size()) != count)
      return errors_.add(at.str(),
                         "names " + std::to_string(ids->size()) + " devices and the axes have " + std::to_string(count));
    std::vector<bool> named(ids->size(), false);
    for (std::size_t i = 0; i < ids->size(); ++i) {
      const auto id = static_cast<std::size_t>((*ids)[i]);
      if (named[id]) return errors_.add(path(at, i).str(), "names device " + std::to_string(id) + " a second time");
      named[id] = true;
      order.push_back(static_cast<std::int32_t>(id));
    }
  }

  error_list& errors_;
};

}  // namespace plan_tool
