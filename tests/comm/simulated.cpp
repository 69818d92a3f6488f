// SPDX-License-Identifier: Apache-2.0
// labels: exhaustive
// group: transports
#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "gspmd/comm/simulated.hpp"
#include "support/collective_oracle.hpp"

using namespace oracle;

static_assert(gspmd::communicator<gspmd::simulated_communicator>);

TEST_CASE("simulated: all pairs of shardings of one dim, every mesh up to 8 devices, extents 0 to 9") {
  for (auto mesh :
       {mesh_of({}), mesh_of({1}), mesh_of({2}), mesh_of({3}), mesh_of({5}), mesh_of({8}), mesh_of({1, 2}), mesh_of({2, 2}),
        mesh_of({2, 3}), mesh_of({3, 2}), mesh_of({2, 4}), mesh_of({4, 2}), mesh_of({2, 2, 2}), mesh_of({2, 1, 3})}) {
    gspmd::simulated_communicator comm(static_cast<int>(mesh.device_count()));
    for (std::int64_t n : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
      CAPTURE(mesh.device_count());
      CAPTURE(n);
      CHECK(wrong_in_all_pairs<std::int32_t>(comm, mesh, shape_of({n})) == 0);
    }
  }
}

TEST_CASE("simulated: all pairs of shardings of two dims") {
  for (auto mesh : {mesh_of({2}), mesh_of({7}), mesh_of({2, 2}), mesh_of({3, 2}), mesh_of({4, 2}), mesh_of({2, 2, 2})}) {
    gspmd::simulated_communicator comm(static_cast<int>(mesh.device_count()));
    const int stride = mesh.axis_count() == 3 ? 3 : 1;
    for (std::int64_t rows = 1; rows <= 7; ++rows)
      for (std::int64_t columns = 1; columns <= 7; ++columns) {
        CAPTURE(mesh.device_count());
        CAPTURE(rows);
        CAPTURE(columns);
        const int first = static_cast<int>(rows * 7 + columns);
        CHECK(wrong_in_all_pairs<float>(comm, mesh, shape_of({rows, columns}), stride, first) == 0);
      }
  }
}

TEST_CASE("simulated: rank 0, rank 3 with a dim of extent 1") {
  const auto mesh = mesh_of({2, 3});
  gspmd::simulated_communicator comm(6);
  CHECK(wrong_in_all_pairs<double>(comm, mesh, shape_of({})) == 0);
  CHECK(wrong_in_all_pairs<double>(comm, mesh, shape_of({4, 1, 5})) == 0);
  CHECK(wrong_in_all_pairs<double>(comm, mesh, shape_of({6, 3, 0})) == 0);
}

TEST_CASE("simulated: every element type and monoid") {
  for (auto mesh : {mesh_of({2}), mesh_of({3}), mesh_of({2, 4})}) {
    gspmd::simulated_communicator comm(static_cast<int>(mesh.device_count()));
    CHECK(wrong_in_all_monoids<float>(comm, mesh) == 0);
    CHECK(wrong_in_all_monoids<double>(comm, mesh) == 0);
    CHECK(wrong_in_all_monoids<std::int32_t>(comm, mesh) == 0);
    CHECK(wrong_in_all_monoids<std::int64_t>(comm, mesh) == 0);
    CHECK(wrong_in_all_monoids<bool>(comm, mesh) == 0);
  }
}

TEST_CASE("simulated: a permuted device order") {
  const std::int32_t order[] = {3, 0, 5, 2, 4, 1};
  std::int32_t position[6];
  for (int p = 0; p < 6; ++p) position[order[p]] = p;
  auto mesh = mesh_of({3, 2});
  mesh.order = order;
  mesh.position = position;
  gspmd::simulated_communicator comm(6);
  CHECK(wrong_in_all_pairs<float>(comm, mesh, shape_of({5, 4})) == 0);
}

TEST_CASE("simulated: 1024 devices") {
  const auto mesh = mesh_of({16, 64});
  gspmd::simulated_communicator comm(1024);
  const auto shape = shape_of({70, 129});
  const auto rows = split({{0, 0}, {1, 0}});
  const auto columns = split({{1, 1}, {0, 1}});
  CHECK(wrong_after_move<float>(comm, mesh, movement_between(mesh, shape, rows, columns)) == 0);
  CHECK(wrong_after_move<float>(comm, mesh, movement_between(mesh, shape, columns, {})) == 0);
  const auto small = shape_of({5, 7});  // fewer elements than devices
  CHECK(wrong_after_reduce<double>(comm, mesh, reduction_between(small, {}, rows, 3, gspmd::monoid::add), false) == 0);
  CHECK(wrong_after_reduce<double>(comm, mesh, reduction_between(small, {}, {}, 3, gspmd::monoid::add), true) == 0);
}

TEST_CASE("simulated: large enough to be written around the caches, at an odd address") {
  const auto mesh = mesh_of({2});
  gspmd::simulated_communicator comm(2);
  const auto shape = shape_of({2001, 3001});
  const auto rows = split({{0, 0}}), columns = split({{0, 1}});
  CHECK(wrong_after_move<float>(comm, mesh, movement_between(mesh, shape, rows, columns)) == 0);
  CHECK(wrong_after_move<float>(comm, mesh, movement_between(mesh, shape, columns, {})) == 0);
  CHECK(wrong_after_reduce<float>(comm, mesh, reduction_between(shape, {}, columns, 1, gspmd::monoid::add), false) == 0);
}

