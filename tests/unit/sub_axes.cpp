// SPDX-License-Identifier: Apache-2.0
#include "gspmd/detail/passes/sub_axes.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/ops.hpp"

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
  auto input = split.empty() ? dynamic::in<float>(from) : dynamic::in<float>(from, split);
  auto x = b.input(input);
  detail::extents shape;
  for (const auto e : to) shape.push_back(e);
  auto y = allow_replication({&b.graph(), detail::add_reshape(b.graph(), x.id(), shape, {"reshape", 1})}) + 1.0;
  if (!annotation.empty()) y = b.reshard(y, annotation);
  b.output(y);
  const auto p = b.compile();
  std::int64_t n = 1;
  for (const auto e : from) n *= e;
  std::vector<float> data(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  const auto result = p.run(simulated{}, data)[0];
  outcome o{sharding_of(p, p.view().inputs[0]), sharding_of(p, p.view().outputs[0]), p.bytes_sent_per_device(), true};
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
