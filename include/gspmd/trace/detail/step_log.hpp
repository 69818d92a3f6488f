// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gspmd/detail/report/cost_report.hpp"
#include "gspmd/report/network.hpp"

/// The steps of runs, as logged by the device that ran them.
namespace gspmd::detail {

/// The text for a step of a plan. Steps with equal labels share a row in a table of times.
struct step_label {
  std::string name, over, op, line;  // `over`: the axes of a collective; empty: the step computes
  std::int64_t bytes = 0;            // sent by one device
  double estimated = 0;              // seconds of a collective on the plan's network
  friend bool operator==(const step_label&, const step_label&) = default;
};

/// A step that ran, with its times in nanoseconds of the steady clock.
struct timed_step {
  std::int32_t label;
  std::int32_t device;
  std::int64_t begin, end;
};

/// Functions of a user's profiler. The thread of the device calls `begin` with the name of a step before the step, and
/// `end` after it.
struct step_marker {
  std::function<void(const char* name)> begin;
  std::function<void()> end;
};

/// The steps that one device of a communicator ran. Only the device's own thread writes the log. Other threads read it
/// after the run has ended.
struct step_log {
  int device = 0;
  std::size_t most = 0;  // maximum number of steps in the log
  std::int64_t left_out = 0;
  std::vector<step_label> labels;
  std::vector<timed_step> times;
  step_marker marker;

  /// Returns the number of the label of the first step of `plan`. The labels of its other steps follow.
  int labels_of(const plan_view& plan, const mesh_info& mesh) {
    // An address does not identify a plan, because a later plan may have the same address.
    const auto mark = mark_of(plan, mesh);
    for (const auto& k : known_)
      if (k.mark == mark) return k.first;
    known_.push_back({mark, static_cast<int>(labels.size())});
    for (const auto& s : plan.steps) labels.push_back(label_of(plan, mesh, s));
    return known_.back().first;
  }
  /// Deletes all steps and labels.
  void forget() {
    times.clear();
    labels.clear();
    known_.clear();
    left_out = 0;
  }

 private:
  struct known_plan {
    std::uint64_t mark;
    int first;
  };
  static std::uint64_t mark_of(const plan_view& plan, const mesh_info& mesh) {
    std::uint64_t mark = plan.steps.size();
    const auto take = [&](std::uint64_t word) { mark = (mark ^ word) * 0x9e3779b97f4a7c15U, mark ^= mark >> 29; };
    const auto take_text = [&](std::string_view text) {
      for (const char c : text) take(static_cast<unsigned char>(c));
      take(text.size());
    };
    for (int a = 0; a < mesh.shape.axis_count(); ++a) {
      take_text(mesh.name(a));
      take(static_cast<std::uint64_t>(mesh.shape.sizes[a]));
      const auto& link = mesh.request.network.of(a);
      take(static_cast<std::uint64_t>(link.per_kib));
      take(static_cast<std::uint64_t>(link.per_message));
      take((link.is_torus ? 2U : 0U) | (link.is_tapered ? 1U : 0U));
    }
    for (const auto& s : plan.steps) {
      const auto& n = plan.nodes[static_cast<std::size_t>(s.node)];
      take(std::uint64_t{s.kernel.number()} << 32 | static_cast<std::uint64_t>(s.collective));
      take(static_cast<std::uint64_t>(s.bytes_sent));
      take(static_cast<std::uint64_t>(s.axes));
      take(static_cast<std::uint64_t>(n.at.line) << 32 | static_cast<std::uint64_t>(s.node));
      take_text(name_of(n.op));
      if (!n.at.is_input()) take_text(graph::base_name(n.at.file));
    }
    return mark;
  }
  [[gnu::cold]] static step_label label_of(const plan_view& plan, const mesh_info& mesh, const plan_step& s) {
    const auto& n = plan.nodes[static_cast<std::size_t>(s.node)];
    step_label l;
    l.op = name_of(n.op);
    l.line = cost_report::line_of(n.at);
    if (!communicates(s)) {
      l.name = l.op;
      return l;
    }
    l.name = name_of(s.collective);
    l.over = axes_text(mesh, s.axes).view();
    l.bytes = s.bytes_sent;
    for (const auto t : step_times(mesh.request.network, plan, mesh.shape, s)) l.estimated += seconds_of(t);
    return l;
  }
  std::vector<known_plan> known_;
};

}  // namespace gspmd::detail
