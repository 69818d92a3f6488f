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

template <class Once>
[[noreturn, gnu::cold]] void refuse_indices(const extents& shape, std::size_t count) {
  throw error("array: an element of " + std::string(shape_text(shape).view()) + " has " + std::to_string(shape.count) +
              " indices and not " + std::to_string(count) + "; pass one index for each dim");
}
GSPMD_COMPILED_ONCE(void refuse_indices<once>(const extents&, std::size_t));

}  // namespace gspmd::detail
