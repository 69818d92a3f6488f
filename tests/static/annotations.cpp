// SPDX-License-Identifier: Apache-2.0
#include <gspmd/index.hpp>
#include <gspmd/ops.hpp>
#include <gspmd/run/compile.hpp>
#include <gspmd/windows.hpp>

using namespace gspmd;

using grid = mesh<axis<"a", 2>, axis<"b", 4>>;

template <auto Annotate>
using annotated = typename compile<Annotate, grid, input<float, shape<3, 16, 64>>>::template output_shard<0>;
template <class Shard, class Split>
constexpr bool is_split_as = std::is_same_v<Shard, shard_view<float, grid, shape<3, 16, 64>, Split>>;

// GShard 3.2: the device assignment [1,2,4] cuts [3,16,64] into parts of [3,8,16]
using sharded = annotated<[](auto x) { return shard(x, {1, 2, 4}); }>;
static_assert(is_split_as<sharded, split<_, "a", "b">>);
static_assert(sharded::local_extents == shape<3, 8, 16>::value);

static_assert(is_split_as<annotated<[](auto x) {
                            return shard(x, {1, 8, 1});
                          }>,
                          split<_, "a,b", _>>,
              "axes in order, as many as it takes");
static_assert(is_split_as<annotated<[](auto x) {
                            return shard(x, {1, 1, 2});
                          }>,
                          split<_, _, "a">>,
              "the axis left over replicates");

// GSPMD 3.1: mesh_split by position
static_assert(is_split_as<annotated<[](auto x) { return mesh_split(x, {-1, 1, 0}); }>, split<_, "b", "a">>);
static_assert(is_split_as<annotated<[](auto x) { return mesh_split(x, {-1, -1, -1}); }>, split<_, _, _>>);

static_assert(is_split_as<annotated<[](auto x) { return split_dim(x, 4, along(1)); }>, split<_, "b", _>>);
static_assert(is_split_as<annotated<[](auto x) { return split_dim(x, 8, along(2)); }>, split<_, _, "a,b">>);
static_assert(is_split_as<annotated<[](auto x) { return split_dim(x, 1, along(0)); }>, split<_, _, _>>);

static_assert(is_split_as<annotated<[](auto x) { return replicate(reshard(x, split<_, "a", "b">{})); }>, split<_, _, _>>);
static_assert(is_split_as<annotated<[](auto x) { return reshard(x, split<"a", _, "b">{}); }>, split<"a", _, "b">>);

// An annotation propagates to the users of a value, and back to its operands (3.5).
using chain = compile<[](auto x) { return relu(reshard(x * 2.0, split<_, "a", "b">{})); }, grid, input<float, shape<3, 16, 64>>>;
static_assert(is_split_as<chain::output_shard<0>, split<_, "a", "b">>);
static_assert(std::is_same_v<chain::input_shard<0>, shard_view<const float, grid, shape<3, 16, 64>, split<_, "a", "b">>>);
static_assert(chain::collectives == collectives{});
