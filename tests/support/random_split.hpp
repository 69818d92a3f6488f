// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gspmd/dynamic/mesh.hpp"

/// Random choices for tests that name axes as a user does.
namespace reference {

struct draws {
  std::mt19937_64 engine;
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(n)); }
};

/// Every axis splits some dim, or none.
inline std::vector<std::string> random_split(draws& r, const gspmd::dynamic::mesh& m, std::size_t rank) {
  std::vector<std::string> dims(rank);
  for (int a = 0; a < m.info().shape.axis_count(); ++a) {
    const auto d = static_cast<std::size_t>(r.below(static_cast<std::int64_t>(rank) + 1));
    if (d < rank) dims[d] += (dims[d].empty() ? "" : ",") + std::string(m.info().name(a));
  }
  return dims;
}

}  // namespace reference
