// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/list/pass_list.hpp"

namespace gspmd::detail {

template <class Once>
std::vector<dynamic::pass_made> list_of_passes(const graph& written, const graph& planned, const mesh_shape& mesh,
                                               const plan_request& request) {
  std::vector<dynamic::pass_made> list;
  for_each_pass(written.passes, {}, [&](const char* name, auto, auto) { list.push_back({name, {}}); });
  program_to_plan(written, [&](std::string_view name, const graph& g) {
    for (auto& pass : list)
      if (pass.name == name) pass.made = counted(g.nodes.size(), "value");
  });
  const pass_results results(planned, mesh, request);
  boost::mp11::mp_for_each<passes>([&]<class Pass>(Pass) { list.push_back({name_of_pass<Pass>(), made_by<Pass>(results)}); });
  return list;
}
GSPMD_PLANNED_ONCE(std::vector<dynamic::pass_made> list_of_passes<once>(const graph&, const graph&, const mesh_shape&,
                                                                        const plan_request&));

}  // namespace gspmd::detail
