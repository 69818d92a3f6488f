// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: compiled
// alone: yes
#include <doctest/doctest.h>

#include <tuple>
#include <utility>
#include <vector>

#include "gspmd/detail/passes/list/make_plan.hpp"
#include "gspmd/index.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/run/compile.hpp"
#include "gspmd/transform/grad.hpp"
#include "gspmd/windows.hpp"
#include "support/equal_plans.hpp"

// Random programs with loops and conditionals, each planned while this file is compiled and again when it runs: equal
// plans.

namespace {

using namespace gspmd;

/// Numbers from a seed, while the program is traced.
struct draws {
  unsigned state;
  constexpr unsigned operator()(unsigned n) {
    state = state * 1664525u + 1013904223u;
    return (state >> 16) % n;
  }
};

constexpr value random_step(draws& next, value h, value w) {
  switch (next(5)) {
    case 0: return tanh(h);
    case 1: return einsum("ab,bc->ac", h, w);
    case 2: return h * w;
    case 3: return h - sum(h, {0});
    default: return h * sum(h) + w;
  }
}

constexpr value random_region(draws& next, value h, value w, int depth) {
  const auto body = [&](value v) {
    const value r = random_step(next, v, w);
    return depth < 1 && next(2) == 0 ? random_region(next, r, w, depth + 1) : r;
  };
  switch (next(3)) {
    case 0:
      return fori_loop(
          3,
          [&](value i, value v) {
            const value r = body(v);
            return next(2) == 0 ? r * cast<float>(i) : r;
          },
          h);
    case 1:
      return cond(
          sum(w) > 0.0F, body, [&](value v) { return random_step(next, v, w); }, h);
    default: {
      const auto [last, rows] = scan(
          [&](value c, value x) {
            const value r = c * 0.5F + x;
            return std::tuple{r, tanh(r)};
          },
          sum(h, {0}), h);
      return rows + last;
    }
  }
}

/// The seed is part of the callable's type, so that the compiler traces it too.
template <unsigned Seed>
constexpr auto random_callable = [](value x, value y) {
  draws next{Seed * 2654435761u + 77u};
  const value a = random_step(next, x, y);
  const value b = allow_replication(random_region(next, a, y, 0));
  const value c = random_step(next, b, a);
  if constexpr (Seed % 4 == 0) return std::tuple{c, grad(sum(c), x)};
  else return std::tuple{c, sum(b)};
};

using meshes = std::tuple<mesh<axis<"x", 2>, axis<"y", 2>>, mesh<axis<"x", 3>, axis<"y", 2>>,
                          mesh<axis<"x", 2>, axis<"y", 4>, device_order<3, 1, 0, 2, 7, 5, 6, 4>>>;
using splits = std::tuple<split<_, "x">, split<_, "y">, split<"?", "x">, split<_, _>, unannotated>;

template <unsigned Seed>
struct random_case {
  using pod = std::tuple_element_t<Seed % 3, meshes>;
  using a = input<float, shape<6, 6>, std::tuple_element_t<Seed % 5, splits>>;
  using b = input<float, shape<6, 6>, std::tuple_element_t<(Seed / 5 + Seed) % 5, splits>>;
  using planned = detail::static_plan<random_callable<Seed>, pod, a, b>;

  static std::string difference() {
    static_assert(planned::is_accepted);
    const auto g = detail::trace_program<random_callable<Seed>, pod, a, b>();
    const auto made = detail::plan_at_run_time(g, pod::info.shape, pod::info.request);
    return reference::difference(planned::view, detail::plan_view(made));
  }
};

}  // namespace

TEST_CASE("plans of loops and conditionals made by the compiler and at run time are equal") {
  const auto check = []<unsigned... Seed>(std::integer_sequence<unsigned, Seed...>) {
    const auto one = [](unsigned seed, const std::string& difference) { CHECK_MESSAGE(difference == "", "seed ", seed); };
    (one(Seed, random_case<Seed>::difference()), ...);
  };
  check(std::make_integer_sequence<unsigned, 10>{});
}
