// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "gspmd/detail/ops/update.hpp"
#include "gspmd/detail/passes/list/compute_again.hpp"
#include "gspmd/detail/report/numbers.hpp"
#include "gspmd/report/inspect.hpp"
#include "gspmd/report/network.hpp"

/// Reports the cost of a memory limit.
namespace gspmd {
namespace detail {

/// Returns the price of saved bytes: `49152 bytes for 1.31 us, 26.7 ps a byte`.
[[gnu::cold]] inline std::string price_of_bytes(std::int64_t bytes, double seconds) {
  const std::string time = seconds <= 0 ? "no time" : short_time(seconds);
  if (bytes == 0) return "no bytes by itself, for " + time;
  if (bytes < 0) return std::to_string(-bytes) + " bytes more by itself, for " + time;
  return std::to_string(bytes) + " bytes for " + time +
         (seconds <= 0 ? "" : ", " + short_time(seconds / static_cast<double>(bytes)) + " a byte");
}

/// Lists the memory-saving measures of a plan, one after the other. Plans the program with each further measure. The
/// difference from the previous plan is the bytes that the measure saves and the time that it costs.
class given_up_words {
 public:
  given_up_words(const graph& g, const mesh_info& mesh, const plan_request& request, const network& net)
      : g_(g), mesh_(mesh), request_(request), net_(net) {
    last_ = held_at(0);
  }

  [[nodiscard, gnu::cold]] std::string all() {
    const int level = saving_level(request_.saving);
    if (level == 0) return "nothing was changed\n";
    if (level == 1) list(1, "inputs that are gathered again where they are gathered, ");
    else line("inputs that are gathered are gathered again: ", 1, true);
    const bool are_some_of_3 = level == 3 && inputs_giving_way(request_.saving) > 0;
    if (level > 1)
      list(are_some_of_3 ? 3 : 2, are_some_of_3
                                      ? "inputs that are split, states along several dims, with operands of einsums in parts, "
                                      : "inputs that are split, ");
    for (int l = are_some_of_3 ? 4 : 3; l <= level && l <= 5; ++l)
      line("einsums take operands in parts that would be gathered to more than " +
               std::to_string(request_.most_memory >> (2 * (l - 2))) + " bytes: ",
           l);
    if (level > 5) line("states have the computed sharding of their next values: ", level);
    return std::move(text_);
  }

 private:
  static constexpr std::size_t most_lines = 8;
  struct held {
    std::int64_t bytes = 0;
    double seconds = 0;
  };

  /// Returns the peak and time with this level of saving. If the level is refused, returns those of the previous level.
  [[nodiscard, gnu::cold]] held held_at(int saving) const {
    plan_request asked = request_;
    asked.saving = saving;
    const plan made = plan_once(g_, mesh_.shape, asked);
    if (made.broken != mistake::none) return last_;
    const plan_view view(made);
    return {peak_bytes(view), estimate_plan(view, mesh_, net_).total()};
  }
  [[gnu::cold]] void line(const std::string& what, int saving, bool may_be_nothing = false) {
    const held now = held_at(saving);
    if (may_be_nothing && now.bytes == last_.bytes && now.seconds == last_.seconds) return;
    text_ += what + price_of_bytes(last_.bytes - now.bytes, now.seconds - last_.seconds) + '\n';
    last_ = now;
  }
  [[gnu::cold]] void list(int level, const char* what) {
    const vec<int> inputs = cheapest_inputs(g_.nodes, level, request_.most_memory);
    const int some = saving_level(request_.saving) == level ? inputs_giving_way(request_.saving) : 0;
    const std::size_t count = some > 0 ? static_cast<std::size_t>(some) : inputs.size();
    text_ +=
        what + (count < inputs.size() ? std::to_string(count) + " of " + std::to_string(inputs.size()) : "all that may") + ":\n";
    for (std::size_t k = 0; k < count; ++k) {
      const bool is_rest = k == most_lines && count > most_lines + 1;
      const std::size_t with = is_rest ? count : k + 1;
      line("  " + (is_rest ? std::to_string(count - k) + " others" : name_of_input(inputs[k])) + ": ",
           with == inputs.size() ? level : level + 8 * static_cast<int>(with));
      if (is_rest) return;
    }
  }
  /// Returns the name of an input: `input 2 (w), a state: its next value is output 0`.
  [[nodiscard, gnu::cold]] std::string name_of_input(int i) const {
    std::string name(graph::input_text(g_.nodes[static_cast<std::size_t>(i)].at).view());
    for (std::size_t o = 0; o < g_.outputs.size(); ++o) {
      const node& n = g_.nodes[static_cast<std::size_t>(g_.outputs[o])];
      if (update_mark::is_on(n) && g_.inputs[static_cast<std::size_t>(update_mark::of(n).input)] == i)
        return name + ", a state: its next value is output " + std::to_string(o);
    }
    return name;
  }

