// SPDX-License-Identifier: Apache-2.0
#include <gspmd/gspmd.hpp>
#include <gspmd/report/network.hpp>

// limit_gather on the static path: the plan rotates shards around the ring, and its memory is a compile-time constant.

using namespace gspmd;

namespace {
using eight = mesh<axis<"x", 8>>;
constexpr auto gathered = [](auto x, auto w) { return einsum<"db,df->fb">(x, w); };
constexpr auto one_way = [](auto x, auto w) { return limit_gather(einsum<"db,df->fb">(x, w), 0); };
constexpr auto both_ways = [](auto x, auto w) { return limit_gather(einsum<"db,df->fb">(x, w), 32 * KiB); };

template <auto F>
using step = compile<F, eight, input<float, shape<32, 2048>, split<_, "x">>, input<float, shape<32, 512>, split<_, "x">>>;

constexpr std::int64_t shard = 32 * 64 * 4;
static_assert(step<gathered>::collectives == collectives{all_gather<"x">});
static_assert(step<one_way>::collectives == collectives{collective_permute<"x">});
static_assert(step<both_ways>::collectives == collectives{collective_permute<"x">});
static_assert(step<one_way>::traffic.bytes == step<gathered>::traffic.bytes);
static_assert(step<both_ways>::traffic.bytes == step<gathered>::traffic.bytes);
static_assert(step<one_way>::traffic.messages == step<gathered>::traffic.messages);
static_assert(step<one_way>::flops_per_device == step<gathered>::flops_per_device);
static_assert(step<gathered>::view.arena_bytes == 8 * shard);
static_assert(step<one_way>::view.arena_bytes == 2 * shard);
static_assert(step<both_ways>::view.arena_bytes == 4 * shard);
static_assert(step<gathered>::peak_bytes_per_device - step<one_way>::peak_bytes_per_device == 6 * shard);

// On a torus, both ways take half the time. On a switch, one way takes as long. One gather needs fewer messages on a
// switch.
constexpr network torus(1e12, {{"x", topology::torus, 1e9, 1e-6}});
constexpr network switched(1e12, {{"x", topology::switched, 1e9, 1e-6}});
static_assert(estimate<step<both_ways>>(torus).communication == estimate<step<gathered>>(torus).communication);
static_assert(estimate<step<one_way>>(torus).communication == estimate<step<one_way>>(switched).communication);
static_assert(estimate<step<gathered>>(switched).communication < estimate<step<one_way>>(switched).communication);
}  // namespace
