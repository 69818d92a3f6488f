// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/driver/given_arguments.hpp"

namespace gspmd::detail {

template <class Once>
[[gnu::cold]] error count_error(const plan_view& plan, const char* call, std::size_t first, std::size_t wanted,
                                std::size_t passed) {
  return error(std::string(count_problem(plan, call, first, wanted, passed).view()));
}
GSPMD_COMPILED_ONCE(error count_error<once>(const plan_view&, const char*, std::size_t, std::size_t, std::size_t));

template <class Once>
[[gnu::cold]] error type_error(const plan_view& plan, const char* call, std::size_t k, dtype passed) {
  return error(std::string(type_problem(plan, call, k, passed).view()));
}
GSPMD_COMPILED_ONCE(error type_error<once>(const plan_view&, const char*, std::size_t, dtype));

}  // namespace gspmd::detail
