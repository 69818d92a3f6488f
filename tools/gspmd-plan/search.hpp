// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <gspmd/search/find_annotations.hpp>

#include "build.hpp"

/// Searches annotations for a document, and adds them to the document.
namespace plan_tool {

struct search_options {
  bool anew = false;
  int devices = 0, plans = 0;  // 0: not specified
  std::int64_t work = 0;
  int seconds = 0;
  bool shows_progress = false;
};
struct searched_document {
  json document;
  std::string text;
};

class document_search {
 public:
  document_search(json document, const search_options& o, error_list& errors)
      : document_(std::move(document)), options_(o), errors_(errors) {}

  searched_document run() {
    if (options_.anew) forget_annotations(document_);
    auto written = program_builder(document_, devices::of_mesh, errors_).build();
    if (!written) return {};
    gspmd::dynamic::annotation_search asked;
    asked.connected = written->network;
    if (options_.devices > 0) {
      document_["mesh"].erase("device_order");
      asked.meshes = buildable(gspmd::dynamic::meshes_of(options_.devices, link_names()));
      if (asked.meshes.empty()) return {};
    } else {
      asked.meshes = {gspmd::dynamic::mesh(written->program->mesh().axes(), device_order())};
    }
    if (options_.plans > 0) asked.most_plans = options_.plans;
    asked.most_work = options_.work;
    if (options_.seconds > 0) asked.most_seconds = options_.seconds;
    if (options_.shows_progress)
      asked.report = [](const gspmd::dynamic::search_progress& p) {
        std::fprintf(stderr, "\r\033[K%d of %d plans, mesh %s", p.plans, p.most_plans, p.mesh.c_str());
      };
    try {
      const auto found = gspmd::dynamic::find_annotations([this](const gspmd::dynamic::mesh& m) { return build_on(m); }, asked);
      if (options_.shows_progress) std::fputs("\r\033[K", stderr);
      return annotated(found);
    } catch (const gspmd::error& e) {
      if (errors_.empty()) errors_.add("--search", e.text());
      return {};
    }
  }

 private:
  /// Erases annotations that the search may replace, in bodies and branches too. A reshard is an operator and stays.
  static void forget_annotations(json& region) {
    if (!region.is_object()) return;
    for (const char* list : {"inputs", "ops"}) {
      const auto items = region.find(list);
      if (items == region.end() || !items->is_array()) continue;
      for (auto& item : *items) {
        if (!item.is_object() || item.contains("partial")) continue;
        if (const auto op = item.find("op"); op != item.end() && *op == "reshard") continue;
        item.erase("sharding");
        item.erase("open");
        for (const char* inner : {"body", "while"})
          if (const auto at = item.find(inner); at != item.end()) forget_annotations(*at);
        if (const auto branches = item.find("branches"); branches != item.end() && branches->is_array())
          for (auto& branch : *branches) forget_annotations(branch);
      }
    }
  }
  /// Returns the meshes that the document can be built on: a remaining annotation may name an axis that a mesh lacks.
  std::vector<gspmd::dynamic::mesh> buildable(std::vector<gspmd::dynamic::mesh> meshes) {
    const auto all = meshes.size();
    std::string why;  // of the first skipped mesh
    std::erase_if(meshes, [&](const auto& m) {
      document_["mesh"]["axes"] = axes_of(m);
      error_list mistakes;
      if (program_builder(document_, devices::of_mesh, mistakes).build()) return false;
      if (why.empty() && !mistakes.empty()) why = mistakes.lines().front();
      return true;
    });
    const auto devices = std::to_string(options_.devices) + " devices";
    if (meshes.empty()) errors_.add("--search", "the document can be built on no mesh of " + devices + "; on the first, " + why);
    else if (meshes.size() < all)
      skipped_ = "skipped: " + std::to_string(all - meshes.size()) + " of " + std::to_string(all) + " meshes of " + devices +
                 ", because the document cannot be built on them; on the first, " + why + '\n';
    return meshes;
  }
  [[nodiscard]] std::vector<std::int32_t> device_order() const {
    const auto& mesh = document_["mesh"];
    return mesh.contains("device_order") && mesh["device_order"].is_array()
               ? mesh["device_order"].get<std::vector<std::int32_t>>()
               : std::vector<std::int32_t>{};
  }
  [[nodiscard]] std::vector<std::string> link_names() const {
    std::vector<std::string> names;
    const auto network = document_["mesh"].find("network");
    if (network != document_["mesh"].end() && network->is_object() && network->contains("links"))
      for (const auto& [name, link] : (*network)["links"].items()) names.push_back(name);
    return names;
  }
  static json axes_of(const gspmd::dynamic::mesh& m) {
    json axes = json::array();
    for (const auto& a : m.axes()) axes.push_back({a.name, a.size});
    return axes;
  }
  gspmd::dynamic::builder build_on(const gspmd::dynamic::mesh& m) {
    document_["mesh"]["axes"] = axes_of(m);
    auto built = program_builder(document_, devices::of_mesh, errors_).build();
    if (!built) throw gspmd::error("the document cannot be read on another mesh");
    built_.push_back(std::move(*built));  // the program points to its names
    return std::move(*built_.back().program);
  }

