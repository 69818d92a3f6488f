// SPDX-License-Identifier: Apache-2.0
// labels: planner exhaustive
// group: planner
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/layouts/xla_sharding.hpp"
#include "support/error_of.hpp"
#include "support/layouts.hpp"

using namespace gspmd;
using detail::mesh_info;

namespace {

using caught::refusal;

mesh_info named(const std::vector<int>& sizes) {
  mesh_info m;
  const char* names[] = {"x", "y", "z", "w"};
  for (std::size_t a = 0; a < sizes.size(); ++a) m.add_axis(names[a], sizes[a]);
  return m;
}

std::string parse_error(const std::string& text) {
  return refusal([&] { xla_sharding::parse(text); });
}

/// The meaning of a text by its definition: the tile of every device, and its subgroups. Reads the list form only.
struct tile_table {
  std::vector<std::vector<std::int64_t>> tile;  // per device, its index on each data dim
  std::vector<std::int64_t> manual, unreduced;  // per device, its index in the subgroup, or 0
  friend bool operator==(const tile_table&, const tile_table&) = default;
};

tile_table table_of(std::string text, int rank, int devices) {
  tile_table t;
  t.tile.assign(static_cast<std::size_t>(devices), std::vector<std::int64_t>(static_cast<std::size_t>(rank), 0));
  t.manual.assign(static_cast<std::size_t>(devices), 0);
  t.unreduced = t.manual;
  const auto begin = text.find('[');
  if (begin == std::string::npos) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(devices));
    std::iota(all.begin(), all.end(), 0);
    if (text == "{manual}") t.manual = all;
    else if (text == "{unreduced}") t.unreduced = all;
    else CHECK_EQ(text, "{replicated}");
    return t;
  }
  const auto numbers = [](std::string s) {
    std::vector<std::int64_t> list;
    for (std::size_t i = 0; i < s.size();) {
      std::size_t used = 0;
      list.push_back(std::stol(s.substr(i), &used));
      i += used + 1;
    }
    return list;
  };
  const auto end = text.find(']');
  const auto dims = numbers(text.substr(begin + 1, end - begin - 1));
  const auto list = numbers(text.substr(end + 1, text.find_first_of(" }", end) - end - 1));
  std::vector<std::string> groups;
  if (text.find("last_tile_dim_replicate") != std::string::npos) groups = {"replicated"};
  for (const char* g : {"manual", "unreduced", "replicated"})
    if (text.find("last_tile_dims={") != std::string::npos && text.find(g) != std::string::npos) groups.emplace_back(g);
  REQUIRE_EQ(dims.size(), static_cast<std::size_t>(rank) + groups.size());
  REQUIRE_EQ(list.size(), static_cast<std::size_t>(devices));
  for (std::size_t i = 0; i < list.size(); ++i) {
    auto rest = static_cast<std::int64_t>(i);
    const auto device = static_cast<std::size_t>(list[i]);
    for (auto d = dims.size(); d-- > 0;) {
      const auto index = rest % dims[d];
      rest /= dims[d];
      if (d < static_cast<std::size_t>(rank)) t.tile[device][d] = index;
      else if (groups[d - static_cast<std::size_t>(rank)] == "manual") t.manual[device] = index;
      else if (groups[d - static_cast<std::size_t>(rank)] == "unreduced") t.unreduced[device] = index;
    }
  }
  return t;
}

/// The same for one of our shardings, by the planner's own functions.
tile_table table_of(const detail::mesh_shape& mesh, const detail::sharding& s, int rank) {
  tile_table t;
  for (std::int64_t d = 0; d < mesh.device_count(); ++d) {
    const auto at = mesh.coordinates_of(d);
    t.tile.emplace_back();
    for (int k = 0; k < rank; ++k) t.tile.back().push_back(part_index(mesh, s, k, at));
  }
  t.manual.assign(t.tile.size(), 0);
  t.unreduced = t.manual;
  return t;
}

bool same_splits(const detail::mesh_shape& mesh, const detail::sharding& a, const detail::sharding& b) {
  const auto wide = [&](const detail::sharding& s) {
    detail::sharding w = s;
    w.splits.clear();
    for (const auto& use : s.splits)
      if (mesh.sizes[use.axis] > 1) w.splits.push_back(use);
    w.partial = s.partial & mesh.wide_axes();
    return w;
  };
  return wide(a) == wide(b);
}

}  // namespace

