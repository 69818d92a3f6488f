// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>

#include "gspmd/detail/passes/list/compute_again.hpp"
#include "gspmd/report/inspect.hpp"
#include "gspmd/report/network.hpp"

/// The price of a limit of memory.
namespace gspmd {
namespace detail {

/// `1.5 ms`, `0.35 ns`.
[[gnu::cold]] inline std::string short_time(double seconds) {
  constexpr const char* units[] = {"s", "ms", "us", "ns", "ps"};
  std::size_t unit = 0;
  for (; unit + 1 < std::size(units) && seconds < 1; ++unit) seconds *= 1000;
  char digits[40];
  std::snprintf(digits, sizeof digits, "%.3g %s", seconds, units[unit]);
  return digits;
}
[[gnu::cold]] inline std::string words_of_saving(const graph& g, int saving, std::int64_t most_memory) {
  const int level = saving_level(saving);
  if (level == 0) return "nothing is given up\n";
  std::string text;
  const auto list = [&](int of, const char* what) {
    const vec<int> inputs = cheapest_inputs(g.nodes, of, most_memory);
    const auto count =
        level == of && inputs_giving_way(saving) > 0 ? static_cast<std::size_t>(inputs_giving_way(saving)) : inputs.size();
    text += std::string(what) +
            (count < inputs.size() ? std::to_string(count) + " of " + std::to_string(inputs.size()) : "all that may") + ": ";
    for (std::size_t k = 0; k < count; ++k) {
      if (k == 8) return static_cast<void>(text += ", and " + std::to_string(count - k) + " others\n");
      text += (k > 0 ? ", " : "") + std::string(graph::input_text(g.nodes[static_cast<std::size_t>(inputs[k])].at).view());
    }
    text += '\n';
  };
  if (level == 1) list(1, "inputs that are gathered again where they are gathered, ");
  else text += "inputs that are gathered are gathered again\n";
  if (level > 1) list(2, "inputs that are split, ");
  if (level > 2)
    text += "einsums take operands in parts that would be gathered to more than " +
            std::to_string(most_memory >> (2 * (level - 2))) + " bytes\n";
  return text;
}

/// The values that are computed again, or gathered again, and what that saves each.
[[gnu::cold]] inline std::string words_of_values_again(const graph& g) {
  constexpr int most_lines = 8;
  std::string text;
  int count = 0;
  for (const node& n : g.nodes) {
    if (!memory_saved::is_said(n) || ++count > most_lines) continue;
    const auto [bytes, picoseconds] = memory_saved::of(n);
    const double seconds = seconds_of(picoseconds);
    text += "  " + std::string(graph::place(n.at, "value").view()) + ": " + std::to_string(bytes) + " bytes for " +
            short_time(seconds) + ", " + short_time(seconds / static_cast<double>(bytes)) + " a byte\n";
  }
  if (count > most_lines) text += "  and " + std::to_string(count - most_lines) + " others\n";
  return count == 0
             ? text
             : "values that are computed or gathered again for those who read them late, " + std::to_string(count) + ":\n" + text;
}

}  // namespace detail

/// Tells what a program that is planned within a device's memory (`dynamic::mesh::within`) gives up for it, and what each byte costs: what the plan
/// without a limit holds and how long it takes, what this one does, the inputs that give way, and the values that are computed or gathered again.
/// The program is planned once more.
///
///     std::puts(explain_memory(dynamic::inspection(b)).c_str());
///
///     a device may hold 9401139 bytes; it holds 9306112, 589824 fewer than without a limit, for 7.86 us more: 13.3 ps a byte
///     inputs that are gathered are gathered again
///     inputs that are split, 6 of 12: input 1, input 12, input 2, input 3, input 4, input 5
///
/// Communication: none; it plans. Errors: none; without a limit it says so.
[[gnu::cold]] inline std::string explain_memory(const dynamic::inspection& plan, const network& net = default_network) {
  detail::plan_request asked = plan.request();
  const auto most = asked.most_memory;
  if (most <= 0) return "no limit of memory is given: write mesh.within(bytes)\n";
  asked.most_memory = 0;
  asked.saving = 0;
  const auto& mesh = plan.mesh().info();
  const std::string again = detail::words_of_values_again(plan.graph());
  const detail::graph as_written = again.empty() ? plan.graph() : detail::program_to_plan_at_run_time(plan.written());
  const detail::plan freely = detail::make_plan(as_written, mesh.shape, asked);
  const detail::plan_view view(freely);
  const auto held = detail::peak_bytes(plan.program().view()), fewer = detail::peak_bytes(view) - held;
  const double longer = estimate(plan.program(), net).total() - detail::estimate_plan(view, mesh, net).total();
  std::string text = "a device may hold " + std::to_string(most) + " bytes; it holds " + std::to_string(held);
  if (fewer == 0) return text + ", as without a limit\n";
  std::string given = again;
  if (again.empty() || plan.request().saving > 0) given += detail::words_of_saving(plan.graph(), plan.request().saving, most);
  if (fewer < 0) return text + ", " + std::to_string(-fewer) + " more than without a limit\n" + given;
  text += ", " + std::to_string(fewer) + " fewer than without a limit, for ";
  text += longer <= 0
              ? "no time"
              : detail::short_time(longer) + " more: " + detail::short_time(longer / static_cast<double>(fewer)) + " a byte";
  return text + '\n' + given;
}

}  // namespace gspmd
