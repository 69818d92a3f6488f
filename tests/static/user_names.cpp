// SPDX-License-Identifier: Apache-2.0
// alone: yes
// User code with `using namespace gspmd` and common names of its own. No name is ambiguous.
#include <list>
#include <map>
#include <ranges>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"

using namespace gspmd;

struct field {
  std::vector<double> values;
};
struct neighbours {
  int left, right;
};
struct sides {
  double low, high;
};
struct list {
  std::list<int> of;
};
struct views {
  int count;
};
double norm(const std::vector<double>& x) { return x.empty() ? 0 : x[0]; }
int histogram(const double* x, int count) { return x[0] > 0 ? count : 0; }
int sum(const std::vector<int>& x) { return static_cast<int>(x.size()); }

double own_names(const field& u, neighbours n, sides s, const list& l, views v) {
  std::map<int, field> map{{n.left, u}};
  const double rate = norm(map[n.right].values) + histogram(u.values.data(), v.count) + sum({1, 2});
  const int field = 1, list = 2;
  return rate + s.low + field + list + static_cast<double>(l.of.size());
}

// The library next to these names.
constexpr auto smoothed = [](auto u) {
  constexpr boundary::sides around{boundary::edge(), boundary::constant(1)};
  return norm(stencil<1>([](auto near) { return near(-1) + near(1); }, stencil_field(u, {around})));
};
using step =
    compile<smoothed, mesh_views<mesh<axis<"x", 4>>, mesh<axis<"y", 2>, axis<"z", 2>>>, input<double, shape<16>, split<"x">>>;
static_assert(step::collectives == collectives{collective_permute<"x">, all_reduce<"x">});
