// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "gspmd/detail/report/cost_report.hpp"
#include "gspmd/trace/detail/step_log.hpp"

/// The logged steps of runs: as a table, as events for a viewer, and as text that one process sends to another.
namespace gspmd::detail {

template <class Logs>
[[gnu::cold]] std::string trace_table(const Logs& logs, std::size_t most_rows) {
  struct row {
    const step_label* label = nullptr;
    std::set<int> devices;
    std::vector<std::int64_t> times;
    std::int64_t sum = 0;
    int order = 0;  // in the order of their labels
  };
  std::map<std::tuple<std::string, std::string, std::string, std::string, std::int64_t, double>, row> rows;
  for (const auto& log : logs)
    for (const auto& t : log.times) {
      const auto& l = log.labels[static_cast<std::size_t>(t.label)];
      auto& r = rows[{l.name, l.over, l.op, l.line, l.bytes, l.estimated}];
      r.label = &l;
      r.devices.insert(t.device);
      r.times.push_back(t.end - t.begin);
      r.sum += t.end - t.begin;
    }
  std::vector<row*> list;
  for (auto& [words, r] : rows) {
    std::sort(r.times.begin(), r.times.end());
    r.order = static_cast<int>(list.size());
    list.push_back(&r);
  }
  std::sort(list.begin(), list.end(),
            [](const row* a, const row* b) { return a->sum != b->sum ? a->sum > b->sum : a->order < b->order; });

  const auto time = [](double nanoseconds) { return cost_report::time_text(nanoseconds / 1e9); };
  text_table table;
  for (const std::size_t column : {0U, 1U, 2U, 3U, 4U, 7U, 8U, 9U}) table.align_right(column);
  table.add(
      {"sum", "times", "devices", "least", "median", "step", "over", "bytes each", "estimated", "median/est.", "for", "line"});
  for (std::size_t k = 0; k < list.size() && k < most_rows; ++k) {
    const row& r = *list[k];
    const auto& l = *r.label;
    const auto median = static_cast<double>(r.times[r.times.size() / 2]);
    std::string ratio;
    if (l.estimated > 0) {
      char text[32];
      std::snprintf(text, sizeof text, "%.2f", median / (l.estimated * 1e9));
      ratio = text;
    }
    table.add({time(static_cast<double>(r.sum)), std::to_string(r.times.size()), std::to_string(r.devices.size()),
               time(static_cast<double>(r.times.front())), time(median), l.name, l.over,
               l.over.empty() ? "" : std::to_string(l.bytes), l.estimated > 0 ? time(l.estimated * 1e9) : "", ratio,
               l.over.empty() ? "" : l.op, l.line});
  }
  if (list.size() > most_rows) table.add({"and " + std::to_string(list.size() - most_rows) + " more kinds"});
  return table.str();
}

template <class Logs>
[[gnu::cold]] std::string trace_json(const Logs& logs) {
  auto first = std::numeric_limits<std::int64_t>::max();
  std::set<int> devices;
  for (const auto& log : logs)
    for (const auto& t : log.times) {
      first = std::min(first, t.begin);
      devices.insert(t.device);
    }
  std::string all = "{\"traceEvents\": [";
  const char* comma = "\n";
  for (const int d : devices) {
    all += comma + std::string(R"({"name": "thread_name", "ph": "M", "pid": 0, "tid": )") + std::to_string(d) +
           R"(, "args": {"name": "device )" + std::to_string(d) + "\"}}";
    comma = ",\n";
  }
  for (const auto& log : logs)
    for (const auto& t : log.times) {
      const auto& l = log.labels[static_cast<std::size_t>(t.label)];
      const auto begin = static_cast<double>(t.begin - first) / 1e9, seconds = static_cast<double>(t.end - t.begin) / 1e9;
      all += comma + std::string("{\"name\": \"") + escaped_json(l.name) + R"(", "cat": ")" +
             (l.over.empty() ? "computes" : "communicates") + R"(", "ph": "X", "pid": 0, "tid": )" + std::to_string(t.device) +
             ", " + span_text(begin, seconds) + ", \"args\": {\"line\": \"" + escaped_json(l.line) + '"';
      if (!l.over.empty()) {
        char estimated[40];
        std::snprintf(estimated, sizeof estimated, "%.3f", l.estimated * 1e6);
        all += ", \"for\": \"" + escaped_json(l.op) + R"(", "over": ")" + escaped_json(l.over) +
               "\", \"bytes\": " + std::to_string(l.bytes) + ", \"estimated_us\": " + estimated;
      }
      all += "}}";
      comma = ",\n";
    }
  return all + "\n]}\n";
}