  const graph& g_;
  const mesh_info& mesh_;
  plan_request request_;
  const network& net_;
  held last_;
  std::string text_;
};

/// Returns the values that are recomputed or gathered again, and the bytes that each saves.
[[gnu::cold]] inline std::string words_of_values_again(const graph& g) {
  constexpr int most_lines = 8;
  std::string text;
  int count = 0;
  for (const node& n : g.nodes) {
    if (!memory_saved::is_said(n) || ++count > most_lines) continue;
    const auto [bytes, picoseconds] = memory_saved::of(n);
    text += "  " + std::string(graph::place(n.at, "value").view()) + ": " + price_of_bytes(bytes, seconds_of(picoseconds)) + '\n';
  }
  if (count > most_lines) text += "  and " + std::to_string(count - most_lines) + " others\n";
  return count == 0 ? text
                    : "values that are recomputed or gathered again for late users, " + std::to_string(count) + ":\n" + text;
}

}  // namespace detail

/// Returns a report of the changes that make a program fit into the memory limit of a device
/// (`dynamic::mesh::within`), and the price of each byte.
///
/// The report contains the peak and the time without a limit and with it. It has a line for each input that the
/// measures affect, and for each value that is recomputed or gathered again. A line states the bytes saved and the
/// time. Inputs with next values (weights and moments) are called states. If there are more than nine inputs, the last
/// ones share a line. The program is planned again for each line of inputs, at most 15 times.
///
/// **Communication.** None: it only plans.
/// **Errors.** None. Without a limit the text says so.
/// **Example.**
///
///     std::puts(explain_memory(dynamic::inspection(b)).c_str());
///
///     a device may hold 176220 bytes; it holds 152648, 141120 fewer than without a limit, for no time
///     inputs that are split, all that may:
///       input 7, a state: its next value is output 6: 15360 bytes for no time
///       ...
///       10 others: 49856 bytes for 459 ns, 9.21 ps a byte
[[gnu::cold]] inline std::string explain_memory(const dynamic::inspection& plan, const network& net = default_network) {
  detail::plan_request asked = plan.request();
  const auto most = asked.most_memory;
  if (most <= 0) return "no limit of memory is given: write options{.memory = bytes}\n";
  asked.most_memory = 0;
  asked.saving = 0;
  const auto& mesh = plan.mesh().info();
  const std::string again = detail::words_of_values_again(plan.graph());
  const detail::graph as_written = again.empty() ? plan.graph() : detail::program_to_plan_at_run_time(plan.written());
  const detail::plan freely = detail::plan_at_run_time(as_written, mesh.shape, asked);
  const detail::plan_view view(freely);
  const auto held = detail::peak_bytes(plan.program().view()), fewer = detail::peak_bytes(view) - held;
  const double longer = estimate(plan.program(), net).total() - detail::estimate_plan(view, mesh, net).total();
  std::string text = "a device may hold " + std::to_string(most) + " bytes; it holds " + std::to_string(held);
  if (fewer == 0) return text + ", as without a limit\n";
  std::string given = again;
  if (again.empty() || plan.request().saving > 0) given += detail::given_up_words(plan.graph(), mesh, plan.request(), net).all();
  if (fewer < 0) return text + ", " + std::to_string(-fewer) + " more than without a limit\n" + given;
  text += ", " + std::to_string(fewer) + " fewer than without a limit, for ";
  text += longer <= 0
              ? "no time"
              : detail::short_time(longer) + " more: " + detail::short_time(longer / static_cast<double>(fewer)) + " a byte";
  return text + '\n' + given;
}

}  // namespace gspmd
