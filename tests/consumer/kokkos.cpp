// SPDX-License-Identifier: Apache-2.0
// Kokkos::View of both layouts, and a subview, are arguments and results of a step. The step honours their strides.
#include <Kokkos_Core.hpp>
#include <utility>

#include <gspmd/external.hpp>
#include <gspmd/gspmd.hpp>

using namespace gspmd;

constexpr auto twice = [](auto u) { return 2.0 * u; };
using step = compile<twice, mesh<axis<"x", 2>>, input<double, shape<3, 4>, split<"x", _>>>;

int wrong(auto from, auto to, bool is_in_place_expected) {
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 4; ++j) from(i, j) = 10 * i + j;
  run_into<step>(threads{}, strided_view(to), strided_view(from));
  int count = is_in_place(strided_view(from)) != is_in_place_expected;
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 4; ++j) count += to(i, j) != 2 * (10 * i + j);
  return count;
}
template <class Layout>
int wrong_of(bool is_in_place_expected) {
  using matrix = Kokkos::View<double**, Layout, Kokkos::HostSpace>;
  const auto part = [](const matrix& of) { return Kokkos::subview(of, std::pair(1, 4), std::pair(2, 6)); };
  const matrix from("from", 3, 4), to("to", 3, 4), wide("wide", 5, 7), wide_to("wide_to", 5, 7);
  return wrong(from, to, is_in_place_expected) + wrong(part(wide), part(wide_to), false) + (wide_to(0, 2) != 0) +
         (wide_to(1, 1) != 0) + (wide_to(3, 6) != 0) + (wide_to(4, 5) != 0);
}

int main() {
  const Kokkos::ScopeGuard kokkos;
  return wrong_of<Kokkos::LayoutRight>(true) + wrong_of<Kokkos::LayoutLeft>(false);
}
