// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gspmd/detail/support/sort_in_order.hpp"

/// The meshes that a number of devices can form.
namespace gspmd::detail {

using axis_sizes = std::vector<std::int64_t>;

/// Returns the divisors of a number, except 1 and the number itself.
inline std::vector<std::int64_t> divisors_of(std::int64_t n) {
  std::vector<std::int64_t> found;
  for (std::int64_t d = 2; d <= n / d; ++d) {
    if (n % d != 0) continue;
    found.push_back(d);
    if (d != n / d) found.push_back(n / d);
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// Returns the factorisations of `devices` into `axes` factors of at least 2, the most even ones first. If `in_order`,
/// 2*4 and 4*2 are different. Example: 8 devices and 2 axes give {2, 4}; in_order {2, 4}, {4, 2}.
inline std::vector<axis_sizes> factorizations(std::int64_t devices, std::size_t axes, bool in_order) {
  std::vector<axis_sizes> found;
  if (axes == 1) {
    found.push_back({devices});
    return found;
  }
  for (const auto first : divisors_of(devices)) {
    for (auto rest : factorizations(devices / first, axes - 1, in_order)) {
      if (rest.front() < 2 || (!in_order && rest.front() < first)) continue;
      rest.insert(rest.begin(), first);
      found.push_back(std::move(rest));
    }
  }
  sort_in_order(found, [](const axis_sizes& a, const axis_sizes& b) {
    return *std::max_element(a.begin(), a.end()) < *std::max_element(b.begin(), b.end());
  });
  return found;
}

/// Returns meshes with 1 to `most_axes` axes, at most `most` for each number of axes.
inline std::vector<axis_sizes> mesh_shapes(std::int64_t devices, std::size_t most_axes, bool in_order, std::size_t most) {
  std::vector<axis_sizes> found;
  for (std::size_t axes = 1; axes <= most_axes; ++axes) {
    auto some = factorizations(devices, axes, in_order);
    if (some.size() > most) some.resize(most);
    found.insert(found.end(), some.begin(), some.end());
  }
  return found;
}

}  // namespace gspmd::detail
