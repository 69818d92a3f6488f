// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/choose/total_bytes.hpp"
#include "gspmd/detail/passes/list/compute_again.hpp"
#include "gspmd/detail/passes/list/make_plan.hpp"
#include "gspmd/detail/passes/rewrite/sub_axes.hpp"
#include "gspmd/dynamic/program.hpp"

namespace gspmd::detail {

template <class Once>
std::shared_ptr<const plan> planned(dynamic::mesh& m, const graph& g, std::optional<graph>& refined) {
  if (g.failed()) throw error(std::string(g.error.view()));
  if (const auto problem = total_problem(g, m.device_count()); !problem.empty())
    throw error(std::string(problem.view()), -1, "compile", nullptr, 0);
  for (const auto& n : g.nodes)
    if (is_own(n.type))
      throw error(
          std::string((graph::place(n.at, name_of(n.op)) << ": has an element type of your own, which the run-time path has no "
                                                            "kernels for; use gspmd::compile")
                          .view()));
  auto made = std::make_shared<plan>(plan_again(g, m.info().shape, m.info().request, [&](axis_cut cut) {
    if (!refined) refined = g;
    m = m.with_cut(cut);
    cut_axis(*refined, m.info(), cut.axis);
    return &*refined;
  }));
  std::optional<graph> again;
  const graph& program = refined ? *refined : g;
  compute_again(*made, program, m.info().shape, m.info().request, again);
  if (again) refined = std::move(again);
  if (!made->error.empty()) throw error(std::string(made->error.view()));
  return made;
}
GSPMD_PLANNED_ONCE(std::shared_ptr<const plan> planned<once>(dynamic::mesh&, const graph&, std::optional<graph>&));

template <class Once>
plan_view view_of(const plan& p) {
  return plan_view(p);
}
GSPMD_PLANNED_ONCE(plan_view view_of<once>(const plan&));

}  // namespace gspmd::detail
