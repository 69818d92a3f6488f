// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/exclusive_use.hpp"
#include "gspmd/error.hpp"

namespace gspmd::detail {

template <class Once>
[[noreturn, gnu::cold, gnu::noinline]] void exclusive_use::refuse_second_caller() {
  throw error(
      "step: this object is already running, in another thread or in a call around this call; it has scratch memory for one "
      "caller, so make one step for each");
}
GSPMD_COMPILED_ONCE(void exclusive_use::refuse_second_caller<once>());

}  // namespace gspmd::detail
