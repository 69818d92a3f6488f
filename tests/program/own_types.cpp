// SPDX-License-Identifier: Apache-2.0
// Element types of the user's own, on uneven meshes, against loops over elements.
#include <doctest/doctest.h>

#include <gspmd/dynamic.hpp>

#include "support/error_of.hpp"
#include "support/own_numbers.hpp"

namespace {

using namespace own_numbers;
using row = mesh<axis<"x", 3>>;
using plane = mesh<axis<"x", 2>, axis<"y", 3>>;

template <class Step, class Case, class... Arrays>
void try_on(const Case& given, const Arrays&... arrays) {
  CHECK(given.wrong(run<Step>(simulated{}, arrays...)) == 0);
  CHECK(given.wrong(run<Step>(threads{}, arrays...)) == 0);
}

}  // namespace

TEST_CASE("a ring of the user's own: elementwise, maps, einsums, sums, movements, lookups, scans") {
  const residue_case given;
  using step = residue_step<plane, split<"x", "y">, split<"y", _>>;
  try_on<step>(given, given.x.of, given.w.of, given.rows, given.updates.of);
}

TEST_CASE("elements of 16 bytes: products with transposes, sums over a split dim") {
  const dual_case given;
  try_on<dual_step<row, split<_, "x", _>, split<"x", _>>>(given, given.x.of, given.w.of);
}

TEST_CASE("what a type of the user's own does not have is refused") {
  const dynamic::mesh m({{"x", 2}});
  const auto says = [&](const char* text, auto f) {
    const auto problem =
        caught::refusal([&] { dynamic::compile([&](value x) { return f(cast<residue>(x)); }, m, dynamic::input<double>({4})); });
    CAPTURE(problem);
    CHECK(caught::contains(problem, text));
  };
  says(
      "cast at own_types.cpp:39: has an element type of your own, which the run-time path has no kernels for; use "
      "gspmd::compile",
      [](value x) { return x; });
  says("max at own_types.cpp:47: is not defined for own type 0; map a function that takes it", [](value x) { return max(x, x); });
  says(
      "the number 2 is no value of own type 0, which has no number but 0; use a tensor of that type, or map a function that "
      "contains "
      "the number",
      [](value x) { return x * 2.0; });
  says("kind multiply is not defined for own type 0; map a function", [](value x) { return reduce(x, monoid::multiply); });
  says("elements of own type 0 have no order; sort by real numbers that are computed from them",
       [](value x) { return sort(x, 0); });
  says("top_k at own_types.cpp:56: is not defined for own type 0", [](value x) { return top_k(x, 1).first; });
  says(
      "map at own_types.cpp:60: is not defined for own type 0, and the function does not accept this type; let it take and "
      "return elements of this type",
      [](value x) { return map([](double a) { return a; }, x); });
  says("is not defined for own type 0; write it as a sum of shifted tensors",
       [](value x) { return einsum("(i+k),k->i", x, slice(x, {0}, {2})); });
}
