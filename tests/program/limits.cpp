// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// labels: planner
// The limits of the library, and the error for more.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include <gspmd/gspmd.hpp>

#include "gspmd/dynamic.hpp"
#include "gspmd/layouts/placed_array.hpp"
#include "gspmd/layouts/placements.hpp"
#include "gspmd/report/network.hpp"
#include "support/error_of.hpp"

using namespace gspmd;

namespace {

using caught::contains;
using caught::error_of;
using caught::refusal;

constexpr std::int64_t one = 1;
const dynamic::mesh two({{"x", 2}});

template <class Callable, class... Inputs>
std::string refused(Callable f, const Inputs&... inputs) {
  return refusal([&] { static_cast<void>(dynamic::compile(f, two, inputs...)); });
}

}  // namespace

TEST_CASE("a list that is full takes no more") {
  detail::inline_vec<int, 2> list{20, 14};
  CHECK(list == detail::inline_vec<int, 2>{20, 14});
  CHECK(list.size() == 2);
  CHECK(detail::inline_vec<int, 3>(3, 14) == detail::inline_vec<int, 3>{14, 14, 14});
  CHECK(contains(refusal([&] { list.push_back(1); }), "has room for 2 elements"));
  CHECK(contains(refusal([&] { list.insert(0, 1); }), "has room for 2 elements"));
  CHECK(list == detail::inline_vec<int, 2>{20, 14});
  CHECK(contains(refusal([] { static_cast<void>(detail::inline_vec<int, 2>{1, 2, 3}); }), "has room for 2 elements"));
}

TEST_CASE("a shape in braces is its extents") {
  detail::mesh_shape mesh;
  mesh.sizes.push_back(2);
  const placed_layout rows(mesh, {20, 14}, {}, block_cyclic<2>{});
  CHECK(rows.shape().size() == 2);
  CHECK(rows.local_shape() == detail::extents{20, 14});
  CHECK(contains(refusal([&] { placed_layout(mesh, {20, -14}, {}); }), "an extent of [20,-14] is negative"));
  CHECK(contains(refusal([&] { placed_layout(mesh, {one << 40, one << 40}, {}); }), "more than 2^60 bytes"));
}

TEST_CASE("more than 32 dims are refused where they are written") {
  const auto says = [](auto f) { return refused(f, dynamic::input<std::int32_t>({1})); };
  const std::string text = "33 dims; a tensor has at most 32";
  static constexpr auto long_shape = std::initializer_list<std::int64_t>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                                                         1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  static constexpr auto long_dims = std::initializer_list<std::int64_t>{
      0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32};
  CHECK(contains(says([&](value x) { return reshape(x, long_shape); }), text));
  CHECK(contains(says([&](value x) { return broadcast_in_dim(x, long_shape, {0}); }), text));
  CHECK(contains(says([&](value x) { return broadcast_in_dim(x, {1}, long_dims); }), text));
  CHECK(contains(says([&](value x) { return transpose(x, long_dims); }), text));
  CHECK(contains(says([&](value x) { return x + constant<std::int32_t>(x, long_shape, 1); }), text));
  CHECK(contains(says([&](value x) { return x + iota<std::int32_t>(x, long_shape, 0); }), text));
  const auto wide = dynamic::input<std::int32_t>(std::vector<std::int64_t>(32, 1));
  CHECK(contains(refused([](value x) { return one_hot<float>(x, 4); }, wide), text));
  const auto stack = [](value x) {
    return std::get<1>(scan([&](value c, value) { return std::tuple{c, x}; }, x, reshape(x, {1})));
  };
  CHECK(contains(refused(stack, wide), "stacks rows of 32 dims"));
}

TEST_CASE("a mesh with several views has at most 16 parts of axes") {
  std::vector<dynamic::mesh::axis> axes;
  for (char name = 'a'; name < 'a' + 16; ++name) axes.push_back({std::string(1, name), 1});
  CHECK(refusal([&] { static_cast<void>(dynamic::views({dynamic::mesh(axes), dynamic::mesh({{"a", 1}})})); }) == "accepted");
  CHECK(contains(refusal([&] {
                   static_cast<void>(dynamic::views({dynamic::mesh(axes), dynamic::mesh({{"z", 1}})}));
                 }),
                 "at most 16 parts of axes"));
}

TEST_CASE("a complex tensor has at most 31 dims") {
  const auto itself = [](value z) { return z * 2.0; };
  CHECK(refused(itself, dynamic::input<c64>(std::vector<std::int64_t>(31, 1))) == "accepted");
  CHECK(contains(refused(itself, dynamic::input<c64>(std::vector<std::int64_t>(32, 1))), "a complex tensor has at most 31 dims"));
}

TEST_CASE("a differentiated loop stores its carried value in every iteration, a loop by itself does not") {
  const auto arena_of = [](std::int64_t iterations, bool is_differentiated) {
    const auto f = [&](value x) {
      const value y = sum(fori_loop(
          iterations, [](value, value h) { return tanh(h) * h; }, x));
      return is_differentiated ? grad(y, x) : y;
    };
    return dynamic::compile(f, two, dynamic::input<float>({2048}, {"x"})).view().arena_bytes;
  };
  CHECK(arena_of(40, true) - arena_of(20, true) >= 20 * 4096);
  CHECK(arena_of(40, false) == arena_of(20, false));
}

