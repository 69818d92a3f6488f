// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "table.hpp"

/// Draws the parts of a value on the devices: a tile for each part, with the devices that hold it (replicas, if there
/// are several), and the padding of a shard.
namespace plan_tool {

inline std::string svg_text(std::string_view s) {
  std::string t;
  for (const char c : s) {
    if (c == '<') t += "&lt;";
    else if (c == '>') t += "&gt;";
    else if (c == '&') t += "&amp;";
    else if (c == '"') t += "&quot;";
    else t += c;
  }
  return t;
}

/// Two dims of a value form a panel. The parts of every other split dim are adjacent panels.
///
///   [8, 16] over [x, y], x=2, y=2     one panel of 2 x 2 tiles
///   [4, 8, 16] over [x, y, z]         a panel for each part of dim 0, each of tiles of dims 1 and 2
class shard_picture {
 public:
  explicit shard_picture(const planned_program& p) : p_(p) {}

  /// Returns the pictures of these values, from top to bottom. The values of a scope are together. Calls of one scope
  /// (layers) are drawn once. Values of a scope with equal shardings share one picture, with their names.
  [[nodiscard]] std::string of(const std::vector<int>& values) {
    line("A tile is a shard, with the devices that hold it and the indices that it holds. Hatched: padding.", false);
    y_ += margin / 2;
    for (const auto& [scope, pictures] : folded(values)) {
      if (!scope.empty()) {
        line("in " + scope, true);
        y_ += margin / 2;
      }
      for (const auto& alike : pictures) draw(alike.values);
    }
    char head[160];
    std::snprintf(
        head, sizeof head,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" font-family=\"sans-serif\" font-size=\"11\">\n",
        std::max(width_, 400.0) + margin, y_);
    return std::string(head) +
           // in a tile: a light outline, readable on padding too
           "<style>.t{text-anchor:middle;stroke:#ffffff;stroke-width:3px;stroke-opacity:0.8;paint-order:stroke}"
           ".s{font-size:9px}</style>\n"
           "<defs><pattern id=\"padding\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
           "patternTransform=\"rotate(45)\">"
           "<rect width=\"6\" height=\"6\" fill=\"#ffffff\"/><rect width=\"2\" height=\"6\" fill=\"#999999\"/></pattern></defs>\n"
           "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n" +
           body_ + "</svg>\n";
  }

 private:
  static constexpr double margin = 16;
  static constexpr double tile_width = 96;
  static constexpr double tile_height = 44;
  static constexpr std::int64_t most_tiles = 1024;
  static constexpr std::int64_t most_devices = 65536;

  void line(const std::string& words, bool is_title) {
    char place[120];
    std::snprintf(place, sizeof place, "<text x=\"%.0f\" y=\"%.0f\"%s>", margin, y_ + 12,
                  is_title ? " font-weight=\"bold\" font-size=\"13\"" : "");
    body_ += place + svg_text(words) + "</text>\n";
    width_ = std::max(width_, margin + (is_title ? 8.5 : 7.0) * static_cast<double>(width_of(words)));
    y_ += 18;
  }

  struct picture {
    std::string lies;
    std::vector<int> values;
  };
  using scope_pictures = std::pair<std::string, std::vector<picture>>;

  [[nodiscard]] std::vector<scope_pictures> folded(const std::vector<int>& values) const {
    const auto scopes = p_.plan.common_scopes();
    std::vector<scope_pictures> all;
    std::map<std::string, std::size_t> at;                             // by scope
    std::map<std::pair<std::size_t, std::string>, std::size_t> known;  // by scope and sharding
    for (const int v : values) {
      const auto named = scopes.find(v);
      const std::string scope = named == scopes.end() ? "" : named->second;
      const auto [to, is_new_scope] = at.emplace(scope, all.size());
      if (is_new_scope) all.emplace_back(scope, std::vector<picture>{});
      auto& pictures = all[to->second].second;
      std::string lies = text_of(v);
      const auto [same, is_new] = known.emplace(std::pair(to->second, lies), pictures.size());
      if (is_new) pictures.push_back({std::move(lies), {}});
      pictures[same->second].values.push_back(v);
    }
    return all;
  }
  /// Equal for values that share a picture.
  [[nodiscard]] std::string text_of(int v) const {
    const auto placed = p_.placed(v);
    if (!placed) return "unused";
    return std::string(gspmd::name_of(p_.value(v).type)) + ' ' + shape_text(p_.value(v).shape) + ", " + placed->text() +
           ", shards of " + shape_text(placed->local_shape());
  }
  [[nodiscard]] std::string names_of(const std::vector<int>& values) const {
    constexpr std::size_t most = 4;
    std::string t;
    for (std::size_t k = 0; k < values.size() && k < most; ++k) t += (k > 0 ? ", " : "") + p_.value(values[k]).name;
    return values.size() > most ? t + " and " + std::to_string(values.size() - most) + " more" : t;
  }

