// SPDX-License-Identifier: Apache-2.0
#include <gspmd/program/mesh.hpp>
#include <gspmd/program/shard_view.hpp>
#include <gspmd/program/sharding.hpp>

using namespace gspmd;

// ---- mesh ----
using pod = mesh<axis<"data", 2>, axis<"model", 4>>;
static_assert(pod::device_count == 8);
static_assert(pod::info.find("data") == 0 && pod::info.find("model") == 1 && pod::info.find("expert") == -1);
static_assert(pod::info.name(1) == "model");
static_assert(pod::info.shape.sizes[0] == 2 && pod::info.shape.sizes[1] == 4);
static_assert(pod::info.shape.coordinates_of(6)[0] == 1 && pod::info.shape.coordinates_of(6)[1] == 2);
static_assert(pod::info.shape.device_at(pod::info.shape.coordinates_of(5)) == 5);
static_assert(mesh<>::device_count == 1);
static_assert(mesh<axis<"x", 1>, axis<"y", 1>>::device_count == 1);
static_assert(mesh<axis<"x", 1024>, axis<"y", 1024>, axis<"z", 1024>>::device_count == 1 << 30);

using ring = mesh<axis<"x", 2>, axis<"y", 2>, device_order<0, 1, 3, 2>>;
static_assert(ring::info.shape.coordinates_of(3)[0] == 1 && ring::info.shape.coordinates_of(3)[1] == 0);
static_assert(ring::info.shape.device_at(ring::info.shape.coordinates_of(2)) == 2);

// (128, 8): a group of the outer axis has the devices whose numbers differ by multiples of 8
using cluster = mesh<axis<"node", 128>, axis<"gpu", 8>>;
constexpr auto node_axis = detail::axis_bit(0);
constexpr auto first = cluster::info.shape.coordinates_of(3);
static_assert(cluster::info.shape.size_of(node_axis) == 128);
static_assert(cluster::info.shape.device_at(detail::group_member(cluster::info.shape, node_axis, first, 1)) == 11);
static_assert(cluster::info.shape.device_at(detail::group_member(cluster::info.shape, node_axis, first, 127)) == 1019);

// ---- dims ----
static_assert(shape<>::rank == 0 && detail::elements(shape<>::value) == 1);
static_assert(shape<3, 0, 5>::rank == 3 && detail::elements(shape<3, 0, 5>::value) == 0);

// ---- split, resolved against a mesh ----
template <class Split>
constexpr auto resolved(int rank) {
  return detail::resolve(pod::info, Split::specs(), Split::rank, rank);
}
template <class Split>
constexpr bool is_accepted(int rank = Split::rank) {
  const auto r = resolved<Split>(rank);
  return r.problem.empty();
}
template <class Split>
constexpr detail::annotation sharding_of() {
  return resolved<Split>(Split::rank).value;
}
static_assert(is_accepted<split<>>() && is_accepted<split<"data", _>>() && is_accepted<split<"model,data">>());
static_assert(is_accepted<split<"model , data", "?">>(), "spaces around names, and a dim that is open only");
static_assert(!is_accepted<split<"data">>(2), "one entry for each dim");
static_assert(!is_accepted<split<"row", _>>(), "not an axis");
static_assert(!is_accepted<split<"data", "data">>() && !is_accepted<split<"data,data">>(), "an axis splits one dim");
static_assert(resolved<split<"data">>(2).broken == detail::mistake::annotation_rank);
static_assert(resolved<split<"row", _>>(2).broken == detail::mistake::unknown_axis);
static_assert(resolved<split<"data", "data">>(2).broken == detail::mistake::axis_used_twice);

static_assert(sharding_of<split<"data", _>>().layout.axes_of(0) == 1 && !sharding_of<split<"data", _>>().layout.is_split(1));
static_assert(sharding_of<split<"model,data">>().layout.splits[0].axis == 1, "major first");
static_assert(sharding_of<split<"data?", "?">>().open == 3 && sharding_of<split<"data", _>>().open == 0);
static_assert(sharding_of<split<"model p2", "data? p11">>().stage_of(1) == 2 &&
              sharding_of<split<"model p2", "data? p11">>().stage_of(0) == 11 &&
              sharding_of<split<"model p2", "data? p11">>().open == 2 && sharding_of<split<"data">>().last_stage() == 0);
static_assert(!is_accepted<split<"data p16">>() && !is_accepted<split<"data p">>() && !is_accepted<split<"p1">>());
static_assert(detail::spec_of(pod::info, sharding_of<split<"model,data", _>>().layout, 0).view() == "model,data");

// ---- shards: the same extents everywhere, rounded up ----
template <std::int64_t N, class Split>
constexpr std::int64_t local = shard_view<float, pod, shape<N>, Split>::local_extents[0];
static_assert(local<15, split<"data">> == 8 && local<9, split<"model">> == 3 && local<9, split<"data,model">> == 2);
static_assert(local<1, split<"model">> == 1 && local<0, split<"model">> == 0 && local<7, split<_>> == 7);
using nine = shard_view<float, pod, shape<9>, split<"model">>;
static_assert(nine::valid_range(0, along(0)) == detail::index_range{0, 3} &&
              nine::valid_range(6, along(0)) == detail::index_range{6, 9});
static_assert(nine::valid_range(7, along(0)).size() == 0, "3, 3, 3, 0");
