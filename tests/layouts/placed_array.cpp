// SPDX-License-Identifier: Apache-2.0
// labels: threads
// group: map
#include "gspmd/layouts/placed_array.hpp"

#include <doctest/doctest.h>

#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "gspmd/index.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/run/compile.hpp"
#include "gspmd/run/run.hpp"
#include "gspmd/windows.hpp"
#include "support/error_of.hpp"
#include "support/layouts.hpp"

using namespace gspmd;

static_assert(obeys_placement_law<contiguous>());
static_assert(obeys_placement_law<strided<1>>() && obeys_placement_law<strided<2>>() && obeys_placement_law<strided<7>>());
static_assert(obeys_placement_law<block_cyclic<1>>() && obeys_placement_law<block_cyclic<3>>());
static_assert(obeys_placement_law<ragged<4, 0, 3, 1>>() && obeys_placement_law<ragged<100, 7>>());
static_assert(obeys_placement_law<chained<strided<2>, 2, contiguous>>());
static_assert(obeys_placement_law<chained<block_cyclic<2>, 3, strided<2>>>());
static_assert(obeys_placement_law(ragged_list{{0, 3, 1}, 4}, 14, 3));

namespace {

using caught::refusal;

// the ways to get a placement wrong
struct backwards : contiguous {  // unsplit is not the inverse of split
  static constexpr std::int64_t split(std::int64_t extent, std::int64_t parts, std::int64_t part, std::int64_t i) {
    return contiguous::split(extent, parts, part, local_extent(extent, parts, part) - 1 - i);
  }
};
struct forgetful : contiguous {  // no device has the last element
  static constexpr std::int64_t local_extent(std::int64_t extent, std::int64_t parts, std::int64_t part) {
    return contiguous::local_extent(extent, parts, part) -
           (part == parts - 1 && contiguous::local_extent(extent, parts, part) > 0);
  }
};
struct doubled : contiguous {  // everybody holds everything
  static constexpr std::int64_t local_extent(std::int64_t extent, std::int64_t, std::int64_t) { return extent; }
  static constexpr std::int64_t split(std::int64_t, std::int64_t, std::int64_t, std::int64_t i) { return i; }
};
struct nowhere : contiguous {
  static constexpr bool fits(std::int64_t, std::int64_t) { return false; }
};
static_assert(placement<backwards> && !obeys_placement_law<backwards>());
static_assert(!obeys_placement_law<forgetful>() && !obeys_placement_law<doubled>() && !obeys_placement_law<nowhere>());
static_assert(!placement<int>);

struct wrong_at_run_time : contiguous {  // right where it is tried when compiling, wrong for the numbers of a run
  std::int64_t limit = 20;
  [[nodiscard]] std::int64_t split(std::int64_t extent, std::int64_t parts, std::int64_t part, std::int64_t i) const {
    return extent < limit ? contiguous::split(extent, parts, part, i) : 0;
  }
};

std::vector<std::vector<std::int64_t>> indices_of(const auto& p, std::int64_t extent, std::int64_t parts) {
  std::vector<std::vector<std::int64_t>> result(static_cast<std::size_t>(parts));
  for (std::int64_t part = 0; part < parts; ++part)
    for (std::int64_t i = 0; i < p.local_extent(extent, parts, part); ++i)
      result[static_cast<std::size_t>(part)].push_back(p.split(extent, parts, part, i));
  return result;
}
using parts_list = std::vector<std::vector<std::int64_t>>;

array<std::int32_t> counted(const detail::extents& shape) {
  array<std::int32_t> x(shape);
  std::iota(x.begin(), x.end(), 1);
  return x;
}

/// The global index of every element a device holds, by the layout's own words, in the order of its shard.
std::vector<std::pair<std::int64_t, std::int64_t>> elements_of(const auto& layout, int device) {
  std::vector<std::pair<std::int64_t, std::int64_t>> list{{0, 0}};  // global, local
  const auto local = layout.local_shape();
  for (int d = 0; d < layout.shape().count; ++d) {
    std::vector<std::pair<std::int64_t, std::int64_t>> next;
    const auto held = layout.held(device, along(d));
    for (const auto& [g, l] : list)
      for (std::size_t i = 0; i < held.size(); ++i)
        next.emplace_back(g * layout.shape()[d] + held[i], l * local[d] + static_cast<std::int64_t>(i));
    list = next;
  }
  return list;
}

template <class From, class To>
void check_pair(int devices, const From& from, const To& to) {
  const auto whole = counted(from.shape());
  simulated_communicator comm(devices);
  const auto x = distribute(comm, from, whole);
  const auto y = redistribute(comm, x, to);
  std::int64_t missing = 0, sent = 0;
  for (int device = 0; device < devices; ++device) {
    std::set<std::int64_t> has;
    for (const auto& [g, l] : elements_of(from, device)) {
      CHECK_EQ(x.shard(device)[static_cast<std::size_t>(l)], whole[g]);
      has.insert(g);
    }
    for (const auto& [g, l] : elements_of(to, device)) {
      CHECK_EQ(y.shard(device)[static_cast<std::size_t>(l)], whole[g]);
      missing += has.count(g) == 0;
    }
    sent += bytes_sent_to_redistribute(from, to, device, 4);
  }
  CHECK_EQ(sent, 4 * missing);
  const auto back = collect(comm, x);
  CHECK(std::equal(back.begin(), back.end(), whole.begin()));
}

}  // namespace