  void draw(const std::vector<int>& values) {
    const int v = values.front();
    const auto placed = p_.placed(v);
    if (!placed) {
      line(names_of(values) + ": unused", true);
      y_ += margin;
      return;
    }
    line(names_of(values) + ": " + text_of(v), true);
    const auto device_count = p_.mesh().device_count();
    std::int64_t tiles = 1;
    for (int d = 0; d < placed->rank(); ++d) tiles *= placed->parts(d);
    budget_ -= device_count;
    if (tiles > most_tiles || device_count > most_devices || budget_ < 0) {
      line("too much to draw: " + std::to_string(tiles) + " tiles on " + std::to_string(device_count) + " devices", false);
      y_ += margin;
      return;
    }
    if (!placed->partial_axes().empty())
      line("partial: the devices along " + placed->partial_axes() + " hold parts of one value (" +
               gspmd::name_of(placed->partial_kind()) + "), not replicas",
           false);
    draw_tiles(*placed);
    y_ += margin;
  }

  void draw_tiles(const placed_tensor& s) {
    std::vector<int> split;  // the dims that are split
    const auto axes = s.sharding();
    for (int d = 0; d < s.rank(); ++d)
      if (!axes[static_cast<std::size_t>(d)].empty()) split.push_back(d);
    const int row_dim = split.size() >= 2                              ? split[split.size() - 2]
                        : split.size() == 1 && split[0] + 1 < s.rank() ? split[0]
                                                                       : -1;
    const int column_dim = split.empty() ? -1 : split.size() >= 2 || row_dim < 0 ? split.back() : -1;
    const auto parts = [&](int dim) { return dim < 0 ? std::int64_t{1} : s.parts(dim); };
    std::int64_t panels = 1;
    std::vector<int> panel_dims;
    for (const int d : split)
      if (d != row_dim && d != column_dim) {
        panel_dims.push_back(d);
        panels *= parts(d);
      }
    std::vector<std::vector<std::int64_t>> holders(static_cast<std::size_t>(panels * parts(row_dim) * parts(column_dim)));
    for (std::int64_t device = 0; device < p_.mesh().device_count(); ++device) {
      std::int64_t panel = 0;
      for (const int d : panel_dims) panel = panel * parts(d) + s.part_of(device, gspmd::along(d));
      const auto row = row_dim < 0 ? 0 : s.part_of(device, gspmd::along(row_dim));
      const auto column = column_dim < 0 ? 0 : s.part_of(device, gspmd::along(column_dim));
      holders[static_cast<std::size_t>((panel * parts(row_dim) + row) * parts(column_dim) + column)].push_back(device);
    }
    const double top = y_;
    constexpr std::int64_t panels_in_a_row = 8;
    const double panel_width = static_cast<double>(parts(column_dim)) * tile_width + margin;
    const double panel_height = static_cast<double>(parts(row_dim)) * tile_height + margin + (panel_dims.empty() ? 0 : 14);
    for (std::size_t t = 0; t < holders.size(); ++t) {
      const auto column = static_cast<std::int64_t>(t) % parts(column_dim);
      const auto row = static_cast<std::int64_t>(t) / parts(column_dim) % parts(row_dim);
      const auto panel = static_cast<std::int64_t>(t) / parts(column_dim) / parts(row_dim);
      const double x = margin + static_cast<double>(panel % panels_in_a_row) * panel_width;
      const double y = top + static_cast<double>(panel / panels_in_a_row) * panel_height + (panel_dims.empty() ? 0 : 14);
      if (row == 0 && column == 0 && !panel_dims.empty()) draw_panel_name(x, y, panel_dims, holders[t][0], s);
      draw_tile(x + static_cast<double>(column) * tile_width, y + static_cast<double>(row) * tile_height, row_dim, column_dim,
                holders[t], s);
      width_ = std::max(width_, x + panel_width);
    }
    y_ = top + static_cast<double>((panels + panels_in_a_row - 1) / panels_in_a_row) * panel_height;
  }

