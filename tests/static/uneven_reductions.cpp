// SPDX-License-Identifier: Apache-2.0
#include <gspmd/gspmd.hpp>

using namespace gspmd;

// Partial sums with extents that do not divide evenly, to shards and to whole values. The search for the cheapest path
// must fit into the compilers' limit of steps for one evaluation.
constexpr auto sums = [](auto x, auto y) {
  auto first = einsum<"ij,jk->ik">(x, y);
  return std::tuple{first, tanh(einsum<"ij,jk->ik">(first, y)), sum(x, {0})};
};
template <class Mesh, class X, class Y>
using sums_on = compile<sums, Mesh, input<float, shape<7, 9>, X>, input<float, shape<9, 9>, Y>>;
using cube = mesh<axis<"x", 2>, axis<"y", 2>, axis<"z", 2>>;
using grid = mesh<axis<"x", 2>, axis<"y", 4>>;
static_assert(sums_on<grid, split<_, "x,y">, split<"y,x", _>>::traffic.bytes > 0);
static_assert(sums_on<cube, split<_, "x,y">, split<"x,y", "z">>::traffic.bytes > 0);
static_assert(sums_on<cube, split<"z", "x,y">, split<"x,y", _>>::traffic.bytes > 0);

// 9x5, partial over x, y and z, must become split over these axes. Over y first, then over x and z, sends 25 + 30
// elements. One reduce_scatter sends 70.
constexpr auto scattered = [](auto a, auto b) { return reshard(einsum<"ij,jk->ik">(a, b), split<"y", "z,x">{}); };
using scatter =
    compile<scattered, cube, input<float, shape<9, 64>, split<_, "x,y,z">>, input<float, shape<64, 5>, split<"x,y,z", _>>>;
static_assert(scatter::traffic.bytes == (25 + 30) * 4);
static_assert(scatter::collectives == collectives{reduce_scatter<"y">, reduce_scatter<"x,z">});
