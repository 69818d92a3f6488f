// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/report/numbers.hpp"

namespace gspmd::detail {

/// Returns a line for each collective that sends much more than the sizes of its operands make necessary.
///
/// Two upper bounds of the necessary bytes are compared with the bytes that a device sends:
///  1. A collective that reduces or gathers the result of an operator. Gathering the operands of the operator instead
///     sends at most their bytes. Example: a product [1024,8] x [8,1024] whose contracting dim is split sends its whole
///     result; the operands are small.
///  2. A chain of collectives that reshards one value. A device needs at most its shard of the result.
///
/// Collectives below four times the bound, or below 1,000 bytes, have no line. `name(value, node)` is the name of a
/// value for the node that reads it.
template <class Name>
[[nodiscard, gnu::cold]] std::vector<std::string> excess_lines(const plan_view& plan, Name name,
                                                               number_form form = number_form::rounded) {
  constexpr std::int64_t much = 4, least = 1000;
  const auto bytes = [&](int value, const extents& shape) { return elements(shape) * bytes_of(plan.value(value).type); };
  const auto slot = [&](const table_range& range, int k) { return plan.slots[static_cast<std::size_t>(range.begin + k)]; };
  std::vector<std::string> text_lines;
  std::int64_t chain = 0;  // bytes of the collectives that reshard `moved` so far
  int first = -1, moved = -1, of = -1;
  const auto end_chain = [&] {
    if (moved >= 0 && chain >= least && chain > much * bytes(moved, plan.value(moved).local))
      text_lines.push_back("the reshard of " + name(first, of) + " sends " + format_bytes(chain, form) + "; its result has " +
                           format_bytes(bytes(moved, plan.value(moved).local), form) +
                           " on a device, so another order of the axes or an annotation before it sends less");
    chain = 0;
    first = moved = of = -1;
  };
  for (const auto& s : plan.steps) {
    if (facts_of(s).work != step_work::moves || is_mapped(s) || s.operands.count == 0) continue;
    const int operand = slot(s.operands, 0);
    if (operand != moved || s.node != of || s.operands.count != 1) end_chain();
    if (plan.operand(s, 0).layout.partial != 0) {
      end_chain();
    } else if (s.operands.count == 1 && s.results.count == 1) {
      if (first < 0) first = operand, of = s.node;
      chain += s.bytes_sent;
      moved = slot(s.results, 0);
    }
    if (!communicates(s) || s.bytes_sent < least) continue;
    std::vector<int> sources;
    bool is_known = true;
    for (int k = 0; k < s.operands.count; ++k) {
      const int step = plan.operand(s, k).step;
      is_known = is_known && step >= 0;
      if (!is_known) break;
      const auto& producer = plan.steps[static_cast<std::size_t>(step)];
      is_known = producer.operands.count > 0 && !communicates(producer);
      for (int o = 0; o < producer.operands.count; ++o) {
        const int source = slot(producer.operands, o);
        is_known = is_known && plan.value(source).layout.partial == 0;
        if (std::find(sources.begin(), sources.end(), source) == sources.end()) sources.push_back(source);
      }
    }
    std::int64_t enough = 0;
    for (const int source : sources) enough += bytes(source, plan.value(source).global);
    if (!is_known || s.bytes_sent <= much * enough) continue;
    std::string names;
    for (std::size_t k = 0; k < sources.size(); ++k)
      names += (k == 0 ? "" : k + 1 < sources.size() ? ", " : " and ") + name(sources[k], s.node);
    text_lines.push_back(std::string(name_of(s.collective)) + " of " + name(operand, s.node) + " sends " +
                         format_bytes(s.bytes_sent, form) + "; replicated, its operands " + names + " need at most " +
                         format_bytes(enough, form) + ", and each device computes the whole result");
  }
  end_chain();
  return text_lines;
}

}  // namespace gspmd::detail