/// Returns a log as text: one line for each label and each step.
[[gnu::cold]] inline std::string packed_log(const step_log& log, std::int64_t clock) {
  std::string all;
  for (const auto& l : log.labels) {
    char estimated[40];
    std::snprintf(estimated, sizeof estimated, "%.17g", l.estimated);
    all +=
        "L\t" + l.name + '\t' + l.over + '\t' + l.op + '\t' + l.line + '\t' + std::to_string(l.bytes) + '\t' + estimated + '\n';
  }
  for (const auto& t : log.times)
    all += "T\t" + std::to_string(t.label) + '\t' + std::to_string(t.device) + '\t' + std::to_string(t.begin - clock) + '\t' +
           std::to_string(t.end - clock) + '\n';
  return all + "O\t" + std::to_string(log.left_out) + '\n';
}
/// Adds a log in the format of packed_log to `log`. Its times are relative to `clock`.
[[gnu::cold]] inline void unpack_log(std::string_view packed, std::int64_t clock, step_log& log) {
  auto first = static_cast<std::int32_t>(log.labels.size());  // of the log that is read; `packed` can contain several logs
  const auto number = [](std::string_view text) {
    std::int64_t n = 0;
    std::from_chars(text.data(), text.data() + text.size(), n);
    return n;
  };
  while (!packed.empty()) {
    const auto end = packed.find('\n');
    std::string_view line = packed.substr(0, end);
    packed.remove_prefix(end + 1);
    std::vector<std::string_view> words;
    for (auto tab_at = line.find('\t'); tab_at != line.npos; tab_at = line.find('\t')) {
      words.push_back(line.substr(0, tab_at));
      line.remove_prefix(tab_at + 1);
    }
    words.push_back(line);
    if (words[0] == "L")
      log.labels.push_back({std::string(words[1]), std::string(words[2]), std::string(words[3]), std::string(words[4]),
                            number(words[5]), std::stod(std::string(words[6]))});
    else if (words[0] == "T")
      log.times.push_back({first + static_cast<std::int32_t>(number(words[1])), static_cast<std::int32_t>(number(words[2])),
                           number(words[3]) + clock, number(words[4]) + clock});
    else {
      log.left_out += number(words[1]);
      first = static_cast<std::int32_t>(log.labels.size());
    }
  }
}

/// Moves the logs of all processes to the process of device 0. The logs of all other processes become empty.
template <class Comm, class Logs>
[[gnu::cold]] void gather_logs(Comm& comm, Logs& logs) {
  const auto count = static_cast<std::size_t>(comm.device_count());
  const bool is_first = comm.device(0) == 0;
  comm.barrier();
  comm.barrier();  // the first barrier wakes all processes, the second one aligns the times at which they read their clocks
  const auto clock =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
  std::string own;
  if (!is_first)
    for (auto& log : logs) own += packed_log(log, clock);

  std::vector<std::int64_t> sent(count, 0), received(count, 0), sizes(count, 0);
  const std::int64_t* const sent_at[] = {sent.data()};
  const std::int64_t* const received_at[] = {received.data()};
  const auto size = static_cast<std::int64_t>(own.size());
  {
    sent[0] = 1;
    if (is_first) std::fill(received.begin(), received.end(), 1);
    const std::int64_t* const in[] = {&size};
    std::int64_t* const out[] = {sizes.data()};
    comm.exchange(in, sent_at, out, received_at);
  }
  sent[0] = size;
  std::int64_t sum = 0;
  for (std::size_t k = 0; k < count && is_first; ++k) sum += received[k] = sizes[k];
  std::string all(static_cast<std::size_t>(sum), '\0');
  const auto* const in = reinterpret_cast<const std::uint8_t*>(own.data());
  auto* const out = reinterpret_cast<std::uint8_t*>(all.data());
  comm.exchange(&in, sent_at, &out, received_at);
  for (auto& log : logs) {
    if (is_first) break;
    log.forget();
  }
  if (!is_first || all.empty()) return;
  auto& log = logs.emplace_back();
  log.device = -1;  // not the log of a local device, which has room for only `most` steps
  unpack_log(all, clock, log);
}

}  // namespace gspmd::detail