TEST_CASE("who holds what") {
  CHECK(indices_of(contiguous{}, 9, 4) == parts_list{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {}});
  CHECK(indices_of(strided<2>{}, 8, 2) == parts_list{{0, 1, 4, 5}, {2, 3, 6, 7}});
  CHECK(indices_of(strided<2>{}, 7, 2) == parts_list{{0, 1, 4, 5}, {2, 3, 6}});
  CHECK(indices_of(strided<3>{}, 4, 2) == parts_list{{0, 2}, {1, 3}});
  CHECK(indices_of(block_cyclic<2>{}, 9, 2) == parts_list{{0, 1, 4, 5, 8}, {2, 3, 6, 7}});
  CHECK(indices_of(block_cyclic<1>{}, 5, 3) == parts_list{{0, 3}, {1, 4}, {2}});
  CHECK(indices_of(ragged<4, 0, 3, 1>{}, 14, 3) == parts_list{{}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {12, 13}});
  CHECK(indices_of(ragged_list{{1, 0, 2}, 2}, 6, 3) == parts_list{{0, 1}, {}, {2, 3, 4, 5}});
}

TEST_CASE("strided first, contiguous second is JAX's order of axes") {
  // a mesh (fsdp, tp) and split<"tp,fsdp">: tp cuts first. If the axes cut from left to right, fsdp distributes
  // strided<tp>, then tp distributes contiguously.
  const auto mesh = layouts::mesh_of({3, 2});
  const auto jax = layouts::split({{1, 0}});
  const std::int64_t extent = 24;
  const auto chain = indices_of(chained<strided<2>, 3, contiguous>{}, extent, 6);
  for (std::int64_t device = 0; device < 6; ++device) {
    const auto held = dim_range(mesh, layouts::shape_of({extent}), jax, 0, mesh.coordinates_of(device));
    std::vector<std::int64_t> wanted(static_cast<std::size_t>(held.size()));
    std::iota(wanted.begin(), wanted.end(), held.begin);
    CHECK(chain[static_cast<std::size_t>(device)] == wanted);
  }
  // undoing the contiguous one over fsdp leaves the tp shard: a gather over the group of fsdp joins to one piece
  CHECK(indices_of(strided<2>{}, 12, 3)[1] == std::vector<std::int64_t>{2, 3, 8, 9});
}