TEST_CASE("text as XLA writes it, there and back") {
  for (const char* text :
       {"{replicated}", "{manual}", "{unknown}", "{unreduced}", "{maximal device=3}", "{}", "{devices=[2,2]<=[4]}",
        "{devices=[4,2]<=[2,4]T(1,0)}", "{devices=[2,1,4]<=[8] last_tile_dim_replicate}", "{devices=[2,2]0,3,1,2}",
        "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}", "{devices=[1,1,2,2]<=[4] last_tile_dims={manual, replicated}}",
        "{devices=[2,2]<=[4] shard_as 7}", "{unknown shard_like 0}", "{replicated shard_as 1}",
        "{{manual shard_as 2}, {replicated}}", "{devices=[6,35]<=[7,10,3]T(2,1,0)}",
        "{{replicated}, {devices=[2]<=[2]}, {maximal device=0}}"})
    CHECK_EQ(xla_sharding::parse(text).text(), text);
  // blanks, the order of the words, metadata and comments do not matter
  CHECK_EQ(xla_sharding::parse(" { last_tile_dim_replicate devices=[ 2, 1,2 ] 0,1, 2,3 } ").text(),
           "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}");
  CHECK_EQ(xla_sharding::parse("{replicated metadata={op_name=\"a}\\\"b\" source_line=3}}").text(), "{replicated}");
  CHECK_EQ(xla_sharding::parse("{devices=[2]0,1 metadata={{a=1}, {b=\"{\"}}}").text(), "{devices=[2]0,1}");
  CHECK_EQ(xla_sharding::parse("{{replicated}, /*index=1*/{manual}}").text(), "{{replicated}, {manual}}");
  CHECK_EQ(xla_sharding::parse("{devices=[4,2]<=[2,4]T(1,0)}").text(xla_form::list), "{devices=[4,2]0,4,1,5,2,6,3,7}");
  CHECK_EQ(xla_sharding::parse("{maximal device=3}").tiles().device, 3);
  const auto tuple = xla_sharding::parse("{{replicated}, {devices=[2]<=[2]}}");
  CHECK(tuple.is_tuple());
  CHECK_EQ(tuple.elements()[1].text(), "{devices=[2]<=[2]}");
}

TEST_CASE("a group of values is refused where one value stands alone") {
  for (const char* text : {"{replicated shard_as 1}", "{unknown shard_like 2}"}) {
    const auto r = detail::resolve_xla(named({2, 2}), text, 2);
    CHECK(std::string(r.problem.view()).find("write shard_alike(x, other)") != std::string::npos);
  }
}

