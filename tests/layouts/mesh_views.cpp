// SPDX-License-Identifier: Apache-2.0
// group: dynamic
#include "gspmd/detail/notation/mesh_views.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/index.hpp"
#include "gspmd/layouts/mesh_views.hpp"
#include "gspmd/layouts/placements.hpp"
#include "gspmd/layouts/xla_sharding.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/report/explain.hpp"
#include "gspmd/run/run.hpp"
#include "gspmd/windows.hpp"

using namespace gspmd;

namespace {

using sizes = std::vector<std::int64_t>;

dynamic::mesh mesh_of(const sizes& s, const std::string& letter, const std::vector<std::int32_t>& order = {}) {
  std::vector<dynamic::mesh::axis> axes;
  for (std::size_t i = 0; i < s.size(); ++i) axes.push_back({letter + std::to_string(i), s[i]});
  return dynamic::mesh(axes, order);
}

/// Returns all ways to write n as a product of numbers above 1, in every order.
std::vector<sizes> products(std::int64_t n) {
  std::vector<sizes> result;
  if (n == 1) result.push_back({});
  for (std::int64_t first = 2; first <= n; ++first)
    if (n % first == 0)
      for (auto rest : products(n / first)) {
        rest.insert(rest.begin(), first);
        result.push_back(rest);
      }
  return result;
}

/// Returns the coordinates on the axis of this name, by device.
std::vector<std::int64_t> places(const detail::mesh_info& m, const std::string& name) {
  std::vector<std::int64_t> result;
  const auto axes = m.find_run(name);
  for (std::int64_t d = 0; d < m.shape.device_count(); ++d) {
    const auto at = m.shape.coordinates_of(d);
    std::int64_t place = 0;
    for (const auto a : axes) place = place * m.shape.sizes[a] + at[a];
    result.push_back(place);
  }
  return result;
}

/// Returns true if a mesh with the axes of both exists. Then it must have the axes of both.
bool has_both(const dynamic::mesh& a, const dynamic::mesh& b) {
  const auto combined = detail::with_view(a.info(), b.info());
  if (!combined.problem.empty()) return false;
  for (const auto* m : {&a.info(), &b.info()})
    for (int k = 0; k < m->shape.axis_count(); ++k) {
      const std::string name(m->name(k));
      CHECK(places(*m, name) == places(combined.info, name));
    }
  return true;
}

/// Returns true if the ends of axes divide each other in sequence.
bool fit(const sizes& a, const sizes& b) {
  std::vector<std::int64_t> ends{1};
  for (const auto* s : {&a, &b}) {
    std::int64_t n = 1;
    for (auto k = s->size(); k-- > 0;) ends.push_back(n *= (*s)[k]);
  }
  std::sort(ends.begin(), ends.end());
  for (std::size_t i = 1; i < ends.size(); ++i)
    if (ends[i] % ends[i - 1] != 0) return false;
  return true;
}

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const error& e) {
    return e.what();
  }
  return "nothing is thrown";
}
bool holds(const std::string& t, const std::string& part) { return t.find(part) != std::string::npos; }

std::vector<float> counted(std::size_t n) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i);
  return x;
}

/// The meshes outside and inside of the experts, 16 devices (torchtitan).
dynamic::mesh torchtitan() {
  const dynamic::mesh dense({{"pp", 2}, {"dp_replicate", 1}, {"dp_shard", 2}, {"cp", 2}, {"tp", 2}});
  const dynamic::mesh expert({{"pp", 2}, {"dp_shard_mod_ep", 1}, {"ep", 4}, {"tp", 2}});
  return dynamic::views({dense, expert});
}

}  // namespace

TEST_CASE("every two meshes of up to 24 devices have a common one exactly where their axes fit") {
  int common = 0, refused = 0;
  for (const std::int64_t n : {1, 2, 4, 6, 8, 12, 16, 18, 24})
    for (const auto& a : products(n))
      for (const auto& b : products(n)) {
        INFO(n);
        const bool both = has_both(mesh_of(a, "a"), mesh_of(b, "b"));
        CHECK_EQ(both, fit(a, b));
        ++(both ? common : refused);
      }
  CHECK_GT(common, 300);
  CHECK_GT(refused, 200);
}