TEST_CASE("[B,S] with S split, flattened, is strided<B>: nothing moves") {
  const auto mesh = layouts::mesh_of({2});
  const placed_layout two_dims(mesh, layouts::shape_of({3, 8}), layouts::split({{}, {0}}), contiguous{}, contiguous{});
  const placed_layout one_dim(mesh, layouts::shape_of({24}), layouts::split({{0}}), strided<3>{});
  const placed_layout plain(mesh, layouts::shape_of({24}), layouts::split({{0}}));
  simulated_communicator comm(2);
  const auto a = distribute(comm, two_dims, counted(layouts::shape_of({3, 8})));
  const auto b = distribute(comm, one_dim, counted(layouts::shape_of({24})));
  for (int d = 0; d < 2; ++d) CHECK(std::equal(a.shard(d).begin(), a.shard(d).end(), b.shard(d).begin(), b.shard(d).end()));
  CHECK_EQ(bytes_sent_to_redistribute(one_dim, one_dim, 0, 4), 0);
  CHECK_EQ(bytes_sent_to_redistribute(one_dim, plain, 0, 4), 4 * 4);  // 8 to 11 is device 1's in piece 2 of 3, and so on
}

TEST_CASE("a whole parameter on one device, and blocks that are never cut") {
  const auto mesh = layouts::mesh_of({4});
  const placed_layout one(mesh, layouts::shape_of({30}), layouts::split({{0}}), ragged<32, 0, 1, 0, 0>{});
  const placed_layout even(mesh, layouts::shape_of({30}), layouts::split({{0}}));
  CHECK_EQ(one.held(1, along(0)).size(), 30u);
  CHECK_EQ(one.local_shape()[0], 30);
  CHECK_EQ(bytes_sent_to_redistribute(one, even, 1, 8), (8 + 8 + 6) * 8);  // and not one byte from the others
  CHECK_EQ(bytes_sent_to_redistribute(one, even, 0, 8), 0);
  check_pair(4, one, even);
  const placed_layout blocks(mesh, layouts::shape_of({30}), layouts::split({{0}}), ragged_list{{2, 0, 3, 1}, 5});
  for (int d = 0; d < 4; ++d) CHECK((blocks.held(d, along(0)).size() % 5) == 0u);
  check_pair(4, blocks, one);
  check_pair(4, even, blocks);
}

TEST_CASE("scatter, redistribute and gather between every two layouts") {
  for (const auto& sizes : {std::vector<int>{2}, std::vector<int>{3}, std::vector<int>{2, 2}, std::vector<int>{2, 1, 3}}) {
    const auto mesh = layouts::mesh_of(sizes);
    const auto devices = static_cast<int>(mesh.device_count());
    for (const auto& shape : {std::vector<std::int64_t>{7}, std::vector<std::int64_t>{4, 3}, std::vector<std::int64_t>{5, 0}}) {
      const auto global = layouts::shape_of(shape);
      const auto all = layouts::all_shardings(mesh, global.count);
      const auto each = [&](const auto& visit) {
        for (const auto& s : all) {
          visit(placed_layout(mesh, global, s));
          visit(placed_layout(mesh, global, s, block_cyclic<2>{}));
          visit(placed_layout(mesh, global, s, strided<2>{}));
          if (global.count > 1) visit(placed_layout(mesh, global, s, strided<3>{}, block_cyclic<1>{}));
        }
      };
      if (devices > 3 && shape.size() > 1) {  // all shardings with one partner
        const placed_layout partner(mesh, global, all.back(), block_cyclic<1>{}, strided<2>{});
        each([&](const auto& layout) { check_pair(devices, layout, partner); });
        each([&](const auto& layout) { check_pair(devices, partner, layout); });
      } else {
        each([&](const auto& from) { each([&](const auto& to) { check_pair(devices, from, to); }); });
      }
    }
  }
}

TEST_CASE("rank 0, other meshes over the same devices, a device order") {
  auto ring = layouts::mesh_of({2, 2});
  const std::int32_t order[] = {0, 1, 3, 2}, position[] = {0, 1, 3, 2};
  ring.order = order;
  ring.position = position;
  const auto line = layouts::mesh_of({4});
  check_pair(4, placed_layout(line, {}, {}), placed_layout(ring, {}, {}));
  for (const auto& s : layouts::all_shardings(ring, 1)) {
    const auto shape = layouts::shape_of({10});
    check_pair(4, placed_layout(ring, shape, s, block_cyclic<3>{}), placed_layout(line, shape, layouts::split({{0}})));
    check_pair(4, placed_layout(line, shape, layouts::split({{0}}), strided<2>{}), placed_layout(ring, shape, s));
  }
}

