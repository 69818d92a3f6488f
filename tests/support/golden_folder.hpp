// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace test {
/// Returns the path of tests/golden, with a slash at the end. Defined in the library that has main().
std::string golden_folder();
}  // namespace test
