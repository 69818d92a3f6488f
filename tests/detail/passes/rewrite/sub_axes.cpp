// SPDX-License-Identifier: Apache-2.0
// group: operators
#include "gspmd/detail/passes/rewrite/sub_axes.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/index.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/report/explain.hpp"
#include "gspmd/run/compile.hpp"
#include "gspmd/run/run.hpp"
#include "gspmd/windows.hpp"

using namespace gspmd;

namespace {

std::string sharding_of(const dynamic::program& p, int value) {
  const auto& v = p.view().value(value);
  return std::string(detail::sharding_text(p.mesh_info(), v.layout, v.global.count).view());
}

struct outcome {
  std::string input, output;
  std::int64_t bytes = 0;
  bool is_right = false;
};

/// Reshapes an array of the first shape, split so, to the second; the result is compared with the array itself.
outcome reshaped(const dynamic::mesh& m, const std::vector<std::int64_t>& from, const std::vector<std::string>& split,
                 const std::vector<std::int64_t>& to, const std::vector<std::string>& annotation = {}) {
  dynamic::builder b(m);
  auto input = split.empty() ? dynamic::input<float>(from) : dynamic::input<float>(from, split);
  auto x = b.input(input);
  detail::extents shape;
  for (const auto e : to) shape.push_back(e);
  const value r{&b.graph(), detail::add_reshape(b.graph(), x.id(), shape, {"reshape", 1})};
  auto y = allow_replication(r) + 1.0;  // where no cut helps, the operand is gathered
  if (!annotation.empty()) y = b.reshard(y, annotation);
  b.output(y);
  const auto p = b.compile();
  std::int64_t n = 1;
  for (const auto e : from) n *= e;
  std::vector<float> data(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  const auto result = p.run(simulated{}, data)[0];
  outcome o{sharding_of(p, p.view().inputs[0]), sharding_of(p, p.view().outputs[0]), p.traffic().bytes, true};
  for (std::size_t i = 0; i < data.size(); ++i) o.is_right = o.is_right && result.data<float>()[i] == data[i] + 1;
  return o;
}

}  // namespace

TEST_CASE("names of parts of axes") {
  using detail::sub_axis;
  CHECK(sub_axis::of("x:(2)4").base == "x");
  CHECK_EQ(sub_axis::of("x:(2)4").before, 2);
  CHECK_EQ(sub_axis::of("x:(2)4").size, 4);
  CHECK_EQ(sub_axis::of("x").size, 0);
  detail::mesh_info m;
  m.add_axis("x", 8);
  m.add_axis("y", 3);
  const auto once = detail::cut_axis(m, {0, 2}), twice = detail::cut_axis(once, {1, 2});
  CHECK_EQ(once.name(0), "x:(1)2");
  CHECK_EQ(once.name(1), "x:(2)4");
  CHECK_EQ(twice.name(1), "x:(2)2");
  CHECK_EQ(twice.name(2), "x:(4)2");
  CHECK_EQ(detail::axes_text(twice, 15).view(), "x,y");
  CHECK_EQ(detail::axes_text(twice, 3).view(), "x:(1)4");
  CHECK_EQ(detail::axes_text(twice, 6).view(), "x:(2)4");
  CHECK_EQ(detail::axes_text(twice, 5).view(), "x:(1)2,x:(4)2");
  CHECK_EQ(twice.mask_of("x"), 7u);
  CHECK_EQ(twice.mask_of("x:(2)4"), 6u);
  CHECK_EQ(twice.mask_of("x:(1)8"), 7u);
  CHECK_EQ(twice.mask_of("y"), 8u);
  CHECK_EQ(twice.mask_of("x:(1)3"), 0u);
  CHECK_EQ(twice.mask_of("z"), 0u);
  CHECK_EQ(detail::cut_axis(detail::axis_mask{0b1011}, 1), 0b10111u);
  CHECK_EQ(detail::cut_axis(detail::axis_mask{0b1101}, 1), 0b11001u);
}

TEST_CASE("an axis that a reshape splits: nothing is sent") {
  const dynamic::mesh line({{"x", 4}});
  const auto a = reshaped(line, {8}, {"x"}, {2, 4});
  CHECK_EQ(a.input, "[x]");
  CHECK_EQ(a.output, "[x:(1)2, x:(2)2]");
  CHECK_EQ(a.bytes, 0);
  CHECK(a.is_right);
  const auto b = reshaped(dynamic::mesh({{"x", 6}}), {6, 5}, {"x", ""}, {2, 3, 5});
  CHECK_EQ(b.output, "[x:(1)2, x:(2)3, _]");
  CHECK_EQ(b.bytes, 0);
  CHECK(b.is_right);
  // backwards: the result is split as a whole, the operand is completed
  const auto c = reshaped(line, {2, 4}, {}, {8}, {"x"});
  CHECK_EQ(c.input, "[x:(1)2, x:(2)2]");
  CHECK_EQ(c.output, "[x]");
  CHECK_EQ(c.bytes, 0);
  CHECK(c.is_right);
  // three parts, two axes, a device order
  const auto d = reshaped(dynamic::mesh({{"x", 8}}, {7, 6, 5, 4, 0, 1, 2, 3}), {16}, {"x"}, {2, 2, 4});
  CHECK_EQ(d.output, "[x:(1)2, x:(2)2, x:(4)2]");
  CHECK_EQ(d.bytes, 0);
  CHECK(d.is_right);
  const auto e = reshaped(dynamic::mesh({{"y", 2}, {"x", 4}}), {4, 8}, {"", "y,x"}, {4, 4, 2});
  CHECK_EQ(e.output, "[_, y,x:(1)2, x:(2)2]");
  CHECK_EQ(e.bytes, 0);
  CHECK(e.is_right);
}

TEST_CASE("what needs no cut has none") {
  const auto a = reshaped(dynamic::mesh({{"x", 2}, {"y", 2}}), {8}, {"x,y"}, {2, 4});
  CHECK_EQ(a.output, "[x, y]");
  CHECK_EQ(a.bytes, 0);
  const auto b = reshaped(dynamic::mesh({{"x", 4}}), {8, 3}, {"x", ""}, {8, 3, 1});
  CHECK_EQ(b.output, "[x, _, _]");
}

TEST_CASE("every axis of up to 8 on every reshape of 24 into two dims and back") {
  int free_of_charge = 0;
  for (const int k : {2, 3, 4, 5, 6, 8})
    for (const std::int64_t first : {1, 2, 3, 4, 6, 8, 12, 24}) {
      const dynamic::mesh m({{"x", k}});
      const std::int64_t rest = 24 / first;
      const auto down = reshaped(m, {24}, {"x"}, {first, rest});
      const auto up = reshaped(m, {first, rest}, {"x", ""}, {24});
      const auto back = reshaped(m, {first, rest}, {}, {24}, {"x"});
      CHECK(down.is_right);
      CHECK(up.is_right);
      CHECK(back.is_right);
      if (24 % k == 0 && (first % k == 0 || k % first == 0)) {
        INFO(k, " ", first);
        CHECK_EQ(down.bytes, 0);
        CHECK_EQ(back.bytes, 0);
        ++free_of_charge;
      }
    }
  CHECK_GT(free_of_charge, 20);
}

namespace {
using line_of_4 = mesh<axis<"x", 4>>;
constexpr auto row_sums = [](auto a, auto b) { return einsum<"ij,ij->i">(reshape(a, {2, 4}), b); };
using step = compile<row_sums, line_of_4, input<float, shape<8>, split<"x">>, input<float, shape<2, 4>>>;
constexpr auto twice = [](auto a) { return a * 2.0; };
using before = compile<twice, line_of_4, input<float, shape<8>, split<"x">>>;
}  // namespace

TEST_CASE("a compiled step with a cut axis, fed by one without") {
  array<float> a({8}), b({2, 4});
  for (int i = 0; i < 8; ++i) {
    a[i] = static_cast<float>(i);
    b[i] = static_cast<float>(i % 3);
  }
  float wanted[2] = {0, 0};
  for (int i = 0; i < 8; ++i) wanted[i / 4] += 2 * a[i] * b[i];
  launch(threads{}, 4, [&](auto& comm) {
    auto as = distribute<before, 0>(comm, a);
    auto doubled = make_result<before, 0>(comm);
    before first;
    first(comm, as, doubled);
    auto bs = distribute<step, 1>(comm, b);
    auto sums = make_result<step, 0>(comm);
    step second;
    second(comm, doubled, bs, sums);  // the same tiles under another name
    shard_view<const float, line_of_4, shape<8>, split<"x">> view(doubled.data());
    second(comm, view, bs.data(), sums.data());
    const auto y = collect(comm, sums);
    if (y[0] != wanted[0] || y[1] != wanted[1]) throw error("wrong sums");
  });
  const auto text = explain<step>();
  CHECK(text.find("x:(1)2") != std::string::npos);
}

TEST_CASE("cuts of one axis that do not nest: the second reshape gets its tiles on other devices") {
  struct nested_not {
    int devices;
    std::int64_t elems;
    std::vector<std::int64_t> first, second;
    const char* sharding;  // of the second
  };
  for (const auto& c :
       {nested_not{6, 12, {2, 6}, {3, 4}, "[x:(2)3, x:(1)2]"}, nested_not{6, 36, {3, 12}, {2, 18}, "[x:(3)2, x:(1)3]"},
        nested_not{12, 24, {4, 6}, {6, 4}, "[x:(1)2,x:(4)3, x:(2)2]"}}) {
    dynamic::builder b(dynamic::mesh({{"x", c.devices}}));
    const auto x = b.input(dynamic::input<float>({c.elems}, {"x"}));
    for (const auto* shape : {&c.first, &c.second})
      b.output(value{x.graph(), detail::add_reshape(b.graph(), x.id(), detail::extents_of(*shape), {"reshape", 1})} * 2.0);
    const auto p = b.compile();
    CHECK(p.traffic().bytes == c.elems / c.devices * 4);  // a shard, for the second
    CHECK(explain(p).find(c.sharding) != std::string::npos);
    std::vector<float> data(static_cast<std::size_t>(c.elems));
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
    const auto y = p.run(simulated{}, data);
    for (std::size_t i = 0; i < data.size(); ++i)
      for (std::size_t k = 0; k < 2; ++k) CHECK(y[k].data<float>()[i] == 2 * data[i]);
  }
}

TEST_CASE("random chains of reshapes on axes that have to be cut, against one device") {
  std::uint32_t state = 12345;
  const auto pick = [&state](int n) {
    state = state * 1664525u + 1013904223u;
    return static_cast<int>(state >> 16) % n;
  };
  /// One dim cut in two, or two joined.
  const auto changed = [&](std::vector<std::int64_t> shape) {
    const auto at = shape.empty() ? 0 : pick(static_cast<int>(shape.size()));
    const auto dim = shape.begin() + at;
    if (shape.size() > 1 && dim + 1 != shape.end() && pick(3) == 0) {
      *dim *= dim[1];
      shape.erase(dim + 1);
    } else if (!shape.empty()) {
      std::int64_t first = 1;
      for (const std::int64_t p : {2, 3, 2, 5})
        if (*dim % (first * p) == 0 && pick(2) == 0) first *= p;
      const auto rest = *dim / first;
      *dim = first;
      shape.insert(dim + 1, rest);
    }
    return shape;
  };
  int cut = 0, silent = 0;
  for (int program = 0; program < 1000; ++program) {
    const std::int64_t count = std::vector<std::int64_t>{24, 48, 96, 36, 60, 30}[static_cast<std::size_t>(pick(6))];
    const int x_size = std::vector<int>{2, 4, 6, 8, 3}[static_cast<std::size_t>(pick(5))], y_size = 1 + pick(4);
    const auto first = pick(2) == 0 ? std::vector<std::int64_t>{count} : changed({count});
    std::vector<std::string> split(first.size());
    for (const char* axis : {"x", "y"})
      if (pick(5) != 0) {
        auto& dim = split[static_cast<std::size_t>(pick(static_cast<int>(split.size())))];
        dim += (dim.empty() ? "" : ",") + std::string(axis);
      }
    std::vector<std::vector<std::int64_t>> shapes;
    std::vector<int> reduced;
    auto now = first;
    for (int k = 0; k < 3; ++k) {
      shapes.push_back(now = changed(now));
      reduced.push_back(pick(3) == 0 && now.size() > 1 ? pick(static_cast<int>(now.size())) : -1);
      if (reduced.back() >= 0) now.erase(now.begin() + reduced.back());
    }
    const auto planned = [&](const dynamic::mesh& m) {
      dynamic::builder b(m);
      value v = b.input(dynamic::input<float>(first, split));
      for (std::size_t k = 0; k < shapes.size(); ++k) {
        detail::extents shape;
        for (const auto e : shapes[k]) shape.push_back(e);
        v = allow_replication(value{&b.graph(), detail::add_reshape(b.graph(), v.id(), shape, {"reshape", 1})}) + 1.0;
        if (reduced[k] >= 0) v = sum(v, {reduced[k]});
      }
      b.output(v);
      return b.compile();
    };
    std::vector<float> data(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i * 7 % 11);
    const auto many = planned(dynamic::mesh({{"x", x_size}, {"y", y_size}}));
    const auto wanted = planned(dynamic::mesh({{"x", 1}, {"y", 1}})).run(simulated{}, data)[0];
    const auto found = many.run(simulated{}, data)[0];
    CHECK(std::equal(wanted.bytes.begin(), wanted.bytes.end(), found.bytes.begin(), found.bytes.end()));  // small integers: exact
    cut += many.mesh_info().shape.axis_count() > 2;
    silent += many.mesh_info().shape.axis_count() > 2 && many.traffic().bytes == 0;
  }
  CHECK_GT(cut, 100);
  CHECK_GT(silent, 20);
}
