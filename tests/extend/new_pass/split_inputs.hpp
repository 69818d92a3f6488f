// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/extend/pass.hpp"

// A function for programs that adds a pass. It includes only public headers.
namespace new_pass {

using namespace gspmd::extend;

/// Refuses a program if every device holds all of an input of more than `Bytes` bytes.
template <std::int64_t Bytes>
struct large_inputs_are_split : plain_pass {
  static constexpr const char* name = "large inputs are split";
  static constexpr pass_position position = pass_position::completed;

  static constexpr bool applies(const graph& g) { return g.mesh->shape.wide_axes() != 0; }
  static constexpr node_order run(graph& g, const vec<sharding>& shardings) {
    for (const int i : g.inputs) {
      const node n = g.nodes[i];
      const std::int64_t bytes = bounded_bytes(n.shape, bytes_of(n.type));
      if (bytes > Bytes && g.mesh->shape.size_of(shardings[i].split_axes()) == 1)
        g.fail(n.at, "input", mistake::other,
               text("each device holds all ") << bytes << " bytes of " << shape_text(n.shape) << "; split a dim");
    }
    return node_order::kept;
  }
};

/// Returns `x`. Refuses the program of `x` if an input of more than `Bytes` bytes is not split.
template <std::int64_t Bytes>
constexpr gspmd::value split_inputs_above(gspmd::value x) {
  add_pass<large_inputs_are_split<Bytes>>(x);
  return x;
}

}  // namespace new_pass