TEST_CASE("a reshape of 32 dims to 32 that do not line up") {
  // [6,2,2,...,5] -> [10,2,2,...,3]: the first dims share a factor and leave a rest on both sides, one factor more than
  // there are dims
  const auto rule_of = [](int twos) {
    std::vector<std::int64_t> from(static_cast<std::size_t>(twos), 2), to = from;
    from.insert(from.begin(), 6), from.push_back(5);
    to.insert(to.begin(), 10), to.push_back(3);
    detail::graph g;
    const int x = detail::add_parameter(g, dtype::f32, detail::extents_of(from), {});
    const int y = detail::add_reshape(g, x, detail::extents_of(to), {});
    detail::op_rule rule;
    detail::reshape_op::rule(g, g.nodes[y], rule);
    for (const int n : {x, y}) {
      const auto& map = rule.maps[n];
      for (int d = 0; d < twos + 2; ++d) {
        std::int64_t extent = 1;
        for (int f = map.begin(d); f < map.end(d); ++f) extent *= rule.factors[map.factors[f]].size;
        CHECK(extent == g.nodes[n].shape[d]);
      }
    }
    return rule;
  };
  const auto shared = rule_of(29), full = rule_of(30);
  CHECK(shared.factors.size() == 63);
  CHECK(shared.factors[0].size == 2);
  CHECK(full.factors.size() == 64);
  CHECK(full.factors[0].kind == detail::factor_kind::whole);
}

TEST_CASE("names of axes that are longer than an entry of split") {
  const std::string a(26, 'a'), b(25, 'b'), c(24, 'c');
  const dynamic::mesh m({{a, 2}, {b, 2}, {c, 2}});
  const auto p = dynamic::compile([](auto x) { return sum(x); }, m, dynamic::input<float>({8, 8, 8}, {a, b, c}));
  REQUIRE(p.collectives().size() == 1);
  CHECK(p.collectives()[0].axes.view() == a + ',' + b + ',' + c);
  const auto all = a + ',' + b + ',' + c;
  CHECK(p.collectives()[0] == collective{collective_kind::all_reduce, std::string_view(all)});
  CHECK(contains(refusal([&] { static_cast<void>(dim_spec(std::string_view(all))); }), "at most 63 characters for a dim"));
  const auto tiled_input = dynamic::compile([](auto x) { return x; }, m, dynamic::input<float>({8}, {all}));
  CHECK(tiled_input.output(0).sharding()[0] == all);  // texts of the run may be as long as they are
  const std::string long_name(513, 'a');
  CHECK(
      contains(refusal([&] { static_cast<void>(axis_names(std::string_view(long_name))); }), "no axes whose names are so long"));
  // all axes on one dim: placements have no such limit
  const auto tiled = dynamic::compile([](auto x) { return reshape(x, {8}); }, m, dynamic::input<float>({2, 2, 2}, {a, b, c}));
  CHECK(tiled.output(0).sharding() == std::vector<std::string>{all});
}

TEST_CASE("lists that a user gives are not cut") {
  const std::vector<per_axis::placement> list(20, per_axis::shard(1));
  CHECK(text_of(list).size() == 20 * std::string("Shard(1), ").size());
  const axis_link link{"x", topology::torus, 1e9, 1e-6};
  CHECK(contains(refusal([&] {
                   static_cast<void>(network(1e9, {link, link, link, link, link, link, link, link, link, link, link, link, link,
                                                   link, link, link, link}));
                 }),
                 "at most 16 axes"));
}

TEST_CASE("a tensor whose bytes cannot be counted is refused where it is made") {
  const std::string text = "has more than 2^60 bytes";
  const auto of_bytes = [&](auto f, std::vector<std::int64_t> shape) {
    return refused(f, dynamic::input<bool>(std::move(shape)));
  };
  const auto spread = [](value x) { return shift(broadcast_in_dim(x, {one << 32, (one << 32) + 1, 2}, {2}), 1, along(0)); };
  CHECK(contains(of_bytes(spread, {2}), "[4294967296,4294967297,2] has more than 2^60 bytes"));
  const auto outer = [](auto x, auto y) { return sum(einsum<"a,b->ab">(x, y)); };
  const auto line = dynamic::input<float>({one << 32});
  CHECK(contains(refused(outer, line, line), "[4294967296,4294967296] has more than 2^60 bytes"));
  CHECK(contains(of_bytes([](value x) { return cast<double>(x); }, {one << 60}), text));
  CHECK(contains(of_bytes([](value x) { return cast<float>(constant<bool>(x, {one << 61}, true)); }, {1}), text));
  CHECK(contains(of_bytes([](value x) { return iota<std::int64_t>(x, {one << 58}, 0); }, {1}), text));
  CHECK(contains(of_bytes([](value x) { return reshape(x, {0, one << 40, one << 40}); }, {0}), "an extent of 0 counted as 1"));
  CHECK(contains(of_bytes(
                     [](value x) {
                       return reshape(x, {-2, -4});
                     },
                     {8}),
                 "no extent can replace the negative extent in [-2,-4]"));
  CHECK(contains(of_bytes([](value x) { return x; }, {one << 31, one << 31}), text));
  CHECK(contains(of_bytes([](value x) { return iota<std::int32_t>(x, {(one << 31) + 1}, 0); }, {1}), "use s64"));
  CHECK(refused([](value x) { return iota<std::int32_t>(x, {one << 31}, 0); }, dynamic::input<bool>({1})) == "accepted");
  CHECK(contains(error_of([] { array<float>({-1}); }), "an extent of [-1] is negative"));
  CHECK(contains(error_of([] { array<float>({one << 40, one << 40}); }), text));
}

TEST_CASE("a program whose bytes do not add up in 64 bits is refused") {
  const auto doubled = [](value x) { return x + x; };
  CHECK(contains(error_of([&] { static_cast<void>(dynamic::compile(doubled, two, dynamic::input<float>({one << 58}))); }),
                 "gspmd: compile: the values of the program are too large"));
  const auto p = dynamic::compile(doubled, two, dynamic::input<float>({one << 54}, {"x"}));
  CHECK(p.peak_bytes_per_device() == one << 56);
}
