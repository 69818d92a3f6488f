// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "gspmd/detail/ir/kernel_facts.hpp"

/// The steps of a compiled program as constants. `Program` is a type with the plan: `static constexpr plan_view view`.
namespace gspmd::detail {

template <class Program, int Step>
inline constexpr const plan_step& step_of = Program::view.steps[static_cast<std::size_t>(Step)];
/// The description of a step: an entry of a table of the plan.
template <class Program, int Step, class Entry>
inline constexpr const Entry& entry_of_step =
    table_of<Entry>(Program::view)[static_cast<std::size_t>(step_of<Program, Step>.spec)];

/// The kernel of a step.
template <class Program, int Step>
using kernel_of_step = typename find_kernel<step_of<Program, Step>.kernel.name->number>::type;
/// The description of a step whose kernel K is not listed.
template <class Program, int Step, class K>
inline constexpr typename K::description description_of_step = description_of<K>(Program::view, step_of<Program, Step>);

/// Returns the object that the kernel K prepares for a step.
template <class Program, int Step, class K>
constexpr auto freeze_by() {
  if constexpr (requires { K::template freeze<Program, Step>(); }) return K::template freeze<Program, Step>();
  else if constexpr (is_listed_kernel<K>) return K::prepare(Program::view, step_of<Program, Step>);
  else return K::prepare(description_of_step<Program, Step, K>, Program::view, step_of<Program, Step>);
}
template <class Program, int Step, class K>
inline constexpr auto frozen_by = freeze_by<Program, Step, K>();

}  // namespace gspmd::detail
