// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// labels: planner
// A search that is requested by the mesh, for a compiled program and for one planned at run time. Both have the same
// plan.
#include <doctest/doctest.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/plan/search.hpp>

#include "support/equal_plans.hpp"

namespace {

using namespace gspmd;
using both = mesh<axis<"dp", 2>, axis<"tp", 4>>;

constexpr auto train = [](auto x, auto w1, auto w2) {
  const auto y = einsum<"bf,fd->bd">(relu(einsum<"bd,df->bf">(x, w1)), w2);
  const auto [g1, g2] = grad(mean(y * y), std::tuple{w1, w2});
  return std::tuple{w1 - 0.1 * g1, w2 - 0.1 * g2};
};
template <options Options = options{}>
using step_with = compile<train, both, with<Options>, input<float, shape<512, 256>, split<"dp,tp", _>>,
                          input<float, shape<256, 1024>, split<"dp,tp", _>>, input<float, shape<1024, 256>, split<"tp", _>>>;

static_assert(step_with<>::traffic.bytes == 1572864);
static_assert(step_with<options{.search = true}>::traffic.bytes == 1310720);

}  // namespace

TEST_CASE("a search finds the same plan on both paths, and no other program is searched") {
  const auto planned_on = [](const dynamic::mesh& m) {
    return dynamic::compile([](value x, value w1, value w2) { return train(x, w1, w2); }, m,
                            dynamic::input<float>({512, 256}, {"dp,tp", ""}), dynamic::input<float>({256, 1024}, {"dp,tp", ""}),
                            dynamic::input<float>({1024, 256}, {"tp", ""}));
  };
  const dynamic::mesh m({{"dp", 2}, {"tp", 4}});
  CHECK(reference::difference(step_with<>::view, planned_on(m).view()) == "");
  CHECK(reference::difference(step_with<options{.search = true}>::view, planned_on(m.with({.search = true})).view()) == "");
}