TEST_CASE("what is wrong with a text, and where") {
  CHECK_EQ(parse_error(""), "XLA sharding, column 1: a sharding begins with `{`");
  CHECK_EQ(parse_error("{"), "XLA sharding, column 2: the `{` of the sharding is not closed");
  CHECK_EQ(parse_error("{replicated"), "XLA sharding, column 12: the `{` of the sharding is not closed");
  CHECK_EQ(parse_error("{replicated}x"), "XLA sharding, column 13: write nothing after the last `}`");
  CHECK_EQ(parse_error("{replicated manual}"),
           "XLA sharding, column 13: a sharding is one of replicated, manual, unreduced, unknown, maximal, devices=");
  CHECK_EQ(parse_error("{maximal}"), "XLA sharding, column 1: write maximal together with device=");
  CHECK_EQ(parse_error("{replicated device=1}"), "XLA sharding, column 1: write maximal together with device=");
  CHECK_EQ(parse_error("{ shard_as 1}"),
           "XLA sharding, column 1: the sharding says neither replicated, manual, unreduced, unknown, maximal nor devices=");
  CHECK_EQ(parse_error("{unknown shard_as}"), "XLA sharding, column 18: write a number here");
  CHECK_EQ(parse_error("{unknown shard_as 1 shard_like 2}"),
           "XLA sharding, column 21: a sharding has one group; write shard_as or shard_like once");
  CHECK_EQ(parse_error("{devices=2,2}"), "XLA sharding, column 10: write `[` after devices=");
  CHECK_EQ(parse_error("{devices=[2,]0,1}"), "XLA sharding, column 13: write a number here");
  CHECK_EQ(parse_error("{devices=[2,0]0,1}"), "XLA sharding, column 13: the number is 0; it is at least 1");
  CHECK_EQ(parse_error("{devices=[2,2}"), "XLA sharding, column 14: write `]` after the parts of the dims");
  CHECK_EQ(parse_error("{devices=[2,2]0,1,2}"), "XLA sharding, column 15: devices=[2,2] has 4 parts and 3 devices are named");
  CHECK_EQ(parse_error("{devices=[2,2]0,1,2,2}"), "XLA sharding, column 15: the device 2 is named twice");
  CHECK_EQ(parse_error("{devices=[2]4,5}"),
           "XLA sharding, column 13: the device 4 is named and the ids of 2 devices are 0 to 1; a sharding over some of the "
           "devices is not supported");
  CHECK_EQ(parse_error("{devices=[2,2]<=[8]}"), "XLA sharding, column 15: devices=[2,2] has 4 parts and 8 devices are named");
  CHECK_EQ(parse_error("{devices=[2,2]<=[2,2]T(0,0)}"), "XLA sharding, column 22: T(...) names each dim of <=[...] once, from 0");
  CHECK_EQ(parse_error("{devices=[2,2]<=[2,2]T(0)}"), "XLA sharding, column 22: T(...) names each dim of <=[...] once, from 0");
  CHECK_EQ(parse_error("{devices=[2]0,1 last_tile_dims={manual, tiled}}"),
           "XLA sharding, column 41: a subgroup is replicated, manual or unreduced");
  CHECK_EQ(parse_error("{devices=[2]0,1 last_tile_dims={manual,replicated}}"),
           "XLA sharding, column 1: the last dims of devices=[...] are said to be subgroups, and there are fewer dims");
  CHECK_EQ(parse_error("{devices=[2]0,1 last_tile_dim_replicate last_tile_dims={manual}}"),
           "XLA sharding, column 56: the last dims are said twice");
  CHECK_EQ(parse_error("{devices=[1073741825]<=[1073741825]}"), "XLA sharding, column 11: the number is larger than 2^30");
  CHECK_EQ(parse_error("{devices=[99999999999999999999]0}"), "XLA sharding, column 11: the number is larger than 2^30");
  CHECK_EQ(parse_error("{devices=[1073741824,2]<=[2]}"), "XLA sharding, column 10: more than 2^30 devices");
  CHECK_EQ(parse_error("{replicated metadata={op_name=\"a}}"), "XLA sharding, column 35: the `{` after metadata= is not closed");
  CHECK_EQ(parse_error("{{replicated} {manual}}"), "XLA sharding, column 15: write `,` or `}` after a sharding of a tuple");
  CHECK_EQ(parse_error("{{replicated}, }"), "XLA sharding, column 16: a sharding of a tuple begins with `{`");
  CHECK_EQ(parse_error("{{{replicated}}}").substr(0, 24), "XLA sharding, column 3: ");
  CHECK_EQ(parse_error("{sharded}").substr(0, 24), "XLA sharding, column 2: ");
  // one changed or missing character never crashes the parser
  const std::string whole = "{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dims={replicated} metadata={a=\"b\"}}";
  for (std::size_t i = 0; i < whole.size(); ++i)
    for (const char* c : {"", "{", "}", "9", ",", "\"", "=", " "})
      refusal([&] { (void)xla_sharding::parse(whole.substr(0, i) + c + whole.substr(i + 1)).on(named({2, 2}), 2); });
}

TEST_CASE("every sharding of rank 3 and below on every mesh of up to 8 devices, against the tiles by definition") {
  int checked = 0, transposed = 0;
  for (const auto& sizes : layouts::all_meshes(8, 3)) {
    const auto mesh = named(sizes);
    const auto devices = static_cast<int>(mesh.shape.device_count());
    for (int rank = 0; rank <= 3; ++rank)
      for (const auto& s : layouts::all_shardings(mesh.shape, rank)) {
        const auto x = xla_sharding::of(mesh, s, rank);
        const auto text = x.text(), list = x.text(xla_form::list);
        const auto wanted = table_of(mesh.shape, s, rank);
        INFO(text);
        CHECK_EQ(x.tiles().devices.empty(), true);  // a mesh in order always has the iota form
        CHECK(table_of(list, rank, devices) == wanted);
        for (const auto& written : {text, list}) {
          const auto back = xla_sharding::parse(written).on(mesh, rank);
          CHECK(same_splits(mesh.shape, back.value, s));
          const auto made = xla_sharding::parse(written).with_mesh(devices);
          CHECK(made.device_order.empty());
          CHECK_LE(made.sizes.size(), sizes.size() - static_cast<std::size_t>(std::count(sizes.begin(), sizes.end(), 1)));
          const auto own = layouts::mesh_of({made.sizes.begin(), made.sizes.end()});
          CHECK(table_of(own, made.value, rank) == wanted);
        }
        ++checked;
        transposed += text.find('T') != std::string::npos;
      }
  }
  CHECK_GT(checked, 3000);
  CHECK_GT(transposed, 300);
}

