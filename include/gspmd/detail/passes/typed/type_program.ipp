// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/typed/type_program.hpp"

namespace gspmd::detail {

template <class Once>
void type_at_run_time(program_typer& typer) {
  typer.run_here();
}
GSPMD_PLANNED_ONCE(void type_at_run_time<once>(program_typer&));

}  // namespace gspmd::detail