  [[nodiscard]] static json sharding_of(const std::vector<std::string>& dims) {
    json list = json::array();
    for (const auto& d : dims) {
      json axes = json::array();
      for (std::size_t at = 0; at < d.size();) {
        const auto end = std::min(d.find(',', at), d.size());
        axes.push_back(d.substr(at, end - at));
        at = end + 1;
      }
      list.push_back(std::move(axes));
    }
    return list;
  }
  searched_document annotated(const gspmd::dynamic::found_annotations& found) {
    document_["mesh"]["axes"] = axes_of(found.mesh);
    std::string text = "\"axes\": " + document_["mesh"]["axes"].dump() + "  in the mesh\n" + skipped_;
    const auto line = [&](const json& sharding, const std::string& names, const std::string& more) {
      text += "\"sharding\": " + sharding.dump() + "  in " + names + more + '\n';
    };
    for (const auto& i : found.inputs) {
      const auto sharding = sharding_of(i.sharding);
      std::string names;
      for (const int k : i.inputs) {
        auto& input = document_["inputs"][static_cast<std::size_t>(k)];
        names += (names.empty() ? "" : ", ") + gspmd::printable(input["name"].get<std::string>());
        if (i.is_annotated) input["sharding"] = sharding;
      }
      if (i.is_annotated) line(sharding, names, i.otherwise.empty() ? "" : "; " + i.otherwise);
      else text += "left to the planner: " + names + '\n';
    }
    const auto& values = built_.back().values;  // numbers are the same on every mesh
    for (const auto& v : found.values) {
      const auto sharding = sharding_of(v.sharding);
      std::string names, unwritten;
      for (const int label : v.labels) {
        const auto& name = values[static_cast<std::size_t>(label)].name;
        auto* const op = find_op(document_, name);
        if (op != nullptr) (*op)["sharding"] = sharding;
        auto& list = op != nullptr ? names : unwritten;
        list += (list.empty() ? "" : ", ") + gspmd::printable(name);
      }
      const auto gain = "; without it the step takes " + gspmd::dynamic::time_text(v.seconds_without);
      if (!names.empty()) line(sharding, names, gain);
      if (!unwritten.empty())
        text += "not written, because this result can have no annotation: " + sharding.dump() + " of " + unwritten + gain + '\n';
    }
    return {document_, text + '\n' + found.comparison()};
  }
  /// Returns the op of a value: `h`, or `s/h` in the body of the loop s. Names may contain a '/'. Returns null if the
  /// value cannot be annotated: it is a result of a loop, conditional or fold, or one of several results.
  static json* find_op(json& region, const std::string& name) {
    for (auto& op : region["ops"]) {
      const auto own = op.value("name", std::string());
      if (own == name) return op.contains("body") || op.contains("branches") || op.contains("combine") ? nullptr : &op;
      if (op.contains("body") && name.starts_with(own + '/'))
        if (auto* const inside = find_op(op["body"], name.substr(own.size() + 1))) return inside;
    }
    return nullptr;
  }

  json document_;
  search_options options_;
  error_list& errors_;
  std::deque<built_program> built_;
  std::string skipped_;
};

inline searched_document find_annotations_of(json document, const search_options& o, error_list& errors) {
  return document_search(std::move(document), o, errors).run();
}

}  // namespace plan_tool