TEST_CASE("every order of 4 devices, some orders of 8, against all ways to exchange their three axes of 2") {
  int common = 0, refused = 0;
  for (const int n : {4, 8}) {
    std::vector<std::int32_t> order;
    for (int d = 0; d < n; ++d) order.push_back(d);
    const int bits = n == 4 ? 2 : 3;
    std::vector<std::vector<std::int32_t>> exchanged;  // orders that are exchanges of axes of 2
    std::vector<int> digit{0, 1, 2};
    digit.resize(static_cast<std::size_t>(bits));
    do {
      std::vector<std::int32_t> e;
      for (int i = 0; i < n; ++i) {
        int id = 0;
        for (int k = 0; k < bits; ++k) id |= (i >> k & 1) << digit[static_cast<std::size_t>(k)];
        e.push_back(id);
      }
      exchanged.push_back(e);
    } while (std::next_permutation(digit.begin(), digit.end()));
    std::uint32_t state = 1;
    int skip = 0;
    do {
      const bool is_exchange = std::find(exchanged.begin(), exchanged.end(), order) != exchanged.end();
      state = state * 1664525u + 1013904223u;
      if (n == 8 && !is_exchange && (skip = static_cast<int>(state >> 24)) > 2) continue;
      for (const auto& a : products(n))
        for (const auto& b : products(n)) {
          const bool both = has_both(mesh_of(a, "a"), mesh_of(b, "b", order));
          CHECK_EQ(both, is_exchange);
          // an order of the first mesh, and of both
          CHECK_EQ(has_both(mesh_of(a, "a", order), mesh_of(b, "b")), is_exchange);
          CHECK(has_both(mesh_of(a, "a", order), mesh_of(b, "b", order)));
          ++(both ? common : refused);
        }
    } while (std::next_permutation(order.begin(), order.end()));
  }
  CHECK_GT(common, 50);
  CHECK_GT(refused, 500);
}

TEST_CASE("names of axes and of their parts") {
  const auto m = dynamic::views({mesh_of({4, 2}, "x"), mesh_of({2, 4}, "a"), mesh_of({8}, "f")});
  const auto& info = m.info();
  REQUIRE_EQ(info.shape.axis_count(), 3);
  CHECK_EQ(info.mask_of("x0"), 3u);
  CHECK_EQ(info.mask_of("x1"), 4u);
  CHECK_EQ(info.mask_of("a0"), 1u);
  CHECK_EQ(info.mask_of("a1"), 6u);
  CHECK_EQ(info.mask_of("f0"), 7u);
  CHECK_EQ(info.mask_of("a1:(2)2"), 4u);
  CHECK_EQ(info.mask_of("a1:(1)2"), 2u);
  CHECK_EQ(info.mask_of("f0:(2)4"), 6u);
  CHECK_EQ(info.mask_of("f0:(2)3"), 0u);
  CHECK_EQ(info.mask_of("f0:(1)0"), 0u);
  CHECK_EQ(info.mask_of("g"), 0u);
  CHECK_EQ(detail::axes_text(info, 7).view(), "f0");
  CHECK_EQ(detail::axes_text(info, 3).view(), "x0");
  CHECK_EQ(detail::axes_text(info, 6).view(), "a1");
  CHECK_EQ(detail::axes_text(info, 5).view(), "a0,x1");
  CHECK_EQ(detail::axes_text(info, 2).view(), "x0:(2)2");
  CHECK_EQ(detail::names_text(info).view(), "x0,x1,a0,a1,f0");
  CHECK_EQ(detail::named_sizes_text(info).view(), "x0=4, x1=2 | a0=2, a1=4, f0=8");
  // a1, whose parts have the reverse order, is a different split from x0 on the same devices
  const auto turned = dynamic::views({mesh_of({2, 2}, "x"), mesh_of({4}, "t", {0, 2, 1, 3})});
  CHECK_EQ(detail::axes_text(turned.info(), 3).view(), "t0");
  detail::sharding s;
  s.add_split(1, 0);
  s.add_split(0, 0);
  CHECK_EQ(detail::sharding_text(turned.info(), s, 1).view(), "[t0]");
  detail::sharding r;
  r.add_split(0, 0);
  r.add_split(1, 0);
  CHECK_EQ(detail::sharding_text(turned.info(), r, 1).view(), "[x0,x1]");
}

