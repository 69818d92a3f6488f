// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: planner
#include "gspmd/report/draw.hpp"

#include <doctest/doctest.h>

#include <numeric>
#include <string>
#include <vector>

#include "support/layouts.hpp"

using namespace gspmd;

namespace {

array<std::int32_t> arange(const std::vector<std::int64_t>& shape) {
  array<std::int32_t> x(layouts::shape_of(shape));
  std::iota(x.begin(), x.end(), 0);
  return x;
}

/// The blog's text lacks one blank at the begin of each line that began with blanks. If columns have a width of two and
/// a row begins with a small number, this is the blank before the number.
std::string as_in_the_blog(const std::string& picture) {
  std::string t;
  bool at_begin = true;
  for (const char c : picture) {
    if (!(at_begin && c == ' ')) t += c;
    at_begin = c == '\n';
  }
  return t;
}
std::string indented(const std::string& picture, const std::string& by) {
  std::string t;
  bool at_begin = true;
  for (const char c : picture) {
    if (at_begin && c != '\n') t += by;
    t += c;
    at_begin = c == '\n';
  }
  return t;
}

}  // namespace

TEST_CASE("the pictures of the blog, 0 to 5 dims") {
  CHECK_EQ(draw(arange({})), "0\n");
  CHECK_EQ(draw(arange({2})), "0  1\n");
  CHECK_EQ(draw(arange({2, 2})), "0  1\n2  3\n");
  CHECK_EQ(draw(arange({2, 2, 2})),
           "0  1    4  5\n"
           "2  3    6  7\n");
  CHECK_EQ(draw(arange({2, 2, 2, 2})),
           " 0  1    4  5\n"
           " 2  3    6  7\n"
           "\n"
           " 8  9   12 13\n"
           "10 11   14 15\n");
  CHECK_EQ(as_in_the_blog(draw(arange({2, 2, 2, 2}))),
           "0  1    4  5\n"
           "2  3    6  7\n"
           "\n"
           "8  9   12 13\n"
           "10 11   14 15\n");
  CHECK_EQ(as_in_the_blog(draw(arange({2, 2, 2, 2, 2}))),
           "0  1    4  5  :  16 17   20 21\n"
           "2  3    6  7  :  18 19   22 23\n"
           "              :\n"
           "8  9   12 13  :  24 25   28 29\n"
           "10 11   14 15  :  26 27   30 31\n");
}

TEST_CASE("the blog's lines that split each dim") {
  const auto x = arange({2, 2, 2, 2});
  const std::string indent = "   ";
  CHECK_EQ(indented(draw_split(x, along(0)), indent),
           "     0  1    4  5\n"
           "     2  3    6  7\n"
           "   ----------------\n"
           "     8  9   12 13\n"
           "    10 11   14 15\n");
  CHECK_EQ(indented(draw_split(x, along(1)), indent),
           "     0  1 |  4  5\n"
           "     2  3 |  6  7\n"
           "          |\n"
           "     8  9 | 12 13\n"
           "    10 11 | 14 15\n");
  CHECK_EQ(indented(draw_split(x, along(2)), indent),
           "     0  1    4  5\n"
           "   ------- -------\n"
           "     2  3    6  7\n"
           "\n"
           "     8  9   12 13\n"
           "   ------- -------\n"
           "    10 11   14 15\n");
  CHECK_EQ(indented(draw_split(x, along(3)), indent),
           "     0 |  1    4 |  5\n"
           "     2 |  3    6 |  7\n"
           "\n"
           "     8 |  9   12 | 13\n"
           "    10 | 11   14 | 15\n");
}

TEST_CASE("other extents, types and ranks") {
  CHECK_EQ(draw(arange({3, 1, 4})), "0  1  2  3    4  5  6  7    8  9 10 11\n");
  CHECK_EQ(draw(arange({3, 0, 4})), "");
  CHECK_EQ(draw(arange({1, 1, 1})), "0\n");
  array<float> f({2, 2});
  f[0] = 1.5F;
  f[3] = -0.25F;
  CHECK_EQ(draw(f), "1.5     0\n  0 -0.25\n");
  array<bool> b({2});
  b[1] = true;
  CHECK_EQ(draw(b), "0  1\n");
  CHECK_EQ(draw(arange({2, 1, 1, 1, 1, 1})), " 0\n..\n 1\n");
  CHECK_EQ(draw_split(arange({5}), 2, along(0)), "  0  1 |  2  3 |  4\n");
  CHECK_EQ(draw_split(arange({2, 1, 1, 1, 2}), along(0)), "  0  1  |   2  3\n");
  CHECK_THROWS_WITH(draw_split(arange({5}), along(1)), "gspmd: draw_split: dim 1 of a tensor with 1 dims");
  CHECK_THROWS_WITH(draw_split(arange({5}), 0, along(0)), "gspmd: draw_split: pieces of 0; they have at least 1 element");
  // every element appears once in every picture, for any extents and lines
  for (const auto& shape :
       std::vector<std::vector<std::int64_t>>{{2, 3, 1, 2}, {3, 2, 2, 2, 2}, {2, 1, 3, 2, 1, 2}, {1, 2, 2, 2, 2, 2, 2}})
    for (int dim = -1; dim < static_cast<int>(shape.size()); ++dim) {
      const auto x = arange(shape);
      auto picture = dim < 0 ? draw(x) : draw_split(x, along(dim));
      for (auto& c : picture)
        if (c < '0' || c > '9') c = ' ';
      std::vector<bool> drawn(static_cast<std::size_t>(x.size()), false);
      std::size_t count = 0;
      for (std::size_t i = 0; (i = picture.find_first_not_of(' ', i)) != std::string::npos; ++count) {
        std::size_t used = 0;
        drawn.at(std::stoul(picture.substr(i), &used)) = true;
        i += used;
      }
      CHECK_EQ(count, drawn.size());
      CHECK(std::find(drawn.begin(), drawn.end(), false) == drawn.end());
    }
}

TEST_CASE("shards on a mesh of the types of a program") {
  using grid = gspmd::mesh<gspmd::axis<"x", 2>, gspmd::axis<"y", 2>>;
  CHECK_EQ(gspmd::draw_split(arange({2, 2}), grid{}, gspmd::split<"x", gspmd::_>{}), "  0  1\n-------\n  2  3\n");
  CHECK_EQ(gspmd::draw_devices(grid{}, gspmd::shape<5>{}, gspmd::split<"x">{}), "  0,1 | 2,3*\n");
  CHECK_THROWS_WITH(gspmd::draw_devices(grid{}, gspmd::shape<5>{}, gspmd::split<"z">{}),
                    "gspmd: draw: `z` is not an axis of the mesh; its axes are x,y");
}

TEST_CASE("shards and the devices that hold them") {
  const auto mesh = layouts::mesh_of({2, 2});
  CHECK_EQ(draw_split(arange({4, 4}), mesh, layouts::split({{0}, {1}})),
           "  0  1 |  2  3\n"
           "  4  5 |  6  7\n"
           "-------+-------\n"
           "  8  9 | 10 11\n"
           " 12 13 | 14 15\n");
  CHECK_EQ(draw_devices(mesh, layouts::shape_of({5}), layouts::split({{0}})), "  0,1 | 2,3*\n");
  CHECK_EQ(draw_devices(mesh, layouts::shape_of({2}), layouts::split({{1, 0}})), "   0 |   2 | (1) | (3)\n");
  CHECK_EQ(draw_devices(mesh, layouts::shape_of({4, 4}), layouts::split({{1}, {0}})),
           "  0 |  2\n"
           "----+----\n"
           "  1 |  3\n");
}
