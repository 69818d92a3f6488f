// SPDX-License-Identifier: Apache-2.0
// labels: threads
// group: map
#include <doctest/doctest.h>

#include <string>

#include "gspmd/gspmd.hpp"
#include "gspmd/layouts/placed_array.hpp"

// Values that go from a step on one mesh to a step on another one over the same devices.

using namespace gspmd;

namespace {

constexpr auto plus_one = [](auto x) { return x + 1.0; };
constexpr auto twice = [](auto x) { return x * 2.0; };

// 2x3 and 3x2 are not views of a common mesh.
using rows = mesh<axis<"x", 2>, axis<"y", 3>>;
using columns = mesh<axis<"a", 3>, axis<"b", 2>>;
template <class Shape>
using first = compile<plus_one, rows, input<float, Shape, split<"x", "y">>>;
template <class Shape>
using second = compile<twice, columns, input<float, Shape, split<"a", "b">>>;

template <class Shape, class Comm>
std::string go_there_and_back(Comm& comm) {
  const auto& shape = Shape::value;
  array<float> whole(shape);
  for (std::int64_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<float>(i);
  first<Shape> f;
  second<Shape> s;
  auto x = distribute<first<Shape>, 0>(comm, whole);
  auto y = make_result<first<Shape>, 0>(comm);
  f(comm, x, y);
  auto there = to_step<second<Shape>, 0>(comm, y);
  auto z = make_result<second<Shape>, 0>(comm);
  s(comm, there, z);
  auto back = to_step<first<Shape>, 0>(comm, z);
  auto end = make_result<first<Shape>, 0>(comm);
  f(comm, back, end);
  const auto result = collect(comm, end);
  for (std::int64_t i = 0; i < whole.size(); ++i)
    if (result[i] != (whole[i] + 1) * 2 + 1) return "element " + std::to_string(i) + " is wrong";
  return {};
}

template <class Shape>
void check_crossing() {
  launch(simulated{}, 6, [](auto& comm) { CHECK_EQ(go_there_and_back<Shape>(comm), ""); });
  launch(threads{}, 6, [](auto& comm) {
    if (const auto wrong = go_there_and_back<Shape>(comm); !wrong.empty()) throw error(wrong);
  });
}

}  // namespace

TEST_CASE("between meshes that are no views of one") {
  check_crossing<shape<6, 6>>();
  check_crossing<shape<7, 5>>();
  check_crossing<shape<1, 4>>();
  check_crossing<shape<0, 4>>();
}

namespace {
using grid = mesh<axis<"x", 4>, axis<"y", 2>>;
using other = mesh<axis<"a", 2>, axis<"b", 4>>;
using turned = mesh<axis<"u", 2>, axis<"v", 4>, device_order<0, 2, 4, 6, 1, 3, 5, 7>>;
using all = mesh_views<grid, other, turned>;
constexpr auto crossing = [](auto x) { return reshard(x * 2.0, split<"a", "b">{}); };
using on_grid = compile<plus_one, grid, input<float, shape<9, 10>, split<"x", "y">>>;
using on_other = compile<plus_one, other, input<float, shape<9, 10>, split<"a", "b">>>;
using on_all = compile<crossing, all, input<float, shape<9, 10>, split<"x", "y">>>;
using on_turned = compile<plus_one, turned, input<float, shape<9, 10>, split<"v", "u">>>;

template <class Comm>
std::string through_all(Comm& comm) {
  array<float> whole({9, 10});
  for (std::int64_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<float>(i);
  auto x = distribute<on_grid, 0>(comm, whole);
  auto y = make_result<on_grid, 0>(comm);
  on_grid f;
  f(comm, x, y);
  on_turned t;  // v,u of turned are x,y of the grid
  auto z = make_result<on_turned, 0>(comm);
  t(comm, y, z);
  on_all s;
  auto w = make_result<on_all, 0>(comm);
  s(comm, z, w);
  on_other o;
  auto end = make_result<on_other, 0>(comm);
  o(comm, w, end);
  const auto result = collect(comm, end);
  for (std::int64_t i = 0; i < whole.size(); ++i)
    if (result[i] != (whole[i] + 2) * 2 + 1) return "element " + std::to_string(i) + " is wrong";
  return {};
}
}  // namespace

TEST_CASE("from a step on a mesh to one on views of it and on to one on the other mesh") {
  launch(simulated{}, 8, [](auto& comm) { CHECK_EQ(through_all(comm), ""); });
  launch(threads{}, 8, [](auto& comm) {
    if (const auto wrong = through_all(comm); !wrong.empty()) throw error(wrong);
  });
  const auto text = explain<on_all>();
  CHECK(text.find("mesh x=4, y=2 | a=2, b=4, u=2, v=4: 8 devices") != std::string::npos);
}

TEST_CASE("a sharded_array of another mesh that is laid out otherwise") {
  std::string said;
  launch(simulated{}, 8, [&](auto& comm) {
    auto y = make_result<on_grid, 0>(comm);
    auto end = make_result<on_other, 0>(comm);
    on_other o;
    try {
      o(comm, y, end);
    } catch (const error& e) {
      said = e.what();
    }
  });
  CHECK(said.find("input 0 is sharded [a, b] and the sharded_array given is on another mesh") != std::string::npos);
}