  /// Returns the indices along a dim that a device holds.
  static std::string range_text(const placed_tensor& s, std::int64_t device, int dim) {
    const auto r = s.valid_range(device, gspmd::along(dim));
    return r.size() == 0 ? std::string("nothing") : std::to_string(r.begin) + ".." + std::to_string(r.end - 1);
  }

  void draw_panel_name(double x, double y, const std::vector<int>& dims, std::int64_t device, const placed_tensor& s) {
    std::string words;
    for (const int d : dims) words += (words.empty() ? "dim " : ", dim ") + std::to_string(d) + ": " + range_text(s, device, d);
    char place[80];
    std::snprintf(place, sizeof place, "<text x=\"%.0f\" y=\"%.0f\">", x, y - 4);
    body_ += place + words + "</text>\n";
  }

  void draw_tile(double x, double y, int row_dim, int column_dim, const std::vector<std::int64_t>& devices,
                 const placed_tensor& s) {
    const auto local = s.local_shape();
    bool is_empty = false;
    std::string held;
    for (int d = 0; d < s.rank(); ++d) {
      is_empty = is_empty || s.valid_range(devices[0], gspmd::along(d)).size() == 0;
      held += (d > 0 ? ", " : "") + range_text(s, devices[0], d);
    }
    const auto share = [&](int dim) {  // the part of the shard that is data
      const auto extent = dim < 0 ? 0 : local[static_cast<std::size_t>(dim)];
      return extent == 0 ? 1.0
                         : static_cast<double>(s.valid_range(devices[0], gspmd::along(dim)).size()) / static_cast<double>(extent);
    };
    double data_width = tile_width * share(column_dim);
    double data_height = tile_height * share(row_dim);
    if (is_empty) data_width = data_height = 0;
    std::string who;
    for (std::size_t i = 0; i < devices.size() && i < 64; ++i) who += (i > 0 ? " " : "") + std::to_string(devices[i]);
    if (devices.size() > 64) who += " ...";
    char box[400];
    std::snprintf(box, sizeof box,
                  "<rect x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\" fill=\"url(#padding)\" stroke=\"#333333\"/>"
                  "<rect x=\"%.0f\" y=\"%.0f\" width=\"%.2f\" height=\"%.2f\" fill=\"hsl(%d,60%%,82%%)\"/>",
                  x, y, tile_width, tile_height, x, y, data_width, data_height, static_cast<int>(devices[0] * 137 % 360));
    body_ += "<g><title>devices " + who + ": [" + held + "]" +
             (devices.size() > 1 && s.partial_axes().empty() ? ", replicas" : "") + "</title>" + box;
    const double middle = x + tile_width / 2;
    in_tile(middle, y + tile_height / 2 - 3, false, devices_text(devices));
    if (is_empty) in_tile(middle, y + tile_height / 2 + 12, true, "nothing");
    else if (held.size() <= 18) in_tile(middle, y + tile_height / 2 + 12, true, held);
    body_ += "</g>\n";
  }

  /// Returns the devices that fit into a tile: 0 1 2 3, or 0 4 .. 508 (128).
  static std::string devices_text(const std::vector<std::int64_t>& devices) {
    constexpr std::size_t room = 16;
    const auto number = [&](std::size_t i) { return std::to_string(devices[i]); };
    std::string all;
    for (std::size_t i = 0; i < devices.size() && all.size() <= room; ++i) all += (i > 0 ? " " : "") + number(i);
    if (all.size() <= room) return all;
    const std::string tail = ".. " + number(devices.size() - 1) + " (" + std::to_string(devices.size()) + ")";
    std::string some;
    for (std::size_t i = 0; some.size() + number(i).size() + 1 + tail.size() <= room; ++i) some += number(i) + ' ';
    return some.empty() ? number(0) + ' ' + tail : some + tail;
  }

  void in_tile(double x, double y, bool is_small, const std::string& words) {
    char place[80];
    std::snprintf(place, sizeof place, "<text class=\"%s\" x=\"%.0f\" y=\"%.0f\">", is_small ? "t s" : "t", x, y);
    body_ += place + words + "</text>";
  }

  const planned_program& p_;
  std::string body_;
  double y_ = margin;
  double width_ = 0;
  std::int64_t budget_ = most_devices;  // over all values
};

}  // namespace plan_tool
