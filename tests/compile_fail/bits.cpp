// SPDX-License-Identifier: Apache-2.0
// std::vector<bool> has no array of elements. It gives one error in every call that accepts an array.
// expect: gspmd: std::vector<bool> stores bits, and a tensor of bool has a byte for each element; pass a gspmd::array<bool>, or a pointer to or a span of bools
#include <gspmd/gspmd.hpp>

using namespace gspmd;

constexpr auto chosen = [](auto m, auto a) { return where(m, a, 0.0 * a); };
using step = compile<chosen, mesh<axis<"x", 1>>, input<bool, shape<8>>, input<double, shape<8>>>;

int main() {
#ifdef FIXED
  array<bool> m({8});
#else
  std::vector<bool> m(8);
#endif
  std::vector<double> a(8), y(8);
  simulated_communicator comm(1);
  step s;
  const auto chosen_of_m = run<step>(serial{}, m, a);  // <- here
  static_cast<void>(distribute<step, 0>(comm, m));
  s(comm, m, a, y);
  return chosen_of_m[0] > 0;
}