TEST_CASE("on threads") {
  const auto mesh = layouts::mesh_of({2, 2});
  const auto whole = counted(layouts::shape_of({9, 6}));
  launch(threads{}, 4, [&](auto& comm) {
    const placed_layout a(mesh, whole.shape(), layouts::split({{0}, {1}}), block_cyclic<2>{}, strided<3>{});
    const placed_layout b(mesh, whole.shape(), layouts::split({{1, 0}, {}}), strided<2>{});
    auto x = distribute(comm, a, whole);
    for (int k = 0; k < 3; ++k) x = redistribute(comm, redistribute(comm, x, b), a);
    const auto back = collect(comm, x);
    if (!std::equal(back.begin(), back.end(), whole.begin())) throw error("another array came back");
  });
}

TEST_CASE("what is refused at run time") {
  const auto mesh = layouts::mesh_of({3});
  const auto rows = layouts::split({{0}});
  const auto shape = layouts::shape_of({30});
  CHECK_EQ(refusal([&] {
             placed_layout(mesh, shape, rows, ragged_list{{1, 1}, 10});
           }),
           "placement: dim 0: ragged_list of 30 elements in 3 parts is not defined; give numbers that add up");
  CHECK_EQ(refusal([&] { placed_layout(mesh, shape, rows, ragged<10, 1, 1, 0>{}); }),
           "placement: dim 0: ragged<10,1,1,0> of 30 elements in 3 parts is not defined; give numbers that add up");
  CHECK_EQ(
      refusal([&] { placed_layout(mesh, shape, rows, wrong_at_run_time{}); }),
      "placement: dim 0: contiguous of 30 elements in 3 parts: split and unsplit are not inverse, or an element is held by no "
      "part or by two");
  CHECK_EQ(refusal([&] { placed_layout(mesh, shape, rows, contiguous{}, contiguous{}); }),
           "placement: 2 placements for a tensor with 1 dims");
  CHECK_EQ(refusal([&] { placed_layout(mesh, shape, layouts::partial(rows, 1)); }),
           "placement: the value is partial; reduce it before it is placed otherwise");
  simulated_communicator two(2), three(3);
  const placed_layout layout(mesh, shape, rows);
  CHECK(refusal([&] { distribute(two, layout, counted(shape)); }).find("the mesh has 3 devices") == 0);
  CHECK(refusal([&] { distribute(three, layout, counted(layouts::shape_of({29}))); }).find("distribute: the layout is [30]") ==
        0);
  const auto x = distribute(three, layout, counted(shape));
  CHECK(refusal([&] { redistribute(three, x, placed_layout(mesh, layouts::shape_of({31}), rows)); }).find("redistribute: ") == 0);
}

namespace {
using pod = mesh<axis<"data", 2>>;
constexpr auto product = [](auto x, auto w) { return einsum<"db,df->bf">(x, w); };
using step = compile<product, pod, input<float, shape<10, 3>, split<"data", _>>, input<float, shape<10, 4>, split<"data", _>>>;
}  // namespace

TEST_CASE("a strided operand of a contraction, brought to the step's sharding") {
  array<float> x({10, 3}), w({10, 4});
  for (std::int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7);
  for (std::int64_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 5) - 2;
  launch(threads{}, 2, [&](auto& comm) {
    const placed_layout strided_rows(pod::info.shape, x.shape(), layouts::split({{0}, {}}), strided<2>{});
    auto strided_x = distribute(comm, strided_rows, x);
    auto xs = to_step<step, 0>(comm, strided_x);
    auto ws = distribute<step, 1>(comm, w);
    auto ys = make_result<step, 0>(comm);
    step s;
    s(comm, xs, ws, ys);
    const placed_layout columns(pod::info.shape, ys.shape(), layouts::split({{}, {0}}), contiguous{}, block_cyclic<1>{});
    const auto y = collect(comm, from_step(comm, ys, columns));
    for (std::int64_t b = 0; b < 3; ++b)
      for (std::int64_t f = 0; f < 4; ++f) {
        float sum = 0;
        for (std::int64_t d = 0; d < 10; ++d) sum += x[d * 3 + b] * w[d * 4 + f];
        if (y[b * 4 + f] != sum) throw error("a wrong product");
      }
  });
}
