// SPDX-License-Identifier: Apache-2.0
// labels: threads
// group: map
#include <array>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "gspmd/gspmd.hpp"

using namespace gspmd;

namespace {

template <class T>
struct pair_of {
  T a, b;
};

// ---- transform_leaves ----

constexpr auto minus = [](auto x, auto y) { return x - y; };
static_assert(transform_leaves(minus, 5, 2) == 3);
static_assert(transform_leaves(minus, std::tuple{5, std::tuple{7}}, std::tuple{1, std::tuple{10}}) ==
              std::tuple{4, std::tuple{-3}});
static_assert([] {
  const auto halves = transform_leaves([](int x) { return x * 0.5; }, pair_of<int>{3, 4});
  return std::is_same_v<decltype(halves), const pair_of<double>> && halves.a == 1.5 && halves.b == 2.0;
}());

TEST_CASE("transform_leaves visits the leaves in order") {
  std::vector<int> visited;
  transform_leaves([&](int x) { return visited.push_back(x), x; }, std::tuple{1, pair_of<int>{2, 3}, std::pair{4, 5}});
  CHECK(visited == std::vector<int>{1, 2, 3, 4, 5});
}

// ---- scatter, step, gather ----

using pod = mesh<axis<"x", 2>, axis<"y", 2>>;

// 7 does not divide by 2 nor 4, 3 is less than the devices along x and y
constexpr auto shift = [](value s, pair_of<value> p) { return std::tuple{sum(s), pair_of<value>{p.a + s, p.b * 2.0}}; };
using step = compile<shift, pod, input<float, shape<7, 3>, split<"x", "y">>,
                     record<pair_of, input<float, shape<7, 3>, split<"x", "y">>, input<float, shape<3>, split<"x,y">>>>;

array<float> counting(std::initializer_list<std::int64_t> shape, float first) {
  array<float> a(shape);
  for (auto& x : a) x = first++;
  return a;
}

template <class Backend>
void check_round_trip(const Backend& backend) {
  const auto s = counting({7, 3}, 1);
  const pair_of<array<float>> p{counting({7, 3}, 100), counting({3}, 5)};
  std::array<int, 4> wrong{};
  launch(backend, step::device_count, [&](auto& comm) {
    const auto here = distribute<step, 0>(comm, s);
    auto now = distribute<step, 1>(comm, p);
    auto then = make_result<step, 1>(comm);
    auto total = make_result<step, 0>(comm);
    step run;
    for (int i = 0; i < 3; ++i) {
      run(comm, here, now, total, then);
      std::swap(now, then);
    }
    const auto whole = collect(comm, now);
    auto& bad = wrong[static_cast<std::size_t>(comm.device(0))];
    for (std::int64_t i = 0; i < 21; ++i) bad += whole.a[i] != p.a[i] + 3 * s[i];
    for (std::int64_t i = 0; i < 3; ++i) bad += whole.b[i] != 8 * p.b[i];
    for (int d = 0; d < comm.local_count(); ++d) bad += total.data(d)[0] != 231.0f;
    bad += whole.a.size() != 21 || whole.b.size() != 3;
  });
  CHECK(wrong == std::array<int, 4>{});
}

TEST_CASE("what is scattered, stepped and gathered is the whole again on every device") {
  check_round_trip(threads{});
  check_round_trip(simulated{});
}

TEST_CASE("every device owns the padded extents of its shard") {
  launch(simulated{}, step::device_count, [&](auto& comm) {
    const auto s = distribute<step, 0>(comm, counting({7, 3}, 1));
    CHECK(s.local_count() == 4);
    CHECK(s.shape() == shape<7, 3>::value);
    CHECK(s.local_shape() == shape<4, 2>::value);
    CHECK(s.shard(0).size() == 8);
    CHECK(s.shard(0)[2] == 4);   // row 1, column 0
    CHECK(s.shard(3)[0] == 15);  // row 4, column 2
    CHECK(s.shard(3)[0] == *s.data(3));
  });
}

TEST_CASE("buffers, groups of buffers and sharded arrays may be mixed") {
  using alone = mesh<axis<"x", 1>, axis<"y", 1>>;
  using one =
      compile<shift, alone, input<float, shape<7, 3>>, record<pair_of, input<float, shape<7, 3>>, input<float, shape<3>>>>;
  launch(serial{}, 1, [&](auto& comm) {
    const std::vector<float> s(21, 1.0f);
    const auto p = distribute<one, 1>(comm, pair_of<array<float>>{counting({7, 3}, 0), counting({3}, 0)});
    std::array<float, 1> total{};
    pair_of<std::vector<float>> out{std::vector<float>(21), std::vector<float>(3)};
    one{}(comm, s, p, total, out);
    CHECK(total[0] == 21);
    CHECK(out.a[20] == 21);
    CHECK(out.b[2] == 4);
  });
}

// ---- mistakes ----

template <class F>
std::string text_of(F&& f) {
  try {
    launch(simulated{}, step::device_count, f);
  } catch (const error& e) {
    return e.what();
  }
  return "";
}

TEST_CASE("a whole array of another size is refused") {
  const auto text = text_of([](auto& comm) { distribute<step, 0>(comm, std::vector<float>(20)); });
  CHECK(text.find("[7,3] with 21 elements and the array given has 20") != std::string::npos);
}

TEST_CASE("a communicator of another size is refused") {
  simulated_communicator comm(3);
  CHECK_THROWS_AS((make_result<step, 0>(comm)), const error&);
}

TEST_CASE("a buffer is refused where there are several devices") {
  const auto text = text_of([](auto& comm) {
    std::vector<float> buffer(8);
    auto p = make_result<step, 1>(comm);
    auto q = make_result<step, 1>(comm);
    auto total = make_result<step, 0>(comm);
    step{}(comm, buffer, p, total, q);
  });
  CHECK(text.find("holds 4 devices; give a sharded_array") != std::string::npos);
}

TEST_CASE("a sharded array of another sharding or shape is refused") {
  constexpr auto rows = [](value x) { return x * 2.0; };
  using by_row = compile<rows, pod, input<float, shape<7, 3>, split<"y", _>>>;
  using longer = compile<rows, pod, input<float, shape<8, 3>, split<"x", "y">>>;
  const auto run_with = [](auto& comm, const auto& x) {
    const auto p = make_result<step, 1>(comm);
    auto q = make_result<step, 1>(comm);
    auto total = make_result<step, 0>(comm);
    step{}(comm, x, p, total, q);
  };
  const auto other = text_of([&](auto& comm) { run_with(comm, distribute<by_row, 0>(comm, counting({7, 3}, 0))); });
  CHECK(other.find("input 0 is sharded [x, y] and the sharded_array given is sharded [y, _]") != std::string::npos);
  const auto shape = text_of([&](auto& comm) { run_with(comm, distribute<longer, 0>(comm, counting({8, 3}, 0))); });
  CHECK(shape.find("input 0 is [7,3] and the sharded_array given is [8,3]; dim 0 differs") != std::string::npos);
}

TEST_CASE("C arrays of several dims are whole arrays") {
  using doubled = compile<[](auto x) { return x * 2.0; }, mesh<axis<"x", 2>>, input<double, shape<2, 3>, split<"x", _>>>;
  const double x[2][3] = {{1, 2, 3}, {4, 5, 6}}, turned[3][2] = {};
  CHECK(run<doubled>(simulated{}, x)[5] == 12);
  simulated_communicator comm(2);
  CHECK(distribute<doubled, 0>(comm, x).shard(1)[0] == 4);
  CHECK_THROWS_WITH_AS(static_cast<void>(run<doubled>(simulated{}, turned)),
                       doctest::Contains("input 0 is [2,3] and the array given is [3,2]; dim 0 differs"), error);
}

}  // namespace