TEST_CASE("manual and unreduced axes are subgroups") {
  for (const auto& sizes : layouts::all_meshes(8, 3)) {
    const auto mesh = named(sizes);
    const auto devices = static_cast<int>(mesh.shape.device_count());
    for (int rank = 0; rank <= 2; ++rank)
      for (auto s : layouts::all_shardings(mesh.shape, rank))
        for (detail::axis_mask others = 0; others < detail::axis_bit(3 * 2); ++others) {
          detail::axis_mask manual = 0;
          s.partial = 0;
          bool fits = true;
          for (int a = 0; a < 3; ++a) {
            const auto use = others >> (2 * a) & 3;
            if (use == 0) continue;
            fits = fits && use != 3 && a < mesh.shape.axis_count() && (s.split_axes() & detail::axis_bit(a)) == 0;
            (use == 1 ? manual : s.partial) |= detail::axis_bit(a);
          }
          if (!fits) continue;
          const auto x = xla_sharding::of(mesh, s, rank, manual);
          INFO(x.text());
          auto wanted = table_of(mesh.shape, s, rank);
          for (int d = 0; d < devices; ++d) {
            const auto at = mesh.shape.coordinates_of(d);
            wanted.manual[static_cast<std::size_t>(d)] = group_index(mesh.shape, manual, at);
            wanted.unreduced[static_cast<std::size_t>(d)] = group_index(mesh.shape, s.partial, at);
          }
          CHECK(table_of(x.text(xla_form::list), rank, devices) == wanted);
          const auto back = xla_sharding::parse(x.text()).on(mesh, rank);
          CHECK(same_splits(mesh.shape, back.value, s));
          CHECK_EQ(back.manual, manual & mesh.shape.wide_axes());
        }
  }
  auto s = layouts::partial(layouts::split({{0}, {}}), 2);
  CHECK_EQ(xla_sharding::of(named({2, 2}), s, 2).text(), "{devices=[2,1,2]<=[4] last_tile_dims={unreduced}}");
  s.reduced_by = monoid::max;
  CHECK_EQ(refusal([&] {
             xla_sharding::of(named({2, 2}), s, 2);
           }),
           "XLA has no sharding for a partial max over y; reduce the value first");
  CHECK_EQ(xla_sharding::of(named({2, 2, 2}), layouts::split({{1}}), 1, 1).text(),
           "{devices=[2,2,2]<=[2,2,2]T(1,0,2) last_tile_dims={manual, replicated}}");
}

