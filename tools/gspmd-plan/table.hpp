// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "planned.hpp"

/// The plan as a table.
namespace plan_tool {

/// Returns the width of a text on a terminal, with one column per character.
inline std::size_t width_of(std::string_view text) {
  std::size_t n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
  return n;
}

struct colours {
  bool on = false;
  [[nodiscard]] std::string paint(const char* code, const std::string& text) const {
    return on ? std::string("\033[") + code + 'm' + text + "\033[0m" : text;
  }
};

/// Returns `1.234 ms`.
inline std::string time_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f %s", seconds * (seconds >= 1e-3 ? 1e3 : 1e6), seconds >= 1e-3 ? "ms" : "us");
  return text;
}
inline std::string with_unit(std::int64_t bytes) { return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes"); }

/// The values that the table shows, and whether it shows only values with communication.
struct shown_values {
  int first = 0;
  int last = std::numeric_limits<int>::max();
  bool collectives_only = false;
  std::vector<bool> in_scope;  // by value; empty: all values
  [[nodiscard]] bool holds(int v) const {
    if (v < 0) return !is_part();
    return first <= v && v <= last && (in_scope.empty() || in_scope[static_cast<std::size_t>(v)]);
  }
  [[nodiscard]] bool is_part() const { return first > 0 || last < std::numeric_limits<int>::max() || !in_scope.empty(); }
};

class plan_table {
 public:
  plan_table(const planned_program& p, colours paint, const shown_values& shown)
      : p_(p), paint_(paint), shown_(shown), sent_(p.program().traffic().bytes), scopes_(p.plan.scopes()) {}

  [[nodiscard]] std::string text() const {
    const auto& mesh = p_.mesh();
    std::string t = "mesh";
    const char* comma = " ";
    for (const auto& axis : mesh.axes()) t += std::exchange(comma, ", ") + axis.name + '=' + std::to_string(axis.size);
    const auto count = mesh.device_count();
    t += ": " + std::to_string(count) + (count == 1 ? " device\n\n" : " devices\n\n");
    return t + rows() + totals();
  }

 private:
  struct row {
    std::vector<std::string> cells;
    int value = -1;
  };

  [[nodiscard]] std::string rows() const {
    std::vector<row> table{{{"value", "operator", "type", "global shape", "sharding", "local shape", ""}, -1}};
    std::vector<bool> sends(p_.built.values.size(), false);
    for (const auto& i : p_.plan.instructions())
      if (i.communicates && i.sake >= 0) sends[static_cast<std::size_t>(i.sake)] = true;
    for (int v = 0; v < static_cast<int>(p_.built.values.size()); ++v)
      if (shown_.holds(v) && (!shown_.collectives_only || sends[static_cast<std::size_t>(v)])) table.push_back({cells_of(v), v});
    std::vector<std::size_t> widths(table[0].cells.size(), 0);
    for (const auto& r : table)
      for (std::size_t c = 0; c < r.cells.size(); ++c)
        widths[c] = std::max(widths[c], std::min(width_of(r.cells[c]), std::size_t{60}));
    std::vector<std::vector<const instruction*>> under(p_.built.values.size());
    std::vector<const instruction*> nobodys;
    for (const auto& i : p_.plan.instructions())
      if (i.moves || (i.kind == "copy" && i.result < 0))
        (i.sake < 0 ? nobodys : under[static_cast<std::size_t>(i.sake)]).push_back(&i);
    std::string t;
    for (const auto& r : table) {
      std::string line;
      for (std::size_t c = 0; c < r.cells.size(); ++c) {
        const auto width = width_of(r.cells[c]);
        line += (c > 0 ? "  " : "") + r.cells[c] + std::string(width < widths[c] ? widths[c] - width : 0, ' ');
      }
      line.erase(line.find_last_not_of(' ') + 1);
      t += r.value < 0 ? paint_.paint("1", line) + '\n' : line + '\n';
      if (r.value < 0) continue;
      for (const auto* i : under[static_cast<std::size_t>(r.value)]) t += movement_line(*i);
    }
    if (!shown_.is_part())
      for (const auto* i : nobodys) t += movement_line(*i);
    return t + '\n';
  }

  [[nodiscard]] std::vector<std::string> cells_of(int v) const {
    const auto& value = p_.value(v);
    const std::string op = value.kind.empty() ? value.op : value.op + '(' + value.kind + ')';
    const auto shape = shape_text(value.shape);
    const auto placed = p_.placed(v);
    if (!placed) return {value.name, op, gspmd::name_of(value.type), shape, "-", "-", "unused: no output needs it"};
    const auto local = placed->local_shape();
    std::string remarks;
    const auto remark = [&remarks](const std::string& words) { remarks += (remarks.empty() ? "" : ", ") + words; };
    for (std::size_t d = 0; d < local.size(); ++d)
      if (local[d] * placed->parts(static_cast<int>(d)) != value.shape[d]) {
        remark("uneven");
        break;
      }
    if (const auto it = scopes_.find(v); it != scopes_.end()) remark("in " + it->second);
    if (const int reader = p_.plan.moved_with(v); reader >= 0) remark("one movement with " + p_.value(reader).name);
    if (std::find(p_.built.outputs.begin(), p_.built.outputs.end(), v) != p_.built.outputs.end()) remark("output");
    return {value.name, op, gspmd::name_of(value.type), shape, placed->text(), shape_text(local), remarks};
  }

  /// Returns true for an instruction that sends at least a quarter of all bytes. Its line is marked.
  [[nodiscard]] bool is_costly(const instruction& i) const { return i.bytes > 0 && i.bytes >= (sent_ + 3) / 4; }

  [[nodiscard]] std::string movement_line(const instruction& i) const {
    std::string t = is_costly(i) ? "  >> " : "   - ";
    t += planned_program::kind_of(i);
    if (i.communicates) t += " over " + i.axes;
    t += std::string(i.is_inside ? " between the parts"
                     : i.is_halo ? " of the boundaries"
                                 : "") +
         " of " + p_.value(i.label).name;
    if (i.kind == "copy") return t + " to the memory of the output\n";
    t += ": " + p_.from(i).text();
    if (!i.is_halo) t += " -> " + p_.to(i).text();
    t += i.bytes > 0 ? ", " + with_unit(i.bytes) : std::string(", nothing is sent");
    if (i.bytes > 0) {
      const auto percent =
          static_cast<std::int64_t>(100.0L * static_cast<long double>(i.bytes) / static_cast<long double>(sent_) + 0.5L);
      t += " (" + std::to_string(percent) + "%)";
    }
    if (i.joined) t += "; in one message with the one before";
    if (i.forced) t += "; forced: " + p_.value(i.sake).op + " cannot work on this split";
    return (is_costly(i) ? paint_.paint("1;31", t) : i.communicates ? paint_.paint("33", t) : paint_.paint("2", t)) + '\n';
  }

  [[nodiscard]] std::string totals() const {
    struct sum {
      std::string name;
      std::int64_t count = 0, bytes = 0;
    };
    std::vector<sum> sums;
    bool any_costly = false;
    std::int64_t part = 0;
    for (const auto& i : p_.plan.instructions()) {
      if (!shown_.holds(i.sake)) continue;
      any_costly = any_costly || is_costly(i);
      if (!i.communicates) continue;
      part += i.bytes;
      auto it = std::find_if(sums.begin(), sums.end(), [&](const sum& s) { return s.name == i.kind; });
      if (it == sums.end()) it = sums.insert(sums.end(), {i.kind, 0, 0});
      it->count += i.joined ? 0 : 1;
      it->bytes += i.bytes;
    }
    std::string t;
    if (any_costly) t += ">> sends at least a quarter of all bytes\n\n";
    struct total {
      std::string name, number;
      const char* unit;
    };
    std::vector<total> lines;
    const auto add = [&lines](std::string name, std::int64_t n, const char* unit) {
      lines.push_back({std::move(name), std::to_string(n), unit});
    };
    for (const auto& s : sums) add("  " + std::to_string(s.count) + ' ' + s.name, s.bytes, "bytes");
    if (shown_.is_part()) add("one device sends for these", part, "bytes");
    add(shown_.is_part() ? "and in all" : "one device sends", sent_, "bytes");
    add("", p_.program().traffic().messages, "messages");
    add("one device computes", p_.program().flops_per_device(), "flops");
    add("one device holds at most", p_.program().peak_bytes_per_device(), "bytes");
    std::size_t left = 0, right = 0;
    for (const auto& l : lines) {
      left = std::max(left, l.name.size());
      right = std::max(right, l.number.size());
    }
    for (const auto& l : lines)
      t += l.name + std::string(left - l.name.size() + 2 + right - l.number.size(), ' ') + l.number + ' ' + l.unit + '\n';
    if (const auto bound = p_.program().bound())
      t += "one step takes " + time_text(bound->seconds) + "; no plan over these shardings takes less than " +
           time_text(bound->least_seconds) + '\n';
    return t;
  }

  const planned_program& p_;
  colours paint_;
  shown_values shown_;
  std::int64_t sent_;                  // bytes, by one device
  std::map<int, std::string> scopes_;  // by value
};

}  // namespace plan_tool
