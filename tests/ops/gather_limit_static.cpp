// SPDX-License-Identifier: Apache-2.0
// group: map
#include <doctest/doctest.h>

#include <gspmd/comm/threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

#include "support/equal_plans.hpp"

// limit_gather on the static path runs, and is the plan of the run-time path.

using namespace gspmd;

namespace {
using three = mesh<axis<"x", 3>>;
constexpr auto products = [](auto x, auto w, auto v) {
  const value h = mesh_split(limit_gather(einsum<"bd,df->bf">(x, w), 0), {0, -1});
  return mesh_split(limit_gather(einsum<"bf,fd->bd">(h, v), 0), {0, -1});
};
using step = compile<products, three, input<double, shape<61, 5>, split<"x", _>>, input<double, shape<5, 7>, split<_, "x">>,
                     input<double, shape<7, 4>, split<"x", _>>>;
static_assert(step::collectives == collectives{collective_permute<"x">, collective_permute<"x">});

template <class T>
std::vector<T> numbers(std::size_t n, std::size_t step_by) {
  std::vector<T> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<T>(i * step_by % 11) - 5;
  return v;
}
}  // namespace

TEST_CASE("free and contracting letters on the static path") {
  const auto x = numbers<double>(61 * 5, 7), w = numbers<double>(5 * 7, 5), v = numbers<double>(7 * 4, 3);
  std::vector<double> h(61 * 7), y(61 * 4);
  for (std::size_t b = 0; b < 61; ++b)
    for (std::size_t f = 0; f < 7; ++f)
      for (std::size_t d = 0; d < 5; ++d) h[b * 7 + f] += x[b * 5 + d] * w[d * 7 + f];
  for (std::size_t b = 0; b < 61; ++b)
    for (std::size_t d = 0; d < 4; ++d)
      for (std::size_t f = 0; f < 7; ++f) y[b * 4 + d] += h[b * 7 + f] * v[f * 4 + d];
  const auto check = [&](const auto& backend) {
    const auto got = run<step>(backend, x, w, v);
    for (std::size_t i = 0; i < y.size(); ++i) CHECK(got.data()[i] == y[i]);
  };
  check(simulated{});
  check(threads{});
}

TEST_CASE("one planner") {
  const auto program = dynamic::compile(products, dynamic::mesh({{"x", 3}}), dynamic::input<double>({61, 5}, {"x", ""}),
                                        dynamic::input<double>({5, 7}, {"", "x"}), dynamic::input<double>({7, 4}, {"x", ""}));
  CHECK(reference::difference(step::view, program.view()) == "");
}