TEST_CASE("every order of the devices of a mesh of 4 and of 6") {
  for (const auto& sizes : {std::vector<int>{2, 2}, std::vector<int>{4}, std::vector<int>{3, 2}, std::vector<int>{2, 1, 3}}) {
    auto mesh = named(sizes);
    const auto devices = static_cast<int>(mesh.shape.device_count());
    std::vector<std::int32_t> order(static_cast<std::size_t>(devices)), position(order.size());
    std::iota(order.begin(), order.end(), 0);
    do {
      for (std::size_t i = 0; i < order.size(); ++i) position[static_cast<std::size_t>(order[i])] = static_cast<std::int32_t>(i);
      mesh.shape.order = order.data();
      mesh.shape.position = position.data();
      for (int rank = 0; rank <= 2; ++rank)
        for (const auto& s : layouts::all_shardings(mesh.shape, rank)) {
          const auto x = xla_sharding::of(mesh, s, rank);
          INFO(x.text());
          const auto wanted = table_of(mesh.shape, s, rank);
          CHECK(table_of(x.text(xla_form::list), rank, devices) == wanted);
          CHECK(same_splits(mesh.shape, xla_sharding::parse(x.text()).on(mesh, rank).value, s));
          const auto made = xla_sharding::parse(x.text(xla_form::list)).with_mesh(devices);
          auto own = layouts::mesh_of({made.sizes.begin(), made.sizes.end()});
          std::vector<std::int32_t> inverse(made.device_order.size());
          for (std::size_t i = 0; i < inverse.size(); ++i)
            inverse[static_cast<std::size_t>(made.device_order[i])] = static_cast<std::int32_t>(i);
          if (!inverse.empty()) {
            own.order = made.device_order.data();
            own.position = inverse.data();
          }
          CHECK(table_of(own, made.value, rank) == wanted);
        }
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST_CASE("replicas may be named in any order; parts of an axis and other lists are refused") {
  const auto mesh = named({2, 4});
  CHECK(xla_sharding::parse("{devices=[2,1,4]3,1,0,2,7,4,5,6 last_tile_dim_replicate}").on(mesh, 2).value ==
        layouts::split({{0}, {}}));
  const auto on_error = [&](const char* text, int rank) {
    return refusal([&] { (void)xla_sharding::parse(text).on(mesh, rank); });
  };
  CHECK_EQ(
      on_error("{devices=[4,2]<=[8]}", 2),
      "XLA sharding `{devices=[4,2]<=[8]}`: a part of the axis `y` would split a dim; the mesh that fits has the axes [4,2]");
  CHECK_EQ(on_error("{devices=[2,4]1,0,2,3,4,5,6,7}", 2),
           "XLA sharding `{devices=[2,4]1,0,2,3,4,5,6,7}`: the device list is no product of the axes of the mesh (x,y); give a "
           "mesh with that device order");
  CHECK_EQ(on_error("{devices=[2,4]0,1,3,2,4,5,7,6}", 2),
           "XLA sharding `{devices=[2,4]0,1,3,2,4,5,7,6}`: the device list is no product of the axes of the mesh (x,y); give a "
           "mesh with that device order");
  CHECK_EQ(on_error("{devices=[2,2]<=[4]}", 2),
           "XLA sharding `{devices=[2,2]<=[4]}`: the sharding is over 4 devices and the mesh has 8");
  CHECK_EQ(
      on_error("{devices=[8]<=[8]}", 2),
      "XLA sharding `{devices=[8]<=[8]}`: the sharding names 1 dim and the tensor has 2; devices=[...] has one entry for each "
      "dim, then one for each subgroup that last_tile_dims names");
  CHECK_EQ(on_error("{maximal device=3}", 2),
           "XLA sharding `{maximal device=3}`: a value that device 3 alone holds (maximal) is no sharding over a mesh; replicate "
           "it, or split it");
  CHECK_EQ(on_error("{{replicated}}", 2),
           "XLA sharding `{{replicated}}`: a tuple of 1 shardings is not one sharding; pass one of its elements");
  CHECK_FALSE(xla_sharding::parse("{unknown}").on(mesh, 2).annotated);
  CHECK_EQ(xla_sharding::parse("{manual}").on(mesh, 2).manual, 3u);
  CHECK_EQ(xla_sharding::parse("{unreduced}").on(mesh, 2).value.partial, 3u);
  // JAX's example: the axes are 7, 2, 5, 3
  const auto made = xla_sharding::parse("{devices=[6,35]<=[7,10,3]T(2,1,0)}").with_mesh();
  CHECK(made.sizes == std::vector<std::int32_t>{7, 2, 5, 3});
  CHECK(made.value == layouts::split({{3, 1}, {2, 0}}));
  // 2 and 3 do not nest: held as a device order
  const auto odd = xla_sharding::parse("{devices=[3,2]<=[2,3]T(1,0)}").with_mesh();
  CHECK(odd.device_order.empty());
  const auto odder = xla_sharding::parse("{devices=[2,3]<=[2,3]T(1,0)}").with_mesh();
  CHECK(odder.sizes == std::vector<std::int32_t>{2, 3});
  CHECK(odder.device_order == std::vector<std::int32_t>{0, 3, 1, 4, 2, 5});
  // the iota form of a million devices is read without listing them
  CHECK(xla_sharding::parse("{devices=[1024,1,1048576]<=[1024,1048576]T(0,1) last_tile_dim_replicate}").with_mesh().sizes ==
        std::vector<std::int32_t>{1024, 1048576});
}

static_assert(xla_split<"{devices=[4,2]<=[2,4]T(1,0)}">::resolve(
                  [] {
                    mesh_info m;
                    m.add_axis("x", 2);
                    m.add_axis("y", 4);
                    return m;
                  }(),
                  2)
                  .value.layout.splits[0]
                  .axis == 1);

TEST_CASE("a program at run time takes the text for the entries of the dims") {
  const dynamic::mesh m({{"x", 2}, {"y", 4}});
  dynamic::builder b(m);
  const auto x = b.input(dynamic::input<float>({8, 16}, {"{devices=[4,2]<=[2,4]T(1,0)}"}));
  CHECK(b.graph().nodes[static_cast<std::size_t>(x.id())].annotation.layout == layouts::split({{1}, {0}}));
  b.input(dynamic::input<float>({8, 16}, {"{devices=[2,2]<=[8]}"}));
  CHECK_EQ(refusal([&] {
             (void)b.compile();
           }).find("XLA sharding, column 15: devices=[2,2] has 4 parts and 8 devices are named") != std::string::npos,
           true);
}
