// SPDX-License-Identifier: Apache-2.0
// The header includes this file at its end, and gspmd/precompiled.hpp includes it again.
#include "gspmd/detail/kernels/combine_rows.hpp"

namespace gspmd::detail {
inline namespace GSPMD_TARGET {

GSPMD_COMPILED_ONCE(row_combiner combiner_of<float>(monoid));
GSPMD_COMPILED_ONCE(row_combiner combiner_of<double>(monoid));
GSPMD_COMPILED_ONCE(row_combiner combiner_of<std::int32_t>(monoid));
GSPMD_COMPILED_ONCE(row_combiner combiner_of<std::int64_t>(monoid));
GSPMD_COMPILED_ONCE(row_combiner combiner_of<bool>(monoid));
GSPMD_COMPILED_ONCE(row_combiner combiner_of<bf16>(monoid));
GSPMD_COMPILED_ONCE(row_combiner combiner_of<f16>(monoid));
GSPMD_COMPILED_ONCE(row_combiner combiner_of<std::int8_t>(monoid));
GSPMD_COMPILED_ONCE(row_combiner combiner_of<std::uint8_t>(monoid));
GSPMD_COMPILED_ONCE(row_combiner combiner_of<std::int16_t>(monoid));
GSPMD_COMPILED_ONCE(row_combiner combiner_of<std::uint32_t>(monoid));
GSPMD_COMPILED_ONCE(row_combiner combiner_of<std::uint64_t>(monoid));

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
