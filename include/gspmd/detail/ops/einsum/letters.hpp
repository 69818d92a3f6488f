// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/graph.hpp"

namespace gspmd::detail {

/// The letters of operand `k`, or of the result if `k` is the number of operands.
struct einsum_letters {
  const node* n = nullptr;
  int begin = 0;
  int count = 0;
  [[nodiscard]] constexpr std::int8_t operator[](int i) const { return static_cast<std::int8_t>(n->attributes[begin + i]); }
  [[nodiscard]] constexpr int find(std::int8_t letter) const {
    for (int i = 0; i < count; ++i)
      if ((*this)[i] == letter) return i;
    return -1;
  }
};

constexpr einsum_letters letters_of(const graph& g, const node& n, int k) {
  int begin = 0;
  for (int o = 0; o < k; ++o) begin += g.nodes[static_cast<std::size_t>(n.operands[o])].shape.count;
  const int count = k < n.operands.count ? g.nodes[static_cast<std::size_t>(n.operands[k])].shape.count : n.shape.count;
  return {&n, begin, count};
}

}  // namespace gspmd::detail
