// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "gspmd/detail/ir/add_pass.hpp"
#include "gspmd/detail/passes/ghost/ghost_zones.hpp"
#include "gspmd/ops/loops.hpp"
#include "gspmd/ops/traced_body.hpp"

/// Loops over stencils with one exchange for several iterations.
namespace gspmd {

/// A body of fori_loop that computes several sweeps per exchange; see ghost.
template <class Body>
struct ghost_body {
  Body body;
  std::int64_t sweeps;
};

/// Makes the body of a fori_loop over a stencil that computes `sweeps` iterations per exchange. The exchanged halo is
/// `sweeps` times the radius wide (ghost zones, wide halos). Without `sweeps` the planner takes the number that is
/// fastest on the mesh's network. Between exchanges, devices also compute elements that their neighbours compute.
///
/// **Example.**
///     // 25 exchanges
///     auto u = fori_loop(100, ghost<4>([](value, value u) { return stencil<1, 1>(laplace, u); }), u0);
///     auto [p, v] = fori_loop(steps, ghost(leapfrog), p0, v0);  // by the network's latency
///
/// The values equal those of the plain fori_loop, bit for bit. The body consists of stencils, shifts, rolls and
/// elementwise operators. All carried fields have one shape and one sharding, which is that of the plain loop. The
/// body may also carry numbers. Remaining iterations, if `sweeps` does not divide n, have an exchange of their own. In
/// a manual region each iteration has its own exchange; use local::halo there for a wider halo. grad differentiates
/// the plain loop.
///
/// **Communication.** One collective_permute every `sweeps` iterations for each field and each split dim that is read
/// at an offset. It has two messages of sweeps * radius * s elements. s is the number of elements per index of the dim
/// in a shard, including the halos along the split dims before it. A field that is not itself read at offsets sends
/// less. A halo may be wider than a shard. Values from outside are exchanged once before the loop, or twice if there
/// are remaining iterations. The default network has no cost per message, so there ghost(body) is the plain loop. Each
/// exchange copies each field into blocks, dim by dim, and back.
/// **Errors.** At compile time: another operator in the body, for example a reduction or a function of yours (`map`),
/// with its line; complex fields; fields with different shapes or shardings; a number of iterations that the program
/// computes.
template <int Sweeps, class Body>
  requires(Sweeps >= 1)
constexpr ghost_body<Body> ghost(Body body) {
  return {std::move(body), Sweeps};
}
template <class Body>
constexpr ghost_body<Body> ghost(Body body) {
  return {std::move(body), -1};
}
/// The same with a number of sweeps that is known at run time. A number below 1 counts as 1.
template <class Body>
constexpr ghost_body<Body> ghost(std::int64_t sweeps, Body body) {
  return {std::move(body), sweeps < 1 ? 1 : sweeps};
}
template <class Body, class... Carry>
constexpr auto fori_loop(detail::trip_count n, ghost_body<Body> body, const Carry&... init) {
  n.sweeps = body.sweeps;
  if (detail::graph* const g = detail::graph_of(init...); g != nullptr) detail::add_pass<detail::ghost_zones_pass>(*g);
  return fori_loop(n, body.body, init...);
}

/// Refuses a computed number of iterations with ghost, because the number of remaining sweeps must be known.
template <class Body, class... Carry>
  requires(sizeof...(Carry) > 0)
constexpr auto fori_loop(detail::counted_trips n, ghost_body<Body> body, const Carry&... init) {
  n.trips.graph()->fail(
      n.at, "fori_loop", detail::mistake::region,
      "makes several sweeps on one exchange, ghost, and computes how many trips there are; give a number of trips, or "
      "write the loop without ghost");
  return fori_loop(n, body.body, init...);
}

}  // namespace gspmd
