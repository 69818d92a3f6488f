// SPDX-License-Identifier: Apache-2.0
#include <gspmd/gspmd.hpp>
#include <gspmd/layouts/placements.hpp>
#include <gspmd/layouts/xla_sharding.hpp>

using namespace gspmd;

// Both meshes of torchtitan on 16 devices.
using dense = mesh<axis<"pp", 2>, axis<"dp_replicate", 1>, axis<"dp_shard", 2>, axis<"cp", 2>, axis<"tp", 2>>;
using expert = mesh<axis<"pp", 2>, axis<"dp_shard_mod_ep", 1>, axis<"ep", 4>, axis<"tp", 2>>;
using both = mesh_views<dense, expert>;
static_assert(both::device_count == 16);
static_assert(both::info.mask_of("ep") == (both::info.mask_of("dp_shard") | both::info.mask_of("cp")));
static_assert(both::info.mask_of("dp_shard_mod_ep") != 0);
static_assert(both::info.find_run("none").empty());

constexpr auto dispatch = [](auto x) { return reshard(x * 2.0, split<_, "ep">{}); };
using to_experts = compile<dispatch, both, input<float, shape<8, 8>, split<"dp_shard,cp", _>>>;
static_assert(to_experts::collectives == collectives{all_to_all<"ep">});
static_assert(to_experts::traffic.over("ep").bytes == to_experts::traffic.over("cp").bytes);
static_assert(to_experts::traffic.over("tp").bytes == 0);
static_assert(to_experts::traffic.over("dp_shard_mod_ep").bytes == 0);

// A shard has the same type in the notation of either mesh.
using outside_shard = shard_view<const float, dense, shape<8, 8>, split<"dp_shard,cp", _>>;
using inside_shard = shard_view<float, expert, shape<8, 8>, split<_, "ep">>;
static_assert(detail::is_shard_for<to_experts::input_shard<0>, outside_shard>());
static_assert(detail::is_shard_for<to_experts::output_shard<0>, inside_shard>());
static_assert(!detail::is_shard_for<to_experts::output_shard<0>, shard_view<float, expert, shape<8, 8>, split<"ep", _>>>());
static_assert(!detail::is_shard_for<to_experts::output_shard<0>,
                                    shard_view<float, mesh<axis<"ep", 4>, axis<"tp", 4>>, shape<8, 8>, split<_, "ep">>>());

// An annotation that names its mesh.
constexpr auto twice = [](auto x) { return x * 2.0; };
template <class Annotation>
using on_both = compile<twice, both, input<float, shape<8, 8>, Annotation>>;
using by_name = on_both<on<expert, split<"ep", "tp">>>;
static_assert(detail::is_shard_for<by_name::input_shard<0>, shard_view<const float, expert, shape<8, 8>, split<"ep", "tp">>>());
using by_placements =
    on_both<on<expert, placements<per_axis::replicate, per_axis::replicate, per_axis::shard(0), per_axis::shard(1)>>>;
static_assert(by_placements::input_shard<0>::layout == by_name::input_shard<0>::layout);
using by_xla = on_both<on<expert, xla_split<"{devices=[4,2,2]<=[2,8]T(1,0) last_tile_dim_replicate}">>>;
static_assert(by_xla::input_shard<0>::layout == by_name::input_shard<0>::layout);
constexpr auto crossing = [](auto x) { return reshard(x, on<expert, split<_, "ep">>{}); };
static_assert(compile<crossing, both, input<float, shape<8, 8>, on<dense, split<"dp_shard,cp", _>>>>::collectives ==
              collectives{all_to_all<"ep">});
using parts = compile<twice, both, input<float, shape<8>, on<expert, split<_>, partial<"ep">>>>;
static_assert(parts::view.value(parts::view.inputs[0]).layout.partial == both::info.mask_of("ep"));
static_assert(parts::traffic.over("ep").bytes > 0);

// Flattened axes, and a mesh of columns of rows. Nothing moves.
using grid = mesh<axis<"x", 4>, axis<"y", 2>>;
using flat = mesh_views<grid, mesh<axis<"xy", 8>>>;
constexpr auto to_flat = [](auto x) { return reshard(x, split<"xy">{}); };
static_assert(compile<to_flat, flat, input<float, shape<16>, split<"x,y">>>::traffic.bytes == 0);
using columns = mesh<axis<"a", 2>, axis<"b", 4>, device_order<0, 2, 4, 6, 1, 3, 5, 7>>;
constexpr auto to_columns = [](auto x) { return reshard(x, split<"b", "a">{}); };
using turned = compile<to_columns, mesh_views<grid, columns>, input<float, shape<8, 8>, split<"x", "y">>>;
static_assert(turned::traffic.bytes == 0);
static_assert(detail::is_shard_for<turned::output_shard<0>, shard_view<float, columns, shape<8, 8>, split<"b", "a">>>());
static_assert(!detail::is_shard_for<turned::output_shard<0>, shard_view<float, columns, shape<8, 8>, split<"a", "b">>>());

// A reshape that further cuts an axis of a view.
constexpr auto folded = [](auto x) { return reshape(x, {4, 4}) * 2.0; };
using cut = compile<folded, mesh_views<mesh<axis<"x", 4>, axis<"y", 4>>, mesh<axis<"a", 2>, axis<"b", 8>>>,
                    input<float, shape<16>, split<"b">>>;
static_assert(cut::traffic.bytes == 0);
static_assert(detail::is_shard_for<cut::input_shard<0>,
                                   shard_view<const float, mesh<axis<"a", 2>, axis<"b", 8>>, shape<16>, split<"b">>>());
