// SPDX-License-Identifier: Apache-2.0
// group: map
#include <doctest/doctest.h>

#include <string_view>
#include <utility>

#include "gspmd/gspmd.hpp"
#include "gspmd/program/hana.hpp"

using namespace gspmd;

namespace {

// A class with a constructor is not an aggregate. Hana states which of its members form the group.
template <class T>
struct adapted {
  constexpr adapted() {}  // NOLINT(modernize-use-equals-default)
  constexpr adapted(T first, T second) : w(std::move(first)), b(std::move(second)) {}
  BOOST_HANA_DEFINE_STRUCT(adapted, (T, w), (T, b));
  int updates = 0;
};
static_assert(detail::part_count<adapted<value>>() == 2);
static_assert(std::string_view(detail::struct_members<adapted<value>>::name<1>) == "b");
static_assert(transform_leaves([](int x, int y) { return x * 0.5 + y; }, adapted<int>(3, 4), adapted<int>(1, 2)).b == 4.0);

constexpr auto difference = [](adapted<value> p) { return adapted<value>(p.w - p.b, p.b); };
using step = compile<difference, mesh<axis<"x", 2>>, record<adapted, input<float, shape<4>, split<"x">>, input<float, shape<4>>>>;
static_assert(std::is_same_v<step::callable_result, adapted<value>>);

}  // namespace

TEST_CASE("a struct that is adapted to Hana is an argument and a result") {
  array<float> w({4}), b({4});
  for (int i = 0; i < 4; ++i) w[i] = 3.0F * static_cast<float>(i), b[i] = static_cast<float>(i);
  const auto result = run<step>(threads{}, adapted<array<float>>(w, b));
  CHECK((result.w[3] == 6 && result.b[3] == 3));
}
