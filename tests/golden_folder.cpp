// SPDX-License-Identifier: Apache-2.0
#include "support/golden_folder.hpp"

namespace test {
std::string golden_folder() { return GSPMD_GOLDEN_FOLDER; }
}  // namespace test