TEST_CASE("the largest and the smallest of numbers with a NaN is a NaN, on whatever side it stands") {
  const auto mesh = mesh_of({2});
  gspmd::simulated_communicator comm(2);
  for (auto kind : {gspmd::monoid::max, gspmd::monoid::min})
    for (int with_nan : {0, 1}) {
      float values[2][100];
      for (auto& row : values)
        for (auto& value : row) value = 1.0F;
      for (auto& value : values[with_nan]) value = std::numeric_limits<float>::quiet_NaN();
      const float* in[] = {values[0], values[1]};
      float* out[] = {values[0], values[1]};
      comm.reduce(mesh, reduction_between(shape_of({100}), {}, {}, 1, kind), in, out);
      int numbers = 0;
      for (const auto& row : values)
        for (float value : row) numbers += value == value;
      CHECK(numbers == 0);
    }
}

TEST_CASE("serial and simulated: launch") {
  int calls = 0;
  gspmd::launch(gspmd::serial{}, 1, [&](gspmd::communicator auto& comm) { calls += comm.device_count(); });
  gspmd::launch(gspmd::simulated{}, 6, [&](gspmd::communicator auto& comm) { calls += comm.local_count(); });
  CHECK(calls == 7);
  CHECK_THROWS_WITH_AS(gspmd::launch(gspmd::serial{}, 8, [](auto&) {}),
                       "gspmd: the mesh has 8 devices but the communicator has 1 rank; start one rank for each device of the "
                       "mesh, or give the mesh 1 device",
                       gspmd::error);
}

TEST_CASE("error: the text says operator, place and rank where they are known") {
  const gspmd::error bare("it broke");
  CHECK(std::string(bare.what()) == "gspmd: it broke");
  CHECK(std::string(bare.with_rank(3).what()) == "gspmd: on rank 3: it broke");
  CHECK(std::string(bare.with_op("einsum", "a.cpp", 7).with_rank(3).what()) == "gspmd: einsum at a.cpp:7 on rank 3: it broke");
  CHECK(bare.with_op("einsum").text() == "it broke");
  CHECK(bare.rank() == -1);
}

// Names and costs of collectives, by the usual algorithms.
namespace {

constexpr mesh_shape constant_mesh(int x, int y) {
  mesh_shape mesh;
  mesh.sizes.push_back(x);
  mesh.sizes.push_back(y);
  return mesh;
}
constexpr extents constant_shape(std::int64_t a, std::int64_t b) {
  extents shape;
  shape.push_back(a);
  shape.push_back(b);
  return shape;
}
constexpr sharding none() { return {}; }
constexpr sharding on(int axis, int dim) {
  sharding s;
  s.add_split(axis, dim);
  return s;
}
constexpr sharding on(int axis, int dim, int axis2, int dim2) {
  auto s = on(axis, dim);
  s.add_split(axis2, dim2);
  return s;
}
constexpr auto mesh = constant_mesh(2, 4);
constexpr movement moving(sharding from, sharding to, extents shape = constant_shape(16, 32)) {
  return {shape, from, to, movement_axes(mesh, shape, from, to)};
}
constexpr bool is(const movement& m, axis_mask axes, collective_kind kind, std::int64_t elems) {
  return m.axes == axes && classify(mesh, m) == kind && bytes_sent(mesh, m, 4) == 4 * elems;
}
static_assert(is(moving(on(1, 0), none()), 2, collective_kind::all_gather, 3 * 4 * 32));
static_assert(is(moving(on(0, 0, 1, 0), on(0, 0)), 2, collective_kind::all_gather, 3 * 2 * 32));
static_assert(is(moving(on(1, 0), on(0, 1)), 2, collective_kind::all_gather, 3 * 4 * 16));
static_assert(is(moving(on(1, 0), on(1, 1)), 2, collective_kind::all_to_all, 3 * 4 * 8));
static_assert(is(moving(on(0, 0, 1, 0), on(1, 0, 0, 0)), 3, collective_kind::collective_permute, 2 * 32));
static_assert(moving(none(), on(0, 1)).axes == 0);
static_assert(bytes_sent(mesh, moving(none(), on(0, 1)), 4) == 0);
// 9 over 2 is 5,4 and 9 over 2x4 is 2,2,2,2,1: the second half begins at 8, so the first axis is needed as well
static_assert(moving(on(0, 0, 1, 0), on(0, 0), constant_shape(9, 1)).axes == 3);
static_assert(moving(on(0, 0), on(0, 0, 1, 0), constant_shape(9, 1)).axes == 1);
static_assert(!lies_inside(mesh, constant_shape(9, 1), on(0, 0), on(0, 0, 1, 0)));
static_assert(bytes_sent(mesh, reduction{constant_shape(16, 32), {}, {}, 2, gspmd::monoid::add}, 4) == 2 * 3 * 512 * 4 / 4);
static_assert(bytes_sent(mesh, reduction{constant_shape(16, 32), {}, on(1, 0), 2, gspmd::monoid::add}, 4) == 3 * 512 * 4 / 4);
static_assert(classify(mesh, reduction{constant_shape(16, 32), {}, on(1, 0), 2, gspmd::monoid::add}) ==
              collective_kind::reduce_scatter);

}  // namespace