TEST_CASE("from mesh(4,2) to mesh(2,4) and back") {
  const auto m = dynamic::views({dynamic::mesh({{"x", 4}, {"y", 2}}), dynamic::mesh({{"a", 2}, {"b", 4}})});
  for (const auto& shape : {sizes{8, 12}, sizes{7, 5}, sizes{1, 3}, sizes{0, 3}}) {
    dynamic::builder b(m);
    auto x = b.input(dynamic::input<float>(shape, {"x", "y"}));
    auto there = b.reshard(x * 2.0, {"a", "b"});
    auto back = b.reshard(there + 1.0, {"x", "y"});
    b.output(there);
    b.output(back);
    const auto p = b.compile();
    CHECK(p.output(0).sharding() == std::vector<std::string>{"a", "b"});
    CHECK(p.output(1).sharding() == std::vector<std::string>{"x", "y"});
    const auto data = counted(static_cast<std::size_t>(shape[0] * shape[1]));
    const auto y = p.run(simulated{}, data);
    const auto on_threads = p.run(threads{}, data);
    for (std::size_t i = 0; i < data.size(); ++i) {
      CHECK_EQ(y[0].data<float>()[i], data[i] * 2);
      CHECK_EQ(y[1].data<float>()[i], data[i] * 2 + 1);
      CHECK_EQ(on_threads[1].data<float>()[i], data[i] * 2 + 1);
    }
    for (int d = 0; d < 8; ++d)
      CHECK_EQ(p.output(0).valid_range(d, along(0)).begin, std::min(shape[0], d / 4 * ((shape[0] + 1) / 2)));
  }
}

TEST_CASE("a view of rows that lie column by column: nothing moves") {
  const dynamic::mesh rows({{"x", 4}, {"y", 2}}), columns({{"a", 2}, {"b", 4}}, {0, 2, 4, 6, 1, 3, 5, 7});
  dynamic::builder b(dynamic::views({rows, columns}));
  auto x = b.input(dynamic::input<float>({8, 8}, {"x", "y"}));
  b.output(b.reshard(x * 2.0, {"b", "a"}));
  const auto p = b.compile();
  CHECK_EQ(p.traffic().bytes, 0);
  CHECK_EQ(p.output(0).text(), "[x, y]");
}

TEST_CASE("flattened and split views") {
  const dynamic::mesh grid({{"x", 4}, {"y", 2}}), flat({{"xy", 8}}), fine({{"x0", 2}, {"x1", 2}, {"y", 2}});
  dynamic::builder b(dynamic::views({grid, flat, fine}));
  auto a = b.input(dynamic::input<float>({16, 3}, {"xy", ""}));
  auto c = b.input(dynamic::input<float>({16, 3}, {"x0,x1,y", ""}));
  auto d = b.input(dynamic::input<float>({16, 3}, {"x,y", ""}));
  b.output(sum(a + c + d, {0}));
  const auto p = b.compile();
  REQUIRE_EQ(p.traffic().collectives, 1);
  CHECK(p.collectives()[0] == collective{collective_kind::all_reduce, "xy"});
  CHECK_EQ(p.traffic().over("x1").collectives, 1);
  const auto text = dynamic::explain(p);
  CHECK(holds(text, "mesh x=4, y=2 | xy=8, x0=2, x1=2: 8 devices\n"));
  CHECK(holds(text, "all_reduce over xy of"));
  CHECK(holds(text, "  over x0 "));
}

