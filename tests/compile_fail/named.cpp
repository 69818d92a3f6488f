// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: named: a name is not empty and has no `/`, `[` or `]`
#include <gspmd/ops/named.hpp>
using namespace gspmd;
#ifdef FIXED
constexpr fixed_string name = "attention";
#else
constexpr fixed_string name = "layer/attention";
#endif
value attention(value x) {
  return named<name>([](value q) { return q; }, x);  // <- here
}
