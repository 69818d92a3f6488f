// SPDX-License-Identifier: Apache-2.0
// std::mdspan of each layout is an argument and a result of a step. The step honours its strides. An array is a view,
// and has elements with several indices.
#include <array>
#include <mdspan>
#include <vector>

#include <gspmd/external.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/program/mdspan.hpp>

using namespace gspmd;

constexpr auto twice = [](auto u) { return 2.0 * u; };
using step = compile<twice, mesh<axis<"x", 2>>, input<double, shape<3, 4>, split<"x", _>>>;
using matrix = std::dextents<int, 2>;

template <class Layout>
int wrong(typename Layout::template mapping<matrix> mapping, bool is_in_place_expected) {
  std::vector<double> u(100), next(100);
  const std::mdspan<double, matrix, Layout> from(u.data(), mapping), to(next.data(), mapping);
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 4; ++j) from[i, j] = 10 * i + j;
  run_into<step>(threads{}, strided_view(to), strided_view(from));
  int count = is_in_place(strided_view(from)) != is_in_place_expected;
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 4; ++j) count += to[i, j] != 2 * (10 * i + j);
  return count;
}

int wrong_array() {
  array<double> x({3, 4});
  x[2, 1] = 5;
  const auto view = as_mdspan<2>(x);
  view[1, 3] = 7;
  const array<double>& same = x;
  int count = view.extent(0) != 3 || view.extent(1) != 4 || view[2, 1] != 5 || as_mdspan<2>(same)[1, 3] != 7 || same[1, 3] != 7;
  try {
    count += as_mdspan<1>(x)[0] == 0 ? 1 : 2;
  } catch (const error&) {
  }
  return count;
}

int main() {
  return wrong_array() + wrong<std::layout_right>(matrix(3, 4), true) + wrong<std::layout_left>(matrix(3, 4), false) +
         wrong<std::layout_stride>({matrix(3, 4), std::array{20, 3}}, false);
}
