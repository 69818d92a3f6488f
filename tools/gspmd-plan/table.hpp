// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gspmd/report/network.hpp>
#include <gspmd/report/report.hpp>

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

/// The values that the table shows, and whether it shows only values with communication.
struct shown_values {
  int first = 0;
  int last = std::numeric_limits<int>::max();
  bool collectives_only = false;
  bool folds = true;  // shows equal layers once
  std::string scope;
  std::vector<bool> in_scope;  // by value; empty: all values
  [[nodiscard]] bool holds(int v) const {
    if (v < 0) return !is_part();
    return first <= v && v <= last && (in_scope.empty() || in_scope[static_cast<std::size_t>(v)]);
  }
  [[nodiscard]] bool is_part() const { return first > 0 || last < std::numeric_limits<int>::max() || !in_scope.empty(); }
};

class plan_table {
 public:
  plan_table(const planned_program& p, const gspmd::network& net, colours paint, const shown_values& shown,
             gspmd::number_form form)
      : p_(p),
        net_(net),
        paint_(paint),
        shown_(shown),
        form_(form),
        sent_(p.program().traffic().bytes),
        scopes_(p.plan.scopes()) {}

  [[nodiscard]] std::string text() const {
    const auto& mesh = p_.mesh();
    std::string t = "mesh";
    const char* comma = " ";
    for (const auto& axis : mesh.axes()) t += std::exchange(comma, ", ") + axis.name + '=' + std::to_string(axis.size);
    const auto count = mesh.device_count();
    t += ": " + std::to_string(count) + (count == 1 ? " device\n\n" : " devices\n\n");
    t += totals() + most_expensive() + rows();
    for (const auto& line : gspmd::excess_communication(p_.program(), form_)) t += '\n' + line + '\n';
    return t;
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
    bool any_message = false, any_costly = false;
    const auto write = [&](const row& r) {
      std::string line;
      for (std::size_t c = 0; c < r.cells.size(); ++c) {
        const auto width = width_of(r.cells[c]);
        line += (c > 0 ? "  " : "") + r.cells[c] + std::string(width < widths[c] ? widths[c] - width : 0, ' ');
      }
      line.erase(line.find_last_not_of(' ') + 1);
      t += r.value < 0 ? paint_.paint("1", line) + '\n' : line + '\n';
      if (r.value < 0) return;
      for (const auto* i : under[static_cast<std::size_t>(r.value)]) {
        t += movement_line(*i);
        any_message = any_message || i->communicates;
        any_costly = any_costly || is_costly(*i);
      }
    };
    std::vector<std::string> alike;  // equal for rows that differ only in the numbers of their names
    for (const auto& r : table) {
      alike.push_back(without_digits(r.cells[0]) + '\n' +
                      without_digits(r.cells.back().substr(0, r.cells.back().find(", output"))));
      for (std::size_t c = 1; c + 1 < r.cells.size(); ++c) alike.back() += '\n' + r.cells[c];
      if (r.value < 0) continue;
      for (const auto* i : under[static_cast<std::size_t>(r.value)])
        alike.back() += '\n' + i->kind + ' ' + i->axes + ' ' + std::to_string(i->bytes) + ' ' +
                        without_digits(p_.value(i->label).name) + movement_text(*i);
    }
    for (const auto& block : shown_.folds ? gspmd::repeated_rows(alike) : std::vector<gspmd::row_block>{{0, table.size(), 1}}) {
      constexpr std::size_t least_saved = 8;  // fewer rows are shown
      const std::size_t length = block.end - block.begin, whole = length * block.times;
      const bool folds = whole - length >= least_saved;
      for (auto k = block.begin; k < block.begin + (folds ? length : whole); ++k) write(table[k]);
      if (!folds) continue;
      const auto& first = table[block.end].cells[0];
      t += paint_.paint("2", "     ... " + std::to_string(block.times - 1) + (block.times == 2 ? " time" : " times") +
                                 " the same " + (length == 1 ? "row" : std::to_string(length) + " rows") + ", " + first + " to " +
                                 table[block.begin + whole - 1].cells[0]);
      for (auto k = block.end; k < block.begin + whole; ++k)
        if (table[k].cells.back().ends_with(", output")) t += "; " + table[k].cells[0] + " is an output";
      t += '\n';
    }
    if (!shown_.is_part())
      for (const auto* i : nobodys) t += movement_line(*i);
    if (any_message) t += "\n`>`: communication";
    if (any_costly) t += "; `>>`: at least a quarter of all bytes";
    return any_message ? t + '\n' : t;
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

  static std::string without_digits(std::string text) {
    std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
    return text;
  }
  [[nodiscard]] std::string movement_line(const instruction& i) const {
    std::string t = is_costly(i) ? "  >> " : i.communicates ? "   > " : "   - ";
    t += planned_program::kind_of(i);
    if (i.communicates) t += " over " + i.axes;
    t += std::string(i.is_inside ? " between the parts"
                     : i.is_halo ? " of the boundaries"
                                 : "") +
         " of " + p_.value(i.label).name;
    if (i.kind == "copy") return t + " to the memory of the output\n";
    t += movement_text(i);
    return (is_costly(i) ? paint_.paint("1;31", t) : i.communicates ? paint_.paint("33", t) : paint_.paint("2", t)) + '\n';
  }
  /// Returns the part of the line after the name of the value.
  [[nodiscard]] std::string movement_text(const instruction& i) const {
    if (i.kind == "copy") return {};
    std::string t = ": " + p_.from(i).text();
    if (!i.is_halo) t += " -> " + p_.to(i).text();
    t += i.bytes > 0 ? ", " + gspmd::format_bytes(i.bytes, form_) : std::string(", nothing is sent");
    if (i.bytes > 0) {
      const auto percent =
          static_cast<std::int64_t>(100.0L * static_cast<long double>(i.bytes) / static_cast<long double>(sent_) + 0.5L);
      t += " (" + std::to_string(percent) + "%)";
    }
    if (i.joined) t += "; in one message with the one before";
    if (i.forced) t += "; forced: " + p_.value(i.sake).op + " cannot work on this split";
    return t;
  }

  [[nodiscard]] std::string totals() const {
    struct sum {
      std::string name;
      std::int64_t count = 0, bytes = 0;
    };
    std::vector<sum> sums;
    std::int64_t part = 0;
    for (const auto& i : p_.plan.instructions()) {
      if (!shown_.holds(i.sake) || !i.communicates) continue;
      part += i.bytes;
      auto it = std::find_if(sums.begin(), sums.end(), [&](const sum& s) { return s.name == i.kind; });
      if (it == sums.end()) it = sums.insert(sums.end(), {i.kind, 0, 0});
      it->count += i.joined ? 0 : 1;
      it->bytes += i.bytes;
    }
    struct total {
      std::string name, number;
    };
    std::vector<total> lines;
    const auto add = [&lines](std::string name, std::string number) { lines.push_back({std::move(name), std::move(number)}); };
    const auto bytes = [this](std::int64_t n) { return gspmd::format_bytes(n, form_); };
    const auto time = gspmd::estimate(p_.program(), net_);
    add("one step takes", gspmd::format_time(time.total(), form_));
    add("  computation", gspmd::format_time(time.computation, form_));
    add("  communication", gspmd::format_time(time.communication, form_));
    if (const auto bound = p_.program().bound()) {
      add("the planner's price of the step", gspmd::format_time(bound->seconds, form_));
      add("  lower bound", gspmd::format_time(bound->least_seconds, form_));
    }
    add("one device computes", gspmd::format_flops(p_.program().flops_per_device(), form_));
    add("one device holds at most", bytes(p_.program().peak_bytes_per_device()));
    add("one device sends", bytes(sent_));
    if (shown_.is_part()) add("  for these values", bytes(part));
    for (const auto& s : sums) add("  in " + std::to_string(s.count) + ' ' + s.name, bytes(s.bytes));
    const auto messages = p_.program().traffic().messages;
    add("", std::to_string(messages) + (messages == 1 ? " message" : " messages"));
    std::size_t left = 0, right = 0;
    for (const auto& l : lines) {
      left = std::max(left, l.name.size());
      right = std::max(right, l.number.size());
    }
    std::string t;
    for (const auto& l : lines)
      t += l.name + std::string(left - l.name.size() + 2 + right - l.number.size(), ' ') + l.number + '\n';
    if (!p_.built.network)
      t += "the times assume 31.25 GB/s to every device and 1 TFLOP/s; `network` in the mesh describes a network\n";
    return t + '\n';
  }
  /// Returns the three collectives that take longest. The plan of a single collective has no such list.
  [[nodiscard]] std::string most_expensive() const {
    constexpr std::size_t most = 3;
    if (p_.program().traffic().collectives < 2 || (shown_.is_part() && shown_.scope.empty())) return {};
    return "most expensive collectives (--report most-expensive suggests annotations)\n" +
           gspmd::most_expensive_collectives(p_.program(), net_, most, shown_.scope, form_) + '\n';
  }

  const planned_program& p_;
  gspmd::network net_;
  colours paint_;
  shown_values shown_;
  gspmd::number_form form_;
  std::int64_t sent_;                  // bytes, by one device
  std::map<int, std::string> scopes_;  // by value
};

}  // namespace plan_tool
