// SPDX-License-Identifier: Apache-2.0
// alone: yes
// expect: gspmd: an edge states every fact
// expect: columns_edge
// expect: E::has_own_elements
#include <cstddef>
#include <vector>

#include <gspmd/extend/edge.hpp>
#include <gspmd/external.hpp>
#include <gspmd/gspmd.hpp>

// An edge without has_own_elements. extend/new_edge.cpp checks all other facts.
using namespace gspmd;

struct columns_edge;
struct columns {
  using element = float;
  using edge = columns_edge;
  std::vector<float>* data;
};
struct columns_edge : extend::edge_struct, extend::block_of_step {
  static constexpr const char* name = "columns";
  using view = columns;
  static extend::memory_range memory(const view&) { return extend::no_addresses; }
  static extend::extents shape(const view&) { return {3, 4}; }
#ifdef FIXED
  static bool has_own_elements(const view&) { return true; }
#endif
  static void read(const view& x, const extend::extents& first, const extend::strided_elements<float>& to) {
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 4; ++j) to(i, j) = (*x.data)[static_cast<std::size_t>((first[0] + i) + (first[1] + j) * 3)];
  }
  static void write(const view&, const extend::extents&, const extend::strided_elements<const float>&) {}
};

constexpr auto twice = [](auto x) { return x * 2; };
using step = compile<twice, mesh<axis<"x", 1>>, input<float, shape<3, 4>>>;

int main() {
  std::vector<float> x(12);
  return run<step>(serial{}, columns{&x})[0] == 0 ? 0 : 1;  // <- here
}
