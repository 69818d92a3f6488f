// SPDX-License-Identifier: Apache-2.0
// Does not link: a file that is compiled for another processor than the precompiled library. The error says why.
#include "gspmd/detail/support/target.hpp"

namespace gspmd::detail {
inline namespace GSPMD_TARGET {
void of_precompiled_library();
}
}  // namespace gspmd::detail

int main() { gspmd::detail::of_precompiled_library(); }
