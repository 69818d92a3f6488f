// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gspmd/gspmd.hpp>

/// Every kind of movement, with its text in layouts.txt.
namespace golden::layouts {

using namespace gspmd;

constexpr auto program = [](auto x, auto w) {
  auto columns = reshard(x, split<_, "x">{});                 // rows to columns: all_to_all
  auto swapped = reshard(columns, split<_, "y">{});           // another axis, and 16 does not divide 20
  auto sum = einsum<"ab,bc->ac">(columns, w);                 // partial over x
  auto scattered = reshard(sum, split<"x", _>{});             // reduce_scatter
  auto odd = allow_replication(reshape(scattered, {6, 16}));  // [12,8] to [6,16] mixes both dims: a gather is forced
  auto unused = scattered * 2.0;
  auto maxima = reduce(transpose(scattered, {1, 0}), monoid::max, {1});
  static_cast<void>(unused);
  return std::tuple{replicate(odd + 1.0), swapped, maxima, x};  // all_gather; x is copied
};
using step =
    compile<program, mesh<axis<"x", 4>, axis<"y", 4>>, input<double, shape<12, 20>, split<"x", _>>, input<double, shape<20, 8>>>;

}  // namespace golden::layouts
