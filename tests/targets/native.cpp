// SPDX-License-Identifier: Apache-2.0
#undef GSPMD_HAS_CBLAS  // the other translation unit may have CBLAS
#include "kernels.hpp"

std::string wrong_native_kernels();
std::string wrong_native_kernels() { return wrong_kernels<true>(); }
