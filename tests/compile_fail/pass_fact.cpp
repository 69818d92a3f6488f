// SPDX-License-Identifier: Apache-2.0
// alone: yes
// expect: gspmd: a pass states every fact
// expect: without_position
// expect: P::position
#include <gspmd/extend/pass.hpp>

// A pass without its position. static/complete_kernel.cpp checks all other facts.
using namespace gspmd::extend;

struct without_position : plain_pass {
  static constexpr const char* name = "without position";
#ifdef FIXED
  static constexpr pass_position position = pass_position::in_order;
#endif
  static constexpr bool applies(const graph&) { return true; }
  static constexpr node_order run(graph&) { return node_order::kept; }
};

inline void add_it(graph& g) { add_pass<without_position>(g); }  // <- here

int main() {
  graph g;
  add_it(g);
}
