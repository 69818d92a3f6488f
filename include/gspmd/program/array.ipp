// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/program/array.hpp"

namespace gspmd::detail {

template <class Once>
std::int64_t checked_elements(const extents& shape, std::size_t elem_bytes) {
  if (const text problem = size_problem(shape, static_cast<std::int64_t>(elem_bytes)); !problem.empty())
    throw error("array: " + std::string(problem.view()));
  return elements(shape);
}
GSPMD_COMPILED_ONCE(std::int64_t checked_elements<once>(const extents&, std::size_t));

template <class Once>
[[gnu::cold]] std::string array_text(const extents& shape) {
  return "an array of " + std::string(shape_text(shape).view());
}
GSPMD_COMPILED_ONCE(std::string array_text<once>(const extents&));

}  // namespace gspmd::detail