TEST_CASE("both meshes of torchtitan on 16 devices: tokens go to the experts and back") {
  constexpr std::int64_t experts = 8, tokens = 4, wide = 6, hidden = 10;
  dynamic::builder b(torchtitan());
  // tokens of a batch and sequence that are sharded outside; [expert, place, model] inside, one all_to_all each way
  auto x = b.input(dynamic::input<float>({tokens * experts, wide}, {"dp_shard,cp", ""}));
  auto w = b.input(dynamic::input<float>({experts, wide, hidden}, {"ep", "", "tp"}));
  auto v = b.input(dynamic::input<float>({experts, hidden, wide}, {"ep", "tp", ""}));
  const auto grouped = reshape(x, {tokens, experts, wide});
  const auto inside = b.reshard(grouped, {"", "ep", ""});
  const auto h = relu(einsum("tew,ewh->teh", inside, w));
  const auto y = b.reshard(einsum("teh,ehw->tew", h, v), {"dp_shard,cp", "", ""});
  b.output(reshape(y, {tokens * experts, wide}));
  const auto p = b.compile();
  const auto kinds = p.collectives();
  REQUIRE_GE(kinds.size(), 2);
  CHECK(kinds[0] == collective{collective_kind::all_to_all, "ep"});
  CHECK_EQ(p.traffic().over("dp_shard").collectives, p.traffic().over("cp").collectives);
  CHECK_EQ(p.traffic().over("ep").collectives, 2);
  CHECK_GE(p.traffic().over("tp").collectives, 1);
  CHECK_EQ(p.traffic().in(collective_kind::all_gather).collectives, 0);
  CHECK_EQ(p.input(1).text(), "[ep, _, tp]");
  // in integers that floats represent
  std::vector<float> xs(static_cast<std::size_t>(tokens * experts * wide)), ws(static_cast<std::size_t>(experts * wide * hidden)),
      vs(ws.size());
  for (std::size_t i = 0; i < xs.size(); ++i) xs[i] = static_cast<float>(static_cast<int>(i * 7 % 5) - 2);
  for (std::size_t i = 0; i < ws.size(); ++i) ws[i] = static_cast<float>(static_cast<int>(i * 3 % 7) - 3);
  for (std::size_t i = 0; i < vs.size(); ++i) vs[i] = static_cast<float>(static_cast<int>(i * 5 % 3) - 1);
  const auto result = p.run(simulated{}, xs, ws, vs)[0];
  const auto on_threads = p.run(threads{}, xs, ws, vs)[0];
  for (std::int64_t t = 0; t < tokens * experts; ++t)
    for (std::int64_t k = 0; k < wide; ++k) {
      const auto e = t % experts;
      float wanted = 0;
      for (std::int64_t j = 0; j < hidden; ++j) {
        float sum_of = 0;
        for (std::int64_t i = 0; i < wide; ++i)
          sum_of += xs[static_cast<std::size_t>(t * wide + i)] * ws[static_cast<std::size_t>((e * wide + i) * hidden + j)];
        wanted += std::max(sum_of, 0.0f) * vs[static_cast<std::size_t>((e * hidden + j) * wide + k)];
      }
      CHECK_EQ(result.data<float>()[t * wide + k], wanted);
      CHECK_EQ(on_threads.data<float>()[t * wide + k], wanted);
    }
  const auto one = torchtitan().with_one_device();
  CHECK_EQ(one.device_count(), 1);
  CHECK_EQ(one.info().mask_of("ep"), torchtitan().info().mask_of("ep"));
}

TEST_CASE("an axis of a view that a reshape cuts further") {
  dynamic::builder b(dynamic::views({dynamic::mesh({{"x", 4}, {"y", 4}}), dynamic::mesh({{"a", 2}, {"b", 8}})}));
  auto x = b.input(dynamic::input<float>({16}, {"b"}));
  b.output(reshape(x, {4, 4}) + 1.0);
  const auto p = b.compile();
  CHECK_EQ(p.traffic().bytes, 0);
  CHECK_EQ(p.input(0).text(), "[b]");
  const auto data = counted(16);
  const auto y = p.run(simulated{}, data)[0];
  for (std::size_t i = 0; i < 16; ++i) CHECK_EQ(y.data<float>()[i], data[i] + 1);
}

