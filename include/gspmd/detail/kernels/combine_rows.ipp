// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/kernels/combine_rows.hpp"

namespace gspmd::detail {
inline namespace GSPMD_TARGET {

template <class Once>
row_combiner combiner_at(dtype type, monoid kind) {
  row_combiner found{};
  with_real_type(type, [&]<class T>(T) { found = combiner_of<T>(kind); });
  return found;
}
GSPMD_COMPILED_ONCE(row_combiner combiner_at<once>(dtype, monoid));

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
