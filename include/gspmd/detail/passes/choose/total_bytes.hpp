// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Returns the most bytes of a tensor with its padding, under any sharding over `devices` devices. A dim of e indices
/// in p parts is allocated with at most e + p - 1 indices. The total is largest if the smallest dim has all parts,
/// because log(e + p - 1) is convex in log p.
constexpr double padded_bytes(const node& n, double devices) {
  auto bytes = static_cast<double>(bytes_of(n.type));
  double growth = 1;
  for (const auto extent : n.shape) {
    const auto e = extent == 0 ? 1.0 : static_cast<double>(extent);
    bytes *= e;
    if (const double grown = 1 + (devices - 1) / e; growth < grown) growth = grown;
  }
  return bytes * growth;
}

/// Returns an error text if the planner cannot add up the bytes of a program in 64 bits, else an empty text. Assumes
/// that a tensor moves a few times when it is made and a few times for each of its users.
constexpr text total_problem(const graph& g, std::int64_t device_count) {
  constexpr double moves = 4, most = 0x1p61;
  const auto devices = static_cast<double>(device_count);
  const double per_node = 1 + max_map_arity;
  if (moves * per_node * static_cast<double>(g.nodes.size()) * static_cast<double>(g.largest_bytes) * devices <= most) return {};
  vec<double> bytes;
  double total = 0;
  for (const auto& n : g.nodes) {
    bytes.push_back(padded_bytes(n, devices));
    total += moves * bytes.back();
    for (const int o : n.operands) total += moves * bytes[o];
  }
  if (total <= most) return {};
  return "the values of the program are too large to count what moving them takes in 64 bits; make the program smaller";
}

}  // namespace gspmd::detail
