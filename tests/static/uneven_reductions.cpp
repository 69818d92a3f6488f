// SPDX-License-Identifier: Apache-2.0
#include <gspmd/gspmd.hpp>

using namespace gspmd;

// Partial sums of extents that nothing divides, into shards and whole: the search for a cheapest way has to fit into the steps
// that compilers allow one evaluation.
constexpr auto sums = [](auto x, auto y) {
  auto first = einsum<"ij,jk->ik">(x, y);
  auto second = tanh(einsum<"ij,jk->ik">(first, y));
  auto third = tanh(einsum<"ij,jk->ik">(second, y));
  return std::tuple{first, second, third, reduce_sum<0>(x), reduce_sum<1>(x), reduce_sum(tanh(third))};
};
template <class Mesh, int N, class X, class Y>
using sums_on = compile<sums, Mesh, in<float, dims<N, 9>, X>, in<float, dims<9, 9>, Y>>;
using cube = mesh<axis<"x", 2>, axis<"y", 2>, axis<"z", 2>>;
using grid = mesh<axis<"x", 2>, axis<"y", 4>>;
static_assert(sums_on<cube, 5, split<_, "x,y">, split<"x,y", "z">>::bytes_sent_per_device > 0);
static_assert(sums_on<cube, 5, split<"z", "x,y">, split<"x,y", _>>::bytes_sent_per_device > 0);
static_assert(sums_on<grid, 7, split<_, "x,y">, split<"y,x", _>>::bytes_sent_per_device > 0);

// 9x5, partial over all of x, y and z, is wanted split over them: over y first, then over x and z, sends 25 + 30 elements, where
// one reduce_scatter sends 70.
constexpr auto scattered = [](auto a, auto b) { return reshard<split<"y", "z,x">>(einsum<"ij,jk->ik">(a, b)); };
using scatter = compile<scattered, cube, in<float, dims<9, 64>, split<_, "x,y,z">>, in<float, dims<64, 5>, split<"x,y,z", _>>>;
static_assert(scatter::bytes_sent_per_device == (25 + 30) * 4);
static_assert(scatter::collectives == list{reduce_scatter<"y">, reduce_scatter<"x,z">});
