// SPDX-License-Identifier: Apache-2.0
// labels: planner
// timeout: 120
// group: compiled
// alone: yes
#include <doctest/doctest.h>

#include <utility>

#include "gspmd/detail/passes/list/make_plan.hpp"
#include "gspmd/index.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/run/compile.hpp"
#include "gspmd/transform/grad.hpp"
#include "gspmd/windows.hpp"
#include "support/equal_plans.hpp"

// Many programs, each planned while this file is compiled and again when it runs: the plans are equal, step by step.

namespace {

using namespace gspmd;

/// A random callable: the seed is part of its type, so that the compiler traces it too.
template <unsigned Seed>
constexpr auto random_callable = [](value x, value y, value z) {
  unsigned state = Seed * 2654435761u + 12345u;
  const auto next = [&state](unsigned n) {
    state = state * 1664525u + 1013904223u;
    return (state >> 16) % n;
  };
  std::vector<value> pool{x, y, z};
  const auto pick = [&] { return pool[next(static_cast<unsigned>(pool.size()))]; };
  for (int i = 0; i < 7; ++i) {
    const value a = pick();
    const value b = pick();
    value made;
    switch (next(9)) {
      case 0: made = relu(a); break;
      case 1: made = a.shape() == b.shape() ? a * b : a - 0.5; break;
      case 2: made = a.shape() == b.shape() ? a + b : tanh(a); break;
      case 3: made = a.shape()[0] == b.shape()[0] ? einsum("ab,ac->bc", a, b) : einsum("ab,cb->ac", a, a); break;
      case 4: made = a.shape()[1] == b.shape()[0] ? einsum("ab,bc->ac", a, b) : einsum("ab->ba", a); break;
      case 5: made = transpose(a, {1, 0}); break;
      case 6: made = a - sum(a, {0}); break;
      case 7: made = softmax(a, 1); break;
      default:
        made = allow_replication(reshape(a, {a.shape()[0] * a.shape()[1]}));
        made = allow_replication(reshape(made, {a.shape()[1], a.shape()[0]}));
        break;
    }
    pool.push_back(made);
  }
  const value loss = mean(pool[pool.size() - 1] * 0.5) + sum(pool[pool.size() - 2]);
  if constexpr (Seed % 3 == 0) return std::tuple{pool.back(), grad(loss, x)};
  else return std::tuple{pool.back(), loss};
};

using meshes =
    std::tuple<mesh<axis<"x", 2>, axis<"y", 2>>, mesh<axis<"x", 4>, axis<"y", 1>>, mesh<axis<"x", 2>, axis<"y", 3>>,
               mesh<axis<"x", 2>, axis<"y", 4>, device_order<3, 1, 0, 2, 7, 5, 6, 4>>, mesh<axis<"x", 64>, axis<"y", 64>>>;
using splits = std::tuple<split<"x", _>, split<_, "y">, split<"x", "y">, split<"x,y", _>, split<"?", "x">, split<"y", "?">,
                          split<_, _>, unannotated>;

template <unsigned Seed>
struct random_case {
  using pod = std::tuple_element_t<Seed % 5, meshes>;
  using a = input<float, shape<7, 12>, std::tuple_element_t<Seed % 8, splits>>;
  using b = input<float, shape<12, 7>, std::tuple_element_t<(Seed / 8) % 8, splits>>;
  using c = input<float, shape<7, 7>, std::tuple_element_t<(Seed / 64 + Seed) % 8, splits>>;
  using planned = detail::static_plan<random_callable<Seed>, pod, a, b, c>;

  static std::string difference() {
    static_assert(planned::is_accepted);
    const auto g = detail::trace_program<random_callable<Seed>, pod, a, b, c>();
    const auto made = detail::plan_at_run_time(g, pod::info.shape, pod::info.request);
    return reference::difference(planned::view, detail::plan_view(made));
  }
};

template <unsigned First, unsigned... I>
void check(std::integer_sequence<unsigned, I...>) {
  const auto one = [](unsigned seed, const std::string& difference) { CHECK_MESSAGE(difference == "", "seed ", seed); };
  (one(First + I, random_case<First + I>::difference()), ...);
}

}  // namespace

TEST_CASE("plans made by the compiler and at run time are equal") {
  check<0>(std::make_integer_sequence<unsigned, 15>{});  // on each mesh three; compiled_programs.cpp compares plans too
}