TEST_CASE("annotations that name their mesh, in a program of the run time") {
  using one = gspmd::mesh<axis<"x", 4>, axis<"y", 2>>;
  using two = gspmd::mesh<axis<"a", 2>, axis<"b", 4>>;
  using three = gspmd::mesh<axis<"f", 8>>;
  const dynamic::mesh m1({{"x", 4}, {"y", 2}}), m2({{"a", 2}, {"b", 4}});
  const auto place = [](auto input, const dynamic::mesh& m) {
    dynamic::builder b(m);
    b.output(b.input(input) * 2.0);
    return b.compile().input(0).text();
  };
  const auto both = dynamic::views({m1, m2});
  CHECK_EQ(place(input<float, shape<8, 8>, on<two, split<"b", "a">>>{}, both), "[b, a]");
  CHECK_EQ(place(input<float, shape<8, 8>, on<one, split<_, "y,x">>>{}, both), "[_, y,x]");
  CHECK_EQ(place(input<float, shape<8, 8>, on<two, placements<per_axis::replicate, per_axis::shard(0)>>>{}, both), "[b, _]");
  CHECK_EQ(place(input<float, shape<8, 8>, on<two, xla_split<"{devices=[4,2]<=[2,4]T(1,0)}">>>{}, both), "[b, a]");
  CHECK_EQ(place(input<float, shape<8, 8>, xla_split<"{devices=[4,2]<=[2,4]T(1,0)}">>{}, both),
           "[b, a]");  // the devices determine it
  CHECK_EQ(place(input<float, shape<8, 8>, on<one, split<"x", _>>>{}, m1), "[x, _]");
  CHECK(holds(refusal([&] { place(input<float, shape<8, 8>, on<three, split<"f", _>>>{}, both); }),
              "on the mesh f=8, and the program is compiled for x=4, y=2 | a=2, b=4; give compile mesh_views<> of both"));
  CHECK(holds(refusal([&] { place(input<float, shape<8, 8>, on<one, split<"x", _>>>{}, m2); }),
              "give compile mesh_views<> of both"));
  CHECK(holds(refusal([&] { place(input<float, shape<8, 8>, on<two, split<"x", _>>>{}, both); }),
              "`x` is not an axis of the mesh"));
  CHECK(holds(refusal([&] { place(input<float, shape<8, 8>, placements<per_axis::shard(0), per_axis::replicate>>{}, both); }),
              "say for which one the placements are: on<mesh, placements<...>>"));
  // positions are those of the first mesh
  dynamic::builder b(both);
  b.output(mesh_split(b.input(input<float, shape<8, 8>>{}), {1, 0}));
  CHECK_EQ(b.compile().output(0).text(), "[y, x]");
  dynamic::builder c(both);
  mesh_split(c.input(input<float, shape<8, 8>>{}), {2, -1});
  CHECK(holds(refusal([&] { static_cast<void>(c.compile()); }), "names axis 2 and the mesh has 2 axes"));
}

TEST_CASE("what are no views of one mesh") {
  using dynamic::mesh;
  const mesh m({{"x", 2}, {"y", 3}});
  const auto said = [&m](const mesh& other) { return refusal([&] { dynamic::views({m, other}); }); };
  const auto crossing = said(mesh({{"a", 3}, {"b", 2}}));
  CHECK(holds(crossing, "views: no mesh has both the axes x=2, y=3 and a=3, b=2"));
  CHECK(holds(crossing, "to_step"));
  CHECK(holds(said(mesh({{"a", 7}})), "x=2, y=3 and a=7 have 6 and 7 devices"));
  CHECK(holds(said(mesh({{"a", 6}}, {0, 1, 2, 3, 5, 4})), "have an order that no exchange of axes"));
  CHECK(holds(said(mesh({{"y", 2}, {"z", 3}})), "the axis `y` does not have the same devices"));
  CHECK(holds(said(mesh({{"x", 1}, {"z", 6}})), "the axis `x` does not have the same devices"));
  CHECK_EQ(said(mesh({{"x", 2}, {"z", 3}})), "nothing is thrown");  // x means the same
  CHECK(holds(refusal([] { dynamic::views({}); }), "at least one"));
  CHECK(holds(refusal([&] { dynamic::views({m, dynamic::views({m, mesh({{"z", 6}})})}); }), "must be the first mesh"));
  const std::string long_name(31, 'n');
  CHECK(holds(refusal([&] { dynamic::views({mesh({{long_name, 4}}), mesh({{"a", 2}, {"b", 2}})}); }), "31 characters"));
  dynamic::builder b(dynamic::views({m, mesh({{"f", 6}})}));
  b.input(dynamic::input<float>({6, 6}, {"f", "x"}));
  CHECK(holds(refusal([&] { static_cast<void>(b.compile()); }), "axis `x` is used twice"));
  dynamic::builder c(dynamic::views({m, mesh({{"f", 6}})}));
  c.input(dynamic::input<float>({6}, {"g"}));
  CHECK(holds(refusal([&] { static_cast<void>(c.compile()); }), "`g` is not an axis of the mesh; its axes are x,y,f"));
}
