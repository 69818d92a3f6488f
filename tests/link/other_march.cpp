// SPDX-License-Identifier: Apache-2.0
// Does not link: the file and the precompiled library are compiled for different processors. The error says so.
#include "gspmd/detail/support/target.hpp"

namespace gspmd::detail {
inline namespace GSPMD_TARGET {
void of_precompiled_library();
}
}  // namespace gspmd::detail

int main() { gspmd::detail::of_precompiled_library(); }
